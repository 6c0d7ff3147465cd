//! Finds a workload's earlier template in the history of its own controller, as `kubectl rollout undo` does.

use kube::ResourceExt as _;
use kube::core::DynamicObject;
use pitstop_api::rollout::TargetKind;
use serde_json::{Value, json};

use crate::change::Change;
use crate::workload::{Park, Workload};

/// Annotation of a `ReplicaSet`: the number of its revision.
/// <https://github.com/kubernetes/kubernetes/blob/master/pkg/controller/deployment/util/deployment_util.go>
const REVISION: &str = "deployment.kubernetes.io/revision";
/// Label of a `ReplicaSet`'s Pods that the workload's template does not have.
const HASH: &str = "pod-template-hash";

/// The change back to an earlier revision, and its number. `to`: the revision; `None`: the newest with another
/// template. `history`: the workload's `ReplicaSet`s, or `ControllerRevision`s.
pub fn undo(
    workload: &Workload,
    history: &[DynamicObject],
    to: Option<i64>,
) -> Result<(Change, i64), String> {
    let target = workload.target();
    if let (TargetKind::Deployment, Park::ByUser(_)) = (workload.kind, workload.park()) {
        return Err(format!(
            "{target} is paused (spec.paused), so an undo has no effect: resume it first with `kubectl rollout resume {target}`"
        ));
    }
    let uid = workload.object.metadata.uid.as_deref();
    let is_own = |object: &&DynamicObject| {
        let mut owners = object.owner_references().iter();
        owners.any(|owner| owner.controller == Some(true) && Some(owner.uid.as_str()) == uid)
    };
    let mut revisions: Vec<(i64, Change)> =
        history.iter().filter(is_own).filter_map(|object| revision(workload.kind, object)).collect();
    revisions.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
    let before = serde_json::to_value(&workload.object).map_err(|error| error.to_string())?;
    let differs = |change: &Change| {
        let mut after = before.clone();
        change.apply(&mut after);
        without_nulls(after) != without_nulls(before.clone())
    };
    let known: Vec<String> = revisions.iter().take(10).map(|(number, _)| number.to_string()).collect();
    let (number, change) = match to {
        None => {
            let mut older = revisions.into_iter().filter(|(_, change)| differs(change));
            older.next().ok_or_else(|| format!("{target} has no earlier revision with another template"))?
        }
        Some(to) => revisions.into_iter().find(|(number, _)| *number == to).ok_or_else(|| {
            format!(
                "{target} has no revision {to}; it has {}",
                if known.is_empty() { "none".to_owned() } else { known.join(", ") }
            )
        })?,
    };
    if differs(&change) {
        return Ok((change, number));
    }
    Err(format!("{target} already has the template of revision {number}"))
}

/// Older API servers write `creationTimestamp: null` into templates, which a patch drops.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(fields) => {
            fields.retain(|_, value| !value.is_null());
            fields.values_mut().for_each(|value| *value = without_nulls(value.take()));
        }
        Value::Array(items) => items.iter_mut().for_each(|value| *value = without_nulls(value.take())),
        _ => {}
    }
    value
}

