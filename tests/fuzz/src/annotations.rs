//! The kubelet's annotations on containers.

use pitstop_api::nodework::{Order, OrderContainer, OrderPod, Recreate};
use pitstop_cri::{ContainerId, keys, v1};
use pitstop_daemon::runtime;

use crate::cri_answers::carried_out;
use crate::texts;

/// Input: grace period, preStop handler, ports.
pub fn annotations(input: &[u8]) {
    let Some([grace, handler, ports]) = texts(input) else { return };
    let id = ContainerId::parse(&"a".repeat(64)).unwrap();
    let pairs = |pairs: &[(&str, &str)]| {
        let present = pairs.iter().filter(|(_, value)| !value.is_empty());
        present.map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
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
    let facts = runtime::facts_from(&id, Ok(status)).unwrap().expect("the one that was asked about");
    let order = Order {
        id: "r/app/1".to_owned(),
        pod: OrderPod { namespace: "shop".to_owned(), name: "web".to_owned(), uid: "u".to_owned() },
        container: OrderContainer { name: "app".to_owned(), id: id.to_string() },
        action: Recreate::default().into(),
        ..Order::default()
    };
    // The container is stopped, whatever its annotations are.
    carried_out(order, &facts);
}
