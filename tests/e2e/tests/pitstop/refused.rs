//! Refusals of the webhook: the HTTP code, and a message that names the object and the field.

use kube::api::{DeleteParams, Patch, PatchParams};
use pitstop_api::labels;
use pitstop_e2e::ns::{Refusal, refusal};
use pitstop_e2e::system::WEBHOOK_NAME;
use pitstop_e2e::{Ns, Result, on_shared_cluster, pods, requests};
use serde_json::{Value, json};

/// Attempts for each request: the API server continues without a webhook that does not answer within its timeout.
const TRIES: usize = 5;

/// Asserts that this spec is refused with 400 by the webhook, and that nothing is stored.
async fn assert_refused(ns: &Ns, spec: Value, field: &str, text: &str) -> Result<()> {
    let (code, message) = refused(ns, &spec).await?;
    assert_eq!(code, 400, "{message}");
    let object = format!("ContainerRecreateRequest {}/wrong: {field}: ", ns.name);
    assert!(message.contains(&object), "{field}: {message}");
    assert!(message.contains(text), "{text:?}: {message}");
    assert!(ns.requests().get_opt("wrong").await?.is_none());
    Ok(())
}

/// The webhook's refusal.
async fn refused(ns: &Ns, spec: &Value) -> Result<Refusal> {
    let mut without = Vec::new();
    for _ in 0..TRIES {
        match ns.try_create(requests::with_spec("wrong", spec)).await? {
            Err((code, message)) if message.contains(WEBHOOK_NAME) => return Ok((code, message)),
            Err(other) => without.push(format!("{other:?}")),
            Ok(_) => {
                without.push("stored".to_owned());
                ns.requests().delete("wrong", &DeleteParams::default()).await?;
            }
        }
    }
    panic!("not refused by {WEBHOOK_NAME}: {spec}: {without:?}")
}

/// The spec of a plain request with one more member.
fn with(key: &str, value: Value) -> Value {
    let mut spec = requests::plain("web", &["app"]);
    spec[key] = value;
    spec
}

/// The spec of a plain request with one more member of its container.
fn with_container(key: &str, value: Value) -> Value {
    let mut spec = requests::plain("web", &["app"]);
    spec["containers"][0][key] = value;
    spec
}

#[test]
fn requests_that_make_no_sense() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pods::app("web")).await?;
        let context = json!({"containerID": format!("containerd://{}", "a".repeat(64)), "restartCount": 0});
        let hook = json!({"exec": {"command": ["true"]}});
        let strategy = |key: &str, value: Value| with("strategy", json!({key: value}));
        let cases = [
            (requests::plain("", &["app"]), "spec.podName", "podName can not be empty"),
            (requests::plain("web", &[]), "spec.containers", "containers list can not be null"),
            (
                requests::plain("web", &["app", "app"]),
                "spec.containers[1].name",
                "can not recreate app multi times",
            ),
            (
                with("activeDeadlineSeconds", json!(2)),
                "spec.activeDeadlineSeconds",
                "can not be less than 3s",
            ),
            (
                with("ttlSecondsAfterFinished", json!(-1)),
                "spec.ttlSecondsAfterFinished",
                "must be non-negative",
            ),
            (
                strategy("terminationGracePeriodSeconds", json!(-1)),
                "spec.strategy.terminationGracePeriodSeconds",
                "must be non-negative integer",
            ),
            (
                strategy("unreadyGracePeriodSeconds", json!(-1)),
                "spec.strategy.unreadyGracePeriodSeconds",
                "must be non-negative integer",
            ),
            (
                strategy("minStartedSeconds", json!(-1)),
                "spec.strategy.minStartedSeconds",
                "must be non-negative",
            ),
            (with_container("statusContext", context), "spec.containers[0].statusContext", "read-only"),
            (with_container("preStop", hook), "spec.containers[0].preStop", "read-only"),
            (
                with_container("ports", json!([{"containerPort": 80}])),
                "spec.containers[0].ports",
                "read-only",
            ),
            (requests::plain("other", &["app"]), "spec.podName", "no found Pod named other"),
            (
                requests::plain("web", &["other"]),
                "spec.containers[0].name",
                "container other not found in Pod",
            ),
            (
                requests::plain("web", &["app", "other"]),
                "spec.containers[1].name",
                "container other not found",
            ),
        ];
        for (spec, field, text) in cases {
            assert_refused(ns, spec, field, text).await?;
        }
        Ok(())
    })
}

