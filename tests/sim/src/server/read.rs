//! GET: one object, and lists with their versions and pages.

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::Server;
use super::failure::{Answer, Checked, Failure, Invalid};
use super::request::{Call, partial};
use super::select::Selector;
use super::store::Objects;

/// A version that a client names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum VersionParam {
    /// None: the present.
    Unset,
    /// `0`: any state of the cache.
    Any,
    At(u64),
}

impl VersionParam {
    pub(super) fn parse(text: &str) -> Checked<Self> {
        match text {
            "" => Ok(Self::Unset),
            "0" => Ok(Self::Any),
            text => text
                .parse()
                .map(Self::At)
                .map_err(|_| Failure::bad_request(format!("Invalid value: {text:?}: strconv.ParseUint"))),
        }
    }
}

/// The objects to answer from.
enum View<'a> {
    Now(&'a Objects),
    Then(Objects),
}

impl View<'_> {
    fn objects(&self) -> &Objects {
        match self {
            View::Now(objects) => objects,
            View::Then(objects) => objects,
        }
    }
}

impl Server {
    pub(super) fn read(&self, call: &Call<'_>) -> Answer {
        match call.name {
            Some(name) => {
                self.reached(VersionParam::parse(call.query("resourceVersion")).map_err(unforeseen)?)?;
                let object = self.store.get(call.kind.index, &call.key());
                object
                    .map(|object| (200, call.shown(object)))
                    .ok_or_else(|| Failure::not_found(call.kind, name))
            }
            None => self.list(call),
        }
    }

    /// The same at an older version, whatever version the client asks for.
    pub(super) fn read_at(&self, call: &Call<'_>, version: u64) -> Answer {
        let version = version.clamp(self.store.floor, self.store.version);
        let objects = self.store.at(call.kind.index, version).unwrap();
        if let Some(name) = call.name {
            let object = objects.get(call.key().as_str());
            return object
                .map(|object| (200, call.shown(object)))
                .ok_or_else(|| Failure::not_found(call.kind, name));
        }
        let selector = Selector::of(call)?;
        let chosen = chosen(&objects, &selector, "");
        Ok((200, listed(call, chosen.map(|(_, object)| object), version, None)))
    }

    /// Refuses a future version.
    pub(super) fn reached(&self, asked: VersionParam) -> Checked<()> {
        match asked {
            VersionParam::At(version) if version > self.store.version => {
                Err(Failure::too_large(version, self.store.version))
            }
            _ => Ok(()),
        }
    }

    fn list(&self, call: &Call<'_>) -> Answer {
        validate(call)?;
        let selector = Selector::of(call)?;
        let limit: usize = match call.query("limit") {
            "" => 0,
            text => text.parse().map_err(|_| Failure::bad_request(format!("invalid limit {text:?}")))?,
        };
        let asked = VersionParam::parse(call.query("resourceVersion"))?;
        // The cache always returns a whole list.
        let limit = if asked == VersionParam::Any && call.query("continue").is_empty() { 0 } else { limit };
        let (version, start) = match call.query("continue") {
            "" => (self.wanted(call, asked, limit)?, String::new()),
            token => {
                if matches!(asked, VersionParam::At(_)) {
                    let message = "specifying resource version is not allowed when using continue";
                    return Err(Failure::bad_request(message));
                }
                let parsed =
                    token.split_once('.').and_then(|(v, key)| Some((v.parse().ok()?, key.to_owned())));
                parsed.ok_or_else(|| Failure::bad_request("continue key is not valid"))?
            }
        };
        let view = if version == self.store.version {
            View::Now(&self.store.table(call.kind.index).objects)
        } else {
            let gone = || Failure::expired("The provided continue parameter or version is too old");
            View::Then(self.store.at(call.kind.index, version).ok_or_else(gone)?)
        };
        let limit = if limit == 0 { usize::MAX } else { limit };
        let mut rest = chosen(view.objects(), &selector, &start);
        let mut items = Vec::new();
        let mut last = "";
        for (key, object) in rest.by_ref().take(limit) {
            items.push(object);
            last = key;
        }
        drop(rest);
        // Another page follows if more objects exist, selected or not.
        let remaining = match items.len() {
            0 => 0,
            _ => chosen(view.objects(), &selector.everything(), last).count(),
        };
        let more = (remaining > 0 && items.len() == limit)
            .then(|| (format!("{version}.{last}"), selector.is_everything().then_some(remaining)));
        Ok((200, listed(call, items.into_iter(), version, more)))
    }

