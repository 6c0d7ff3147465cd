//! IDs of orders.

use std::fmt;

/// The ID of an order, as the controller writes it. Daemons do not parse it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OrderId<'a> {
    /// UID of the request, or of the held Pod.
    pub owner: &'a str,
    /// Name of the container.
    pub container: &'a str,
    /// Number of the order for that owner and container.
    pub attempt: u32,
}

impl<'a> OrderId<'a> {
    /// Reads what [`Display`](fmt::Display) writes; absent for an ID that no controller made.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split('/');
        let (owner, container, attempt) = (parts.next()?, parts.next()?, parts.next()?);
        let attempt = attempt.parse().ok().filter(|_| parts.next().is_none())?;
        Some(Self { owner, container, attempt })
    }
}

impl fmt::Display for OrderId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, container, attempt } = self;
        write!(f, "{owner}/{container}/{attempt}")
    }
}

/// The attempt in an order's ID; 0 where no controller made it.
pub fn order_attempt(order_id: &str) -> u32 {
    OrderId::parse(order_id).map_or(0, |id| id.attempt)
}

/// The owner in an order's ID; empty where no controller made it.
pub fn request_uid(order_id: &str) -> &str {
    OrderId::parse(order_id).map_or("", |id| id.owner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let id = OrderId { owner: "5f0c", container: "app", attempt: 12 };
        assert_eq!(id.to_string(), "5f0c/app/12");
        assert_eq!(OrderId::parse("5f0c/app/12"), Some(id));
        assert_eq!((request_uid("5f0c/app/12"), order_attempt("5f0c/app/12")), ("5f0c", 12));
    }

    #[test]
    fn what_no_controller_made_belongs_to_nobody() {
        for other in
            ["", "5f0c", "5f0c/app", "5f0c/app/x", "5f0c/app/-1", "5f0c/app/1/2", "5f0c/app/4294967296"]
        {
            assert_eq!(OrderId::parse(other), None, "{other}");
            assert_eq!((request_uid(other), order_attempt(other)), ("", 0));
        }
    }
}
