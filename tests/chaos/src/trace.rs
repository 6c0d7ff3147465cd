//! What containers write down: a line for each start, stop signal, and beginning and end of a preStop hook, in a file
//! of a volume of their Pod. A line says which version of the image wrote it; the version `crash` ends at once. It is there whatever becomes of the API server, the runtime or pitstop.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::facts::Uptime;
use crate::plan::{ContainerPlan, GRACE, PodPlan};

/// Name of the volume.
const VOLUME: &str = "data";
/// The file in it.
const FILE: &str = "trace";

/// One line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) event: Event,
    /// Name of the container.
    pub(crate) container: String,
    /// ID of the instance, 64 hex digits.
    pub(crate) id: String,
    /// Of its image.
    pub(crate) version: String,
    pub(crate) time: Uptime,
}

/// What happened to an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    Started,
    /// It got the stop signal.
    Asked,
    HookBegan,
    HookEnded,
}

const WORDS: [(&str, Event); 4] = [
    ("started", Event::Started),
    ("asked", Event::Asked),
    ("hook-began", Event::HookBegan),
    ("hook-ended", Event::HookEnded),
];

/// Reads the file's text. A last line without its end is still being written.
pub(crate) fn parse(text: &str) -> Result<Vec<Entry>> {
    let lines = text.split_inclusive('\n').filter_map(|line| line.strip_suffix('\n'));
    lines.map(|line| entry(line).with_context(|| format!("line {line:?} of a trace"))).collect()
}

fn entry(line: &str) -> Result<Entry> {
    let words: Vec<&str> = line.split(' ').collect();
    let [word, container, id, version, time] = words.as_slice() else { bail!("five words are expected") };
    let event = WORDS.iter().find(|(known, _)| known == word);
    let (_, event) = event.with_context(|| format!("{word} is no event"))?;
    if id.len() != 64 || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        bail!("{id:?} is no container ID: does /proc/self/cgroup show none in a container of this machine?");
    }
    Ok(Entry {
        event: *event,
        container: (*container).to_owned(),
        id: (*id).to_owned(),
        version: (*version).to_owned(),
        time: uptime(time).with_context(|| format!("{time:?} is no uptime"))?,
    })
}

/// Of seconds with two digits behind the point, as `/proc/uptime` begins.
pub(crate) fn uptime(text: &str) -> Option<Uptime> {
    let (seconds, hundredths) = text.split_once('.').filter(|(_, digits)| digits.len() == 2)?;
    let (seconds, hundredths): (u64, u64) = (seconds.parse().ok()?, hundredths.parse().ok()?);
    seconds.checked_mul(100)?.checked_add(hundredths)
}

/// Where a node has the file of a Pod.
pub(crate) fn path(pod_uid: &str) -> String {
    format!("lib/kubelet/pods/{pod_uid}/volumes/kubernetes.io~empty-dir/{VOLUME}/{FILE}")
}

/// The Pod of a plan, whose containers write.
pub(crate) fn pod(plan: &PodPlan) -> Value {
    let containers: Vec<Value> = plan.containers.iter().map(container).collect();
    let mut pod = pitstop_e2e::pods::pod(&plan.name, &containers);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("nodeName".to_owned(), json!(plan.node));
        spec.insert("terminationGracePeriodSeconds".to_owned(), json!(GRACE));
        spec.insert("volumes".to_owned(), json!([{"name": VOLUME, "emptyDir": {}}]));
    }
    pitstop_e2e::pods::gated(pod, plan.gate.as_slice())
}

fn container(plan: &ContainerPlan) -> Value {
    let ContainerPlan { name, hook, ends } = plan;
    // The ID is in the path of the container's control group; a file of its own root keeps it for the hook.
    let script = format!(
        "grep -o -m1 '[0-9a-f]\\{{64\\}}$' /proc/self/cgroup > /id; {}; \
         [ \"$VERSION\" = crash ] && exit 1; \
         trap '{}; sleep {ends}; exit 0' TERM; while :; do sleep 100000 & wait $!; done",
        line("started", name),
        line("asked", name),
    );
    let mut container = pitstop_e2e::pods::shell(name, &script);
    if let Some(object) = container.as_object_mut() {
        object.insert("volumeMounts".to_owned(), json!([{"name": VOLUME, "mountPath": "/data"}]));
        if let Some(seconds) = hook {
            let script =
                format!("{}; sleep {seconds}; {}", line("hook-began", name), line("hook-ended", name));
            let exec = json!({"preStop": {"exec": {"command": ["sh", "-c", script]}}});
            object.insert("lifecycle".to_owned(), exec);
        }
    }
    container
}

/// A command that writes a line, with one write.
fn line(word: &str, container: &str) -> String {
    format!(
        r#"read up rest < /proc/uptime; echo "{word} {container} $(cat /id) ${{VERSION:-1}} $up" >> /data/{FILE}"#
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_read() {
        let id = "0123456789abcdef".repeat(4);
        let text = format!("started app {id} 1 12.34\nhook-began app {id} big 100.05\nasked app {id} 1");
        let entry = |event, version: &str, time| {
            let version = version.to_owned();
            Entry { event, container: "app".to_owned(), id: id.clone(), version, time }
        };
        assert_eq!(
            parse(&text).unwrap(),
            [entry(Event::Started, "1", 1234), entry(Event::HookBegan, "big", 10005)]
        );
    }

    #[test]
    fn what_is_no_line_is_told() {
        for (line, why) in [
            ("started app 1 12.34", "five words"),
            ("stopped app x 1 12.34", "stopped is no event"),
            ("started app  1 12.34", "/proc/self/cgroup"),
            ("started app 0123 1 12.34", "is no container ID"),
        ] {
            let error = format!("{:#}", parse(&format!("{line}\n")).unwrap_err());
            assert!(error.contains(why) && error.contains(line), "{error}");
        }
        assert_eq!(uptime("12.3"), None);
        assert_eq!(uptime("12"), None);
    }

    #[test]
    fn hooks_are_the_plans() {
        let plan = |hook| ContainerPlan { name: "app", hook, ends: 1 };
        assert!(container(&plan(None)).get("lifecycle").is_none());
        assert!(container(&plan(Some(2)))["lifecycle"]["preStop"]["exec"].to_string().contains("sleep 2"));
    }
}
