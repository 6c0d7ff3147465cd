//! The record of held Pods in the status of the book.

use pitstop_api::nodework::{Cgroup, Held, HeldContainer, MAX_HELD, Order, ResizeOrder};

use super::Present;

/// Most containers in the record, over all Pods. At some hundred bytes each, the book stays far below etcd's limit for
/// one object.
pub const MAX_HELD_CONTAINERS: usize = 512;
/// Most containers of one Pod in the record: the schema's bound.
const MAX_OF_POD: usize = 64;

/// Records an acknowledged order. The error says why the record has no room.
pub(crate) fn begin(held: &mut Vec<Held>, order: &Order, present: &Present) -> Result<(), String> {
    let Some(resize) = recorded_resize(order) else { return Ok(()) };
    if resize.hold {
        return hold(held, order, present);
    }
    if let Some(pod) = of_pod(held, order) {
        pod.given = None;
        if let Some(container) = pod.containers.iter_mut().find(|container| is_of(container, order)) {
            mark_under_way(container, order);
        }
    }
    Ok(())
}

/// Keeps the original values of the first time: later values come from an order.
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
        Some(container) if is_of(container, order) => mark_under_way(container, order),
        // A later instance: the earlier one is gone.
        Some(container) => *container = fresh,
        None => pod.containers.push(fresh),
    }
    Ok(())
}

/// An error if the record neither has a container of that name nor room for it.
fn has_room(held: &[Held], order: &Order) -> Result<(), String> {
    let pod = held.iter().find(|held| held.pod.uid == order.pod.uid);
    let of_pod = pod.map_or(&[][..], |pod| &pod.containers);
    if of_pod.iter().any(|container| container.name == order.container.name) {
        return Ok(());
    }
    if pod.is_none() && held.len() >= MAX_HELD {
        return Err(format!("the daemon already holds {MAX_HELD} Pods of this node, which is the limit"));
    }
    let all: usize = held.iter().map(|pod| pod.containers.len()).sum();
    if of_pod.len() >= MAX_OF_POD || all >= MAX_HELD_CONTAINERS {
        return Err(format!(
            "the daemon already holds {MAX_OF_POD} containers of this Pod, or {MAX_HELD_CONTAINERS} of this node, \
             which is the limit"
        ));
    }
    Ok(())
}

fn mark_under_way(container: &mut HeldContainer, order: &Order) {
    order.id.clone_into(&mut container.order);
    container.before = container.given.take().or(container.before);
}

/// The values to restore: no counters.
fn limits(cgroup: &Cgroup) -> Cgroup {
    Cgroup { memory_usage: None, oom_kills: None, ..*cgroup }
}

/// Whether the record for the order exists; an order without `hold` needs none.
pub(crate) fn recorded(held: &[Held], order: &Order) -> bool {
    let Some(resize) = &order.action.resize else { return true };
    let pod = held.iter().find(|held| held.pod.uid == order.pod.uid);
    let names = |container: &HeldContainer| is_of(container, order) && container.order == order.id;
    !resize.hold || pod.is_some_and(|pod| pod.containers.iter().any(names))
}

/// Records that an order is done.
pub(crate) fn finish(held: &mut Vec<Held>, order: &Order) {
    let Some(resize) = recorded_resize(order) else { return };
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

/// Whether it is the instance that the order names.
fn is_of(container: &HeldContainer, order: &Order) -> bool {
    container.name == order.container.name && container.id == order.container.id
}

/// The resize of an order, unless it only reclaims memory.
fn recorded_resize(order: &Order) -> Option<&ResizeOrder> {
    order.action.resize.as_ref().filter(|resize| !reclaims(resize))
}

/// Whether the order changes nothing on the node and only drops the record.
pub(crate) fn forgets(resize: &ResizeOrder) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_none()
}

/// Whether the order only reclaims memory, which needs no record.
fn reclaims(resize: &ResizeOrder) -> bool {
    resize.gives_nothing() && resize.reclaim_to.is_some()
}
