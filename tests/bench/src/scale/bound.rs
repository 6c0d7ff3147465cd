//! A scenario's figures, each with its bound.

use crate::harness::BoundCheck;
use crate::harness::figures::table;

/// One figure.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Figure {
    name: String,
    measured: String,
    bound: String,
    /// Whether the bound holds; `None` without a bound.
    holds: Option<bool>,
}

impl Figure {
    /// A figure with an upper bound.
    pub(crate) fn most(name: impl Into<String>, measured: f64, bound: f64, unit: &str) -> Self {
        Self {
            name: name.into(),
            measured: with(measured, unit),
            bound: with(bound, unit),
            // NaN exceeds every bound.
            holds: Some(measured <= bound),
        }
    }

    /// A count that must equal `wanted`.
    pub(crate) fn all(name: impl Into<String>, measured: usize, wanted: usize) -> Self {
        Self {
            name: name.into(),
            measured: measured.to_string(),
            bound: wanted.to_string(),
            holds: Some(measured == wanted),
        }
    }

    /// A figure without a bound.
    pub(crate) fn plain(name: impl Into<String>, measured: f64, unit: &str) -> Self {
        Self { name: name.into(), measured: with(measured, unit), bound: String::new(), holds: None }
    }
}

fn with(value: f64, unit: &str) -> String {
    let number = if value.fract() == 0.0 { format!("{value:.0}") } else { format!("{value:.3}") };
    if unit.is_empty() { number } else { format!("{number} {unit}") }
}

/// Prints the figures. Exceeded if any figure exceeds its bound.
pub(crate) fn report(scenario: &str, figures: &[Figure]) -> BoundCheck {
    let rows: Vec<[String; 4]> = figures
        .iter()
        .map(|figure| {
            let word = match figure.holds {
                Some(true) => "ok",
                Some(false) => "OVER",
                None => "",
            };
            [figure.name.clone(), figure.measured.clone(), figure.bound.clone(), word.to_owned()]
        })
        .collect();
    println!("{}\n", table([&format!("scale {scenario}"), "measured", "bound", ""], &rows));
    let over = figures.iter().filter(|figure| figure.holds == Some(false)).count();
    println!("scale {scenario}: {} figures, {over} over their bounds", figures.len());
    BoundCheck::of(over == 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_figure_holds_up_to_its_bound() {
        assert_eq!(Figure::most("a", 2.0, 2.0, "s").holds, Some(true));
        assert_eq!(Figure::most("a", 2.001, 2.0, "s").holds, Some(false));
        assert_eq!(Figure::most("a", f64::NAN, 2.0, "").holds, Some(false));
        assert_eq!(Figure::all("a", 3, 3).holds, Some(true));
        assert_eq!(Figure::all("a", 2, 3).holds, Some(false));
        assert_eq!(Figure::plain("a", 9.5, "MiB").measured, "9.500 MiB");
    }

    #[test]
    fn one_figure_over_its_bound_is_enough() {
        let good = Figure::all("a", 1, 1);
        assert_eq!(report("x", std::slice::from_ref(&good)), BoundCheck::Within);
        assert_eq!(report("x", &[good, Figure::all("b", 1, 2)]), BoundCheck::Exceeded);
    }
}
