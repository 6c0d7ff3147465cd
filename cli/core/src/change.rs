//! Patches of objects, for the API server and for `--dry-run=client`.

use serde_json::{Map, Value};

/// A patch of an object.
#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// The body of the patch.
    pub patch: Value,
    /// How lists are merged.
    pub lists: Lists,
}

/// What is done to an object.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// It is changed.
    Change(Change),
    /// It is deleted.
    Delete,
}

/// How a list in a patch is merged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lists {
    /// It replaces the whole list (RFC 7386, JSON merge patch).
    Whole,
    /// It changes items by name (strategic merge patch). Only Kubernetes' own kinds accept it.
    ByName,
}

impl Change {
    /// A JSON merge patch.
    pub fn merge(patch: Value) -> Self {
        Self { patch, lists: Lists::Whole }
    }

    /// A strategic merge patch. The only supported directive is `$patch: replace`.
    pub fn strategic(patch: Value) -> Self {
        Self { patch, lists: Lists::ByName }
    }

    /// Applies the change to an object, as the API server does, but without its defaults.
    pub fn apply(&self, object: &mut Value) {
        merge(object, &self.patch, self.lists);
    }
}

fn merge(into: &mut Value, patch: &Value, lists: Lists) {
    match patch {
        Value::Object(patch) => merge_map(into, patch, lists),
        Value::Array(items) if lists == Lists::ByName && items.iter().all(is_named) => {
            merge_list(into, items, lists);
        }
        other => *into = other.clone(),
    }
}

const DIRECTIVE: &str = "$patch";

fn merge_map(into: &mut Value, patch: &Map<String, Value>, lists: Lists) {
    let replaces = lists == Lists::ByName && patch.get(DIRECTIVE).is_some_and(|it| it == "replace");
    if !into.is_object() || replaces {
        *into = Value::Object(Map::new());
    }
    let Some(fields) = into.as_object_mut() else { return };
    for (name, value) in patch.iter().filter(|(name, _)| lists == Lists::Whole || *name != DIRECTIVE) {
        if value.is_null() {
            fields.remove(name);
        } else {
            merge(fields.entry(name).or_insert(Value::Null), value, lists);
        }
    }
}

fn merge_list(into: &mut Value, items: &[Value], lists: Lists) {
    if !into.is_array() {
        *into = Value::Array(Vec::new());
    }
    let Some(all) = into.as_array_mut() else { return };
    for item in items {
        match all.iter_mut().find(|old| old.get("name") == item.get("name")) {
            Some(old) => merge(old, item, lists),
            None => all.push(item.clone()),
        }
    }
}

fn is_named(item: &Value) -> bool {
    item.get("name").is_some_and(Value::is_string)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn applied(change: &Change, mut object: Value) -> Value {
        change.apply(&mut object);
        object
    }

    #[test]
    fn a_merge_patch_sets_removes_and_replaces_lists() {
        let change = Change::merge(json!({"a": {"b": null, "c": {"d": 1}}, "list": [2], "$patch": "x"}));
        let object = json!({"a": {"b": 1, "c": "text", "e": 3}, "list": [{"name": "x"}]});
        let expected = json!({"a": {"c": {"d": 1}, "e": 3}, "list": [2], "$patch": "x"});
        assert_eq!(applied(&change, object), expected);
    }

    #[test]
    fn a_strategic_patch_changes_the_named_items() {
        let change =
            Change::strategic(json!({"containers": [{"name": "app", "image": "web:2"}, {"name": "new"}]}));
        let object = json!({"containers": [{"name": "side", "image": "s"}, {"name": "app", "image": "web:1", "tty": true}]});
        let expected = json!({"containers": [{"name": "side", "image": "s"},
            {"name": "app", "image": "web:2", "tty": true}, {"name": "new"}]});
        assert_eq!(applied(&change, object), expected);
        assert_eq!(applied(&change, json!({}))["containers"][1]["name"], "new");
    }

    #[test]
    fn a_map_is_replaced_where_the_patch_says_so() {
        let change = Change::strategic(json!({"spec": {"template": {"$patch": "replace", "a": 1}}}));
        let object = json!({"spec": {"replicas": 2, "template": {"b": {"c": 2}}}});
        assert_eq!(applied(&change, object), json!({"spec": {"replicas": 2, "template": {"a": 1}}}));
    }
}
