//! Paths of the cgroups of a container and its Pod, and parsing of their files. Pure: the caller reads the files.
//!
//! Neither the runtime nor a file is trusted: no path leads out of the folder of cgroups or to another Pod.

use std::collections::BTreeMap;

use pitstop_api::condition::truncate;
use pitstop_api::id::ContainerId;
use pitstop_api::nodework::Cgroup;
use pitstop_api::text::quoted;
use serde::Deserialize;

/// Longest accepted path, in bytes: `PATH_MAX` of Linux.
const MAX_PATH: usize = 4096;
/// Longest name in a path, in bytes: `NAME_MAX` of Linux.
const MAX_NAME: usize = 255;
/// From this value on, `memory.limit_in_bytes` means no limit. The kernel stores the most that whole pages can hold
/// (`PAGE_COUNTER_MAX`); a page has at most 64 KiB.
const UNLIMITED: i64 = i64::MAX & !0xFFFF;

/// Two cgroups, as paths below the root of a hierarchy; without `/` at either end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Paths {
    /// The Pod's.
    pub pod: String,
    /// The container's, directly in the Pod's.
    pub container: String,
}

/// Returns `linux.cgroupsPath` from the `info` of a verbose `ContainerStatus`. containerd and CRI-O both keep the OCI
/// configuration there as `runtimeSpec`. The error quotes nothing of the configuration, which may hold secrets.
pub fn path_in(info: &str) -> Result<String, String> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Info {
        runtime_spec: Spec,
    }
    #[derive(Deserialize)]
    struct Spec {
        linux: Linux,
    }
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Linux {
        cgroups_path: String,
    }
    let parsed: Result<Info, _> = serde_json::from_str(info);
    let info = parsed.map_err(|error| {
        let (line, column) = (error.line(), error.column());
        format!(
            "the runtime's verbose answer has no info.runtimeSpec.linux.cgroupsPath (line {line}, column {column})"
        )
    })?;
    Ok(info.runtime_spec.linux.cgroups_path)
}

/// Resolves the cgroup that a runtime names: a path or, with the systemd driver, `<slice>:<prefix>:<name>`, which
/// stands for `<prefix>-<name>.scope` in nested slices. It must end in the container's ID. The cgroup above must be
/// named after the Pod's UID, as by the kubelet: `pod<UID>`, with systemd `..-pod<UID>.slice` and `_` for `-`.
pub fn resolve(cgroups_path: &str, container_id: &ContainerId, pod_uid: &str) -> Result<Paths, String> {
    let refuse =
        |why: &str| format!("the runtime's cgroupsPath {} {why}", quoted(&truncate(cgroups_path, 256)));
    if cgroups_path.len() > MAX_PATH {
        return Err(refuse("is too long"));
    }
    let names = match cgroups_path.strip_prefix('/') {
        Some(path) => path.split('/').map(str::to_owned).collect(),
        None => {
            expanded(cgroups_path).ok_or_else(|| refuse("is neither an absolute path nor a systemd path"))?
        }
    };
    if let Some(bad) = names.iter().find(|name| !is_name(name)) {
        return Err(refuse(&format!("has the invalid part {}", quoted(&truncate(bad, 80)))));
    }
    let [above @ .., pod, container] = names.as_slice() else {
        return Err(refuse("names no cgroup of a Pod"));
    };
    let last = container.strip_suffix(".scope").unwrap_or(container);
    if !last.ends_with(container_id.as_str()) {
        return Err(refuse("does not end in the container's ID"));
    }
    if !is_of_pod(pod, pod_uid) {
        return Err(refuse(&format!("is not in the cgroup of Pod {}", quoted(&truncate(pod_uid, 80)))));
    }
    let pod: Vec<&str> = above.iter().chain([pod]).map(String::as_str).collect();
    let pod = pod.join("/");
    Ok(Paths { container: format!("{pod}/{container}"), pod })
}

/// Whether a path, such as one in a book, can be that of a Pod's cgroup, by the rules of [`resolve`].
pub fn is_pod_path(pod_cgroup: &str, pod_uid: &str) -> bool {
    let own = pod_cgroup.rsplit('/').next().is_some_and(|name| is_of_pod(name, pod_uid));
    own && pod_cgroup.len() <= MAX_PATH && pod_cgroup.split('/').all(is_name)
}

fn is_of_pod(name: &str, pod_uid: &str) -> bool {
    let own = name.strip_suffix(".slice").unwrap_or(name);
    let uids = [pod_uid.to_owned(), pod_uid.replace('-', "_")];
    !pod_uid.is_empty() && uids.iter().any(|uid| own.ends_with(&format!("pod{uid}")))
}

/// `a-b.slice:runtime:id` is `a.slice/a-b.slice/runtime-id.scope` (systemd.slice(5)).
fn expanded(text: &str) -> Option<Vec<String>> {
    let parts: Vec<&str> = text.split(':').collect();
    let [slice, prefix, name] = parts.as_slice() else { return None };
    let slice = slice.strip_suffix(".slice").filter(|_| !prefix.is_empty() && !name.is_empty())?;
    let mut names = Vec::new();
    let mut above = String::new();
    for part in slice.split('-') {
        if part.is_empty() {
            return None;
        }
        names.push(format!("{above}{part}.slice"));
        above = format!("{above}{part}-");
    }
    names.push(format!("{prefix}-{name}.scope"));
    Some(names)
}

