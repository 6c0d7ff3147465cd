//! Scripts and their notation.

use std::fmt;

use http::Request;
use http::header::{ACCEPT, CONTENT_TYPE};
use serde_json::Value;

use super::Scope;

/// A list of requests.
#[derive(Clone, Debug)]
pub struct Script {
    /// Subject, or seed.
    pub name: String,
    /// The steps, in order.
    pub steps: Vec<Step>,
}

/// One step.
#[derive(Clone, Debug)]
pub enum Step {
    /// A request with an answer.
    Send(Draft),
    /// A watch to open; watches count from 0.
    Watch(Draft),
    /// All events of a watch so far.
    Events(usize),
}

/// A request with placeholders. `{ns}` and `{id}` stand for the scope, `{3:/metadata/uid}` for a part of the
/// answer to step 3 (`{3:/metadata/resourceVersion+5}` for a larger number).
#[derive(Clone, Debug)]
pub struct Draft {
    /// The verb.
    pub method: &'static str,
    /// `pod/a/status`: short name of a kind, then optional name and subresource. Prefix `all:` means no
    /// namespace, prefix `none:` a namespace that does not exist.
    pub target: String,
    /// The query string, without question mark.
    pub query: String,
    /// Media type of the body.
    pub content_type: &'static str,
    /// Media types that are accepted.
    pub accept: &'static str,
    /// The body.
    pub body: Body,
}

/// A body.
#[derive(Clone, Debug)]
pub enum Body {
    /// None.
    Empty,
    /// This JSON, with placeholders filled.
    Json(Value),
    /// These exact bytes.
    Text(&'static str),
    /// The answer to an earlier step, changed by a merge patch.
    Answer(usize, Value),
}

/// Short names: group and version, plural, and whether there is a namespace.
const KINDS: [(&str, &str, &str, bool); 10] = [
    ("pod", "api/v1", "pods", true),
    ("node", "api/v1", "nodes", false),
    ("ns", "api/v1", "namespaces", false),
    ("cm", "api/v1", "configmaps", true),
    ("event", "apis/events.k8s.io/v1", "events", true),
    ("lease", "apis/coordination.k8s.io/v1", "leases", true),
    ("crr", "apis/apps.kruise.io/v1alpha1", "containerrecreaterequests", true),
    ("crrb", "apis/apps.kruise.io/v1beta1", "containerrecreaterequests", true),
    ("nw", "apis/pitstop.dev/v1alpha1", "nodeworks", false),
    ("wrong", "api/v1", "nonsenses", true),
];

impl Draft {
    /// The short name of its kind.
    pub fn kind(&self) -> &str {
        let target = self.target.split_once(':').map_or(self.target.as_str(), |(_, target)| target);
        target.split('/').next().unwrap()
    }

    fn path(&self) -> String {
        let (prefix, target) = self.target.split_once(':').unwrap_or(("", &self.target));
        let mut parts = target.splitn(2, '/');
        let short = parts.next().unwrap();
        let (_, group, plural, namespaced) = KINDS.iter().find(|(name, ..)| *name == short).unwrap();
        let rest = parts.next().map(|rest| format!("/{rest}")).unwrap_or_default();
        let namespace = match (namespaced, prefix) {
            (true, "") => "/namespaces/{ns}",
            (true, "none") => "/namespaces/{id}none",
            _ => "",
        };
        format!("/{group}{namespace}/{plural}{rest}")
    }

    /// The request, with placeholders filled.
    pub fn build(&self, scope: &Scope, answers: &[Value]) -> Request<Vec<u8>> {
        let fill = |text: &str| fill(text, scope, answers);
        let mut uri = fill(&self.path());
        let writes = !matches!(self.method, "GET" | "DELETE");
        let manager =
            if writes && !self.query.contains("fieldManager") { "fieldManager=conformance" } else { "" };
        let query: Vec<&str> = [self.query.as_str(), manager].into_iter().filter(|q| !q.is_empty()).collect();
        if !query.is_empty() {
            uri = format!("{uri}?{}", fill(&query.join("&")));
        }
        let body = match &self.body {
            Body::Empty => Vec::new(),
            Body::Json(value) => serde_json::to_vec(&fill_value(value, scope, answers)).unwrap(),
            Body::Text(text) => text.as_bytes().to_vec(),
            Body::Answer(step, patch) => {
                let mut object = answers[*step].clone();
                json_patch::merge(&mut object, &fill_value(patch, scope, answers));
                serde_json::to_vec(&object).unwrap()
            }
        };
        let mut request = Request::builder().method(self.method).uri(uri);
        if !self.accept.is_empty() {
            request = request.header(ACCEPT, self.accept);
        }
        if !body.is_empty() {
            request = request.header(CONTENT_TYPE, self.content_type);
        }
        request.body(body).unwrap()
    }
}

fn fill_value(value: &Value, scope: &Scope, answers: &[Value]) -> Value {
    match value {
        Value::String(text) => fill(text, scope, answers).into(),
        Value::Array(list) => list.iter().map(|item| fill_value(item, scope, answers)).collect(),
        Value::Object(map) => {
            map.iter().map(|(key, value)| (key.clone(), fill_value(value, scope, answers))).collect()
        }
        other => other.clone(),
    }
}

fn fill(text: &str, scope: &Scope, answers: &[Value]) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, gap)) = rest.split_once('{') {
        filled.push_str(before);
        let Some((gap, after)) = gap.split_once('}') else {
            filled.push('{');
            rest = gap;
            continue;
        };
        match gap {
            "ns" => filled.push_str(&scope.namespace),
            "id" => filled.push_str(&scope.id),
            gap => filled.push_str(&part(gap, answers)),
        }
        rest = after;
    }
    filled + rest
}

