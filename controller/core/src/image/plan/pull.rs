//! Whether the node has the images.

use pitstop_api::image_update::{Phase, PodImageUpdateStatus, Pull};
use pitstop_api::nodework::Order;

use super::Planner;
use crate::deed::Deed;
use crate::image::judge::is_known;
use crate::image::orders::{self, Stage};
use crate::image::status::{self, End, Wait};
use crate::pod::Pod;
use crate::time::Mono;

/// Why the node does not have the images.
pub(super) enum Pulling {
    /// The request waits.
    Waits {
        /// What it waits for.
        wait: Wait,
        /// When to look again without an event.
        at: Option<Mono>,
        /// The deed to do.
        deed: Option<Box<Deed>>,
    },
    /// The node cannot have them.
    Ends(End),
}

impl Pulling {
    pub(super) fn waits(wait: Wait, at: Option<Mono>) -> Self {
        Self::Waits { wait, at, deed: None }
    }

    /// Adds a deed to the wait.
    pub(super) fn with(self, deed: Deed) -> Self {
        match self {
            Self::Waits { wait, at, deed: _ } => Self::Waits { wait, at, deed: Some(Box::new(deed)) },
            Self::Ends(_) => self,
        }
    }
}

impl Planner<'_> {
    /// Whether the node has the images; `Some` says why the pull is left to its kubelet. Notes the pulled images in
    /// `status`.
    pub(super) fn pulled(
        &self,
        pod: &Pod,
        status: &mut PodImageUpdateStatus,
    ) -> Result<Option<String>, Pulling> {
        let policy = self.observed.update.spec.pull();
        if policy == Pull::Skip {
            return Ok(Some("spec.pull is Skip".to_owned()));
        }
        let (mut missing, mut pulls) = (None, None);
        let (mut waits, mut needs, mut unauthorized) = (None, Vec::new(), None);
        for container in &mut status.containers {
            match orders::stage(self.observed, container) {
                Stage::Pulled(pulled) => container.pulled = Some(pulled),
                Stage::Unneeded => {}
                Stage::Unauthorized(end) => {
                    unauthorized.get_or_insert(end);
                    needs.push(&*container);
                }
                Stage::Failed(end) if policy == Pull::IfPossible => {
                    missing.get_or_insert(end.message);
                }
                Stage::Failed(end) => return Err(Pulling::Ends(end)),
                // The acceptance has reported that.
                Stage::Pulls => pulls = Some((Wait::asked(self.config.daemon_silent_after), None)),
                Stage::Underway(text) => {
                    let text = format!("the node pulls: {text}");
                    waits.get_or_insert((Wait::new(Phase::Pulling, status::PULLING, text), None));
                }
                Stage::Unanswered => match self.unanswered(&container.name) {
                    Ok(wait) => {
                        waits.get_or_insert(wait);
                    }
                    Err(end) if policy == Pull::IfPossible => {
                        missing.get_or_insert(end.message);
                    }
                    Err(end) => return Err(Pulling::Ends(end)),
                },
            }
        }
        if let Some((wait, at)) = waits.or(pulls) {
            return Err(Pulling::waits(wait, at));
        }
        let Some(daemon_end) = unauthorized else { return Ok(missing) };
        match self.by_puller(pod, &needs) {
            Ok(waits) => Err(waits),
            Err(end) => {
                // If no puller Pod has tried, the daemon's reason counts.
                let reason = if end.reason == status::CANNOT_PROVE { daemon_end.reason } else { end.reason };
                let end = End { reason, message: format!("{}; {}", daemon_end.message, end.message), ..end };
                if policy == Pull::IfPossible {
                    return Ok(missing.or(Some(end.message)));
                }
                Err(Pulling::Ends(end))
            }
        }
    }

    /// The daemon has not answered: returns the wait, or fails if the silence is too long. A pull may take its time,
    /// but the daemon reports within seconds that it pulls.
    fn unanswered(&self, container: &str) -> Result<(Wait, Option<Mono>), End> {
        if !self.observed.guarded {
            return Ok((Wait::policy(), None));
        }
        if self.observed.memory.crowded_since.is_some() {
            let text = "waits for a place in the order book of the node";
            return Ok((Wait::new(Phase::Pulling, status::BOOK_FULL, text), None));
        }
        let until =
            self.observed.memory.unanswered_since.map(|since| since.after(self.config.daemon_silent_after));
        if until.is_some_and(|until| until <= self.now) {
            let text = format!(
                "the node's daemon has said nothing for {} s",
                self.config.daemon_silent_after.as_secs()
            );
            return Err(End::failed(status::DAEMON_SILENT, text));
        }
        let again = orders::is_asked_again(self.observed, container);
        Ok((if again { Wait::proof() } else { Wait::asked(self.config.daemon_silent_after) }, until))
    }

    /// The orders for the node's daemon; none once the kubelet alone reports that the new containers run the pulled
    /// images.
    pub(super) fn orders(&self, pod: &Pod) -> Vec<Order> {
        let wants = self.observed.guarded && !is_known(self.observed.update, pod);
        if wants { orders::wanted(self.observed, pod) } else { Vec::new() }
    }
}
