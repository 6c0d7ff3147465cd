//! What keeps the models honest: the same scripts against a model and against what it models.

pub mod runtime;
