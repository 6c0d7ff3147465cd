//! The differences between two Pod templates of a workload, as far as running Pods can follow.

use std::collections::BTreeMap;

use pitstop_api::image::Reference;
use pitstop_api::image_update::MAX_CONTAINERS;
use pitstop_api::labels;
use pitstop_api::quantity::{Resource, Resources};
use serde_json::{Map, Value, json};

use crate::pod::Pod;

/// The lists of containers in a Pod's spec.
const LISTS: [&str; 2] = ["containers", "initContainers"];

/// Annotations whose change asks for a restart: of `kubectl rollout restart`, and of tools that restart Pods when a
/// `ConfigMap` or `Secret` changes (<https://github.com/stakater/Reloader>, and the checksums of Helm charts).
const RESTARTS: [&str; 2] = ["kubectl.kubernetes.io/restartedAt", "reloader.stakater.com/last-reloaded-from"];
/// Prefix of further such annotations.
const CHECKSUM: &str = "checksum/";

/// Label by which a `Deployment` tells its `ReplicaSet`s apart: the same template has another value in each.
pub(crate) const SET_HASH: &str = "pod-template-hash";

/// Distinguishes a template from the others of its `Deployment`. It is a hash of what running Pods can get, as the user
/// wrote it, so defaults of a newer API server do not change it.
///
/// `restarts`: further annotations that ask for a restart.
pub fn identity(template: &Value, restarts: &[String]) -> String {
    let mut template = plain(template);
    let containers = take_containers(&mut template).into_iter();
    let containers: Vec<_> =
        containers.map(|TemplateContainer { name, image, resources, .. }| (name, image, resources)).collect();
    let restarts = take_restarts(&mut template, restarts);
    format!("{:016x}", labels::hash(&json!([containers, restarts]).to_string()))
}

/// The wanted state of containers that can change in place, by name.
pub fn wanted(template: &Value) -> BTreeMap<String, Wanted> {
    let containers = take_containers(&mut template.clone()).into_iter();
    let wanted = |TemplateContainer { name, image, resources, .. }| (name, Wanted { image, resources });
    containers.map(wanted).collect()
}

/// How one template differs from another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Change {
    /// In what running Pods can get.
    InPlace(Delta),
    /// In something that running Pods cannot get: what.
    Other(String),
}

/// What a running Pod can get.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Delta {
    /// New resources.
    pub sizes: Vec<Size>,
    /// New images.
    pub images: Vec<Image>,
    /// A restart of the other containers.
    pub restart: bool,
}

impl Delta {
    /// Nothing differs.
    pub fn is_none(&self) -> bool {
        self.sizes.is_empty() && self.images.is_empty() && !self.restart
    }
}

/// The image of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The container's name.
    pub container: String,
    /// The image.
    pub image: String,
    /// The image in the old template.
    pub before: String,
}

/// The resources of a container.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Size {
    /// The container's name.
    pub container: String,
    /// CPU and memory in the template; a missing request equals the limit.
    pub resources: Resources,
    /// The resources in the old template.
    pub before: Resources,
}

impl Image {
    /// The Pod has the old image.
    pub fn was_in(&self, pod: &Pod) -> bool {
        pod.container(&self.container).is_some_and(|container| same_image(&container.image, &self.before))
    }
}

impl Size {
    /// The Pod has the old resources.
    pub fn was_in(&self, pod: &Pod) -> bool {
        let own = pod.container(&self.container).map(|container| container.resources.effective());
        let Self { resources, before, .. } = self;
        own.is_some_and(|own| before != resources && before.agrees(own, *resources))
    }
}

/// The wanted state of a container that can change in place.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Wanted {
    /// Its image.
    pub image: String,
    /// Its resources.
    pub resources: Resources,
}

