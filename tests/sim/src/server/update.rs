//! PUT, and the common part of all patches.

use serde_json::Value;

use super::Server;
use super::create::same_namespace;
use super::failure::{Answer, Checked, Failure};
use super::request::Call;
use super::{core, meta};

impl Server {
    pub(super) fn put(&mut self, call: &Call<'_>) -> Answer {
        let mut object = call.object()?;
        core::decode(call.kind, &mut object)?;
        let (given, name) = (meta::text(&object, "name"), call.name.unwrap_or_default());
        if given != name {
            let message =
                format!("the name of the object ({given}) does not match the name on the URL ({name})");
            return Err(Failure::bad_request(message));
        }
        same_namespace(call, &mut object)?;
        let uid = meta::text(&object, "uid").to_owned();
        let missing = call.kind.create_on_update && call.subresource.is_empty();
        self.write(call, &uid, missing, |_| Ok(object))
    }

    /// Replaces a stored object by the result of `make`, under all rules of an update.
    ///
    /// `uid`, if not empty, is a precondition. With `missing`, a missing object is created.
    pub(super) fn write(
        &mut self,
        call: &Call<'_>,
        uid: &str,
        missing: bool,
        make: impl FnOnce(Option<&Value>) -> Checked<Value>,
    ) -> Answer {
        let (kind, name, key) = (call.kind, call.name.unwrap_or_default(), call.key());
        let Some(old) = self.store.get(kind.index, &key).cloned() else {
            if !missing {
                return Err(Failure::not_found(kind, name));
            }
            if !uid.is_empty() {
                return Err(Failure::conflict(kind, name, &wrong_uid(uid, "")));
            }
            let mut new = make(None)?;
            same_namespace(call, &mut new)?;
            return self.store_new(call, new);
        };
        if !uid.is_empty() && uid != meta::text(&old, "uid") {
            return Err(Failure::conflict(kind, name, &wrong_uid(uid, meta::text(&old, "uid"))));
        }
        let mut new = make(Some(&old))?;
        if self.mutate(call, name, Some(&old), &mut new)? {
            core::decode(kind, &mut new)?;
        }
        same_namespace(call, &mut new)?;
        match meta::version(&new) {
            "" | "0" if kind.unconditional_update => meta::set(&mut new, "resourceVersion", version_of(&old)),
            "" | "0" => return Err(Failure::no_version(kind, name)),
            version if version.parse::<u64>().is_err() => {
                return Err(Failure::unforeseen("strconv.ParseUint"));
            }
            version if version != meta::version(&old) => return Err(Failure::modified(kind, name)),
            _ => {}
        }
        Self::settle(call, &old, &mut new)?;
        self.approve(call, name, Some(&old), &new)?;
        if is_finished(&new, &old) && core::may_vanish(kind, &new) {
            if !call.dry_run {
                self.store.remove(kind.index, &key);
            }
            return Ok((200, call.shown(&new)));
        }
        // A write without changes is not stored.
        if call.dry_run || (new == *old && !self.store.is_bare(kind.index, &key)) {
            return Ok((200, call.shown(&new)));
        }
        let stored = self.store.put(kind.index, &key, new);
        Ok((200, call.shown(&stored)))
    }

    /// Keeps what the endpoint does not write, and validates.
    fn settle(call: &Call<'_>, old: &Value, new: &mut Value) -> Checked<()> {
        let kind = call.kind;
        meta::set(new, "generation", meta::get(old, "generation").cloned());
        core::prepare_update(kind, call.subresource, new, old);
        meta::carry_over(new, old);
        let mut errors = Vec::new();
        meta::validate(new, &mut errors);
        meta::validate_update(new, old, &mut errors);
        if call.subresource == "resize" {
            core::resize::validate(new, old, &mut errors);
        } else {
            core::validate(kind, new, Some(old), &mut errors);
        }
        if errors.is_empty() { Ok(()) } else { Err(Failure::invalid(kind, meta::text(new, "name"), &errors)) }
    }
}

fn version_of(object: &Value) -> Option<Value> {
    meta::get(object, "resourceVersion").cloned()
}

fn wrong_uid(wanted: &str, stored: &str) -> String {
    format!("Precondition failed: UID in precondition: {wanted}, UID in object meta: {stored}")
}

/// Whether nothing holds an object that is being deleted.
fn is_finished(new: &Value, old: &Value) -> bool {
    meta::finalizers(new).is_empty()
        && meta::is_terminating(old)
        && meta::number(old, "deletionGracePeriodSeconds").unwrap_or(0) == 0
}
