//! Requests about objects of kinds.

use http::HeaderValue;
use http::header::CONTENT_TYPE;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::params::{DeleteParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{Request as Builder, request};
use serde_json::Value;

use crate::action::Object;
use crate::key::{KindId, ObjectKey};
use crate::kinds::{Status, about};

/// A request without the server's address.
pub type HttpRequest = http::Request<Vec<u8>>;

/// The objects of this kind in this namespace.
pub(super) fn objects(kind: KindId, key: &ObjectKey) -> Builder {
    let (api_version, plural) = about(kind).map_or(("", ""), |about| (about.api_version, about.plural));
    Builder::new(format!("/apis/{api_version}/namespaces/{}/{plural}", key.namespace))
}

/// A JSON patch.
pub(super) fn json_patch(
    of: &Builder,
    name: &str,
    changes: Vec<Value>,
) -> Result<HttpRequest, request::Error> {
    let mut request = of.patch(name, &PatchParams::default(), &Patch::Merge(Value::Array(changes)))?;
    // The client's own type for it would need another library.
    request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json-patch+json"));
    Ok(request)
}

/// Deletes an object, if it still has this UID.
pub(super) fn delete(kind: KindId, key: &ObjectKey, uid: &str) -> Result<HttpRequest, request::Error> {
    let params = DeleteParams {
        preconditions: Some(Preconditions { uid: Some(uid.to_owned()), resource_version: None }),
        ..DeleteParams::default()
    };
    objects(kind, key).delete(&key.name, &params)
}

/// Replaces the status of an object, if it is still this version. The API server takes the spec from the stored one.
pub(super) fn replace_status(
    object: &Object,
    resource_version: String,
    status: Status,
) -> Result<HttpRequest, request::Error> {
    let Object { kind, key, uid } = object;
    let metadata = ObjectMeta {
        name: Some(key.name.clone()),
        namespace: Some(key.namespace.clone()),
        uid: Some(uid.clone()),
        resource_version: Some(resource_version),
        ..ObjectMeta::default()
    };
    let body = status.object(metadata).map_err(request::Error::SerializeBody)?;
    objects(*kind, key).replace_subresource("status", &key.name, &PostParams::default(), body)
}
