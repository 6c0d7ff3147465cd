//! Quantities of CPU and memory as Kubernetes writes them, in whole millicores and bytes.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Quantities are computed in billionths, since `n` is the smallest suffix.
const NANOS: i128 = 1_000_000_000;
/// Longest quantity that is read, in bytes. The API server writes none as long.
pub const MAX_TEXT: usize = 64;

/// Requests and limits of a container. Absent: not set; for a limit, unlimited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Resources {
    /// `requests.cpu`, in millicores.
    pub cpu_request: Option<i64>,
    /// `limits.cpu`, in millicores.
    pub cpu_limit: Option<i64>,
    /// `requests.memory`, in bytes.
    pub memory_request: Option<i64>,
    /// `limits.memory`, in bytes.
    pub memory_limit: Option<i64>,
}

impl Resources {
    /// An absent request is set to the limit, as the API server does.
    #[must_use]
    pub fn effective(self) -> Self {
        Self {
            cpu_request: self.cpu_request.or(self.cpu_limit),
            memory_request: self.memory_request.or(self.memory_limit),
            ..self
        }
    }

    /// Both agree on the amounts that `of` has.
    pub fn agrees(self, others: Self, of: Self) -> bool {
        let same = |of: Option<i64>, one: Option<i64>, other: Option<i64>| of.is_none() || one == other;
        same(of.cpu_request, self.cpu_request, others.cpu_request)
            && same(of.cpu_limit, self.cpu_limit, others.cpu_limit)
            && same(of.memory_request, self.memory_request, others.memory_request)
            && same(of.memory_limit, self.memory_limit, others.memory_limit)
    }

    /// These, with absent amounts from `others`.
    #[must_use]
    pub fn over(self, others: Self) -> Self {
        Self {
            cpu_request: self.cpu_request.or(others.cpu_request),
            cpu_limit: self.cpu_limit.or(others.cpu_limit),
            memory_request: self.memory_request.or(others.memory_request),
            memory_limit: self.memory_limit.or(others.memory_limit),
        }
    }
}

/// A resource that can be resized.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Resource {
    /// In millicores.
    Cpu,
    /// In bytes.
    Memory,
}

impl Resource {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Cpu, Self::Memory];

    /// Its Kubernetes name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Cpu => "cpu",
            Self::Memory => "memory",
        }
    }

    /// Reads a quantity in this resource's unit, rounded up as in Kubernetes.
    pub fn parse(self, text: &str) -> Option<i64> {
        let nanos = nanos(text)?;
        let unit = match self {
            Self::Cpu => NANOS / 1000,
            Self::Memory => NANOS,
        };
        i64::try_from(ceiling(nanos, unit)?).ok()
    }

    /// Writes an amount of this resource's unit.
    pub fn show(self, amount: i64) -> String {
        match self {
            Self::Cpu if amount.rem_euclid(1000) == 0 => (amount / 1000).to_string(),
            Self::Cpu => format!("{amount}m"),
            Self::Memory => bytes(amount),
        }
    }
}

impl fmt::Display for Resource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Whole bytes in the largest possible binary unit; `0` has none.
fn bytes(amount: i64) -> String {
    let units = ["Ei", "Pi", "Ti", "Gi", "Mi", "Ki"];
    for (unit, power) in units.into_iter().zip([60_u32, 50, 40, 30, 20, 10]) {
        let size = 1_i64 << power;
        if amount != 0 && amount.rem_euclid(size) == 0 {
            return format!("{}{unit}", amount / size);
        }
    }
    amount.to_string()
}

/// The quotient rounded up.
pub(crate) fn ceiling(amount: i128, by: i128) -> Option<i128> {
    let whole = amount.checked_div_euclid(by)?;
    let rest = amount.checked_rem_euclid(by)?;
    whole.checked_add(i128::from(rest > 0))
}

