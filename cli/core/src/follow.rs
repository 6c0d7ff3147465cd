//! Waiting for the end of one request: judges each state of it.

use crate::plain;
use crate::summary::{Progress, Request, Summary, armed_summary, summary};

/// How a wait ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// The request has done its work.
    Done(Summary),
    /// The request has not done so, and will not do so by itself.
    Failed(Summary),
    /// The request is gone, for this reason.
    Gone(String),
}

/// Most characters of a message.
const MOST: usize = 600;

impl Ending {
    /// The line for the user; `name` is the request's, such as `podresize.pitstop.dev/web-0-x2x4p`.
    pub fn message(&self, name: &str) -> String {
        match self {
            Self::Done(summary) => format!("{name} done: {}", why(summary)),
            Self::Failed(summary) => format!("{name} failed: {}", why(summary)),
            Self::Gone(why) => format!("{name}: {}", plain::line(why, MOST)),
        }
    }
}

/// The line for the user after a timeout; `last` is how far the request was.
pub fn timed_out(name: &str, last: Option<&Summary>) -> String {
    let waits = last.map(|last| format!(", which is open: {}", why(last))).unwrap_or_default();
    format!("timed out waiting for {name}{waits}")
}

/// Reason and message.
fn why(summary: &Summary) -> String {
    let reason = plain::line(&summary.reason, 128);
    if summary.message.is_empty() {
        return reason;
    }
    format!("{reason}: {}", plain::line(&summary.message, MOST))
}

/// The goal of a wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Goal {
    /// The request has done all its work.
    #[default]
    End,
    /// Of a rollout: the result of the change that gave the workload this `metadata.generation`. Failures of earlier
    /// changes do not count.
    Update(i64),
    /// Of a rollout: the controller is ready to make changes in the running Pods.
    Armed,
}

/// The state of a wait for one request. The UID identifies it: another object of that name is another request.
#[derive(Clone, Debug, Default)]
pub struct Tracker {
    uid: Option<String>,
    /// Least `metadata.generation` that counts.
    generation: i64,
    goal: Goal,
    last: Option<Summary>,
}

impl Tracker {
    /// Waits for the object of that UID (`None`: of `request`), at the generation of `request` or a later one.
    pub fn of<R: Request>(request: &R, uid: Option<String>) -> Self {
        let meta = request.meta();
        let uid = uid.or_else(|| meta.uid.clone());
        Self { uid, generation: meta.generation.unwrap_or_default(), ..Self::default() }
    }

    /// Waits for that goal instead of the end.
    #[must_use]
    pub fn until(self, goal: Goal) -> Self {
        Self { goal, ..self }
    }

    /// The goal of the wait.
    pub fn goal(&self) -> Goal {
        self.goal
    }

    /// How far the request was when last seen.
    pub fn last(&self) -> Option<&Summary> {
        self.last.as_ref()
    }

    /// Judges a state of the object; `None`: the wait goes on.
    pub fn judge<R: Request>(&mut self, request: &R) -> Option<Ending> {
        if request.meta().uid != self.uid {
            return Some(Ending::Gone(format!(
                "it was deleted, and another object with its name was created{}",
                self.when_last_seen()
            )));
        }
        // A cached answer may have an older generation.
        if request.meta().generation.is_some_and(|generation| generation < self.generation) {
            return None;
        }
        let now = if self.goal == Goal::Armed { armed_summary(request) } else { summary(request) };
        self.last = Some(now.clone());
        let reported = request.update_generation().unwrap_or_default();
        match (now.progress, self.goal) {
            (Progress::Open, _) => None,
            // The workload was released before its Pods had the change.
            (Progress::Succeeded, Goal::Update(asked)) if asked <= reported && request.is_given_up() => {
                Some(Ending::Failed(now))
            }
            (Progress::Succeeded, _) => Some(Ending::Done(now)),
            (Progress::Failed, Goal::Update(asked)) if asked > reported => None,
            (Progress::Failed, _) => Some(Ending::Failed(now)),
        }
    }

    /// The object was deleted; `last` is its last state, if the API server showed it.
    pub fn deleted<R: Request>(&mut self, last: Option<&R>) -> Ending {
        if let Some(ending) = last.and_then(|last| self.judge(last)) {
            return ending;
        }
        Ending::Gone(format!(
            "it was deleted{}. If ttlSecondsAfterFinished deleted it after its end, its events say how it ended",
            self.when_last_seen()
        ))
    }

