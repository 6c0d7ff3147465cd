//! The record of what Pods are held at, in the status of the book.

use pitstop_api::nodework::{Cgroup, Held, HeldContainer, MAX_HELD, Order, Resize};

use super::Present;

/// Most containers in the record, over all Pods: with some hundred bytes for each, the book stays far below what etcd
/// stores in one object.
pub const MAX_HELD_CONTAINERS: usize = 512;
/// Most containers of one Pod in the record: the schema's bound.
const MAX_OF_POD: usize = 64;

/// An order is acknowledged. What was there before is kept from the first time: later it would be what an order gave.
/// The error says why there is no room for another record.
pub(crate) fn begin(held: &mut Vec<Held>, order: &Order, present: &Present) -> Result<(), String> {
    let given = order.action.resize.as_ref().filter(|resize| !reclaims(resize));
    let Some(resize) = given else { return Ok(()) };
    let all: usize = held.iter().map(|pod| pod.containers.len()).sum();
    let pods = held.len();
    let (name, id) = (&order.container.name, &order.container.id);
    let mut pod = held.iter_mut().find(|held| held.pod.uid == order.pod.uid);
    let known = pod.as_ref().and_then(|pod| pod.containers.iter().position(|c| c.name == *name));
    if !resize.hold {
        if let Some(pod) = pod {
            pod.given = None;
            let of_it = pod.containers.iter_mut().find(|c| c.name == *name && c.id == *id);
            if let Some(container) = of_it {
                under_way(container, order);
            }
        }
        return Ok(());
    }
    if known.is_none() {
        if pod.is_none() && pods >= MAX_HELD {
            return Err(format!("{MAX_HELD} Pods of this node are held at other resources already"));
        }
        if pod.as_ref().is_some_and(|pod| pod.containers.len() >= MAX_OF_POD) || all >= MAX_HELD_CONTAINERS {
            return Err(format!(
                "{MAX_OF_POD} containers of this Pod, or {MAX_HELD_CONTAINERS} of this node, are held at other \
                 resources already"
            ));
        }
    }
    if let Some(pod) = &mut pod {
        pod.given = None;
    }
    let container = present.container.map(|seen| limits(&seen.cgroup)).unwrap_or_default();
    let fresh = HeldContainer {
        name: name.clone(),
        id: id.clone(),
        original: container,
        order: order.id.clone(),
        ..HeldContainer::default()
    };
    let Some(pod) = pod else {
        held.push(Held {
            pod: order.pod.clone(),
            cgroup: present.cgroup.clone(),
            original: present.pod.map(|seen| limits(&seen.cgroup)).unwrap_or_default(),
            containers: vec![fresh],
            ..Held::default()
        });
        return Ok(());
    };
    match pod.containers.iter_mut().find(|c| c.name == *name) {
        Some(container) if container.id == *id => under_way(container, order),
        // A later instance: the one before it is gone.
        Some(container) => *container = fresh,
        None => pod.containers.push(fresh),
    }
    Ok(())
}

fn under_way(container: &mut HeldContainer, order: &Order) {
    order.id.clone_into(&mut container.order);
    container.before = container.given.take().or(container.before);
}

/// What is written back: no counters.
fn limits(cgroup: &Cgroup) -> Cgroup {
    Cgroup { memory_usage: None, oom_kills: None, ..*cgroup }
}

/// The record of an order that holds is there; of one that does not, none is needed.
pub(crate) fn recorded(held: &[Held], order: &Order) -> bool {
    let Some(resize) = &order.action.resize else { return true };
    let of_it = |pod: &&Held| pod.pod.uid == order.pod.uid;
    let names = |c: &HeldContainer| {
        c.name == order.container.name && c.id == order.container.id && c.order == order.id
    };
    !resize.hold || held.iter().find(of_it).is_some_and(|pod| pod.containers.iter().any(names))
}

/// An order is done.
pub(crate) fn finish(held: &mut Vec<Held>, order: &Order) {
    let Some(resize) = order.action.resize.as_ref().filter(|resize| !reclaims(resize)) else { return };
    let name = &order.container.name;
    if let Some(pod) = held.iter_mut().find(|held| held.pod.uid == order.pod.uid) {
        pod.given = resize.pod;
        if resize.hold {
            let names = |c: &&mut HeldContainer| c.name == *name && c.id == order.container.id;
            if let Some(container) = pod.containers.iter_mut().find(names) {
                (container.given, container.before) = (resize.container, None);
            }
        } else {
            pod.containers.retain(|container| container.name != *name);
        }
    }
    held.retain(|pod| !pod.containers.is_empty());
}

/// The order changes nothing on the node: only the record goes.
pub(crate) fn forgets(resize: &Resize) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_none()
}

/// Memory is taken back, and nothing given: no record of anything.
fn reclaims(resize: &Resize) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_some()
}
