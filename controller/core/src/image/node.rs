//! A node that is not ready: what its kubelet told last may be old, so no clock runs, and the image is not blamed.
//!
//! Of a Pod that was ready the node lifecycle controller says so. Of one that was not, nothing shows it: the API server is asked
//! before the time for its containers is said to be over.

use crate::deed::Done;
use crate::time::Mono;

/// How often that is believed where nobody has missed the node: an image may be what takes its runtime along.
const MOST_LOST: i32 = 5;

/// What is known of the Pod's node.
#[allow(clippy::struct_excessive_bools, reason = "each comes from another source, and all may hold at once")]
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sight {
    /// The Pod shows that it is not ready.
    unheard: bool,
    /// The API server has said so when it was asked last.
    silent: bool,
    /// All new containers are ready, by their kubelet's last word.
    ready: bool,
    /// When the API server has last said that it is ready, or nobody could.
    ready_at: Option<Mono>,
    /// Since when it is back.
    back_since: Option<Mono>,
    /// The new containers have not been ready since then.
    settles: bool,
    /// How often it came back: whatever stopped it may have restarted its containers.
    outages: i32,
    /// New containers of which nobody knows how their last instances ended, and which instances those were.
    lost: Vec<(String, i32)>,
}

impl Sight {
    /// Notes what the Pod shows. `ready`: its kubelet says that all new containers are.
    pub(super) fn see(&mut self, now: Mono, unheard: bool, ready: bool) {
        let was = self.is_away();
        self.unheard = unheard;
        // What has become ready since is news of the kubelet.
        self.silent &= !ready || self.ready;
        self.ready = ready;
        if was && !self.is_away() {
            self.comes_back(now);
        }
        self.settles &= !ready || self.is_away();
    }

    /// The API server was asked whether it is ready.
    pub(super) fn asked(&mut self, now: Mono, done: &Done) {
        let was = self.is_away();
        match done {
            Done::Gone => self.silent = true,
            // What cannot be seen is not judged.
            Done::Effected | Done::Told(_) | Done::Refused(_) => {
                (self.silent, self.ready_at) = (false, Some(now));
            }
            // Nobody was asked.
            Done::Conflict | Done::Retry(_) => {}
        }
        if was && !self.is_away() {
            self.comes_back(now);
        }
    }

    /// Notes which instances have ended with the node, though it was not seen to be away: it was back soon.
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

    /// What its kubelet told last is from before it was lost.
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

    /// From when the time for containers to become ready is counted: anew from when the node is back.
    pub(super) fn counts_from(&self, since: Mono) -> Mono {
        self.back_since.map_or(since, |back| back.max(since))
    }

    /// How often its containers may have restarted with it.
    pub(super) fn outages(&self) -> i32 {
        self.outages
    }
}
