//! The controller's reaction to a lying daemon's answers.

use arbitrary::{Result, Unstructured};
use pitstop_api::nodework::{Answer, AnswerReason, AnswerState, MAX_MESSAGE, NodeWork, NodeWorkStatus};
use pitstop_api::recreate::{
    ContainerRecreateRequestSpec, FailurePolicy, Mechanism, RecreateContainer, RecreateStrategy,
};
use pitstop_controller_core::ObjectKey;
use pitstop_controller_core::pod::{Container, ContainerState, ContainerStatus, Pod, RestartPolicy};
use pitstop_controller_core::readiness::{Gate, KRUISE_POD_READY};
use pitstop_controller_core::recreate::Request;
use pitstop_controller_core::wire::observe;
use serde_json::json;

use crate::cluster::{Cluster, End};
use crate::{read, refusals, texts};

const NODE: &str = "node1";

/// Input: a `NodeWork` as JSON, or a script of events in a cluster.
pub fn nodework_status(input: &[u8]) {
    if input.first() == Some(&b'{') {
        let Some([text]) = texts::<1>(input) else { return };
        if let Some(object) = read::<NodeWork>(text) {
            answered(&observe::nodework(object).status);
        }
    } else {
        // A script may end early.
        let _ = script(&mut Unstructured::new(input));
    }
}

fn pod_key() -> ObjectKey {
    ObjectKey::new("shop", "web")
}

/// ID of the `n`th instance of a container.
fn id(name: &str, n: i32) -> String {
    format!("containerd://{}{n:063x}", if name == "app" { 'a' } else { 'b' })
}

fn running(name: &str, restart_count: i32) -> Container {
    let status = ContainerStatus {
        container_id: id(name, restart_count),
        image_id: format!("registry.example/{name}@sha256:{}", "0".repeat(64)),
        restart_count,
        ready: true,
        state: ContainerState::Running,
        ..ContainerStatus::default()
    };
    let image = format!("registry.example/{name}:1");
    Container { name: name.to_owned(), image, status: Some(status), ..Container::default() }
}

fn pod() -> Pod {
    Pod {
        key: pod_key(),
        uid: "pod-1".to_owned(),
        node: Some(NODE.to_owned()),
        grace_seconds: Some(30),
        containers: vec![running("app", 0), running("proxy", 0)],
        ready: true,
        ..Pod::default()
    }
}

fn request(n: u8, containers: &[&str], strategy: Option<RecreateStrategy>) -> Request {
    let named = |name: &&str| RecreateContainer { name: (*name).to_owned(), ..RecreateContainer::default() };
    Request {
        key: ObjectKey::new("shop", format!("crr-{n}")),
        uid: format!("uid-{n}"),
        generation: Some(1),
        created: i64::from(n),
        spec: ContainerRecreateRequestSpec {
            pod_name: "web".to_owned(),
            containers: containers.iter().map(named).collect(),
            strategy,
            ..ContainerRecreateRequestSpec::default()
        },
        ..Request::default()
    }
}

/// A cluster whose controller has placed the orders of a request for both containers.
fn placed() -> Cluster {
    let mut cluster = Cluster::new(pod(), request(1, &["app", "proxy"], None));
    while !cluster.pending.is_empty() {
        cluster.carry_out(0, End::Stored);
    }
    cluster
}

/// Runs the answers of a book. They may be to other orders.
fn answered(status: &NodeWorkStatus) {
    let mut cluster = placed();
    // The API server stores nothing that the schema refuses.
    if refusals("NodeWork", &json!({"spec": {}, "status": status})).is_empty() {
        cluster.change_book(|book| book.status = status.clone());
    }
    cluster.settle();
    assert!(cluster.requests().all(Request::completed), "a request that does not end");
}

fn strategy(u: &mut Unstructured<'_>) -> Result<RecreateStrategy> {
    Ok(RecreateStrategy {
        failure_policy: *u.choose(&[None, Some(FailurePolicy::Ignore)])?,
        ordered_recreate: u.arbitrary()?,
        force_recreate: u.arbitrary()?,
        unready_grace_period_seconds: *u.choose(&[None, None, Some(0), Some(5)])?,
        min_started_seconds: *u.choose(&[0, 0, 3])?,
        mechanism: *u.choose(&[None, Some(Mechanism::Runtime), Some(Mechanism::Kubelet)])?,
        ..RecreateStrategy::default()
    })
}

/// Containers that a request may name.
const CONTAINERS: [&[&str]; 4] = [&["app"], &["app", "proxy"], &["proxy", "app"], &["gone"]];

fn any_request(u: &mut Unstructured<'_>) -> Result<Request> {
    let n = u.int_in_range(1..=4)?;
    let containers = u.choose(&CONTAINERS)?;
    let strategy = if u.arbitrary()? { Some(strategy(u)?) } else { None };
    let mut request = request(n, containers, strategy);
    request.spec.active_deadline_seconds = *u.choose(&[None, Some(3), Some(600)])?;
    Ok(request)
}

