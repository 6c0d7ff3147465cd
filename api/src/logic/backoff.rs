//! The wait between failed writes, as data.

use std::time::Duration;

use super::time::Mono;

const FIRST: Duration = Duration::from_millis(500);
const MOST: Duration = Duration::from_mins(1);

/// How often something failed in a row, and when it may be tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Backoff {
    failures: u32,
    until: Option<Mono>,
}

impl Backoff {
    /// Notes a failure: the wait is 0.5 s, then doubles each time, up to a minute.
    ///
    /// Refusals count too: an API server that has just started answers 403 until it has read the roles.
    pub fn failed(&mut self, now: Mono) {
        let wait = FIRST.saturating_mul(1_u32.checked_shl(self.failures).unwrap_or(u32::MAX)).min(MOST);
        self.failures = self.failures.saturating_add(1);
        self.until = Some(now.after(wait));
    }

    /// Notes a success.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// When it may be tried again, if not now.
    pub fn waits_until(&self, now: Mono) -> Option<Mono> {
        self.until.filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn doubles_up_to_a_minute_and_forgets_at_success() {
        let mut backoff = Backoff::default();
        let mut waits = Vec::new();
        for _ in 0..40 {
            backoff.failed(Mono(0));
            waits.push(backoff.waits_until(Mono(0)).unwrap().0);
        }
        assert_eq!(waits[..4], [500, 1000, 2000, 4000]);
        assert_eq!(*waits.last().unwrap(), 60_000);
        assert_eq!(backoff.waits_until(Mono(60_000)), None);
        backoff.succeeded();
        assert_eq!(backoff, Backoff::default());
    }
}
