//! Restarts through the kubelet, by an image string that names the running digest.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use pitstop_e2e::{
    Context, LONG, Ns, Result, SHORT, bail, ensure, on_cluster, on_shared_cluster, pods, requests, system,
    until,
};
use serde_json::{Value, json};

/// A request with that strategy.
fn with_strategy(name: &str, containers: &[&str], strategy: Value) -> Value {
    let mut spec = requests::plain("web", containers);
    spec["strategy"] = strategy;
    requests::with_spec(name, &spec)
}

fn image<'a>(pod: &'a Pod, container: &str) -> Result<&'a str> {
    let spec = pod.spec.as_ref().context("a Pod without a spec")?;
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let found = all.find(|c| c.name == container).with_context(|| format!("no container {container}"))?;
    found.image.as_deref().context("a container without an image")
}

/// The digest that a container runs.
fn digest(pod: &Pod, container: &str) -> Result<String> {
    let id = &pods::status(pod, container)?.image_id;
    Ok(id.split_once('@').with_context(|| format!("no digest in {id:?}"))?.1.to_owned())
}

/// The Pod's status of a native sidecar.
fn sidecar<'a>(pod: &'a Pod, name: &str) -> Result<&'a ContainerStatus> {
    let all = pod.status.iter().flat_map(|s| s.init_container_statuses.iter().flatten());
    all.into_iter().find(|s| s.name == name).with_context(|| format!("no status of {name}"))
}

#[test]
fn the_kubelet_restarts_what_is_pinned() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let created = ns.create(with_strategy("pin", &["app"], json!({"mechanism": "Kubelet"}))).await?;
        let over = ns.over("pin").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")?;
        assert_eq!(image(&after, "app")?, format!("{}@{}", image(&before, "app")?, digest(&before, "app")?));
        assert_eq!(digest(&after, "app")?, digest(&before, "app")?);
        assert_eq!(image(&after, "sidecar")?, image(&before, "sidecar")?);
        assert!(ns.orders(&created).await?.is_empty(), "the daemon is not asked");
        // Once more: another string for the same digest.
        ns.ready("web").await?;
        ns.create(with_strategy("pin-again", &["app"], json!({"mechanism": "Kubelet"}))).await?;
        ns.over("pin-again").await?;
        let last = ns.pod("web").await?;
        pods::assert_restarted_once(&after, &last, "app")?;
        assert_eq!(digest(&last, "app")?, digest(&before, "app")?);
        Ok(())
    })
}

#[test]
fn both_containers_are_pinned_with_one_change() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let generation = before.metadata.generation;
        let strategy = json!({"mechanism": "Kubelet"});
        // In another order than the Pod's own.
        ns.create(with_strategy("pin", &["sidecar", "app"], strategy)).await?;
        let over = ns.over("pin").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("sidecar"), requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_restarted_once(&before, &after, "sidecar")?;
        assert_eq!(after.metadata.generation, generation.map(|g| g + 1), "one change of the spec");
        Ok(())
    })
}

#[test]
fn restart_policy_never_goes_through_the_kubelet() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut pod = pods::app("web");
        pod["spec"]["restartPolicy"] = json!("Never");
        let before = ns.start_pod(pod).await?;
        let refused = ns.try_create(with_strategy("stop", &["app"], json!({"mechanism": "Runtime"}))).await?;
        let (code, message) = refused.err().context("a stop that nothing undoes is not refused")?;
        assert_eq!(code, 400);
        assert!(
            message.contains("spec.strategy.mechanism: container app: restartPolicy is Never"),
            "{message}"
        );
        ns.create(requests::recreate("auto", "web", &["app"])).await?;
        let over = ns.over("auto").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        assert_eq!(after.status.and_then(|s| s.phase).as_deref(), Some("Running"));
        Ok(())
    })
}

#[test]
fn a_container_in_back_off_is_started_at_once() -> Result<()> {
    on_shared_cluster(async |ns| {
        // Fails until the volume has seen three starts.
        let script = "trap 'exit 0' TERM; echo x >> /data/starts; [ $(wc -l < /data/starts) -ge 4 ] || exit 1; \
                      sleep 100000 & wait";
        let mut app = pods::idle("app");
        app["command"] = json!(["sh", "-c", script]);
        app["volumeMounts"] = json!([{"name": "data", "mountPath": "/data"}]);
        let mut pod = pods::pod("web", &[app]);
        pod["spec"]["volumes"] = json!([{"name": "data", "emptyDir": {}}]);
        ns.create_pod(pod).await?;
        // After the third end the kubelet waits for 20 s; at first the Pod shows it as ended, later as waiting.
        let before = until("the third end", LONG, async || {
            let pod = ns.pod("web").await?;
            let ended = pods::status(&pod, "app").is_ok_and(|s| {
                s.restart_count == 2 && s.state.as_ref().is_some_and(|state| state.running.is_none())
            });
            Ok(ended.then_some(pod))
        })
        .await?;
        ns.create(with_strategy("pin", &["app"], json!({"mechanism": "Kubelet"}))).await?;
        let over = ns.over("pin").await?;
        let [state] = requests::states(&over) else { panic!("{over:?}") };
        assert!(!state.is_killed, "nobody killed it: it had ended by itself");
        assert_eq!(requests::condition(&over, "Complete").map(|c| c.reason.as_str()), Some("Complete"));
        let after = ns.pod("web").await?;
        assert_eq!(pods::restarts(&after, "app")?, pods::restarts(&before, "app")? + 1);
        assert_eq!(image(&after, "app")?, format!("{}@{}", image(&before, "app")?, digest(&before, "app")?));
        Ok(())
    })
}

