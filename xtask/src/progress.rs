//! Prints on standard error which step runs, and how long it took.

use std::time::{Duration, Instant};

/// How long a silent command may run before a sign of life is printed.
pub(crate) const HEARTBEAT: Duration = Duration::from_secs(10);

/// An announced step.
pub(crate) struct Step {
    name: String,
    start: Instant,
}

impl Step {
    /// Announces a step.
    pub(crate) fn begin(name: impl Into<String>) -> Self {
        let name = name.into();
        eprintln!("==> {name}");
        Self { name, start: Instant::now() }
    }

    /// Says that the step is over.
    pub(crate) fn done(self) {
        eprintln!("    {}: done in {}", self.name, seconds(self.start.elapsed()));
    }
}

/// One remark below a step.
pub(crate) fn note(text: impl AsRef<str>) {
    eprintln!("    {}", text.as_ref());
}

/// A duration as text.
pub(crate) fn seconds(elapsed: Duration) -> String {
    if elapsed < Duration::from_secs(90) {
        format!("{:.1} s", elapsed.as_secs_f64())
    } else {
        format!("{} min {} s", elapsed.as_secs() / 60, elapsed.as_secs() % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_duration_reads_well() {
        assert_eq!(seconds(Duration::from_millis(1_250)), "1.2 s");
        assert_eq!(seconds(Duration::from_secs(125)), "2 min 5 s");
    }
}
