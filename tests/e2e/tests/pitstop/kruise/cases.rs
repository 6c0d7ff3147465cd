//! The `v1alpha1` cases of `OpenKruise`'s own tests of `ContainerRecreateRequest`, with its clients, and the numbers
//! and bounds of its test suite.
//!
//! Its tests use Pods of `CloneSet`s; these are plain Pods with the same gate. Compared times are those of API objects,
//! in whole seconds.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{Patch, PatchParams};
use pitstop_e2e::kruise::{self, Client, Request, Spec, Status, Strategy, V1alpha1};
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, on_shared_cluster, pods, requests, until};
use serde_json::{Value, json};

pub(super) const GATE: &str = "KruisePodReady";
/// Bound for a request that has `minStartedSeconds` of 5.
const WITH_MIN_STARTED: Duration = Duration::from_secs(70);
/// Seconds that `app` takes to start: it counts as running only after its postStart hook.
const POST_START: i64 = 5;
/// Seconds that `app` takes to end if its hook is not cut.
const PRE_STOP: i64 = 8;
/// The name of every request.
const NAME: &str = "crr";

/// The Pod of the cases: without probes, so ready as soon as it runs; `app` has these hooks.
pub(super) fn pod(lifecycle: &Value) -> Value {
    pods::gated(pods::pod("web", &[app("app", lifecycle), pods::idle("sidecar")]), &[GATE])
}

fn app(name: &str, lifecycle: &Value) -> Value {
    let mut app = pods::web(name);
    app["readinessProbe"] = Value::Null;
    app["lifecycle"] = lifecycle.clone();
    app
}

fn hook(when: &str, seconds: i64) -> Value {
    json!({when: {"exec": {"command": ["sleep", seconds.to_string()]}}})
}

/// A request that has restarted every container that it names, and the Pod before and after.
pub(super) struct Restarted<S: Status> {
    pub over: Request<S>,
    before: Pod,
    pub after: Pod,
}

impl<S: Status> Restarted<S> {
    /// Seconds from the creation of the request to the end of the container.
    fn ended(&self, container: &str) -> Result<i64> {
        let created = self.over.metadata.creation_timestamp.as_ref().context("no creationTimestamp")?;
        Ok(ended(&self.after, container)? - created.0.as_second())
    }

    /// Seconds from the end of `app` to the end of `sidecar`.
    fn apart(&self) -> Result<i64> {
        Ok(ended(&self.after, "sidecar")? - ended(&self.after, "app")?)
    }

    /// Seconds from the start of the new container to the end of the request.
    fn ran(&self, container: &str) -> Result<i64> {
        let state = pods::status(&self.after, container)?.state.clone().context("no state")?;
        let started = state.running.and_then(|r| r.started_at).context("it does not run")?;
        let completed = kruise::common(&self.over).completion_time.context("no completionTime")?;
        Ok(completed.0.as_second() - started.0.as_second())
    }
}

/// Unix time of the previous instance's end.
fn ended(pod: &Pod, container: &str) -> Result<i64> {
    Ok(pods::last_end(pod, container)?.finished_at.context("no finishedAt")?.0.as_second())
}

/// Restarts containers of a new Pod, and asserts what all cases share.
pub(super) async fn restart<S: Status>(
    ns: &Ns,
    pod: Value,
    spec: Spec,
    limit: Duration,
) -> Result<Restarted<S>> {
    let before = ns.start_pod(pod).await?;
    let client = Client::<S>::new(ns);
    let created = client.create(NAME, spec).await?;
    assert_admitted(&created, &before)?;
    client.completed(NAME, limit).await?;
    let over = client.inactive(NAME).await?;
    let names: Vec<_> = over.spec.containers.iter().map(|c| c.name.as_str()).collect();
    let succeeded: Vec<_> = names.iter().map(|name| kruise::state(name, "Succeeded", true)).collect();
    assert_eq!(kruise::states(&over), succeeded);
    let after = ns.pod("web").await?;
    assert!(pods::is_ready(&after), "the request was over before the Pod was ready");
    for name in names {
        assert_ne!(pods::id(&after, name)?, kruise::instances(&over)[name]);
        pods::assert_restarted_once(&before, &after, name)?;
    }
    Ok(Restarted { over, before, after })
}

/// Asserts what admission fills in.
fn assert_admitted<S: Status>(created: &Request<S>, pod: &Pod) -> Result<()> {
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref());
    assert_eq!(kruise::label(created, kruise::POD_UID), pod.metadata.uid.as_deref());
    assert_eq!(kruise::label(created, kruise::NODE_NAME), node);
    assert_eq!(kruise::label(created, kruise::ACTIVE), Some("true"));
    let strategy = created.spec.strategy.clone().context("no strategy")?;
    assert_eq!(strategy.failure_policy.as_deref(), Some("Fail"));
    let instances = kruise::instances(created);
    assert_eq!(instances.len(), created.spec.containers.len());
    for (name, id) in instances {
        assert_eq!(id, pods::id(pod, name)?);
    }
    Ok(())
}

