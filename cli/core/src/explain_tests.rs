use serde_json::json;

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

fn waits(reason: &str, progress: Progress) -> Explained {
    let standing = Standing {
        progress,
        phase: "Recreating",
        reason: reason.to_owned(),
        message: "waits for\u{1b}[2J app".to_owned(),
        since: Some(at(0)),
    };
    let node = Some("node1".to_owned());
    Explained {
        kind: RequestKind::Restart,
        name: "one".into(),
        uid: "u-1".into(),
        standing,
        node,
        pod: Some("web".into()),
        workload: None,
        pods: Vec::new(),
    }
}

const PLACE: Place<'static> = Place { namespace: "shop", system: "pitstop-system" };

fn work() -> Box<NodeWork> {
    let id = "0".repeat(64);
    let order = |id_: &str| {
        json!({"id": id_, "pod": {"namespace": "shop", "name": "web", "uid": "p"},
            "container": {"name": "app", "id": id}, "action": {"recreate": {}}})
    };
    let work = json!({
        "metadata": {"name": "node1", "managedFields": [
            {"manager": "pitstop-daemon", "operation": "Update", "subresource": "status", "time": at(60)},
            {"manager": "pitstop-controller", "operation": "Update", "time": at(80)}]},
        "spec": {"orders": [order("u-1/app/1"), order("u-2/app/1")]},
        "status": {"runtime": {"name": "containerd", "version": "2.4.2"},
            "answers": [{"orderID": "u-1/app/1", "state": "Acknowledged", "acknowledgedBy": "x"}]},
    });
    Box::new(serde_json::from_value(work).unwrap())
}

#[test]
fn a_wait_is_explained_with_the_page_the_node_the_daemon_and_its_orders() {
    let daemon = Known::Is(("pitstop-daemon-x".to_owned(), true));
    let facts = NodeFacts { ready: Known::Is(true), work: Known::Is(work()), daemon };
    let told =
        explain(&waits("WaitingForDaemon", Progress::Open), Some(&facts), PLACE, at(90), None).join("\n");
    for line in [
        "containerrecreaterequest/one (Pod web) is open, for 90s",
        "  held by  the node's daemon",
        "  reason   WaitingForDaemon",
        "  to do    Is a daemon ready on that node?",
        "  node     node1 is Ready",
        "  daemon   pitstop-daemon-x is ready, with containerd 2.4.2",
        "  answers  the daemon wrote last 30s ago",
        "  orders   app: acknowledged",
        "  next     kubectl pitstop node node1",
        "  wait     kubectl pitstop wait containerrecreaterequest/one -n shop",
    ] {
        assert!(told.lines().any(|it| it == line), "{line:?} is not in\n{told}");
    }
    assert!(told.contains("  means    The order waits for the node's daemon."), "{told}");
    assert!(!told.contains('\u{1b}'), "{told:?}");
}

#[test]
fn what_cannot_be_read_is_told_and_hides_nothing_else() {
    let facts = NodeFacts {
        ready: Known::Unread("nodes is forbidden".to_owned()),
        work: Known::Missing,
        daemon: Known::Missing,
    };
    let told = explain(&waits("Unheard", Progress::Failed), Some(&facts), PLACE, at(60), None).join("\n");
    assert!(told.contains("has failed, 60s ago") && told.contains("nodes is forbidden"), "{told}");
    assert!(told.contains("no order book") && told.contains("there is none on this node"), "{told}");
    assert!(!told.contains("means") && !told.contains("next"), "{told}");
    let ended =
        explain(&waits("WaitingForDaemon", Progress::Failed), Some(&facts), PLACE, at(60), None).join("\n");
    assert!(!ended.contains("held by"), "one that is over waits for nobody: {ended}");
    let done = explain(&waits("Complete", Progress::Succeeded), None, PLACE, at(1), None);
    assert!(done[0].ends_with("is done, since 1s") && done.iter().all(|line| !line.contains("node")));
}

