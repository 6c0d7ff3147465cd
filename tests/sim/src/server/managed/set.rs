//! Sets of fields, as `fieldsV1` writes them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Fields below one place, by their path elements (`f:name`, `k:{"name":"x"}`, `v:"x"`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Set(BTreeMap<String, Entry>);

/// One path element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Entry {
    /// Whether the place itself is in the set.
    pub member: bool,
    /// What is in the set below it.
    pub below: Set,
}

impl Entry {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl Set {
    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn insert(&mut self, path: &[String]) {
        let Some((first, rest)) = path.split_first() else { return };
        let entry = self.0.entry(first.clone()).or_default();
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.below.insert(rest);
        }
    }

    /// The set of some paths.
    pub(super) fn of(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            set.insert(&path.iter().map(|field| format!("f:{field}")).collect::<Vec<_>>());
        }
        set
    }

    pub(super) fn get(&self, element: &str) -> Option<&Entry> {
        self.0.get(element)
    }

    /// Whether a place itself is in the set.
    pub(super) fn has(&self, element: &str) -> bool {
        self.0.get(element).is_some_and(|entry| entry.member)
    }

    /// What is in either.
    pub(super) fn union(mut self, other: &Self) -> Self {
        for (element, theirs) in &other.0 {
            let ours = self.0.remove(element).unwrap_or_default();
            let entry =
                Entry { member: ours.member || theirs.member, below: ours.below.union(&theirs.below) };
            self.0.insert(element.clone(), entry);
        }
        self
    }

    /// What is in this one and not in the other.
    pub(super) fn without(&self, other: &Self) -> Self {
        let mut set = BTreeMap::new();
        for (element, ours) in &self.0 {
            let entry = match other.0.get(element) {
                None => ours.clone(),
                Some(theirs) => {
                    Entry { member: ours.member && !theirs.member, below: ours.below.without(&theirs.below) }
                }
            };
            if !entry.is_empty() {
                set.insert(element.clone(), entry);
            }
        }
        Self(set)
    }

    /// What is in both.
    pub(super) fn common(&self, other: &Self) -> Self {
        let mut set = BTreeMap::new();
        for (element, ours) in &self.0 {
            if let Some(theirs) = other.0.get(element) {
                let entry =
                    Entry { member: ours.member && theirs.member, below: ours.below.common(&theirs.below) };
                if !entry.is_empty() {
                    set.insert(element.clone(), entry);
                }
            }
        }
        Self(set)
    }

    /// Without a place and all below it.
    pub(super) fn without_tree(mut self, path: &[&str]) -> Self {
        if let Some((first, rest)) = path.split_first() {
            let element = format!("f:{first}");
            if rest.is_empty() {
                self.0.remove(&element);
            } else if let Some(mut entry) = self.0.remove(&element) {
                entry.below = entry.below.without_tree(rest);
                if !entry.is_empty() {
                    self.0.insert(element, entry);
                }
            }
        }
        self
    }

    /// With every place that `declared` says to be a field of a type and that has something below it.
    pub(super) fn with_named(&self, declared: &impl Fn(&[String]) -> bool) -> Self {
        fn walk(set: &Set, path: &mut Vec<String>, declared: &impl Fn(&[String]) -> bool) -> Set {
            let mut all = BTreeMap::new();
            for (element, entry) in &set.0 {
                path.push(element.clone());
                let named = !entry.below.is_empty() && element.starts_with("f:") && declared(path);
                let below = walk(&entry.below, path, declared);
                path.pop();
                all.insert(element.clone(), Entry { member: entry.member || named, below });
            }
            Set(all)
        }
        walk(self, &mut Vec::new(), declared)
    }

    /// Every place in the set, as conflicts name it.
    pub(super) fn places(&self) -> Vec<String> {
        let mut all = Vec::new();
        for (element, entry) in &self.0 {
            let step = element.strip_prefix("f:").map_or_else(|| format!("[{element}]"), |f| format!(".{f}"));
            if entry.member {
                all.push(step.clone());
            }
            all.extend(entry.below.places().into_iter().map(|rest| format!("{step}{rest}")));
        }
        all
    }

    pub(super) fn parse(fields: &Value) -> Self {
        let mut set = BTreeMap::new();
        for (element, below) in
            fields.as_object().into_iter().flatten().filter(|(element, _)| *element != ".")
        {
            let map = below.as_object();
            let member = map.is_none_or(|map| map.is_empty() || map.contains_key("."));
            set.insert(element.clone(), Entry { member, below: Self::parse(below) });
        }
        Self(set)
    }

    pub(super) fn write(&self) -> Value {
        let mut fields = Map::new();
        for (element, entry) in &self.0 {
            let mut below = entry.below.write();
            if entry.member && !entry.below.is_empty() {
                below["."] = Value::Object(Map::new());
            }
            fields.insert(element.clone(), below);
        }
        Value::Object(fields)
    }
}
