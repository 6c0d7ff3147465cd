//! POST, and PUT of a missing object.

use serde_json::Value;

use super::Server;
use super::failure::{Answer, Checked, Failure};
use super::request::Call;
use super::{core, meta, namespace};

impl Server {
    pub(super) fn create(&mut self, call: &Call<'_>) -> Answer {
        let mut object = call.object()?;
        core::decode(call.kind, &mut object)?;
        same_namespace(call, &mut object)?;
        self.store_new(call, object)
    }

    /// Checks a new object in all ways and stores it.
    pub(super) fn store_new(&mut self, call: &Call<'_>, mut object: Value) -> Answer {
        let kind = call.kind;
        if let Some(prefix) = Some(meta::text(&object, "generateName")).filter(|prefix| !prefix.is_empty())
            && meta::text(&object, "name").is_empty()
        {
            let name = format!("{prefix}{}", suffix(self.next_serial()));
            meta::set(&mut object, "name", Some(name.into()));
        }
        let name = meta::text(&object, "name").to_owned();
        namespace::admits(self, call, &name)?;
        if self.mutate(call, &name, None, &mut object)? {
            core::decode(kind, &mut object)?;
        }
        let uid = uid(self.next_serial());
        meta::fill_new(&mut object, call.wall, uid);
        core::prepare_create(kind, &mut object);
        let mut errors = Vec::new();
        core::validate(kind, &object, None, &mut errors);
        if errors.is_empty() {
            meta::validate(&object, &mut errors);
        }
        if !errors.is_empty() {
            return Err(Failure::invalid(kind, &name, &errors));
        }
        self.approve(call, &name, None, &object)?;
        let key = call.key_of(&name);
        if call.method == http::Method::POST && !meta::version(&object).is_empty() && !call.dry_run {
            return Err(Failure::unforeseen("resourceVersion should not be set on objects to be created"));
        }
        if self.store.get(kind.index, &key).is_some() {
            return Err(Failure::already_exists(kind, &name));
        }
        meta::set(&mut object, "resourceVersion", None);
        if call.dry_run {
            return Ok((201, call.shown(&object)));
        }
        // The status of a custom resource is dropped before it is stored, its default too.
        let bare = kind.is_custom() && object.get("status").is_some();
        let stored = self.store.put_new(kind.index, &key, object, bare);
        Ok((201, call.shown(&stored)))
    }
}

/// Takes the namespace from the path, or refuses a different one. Drops the namespace if the kind has none.
pub(super) fn same_namespace(call: &Call<'_>, object: &mut Value) -> Checked<()> {
    let given = meta::text(object, "namespace");
    match call.namespace {
        Some(namespace) if given.is_empty() => {
            meta::set(object, "namespace", Some(namespace.into()));
            Ok(())
        }
        Some(namespace) if given == namespace => Ok(()),
        None => {
            meta::set(object, "namespace", None);
            Ok(())
        }
        Some(_) => {
            let message =
                "the namespace of the provided object does not match the namespace sent on the request";
            Err(Failure::bad_request(message))
        }
    }
}

/// A UID made of a serial number.
pub(super) fn uid(serial: u64) -> String {
    format!("{:08x}-0000-4000-8000-{:012x}", serial & 0xffff_ffff, serial)
}

/// The five characters of a generated name.
fn suffix(serial: u64) -> String {
    const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
    let base = u64::try_from(LETTERS.len()).unwrap();
    let mut rest = serial;
    let mut text = String::new();
    for _ in 0..5 {
        text.push(char::from(LETTERS[usize::try_from(rest % base).unwrap()]));
        rest /= base;
    }
    text
}