/// An answer to an order of the book, to another request's order, or to an order that never existed.
fn answer(u: &mut Unstructured<'_>, known: &[String]) -> Result<Answer> {
    use AnswerReason::{
        CgroupUnreadable, EndedByItself, InvalidOrder, NotRunning, PreStopHookFailed, StopFailed,
        StopRetried, Unknown, WrongContainer,
    };
    use AnswerState::{Acknowledged, Done, Failed, Refused};
    let reasons = [
        NotRunning,
        WrongContainer,
        InvalidOrder,
        PreStopHookFailed,
        StopRetried,
        EndedByItself,
        StopFailed,
        CgroupUnreadable,
        Unknown,
    ];
    let order_id = if known.is_empty() || u.ratio(1, 4)? {
        (*u.choose(&["uid-1/app/2", "uid-2/app/1", "uid-9/app/1", "uid-1/gone/1", "/", "app"])?).to_owned()
    } else {
        u.choose(known)?.clone()
    };
    Ok(Answer {
        order_id,
        state: *u.choose(&[Acknowledged, Acknowledged, Done, Refused, Failed])?,
        reason: if u.arbitrary()? { Some(*u.choose(&reasons)?) } else { None },
        message: (*u.choose(&["", "no", "; container proxy: ", "\u{1F600}"])?)
            .repeat(u.int_in_range(0..=MAX_MESSAGE / 20)?),
        acknowledged_uptime_seconds: *u.choose(&[None, Some(0), Some(i64::MAX)])?,
        acknowledged_by: (*u.choose(&["", "p"])?).to_owned(),
        observed: u.ratio(1, 9)?.then(Box::default),
        image: u.ratio(1, 9)?.then(Box::default),
    })
}

/// Changes the Pod's status, as a kubelet that may collude with the daemon.
fn kubelet(u: &mut Unstructured<'_>, cluster: &mut Cluster) -> Result<()> {
    let (n, state) = (u.int_in_range(0..=1_usize)?, u.int_in_range(0..=6)?);
    let count = u.int_in_range(0..=3)?;
    cluster.change_pod("web", |pod| {
        let container = &mut pod.containers[n];
        let name = container.name.clone();
        let Some(status) = &mut container.status else {
            container.status = running(&name, count).status;
            return;
        };
        match state {
            0 => container.status = running(&name, count).status,
            1 => status.state = ContainerState::Terminated { exit_code: count },
            2 => {
                let (reason, message) = ("CrashLoopBackOff".repeat(20), "back-off ".repeat(200));
                status.state = ContainerState::Waiting { reason, message };
            }
            3 => status.state = ContainerState::Unknown,
            4 => status.ready = !status.ready,
            5 => status.container_id.clear(),
            _ => container.status = None,
        }
    });
    Ok(())
}

fn script(u: &mut Unstructured<'_>) -> Result<()> {
    let mut pod = pod();
    pod.restart_policy =
        *u.choose(&[RestartPolicy::Always, RestartPolicy::OnFailure, RestartPolicy::Never])?;
    if u.arbitrary()? {
        pod.gates = vec![Gate { type_: KRUISE_POD_READY.to_owned(), condition: None }];
    }
    let first = any_request(u)?;
    let mut cluster = Cluster::new(pod, first);
    for _ in 0..200 {
        if u.is_empty() {
            break;
        }
        match u.int_in_range(0..=15)? {
            0..=3 => {
                let known: Vec<String> = cluster.orders().iter().map(|order| order.id.clone()).collect();
                let answers: Vec<Answer> =
                    (0..u.int_in_range(0..=4)?).map(|_| answer(u, &known)).collect::<Result<_>>()?;
                let mut status = NodeWorkStatus { answers, ..NodeWorkStatus::default() };
                let mut seen = std::collections::BTreeSet::new();
                status.answers.retain(|a| seen.insert(a.order_id.clone()));
                cluster.change_book(|book| book.status = status);
            }
            4 => kubelet(u, &mut cluster)?,
            5 => cluster.change_pod("web", |pod| pod.ready = !pod.ready),
            6 => cluster.add_request(any_request(u)?),
            7 if u.ratio(1, 4)? => cluster.remove_request(&format!("crr-{}", u.int_in_range(1..=4_u8)?)),
            8 if u.ratio(1, 4)? => {
                if u.arbitrary()? {
                    cluster.change_pod("web", |pod| pod.deleting = true);
                } else {
                    cluster.remove_pod("web");
                }
            }
            9 if u.ratio(1, 4)? => cluster.lead(),
            10 | 11 => cluster.wait(u.int_in_range(0..=90_000)?),
            _ if !cluster.pending.is_empty() => {
                let index = u.choose_index(cluster.pending.len())?;
                let end = *u.choose(&[
                    End::Stored,
                    End::Stored,
                    End::Stored,
                    End::Stored,
                    End::Unknown,
                    End::Lost,
                    End::Refused,
                ])?;
                cluster.carry_out(index, end);
            }
            _ => cluster.wait(1_000),
        }
    }
    cluster.settle();
    assert!(cluster.requests().all(Request::completed), "a request that does not end");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_controller_has_placed_orders_that_a_daemon_can_answer() {
        let cluster = placed();
        let orders: Vec<&str> = cluster.orders().iter().map(|order| order.id.as_str()).collect();
        assert_eq!(orders, ["uid-1/app/1", "uid-1/proxy/1"]);
    }
}
