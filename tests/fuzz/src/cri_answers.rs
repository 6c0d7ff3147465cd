//! The daemon's reaction to a container runtime's answers.

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::net::IpAddr;
use std::path::{Component, Path};

use pitstop_api::nodework::{MAX_MESSAGE, Order, OrderContainer, OrderPod, Recreate};
use pitstop_cri::{ContainerId, SandboxId, v1};
use pitstop_daemon::{hook, runtime, search};
use pitstop_daemon_core::{ContainerState, Facts, cgroup};
use prost::Message;
use serde_json::json;

use crate::node::Node;
use crate::refusals;

/// ID of the container that the daemon inspects.
fn id() -> String {
    "0123456789abcdef".repeat(4)
}

/// The same, parsed.
fn asked() -> ContainerId {
    ContainerId::parse(&id()).unwrap()
}

/// Input: a byte that selects the call, then the encoded answer.
pub fn cri_answers(input: &[u8]) {
    let Some((call, answer)) = input.split_first() else { return };
    match call % 6 {
        0 => container_status(answer),
        1 => list_containers(answer),
        2 => drop(decode::<v1::ListPodSandboxResponse>(answer)),
        3 => pod_sandbox_status(answer),
        4 => exec_sync(answer),
        _ => version(answer),
    }
}

/// Decodes a message, and asserts that encoding and decoding it again changes nothing.
fn decode<M: Message + Default + PartialEq + Debug>(bytes: &[u8]) -> Option<M> {
    let message = M::decode(bytes).ok()?;
    let again = M::decode(message.encode_to_vec().as_slice()).expect("what was encoded can be decoded");
    assert_eq!(message, again, "encoding and decoding changes nothing");
    Some(message)
}

fn container_status(answer: &[u8]) {
    let Some(v1::ContainerStatusResponse { status: Some(status), info }) = decode(answer) else { return };
    for info in info.values() {
        container_info(info);
    }
    let asked = asked();
    let is_it = status.id == id();
    let facts = runtime::facts_from(&asked, Ok(status.clone())).expect("an answer is no failure");
    assert_eq!(facts.is_some(), is_it, "another container than the one that was asked about");
    let Some(facts) = facts else { return };
    let order = |namespace: &str, pod: &str, uid: &str, container: &str| Order {
        id: "r/app/1".to_owned(),
        pod: OrderPod { namespace: namespace.to_owned(), name: pod.to_owned(), uid: uid.to_owned() },
        container: OrderContainer { name: container.to_owned(), id: id() },
        action: Recreate::default().into(),
        ..Order::default()
    };
    carried_out(order("shop", "web", "u", "app"), &facts);
    carried_out(order(&facts.namespace, &facts.pod, &facts.pod_uid, &facts.container), &facts);
}

/// Asserts that no runtime's answer leads to a cgroup above the root or of another Pod.
fn container_info(info: &str) {
    let uid = "fb96bcdf-dd4d-408f-ac38-5b135ed1b49f";
    let paths = |path: &str| cgroup::resolve(path, &asked(), uid);
    // Try the text as a path, too: a fuzzer seldom writes JSON.
    for paths in cgroup::path_in(info).and_then(|path| paths(&path)).into_iter().chain(paths(info)) {
        let (above, own) = paths.container.rsplit_once('/').expect("a cgroup in the Pod's");
        assert!(above == paths.pod && own.contains(&id()), "{paths:?}");
        let pod = paths.pod.rsplit('/').next().unwrap_or_default().replace('_', "-");
        assert!(pod.contains(uid), "{paths:?}");
        assert!(
            Path::new(&paths.container).components().all(|c| matches!(c, Component::Normal(_))),
            "{paths:?}"
        );
    }
}

/// Carries out the only order. [`Node`] checks the actions.
pub(crate) fn carried_out(order: Order, facts: &Facts) {
    let mut node = Node::new(BTreeMap::from([(order.container.id.clone(), facts.clone())]));
    node.store(|book| book.orders = vec![order]);
    node.deliver(true);
    node.settle();
    let running = matches!(facts.state, ContainerState::Running | ContainerState::Unknown);
    let stopped = node.runtime.values().any(|now| running && now.state == ContainerState::Exited);
    let order = &node.book.orders[0];
    let asked = [&order.pod.namespace, &order.pod.name, &order.pod.uid, &order.container.name];
    let found = [&facts.namespace, &facts.pod, &facts.pod_uid, &facts.container];
    let own = asked == found && asked.iter().all(|text| !text.is_empty());
    assert_eq!(stopped, running && own, "{facts:?}");
}

fn list_containers(answer: &[u8]) {
    let Some(v1::ListContainersResponse { containers }) = decode(answer) else { return };
    for container in &containers {
        container.known_state();
        let Ok(id) = ContainerId::parse(&container.id) else { continue };
        let sandbox = hook::sandbox_of(&containers, &id);
        let first = containers.iter().find(|c| c.id == container.id).unwrap();
        assert_eq!(sandbox.is_ok(), SandboxId::parse(&first.pod_sandbox_id).is_ok());
    }
    let named = containers.iter().any(|c| c.id == id());
    assert!(named || hook::sandbox_of(&containers, &asked()).is_err(), "a container that was not listed");
}

fn pod_sandbox_status(answer: &[u8]) {
    let Some(v1::PodSandboxStatusResponse { status: Some(status), .. }) = decode(answer) else { return };
    if let Some(address) = hook::address(&status) {
        assert_eq!(
            status.state,
            i32::from(v1::PodSandboxState::SandboxReady),
            "an address that is another's"
        );
        assert_eq!(status.ips().next().unwrap().parse::<IpAddr>(), Ok(address));
    }
}

fn exec_sync(answer: &[u8]) {
    let Some(response) = decode::<v1::ExecSyncResponse>(answer) else { return };
    let code = response.exit_code;
    match hook::judge(Ok(response)).expect("it ended") {
        Ok(()) => assert_eq!(code, 0),
        Err(hook::Failure { message, detail }) => {
            assert_eq!(message, format!("the preStop command ended with exit code {code}"), "nothing else");
            assert!(message.chars().count() <= MAX_MESSAGE);
            assert!(detail.chars().count() <= 256 && !detail.chars().any(char::is_control), "{detail:?}");
        }
    }
}

fn version(answer: &[u8]) {
    let Some(version) = decode::<v1::VersionResponse>(answer) else { return };
    let named = search::runtime_info(&version);
    let refused = refusals("NodeWork", &json!({"spec": {}, "status": {"runtime": named}}));
    assert!(refused.is_empty(), "{refused:?}");
}
