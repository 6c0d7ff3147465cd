//! Plans what a probe does next.

use std::collections::BTreeMap;

use pitstop_api::recreate::KIND;
use serde_json::json;

use super::{Memory, PodProbeStatus, Probe};
use crate::deed::{Child, Deed};
use crate::key::{KindId, ObjectKey};
use crate::kind::{Kind as _, Sight};
use crate::plan::{Plan, StatusWrite, Urgency};

pub(super) const CHILD: KindId = KindId::new(KIND);
pub(super) const PROBED: &str = "Probed";
const RESTART_FAILED: &str = "RestartFailed";
pub(super) const REASONS: [&str; 2] = [PROBED, RESTART_FAILED];

pub(super) fn child_key(probe: &Probe) -> ObjectKey {
    ObjectKey::new(&probe.key.namespace, format!("{}-probe", probe.key.name))
}

pub(super) fn plan(sight: &Sight<'_, Probe>, memory: &Memory) -> Plan<PodProbeStatus> {
    let probe = sight.request;
    let with = |status: PodProbeStatus| Plan {
        status: (status != probe.status).then_some(StatusWrite { status, urgency: Urgency::Now }),
        ..Plan::default()
    };
    let Some(pod) = sight.pod.filter(|_| !probe.completed() && sight.ahead.is_none()) else {
        return Plan::default();
    };
    if probe.target().is_none() {
        let node_name = pod.node.clone().unwrap_or_default();
        return with(PodProbeStatus { pod_uid: pod.uid.clone(), node_name, outcome: None });
    }
    let Some(child) = &sight.child else {
        let spec = json!({"podName": pod.key.name, "containers": [{"name": "app"}]});
        let child = Child { kind: CHILD, key: child_key(probe), labels: BTreeMap::new(), spec };
        let deed = memory.made.is_none().then(|| Deed::Create(Box::new(child)));
        return Plan { deed, ..Plan::default() };
    };
    let outcome = child.ended.map(|ended| if ended.complete { PROBED } else { RESTART_FAILED }.to_owned());
    with(PodProbeStatus { outcome, ..probe.status.clone() })
}
