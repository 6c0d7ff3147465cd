//! One object as last known, from two sources: the watch and the answers to our own writes.
//!
//! The watch may lag behind our own writes. Acting on an older version would only cause conflicts. So versions from
//! before our write are ignored until the watch delivers the written version. Resource versions are compared for
//! equality only; a list (after a reconnect) always counts.

use std::collections::BTreeSet;

/// An object with an opaque version.
pub trait Versioned {
    /// `metadata.uid`.
    fn uid(&self) -> &str;
    /// `metadata.resourceVersion`.
    fn resource_version(&self) -> &str;
}

/// The newest known state of one object, and what is under way for it.
#[derive(Clone, Debug)]
pub struct Tracked<T> {
    object: T,
    /// Version of our own write that the watch has not delivered yet.
    awaited: Option<String>,
    in_flight: Option<Box<InFlight>>,
    /// The last write was refused as stale: the watch must deliver something newer first.
    stale: bool,
}

/// What the watch delivered while a write was under way.
#[derive(Clone, Debug, Default)]
struct InFlight {
    /// The version that the write is based on; empty for a create.
    base: String,
    /// The versions that the watch delivered.
    seen: BTreeSet<String>,
    /// The known state is no longer the write's base.
    moved: bool,
    /// A list came. It may be older or newer than the write, so the answer to the write no longer matters.
    listed: bool,
}

impl<T: Versioned> Tracked<T> {
    /// A newly seen object.
    pub fn new(object: T) -> Self {
        Self { object, awaited: None, in_flight: None, stale: false }
    }

    /// An object that the watch shows while our own create of it is under way: the answer can only be older.
    pub fn appeared(object: T) -> Self {
        let in_flight = InFlight { moved: true, listed: true, ..InFlight::default() };
        Self { in_flight: Some(Box::new(in_flight)), ..Self::new(object) }
    }

    /// The newest known state.
    pub fn get(&self) -> &T {
        &self.object
    }

    /// Whether a write may start: no write is under way, and no conflict has shown this state to be stale.
    pub fn writable(&self) -> bool {
        self.in_flight.is_none() && !self.stale
    }

    /// Whether a write is under way.
    pub fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// Whether no write is under way, and the watch has delivered the last one.
    pub fn settled(&self) -> bool {
        self.awaited.is_none() && self.writable()
    }

    /// The watch delivered a version.
    pub fn observed(&mut self, object: T) {
        if let Some(write) = &mut self.in_flight {
            write.seen.insert(object.resource_version().to_owned());
        }
        if object.uid() == self.object.uid() {
            if self.awaited.as_ref().is_some_and(|awaited| awaited != object.resource_version()) {
                return;
            }
            self.awaited = None;
            if object.resource_version() == self.object.resource_version() {
                return;
            }
        }
        self.awaited = None;
        self.stale = false;
        if let Some(write) = &mut self.in_flight {
            write.moved = true;
        }
        self.object = object;
    }

    /// A list delivered this version: whatever came before no longer matters.
    pub fn listed(&mut self, object: T) {
        self.awaited = None;
        self.stale = false;
        if let Some(write) = &mut self.in_flight {
            write.listed = true;
        }
        self.observed(object);
    }

    /// A write starts.
    pub fn write_started(&mut self) {
        let base = self.object.resource_version().to_owned();
        self.in_flight = Some(Box::new(InFlight { base, ..InFlight::default() }));
    }

    /// The write succeeded; `object` is as stored.
    pub fn written(&mut self, object: T) {
        let Some(write) = self.in_flight.take() else { return };
        // The watch does not deliver a version twice, so a version that it has passed must not be awaited. A write that
        // changes nothing makes no new version.
        let version = object.resource_version();
        let passed = write.listed || version == write.base || write.seen.contains(version);
        if passed || object.uid() != self.object.uid() {
            return;
        }
        self.stale = false;
        self.awaited = Some(object.resource_version().to_owned());
        self.object = object;
    }

    /// The write was refused because the object had changed. No write starts until the watch shows the change.
    pub fn conflicted(&mut self) {
        if let Some(write) = self.in_flight.take() {
            self.stale = !(write.moved || write.listed);
        }
    }

    /// The write failed for another reason; it may have taken effect.
    pub fn failed(&mut self) {
        self.in_flight = None;
    }

