//! Figures: samples and aligned tables.

use std::time::{Duration, SystemTime};

/// Samples of one quantity, in milliseconds, sorted.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Samples(Vec<f64>);

impl Samples {
    /// Number of samples.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }

    /// The median; zero without samples.
    pub(crate) fn median(&self) -> f64 {
        let middle = self.0.len() / 2;
        let at = |i: usize| self.0.get(i).copied().unwrap_or_default();
        if self.0.len() % 2 == 1 { at(middle) } else { f64::midpoint(at(middle.wrapping_sub(1)), at(middle)) }
    }

    /// The smallest sample; zero without samples.
    pub(crate) fn min(&self) -> f64 {
        self.0.first().copied().unwrap_or_default()
    }

    /// The largest sample; zero without samples.
    pub(crate) fn max(&self) -> f64 {
        self.0.last().copied().unwrap_or_default()
    }

    /// Median, smallest, largest and number, as table cells.
    pub(crate) fn cells(&self) -> [String; 4] {
        [ms(self.median()), ms(self.min()), ms(self.max()), self.len().to_string()]
    }
}

impl FromIterator<f64> for Samples {
    fn from_iter<I: IntoIterator<Item = f64>>(samples: I) -> Self {
        let mut sorted: Vec<f64> = samples.into_iter().collect();
        sorted.sort_by(f64::total_cmp);
        Self(sorted)
    }
}

/// `a` divided by `b`; zero if `b` is not positive.
pub(crate) fn ratio(a: f64, b: f64) -> f64 {
    if b > 0.0 { a / b } else { 0.0 }
}

/// A duration in milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1e3
}

/// Milliseconds between two moments; negative if `to` is earlier.
pub(crate) fn signed(from: SystemTime, to: SystemTime) -> f64 {
    match to.duration_since(from) {
        Ok(later) => milliseconds(later),
        Err(earlier) => -milliseconds(earlier.duration()),
    }
}

/// Milliseconds for a table.
pub(crate) fn ms(value: f64) -> String {
    format!("{value:.1}")
}

/// KiB as MiB with one digit, rounded up.
pub(crate) fn mib(kib: u64) -> String {
    let tenths = (kib * 10).div_ceil(1024);
    format!("{}.{}", tenths / 10, tenths % 10)
}

/// Table as text: the first column is aligned left, the others right.
pub(crate) fn table<const N: usize>(head: [&str; N], rows: &[[String; N]]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().filter_map(|row| row.get(column)).map(String::as_str);
        cells.chain(head.get(column).copied()).map(|cell| cell.chars().count()).max().unwrap_or_default()
    };
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded: Vec<String> = cells
            .enumerate()
            .map(|(column, cell)| match (column, width(column)) {
                (0, width) => format!("{cell:width$}"),
                (_, width) => format!("{cell:>width$}"),
            })
            .collect();
        padded.join("  ").trim_end().to_owned()
    };
    let mut lines = vec![line(&mut head.into_iter())];
    lines.extend(rows.iter().map(|row| line(&mut row.iter().map(String::as_str))));
    lines.join("\n")
}

/// A count as a float, for ratios.
pub(crate) fn counted(things: usize) -> f64 {
    f64::from(u32::try_from(things).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_in_the_middle() {
        let samples = |values: &[f64]| values.iter().copied().collect::<Samples>();
        assert!((samples(&[5.0, 1.0, 3.0]).median() - 3.0).abs() < 1e-9);
        assert!((samples(&[4.0, 1.0, 3.0, 100.0]).median() - 3.5).abs() < 1e-9);
        assert!(samples(&[]).median().abs() < 1e-9);
        assert_eq!(samples(&[5.0, 1.0, 3.0]).cells(), ["3.0", "1.0", "5.0", "3"]);
    }

    #[test]
    fn memory_is_rounded_up() {
        assert_eq!(mib(12 * 1024), "12.0");
        assert_eq!(mib(12 * 1024 + 1), "12.1");
        assert_eq!(mib(5_300), "5.2");
    }

    #[test]
    fn tables_line_up() {
        let rows = [["a".to_owned(), "1.0".to_owned()], ["long name".to_owned(), "12.5".to_owned()]];
        assert_eq!(table(["what", "ms"], &rows), "what         ms\na           1.0\nlong name  12.5");
    }
}
