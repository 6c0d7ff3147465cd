//! `PodResize` requests, and the kernel's values for a Pod.

use std::fs;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::PostParams;
use pitstop_api::condition;
use pitstop_api::quantity::Resource;
use pitstop_api::resize::{Phase, PodResize, PodResizeStatus, conditions};
use serde_json::{Value, json};

use crate::ns::Ns;
use crate::wait::{LONG, SHORT, until};
use crate::{Context as _, Result, ensure, pods, process};

/// Bytes of a mebibyte.
pub const MI: i64 = 1 << 20;

/// The requests of a namespace.
pub fn api(ns: &Ns) -> Api<PodResize> {
    Api::namespaced(ns.cluster.client.clone(), &ns.name)
}

/// A request for a container of the Pod `web`; `resources` holds `requests` and `limits`.
pub fn resize(name: &str, container: &str, resources: &Value) -> Value {
    let named = json!({"name": container, "resources": resources});
    json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "metadata": {"name": name},
        "spec": {"podRef": {"name": "web"}, "containers": [named]}})
}

/// The request with one more field of its spec.
pub fn with(mut object: Value, field: &str, value: &Value) -> Value {
    if let Some(spec) = object.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert(field.to_owned(), value.clone());
    }
    object
}

/// Creates a request.
pub async fn create(ns: &Ns, object: Value) -> Result<PodResize> {
    let object = serde_json::from_value(object)?;
    Ok(api(ns).create(&PostParams::default(), &object).await?)
}

fn status(resize: &PodResize) -> PodResizeStatus {
    resize.status.clone().unwrap_or_default()
}

/// Phase and reason.
pub fn phase_and_reason(status: &PodResizeStatus) -> (Option<Phase>, String) {
    let complete = condition::find(&status.conditions, conditions::COMPLETE);
    (status.phase, complete.map_or_else(String::new, |c| c.reason.clone()))
}

/// Status of the request, once it waits with that reason.
pub async fn waits(ns: &Ns, name: &str, reason: &str) -> Result<PodResizeStatus> {
    until(&format!("{name} to wait with {reason}"), SHORT, async || {
        let status = status(&api(ns).get(name).await?);
        ensure!(status.completion_time.is_none(), "{:?}: {}", phase_and_reason(&status), status.message);
        Ok((phase_and_reason(&status).1 == reason).then_some(status))
    })
    .await
}

/// Status of the request, once it is over.
pub async fn over(ns: &Ns, name: &str) -> Result<PodResizeStatus> {
    until(&format!("the end of {name}"), LONG, async || {
        let status = status(&api(ns).get(name).await?);
        Ok(status.completion_time.is_some().then_some(status))
    })
    .await
}

/// Status of the request, which must end with that phase and reason.
pub async fn ends(ns: &Ns, name: &str, phase: Phase, reason: &str) -> Result<PodResizeStatus> {
    let status = over(ns, name).await?;
    let found = phase_and_reason(&status);
    ensure!(found == (Some(phase), reason.to_owned()), "{found:?}: {}", status.message);
    Ok(status)
}

/// Fails unless the daemon found the wanted resources in the kernel.
pub fn assert_verified(status: &PodResizeStatus) -> Result<()> {
    let verified = condition::find(&status.conditions, conditions::VERIFIED).context("not verified")?;
    ensure!(verified.reason == "CgroupsMatch", "{}: {}", verified.reason, verified.message);
    Ok(())
}

/// A container with these resources.
pub fn sized(mut container: Value, resources: &Value) -> Value {
    if let Some(fields) = container.as_object_mut() {
        fields.insert("resources".to_owned(), resources.clone());
    }
    container
}

/// 100m to 200m of CPU, 64Mi to 128Mi of memory.
pub fn usual() -> Value {
    json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}})
}

/// The Pod `web`: containers `app` and `proxy`, each with [`usual`] resources.
pub fn web() -> Value {
    pods::pod("web", &[sized(pods::idle("app"), &usual()), sized(pods::idle("proxy"), &usual())])
}

/// The Pod `web` with one container of [`usual`] resources that takes 100 MB once it finds the file `/data/go`.
pub fn hungry() -> Value {
    let script = "while [ ! -e /data/go ]; do sleep 0.2; done; rm /data/go; exec tail -c 100000000 /dev/zero";
    let mut app = sized(pods::shell("app", script), &usual());
    if let Some(fields) = app.as_object_mut() {
        fields.insert("volumeMounts".to_owned(), json!([{"name": "data", "mountPath": "/data"}]));
    }
    let mut pod = pods::pod("web", &[app]);
    if let Some(spec) = pod.get_mut("spec").and_then(Value::as_object_mut) {
        spec.insert("volumes".to_owned(), json!([{"name": "data", "emptyDir": {}}]));
    }
    pod
}

/// Makes the container `app` of the Pod `web` write a file that fills 80 to 90 MiB of page cache. Beside much other input
/// and output, the kernel drops it within seconds, so only this file is synced, and written again if need be.
pub async fn fill_page_cache(ns: &Ns, web: &Pod) -> Result<()> {
    let write = "dd if=/dev/zero of=/var/cached bs=1M count=90 conv=fsync";
    until("the page cache to be filled", SHORT, async || {
        ns.kubectl(&["exec", "web", "-c", "app", "--", "sh", "-c", write])?;
        Ok((usage(web, "app")? > 80 * MI).then_some(()))
    })
    .await
}

