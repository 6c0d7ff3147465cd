//! Manifests to apply: the folders of `deploy/` with the names of the built images, for the nodes of these images.
//! `target/deploy` gets one for each folder that can be installed as it is, and the values for the Helm chart.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::{AMD64, Built};
use crate::progress::note;

/// Names under `target/deploy`, and the folders of the checkout.
const FOLDERS: [(&str, &str); 3] = [
    ("default", "deploy/default"),
    ("gate-webhook", "deploy/overlays/gate-webhook"),
    ("resize-cri", "deploy/overlays/resize-cri"),
];

/// Architectures that `deploy/` selects.
const SELECTED: [&str; 1] = [AMD64.architecture];
/// Path of the node selector.
const ARCHITECTURE: &str = "/spec/template/spec/nodeSelector/kubernetes.io~1arch";
/// Path of the pull policy for the one image of a workload's Pods.
const PULL_POLICY: &str = "/spec/template/spec/containers/0/imagePullPolicy";

/// Where nodes get the images from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source<'a> {
    /// The user loads them on each node. A node without them must not pull: an image from a foreign registry with the
    /// name in `deploy/` would get the runtime's socket.
    Nodes,
    /// The registry of the cluster on this machine, which has them under the names in `deploy/`.
    Cluster,
    /// A registry, with its path.
    Registry(&'a str),
}

/// Writes all manifests, for nodes of these architectures.
pub(super) fn write(root: &Path, images: &[Built], architectures: &[&str], source: Source<'_>) -> Result<()> {
    for (name, folder) in FOLDERS {
        let path = root.join("target/deploy").join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        super::write(
            &path.join("kustomization.yaml"),
            kustomization(folder, images, architectures, source).as_bytes(),
        )?;
    }
    let values = values(images, architectures, source);
    super::write(&root.join("target/deploy/values.yaml"), values.as_bytes())?;
    note("target/deploy/default: what to apply, with these images; values.yaml: the same for Helm");
    Ok(())
}

/// The values of the chart.
fn values(images: &[Built], architectures: &[&str], source: Source<'_>) -> String {
    let from = match source {
        Source::Registry(registry) => format!("registry: \"{registry}\""),
        // Tests of the chart on a cluster of this machine have the images on the node.
        Source::Nodes | Source::Cluster => "pullPolicy: Never".to_owned(),
    };
    let mut text = format!(
        "# deploy/chart with the images of the last `cargo xtask image`, which wrote this.\nimage:\n  {from}\n"
    );
    if architectures != SELECTED {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  architectures: [{}]", architectures.join(", "));
    }
    for image in images {
        // Writing to a String cannot fail.
        let _ = write!(text, "  {}:\n    tag: {}\n", image.name(), image.tag);
    }
    text
}

fn kustomization(folder: &str, images: &[Built], architectures: &[&str], source: Source<'_>) -> String {
    let mut text = format!(
        "# {folder} with the images of the last `cargo xtask image`, which wrote this.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\n\
         kind: Kustomization\n\
         resources:\n  - ../../../{folder}\n\
         images:\n"
    );
    for image in images {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  - name: {}", image.repository);
        if let Source::Registry(registry) = source {
            let _ = writeln!(text, "    newName: {registry}/{}", image.name());
        }
        let _ = writeln!(text, "    newTag: {}", image.tag);
    }
    text + &patches(architectures, source)
}

