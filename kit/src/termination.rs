//! The end of a process that cannot continue, with a reason that `kubectl describe pod` shows.

use std::fs::OpenOptions;
use std::io::Write;
use std::path::Path;

use crate::describe;

/// Where the kubelet looks for the reason of a container's end.
pub const TERMINATION_LOG: &str = "/dev/termination-log";

/// Most that the kubelet keeps, in bytes.
const MAX_BYTES: usize = 4096;

/// Logs the reason, writes it to [`TERMINATION_LOG`], and exits with code 1.
pub fn fatal(reason: &str) -> ! {
    tracing::error!(reason, "cannot go on");
    if let Err(error) = write(Path::new(TERMINATION_LOG), reason) {
        tracing::debug!(error = describe(&error), "no termination log");
    }
    std::process::exit(1)
}

/// Writes the reason into an existing file. Fails if the file does not exist.
fn write(path: &Path, reason: &str) -> std::io::Result<()> {
    let end = (0..=MAX_BYTES.min(reason.len())).rev().find(|end| reason.is_char_boundary(*end)).unwrap_or(0);
    let mut file = OpenOptions::new().write(true).truncate(true).open(path)?;
    file.write_all(reason.get(..end).unwrap_or_default().as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_a_bounded_reason_into_an_existing_file_only() {
        let path = std::env::temp_dir().join(format!("pitstop-termination-{}", std::process::id()));
        assert!(write(&path, "x").is_err());
        std::fs::write(&path, "before").unwrap();
        write(&path, &"ä".repeat(4000)).unwrap();
        let written = std::fs::read_to_string(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        assert_eq!(written.len(), MAX_BYTES);
        assert!(written.chars().all(|c| c == 'ä'));
    }
}
