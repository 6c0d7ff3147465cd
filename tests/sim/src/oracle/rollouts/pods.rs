//! The Pods of the workload in the API server.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};

use super::Rollouts;
use crate::node::keys;
use crate::node::runtime::{Deed, DeedKind, Runtime};
use crate::oracle::Wrote;
use crate::oracle::rules::bare;

/// A Pod of the workload.
pub(super) struct Member {
    pub(super) name: String,
    /// When it was made, by true time and by the API server's clock.
    pub(super) made: u64,
    pub(super) created: Option<DateTime<Utc>>,
    /// When it was deleted, or ended.
    pub(super) gone: Option<u64>,
    /// Whether it is ready, and since when.
    ready: (bool, u64),
    /// When an instance of a container was first shown, by the container's name and the instance's ID.
    shown: BTreeMap<(String, String), u64>,
}

impl Member {
    /// Since when an instance is known; with any ID if None.
    pub(super) fn shows(&self, name: &str, id: Option<&str>) -> Option<u64> {
        let of = |(container, instance): &(String, String)| {
            container == name && id.is_none_or(|id| id == instance)
        };
        self.shown.iter().filter(|(instance, _)| of(instance)).map(|(_, at)| *at).min()
    }

    /// Whether it was ready, or not ready, all that time.
    pub(super) fn was(&self, ready: bool, since: u64) -> bool {
        self.ready.0 == ready && self.ready.1 <= since
    }

    /// Whether it was so at some moment of that time.
    pub(super) fn ever(&self, ready: bool, since: u64) -> bool {
        !self.was(!ready, since)
    }
}

impl Rollouts {
    pub(super) fn see_pod(&mut self, wrote: &Wrote<'_>) {
        let Wrote { before, after, .. } = *wrote;
        let now = self.now;
        let Some(pod) = after.or(before) else { return };
        let text = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
        if !self.schedule.workload.as_ref().is_some_and(|workload| workload.has(text("name"))) {
            return;
        }
        let member = self.members.entry(text("uid").to_owned()).or_insert_with(|| Member {
            name: text("name").to_owned(),
            made: now,
            created: text("creationTimestamp").parse().ok(),
            gone: None,
            ready: (false, now),
            shown: BTreeMap::new(),
        });
        let over = ["Succeeded", "Failed"].contains(&pod["status"]["phase"].as_str().unwrap_or_default());
        if after.is_none() || over || !text("deletionTimestamp").is_empty() {
            member.gone.get_or_insert(now);
        }
        let mut conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
        let ready = conditions.any(|c| c["type"] == "Ready" && c["status"] == "True");
        if member.ready.0 != ready {
            member.ready = (ready, now);
        }
        for list in ["containerStatuses", "initContainerStatuses"] {
            for status in pod["status"][list].as_array().into_iter().flatten() {
                let text = |field: &str| status[field].as_str().unwrap_or_default();
                let instance = (text("name").to_owned(), bare(text("containerID")).to_owned());
                if !instance.1.is_empty() {
                    member.shown.entry(instance).or_insert(now);
                }
            }
        }
    }

    /// Takes an event that really happened on a node.
    pub(in crate::oracle) fn deed(&mut self, deed: &Deed, runtime: &Runtime) {
        let Some(container) = runtime.containers().get(&deed.id).filter(|_| deed.kind == DeedKind::Started)
        else {
            return;
        };
        let label = |key: &str| container.info.labels.get(key).cloned().unwrap_or_default();
        let whose = (label(keys::POD_UID), label(keys::CONTAINER_NAME));
        self.began.insert(whose, (deed.id.clone(), deed.at));
    }

    /// The ordinal of a `StatefulSet`'s Pod.
    pub(super) fn ordinal(&self, member: &Member) -> Option<i64> {
        let workload = self.schedule.workload.as_ref().filter(|workload| &*workload.kind == "StatefulSet")?;
        if self.schedule.selects() {
            return None;
        }
        member.name.strip_prefix(&*workload.name)?.strip_prefix('-')?.parse().ok()
    }

    /// The containers of the Pod that a restart with these names picks.
    pub(super) fn picks<'a>(&'a self, member: &Member, named: &'a [String]) -> impl Iterator<Item = &'a str> {
        let plan = self.schedule.pod(&member.name);
        let containers = plan.into_iter().flat_map(|plan| &plan.containers);
        let picked = move |name: &str, sidecar: bool| {
            if named.is_empty() { !sidecar } else { named.iter().any(|n| n == name) }
        };
        containers.filter(move |c| picked(&c.name, c.sidecar)).map(|c| &*c.name)
    }

    /// Whether the workload's own partition leaves it alone.
    pub(super) fn below(&self, member: &Member) -> bool {
        let partition = self.schedule.workload.as_ref().map_or(0, |workload| workload.partition);
        self.ordinal(member).is_some_and(|ordinal| ordinal < partition)
    }
}
