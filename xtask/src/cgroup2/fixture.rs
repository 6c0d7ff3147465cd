//! Fixture of the daemon's tests: contents of the files of a machine with cgroup v2.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

use crate::workspace::shown;

/// Maximum number of differences in the error.
const MOST: usize = 8;

fn path(root: &Path) -> PathBuf {
    root.join("daemon/src/cgroup/fixtures/v2.json")
}

/// Writes a record as the fixture, and returns its path.
pub(super) fn write(root: &Path, found: &Value) -> Result<PathBuf> {
    if found.get("states").is_none() {
        bail!("the machine recorded nothing");
    }
    let path = path(root);
    let text = serde_json::to_string_pretty(found).context("JSON cannot be written")?;
    fs::write(&path, text + "\n").with_context(|| format!("cannot write {}", path.display()))?;
    Ok(path)
}

/// Fails unless `found` has the same states, files and values as the fixture. Ignores counters.
pub(super) fn compare(root: &Path, found: &Value) -> Result<()> {
    let path = path(root);
    let shown = shown(root, &path);
    let text = fs::read_to_string(&path).with_context(|| format!("cannot read {shown}"))?;
    let recorded: Value =
        serde_json::from_str(&text).with_context(|| format!("{shown} is not understood"))?;
    let mut differences = Vec::new();
    differ("", &settled(&recorded), &settled(found), &mut differences);
    if differences.is_empty() {
        return Ok(());
    }
    let kernel = |of: &Value| of.get("kernel").map(Value::to_string).unwrap_or_default();
    differences.truncate(MOST);
    bail!(
        "{shown} is of kernel {}, and this one is {}: {}; where that is right, write it anew with `cargo xtask cgroup2 \
         --record`",
        kernel(&recorded),
        kernel(found),
        differences.join("; ")
    )
}

/// A record without the kernel's version. Counters keep their names, but no values.
fn settled(record: &Value) -> Value {
    let mut record = record.clone();
    if let Some(record) = record.as_object_mut() {
        record.remove("kernel");
    }
    let states = record.get_mut("states").and_then(Value::as_object_mut);
    for state in states.into_iter().flat_map(|states| states.values_mut()) {
        let files = state.get_mut("files").and_then(Value::as_object_mut);
        for (path, text) in files.into_iter().flatten() {
            *text = json!(settled_text(path, text.as_str().unwrap_or_default()));
        }
        for whose in ["container", "pod"] {
            let Some(seen) = state.pointer_mut(&format!("/read/{whose}")).and_then(Value::as_object_mut)
            else {
                continue;
            };
            seen.insert("inactiveFile".to_owned(), Value::Null);
            if let Some(cgroup) = seen.get_mut("cgroup").and_then(Value::as_object_mut) {
                cgroup.insert("memoryUsage".to_owned(), Value::Null);
            }
        }
    }
    record
}

fn settled_text(path: &str, text: &str) -> String {
    let name = path.rsplit('/').next().unwrap_or_default();
    match name {
        "memory.current" => "a number".to_owned(),
        // Counts of how often a limit was reached. The record's `read` has the kills.
        "memory.events" | "memory.stat" => {
            let names = text.lines().map(|line| line.split(' ').next().unwrap_or_default());
            names.collect::<Vec<_>>().join(" ")
        }
        _ => text.to_owned(),
    }
}

/// Collects the differences of two records.
fn differ(pointer: &str, recorded: &Value, found: &Value, differences: &mut Vec<String>) {
    if let (Value::Object(recorded), Value::Object(found)) = (recorded, found) {
        let gone = recorded.keys().filter(|key| !found.contains_key(*key));
        differences.extend(gone.map(|key| format!("{pointer}/{key} is gone")));
        for (key, found) in found {
            match recorded.get(key) {
                Some(recorded) => differ(&format!("{pointer}/{key}"), recorded, found, differences),
                None => differences.push(format!("{pointer}/{key} is new")),
            }
        }
    } else if recorded != found {
        differences.push(format!("{pointer} was {recorded} and is {found}"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(weight: &str, stat: &str, usage: i64) -> Value {
        let cgroup = json!({ "memoryUsage": usage, "cpuWeight": 1 });
        let seen = json!({ "cgroup": cgroup, "inactiveFile": usage });
        json!({ "kernel": usage.to_string(), "states": { "a": {
            "files": { "p/cpu.weight": weight, "p/memory.stat": stat, "p/memory.current": usage.to_string() },
            "read": { "pod": seen, "container": null, "pinned": false },
        } } })
    }

    fn differences(a: &Value, b: &Value) -> Vec<String> {
        let mut differences = Vec::new();
        differ("", &settled(a), &settled(b), &mut differences);
        differences
    }

    #[test]
    fn counters_may_differ_and_nothing_else() {
        let a = record("1\n", "anon 5\nfile 6\n", 7);
        assert_eq!(differences(&a, &record("1\n", "anon 8\nfile 9\n", 10)), [""; 0]);
        let b = record("2\n", "anon 5\nfile 6\nnew 1\n", 7);
        let found = differences(&a, &b);
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(found[0], "/states/a/files/p/cpu.weight was \"1\\n\" and is \"2\\n\"");
        let mut c = a.clone();
        c["states"]["b"] = c["states"]["a"].take();
        assert_eq!(differences(&a, &c).len(), 2);
        assert_eq!(differences(&a, &Value::Null).len(), 1);
    }

    #[test]
    fn what_was_recorded_is_found_again() {
        let root = crate::workspace::root().unwrap();
        let text = fs::read_to_string(path(&root)).unwrap();
        let recorded: Value = serde_json::from_str(&text).unwrap();
        compare(&root, &recorded).unwrap();
        let error = format!("{:#}", compare(&root, &json!({ "kernel": "6.2", "states": {} })).unwrap_err());
        assert!(error.contains("is gone") && error.contains("--record"), "{error}");
    }
}
