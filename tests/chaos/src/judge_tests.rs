//! Each thing that can be wrong is found, and what crashes may do is not taken for it.

use super::*;
use crate::facts::{Killed, Target};

const CONTAINER: &str = "app";

fn entry(event: Event, id: &str, time: Uptime) -> Entry {
    Entry { event, container: CONTAINER.to_owned(), id: id.to_owned(), version: "1".to_owned(), time }
}

fn starts(ids: &[&str]) -> Vec<Entry> {
    ids.iter().zip(1..).map(|(id, n)| entry(Event::Started, id, 1000 * n)).collect()
}

/// A completed request that was made while `id` ran, and was resolved to it.
fn request(id: &str) -> Request {
    Request {
        pod: "web".to_owned(),
        containers: vec![CONTAINER.to_owned()],
        before: [(CONTAINER.to_owned(), id.to_owned())].into(),
        target: [(CONTAINER.to_owned(), Target { id: id.to_owned(), is_pinned: false })].into(),
        succeeded: [CONTAINER.to_owned()].into(),
        outcome: Outcome::Complete,
        ..Request::default()
    }
}

fn failed(id: &str, reason: &str) -> Request {
    Request { outcome: Outcome::Failed(reason.to_owned()), succeeded: BTreeSet::new(), ..request(id) }
}

fn facts(trace: Vec<Entry>, requests: &[Request]) -> Facts {
    let pod = Pod { node: "node1".to_owned(), is_ready: true, trace, ..Pod::default() };
    let requests = requests.iter().zip(1..).map(|(request, n)| (format!("r{n}"), request.clone())).collect();
    Facts { requests, pods: [("web".to_owned(), pod)].into(), ..Facts::default() }
}

fn texts(breaches: &[Breach]) -> Vec<&str> {
    breaches.iter().map(|breach| breach.text.as_str()).collect()
}

#[test]
fn a_good_run_is_good() {
    let findings = judge(&facts(starts(&["a", "b", "c"]), &[request("a"), request("b")]));
    assert_eq!(findings.line(), "requests=2 updates=0 rolls=0 lost=0 doubled=0 stuck=0");
    assert!(findings.is_good(), "{findings:?}");
    assert_eq!(findings.completed, 2);
}

#[test]
fn two_requests_may_be_about_one_instance() {
    let findings = judge(&facts(starts(&["a", "b"]), &[request("a"), request("a")]));
    assert!(findings.is_good(), "{findings:?}");
}

#[test]
fn a_run_in_which_nothing_completed_is_not_good() {
    let findings = judge(&facts(starts(&["a"]), &[failed("a", "DeadlineExceeded")]));
    assert_eq!(findings.line(), "requests=1 updates=0 rolls=0 lost=0 doubled=0 stuck=0");
    assert_eq!(findings.failed, [("DeadlineExceeded".to_owned(), 1)].into());
    assert!(!findings.is_good());
}

#[test]
fn a_container_that_never_changed_is_lost() {
    let findings = judge(&facts(starts(&["a"]), &[request("a")]));
    assert_eq!(
        texts(&findings.lost),
        ["container app: reported as restarted, and a is still the last instance"]
    );
    assert!(!findings.is_good());
    // Also when only the container's state says so.
    let mut late = failed("a", "DeadlineExceeded");
    late.succeeded.insert(CONTAINER.to_owned());
    assert_eq!(judge(&facts(starts(&["a"]), &[late])).lost.len(), 1);
}

#[test]
fn a_request_that_was_resolved_to_the_past_is_lost() {
    let stale = Request { before: [(CONTAINER.to_owned(), "b".to_owned())].into(), ..request("a") };
    let findings = judge(&facts(starts(&["a", "b"]), &[request("a"), stale]));
    assert_eq!(
        texts(&findings.lost),
        ["container app: was resolved to a, which had been replaced by b before"]
    );
    let nothing = Request { target: BTreeMap::new(), ..request("a") };
    assert_eq!(judge(&facts(starts(&["a", "b"]), &[request("a"), nothing])).lost.len(), 1);
}

#[test]
fn a_vanished_request_is_lost() {
    let gone = Request { is_gone: true, ..request("a") };
    assert_eq!(texts(&judge(&facts(starts(&["a", "b"]), std::slice::from_ref(&gone))).lost), ["vanished"]);
    let expired = Request { expires: true, ..gone };
    assert!(judge(&facts(starts(&["a", "b"]), std::slice::from_ref(&expired))).is_good());
    // Its end came and went while the watch was away.
    let open = Request { outcome: Outcome::Open, ..expired };
    assert_eq!(judge(&facts(starts(&["a", "b"]), std::slice::from_ref(&open))).lost, []);
    assert_eq!(texts(&judge(&facts(starts(&["a"]), std::slice::from_ref(&open))).lost), ["vanished"]);
    let lasting = Request { expires: false, ..open };
    assert_eq!(texts(&judge(&facts(starts(&["a", "b"]), &[lasting])).lost), ["vanished"]);
}

#[test]
fn a_failure_needs_a_reason_that_crashes_can_give() {
    let lost = |reason| judge(&facts(starts(&["a"]), &[failed("a", reason)])).lost;
    assert_eq!(lost("DaemonNotResponding"), []);
    assert_eq!(
        texts(&lost("ContainerFailed")),
        ["failed with ContainerFailed, which no crash is a reason for"]
    );
}