fn both(strategy: Option<Strategy>) -> Spec {
    Spec { strategy, ..kruise::spec("web", &["app", "sidecar"]) }
}

/// Cases 1a and 5.
pub(super) async fn one_container<S: Status>(ns: &Ns) -> Result<()> {
    let spec = Spec {
        strategy: Some(Strategy { min_started_seconds: Some(5), ..Strategy::default() }),
        ttl_seconds_after_finished: Some(3),
        ..kruise::spec("web", &["app"])
    };
    let done = restart::<S>(ns, pod(&Value::Null), spec, WITH_MIN_STARTED).await?;
    pods::assert_untouched(&done.before, &done.after, "sidecar")?;
    let ran = done.ran("app")?;
    assert!(ran > 4, "over {ran} s after the start");
    let client = Client::<S>::new(ns);
    until("the request to be deleted", SHORT, async || Ok(client.is_gone(NAME).await?.then_some(()))).await
}

/// Cases 1b and 5.
pub(super) async fn both_containers<S: Status>(ns: &Ns) -> Result<()> {
    restart::<S>(ns, pod(&Value::Null), both(None), SHORT).await.map(drop)
}

/// Cases 2a and 4a.
async fn unordered(ns: &Ns, strategy: Option<Strategy>) -> Result<()> {
    let slow = pod(&hook("postStart", POST_START));
    let apart = restart::<V1alpha1>(ns, slow, both(strategy), SHORT).await?.apart()?;
    assert!(apart < 3, "sidecar ended {apart} s after app");
    Ok(())
}

/// Cases 2b, 4b and 7.
pub(super) async fn ordered<S: Status>(ns: &Ns, strategy: Strategy, limit: Duration) -> Result<()> {
    let slow = pod(&hook("postStart", POST_START));
    let strategy = Strategy { ordered_recreate: Some(true), ..strategy };
    let apart = restart::<S>(ns, slow, both(Some(strategy)), limit).await?.apart()?;
    assert!(apart >= POST_START, "sidecar ended {apart} s after app");
    Ok(())
}

fn force() -> Strategy {
    Strategy { force_recreate: Some(true), ..Strategy::default() }
}

#[test]
fn case_1a_one_container_that_must_have_run_for_a_while() -> Result<()> {
    on_shared_cluster(one_container::<V1alpha1>)
}

#[test]
fn case_1b_both_containers() -> Result<()> {
    on_shared_cluster(both_containers::<V1alpha1>)
}

#[test]
fn case_2a_unordered_does_not_wait_for_the_start() -> Result<()> {
    on_shared_cluster(async |ns| unordered(ns, None).await)
}

#[test]
fn case_2b_ordered_waits_for_the_success_of_the_one_before() -> Result<()> {
    on_shared_cluster(async |ns| ordered::<V1alpha1>(ns, Strategy::default(), SHORT).await)
}

#[test]
fn case_3a_unordered_waits_for_the_stop_of_the_one_before() -> Result<()> {
    on_shared_cluster(async |ns| {
        let slow = pod(&hook("preStop", PRE_STOP));
        let took = restart::<V1alpha1>(ns, slow, both(None), SHORT).await?.ended("sidecar")?;
        assert!(took >= PRE_STOP, "sidecar ended {took} s after the creation");
        Ok(())
    })
}

/// Also checks fields of pitstop that `OpenKruise`'s clients do not read.
#[test]
fn case_3b_a_deadline_ends_the_request_and_the_stop_goes_on() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pod(&hook("preStop", PRE_STOP))).await?;
        let client = Client::<V1alpha1>::new(ns);
        let created = client.create(NAME, Spec { active_deadline_seconds: Some(3), ..both(None) }).await?;
        assert_admitted(&created, &before)?;
        let over = client.completed(NAME, SHORT).await?;
        let pending = |name| kruise::state(name, "Pending", false);
        let unlabelled = client.inactive(NAME).await?;
        assert_eq!(kruise::states(&unlabelled), [pending("app"), pending("sidecar")]);
        let message = "recreating has exceeded the activeDeadlineSeconds";
        assert_eq!(kruise::common(&unlabelled).message, message);
        let ours = ns.request(NAME).await?;
        let conditions = requests::conditions(&ours);
        assert_eq!(conditions["Failed"], "True/DeadlineExceeded");
        assert_eq!(conditions["Complete"], "False/DeadlineExceeded");

        until("app to be up again", SHORT, async || {
            Ok((pods::restarts(&ns.pod("web").await?, "app")? == 1).then_some(()))
        })
        .await?;
        until("the Pod to be ready", LONG, async || Ok(pods::is_ready(&ns.pod("web").await?).then_some(())))
            .await?;
        // No wait: the end of the stop is reported before the Pod is ready again.
        let last = client.get(NAME).await?;
        assert_eq!(kruise::states(&last), [kruise::state("app", "Recreating", true), pending("sidecar")]);
        let end = |request| {
            let status = kruise::common(request);
            (status.phase, status.completion_time, status.message)
        };
        assert_eq!(end(&last), end(&over));

        ns.settled(&ours).await?;
        assert_eq!(kruise::states(&client.get(NAME).await?), kruise::states(&last));
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")
    })
}