    fn when_last_seen(&self) -> String {
        match &self.last {
            Some(Summary { reason, message, .. }) if message.is_empty() => {
                format!(" while it was open ({reason})")
            }
            Some(Summary { reason, message, .. }) => format!(" while it was open ({reason}: {message})"),
            None => String::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use pitstop_api::rollout::InPlaceRollout;
    use serde_json::json;

    use super::*;

    fn rollout(uid: &str, generation: i64, observed: i64, complete: &str) -> InPlaceRollout {
        serde_json::from_value(json!({
            "apiVersion": "pitstop.dev/v1alpha1", "kind": "InPlaceRollout",
            "metadata": {"name": "web", "uid": uid, "generation": generation},
            "spec": {"targetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}},
            "status": {"phase": "Complete", "observedGeneration": observed, "conditions": [{"type": "Complete",
                "status": complete, "reason": "Restarting", "message": "1 of 2 Pods",
                "lastTransitionTime": "2026-01-01T00:00:00Z"}]},
        }))
        .unwrap()
    }

    #[test]
    fn only_what_is_asked_for_now_ends_the_wait() {
        let mut tracker = Tracker::of(&rollout("a", 3, 2, "True"), None);
        assert_eq!(tracker.judge(&rollout("a", 2, 2, "True")), None, "an older state of it");
        assert_eq!(tracker.judge(&rollout("a", 3, 2, "True")), None, "a status of an older spec");
        assert_eq!(tracker.judge(&rollout("a", 3, 3, "False")), None);
        assert_eq!(tracker.last().unwrap().reason, "Restarting");
        assert!(matches!(tracker.judge(&rollout("a", 4, 4, "True")), Some(Ending::Done(_))));
    }

    #[test]
    fn a_failure_of_an_earlier_change_of_the_workload_does_not_count() {
        let failed = |update: Option<i64>| {
            let mut object = serde_json::to_value(rollout("a", 1, 1, "False")).unwrap();
            object["status"]["conditions"][0]["type"] = json!("Failed");
            object["status"]["conditions"][0]["status"] = json!("True");
            if let Some(generation) = update {
                object["status"]["update"] = json!({"revision": "r", "generation": generation});
            }
            serde_json::from_value::<InPlaceRollout>(object).unwrap()
        };
        let mut tracker = Tracker::of(&failed(None), None).until(Goal::Update(7));
        assert_eq!(tracker.judge(&failed(None)), None);
        assert_eq!(tracker.judge(&failed(Some(6))), None);
        assert!(matches!(tracker.judge(&failed(Some(7))), Some(Ending::Failed(_))));
        let mut any = Tracker::of(&failed(None), None);
        assert!(matches!(any.judge(&failed(None)), Some(Ending::Failed(_))));
    }

    #[test]
    fn a_workload_that_was_released_before_its_pods_were_updated_is_no_success() {
        let released = |generation: i64| {
            let mut object = serde_json::to_value(rollout("a", 1, 1, "True")).unwrap();
            object["status"]["update"] =
                json!({"revision": "r", "generation": generation, "ended": "Superseded"});
            serde_json::from_value::<InPlaceRollout>(object).unwrap()
        };
        let mut tracker = Tracker::of(&released(6), None).until(Goal::Update(7));
        assert!(!matches!(tracker.judge(&released(6)), Some(Ending::Failed(_))), "it was another change");
        assert!(matches!(tracker.judge(&released(7)), Some(Ending::Failed(_))));
    }

    #[test]
    fn a_rollout_is_armed_before_it_has_anything_to_do() {
        let armed = |generation: i64, observed: i64, status: &str| {
            let mut object = serde_json::to_value(rollout("a", generation, 1, "True")).unwrap();
            object["spec"]["templateChanges"] = json!("InPlace");
            let entry = json!({"type": "Armed", "status": status, "reason": "Proving", "message": "tried",
                "observedGeneration": observed, "lastTransitionTime": "2026-01-01T00:00:00Z"});
            object["status"]["conditions"].as_array_mut().unwrap().push(entry);
            serde_json::from_value::<InPlaceRollout>(object).unwrap()
        };
        let mut tracker = Tracker::of(&rollout("a", 2, 1, "True"), None).until(Goal::Armed);
        assert_eq!(tracker.judge(&rollout("a", 2, 2, "True")), None, "the condition is not set");
        assert_eq!(tracker.judge(&armed(2, 1, "True")), None, "the condition is of an older spec");
        assert_eq!(tracker.judge(&armed(2, 2, "False")), None);
        assert_eq!(tracker.last().unwrap().reason, "Proving");
        assert!(matches!(tracker.judge(&armed(2, 2, "True")), Some(Ending::Done(_))));
    }

    #[test]
    fn another_object_of_its_name_is_another_request() {
        let mut tracker = Tracker::of(&rollout("a", 1, 1, "False"), None);
        assert_eq!(tracker.judge(&rollout("a", 1, 1, "False")), None);
        let Some(Ending::Gone(why)) = tracker.judge(&rollout("b", 1, 1, "True")) else { panic!("it waits") };
        assert_eq!(
            why,
            "it was deleted, and another object with its name was created while it was open (Restarting: 1 of 2 Pods)"
        );
    }

    #[test]
    fn an_end_is_told_in_one_line() {
        let summary = Summary {
            progress: Progress::Failed,
            phase: "Failed",
            reason: "PullFailed".into(),
            message: "registry says\n\u{1b}[31mno".into(),
            since: None,
        };
        let (bare, name) =
            (Summary { message: String::new(), ..summary.clone() }, "podimageupdate.pitstop.dev/x");
        let expected = "podimageupdate.pitstop.dev/x failed: PullFailed: registry says\\n\\u{1b}[31mno";
        assert_eq!(Ending::Failed(summary.clone()).message(name), expected);
        assert_eq!(Ending::Done(bare).message(name), "podimageupdate.pitstop.dev/x done: PullFailed");
        assert_eq!(timed_out(name, None), "timed out waiting for podimageupdate.pitstop.dev/x");
        assert!(timed_out(name, Some(&summary)).contains(", which is open: PullFailed: registry"));
    }

    #[test]
    fn one_that_is_deleted_with_its_success_has_succeeded() {
        let mut tracker = Tracker::of(&rollout("a", 1, 1, "False"), None);
        assert!(matches!(tracker.deleted(Some(&rollout("a", 1, 1, "True"))), Ending::Done(_)));
        let Ending::Gone(why) = tracker.deleted(Some(&rollout("a", 1, 1, "False"))) else {
            panic!("it ended")
        };
        assert!(why.starts_with("it was deleted while it was open (Restarting: 1 of 2 Pods). "), "{why}");
        let mut unseen = Tracker::of(&rollout("a", 1, 1, "False"), None);
        let Ending::Gone(why) = unseen.deleted::<InPlaceRollout>(None) else { panic!("it ended") };
        assert!(why.starts_with("it was deleted. If ttlSecondsAfterFinished"), "{why}");
    }
}
