//! DELETE: preconditions, grace, finalizers.

use chrono::{DateTime, Duration, Utc};
use serde_json::{Value, json};

use super::failure::{Answer, Checked, Failure, Invalid};
use super::kinds::Family;
use super::request::Call;
use super::{Server, meta, seconds};

/// Options of a DELETE.
#[derive(Debug, Default)]
struct Options {
    grace: Option<i64>,
    uid: Option<String>,
    version: Option<String>,
    propagation: Option<String>,
    dry_run: bool,
}

/// What DELETE does with the stored object.
enum Step {
    /// Nothing: it is being deleted already.
    Nothing,
    /// Mark it; others remove it.
    Mark,
    /// Mark it with a grace of 0, and remove it.
    MarkAndRemove,
    Remove,
}

impl Server {
    pub(super) fn delete(&mut self, call: &Call<'_>) -> Answer {
        let (kind, name, key) = (call.kind, call.name.unwrap_or_default(), call.key());
        let options = options(call)?;
        let Some(old) = self.store.get(kind.index, &key).cloned() else {
            return Err(Failure::not_found(kind, name));
        };
        if kind.family == Family::Namespace
            && !(meta::is_terminating(&old) && super::core::may_vanish(kind, &old))
        {
            preconditions(call, &options, &old, Failure::conflict)?;
            self.approve_delete(call, &old)?;
            return Ok((200, self.terminate_namespace(call, &old, options.dry_run)));
        }
        preconditions(call, &options, &old, Failure::precondition)?;
        self.approve_delete(call, &old)?;
        let mut marked = (*old).clone();
        let step = plan(kind.family, &mut marked, &options, call.wall);
        let stores = !options.dry_run;
        let last = match step {
            Step::Nothing | Step::Remove => old,
            Step::Mark | Step::MarkAndRemove if marked == *old || !stores => marked.into(),
            Step::Mark | Step::MarkAndRemove => self.store.put(kind.index, &key, marked),
        };
        match step {
            Step::Nothing if kind.returns_deleted => Ok((200, call.shown(&last))),
            Step::Nothing => Ok((200, success(call, &last))),
            Step::Mark => Ok((200, call.shown(&last))),
            Step::Remove | Step::MarkAndRemove => {
                let gone =
                    if stores { self.store.remove(kind.index, &key).unwrap() } else { (*last).clone() };
                let shows = kind.returns_deleted || (!stores && matches!(step, Step::MarkAndRemove));
                Ok((200, if shows { call.shown(&gone) } else { success(call, &gone) }))
            }
        }
    }
}

