//! The record of what Pods are held at, in the status of the book.

use pitstop_api::nodework::{Cgroup, Held, HeldContainer, MAX_HELD, Order, Resize};

use super::Present;

/// Most containers in the record, over all Pods: with some hundred bytes for each, the book stays far below what etcd
/// stores in one object.
pub const MAX_HELD_CONTAINERS: usize = 512;
/// Most containers of one Pod in the record: the schema's bound.
const MAX_OF_POD: usize = 64;

/// An order is acknowledged. The error says why there is no room for another record.
pub(crate) fn begin(held: &mut Vec<Held>, order: &Order, present: &Present) -> Result<(), String> {
    let Some(resize) = given(order) else { return Ok(()) };
    if resize.hold {
        return hold(held, order, present);
    }
    if let Some(pod) = of_pod(held, order) {
        pod.given = None;
        if let Some(container) = pod.containers.iter_mut().find(|container| is_of(container, order)) {
            under_way(container, order);
        }
    }
    Ok(())
}

/// What was there before is kept from the first time: later it would be what an order gave.
fn hold(held: &mut Vec<Held>, order: &Order, present: &Present) -> Result<(), String> {
    has_room(held, order)?;
    let fresh = HeldContainer {
        name: order.container.name.clone(),
        id: order.container.id.clone(),
        original: present.container.map(|seen| limits(&seen.cgroup)).unwrap_or_default(),
        order: order.id.clone(),
        ..HeldContainer::default()
    };
    let Some(pod) = of_pod(held, order) else {
        held.push(Held {
            pod: order.pod.clone(),
            cgroup: present.cgroup.clone(),
            original: present.pod.map(|seen| limits(&seen.cgroup)).unwrap_or_default(),
            containers: vec![fresh],
            ..Held::default()
        });
        return Ok(());
    };
    pod.given = None;
    match pod.containers.iter_mut().find(|container| container.name == fresh.name) {
        Some(container) if is_of(container, order) => under_way(container, order),
        // A later instance: the one before it is gone.
        Some(container) => *container = fresh,
        None => pod.containers.push(fresh),
    }
    Ok(())
}

/// A container of that name is on record, or there is room for it.
fn has_room(held: &[Held], order: &Order) -> Result<(), String> {
    let pod = held.iter().find(|held| held.pod.uid == order.pod.uid);
    let of_pod = pod.map_or(&[][..], |pod| &pod.containers);
    if of_pod.iter().any(|container| container.name == order.container.name) {
        return Ok(());
    }
    if pod.is_none() && held.len() >= MAX_HELD {
        return Err(format!("{MAX_HELD} Pods of this node are held at other resources already"));
    }
    let all: usize = held.iter().map(|pod| pod.containers.len()).sum();
    if of_pod.len() >= MAX_OF_POD || all >= MAX_HELD_CONTAINERS {
        return Err(format!(
            "{MAX_OF_POD} containers of this Pod, or {MAX_HELD_CONTAINERS} of this node, are held at other resources \
             already"
        ));
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
    let pod = held.iter().find(|held| held.pod.uid == order.pod.uid);
    let names = |container: &HeldContainer| is_of(container, order) && container.order == order.id;
    !resize.hold || pod.is_some_and(|pod| pod.containers.iter().any(names))
}

/// An order is done.
pub(crate) fn finish(held: &mut Vec<Held>, order: &Order) {
    let Some(resize) = given(order) else { return };
    if let Some(pod) = of_pod(held, order) {
        pod.given = resize.pod;
        if resize.hold {
            if let Some(container) = pod.containers.iter_mut().find(|container| is_of(container, order)) {
                (container.given, container.before) = (resize.container, None);
            }
        } else {
            pod.containers.retain(|container| container.name != order.container.name);
        }
    }
    held.retain(|pod| !pod.containers.is_empty());
}

/// The record of the order's Pod.
fn of_pod<'a>(held: &'a mut [Held], order: &Order) -> Option<&'a mut Held> {
    held.iter_mut().find(|held| held.pod.uid == order.pod.uid)
}

/// It is the instance that the order names.
fn is_of(container: &HeldContainer, order: &Order) -> bool {
    container.name == order.container.name && container.id == order.container.id
}

/// What an order gives or gives back, if it does not only take memory.
fn given(order: &Order) -> Option<&Resize> {
    order.action.resize.as_ref().filter(|resize| !reclaims(resize))
}

/// The order changes nothing on the node: only the record goes.
pub(crate) fn forgets(resize: &Resize) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_none()
}

/// Memory is taken back, and nothing given: no record of anything.
fn reclaims(resize: &Resize) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_some()
}
