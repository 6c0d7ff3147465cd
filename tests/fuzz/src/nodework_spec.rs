//! The daemon's reaction to a book with arbitrary content.

use std::collections::BTreeMap;

use arbitrary::{Result, Unstructured};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, Bounds, ImageAnswer, NodeWork, Order, OrderAction, OrderContainer,
    OrderPod, Pull, PullPolicy, Pulled, Recreate, ResizeOrder, Verify,
};
use pitstop_daemon_core::{ContainerState, Facts, wire};

use crate::node::{End, Node, REPOSITORY};
use crate::{read, texts};

/// Input: a `NodeWork` as JSON, or a script of events on a node.
pub fn nodework_spec(input: &[u8]) {
    if input.first() == Some(&b'{') {
        let Some([text]) = texts::<1>(input) else { return };
        if let Some(object) = read::<NodeWork>(text) {
            stored(object);
        }
    } else {
        // A script may end early.
        let _ = script(&mut Unstructured::new(input));
    }
}

/// Runs a book. In turn, its orders name: their own container, a container of another namespace, a missing one, and an
/// ended one.
fn stored(object: NodeWork) {
    let book = wire::book(object);
    let mut runtime = BTreeMap::new();
    for (n, order) in book.orders.iter().enumerate() {
        let own = Facts {
            namespace: order.pod.namespace.clone(),
            pod: order.pod.name.clone(),
            pod_uid: order.pod.uid.clone(),
            container: order.container.name.clone(),
            state: ContainerState::Running,
            ..Facts::default()
        };
        let facts = match n % 4 {
            0 => own,
            1 => Facts { namespace: format!("not-{}", own.namespace), ..own },
            2 => continue,
            _ => Facts { state: ContainerState::Exited, ..own },
        };
        runtime.entry(order.container.id.clone()).or_insert(facts);
    }
    let mut node = Node::new(runtime);
    node.store(|stored| *stored = book);
    node.deliver(true);
    node.settle();
}

/// The `n`th ID.
fn id(n: u8) -> String {
    format!("{n:064x}")
}

