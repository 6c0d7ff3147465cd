//! The restart of `restart: Always`, by a recreate request that the resize owns.

use pitstop_api::labels;
use pitstop_api::recreate::KIND;
use pitstop_api::resize::Restart;

use super::observe::{Observed, Resize};
use super::refusal;
use crate::key::{KindId, ObjectKey};
use crate::kind::Relative;
use crate::time::Mono;

/// Kind of the request that restarts the containers.
pub(super) const CHILD: KindId = KindId::new(KIND);

/// Longest name of a recreate request, in bytes: the limit of a label value.
const MAX_NAME: usize = 63;
const SUFFIX: &str = "-restart";

/// Stage of the restart.
#[derive(Clone, Debug)]
pub(super) enum Stage {
    /// No restart is requested, or every container has been restarted.
    Over,
    /// It has not begun.
    Due,
    /// Another resize's request of that name has yet to be deleted.
    Blocked(String),
    /// It is under way.
    Underway,
    /// It has failed: why.
    Failed(String),
}

/// The name of the recreate request of a resize.
pub(super) fn restart_key(resize: &Resize) -> ObjectKey {
    let name = &resize.key.name;
    let whole = format!("{name}{SUFFIX}");
    if whole.len() <= MAX_NAME {
        return ObjectKey::new(&resize.key.namespace, whole);
    }
    let tail = format!("-{:08x}{SUFFIX}", labels::hash(&resize.uid) & 0xffff_ffff);
    let kept: String = name.chars().take(MAX_NAME.saturating_sub(tail.len())).collect();
    ObjectKey::new(&resize.key.namespace, format!("{}{tail}", kept.trim_end_matches(['-', '.'])))
}

/// The containers to restart: those that the resize itself does not restart.
pub(super) fn to_restart(resize: &Resize) -> impl Iterator<Item = &str> {
    let asked = resize.spec.restart == Some(Restart::Always);
    resize.status.containers.iter().filter(move |c| asked && !c.restarts).map(|c| c.name.as_str())
}

/// Stage of the restart.
pub(super) fn stage(now: Mono, observed: &Observed<'_>) -> Stage {
    let resize = observed.resize;
    if to_restart(resize).next().is_none() || observed.memory.restarted == Some(true) {
        return Stage::Over;
    }
    let Some(request) = &observed.restart else {
        if observed.memory.restarted.is_some() {
            return Stage::Failed("its ContainerRecreateRequest was deleted before it had ended".to_owned());
        }
        let refused = observed.memory.deeds.refused.as_ref();
        return match refused.filter(|refused| refusal::for_good(refused, now)) {
            Some(refused) => {
                Stage::Failed(format!("no ContainerRecreateRequest can be made: {}", refused.text))
            }
            None => Stage::Due,
        };
    };
    let key = request.key;
    if !request.is_of(&resize.uid) {
        return if request.owner_uid.is_some() || request.deleting {
            Stage::Blocked(format!("waits until ContainerRecreateRequest {key} of another owner is deleted"))
        } else {
            let text = format!(
                "ContainerRecreateRequest {key} does not belong to this PodResize: delete it, and make another PodResize"
            );
            Stage::Failed(text)
        };
    }
    match request.ended {
        None if request.deleting => {
            Stage::Failed(format!("ContainerRecreateRequest {key} was deleted before it had ended"))
        }
        None => Stage::Underway,
        Some(ended) if ended.complete => Stage::Over,
        Some(ended) => Stage::Failed(format!("ContainerRecreateRequest {key}: {}", ended.message)),
    }
}

/// Whether every container was restarted.
pub(super) fn succeeded(request: &Relative<'_>) -> bool {
    request.ended.is_some_and(|ended| ended.complete)
}
