//! The cluster's registry of images: how it can be made to fail, what it was asked for, and its door with a password.
//! `tests/cluster/README.md` has the files by which this goes.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::Cluster;
use crate::ns::{NODE, Ns};

/// What the names of images begin with that are pulled with a password. The images are those of every other name.
pub const PRIVATE: &str = "private.pitstop.dev";

/// How the registry fails those who pull. Who pushes is not failed.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Faults {
    /// How the repositories' names begin that fail, without a registry (`test/busybox`); empty: all.
    pub repository: String,
    /// The HTTP status of every answer; 0: none of these.
    pub status: u16,
    /// The time until the first byte of a blob.
    pub delay_milliseconds: u64,
    /// Bounds each blob; 0: unbounded.
    pub bytes_per_second: u64,
}

/// The registry fails as long as this lives.
#[derive(Debug)]
pub struct Failing(PathBuf);

impl Failing {
    /// From now on. Requests that are under way go on as they began.
    pub fn with(cluster: &Cluster, faults: &Faults) -> Result<Self> {
        let path = cluster.registry().join("faults.json");
        // At once: the registry reads the file at each request.
        let new = path.with_extension("new");
        fs::write(&new, serde_json::to_string(faults)?)?;
        fs::rename(&new, &path)?;
        Ok(Self(path))
    }
}

impl Drop for Failing {
    fn drop(&mut self) {
        if let Err(error) = fs::remove_file(&self.0) {
            println!("the registry goes on failing: {error}");
        }
    }
}

/// What those who pull have asked a repository for, through either door, since the cluster was started; one line each:
/// `open|private GET|HEAD REPOSITORY manifests|blobs/REFERENCE`.
pub fn requests(cluster: &Cluster, repository: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(cluster.registry().join("requests.log"))?;
    let of = |line: &&str| line.split(' ').nth(2) == Some(repository);
    Ok(text.lines().filter(of).map(str::to_owned).collect())
}

/// Another tag of the images means what `tag` does. Both are full names. The node keeps nothing of it.
pub fn tag(cluster: &Cluster, tag: &str, another: &str) -> Result<()> {
    let hosts = cluster.config(NODE, "registries");
    let hosts = hosts.display();
    let script = format!(
        "set -e
         ctr -n moved images pull --local --hosts-dir {hosts} {tag} >&2
         ctr -n moved images export /var/moved.tar {tag}
         ctr -n moved images rm --sync {tag} >&2"
    );
    cluster.exec(NODE, &["sh", "-c", &script])?;
    let archive = cluster.var(NODE).join("moved.tar");
    let pushed = cluster.push(&archive, another);
    fs::remove_file(archive)?;
    pushed
}

/// Who gets in at the door with a password. The password is unlike anything else: wherever it is found, it has leaked.
#[derive(Debug, Deserialize)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

/// Reads them.
pub fn credentials(cluster: &Cluster) -> Result<Credentials> {
    let path = cluster.registry().join("credentials.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let credentials: Credentials = serde_json::from_str(&text)?;
    ensure!(credentials.password.len() > 20, "a poor password");
    Ok(credentials)
}

/// Makes a Secret for `imagePullSecrets` with them.
pub fn pull_secret(ns: &Ns, name: &str) -> Result<()> {
    let Credentials { username, password } = credentials(&ns.cluster)?;
    let config = json!({"auths": {PRIVATE: {"username": username, "password": password}}}).to_string();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": ns.name},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    ns.cluster.kubectl_with(&["create", "-f", "-"], &secret.to_string()).map(drop)
}
