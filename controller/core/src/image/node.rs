//! A node that is not ready: its kubelet's last report may be old, so no clock runs, and the image is not blamed.
//!
//! If the Pod was ready, the node lifecycle controller marks it. Otherwise nothing shows the loss: the API server is
//! asked before the time for the containers counts as over.

use crate::deed::Done;
use crate::time::Mono;

/// How often an outage counts that only the ends of containers show: the image may bring down the node's runtime.
const MOST_LOST: i32 = 5;

/// What is known of the Pod's node.
#[allow(clippy::struct_excessive_bools, reason = "each comes from another source, and all may hold at once")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The Pod shows that the node is not ready.
    unheard: bool,
    /// The API server's last answer says so.
    silent: bool,
    /// All new containers are ready, by their kubelet's last report.
    ready: bool,
    /// When the API server last said that the node is ready, or refused to say.
    ready_at: Option<Mono>,
    /// Since when the node is back.
    back_since: Option<Mono>,
    /// The new containers have not been ready since then.
    settles: bool,
    /// How often it came back: each outage may have restarted its containers.
    outages: i32,
    /// New containers whose last instance ended in an unknown way, and which instance that was.
    lost: Vec<(String, i32)>,
}

impl Memory {
    /// Notes what the Pod shows. `ready`: its kubelet reports all new containers ready.
    pub(super) fn see(&mut self, now: Mono, unheard: bool, ready: bool) {
        let was_away = self.is_away();
        self.unheard = unheard;
        // Containers that have become ready since are news of the kubelet.
        self.silent &= !ready || self.ready;
        self.ready = ready;
        if was_away && !self.is_away() {
            self.comes_back(now);
        }
        self.settles &= !ready || self.is_away();
    }

    /// Takes in the API server's answer whether the node is ready.
    pub(super) fn answered(&mut self, now: Mono, done: &Done) {
        let was_away = self.is_away();
        match done {
            Done::Gone => self.silent = true,
            // A node that may not be read counts as ready.
            Done::Effected | Done::Read(_) | Done::Refused(_) => {
                (self.silent, self.ready_at) = (false, Some(now));
            }
            // No answer.
            Done::Conflict | Done::Retry(_) => {}
        }
        if was_away && !self.is_away() {
            self.comes_back(now);
        }
    }

    /// Notes which instances ended with the node although the node was not seen away: it was back soon.
    pub(super) fn see_lost(&mut self, now: Mono, lost: Vec<(String, i32)>) {
        if self.outages < MOST_LOST && lost.iter().any(|one| !self.lost.contains(one)) {
            self.comes_back(now);
        }
        self.lost = lost;
    }

    fn comes_back(&mut self, now: Mono) {
        (self.back_since, self.settles) = (Some(now), true);
        self.outages = self.outages.saturating_add(1);
    }

    /// It is not ready, as far as is known.
    pub(super) fn is_away(&self) -> bool {
        self.unheard || self.silent
    }

    /// Its kubelet's last report is from before the loss.
    pub(super) fn is_unheard(&self) -> bool {
        self.unheard
    }

    /// It was ready at that time or later.
    pub(super) fn was_ready(&self, at: Mono) -> bool {
        self.ready_at.is_some_and(|ready| ready >= at)
    }

    /// It is back, and the new containers have not been ready since.
    pub(super) fn settles(&self) -> bool {
        self.settles
    }

    /// From when the time for containers to become ready counts: again from when the node is back.
    pub(super) fn counts_from(&self, since: Mono) -> Mono {
        self.back_since.map_or(since, |back| back.max(since))
    }

    /// How often its containers may have restarted with it.
    pub(super) fn outages(&self) -> i32 {
        self.outages
    }
}
