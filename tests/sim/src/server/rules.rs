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
}

const RULES: [(Rule, &str); 4] = [
    (Rule::Immutable, "self == oldSelf"),
    (Rule::UniqueNames, "self.all(c, self.exists_one(o, o.name == c.name))"),
    (Rule::OneAction, "has(self.recreate) != has(self.verify)"),
    (Rule::OrdersNeverChange, "self.all(o, !oldSelf.exists(p, p.id == o.id) || oldSelf.exists(p, p == o))"),
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
                has("recreate") != has("verify")
            }
            Self::OrdersNeverChange => old.is_none_or(|old| {
                let old = list(old);
                list(new).iter().all(|o| !old.iter().any(|p| p["id"] == o["id"]) || old.contains(o))
            }),
        }
    }
}

/// One `pattern`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pattern {
    ContainerId,
}

impl Pattern {
    pub(super) fn known(text: &str) -> Self {
        match text {
            "^[0-9a-f]{64}$" => Self::ContainerId,
            other => panic!("the model does not know the pattern {other:?}: add it to server/rules.rs"),
        }
    }

    pub(super) fn matches(self, text: &str) -> bool {
        match self {
            Self::ContainerId => {
                text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
            }
        }
    }
}