/// Also checks fields of pitstop that `OpenKruise`'s clients do not read.
#[test]
fn case_3c_a_drain_and_a_hook_that_the_grace_period_cuts() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pod(&hook("preStop", PRE_STOP))).await?;
        assert_eq!(gate(&before), ("True", "[]"));
        let client = Client::<V1alpha1>::new(ns);
        let strategy = Strategy {
            termination_grace_period_seconds: Some(3),
            unready_grace_period_seconds: Some(1),
            ..Strategy::default()
        };
        client.create(NAME, both(Some(strategy))).await?;
        let hold = format!(r#"[{{"userAgent":"ContainerRecreateRequest","key":"{}/{NAME}"}}]"#, ns.name);
        until("the Pod to be held", SHORT, async || {
            Ok((gate(&ns.pod("web").await?) == ("False", hold.as_str())).then_some(()))
        })
        .await?;

        let over = client.completed(NAME, SHORT).await?;
        let succeeded = ["app", "sidecar"].map(|name| kruise::state(name, "Succeeded", true));
        assert_eq!(kruise::states(&over), succeeded);
        until("the hold to be released", SHORT, async || {
            Ok((gate(&ns.pod("web").await?) == ("True", "[]")).then_some(()))
        })
        .await?;
        let after =
            until(
                "the Pod to be ready",
                LONG,
                async || Ok(Some(ns.pod("web").await?).filter(pods::is_ready)),
            )
            .await?;
        for name in ["app", "sidecar"] {
            pods::assert_restarted_once(&before, &after, name)?;
        }
        let conditions = ns.request(NAME).await?;
        assert_eq!(requests::conditions(&conditions)["Drained"], "True/Drained");
        let took = Restarted { over, before, after }.ended("app")?;
        assert!(took < PRE_STOP, "app ended {took} s after the creation");
        Ok(())
    })
}

/// Status and message of the gate's condition.
fn gate(pod: &Pod) -> (&str, &str) {
    let condition = pods::condition(pod, GATE);
    condition.map_or(("", ""), |c| (c.status.as_str(), c.message.as_deref().unwrap_or_default()))
}

#[test]
fn case_4a_force_restarts_once_and_unordered() -> Result<()> {
    on_shared_cluster(async |ns| unordered(ns, Some(force())).await)
}

#[test]
fn case_4b_force_restarts_once_and_ordered() -> Result<()> {
    on_shared_cluster(async |ns| ordered::<V1alpha1>(ns, force(), SHORT).await)
}

#[test]
fn case_10_an_ephemeral_container_runs_on() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before =
            ns.start_pod(pods::gated(pods::pod("web", &[app("nginx", &Value::Null)]), &[GATE])).await?;
        let patch = json!({"spec": {"ephemeralContainers": [pods::idle("debugger")]}});
        let params = PatchParams::default();
        ns.pods().patch_ephemeral_containers("web", &params, &Patch::Strategic(patch)).await?;
        let debugger =
            until("the ephemeral container to run", SHORT, async || Ok(running(&ns.pod("web").await?)))
                .await?;

        let client = Client::<V1alpha1>::new(ns);
        let strategy = Strategy { min_started_seconds: Some(5), ..Strategy::default() };
        let spec = Spec { strategy: Some(strategy), ..kruise::spec("web", &["nginx"]) };
        assert_admitted(&client.create(NAME, spec).await?, &before)?;
        client.completed(NAME, LONG).await?;
        let over = client.inactive(NAME).await?;
        assert_eq!(kruise::states(&over), [kruise::state("nginx", "Succeeded", true)]);
        let after = ns.pod("web").await?;
        assert!(pods::is_ready(&after), "the request was over before the Pod was ready");
        pods::assert_restarted_once(&before, &after, "nginx")?;
        assert_eq!(running(&after), Some(debugger));
        let ran = Restarted { over, before, after }.ran("nginx")?;
        assert!(ran > 4, "over {ran} s after the start");
        Ok(())
    })
}

/// The ID of the ephemeral container; None if it does not run.
fn running(pod: &Pod) -> Option<String> {
    let status = pod.status.as_ref()?.ephemeral_container_statuses.as_ref()?.first()?;
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.clone()
}
