//! What the benchmarks share: the cluster, its processes and pitstop's programs, Pods to work on, requests, order books,
//! watches with times of arrival, the audit log with writes and steps, control groups, and figures.

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

/// How a benchmark ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The bound holds.
    Within,
    /// It does not.
    Exceeded,
}

impl Verdict {
    /// Within when `holds`.
    pub(crate) fn of(holds: bool) -> Self {
        if holds { Self::Within } else { Self::Exceeded }
    }
}

/// Says what is being done.
pub(crate) fn say(text: impl AsRef<str>) {
    eprintln!("    {}", text.as_ref());
}
