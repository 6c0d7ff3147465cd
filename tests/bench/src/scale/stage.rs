//! The cluster as the scenarios need it: the API server with pitstop's definitions, rights and policies, and nobody else who
//! acts on objects.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use kube::api::ListParams;
use kube::{Api, Client};
use pitstop_api::nodework::NodeWork;
use pitstop_api::recreate::ContainerRecreateRequest;
use serde_json::{Value, json};

use crate::harness::cluster::{Cluster, given, kubectl, lab};
use crate::harness::say;

/// The node of every cluster; nothing runs there.
const NODE: &str = "node1";
/// What would delete Pods of nodes that do not exist, and evict those of nodes that do not answer.
const OTHERS: [&str; 2] = ["controller-manager", "scheduler"];
/// All of pitstop.
const FOLDER: &str = "deploy/default";
/// What may be installed beside.
const COMPONENTS: &str = "deploy/components";
/// The controller under test is no Pod, so the API server could not reach its webhook.
const WEBHOOK: [&str; 3] = ["delete", "mutatingwebhookconfiguration", "pitstop"];
/// Until the kinds are served.
const PATIENCE: Duration = Duration::from_secs(30);

/// It.
pub(crate) struct Stage {
    /// With the administrator's rights.
    pub(crate) client: Client,
    /// Where the API server writes down every request.
    pub(crate) audit_log: PathBuf,
    /// Where the controller's logs go.
    pub(crate) logs: PathBuf,
    /// The controller's program.
    pub(crate) program: PathBuf,
}

impl Stage {
    /// Prepares the cluster that runs, with these components of pitstop. It is of no use for anything else afterwards.
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
        let program = given("PITSTOP_CONTROLLER")?;
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

/// Of the folder `target/scale/install`.
fn kustomization(components: &[&str]) -> Value {
    let of = |name: &&str| format!("../../../{COMPONENTS}/{name}");
    json!({
        "apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization",
        "resources": [format!("../../../{FOLDER}")],
        "components": components.iter().map(of).collect::<Vec<_>>(),
    })
}
