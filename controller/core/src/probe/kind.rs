//! Probes, as the engine deals with them.

use std::time::Duration;

use super::{Memory, PodProbe, PodProbeStatus, Probe, plan};
use crate::change::Note;
use crate::deed::{Deed, Done};
use crate::key::{KindId, ObjectKey};
use crate::kind::{
    About, At, Course, Cx, Ended, Kind, Meta, Sharing, Sight, Target, WriteNames, note, owner,
};
use crate::measure::Measure;
use crate::plan::Plan;
use crate::pod::Pod;
use crate::time::{Mono, note_since};

pub(super) const ID: KindId = KindId::new("PodProbe");

impl Kind for Probe {
    type Object = PodProbe;
    type Status = PodProbeStatus;
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
        claims: false,
        review: None,
    };

    fn observe(object: Self::Object) -> Self {
        let (key, owner) = (ObjectKey::of(&object.metadata), owner(&object.metadata));
        let PodProbe { metadata, spec, status } = object;
        Self {
            key,
            uid: metadata.uid.unwrap_or_default(),
            resource_version: metadata.resource_version.unwrap_or_default(),
            created: metadata.creation_timestamp.map_or(0, |t| t.0.as_second()),
            deleting: metadata.deletion_timestamp.is_some(),
            owner,
            spec,
            status: status.unwrap_or_default(),
        }
    }
    fn remember(_: Mono) -> Memory {
        Memory::default()
    }

    fn meta(&self) -> Meta<'_> {
        Meta { key: &self.key, created: self.created, deleting: self.deleting, owner: self.owner.as_ref() }
    }
    fn pod_key(&self) -> ObjectKey {
        ObjectKey::new(&self.key.namespace, &self.spec.pod_name)
    }
    fn pod_uid(&self) -> Option<&str> {
        self.target().map(|target| target.pod_uid)
    }
    fn status(&self) -> &Self::Status {
        &self.status
    }
    fn course(status: &Self::Status) -> Course<'_> {
        let PodProbeStatus { pod_uid, node_name, outcome } = status;
        let target = (!pod_uid.is_empty()).then_some(Target { pod_uid, node: node_name });
        let ended = outcome.as_deref().map(|message| Ended { complete: message == plan::PROBED, message });
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
    fn measure(&self, old: &Self::Status) -> Option<Measure> {
        let outcome = self.status.outcome.as_ref().filter(|_| old.outcome.is_none())?;
        let reason = plan::REASONS.into_iter().find(|reason| reason == outcome)?;
        Some(Measure::Ended { kind: ID, complete: reason == plan::PROBED, reason })
    }

    fn disturbs(&self, _: &Memory, _: At, _: Option<&Pod>) -> Option<Mono> {
        None
    }
    fn deed_done(memory: &mut Memory, now: Mono, deed: Deed, done: Done) {
        if matches!((deed, done), (Deed::Create(_), Done::Effected)) {
            memory.made = Some(now);
        }
    }
}
