//! The kinds work like Kubernetes' own for kubectl, and for typed clients of `OpenKruise`.

use kube::api::{Patch, PatchParams, PostParams};
use pitstop_api::recreate::Mechanism;
use pitstop_api::resize::Phase;
use pitstop_e2e::ns::refusal;
use pitstop_e2e::resizes::{api, create, ends, resize, web, with};
use pitstop_e2e::{Context, Result, SHORT, bail, on_shared_cluster, pods, requests, until};
use serde_json::json;

#[test]
fn kubectl_explains_finds_and_selects_them() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(web()).await?;
        // Resources as in a Pod's container.
        let copied = json!({"requests": {"cpu": "150m", "memory": "64Mi"}, "limits": {"cpu": "300m", "memory": "128Mi"}});
        create(ns, resize("grow", "app", &copied)).await?;
        ends(ns, "grow", Phase::Succeeded, "Resized").await?;
        // kubectl caches the kinds of a category for 6 hours, perhaps from when another test was installing them.
        let names = ns.kubectl(&["get", "pitstop", "--output", "name", "--cache-dir", "/dev/null"])?;
        assert!(names.contains("podresize.pitstop.dev/grow"), "{names}");
        let of = |pod: &str| format!("spec.podRef.name={pod},status.phase=Succeeded");
        let selected = ns.kubectl(&["get", "prz", "--output", "name", "--field-selector", &of("web")])?;
        assert_eq!(selected.trim(), "podresize.pitstop.dev/grow");
        let none = ns.kubectl(&["get", "prz", "--output", "name", "--field-selector", &of("other")])?;
        assert_eq!(none.trim(), "");
        for (field, words) in [
            ("prz.spec.mechanism", ["`Auto` (default)", "`CRI`"]),
            ("prz.spec.containers.resources.requests", ["+20%", "x1.5"]),
            ("crr.spec.strategy.mechanism", ["`Kubelet`", "`Auto` (default)"]),
        ] {
            let text = ns.kubectl(&["explain", field])?;
            let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
            for word in words {
                assert!(text.contains(word), "{field}: {text}");
            }
        }
        Ok(())
    })
}

#[test]
fn a_refusal_names_the_field_and_a_deadline_can_be_raised() -> Result<()> {
    on_shared_cluster(async |ns| {
        ns.start_pod(web()).await?;
        // It waits for a node that is large enough.
        let huge = resize("huge", "app", &json!({"requests": {"cpu": "1000"}, "limits": {"cpu": "1000"}}));
        let huge = with(huge, "onInfeasible", &json!({"waitSeconds": 600}));
        let made = create(ns, with(huge, "activeDeadlineSeconds", &json!(8))).await?;
        assert_eq!(made.spec.mechanism, Some(pitstop_api::resize::Mechanism::Auto), "the default is stored");
        let patched = async |patch: serde_json::Value| {
            let patch = json!({"spec": patch});
            refusal(api(ns).patch("huge", &PatchParams::default(), &Patch::Merge(&patch)).await)
        };
        for (patch, text) in [
            (json!({"restart": "Never"}), "spec.restart is immutable"),
            (json!({"podRef": {"name": "other"}}), "spec.podRef is immutable"),
            (json!({"onInfeasible": null}), "spec.onInfeasible is immutable"),
            (json!({"activeDeadlineSeconds": 7}), "can only be raised"),
            (json!({"activeDeadlineSeconds": null}), "can only be raised"),
        ] {
            let Err((code, message)) = patched(patch).await? else { panic!("not refused: {text}") };
            assert!(code == 422 && message.contains(text), "{code}: {message}");
        }
        patched(json!({"activeDeadlineSeconds": 12})).await?.ok().context("more time is refused")?;
        let status = ends(ns, "huge", Phase::Failed, "DeadlineExceeded").await?;
        let ended = status.completion_time.context("no end")?.timestamp();
        let created = made.metadata.creation_timestamp.context("no time")?.0.as_second();
        assert!(ended - created >= 11, "ended after {} s, not 12", ended - created);
        Ok(())
    })
}

#[test]
fn a_typed_kruise_client_can_update_a_request() -> Result<()> {
    on_shared_cluster(async |ns| {
        let mut app = pods::slow("app", 5);
        app["lifecycle"] = json!({"preStop": {"sleep": {"seconds": 1}}});
        ns.start_pod(pods::pod("web", &[app])).await?;
        let mut object = requests::recreate("typed", "web", &["app"]);
        object["spec"]["strategy"] = json!({"mechanism": "Runtime"});
        let made = ns.create(object).await?;
        let hook = made.spec.containers[0].pre_stop.clone().context("no hook was filled in")?;
        assert!(hook.sleep.is_some());
        // OpenKruise's Go types lack both fields, so its clients drop them when they update. The controller also
        // writes.
        let stored = until("an update without a conflict", SHORT, async || {
            let mut sent = ns.request("typed").await?;
            sent.spec.strategy.as_mut().context("no strategy")?.mechanism = None;
            sent.spec.containers[0].pre_stop.as_mut().context("no hook")?.sleep = None;
            sent.metadata.labels.get_or_insert_default().insert("team".to_owned(), "a".to_owned());
            match refusal(ns.requests().replace("typed", &PostParams::default(), &sent).await)? {
                Ok(stored) => Ok(Some(stored)),
                Err((409, _)) => Ok(None),
                Err((code, message)) => bail!("{code}: {message}"),
            }
        })
        .await?;
        assert_eq!(stored.spec.strategy.and_then(|s| s.mechanism), Some(Mechanism::Runtime));
        assert_eq!(stored.spec.containers[0].pre_stop.as_ref(), Some(&hook));
        let over = ns.over("typed").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        Ok(())
    })
}