fn is_name(name: &str) -> bool {
    let plain = |c: char| !c.is_control() && c != '/';
    !matches!(name, "" | "." | "..") && name.len() <= MAX_NAME && name.chars().all(plain)
}

/// Which files a cgroup has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// One hierarchy per controller. A v2 hierarchy without controllers may exist beside them.
    V1,
    /// One hierarchy for all.
    V2,
}

/// A controller, which has a hierarchy of its own on v1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Controller {
    /// `cpu`.
    Cpu,
    /// `memory`.
    Memory,
    /// `cpuset`.
    Cpuset,
}

/// Reads a cgroup; `file` gives the text of one of its files. The error names the file and what is wrong with it.
pub fn read(
    version: Version,
    file: impl Fn(Controller, &str) -> Result<String, String>,
) -> Result<Cgroup, String> {
    use Controller::{Cpu, Memory};
    let number = |controller, name: &str| file(controller, name).and_then(|text| number(name, &text));
    let kills = |name: &str| file(Memory, name).and_then(|text| kills(name, &text));
    match version {
        Version::V1 => Ok(Cgroup {
            cpu_quota: Some(number(Cpu, "cpu.cfs_quota_us")?).filter(|quota| *quota >= 0),
            cpu_period: Some(natural("cpu.cfs_period_us", number(Cpu, "cpu.cfs_period_us")?)?),
            cpu_shares: Some(natural("cpu.shares", number(Cpu, "cpu.shares")?)?),
            cpu_weight: None,
            memory_limit: Some(natural("memory.limit_in_bytes", number(Memory, "memory.limit_in_bytes")?)?)
                .filter(|limit| *limit < UNLIMITED),
            memory_usage: Some(natural("memory.usage_in_bytes", number(Memory, "memory.usage_in_bytes")?)?),
            oom_kills: kills("memory.oom_control")?,
        }),
        Version::V2 => {
            let max = file(Cpu, "cpu.max")?;
            let (quota, period) = max.trim_end().split_once(' ').unwrap_or((max.trim_end(), ""));
            let limit = file(Memory, "memory.max")?;
            Ok(Cgroup {
                cpu_quota: or_max("cpu.max", quota)?,
                cpu_period: Some(natural("cpu.max", self::number("cpu.max", period)?)?),
                cpu_shares: None,
                cpu_weight: Some(natural("cpu.weight", number(Cpu, "cpu.weight")?)?),
                memory_limit: or_max("memory.max", limit.trim_end())?,
                memory_usage: Some(natural("memory.current", number(Memory, "memory.current")?)?),
                oom_kills: kills("memory.events")?,
            })
        }
    }
}

/// Bytes of page cache that the kernel can drop, of a cgroup and those below it, from the text of `memory.stat`. Pages
/// not yet written to disk do not count: the kernel kills rather than wait for that.
pub fn inactive_file(version: Version, text: &str) -> Result<i64, String> {
    let (name, unwritten) = match version {
        Version::V1 => ("total_inactive_file", ["total_dirty", "total_writeback"]),
        Version::V2 => ("inactive_file", ["file_dirty", "file_writeback"]),
    };
    let count = |name: &str| {
        let line = text.lines().filter_map(|line| line.split_once(' ')).find(|(key, _)| *key == name);
        line.map(|(_, count)| natural("memory.stat", number("memory.stat", count)?)).transpose()
    };
    let inactive = count(name)?.ok_or_else(|| format!("memory.stat has no {name}"))?;
    unwritten
        .into_iter()
        .try_fold(inactive, |left, name| Ok(left.saturating_sub(count(name)?.unwrap_or_default()).max(0)))
}

fn number(file: &str, text: &str) -> Result<i64, String> {
    text.trim_end().parse().map_err(|_| odd(file, text))
}

fn natural(file: &str, number: i64) -> Result<i64, String> {
    if number < 0 { Err(odd(file, &number.to_string())) } else { Ok(number) }
}

/// A number, or `max` for no limit.
fn or_max(file: &str, text: &str) -> Result<Option<i64>, String> {
    if text == "max" { Ok(None) } else { Ok(Some(natural(file, number(file, text)?)?)) }
}

/// The value of `oom_kill` among lines of names and numbers; absent from kernels before 4.13.
fn kills(file: &str, text: &str) -> Result<Option<i64>, String> {
    let lines: BTreeMap<&str, &str> = text.lines().filter_map(|line| line.split_once(' ')).collect();
    lines.get("oom_kill").map(|count| natural(file, number(file, count)?)).transpose()
}

fn odd(file: &str, text: &str) -> String {
    format!("{file} holds {}, which is not understood", quoted(&truncate(text.trim_end(), 80)))
}

#[cfg(test)]
#[path = "cgroup_tests.rs"]
mod tests;
