//! Label keys of a `ContainerRecreateRequest`, as `OpenKruise`'s clients expect them.

/// UID of the Pod that the request was made for; immutable.
pub const POD_UID: &str = "crr.apps.kruise.io/pod-uid";
/// Name of the Pod's node; immutable.
pub const NODE_NAME: &str = "crr.apps.kruise.io/node-name";
/// `true` from creation until the request is over, then removed.
pub const ACTIVE: &str = "crr.apps.kruise.io/active";
/// Value of [`ACTIVE`].
pub const ACTIVE_TRUE: &str = "true";

/// What kind of node the Pod is on; copied from the node's label of that name, as `OpenKruise` does.
pub const NODE_TYPE: &str = "type";
/// Value of [`NODE_TYPE`] of a node that is no machine with a container runtime.
pub const VIRTUAL_KUBELET: &str = "virtual-kubelet";

/// All of them.
pub const KNOWN: [&str; 4] = [POD_UID, NODE_NAME, ACTIVE, NODE_TYPE];

/// Longest label value that the API server accepts, in bytes.
const MAX_LABEL_VALUE: usize = 63;

/// The value of [`NODE_NAME`] for a node: the name itself where it fits a label value, else a hash of it.
///
/// `OpenKruise` cannot serve nodes whose names are longer than a label value (its defect #1046); names that
/// fit stay unchanged. The hash is FNV-1a over the name's bytes, written as 16 hex digits.
pub fn node_label(node: &str) -> String {
    if node.len() <= MAX_LABEL_VALUE {
        return node.to_owned();
    }
    format!("node-{:016x}", hash(node))
}

/// A short stand-in for a name that is too long: FNV-1a over the text's bytes.
pub fn hash(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_node_names_stay_and_long_ones_fit() {
        assert_eq!(node_label("node1"), "node1");
        let long = "n".repeat(64);
        let label = node_label(&long);
        assert!(label.len() <= 63, "{label}");
        assert_ne!(label, node_label(&"n".repeat(65)));
        assert_eq!(node_label(&"x".repeat(63)), "x".repeat(63));
    }
}
