//! Hooks that may change or refuse what is written: webhooks and admission policies.

use std::fmt::Debug;

use chrono::{DateTime, Utc};
use http::HeaderMap;
use serde_json::Value;

use super::Server;
use super::failure::{Checked, Failure};
use super::request::Call;

/// What is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A new object.
    Create,
    /// A change of one, patches and status included.
    Update,
    /// The end of one; only [`Admission::validate`] is asked.
    Delete,
}

/// One write before it is stored.
#[derive(Debug)]
pub struct Review<'a> {
    /// What is asked for.
    pub operation: Operation,
    /// API group; empty for the core one.
    pub group: &'a str,
    /// Version that the client speaks.
    pub version: &'a str,
    /// Kind, such as `Pod`.
    pub kind: &'a str,
    /// Plural, such as `pods`.
    pub resource: &'a str,
    /// Empty, or `status`.
    pub subresource: &'a str,
    /// Empty for kinds without namespaces.
    pub namespace: &'a str,
    /// Name; empty while it is still to be generated.
    pub name: &'a str,
    /// Headers of the request: who asks is for the world to say.
    pub headers: &'a HeaderMap,
    /// The server's wall clock.
    pub wall: DateTime<Utc>,
    /// Whether nothing is to be stored.
    pub dry_run: bool,
    /// What is stored; nothing for a create.
    pub old: Option<&'a Value>,
}

/// Why a write is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// HTTP code: 403 for webhooks that do not say, 422 for admission policies.
    pub code: u16,
    /// `Forbidden`, `Invalid` ...
    pub reason: &'static str,
    /// For people.
    pub message: String,
}

/// A hook. It may read from the server, which holds everything but the write under review.
pub trait Admission: Debug {
    /// Changes the object, or refuses it; before it is validated.
    fn mutate(&self, server: &Server, review: &Review<'_>, object: &mut Value) -> Result<(), Refusal> {
        let _ = (server, review, object);
        Ok(())
    }

    /// Refuses what would be stored. For [`Operation::Delete`] the object is the stored one.
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
    /// Asks all hooks to change a write. Says whether any was asked.
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

    /// Asks all hooks whether a write may be.
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

    /// Asks all hooks whether an object may go.
    pub(super) fn approve_delete(&self, call: &Call<'_>, stored: &Value) -> Checked<()> {
        let review = review(call, Operation::Delete, call.name.unwrap_or_default(), Some(stored));
        self.admission.iter().try_for_each(|hook| hook.validate(self, &review, stored)).map_err(Failure::from)
    }
}
