//! Amounts of resources, read without keeping their texts: every change of every Pod of the cluster is decoded, and the
//! texts would be a third of the memory allocated for that.

use std::fmt;

use pitstop_api::quantity::Resource;
use serde::de::{DeserializeSeed, Error, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer};

/// Prefix of the resources of huge pages; the page size follows.
const HUGE_PAGES: &str = "hugepages-";

/// What decisions need of amounts by resource name. An unreadable amount is `None`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Amounts {
    /// Thousandths of a CPU.
    pub(super) cpu: Option<i64>,
    /// Bytes.
    pub(super) memory: Option<i64>,
    /// It has an amount of huge pages.
    pub(super) huge_pages: bool,
}

/// Reads a value from a text.
pub(super) struct Read<F>(F);

impl<F> Read<F> {
    pub(super) fn new(read: F) -> Self {
        Self(read)
    }
}

impl<'de, T, F: FnOnce(&str) -> T> DeserializeSeed<'de> for Read<F> {
    type Value = T;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<T, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl<T, F: FnOnce(&str) -> T> Visitor<'_> for Read<F> {
    type Value = T;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("a string")
    }
    fn visit_str<E: Error>(self, text: &str) -> Result<T, E> {
        Ok((self.0)(text))
    }
}

/// The name of a resource.
enum Name {
    Cpu,
    Memory,
    HugePages,
    Other,
}

impl Name {
    fn of(text: &str) -> Self {
        if text == Resource::Cpu.as_str() {
            Self::Cpu
        } else if text == Resource::Memory.as_str() {
            Self::Memory
        } else if text.starts_with(HUGE_PAGES) {
            Self::HugePages
        } else {
            Self::Other
        }
    }
}

struct ByName;

impl<'de> Visitor<'de> for ByName {
    type Value = Amounts;
    fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("amounts by the names of resources")
    }
    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Amounts, A::Error> {
        let mut amounts = Amounts::default();
        while let Some(name) = map.next_key_seed(Read(Name::of))? {
            match name {
                Name::Cpu => {
                    amounts.cpu = map.next_value_seed(Read(|text: &str| Resource::Cpu.parse(text)))?;
                }
                Name::Memory => {
                    amounts.memory = map.next_value_seed(Read(|text: &str| Resource::Memory.parse(text)))?;
                }
                Name::HugePages => {
                    amounts.huge_pages = true;
                    map.next_value::<IgnoredAny>()?;
                }
                Name::Other => drop(map.next_value::<IgnoredAny>()?),
            }
        }
        Ok(amounts)
    }
}

impl<'de> Deserialize<'de> for Amounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_map(ByName)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Amounts, serde_json::Error> {
        serde_json::from_str(text)
    }

    #[test]
    fn amounts_are_read_by_the_names_of_their_resources() {
        let both = Amounts { cpu: Some(250), memory: Some(1 << 30), huge_pages: false };
        assert_eq!(read(r#"{"memory":"1Gi","ephemeral-storage":"7Gi","cpu":"250m"}"#).unwrap(), both);
        assert_eq!(read(r#"{"cpu":"\u0032\u0035\u0030m","memory":"1Gi"}"#).unwrap(), both, "escaped");
        assert_eq!(read("{}").unwrap(), Amounts::default());
        let huge = Amounts { huge_pages: true, ..Amounts::default() };
        assert_eq!(read(r#"{"hugepages-2Mi":"4Mi"}"#).unwrap(), huge);
        assert_eq!(read(r#"{"cpu":"much"}"#).unwrap(), Amounts::default(), "what cannot be read is absent");
        let value = serde_json::json!({"cpu": "1"});
        assert_eq!(serde_json::from_value::<Amounts>(value).unwrap().cpu, Some(1_000));
    }

    #[test]
    fn what_is_no_amount_is_an_error() {
        for wrong in [r#"{"cpu":1}"#, r#"{"memory":null}"#, "null", "[]", r#""cpu""#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