/// Patches that make the workloads select nodes of these architectures, and never pull if nodes have the images.
/// Empty if `deploy/` already fits.
fn patches(architectures: &[&str], source: Source<'_>) -> String {
    let selector = match architectures {
        _ if architectures == SELECTED => None,
        [only] => Some(format!("{{path: {ARCHITECTURE}, op: replace, value: {only}}}")),
        // A selector has one value for a label.
        _ => Some(format!("{{path: {ARCHITECTURE}, op: remove}}")),
    };
    let never =
        (source == Source::Nodes).then(|| format!("{{path: {PULL_POLICY}, op: replace, value: Never}}"));
    let operations: String =
        selector.into_iter().chain(never).fold(String::new(), |text, one| text + "      - " + &one + "\n");
    if operations.is_empty() {
        return operations;
    }
    format!("patches:\n  - target:\n      kind: Deployment|DaemonSet\n    patch: |-\n{operations}")
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::workspace;

    fn written(architectures: &[&str], source: Source<'_>) -> (tempfile::TempDir, String) {
        let root = tempfile::tempdir().unwrap();
        let image = Built {
            path: PathBuf::new(),
            repository: "pitstop.dev/daemon",
            tag: "0.1.0-aabbccddeeff".to_owned(),
            digest: String::new(),
        };
        write(root.path(), &[image], architectures, source).unwrap();
        let values = fs::read_to_string(root.path().join("target/deploy/values.yaml")).unwrap();
        (root, values)
    }

    fn text_of(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join("target/deploy").join(name).join("kustomization.yaml")).unwrap()
    }

    const IMAGES: &str = "images:\n  - name: pitstop.dev/daemon\n    newTag: 0.1.0-aabbccddeeff\n";

    #[test]
    fn each_names_its_folder_and_the_images() {
        let (root, values) = written(&["amd64"], Source::Cluster);
        for (name, folder) in FOLDERS {
            let text = text_of(root.path(), name);
            assert!(text.contains(&format!("resources:\n  - ../../../{folder}\n")), "{text}");
            assert!(text.ends_with(IMAGES), "{text}");
            assert!(workspace::root().unwrap().join(folder).join("kustomization.yaml").is_file(), "{folder}");
        }
        let image = "image:\n  pullPolicy: Never\n  daemon:\n    tag: 0.1.0-aabbccddeeff\n";
        assert!(values.ends_with(image), "{values}");
    }

    #[test]
    fn nodes_are_selected_that_the_images_are_for() {
        let selector = |architectures: &[&str]| {
            let (root, values) = written(architectures, Source::Cluster);
            let text = text_of(root.path(), "default");
            let patches = text.split_once(IMAGES).unwrap().1;
            let parsed: serde_json::Value = serde_saphyr::from_str(patches).unwrap();
            let patch = parsed["patches"][0]["patch"].as_str().unwrap();
            assert_eq!(parsed["patches"][0]["target"]["kind"], "Deployment|DaemonSet");
            let patch: serde_json::Value = serde_saphyr::from_str(patch).unwrap();
            let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
            (patch, values["image"]["architectures"].clone())
        };
        let path = ARCHITECTURE;
        assert_eq!(
            selector(&["arm64"]),
            (json!([{"path": path, "op": "replace", "value": "arm64"}]), json!(["arm64"]))
        );
        assert_eq!(
            selector(&["amd64", "arm64"]),
            (json!([{"path": path, "op": "remove"}]), json!(["amd64", "arm64"]))
        );
    }

    #[test]
    fn nodes_that_have_the_images_ask_no_registry() {
        let (root, values) = written(&["amd64"], Source::Nodes);
        assert!(values.contains("image:\n  pullPolicy: Never\n"), "{values}");
        let text = text_of(root.path(), "default");
        let patch = format!(
            "patches:\n  - target:\n      kind: Deployment|DaemonSet\n    patch: |-\n      \
             - {{path: {PULL_POLICY}, op: replace, value: Never}}\n"
        );
        assert!(text.ends_with(&patch), "{text}");
    }

    #[test]
    fn a_registry_is_named_and_asked() {
        let (root, values) = written(&["amd64"], Source::Registry("registry.example.com/pitstop"));
        assert!(
            values.contains("image:\n  registry: \"registry.example.com/pitstop\"\n  daemon:\n"),
            "{values}"
        );
        let text = text_of(root.path(), "default");
        let name = "    newName: registry.example.com/pitstop/daemon\n    newTag: 0.1.0-aabbccddeeff\n";
        assert!(text.ends_with(name), "{text}");
    }

    /// A patch of a missing field would be refused.
    #[test]
    fn the_manifests_select_what_is_patched() {
        let root = workspace::root().unwrap();
        for file in ["deploy/base/controller/deployment.yaml", "deploy/base/daemon/daemonset.yaml"] {
            let text = fs::read_to_string(root.join(file)).unwrap();
            let object: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
            assert_eq!(
                object["spec"]["template"]["spec"]["nodeSelector"]["kubernetes.io/arch"], SELECTED[0],
                "{file}"
            );
            assert_eq!(object.pointer(PULL_POLICY).unwrap(), "IfNotPresent", "{file}");
        }
    }
}
