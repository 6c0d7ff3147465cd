//! `PodResize` through the API server's own resize, looked at in the Pod and in the node's cgroups.

mod asked;

use std::fs;

use k8s_openapi::api::core::v1::{Node, Pod};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use pitstop_api::condition;
use pitstop_api::quantity::Resource;
use pitstop_api::resize::{Phase, PodResize, PodResizeStatus, conditions};
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, ensure, on_cluster, pods, process, until};
use serde_json::{Value, json};

const MI: i64 = 1 << 20;

fn api(ns: &Ns) -> Api<PodResize> {
    Api::namespaced(ns.cluster.client.clone(), &ns.name)
}

fn resize(name: &str, container: &str, resources: &Value) -> Value {
    let mut named = resources.clone();
    named["name"] = json!(container);
    json!({"apiVersion": "pitstop.dev/v1alpha1", "kind": "PodResize", "metadata": {"name": name},
        "spec": {"podRef": {"name": "web"}, "containers": [named]}})
}

async fn create(ns: &Ns, object: Value) -> Result<PodResize> {
    let object = serde_json::from_value(object)?;
    Ok(api(ns).create(&PostParams::default(), &object).await?)
}

fn status(resize: &PodResize) -> PodResizeStatus {
    resize.status.clone().unwrap_or_default()
}

/// Phase and reason.
fn told(status: &PodResizeStatus) -> (Option<Phase>, String) {
    let complete = condition::find(&status.conditions, conditions::COMPLETE);
    (status.phase, complete.map_or_else(String::new, |c| c.reason.clone()))
}

/// The request, once it waits for that.
async fn waits(ns: &Ns, name: &str, reason: &str) -> Result<PodResizeStatus> {
    until(&format!("{name} to wait with {reason}"), SHORT, async || {
        let status = status(&api(ns).get(name).await?);
        ensure!(status.completion_time.is_none(), "{:?}: {}", told(&status), status.message);
        Ok((told(&status).1 == reason).then_some(status))
    })
    .await
}

/// The request, once it is over.
async fn over(ns: &Ns, name: &str) -> Result<PodResizeStatus> {
    until(&format!("the end of {name}"), LONG, async || {
        let status = status(&api(ns).get(name).await?);
        Ok(status.completion_time.is_some().then_some(status))
    })
    .await
}

/// The request, which must end so.
async fn ends(ns: &Ns, name: &str, phase: Phase, reason: &str) -> Result<PodResizeStatus> {
    let status = over(ns, name).await?;
    let found = told(&status);
    ensure!(found == (Some(phase), reason.to_owned()), "{found:?}: {}", status.message);
    Ok(status)
}

/// A container with these resources.
fn sized(mut container: Value, resources: &Value) -> Value {
    container["resources"] = resources.clone();
    container
}

/// 100m to 200m of CPU, 64Mi to 128Mi of memory.
fn usual() -> Value {
    json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "200m", "memory": "128Mi"}})
}

fn web() -> Value {
    pods::pod("web", &[sized(pods::idle("app"), &usual()), sized(pods::idle("proxy"), &usual())])
}

/// An amount in the Pod's spec.
fn spec_amount(pod: &Pod, container: &str, list: &str, resource: &str) -> Result<String> {
    let value = serde_json::to_value(&pods::container(pod, container)?.resources)?;
    let amount = value[list][resource].as_str().with_context(|| format!("{list}.{resource}: {value}"))?;
    Ok(amount.to_owned())
}

