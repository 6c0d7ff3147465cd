//! Walks over typed objects: their fields, what differs between two, what comes of merging them, what is left without
//! some fields. The walks of structured-merge-diff v6.

use serde_json::{Map, Value};

use super::set::Set;
use super::types::Type;
use crate::server::schema::List;

/// What differs between two objects.
#[derive(Debug, Default)]
pub(super) struct Comparison {
    pub added: Set,
    pub removed: Set,
    pub modified: Set,
}

fn field(name: &str) -> String {
    format!("f:{name}")
}

/// The path element of an item of a list that is a map or a set.
fn element(ty: &Type<'_>, item: &Value) -> String {
    match ty.list() {
        List::Map(mut keys) => {
            keys.sort();
            let mut map = Map::new();
            for key in keys {
                let value = item.get(&key).cloned();
                // The only key with a default.
                let value = value.or_else(|| (key == "protocol").then(|| "TCP".into()));
                map.extend(value.map(|value| (key, value)));
            }
            format!("k:{}", Value::Object(map))
        }
        List::Set | List::Atomic => format!("v:{item}"),
    }
}

fn is_empty(value: Option<&Value>) -> bool {
    match value {
        None | Some(Value::Null) => true,
        Some(Value::Array(list)) => list.is_empty(),
        Some(Value::Object(map)) => map.is_empty(),
        Some(_) => false,
    }
}

/// How two values of one place are walked.
enum Walk<'v> {
    Leaf,
    List(&'v [Value], &'v [Value]),
    Map(Option<&'v Map<String, Value>>, Option<&'v Map<String, Value>>),
}

fn walk<'v>(ty: &Type<'_>, left: Option<&'v Value>, right: Option<&'v Value>) -> Walk<'v> {
    fn list(value: Option<&Value>) -> &[Value] {
        value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
    }
    if is_empty(left) && is_empty(right) {
        return Walk::Leaf;
    }
    let shape = [left, right].into_iter().flatten().find(|value| !value.is_null());
    let fits = |value: Option<&Value>, is: fn(&Value) -> bool| value.is_none_or(|v| v.is_null() || is(v));
    match shape {
        Some(Value::Array(_))
            if ty.list() != List::Atomic && fits(left, Value::is_array) && fits(right, Value::is_array) =>
        {
            Walk::List(list(left), list(right))
        }
        Some(Value::Object(_))
            if !ty.is_atomic() && fits(left, Value::is_object) && fits(right, Value::is_object) =>
        {
            Walk::Map(left.and_then(Value::as_object), right.and_then(Value::as_object))
        }
        _ => Walk::Leaf,
    }
}

/// Fields of either map, each once.
fn names<'v>(left: Option<&'v Map<String, Value>>, right: Option<&'v Map<String, Value>>) -> Vec<&'v String> {
    let more = right.into_iter().flatten().map(|(name, _)| name);
    let more = more.filter(|name| !left.is_some_and(|left| left.contains_key(*name)));
    left.into_iter().flatten().map(|(name, _)| name).chain(more).collect()
}

/// Compares two objects.
pub(super) fn compare(ty: &Type<'_>, left: &Value, right: &Value) -> Comparison {
    let mut comparison = Comparison::default();
    compare_at(ty, &mut Vec::new(), Some(left), Some(right), &mut comparison);
    comparison
}

fn compare_at(
    ty: &Type<'_>,
    path: &mut Vec<String>,
    left: Option<&Value>,
    right: Option<&Value>,
    out: &mut Comparison,
) {
    // What is the same below both has nothing to tell.
    if left == right {
        return;
    }
    match walk(ty, left, right) {
        Walk::Leaf => {}
        Walk::List(l, r) => {
            let item_type = ty.item();
            let find =
                |list: &[Value], wanted: &str| list.iter().position(|item| element(ty, item) == wanted);
            for item in l {
                let name = element(ty, item);
                let other = find(r, &name).map(|index| &r[index]);
                path.push(name);
                compare_at(&item_type, path, Some(item), other, out);
                path.pop();
            }
            for item in r {
                let name = element(ty, item);
                if find(l, &name).is_none() {
                    path.push(name);
                    compare_at(&item_type, path, None, Some(item), out);
                    path.pop();
                }
            }
        }
        Walk::Map(l, r) => {
            for name in names(l, r) {
                path.push(field(name));
                let (left, right) = (l.and_then(|l| l.get(name)), r.and_then(|r| r.get(name)));
                compare_at(&ty.field(name), path, left, right, out);
                path.pop();
            }
        }
    }
    match (left, right) {
        (None, _) => out.added.insert(path),
        (_, None) => out.removed.insert(path),
        _ if matches!(walk(ty, left, right), Walk::Leaf) => out.modified.insert(path),
        _ => {}
    }
}

/// Whether an object has no field that its type does not name, and no value of another type, as far as the types here
/// say so.
pub(super) fn fits(ty: &Type<'_>, value: &Value) -> bool {
    match (ty, value) {
        (_, Value::Null) => true,
        (Type::Schema(schema), value) if !schema.is_of_type(value) => false,
        (Type::Path(_, path), value) if path == "data" || path == "metadata.labels" => {
            value.as_object().is_some_and(|map| map.values().all(Value::is_string))
        }
        (Type::Root(_) | Type::Schema(_) | Type::Path(..), Value::Object(map)) => {
            map.iter().all(|(name, value)| ty.knows(name) && fits(&ty.field(name), value))
        }
        (_, Value::Array(list)) => list.iter().all(|item| fits(&ty.item(), item)),
        _ => true,
    }
}

