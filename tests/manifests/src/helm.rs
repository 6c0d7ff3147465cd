//! Helm, built by `cargo xtask helm`, and the chart in `deploy/chart`.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};
use serde_json::Value;

use crate::object::Object;
use crate::{root, skipped};

/// The chart's path in the checkout.
pub const CHART: &str = "deploy/chart";
/// The values of all components that can be combined, except runtimes and `monitoring`.
pub const COMPONENTS: [&str; 7] = [
    "lockedNamespace=true",
    "seccomp.localhost=true",
    "features.resizeCri=true",
    "features.evict=true",
    "features.imageUpdate=true",
    "features.imagePuller=true",
    "features.inPlace=true",
];

/// Annotation that only Helm uses.
const OWN: &str = "helm.sh/resource-policy";

/// The path of the built Helm. Without Helm, tests are skipped; in continuous integration they fail.
#[derive(Clone, Debug)]
pub struct Helm(PathBuf);

impl Helm {
    /// Finds Helm; `None` if it is not built.
    pub fn find() -> Result<Option<Self>> {
        let program = root().join("target/helm/helm");
        if program.is_file() {
            return Ok(Some(Self(program)));
        }
        skipped("Helm is not built; run `cargo xtask helm`")?;
        Ok(None)
    }

    /// The folder of Helm.
    pub fn folder(&self) -> Result<&Path> {
        self.0.parent().context("Helm is in no folder")
    }

    /// Runs Helm at the root of the checkout. Helm writes nothing to the user's folders.
    pub fn output(&self, args: &[&str]) -> Result<Output> {
        let home = self.folder()?.join("home");
        let homes = ["CACHE", "CONFIG", "DATA"].map(|kind| (format!("HELM_{kind}_HOME"), home.join(kind)));
        Ok(Command::new(&self.0).args(args).envs(homes).current_dir(root()).output()?)
    }

    /// Runs Helm, and returns its output. Fails if Helm fails.
    pub fn run(&self, args: &[&str]) -> Result<String> {
        let output = self.output(args)?;
        if !output.status.success() {
            bail!("helm {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr));
        }
        Ok(String::from_utf8(output.stdout)?)
    }

    /// Output of `helm template` for a chart with these values, installed as `pitstop` in a namespace.
    pub fn template(&self, chart: &str, namespace: &str, values: &[&str]) -> Result<String> {
        let mut args = vec!["template", "pitstop", chart, "--namespace", namespace];
        args.extend(values.iter().flat_map(|value| ["--set", value]));
        self.run(&args)
    }
}

/// The objects in the output of `helm template`, without Helm's own annotation.
pub fn objects(printed: &str) -> Result<Vec<Object>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(printed).context("it is not YAML")?;
    let mut objects: Vec<Object> = documents.into_iter().filter(|one| !one.is_null()).map(Object).collect();
    for object in &mut objects {
        let metadata = object.0.get_mut("metadata").and_then(Value::as_object_mut);
        let metadata = metadata.context("an object without metadata")?;
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(OWN);
            if annotations.is_empty() {
                metadata.remove("annotations");
            }
        }
    }
    Ok(objects)
}
