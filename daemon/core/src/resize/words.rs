//! Descriptions of writes, for messages and logs.

use super::{Setting, Write};

/// Describes writes, in their sequence.
pub fn describe_writes(writes: &[Write]) -> String {
    writes.iter().map(describe_write).collect::<Vec<_>>().join("; ")
}

/// Describes a write.
pub(crate) fn describe_write(write: &Write) -> String {
    let (whose, settings) = match write {
        Write::Reclaim { bytes, .. } => return format!("{bytes} bytes of memory to reclaim"),
        Write::Pod(setting) => ("the Pod's", std::slice::from_ref(setting)),
        Write::Container { settings, .. } => ("the container's", settings.as_slice()),
    };
    let or_none =
        |amount: &Option<i64>| amount.map_or_else(|| "none".to_owned(), |amount| amount.to_string());
    let each = settings.iter().map(|setting| match setting {
        Setting::Shares(shares) => format!("CPU shares {shares}"),
        Setting::Weight(weight) => format!("CPU weight {weight}"),
        Setting::Quota { quota, period } => {
            format!("CPU quota {} (µs in each {period} µs)", or_none(quota))
        }
        Setting::Memory(bytes) => format!("memory limit {} (bytes)", or_none(bytes)),
    });
    format!("{whose} {}", each.collect::<Vec<_>>().join(", "))
}

#[cfg(test)]
mod tests {
    use pitstop_api::id::ContainerId;

    use super::*;

    #[test]
    fn writes_are_told_in_words() {
        let quota = |quota| Setting::Quota { quota, period: 100_000 };
        let settings = vec![Setting::Shares(512), quota(Some(50_000)), Setting::Memory(Some(1024))];
        let writes = [
            Write::Pod(Setting::Weight(20)),
            Write::Container { id: ContainerId::parse(&"c".repeat(64)).unwrap(), settings },
            Write::Pod(quota(None)),
            Write::Reclaim { cgroup: "a/b".to_owned(), bytes: 7 },
        ];
        assert_eq!(
            describe_writes(&writes),
            "the Pod's CPU weight 20; the container's CPU shares 512, CPU quota 50000 (µs in each 100000 µs), memory \
             limit 1024 (bytes); the Pod's CPU quota none (µs in each 100000 µs); 7 bytes of memory to reclaim"
        );
    }
}
