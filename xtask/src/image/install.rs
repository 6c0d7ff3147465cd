//! What is applied: the folders of `deploy/` with the names of the images that were built, on nodes that these are for. One
//! under `target/deploy` for each folder that can be installed as it is, and the values for the Helm chart.

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

/// What `deploy/` selects nodes by.
const SELECTED: [&str; 1] = [AMD64.architecture];

/// Writes all of them, for nodes with processors of these architectures.
pub(super) fn write(root: &Path, images: &[Built], architectures: &[&str]) -> Result<()> {
    for (name, folder) in FOLDERS {
        let path = root.join("target/deploy").join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        super::write(
            &path.join("kustomization.yaml"),
            kustomization(folder, images, architectures).as_bytes(),
        )?;
    }
    super::write(&root.join("target/deploy/values.yaml"), values(images, architectures)?.as_bytes())?;
    note("target/deploy/default: what to apply, with these images; values.yaml: the same for Helm");
    Ok(())
}

/// The values of the chart. No registry has these images, so that none must be asked: they are loaded on the nodes.
fn values(images: &[Built], architectures: &[&str]) -> Result<String> {
    let mut text = "# deploy/chart with the images of the last `cargo xtask image`, which wrote this.\n\
                    # If you pushed them, set image.registry, and image.pullPolicy to IfNotPresent.\n\
                    image:\n  pullPolicy: Never\n"
        .to_owned();
    if architectures != SELECTED {
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  architectures: [{}]", architectures.join(", "));
    }
    for image in images {
        let (_, name) =
            image.repository.rsplit_once('/').with_context(|| format!("{}: no path", image.repository))?;
        // Writing to a String cannot fail.
        let _ = write!(text, "  {name}:\n    tag: {}\n", image.tag);
    }
    Ok(text)
}

fn kustomization(folder: &str, images: &[Built], architectures: &[&str]) -> String {
    let mut text = format!(
        "# {folder} with the images of the last `cargo xtask image`, which wrote this.\n\
         apiVersion: kustomize.config.k8s.io/v1beta1\n\
         kind: Kustomization\n\
         resources:\n  - ../../../{folder}\n\
         images:\n"
    );
    for image in images {
        // Writing to a String cannot fail.
        let _ = write!(text, "  - name: {}\n    newTag: {}\n", image.repository, image.tag);
    }
    text + &patches(architectures)
}

/// What makes the workloads select the nodes of these architectures; nothing where they do already.
fn patches(architectures: &[&str]) -> String {
    let operation = match architectures {
        _ if architectures == SELECTED => return String::new(),
        [only] => format!("op: replace\n        value: {only}"),
        // A selector has one value for a label.
        _ => "op: remove".to_owned(),
    };
    format!(
        "patches:\n  - target:\n      kind: Deployment|DaemonSet\n    patch: |-\n      \
         - path: /spec/template/spec/nodeSelector/kubernetes.io~1arch\n        {operation}\n"
    )
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use serde_json::json;

    use super::*;
    use crate::workspace;

    fn written(architectures: &[&str]) -> (tempfile::TempDir, String) {
        let root = tempfile::tempdir().unwrap();
        let image = Built {
            path: PathBuf::new(),
            repository: "pitstop.dev/daemon",
            tag: "0.1.0-aabbccddeeff".to_owned(),
        };
        write(root.path(), &[image], architectures).unwrap();
        let values = fs::read_to_string(root.path().join("target/deploy/values.yaml")).unwrap();
        (root, values)
    }

    fn text_of(root: &Path, name: &str) -> String {
        fs::read_to_string(root.join("target/deploy").join(name).join("kustomization.yaml")).unwrap()
    }

    const IMAGES: &str = "images:\n  - name: pitstop.dev/daemon\n    newTag: 0.1.0-aabbccddeeff\n";

    #[test]
    fn each_names_its_folder_and_the_images() {
        let (root, values) = written(&["amd64"]);
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
            let (root, values) = written(architectures);
            let text = text_of(root.path(), "default");
            let patches = text.split_once(IMAGES).unwrap().1;
            let parsed: serde_json::Value = serde_saphyr::from_str(patches).unwrap();
            let patch = parsed["patches"][0]["patch"].as_str().unwrap();
            assert_eq!(parsed["patches"][0]["target"]["kind"], "Deployment|DaemonSet");
            let patch: serde_json::Value = serde_saphyr::from_str(patch).unwrap();
            let values: serde_json::Value = serde_saphyr::from_str(&values).unwrap();
            (patch, values["image"]["architectures"].clone())
        };
        let path = "/spec/template/spec/nodeSelector/kubernetes.io~1arch";
        assert_eq!(
            selector(&["arm64"]),
            (json!([{"path": path, "op": "replace", "value": "arm64"}]), json!(["arm64"]))
        );
        assert_eq!(
            selector(&["amd64", "arm64"]),
            (json!([{"path": path, "op": "remove"}]), json!(["amd64", "arm64"]))
        );
    }

    /// A patch of what is not there would be refused.
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
        }
    }
}