    /// The version of a list without a continue token.
    fn wanted(&self, call: &Call<'_>, asked: VersionParam, limit: usize) -> Checked<u64> {
        self.reached(asked)?;
        Ok(match (asked, call.query("resourceVersionMatch")) {
            (VersionParam::At(version), "Exact") => version,
            (VersionParam::At(version), "") if limit > 0 => version,
            _ => self.store.version,
        })
    }
}

/// A version that is not a number is a bad request only for a list.
pub(super) fn unforeseen(_: Failure) -> Failure {
    Failure::unforeseen("strconv.ParseUint: invalid syntax")
}

/// Selected objects in etcd's order, after `start`.
pub(super) fn chosen<'a>(
    objects: &'a BTreeMap<Arc<str>, Arc<Value>>,
    selector: &Selector,
    start: &str,
) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Value>)> {
    let prefix = selector.prefix();
    let from = if start.is_empty() { Bound::Included(prefix) } else { Bound::Excluded(start) };
    objects
        .range::<str, _>((from, Bound::Unbounded))
        .take_while(move |(key, _)| key.starts_with(prefix))
        .filter(|(key, object)| selector.matches(key, object))
}

/// The list object. Items of built-in kinds have no kind, those of custom resources do.
fn listed<'a>(
    call: &Call<'_>,
    items: impl Iterator<Item = &'a Arc<Value>>,
    version: u64,
    more: Option<(String, Option<usize>)>,
) -> Value {
    let only_metadata = call.metadata_only();
    let items = items
        .map(|object| {
            let mut shown = call.shown(object);
            if !only_metadata && !call.kind.is_custom() {
                let map = shown.as_object_mut().unwrap();
                map.remove("kind");
                map.remove("apiVersion");
            }
            shown
        })
        .collect();
    let mut metadata = Map::new();
    metadata.insert("resourceVersion".to_owned(), version.to_string().into());
    if let Some((token, remaining)) = more {
        metadata.insert("continue".to_owned(), token.into());
        if let Some(remaining) = remaining {
            metadata.insert("remainingItemCount".to_owned(), remaining.into());
        }
    }
    if only_metadata {
        let mut list = partial(&json!({ "metadata": metadata }), "PartialObjectMetadataList");
        list["items"] = Value::Array(items);
        return list;
    }
    json!({ "kind": format!("{}List", call.kind.kind), "apiVersion": call.api_version(),
            "metadata": metadata, "items": Value::Array(items) })
}

/// Refuses wrong combinations of options.
fn validate(call: &Call<'_>) -> Checked<()> {
    let refuse = |reason, field: &str, message: &str| {
        Err(Failure::invalid_as("meta.k8s.io", "ListOptions", "", &[Invalid::new(reason, field, message)]))
    };
    let matching = call.query("resourceVersionMatch");
    if call.has("sendInitialEvents") {
        return refuse("FieldValueForbidden", "sendInitialEvents", "sendInitialEvents is forbidden for list");
    }
    if matching.is_empty() {
        return Ok(());
    }
    let field = "resourceVersionMatch";
    if call.query("resourceVersion").is_empty() {
        return refuse("FieldValueForbidden", field, "forbidden unless resourceVersion is provided");
    }
    if !call.query("continue").is_empty() {
        return refuse("FieldValueForbidden", field, "forbidden when continue is provided");
    }
    if !matches!(matching, "Exact" | "NotOlderThan") {
        return refuse(
            "FieldValueNotSupported",
            field,
            "supported values: \"Exact\", \"NotOlderThan\", \"\"",
        );
    }
    if matching == "Exact" && call.query("resourceVersion") == "0" {
        return refuse("FieldValueForbidden", field, "\"exact\" is forbidden for resourceVersion \"0\"");
    }
    Ok(())
}
