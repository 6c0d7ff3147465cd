//! Label and field selectors.

use serde_json::Value;

use super::failure::{Checked, Failure};
use super::kinds::{Family, Kind};
use super::meta;
use super::request::Call;

/// Selection of objects by a list or watch.
#[derive(Clone, Debug, Default)]
pub(super) struct Selector {
    /// Namespace with a slash; None for all.
    namespace: Option<String>,
    labels: Vec<Requirement>,
    fields: Vec<(Vec<String>, String, bool)>,
}

#[derive(Clone, Debug)]
struct Requirement {
    key: String,
    test: Test,
}

#[derive(Clone, Debug)]
enum Test {
    Exists,
    Absent,
    In(Vec<String>),
    NotIn(Vec<String>),
}

impl Selector {
    /// The selection of a request. Fields that cannot be selected by are 400.
    pub(super) fn of(call: &Call<'_>) -> Checked<Self> {
        let namespace =
            call.namespace.filter(|_| call.kind.namespaced).map(|namespace| format!("{namespace}/"));
        let mut fields = fields(call.kind, call.query("fieldSelector"))?;
        if let Some(name) = call.name {
            fields.push((vec!["metadata".to_owned(), "name".to_owned()], name.to_owned(), true));
        }
        Ok(Self { namespace, labels: labels(call.query("labelSelector"))?, fields })
    }

    /// Whether it selects all objects of the kind or the namespace.
    pub(super) fn is_everything(&self) -> bool {
        self.labels.is_empty() && self.fields.is_empty()
    }

    /// The same namespace without selectors.
    pub(super) fn everything(&self) -> Self {
        Self { namespace: self.namespace.clone(), ..Self::default() }
    }

    /// Prefix of the selected keys.
    pub(super) fn prefix(&self) -> &str {
        self.namespace.as_deref().unwrap_or_default()
    }

    pub(super) fn matches(&self, key: &str, object: &Value) -> bool {
        key.starts_with(self.prefix())
            && self.fields.iter().all(|(path, wanted, equal)| (field(object, path) == *wanted) == *equal)
            && self.labels.iter().all(|requirement| requirement.holds(object))
    }
}

impl Requirement {
    fn holds(&self, object: &Value) -> bool {
        let value =
            meta::get(object, "labels").and_then(|labels| labels.get(&self.key)).and_then(Value::as_str);
        let among = |list: &[String]| value.is_some_and(|value| list.iter().any(|one| one == value));
        match &self.test {
            Test::Exists => value.is_some(),
            Test::Absent => value.is_none(),
            Test::In(list) => among(list),
            Test::NotIn(list) => !among(list),
        }
    }
}

/// The text of a field; empty if it is missing.
fn field(object: &Value, path: &[String]) -> String {
    match path.iter().try_fold(object, |value, step| value.get(step)) {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Null) | None => match path.last().map(String::as_str) {
            Some("unschedulable" | "hostNetwork") => "false".to_owned(),
            _ => String::new(),
        },
        Some(other) => other.to_string(),
    }
}

fn is_selectable(kind: &Kind, path: &str) -> bool {
    match path {
        "metadata.name" => true,
        "metadata.namespace" => kind.namespaced,
        _ => match kind.family {
            Family::Pod => matches!(
                path,
                "spec.nodeName"
                    | "spec.restartPolicy"
                    | "spec.schedulerName"
                    | "spec.serviceAccountName"
                    | "spec.hostNetwork"
                    | "status.phase"
                    | "status.podIP"
                    | "status.nominatedNodeName"
            ),
            Family::Node => path == "spec.unschedulable",
            Family::Namespace => path == "status.phase",
            _ => kind.selectable.iter().any(|field| field == path),
        },
    }
}

fn fields(kind: &Kind, text: &str) -> Checked<Vec<(Vec<String>, String, bool)>> {
    let mut all = Vec::new();
    for term in text.split(',').filter(|term| !term.is_empty()) {
        let (path, value, equal) = match (term.split_once("!="), term.split_once('=')) {
            (Some((path, value)), _) => (path, value, false),
            (None, Some((path, value))) => (path, value.strip_prefix('=').unwrap_or(value), true),
            (None, None) => {
                let message = format!("invalid selector: '{text}'; can't understand '{term}'");
                return Err(Failure::bad_request(message));
            }
        };
        if !is_selectable(kind, path) {
            return Err(Failure::bad_request(format!("field label not supported: {path}")));
        }
        all.push((path.split('.').map(str::to_owned).collect(), value.to_owned(), equal));
    }
    Ok(all)
}

fn labels(text: &str) -> Checked<Vec<Requirement>> {
    let mut all = Vec::new();
    let mut rest = text.trim();
    while !rest.is_empty() {
        // A comma inside brackets belongs to the term.
        let mut depth = 0;
        let end = rest
            .find(|c| {
                depth += match c {
                    '(' => 1,
                    ')' => -1,
                    _ => 0,
                };
                c == ',' && depth == 0
            })
            .unwrap_or(rest.len());
        all.push(requirement(rest[..end].trim())?);
        rest = rest[end..].trim_start_matches(',').trim();
    }
    Ok(all)
}

fn requirement(term: &str) -> Checked<Requirement> {
    let refuse = || Failure::bad_request(format!("unable to parse requirement: {term}"));
    let one = |value: &str| vec![value.trim().to_owned()];
    let (key, test) = if let Some(key) = term.strip_prefix('!') {
        (key, Test::Absent)
    } else if let Some((key, value)) = term.split_once("!=") {
        (key, Test::NotIn(one(value)))
    } else if let Some((key, value)) = term.split_once('=') {
        (key, Test::In(one(value.strip_prefix('=').unwrap_or(value))))
    } else if let Some((head, list)) = term.split_once('(') {
        let list = list.strip_suffix(')').ok_or_else(refuse)?;
        let list = list.split(',').map(|value| value.trim().to_owned()).collect();
        match head.trim().rsplit_once(' ') {
            Some((key, "in")) => (key, Test::In(list)),
            Some((key, "notin")) => (key, Test::NotIn(list)),
            _ => return Err(refuse()),
        }
    } else {
        (term, Test::Exists)
    };
    let key = key.trim();
    if key.is_empty() || key.contains([' ', '(', ')']) {
        return Err(refuse());
    }
    Ok(Requirement { key: key.to_owned(), test })
}
