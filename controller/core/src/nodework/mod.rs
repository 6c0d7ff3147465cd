//! The order book of one node: which orders it should hold.

mod plan;
mod view;

use pitstop_api::nodework::{Answer, NodeWorkStatus, Order};

use crate::tracked::Versioned;

pub use plan::{BookWrite, plan};
pub use view::OrderView;
pub(crate) use view::views;

/// A `NodeWork`, reduced to what decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeWork {
    /// The node.
    pub node: String,
    /// `metadata.uid`.
    pub uid: String,
    /// `metadata.resourceVersion`.
    pub resource_version: String,
    /// `metadata.generation`, which every change of the orders raises.
    pub generation: i64,
    /// `spec.orders`.
    pub orders: Vec<Order>,
    /// `status`, as the node's daemon claims.
    pub status: NodeWorkStatus,
}

impl Versioned for NodeWork {
    fn uid(&self) -> &str {
        &self.uid
    }
    fn resource_version(&self) -> &str {
        &self.resource_version
    }
}

impl NodeWork {
    /// The daemon's answer to an order.
    pub fn answer(&self, order_id: &str) -> Option<&Answer> {
        self.status.answers.iter().find(|a| a.order_id == order_id)
    }
}
