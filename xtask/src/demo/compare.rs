//! Compares the Pod before and after the restart with the demo's promises.

use pitstop_api::recreate::Phase;

use super::CONTAINER;
use super::objects::{PodView, RequestView, short};

/// One property before and after.
pub(super) struct Row {
    what: String,
    before: String,
    after: String,
    promise: &'static str,
    kept: bool,
}

/// Compares. `starts`: numbers of starts that the app has written into the shared volume, before and after.
pub(super) fn rows(before: &PodView, after: &PodView, starts: (usize, usize)) -> Vec<Row> {
    let same = |what: &str, before: &str, after: &str| Row {
        what: what.to_owned(),
        before: before.to_owned(),
        after: after.to_owned(),
        promise: "unchanged",
        kept: before == after && !after.is_empty(),
    };
    let mut rows = Vec::new();
    for (name, old) in &before.containers {
        let new = after.containers.get(name).cloned().unwrap_or_default();
        let restarted = name == CONTAINER;
        let id = same(&format!("container {name}"), &short(&old.id), &short(&new.id));
        let count =
            same(&format!("  restarts of {name}"), &old.restarts.to_string(), &new.restarts.to_string());
        if restarted {
            rows.push(Row {
                promise: "new",
                kept: new.running && !new.id.is_empty() && new.id != old.id,
                ..id
            });
            rows.push(Row { promise: "one more", kept: new.restarts == old.restarts + 1, ..count });
        } else {
            rows.push(Row { kept: id.kept && new.running && new.id == old.id, ..id });
            rows.push(count);
        }
    }
    rows.push(same("Pod UID", &before.uid, &after.uid));
    rows.push(same("Pod IP", &before.ip, &after.ip));
    rows.push(same("node", &before.node, &after.node));
    let lines = same("lines in the volume's starts.txt", &starts.0.to_string(), &starts.1.to_string());
    rows.push(Row { promise: "kept, one more", kept: starts.1 == starts.0 + 1, ..lines });
    let ready = |pod: &PodView| if pod.ready { "True" } else { "False" };
    rows.push(Row { kept: before.ready && after.ready, ..same("Pod Ready", ready(before), ready(after)) });
    rows
}

/// The comparison as a table.
pub(super) fn table(rows: &[Row]) -> String {
    let width =
        |of: fn(&Row) -> &str| rows.iter().map(|row| of(row).chars().count()).max().unwrap_or_default();
    let (what, before, after) =
        (width(|row| &row.what), width(|row| &row.before).max(6), width(|row| &row.after).max(5));
    let mut lines = vec![format!("    {:what$}  {:before$}  {:after$}", "", "before", "after")];
    lines.extend(rows.iter().map(|row| {
        let mark = if row.kept { "✓" } else { "✗ promised:" };
        format!(
            "    {:what$}  {:before$}  {:after$}  {mark} {}",
            row.what, row.before, row.after, row.promise
        )
    }));
    lines.iter().map(|line| line.trim_end()).collect::<Vec<_>>().join("\n")
}

/// The broken promises, if any.
pub(super) fn broken_promises(rows: &[Row], request: &RequestView) -> Option<String> {
    let mut broken: Vec<String> = rows
        .iter()
        .filter(|row| !row.kept)
        .map(|row| {
            let Row { what, before, after, promise, .. } = row;
            format!("{}: promised {promise}, was {before:?} and is {after:?}", what.trim())
        })
        .collect();
    let (complete, reason, message) = &request.complete;
    if request.phase != Some(Phase::Completed) || !complete {
        let phase = request.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
        broken.push(format!("the request is {phase} ({reason}): {message}"));
    }
    let expected = (Phase::Succeeded, true);
    if request.containers.len() != 1 || request.containers.get(CONTAINER) != Some(&expected) {
        broken.push(format!("the request's container states are {:?}", request.containers));
    }
    if request.active {
        broken.push("the request still has the label `active`".to_owned());
    }
    (!broken.is_empty()).then(|| broken.join("; "))
}

#[cfg(test)]
mod tests {
    use super::super::objects::ContainerView;
    use super::*;

    fn pod(app: &str, restarts: u64, clock: &str) -> PodView {
        let container = |id: &str, restarts| ContainerView {
            id: id.to_owned(),
            restarts,
            running: true,
            ..ContainerView::default()
        };
        PodView {
            uid: "u".into(),
            ip: "10.0.0.1".into(),
            node: "node1".into(),
            ready: true,
            containers: [("app".into(), container(app, restarts)), ("clock".into(), container(clock, 0))]
                .into(),
        }
    }

    fn done() -> RequestView {
        RequestView {
            name: "restart-app".into(),
            phase: Some(Phase::Completed),
            containers: [("app".into(), (Phase::Succeeded, true))].into(),
            complete: (true, "R".into(), "m".into()),
            active: false,
        }
    }

    #[test]
    fn a_restart_in_place_keeps_every_promise() {
        let rows = rows(&pod("a", 0, "c"), &pod("b", 1, "c"), (1, 2));
        assert_eq!(broken_promises(&rows, &done()), None);
        let shown = table(&rows);
        assert!(shown.contains("container app"), "{shown}");
        assert_eq!(shown.matches('✓').count(), rows.len(), "{shown}");
    }

    #[test]
    fn every_difference_is_told() {
        let before = pod("a", 0, "c");
        let text = |after: &PodView, starts, request: &RequestView| {
            broken_promises(&rows(&before, after, starts), request).unwrap_or_default()
        };
        assert!(text(&pod("a", 1, "c"), (1, 2), &done()).starts_with("container app: promised new"));
        assert!(text(&pod("b", 2, "c"), (1, 2), &done()).starts_with("restarts of app: promised one more"));
        assert!(text(&pod("b", 1, "d"), (1, 2), &done()).starts_with("container clock: promised unchanged"));
        assert!(text(&pod("b", 1, "c"), (1, 1), &done()).contains("starts.txt"));
        let moved = PodView { ip: "10.0.0.2".into(), ..pod("b", 1, "c") };
        assert!(text(&moved, (1, 2), &done()).starts_with("Pod IP: promised unchanged"));
        let failed = RequestView { complete: (false, "PodGone".into(), "m".into()), ..done() };
        assert_eq!(text(&pod("b", 1, "c"), (1, 2), &failed), "the request is Completed (PodGone): m");
        let active = RequestView { active: true, ..done() };
        assert_eq!(text(&pod("b", 1, "c"), (1, 2), &active), "the request still has the label `active`");
    }
}