/// Two Pods with containers, one ended container, and one that is not the kubelet's. An ID that is not here is a
/// sandbox's.
fn runtime(u: &mut Unstructured<'_>) -> Result<BTreeMap<String, Facts>> {
    let facts = |pod: &str, container: &str, state| Facts {
        namespace: "shop".to_owned(),
        pod: pod.to_owned(),
        pod_uid: format!("uid-{pod}"),
        container: container.to_owned(),
        state,
        ..Facts::default()
    };
    let mut all = vec![
        facts("a", "app", ContainerState::Running),
        facts("a", "sidecar", ContainerState::Running),
        facts("b", "app", ContainerState::Running),
        facts("a", "app", ContainerState::Exited),
        Facts { state: ContainerState::Running, ..Facts::default() },
    ];
    for facts in &mut all {
        facts.pre_stop = u
            .choose(&[
                None,
                Some(r#"{"exec":{"command":["bye"]}}"#),
                Some(r#"{"sleep":{"seconds":5}}"#),
                Some("{"),
            ])?
            .map(str::to_owned);
        facts.grace_seconds = *u.choose(&[None, Some(0), Some(30), Some(-1), Some(i64::MAX)])?;
    }
    Ok((1_u8..).map(id).zip(all).collect())
}

fn resize(u: &mut Unstructured<'_>) -> Result<ResizeOrder> {
    let amount = [Some(1), Some(500), Some(1 << 20), Some(i64::MAX), Some(0), Some(-1), None];
    let mut bounds = || -> Result<Option<Bounds>> {
        let (cpu_request, cpu_limit) = (u.choose(&amount)?.unwrap_or_default(), *u.choose(&amount)?);
        let memory_limit = *u.choose(&amount)?;
        Ok(u.ratio(2, 3)?.then_some(Bounds { cpu_request, cpu_limit, memory_limit }))
    };
    let (container, pod) = (bounds()?, bounds()?);
    let memory_margin = *u.choose(&[0, 0, 1 << 20, i64::MAX, -1])?;
    let reclaim_to = *u.choose(&[None, None, Some(0), Some(1 << 20), Some(i64::MAX), Some(-1)])?;
    let (hold, only_raise) = (u.arbitrary()?, u.arbitrary()?);
    Ok(ResizeOrder { container, pod, hold, only_raise, memory_margin, reclaim_to, ..ResizeOrder::default() })
}

fn pull(u: &mut Unstructured<'_>) -> Result<Pull> {
    let image = match u.int_in_range(0..=5)? {
        0 => "other.example.com/web:v2".to_owned(),
        1 => "No Image".to_owned(),
        2 => String::new(),
        _ => format!("{REPOSITORY}:v2"),
    };
    let policy = *u.choose(&[PullPolicy::Always, PullPolicy::IfNotPresent, PullPolicy::Never])?;
    Ok(Pull::new(image, policy, *u.choose(&[1, 60, 86_400, 0, -1, i64::MAX])?))
}

fn order(u: &mut Unstructured<'_>) -> Result<Order> {
    let pod = *u.choose(&["a", "a", "b", "c", ""])?;
    let container = match u.int_in_range(0..=11)? {
        n @ 0..=6 => id(n),
        7 => id(1)[..12].to_owned(),
        8 => "A".repeat(64),
        9 => String::new(),
        10 => format!("containerd://{}", id(1)),
        _ => format!("{}\n", id(1)),
    };
    let recreate = Recreate::with_grace(*u.choose(&[None, Some(0), Some(5), Some(-5), Some(i64::MAX)])?);
    let action = match u.int_in_range(0..=10)? {
        0 => OrderAction::default(),
        1 | 2 => Verify::default().into(),
        8 => pull(u)?.into(),
        3 => OrderAction { verify: Some(Verify::default()), ..recreate.into() },
        9 | 10 => resize(u)?.into(),
        _ => recreate.into(),
    };
    Ok(Order {
        id: (*u.choose(&["r/app/1", "r/sidecar/1", "s/app/1", ""])?).to_owned(),
        pod: OrderPod {
            namespace: (*u.choose(&["shop", "shop", "bank", ""])?).to_owned(),
            name: pod.to_owned(),
            uid: if pod.is_empty() { String::new() } else { format!("uid-{pod}") },
        },
        container: OrderContainer {
            name: (*u.choose(&["app", "app", "sidecar", ""])?).to_owned(),
            id: container,
        },
        action,
        ..Order::default()
    })
}

/// An answer in the book that the running daemon did not write.
fn answer(u: &mut Unstructured<'_>, order: &Order) -> Result<Answer> {
    use AnswerState::{Acknowledged, Done, Failed, Refused};
    let reasons = [
        None,
        Some(AnswerReason::PreStopHookFailed),
        Some(AnswerReason::StopRetried),
        Some(AnswerReason::ImageGone),
    ];
    let pulled = Pulled {
        image_id: "image".to_owned(),
        digest: String::new(),
        bytes: 1,
        milliseconds: 0,
        present: false,
    };
    let image = ImageAnswer { pulled: Some(pulled), running: None };
    Ok(Answer {
        order_id: order.id.clone(),
        state: *u.choose(&[Acknowledged, Acknowledged, Done, Refused, Failed])?,
        reason: *u.choose(&reasons)?,
        message: String::new(),
        acknowledged_uptime_seconds: *u.choose(&[None, Some(0), Some(90), Some(i64::MAX)])?,
        acknowledged_by: "process-0".to_owned(),
        observed: None,
        image: u.ratio(1, 4)?.then(|| Box::new(image)),
    })
}

fn script(u: &mut Unstructured<'_>) -> Result<()> {
    let mut node = Node::new(runtime(u)?);
    for _ in 0..200 {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=11)? {
            0 => {
                let order = order(u)?;
                node.store(|book| book.orders.push(order));
                node.deliver(false);
            }
            1 if !node.book.orders.is_empty() => {
                let index = u.choose_index(node.book.orders.len())?;
                // The replacement may have the removed order's ID.
                let replacement = if u.arbitrary()? { Some(order(u)?) } else { None };
                node.store(|book| {
                    book.orders.remove(index);
                    book.orders.extend(replacement);
                });
                if u.arbitrary()? {
                    node.deliver(u.arbitrary()?);
                }
            }
            2 if !node.book.orders.is_empty() => {
                let index = u.choose_index(node.book.orders.len())?;
                let answer = answer(u, &node.book.orders[index])?;
                node.store(|book| {
                    book.status.answers.retain(|a| a.order_id != answer.order_id);
                    book.status.answers.push(answer);
                });
                node.deliver(false);
            }
            3 => {
                let state = *u.choose(&[
                    ContainerState::Created,
                    ContainerState::Running,
                    ContainerState::Exited,
                    ContainerState::Unknown,
                ])?;
                let key = id(u.int_in_range(1..=5)?);
                node.runtime.entry(key).and_modify(|facts| facts.state = state);
            }
            4 => node.restart(),
            5 => node.vanish(),
            6 => node.wait(u.int_in_range(0..=60_000)?),
            7 => {
                node.wait_for_daemon();
            }
            8 => node.deliver(true),
            _ if !node.pending.is_empty() => {
                let index = u.choose_index(node.pending.len())?;
                let end = *u.choose(&[End::Well, End::Well, End::Well, End::Fails, End::Refused])?;
                node.carry_out(index, end);
            }
            _ => node.deliver(false),
        }
    }
    Ok(())
}
