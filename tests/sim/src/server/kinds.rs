//! The kinds that are served.

use std::sync::Arc;

use serde_json::Value;

use super::schema::Schema;

/// Which built-in rules apply to a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    Pod,
    Node,
    Namespace,
    ConfigMap,
    Event,
    Lease,
    /// Kinds that limit Pods.
    Bounds,
    /// Kinds that have Pods.
    Workload,
    Custom,
}

/// A kind, with the API server's strategies for it.
#[derive(Debug)]
#[allow(
    clippy::struct_excessive_bools,
    clippy::struct_field_names,
    reason = "independent answers of Kubernetes' strategies"
)]
pub(super) struct Kind {
    /// Its index in [`Kinds`] and in the store.
    pub index: usize,
    pub family: Family,
    pub group: String,
    /// Versions, the stored version first.
    pub versions: Vec<String>,
    pub kind: String,
    pub plural: String,
    pub namespaced: bool,
    /// Whether it has a status subresource.
    pub status: bool,
    /// Whether PUT creates a missing object.
    pub create_on_update: bool,
    /// Whether PUT may come without a resourceVersion.
    pub unconditional_update: bool,
    /// Whether DELETE returns the object instead of a `Status`.
    pub returns_deleted: bool,
    /// Fields of a custom resource for field selectors, besides its name and namespace.
    pub selectable: Vec<String>,
    /// Schema of a custom resource, the same for all versions.
    pub schema: Option<Arc<Schema>>,
}

impl Kind {
    /// `pods`, `leases.coordination.k8s.io`.
    pub(super) fn qualified(&self) -> String {
        if self.group.is_empty() { self.plural.clone() } else { format!("{}.{}", self.plural, self.group) }
    }

    /// `v1`, `coordination.k8s.io/v1`.
    pub(super) fn api_version(&self, version: &str) -> String {
        if self.group.is_empty() { version.to_owned() } else { format!("{}/{version}", self.group) }
    }

    pub(super) fn is_custom(&self) -> bool {
        self.family == Family::Custom
    }
}

/// All kinds.
#[derive(Debug)]
pub(super) struct Kinds(Vec<Kind>);

impl Kinds {
    /// The built-in kinds and those of `pitstop_api`; `change` may alter the CRDs of the latter.
    pub(super) fn all(change: impl Fn(&mut Value)) -> Self {
        let mut all = vec![
            built_in(Family::Pod, "", "Pod", "pods", true),
            built_in(Family::Node, "", "Node", "nodes", true),
            built_in(Family::Namespace, "", "Namespace", "namespaces", true),
            built_in(Family::ConfigMap, "", "ConfigMap", "configmaps", false),
            built_in(Family::Event, "events.k8s.io", "Event", "events", false),
            built_in(Family::Lease, "coordination.k8s.io", "Lease", "leases", false),
            built_in(Family::Bounds, "", "LimitRange", "limitranges", false),
            built_in(Family::Bounds, "", "ResourceQuota", "resourcequotas", true),
            built_in(Family::Bounds, "policy", "PodDisruptionBudget", "poddisruptionbudgets", true),
            built_in(Family::Workload, "apps", "Deployment", "deployments", true),
            built_in(Family::Workload, "apps", "ReplicaSet", "replicasets", true),
            built_in(Family::Workload, "apps", "StatefulSet", "statefulsets", true),
            built_in(Family::Workload, "apps", "DaemonSet", "daemonsets", true),
            built_in(Family::Workload, "apps", "ControllerRevision", "controllerrevisions", false),
        ];
        for crd in pitstop_api::crds::crds() {
            let mut crd = serde_json::to_value(&crd).unwrap();
            change(&mut crd["spec"]);
            all.push(custom(&crd["spec"]));
        }
        for (index, kind) in all.iter_mut().enumerate() {
            kind.index = index;
        }
        Self(all)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The kind of that name.
    pub(super) fn named(&self, kind: &str) -> &Kind {
        self.0.iter().find(|k| k.kind == kind).unwrap_or_else(|| panic!("no kind {kind}"))
    }

    pub(super) fn at(&self, index: usize) -> &Kind {
        &self.0[index]
    }

    /// The kind of that group, version and plural.
    pub(super) fn find(&self, group: &str, version: &str, plural: &str) -> Option<&Kind> {
        self.0
            .iter()
            .find(|k| k.plural == plural && k.group == group && k.versions.iter().any(|v| v == version))
    }

    pub(super) fn namespaced(&self) -> impl Iterator<Item = &Kind> {
        self.0.iter().filter(|kind| kind.namespaced)
    }
}

fn built_in(family: Family, group: &str, kind: &str, plural: &str, status: bool) -> Kind {
    Kind {
        index: 0,
        family,
        group: group.to_owned(),
        versions: vec!["v1".to_owned()],
        kind: kind.to_owned(),
        plural: plural.to_owned(),
        namespaced: !matches!(family, Family::Node | Family::Namespace),
        status,
        create_on_update: matches!(family, Family::Lease | Family::Event),
        unconditional_update: family != Family::Lease,
        returns_deleted: matches!(family, Family::Pod | Family::Namespace),
        selectable: Vec::new(),
        schema: None,
    }
}

fn custom(spec: &Value) -> Kind {
    let text = |pointer: &str| spec.pointer(pointer).unwrap().as_str().unwrap().to_owned();
    let mut versions: Vec<&Value> = spec["versions"].as_array().unwrap().iter().collect();
    versions.sort_by_key(|version| version["storage"] != true);
    let schema = &versions[0]["schema"]["openAPIV3Schema"];
    let selectable = versions[0]["selectableFields"].as_array().into_iter().flatten();
    let selectable = selectable.map(|field| field["jsonPath"].as_str().unwrap()[1..].to_owned()).collect();
    for version in &versions {
        assert_eq!(&version["schema"]["openAPIV3Schema"], schema, "versions with schemas of their own");
    }
    Kind {
        index: 0,
        family: Family::Custom,
        group: text("/group"),
        versions: versions.iter().map(|v| v["name"].as_str().unwrap().to_owned()).collect(),
        kind: text("/names/kind"),
        plural: text("/names/plural"),
        namespaced: spec["scope"] == "Namespaced",
        status: versions[0].pointer("/subresources/status").is_some(),
        create_on_update: false,
        unconditional_update: false,
        returns_deleted: false,
        selectable,
        schema: Some(Arc::new(Schema::parse(schema))),
    }
}