/// What the kernel has: CPU quota of a period in microseconds and memory limit in bytes, of a container and of its Pod.
fn kernel(pod: &Pod, container: &str) -> Result<[(i64, i64); 2]> {
    let pid = process::of_container(&pods::id(pod, container)?)?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let path = |controller: &str| -> Result<&str> {
        let mut lines = text.lines().filter_map(|line| line.split_once(':')?.1.split_once(':'));
        let found = lines.find(|(controllers, _)| controllers.split(',').any(|c| c == controller));
        Ok(found.with_context(|| format!("no {controller} in {text}"))?.1)
    };
    let read = |controller: &str, above: &str, file: &str| -> Result<i64> {
        let file = format!("/sys/fs/cgroup/{controller}{}{above}/{file}", path(controller)?);
        Ok(fs::read_to_string(&file).with_context(|| file.clone())?.trim().parse()?)
    };
    let of = |above: &str| -> Result<(i64, i64)> {
        let quota = read("cpu", above, "cpu.cfs_quota_us")?;
        Ok((quota, read("memory", above, "memory.limit_in_bytes")?))
    };
    Ok([of("")?, of("/..")?])
}

/// A Pod that takes half of the node's processors; gives back a little more CPU than that, which the node has as well.
async fn fill(ns: &Ns) -> Result<String> {
    let node = ns.pod("web").await?.spec.and_then(|s| s.node_name).context("a Pod without a node")?;
    let node = Api::<Node>::all(ns.cluster.client.clone()).get(&node).await?;
    let cpus = node.status.and_then(|s| s.allocatable).and_then(|a| a.get("cpu").cloned());
    let half = Resource::Cpu.parse(&cpus.context("no processors")?.0).context("no amount")? / 2;
    let resources = json!({"requests": {"cpu": Resource::Cpu.show(half)}});
    ns.start_pod(pods::pod("filler", &[sized(pods::idle("app"), &resources)])).await?;
    Ok(Resource::Cpu.show(half + 100))
}

/// More CPU than there is.
fn wanting(name: &str, cpu: &str) -> Value {
    resize(name, "app", &json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}}))
}

#[test]
fn a_pod_grows_and_shrinks_in_its_place() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(web()).await?;
        assert_eq!(kernel(&before, "app")?, [(20_000, 128 * MI), (40_000, 256 * MI)]);
        let larger = json!({"requests": {"cpu": "+50%"}, "limits": {"cpu": "400m", "memory": "x2"}});
        create(ns, resize("grow", "app", &larger)).await?;
        let status = ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        assert_eq!(
            status.message,
            "app: requests.cpu 100m -> 150m, limits.cpu 200m -> 400m, limits.memory 128Mi -> 256Mi"
        );
        let after = ns.pod("web").await?;
        assert_eq!(kernel(&after, "app")?, [(40_000, 256 * MI), (60_000, 384 * MI)], "the kernel has it");
        pods::assert_untouched(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "proxy")?;
        let [container] = &status.containers[..] else { panic!("{status:?}") };
        assert_eq!(container.actual.as_ref().unwrap().limits.memory.as_deref(), Some("256Mi"));
        let verified = condition::find(&status.conditions, conditions::VERIFIED).context("not verified")?;
        assert_eq!(verified.reason, "CgroupsMatch", "{}", verified.message);
        let cgroup = container.cgroup.context("the daemon has told nothing")?;
        assert_eq!((cgroup.container.cpu_quota, cgroup.pod.cpu_quota), (Some(40_000), Some(60_000)));
        assert_eq!(cgroup.container.memory_limit, Some(256 * MI));
        assert_eq!(container.allocated.as_ref().unwrap().cpu.as_deref(), Some("150m"));
        create(ns, resize("shrink", "app", &usual())).await?;
        ends(ns, "shrink", Phase::Succeeded, "Resized").await?;
        let last = ns.pod("web").await?;
        assert_eq!(kernel(&last, "app")?, [(20_000, 128 * MI), (40_000, 256 * MI)]);
        pods::assert_untouched(&before, &last, "app")?;
        Ok(())
    })
}

