//! U11: judgements while a node is lost.

use pitstop_api::image_update::{Phase, PodImageUpdateStatus, conditions};
use serde_json::Value;

use super::Updates;
use crate::oracle::rules::Found;
use crate::server::Server;
use crate::world::NOTICED;
use crate::world::plan::Fault;

/// Time in which an earlier decision may still be written, in milliseconds.
const WRITTEN: u64 = 3_000;

impl Updates {
    /// Whether the node of that name is reported as not ready, and the controller knows it.
    fn is_lost(&self, node: &str) -> bool {
        self.schedule.faults.iter().any(|f| match f.what {
            Fault::NodeLost(at, ms) if format!("node{at}") == node => {
                (f.at + NOTICED + WRITTEN..f.at + ms).contains(&self.now)
            }
            _ => false,
        })
    }

    /// Checks a judgement that was just written.
    pub(super) fn is_heard(
        &self,
        id: &str,
        before: &PodImageUpdateStatus,
        after: &PodImageUpdateStatus,
        server: &Server,
        found: &mut Found,
    ) {
        let Some(target) = after.target.as_ref().filter(|target| self.is_lost(&target.node_name)) else {
            return;
        };
        if !self.schedule.leaves_controllers_alone() || self.unsure() {
            return;
        }
        let reason = |status: &PodImageUpdateStatus| {
            let complete = status.conditions.iter().find(|c| c.type_ == conditions::COMPLETE);
            let ended = complete.filter(|_| status.completion_time.is_some()).map(|c| c.reason.clone());
            status.restoring.as_ref().map(|restoring| restoring.reason.clone()).or(ended)
        };
        if reason(before).is_none() && reason(after).as_deref() == Some("NotReady") {
            found.push(("U11", format!("{id} blames the image, and {} is not ready", target.node_name)));
        }
        let pod = server.objects("Pod").find(|pod| pod["metadata"]["uid"] == *target.pod_uid);
        let shown = pod.is_some_and(|pod| shows(pod));
        if shown && before.completion_time.is_none() && after.phase == Some(Phase::Succeeded) {
            found.push(("U11", format!("{id} has watched enough, and {} is not ready", target.node_name)));
        }
    }
}

/// Whether the Pod shows that its node is lost.
fn shows(pod: &Value) -> bool {
    let of = |type_: &str, status: &str| {
        let mut all = pod["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|c| c["type"] == type_ && c["status"] == status && c["reason"].is_null())
    };
    of("Ready", "False") && of("ContainersReady", "True")
}
