//! Failed preStop hooks. The stop goes ahead, so they do not change the outcome. A condition of the request reports
//! them and stays; each new failure causes an event.

use chrono::{DateTime, Utc};
use pitstop_api::condition::{self, Condition, ConditionStatus};
use pitstop_api::nodework::AnswerReason;
use pitstop_api::recreate::{ContainerRecreateRequestStatus, conditions};

use super::observe::Observed;

/// Reason of the condition and of the event; the kubelet uses the same word.
pub(super) const FAILED: &str = "FailedPreStopHook";
/// Separator of containers in the condition's message.
const AND: &str = "; ";

/// Records the hooks that failed according to the daemon. Earlier records stay, even when the order is gone.
pub(super) fn record(
    status: &mut ContainerRecreateRequestStatus,
    observed: &Observed<'_>,
    now: DateTime<Utc>,
) {
    let known = condition::find(&status.conditions, conditions::PRE_STOP_HOOK_FAILED);
    let mut message = known.map_or_else(String::new, |c| c.message.clone());
    for order in &observed.orders {
        let failed = order.answer.filter(|a| a.reason == Some(AnswerReason::PreStopHookFailed));
        let Some(answer) = failed else { continue };
        let container = format!("container {}: ", order.order.container.name);
        if message.starts_with(&container) || message.contains(&format!("{AND}{container}")) {
            continue;
        }
        if !message.is_empty() {
            message.push_str(AND);
        }
        message = format!("{message}{container}{}, and the stop went ahead", answer.message);
    }
    if message.is_empty() {
        return;
    }
    let generation = observed.request.generation;
    let failed = Condition::new(
        conditions::PRE_STOP_HOOK_FAILED,
        ConditionStatus::True,
        FAILED,
        &condition::truncate(&message, condition::MAX_MESSAGE),
        now,
        generation,
    );
    condition::set(&mut status.conditions, failed);
}

/// Failed hooks that the new status reports and the old one did not.
pub(super) fn news<'a>(
    old: &ContainerRecreateRequestStatus,
    new: &'a ContainerRecreateRequestStatus,
) -> Option<&'a str> {
    let message = &condition::find(&new.conditions, conditions::PRE_STOP_HOOK_FAILED)?.message;
    let before =
        condition::find(&old.conditions, conditions::PRE_STOP_HOOK_FAILED).map_or("", |c| &c.message);
    let news = message.strip_prefix(before).unwrap_or(message);
    Some(news.trim_start_matches(AND)).filter(|news| !news.is_empty())
}
