//! Which objects a tree needs: no others are listed.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;
use kube::core::Selector;

use crate::target::{RequestKind, Target};

/// Which objects of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Select {
    /// By labels; empty: any.
    pub labels: String,
    /// By fields; empty: any.
    pub fields: String,
}

impl Select {
    fn field(field: &str, value: &str) -> Self {
        Self { labels: String::new(), fields: format!("{field}={value}") }
    }
}

/// Which objects of each kind; `None`: no objects.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Scope {
    /// All namespaces instead of one.
    pub everywhere: bool,
    /// `InPlaceRollout`s.
    pub rollouts: Option<Select>,
    /// `ContainerRecreateRequest`s.
    pub restarts: Option<Select>,
    /// `PodResize`s.
    pub resizes: Option<Select>,
    /// `PodImageUpdate`s.
    pub updates: Option<Select>,
    /// Pods.
    pub pods: Option<Select>,
}

impl Scope {
    /// All requests of a namespace.
    pub fn namespace() -> Self {
        let all = || Some(Select::default());
        let (rollouts, restarts, resizes, updates) = (all(), all(), all(), all());
        Self { rollouts, restarts, resizes, updates, ..Self::default() }
    }

    /// All requests of every namespace.
    pub fn everywhere() -> Self {
        Self { everywhere: true, ..Self::namespace() }
    }

    /// The objects of a Pod, of a workload whose Pods have that selector, or of a request. Fails if the selector is
    /// invalid or empty.
    pub fn of(target: &Target, pods: Option<LabelSelector>) -> Result<Self, String> {
        let all = || Some(Select::default());
        let of_pod = |field: &str, name: &str| Some(Select::field(field, name));
        Ok(match target {
            Target::Pod(name) => Self {
                restarts: of_pod("spec.podName", name),
                resizes: of_pod("spec.podRef.name", name),
                updates: of_pod("spec.podRef.name", name),
                pods: of_pod("metadata.name", name),
                ..Self::default()
            },
            Target::Workload(_, name) => {
                let selector = Selector::try_from(pods.unwrap_or_default())
                    .map_err(|error| format!("{target}: spec.selector cannot be read: {error}"))?;
                let labels = selector.to_string();
                if labels.is_empty() {
                    return Err(format!("{target}: spec.selector selects every Pod of the namespace"));
                }
                Self {
                    rollouts: of_pod("spec.targetRef.name", name),
                    restarts: all(),
                    resizes: all(),
                    updates: all(),
                    pods: Some(Select { labels, fields: String::new() }),
                    ..Self::default()
                }
            }
            Target::Request(kind, name) => {
                let one = Some(Select::field("metadata.name", name));
                match kind {
                    RequestKind::Rollout => Self { rollouts: one, ..Self::default() },
                    RequestKind::Restart => Self { restarts: one, ..Self::default() },
                    RequestKind::Resize => Self { resizes: one, ..Self::default() },
                    RequestKind::ImageUpdate => Self { updates: one, ..Self::default() },
                }
            }
        })
    }
}
