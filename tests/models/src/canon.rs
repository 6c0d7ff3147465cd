//! Compares states by their `Debug` text, without details that no decision can distinguish.
//!
//! The production structs derive `Debug`, so the text shows every field. Three things in it are changed:
//! - moments (`Mono(n)`) become relative times; ages above a bound that no duration of the configuration reaches become
//!   that bound;
//! - versions and identities made by [`version`] and [`identity`] are numbered by their first occurrence, since the
//!   cores compare them for equality only;
//! - `transitions` of a lease record is removed: its version determines it.

use std::fmt::Write as _;

/// A resource version that [`Canon`] numbers anew.
pub fn version(n: u64) -> String {
    format!("rv#{n}")
}

/// A process identity that [`Canon`] numbers anew.
pub fn identity(n: u64) -> String {
    format!("id#{n}")
}

/// Builder of one state's text.
pub struct Canon {
    text: String,
    /// Versions and identities in the order of first occurrence.
    names: [Vec<u64>; 2],
    /// Upper bound of ages.
    oldest: u64,
}

impl Canon {
    /// An empty text. Ages above `oldest` become `oldest`.
    pub fn new(oldest: u64) -> Self {
        Self { text: String::new(), names: [Vec::new(), Vec::new()], oldest }
    }

    /// Returns the text.
    pub fn finish(self) -> String {
        self.text
    }

    /// Adds a part. Its moments become relative to `now`.
    pub fn add(&mut self, now: u64, part: &impl std::fmt::Debug) {
        let raw = format!("{part:?}\n");
        let mut rest = raw.as_str();
        while let Some(at) = rest.find(['M', 'r', 'i', 't']) {
            self.text.push_str(&rest[..at]);
            rest = &rest[at..];
            let number = |prefix: &str| {
                let after = rest.strip_prefix(prefix)?;
                let digits = after.bytes().take_while(u8::is_ascii_digit).count();
                Some((after[..digits].parse::<u64>().ok()?, &after[digits..]))
            };
            if let Some((moment, after)) = number("Mono(") {
                match now.checked_sub(moment) {
                    Some(age) => write!(self.text, "ago({}", age.min(self.oldest)),
                    None => write!(self.text, "in({}", moment - now),
                }
                .unwrap();
                rest = after;
            } else if let Some((n, after)) = number("rv#") {
                let name = self.name(0, n);
                write!(self.text, "v{name}").unwrap();
                rest = after;
            } else if let Some((n, after)) = number("id#") {
                let name = self.name(1, n);
                write!(self.text, "p{name}").unwrap();
                rest = after;
            } else if let Some((_, after)) = number("transitions: ") {
                rest = after;
            } else {
                self.text.push_str(&rest[..1]);
                rest = &rest[1..];
            }
        }
        self.text.push_str(rest);
    }

    fn name(&mut self, kind: usize, n: u64) -> usize {
        let names = &mut self.names[kind];
        names.iter().position(|known| *known == n).unwrap_or_else(|| {
            names.push(n);
            names.len() - 1
        })
    }
}

#[cfg(test)]
mod tests {
    use pitstop_controller_core::Mono;
    use pitstop_controller_core::lease::Record;

    use super::*;

    fn text(now: u64, versions: [u64; 3], moment: u64) -> String {
        let record = |n| Record { holder: identity(7), transitions: 3, resource_version: version(n) };
        let mut canon = Canon::new(10);
        canon.add(now, &(versions.map(record), Mono(moment)));
        canon.finish()
    }

    #[test]
    fn names_and_times_are_relative() {
        assert_eq!(text(100, [1, 2, 1], 95), text(200, [5, 3, 5], 195));
        assert_ne!(text(100, [1, 2, 1], 95), text(100, [1, 2, 2], 95));
        assert_ne!(text(100, [1, 2, 1], 95), text(100, [1, 2, 1], 96));
        assert_eq!(text(100, [1, 2, 1], 90), text(100, [1, 2, 1], 5));
        assert_ne!(text(100, [1, 2, 1], 105), text(100, [1, 2, 1], 106));
    }
}