impl Change {
    /// From the template `old` to `new` (`spec.template` of a workload). `restarts`: further annotations that ask for a
    /// restart.
    pub fn between(old: &Value, new: &Value, restarts: &[String]) -> Self {
        let (mut old, mut new) = (plain(old), plain(new));
        let (before, after) = (take_containers(&mut old), take_containers(&mut new));
        let restart = take_restarts(&mut old, restarts) != take_restarts(&mut new, restarts);
        if let Some(path) = difference(&old, &new, "spec.template") {
            return Self::Other(format!("{path} differs"));
        }
        let mut delta = Delta { restart, ..Delta::default() };
        // All other fields are equal, so both lists have the same containers.
        for (before, after) in before.into_iter().zip(after) {
            if let Err(why) = delta.take(before, after) {
                return Self::Other(format!("spec.template.spec.{why}"));
            }
        }
        if delta.images.len() > MAX_CONTAINERS {
            return Self::Other(format!("more than {MAX_CONTAINERS} images differ"));
        }
        Self::InPlace(delta)
    }

    /// The templates are the same.
    pub fn is_none(&self) -> bool {
        matches!(self, Self::InPlace(delta) if delta.is_none())
    }
}

/// Succeeds if both images are of the same repository.
pub(crate) fn same_repository(before: &str, after: &str) -> Result<(), String> {
    let (before, after) = (Reference::parse(before)?, Reference::parse(after)?);
    before.same_repository(&after).then_some(()).ok_or_else(|| "is of another repository".to_owned())
}

/// A Pod has the image that a template names, perhaps with the pulled digest appended.
pub(crate) fn same_image(has: &str, named: &str) -> bool {
    let (Ok(has), Ok(named)) = (Reference::parse(has), Reference::parse(named)) else { return false };
    let digest = named.digest.is_none() || named.digest == has.digest;
    digest && has.same_repository(&named) && (has.own_tag() == named.own_tag() || named.digest.is_some())
}

/// Without fields that mean nothing: null values, the merge directive of a `ControllerRevision`, and the label that
/// each `ReplicaSet` adds.
fn plain(value: &Value) -> Value {
    match value {
        Value::Object(fields) => {
            let kept =
                fields.iter().filter(|(key, value)| !value.is_null() && *key != "$patch" && *key != SET_HASH);
            Value::Object(kept.map(|(key, value)| (key.clone(), plain(value))).collect())
        }
        Value::Array(items) => Value::Array(items.iter().map(plain).collect()),
        other => other.clone(),
    }
}

impl Delta {
    /// Adds the differences of one container. Fails with what it cannot get.
    fn take(&mut self, before: TemplateContainer, after: TemplateContainer) -> Result<(), String> {
        let TemplateContainer { path, name, image, resources } = after;
        if let Some(removed) = removed_amount(&before.resources, &resources) {
            return Err(format!("{path}.resources.{removed} is removed, which a running Pod cannot lose"));
        }
        if before.resources != resources {
            self.sizes.push(Size { container: name.clone(), resources, before: before.resources });
        }
        if before.image != image {
            same_repository(&before.image, &image).map_err(|why| format!("{path}.image {why}"))?;
            self.images.push(Image { container: name, image, before: before.image });
        }
        Ok(())
    }
}

/// The first amount that was removed.
fn removed_amount(before: &Resources, after: &Resources) -> Option<&'static str> {
    let amounts = [
        ("requests.cpu", before.cpu_request, after.cpu_request),
        ("limits.cpu", before.cpu_limit, after.cpu_limit),
        ("requests.memory", before.memory_request, after.memory_request),
        ("limits.memory", before.memory_limit, after.memory_limit),
    ];
    amounts
        .into_iter()
        .find_map(|(name, before, after)| (before.is_some() && after.is_none()).then_some(name))
}

/// A container, and its path.
struct TemplateContainer {
    path: String,
    name: String,
    image: String,
    resources: Resources,
}

