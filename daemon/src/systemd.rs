//! Sets values of a slice through systemd, which undoes direct writes to the files at the next `daemon-reload`.

mod private;

use std::path::{Path, PathBuf};
use std::time::Duration;

use pitstop_api::logic::cgroup::{in_systemd_steps, linear_weight};
use pitstop_daemon_core::CallFailure;
use pitstop_daemon_core::cgroup::Version;
use pitstop_daemon_core::resize::Setting;
use pitstop_kit::describe;
use tokio::net::UnixStream;
use zbus::message::Message;
use zbus::zvariant::Value;

use self::private::Failure;

/// systemd's private socket, for root only. The system bus needs a broker, which `AppArmor` denies to containers, and
/// is not mounted.
const SOCKET: &str = "run/systemd/private";
/// Most time for the whole call, connecting included.
const LIMIT: Duration = Duration::from_secs(10);
/// systemd's default period, in microseconds. Versions before 242 know no other.
const PERIOD: i64 = 100_000;
const SECOND: i128 = 1_000_000;

/// The node's systemd.
#[derive(Clone, Debug)]
pub(crate) struct Systemd {
    root: PathBuf,
}

impl Systemd {
    /// The systemd of the node whose file system is below `host_root`.
    pub(crate) fn new(host_root: &Path) -> Self {
        Self { root: host_root.to_owned() }
    }

    /// Changes a slice until the node's next boot.
    pub(crate) async fn set(
        &self,
        version: Version,
        slice: &str,
        setting: Setting,
    ) -> Result<(), CallFailure> {
        let call = async {
            let message = message(slice, properties(version, setting))
                .map_err(|error| CallFailure { retry: false, message: describe(&error) })?;
            let answer = private::call(self.connect().await?, &message).await;
            answer.map_err(|why| failure(slice, &why))
        };
        tokio::time::timeout(LIMIT, call).await.unwrap_or_else(|_| {
            Err(CallFailure {
                retry: true,
                message: format!("systemd did not answer within {} s", LIMIT.as_secs()),
            })
        })
    }

    async fn connect(&self) -> Result<UnixStream, CallFailure> {
        let path = self.root.join(SOCKET);
        UnixStream::connect(&path).await.map_err(|error| {
            let message = format!("cannot reach systemd at {}: {}", path.display(), describe(&error));
            // A socket that is not mounted will not appear, but systemd may be restarting.
            CallFailure { retry: true, message }
        })
    }
}

/// The call that changes a slice until the node's next boot.
fn message(slice: &str, properties: Vec<(&'static str, Value<'static>)>) -> zbus::Result<Message> {
    Message::method_call("/org/freedesktop/systemd1", "SetUnitProperties")?
        .destination("org.freedesktop.systemd1")?
        .interface("org.freedesktop.systemd1.Manager")?
        .build(&(slice, true, properties))
}

fn failure(slice: &str, failure: &Failure) -> CallFailure {
    let (retry, why) = match failure {
        Failure::Refused { name, text } => {
            // The next look shows whether the slice is gone.
            let never =
                ["InvalidArgs", "UnknownProperty", "PropertyReadOnly", "AccessDenied", "UnknownMethod"];
            (!never.iter().any(|end| name.ends_with(end)), format!("{name}: {text}"))
        }
        Failure::Broken(why) => (true, why.clone()),
    };
    CallFailure { retry, message: format!("systemd does not change {slice}: {why}") }
}

/// A setting as systemd's properties of a slice. The numbers are unsigned; the largest means no limit.
fn properties(version: Version, setting: Setting) -> Vec<(&'static str, Value<'static>)> {
    let number = |number: i64| Value::U64(u64::try_from(number).unwrap_or_default());
    let or_none = |amount: Option<i64>| amount.map_or(Value::U64(u64::MAX), number);
    match (version, setting) {
        (Version::V1, Setting::Shares(shares) | Setting::Weight(shares)) => {
            vec![("CPUShares", number(shares))]
        }
        (Version::V2, Setting::Shares(shares)) => vec![("CPUWeight", number(linear_weight(shares)))],
        (Version::V2, Setting::Weight(weight)) => vec![("CPUWeight", number(weight))],
        (Version::V1, Setting::Memory(limit)) => vec![("MemoryLimit", or_none(limit))],
        (Version::V2, Setting::Memory(limit)) => vec![("MemoryMax", or_none(limit))],
        (_, Setting::Quota { quota, period }) => {
            let period = if period > 0 { period } else { PERIOD };
            let in_second = |quota| {
                let kept = i128::from(in_systemd_steps(quota, period)) * SECOND / i128::from(period);
                i64::try_from(kept).unwrap_or(i64::MAX)
            };
            let mut properties = vec![("CPUQuotaPerSecUSec", or_none(quota.map(in_second)))];
            if period != PERIOD {
                properties.push(("CPUQuotaPeriodUSec", number(period)));
            }
            properties
        }
    }
}

#[cfg(test)]
#[path = "systemd_tests.rs"]
mod tests;