#[test]
fn an_instance_that_no_request_named_is_doubled() {
    let findings = judge(&facts(starts(&["a", "b", "c"]), &[request("a"), request("a")]));
    assert_eq!(texts(&findings.doubled), ["container app: b ended, and no request was resolved to it"]);
    assert_eq!(findings.line(), "requests=2 updates=0 rolls=0 lost=0 doubled=1 stuck=0");
    // A request about another Pod explains nothing.
    let other = Request { pod: "db".to_owned(), ..request("b") };
    assert_eq!(judge(&facts(starts(&["a", "b", "c"]), &[request("a"), other])).doubled.len(), 1);
    // A failed one does.
    let late = failed("b", "DeadlineExceeded");
    assert_eq!(judge(&facts(starts(&["a", "b", "c"]), &[request("a"), late])).doubled, []);
}

/// `b` was started at 20 s and is not the last instance, and no request was resolved to it.
#[test]
fn a_start_that_a_kill_broke_off_is_explained() {
    let doubled = |victim, time, more: &[Entry]| {
        let mut trace = starts(&["a", "b", "c"]);
        trace.extend_from_slice(more);
        let mut facts = facts(trace, &[request("a")]);
        facts.kills = vec![Killed { time, victim }];
        judge(&facts).doubled.len()
    };
    assert_eq!(doubled(Victim::Kubelet("node1"), 1995, &[]), 0);
    assert_eq!(doubled(Victim::Containerd("node1"), 2095, &[]), 0);
    // Too late, elsewhere, or nobody who starts containers.
    assert_eq!(doubled(Victim::Kubelet("node1"), 2150, &[]), 1);
    assert_eq!(doubled(Victim::Kubelet("node2"), 1995, &[]), 1);
    assert_eq!(doubled(Victim::Daemon("node1"), 1995, &[]), 1);
    // Somebody asked it to end.
    assert_eq!(doubled(Victim::Kubelet("node1"), 1995, &[entry(Event::Asked, "b", 2050)]), 1);
}

/// The hook of `a` ran from 11 to 12 s and began again at 15 s.
fn twice(requests: &[Request], kills: &[(Victim, Uptime)]) -> Vec<Breach> {
    let mut trace = starts(&["a"]);
    trace.extend([
        entry(Event::HookBegan, "a", 1100),
        entry(Event::HookEnded, "a", 1200),
        entry(Event::HookBegan, "a", 1500),
        entry(Event::HookEnded, "a", 1600),
        entry(Event::Started, "b", 2000),
    ]);
    let mut facts = facts(trace, requests);
    facts.kills = kills.iter().map(|(victim, time)| Killed { time: *time, victim: *victim }).collect();
    judge(&facts).doubled
}

#[test]
fn a_second_run_of_a_hook_is_doubled() {
    let doubled = twice(&[request("a")], &[]);
    assert_eq!(doubled.len(), 1);
    assert!(doubled[0].text.starts_with("container app: the hook of a ran 2 times"), "{doubled:?}");
}

#[test]
fn a_hook_whose_caller_was_killed_may_run_again() {
    for (victim, at, counts) in [
        (Victim::Daemon("node1"), 1150, true),
        (Victim::Daemon("node1"), 1290, true),
        (Victim::Containerd("node1"), 1150, true),
        // The hook was on its way into the container.
        (Victim::Containerd("node1"), 1090, true),
        // On record by then.
        (Victim::Daemon("node1"), 1350, false),
        (Victim::Daemon("node1"), 1050, false),
        (Victim::Daemon("node2"), 1150, false),
        // Not who ran it.
        (Victim::Kubelet("node1"), 1150, false),
        (Victim::Controllers, 1150, false),
    ] {
        assert_eq!(twice(&[request("a")], &[(victim, at)]).is_empty(), counts, "{victim} at {at}");
    }
}

#[test]
fn the_kubelet_keeps_no_record_of_hooks() {
    let mut pinned = request("a");
    pinned.target.insert(CONTAINER.to_owned(), Target { id: "a".to_owned(), is_pinned: true });
    assert_eq!(twice(&[pinned.clone()], &[(Victim::Kubelet("node1"), 1400)]), []);
    assert_eq!(twice(&[pinned], &[(Victim::Kubelet("node1"), 1550)]).len(), 1);
}

#[test]
fn a_second_request_for_the_instance_may_run_its_hook_again() {
    assert_eq!(twice(&[failed("a", "DeadlineExceeded"), request("a")], &[]), []);
}

#[test]
fn what_is_left_is_stuck() {
    let mut facts = facts(
        starts(&["a", "b"]),
        &[
            Request { is_active: true, ..request("a") },
            Request { outcome: Outcome::Open, is_active: true, ..request("a") },
            // Gone is over.
            Request { is_gone: true, expires: true, is_active: true, ..request("a") },
        ],
    );
    facts.orders = vec!["x/app/1 on node1".to_owned()];
    let pod = facts.pods.get_mut("web").unwrap();
    pod.is_ready = false;
    pod.holds = vec!["ns/r1".to_owned()];
    let findings = judge(&facts);
    assert_eq!(
        texts(&findings.stuck),
        [
            "has ended and has the label active",
            "has not ended",
            "is not ready",
            "is held not ready by ns/r1",
            "order x/app/1 on node1 is left"
        ]
    );
    assert_eq!(findings.line(), "requests=3 updates=0 rolls=0 lost=0 doubled=0 stuck=5");
}