/// A request for more CPU than the node has free.
pub fn wanting(name: &str, cpu: &str) -> Value {
    resize(name, "app", &json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}))
}

/// Starts a Pod `filler` that takes half of the node's CPU. Returns a little more CPU than that, which the node would
/// have without `filler`.
pub async fn fill(ns: &Ns) -> Result<String> {
    let node = ns.pod("web").await?.spec.and_then(|s| s.node_name).context("a Pod without a node")?;
    let node = Api::<Node>::all(ns.cluster.client.clone()).get(&node).await?;
    let cpus = node.status.and_then(|s| s.allocatable).and_then(|a| a.get("cpu").cloned());
    let half = Resource::Cpu.parse(&cpus.context("no processors")?.0).context("no amount")? / 2;
    let resources = json!({"requests": {"cpu": Resource::Cpu.show(half)}});
    ns.start_pod(pods::pod("filler", &[sized(pods::idle("app"), &resources)])).await?;
    Ok(Resource::Cpu.show(half + 100))
}

/// Values of a cgroup, in the units of cgroup v1.
#[derive(Clone, Copy, Debug)]
pub struct Group {
    /// `cpu.shares`.
    pub shares: i64,
    /// `cpu.cfs_quota_us`: microseconds of each 100 ms.
    pub quota: i64,
    /// `memory.limit_in_bytes`.
    pub memory: i64,
}

/// With cgroup v2, shares of the same weight are equal: the weight does not show which were written.
impl PartialEq for Group {
    fn eq(&self, other: &Self) -> bool {
        let shares = |of: &Self| if has_cgroup2() { weight(of.shares) } else { of.shares };
        (shares(self), self.quota, self.memory) == (shares(other), other.quota, other.memory)
    }
}

/// `cpu.weight` of shares, as runc 1.1 writes it.
const fn weight(shares: i64) -> i64 {
    1 + ((shares - 2) * 9_999) / 262_142
}

/// The smallest shares with that weight.
const fn shares(weight: i64) -> i64 {
    ((weight - 1) * 262_142 + 9_998) / 9_999 + 2
}

/// The kernel's values for a container and for its Pod.
pub fn groups(pod: &Pod, container: &str) -> Result<[Group; 2]> {
    let pid = process::of_container(&pods::id(pod, container)?)?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let of = |above: &str| -> Result<Group> {
        if has_cgroup2() {
            let read = |name| unified(&text, above, name);
            let quota = read("cpu.max")?;
            return Ok(Group {
                shares: shares(amount(read("cpu.weight")?.trim())?),
                quota: amount(quota.split_whitespace().next().unwrap_or_default())?,
                memory: amount(read("memory.max")?.trim())?,
            });
        }
        Ok(Group {
            shares: file(&text, "cpu", above, "cpu.shares")?,
            quota: file(&text, "cpu", above, "cpu.cfs_quota_us")?,
            memory: file(&text, "memory", above, "memory.limit_in_bytes")?,
        })
    };
    Ok([of("")?, of("/..")?])
}

/// Bytes of memory that a container uses, page cache included.
pub fn usage(pod: &Pod, container: &str) -> Result<i64> {
    let pid = process::of_container(&pods::id(pod, container)?)?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    if has_cgroup2() {
        return amount(unified(&text, "", "memory.current")?.trim());
    }
    file(&text, "memory", "", "memory.usage_in_bytes")
}

/// Whether the machine has only cgroup v2.
fn has_cgroup2() -> bool {
    fs::exists("/sys/fs/cgroup/cgroup.controllers").unwrap_or(false)
}

/// Content of a cgroup v2 file, of the group that `text` (`/proc/PID/cgroup`) names, or of a parent.
fn unified(text: &str, above: &str, name: &str) -> Result<String> {
    let group = text.lines().find_map(|line| line.strip_prefix("0::"));
    let file =
        format!("/sys/fs/cgroup{}{above}/{name}", group.with_context(|| format!("no group in {text}"))?);
    fs::read_to_string(&file).context(file)
}

/// A number of cgroup v2. `max` (no limit) becomes -1, as in v1's quotas.
fn amount(text: &str) -> Result<i64> {
    if text == "max" { Ok(-1) } else { text.parse().with_context(|| text.to_owned()) }
}

/// A number in a file of the cgroup that `text` (`/proc/PID/cgroup`) names for the controller, or of a parent.
fn file(text: &str, controller: &str, above: &str, name: &str) -> Result<i64> {
    let mut lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
    let found = lines.find(|(controllers, _)| controllers.split(',').any(|c| c == controller));
    let group = found.with_context(|| format!("no {controller} in {text}"))?.1;
    let file = format!("/sys/fs/cgroup/{controller}{group}{above}/{name}");
    Ok(fs::read_to_string(&file).with_context(|| file.clone())?.trim().parse()?)
}

/// The kernel's CPU quota (microseconds per period) and memory limit (bytes) for a container and for its Pod.
pub fn kernel(pod: &Pod, container: &str) -> Result<[(i64, i64); 2]> {
    Ok(groups(pod, container)?.map(|group| (group.quota, group.memory)))
}
