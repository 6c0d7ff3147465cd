//! The main job: containers restart in place, and the request says how it went.

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::events::v1::Event;
use kube::Api;
use kube::api::ListParams;
use pitstop_api::labels;
use pitstop_api::recreate::{ContainerRecreateRequest, FailurePolicy, Phase};
use pitstop_e2e::ns::NODE;
use pitstop_e2e::{Context, Ns, Result, SHORT, on_shared_cluster, pods, requests, until};
use serde_json::json;

#[test]
fn one_container_restarts_and_the_other_stays() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let created = ns.create(requests::recreate("again", "web", &["app"])).await?;
        assert_defaults(&created, &before, &["app"])?;

        let text = ns.kubectl(&[
            "wait",
            "--for=condition=Complete",
            "--timeout=30s",
            "containerrecreaterequest/again",
        ])?;
        assert!(text.contains("condition met"), "{text}");
        let over = ns.request("again").await?;
        assert_eq!(requests::phase(&over), Some(Phase::Completed));
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        assert_eq!(requests::message(&over), "");
        let conditions = requests::conditions(&over);
        assert_eq!(conditions["Accepted"], "True/Resolved");
        assert_eq!(conditions["Complete"], "True/Complete");
        assert_eq!(conditions["Reconciling"], "False/Completed");
        assert_eq!((conditions.get("Failed"), conditions.get("Stalled")), (None, None));
        assert_eq!(over.status.as_ref().and_then(|s| s.observed_generation), over.metadata.generation);

        until("the label active to be removed", SHORT, async || {
            let request = ns.request("again").await?;
            Ok(requests::label(&request, labels::ACTIVE).is_none().then_some(()))
        })
        .await?;
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        pods::assert_untouched(&before, &after, "sidecar")?;
        assert!(pods::is_ready(&after), "the request was over before the Pod was ready");

        let snapshot = over.status.context("no status")?.container_status_snapshot;
        assert_eq!(snapshot.len(), 1);
        assert_eq!(snapshot[0].name, "app");
        assert_eq!(snapshot[0].container_id, pods::id(&after, "app")?);
        assert_eq!((snapshot[0].restart_count, snapshot[0].ready), (1, true));
        ns.settled(&created).await?;
        Ok(())
    })
}

/// Asserts what admission fills in.
fn assert_defaults(created: &ContainerRecreateRequest, pod: &Pod, containers: &[&str]) -> Result<()> {
    assert_eq!(requests::label(created, labels::POD_UID), pod.metadata.uid.as_deref());
    assert_eq!(requests::label(created, labels::NODE_NAME), Some(NODE));
    assert_eq!(requests::label(created, labels::ACTIVE), Some("true"));
    let strategy = created.spec.strategy.clone().context("no strategy")?;
    assert_eq!(strategy.failure_policy, Some(FailurePolicy::Fail));
    assert_eq!(strategy.termination_grace_period_seconds, Some(30));
    for (container, name) in created.spec.containers.iter().zip(containers) {
        assert_eq!(container.name, *name);
        let context = container.status_context.clone().context("no statusContext")?;
        assert_eq!((context.container_id, context.restart_count), (pods::id(pod, name)?, 0));
    }
    Ok(())
}

/// As a user: a file, `kubectl apply`, `kubectl get`, `kubectl get events`.
#[test]
fn people_see_what_happens() -> Result<()> {
    on_shared_cluster(async |ns| {
        let pod = ns.start_pod(pods::app("web")).await?;
        let file = requests::recreate("again", "web", &["sidecar"]).to_string();
        ns.cluster.kubectl_with(&["apply", "--namespace", &ns.name, "-f", "-"], &file)?;
        let over = ns.over("again").await?;

        let plain = ["NAME PHASE POD NODE AGE RESULT", "again Completed web node1 * Complete"];
        assert_eq!(columns(ns, &[])?, plain);
        // The column DRAINED is empty.
        let wide = [
            "NAME PHASE POD NODE AGE RESULT DRAINED MESSAGE",
            "again Completed web node1 * Complete restarted 1 container(s)",
        ];
        assert_eq!(columns(ns, &["-o", "wide"])?, wide);

        let events: Api<Event> = Api::namespaced(ns.cluster.client.clone(), &ns.name);
        for (kind, uid) in [("Pod", pod.metadata.uid), ("ContainerRecreateRequest", over.metadata.uid)] {
            for reason in ["RecreateStarted", "RecreateCompleted"] {
                let what = format!("event {reason} on the {kind}");
                let event = until(&what, SHORT, async || {
                    let list = events.list(&ListParams::default()).await?;
                    Ok(list.items.into_iter().find(|event| {
                        let about = event.regarding.clone().unwrap_or_default();
                        event.reason.as_deref() == Some(reason)
                            && (about.kind.as_deref(), &about.uid) == (Some(kind), &uid)
                    }))
                })
                .await?;
                let note = event.note.unwrap_or_default();
                assert!(note.contains("again") && note.contains("sidecar"), "{note}");
            }
        }
        Ok(())
    })
}

