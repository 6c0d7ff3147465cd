//! Leader election as a state machine over one `Lease` object.
//!
//! Every write carries the resource version that it was decided on. This process times another holder's term by its own
//! monotonic clock, from when it saw the record change, never by the times in the record (client-go does the same,
//! kubernetes/client-go#448). It stops leading if its last successful write began longer ago than the renew deadline,
//! which is shorter than the term. A lease is not a fence: every effect carries its own precondition.

use std::time::Duration;

use crate::time::{Mono, earliest};

/// Times of the election.
#[derive(Clone, Copy, Debug)]
pub struct Config {
    /// How long a record that does not change keeps others from leading.
    pub term: Duration,
    /// How old the start of the last successful write may be while leading.
    pub renew_deadline: Duration,
    /// Time between renewals.
    pub renew_every: Duration,
    /// Time between tries after a failed write.
    pub retry_after: Duration,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            term: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            renew_every: Duration::from_secs(5),
            retry_after: Duration::from_secs(1),
        }
    }
}

impl Config {
    /// Whether a process that leads until `leads_until` may now send a write that it decided at `decided`.
    ///
    /// A lead ends `renew_deadline` after its last renewal began, and the next one begins `term` after that at the
    /// earliest. So a check right before sending suffices: nobody else leads then. A decision older than
    /// `renew_deadline` rests on an expired renewal, because the process was frozen or its writes queue up; it is
    /// decided anew.
    pub fn may_send(&self, now: Mono, decided: Mono, leads_until: Option<Mono>) -> bool {
        now < decided.after(self.renew_deadline) && leads_until.is_some_and(|until| now < until)
    }
}

/// The `Lease`, reduced to what the election needs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// `spec.holderIdentity`; empty when released.
    pub holder: String,
    /// `spec.leaseTransitions`.
    pub transitions: i32,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
}

/// What happened.
#[derive(Clone, Debug)]
pub enum Event {
    /// The watch delivered the record, or that there is none.
    Observed(Option<Record>),
    /// The write under way took effect: the record as stored.
    Written(Record),
    /// The write under way was refused as stale, or failed otherwise.
    NotWritten,
    /// This process is asked to end.
    Release,
    /// Time passed.
    Tick,
}

/// The write to do now; at most one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Write {
    /// Holder to write: this process, or nobody.
    pub holder: String,
    /// Transitions to write.
    pub transitions: i32,
    /// The version that must still be current; absent to create.
    pub resource_version: Option<String>,
}

/// One process's part in the election.
#[derive(Clone, Debug)]
pub struct Elector {
    me: String,
    config: Config,
    /// The record as last seen, and when it last changed. `None` before the first event of the watch.
    seen: Option<(Option<Record>, Mono)>,
    in_flight: Option<Mono>,
    /// Start of the last successful write while the record names this process.
    held_since: Option<Mono>,
    try_at: Mono,
    releasing: bool,
}

impl Elector {
    /// `me` must be unique to this process, not only to its Pod.
    pub fn new(me: String, config: Config) -> Self {
        Self { me, config, seen: None, in_flight: None, held_since: None, try_at: Mono(0), releasing: false }
    }

    /// Whether this process may act as the leader.
    pub fn leads(&self, now: Mono) -> bool {
        self.leads_until().is_some_and(|until| now < until)
    }

    /// Whether the record names this process, or may soon.
    pub fn holds(&self) -> bool {
        let named =
            self.seen.as_ref().and_then(|(record, _)| record.as_ref()).is_some_and(|r| r.holder == self.me);
        named || self.in_flight.is_some()
    }

    /// Until when this process may act as the leader without further events; `None` if it may not.
    pub fn leads_until(&self) -> Option<Mono> {
        let until = self.held_since.map(|start| start.after(self.config.renew_deadline));
        until.filter(|_| !self.releasing)
    }

    /// When to send a tick if no event comes first.
    pub fn wake_at(&self, now: Mono) -> Option<Mono> {
        let write = self.in_flight.is_none().then(|| self.due()).flatten();
        earliest(write, self.leads_until().filter(|until| *until > now))
    }

