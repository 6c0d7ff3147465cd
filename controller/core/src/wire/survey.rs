//! Reading the limits for a Pod: the `LimitRange`s and the `ResourceQuota`s of its namespace, then its node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1 as core;
use kube::Resource as _;
use kube::core::params::{GetParams, ListParams};
use kube::core::{Request as Builder, request};
use pitstop_api::logic::answer::{Answer, Class, Failure};
use pitstop_api::quantity::Resource;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::exchange::parse;
use super::reading::{List, Reading};
use super::requests::HttpRequest;
use crate::hold::admission::{Amounts, Limit, LimitType, Quota, QuotaBound, ResourceName, Scope, Survey};
use crate::key::ObjectKey;

/// Most `LimitRange`s, and most `ResourceQuota`s, of a namespace that are read.
const MOST: u32 = 64;

/// A survey under way.
#[derive(Clone, Debug)]
pub(super) struct SurveyReading {
    /// Namespace, and name of the node.
    pub(super) key: ObjectKey,
    /// What was found so far.
    pub(super) survey: Survey,
    next: Next,
}

/// What is read next.
#[derive(Clone, Copy, Debug)]
enum Next {
    LimitRanges,
    Quotas,
    Node,
}

impl SurveyReading {
    /// Nothing read yet.
    pub(super) fn new(key: ObjectKey) -> Self {
        Self { key, survey: Survey::default(), next: Next::LimitRanges }
    }

    fn list<T: DeserializeOwned>(&self, text: &str) -> Result<Vec<T>, Failure> {
        let list: List<T> = parse(text)?;
        if list.more().is_some() {
            let message = format!(
                "there are more than {MOST} {} in namespace {}: the controller reads no more, and admits no resize",
                self.plural(),
                self.key.namespace
            );
            return Err(Failure { gone: false, class: Class::Invalid, message });
        }
        Ok(list.items)
    }

    fn failed(&self, failure: &Failure) -> Failure {
        let missing = failure.message.contains("is forbidden");
        let right = if missing {
            format!(
                ": the controller needs the right to {} {}: apply deploy/components/resize-cri",
                self.verb(),
                self.plural()
            )
        } else {
            String::new()
        };
        let message = format!("cannot {} {}: {}{right}", self.verb(), self.plural(), failure.message);
        Failure { gone: failure.gone, class: failure.class, message }
    }

    fn verb(&self) -> &'static str {
        match self.next {
            Next::LimitRanges | Next::Quotas => "list",
            Next::Node => "get",
        }
    }

    fn plural(&self) -> &'static str {
        match self.next {
            Next::LimitRanges => "limitranges",
            Next::Quotas => "resourcequotas",
            Next::Node => "nodes",
        }
    }
}

impl Reading for SurveyReading {
    fn request(&self) -> Result<HttpRequest, request::Error> {
        let namespace = Some(self.key.namespace.as_str());
        let list = |path: String| Builder::new(path).list(&ListParams::default().limit(MOST));
        match self.next {
            Next::LimitRanges => list(core::LimitRange::url_path(&(), namespace)),
            Next::Quotas => list(core::ResourceQuota::url_path(&(), namespace)),
            Next::Node => {
                Builder::new(core::Node::url_path(&(), None)).get(&self.key.name, &GetParams::default())
            }
        }
    }