    /// Gives up waiting for the watch after a conflict: the next write finds out.
    pub fn retry(&mut self) {
        self.stale = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug, PartialEq)]
    struct Obj(&'static str, &'static str);
    impl Versioned for Obj {
        fn uid(&self) -> &str {
            self.0
        }
        fn resource_version(&self) -> &str {
            self.1
        }
    }

    #[test]
    fn older_versions_from_the_watch_do_not_undo_our_write() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        assert!(!t.writable());
        t.observed(Obj("u", "2"));
        t.written(Obj("u", "3"));
        assert_eq!(t.get().1, "3");
        t.observed(Obj("u", "2"));
        assert_eq!(t.get().1, "3");
        t.observed(Obj("u", "3"));
        t.observed(Obj("u", "4"));
        assert_eq!(t.get().1, "4");
    }

    #[test]
    fn an_answer_later_than_the_watch_does_not_undo_what_followed() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.observed(Obj("u", "2"));
        t.observed(Obj("u", "3"));
        t.written(Obj("u", "2"));
        assert_eq!(t.get().1, "3");
        t.observed(Obj("u", "5"));
        assert_eq!(t.get().1, "5");
    }

    #[test]
    fn a_list_always_counts() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.written(Obj("u", "9"));
        t.listed(Obj("u", "4"));
        assert_eq!(t.get().1, "4");
        t.observed(Obj("u", "5"));
        assert_eq!(t.get().1, "5");
    }

    #[test]
    fn after_a_conflict_nothing_is_written_until_the_watch_moves() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.conflicted();
        assert!(!t.writable());
        t.observed(Obj("u", "2"));
        assert!(t.writable());
        t.write_started();
        t.observed(Obj("u", "3"));
        t.conflicted();
        assert!(t.writable(), "the watch had already shown the change");
        t.write_started();
        t.conflicted();
        t.retry();
        assert!(t.writable());
    }

    #[test]
    fn another_object_under_the_name_replaces_the_awaited_one() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.written(Obj("u", "2"));
        t.observed(Obj("v", "7"));
        assert_eq!(t.get().0, "v");
        t.observed(Obj("v", "8"));
        assert_eq!(t.get().1, "8");
    }

    #[test]
    fn an_answer_after_a_list_is_not_waited_for() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.listed(Obj("u", "3"));
        t.written(Obj("u", "2"));
        assert_eq!(t.get().1, "3", "the list already held what followed our write");
        t.observed(Obj("u", "4"));
        assert_eq!(t.get().1, "4");
    }

    #[test]
    fn an_answer_to_a_create_after_the_watch_is_not_waited_for() {
        let mut t = Tracked::appeared(Obj("u", "1"));
        assert!(t.in_flight());
        t.observed(Obj("u", "2"));
        t.written(Obj("u", "1"));
        assert_eq!(t.get().1, "2");
        t.observed(Obj("u", "3"));
        assert_eq!(t.get().1, "3");
        let mut t = Tracked::appeared(Obj("u", "1"));
        t.conflicted();
        assert!(t.writable(), "another one created it, and the watch has shown it");
    }

    #[test]
    fn what_the_watch_repeats_shows_nothing_new() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.written(Obj("u", "2"));
        t.write_started();
        t.conflicted();
        t.observed(Obj("u", "2"));
        assert!(!t.writable(), "that is the version which was refused");
        t.observed(Obj("u", "2"));
        assert!(!t.writable());
        t.observed(Obj("u", "3"));
        assert!(t.writable());
    }

    #[test]
    fn a_failed_write_does_not_undo_the_one_before() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.written(Obj("u", "3"));
        t.write_started();
        t.failed();
        t.observed(Obj("u", "2"));
        assert_eq!(t.get().1, "3");
        t.observed(Obj("u", "3"));
        t.observed(Obj("u", "4"));
        assert_eq!(t.get().1, "4");
    }

    /// The API server makes no new version of an unchanged object, and the watch shows none.
    #[test]
    fn a_write_that_changed_nothing_is_not_waited_for() {
        let mut t = Tracked::new(Obj("u", "1"));
        t.write_started();
        t.written(Obj("u", "1"));
        t.observed(Obj("u", "2"));
        assert_eq!(t.get().1, "2", "the change of another writer was passed over");
        t.write_started();
        t.observed(Obj("u", "3"));
        t.written(Obj("u", "2"));
        assert_eq!(t.get().1, "3", "the answer is older than what the watch has shown");
        t.observed(Obj("u", "4"));
        assert_eq!(t.get().1, "4");
    }

    /// Kubernetes calls versions opaque: neither larger nor longer ones are newer.
    #[test]
    fn d2_versions_are_compared_for_equality_only() {
        let mut t = Tracked::new(Obj("u", "900"));
        t.write_started();
        t.written(Obj("u", "89"));
        t.observed(Obj("u", "900"));
        t.observed(Obj("u", "1000"));
        assert_eq!(t.get().1, "89", "the write has not come by yet");
        t.observed(Obj("u", "89"));
        t.observed(Obj("u", "x"));
        assert_eq!(t.get().1, "x");
    }
}