    /// Takes in an event; returns the write to do, if any.
    pub fn step(&mut self, now: Mono, event: Event) -> Option<Write> {
        match event {
            Event::Observed(record) => self.observe(now, record),
            Event::Written(record) => {
                let started = self.in_flight.take();
                self.held_since = started.filter(|_| record.holder == self.me);
                self.try_at =
                    if self.releasing { now } else { started.unwrap_or(now).after(self.config.renew_every) };
                self.observe(now, Some(record));
            }
            Event::NotWritten => {
                self.in_flight = None;
                self.try_at = now.after(self.config.retry_after);
            }
            Event::Release => {
                self.releasing = true;
                self.try_at = now;
            }
            Event::Tick => {}
        }
        if self.in_flight.is_some() || self.due().is_none_or(|at| at > now) {
            return None;
        }
        let record = self.seen.as_ref().and_then(|(record, _)| record.clone());
        let held = record.as_ref().is_some_and(|r| r.holder == self.me);
        self.in_flight = Some(now);
        Some(Write {
            holder: if self.releasing { String::new() } else { self.me.clone() },
            transitions: record.as_ref().map_or(0, |r| r.transitions.saturating_add(i32::from(!held))),
            resource_version: record.map(|r| r.resource_version),
        })
    }

    /// Takes in the record that the watch or an answer shows. The watch may show an old version late; acting on it only
    /// causes a conflict.
    fn observe(&mut self, now: Mono, record: Option<Record>) {
        if record.as_ref().is_none_or(|r| r.holder != self.me) {
            self.held_since = None;
        }
        match &self.seen {
            Some((known, _)) if *known == record => {}
            _ => self.seen = Some((record, now)),
        }
    }

