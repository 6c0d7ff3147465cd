//! pitstop's writes during a scenario, from the audit log. Follows the log across rotations.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use super::bound::Figure;
use super::purpose::{Purpose, Purposes, REQUESTS};
use crate::harness::audit::Entry;
use crate::harness::figures::counted;
use crate::harness::programs::NAMESPACE;
use crate::harness::writes::Writes;

/// Not counted: renewals of the lease do not depend on requests.
const LEASES: &str = "leases";
/// Substring of every counted line.
const ACCOUNTS: &str = "system:serviceaccount:pitstop-system:";

/// Writes since the ledger was opened.
pub(crate) struct Ledger {
    path: PathBuf,
    file: File,
    /// The beginning of an incomplete line.
    partial: Vec<u8>,
    writes: Writes,
    /// Number of reads.
    reads: usize,
    purposes: Purposes,
    /// Number of writes by name of the changed request.
    of_requests: BTreeMap<String, usize>,
}

impl Ledger {
    /// Starts to count at the log's end.
    pub(crate) fn open(path: &Path) -> Result<Self> {
        let mut file = File::open(path).with_context(|| format!("cannot read {}", path.display()))?;
        file.seek(SeekFrom::End(0))?;
        Ok(Self {
            path: path.to_owned(),
            file,
            partial: Vec::new(),
            writes: Writes::default(),
            reads: 0,
            purposes: Purposes::default(),
            of_requests: BTreeMap::new(),
        })
    }

    /// Reads new entries. Call it more often than the log is rotated, which happens at 200 MB.
    pub(crate) fn read(&mut self) -> Result<()> {
        loop {
            self.drain()?;
            let current = File::open(&self.path)?;
            if current.metadata()?.ino() == self.file.metadata()?.ino() {
                return Ok(());
            }
            // Entries written between the read and the rotation.
            self.drain()?;
            self.file = current;
            self.partial.clear();
        }
    }

    fn drain(&mut self) -> Result<()> {
        let mut text = std::mem::take(&mut self.partial);
        self.file.read_to_end(&mut text)?;
        let whole = text.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.partial = text.split_off(whole);
        let text = String::from_utf8_lossy(&text).into_owned();
        for line in text.lines().filter(|line| line.contains(ACCOUNTS)) {
            let Ok(entry) = serde_json::from_str::<Entry>(line) else { continue };
            let object = &entry.object_ref;
            // With dry runs the controller checks whether the daemon's policy is in force.
            let counts = object.resource != LEASES && !entry.dry_run();
            self.reads += usize::from(counts && !entry.writes());
            if !counts || !self.writes.add(&entry, NAMESPACE) {
                continue;
            }
            self.purposes.add(&entry);
            if object.resource == REQUESTS {
                *self.of_requests.entry(object.name.clone()).or_default() += 1;
            }
        }
        Ok(())
    }

    /// All writes.
    pub(crate) fn writes(&self) -> &Writes {
        &self.writes
    }

    /// Number of pitstop's reads.
    pub(crate) fn reads(&self) -> usize {
        self.reads
    }

    /// Writes per request, in total and by purpose. Status writes besides acceptance and end report waits and count
    /// separately: only a waiting request needs them.
    pub(crate) fn figures(&self, requests: f64, bound: f64) -> Vec<Figure> {
        let waits = (counted(self.purposes.count(Purpose::Status)) - 2.0 * requests).max(0.0);
        let all = counted(self.writes.total()) - waits;
        let all = Figure::most("writes for a request, told waits apart", all / requests, bound, "");
        let waits = Figure::plain("waits that were told", waits, "");
        let purpose = |(purpose, name)| {
            Figure::plain(format!("of them: {name}"), counted(self.purposes.count(purpose)) / requests, "")
        };
        [all, waits].into_iter().chain(Purpose::ALL.map(purpose)).collect()
    }

    /// Most writes of one request whose name has that prefix.
    pub(crate) fn most_of_one(&self, prefix: &str) -> usize {
        let of = self.of_requests.iter().filter(|(name, _)| name.starts_with(prefix));
        of.map(|(_, count)| *count).max().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;

    fn line(name: &str) -> String {
        format!(
            r#"{{"verb":"update","user":{{"username":"{ACCOUNTS}pitstop-controller"}},"objectRef":{{"resource":"{REQUESTS}","name":"{name}"}},"requestReceivedTimestamp":"2026-11-21T11:23:04.766801Z","stageTimestamp":"2026-11-21T11:23:04.769187Z"}}"#
        )
    }

    #[test]
    fn the_log_is_followed_across_a_rotation_and_half_lines() {
        let folder = std::env::temp_dir().join(format!("pitstop-bench-ledger-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let path = folder.join("audit.log");
        std::fs::write(&path, line("before") + "\n").unwrap();
        let mut ledger = Ledger::open(&path).unwrap();
        let mut file = File::options().append(true).open(&path).unwrap();
        let text = line("q-1");
        let (half, other) = text.split_at(30);
        write!(file, "{}\n{half}", line("q-1")).unwrap();
        ledger.read().unwrap();
        assert_eq!(ledger.writes().total(), 1);
        writeln!(file, "{other}").unwrap();
        std::fs::rename(&path, folder.join("audit-1.log")).unwrap();
        std::fs::write(&path, line("q-2") + "\n").unwrap();
        ledger.read().unwrap();
        std::fs::remove_dir_all(&folder).unwrap();
        assert_eq!(ledger.writes().total(), 3);
        assert_eq!(ledger.most_of_one("q-"), 2);
        assert_eq!(ledger.most_of_one("p-"), 0);
    }
}
