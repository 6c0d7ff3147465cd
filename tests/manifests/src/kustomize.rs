//! The part of kustomize that `deploy/` and its users need: resources, components, JSON patches, names of images. Any
//! other field is an error, so that the tests never judge less than kubectl applies. An example is `sortOptions`:
//! kubectl sorts in its own order anyway, and warns about that field at every run (kustomize's `krusty/kustomizer.go`).

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};
use serde::Deserialize;
use serde_json::Value;

use crate::object::{Object, text};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Kustomization {
    #[serde(rename = "apiVersion")]
    _api_version: String,
    kind: Kind,
    #[serde(default)]
    resources: Vec<String>,
    #[serde(default)]
    components: Vec<String>,
    #[serde(default)]
    patches: Vec<Patch>,
    #[serde(default)]
    images: Vec<Image>,
}

/// A component changes the other objects. kustomize accepts each kind only under its own field.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
enum Kind {
    Kustomization,
    Component,
}

/// A new name or tag for an image.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Image {
    name: String,
    #[serde(default)]
    new_name: Option<String>,
    #[serde(default)]
    new_tag: Option<String>,
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
    /// Adds only at the end of a list, `.../-`, or a new member.
    Add {
        path: String,
        value: Value,
    },
}

/// Every object that `kubectl apply -k FOLDER` applies, in the order of the files.
pub fn load(folder: &Path) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    let path = folder.join("kustomization.yaml");
    let kustomization = parse(&read(&path)?).with_context(|| path.display().to_string())?;
    kustomization.add_to(&mut objects, folder).with_context(|| path.display().to_string())?;
    Ok(objects)
}

/// The objects of a `kustomization.yaml` with that text, as if it were in the folder.
pub fn load_text(text: &str, folder: &Path) -> Result<Vec<Object>> {
    let mut objects = Vec::new();
    parse(text)?.add_to(&mut objects, folder)?;
    Ok(objects)
}

fn parse(text: &str) -> Result<Kustomization> {
    serde_saphyr::from_str(text).context("it uses what this loader does not know")
}

impl Kustomization {
    fn add_to(&self, objects: &mut Vec<Object>, folder: &Path) -> Result<()> {
        for resource in &self.resources {
            let path = folder.join(resource);
            if path.is_dir() {
                add(objects, &path, Kind::Kustomization)?;
            } else {
                objects.extend(documents(&path)?);
            }
        }
        for component in &self.components {
            add(objects, &folder.join(component), Kind::Component)?;
        }
        for patch in &self.patches {
            apply(objects, patch)?;
        }
        for image in &self.images {
            rename(objects, image)?;
        }
        Ok(())
    }
}

fn add(objects: &mut Vec<Object>, folder: &Path, kind: Kind) -> Result<()> {
    let path = folder.join("kustomization.yaml");
    let kustomization = parse(&read(&path)?).with_context(|| path.display().to_string())?;
    if kustomization.kind != kind {
        bail!("{} is no {kind:?}", path.display());
    }
    kustomization.add_to(objects, folder).with_context(|| path.display().to_string())
}

/// Renames an image in every Pod template that uses it.
fn rename(objects: &mut [Object], image: &Image) -> Result<()> {
    let mut found = false;
    let pods = objects.iter_mut().filter_map(|object| object.0.pointer_mut("/spec/template/spec/containers"));
    for container in pods.filter_map(Value::as_array_mut).flatten() {
        let (name, tag) = text(container, "/image").rsplit_once(':').unwrap_or_default();
        if name == image.name {
            let name = image.new_name.as_deref().unwrap_or(name);
            let tag = image.new_tag.as_deref().unwrap_or(tag);
            container["image"] = format!("{name}:{tag}").into();
            found = true;
        }
    }
    if !found {
        bail!("no image {} to rename", image.name);
    }
    Ok(())
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
