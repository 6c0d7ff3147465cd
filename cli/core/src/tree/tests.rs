use serde_json::{Value, json};

use super::*;
use crate::draw::{Look, draw};

pub(super) fn read<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

pub(super) fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

pub(super) fn pod(name: &str, node: &str, ready: bool) -> Pod {
    read(json!({
        "metadata": {"name": name, "uid": format!("uid-{name}"), "resourceVersion": "7", "creationTimestamp": at(0)},
        "spec": {"nodeName": node, "containers": [{"name": "app", "image": "shop/web:v1"}]},
        "status": {"conditions": [{"type": "Ready", "status": if ready { "True" } else { "False" },
            "message": "containers with unready status: [app]"}],
            "containerStatuses": [{"name": "app", "ready": ready, "restartCount": 2, "image": "", "imageID": "",
                "containerID": "containerd://0123456789abcdef0123", "state": {"running": {"startedAt": at(5)}}}]},
    }))
}

pub(super) fn conditions(complete: &str, reason: &str, message: &str) -> Value {
    json!([{"type": "Complete", "status": complete, "reason": reason, "message": message,
        "lastTransitionTime": at(20)}])
}

pub(super) fn restart(
    name: &str,
    pod: &str,
    owner: Option<&str>,
    condition: (&str, &str, &str),
) -> ContainerRecreateRequest {
    let owners =
        owner.map(|uid| json!([{"apiVersion": "v1", "kind": "InPlaceRollout", "name": "web", "uid": uid}]));
    let states = json!([{"name": "app", "phase": "Recreating"}]);
    read(json!({
        "metadata": {"name": name, "generation": 1, "creationTimestamp": at(10), "ownerReferences": owners},
        "spec": {"podName": pod, "containers": [{"name": "app"}]},
        "status": {"phase": "Recreating", "observedGeneration": 1, "containerRecreateStates": states,
            "conditions": conditions(condition.0, condition.1, condition.2),
            "target": {"podUID": "u", "nodeName": "node1", "containers": [{"name": "app", "restartCount": 2,
                "containerID": "containerd://0123456789abcdef0123"}]}},
    }))
}

pub(super) fn rollout(pods: i32, current: i32, started: i32) -> InPlaceRollout {
    read(json!({
        "metadata": {"name": "web", "uid": "rollout", "generation": 2, "resourceVersion": "12"},
        "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}, "restartedAt": "two"},
        "status": {"phase": "Progressing", "observedGeneration": 2, "pods": pods, "current": current,
            "started": started, "restart": {"restartedAt": "two"},
            "conditions": conditions("False", "Restarting", "some Pods are restarted")},
    }))
}

/// Six Pods on two nodes: one done, one at work, one not ready, the others wait.
pub(super) fn objects() -> Objects {
    let mut pods: Vec<Pod> =
        ["a", "b", "c"].into_iter().map(|name| pod(&format!("web-{name}"), "node1", true)).collect();
    pods.extend(["d", "e", "f"].into_iter().map(|name| pod(&format!("web-{name}"), "node2", name != "e")));
    let restarts = vec![
        restart("one", "web-a", Some("rollout"), ("True", "Complete", "")),
        restart("two", "web-b", Some("rollout"), ("False", "WaitingForReady", "waits for app to be ready")),
    ];
    Objects { rollouts: vec![rollout(6, 1, 1)], restarts, pods, ..Objects::default() }
}

pub(super) fn drawn(tree: &Tree, look: Look) -> String {
    draw(tree, at(80), look).join("\n")
}

#[test]
fn a_workload_has_its_rollout_and_its_pods_by_node() {
    let tree = tree(About::Workload(TargetKind::Deployment, "web"), &objects());
    let wide = drawn(&tree, Look { size: Some((200, 50)), ..Look::default() });
    let expected = "\
● deployment/web
├─ ● inplacerollout/web     60s  Restarting: some Pods are restarted
│  ├─ ● Pods                     1 of 6 done, 1 at work, 0 failed, 4 waiting
│  ├─ · restart                  two
│  └─ · steps                    soak 10 s
├─ · node1
│  ├─ ● web-b               70s  WaitingForReady: waits for app to be ready
│  │  └─ ● app                   Recreating: 0123456789ab
│  ├─ ○ web-c
│  └─ ✔ web-a
└─ · node2
   ├─ ! web-e               80s  not ready: containers with unready status: [app]
   ├─ ○ web-d
   └─ ○ web-f";
    assert_eq!(wide, expected);
    let ascii = drawn(&tree, Look { size: Some((80, 50)), ascii: true, ..Look::default() });
    assert!(ascii.is_ascii(), "{ascii}");
    assert!(ascii.lines().all(|line| line.len() <= 80), "{ascii}");
    assert!(ascii.contains("|  +- * web-b") || ascii.contains("|  |- * web-b"), "{ascii}");
}

#[test]
fn two_hundred_pods_stay_readable_and_fit_the_terminal() {
    let mut objects = objects();
    let more =
        (0..194).map(|n| pod(&format!("web-{n:03}"), if n % 2 == 0 { "node1" } else { "node2" }, true));
    objects.pods.extend(more);
    let tree = tree(About::Workload(TargetKind::Deployment, "web"), &objects);
    let lines = draw(&tree, at(80), Look { size: Some((80, 24)), ..Look::default() });
    let text = lines.join("\n");
    assert!(lines.len() <= 24, "{text}");
    for part in ["web-b", "web-e", "99 other Pods", "98 waiting, 1 done", "1 done, 98 waiting"] {
        let either = text.contains(part) || part.contains("done") && text.contains("1 done, 98 waiting");
        assert!(either, "{part} is missing in\n{text}");
    }
    let low = draw(&tree, at(80), Look { size: Some((80, 6)), ..Look::default() });
    assert_eq!(low.len(), 6);
    assert!(low[5].contains("more lines"), "{low:?}");
    let wide = draw(&tree, at(80), Look { wide: true, ..Look::default() });
    assert!(wide.len() > 200, "each Pod has a line of its own");
}