#[test]
fn native_sidecars_restart_by_both_mechanisms() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut proxy = pods::idle("proxy");
        proxy["restartPolicy"] = json!("Always");
        let mut pod = pods::pod("web", &[pods::web("app")]);
        pod["spec"]["initContainers"] = json!([proxy]);
        let mut before = ns.start_pod(pod).await?;
        for mechanism in ["Kubelet", "Runtime"] {
            let name = mechanism.to_lowercase();
            ns.create(with_strategy(&name, &["proxy"], json!({"mechanism": mechanism}))).await?;
            let over = ns.over(&name).await?;
            assert_eq!(requests::states(&over), [requests::succeeded("proxy")], "{mechanism}");
            let after = ns.pod("web").await?;
            let (old, new) = (sidecar(&before, "proxy")?, sidecar(&after, "proxy")?);
            assert_ne!(old.container_id, new.container_id);
            assert_eq!(new.restart_count, old.restart_count + 1, "{mechanism}");
            pods::assert_untouched(&before, &after, "app")?;
            before = after;
        }
        Ok(())
    })
}

#[test]
fn a_plain_init_container_is_refused() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut setup = pods::idle("setup");
        setup["command"] = json!(["true"]);
        let mut pod = pods::pod("web", &[pods::web("app")]);
        pod["spec"]["initContainers"] = json!([setup]);
        ns.start_pod(pod).await?;
        let refused = ns.try_create(requests::recreate("init", "web", &["setup"])).await?;
        let (code, message) = refused.err().context("not refused")?;
        assert_eq!(code, 400);
        assert!(message.contains("setup is an init container"), "{message}");
        Ok(())
    })
}

#[test]
fn auto_does_without_a_daemon() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let nowhere = r#"{"spec":{"template":{"spec":{"nodeSelector":{"pitstop.dev/none":"here"}}}}}"#;
        let system = ["--namespace", system::NAMESPACE];
        ns.cluster
            .kubectl(&[&system[..], &["patch", "daemonset", system::DAEMON, "-p", nowhere]].concat())?;
        let outcome = without_a_daemon(ns, &before).await;
        let back = r#"{"spec":{"template":{"spec":{"nodeSelector":{"pitstop.dev/none":null}}}}}"#;
        ns.cluster.kubectl(&[&system[..], &["patch", "daemonset", system::DAEMON, "-p", back]].concat())?;
        outcome
    })
}

async fn without_a_daemon(ns: &Ns, before: &Pod) -> Result<()> {
    until("the daemon to go", LONG, async || {
        Ok(system::pods_of(&ns.cluster, system::DAEMON).await?.is_empty().then_some(()))
    })
    .await?;
    let created = ns.create(requests::recreate("auto", "web", &["app"])).await?;
    let over = ns.over_within("auto", LONG).await?;
    assert_eq!(requests::states(&over), [requests::succeeded("app")]);
    let after = ns.pod("web").await?;
    pods::assert_restarted_once(before, &after, "app")?;
    ensure!(image(&after, "app")?.contains('@'), "it was the kubelet");
    until("the order to be gone", SHORT, async || Ok(ns.orders(&created).await?.is_empty().then_some(())))
        .await
}

/// Dry-runs a change of the Pod as the controller; returns the API server's answer.
fn forged(ns: &Ns, patch: &Value) -> Result<String, String> {
    let user = format!("--as=system:serviceaccount:{}:pitstop-controller", system::NAMESPACE);
    let patch = patch.to_string();
    ns.kubectl(&["patch", "pod", "web", &user, "--dry-run=server", "-p", &patch])
        .map_err(|e| format!("{e:#}"))
}

#[test]
fn the_right_to_patch_pods_is_good_for_nothing_else() -> Result<()> {
    on_cluster(async |ns| {
        let pod = ns.start_pod(pods::app("web")).await?;
        let (image, digest) = (image(&pod, "app")?, digest(&pod, "app")?);
        let repository = image.rsplit_once(':').context("no tag")?.0;
        let other = format!("sha256:{}", "0".repeat(64));
        let app = |image: String| json!({"spec": {"containers": [{"name": "app", "image": image}]}});
        for allowed in [format!("{image}@{digest}"), format!("{repository}@{digest}"), image.to_owned()] {
            if let Err(error) = forged(ns, &app(allowed.clone())) {
                bail!("{allowed}: {error}");
            }
        }
        let toleration = json!([{"key": "x", "operator": "Exists", "effect": "NoSchedule"}]);
        for denied in [
            app(format!("{repository}:2")),
            app(format!("{repository}@{other}")),
            app(format!("{image}@{other}")),
            app(format!("{repository}-evil:1@{digest}")),
            app(format!("evil/{repository}@{digest}")),
            app(format!("evil.example/x@{digest}")),
            app(digest.clone()),
            json!({"metadata": {"labels": {"a": "b"}}}),
            json!({"metadata": {"labels": {"app": null}}}),
            json!({"metadata": {"annotations": {"a": "b"}}}),
            json!({"metadata": {"finalizers": ["a.example/b"]}}),
            json!({"metadata": {"ownerReferences": [
                {"apiVersion": "v1", "kind": "Node", "name": "n", "uid": "u"}]}}),
            json!({"spec": {"activeDeadlineSeconds": 1}}),
            json!({"spec": {"tolerations": toleration}}),
        ] {
            let error = forged(ns, &denied).err().with_context(|| format!("allowed: {denied}"))?;
            assert!(error.contains("pitstop may"), "{denied}: {error}");
        }
        Ok(())
    })
}
