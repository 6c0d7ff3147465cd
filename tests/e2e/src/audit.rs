//! The API server's audit log: which user sent which request.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

use anyhow::Result;
use serde::Deserialize;

use crate::cluster::Cluster;
use crate::system::NAMESPACE;

/// One request that the API server answered.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Entry {
    stage: String,
    /// `create`, `watch`, ...
    pub verb: String,
    #[serde(rename = "requestURI")]
    uri: String,
    user: User,
    object_ref: Object,
    response_status: Answer,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct User {
    username: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Object {
    resource: String,
    subresource: String,
}

#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct Answer {
    code: u16,
}

impl Entry {
    /// Whether one of pitstop's programs sent the request.
    fn is_ours(&self) -> bool {
        self.user.username.starts_with(&format!("system:serviceaccount:{NAMESPACE}:"))
    }

    /// `resource` or `resource/subresource`.
    pub fn resource(&self) -> String {
        let Object { resource, subresource } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }

    /// Whether the request is about that namespace.
    pub fn is_in(&self, namespace: &str) -> bool {
        self.uri.contains(&format!("/namespaces/{namespace}/"))
    }

    /// HTTP status code of the answer.
    pub fn code(&self) -> u16 {
        self.response_status.code
    }

    /// Whether the request is a dry run.
    pub fn dry_run(&self) -> bool {
        self.uri.contains("dryRun=All")
    }

    /// Whether the request is the controller's check that the daemons' admission policy denies.
    pub fn self_check(&self) -> bool {
        self.verb == "create" && self.resource() == "nodeworks" && self.dry_run()
    }

    /// Whether the request is a write.
    pub fn writes(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }
}

impl std::fmt::Display for Entry {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let user = self.user.username.rsplit(':').next().unwrap_or_default();
        write!(f, "{user}: {} {} -> {} ({})", self.verb, self.resource(), self.response_status.code, self.uri)
    }
}

/// A position in the log from which entries are read.
pub struct Mark {
    path: PathBuf,
    offset: u64,
}

impl Mark {
    /// The current end of the log.
    pub fn now(cluster: &Cluster) -> Result<Self> {
        let path: PathBuf = cluster.status("/controlPlane/auditLog")?;
        let offset = path.metadata()?.len();
        Ok(Self { path, offset })
    }

    /// Requests of pitstop's programs since the mark, each once. A watch counts when it begins.
    pub fn entries(&self) -> Result<Vec<Entry>> {
        let mut file = File::open(&self.path)?;
        file.seek(SeekFrom::Start(self.offset.saturating_sub(1)))?;
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        // The last line may be half written, at the mark and now.
        let since =
            if self.offset == 0 { Some(&*text) } else { text.split_once('\n').map(|(_, since)| since) };
        let mut entries = Vec::new();
        for line in since.unwrap_or_default().split_inclusive('\n').filter(|line| line.ends_with('\n')) {
            let entry: Entry = serde_json::from_str(line)?;
            let counts = if entry.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
            if entry.is_ours() && entry.stage == counts {
                entries.push(entry);
            }
        }
        Ok(entries)
    }
}
