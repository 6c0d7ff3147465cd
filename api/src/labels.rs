//! Label keys of a `ContainerRecreateRequest`, as `OpenKruise`'s clients expect them.

/// UID of the Pod; immutable.
pub const POD_UID: &str = "crr.apps.kruise.io/pod-uid";
/// Name of the Pod's node; immutable.
pub const NODE_NAME: &str = "crr.apps.kruise.io/node-name";
/// `true` until the request ends, then removed.
pub const ACTIVE: &str = "crr.apps.kruise.io/active";
/// Value of [`ACTIVE`].
pub const ACTIVE_TRUE: &str = "true";

/// Kind of the node, copied from its label of that name as in `OpenKruise`.
pub const NODE_TYPE: &str = "type";
/// Value of [`NODE_TYPE`] for a node without a container runtime.
pub const VIRTUAL_KUBELET: &str = "virtual-kubelet";

/// All keys.
pub const KNOWN: [&str; 4] = [POD_UID, NODE_NAME, ACTIVE, NODE_TYPE];

/// Longest label value, in bytes.
const MAX_LABEL_VALUE: usize = 63;

/// The value of [`NODE_NAME`]: the node's name if it fits a label value, otherwise a hash of it.
///
/// `OpenKruise` cannot serve nodes with longer names (its defect #1046). The hash is FNV-1a over the name's bytes, in
/// 16 hex digits.
pub fn node_label(node: &str) -> String {
    if node.len() <= MAX_LABEL_VALUE {
        return node.to_owned();
    }
    format!("node-{:016x}", hash(node))
}

/// FNV-1a over the text's bytes, for names that are too long.
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
