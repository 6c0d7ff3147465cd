//! A reason to refuse an object.

use std::fmt;

/// One reason to refuse an object: the field, what is wrong with it and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid {
    /// Path of the field, for example `spec.containers[1].name`.
    pub field: String,
    /// What is wrong.
    pub message: String,
}

impl Invalid {
    /// Refuses `field` because of `message`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { field: field.into(), message: message.into() }
    }
}

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.message)
    }
}

impl std::error::Error for Invalid {}
