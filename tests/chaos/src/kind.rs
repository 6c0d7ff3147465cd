//! The kinds of a run's streams: what they have in common.

use std::fmt::Debug;

use k8s_openapi::NamespaceResourceScope;
use kube::{Api, Resource};
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_e2e::{Ns, images, requests};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::watch::{Objects, Seen};

/// A kind whose objects are made, and end.
pub(crate) trait Kind:
    Resource<DynamicType = (), Scope = NamespaceResourceScope>
    + Clone
    + Debug
    + DeserializeOwned
    + Serialize
    + Send
    + 'static
{
    fn api(ns: &Ns) -> Api<Self>;

    /// What was seen of its objects.
    fn objects(seen: &mut Seen) -> &mut Objects<Self>;

    /// The Pod that the object names.
    fn pod(&self) -> &str;

    fn is_over(&self) -> bool;

    /// How far it is, in a line.
    fn summary(&self) -> String;
}

impl Kind for ContainerRecreateRequest {
    fn api(ns: &Ns) -> Api<Self> {
        ns.requests()
    }

    fn objects(seen: &mut Seen) -> &mut Objects<Self> {
        &mut seen.requests
    }

    fn pod(&self) -> &str {
        &self.spec.pod_name
    }

    fn is_over(&self) -> bool {
        requests::is_over(self)
    }

    fn summary(&self) -> String {
        let states = requests::states(self).iter();
        let states =
            states.map(|s| format!("{}={:?}{}", s.name, s.phase, if s.is_killed { "*" } else { "" }));
        let (phase, conditions) = (requests::phase(self), requests::conditions(self));
        let states: Vec<_> = states.collect();
        format!("{phase:?} {conditions:?} {states:?} {}", requests::message(self))
    }
}

impl Kind for PodImageUpdate {
    fn api(ns: &Ns) -> Api<Self> {
        images::api(ns)
    }

    fn objects(seen: &mut Seen) -> &mut Objects<Self> {
        &mut seen.updates
    }

    fn pod(&self) -> &str {
        &self.spec.pod_ref.name
    }

    fn is_over(&self) -> bool {
        self.status.as_ref().is_some_and(|status| status.completion_time.is_some())
    }

    fn summary(&self) -> String {
        let Some(status) = &self.status else { return String::new() };
        let phase = status.phase.map_or("no phase", |phase| phase.name());
        let complete = images::complete(self);
        let (reason, message) = complete.map_or(("", ""), |complete| (&complete.reason, &complete.message));
        format!("{phase} {reason} {message}")
    }
}
