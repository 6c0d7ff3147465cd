//! The API server's audit log of every request, with the times of arrival and end.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context as _, Result};
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::Value;

/// A position in the audit log.
pub(crate) struct Mark {
    path: PathBuf,
    offset: u64,
}

/// One answered request.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Entry {
    pub(crate) verb: String,
    #[serde(rename = "requestURI", default)]
    uri: String,
    #[serde(default)]
    user_agent: String,
    #[serde(default)]
    user: User,
    #[serde(default)]
    impersonated_user: Option<User>,
    #[serde(default)]
    pub(crate) object_ref: Object,
    #[serde(default)]
    response_status: Answer,
    #[serde(default)]
    request_object: Body,
    #[serde(rename = "requestReceivedTimestamp")]
    received: DateTime<Utc>,
    #[serde(rename = "stageTimestamp")]
    answered: DateTime<Utc>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

/// The object of a request.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Object {
    pub(crate) resource: String,
    pub(crate) subresource: String,
    pub(crate) name: String,
}

/// The part of a write's body that benchmarks use. The log has bodies only of orders.
#[derive(Debug, Deserialize)]
#[serde(untagged)]
enum Body {
    /// A JSON patch.
    Patch(Vec<Operation>),
    /// The object, or a merge patch.
    Book(Book),
}

impl Default for Body {
    fn default() -> Self {
        Self::Book(Book::default())
    }
}

#[derive(Debug, Deserialize)]
struct Operation {
    path: String,
    #[serde(default)]
    value: Value,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Book {
    spec: Orders,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Orders {
    orders: Vec<Order>,
}

#[derive(Debug, Deserialize)]
struct Order {
    id: String,
}

impl Mark {
    /// The log's current end.
    pub(crate) fn end_of(path: &Path) -> Result<Self> {
        let size = path.metadata().with_context(|| format!("cannot read {}", path.display()))?.len();
        Ok(Self { path: path.to_owned(), offset: size })
    }

    /// Every request logged since. Fails if the log was rotated meanwhile.
    pub(crate) fn read(&self) -> Result<Vec<Entry>> {
        let read = || -> Result<String> {
            let mut file = File::open(&self.path)?;
            if file.metadata()?.len() < self.offset {
                anyhow::bail!("it was rotated meanwhile; run this again");
            }
            file.seek(SeekFrom::Start(self.offset))?;
            let mut text = String::new();
            file.read_to_string(&mut text)?;
            Ok(text)
        };
        let text = read().with_context(|| format!("the audit log {}", self.path.display()))?;
        // The last line may be incomplete, and health checks have no object. Both are skipped.
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }
}

impl Entry {
    /// The client program, without its version.
    pub(crate) fn program(&self) -> &str {
        self.user_agent.split('/').next().unwrap_or_default()
    }

    /// The name of the client's (or impersonated) `ServiceAccount`, if it is in that namespace.
    pub(crate) fn account(&self, namespace: &str) -> Option<&str> {
        let user = self.impersonated_user.as_ref().unwrap_or(&self.user);
        let account = user.username.strip_prefix("system:serviceaccount:")?;
        account.strip_prefix(namespace)?.strip_prefix(':')
    }

    /// Whether the verb is a write.
    pub(crate) fn writes(&self) -> bool {
        ["create", "update", "patch", "delete", "deletecollection"].contains(&self.verb.as_str())
    }

    /// Whether the request is a dry run.
    pub(crate) fn dry_run(&self) -> bool {
        self.uri.contains("dryRun=All")
    }

    /// Whether the request's label selector is exactly that label.
    pub(crate) fn selects(&self, label: &str) -> bool {
        let (_, query) = self.uri.split_once('?').unwrap_or_default();
        let mut selectors = query.split('&').filter_map(|part| part.strip_prefix("labelSelector="));
        selectors.any(|selector| selector.replace("%2F", "/") == label)
    }

    /// Whether the answer was an error, such as a conflict.
    pub(crate) fn refused(&self) -> bool {
        self.response_status.code >= 400
    }

    /// IDs of the orders that the request writes to a node's book.
    pub(crate) fn orders(&self) -> impl Iterator<Item = &str> {
        let (whole, patch): (&[Order], &[Operation]) = match &self.request_object {
            Body::Book(book) => (&book.spec.orders, &[]),
            Body::Patch(patch) => (&[], patch),
        };
        let patched = patch.iter().filter(|operation| operation.path == "/spec/orders");
        let patched = patched.filter_map(|operation| operation.value.as_array()).flatten();
        let patched = patched.filter_map(|order| order["id"].as_str());
        whole.iter().map(|order| order.id.as_str()).chain(patched)
    }

    /// Time when the API server received the request.
    pub(crate) fn received(&self) -> SystemTime {
        self.received.into()
    }

    /// Time when the API server had answered.
    pub(crate) fn answered(&self) -> SystemTime {
        self.answered.into()
    }

    /// `verb resource/subresource`.
    pub(crate) fn name(&self) -> String {
        let Object { resource, subresource, .. } = &self.object_ref;
        let slash = if subresource.is_empty() { "" } else { "/" };
        let dry = if self.dry_run() { " (dry run)" } else { "" };
        format!("{} {resource}{slash}{subresource}{dry}", self.verb)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::time::Duration;

    #[test]
    fn what_came_after_the_mark_is_read() {
        let path = std::env::temp_dir().join(format!("pitstop-bench-audit-{}", std::process::id()));
        let line = |verb: &str| {
            format!(
                r#"{{"stage":"ResponseComplete","verb":"{verb}","user":{{"username":"system:serviceaccount:pitstop-system:pitstop-daemon"}},"responseStatus":{{"code":409}},"userAgent":"pitstop-daemon/0.1.0","requestURI":"/apis/pitstop.dev/v1alpha1/nodeworks/node1/status?","objectRef":{{"resource":"nodeworks","name":"node1","apiGroup":"pitstop.dev","subresource":"status"}},"requestReceivedTimestamp":"2026-11-21T11:23:04.766801Z","stageTimestamp":"2026-11-21T11:23:04.769187Z"}}"#
            )
        };
        std::fs::write(&path, line("get") + "\n").unwrap();
        let mark = Mark::end_of(&path).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        write!(file, "{}\n{{\"verb\":\"get\",\"half", line("update")).unwrap();
        let entries = mark.read().unwrap();
        std::fs::remove_file(&path).unwrap();
        let [entry] = entries.as_slice() else { panic!("{entries:?}") };
        assert_eq!((entry.program(), entry.name().as_str()), ("pitstop-daemon", "update nodeworks/status"));
        assert_eq!(entry.account("pitstop-system"), Some("pitstop-daemon"));
        assert_eq!(entry.account("pitstop"), None);
        assert!(entry.writes() && entry.refused() && !entry.dry_run());
        assert!(!entry.selects("pitstop.dev/parked"));
        let took = entry.answered().duration_since(entry.received()).unwrap();
        assert_eq!(took, Duration::from_micros(2386));
    }
}