#[test]
fn a_policy_that_restarts_is_heeded() -> Result<()> {
    on_cluster(async |ns| {
        let mut app = sized(pods::idle("app"), &usual());
        app["resizePolicy"] = json!([{"resourceName": "memory", "restartPolicy": "RestartContainer"}]);
        let before = ns.start_pod(pods::pod("web", &[app])).await?;
        let mut refused = resize("never", "app", &json!({"limits": {"memory": "256Mi"}}));
        refused["spec"]["restart"] = json!("Never");
        create(ns, refused).await?;
        ends(ns, "never", Phase::Failed, "PolicyWouldRestart").await?;
        assert_eq!(spec_amount(&ns.pod("web").await?, "app", "limits", "memory")?, "128Mi");
        create(ns, resize("memory", "app", &json!({"limits": {"memory": "256Mi"}}))).await?;
        let status = ends(ns, "memory", Phase::Succeeded, "Resized").await?;
        assert!(status.containers[0].restarts);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        assert_eq!(kernel(&after, "app")?[0].1, 256 * MI);
        Ok(())
    })
}

#[test]
fn a_full_node_is_waited_for_until_there_is_room() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        create(ns, wanting("grow", &cpu)).await?;
        let status = waits(ns, "grow", "NodeBusy").await?;
        assert_eq!(status.phase, Some(Phase::Deferred));
        ns.kubectl(&["delete", "pod", "filler", "--grace-period=1"])?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        Ok(())
    })
}

#[test]
fn what_is_deferred_ends_by_deadline_by_cancel_and_by_another_hand() -> Result<()> {
    on_cluster(async |ns| {
        ns.start_pod(web()).await?;
        let cpu = fill(ns).await?;
        let original =
            async || -> Result<String> { spec_amount(&ns.pod("web").await?, "app", "requests", "cpu") };
        let mut deadline = wanting("deadline", &cpu);
        deadline["spec"]["activeDeadlineSeconds"] = json!(6);
        create(ns, deadline).await?;
        let status = ends(ns, "deadline", Phase::Failed, "DeadlineExceeded").await?;
        assert!(status.message.ends_with("the original resources are back"), "{}", status.message);
        assert_eq!(original().await?, "100m");

        let mut patient = wanting("patience", &cpu);
        patient["spec"]["onDeferred"] = json!({"waitSeconds": 4});
        create(ns, patient).await?;
        ends(ns, "patience", Phase::Failed, "NodeBusy").await?;
        assert_eq!(original().await?, "100m");

        create(ns, wanting("cancel", &cpu)).await?;
        waits(ns, "cancel", "NodeBusy").await?;
        let change = Patch::Merge(json!({"spec": {"cancel": true}}));
        api(ns).patch("cancel", &PatchParams::default(), &change).await?;
        ends(ns, "cancel", Phase::Cancelled, "Cancelled").await?;
        assert_eq!(original().await?, "100m");

        create(ns, wanting("fought", &cpu)).await?;
        waits(ns, "fought", "NodeBusy").await?;
        let patch = r#"{"spec":{"containers":[{"name":"app","resources":{"requests":{"cpu":"120m"},"limits":{"cpu":"220m"}}}]}}"#;
        ns.kubectl(&["patch", "pod", "web", "--subresource=resize", "--patch", patch])?;
        ends(ns, "fought", Phase::Failed, "Superseded").await?;
        assert_eq!(original().await?, "120m", "nobody is fought");

        create(ns, wanting("earlier", &cpu)).await?;
        waits(ns, "earlier", "NodeBusy").await?;
        create(ns, resize("later", "proxy", &json!({"limits": {"cpu": "250m"}}))).await?;
        let status = ends(ns, "earlier", Phase::Failed, "Superseded").await?;
        assert!(status.message.contains("/later"), "{}", status.message);
        ends(ns, "later", Phase::Succeeded, "Resized").await?;
        assert_eq!(original().await?, "120m", "the earlier one has put back what it had changed");
        Ok(())
    })
}

