//! `LimitRange`s, with the messages of the Kubernetes admission plugin `LimitRanger`.

use pitstop_api::quantity::{Resource, Resources};

use super::{Amounts, kind, pair, sum};
use crate::pod::{Container, Pod};

/// What one item of a `LimitRange` bounds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LimitType {
    /// Each container.
    Container,
    /// All containers of a Pod together.
    Pod,
}

impl LimitType {
    fn as_str(self) -> &'static str {
        match self {
            Self::Container => "Container",
            Self::Pod => "Pod",
        }
    }
}

/// One item of a `LimitRange`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// What it bounds.
    pub type_: LimitType,
    /// The minimum for requests and limits.
    pub min: Amounts,
    /// The maximum for requests and limits.
    pub max: Amounts,
    /// The maximum ratio of limit to request, in thousandths.
    pub max_ratio: Amounts,
}

/// What a change violates, as a sentence. Only resources of a container or of the whole Pod that change are judged. The
/// others were admitted, or are older than the `LimitRange`.
pub(super) fn violations(
    pod: &Pod,
    before: impl Fn(&Container) -> Resources,
    after: impl Fn(&Container) -> Resources,
    limits: &[Limit],
) -> Option<String> {
    let mut texts = Vec::new();
    for limit in limits {
        match limit.type_ {
            LimitType::Container => {
                for container in pod.containers.iter().filter(|c| kind(c).is_some()) {
                    let found = limit.violations(&before(container), &after(container));
                    texts.extend(
                        found.into_iter().map(|text| format!("container {}: {text}", container.name)),
                    );
                }
            }
            LimitType::Pod => texts.extend(limit.violations(&sum(pod, &before), &sum(pod, &after))),
        }
    }
    (!texts.is_empty()).then(|| texts.join("; "))
}

impl Limit {
    fn violations(&self, before: &Resources, after: &Resources) -> Vec<String> {
        let changed = |resource: &Resource| pair(before, *resource) != pair(after, *resource);
        let violations = |resource| {
            let (request, limit) = pair(after, resource);
            [
                self.too_little(resource, request, limit),
                self.too_much(resource, request, limit),
                self.too_far_apart(resource, request, limit),
            ]
        };
        Resource::ALL.into_iter().filter(changed).flat_map(violations).flatten().collect()
    }

    fn too_little(&self, resource: Resource, request: Option<i64>, limit: Option<i64>) -> Option<String> {
        let min = self.min.of(resource)?;
        let but = match (request, limit) {
            (None, _) => ".  No request is specified".to_owned(),
            (Some(request), _) if request < min => format!(", but request is {}", resource.show(request)),
            (_, Some(limit)) if limit < min => format!(", but limit is {}", resource.show(limit)),
            _ => return None,
        };
        Some(format!("minimum {resource} usage per {} is {}{but}", self.type_.as_str(), resource.show(min)))
    }

    fn too_much(&self, resource: Resource, request: Option<i64>, limit: Option<i64>) -> Option<String> {
        let max = self.max.of(resource)?;
        let but = match (request, limit) {
            (_, None) => ".  No limit is specified".to_owned(),
            (_, Some(limit)) if limit > max => format!(", but limit is {}", resource.show(limit)),
            (Some(request), _) if request > max => format!(", but request is {}", resource.show(request)),
            _ => return None,
        };
        Some(format!("maximum {resource} usage per {} is {}{but}", self.type_.as_str(), resource.show(max)))
    }

    fn too_far_apart(&self, resource: Resource, request: Option<i64>, limit: Option<i64>) -> Option<String> {
        let max = self.max_ratio.of(resource)?;
        let request = request.filter(|request| *request > 0);
        let but = match (request, limit.filter(|limit| *limit > 0)) {
            (None, _) => "no request is specified or request is 0".to_owned(),
            (_, None) => "no limit is specified or limit is 0".to_owned(),
            (Some(request), Some(limit)) => {
                // In thousandths, like the allowed ratio.
                if i128::from(limit) * 1000 <= i128::from(max) * i128::from(request) {
                    return None;
                }
                let ratio = i128::from(limit) * 1000 / i128::from(request);
                format!("provided ratio is {}.{:03}", ratio / 1000, ratio % 1000)
            }
        };
        let max = Resource::Cpu.show(max);
        Some(format!("{resource} max limit to request ratio per {} is {max}, but {but}", self.type_.as_str()))
    }
}
