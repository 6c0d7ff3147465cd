//! The terminal: its size, its colours, and a picture that takes all of it.

use std::io::{self, IsTerminal as _, Write as _};

use crossterm::cursor::{Hide, MoveTo, Show};
use crossterm::terminal::{
    BeginSynchronizedUpdate, Clear, ClearType, EndSynchronizedUpdate, EnterAlternateScreen,
    LeaveAlternateScreen,
};
use crossterm::{execute, queue};
use nix::sys::termios::{LocalFlags, SetArg, SpecialCharacterIndices as Key, Termios, tcgetattr, tcsetattr};
use pitstop_cli_core::draw::Look;

/// Columns and rows; those of an old terminal if unknown.
pub(in crate::commands) fn size() -> (usize, usize) {
    crossterm::terminal::size().map_or((80, 24), |(columns, rows)| (columns.into(), rows.into()))
}

/// Colours if a terminal shows them and the user permits them (<https://no-color.org>), and lines beyond ASCII if the
/// locale has them.
pub(in crate::commands) fn look(terminal: bool) -> Look {
    let set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
    let dumb = std::env::var_os("TERM").is_none_or(|term| term == "dumb");
    let locale = ["LC_ALL", "LC_CTYPE", "LANG"]
        .into_iter()
        .find_map(|name| std::env::var(name).ok().filter(|value| !value.is_empty()));
    let utf8 = locale.is_some_and(|it| it.to_ascii_lowercase().replace('-', "").contains("utf8"));
    Look { ascii: !utf8, colour: terminal && !dumb && !set("NO_COLOR"), ..Look::default() }
}

/// The whole terminal. Its drop restores the terminal.
pub(super) struct Screen {
    keys: Option<Termios>,
}

impl Screen {
    /// Takes the terminal. Typed characters are not shown; Ctrl-C still interrupts.
    pub(super) fn open() -> io::Result<Self> {
        let stdin = io::stdin();
        let keys = stdin.is_terminal().then(|| tcgetattr(&stdin)).transpose()?;
        if let Some(keys) = &keys {
            let mut silent = keys.clone();
            silent.local_flags.remove(LocalFlags::ECHO | LocalFlags::ICANON);
            // If these keys stopped or ended it, it could not restore the terminal. 0 is `_POSIX_VDISABLE` on Linux.
            for key in [Key::VSUSP, Key::VQUIT] {
                if let Some(of) = silent.control_chars.get_mut(key as usize) {
                    *of = 0;
                }
            }
            tcsetattr(&stdin, SetArg::TCSANOW, &silent)?;
        }
        let screen = Self { keys };
        execute!(io::stdout(), EnterAlternateScreen, Hide)?;
        Ok(screen)
    }

    /// Shows only these lines. It marks where a picture begins and ends, so that the terminal shows no half of one.
    pub(super) fn show(lines: &[String]) -> io::Result<()> {
        let mut out = io::stdout().lock();
        queue!(out, BeginSynchronizedUpdate, MoveTo(0, 0))?;
        for (number, line) in lines.iter().enumerate() {
            if number > 0 {
                write!(out, "\r\n")?;
            }
            write!(out, "{line}")?;
            queue!(out, Clear(ClearType::UntilNewLine))?;
        }
        queue!(out, Clear(ClearType::FromCursorDown), EndSynchronizedUpdate)?;
        out.flush()
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // An error cannot be reported any more.
        let _ = execute!(io::stdout(), LeaveAlternateScreen, Show);
        if let Some(keys) = &self.keys {
            let _ = tcsetattr(io::stdin(), SetArg::TCSAFLUSH, keys);
        }
    }
}