/// The number of a revision, and the change to it; `None` if it cannot be read.
fn revision(kind: TargetKind, object: &DynamicObject) -> Option<(i64, Change)> {
    if kind != TargetKind::Deployment {
        let number = object.data.get("revision")?.as_i64()?;
        return Some((
            number,
            Change::strategic(object.data.get("data").filter(|data| data.is_object())?.clone()),
        ));
    }
    let number = object.annotations().get(REVISION)?.parse().ok()?;
    let mut template = object.data.pointer("/spec/template").filter(|it| it.is_object())?.clone();
    if let Some(labels) = template.pointer_mut("/metadata/labels").and_then(Value::as_object_mut) {
        labels.remove(HASH);
    }
    template.as_object_mut()?.insert("$patch".to_owned(), "replace".into());
    Some((number, Change::strategic(json!({"spec": {"template": template}}))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn workload(kind: TargetKind, image: &str, labels: &Value, paused: bool) -> Workload {
        let object = serde_json::from_value(json!({"apiVersion": "apps/v1", "kind": kind.name(),
            "metadata": {"name": "web", "uid": "w", "labels": labels},
            "spec": {"replicas": 2, "paused": paused, "template": template(image)}}))
        .unwrap();
        Workload { kind, object }
    }

    fn template(image: &str) -> Value {
        json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": image, "fieldOfLater": true}]}})
    }

    fn made(kind: &str, uid: &str, rest: &Value) -> DynamicObject {
        let mut object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": "x", "ownerReferences": [
            {"apiVersion": "apps/v1", "kind": "Any", "name": "web", "uid": uid, "controller": true}]}});
        Change::merge(rest.clone()).apply(&mut object);
        serde_json::from_value(object).unwrap()
    }

    fn set(uid: &str, number: &str, image: &str) -> DynamicObject {
        let mut template = template(image);
        template["metadata"]["labels"]["pod-template-hash"] = json!("abc");
        made(
            "ReplicaSet",
            uid,
            &json!({"metadata": {"annotations": {REVISION: number}}, "spec": {"template": template}}),
        )
    }

    fn controller_revision(number: i64, image: &str) -> DynamicObject {
        let mut template = template(image);
        template["$patch"] = json!("replace");
        made(
            "ControllerRevision",
            "w",
            &json!({"revision": number, "data": {"spec": {"template": template}}}),
        )
    }

    fn image(change: &Change) -> &Value {
        &change.patch["spec"]["template"]["spec"]["containers"][0]["image"]
    }

    #[test]
    fn a_deployment_goes_back_to_the_template_before() {
        let history = [
            set("w", "2", "web:2"),
            set("w", "10", "web:3"),
            set("w", "9", "web:1"),
            set("other", "11", "web:9"),
        ];
        let web = workload(TargetKind::Deployment, "web:3", &json!({}), false);
        let (change, number) = undo(&web, &history, None).unwrap();
        assert_eq!((image(&change), number), (&json!("web:1"), 9));
        let mut expected = template("web:1");
        expected["$patch"] = json!("replace");
        assert_eq!(
            change,
            Change::strategic(json!({"spec": {"template": expected}})),
            "whole, and without the hash"
        );
        assert_eq!(undo(&web, &history, Some(2)).unwrap().1, 2);
        assert_eq!(
            undo(&web, &history, Some(10)).unwrap_err(),
            "deployment/web already has the template of revision 10"
        );
        assert_eq!(
            undo(&web, &history, Some(3)).unwrap_err(),
            "deployment/web has no revision 3; it has 10, 9, 2"
        );
        assert!(undo(&web, &history[1..2], None).unwrap_err().contains("no earlier revision"));
    }

    #[test]
    fn a_parked_one_goes_back_to_what_its_pods_have() {
        let parked = json!({"pitstop.dev/parked": "Unpaused"});
        let web = workload(TargetKind::Deployment, "web:3", &parked, true);
        let (change, _) = undo(&web, &[set("w", "1", "web:1"), set("w", "2", "web:2")], None).unwrap();
        assert_eq!(image(&change), "web:2", "its own controller has not made a ReplicaSet of web:3");
        let paused = workload(TargetKind::Deployment, "web:3", &json!({}), true);
        assert!(
            undo(&paused, &[set("w", "1", "web:1")], None)
                .unwrap_err()
                .contains("kubectl rollout resume deployment/web")
        );
    }

    #[test]
    fn others_go_back_by_their_controller_revisions() {
        for kind in [TargetKind::StatefulSet, TargetKind::DaemonSet] {
            let history = [
                controller_revision(3, "web:3"),
                controller_revision(1, "web:1"),
                controller_revision(2, "web:2"),
            ];
            let (change, number) = undo(&workload(kind, "web:3", &json!({}), false), &history, None).unwrap();
            assert_eq!((image(&change), number), (&json!("web:2"), 2));
            let odd = made("ControllerRevision", "w", &json!({"revision": 9, "data": "text"}));
            assert!(undo(&workload(kind, "web:3", &json!({}), false), &[odd], None).is_err());
        }
    }

    #[test]
    fn a_null_of_an_older_api_server_is_no_difference() {
        let with_null = |mut template: Value| {
            template["metadata"]["creationTimestamp"] = Value::Null;
            template
        };
        let mut web = workload(TargetKind::Deployment, "web:2", &json!({}), false);
        web.object.data["spec"]["template"] = with_null(template("web:2"));
        let (change, number) = undo(&web, &[set("w", "2", "web:2"), set("w", "1", "web:1")], None).unwrap();
        assert_eq!((number, image(&change)), (1, &json!("web:1")));
    }
}
