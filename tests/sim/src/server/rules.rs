//! The rules (CEL) and patterns of the production CRDs, by their text. An unknown text is a panic, so that no
//! new rule is forgotten.

use pitstop_api::id::{self, ContainerId};
use pitstop_api::rollout::LABEL_VALUE;
use serde_json::Value;

/// A rule of `x-kubernetes-validations`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Rule {
    /// The field never changes, appears or disappears.
    Immutable(String),
    /// The field may disappear, and never changes in another way.
    Droppable(String),
    /// The field appears or disappears only with the object.
    NeverComesNorGoes(String),
    /// The names of a list stay, in their order.
    SameNames,
    OneAction,
    OrdersNeverChange,
    OnlyCpuAndMemory,
    SomeAmount,
    OnlyMoreTime,
    CancelledStaysSo,
    SomeUnavailable,
    OthersAnnotations,
    OneTarget,
    WishesAreForSelected,
    SelectedHaveNoTemplate,
}

/// Rules whose text is constant.
const RULES: [(Rule, &str); 12] = [
    (Rule::SameNames, "self.map(c, c.name) == oldSelf.map(c, c.name)"),
    (
        Rule::OneAction,
        "[has(self.recreate), has(self.verify), has(self.resize), has(self.pull)].filter(set, set).size() == 1",
    ),
    (Rule::OrdersNeverChange, "self.all(o, !oldSelf.exists(p, p.id == o.id) || oldSelf.exists(p, p == o))"),
    (Rule::OnlyCpuAndMemory, "self.all(r, r == 'cpu' || r == 'memory')"),
    (
        Rule::SomeAmount,
        "(has(self.requests) && size(self.requests) > 0) || (has(self.limits) && size(self.limits) > 0)",
    ),
    (
        Rule::OnlyMoreTime,
        "!has(oldSelf.activeDeadlineSeconds) || (has(self.activeDeadlineSeconds) && self.activeDeadlineSeconds >= oldSelf.activeDeadlineSeconds)",
    ),
    (
        Rule::SomeUnavailable,
        "!has(self.strategy) || !has(self.strategy.maxUnavailable) || type(self.strategy.maxUnavailable) != int || self.strategy.maxUnavailable >= 1",
    ),
    (
        Rule::OthersAnnotations,
        "!has(self.restartAnnotations) || !self.restartAnnotations.exists(a, a.startsWith('pitstop.dev/'))",
    ),
    (Rule::OneTarget, "has(self.targetRef) != has(self.selector)"),
    (Rule::WishesAreForSelected, "has(self.selector) || (!has(self.images) && !has(self.resources))"),
    (
        Rule::SelectedHaveNoTemplate,
        "has(self.targetRef) || ((!has(self.templateChanges) || self.templateChanges == 'Native') && !has(self.restartAnnotations) && (!has(self.strategy) || !has(self.strategy.onFailure) || self.strategy.onFailure == 'Pause'))",
    ),
    (Rule::CancelledStaysSo, "!has(oldSelf.cancel) || !oldSelf.cancel || (has(self.cancel) && self.cancel)"),
];

impl Rule {
    pub(super) fn known(text: &str) -> Self {
        let constant = RULES.iter().find(|(_, known)| *known == text).map(|(rule, _)| rule.clone());
        let about_a_field = || {
            let field = text.rsplit('.').next()?.trim_end_matches(')').to_owned();
            [Self::Immutable(field.clone()), Self::Droppable(field.clone()), Self::NeverComesNorGoes(field)]
                .into_iter()
                .find(|rule| rule.text() == text)
        };
        constant
            .or_else(about_a_field)
            .unwrap_or_else(|| panic!("the model does not know the rule {text:?}: add it to server/rules.rs"))
    }

    pub(super) fn text(&self) -> String {
        match self {
            Self::Immutable(field) => format!(
                "has(self.{field}) == has(oldSelf.{field}) && (!has(self.{field}) || self.{field} == oldSelf.{field})"
            ),
            Self::Droppable(field) => {
                format!("!has(self.{field}) || (has(oldSelf.{field}) && self.{field} == oldSelf.{field})")
            }
            Self::NeverComesNorGoes(field) => format!("has(self.{field}) == has(oldSelf.{field})"),
            other => RULES.iter().find(|(rule, _)| rule == other).unwrap().1.to_owned(),
        }
    }

