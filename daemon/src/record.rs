//! The record of ended hooks, in a small file that outlives the process.
//!
//! The daemon records a hook's end before it reports it, so a new process never repeats a hook that ended. A hook that
//! was cut runs again. The file lives as long as the daemon's Pod. A replacement Pod starts without it, and may repeat
//! a hook whose stop was still to come.

use std::collections::VecDeque;
use std::fs;
use std::io::{self, ErrorKind, Read as _};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use pitstop_api::condition::truncate;
use pitstop_api::nodework::MAX_MESSAGE;
use pitstop_daemon_core::{EndedHooks, MAX_ENDED_HOOKS};
use pitstop_kit::describe;
use serde::{Deserialize, Serialize};
use tracing::warn;

/// Name of the file.
const FILE: &str = "ended-hooks.json";
/// Largest file that is read, in bytes: far above what [`MAX_ENDED_HOOKS`] entries take.
const MAX_FILE: u64 = 1024 * 1024;

/// The record. Clones share it.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    file: PathBuf,
    entries: Arc<Mutex<VecDeque<Entry>>>,
}

/// One hook that ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Entry {
    /// ID of the order.
    order: String,
    /// Why it failed; `None` for success.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<String>,
}

impl Record {
    /// Reads the record in a folder. A missing record is empty; an unreadable one, too, with a warning.
    pub(crate) fn open(folder: &Path) -> Self {
        let file = folder.join(FILE);
        let entries = read(&file).unwrap_or_else(|error| {
            warn!(file = %file.display(), error = describe(&error), "cannot read which hooks ended; one may run again");
            VecDeque::new()
        });
        Self { file, entries: Arc::new(Mutex::new(entries)) }
    }

    /// All hooks of the record: read from the file, and added since.
    pub(crate) fn ended(&self) -> EndedHooks {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.iter().map(|entry| (entry.order.clone(), entry.failure.clone())).collect()
    }

    /// Records that the stop of an order's container is being sent. The hook is over, and the grace period now counts
    /// even while no daemon runs.
    pub(crate) fn stop_begins(&self, order_id: &str) {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        if !entries.iter().any(|entry| entry.order == order_id) {
            drop(entries);
            self.hook_ended(order_id, None);
        }
    }

    /// Records that an order's hook ended. If the write fails, the daemon logs a warning and the stop goes on: after a
    /// crash, the hook may run again.
    pub(crate) fn hook_ended(&self, order_id: &str, failure: Option<&str>) {
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let failure = failure.map(|text| truncate(text, MAX_MESSAGE));
        entries.push_back(Entry { order: order_id.to_owned(), failure });
        while entries.len() > MAX_ENDED_HOOKS {
            entries.pop_front();
        }
        if let Err(error) = write(&self.file, &entries) {
            warn!(file = %self.file.display(), error = describe(&error), "cannot write down that a hook ended");
        }
    }
}

fn read(file: &Path) -> io::Result<VecDeque<Entry>> {
    let opened = match fs::File::open(file) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(VecDeque::new()),
        opened => opened?,
    };
    let mut text = Vec::new();
    // A truncated file is invalid JSON.
    opened.take(MAX_FILE).read_to_end(&mut text)?;
    let mut entries: VecDeque<Entry> = serde_json::from_slice(&text)?;
    let surplus = entries.len().saturating_sub(MAX_ENDED_HOOKS);
    entries.drain(..surplus);
    Ok(entries)
}

/// Replaces the file in one step. Without `fsync`: if the machine goes down, its containers end too.
fn write(file: &Path, entries: &VecDeque<Entry>) -> io::Result<()> {
    if let Some(folder) = file.parent() {
        fs::create_dir_all(folder)?;
    }
    let next = file.with_extension("next");
    fs::write(&next, serde_json::to_vec(entries)?)?;
    fs::rename(next, file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_ended_is_known_to_the_next_process() {
        let folder = tempfile::tempdir().unwrap();
        // Created when it is needed.
        let folder = folder.path().join("state");
        let record = Record::open(&folder);
        assert_eq!(record.ended(), EndedHooks::new());
        record.hook_ended("a/app/1", None);
        // Without a hook, the stop is recorded; after a hook, it adds nothing.
        record.stop_begins("c/app/1");
        record.stop_begins("a/app/1");
        record.clone().hook_ended("b/app/1", Some(&"x".repeat(9_000)));
        let known = Record::open(&folder).ended();
        assert_eq!(known, record.ended());
        assert_eq!((known.len(), &known["a/app/1"], &known["c/app/1"]), (3, &None, &None));
        assert_eq!(known["b/app/1"].as_ref().unwrap().len(), MAX_MESSAGE);
        let files: Vec<_> = fs::read_dir(&folder).unwrap().map(|f| f.unwrap().file_name()).collect();
        assert_eq!(files, [FILE], "nothing else stays behind");
    }

    #[test]
    fn the_newest_are_kept() {
        let folder = tempfile::tempdir().unwrap();
        let record = Record::open(folder.path());
        for n in 0..MAX_ENDED_HOOKS + 10 {
            record.hook_ended(&format!("{n:04}/app/1"), None);
        }
        let known = Record::open(folder.path()).ended();
        assert_eq!(known.len(), MAX_ENDED_HOOKS);
        assert_eq!(known.keys().next().unwrap(), "0010/app/1");

        let many: Vec<_> = (0..999).map(|n| format!(r#"{{"order":"{n:04}"}}"#)).collect();
        fs::write(folder.path().join(FILE), format!("[{}]", many.join(","))).unwrap();
        let known = Record::open(folder.path()).ended();
        assert_eq!((known.len(), known.keys().next().unwrap().as_str()), (MAX_ENDED_HOOKS, "0743"));
    }

    #[test]
    fn a_spoilt_record_is_empty_and_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join(FILE);
        let huge = "[".repeat(3 * 1024 * 1024);
        for spoilt in ["", "{", "[7]", r#"[{"order":7}]"#, r#"[{"order":"a"}"#, "\u{0}\u{0}", &huge] {
            fs::write(&file, spoilt).unwrap();
            let record = Record::open(folder.path());
            assert_eq!(record.ended(), EndedHooks::new());
            record.hook_ended("a/app/1", None);
            assert_eq!(Record::open(folder.path()).ended().len(), 1);
        }
    }

    #[test]
    fn where_nothing_can_be_written_the_work_goes_on() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let record = Record::open(&file.path().join("below-a-file"));
        record.hook_ended("a/app/1", None);
        assert_eq!(record.ended().len(), 1);
    }
}
