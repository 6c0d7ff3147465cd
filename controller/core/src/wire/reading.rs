//! Readings of several requests, and the lists that they read.

use kube::core::request;
use pitstop_api::logic::answer::{Answer, Failure};
use serde::{Deserialize, Deserializer};

use super::requests::HttpRequest;

/// A reading under way.
pub(super) trait Reading {
    /// The request for what is read next.
    fn request(&self) -> Result<HttpRequest, request::Error>;
    /// Takes in the answer. Returns whether more is to be read.
    fn answered(&mut self, answer: Answer) -> Result<bool, Failure>;
}

/// A list of the API server, or a part of one.
#[derive(Deserialize)]
#[serde(bound(deserialize = "T: Deserialize<'de>"))]
pub(super) struct List<T> {
    #[serde(default)]
    metadata: ListMeta,
    #[serde(deserialize_with = "items")]
    pub(super) items: Vec<T>,
}

/// An empty list may be `null`.
fn items<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Vec<T>, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or_default())
}

#[derive(Default, Deserialize)]
struct ListMeta {
    #[serde(rename = "continue")]
    more: Option<String>,
}

impl<T> List<T> {
    /// The token for the next part; `None` if nothing is left.
    pub(super) fn more(&self) -> Option<&str> {
        self.metadata.more.as_deref().filter(|token| !token.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_of_nothing_is_empty() {
        for nothing in ["[]", "null"] {
            let text = format!(r#"{{"metadata": {{"resourceVersion": "9"}}, "items": {nothing}}}"#);
            let list: List<u8> = serde_json::from_str(&text).unwrap();
            assert!(list.items.is_empty() && list.more().is_none());
        }
        assert!(serde_json::from_str::<List<u8>>(r#"{"metadata": {}}"#).is_err(), "it is no list");
    }
}
