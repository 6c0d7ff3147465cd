//! `metadata.managedFields`: who owns which field, and server-side apply.

mod set;
mod typed;
mod types;

use std::collections::BTreeMap;

use serde_json::{Value, json};

use self::set::Set;
use self::types::Type;
use super::failure::{Answer, Checked, Failure, Invalid};
use super::kinds::{Family, Kind};
use super::request::Call;
use super::update::Tracking;
use super::{Server, core, meta, seconds};

/// Who owns fields. Appliers are the same whatever version they speak.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Manager {
    /// `Apply` or `Update`.
    operation: String,
    name: String,
    /// Of an updater; empty for an applier.
    version: String,
    subresource: String,
}

/// What one manager owns.
#[derive(Clone, Debug)]
struct Owned {
    set: Set,
    version: String,
    time: String,
}

type Managers = BTreeMap<Manager, Owned>;

fn parse(object: &Value) -> Managers {
    let entries = meta::get(object, "managedFields").and_then(Value::as_array);
    let text = |entry: &Value, field: &str| entry[field].as_str().unwrap_or_default().to_owned();
    let mut managers = Managers::new();
    for entry in entries.into_iter().flatten() {
        let operation = text(entry, "operation");
        let version = text(entry, "apiVersion");
        let manager = Manager {
            version: if operation == "Apply" { String::new() } else { version.clone() },
            operation,
            name: text(entry, "manager"),
            subresource: text(entry, "subresource"),
        };
        let owned = Owned { set: Set::parse(&entry["fieldsV1"]), version, time: text(entry, "time") };
        managers.insert(manager, owned);
    }
    managers
}

fn write(object: &mut Value, managers: &Managers) {
    let mut entries: Vec<(&Manager, &Owned)> = managers.iter().collect();
    entries.sort_by_key(|(manager, owned)| {
        (&manager.operation, &owned.time, &manager.name, &owned.version, &manager.subresource)
    });
    let entries: Vec<Value> = entries
        .into_iter()
        .map(|(manager, owned)| {
            let mut entry = json!({
                "manager": manager.name, "operation": manager.operation, "apiVersion": owned.version,
                "time": owned.time, "fieldsType": "FieldsV1", "fieldsV1": owned.set.write(),
            });
            if !manager.subresource.is_empty() {
                entry["subresource"] = manager.subresource.clone().into();
            }
            entry
        })
        .collect();
    meta::set(object, "managedFields", (!entries.is_empty()).then_some(Value::Array(entries)));
}

/// Whether two objects differ in nothing but when their managers wrote.
pub(super) fn same_but_times(new: &Value, old: &Value) -> bool {
    let timeless = |object: &Value| {
        let mut entries =
            meta::get(object, "managedFields").and_then(Value::as_array).cloned().unwrap_or_default();
        for entry in &mut entries {
            entry["time"] = Value::Null;
        }
        entries
    };
    if timeless(new) != timeless(old) {
        return false;
    }
    let mut new = new.clone();
    meta::set(&mut new, "managedFields", meta::get(old, "managedFields").cloned());
    new == *old
}

/// Fields that never have an owner.
fn stripped() -> Set {
    Set::of(&[
        &["apiVersion"],
        &["kind"],
        &["metadata"],
        &["metadata", "name"],
        &["metadata", "namespace"],
        &["metadata", "creationTimestamp"],
        &["metadata", "selfLink"],
        &["metadata", "uid"],
        &["metadata", "generation"],
        &["metadata", "managedFields"],
        &["metadata", "resourceVersion"],
    ])
}

/// Takes away what an endpoint does not write anyway.
fn written(kind: &Kind, subresource: &str, set: Set) -> Set {
    let reset: &[&[&str]] = match (kind.family, subresource) {
        (Family::Custom, "status") => &[&["metadata"], &["spec"]],
        (Family::Custom, _) if !kind.status => &[],
        (Family::Pod, "status") => {
            &[&["spec"], &["metadata", "deletionTimestamp"], &["metadata", "ownerReferences"]]
        }
        (Family::Node | Family::Namespace, "status") => &[&["spec"]],
        (Family::Pod | Family::Node | Family::Custom | Family::Namespace, _) => &[&["status"]],
        _ => &[],
    };
    reset.iter().fold(set, |set, path| set.without_tree(path))
}