/// The fields of an object, as an apply owns them.
pub(super) fn fields(ty: &Type<'_>, value: &Value) -> Set {
    let mut set = Set::default();
    fields_at(ty, &mut Vec::new(), value, &mut set);
    set
}

fn fields_at(ty: &Type<'_>, path: &mut Vec<String>, value: &Value, out: &mut Set) {
    match value {
        Value::Array(list) if ty.list() != List::Atomic => {
            for item in list {
                path.push(element(ty, item));
                fields_at(&ty.item(), path, item, out);
                out.insert(path);
                path.pop();
            }
        }
        Value::Object(map) if !ty.is_atomic() => {
            for (name, value) in map {
                path.push(field(name));
                fields_at(&ty.field(name), path, value, out);
                if value.is_null() || value.as_object().is_some_and(Map::is_empty) || !ty.declares(name) {
                    out.insert(path);
                }
                path.pop();
            }
        }
        _ => out.insert(path),
    }
}

/// What comes of applying `right` to `left`.
pub(super) fn merge(ty: &Type<'_>, left: Option<&Value>, right: Option<&Value>) -> Option<Value> {
    match walk(ty, left, right) {
        Walk::Leaf => right.or(left).cloned(),
        Walk::List(l, r) => {
            let merged = merge_lists(ty, l, r);
            (!merged.is_empty()).then_some(Value::Array(merged))
        }
        Walk::Map(l, r) => {
            let mut merged = Map::new();
            for name in names(l, r) {
                let (left, right) = (l.and_then(|l| l.get(name)), r.and_then(|r| r.get(name)));
                merged.extend(merge(&ty.field(name), left, right).map(|value| (name.clone(), value)));
            }
            (!merged.is_empty()).then_some(Value::Object(merged))
        }
    }
}

/// Merges lists in the order of `right`, with elements that only `left` has where they stood.
fn merge_lists(ty: &Type<'_>, left: &[Value], right: &[Value]) -> Vec<Value> {
    let keys = |list: &[Value]| list.iter().map(|item| element(ty, item)).collect::<Vec<_>>();
    let (lefts, rights) = (keys(left), keys(right));
    let item_type = ty.item();
    let in_left = |key: &String| lefts.iter().position(|k| k == key).map(|index| &left[index]);
    let mut shared = rights.iter().filter(|key| lefts.contains(key));
    let mut next = shared.next();
    let mut merged = Vec::new();
    let mut out = Vec::new();
    let (mut l, mut r) = (0, 0);
    while l < lefts.len() || r < rights.len() {
        if l < lefts.len() && r < rights.len() {
            if lefts[l] == rights[r] {
                merged.push(&rights[r]);
                out.extend(merge(&item_type, Some(&left[l]), Some(&right[r])));
                l += 1;
                r += 1;
                next = shared.next();
                continue;
            }
            if rights.contains(&lefts[l]) && next.is_some_and(|next| *next != lefts[l]) {
                // Shared, but not its turn.
                l += 1;
                continue;
            }
        }
        if l < lefts.len() {
            if !rights.contains(&lefts[l]) {
                out.extend(merge(&item_type, Some(&left[l]), None));
                l += 1;
                continue;
            }
            if merged.contains(&&lefts[l]) {
                l += 1;
            }
        }
        if r < rights.len() {
            merged.push(&rights[r]);
            out.extend(merge(&item_type, in_left(&rights[r]), Some(&right[r])));
            if next == Some(&rights[r]) {
                next = shared.next();
            }
            r += 1;
        }
    }
    out
}

/// What is left of a value without some fields; nothing may be left.
pub(super) fn remove(ty: &Type<'_>, value: &Value, gone: &Set) -> Value {
    match value {
        Value::Array(list) if !list.is_empty() => {
            if ty.list() == List::Atomic {
                return Value::Null;
            }
            let mut left = Vec::new();
            for item in list {
                let name = element(ty, item);
                if gone.has(&name) {
                    continue;
                }
                left.push(match gone.get(&name) {
                    Some(entry) => remove(&ty.item(), item, &entry.below),
                    None => item.clone(),
                });
            }
            if left.is_empty() { Value::Null } else { Value::Array(left) }
        }
        Value::Object(map) if !map.is_empty() => {
            if ty.is_atomic() {
                return Value::Null;
            }
            let mut left = Map::new();
            for (name, value) in map {
                let element = field(name);
                if gone.has(&element) {
                    continue;
                }
                let value = match gone.get(&element) {
                    Some(entry) => remove(&ty.field(name), value, &entry.below),
                    None => value.clone(),
                };
                left.insert(name.clone(), value);
            }
            if left.is_empty() { Value::Null } else { Value::Object(left) }
        }
        Value::Array(_) | Value::Object(_) => Value::Null,
        scalar => scalar.clone(),
    }
}