/// A failed request does not look like a successful one, and a waiting one says why.
#[test]
fn people_see_what_is_waited_for_and_why_a_request_failed() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let mut spec = requests::plain("web", &["app"]);
        spec["activeDeadlineSeconds"] = json!(5);
        spec["strategy"] = json!({"unreadyGracePeriodSeconds": 600});
        ns.create(requests::with_spec("slow", &spec)).await?;
        let head = "NAME PHASE POD NODE AGE RESULT";
        until("the wait to be told", SHORT, async || {
            let waits = [head, "slow Recreating web node1 * NoReadinessGate"];
            Ok((columns(ns, &[])? == waits).then_some(()))
        })
        .await?;
        // Each of them shows that the request is over.
        for condition in ["Reconciling=False", "Failed", "Stalled"] {
            ns.kubectl(&["wait", &format!("--for=condition={condition}"), "--timeout=30s", "crr/slow"])?;
        }
        assert_eq!(columns(ns, &[])?, [head, "slow Completed web node1 * DeadlineExceeded"]);
        pods::assert_untouched(&before, &ns.pod("web").await?, "app")
    })
}

/// What `kubectl get crr` prints, with `*` for the age.
fn columns(ns: &Ns, options: &[&str]) -> Result<Vec<String>> {
    const AGE: usize = 4;
    let text = ns.kubectl(&[&["get", "crr"], options].concat())?;
    let mut lines: Vec<Vec<&str>> = text.lines().map(|line| line.split_whitespace().collect()).collect();
    // A request that the controller has not seen yet has fewer columns.
    for age in lines.iter_mut().skip(1).filter_map(|line| line.get_mut(AGE)) {
        *age = "*";
    }
    Ok(lines.into_iter().map(|line| line.join(" ")).collect())
}

/// The Pod's own grace period is 30 s, and the container does not end on SIGTERM.
#[test]
fn the_grace_period_of_the_request_counts() -> Result<()> {
    on_shared_cluster(async |ns| {
        let before = ns.start_pod(pods::pod("web", &[pods::stubborn("app")])).await?;
        let mut spec = requests::plain("web", &["app"]);
        spec["strategy"] = json!({"terminationGracePeriodSeconds": 4});
        let created = ns.create(requests::with_spec("short", &spec)).await?;
        ns.stopping(&created, "app").await?;
        let over = ns.over("short").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        let end = pods::last_end(&after, "app")?;
        assert_eq!(end.exit_code, 137, "killed");
        // Both in whole seconds of the same machine's clock.
        let asked = created.metadata.creation_timestamp.context("no creation time")?.0.as_second();
        let took = end.finished_at.context("no end")?.0.as_second() - asked;
        assert!((3..15).contains(&took), "killed after {took} s");
        Ok(())
    })
}

/// Admission fills in fields that the file lacks. Applying the same values again is no change; applying other values
/// is.
#[test]
fn the_same_file_can_be_applied_again() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut pod = pods::app("web");
        let ports = json!([{"name": "web", "containerPort": 8080}]);
        pod["spec"]["containers"][0]["lifecycle"] = json!({"preStop": {"httpGet": {"port": "web"}}});
        pod["spec"]["containers"][0]["ports"] = ports;
        ns.start_pod(pod).await?;
        let mut spec = requests::plain("web", &["app", "sidecar"]);
        spec["strategy"] = json!({"orderedRecreate": false, "minStartedSeconds": 1});
        let file = requests::with_spec("again", &spec);
        let apply = |file: &serde_json::Value, how: &[&str]| {
            let args = [&["apply", "--namespace", &ns.name, "-f", "-"], how].concat();
            ns.cluster.kubectl_with(&args, &file.to_string())
        };
        apply(&file, &[])?;
        let created = ns.request("again").await?.spec;
        assert!(created.containers[0].pre_stop.is_some() && !created.containers[0].ports.is_empty());
        assert!(created.containers[1].status_context.is_some());
        apply(&file, &[])?;
        ns.over("again").await?;
        apply(&file, &[])?;
        apply(&file, &["--server-side", "--force-conflicts"])?;
        assert_eq!(ns.request("again").await?.spec, created);

        let mut other = file;
        other["spec"]["strategy"]["orderedRecreate"] = json!(true);
        let refused = format!("{:#}", apply(&other, &[]).unwrap_err());
        assert!(refused.contains("spec of ContainerRecreateRequest is immutable"), "{refused}");
        Ok(())
    })
}