#[test]
fn pods_that_cannot_be_serviced() -> Result<()> {
    on_shared_cluster(async |ns| {
        // No node has that label.
        let mut pending = pods::app("pending");
        pending["spec"]["nodeSelector"] = json!({"pitstop.dev/none": "none"});
        // The rules for these look at the Pod's definition, so that it need not run.
        let elsewhere = |name: &str| {
            let mut pod = pods::app(name);
            pod["spec"]["nodeName"] = json!("nowhere");
            pod
        };
        let mut init = elsewhere("init");
        init["spec"]["initContainers"] = json!([pods::idle("first")]);
        let mut mirror = elsewhere("mirror");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "x"});
        for pod in [pending, init, mirror, elsewhere("young")] {
            ns.create_pod(pod).await?;
        }
        let pod = |name: &str| requests::plain(name, &["app"]);
        let cases = [
            (pod("pending"), "spec.podName", "in a pending Pod"),
            (pod("mirror"), "spec.podName", "in a static Pod"),
            (requests::plain("init", &["first"]), "spec.containers[0].name", "first is an init container"),
            (pod("young"), "spec.containers[0].name", "not found app containerStatus in Pod Status"),
        ];
        for (spec, field, text) in cases {
            assert_refused(ns, spec, field, text).await?;
        }
        Ok(())
    })
}

#[test]
fn changes() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(pods::pod("web", &[pods::slow("app", 3)])).await?;
        let created = ns.create(requests::recreate("fixed", "web", &["app"])).await?;
        ns.stopping(&created, "app").await?;
        let label = |key: &str, value: Value| json!({"metadata": {"labels": {key: value}}});
        let immutable = "not allowed to update immutable label";
        let cases = [
            (
                json!({"spec": {"ttlSecondsAfterFinished": 9}}),
                "spec.ttlSecondsAfterFinished",
                "spec of ContainerRecreateRequest is immutable",
            ),
            (label(labels::POD_UID, json!("x")), "metadata.labels[crr.apps.kruise.io/pod-uid]", immutable),
            (label(labels::POD_UID, Value::Null), "metadata.labels[crr.apps.kruise.io/pod-uid]", immutable),
            (
                label(labels::NODE_NAME, json!("x")),
                "metadata.labels[crr.apps.kruise.io/node-name]",
                immutable,
            ),
            (
                label(labels::ACTIVE, Value::Null),
                "metadata.labels[crr.apps.kruise.io/active]",
                "the label stays until the request is over",
            ),
        ];
        for (patch, field, text) in cases {
            let patched = ns.requests().patch("fixed", &PatchParams::default(), &Patch::Merge(&patch)).await;
            let Err((code, message)) = refusal(patched)? else { panic!("not refused: {patch}") };
            assert_eq!(code, 403, "{message}");
            let object = format!("ContainerRecreateRequest {}/fixed: {field}: ", ns.name);
            assert!(message.contains(WEBHOOK_NAME) && message.contains(&object), "{field}: {message}");
            assert!(message.contains(text), "{message}");
        }
        // Users may change other labels.
        let patch = label("team", json!("a"));
        ns.requests().patch("fixed", &PatchParams::default(), &Patch::Merge(&patch)).await?;

        let taken = ns.try_create(requests::recreate("fixed", "web", &["app"])).await?;
        assert_eq!(taken.err().map(|(code, _)| code), Some(409));
        let over = ns.over("fixed").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        Ok(())
    })
}
