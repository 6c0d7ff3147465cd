//! How the process of a container, and commands in it, behave.

use std::collections::BTreeMap;

/// SIGKILL's exit code.
pub const KILLED: i32 = 137;

/// A process: when it ends, and what it does on the stop signal. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    /// Duration of `StartContainer`.
    pub start_ms: u64,
    /// Whether its start fails: the program is missing.
    pub start_fails: bool,
    /// Ends by itself this long after its start, with this exit code; None for never.
    pub runs: Option<(u64, i32)>,
    /// Whether it ends by itself because memory ran out.
    pub out_of_memory: bool,
    /// Ends this long after the stop signal, with this exit code; None if it ignores the signal.
    pub term: Option<(u64, i32)>,
    /// Number of stop signals until it reacts.
    pub needs: u32,
    /// Commands that it can run besides those of [`run`], by their words joined with spaces: duration and
    /// exit code.
    pub commands: BTreeMap<String, (u64, i32)>,
    /// Its memory use, in mebibytes.
    pub uses: i64,
}

impl Default for Process {
    /// Runs for ever and ends 100 ms after the stop signal.
    fn default() -> Self {
        Self {
            start_ms: 20,
            start_fails: false,
            runs: None,
            out_of_memory: false,
            term: Some((100, 143)),
            needs: 1,
            commands: BTreeMap::new(),
            uses: 0,
        }
    }
}

impl Process {
    /// Ends with 7 at the stop signal, at once.
    pub fn polite() -> Self {
        Self { term: Some((50, 7)), ..Self::default() }
    }

    /// Ends at SIGKILL only.
    pub fn stubborn() -> Self {
        Self { term: None, ..Self::default() }
    }

    /// Ends by itself.
    pub fn job(ms: u64, code: i32) -> Self {
        Self { runs: Some((ms, code)), ..Self::default() }
    }
}

/// Duration and exit code of a command; None if the program does not exist.
///
/// Supports `sleep N`, `cat`, and `sh -c` with `;`-separated `sleep N`, `exit N`, `kill -9 $$`, `true`, `false`:
/// what the conformance scripts use.
pub(super) fn run(process: &Process, cmd: &[String]) -> Option<(u64, i32)> {
    if let Some(known) = process.commands.get(&cmd.join(" ")) {
        return Some(*known);
    }
    let (program, args) = cmd.split_first()?;
    match program.rsplit('/').next().unwrap() {
        "sleep" => Some((millis(args.first()?)?, 0)),
        "sh" if args.first().is_some_and(|a| a == "-c") => Some(script(args.get(1)?)),
        "cat" => Some((0, 0)),
        _ => None,
    }
}

fn script(text: &str) -> (u64, i32) {
    let (mut ms, mut code) = (0, 0);
    for statement in text.split(';').map(str::trim) {
        match statement.split_once(' ') {
            Some(("sleep", n)) => {
                ms += millis(n).unwrap_or(0);
                code = 0;
            }
            Some(("exit", n)) => return (ms, n.parse().unwrap_or(2)),
            Some(("kill", "-9 $$")) => return (ms, KILLED),
            None if statement == "true" => code = 0,
            None if statement == "false" => code = 1,
            None if statement.is_empty() => {}
            // The shell's exit code for a program that it does not find.
            _ => code = 127,
        }
    }
    (ms, code)
}

#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "small positive numbers of scripts"
)]
fn millis(seconds: &str) -> Option<u64> {
    seconds.trim().parse::<f64>().ok().map(|s| (s * 1000.0) as u64)
}
