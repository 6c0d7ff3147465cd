//! What is applied: the folders of `deploy/` with the names of the images that were built. One under `target/deploy` for
//! each folder that can be installed as it is, and the values for the Helm chart.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::Built;
use crate::progress::note;

/// Names under `target/deploy`, and the folders of the checkout.
const FOLDERS: [(&str, &str); 3] = [
    ("default", "deploy/default"),
    ("gate-webhook", "deploy/overlays/gate-webhook"),
    ("resize-cri", "deploy/overlays/resize-cri"),
];

/// Writes all of them.
pub(super) fn write(root: &Path, images: &[Built]) -> Result<()> {
    for (name, folder) in FOLDERS {
        let path = root.join("target/deploy").join(name);
        fs::create_dir_all(&path).with_context(|| format!("cannot make {}", path.display()))?;
        super::write(&path.join("kustomization.yaml"), kustomization(folder, images).as_bytes())?;
    }
    super::write(&root.join("target/deploy/values.yaml"), values(images)?.as_bytes())?;
    note("target/deploy/default: what to apply, with these images; values.yaml: the same for Helm");
    Ok(())
}

/// The values of the chart. No registry has these images, so that none must be asked: they are loaded on the nodes.
fn values(images: &[Built]) -> Result<String> {
    let mut text = "# deploy/chart with the images of the last `cargo xtask image`, which wrote this.\n\
                    # If you pushed them, set image.registry, and image.pullPolicy to IfNotPresent.\n\
                    image:\n  pullPolicy: Never\n"
        .to_owned();
    for image in images {
        let (_, name) =
            image.repository.rsplit_once('/').with_context(|| format!("{}: no path", image.repository))?;
        // Writing to a String cannot fail.
        let _ = write!(text, "  {name}:\n    tag: {}\n", image.tag);
    }
    Ok(text)
}

fn kustomization(folder: &str, images: &[Built]) -> String {
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
    text
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;
    use crate::workspace;

    #[test]
    fn each_names_its_folder_and_the_images() {
        let root = tempfile::tempdir().unwrap();
        let image = Built {
            path: PathBuf::new(),
            repository: "pitstop.dev/daemon",
            tag: "0.1.0-aabbccddeeff".to_owned(),
        };
        write(root.path(), &[image]).unwrap();
        for (name, folder) in FOLDERS {
            let path = root.path().join("target/deploy").join(name);
            let text = fs::read_to_string(path.join("kustomization.yaml")).unwrap();
            assert!(text.contains(&format!("resources:\n  - ../../../{folder}\n")), "{text}");
            let images = "images:\n  - name: pitstop.dev/daemon\n    newTag: 0.1.0-aabbccddeeff\n";
            assert!(text.ends_with(images), "{text}");
            assert!(workspace::root().unwrap().join(folder).join("kustomization.yaml").is_file(), "{folder}");
        }
        let values = fs::read_to_string(root.path().join("target/deploy/values.yaml")).unwrap();
        let image = "image:\n  pullPolicy: Never\n  daemon:\n    tag: 0.1.0-aabbccddeeff\n";
        assert!(values.ends_with(image), "{values}");
    }
}