#[test]
fn refusals_are_told_in_the_users_words_and_change_nothing() -> Result<()> {
    on_cluster(async |ns| {
        let guaranteed = json!({"requests": {"cpu": "100m", "memory": "64Mi"}, "limits": {"cpu": "100m", "memory": "64Mi"}});
        let before = ns.start_pod(pods::pod("web", &[sized(pods::idle("app"), &guaranteed)])).await?;
        let cases = [
            ("qos", json!({"limits": {"cpu": "200m"}}), Phase::Failed, "QoSChange"),
            (
                "node",
                json!({"requests": {"cpu": "900"}, "limits": {"cpu": "900"}}),
                Phase::Infeasible,
                "NodeCapacity",
            ),
            ("name", json!({"limits": {"cpu": "50m"}}), Phase::Failed, "Invalid"),
        ];
        for (name, resources, phase, reason) in &cases {
            create(ns, resize(name, "app", resources)).await?;
            ends(ns, name, *phase, reason).await?;
        }
        let apply = |object: Value| {
            ns.cluster.kubectl_with(&["--namespace", &ns.name, "apply", "-f", "-"], &object.to_string())
        };
        apply(json!({"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "range"},
            "spec": {"limits": [{"type": "Container", "max": {"cpu": "300m"}}]}}))?;
        let both = |cpu: &str| json!({"requests": {"cpu": cpu}, "limits": {"cpu": cpu}});
        create(ns, resize("range", "app", &both("400m"))).await?;
        let status = ends(ns, "range", Phase::Failed, "LimitRange").await?;
        assert!(status.message.contains("maximum cpu usage per Container is 300m"), "{}", status.message);
        apply(json!({"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": "quota"},
            "spec": {"hard": {"requests.cpu": "150m"}}}))?;
        until("the quota to count", SHORT, async || {
            let used =
                ns.kubectl(&["get", "quota", "quota", "--output=jsonpath={.status.used.requests\\.cpu}"])?;
            Ok((used == "100m").then_some(()))
        })
        .await?;
        create(ns, resize("quota", "app", &both("200m"))).await?;
        let status = ends(ns, "quota", Phase::Failed, "Quota").await?;
        assert!(status.message.contains("exceeded quota: quota"), "{}", status.message);

        let mut dry = resize("dry", "app", &both("140m"));
        dry["spec"]["dryRun"] = json!(true);
        create(ns, dry).await?;
        let status = ends(ns, "dry", Phase::Succeeded, "WouldResize").await?;
        assert!(status.message.starts_with("dry run: app: requests.cpu 100m -> 140m"), "{}", status.message);
        let after = ns.pod("web").await?;
        assert_eq!(after.metadata.generation, before.metadata.generation, "the Pod's spec was never changed");

        let gpu = resize("gpu", "app", &json!({"limits": {"nvidia.com/gpu": "1"}}));
        let refused = create(ns, gpu).await.unwrap_err().to_string();
        assert!(refused.contains("only cpu and memory can be resized in place"), "{refused}");
        Ok(())
    })
}

#[test]
fn an_out_of_memory_kill_rolls_back() -> Result<()> {
    on_cluster(async |ns| {
        // Takes 100 MB once it is told to.
        let script =
            "while [ ! -e /data/go ]; do sleep 0.2; done; rm /data/go; exec tail -c 100000000 /dev/zero";
        let mut app = sized(pods::shell("app", script), &usual());
        app["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let mut pod = pods::pod("web", &[app]);
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        ns.start_pod(pod).await?;
        let mut small =
            resize("small", "app", &json!({"requests": {"memory": "32Mi"}, "limits": {"memory": "32Mi"}}));
        small["spec"]["rollbackOnFailure"] = json!({"observeSeconds": 60});
        create(ns, small).await?;
        let status = waits(ns, "small", "Observing").await?;
        assert_eq!(status.phase, Some(Phase::Verifying));
        assert_eq!(kernel(&ns.pod("web").await?, "app")?[0].1, 32 * MI);
        ns.kubectl(&["exec", "web", "--", "touch", "/data/go"])?;
        let status = ends(ns, "small", Phase::RolledBack, "OOMKilled").await?;
        assert!(status.message.ends_with("the original resources are back"), "{}", status.message);
        let after = ns.ready("web").await?;
        assert_eq!(kernel(&after, "app")?, [(20_000, 128 * MI); 2]);
        Ok(())
    })
}
