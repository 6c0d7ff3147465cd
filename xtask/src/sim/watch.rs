//! One run of the simulator with one planted bug.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

/// Time limit for the schedules of one bug, which may make the simulator itself hang.
const PATIENCE: Duration = Duration::from_mins(15);
const LOOK: Duration = Duration::from_millis(20);

/// Result for a bug.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SearchResult {
    /// Found: the number of schedules, and the law.
    Found(u64, String),
    /// Not found in this number of schedules.
    NotFound(u64),
    /// No result: the simulator's last line, or the reason.
    Broke(String),
}

/// Runs the simulator with the bug switched on.
pub(super) fn run(simulator: &Path, bug: &str, at_most: u64) -> Result<SearchResult> {
    let file = tempfile::NamedTempFile::new().context("cannot make a temporary file")?;
    let output = || file.reopen().context("cannot open a temporary file");
    let mut child = Command::new(simulator)
        .args(["planted", bug, "--at-most", &at_most.to_string()])
        .stdin(Stdio::null())
        .stdout(output()?)
        .stderr(output()?)
        .spawn()
        .with_context(|| format!("cannot run {}", simulator.display()))?;
    let start = Instant::now();
    while child.try_wait().context("cannot wait for the simulator")?.is_none() {
        if start.elapsed() > PATIENCE {
            child.kill().context("cannot end the simulator")?;
            child.wait().context("cannot wait for the simulator")?;
            return Ok(SearchResult::Broke(format!("it ran for more than {} s", PATIENCE.as_secs())));
        }
        std::thread::sleep(LOOK);
    }
    let text = fs::read(file.path()).context("cannot read a temporary file")?;
    Ok(read(bug, &String::from_utf8_lossy(&text)))
}

/// Reads the simulator's output.
fn read(bug: &str, text: &str) -> SearchResult {
    let prefix = format!("planted {bug} ");
    let result = text.lines().filter_map(|line| line.strip_prefix(&prefix)).find_map(|line| parse(line).ok());
    result.unwrap_or_else(|| {
        let last = text.lines().rev().find(|line| !line.trim().is_empty());
        SearchResult::Broke(last.unwrap_or("it said nothing").to_owned())
    })
}

/// `found after N schedules: LAW` or `not found in N schedules`.
fn parse(line: &str) -> Result<SearchResult> {
    if let Some(rest) = line.strip_prefix("found after ") {
        let (number, law) = rest.split_once(" schedules: ").context("no law")?;
        return Ok(SearchResult::Found(number.parse().context("no number")?, law.trim().to_owned()));
    }
    if let Some(rest) = line.strip_prefix("not found in ") {
        let number = rest.trim_end().strip_suffix(" schedules").context("no schedules")?;
        return Ok(SearchResult::NotFound(number.parse().context("no number")?));
    }
    bail!("neither found nor not")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_simulators_words_are_read() {
        let text = "seed 12\nplanted a-b found after 12 schedules: I2 no stop without an intent\n";
        assert_eq!(read("a-b", text), SearchResult::Found(12, "I2 no stop without an intent".into()));
        assert_eq!(read("a", "planted a not found in 5000 schedules\n"), SearchResult::NotFound(5000));
        let text = "thread 'main' panicked\nplanted a found after x schedules: I1\n\n";
        assert_eq!(read("a", text), SearchResult::Broke("planted a found after x schedules: I1".into()));
        assert_eq!(read("a", ""), SearchResult::Broke("it said nothing".into()));
    }

    #[test]
    fn a_simulator_is_asked_for_one_bug() {
        use std::os::unix::fs::PermissionsExt as _;
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("sim");
        fs::write(&path, "#!/bin/sh\necho \"$1 $2 found after $4 schedules: I1\"\n").unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        assert_eq!(run(&path, "x", 7).unwrap(), SearchResult::Found(7, "I1".into()));
    }
}
