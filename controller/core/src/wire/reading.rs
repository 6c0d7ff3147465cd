//! Readings of several requests, and the lists that they read.

use kube::core::request;
use pitstop_api::logic::answer::{Answer, Failure};
use serde::Deserialize;

use super::exchange::HttpRequest;

/// A reading under way.
pub(super) trait Reading {
    /// The request for what is read next.
    fn request(&self) -> Result<HttpRequest, request::Error>;
    /// Takes the answer in. Whether something is left to read.
    fn answered(&mut self, answer: Answer) -> Result<bool, Failure>;
}

/// A list of the API server, or a part of one.
#[derive(Deserialize)]
pub(super) struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    pub(super) items: Vec<T>,
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl<T> List<T> {
    /// By what the next part is asked for; absent where nothing is left.
    pub(super) fn more(&self) -> Option<&str> {
        self.metadata.more.as_deref().filter(|token| !token.is_empty())
    }
}
