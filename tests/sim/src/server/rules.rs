//! The rules (CEL) and patterns of the production CRDs, by their text. A text that is not known is a panic, so that no
//! new rule is forgotten.

use serde_json::Value;

/// One rule of `x-kubernetes-validations`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    Immutable,
    UniqueNames,
    OneAction,
    OrdersNeverChange,
    OnlyCpuAndMemory,
    SomeAmount,
    PodAndContainersNeverChange,
    OnlyCancelAndTtlChange,
    CancelledStaysSo,
}

/// What of a `PodResize` its creator says once and for all, beside the Pod and the containers.
const SAID_ONCE: [&str; 8] = [
    "mechanism",
    "restart",
    "memoryShrink",
    "onInfeasible",
    "onDeferred",
    "rollbackOnFailure",
    "activeDeadlineSeconds",
    "dryRun",
];

/// The rule that holds [`SAID_ONCE`] fast.
const ONLY_CANCEL_AND_TTL_CHANGE: &str = "has(self.mechanism) == has(oldSelf.mechanism) && (!has(self.mechanism) || self.mechanism == oldSelf.mechanism) \
    && has(self.restart) == has(oldSelf.restart) && (!has(self.restart) || self.restart == oldSelf.restart) \
    && has(self.memoryShrink) == has(oldSelf.memoryShrink) && (!has(self.memoryShrink) || self.memoryShrink == oldSelf.memoryShrink) \
    && has(self.onInfeasible) == has(oldSelf.onInfeasible) && (!has(self.onInfeasible) || self.onInfeasible == oldSelf.onInfeasible) \
    && has(self.onDeferred) == has(oldSelf.onDeferred) && (!has(self.onDeferred) || self.onDeferred == oldSelf.onDeferred) \
    && has(self.rollbackOnFailure) == has(oldSelf.rollbackOnFailure) && (!has(self.rollbackOnFailure) || self.rollbackOnFailure == oldSelf.rollbackOnFailure) \
    && has(self.activeDeadlineSeconds) == has(oldSelf.activeDeadlineSeconds) && (!has(self.activeDeadlineSeconds) || self.activeDeadlineSeconds == oldSelf.activeDeadlineSeconds) \
    && has(self.dryRun) == has(oldSelf.dryRun) && (!has(self.dryRun) || self.dryRun == oldSelf.dryRun)";

const RULES: [(Rule, &str); 9] = [
    (Rule::Immutable, "self == oldSelf"),
    (Rule::UniqueNames, "self.all(c, self.exists_one(o, o.name == c.name))"),
    (
        Rule::OneAction,
        "[has(self.recreate), has(self.verify), has(self.resize)].filter(set, set).size() == 1",
    ),
    (Rule::OrdersNeverChange, "self.all(o, !oldSelf.exists(p, p.id == o.id) || oldSelf.exists(p, p == o))"),
    (Rule::OnlyCpuAndMemory, "self.all(r, r == 'cpu' || r == 'memory')"),
    (
        Rule::SomeAmount,
        "(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)",
    ),
    (
        Rule::PodAndContainersNeverChange,
        "self.podRef == oldSelf.podRef && self.containers == oldSelf.containers",
    ),
    (Rule::OnlyCancelAndTtlChange, ONLY_CANCEL_AND_TTL_CHANGE),
    (Rule::CancelledStaysSo, "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)"),
];

impl Rule {
    pub(super) fn known(text: &str) -> Self {
        let found = RULES.iter().find(|(_, known)| *known == text);
        found
            .unwrap_or_else(|| panic!("the model does not know the rule {text:?}: add it to server/rules.rs"))
            .0
    }

    pub(super) fn text(self) -> &'static str {
        RULES.iter().find(|(rule, _)| *rule == self).unwrap().1
    }

    /// Whether a value keeps it. Rules about `oldSelf` are not asked where there is none.
    pub(super) fn holds(self, new: &Value, old: Option<&Value>) -> bool {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Immutable => old.is_none_or(|old| old == new),
            Self::UniqueNames => {
                let all = list(new);
                all.iter().all(|c| all.iter().filter(|o| o["name"] == c["name"]).count() == 1)
            }
            Self::OneAction => {
                let has = |member: &str| new.get(member).is_some_and(|value| !value.is_null());
                ["recreate", "verify", "resize"].into_iter().filter(|member| has(member)).count() == 1
            }
            Self::OrdersNeverChange => old.is_none_or(|old| {
                let old = list(old);
                list(new).iter().all(|o| !old.iter().any(|p| p["id"] == o["id"]) || old.contains(o))
            }),
            Self::OnlyCpuAndMemory => {
                new.as_object().is_none_or(|all| all.keys().all(|r| r == "cpu" || r == "memory"))
            }
            Self::SomeAmount => {
                ["requests", "limits"].iter().any(|l| new[*l].as_object().is_some_and(|all| !all.is_empty()))
            }
            Self::PodAndContainersNeverChange => old.is_none_or(|old| {
                ["podRef", "containers"].iter().all(|field| new.get(*field) == old.get(*field))
            }),
            Self::OnlyCancelAndTtlChange => {
                old.is_none_or(|old| SAID_ONCE.iter().all(|field| new.get(*field) == old.get(*field)))
            }
            Self::CancelledStaysSo => old.is_none_or(|old| old["cancel"] != true || new["cancel"] == true),
        }
    }
}

/// One `pattern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    ContainerId,
    Amount,
}

impl Pattern {
    pub(super) fn known(text: &str) -> Self {
        match text {
            "^[0-9a-f]{64}$" => Self::ContainerId,
            r"^([+-][0-9.]+%|x[0-9.]+|[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?)$" => Self::Amount,
            other => panic!("the model does not know the pattern {other:?}: add it to server/rules.rs"),
        }
    }

    pub(super) fn matches(self, text: &str) -> bool {
        match self {
            Self::ContainerId => {
                text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            }
            Self::Amount => is_amount(text),
        }
    }
}

fn is_amount(text: &str) -> bool {
    let number = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit() || b == b'.');
    if let Some(percent) = text.strip_prefix(['+', '-']) {
        return percent.strip_suffix('%').is_some_and(number);
    }
    if let Some(times) = text.strip_prefix('x') {
        return number(times);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, suffix) = text.split_at(end);
    let exponent = suffix.strip_prefix(['e', 'E']).map(|e| e.strip_prefix(['+', '-']).unwrap_or(e));
    let exponent = exponent.is_some_and(|e| !e.is_empty() && e.bytes().all(|b| b.is_ascii_digit()));
    let unit = matches!(
        suffix.as_bytes(),
        [] | [b'n' | b'u' | b'm' | b'k' | b'M' | b'G' | b'T' | b'P' | b'E']
            | [b'K' | b'M' | b'G' | b'T' | b'P' | b'E', b'i']
    );
    number(digits) && (unit || exponent)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_are_told_from_other_texts() {
        for good in ["1", "500m", "1.5Gi", "+20%", "-10%", "x1.5", "1e3", "2E-3", "2E"] {
            assert!(Pattern::Amount.matches(good), "{good}");
        }
        for bad in ["", "m", "+20", "x", "1 Gi", "1gi", "1e", "%", "-", "20%", "1.5Gib"] {
            assert!(!Pattern::Amount.matches(bad), "{bad}");
        }
    }
}