    /// When the next write is due, by what is known.
    fn due(&self) -> Option<Mono> {
        let (record, changed_at) = self.seen.as_ref()?;
        match record {
            Some(r) if r.holder == self.me => Some(self.try_at),
            _ if self.releasing => None,
            Some(r) if !r.holder.is_empty() => Some(changed_at.after(self.config.term).max(self.try_at)),
            _ => Some(self.try_at),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(holder: &str, version: u32) -> Record {
        Record { holder: holder.into(), transitions: 0, resource_version: version.to_string() }
    }

    fn elector(me: &str) -> Elector {
        Elector::new(me.into(), Config::default())
    }

    #[test]
    fn nothing_is_written_before_the_record_is_known() {
        let mut a = elector("a");
        assert_eq!(a.step(Mono(100_000), Event::Tick), None);
        let write = a.step(Mono(100_000), Event::Observed(None)).unwrap();
        assert_eq!((write.holder.as_str(), write.resource_version), ("a", None));
        assert!(!a.leads(Mono(100_000)), "not before the write took effect");
    }

    #[test]
    fn leads_from_the_answer_until_the_renew_deadline() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        assert_eq!(a.step(Mono(400), Event::Written(record("a", 1))), None);
        assert!(a.leads(Mono(400)));
        assert_eq!(a.wake_at(Mono(400)), Some(Mono(5_000)));
        let renewal = a.step(Mono(5_000), Event::Tick).unwrap();
        assert_eq!((renewal.resource_version.as_deref(), renewal.transitions), (Some("1"), 0));
        assert_eq!(a.step(Mono(6_000), Event::NotWritten), None);
        assert!(a.step(Mono(7_000), Event::Tick).is_some());
        assert!(a.leads(Mono(9_999)));
        assert!(!a.leads(Mono(10_000)), "counted from the start of the last write that worked");
    }

    #[test]
    fn a_standing_record_is_taken_over_only_after_a_term_of_own_observation() {
        let mut b = elector("b");
        assert_eq!(b.step(Mono(0), Event::Observed(Some(record("a", 1)))), None);
        assert_eq!(b.step(Mono(14_000), Event::Observed(Some(record("a", 2)))), None);
        assert_eq!(b.step(Mono(28_999), Event::Tick), None);
        let write = b.step(Mono(29_000), Event::Tick).unwrap();
        assert_eq!((write.resource_version.as_deref(), write.transitions), (Some("2"), 1));
    }

    /// A restarted watch shows again what is already known.
    #[test]
    fn a_record_that_is_shown_again_does_not_prolong_the_term() {
        let mut b = elector("b");
        b.step(Mono(0), Event::Observed(Some(record("a", 1))));
        assert_eq!(b.step(Mono(14_000), Event::Observed(Some(record("a", 1)))), None);
        assert_eq!(b.wake_at(Mono(14_000)), Some(Mono(15_000)));
        assert!(b.step(Mono(15_000), Event::Tick).is_some());
    }

    #[test]
    fn a_released_lease_is_taken_at_once() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(0), Event::Written(record("a", 1)));
        let write = a.step(Mono(1_000), Event::Release).unwrap();
        assert_eq!(write.holder, "");
        assert!(!a.leads(Mono(1_000)));
        assert!(a.holds());
        assert_eq!(a.step(Mono(1_001), Event::Written(record("", 2))), None);
        assert!(!a.holds());
        assert_eq!(a.step(Mono(99_000), Event::Tick), None, "a process that ends does not come back");
        let mut b = elector("b");
        assert!(b.step(Mono(5), Event::Observed(Some(record("", 2)))).is_some());
    }

    #[test]
    fn giving_the_lease_back_waits_after_a_failed_write_too() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(0), Event::Written(record("a", 1)));
        assert!(a.step(Mono(1_000), Event::Release).is_some(), "at once, not when the renewal is due");
        assert_eq!(a.step(Mono(1_001), Event::NotWritten), None);
        assert_eq!(a.wake_at(Mono(1_001)), Some(Mono(2_001)));
        assert_eq!(a.step(Mono(2_000), Event::Tick), None);
        assert!(a.step(Mono(2_001), Event::Tick).is_some());
    }

    #[test]
    fn a_renewal_under_way_does_not_hold_up_giving_back() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(0), Event::Written(record("a", 1)));
        assert!(a.step(Mono(5_000), Event::Tick).is_some());
        assert_eq!(a.step(Mono(5_001), Event::Release), None, "one write at a time");
        let write = a.step(Mono(5_002), Event::Written(record("a", 2))).unwrap();
        assert_eq!((write.holder.as_str(), write.resource_version.as_deref()), ("", Some("2")));
    }

    #[test]
    fn another_holder_ends_the_lead_at_once() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(0), Event::Written(record("a", 1)));
        a.step(Mono(100), Event::Observed(Some(record("b", 2))));
        assert!(!a.leads(Mono(100)));
    }

    /// A process that ends releases a lease that it holds, or may soon hold by a write under way.
    #[test]
    fn who_is_named_or_may_soon_be_named_holds() {
        let mut a = elector("a");
        assert!(!a.holds());
        a.step(Mono(0), Event::Observed(None)).unwrap();
        assert!(a.holds(), "the write may have taken effect");
        a.step(Mono(1), Event::Written(record("a", 1)));
        assert!(a.holds());
        a.step(Mono(2), Event::Observed(Some(record("b", 2))));
        assert!(!a.holds());
    }

    #[test]
    fn who_leads_wakes_at_the_end_of_the_lead_though_a_renewal_is_under_way() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(400), Event::Written(record("a", 1)));
        a.step(Mono(5_000), Event::Tick).unwrap();
        assert_eq!(a.wake_at(Mono(5_000)), Some(Mono(10_000)));
        assert_eq!(a.wake_at(Mono(10_000)), None, "it is over: nothing is to be done before the answer");
    }

    #[test]
    fn one_write_at_a_time() {
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        for at in 0..60 {
            assert_eq!(a.step(Mono(at * 1_000), Event::Tick), None);
        }
    }

    /// A leader that was frozen for a minute wakes with writes that wait to be sent.
    #[test]
    fn what_was_decided_long_ago_or_under_a_lead_that_is_over_is_not_sent() {
        let config = Config::default();
        let mut a = elector("a");
        a.step(Mono(0), Event::Observed(None)).unwrap();
        a.step(Mono(400), Event::Written(record("a", 1)));
        let until = a.leads_until();
        assert_eq!(until, Some(Mono(10_000)));
        assert!(config.may_send(Mono(9_999), Mono(0), until));
        assert!(!config.may_send(Mono(10_000), Mono(9_999), until), "the lead is over");
        assert!(!config.may_send(Mono(70_000), Mono(400), until));
        let renewed = Some(Mono(80_000));
        assert!(!config.may_send(Mono(70_000), Mono(60_000), renewed), "it is decided anew");
        assert!(config.may_send(Mono(70_000), Mono(60_001), renewed));
        assert!(!config.may_send(Mono(1), Mono(0), None));
        a.step(Mono(1_000), Event::Release);
        assert_eq!(a.leads_until(), None, "another replica may take over at once");
    }
}