/// Takes out the images and the resources of main containers and of sidecars.
fn take_containers(template: &mut Value) -> Vec<TemplateContainer> {
    let Some(spec) = template.get_mut("spec") else { return Vec::new() };
    let mut containers = Vec::new();
    for list in LISTS {
        let all = spec.get_mut(list).and_then(Value::as_array_mut);
        for (i, container) in all.into_iter().flatten().enumerate() {
            let Some(container) = container.as_object_mut() else { continue };
            if list == "containers" || text(container, "restartPolicy") == "Always" {
                let (name, image) = (text(container, "name"), text(container, "image"));
                container.remove("image");
                let resources = take_resources(container);
                containers.push(TemplateContainer { path: format!("{list}[{i}]"), name, image, resources });
            }
        }
    }
    containers
}

/// Takes out CPU and memory, as far as they can be read.
fn take_resources(container: &mut Map<String, Value>) -> Resources {
    let mut take = |list: &str, resource: Resource| {
        let amounts = container.get_mut("resources")?.get_mut(list)?.as_object_mut()?;
        let text = amounts
            .get(resource.as_str())
            .map(|amount| amount.as_str().map_or_else(|| amount.to_string(), str::to_owned))?;
        let amount = resource.parse(&text)?;
        amounts.remove(resource.as_str());
        Some(amount)
    };
    let resources = Resources {
        cpu_request: take("requests", Resource::Cpu),
        cpu_limit: take("limits", Resource::Cpu),
        memory_request: take("requests", Resource::Memory),
        memory_limit: take("limits", Resource::Memory),
    };
    // Empty maps may remain.
    if let Some(Value::Object(lists)) = container.get_mut("resources") {
        lists.retain(|_, amounts| amounts.as_object().is_none_or(|amounts| !amounts.is_empty()));
        if lists.is_empty() {
            container.remove("resources");
        }
    }
    resources.effective()
}

/// Takes out the annotations that ask for a restart.
fn take_restarts(template: &mut Value, more: &[String]) -> Vec<(String, Value)> {
    let Some(metadata) = template.get_mut("metadata").and_then(Value::as_object_mut) else {
        return Vec::new();
    };
    let Some(Value::Object(annotations)) = metadata.remove("annotations") else { return Vec::new() };
    let asks = |key: &str| {
        RESTARTS.contains(&key) || key.starts_with(CHECKSUM) || more.iter().any(|more| more == key)
    };
    let (restarts, others): (Vec<_>, Vec<_>) = annotations.into_iter().partition(|(key, _)| asks(key));
    if !others.is_empty() {
        metadata.insert("annotations".to_owned(), others.into_iter().collect::<Map<_, _>>().into());
    }
    restarts
}

fn text(fields: &Map<String, Value>, key: &str) -> String {
    fields.get(key).and_then(Value::as_str).unwrap_or_default().to_owned()
}