/// Resolves `3:/metadata/uid` in the answers; `none` if the part does not exist.
fn part(gap: &str, answers: &[Value]) -> String {
    let Some((step, pointer)) = gap.split_once(':') else { return format!("{{{gap}}}") };
    let Ok(step) = step.parse::<usize>() else { return format!("{{{gap}}}") };
    let (pointer, more) = pointer.split_once('+').unwrap_or((pointer, ""));
    let text = match answers[step].pointer(pointer) {
        Some(Value::String(text)) => text.clone(),
        Some(other) => other.to_string(),
        None => return "none".to_owned(),
    };
    match (more.parse::<u64>(), text.parse::<u64>()) {
        (Ok(more), Ok(number)) => (number + more).to_string(),
        _ => text,
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Events(watch) => write!(f, "events of watch {watch}"),
            Self::Send(draft) => write!(f, "{draft}"),
            Self::Watch(draft) => write!(f, "watch {draft}"),
        }
    }
}

impl fmt::Display for Draft {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.method, self.target)?;
        if !self.query.is_empty() {
            write!(f, "?{}", self.query)?;
        }
        if !self.content_type.is_empty() && self.method == "PATCH" {
            write!(f, " ({})", self.content_type)?;
        }
        match &self.body {
            Body::Empty => Ok(()),
            Body::Json(value) => write!(f, " {value}"),
            Body::Text(text) => write!(f, " {text}"),
            Body::Answer(step, patch) => write!(f, " answer {step} with {patch}"),
        }
    }
}

impl Script {
    /// An empty script.
    pub fn new(name: impl Into<String>) -> Self {
        Self { name: name.into(), steps: Vec::new() }
    }

    fn draft(mut self, method: &'static str, target: &str, content_type: &'static str, body: Body) -> Self {
        let draft = Draft {
            method,
            target: target.to_owned(),
            query: String::new(),
            content_type,
            accept: "application/json",
            body,
        };
        self.steps.push(Step::Send(draft));
        self
    }

    pub(super) fn post(self, target: &str, body: Value) -> Self {
        self.draft("POST", target, "application/json", Body::Json(body))
    }

    pub(super) fn put(self, target: &str, body: Value) -> Self {
        self.draft("PUT", target, "application/json", Body::Json(body))
    }

    /// PUT of the answer to step `answer`, changed by a merge patch.
    pub(super) fn edit(self, target: &str, answer: usize, change: Value) -> Self {
        self.draft("PUT", target, "application/json", Body::Answer(answer, change))
    }

    pub(super) fn merge(self, target: &str, patch: Value) -> Self {
        self.draft("PATCH", target, "application/merge-patch+json", Body::Json(patch))
    }

    pub(super) fn json(self, target: &str, patch: Value) -> Self {
        self.draft("PATCH", target, "application/json-patch+json", Body::Json(patch))
    }

    pub(super) fn strategic(self, target: &str, patch: Value) -> Self {
        self.draft("PATCH", target, "application/strategic-merge-patch+json", Body::Json(patch))
    }

    pub(super) fn delete(self, target: &str, options: Value) -> Self {
        let body = if options.is_null() { Body::Empty } else { Body::Json(options) };
        self.draft("DELETE", target, "application/json", body)
    }

    pub(super) fn get(self, target: &str) -> Self {
        self.draft("GET", target, "", Body::Empty)
    }

    pub(super) fn list(self, target: &str, query: &str) -> Self {
        self.get(target).query(query)
    }

    pub(super) fn watch(self, target: &str, query: &str) -> Self {
        let mut script = self.get(target).query("watch=true").query(query);
        if let Some(Step::Send(draft)) = script.steps.pop() {
            script.steps.push(Step::Watch(draft));
        }
        script
    }

    pub(super) fn events(mut self, watch: usize) -> Self {
        self.steps.push(Step::Events(watch));
        self
    }

    fn last(&mut self) -> &mut Draft {
        match self.steps.last_mut() {
            Some(Step::Send(draft) | Step::Watch(draft)) => draft,
            _ => panic!("no request to change"),
        }
    }

    /// Adds to the query of the last request.
    pub(super) fn query(mut self, more: &str) -> Self {
        let draft = self.last();
        if !draft.query.is_empty() && !more.is_empty() {
            draft.query.push('&');
        }
        draft.query.push_str(more);
        self
    }

    /// Requests metadata only.
    pub(super) fn metadata(mut self) -> Self {
        let list = self.last().target.split('/').count() == 1 && !self.last().query.contains("watch");
        self.last().accept = if list {
            "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"
        } else {
            "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
        };
        self
    }

    /// Sends these bytes as another media type.
    pub(super) fn raw(mut self, content_type: &'static str, text: &'static str) -> Self {
        let draft = self.last();
        draft.content_type = content_type;
        draft.body = Body::Text(text);
        self
    }
}
