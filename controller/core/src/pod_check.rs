//! Whether a Pod that the watch does not show exists: the API server is asked before a request ends because of it.
//!
//! A watch may lag far behind what the user saw, so a Pod that it does not show may exist.

use crate::backoff::Backoff;
use crate::time::Mono;

/// What is known of one request's Pod, apart from the watch.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodCheck {
    /// A read is under way.
    asking: bool,
    /// The API server has answered that the Pod does not exist.
    gone: bool,
    /// When to ask again: the API server answered that the Pod exists, or did not answer.
    pace: Backoff,
}

/// What the API server says of the Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found {
    /// The Pod does not exist, or another one has its name.
    Gone,
    /// It exists: the watch will show it.
    There,
    /// No answer.
    Unknown,
}

/// What to do about a Pod that the watch does not show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Missing {
    /// It is gone.
    Gone,
    /// Ask the API server.
    Ask,
    /// Wait for the watch or the answer; when to look again without an event.
    Wait(Option<Mono>),
}

impl PodCheck {
    /// What to do about the Pod, which the watch does not show.
    pub fn missing(&self, now: Mono) -> Missing {
        if self.gone {
            return Missing::Gone;
        }
        match self.pace.waits_until(now) {
            _ if self.asking => Missing::Wait(None),
            None => Missing::Ask,
            at => Missing::Wait(at),
        }
    }

    /// Notes that the API server is asked.
    pub fn begin(&mut self) {
        self.asking = true;
    }

    /// Takes in its answer.
    pub fn answered(&mut self, now: Mono, found: Found) {
        self.asking = false;
        match found {
            Found::Gone => self.gone = true,
            Found::There | Found::Unknown => self.pace.failed(now),
        }
    }

    /// Notes that the watch shows the Pod.
    pub fn seen(&mut self) {
        (self.gone, self.pace) = (false, Backoff::default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_question_is_under_way_at_a_time() {
        let mut check = PodCheck::default();
        assert_eq!(check.missing(Mono(0)), Missing::Ask);
        check.begin();
        assert_eq!(check.missing(Mono(9_000)), Missing::Wait(None));
        check.answered(Mono(9_000), Found::Gone);
        assert_eq!(check.missing(Mono(9_000)), Missing::Gone);
        check.seen();
        assert_eq!(check.missing(Mono(9_000)), Missing::Ask, "the Pod is back, and gone once more");
    }

    #[test]
    fn what_is_there_is_asked_for_less_and_less_often() {
        for found in [Found::There, Found::Unknown] {
            let (mut check, mut now, mut asked) = (PodCheck::default(), Mono(0), 0);
            while now < Mono(3_600_000) {
                match check.missing(now) {
                    Missing::Ask => {
                        asked += 1;
                        check.begin();
                        check.answered(now, found);
                    }
                    Missing::Wait(Some(at)) => now = at,
                    other => panic!("{other:?}"),
                }
            }
            assert_eq!(asked, 66, "within an hour: seven in the first minute, then one a minute");
        }
    }
}
