//! Container IDs of Pods, and the annotations that the kubelet leaves on containers.

use pitstop_api::nodework::{Order, OrderContainer, OrderPod, Recreate};
use pitstop_controller_core::pod::parse_container_id;
use pitstop_cri::{ContainerId, SandboxId, keys, split_reference, v1};
use pitstop_daemon::runtime;

use crate::cri_answers::carried_out;
use crate::texts;

/// A container ID, then annotations: the grace period, the preStop handler, the ports.
pub fn container_ids(input: &[u8]) {
    let Some([reference, grace, handler, ports]) = texts(input) else { return };
    reference_of_a_pod(reference);
    annotations(grace, handler, ports);
}

/// Both programs take the same texts for IDs, and only full ones.
fn reference_of_a_pod(text: &str) {
    let by_daemon = split_reference(text);
    assert_eq!(
        by_daemon.as_ref().ok().map(|(runtime, id)| (*runtime, id.as_str())),
        parse_container_id(text),
        "the programs differ about {text:?}"
    );
    match &by_daemon {
        Ok((runtime, id)) => assert_eq!(format!("{runtime}://{id}"), text),
        Err(error) => assert!(error.to_string().len() < 128, "an error as long as the text"),
    }
    let full = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
    assert_eq!(ContainerId::parse(text).is_ok(), full);
    assert_eq!(SandboxId::parse(text).is_ok(), full);
}

fn annotations(grace: &str, handler: &str, ports: &str) {
    let id = ContainerId::parse(&"a".repeat(64)).unwrap();
    let pairs = |pairs: &[(&str, &str)]| {
        let said = pairs.iter().filter(|(_, value)| !value.is_empty());
        said.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    };
    let status = v1::ContainerStatus {
        id: id.to_string(),
        state: v1::ContainerState::ContainerRunning.into(),
        labels: pairs(&[
            (keys::POD_NAMESPACE, "shop"),
            (keys::POD_NAME, "web"),
            (keys::POD_UID, "u"),
            (keys::CONTAINER_NAME, "app"),
        ]),
        annotations: pairs(&[
            (keys::TERMINATION_GRACE_PERIOD, grace),
            (keys::PRE_STOP_HANDLER, handler),
            (keys::PORTS, ports),
        ]),
        ..v1::ContainerStatus::default()
    };
    let facts = runtime::told(&id, Ok(status)).unwrap().expect("the one that was asked about");
    let order = Order {
        id: "r/app/1".to_owned(),
        pod: OrderPod { namespace: "shop".to_owned(), name: "web".to_owned(), uid: "u".to_owned() },
        container: OrderContainer { name: "app".to_owned(), id: id.to_string() },
        action: Recreate::default().into(),
        ..Order::default()
    };
    // Whatever they say, the container is stopped.
    carried_out(order, &facts);
}
