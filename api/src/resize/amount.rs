//! Amounts as users give them: a quantity, or a change of what is there.

use std::borrow::Cow;
use std::fmt;

use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::quantity::{MAX_TEXT, Resource, ceiling, decimal};
use crate::text::quoted;

/// A quantity such as `500m` or `1Gi`, or a change such as `+20%`, `-10%` or `x1.5`.
///
/// A whole number in YAML is a quantity, as in a Pod.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Amount(String);

/// If memory of at least this many bytes changes, the result is rounded up to a multiple of them: whole pages.
const MEBIBYTE: i64 = 1 << 20;

impl Amount {
    /// That quantity, in the resource's unit.
    pub fn of(resource: Resource, amount: i64) -> Self {
        Self(resource.show(amount))
    }

    /// As written.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The quantity in the resource's unit. The error says what to write instead.
    pub fn quantity(&self, resource: Resource) -> Result<i64, String> {
        let text = self.0.as_str();
        let wrong = || {
            format!(
                "{} is no amount of {resource}: write a quantity such as {}",
                quoted(text),
                example(resource)
            )
        };
        resource.parse(text).ok_or_else(wrong)
    }

    /// The amount in the resource's unit. A change of `current` is rounded up: to millicores, and from one mebibyte on
    /// to mebibytes. The error says what to write instead.
    pub fn resolve(&self, resource: Resource, current: Option<i64>) -> Result<i64, String> {
        let text = self.0.as_str();
        if text.len() > MAX_TEXT {
            return Err(format!("must be at most {MAX_TEXT} characters long"));
        }
        let Some((numerator, denominator)) = factor(text)? else { return self.quantity(resource) };
        let current = current.ok_or_else(|| {
            format!(
                "{} is a change, and the container has none to change: write a quantity such as {}",
                quoted(text),
                example(resource)
            )
        })?;
        let unit = match resource {
            Resource::Memory if current >= MEBIBYTE => MEBIBYTE,
            Resource::Memory | Resource::Cpu => 1,
        };
        let amount = || {
            let scaled = i128::from(current).checked_mul(numerator)?;
            let units = ceiling(scaled, denominator.checked_mul(i128::from(unit))?)?;
            i64::try_from(units.checked_mul(i128::from(unit))?).ok()
        };
        amount().ok_or_else(|| {
            format!("{} of {} is more than can be counted", quoted(text), resource.show(current))
        })
    }
}

fn example(resource: Resource) -> &'static str {
    match resource {
        Resource::Cpu => "500m",
        Resource::Memory => "256Mi",
    }
}

