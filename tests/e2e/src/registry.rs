//! The cluster's image registry: its faults, its request log, and its endpoint with a password.
//! `tests/cluster/README.md` describes the files.

use std::fs;
use std::path::PathBuf;

use anyhow::{Context as _, Result, ensure};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::cluster::Cluster;
use crate::ns::{NODE, Ns};

/// Registry name of images that are pulled with a password. They are the same images as under other names.
pub const PRIVATE: &str = "private.pitstop.dev";

/// Faults of the registry for pulls. Pushes do not fail.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Faults {
    /// Prefix of the repositories that fail, without a registry (`test/busybox`); empty: all.
    pub repository: String,
    /// HTTP status of every answer; 0: no such fault.
    pub status: u16,
    /// Milliseconds until the first byte of a blob.
    pub delay_milliseconds: u64,
    /// Bytes per second of each blob; 0: unlimited.
    pub bytes_per_second: u64,
}

/// The registry fails until this is dropped.
#[derive(Debug)]
pub struct Failing(PathBuf);

impl Failing {
    /// Starts the faults. They do not affect requests that are already under way.
    pub fn with(cluster: &Cluster, faults: &Faults) -> Result<Self> {
        let path = cluster.registry().join("faults.json");
        // A rename is atomic: the registry reads the file at each request.
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

/// Requests of pulls to a repository, with or without password, since the cluster was started. One line each:
/// `open|private GET|HEAD REPOSITORY manifests|blobs/REFERENCE`.
pub fn requests(cluster: &Cluster, repository: &str) -> Result<Vec<String>> {
    let text = fs::read_to_string(cluster.registry().join("requests.log"))?;
    let of = |line: &&str| line.split(' ').nth(2) == Some(repository);
    Ok(text.lines().filter(of).map(str::to_owned).collect())
}

/// Pushes the image of `tag` under the name `another`. Both are full names. The node keeps nothing of it.
pub fn tag(cluster: &Cluster, tag: &str, another: &str) -> Result<()> {
    let hosts = cluster.config(NODE, "registries");
    let hosts = hosts.display();
    // Locally: with the transfer service, ctr 2.4.2 can end before the archive is whole.
    let script = format!(
        "set -e
         ctr -n moved images pull --local --hosts-dir {hosts} {tag} >&2
         ctr -n moved images export --local /var/moved.tar {tag}
         ctr -n moved images rm --sync {tag} >&2"
    );
    cluster.exec(NODE, &["sh", "-c", &script])?;
    let archive = cluster.var(NODE).join("moved.tar");
    let pushed = cluster.push(&archive, another);
    fs::remove_file(archive)?;
    pushed
}

/// Credentials for the private registry. The password is unlike any other text: wherever a test finds it, it has
/// leaked.
#[derive(Debug, Deserialize)]
pub struct Credentials {
    /// The user.
    pub username: String,
    /// The password.
    pub password: String,
}

/// Reads the credentials.
pub fn credentials(cluster: &Cluster) -> Result<Credentials> {
    let path = cluster.registry().join("credentials.json");
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let credentials: Credentials = serde_json::from_str(&text)?;
    ensure!(credentials.password.len() > 20, "a poor password");
    Ok(credentials)
}

/// Creates a Secret for `imagePullSecrets` with the credentials.
pub fn pull_secret(ns: &Ns, name: &str) -> Result<()> {
    let Credentials { username, password } = credentials(&ns.cluster)?;
    let config = json!({"auths": {PRIVATE: {"username": username, "password": password}}}).to_string();
    let secret = json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name, "namespace": ns.name},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": config}});
    ns.cluster.kubectl_with(&["create", "-f", "-"], &secret.to_string()).map(drop)
}
