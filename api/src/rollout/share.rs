//! How many of all Pods.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Serialize};

use crate::text::quoted;

/// A number of Pods, or a share of all of them such as `25%`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Share(pub IntOrString);

impl Share {
    /// What is wrong with it, and what would be right.
    pub fn check(&self) -> Result<(), String> {
        match &self.0 {
            IntOrString::Int(number) if *number >= 1 => Ok(()),
            IntOrString::Int(number) => Err(format!("must be at least 1, not {number}")),
            IntOrString::String(text) => match percent(text) {
                Some(1..=100) => Ok(()),
                _ => Err(format!("{} is no share: write a number, or one of 1% to 100%", quoted(text))),
            },
        }
    }

    /// How many of so many Pods: rounded down, and at least one.
    pub fn of(&self, all: u32) -> u32 {
        share_of(&self.0, all).max(1)
    }
}

fn percent(text: &str) -> Option<u32> {
    text.strip_suffix('%').filter(|digits| digits.len() <= 4)?.parse().ok()
}

/// How many of so many Pods a workload's strategy means: rounded down, and at least one; none only where it says so itself.
pub fn share_of(share: &IntOrString, all: u32) -> u32 {
    match share {
        IntOrString::Int(number) => u32::try_from(*number).unwrap_or_default(),
        IntOrString::String(text) => match percent(text) {
            Some(0) => 0,
            Some(percent) => {
                let share = u64::from(all).saturating_mul(percent.into()).checked_div(100);
                u32::try_from(share.unwrap_or_default()).unwrap_or(u32::MAX).max(1)
            }
            None => 1,
        },
    }
}

impl JsonSchema for Share {
    fn schema_name() -> Cow<'static, str> {
        "Share".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 4,
            "pattern": "^([1-9][0-9]?|100)%$",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> IntOrString {
        IntOrString::String(text.into())
    }

    #[test]
    fn a_share_is_rounded_down_and_is_at_least_one() {
        for (share, all, is) in [
            (IntOrString::Int(3), 10, 3),
            (IntOrString::Int(0), 10, 0),
            (text("25%"), 10, 2),
            (text("25%"), 3, 1),
            (text("0%"), 10, 0),
            (text("100%"), 7, 7),
            (text("100%"), 0, 1),
            (text("50%"), u32::MAX, u32::MAX / 2),
        ] {
            assert_eq!(share_of(&share, all), is, "{share:?} of {all}");
        }
        assert_eq!(Share(IntOrString::Int(0)).of(10), 1);
    }

    #[test]
    fn what_is_no_share_says_what_would_be_right() {
        for (share, why) in [
            (IntOrString::Int(0), "must be at least 1, not 0"),
            (IntOrString::Int(-1), "must be at least 1, not -1"),
            (text("0%"), "write a number, or one of 1% to 100%"),
            (text("101%"), "\"101%\" is no share"),
            (text("half"), "\"half\" is no share"),
            (text("99999999999999999999%"), "is no share"),
        ] {
            let error = Share(share).check().unwrap_err();
            assert!(error.contains(why), "{error}");
        }
        assert_eq!((Share(IntOrString::Int(1)).check(), Share(text("100%")).check()), (Ok(()), Ok(())));
    }
}
