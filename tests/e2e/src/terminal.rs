//! `kubectl-pitstop` as users run it: in a terminal of its own, or with its output in a pipe.

use std::io::{Read as _, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use anyhow::{Context as _, Result, anyhow, ensure};
use pty_process::Size;
use pty_process::blocking::{Command as PtyCommand, Pty, open};
use vt100::Parser;

use crate::cluster::root;
use crate::ns::Ns;
use crate::wait::{LONG, until};

/// Path of the program: `PITSTOP_CLI`, or where cargo builds it.
pub fn program() -> Result<PathBuf> {
    let path = std::env::var_os("PITSTOP_CLI")
        .map_or_else(|| root().join("target/debug/kubectl-pitstop"), PathBuf::from);
    ensure!(path.is_file(), "there is no {}: run `cargo build -p kubectl-pitstop`", path.display());
    Ok(path)
}

/// Output and exit code of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CliOutput {
    /// Exit code; 128 plus the signal's number if a signal killed the command.
    pub code: i32,
    /// Standard output.
    pub out: String,
    /// Standard error.
    pub err: String,
}

fn code(status: ExitStatus) -> i32 {
    status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or_default())
}

/// Runs a command of the program in the test's namespace.
pub fn run(ns: &Ns, args: &[&str]) -> Result<CliOutput> {
    let output = Command::new(program()?).args(["--namespace", &ns.name]).args(args).output()?;
    let Output { status, stdout, stderr } = output;
    Ok(CliOutput { code: code(status), out: String::from_utf8(stdout)?, err: String::from_utf8(stderr)? })
}

/// Runs a command that must succeed; returns its standard output.
pub fn good(ns: &Ns, args: &[&str]) -> Result<String> {
    let CliOutput { code, out, err } = run(ns, args)?;
    ensure!(code == 0, "kubectl pitstop {} ended with code {code}: {out}{err}", args.join(" "));
    Ok(out)
}

/// A command that runs in a terminal.
pub struct Terminal {
    pty: Pty,
    child: Child,
    screen: Arc<Mutex<Parser>>,
    reader: Option<std::thread::JoinHandle<()>>,
}

impl Terminal {
    /// Starts a command of the program in the test's namespace.
    pub fn start(ns: &Ns, rows: u16, columns: u16, args: &[&str]) -> Result<Self> {
        let (pty, pts) = open()?;
        pty.resize(Size::new(rows, columns))?;
        let command = PtyCommand::new(program()?).args(["--namespace", &ns.name]).args(args);
        let child = command.env("TERM", "xterm-256color").env("LANG", "C.UTF-8").spawn(pts)?;
        let screen = Arc::new(Mutex::new(Parser::new(rows, columns, 1000)));
        let mut output = std::fs::File::from(pty.as_fd().try_clone_to_owned()?);
        let shown = Arc::clone(&screen);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0_u8; 4096];
            // When the last program has closed the terminal, reading ends with an error (EIO).
            while let Ok(read @ 1..) = output.read(&mut bytes) {
                let mut shown = shown.lock().unwrap_or_else(PoisonError::into_inner);
                shown.process(bytes.get(..read).unwrap_or_default());
            }
        });
        Ok(Self { pty, child, screen, reader: Some(reader) })
    }

    fn parser(&self) -> MutexGuard<'_, Parser> {
        self.screen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the screen shows.
    pub fn text(&self) -> String {
        self.parser().screen().contents()
    }

    /// Waits until `shows` accepts the screen's text, and returns it.
    pub async fn until(&self, what: &str, shows: impl Fn(&str) -> bool) -> Result<String> {
        let waited = until(what, LONG, async || Ok(Some(self.text()).filter(|text| shows(text)))).await;
        waited.with_context(|| format!("the terminal shows\n{}", self.text()))
    }

    /// Resizes the terminal, as a user resizes a window.
    pub fn resize(&self, rows: u16, columns: u16) -> Result<()> {
        self.parser().screen_mut().set_size(rows, columns);
        Ok(self.pty.resize(Size::new(rows, columns))?)
    }

    /// Types Ctrl-C, and waits for the [end](Self::end).
    pub fn interrupt(mut self) -> Result<(i32, String, bool)> {
        self.pty.write_all(b"\x03")?;
        self.end()
    }

    /// Waits until the command ends. Returns its exit code, the screen's text, and whether the terminal is restored:
    /// its normal screen, with a cursor.
    pub fn end(mut self) -> Result<(i32, String, bool)> {
        let status = self.child.wait()?;
        // The reader reads the last bytes and ends when no program has the terminal any more.
        let reader = self.reader.take().context("ended twice")?;
        reader.join().map_err(|_| anyhow!("the terminal's reader has panicked"))?;
        let parser = self.parser();
        let screen = parser.screen();
        Ok((code(status), screen.contents(), !screen.alternate_screen() && !screen.hide_cursor()))
    }
}

impl Drop for Terminal {
    fn drop(&mut self) {
        // A test that failed leaves no program behind.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