    /// Whether a value satisfies the rule. Rules about `oldSelf` are skipped without an old value.
    pub(super) fn holds(&self, new: &Value, old: Option<&Value>) -> bool {
        let list = |value: &Value| value.as_array().cloned().unwrap_or_default();
        match self {
            Self::Immutable(field) => old.is_none_or(|old| new.get(field) == old.get(field)),
            Self::Droppable(field) => {
                old.is_none_or(|old| new.get(field).is_none_or(|now| Some(now) == old.get(field)))
            }
            Self::NeverComesNorGoes(field) => {
                old.is_none_or(|old| new.get(field).is_some() == old.get(field).is_some())
            }
            Self::SameNames => old.is_none_or(|old| {
                let names = |value: &Value| list(value).iter().map(|c| c["name"].clone()).collect::<Vec<_>>();
                names(new) == names(old)
            }),
            Self::OneAction => {
                let has = |member: &str| new.get(member).is_some_and(|value| !value.is_null());
                ["recreate", "verify", "resize", "pull"].into_iter().filter(|member| has(member)).count() == 1
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
            Self::OnlyMoreTime => old.is_none_or(|old| {
                let seconds = |value: &Value| value["activeDeadlineSeconds"].as_i64();
                seconds(old).is_none_or(|old| seconds(new).is_some_and(|new| new >= old))
            }),
            Self::SomeUnavailable => new["strategy"]["maxUnavailable"].as_i64().is_none_or(|most| most >= 1),
            Self::OthersAnnotations => {
                let own = |name: &Value| name.as_str().is_some_and(|name| name.starts_with("pitstop.dev/"));
                !list(&new["restartAnnotations"]).iter().any(own)
            }
            Self::OneTarget => new.get("targetRef").is_some() != new.get("selector").is_some(),
            Self::WishesAreForSelected => {
                let wishes = new.get("images").is_some() || new.get("resources").is_some();
                new.get("selector").is_some() || !wishes
            }
            Self::SelectedHaveNoTemplate => {
                let is = |field: &Value, text: &str| field.is_null() || field == text;
                let none = is(&new["templateChanges"], "Native") && new.get("restartAnnotations").is_none();
                new.get("targetRef").is_some() || (none && is(&new["strategy"]["onFailure"], "Pause"))
            }
            Self::CancelledStaysSo => old.is_none_or(|old| old["cancel"] != true || new["cancel"] == true),
        }
    }
}

/// A `pattern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    ContainerId,
    Amount,
    ConditionType,
    ConditionReason,
    Percent,
    LabelValue,
}

/// Patterns of `metav1.Condition`.
const CONDITION_TYPE: &str = r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$";
const CONDITION_REASON: &str = r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$";

impl Pattern {
    pub(super) fn known(text: &str) -> Self {
        match text {
            id::PATTERN => Self::ContainerId,
            r"^([+-][0-9.]+%|x[0-9.]+|[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?)$" => Self::Amount,
            "^([1-9][0-9]?|100)%$" => Self::Percent,
            LABEL_VALUE => Self::LabelValue,
            CONDITION_TYPE => Self::ConditionType,
            CONDITION_REASON => Self::ConditionReason,
            other => panic!("the model does not know the pattern {other:?}: add it to server/rules.rs"),
        }
    }

    pub(super) fn matches(self, text: &str) -> bool {
        match self {
            Self::ContainerId => ContainerId::parse(text).is_ok(),
            Self::Amount => is_amount(text),
            Self::Percent => text
                .strip_suffix('%')
                .filter(|digits| !digits.starts_with(['0', '+']))
                .and_then(|digits| digits.parse().ok())
                .is_some_and(|percent: u8| percent <= 100),
            Self::LabelValue => {
                let plain = |b: u8| b.is_ascii_alphanumeric();
                text.is_empty() || within(text, plain, |b| plain(b) || matches!(b, b'-' | b'_' | b'.'), plain)
            }
            Self::ConditionType => {
                let (domain, name) = text.rsplit_once('/').unwrap_or(("a", text));
                let label = |label: &str| {
                    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit();
                    within(label, plain, |b| plain(b) || b == b'-', plain)
                };
                let plain = |b: u8| b.is_ascii_alphanumeric();
                domain.split('.').all(label)
                    && within(name, plain, |b| plain(b) || matches!(b, b'-' | b'_' | b'.'), plain)
            }
            Self::ConditionReason => {
                let last = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
                within(text, |b| b.is_ascii_alphabetic(), |b| last(b) || matches!(b, b',' | b':'), last)
            }
        }
    }
}

/// Whether the first, inner and last characters of a non-empty text are of these kinds; a single one is a
/// first.
fn within(
    text: &str,
    first: impl Fn(u8) -> bool,
    inner: impl Fn(u8) -> bool,
    last: impl Fn(u8) -> bool,
) -> bool {
    match text.as_bytes() {
        [] => false,
        [one] => first(*one),
        [a, rest @ .., z] => first(*a) && rest.iter().all(|b| inner(*b)) && last(*z),
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
    fn types_and_reasons_of_conditions_are_told_from_other_texts() {
        for good in ["A", "PodReady", "example.com/Ready", "a-b.c/x.y_z"] {
            assert!(Pattern::ConditionType.matches(good), "{good}");
        }
        for bad in ["", "/A", "A/", "Example.com/A", "a..b/A", "-A", "A B", "a/b/C"] {
            assert!(!Pattern::ConditionType.matches(bad), "{bad}");
        }
        for good in ["A", "WaitingForDaemon", "a_b,c:d_"] {
            assert!(Pattern::ConditionReason.matches(good), "{good}");
        }
        for bad in ["", "1A", "A B", "A:", "A.", "back-off"] {
            assert!(!Pattern::ConditionReason.matches(bad), "{bad}");
        }
    }

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
