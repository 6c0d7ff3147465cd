//! The scenarios' cluster: the API server with pitstop's definitions, rights and policies, without other controllers or
//! kubelets.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::ListParams;
use kube::{Api, Client};
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::ContainerRecreateRequest;
use serde_json::{Value, json};

use crate::harness::cluster::{Cluster, env_path, kubectl, lab};
use crate::harness::say;

/// The real node of every cluster. It is halted.
const NODE: &str = "node1";
/// Components to stop: they would delete Pods of missing nodes, and evict Pods of unreachable nodes.
const OTHERS: [&str; 2] = ["controller-manager", "scheduler"];
/// Folder of pitstop's manifests.
const FOLDER: &str = "deploy/default";
/// Folder of pitstop's components.
const COMPONENTS: &str = "deploy/components";
/// Command that removes the webhook: the controller under test is no Pod, so the API server could not reach it.
const WEBHOOK: [&str; 3] = ["delete", "mutatingwebhookconfiguration", "pitstop"];
/// Longest wait until the API server serves the kinds.
const PATIENCE: Duration = Duration::from_secs(30);

/// A prepared cluster.
pub(crate) struct Stage {
    /// A client with the administrator's rights.
    pub(crate) client: Client,
    /// Path of the API server's audit log.
    pub(crate) audit_log: PathBuf,
    /// Folder of the controller's logs.
    pub(crate) logs: PathBuf,
    /// Path of the controller's program.
    pub(crate) program: PathBuf,
}

impl Stage {
    /// Prepares the running cluster, with these components of pitstop. Afterwards it cannot serve other purposes.
    pub(crate) async fn prepare(components: &[&str]) -> Result<Self> {
        let cluster = Cluster::connect().await?;
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        say("leaving of the cluster only the API server and etcd");
        for other in OTHERS {
            lab(&["stop", other])?;
        }
        lab(&["halt", NODE])?;
        let logs = root.join("target/scale");
        let install = logs.join("install");
        fs::create_dir_all(&install).with_context(|| format!("cannot make {}", install.display()))?;
        fs::write(install.join("kustomization.yaml"), kustomization(components).to_string())?;
        kubectl(&["apply", "-k", &install.to_string_lossy()])?;
        kubectl(&WEBHOOK)?;
        let program = env_path("PITSTOP_CONTROLLER")?;
        let stage = Self { audit_log: cluster.audit_log(), client: cluster.client, logs, program };
        stage.until_served().await?;
        Ok(stage)
    }

    async fn until_served(&self) -> Result<()> {
        let requests: Api<ContainerRecreateRequest> = Api::all(self.client.clone());
        let books: Api<NodeWork> = Api::all(self.client.clone());
        let begin = Instant::now();
        let one = ListParams::default().limit(1);
        while requests.list(&one).await.is_err() || books.list(&one).await.is_err() {
            if begin.elapsed() > PATIENCE {
                bail!("the API server does not serve pitstop's kinds after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        Ok(())
    }
}

/// The kustomization of the folder `target/scale/install`.
fn kustomization(components: &[&str]) -> Value {
    let of = |name: &&str| format!("../../../{COMPONENTS}/{name}");
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("../../../{FOLDER}")],
        "components": components.iter().map(of).collect::<Vec<_>>(),
    })
}
