//! Runs other programs, and reports their failures clearly.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use crate::progress::{self, HEARTBEAT};

/// How many lines of a failed program's output an error repeats.
const TAIL: usize = 30;

/// A program with its arguments.
pub(crate) struct Cmd {
    command: Command,
    line: String,
    /// Time limit of [`each_line`](Self::each_line). None: no limit.
    limit: Option<Duration>,
}

impl Cmd {
    /// A program by name or path.
    pub(crate) fn new(program: impl AsRef<OsStr>) -> Self {
        let program = program.as_ref();
        Self { command: Command::new(program), line: word(program), limit: None }
    }

    /// The cargo that runs this.
    ///
    /// It does not get cargo's variables about this program: build scripts that read such variables (ring's does)
    /// would run again whenever plain `cargo` and `cargo xtask` alternate.
    pub(crate) fn cargo() -> Self {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let mut command = Command::new(cargo);
        for (name, _) in std::env::vars_os() {
            let is_own = |name: &str| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_");
            if name.to_str().is_some_and(is_own) {
                command.env_remove(name);
            }
        }
        Self { command, line: "cargo".to_owned(), limit: None }
    }

    /// Adds one argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        let arg = arg.as_ref();
        self.line.push(' ');
        self.line.push_str(&word(arg));
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub(crate) fn args<A: AsRef<OsStr>>(self, args: impl IntoIterator<Item = A>) -> Self {
        args.into_iter().fold(self, Self::arg)
    }

    /// Sets an environment variable.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Runs in a directory.
    pub(crate) fn dir(mut self, dir: &Path) -> Self {
        self.command.current_dir(dir);
        self
    }

    /// Sets a time limit, at which [`each_line`](Self::each_line) kills the program and fails.
    pub(crate) fn within(mut self, limit: Duration) -> Self {
        self.limit = Some(limit);
        self
    }

    /// Runs with the terminal's input and output, and returns the exit status.
    pub(crate) fn status(mut self) -> Result<ExitStatus> {
        self.command.status().with_context(|| cannot_run(&self.line))
    }

    /// Runs with the terminal's input and output; a failure is an error.
    pub(crate) fn run(self) -> Result<()> {
        let line = self.line.clone();
        let status = self.status()?;
        if !status.success() {
            bail!("`{line}` failed: {status}");
        }
        Ok(())
    }

