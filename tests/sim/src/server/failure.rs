//! Refusals, as the `Status` objects of the API server.

use serde_json::{Map, Value, json};

use super::kinds::Kind;

/// Code and body, or a refusal.
pub(super) type Answer = Result<(u16, Value), Failure>;

/// The result of a check, or a refusal.
pub(super) type Checked<T> = Result<T, Failure>;

/// A refusal. Boxed inside, because results carry it everywhere.
#[derive(Debug)]
pub(super) struct Failure {
    pub code: u16,
    status: Box<Status>,
}

#[derive(Debug)]
struct Status {
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
}

impl Failure {
    pub(super) fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, status: Box::new(Status { reason, message: message.into(), details: Map::new() }) }
    }

    fn about(mut self, name: &str, group: &str, kind: &str) -> Self {
        self.status.details.insert("name".to_owned(), name.into());
        if !group.is_empty() {
            self.status.details.insert("group".to_owned(), group.into());
        }
        self.status.details.insert("kind".to_owned(), kind.into());
        self
    }

    fn causes(mut self, causes: Vec<Value>) -> Self {
        self.status.details.insert("causes".to_owned(), Value::Array(causes));
        self
    }

    fn retry_after(mut self, seconds: u64) -> Self {
        self.status.details.insert("retryAfterSeconds".to_owned(), seconds.into());
        self
    }

    pub(super) fn body(self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.status.message, "code": self.code,
        });
        if !self.status.reason.is_empty() {
            status["reason"] = self.status.reason.into();
        }
        if !self.status.details.is_empty() {
            status["details"] = Value::Object(self.status.details);
        }
        status
    }

    pub(super) fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    pub(super) fn method_not_allowed() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self::new(405, "MethodNotAllowed", message)
    }

    pub(super) fn no_such_path() -> Self {
        Self::new(404, "NotFound", "the server could not find the requested resource")
    }

    pub(super) fn unsupported_media_type() -> Self {
        let message = "the body of the request was in an unknown format - accepted media types include: \
                       application/json";
        Self::new(415, "UnsupportedMediaType", message)
    }

    pub(super) fn not_found(kind: &Kind, name: &str) -> Self {
        Self::new(404, "NotFound", format!("{} \"{name}\" not found", kind.qualified())).about(
            name,
            &kind.group,
            &kind.plural,
        )
    }

    pub(super) fn already_exists(kind: &Kind, name: &str) -> Self {
        Self::new(409, "AlreadyExists", format!("{} \"{name}\" already exists", kind.qualified())).about(
            name,
            &kind.group,
            &kind.plural,
        )
    }

    /// A write that is based on another version.
    pub(super) fn modified(kind: &Kind, name: &str) -> Self {
        let why =
            "the object has been modified; please apply your changes to the latest version and try again";
        Self::conflict(kind, name, why)
    }

    pub(super) fn conflict(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("Operation cannot be fulfilled on {} \"{name}\": {why}", kind.qualified());
        Self::new(409, "Conflict", message).about(name, &kind.group, &kind.plural)
    }

    /// A failed precondition of a DELETE. Its details name the kind instead of the resource.
    pub(super) fn precondition(kind: &Kind, name: &str, why: &str) -> Self {
        let qualified =
            if kind.group.is_empty() { kind.kind.clone() } else { format!("{}.{}", kind.kind, kind.group) };
        let message = format!("Operation cannot be fulfilled on {qualified} \"{name}\": {why}");
        Self::new(409, "Conflict", message).about(name, &kind.group, &kind.kind)
    }

    /// An invalid object, with the wrong fields.
    pub(super) fn invalid(kind: &Kind, name: &str, errors: &[Invalid]) -> Self {
        Self::invalid_as(&kind.group, &kind.kind, name, errors)
    }

    /// An update without a version, of a kind that needs one. Its details name the resource instead of the kind.
    pub(super) fn no_version(kind: &Kind, name: &str) -> Self {
        let error =
            Invalid::new("FieldValueInvalid", "metadata.resourceVersion", "must be specified for an update");
        Self::invalid_as(&kind.group, &kind.plural, name, &[error])
    }

    /// A patch whose result is not an object of the kind.
    pub(super) fn invalid_patch(why: &str) -> Self {
        let error = Invalid::new("FieldValueInvalid", "patch", why);
        Self::invalid_as("", "", "", &[error])
    }

    pub(super) fn invalid_as(group: &str, kind: &str, name: &str, errors: &[Invalid]) -> Self {
        let list =
            errors.iter().map(|e| format!("{}: {}", e.field, e.message)).collect::<Vec<_>>().join(", ");
        let qualified = if group.is_empty() { kind.to_owned() } else { format!("{kind}.{group}") };
        let causes = errors
            .iter()
            .map(|e| json!({ "reason": e.reason, "message": e.message, "field": e.field }))
            .collect();
        Self::new(422, "Invalid", format!("{qualified} \"{name}\" is invalid: {list}"))
            .about(name, group, kind)
            .causes(causes)
    }

    /// A 422 by a patch or a hook, without fields.
    pub(super) fn unprocessable(message: impl Into<String>) -> Self {
        Self::new(422, "Invalid", message)
    }

    pub(super) fn forbidden(kind: &Kind, name: &str, why: &str) -> Self {
        let message = format!("{} \"{name}\" is forbidden: {why}", kind.qualified());
        Self::new(403, "Forbidden", message).about(name, &kind.group, &kind.plural)
    }

    /// A create in a terminating namespace.
    pub(super) fn terminating(kind: &Kind, name: &str, namespace: &str) -> Self {
        let why =
            format!("unable to create new content in namespace {namespace} because it is being terminated");
        let cause = json!({ "reason": "NamespaceTerminating",
                            "message": format!("namespace {namespace} is being terminated"),
                            "field": "metadata.namespace" });
        Self::forbidden(kind, name, &why).causes(vec![cause])
    }

    /// A version that is no longer in the history.
    pub(super) fn expired(message: impl Into<String>) -> Self {
        Self::new(410, "Expired", message)
    }

    /// A version that the server has not reached. The real server waits three seconds before this answer.
    pub(super) fn too_large(version: u64, current: u64) -> Self {
        let cause = json!({ "reason": "ResourceVersionTooLarge", "message": "Too large resource version" });
        let message = format!("Timeout: Too large resource version: {version}, current: {current}");
        Self::new(504, "Timeout", message).causes(vec![cause]).retry_after(1)
    }

    /// An error that the API server did not foresee; it has no reason.
    pub(super) fn unforeseen(message: impl Into<String>) -> Self {
        Self::new(500, "", message)
    }
}

/// A wrong field.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Invalid {
    pub reason: &'static str,
    pub field: String,
    pub message: String,
}

impl Invalid {
    pub(super) fn new(reason: &'static str, field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason, field: field.into(), message: message.into() }
    }
}
