//! Code shared by the benchmarks.

pub(crate) mod audit;
pub(crate) mod books;
pub(crate) mod cluster;
pub(crate) mod figures;
pub(crate) mod groups;
pub(crate) mod pods;
pub(crate) mod processes;
pub(crate) mod programs;
pub(crate) mod requests;
pub(crate) mod steps;
pub(crate) mod tape;
pub(crate) mod writes;

/// Result of a benchmark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BoundCheck {
    /// The bound holds.
    Within,
    /// The bound is exceeded.
    Exceeded,
}

impl BoundCheck {
    /// Within when `holds`.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Within } else { Self::Exceeded }
    }
}

/// Prints progress to stderr.
pub(crate) fn say(text: impl AsRef<str>) {
    eprintln!("    {}", text.as_ref());
}