#[test]
fn a_pod_has_its_containers_and_its_open_requests() {
    let mut objects = objects();
    objects.pods.retain(|pod| pod.metadata.name.as_deref() == Some("web-b"));
    let tree = tree(About::Pod("web-b"), &objects);
    let expected = "\
· pod/web-b                           80s  on node1, ready
├─ · app                              75s  shop/web:v1, 2 restarts, 0123456789ab
└─ ● containerrecreaterequest/two     70s  WaitingForReady: waits for app to be ready
   └─ ● app                                Recreating: 0123456789ab";
    assert_eq!(drawn(&tree, Look::default()), expected);
}

#[test]
fn without_a_target_what_is_open_is_shown_and_what_cannot_be_read_is_told() {
    let unread = vec!["podresizes cannot be read: forbidden\u{1b}[2J".to_owned()];
    let tree = tree(About::Namespace, &Objects { unread, ..objects() });
    let text = drawn(&tree, Look::default());
    assert!(text.contains("containerrecreaterequest/two") && text.contains("Pod web-b: waits for"), "{text}");
    assert!(!text.contains("containerrecreaterequest/one"), "it is over: {text}");
    assert!(text.contains("! podresizes cannot be read: forbidden") && !text.contains('\u{1b}'), "{text}");
    assert_eq!(tree.resource_versions["inplacerollout/web"], "12");
    let failed = restart("bad", "web-a", None, ("False", "X", "y"));
    let mut failed = Objects { restarts: vec![failed], ..Objects::default() };
    failed.restarts[0].status.as_mut().unwrap().conditions.push(read(
        json!({"type": "Failed", "status": "True", "reason": "X", "message": "y", "lastTransitionTime": at(3)}),
    ));
    let all = super::tree(About::Requests, &failed);
    assert_eq!(all.items[0].mark, Mark::Failed);
}

#[test]
fn each_namespace_in_which_something_is_open_is_shown_and_failures_come_first() {
    let of = |namespace: &str, condition: (&str, &str, &str)| {
        let mut object = restart("one", "web-a", None, condition);
        object.metadata.namespace = Some(namespace.to_owned());
        object.metadata.resource_version = Some(format!("{}", namespace.len()));
        object
    };
    let restarts = vec![
        of("quiet", ("True", "Complete", "")),
        of("shop", ("False", "WaitingForReady", "waits for app to be ready")),
        of("blog", ("False", "WaitingForReady", "waits for app to be ready")),
    ];
    let mut failed = rollout(6, 1, 1);
    failed.metadata.namespace = Some("work".to_owned());
    failed.status.as_mut().unwrap().conditions.push(read(
        json!({"type": "Failed", "status": "True", "reason": "PodsFailed", "message": "1 failed", "lastTransitionTime": at(3)}),
    ));
    let tree = tree(About::Everywhere, &Objects { restarts, rollouts: vec![failed], ..Objects::default() });
    let names: Vec<&str> = tree.items.iter().map(|item| item.name.as_str()).collect();
    assert_eq!(names, ["namespace/work", "namespace/blog", "namespace/shop"]);
    let text = drawn(&tree, Look::default());
    let blog = "\
● namespace/blog
├─ ● containerrecreaterequest/one     70s  WaitingForReady: Pod web-a: waits for app to be ready
";
    let blog = blog.replace('├', "└");
    assert!(text.contains(&blog), "{text}");
    assert_eq!(tree.resource_versions["containerrecreaterequest/quiet/one"], "5");
}

#[test]
fn texts_are_cut_by_the_columns_that_they_take() {
    let item = Item { mark: Mark::Failed, reason: "X".to_owned(), text: "語".repeat(100), ..Item::new("a") };
    let tree = Tree { items: vec![item], ..Tree::default() };
    let line = drawn(&tree, Look { size: Some((40, 5)), ..Look::default() });
    assert!(unicode_width::UnicodeWidthStr::width(line.as_str()) <= 40 && line.ends_with('~'), "{line}");
    let painted = drawn(&tree, Look { size: Some((40, 5)), colour: true, ..Look::default() });
    assert!(painted.contains("\u{1b}[31m") && painted.ends_with("\u{1b}[0m"), "{painted:?}");
}

#[test]
fn who_watches_through_a_pipe_is_told_what_changes() {
    let mut changes = crate::changes::Changes::default();
    let mut objects = objects();
    let first = changes.since(&super::tree(About::Requests, &objects));
    assert!(
        first.iter().any(|line| line.contains("containerrecreaterequest/two WaitingForReady")),
        "{first:?}"
    );
    assert_eq!(changes.since(&super::tree(About::Requests, &objects)), [""; 0]);
    objects.restarts.remove(0);
    let gone = changes.since(&super::tree(About::Requests, &objects));
    assert!(gone.contains(&"containerrecreaterequest/one gone".to_owned()), "{gone:?}");
}
