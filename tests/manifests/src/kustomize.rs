//! The part of kustomize that `deploy/` uses: resources and JSON patches. Any other field is an error, so that
//! the tests never judge less than what is applied.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::object::Object;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    #[serde(rename = "kind")]
    _kind: String,
    /// The order of application; only what is applied itself needs to say it.
    #[serde(default, rename = "sortOptions")]
    _sort_options: Option<SortOptions>,
    resources: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SortOptions {
    #[serde(rename = "order")]
    _order: Order,
}

/// Only the order in which resources are listed: [`load`] gives them back so.
#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum Order {
    Fifo,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Patch {
    target: Target,
    patch: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    kind: String,
    name: String,
}

#[derive(Deserialize)]
#[serde(tag = "op", rename_all = "lowercase", deny_unknown_fields)]
enum Operation {
    Test {
        path: String,
        value: Value,
    },
    Replace {
        path: String,
        value: Value,
    },
    /// Only at the end of a list, `.../-`, or of a member that is not there yet.
    Add {
        path: String,
        value: Value,
    },
}

/// Every object that `kubectl apply -k FOLDER` applies, in that order.
pub fn load(folder: &Path) -> Result<Vec<Object>> {
    let path = folder.join("kustomization.yaml");
    let kustomization: Kustomization = serde_saphyr::from_str(&read(&path)?)
        .with_context(|| format!("{} uses what this loader does not know", path.display()))?;
    let mut objects = Vec::new();
    for resource in &kustomization.resources {
        let path = folder.join(resource);
        if path.is_dir() {
            objects.extend(load(&path)?);
        } else {
            objects.extend(documents(&path)?);
        }
    }
    for patch in &kustomization.patches {
        apply(&mut objects, patch).with_context(|| path.display().to_string())?;
    }
    Ok(objects)
}

fn documents(path: &Path) -> Result<Vec<Object>> {
    let documents: Vec<Value> = serde_saphyr::from_multiple(&read(path)?)
        .with_context(|| format!("{} is not YAML", path.display()))?;
    let objects: Vec<Object> = documents.into_iter().map(Object).collect();
    if objects.is_empty() || objects.iter().any(|object| object.kind().is_empty() || object.name().is_empty())
    {
        bail!("{} holds something that is no Kubernetes object", path.display());
    }
    Ok(objects)
}

fn apply(objects: &mut [Object], patch: &Patch) -> Result<()> {
    let Target { kind, name } = &patch.target;
    let operations: Vec<Operation> = serde_saphyr::from_str(&patch.patch)?;
    let object = objects
        .iter_mut()
        .find(|object| object.kind() == kind && object.name() == name)
        .with_context(|| format!("no {kind} {name} to patch"))?;
    for operation in operations {
        match operation {
            Operation::Test { path, value } => {
                if object.0.pointer(&path) != Some(&value) {
                    bail!("{kind} {name}: {path} is not {value}");
                }
            }
            Operation::Replace { path, value } => {
                *object.0.pointer_mut(&path).with_context(|| format!("{kind} {name}: no {path}"))? = value;
            }
            Operation::Add { path, value } => {
                let (above, member) = path.rsplit_once('/').unwrap_or_default();
                match object.0.pointer_mut(above) {
                    Some(Value::Array(list)) if member == "-" => list.push(value),
                    Some(Value::Object(map)) if !map.contains_key(member) => {
                        map.insert(member.to_owned(), value);
                    }
                    _ => bail!("{kind} {name}: no list {path}"),
                }
            }
        }
    }
    Ok(())
}

fn read(path: &Path) -> Result<String> {
    fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))
}