/// What a built-in kind looks like when nothing is set; what is there already is not added.
fn nothing(call: &Call<'_>) -> Value {
    let mut zero = json!({ "kind": call.kind.kind, "apiVersion": call.stored_version() });
    match call.kind.family {
        Family::Pod => zero["spec"] = json!({ "containers": null }),
        Family::Lease | Family::Node | Family::Namespace | Family::Bounds => zero["spec"] = json!({}),
        Family::Event => zero["regarding"] = json!({}),
        Family::ConfigMap | Family::Custom => {}
    }
    if !call.kind.is_custom() {
        zero["metadata"] = json!({});
        if call.kind.status {
            zero["status"] = json!({});
        }
    }
    zero
}

/// Takes from the other managers what a write changed. Gives back what they would lose by it when it is not forced.
fn take(
    managers: &mut Managers,
    own: Option<&Manager>,
    changed: &typed::Comparison,
) -> Vec<(String, String)> {
    let set = changed.modified.clone().union(&changed.added);
    let mut conflicts = Vec::new();
    for (manager, owned) in managers.iter_mut().filter(|(manager, _)| Some(*manager) != own) {
        let lost = owned.set.common(&set);
        let who = if manager.operation == "Apply" {
            manager.name.clone()
        } else {
            format!("{} using {}", manager.name, owned.version)
        };
        conflicts.extend(lost.places().into_iter().map(|place| (who.clone(), place)));
        owned.set = owned.set.without(&lost).without(&changed.removed);
    }
    managers.retain(|_, owned| !owned.set.is_empty());
    conflicts
}

impl Server {
    /// Makes the writer the owner of what a create or an update changes.
    pub(super) fn track(&self, call: &Call<'_>, old: Option<&Value>, new: &mut Value) {
        if !self.managed {
            meta::set(new, "managedFields", None);
            return;
        }
        let given = meta::get(new, "managedFields").and_then(Value::as_array).map(Vec::len);
        let mut managers = match (old, given) {
            (None, _) => Managers::new(),
            (Some(_), Some(0)) if call.subresource.is_empty() => Managers::new(),
            (Some(_), Some(_)) if call.subresource.is_empty() => parse(new),
            (Some(old), _) => parse(old),
        };
        // Whoever forgot the managers has none until somebody applies.
        if old.is_some() && managers.is_empty() {
            meta::set(new, "managedFields", None);
            return;
        }
        let name = if call.manager().is_empty() { "unknown" } else { call.manager() };
        let manager = Manager {
            operation: "Update".to_owned(),
            name: name.to_owned(),
            version: call.api_version(),
            subresource: call.subresource.to_owned(),
        };
        own_changes(&mut managers, manager, call, old, new);
        write(new, &managers);
    }

