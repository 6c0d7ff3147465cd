//! The order book of one node: which orders it should hold.

mod acting;
mod plan;
mod view;

use pitstop_api::nodework::{Answer, NodeWorkStatus, Order, order_attempt, request_uid};

use crate::tracked::Versioned;

pub use acting::{Acting, grace};
pub use plan::{BookWrite, plan};
pub use view::OrderView;
pub(crate) use view::{may_run, newest, orders_of, views};

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
    /// It has no owner (`metadata.ownerReferences`), so it is not deleted with its node.
    pub orphan: bool,
    /// `spec.orders`.
    pub orders: Vec<Order>,
    /// `spec.closed`.
    pub closed: Vec<String>,
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

    /// The last attempt that an order of a request, or about a Pod, can have had, even if it is withdrawn or only
    /// answered. A new order with the same attempt would count as carried out, or as refused. Each write of orders
    /// raises the book's generation.
    pub(crate) fn last_attempt(&self, uid: &str) -> u32 {
        let answers = self.status.answers.iter().map(|answer| answer.order_id.as_str());
        let answered =
            answers.filter(|id| request_uid(id) == uid).map(order_attempt).max().unwrap_or_default();
        u32::try_from(self.generation).unwrap_or(u32::MAX).max(answered)
    }
}
