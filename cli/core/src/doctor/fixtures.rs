//! Installations for tests.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use chrono::{DateTime, TimeDelta, Utc};
use k8s_openapi::api::admissionregistration::v1::{
    ValidatingAdmissionPolicy, ValidatingAdmissionPolicyBinding,
};
use k8s_openapi::api::coordination::v1::Lease;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use pitstop_api::crds::crds;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::policies::REQUIRED;
use super::{Expiry, Facts, Mutating, Probe, RightReview, definition_names, needed_rights};
use crate::known::Known;

pub(super) fn read<K: DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).unwrap()
}

pub(super) fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000 + seconds, 0).unwrap()
}

pub(super) fn lease(holder: &str) -> Lease {
    let renewed = at(0).format("%Y-%m-%dT%H:%M:%S.000000Z").to_string();
    read(json!({"spec": {"holderIdentity": holder, "renewTime": renewed}}))
}

pub(super) fn policy(name: &str) -> ValidatingAdmissionPolicy {
    read(json!({"metadata": {"name": name}, "spec": {"failurePolicy": "Fail"}}))
}

pub(super) fn binding(name: &str, action: &str) -> ValidatingAdmissionPolicyBinding {
    read(json!({"metadata": {"name": name}, "spec": {"policyName": name, "validationActions": [action]}}))
}

/// A ready Pod of one of the programs.
pub(super) fn program(component: &str, node: &str, image: &str) -> Pod {
    read(json!({"metadata": {"name": format!("pitstop-{component}-{node}"),
            "labels": {"app.kubernetes.io/component": component}},
        "spec": {"nodeName": node, "containers": [{"name": component, "image": image}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}]}}))
}

fn deployment() -> Value {
    json!({"metadata": {"name": "pitstop-controller"}, "spec": {"replicas": 2, "selector": {}, "template": {}},
        "status": {"readyReplicas": 2, "updatedReplicas": 2}})
}

fn daemon_set() -> Value {
    let pod = json!({"containers": [], "nodeSelector": {"kubernetes.io/arch": "amd64"}});
    json!({"metadata": {"name": "pitstop-daemon"}, "spec": {"selector": {}, "template": {"spec": pod}},
        "status": {"desiredNumberScheduled": 1, "numberReady": 1, "currentNumberScheduled": 1,
            "numberMisscheduled": 0, "updatedNumberScheduled": 1}})
}

/// Made once, because that takes long.
static DEFINITIONS: LazyLock<BTreeMap<String, Known<CustomResourceDefinition>>> = LazyLock::new(|| {
    crds().into_iter().map(|it| (it.metadata.name.clone().unwrap(), Known::Is(it))).collect()
});

/// An installation without errors.
pub(super) fn healthy() -> Facts {
    let webhooks = ["mcontainerrecreaterequest", "mpodimageupdate", "mpodresize"]
        .map(|name| format!("{name}.pitstop.dev"));
    let entries: Vec<Value> = webhooks
        .iter()
        .map(|name| json!({"name": name, "clientConfig": {}, "admissionReviewVersions": ["v1"], "sideEffects": "None"}))
        .collect();
    let refused = |code: u16, message: &str| Probe::Refused { code, message: message.to_owned() };
    let gate = || vec!["pitstop-readiness-gate".to_owned()];
    Facts {
        system: "pitstop-system".into(),
        namespace: "default".into(),
        version: "0.1.0".into(),
        now: Known::Is(at(4)),
        definitions: DEFINITIONS.clone(),
        deployments: Known::Is(vec![read(deployment())]),
        daemon_sets: Known::Is(vec![read(daemon_set())]),
        pods: Known::Is(vec![
            program("controller", "node1", "pitstop.dev/controller:0.1.0-3c14e7f0a9d2"),
            program("daemon", "node1", "pitstop.dev/daemon:0.1.0-5c14e7f0a9d2"),
        ]),
        lease: Known::Is(lease("pitstop-controller-a")),
        nodes: Known::Is(vec![read(json!({"metadata": {"name": "node1"}}))]),
        books: Known::Is(vec![read(json!({"metadata": {"name": "node1"}, "spec": {},
            "status": {"runtime": {"name": "containerd", "version": "2.4.2"}}}))]),
        policies: Known::Is(REQUIRED.map(policy).into()),
        bindings: Known::Is(REQUIRED.map(|it| binding(it, "Deny")).into()),
        mutating: Known::Is(Mutating { policies: gate(), bound: gate() }),
        denial: refused(
            403,
            "ValidatingAdmissionPolicy 'pitstop-daemon' with binding 'pitstop-daemon' denied request: no",
        ),
        webhook: Known::Is(read(json!({"metadata": {"name": "pitstop"}, "webhooks": entries}))),
        authorities: webhooks
            .map(|webhook| Expiry { webhook, ends: Some(at(0) + TimeDelta::days(80)) })
            .into(),
        endpoints: Known::Is(vec![read(json!({"addressType": "IPv4", "metadata": {},
            "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": true}}]}))]),
        request: refused(
            400,
            "admission webhook \"mcontainerrecreaterequest.pitstop.dev\" denied the request: no found Pod",
        ),
        opted_in: Known::Is(Vec::new()),
        opt_in_bindings: Known::Is(Vec::new()),
        rights: rights(&Known::Is(true)),
        ..Facts::default()
    }
}

fn rights(allowed: &Known<bool>) -> Vec<RightReview> {
    needed_rights().into_iter().map(|right| RightReview { right, allowed: allowed.clone() }).collect()
}

/// A cluster without pitstop.
pub(super) fn empty() -> Facts {
    let refused = || Probe::Refused { code: 404, message: "404 page not found".to_owned() };
    Facts {
        definitions: definition_names().into_iter().map(|name| (name, Known::Missing)).collect(),
        denial: refused(),
        request: refused(),
        authorities: Vec::new(),
        now: Known::Is(at(4)),
        rights: rights(&Known::Is(true)),
        system: "pitstop-system".into(),
        namespace: "default".into(),
        ..Facts::default()
    }
}

/// The caller may read nothing.
pub(super) fn unreadable() -> Facts {
    fn no<T>() -> Known<T> {
        Known::Unread("is forbidden: User \"ann\" cannot".to_owned())
    }
    Facts {
        now: Known::Is(at(4)),
        definitions: definition_names().into_iter().map(|name| (name, no())).collect(),
        deployments: no(),
        daemon_sets: no(),
        pods: no(),
        lease: no(),
        nodes: no(),
        books: no(),
        policies: no(),
        bindings: no(),
        mutating: no(),
        denial: Probe::Refused { code: 403, message: "User \"ann\" cannot create resource".to_owned() },
        webhook: no(),
        endpoints: no(),
        request: Probe::Refused { code: 403, message: "User \"ann\" cannot create resource".to_owned() },
        kruise: no(),
        opted_in: no(),
        opt_in_bindings: no(),
        opt_in_role: no(),
        rights: rights(&no()),
        ..Facts::default()
    }
}
