//! The content of etcd: objects, one version for all of them, and the history for watches and old lists.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use serde_json::Value;

use super::meta;

/// Objects of a kind by `namespace/name`, or by `name` without namespaces: etcd's order.
pub(super) type Objects = BTreeMap<Arc<str>, Arc<Value>>;

/// A write.
#[derive(Clone, Debug)]
pub(super) struct Change {
    pub version: u64,
    pub key: Arc<str>,
    /// The object before; None if the write created it.
    pub old: Option<Arc<Value>>,
    /// The object after; None if the write removed it.
    pub new: Option<Arc<Value>>,
}

/// Objects of a kind and their history.
#[derive(Clone, Debug, Default)]
pub(super) struct Table {
    pub objects: Objects,
    /// Objects that get their defaults when they are read: etcd does not hold these before the first write of
    /// any kind.
    bare: BTreeSet<Arc<str>>,
    log: VecDeque<Change>,
    /// Number of changes that were dropped from the front of the log.
    dropped: u64,
}

impl Table {
    /// The position in the history after all changes up to `version`.
    pub(super) fn position(&self, version: u64) -> u64 {
        let index = self.log.partition_point(|change| change.version <= version);
        self.dropped + u64::try_from(index).unwrap()
    }

    /// The change at a position; None at the end.
    pub(super) fn change(&self, position: u64) -> Option<&Change> {
        self.log.get(usize::try_from(position.checked_sub(self.dropped)?).unwrap())
    }

    /// Whether changes from that position on still exist.
    pub(super) fn reaches(&self, position: u64) -> bool {
        position >= self.dropped
    }

    /// The objects at a version.
    fn at(&self, version: u64) -> Objects {
        let mut objects = self.objects.clone();
        for change in self.log.iter().rev().take_while(|change| change.version > version) {
            match &change.old {
                Some(old) => objects.insert(change.key.clone(), old.clone()),
                None => objects.remove(&change.key),
            };
        }
        objects
    }
}

/// A copy of etcd. Cheap, because the objects are shared.
#[derive(Clone, Debug)]
pub struct Snapshot {
    version: u64,
    objects: Vec<Objects>,
}

/// The storage.
#[derive(Clone, Debug)]
pub(super) struct Store {
    /// Version of the latest write.
    pub version: u64,
    /// History up to and including this version is gone.
    pub floor: u64,
    /// Counts restores: watches of an older epoch are closed.
    pub epoch: u64,
    tables: Vec<Table>,
}

impl Store {
    pub(super) fn new(kinds: usize) -> Self {
        // An earlier history existed, and is gone.
        Self { version: 100, floor: 100, epoch: 0, tables: vec![Table::default(); kinds] }
    }

    pub(super) fn table(&self, kind: usize) -> &Table {
        &self.tables[kind]
    }

    pub(super) fn get(&self, kind: usize, key: &str) -> Option<&Arc<Value>> {
        self.tables[kind].objects.get(key)
    }

    /// Stores an object under the next version, which the object gets, too.
    pub(super) fn put(&mut self, kind: usize, key: &str, mut object: Value) -> Arc<Value> {
        self.version += 1;
        meta::set_version(&mut object, self.version);
        let new = Arc::new(object);
        let table = &mut self.tables[kind];
        let key: Arc<str> =
            table.objects.get_key_value(key).map_or_else(|| key.into(), |(key, _)| key.clone());
        table.bare.remove(&key);
        let old = table.objects.insert(key.clone(), new.clone());
        table.log.push_back(Change { version: self.version, key, old, new: Some(new.clone()) });
        new
    }

    /// Stores a new object; `bare`: without its kind's defaults.
    pub(super) fn put_new(&mut self, kind: usize, key: &str, object: Value, bare: bool) -> Arc<Value> {
        let new = self.put(kind, key, object);
        if bare {
            self.tables[kind].bare.insert(key.into());
        }
        new
    }

    /// Whether a write without changes still stores another value.
    pub(super) fn is_bare(&self, kind: usize, key: &str) -> bool {
        self.tables[kind].bare.contains(key)
    }

    /// Removes an object; returns it under the version of its removal, as events and answers show it.
    pub(super) fn remove(&mut self, kind: usize, key: &str) -> Option<Value> {
        let table = &mut self.tables[kind];
        let (key, old) = table.objects.remove_entry(key)?;
        table.bare.remove(&key);
        self.version += 1;
        let mut gone = (*old).clone();
        meta::set_version(&mut gone, self.version);
        table.log.push_back(Change { version: self.version, key, old: Some(old), new: None });
        Some(gone)
    }

    /// Objects of a kind at a version; None if the history does not reach back.
    pub(super) fn at(&self, kind: usize, version: u64) -> Option<Objects> {
        (version >= self.floor).then(|| self.tables[kind].at(version))
    }

    pub(super) fn compact(&mut self, keep: u64) {
        self.floor = self.floor.max(self.version.saturating_sub(keep));
        for table in &mut self.tables {
            while table.log.front().is_some_and(|change| change.version <= self.floor) {
                table.log.pop_front();
                table.dropped += 1;
            }
        }
    }

    pub(super) fn snapshot(&self) -> Snapshot {
        Snapshot {
            version: self.version,
            objects: self.tables.iter().map(|table| table.objects.clone()).collect(),
        }
    }

    pub(super) fn restore(&mut self, snapshot: &Snapshot, bump: u64) {
        self.version = if bump > 0 { self.version + bump } else { snapshot.version };
        self.floor = self.version;
        self.epoch += 1;
        for (table, objects) in self.tables.iter_mut().zip(&snapshot.objects) {
            *table = Table { objects: objects.clone(), ..Table::default() };
        }
    }
}
