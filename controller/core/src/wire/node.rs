//! A node, by its API object.

use k8s_openapi::api::core::v1::Node;
use kube::Resource as _;
use kube::core::params::GetParams;
use kube::core::{Request as Builder, request};
use pitstop_api::logic::answer::Failure;
use serde::Deserialize;

use super::conditions::{SlimCondition, node_trouble};
use super::exchange::parse;
use super::requests::HttpRequest;

/// The first kubelet that always has image volumes: from it on, their feature gate cannot be turned off (KEP-4639).
const KUBELET: (u32, u32) = (1, 36);
/// The first containerd that mounts them.
const CONTAINERD: (u32, u32) = (2, 1);

#[derive(Deserialize)]
struct SlimNode {
    #[serde(default)]
    status: SlimNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimNodeStatus {
    conditions: Vec<SlimCondition>,
    node_info: SlimNodeInfo,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimNodeInfo {
    kubelet_version: String,
    container_runtime_version: String,
}

/// Reads the node.
pub(super) fn ask(name: &str) -> Result<HttpRequest, request::Error> {
    Builder::new(Node::url_path(&(), None)).get(name, &GetParams::default())
}

/// Succeeds if the node is ready by its object; otherwise says why not.
pub(super) fn is_ready(text: &str) -> Result<(), Failure> {
    let node: SlimNode = parse(text)?;
    let Some(trouble) = node_trouble(&node.status.conditions) else { return Ok(()) };
    let message = format!("the node is not ready: {}: {}", trouble.reason, trouble.message);
    Err(Failure::of_code(404, message))
}

/// Pods on the node can have image volumes, by its object. An unreadable object counts as no.
pub(super) fn mounts_images(text: &str) -> bool {
    let Ok(SlimNode { status: SlimNodeStatus { node_info, .. } }) = parse(text) else { return false };
    let kubelet = node_info.kubelet_version.strip_prefix('v').and_then(version);
    let runtime = node_info.container_runtime_version.strip_prefix("containerd://").and_then(version);
    kubelet.is_some_and(|is| is >= KUBELET) && runtime.is_some_and(|is| is >= CONTAINERD)
}

/// The release of a version: its first two numbers.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.splitn(3, '.').map(|number| number.parse().ok());
    Some((numbers.next()??, numbers.next()??))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn image_volumes_need_a_kubelet_and_a_containerd_that_have_them() {
        let can = |kubelet: &str, runtime: &str| {
            let info = json!({"kubeletVersion": kubelet, "containerRuntimeVersion": runtime});
            mounts_images(&json!({"status": {"nodeInfo": info}}).to_string())
        };
        for (runtime, expected) in [
            ("containerd://2.4.2", true),
            ("containerd://2.1.0-rc.1", true),
            ("containerd://2.10.0", true),
            ("containerd://3.0.0", true),
            ("containerd://2.0.5", false),
            ("containerd://1.6.20", false),
            ("containerd://1.7.20~ds1", false),
            ("cri-o://1.34", false),
            ("cri-o://2.4.2", false),
            ("2.4.2", false),
            ("containerd://2", false),
            ("containerd://v2.4.2", false),
            ("containerd://", false),
            ("", false),
        ] {
            assert_eq!(can("v1.36.3", runtime), expected, "{runtime}");
        }
        for (kubelet, expected) in [
            ("v1.36.3", true),
            ("v1.36.0-alpha.1", true),
            ("v1.36.3+k3s1", true),
            ("v1.40.0", true),
            ("v2.0.0", true),
            ("v1.35.9", false),
            ("v1.4.0", false),
            ("1.36.3", false),
            ("v1.x", false),
            ("", false),
        ] {
            assert_eq!(can(kubelet, "containerd://2.4.2"), expected, "{kubelet}");
        }
        for text in ["", "{}", "[]", r#"{"status":{"nodeInfo":7}}"#] {
            assert!(!mounts_images(text), "{text}");
        }
    }
}