/// A quantity in billionths, rounded up. Absent: invalid, negative or too large.
fn nanos(text: &str) -> Option<i128> {
    if text.len() > MAX_TEXT {
        return None;
    }
    let text = text.strip_prefix('+').unwrap_or(text);
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, suffix) = text.split_at_checked(end)?;
    let (mantissa, decimals) = decimal(number)?;
    let (numerator, mut exponent) = match suffix {
        "n" => (1, -9),
        "u" => (1, -6),
        "m" => (1, -3),
        "" => (1, 0),
        "k" => (1, 3),
        "M" => (1, 6),
        "G" => (1, 9),
        "T" => (1, 12),
        "P" => (1, 15),
        "E" => (1, 18),
        "Ki" => (1_i128 << 10, 0),
        "Mi" => (1_i128 << 20, 0),
        "Gi" => (1_i128 << 30, 0),
        "Ti" => (1_i128 << 40, 0),
        "Pi" => (1_i128 << 50, 0),
        "Ei" => (1_i128 << 60, 0),
        scientific => {
            let digits = scientific.strip_prefix(['e', 'E'])?;
            (1, digits.parse::<i32>().ok().filter(|e| e.unsigned_abs() <= 30)?)
        }
    };
    exponent += 9 - decimals;
    let value = mantissa.checked_mul(numerator)?;
    let power = 10_i128.checked_pow(exponent.unsigned_abs())?;
    if exponent >= 0 { value.checked_mul(power) } else { ceiling(value, power) }
}

/// The digits of a decimal number as an integer, and the count of decimals.
pub(crate) fn decimal(number: &str) -> Option<(i128, i32)> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = format!("{whole}{part}");
    if digits.is_empty() || !digits.bytes().all(|b| b.is_ascii_digit()) || digits.len() > 30 {
        return None;
    }
    Some((digits.parse().ok()?, i32::try_from(part.len()).ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn quantities_are_read_as_kubernetes_reads_them() {
        for (text, millicores) in [
            ("1", 1000),
            ("0.5", 500),
            (".5", 500),
            ("5.", 5000),
            ("+2", 2000),
            ("250m", 250),
            ("1e3m", 0),
            ("1500u", 2),
            ("1n", 1),
            ("2e1", 20_000),
            ("1E-2", 10),
            ("0", 0),
        ] {
            let wanted = (text != "1e3m").then_some(millicores);
            assert_eq!(Resource::Cpu.parse(text), wanted, "{text}");
        }
        for (text, bytes) in [
            ("128974848", 128_974_848),
            ("129e6", 129_000_000),
            ("129M", 129_000_000),
            ("128974848000m", 128_974_848),
            ("123Mi", 128_974_848),
            ("1.5Gi", 1_610_612_736),
            ("1.5", 2),
            ("7E", 7_000_000_000_000_000_000),
            ("1Ki", 1024),
        ] {
            assert_eq!(Resource::Memory.parse(text), Some(bytes), "{text}");
        }
    }

    #[test]
    fn what_is_no_quantity_is_not_taken() {
        let long = "1".repeat(65);
        for bad in [
            "",
            "-1",
            "1.2.3",
            "1 Gi",
            "Gi",
            "1gi",
            "1K",
            "e3",
            "1e",
            "0x1",
            "1e99",
            "1e-2147483648",
            "9Ei9",
            "٣",
            &long,
        ] {
            assert_eq!(Resource::Memory.parse(bad), None, "{bad}");
        }
        assert_eq!(Resource::Memory.parse("10E"), None, "more than an i64 of bytes");
        assert_eq!(Resource::Cpu.parse("99999999999999999999999999999E"), None);
    }

    #[test]
    fn amounts_are_written_short() {
        assert_eq!(Resource::Cpu.show(1500), "1500m");
        assert_eq!(Resource::Cpu.show(2000), "2");
        assert_eq!(Resource::Memory.show(0), "0");
        assert_eq!(Resource::Memory.show(1_610_612_736), "1536Mi");
        assert_eq!(Resource::Memory.show(1000), "1000");
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(amount in 0..i64::MAX) {
            for resource in Resource::ALL {
                prop_assert_eq!(resource.parse(&resource.show(amount)), Some(amount));
            }
        }

        #[test]
        fn no_text_breaks_it(text in ".{0,80}") {
            for resource in Resource::ALL {
                prop_assert!(resource.parse(&text).is_none_or(|amount| amount >= 0));
            }
        }
    }
}
