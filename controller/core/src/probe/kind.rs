//! Probes as a kind of the engine.

use std::time::Duration;

use super::{Memory, PodProbe, PodProbeStatus, Probe, plan};
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::key::{KindId, ObjectKey};
use crate::kind::{About, Course, Cx, Ended, Kind, Sharing, Sight, Target, WorkState, WriteNames, note};
use crate::measure::Measure;
use crate::plan::Plan;
use crate::pod::Pod;
use crate::reduced::Reduced;
use crate::time::{Mono, note_since};

pub(super) const ID: KindId = KindId::new("PodProbe");

impl Kind for Probe {
    type Object = PodProbe;
    type Memory = Memory;
    const ABOUT: About = About {
        id: ID,
        api_version: "pitstop.dev/v1alpha1",
        plural: "podprobes",
        watch: "podprobes",
        synced: "PodProbes synced",
        metric: "probes",
        noun: "Probes",
        writes: WriteNames {
            status: "write_probe_status",
            metadata: "patch_probe_metadata",
            create: "create_probe",
            delete: "delete_probe",
        },
        action: "Probe",
        reasons: &plan::REASONS,
        successes: &[plan::PROBED],
        sharing: Sharing { patience: None, yields: true, stalls: true },
        many: false,
        deeds: 1,
        claims: false,
        review: None,
    };

    fn observe(object: Self::Object) -> Self {
        Reduced::of(object.metadata, object.spec, object.status, ())
    }
    fn remember(_: Mono) -> Memory {
        Memory::default()
    }

    fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_name)
    }
    fn pod_uid(&self) -> Option<&str> {
        self.target().map(|target| target.pod_uid)
    }
    fn course(status: &Self::Status) -> Course<'_> {
        let PodProbeStatus { pod_uid, node_name, outcome } = status;
        let target = (!pod_uid.is_empty()).then_some(Target { pod_uid, node: node_name });
        let ended = outcome.as_deref().map(|message| Ended {
            complete: message == plan::PROBED,
            reason: message,
            message,
        });
        Course { target, ended }
    }
    fn ttl(&self) -> Option<Duration> {
        None
    }
    fn completed_seen(memory: &mut Memory) -> &mut Option<Mono> {
        &mut memory.completed_seen
    }
    fn child(&self) -> Option<(KindId, ObjectKey)> {
        Some((plan::CHILD, plan::child_key(self)))
    }

    fn decide(
        cx: Cx<'_>,
        sight: Sight<'_, Self>,
        memory: &mut Memory,
    ) -> (Plan<PodProbeStatus>, Vec<Measure>) {
        let completed = sight.request.completed();
        note_since(&mut memory.completed_seen, cx.now, completed);
        (plan::plan(&sight, memory), Vec::new())
    }
    fn notes(&self, old: &Self::Status) -> Vec<Note> {
        let news = self.status.outcome.as_ref().filter(|_| old.outcome.is_none());
        let note = |message: &String| note(self, message != plan::PROBED, plan::PROBED, message.clone());
        news.map(note).into_iter().collect()
    }
    fn disturbs(&self, _: &Memory, _: WorkState, _: Option<&Pod>) -> Option<Mono> {
        None
    }
    fn deed_done(memory: &mut Memory, now: Mono, deed: Deed, done: Done) {
        if matches!((deed, done), (Deed::Create(_), Done::Effected)) {
            memory.made = Some(now);
        }
    }
}