    /// Runs and returns standard output. The error repeats the end of the program's standard error.
    pub(crate) fn read(mut self) -> Result<String> {
        let output = self.command.stdin(Stdio::null()).output().with_context(|| cannot_run(&self.line))?;
        if !output.status.success() {
            let mut message = format!("`{}` failed: {}", self.line, output.status);
            let printed = if output.stderr.is_empty() { &output.stdout } else { &output.stderr };
            let text = String::from_utf8_lossy(printed);
            append_tail(&mut message, &text.lines().map(str::to_owned).collect::<Vec<_>>());
            bail!(message);
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{}` printed something other than text", self.line))
    }

    /// Runs with standard error on the terminal, and returns standard output.
    pub(crate) fn read_loud(mut self) -> Result<String> {
        let output = self
            .command
            .stdin(Stdio::null())
            .stderr(Stdio::inherit())
            .output()
            .with_context(|| cannot_run(&self.line))?;
        if !output.status.success() {
            bail!("`{}` failed: {}", self.line, output.status);
        }
        String::from_utf8(output.stdout)
            .with_context(|| format!("`{}` printed something other than text", self.line))
    }

    /// Runs and shows the last lines only in an error. Prints a sign of life now and then.
    pub(crate) fn run_quiet(self) -> Result<()> {
        let line = self.line.clone();
        let mut tail = Vec::new();
        let mut count = 0_usize;
        let start = Instant::now();
        let mut last = start;
        let status = self.each_line(|event| {
            if let Some(text) = event {
                count += 1;
                tail.push(String::from_utf8_lossy(text).trim_end().to_owned());
                if tail.len() > TAIL {
                    tail.remove(0);
                }
            }
            if last.elapsed() >= HEARTBEAT {
                last = Instant::now();
                let so_far = if count == 0 { String::new() } else { format!(", {count} lines so far") };
                progress::note(format!("still at it after {}{so_far}", progress::seconds(start.elapsed())));
            }
        })?;
        if !status.success() {
            let mut message = format!("`{line}` failed: {status}");
            append_tail(&mut message, &tail);
            bail!(message);
        }
        Ok(())
    }

    /// Runs and passes each line of standard output and standard error to `visit`, in the order of writing, with its
    /// line end. None: no output for a while.
    pub(crate) fn each_line(mut self, mut visit: impl FnMut(Option<&[u8]>)) -> Result<ExitStatus> {
        let (reader, writer) = std::io::pipe().context("no pipe")?;
        self.command.stdin(Stdio::null()).stdout(writer.try_clone().context("no pipe")?).stderr(writer);
        let mut child = self.command.spawn().with_context(|| cannot_run(&self.line))?;
        // The command holds our copies of the pipe's writing end: the reader would wait for them.
        drop(self.command);
        let (sender, lines) = mpsc::sync_channel::<Vec<u8>>(1024);
        let pump = std::thread::spawn(move || {
            let mut reader = BufReader::new(reader);
            loop {
                let mut line = Vec::new();
                match reader.read_until(b'\n', &mut line) {
                    Ok(0) | Err(_) => return,
                    Ok(_) if sender.send(line).is_err() => return,
                    Ok(_) => {}
                }
            }
        });
        let start = Instant::now();
        let mut late = None;
        loop {
            let left = self.limit.map(|limit| limit.saturating_sub(start.elapsed()));
            if left.is_some_and(|left| left.is_zero()) && late.is_none() {
                late = self.limit;
                child.kill().with_context(|| format!("cannot end `{}`", self.line))?;
            }
            let wait = left.filter(|left| !left.is_zero()).map_or(HEARTBEAT, |left| left.min(HEARTBEAT));
            match lines.recv_timeout(wait) {
                Ok(line) => visit(Some(&line)),
                Err(RecvTimeoutError::Timeout) => visit(None),
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        let status = child.wait().with_context(|| format!("cannot wait for `{}`", self.line))?;
        if pump.join().is_err() {
            bail!("reading the output of `{}` broke off", self.line);
        }
        if let Some(limit) = late {
            bail!("`{}` was ended: it was not done within {}", self.line, progress::seconds(limit));
        }
        Ok(status)
    }
}

/// Whether a program is on the PATH.
pub(crate) fn is_installed(program: &str) -> bool {
    let Some(path) = std::env::var_os("PATH") else { return false };
    // Debian keeps some administrator's tools outside a user's PATH.
    let sbin = ["/usr/sbin".into(), "/sbin".into()];
    std::env::split_paths(&path).chain(sbin).any(|dir| dir.join(program).is_file())
}

/// The exit code to pass on; 1 if a signal ended the program.
pub(crate) fn exit_code(status: ExitStatus) -> std::process::ExitCode {
    let code = status.code().and_then(|code| u8::try_from(code).ok()).unwrap_or(1);
    std::process::ExitCode::from(code)
}

fn cannot_run(line: &str) -> String {
    format!("cannot run `{line}`")
}

fn append_tail(message: &mut String, lines: &[String]) {
    for line in lines.iter().skip(lines.len().saturating_sub(TAIL)) {
        // Writing to a String cannot fail.
        let _ = write!(message, "\n  | {line}");
    }
}

/// An argument as typed in a shell.
fn word(arg: &OsStr) -> String {
    let text = arg.to_string_lossy();
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_=+./:,@%".contains(c);
    if !text.is_empty() && text.chars().all(plain) {
        text.into_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''").replace('\u{1f}', " "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_names_the_command_the_code_and_the_last_words() {
        let error = Cmd::new("sh").args(["-c", "echo said >&2; exit 7"]).read().unwrap_err().to_string();
        assert!(error.contains("`sh -c 'echo said >&2; exit 7'`"), "{error}");
        assert!(error.contains("exit status: 7"), "{error}");
        assert!(error.ends_with("| said"), "{error}");
    }

    #[test]
    fn a_missing_program_is_named() {
        let error = format!("{:#}", Cmd::new("no-such-program").run().unwrap_err());
        assert!(error.starts_with("cannot run `no-such-program`: No such file"), "{error}");
    }

    #[test]
    fn lines_of_both_streams_keep_their_order() {
        let mut seen = Vec::new();
        let status = Cmd::new("sh")
            .args(["-c", "echo one; echo two >&2; printf three"])
            .each_line(|line| seen.extend(line.map(|line| String::from_utf8_lossy(line).into_owned())))
            .unwrap();
        assert!(status.success());
        assert_eq!(seen, ["one\n", "two\n", "three"]);
    }

    #[test]
    fn what_takes_too_long_is_ended() {
        let command =
            Cmd::new("sh").args(["-c", "echo one; exec sleep 60"]).within(Duration::from_millis(200));
        let mut seen = 0;
        let error = command.each_line(|line| seen += usize::from(line.is_some())).unwrap_err().to_string();
        assert!(error.ends_with("was ended: it was not done within 0.2 s"), "{error}");
        assert_eq!(seen, 1);
    }

    #[test]
    fn a_quiet_command_tells_its_end_when_it_fails() {
        let error =
            Cmd::new("sh").args(["-c", "echo a; echo b >&2; exit 1"]).run_quiet().unwrap_err().to_string();
        assert!(error.ends_with("| a\n  | b"), "{error}");
    }
}
