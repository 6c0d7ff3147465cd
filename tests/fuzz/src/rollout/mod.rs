//! The controller's reaction to an `InPlaceRollout` and an API server's answers about its workload.

mod around;
mod script;
mod world;

use pitstop_api::rollout::{InPlaceRollout, validate};
use serde_json::{Value, json};

use crate::{read, refusals, texts};
use world::{Texts, World};

/// Input: an `InPlaceRollout`, its workload, the workload's `ReplicaSet`s or `ControllerRevision`s, disruption budgets
/// and Pods, all as JSON; or a script of events.
pub fn rollout(input: &[u8]) {
    if input.first() == Some(&b'{') {
        let Some([text, workload, older, budgets, pods]) = texts(input) else { return };
        let texts = Texts { workload, older, budgets, pods }.map(str::to_owned);
        if let Some(object) = read::<InPlaceRollout>(text) {
            stored(object, texts);
        }
    } else {
        script::run(input);
    }
}

/// Runs an object. Asserts that schema and controller judge its spec alike. Its status counts only if the schema
/// accepts it.
fn stored(mut object: InPlaceRollout, texts: Texts<String>) {
    let bounded = refusals("InPlaceRollout", &json!({"spec": object.spec})).is_empty();
    match validate(&object.spec) {
        Err(invalid) => {
            assert!(invalid.field.starts_with("spec") && !invalid.message.is_empty(), "{invalid}");
            assert!(!bounded || is_ruled(&invalid.field), "the schema takes it: {invalid}");
        }
        Ok(()) => assert!(bounded || only_forms(&object), "the schema refuses it: {:?}", object.spec),
    }
    let status = json!({"spec": object.spec, "status": object.status});
    if !bounded || !refusals("InPlaceRollout", &status).is_empty() {
        return;
    }
    let metadata =
        json!({"name": "ipr", "namespace": "shop", "uid": "ipr-1", "resourceVersion": "1", "generation": 1});
    object.metadata = serde_json::from_value(metadata).expect("metadata");
    let mut world = World::new(object, texts);
    world.settle();
    for _ in 0..20 {
        world.wait(10_000);
    }
}

/// Whether CEL rules or only the controller judge a field, not the schema.
fn is_ruled(field: &str) -> bool {
    let fields =
        ["spec.selector", "spec.images", "spec.resources", "spec.templateChanges", "spec.strategy.onFailure"];
    field == "spec"
        || field == "spec.restartAnnotations"
        || fields.iter().any(|ruled| field.starts_with(ruled))
}

/// Whether the schema refuses only forms of names or lengths of texts, which the controller does not judge.
fn only_forms(object: &InPlaceRollout) -> bool {
    let refused = refusals("InPlaceRollout", &json!({"spec": object.spec}));
    let forms = [
        "restartAnnotations",
        "targetRef.name",
        "restart.containers",
        "maxUnavailable",
        "selector",
        "images",
        "resources",
    ];
    refused.iter().all(|why| forms.iter().any(|form| why.contains(form)))
}

/// The members of a list.
fn items(text: &str) -> Vec<Value> {
    let list: Value = serde_json::from_str(text).unwrap_or_default();
    list["items"].as_array().cloned().unwrap_or_default()
}
