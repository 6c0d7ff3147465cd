//! The cluster: its API, its `kubectl`, and the components that tests crash.

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use kube::Client;
use pitstop_manifests_test::docs;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::wait::{SHORT, until};

/// The running cluster.
pub struct Cluster {
    /// The administrator's client.
    pub client: Client,
    program: PathBuf,
    dir: PathBuf,
    /// Whether the API server serves `pods/resize`.
    resizes: bool,
    /// Whether the API server serves `MutatingAdmissionPolicy`, as Kubernetes 1.36 and later do.
    mutates: bool,
    /// Minor release: 36 for 1.36.
    minor: u32,
}

impl Cluster {
    /// Connects to the cluster that `KUBECONFIG` names.
    pub async fn connect() -> Result<Self> {
        let built = root().join("target/cluster");
        let given = |key: &str, default: &str| {
            std::env::var_os(key).map_or_else(|| built.join(default), PathBuf::from)
        };
        let client = pitstop_kit::client::connect("pitstop-e2e", env!("CARGO_PKG_VERSION")).await?;
        let core = client.list_core_api_resources("v1").await?;
        let admission = client.list_api_group_resources("admissionregistration.k8s.io/v1").await?;
        let version = client.apiserver_version().await?;
        Ok(Self {
            client,
            minor: version.minor.parse().with_context(|| format!("the release {version:?}"))?,
            resizes: core.resources.iter().any(|resource| resource.name == "pods/resize"),
            mutates: admission.resources.iter().any(|one| one.name == "mutatingadmissionpolicies"),
            program: given("PITSTOP_CLUSTER_BIN", "bin/pitstop-cluster"),
            dir: given("PITSTOP_CLUSTER_DIR", "default"),
        })
    }

    /// Name that distinguishes this cluster from others on this machine.
    pub fn name(&self) -> Result<&str> {
        self.dir.file_name().and_then(|name| name.to_str()).context("the cluster's directory has no name")
    }

    /// Runs `kubectl` and returns what it prints.
    pub fn kubectl(&self, args: &[&str]) -> Result<String> {
        printed(args, Command::new(self.program.with_file_name("kubectl")).args(args).output()?)
    }

    /// Runs `kubectl` with `input` on its standard input.
    pub fn kubectl_with(&self, args: &[&str], input: &str) -> Result<String> {
        let mut child = Command::new(self.program.with_file_name("kubectl"))
            .args(args)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        child.stdin.take().context("no standard input")?.write_all(input.as_bytes())?;
        printed(args, child.wait_with_output()?)
    }

    /// Whether API server and kubelets resize Pods.
    pub fn resizes(&self) -> bool {
        self.resizes
    }

    /// Whether kubelets do not update a Pod's cgroup when they resize a container that does not run
    /// (kubernetes#138760).
    pub fn leaves_pods_too_small(&self) -> bool {
        self.resizes && self.minor < 37
    }

    /// The folder that a user would install here, with the images of the last `cargo xtask image`.
    pub fn folder(&self) -> PathBuf {
        root().join(match (self.resizes, self.mutates) {
            (true, true) => "target/deploy/default",
            (true, false) => "target/deploy/gate-webhook",
            (false, _) => "target/deploy/resize-cri",
        })
    }

    /// Writes a kustomization of `base` with these components and image tags; returns its folder.
    pub fn combined(&self, base: &Path, components: &[&str], tags: &[(&str, &str)]) -> Result<PathBuf> {
        let images = tags.iter().map(|(name, tag)| json!({"name": name, "newTag": tag}));
        let checkout = Path::new("../../..");
        let components = components.iter().map(|name| checkout.join("deploy/components").join(name));
        let kustomization = json!({
            "apiVersion": "kustomize.config.k8s.io/v1beta1",
            "kind": "Kustomization",
            "resources": [checkout.join(base.strip_prefix(root())?)],
            "components": components.collect::<Vec<_>>(),
            "images": images.collect::<Vec<_>>(),
        });
        let folder = root().join("target/e2e").join(self.name()?);
        fs::create_dir_all(&folder)?;
        // JSON is YAML.
        fs::write(folder.join("kustomization.yaml"), kustomization.to_string())?;
        Ok(folder)
    }

    /// Installs pitstop with these components of `deploy/components`.
    pub fn install_with(&self, components: &[&str]) -> Result<()> {
        self.apply(&self.combined(&self.folder(), components, &[])?)
    }

    /// Runs every documented block with that mark, at the root of the checkout, with this cluster's `kubectl` and our
    /// Helm. `texts` holds replacements, from and to. Fails if a block fails, or if kustomize finds fault with a
    /// kustomization.
    pub fn documented(&self, mark: &str, texts: &[(&str, &str)]) -> Result<()> {
        let blocks = docs::marked(mark)?;
        ensure!(!blocks.is_empty(), "nothing is marked `run: {mark}`");
        for block in blocks {
            let script = texts.iter().fold(block.text, |script, (from, to)| script.replace(from, to));
            println!("documented, {mark}:\n{script}");
            self.sh(&script)?;
        }
        Ok(())
    }