fn stalled(pods: usize) -> Explained {
    let pod = |n: usize| PodOfInterest {
        name: format!("web-{n}"),
        state: if n == 0 { PodState::Failed } else { PodState::Started },
        request: format!("web-{n}-x"),
        message: if n == 0 { "does not become ready".into() } else { String::new() },
    };
    let base = waits("PodsFailed", Progress::Failed);
    let workload = Some("deployment/web".to_owned());
    let pods = (0..pods).map(pod).collect();
    Explained {
        kind: RequestKind::Rollout,
        name: "web".into(),
        pod: None,
        node: None,
        workload,
        pods,
        ..base
    }
}

#[test]
fn a_rollout_that_stands_still_says_who_is_to_act_and_names_its_pods() {
    let told = explain(&stalled(7), None, PLACE, at(90), None).join("\n");
    for line in [
        "inplacerollout/web has failed, 90s ago",
        "  held by  you: Pods have failed",
        "  Pod      web-0: failed by web-0-x: does not become ready",
        "  Pod      web-1: at work by web-1-x",
        "  Pod      ... and 2 more",
        "  next     kubectl pitstop status deployment/web -n shop",
    ] {
        assert!(told.lines().any(|it| it == line), "{line:?} is not in\n{told}");
    }
    let none = explain(&stalled(0), None, PLACE, at(90), None).join("\n");
    assert!(!none.contains("  Pod "), "{none}");
}

#[test]
fn a_command_is_told_only_with_all_of_its_names() {
    let told = |request: &Explained| explain(request, None, PLACE, at(90), None).join("\n");
    let overdue = waits("StopOverdue", Progress::Open);
    assert!(!told(&overdue).contains("  next "), "which daemon is not known");
    let mut back = stalled(0);
    back.standing.reason = "RolledBack".into();
    assert!(
        told(&back).contains("  next     kubectl pitstop undo deployment/web -n shop"),
        "{}",
        told(&back)
    );
    back.workload = None;
    assert!(!told(&back).contains("  next "), "selected Pods have no template");
    let mut paused = stalled(0);
    (paused.standing.reason, paused.standing.progress) = ("Paused".into(), Progress::Open);
    paused.workload = None;
    let resume = "  next     kubectl pitstop resume inplacerollout/web -n shop";
    assert!(told(&paused).contains(resume), "{}", told(&paused));
}

#[test]
fn long_texts_are_folded_to_the_terminal_and_commands_are_not() {
    let daemon = Known::Is(("pitstop-daemon-x".to_owned(), true));
    let facts = NodeFacts { ready: Known::Is(true), work: Known::Is(work()), daemon };
    // A reason that is not on the page, whose texts change.
    let mut request = waits("NotSeen", Progress::Open);
    request.standing.message =
        "the controller has not seen the latest change of spec yet, and its lease was renewed long ago"
            .into();
    let narrow = explain(&request, Some(&facts), PLACE, at(90), Some(80)).join("\n");
    let expected = "\
containerrecreaterequest/one (Pod web) is open, for 90s
  reason   NotSeen
  message  the controller has not seen the latest change of spec yet, and its
           lease was renewed long ago
  held by  the controller
  node     node1 is Ready
  daemon   pitstop-daemon-x is ready, with containerd 2.4.2
  orders   app: acknowledged
  answers  the daemon wrote last 30s ago
  next     kubectl pitstop doctor -n shop
  wait     kubectl pitstop wait containerrecreaterequest/one -n shop";
    assert_eq!(narrow, expected);
    let wide = explain(&request, Some(&facts), PLACE, at(90), Some(200)).join("\n");
    assert_eq!(wide, expected.replace("and its\n           lease", "and its lease"));
    let least = explain(&request, Some(&facts), PLACE, at(90), Some(1));
    let command = "  wait     kubectl pitstop wait containerrecreaterequest/one -n shop";
    assert_eq!(least.last().map(String::as_str), Some(command), "it can be copied");
}

#[test]
fn pitstop_in_another_namespace_is_looked_for_there() {
    let place = Place { namespace: "shop", system: "infra" };
    let told = explain(&waits("WaitingForDaemon", Progress::Open), None, place, at(90), None).join("\n");
    assert!(told.contains("  next     kubectl pitstop node node1 --controller-namespace infra"), "{told}");
}