/// The answer for kinds whose DELETE does not return the object.
fn success(call: &Call<'_>, object: &Value) -> Value {
    let mut details = json!({ "name": meta::text(object, "name"), "kind": call.kind.plural,
                              "uid": meta::text(object, "uid") });
    if !call.kind.group.is_empty() {
        details["group"] = call.kind.group.clone().into();
    }
    json!({ "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details })
}

fn preconditions(
    call: &Call<'_>,
    options: &Options,
    stored: &Value,
    refuse: impl Fn(&super::kinds::Kind, &str, &str) -> Failure,
) -> Checked<()> {
    let name = call.name.unwrap_or_default();
    let differs = |wanted: &Option<String>, field: &str| {
        wanted.as_ref().is_some_and(|wanted| wanted != meta::text(stored, field))
    };
    if differs(&options.uid, "uid") {
        return Err(refuse(call.kind, name, "the UID in the precondition does not match the UID in record"));
    }
    if differs(&options.version, "resourceVersion") {
        let why = "the ResourceVersion in the precondition does not match the ResourceVersion in record";
        return Err(refuse(call.kind, name, why));
    }
    Ok(())
}

/// Marks the object as the options and finalizers require.
fn plan(family: Family, object: &mut Value, options: &Options, wall: DateTime<Utc>) -> Step {
    let mut graceful = None;
    if family == Family::Pod {
        match grace(object, options, wall) {
            Ok(grace) => graceful = grace,
            Err(()) => return Step::Nothing,
        }
    }
    propagate(object, options);
    let held = !meta::finalizers(object).is_empty();
    match graceful {
        None if !held => Step::Remove,
        None => {
            mark(object, wall);
            Step::Mark
        }
        Some(grace) if held || grace > 0 => Step::Mark,
        Some(_) => Step::MarkAndRemove,
    }
}

/// Graceful deletion of a Pod: returns the grace in seconds; None if no grace is left; an error if a deletion
/// in progress is not shortened.
fn grace(pod: &mut Value, options: &Options, wall: DateTime<Utc>) -> Result<Option<i64>, ()> {
    let wanted = options.grace.map(|grace| if grace < 0 { 1 } else { grace });
    if meta::is_terminating(pod) {
        let left = meta::number(pod, "deletionGracePeriodSeconds").unwrap_or(0);
        if left == 0 {
            return Ok(None);
        }
        let Some(mut grace) = wanted.filter(|grace| *grace < left) else { return Err(()) };
        let until: DateTime<Utc> = meta::text(pod, "deletionTimestamp").parse().unwrap();
        let mut until = until - Duration::seconds(left) + Duration::seconds(grace);
        if until < wall {
            until = wall;
            // Late, but still graceful: another client removes it.
            grace = grace.min(1);
        }
        meta::set(pod, "deletionTimestamp", Some(seconds(until).into()));
        meta::set(pod, "deletionGracePeriodSeconds", Some(grace.into()));
        return Ok(Some(grace));
    }
    let own = pod["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    let unscheduled = pod["spec"]["nodeName"].as_str().unwrap_or_default().is_empty();
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    let grace = if unscheduled || over { 0 } else { wanted.unwrap_or(own).max(0) };
    meta::set(pod, "deletionTimestamp", Some(seconds(wall + Duration::seconds(grace)).into()));
    meta::set(pod, "deletionGracePeriodSeconds", Some(grace.into()));
    meta::bump_generation(pod);
    Ok(Some(grace))
}

/// Marks an object that its finalizers keep.
fn mark(object: &mut Value, wall: DateTime<Utc>) {
    let now = seconds(wall);
    let stamp = meta::text(object, "deletionTimestamp");
    if stamp.is_empty() {
        meta::bump_generation(object);
        meta::set(object, "deletionTimestamp", Some(now.into()));
    } else if stamp > now.as_str() {
        meta::set(object, "deletionTimestamp", Some(now.into()));
    }
    meta::set(object, "deletionGracePeriodSeconds", Some(0.into()));
}

/// Sets the garbage collector's finalizers.
fn propagate(object: &mut Value, options: &Options) {
    const GC: [&str; 2] = ["orphan", "foregroundDeletion"];
    let wanted = match options.propagation.as_deref() {
        Some("Orphan") => Some(GC[0]),
        Some("Foreground") => Some(GC[1]),
        Some(_) => None,
        // Without a policy the existing finalizers stay.
        None => return,
    };
    let mut finalizers = meta::finalizers(object).to_vec();
    finalizers.retain(|f| !GC.contains(&f.as_str().unwrap_or_default()));
    finalizers.extend(wanted.map(Value::from));
    let some = (!finalizers.is_empty()).then_some(Value::Array(finalizers));
    meta::set(object, "finalizers", some);
}

fn options(call: &Call<'_>) -> Checked<Options> {
    let number =
        |text: &str| text.parse().map_err(|_| Failure::bad_request(format!("invalid number {text:?}")));
    let mut options = Options { dry_run: call.dry_run, ..Options::default() };
    if call.body.is_empty() {
        if call.has("gracePeriodSeconds") {
            options.grace = Some(number(call.query("gracePeriodSeconds"))?);
        }
        options.propagation = Some(call.query("propagationPolicy").to_owned()).filter(|p| !p.is_empty());
        return Ok(options);
    }
    // If the request has a body, the query does not count.
    options.dry_run = false;
    let body = call.json()?;
    let text = |pointer: &str| body.pointer(pointer).and_then(Value::as_str).map(str::to_owned);
    options.grace = body["gracePeriodSeconds"].as_i64();
    options.uid = text("/preconditions/uid");
    options.version = text("/preconditions/resourceVersion");
    options.propagation = text("/propagationPolicy");
    for dry in body["dryRun"].as_array().into_iter().flatten() {
        if dry != "All" {
            let error = Invalid::new("FieldValueNotSupported", "dryRun", format!("Unsupported value: {dry}"));
            return Err(Failure::invalid_as("meta.k8s.io", "DeleteOptions", "", &[error]));
        }
        options.dry_run = true;
    }
    if let Some(policy) = &options.propagation
        && !matches!(policy.as_str(), "Foreground" | "Background" | "Orphan")
    {
        let error =
            Invalid::new("FieldValueNotSupported", "propagationPolicy", format!("Unsupported: {policy:?}"));
        return Err(Failure::invalid_as("meta.k8s.io", "DeleteOptions", "", &[error]));
    }
    Ok(options)
}
