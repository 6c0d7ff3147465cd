//! Without the webhook, the schema still refuses what is invalid in itself, and the controller checks the rest by the
//! same rules.

use k8s_openapi::api::admissionregistration::v1::MutatingWebhookConfiguration;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams};
use pitstop_api::labels;
use pitstop_api::recreate::Phase;
use pitstop_e2e::ns::{NODE, refusal};
use pitstop_e2e::system::{self, WEBHOOK, WEBHOOK_NAME};
use pitstop_e2e::{Ns, Result, SHORT, on_cluster, pods, requests, until};
use serde_json::{Value, json};

#[test]
fn without_the_webhook_the_schema_and_the_controller_judge() -> Result<()> {
    on_cluster(async |ns| {
        let before = ns.start_pod(pods::app("web")).await?;
        let all: Api<MutatingWebhookConfiguration> = Api::all(ns.cluster.client.clone());
        all.delete(WEBHOOK, &DeleteParams::default()).await?;
        until("the webhook to be forgotten", SHORT, async || {
            Ok((!system::webhook_answers(&ns.cluster).await?).then_some(()))
        })
        .await?;

        the_schema_refuses(ns).await?;

        let created = ns.create(requests::recreate("plain", "web", &["app"])).await?;
        assert_eq!(requests::label(&created, labels::POD_UID), None);
        let over = ns.over("plain").await?;
        assert_eq!(requests::states(&over), [requests::succeeded("app")]);
        assert_eq!(requests::label(&over, labels::POD_UID), before.metadata.uid.as_deref());
        assert_eq!(requests::label(&over, labels::NODE_NAME), Some(NODE));
        let after = ns.pod("web").await?;
        pods::assert_restarted_once(&before, &after, "app")?;
        ns.settled(&over).await?;

        the_controller_refuses(ns).await?;
        pods::assert_untouched(&after, &ns.pod("web").await?, "app")?;

        // Reinstalls it as a user would: the controller fills in how to reach it.
        ns.cluster.install()?;
        system::healthy(&ns.cluster).await
    })
}

async fn the_schema_refuses(ns: &Ns) -> Result<()> {
    let with = |change: fn(&mut Value)| {
        let mut spec = requests::plain("web", &["app"]);
        change(&mut spec);
        spec
    };
    let cases = [
        (with(|s| s["podName"] = json!("")), "spec.podName"),
        (with(|s| s["containers"] = json!([])), "spec.containers"),
        (
            with(|s| s["containers"] = json!([{"name": "app"}, {"name": "app"}])),
            "spec.containers[1]: Duplicate value",
        ),
        (with(|s| s["activeDeadlineSeconds"] = json!(2)), "spec.activeDeadlineSeconds"),
        (with(|s| s["ttlSecondsAfterFinished"] = json!(-1)), "spec.ttlSecondsAfterFinished"),
        (
            with(|s| s["strategy"] = json!({"terminationGracePeriodSeconds": -1})),
            "spec.strategy.terminationGracePeriodSeconds",
        ),
        (with(|s| s["strategy"] = json!({"failurePolicy": "Retry"})), "spec.strategy.failurePolicy"),
    ];
    for (spec, text) in cases {
        let refused = ns.try_create(requests::with_spec("wrong", &spec)).await?;
        let Err((code, message)) = refused else { panic!("not refused: {spec}") };
        assert_eq!(code, 422, "{message}");
        assert!(message.contains(text) && !message.contains(WEBHOOK_NAME), "{text}: {message}");
        assert!(message.contains("\"wrong\" is invalid"), "{message}");
    }
    Ok(())
}

async fn the_controller_refuses(ns: &Ns) -> Result<()> {
    let cases = [(
        "wrong-container",
        requests::plain("web", &["other"]),
        "spec.containers[0].name: container other not found",
    )];
    for (name, spec, text) in cases {
        ns.create(requests::with_spec(name, &spec)).await?;
        let over = ns.over(name).await?;
        assert_eq!(requests::phase(&over), Some(Phase::Completed));
        assert!(requests::message(&over).contains(text), "{}", requests::message(&over));
        let conditions = requests::conditions(&over);
        assert_eq!(conditions["Accepted"], "False/Invalid");
        assert_eq!(conditions["Complete"], "False/Invalid");
        assert_eq!(conditions["Failed"], "True/Invalid");
        ns.settled(&over).await?;
    }
    ns.create(requests::recreate("no-pod", "other", &["app"])).await?;
    let over = ns.over("no-pod").await?;
    assert_eq!(
        (requests::message(&over), requests::conditions(&over)["Failed"].as_str()),
        ("pod has gone", "True/PodGone")
    );

    // Immutable fields stay immutable.
    let change = json!({"spec": {"activeDeadlineSeconds": 60}});
    let patched = ns.requests().patch("no-pod", &PatchParams::default(), &Patch::Merge(&change)).await;
    let Err((code, message)) = refusal(patched)? else { panic!("the spec could be changed") };
    assert_eq!(code, 422, "{message}");
    let text = "spec.activeDeadlineSeconds: spec of ContainerRecreateRequest is immutable";
    assert!(message.contains(text), "{message}");
    // Fields that a typed OpenKruise client lacks may be removed.
    let mut object = requests::recreate("typed", "other", &["app"]);
    object["spec"]["strategy"] = json!({"mechanism": "Runtime"});
    ns.create(object).await?;
    let without = json!({"spec": {"strategy": {"mechanism": null}}, "metadata": {"labels": {"team": "a"}}});
    let patched = ns.requests().patch("typed", &PatchParams::default(), &Patch::Merge(&without)).await?;
    assert_eq!(patched.spec.strategy.and_then(|s| s.mechanism), None);
    Ok(())
}
