use serde_json::json;

use super::*;

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

fn request(reason: &str, progress: Progress) -> RequestFacts {
    let summary = Summary {
        progress,
        phase: "Recreating",
        reason: reason.to_owned(),
        message: "waits for\u{1b}[2J app".to_owned(),
        since: Some(at(0)),
    };
    let node = Some("node1".to_owned());
    RequestFacts {
        kind: RequestKind::Restart,
        name: "one".into(),
        uid: "u-1".into(),
        summary,
        node,
        pod: Some("web".into()),
        workload: None,
        pods: Vec::new(),
    }
}

const SHOP: Namespaces<'static> = Namespaces { request: "shop", system: "pitstop-system" };

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
    let text =
        explain(&request("WaitingForDaemon", Progress::Open), Some(&facts), SHOP, at(90), None).join("\n");
    for line in [
        "containerrecreaterequest/one (Pod web) is open for 90s",
        "  waits on the node's daemon",
        "  reason   WaitingForDaemon",
        "  to do    Is a daemon ready on that node?",
        "  node     node1 is Ready",
        "  daemon   pitstop-daemon-x is ready, with containerd 2.4.2",
        "  answers  the daemon last wrote 30s ago",
        "  orders   app: acknowledged",
        "  next     kubectl pitstop node node1",
        "  wait     kubectl pitstop wait containerrecreaterequest/one -n shop",
    ] {
        assert!(text.lines().any(|it| it == line), "{line:?} is not in\n{text}");
    }
    assert!(text.contains("  means    The order waits for the node's daemon."), "{text}");
    assert!(!text.contains('\u{1b}'), "{text:?}");
}

#[test]
fn what_cannot_be_read_is_told_and_hides_nothing_else() {
    let facts = NodeFacts {
        ready: Known::Unread("nodes is forbidden".to_owned()),
        work: Known::Missing,
        daemon: Known::Missing,
    };
    let text = explain(&request("Unheard", Progress::Failed), Some(&facts), SHOP, at(60), None).join("\n");
    assert!(text.contains("failed 60s ago") && text.contains("nodes is forbidden"), "{text}");
    assert!(text.contains("no order book") && text.contains("there is no daemon on this node"), "{text}");
    assert!(!text.contains("means") && !text.contains("next"), "{text}");
    let ended =
        explain(&request("WaitingForDaemon", Progress::Failed), Some(&facts), SHOP, at(60), None).join("\n");
    assert!(!ended.contains("waits on"), "one that is over waits for nobody: {ended}");
    let done = explain(&request("Complete", Progress::Succeeded), None, SHOP, at(1), None);
    assert!(done[0].ends_with("succeeded 1s ago") && done.iter().all(|line| !line.contains("node")));
}

fn stalled(pods: usize) -> RequestFacts {
    let pod = |n: usize| PodOfInterest {
        name: format!("web-{n}"),
        state: if n == 0 { PodState::Failed } else { PodState::Started },
        request: format!("web-{n}-x"),
        message: if n == 0 { "does not become ready".into() } else { String::new() },
    };
    let base = request("PodsFailed", Progress::Failed);
    let workload = Some("deployment/web".to_owned());
    let pods = (0..pods).map(pod).collect();
    RequestFacts {
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
    let text = explain(&stalled(7), None, SHOP, at(90), None).join("\n");
    for line in [
        "inplacerollout/web failed 90s ago",
        "  waits on you: Pods have failed",
        "  Pod      web-0: failed, request web-0-x: does not become ready",
        "  Pod      web-1: at work, request web-1-x",
        "  Pod      ... and 2 more",
        "  next     kubectl pitstop status deployment/web -n shop",
    ] {
        assert!(text.lines().any(|it| it == line), "{line:?} is not in\n{text}");
    }
    let none = explain(&stalled(0), None, SHOP, at(90), None).join("\n");
    assert!(!none.contains("  Pod "), "{none}");
}

#[test]
fn a_command_is_told_only_with_all_of_its_names() {
    let explained = |request: &RequestFacts| explain(request, None, SHOP, at(90), None).join("\n");
    let overdue = request("StopOverdue", Progress::Open);
    assert!(!explained(&overdue).contains("  next "), "which daemon is not known");
    let mut back = stalled(0);
    back.summary.reason = "RolledBack".into();
    assert!(
        explained(&back).contains("  next     kubectl pitstop undo deployment/web -n shop"),
        "{}",
        explained(&back)
    );
    back.workload = None;
    assert!(!explained(&back).contains("  next "), "selected Pods have no template");
    let mut paused = stalled(0);
    (paused.summary.reason, paused.summary.progress) = ("Paused".into(), Progress::Open);
    paused.workload = None;
    let resume = "  next     kubectl pitstop resume inplacerollout/web -n shop";
    assert!(explained(&paused).contains(resume), "{}", explained(&paused));
}

#[test]
fn long_texts_are_folded_to_the_terminal_and_commands_are_not() {
    let daemon = Known::Is(("pitstop-daemon-x".to_owned(), true));
    let facts = NodeFacts { ready: Known::Is(true), work: Known::Is(work()), daemon };
    // A reason that is not on the page, whose texts change.
    let mut unseen = request("NotSeen", Progress::Open);
    unseen.summary.message =
        "the controller has not seen the latest change of spec yet, and its lease was renewed long ago"
            .into();
    let narrow = explain(&unseen, Some(&facts), SHOP, at(90), Some(80)).join("\n");
    let expected = "\
containerrecreaterequest/one (Pod web) is open for 90s
  reason   NotSeen
  message  the controller has not seen the latest change of spec yet, and its
           lease was renewed long ago
  waits on the controller
  node     node1 is Ready
  daemon   pitstop-daemon-x is ready, with containerd 2.4.2
  orders   app: acknowledged
  answers  the daemon last wrote 30s ago
  next     kubectl pitstop doctor -n shop
  wait     kubectl pitstop wait containerrecreaterequest/one -n shop";
    assert_eq!(narrow, expected);
    let wide = explain(&unseen, Some(&facts), SHOP, at(90), Some(200)).join("\n");
    assert_eq!(wide, expected.replace("and its\n           lease", "and its lease"));
    let least = explain(&unseen, Some(&facts), SHOP, at(90), Some(1));
    let command = "  wait     kubectl pitstop wait containerrecreaterequest/one -n shop";
    assert_eq!(least.last().map(String::as_str), Some(command), "it can be copied");
}

#[test]
fn pitstop_in_another_namespace_is_looked_for_there() {
    let namespaces = Namespaces { request: "shop", system: "infra" };
    let text =
        explain(&request("WaitingForDaemon", Progress::Open), None, namespaces, at(90), None).join("\n");
    assert!(text.contains("  next     kubectl pitstop node node1 --controller-namespace infra"), "{text}");
}