    fn sh(&self, script: &str) -> Result<()> {
        let folder = self.program.parent().context("the cluster's program is in no folder")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let own = [folder.to_owned(), root().join("target/helm")];
        let path = std::env::join_paths(own.into_iter().chain(std::env::split_paths(&path)))?;
        let output = Command::new("bash")
            .args(["-e", "-o", "pipefail", "-c", script])
            .current_dir(root())
            .env("PATH", path)
            .stdin(Stdio::null())
            .output()?;
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        printed(&[script], output)?;
        ensure!(!stderr.contains("kustomization") && !stderr.contains("deprecated"), "{script}: {stderr}");
        Ok(())
    }

    /// Installs pitstop, or restores what a test has changed of it.
    pub fn install(&self) -> Result<()> {
        self.apply(&self.folder())
    }

    /// Applies a kustomization with the cheapest options. `kubectl` otherwise reads the schemas of the whole API, for
    /// existing objects and unknown fields, which takes a second. Tests run the documentation's commands unchanged.
    /// [`Self::accepts`] finds unknown fields.
    pub fn apply(&self, folder: &Path) -> Result<()> {
        let how = ["apply", "--server-side", "--force-conflicts", "--validate=false", "-k"];
        self.kubectl(&[&how[..], &[&folder.to_string_lossy()]].concat()).map(drop)
    }

    /// Applies the objects of `-k FOLDER`, or of `input` with `-f -`, as a server dry run. Returns a line for each
    /// object.
    pub fn accepts(&self, source: [&str; 2], input: &str) -> Result<String> {
        let how = ["apply", "--server-side", "--force-conflicts", "--dry-run=server"];
        self.kubectl_with(&[&how[..], &source].concat(), input)
    }

    /// Removes pitstop as a user would, with the definitions and all objects of its kinds.
    pub fn uninstall(&self) -> Result<()> {
        self.kubectl(&["delete", "-k", &self.folder().to_string_lossy(), "--ignore-not-found"]).map(drop)
    }

    /// Installs the definitions of pitstop's kinds, and removes pitstop if it is deployed.
    pub async fn install_definitions(&self) -> Result<()> {
        if !self.kubectl(&["get", "namespace", "pitstop-system", "--ignore-not-found"])?.is_empty() {
            self.uninstall()?;
        }
        self.apply(&root().join("deploy/crds"))?;
        // An established definition may still be unknown to the handlers for a moment.
        let served =
            ["get", "containerrecreaterequests.v1beta1.apps.kruise.io,nodeworks", "--all-namespaces"];
        until("the kinds are served", SHORT, async || Ok(self.kubectl(&served).map(Some)?)).await?;
        Ok(())
    }

    /// Kills a component (`apiserver`, `containerd@node1`, ...), which then starts again.
    pub fn kill(&self, component: &str) -> Result<()> {
        self.lab(&["kill", component]).map(drop)
    }

    /// Kills a component, which then stays stopped.
    pub fn stop(&self, component: &str) -> Result<()> {
        self.lab(&["stop", component]).map(drop)
    }

    /// Starts a stopped component.
    pub fn start(&self, component: &str) -> Result<()> {
        self.lab(&["start", component]).map(drop)
    }

    /// Crashes a node, which then starts again with the same disk.
    pub fn reboot(&self, node: &str) -> Result<()> {
        self.lab(&["reboot", node]).map(drop)
    }

    /// Puts an image archive into the cluster's registry under a name.
    pub fn push(&self, archive: &Path, reference: &str) -> Result<()> {
        self.lab(&["push", &archive.to_string_lossy(), reference]).map(drop)
    }

    /// Runs a command on a node as root, and returns what it prints.
    pub fn exec(&self, node: &str, command: &[&str]) -> Result<String> {
        self.lab(&[&["exec", node, "--"], command].concat())
    }

    /// A value of `pitstop-cluster status --json`, by its JSON pointer.
    pub fn status<T: DeserializeOwned>(&self, pointer: &str) -> Result<T> {
        let text = self.lab(&["status", "--json"])?;
        let all: serde_json::Value = serde_json::from_str(&text)?;
        let value = all.pointer(pointer).with_context(|| format!("the cluster's status has no {pointer}"))?;
        Ok(serde_json::from_value(value.clone())?)
    }

    /// Path on this machine of a node's `/var`.
    pub fn var(&self, node: &str) -> PathBuf {
        self.dir.join("boxes").join(node).join("var")
    }

    /// Path of a configuration file of a node's component.
    pub fn config(&self, node: &str, file: &str) -> PathBuf {
        self.dir.join("boxes").join(node).join("config").join(file)
    }

    /// Folder with the files of the image registry.
    pub fn registry(&self) -> PathBuf {
        self.dir.join("registry")
    }

    fn lab(&self, args: &[&str]) -> Result<String> {
        printed(args, Command::new(&self.program).arg("--dir").arg(&self.dir).args(args).output()?)
    }
}

fn printed(args: &[&str], output: Output) -> Result<String> {
    if !output.status.success() {
        bail!("{}: {}: {}", args.join(" "), output.status, String::from_utf8_lossy(&output.stderr).trim());
    }
    String::from_utf8(output.stdout).with_context(|| args.join(" "))
}

/// The root of the checkout.
pub fn root() -> PathBuf {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    fs::canonicalize(&path).unwrap_or(path)
}