    /// PATCH with `application/apply-patch+yaml`. Only the JSON subset of YAML is read.
    pub(super) fn apply(&mut self, call: &Call<'_>) -> Answer {
        assert!(self.managed, "server-side apply needs managed fields");
        if call.query("fieldManager").is_empty() {
            let why = "is required for apply patch";
            let error = Invalid::new("FieldValueRequired", "fieldManager", why);
            return Err(Failure::invalid_as("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        let mut patch = call.json()?;
        if !patch.is_object()
            || patch["kind"] != call.kind.kind.as_str()
            || patch["apiVersion"] != call.api_version()
        {
            return Err(Failure::bad_request("Incorrect version specified in apply patch"));
        }
        if meta::get(&patch, "managedFields").is_some() {
            return Err(Failure::bad_request("metadata.managedFields must be nil"));
        }
        patch["apiVersion"] = call.stored_version().into();
        if !typed::fits(&Type::of(call.kind), &patch) {
            return Err(Failure::unforeseen("failed to create typed patch object"));
        }
        let missing = call.subresource.is_empty();
        self.write(call, "", missing, Tracking::Done, |_, old| {
            let new = applied(call, old, &patch)?;
            let uid = meta::text(&new, "uid");
            if old.is_none() && !uid.is_empty() {
                let why = format!(
                    "uid mismatch: the provided object specified uid {uid}, and no existing object was found"
                );
                return Err(Failure::conflict(call.kind, call.name.unwrap_or_default(), &why));
            }
            Ok(new)
        })
    }
}

/// Gives a manager what differs between two objects, and takes it from the others.
fn own_changes(managers: &mut Managers, manager: Manager, call: &Call<'_>, old: Option<&Value>, new: &Value) {
    let ty = Type::of(call.kind);
    let bare = |object: &Value| {
        let mut object = object.clone();
        meta::set(&mut object, "managedFields", None);
        object
    };
    let before = old.map_or_else(|| nothing(call), bare);
    let mut changed = typed::compare(&ty, &before, &bare(new));
    changed.added = written(call.kind, call.subresource, changed.added);
    changed.modified = written(call.kind, call.subresource, changed.modified);
    changed.removed = written(call.kind, call.subresource, changed.removed);
    take(managers, None, &changed);
    let set = changed.modified.union(&changed.added).without(&stripped());
    if set.is_empty() {
        return;
    }
    let before = managers.remove(&manager).map(|owned| owned.set).unwrap_or_default();
    let owned = Owned { set: set.union(&before), version: call.api_version(), time: seconds(call.wall) };
    managers.insert(manager, owned);
}

/// What an apply makes of the stored object.
fn applied(call: &Call<'_>, old: Option<&Value>, patch: &Value) -> Checked<Value> {
    let ty = Type::of(call.kind);
    let mut managers = old.map(parse).unwrap_or_default();
    let mut live = old.cloned().unwrap_or_else(|| nothing(call));
    meta::set(&mut live, "managedFields", None);
    if let Some(old) = old.filter(|_| managers.is_empty()) {
        // What was there before anybody applied belongs to somebody, too.
        let manager = Manager {
            operation: "Update".to_owned(),
            name: "before-first-apply".to_owned(),
            version: call.api_version(),
            subresource: call.subresource.to_owned(),
        };
        own_changes(&mut managers, manager, call, None, old);
    }
    let manager = Manager {
        operation: "Apply".to_owned(),
        name: call.query("fieldManager").to_owned(),
        version: String::new(),
        subresource: call.subresource.to_owned(),
    };
    let last = managers.get(&manager).map(|owned| owned.set.clone());
    let set = written(call.kind, call.subresource, typed::fields(&ty, patch));
    let time = managers.get(&manager).map(|owned| owned.time.clone()).unwrap_or_default();
    managers.insert(manager.clone(), Owned { set, version: call.api_version(), time });
    let merged = typed::merge(&ty, Some(&live), Some(patch)).unwrap_or_default();
    let merged = prune(&ty, merged, &managers, last);
    let mut changed = typed::compare(&ty, &live, &merged);
    changed.added = written(call.kind, call.subresource, changed.added);
    changed.modified = written(call.kind, call.subresource, changed.modified);
    changed.removed = written(call.kind, call.subresource, changed.removed);
    let conflicts = take(&mut managers, Some(&manager), &changed);
    if !conflicts.is_empty() && !call.flag("force") {
        return Err(Failure::apply_conflicts(&conflicts));
    }
    if let Some(owned) = managers.get_mut(&manager) {
        owned.set = owned.set.without(&stripped());
        if merged != live {
            owned.time = seconds(call.wall);
        }
        if owned.set.is_empty() {
            managers.remove(&manager);
        }
    }
    let mut new = merged;
    core::decode(call.kind, &mut new)?;
    write(&mut new, &managers);
    super::patch::same_name(call, &new)?;
    Ok(new)
}

/// Removes what the applier set last time and does not set any more, unless somebody else owns it.
fn prune(ty: &Type<'_>, merged: Value, managers: &Managers, last: Option<Set>) -> Value {
    let Some(last) = last.filter(|last| !last.is_empty()) else { return merged };
    let declared = |path: &[String]| is_declared(ty, path);
    let last = last.with_named(&declared);
    let pruned = typed::remove(ty, &merged, &last);
    let owned =
        managers.values().fold(Set::default(), |all, owned| all.union(&owned.set)).with_named(&declared);
    let all = typed::fields(ty, &merged).with_named(&declared);
    let left = typed::fields(ty, &pruned).with_named(&declared);
    let pruned = typed::remove(ty, &merged, &all.without(&left.union(&owned)));
    let left = typed::fields(ty, &pruned).with_named(&declared);
    typed::remove(ty, &merged, &all.without(&left).common(&last))
}

/// Whether the last element of a path is a field that a type names.
fn is_declared(ty: &Type<'_>, path: &[String]) -> bool {
    let Some((last, before)) = path.split_last() else { return false };
    let parent = before.iter().fold(ty.clone(), |ty, step| match step.strip_prefix("f:") {
        Some(field) => ty.field(field),
        None => ty.item(),
    });
    last.strip_prefix("f:").is_some_and(|field| parent.declares(field))
}