/// The factor of a change, as a fraction; absent for a quantity.
fn factor(text: &str) -> Result<Option<(i128, i128)>, String> {
    let wrong = || format!("{} is no change: write +20%, -10% or x1.5", quoted(text));
    let number = |number: &str| {
        let (digits, decimals) = decimal(number).ok_or_else(wrong)?;
        let scale = u32::try_from(decimals).ok().filter(|d| *d <= 6).and_then(|d| 10_i128.checked_pow(d));
        Ok::<_, String>((digits, scale.ok_or_else(wrong)?))
    };
    if let Some(times) = text.strip_prefix('x') {
        let (digits, scale) = number(times)?;
        return if digits > 0 { Ok(Some((digits, scale))) } else { Err(wrong()) };
    }
    let Some(sign) = text.chars().next().filter(|c| matches!(c, '+' | '-')) else { return Ok(None) };
    let percent = text.get(1..).and_then(|rest| rest.strip_suffix('%')).ok_or_else(wrong)?;
    let (digits, scale) = number(percent)?;
    let whole = scale.checked_mul(100).ok_or_else(wrong)?;
    let changed = if sign == '+' { whole.checked_add(digits) } else { whole.checked_sub(digits) };
    changed.filter(|left| *left > 0).map(|left| Some((left, whole))).ok_or_else(wrong)
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<&str> for Amount {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Amount;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a quantity such as 500m, or a change such as +20% or x1.5")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Amount, E> {
                Ok(Amount(text.to_owned()))
            }
            fn visit_i64<E: de::Error>(self, number: i64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
            fn visit_u64<E: de::Error>(self, number: u64) -> Result<Amount, E> {
                Ok(Amount(number.to_string()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

impl JsonSchema for Amount {
    fn schema_name() -> Cow<'static, str> {
        "Amount".into()
    }

    fn inline_schema() -> bool {
        true
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({
            "description": "A quantity such as `500m` or `1Gi`, or a change of the container's amount: `+20%`, `-10%`, `x1.5`.",
            "x-kubernetes-int-or-string": true,
            "anyOf": [{"type": "integer"}, {"type": "string"}],
            "maxLength": 64,
            "pattern": r"^([+-][0-9.]+%|x[0-9.]+|[0-9.]+([eE][+-]?[0-9]+|[numkMGTPE]|[KMGTPE]i)?)$",
        })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const MI: i64 = MEBIBYTE;

    #[test]
    fn quantities_and_changes_are_resolved() {
        let cpu = |text: &str, current| Amount::from(text).resolve(Resource::Cpu, current);
        assert_eq!(cpu("500m", None), Ok(500));
        assert_eq!(cpu("2", Some(1)), Ok(2000));
        assert_eq!(cpu("+20%", Some(250)), Ok(300));
        assert_eq!(cpu("-10%", Some(1000)), Ok(900));
        assert_eq!(cpu("x1.5", Some(333)), Ok(500), "rounded up");
        assert_eq!(cpu("+12.5%", Some(800)), Ok(900));
        let memory = |text: &str, current| Amount::from(text).resolve(Resource::Memory, current);
        assert_eq!(memory("x1.5", Some(100 * MI)), Ok(150 * MI));
        assert_eq!(memory("+1%", Some(64 * MI)), Ok(65 * MI), "rounded up to a mebibyte");
        assert_eq!(memory("x2", Some(1000)), Ok(2000));
    }

    #[test]
    fn what_cannot_be_resolved_says_what_would_be_right() {
        for (text, current, why) in [
            ("+20", Some(1), "write +20%"),
            ("-100%", Some(1), "write +20%"),
            ("+%", Some(1), "write +20%"),
            ("x0", Some(1), "x1.5"),
            ("x", Some(1), "x1.5"),
            ("x1.0000001", Some(1), "x1.5"),
            ("+20%", None, "the container has none to change"),
            ("lots", None, "is no amount of cpu: write a quantity such as 500m"),
            ("", None, "is no amount"),
            ("x9999999", Some(i64::MAX), "more than can be counted"),
            (&"9".repeat(65), None, "at most 64"),
        ] {
            let error = Amount::from(text).resolve(Resource::Cpu, current).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    #[test]
    fn a_bare_number_is_a_quantity() {
        let amount: Amount = serde_json::from_str("2").unwrap();
        assert_eq!(amount.resolve(Resource::Cpu, None), Ok(2000));
        assert_eq!(serde_json::to_string(&amount).unwrap(), "\"2\"");
        assert!(serde_json::from_str::<Amount>("[]").is_err());
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[-+x0-9.%a-z]{0,70}", current in proptest::option::of(0..i64::MAX)) {
            for resource in Resource::ALL {
                let _ = Amount::from(text.as_str()).resolve(resource, current);
            }
        }

        #[test]
        fn more_is_never_less(percent in 0..500_u32, current in 0..1_i64 << 50) {
            for resource in Resource::ALL {
                let more = Amount::from(format!("+{percent}%").as_str()).resolve(resource, Some(current)).unwrap();
                prop_assert!(more >= current);
                if percent < 100 {
                    let less = Amount::from(format!("-{percent}%").as_str()).resolve(resource, Some(current)).unwrap();
                    prop_assert!(less <= current.saturating_add(MI));
                }
            }
        }
    }
}