/// Path of the first difference.
fn difference(old: &Value, new: &Value, path: &str) -> Option<String> {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            let keys = old.keys().chain(new.keys().filter(|key| !old.contains_key(*key)));
            keys.into_iter().find_map(|key| {
                let (old, new) = (old.get(key).unwrap_or(&Value::Null), new.get(key).unwrap_or(&Value::Null));
                difference(old, new, &format!("{path}.{key}"))
            })
        }
        (Value::Array(old), Value::Array(new)) if old.len() == new.len() => {
            let pairs = old.iter().zip(new).enumerate();
            pairs.into_iter().find_map(|(i, (old, new))| difference(old, new, &format!("{path}[{i}]")))
        }
        _ => (old != new).then(|| path.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const DIGEST: &str = "sha256:1111111111111111111111111111111111111111111111111111111111111111";

    #[test]
    fn a_digest_that_was_pulled_for_a_tag_says_nothing_against_it() {
        let pinned = format!("shop/web:v1@{DIGEST}");
        for (has, named, is) in [
            ("shop/web:v1", "docker.io/shop/web:v1", true),
            (&*pinned, "shop/web:v1", true),
            (&*pinned, &*pinned, true),
            ("shop/web:v1", &*pinned, false),
            ("shop/web:v2", "shop/web:v1", false),
            ("mirror/web:v1", "shop/web:v1", false),
            ("", "shop/web:v1", false),
            (&*format!("shop/web:v1.back@{DIGEST}"), "shop/web:v1", true),
            (&*format!("shop/web:v1.back@{DIGEST}"), "shop/web:v2", false),
        ] {
            assert_eq!(same_image(has, named), is, "{has} {named}");
        }
    }

    fn template() -> Value {
        json!({"metadata": {"labels": {"app": "web"}},
            "spec": {"containers": [{"name": "app", "image": "shop/web:v1", "env": [{"name": "A", "value": "1"}]}],
                "initContainers": [{"name": "init", "image": "shop/init:v1"},
                    {"name": "proxy", "image": "shop/proxy:v1", "restartPolicy": "Always"}]}})
    }

    fn change(change: impl FnOnce(&mut Value)) -> Change {
        let mut new = template();
        change(&mut new);
        Change::between(&template(), &new, &["more".to_owned()])
    }

    fn other(text: &str) -> Change {
        Change::Other(text.into())
    }

    #[test]
    fn images_of_containers_that_run_on_can_be_changed() {
        let image = |container: &str, image: &str, before: &str| Image {
            container: container.into(),
            image: image.into(),
            before: before.into(),
        };
        let both = change(|new| {
            new["spec"]["containers"][0]["image"] = "docker.io/shop/web:v2".into();
            new["spec"]["initContainers"][1]["image"] = "shop/proxy:v2".into();
        });
        assert_eq!(
            both,
            Change::InPlace(Delta {
                images: vec![
                    image("app", "docker.io/shop/web:v2", "shop/web:v1"),
                    image("proxy", "shop/proxy:v2", "shop/proxy:v1")
                ],
                ..Delta::default()
            })
        );
    }

    #[test]
    fn the_identity_is_of_what_running_pods_can_get() {
        let of = |change: &dyn Fn(&mut Value)| {
            let mut new = template();
            change(&mut new);
            identity(&new, &[])
        };
        let same = identity(&template(), &[]);
        assert_eq!((same.len(), &of(&|new| new["spec"]["dnsPolicy"] = "ClusterFirst".into())), (16, &same));
        assert_eq!(of(&|new| new["metadata"]["labels"]["pod-template-hash"] = "x".into()), same);
        assert_ne!(of(&|new| new["spec"]["containers"][0]["image"] = "shop/web:v2".into()), same);
        assert_ne!(of(&|new| new["spec"]["initContainers"][1]["image"] = "shop/proxy:v2".into()), same);
        assert_ne!(of(&|new| new["metadata"]["annotations"] = json!({"checksum/x": "y"})), same);
        assert_ne!(
            of(&|new| new["spec"]["containers"][0]["resources"] = json!({"limits": {"cpu": 1}})),
            same
        );
        let wanted = wanted(&template());
        assert_eq!(wanted.keys().collect::<Vec<_>>(), ["app", "proxy"]);
        assert_eq!(wanted["proxy"], Wanted { image: "shop/proxy:v1".into(), ..Wanted::default() });
    }

    #[test]
    fn what_is_written_down_of_nothing_is_no_difference() {
        let same = change(|new| {
            new["metadata"]["creationTimestamp"] = Value::Null;
            new["$patch"] = "replace".into();
            new["metadata"]["labels"]["pod-template-hash"] = "5d".into();
        });
        assert!(same.is_none(), "{same:?}");
    }

    #[test]
    fn annotations_that_ask_for_a_restart_are_no_other_difference() {
        let restart = Change::InPlace(Delta { restart: true, ..Delta::default() });
        let names = [
            "kubectl.kubernetes.io/restartedAt",
            "reloader.stakater.com/last-reloaded-from",
            "checksum/config",
            "more",
        ];
        for name in names {
            assert_eq!(change(|new| new["metadata"]["annotations"] = json!({name: "x"})), restart);
        }
        let other = change(|new| new["metadata"]["annotations"] = json!({"other": "x", "checksum/x": "y"}));
        assert_eq!(other, Change::Other("spec.template.metadata.annotations differs".into()));
    }

    #[test]
    fn cpu_and_memory_of_containers_that_run_on_can_be_changed() {
        let sized = |before: Value, after: Value| {
            let of = |resources: &Value| {
                let mut template = template();
                template["spec"]["containers"][0]["resources"] = resources.clone();
                template
            };
            Change::between(&of(&before), &of(&after), &[])
        };
        let limits =
            |cpu: &str| json!({"limits": {"cpu": cpu, "memory": "1Gi"}, "requests": {"cpu": "100m"}});
        let resources = |cpu| Resources {
            cpu_request: Some(100),
            cpu_limit: Some(cpu),
            memory_request: Some(1 << 30),
            memory_limit: Some(1 << 30),
        };
        let size = Size { container: "app".into(), resources: resources(2_000), before: resources(1_000) };
        let delta = Delta { sizes: vec![size], ..Delta::default() };
        assert_eq!(sized(limits("1"), limits("2")), Change::InPlace(delta));
        assert!(sized(limits("1"), limits("1000m")).is_none());
        assert!(sized(json!({}), Value::Null).is_none());
        let added = sized(json!({"limits": {"cpu": "1"}}), json!({"limits": {"cpu": "1", "memory": "1Gi"}}));
        assert!(matches!(&added, Change::InPlace(delta) if delta.sizes.len() == 1), "{added:?}");
        for (before, after, text) in [
            (
                limits("1"),
                json!({"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "1Gi"}}),
                "spec.template.spec.containers[0].resources.limits.cpu is removed, which a running Pod cannot lose",
            ),
            (
                json!({"limits": {"ephemeral-storage": "1Gi"}}),
                json!({"limits": {"ephemeral-storage": "2Gi"}}),
                "spec.template.spec.containers[0].resources.limits.ephemeral-storage differs",
            ),
            (
                json!({}),
                json!({"claims": [{"name": "gpu"}]}),
                "spec.template.spec.containers[0].resources differs",
            ),
        ] {
            assert_eq!(sized(before, after), other(text));
        }
        let init = |cpu: &str| json!({"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"cpu": cpu}}}]}});
        let differs = other("spec.template.spec.initContainers[0].resources.limits.cpu differs");
        assert_eq!(Change::between(&init("1"), &init("2"), &[]), differs);
    }

    #[test]
    fn all_else_is_named() {
        let at = |path: &str, value: Value| change(|new| *new.pointer_mut(path).unwrap() = value);
        for (path, value, text) in [
            (
                "/spec/containers/0/env/0/value",
                json!("2"),
                "spec.template.spec.containers[0].env[0].value differs",
            ),
            ("/spec/containers/0/env", json!([]), "spec.template.spec.containers[0].env differs"),
            ("/spec/containers", json!([]), "spec.template.spec.containers differs"),
            ("/spec/containers/0/name", json!("x"), "spec.template.spec.containers[0].name differs"),
            ("/metadata/labels/app", json!("x"), "spec.template.metadata.labels.app differs"),
            (
                "/spec/containers/0/image",
                json!("shop/other:v1"),
                "spec.template.spec.containers[0].image is of another repository",
            ),
            (
                "/spec/initContainers/0/image",
                json!("shop/init:v2"),
                "spec.template.spec.initContainers[0].image differs",
            ),
        ] {
            assert_eq!(at(path, value), other(text));
        }
        let more = change(|new| new["spec"]["hostNetwork"] = true.into());
        assert_eq!(more, other("spec.template.spec.hostNetwork differs"));
        let bad = at("/spec/containers/0/image", json!("No Image"));
        assert!(matches!(bad, Change::Other(text) if text.contains("is no reference of an image")));
        let many = |tag: &str| {
            let of = |i| json!({"name": format!("c{i}"), "image": format!("shop/web:{tag}")});
            json!({"spec": {"containers": (0..9).map(of).collect::<Vec<_>>()}})
        };
        assert_eq!(Change::between(&many("1"), &many("2"), &[]), other("more than 8 images differ"));
    }
}
