//! One object as last known, from two sources: the watch and the answers to our own writes.
//!
//! The watch may lag behind our own writes. Acting on such an older version would only earn conflicts, so
//! versions that the watch still delivers from before our write are passed over until it delivers the written
//! one. Resource versions are compared for equality only; a list (after a reconnect) always counts.

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
    /// A write is under way; the versions that the watch delivered meanwhile.
    in_flight: Option<BTreeSet<String>>,
    /// The last write was refused as stale: the watch must deliver something newer first.
    stale: bool,
}

impl<T: Versioned> Tracked<T> {
    /// First seen.
    pub fn new(object: T) -> Self {
        Self { object, awaited: None, in_flight: None, stale: false }
    }

    /// The newest known state.
    pub fn get(&self) -> &T {
        &self.object
    }

    /// Whether a write may start: none is under way, and none has just shown this state to be stale.
    pub fn writable(&self) -> bool {
        self.in_flight.is_none() && !self.stale
    }

    /// Whether a write is under way.
    pub fn in_flight(&self) -> bool {
        self.in_flight.is_some()
    }

    /// The watch delivered a version.
    pub fn observed(&mut self, object: T) {
        if let Some(seen) = &mut self.in_flight {
            seen.insert(object.resource_version().to_owned());
        }
        if object.uid() == self.object.uid()
            && let Some(awaited) = &self.awaited
        {
            if awaited == object.resource_version() {
                self.awaited = None;
            } else {
                return;
            }
        }
        self.awaited = self.awaited.take().filter(|_| object.uid() == self.object.uid());
        self.stale = false;
        self.object = object;
    }

    /// A list delivered this version: whatever came before no longer matters.
    pub fn listed(&mut self, object: T) {
        self.awaited = None;
        self.observed(object);
    }

    /// A write starts.
    pub fn write_started(&mut self) {
        self.in_flight = Some(BTreeSet::new());
    }

    /// The write came back with the object as stored.
    pub fn written(&mut self, object: T) {
        let seen = self.in_flight.take().unwrap_or_default();
        if seen.contains(object.resource_version()) || object.uid() != self.object.uid() {
            return;
        }
        self.stale = false;
        self.awaited = Some(object.resource_version().to_owned());
        self.object = object;
    }

    /// The write was refused because the object had changed; nothing is written until the watch shows how.
    pub fn conflicted(&mut self) {
        let seen = self.in_flight.take().unwrap_or_default();
        self.stale = seen.is_empty();
    }

    /// The write failed otherwise; whether it took effect is not known.
    pub fn failed(&mut self) {
        self.in_flight = None;
        self.awaited = None;
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
}
