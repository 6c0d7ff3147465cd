//! Hooks that may change or refuse writes: webhooks and admission policies.

use std::fmt::Debug;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use super::Server;
use super::failure::{Checked, Failure};
use super::request::Call;

/// Kind of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of an object, patches and status included.
    Update,
    /// A deletion; only [`Admission::validate`] is called.
    Delete,
}

/// A write before it is stored.
#[derive(Debug)]
pub struct Review<'a> {
    /// Kind of the write.
    pub operation: Operation,
    /// API group; empty for the core group.
    pub group: &'a str,
    /// Version that the client uses.
    pub version: &'a str,
    /// Kind, such as `Pod`.
    pub kind: &'a str,
    /// Plural, such as `pods`.
    pub resource: &'a str,
    /// Empty, or `status`.
    pub subresource: &'a str,
    /// Namespace; empty for kinds without namespaces.
    pub namespace: &'a str,
    /// Name; empty while it is still to be generated.
    pub name: &'a str,
    /// Headers of the request; the world identifies the client by them.
    pub headers: &'a HeaderMap,
    /// The server's wall clock.
    pub wall: DateTime<Utc>,
    /// Whether the write is a dry run.
    pub dry_run: bool,
    /// The stored object; None for a create.
    pub old: Option<&'a Value>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code: 403 for webhooks that give none, 422 for admission policies.
    pub code: u16,
    /// `Forbidden`, `Invalid` ...
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A hook. It may read from the server, which holds everything except the write under review.
pub trait Admission: Debug {
    /// Changes the object, or refuses it; before it is validated.
    fn mutate(&self, server: &Server, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let _ = (server, review, object);
        Ok(())
    }

    /// Refuses an object before it is stored. For [`Operation::Delete`] it is the stored object.
    fn validate(&self, server: &Server, review: &Review<'_>, object: &Value) -> Result<(), Refusal> {
        let _ = (server, review, object);
        Ok(())
    }
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::new(refusal.code, refusal.reason, refusal.message)
    }
}

fn review<'a>(call: &'a Call<'_>, operation: Operation, name: &'a str, old: Option<&'a Value>) -> Review<'a> {
    Review {
        operation,
        group: &call.kind.group,
        version: call.version,
        kind: &call.kind.kind,
        resource: &call.kind.plural,
        subresource: call.subresource,
        namespace: call.namespace.unwrap_or_default(),
        name,
        headers: call.headers,
        wall: call.wall,
        dry_run: call.dry_run,
        old,
    }
}

fn operation(old: Option<&Value>) -> Operation {
    if old.is_some() { Operation::Update } else { Operation::Create }
}

impl Server {
    /// Calls all hooks to change a write. Returns whether a hook exists.
    pub(super) fn mutate(
        &self,
        call: &Call<'_>,
        name: &str,
        old: Option<&Value>,
        object: &mut Value,
    ) -> Checked<bool> {
        let review = review(call, operation(old), name, old);
        for hook in &self.admission {
            hook.mutate(self, &review, object)?;
        }
        Ok(!self.admission.is_empty())
    }

    /// Calls all hooks to approve a write.
    pub(super) fn approve(
        &self,
        call: &Call<'_>,
        name: &str,
        old: Option<&Value>,
        object: &Value,
    ) -> Checked<()> {
        let review = review(call, operation(old), name, old);
        self.admission.iter().try_for_each(|hook| hook.validate(self, &review, object)).map_err(Failure::from)
    }

    /// Calls all hooks to approve a deletion.
    pub(super) fn approve_delete(&self, call: &Call<'_>, stored: &Value) -> Checked<()> {
        let review = review(call, Operation::Delete, call.name.unwrap_or_default(), Some(stored));
        self.admission.iter().try_for_each(|hook| hook.validate(self, &review, stored)).map_err(Failure::from)
    }
}