    fn answered(&mut self, answer: Answer) -> Result<bool, Failure> {
        let text = match answer {
            Answer::Body(text) => text,
            Answer::Failed(failure) => return Err(self.failed(&failure)),
        };
        match self.next {
            Next::LimitRanges => {
                let ranges: Vec<SlimLimitRange> = self.list(&text)?;
                self.survey.limits =
                    ranges.into_iter().flat_map(|r| r.spec.limits).filter_map(|l| limit(&l)).collect();
                self.next = Next::Quotas;
            }
            Next::Quotas => {
                let quotas: Vec<SlimQuota> = self.list(&text)?;
                self.survey.quotas = quotas.into_iter().map(quota).collect();
                self.next = Next::Node;
            }
            Next::Node => {
                let node: SlimNode = parse(&text)?;
                self.survey.allocatable = node.status.allocatable.read();
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// Quantities of CPU and memory; others are skipped.
#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimAmounts {
    cpu: Option<String>,
    memory: Option<String>,
}

impl SlimAmounts {
    fn read(&self) -> Amounts {
        let of =
            |resource: Resource, text: &Option<String>| text.as_deref().and_then(|text| resource.parse(text));
        Amounts { cpu: of(Resource::Cpu, &self.cpu), memory: of(Resource::Memory, &self.memory) }
    }

    /// Plain numbers in thousandths, as millicores are.
    fn ratios(&self) -> Amounts {
        let of = |text: &Option<String>| text.as_deref().and_then(|text| Resource::Cpu.parse(text));
        Amounts { cpu: of(&self.cpu), memory: of(&self.memory) }
    }
}

#[derive(Deserialize)]
struct SlimLimitRange {
    #[serde(default)]
    spec: SlimLimits,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimLimits {
    limits: Vec<SlimLimit>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimLimit {
    #[serde(rename = "type")]
    type_: String,
    min: SlimAmounts,
    max: SlimAmounts,
    max_limit_request_ratio: SlimAmounts,
}

/// `None` if it does not limit Pods.
fn limit(limit: &SlimLimit) -> Option<Limit> {
    let type_ = match limit.type_.as_str() {
        "Container" => LimitType::Container,
        "Pod" => LimitType::Pod,
        _ => return None,
    };
    let (min, max) = (limit.min.read(), limit.max.read());
    Some(Limit { type_, min, max, max_ratio: limit.max_limit_request_ratio.ratios() })
}

#[derive(Deserialize)]
struct SlimQuota {
    metadata: SlimMeta,
    #[serde(default)]
    spec: SlimQuotaSpec,
    #[serde(default)]
    status: SlimQuotaStatus,
}

#[derive(Deserialize)]
struct SlimMeta {
    name: String,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimQuotaSpec {
    scopes: Vec<String>,
    scope_selector: SlimSelector,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimSelector {
    match_expressions: Vec<SlimExpression>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimExpression {
    scope_name: String,
    operator: String,
    values: Vec<String>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimQuotaStatus {
    hard: BTreeMap<String, String>,
    used: BTreeMap<String, String>,
}

fn quota(quota: SlimQuota) -> Quota {
    let SlimQuotaSpec { scopes, scope_selector } = quota.spec;
    let plain = scopes.iter().filter_map(|name| scope(name, "Exists", Vec::new()));
    let selected = scope_selector.match_expressions.into_iter();
    let selected = selected.filter_map(|e| scope(&e.scope_name, &e.operator, e.values));
    let SlimQuotaStatus { hard, used } = quota.status;
    let amount = |of: &BTreeMap<String, String>, counted: ResourceName| {
        of.get(counted.as_str()).and_then(|text| counted.resource().parse(text))
    };
    let bound =
        |counted| Some(QuotaBound { counted, hard: amount(&hard, counted)?, used: amount(&used, counted) });
    Quota {
        name: quota.metadata.name,
        scopes: plain.chain(selected).collect(),
        bounds: ResourceName::ALL.into_iter().filter_map(bound).collect(),
    }
}

/// `None` if unknown: such a quota counts the Pod.
fn scope(name: &str, operator: &str, values: Vec<String>) -> Option<Scope> {
    Some(match (name, operator) {
        ("Terminating", "Exists") => Scope::Terminating(true),
        ("NotTerminating", "Exists") => Scope::Terminating(false),
        ("BestEffort", "Exists") => Scope::BestEffort(true),
        ("NotBestEffort", "Exists") => Scope::BestEffort(false),
        ("PriorityClass", "Exists") => Scope::Prioritized(true),
        ("PriorityClass", "DoesNotExist") => Scope::Prioritized(false),
        ("PriorityClass", "In") => Scope::PriorityIn(values),
        ("PriorityClass", "NotIn") => Scope::PriorityNotIn(values),
        _ => return None,
    })
}

#[derive(Deserialize)]
struct SlimNode {
    #[serde(default)]
    status: SlimNodeStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimNodeStatus {
    allocatable: SlimAmounts,
}

#[cfg(test)]
#[path = "survey_tests.rs"]
mod tests;
