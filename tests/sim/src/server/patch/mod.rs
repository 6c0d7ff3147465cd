//! PATCH: the media types, without server-side apply.

mod strategic;

use json_patch::{AddOperation, PatchOperation};
use serde_json::Value;

use super::Server;
use super::failure::{Answer, Checked, Failure, Invalid};
use super::request::Call;
use super::{core, meta};

impl Server {
    pub(super) fn patch(&mut self, call: &Call<'_>) -> Answer {
        if call.has("force") {
            let error =
                Invalid::new("FieldValueForbidden", "force", "may not be specified for non-apply patch");
            return Err(Failure::invalid_as("meta.k8s.io", "PatchOptions", "", &[error]));
        }
        match call.content_type() {
            "application/json-patch+json" => {
                let patch = json_patch(call)?;
                self.write(call, "", false, |old| patched(call, old, |object| operate(object, &patch)))
            }
            "application/merge-patch+json" => {
                let patch = document(call)?;
                self.write(call, "", false, |old| {
                    patched(call, old, |object| {
                        json_patch::merge(object, &patch);
                        Ok(())
                    })
                })
            }
            "application/strategic-merge-patch+json" if !call.kind.is_custom() => {
                let patch = document(call)?;
                self.write(call, "", false, |old| {
                    patched(call, old, |object| strategic::merge(object, &patch))
                })
            }
            // Custom resources have no merge keys.
            _ => Err(Failure::unsupported_media_type()),
        }
    }
}

/// The result of a patch of the stored object, read like a body.
fn patched(
    call: &Call<'_>,
    old: Option<&Value>,
    patch: impl FnOnce(&mut Value) -> Checked<()>,
) -> Checked<Value> {
    // Patches never create an object, so it exists. It is patched in the version that the client uses.
    let mut object = old.unwrap().clone();
    object["apiVersion"] = call.api_version().into();
    patch(&mut object)?;
    if !object.is_object() {
        return Err(Failure::invalid_patch("the result is no object"));
    }
    if object["kind"] != call.kind.kind.as_str() || object["apiVersion"] != call.api_version() {
        let text = |field: &str| object[field].as_str().unwrap_or_default();
        let group = text("apiVersion").split_once('/').map_or("", |(group, _)| group);
        let errors = [Invalid::new("FieldValueInvalid", "patch", "the object provided is unrecognized")];
        return Err(if call.kind.is_custom() {
            Failure::invalid_as(group, text("kind"), call.name.unwrap_or_default(), &errors)
        } else {
            Failure::invalid_as("", "", "", &errors)
        });
    }
    object["apiVersion"] = call.stored_version().into();
    core::decode(call.kind, &mut object).map_err(|_| Failure::invalid_patch("cannot decode the result"))?;
    same_name(call, &object)?;
    Ok(object)
}

/// Refuses a patch that changes the name.
fn same_name(call: &Call<'_>, object: &Value) -> Checked<()> {
    let (given, name) = (meta::text(object, "name"), call.name.unwrap_or_default());
    if given == name {
        return Ok(());
    }
    let message = format!("the name of the object ({given}) does not match the name on the URL ({name})");
    Err(Failure::bad_request(message))
}

/// A patch that is an object.
fn document(call: &Call<'_>) -> Checked<Value> {
    let patch = call.json()?;
    if patch.is_object() { Ok(patch) } else { Err(Failure::bad_request("the patch is no object")) }
}

/// Applies a JSON patch as Kubernetes' library does: `replace` of a missing field adds it, and a `test` of
/// one for null succeeds.
fn operate(object: &mut Value, patch: &json_patch::Patch) -> Checked<()> {
    for operation in patch.iter() {
        let path = operation.path();
        let lacks = path.split_back().is_some_and(|(parent, last)| {
            let parent = object.pointer(parent.as_str()).and_then(Value::as_object);
            parent.is_some_and(|parent| !parent.contains_key(last.decoded().as_ref()))
        });
        let operation = match operation {
            PatchOperation::Replace(replace) if lacks => {
                PatchOperation::Add(AddOperation { path: replace.path.clone(), value: replace.value.clone() })
            }
            PatchOperation::Test(test) if lacks && test.value.is_null() => continue,
            other => other.clone(),
        };
        let refuse = |error: json_patch::PatchError| Failure::unprocessable(error.to_string());
        json_patch::patch(object, &[operation]).map_err(refuse)?;
    }
    Ok(())
}

fn json_patch(call: &Call<'_>) -> Checked<json_patch::Patch> {
    let patch = call.json()?;
    if !patch.as_array().is_some_and(|list| list.iter().all(Value::is_object)) {
        return Err(Failure::bad_request("the patch is no list of operations"));
    }
    serde_json::from_value(patch).map_err(|error| Failure::unprocessable(error.to_string()))
}
