//! Security and scheduling of both programs' Pods.

use std::collections::BTreeSet;

use pitstop_manifests_test::object::{list, text};
use pitstop_manifests_test::security::breaches;
use pitstop_manifests_test::{Object, find};
use serde_json::{Value, json};

use super::folders::{
    BASES, MONITORING, NAMESPACE, PARK, RIGHTS, RUNTIMES, STRICTER, combined, default, gate_webhook,
    resize_cri, with,
};

fn workload<'a>(objects: &'a [Object], name: &str) -> &'a Object {
    objects.iter().find(|o| o.pod().is_some() && o.name() == name).unwrap()
}

fn pod<'a>(objects: &'a [Object], name: &str) -> &'a Value {
    workload(objects, name).pod().unwrap()
}

fn container(pod: &Value) -> &Value {
    let containers = list(pod, "/spec/containers");
    assert_eq!(containers.len(), 1, "one program a Pod");
    &containers[0]
}

const BOTH: [&str; 2] = ["pitstop-controller", "pitstop-daemon"];

#[test]
fn these_kinds_of_objects_and_no_others_are_installed() {
    let kinds: BTreeSet<String> = default().iter().map(|o| o.kind().to_owned()).collect();
    let known = [
        "ClusterRole",
        "ClusterRoleBinding",
        "CustomResourceDefinition",
        "DaemonSet",
        "Deployment",
        "FlowSchema",
        "MutatingAdmissionPolicy",
        "MutatingAdmissionPolicyBinding",
        "MutatingWebhookConfiguration",
        "Namespace",
        "NetworkPolicy",
        "PodDisruptionBudget",
        "PriorityLevelConfiguration",
        "Role",
        "RoleBinding",
        "Service",
        "ServiceAccount",
        "ValidatingAdmissionPolicy",
        "ValidatingAdmissionPolicyBinding",
    ];
    assert_eq!(kinds, known.map(str::to_owned).into());
    let objects = default();
    let workloads: Vec<&str> = objects.iter().filter(|o| o.pod().is_some()).map(Object::name).collect();
    assert_eq!(workloads, BOTH);
}

#[test]
fn everything_with_a_namespace_is_in_ours() {
    let within = [
        "ServiceAccount",
        "Role",
        "RoleBinding",
        "Service",
        "Deployment",
        "DaemonSet",
        "PodDisruptionBudget",
        "NetworkPolicy",
    ];
    for object in default() {
        let namespaced = within.contains(&object.kind());
        assert_eq!(object.namespace(), if namespaced { NAMESPACE } else { "" }, "{}", object.name());
    }
}

#[test]
fn the_controller_passes_the_strictest_pod_security_level() {
    assert_eq!(breaches(pod(&default(), "pitstop-controller")), [""; 0]);
}

#[test]
fn the_folders_of_the_runtimes_socket_and_of_cgroups_are_the_daemons_only_breaches() {
    let containerd = "/run/containerd/containerd.sock";
    let runtimes = RUNTIMES.iter().map(|(name, socket)| (*name, with(name), *socket));
    let stricter = STRICTER.iter().map(|name| (*name, with(name), containerd));
    let all = std::iter::once(("default", default(), containerd)).chain(runtimes).chain(stricter);
    for (name, objects, socket) in all {
        let (folder, _) = socket.rsplit_once('/').unwrap();
        let pod = pod(&objects, "pitstop-daemon");
        // The group of MicroK8s' socket has no fixed number, so the daemon must run as the socket's owner.
        let owner: &[&str] = if name == "microk8s" {
            &["runAsNonRoot: container daemon", "runAsUser: container daemon"]
        } else {
            &[]
        };
        let volumes = ["hostPath: volume cgroup", "hostPath: volume runtime"];
        let found: BTreeSet<String> = breaches(pod).into_iter().collect();
        assert_eq!(found, volumes.iter().chain(owner).map(|&breach| breach.to_owned()).collect(), "{name}");
        let volumes = list(pod, "/spec/volumes");
        let paths: Vec<&Value> = volumes.iter().filter_map(|v| v.get("hostPath")).collect();
        let directory = |path: &str| json!({"path": path, "type": "Directory"});
        assert_eq!(paths, [&directory(folder), &directory("/sys/fs/cgroup")], "{name}");
        let mounts = list(container(pod), "/volumeMounts");
        let cgroups = json!({
            "name": "cgroup", "mountPath": "/sys/fs/cgroup", "readOnly": true, "recursiveReadOnly": "IfPossible",
        });
        assert!(mounts.contains(&cgroups), "{name}: {mounts:?}");
        let mount = mounts.iter().find(|m| m["name"] == "runtime").unwrap();
        // The daemon finds the socket without arguments.
        assert_eq!((&mount["mountPath"], &mount["readOnly"]), (&json!(folder), &json!(true)), "{name}");
        assert_eq!(mount["mountPropagation"], "HostToContainer");
        assert_eq!(container(pod).get("args"), None);
    }
}

/// The component differs from the base only in the rights to change cgroups.
#[test]
fn only_one_component_lets_cgroups_be_changed_and_it_takes_these_rights() {
    for (base, objects) in [(gate_webhook(), resize_cri()), (default(), with("resize-cri"))] {
        differs_by_what_changing_cgroups_takes(&base, &objects);
    }
}

fn differs_by_what_changing_cgroups_takes(base: &[Object], objects: &[Object]) {
    let daemon = pod(objects, "pitstop-daemon");
    let expected = [
        "hostPath: volume cgroup",
        "hostPath: volume runtime",
        "hostPath: volume systemd",
        "runAsNonRoot: container daemon",
        "runAsUser: container daemon",
    ];
    let found: BTreeSet<String> = breaches(daemon).into_iter().collect();
    assert_eq!(found, expected.map(str::to_owned).into());
    assert_eq!(breaches(pod(objects, "pitstop-controller")), [""; 0]);

    let mut like_the_base = objects.to_vec();
    for object in like_the_base.iter_mut().filter(|o| o.pod().is_some()) {
        let name = object.name().to_owned();
        let spec = &mut object.0["spec"]["template"]["spec"];
        let args = spec["containers"][0].as_object_mut().unwrap().remove("args").unwrap();
        if name == "pitstop-controller" {
            assert_eq!(args, json!(["--resize-cri"]));
            continue;
        }
        assert_eq!(args, json!(["--resize"]));
        let mounts = spec["containers"][0]["volumeMounts"].as_array_mut().unwrap();
        let systemd = json!({"name": "systemd", "mountPath": "/run/systemd", "readOnly": true});
        assert_eq!(mounts.pop(), Some(systemd));
        let cgroup = mounts.iter_mut().find(|m| m["name"] == "cgroup").unwrap();
        assert_eq!(*cgroup, json!({"name": "cgroup", "mountPath": "/sys/fs/cgroup"}));
        cgroup["readOnly"] = json!(true);
        cgroup["recursiveReadOnly"] = json!("IfPossible");
        let volume = json!({
            "name": "systemd", "hostPath": {"path": "/run/systemd", "type": "DirectoryOrCreate"},
        });
        assert_eq!(spec["volumes"].as_array_mut().unwrap().pop(), Some(volume));
        let context = spec["securityContext"].as_object_mut().unwrap();
        assert_eq!(context.insert("runAsUser".into(), json!(65532)), Some(json!(0)));
        assert_eq!(context.insert("runAsNonRoot".into(), json!(true)), Some(json!(false)));
    }
    // `rights` tests the controller's rights to read the limits of a Pod.
    like_the_base.retain(|object| object.name() != "pitstop-controller-resize-cri");
    let all = |objects: &[Object]| objects.iter().map(|o| o.0.clone()).collect::<Vec<Value>>();
    assert_eq!(all(&like_the_base), all(base));
}

fn names_in(folder: &str) -> Vec<String> {
    let mut found: Vec<String> = std::fs::read_dir(pitstop_manifests_test::root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    found.sort();
    found
}

#[test]
fn every_overlay_and_every_component_is_tested() {
    let overlays = BASES.iter().filter_map(|base| base.strip_prefix("overlays/"));
    assert_eq!(names_in("deploy/overlays"), overlays.collect::<Vec<_>>());
    let mut components: Vec<&str> = RUNTIMES
        .iter()
        .map(|(name, _)| *name)
        .chain(STRICTER)
        .chain(RIGHTS)
        .chain([PARK, MONITORING])
        .collect();
    components.sort_unstable();
    assert_eq!(names_in("deploy/components"), components);
}

/// Combines one runtime with all other components, on every base.
#[test]
fn components_go_together_and_with_every_base() {
    for base in BASES {
        for (runtime, socket) in RUNTIMES {
            // That base contains `resize-cri`.
            let rights = RIGHTS.into_iter().filter(|name| !base.ends_with(name));
            let components: Vec<&str> = [runtime].into_iter().chain(STRICTER).chain(rights).collect();
            let objects = combined(base, &components);
            let daemon = pod(&objects, "pitstop-daemon");
            let mounts = list(container(daemon), "/volumeMounts");
            let paths: BTreeSet<&str> = mounts.iter().map(|mount| text(mount, "/mountPath")).collect();
            let folder = socket.rsplit_once('/').unwrap().0;
            assert!(paths.contains(folder) && paths.contains("/run/systemd"), "{base} {runtime}: {paths:?}");
            assert_eq!(text(daemon, "/spec/securityContext/seccompProfile/type"), "Localhost");
            assert_eq!(daemon["spec"]["securityContext"]["runAsUser"], 0, "resizing takes it");
            assert_eq!(container(pod(&objects, "pitstop-controller"))["args"], json!(["--resize-cri"]));
            let new = find(&objects, "MutatingAdmissionPolicy", "pitstop-readiness-gate").is_some();
            assert_eq!(new, base == "default", "before 1.36 there is no such kind");
            let rest = ["pitstop-locked-pods", "pitstop-controller-evict"];
            assert!(rest.iter().all(|name| objects.iter().any(|o| o.name() == *name)), "{base} {runtime}");
        }
    }
}

#[test]
fn both_run_as_nobody_on_a_root_that_they_cannot_write() {
    let objects = default();
    for (name, group) in [("pitstop-controller", 65532), ("pitstop-daemon", 0)] {
        let pod = pod(&objects, name);
        let context = &pod["spec"]["securityContext"];
        assert_eq!((&context["runAsUser"], &context["runAsGroup"]), (&json!(65532), &json!(group)), "{name}");
        assert_eq!(context.get("supplementalGroups").or(context.get("fsGroup")), None, "{name}");
        let own = &container(pod)["securityContext"];
        let fields: BTreeSet<&str> = own.as_object().unwrap().keys().map(String::as_str).collect();
        assert_eq!(fields, ["allowPrivilegeEscalation", "capabilities", "readOnlyRootFilesystem"].into());
        assert_eq!(own["readOnlyRootFilesystem"], true, "{name}");
        assert_eq!(container(pod).get("command"), None, "the image's own program");
    }
}

/// An automatically mounted token is valid for a year: `--service-account-extend-token-expiration` of kube-apiserver.
#[test]
fn the_tokens_of_both_are_short_lived_and_their_only_credential() {
    let objects = default();
    for (name, count) in [("pitstop-controller", 1), ("pitstop-daemon", 4)] {
        let pod = pod(&objects, name);
        assert_eq!(pod["spec"]["automountServiceAccountToken"], false, "{name}");
        let volumes = list(pod, "/spec/volumes");
        let projected: Vec<&Value> = volumes.iter().filter(|v| v.get("projected").is_some()).collect();
        assert_eq!((volumes.len(), projected.len()), (count, 1), "{name}");
        let sources = list(projected[0], "/projected/sources");
        let kinds: Vec<&String> = sources.iter().flat_map(|s| s.as_object().unwrap().keys()).collect();
        assert_eq!(kinds, ["serviceAccountToken", "configMap", "downwardAPI"], "{name}");
        let token = &sources[0]["serviceAccountToken"];
        assert_eq!(*token, json!({"path": "token", "expirationSeconds": 3600}), "{name}");
        let mount = list(container(pod), "/volumeMounts").iter().find(|m| m["name"] == "token").unwrap();
        assert_eq!(mount["mountPath"], "/var/run/secrets/kubernetes.io/serviceaccount", "{name}");
        assert_eq!(mount["readOnly"], true, "{name}");
    }
}

#[test]
fn accounts_give_no_token_unasked() {
    let objects = default();
    for name in BOTH {
        let account = find(&objects, "ServiceAccount", name).unwrap();
        assert_eq!(account.0["automountServiceAccountToken"], false, "{name}");
        assert_eq!(pod(&objects, name)["spec"]["serviceAccountName"], name);
    }
}

#[test]
fn images_are_of_this_version_and_never_asked_for_again() {
    let objects = default();
    for (name, program) in [("pitstop-controller", "controller"), ("pitstop-daemon", "daemon")] {
        let container = container(pod(&objects, name));
        let image = format!("pitstop.dev/{program}:{}", env!("CARGO_PKG_VERSION"));
        assert_eq!(
            (text(container, "/image"), &container["imagePullPolicy"]),
            (image.as_str(), &json!("IfNotPresent"))
        );
    }
}

#[test]
fn both_reserve_what_they_need_and_answer_probes() {
    let objects = default();
    for name in BOTH {
        let container = container(pod(&objects, name));
        for pointer in ["/resources/requests/cpu", "/resources/requests/memory", "/resources/limits/memory"] {
            assert!(!text(container, pointer).is_empty(), "{name}: {pointer}");
        }
        for (probe, path) in [("readinessProbe", "/readyz"), ("livenessProbe", "/healthz")] {
            assert_eq!(container[probe]["httpGet"], json!({"path": path, "port": "metrics"}), "{name}");
        }
        let metrics = list(container, "/ports").iter().find(|port| port["name"] == "metrics");
        assert_eq!(metrics.unwrap()["containerPort"], 8080, "{name}");
        assert!(pod(&objects, name)["spec"]["terminationGracePeriodSeconds"].is_u64(), "{name}");
    }
}

#[test]
fn workloads_select_their_own_pods_and_only_those() {
    let objects = default();
    let budget = find(&objects, "PodDisruptionBudget", "pitstop-controller").unwrap();
    let service = find(&objects, "Service", "pitstop-webhook").unwrap();
    let labels = |name| &pod(&objects, name)["metadata"]["labels"];
    assert_ne!(labels(BOTH[0]), labels(BOTH[1]));
    for name in BOTH {
        assert_eq!(workload(&objects, name).0["spec"]["selector"]["matchLabels"], *labels(name));
    }
    assert_eq!(budget.0["spec"]["selector"]["matchLabels"], *labels("pitstop-controller"));
    assert_eq!(service.0["spec"]["selector"], *labels("pitstop-controller"));
    for spread in list(pod(&objects, "pitstop-controller"), "/spec/topologySpreadConstraints") {
        assert_eq!(spread["labelSelector"]["matchLabels"], *labels("pitstop-controller"));
        assert_eq!(spread["whenUnsatisfiable"], "ScheduleAnyway", "a cluster of one node runs both");
    }
}

#[test]
fn one_controller_stays_and_daemons_run_on_every_node_and_change_a_few_at_a_time() {
    let objects = default();
    let deployment = &workload(&objects, "pitstop-controller").0["spec"];
    assert_eq!(
        (&deployment["replicas"], &deployment["strategy"]["rollingUpdate"]["maxUnavailable"]),
        (&json!(2), &json!(0))
    );
    assert_eq!(
        find(&objects, "PodDisruptionBudget", "pitstop-controller").unwrap().0["spec"]["minAvailable"],
        1
    );
    let daemon = &workload(&objects, "pitstop-daemon").0["spec"];
    assert_eq!(daemon["template"]["spec"]["tolerations"], json!([{"operator": "Exists"}]));
    assert_eq!(daemon["updateStrategy"]["rollingUpdate"], json!({"maxUnavailable": "10%"}));
}

#[test]
fn the_namespace_names_every_breach_of_the_strictest_level() {
    let objects = default();
    let labels = &find(&objects, "Namespace", NAMESPACE).unwrap().0["metadata"]["labels"];
    for (mode, level) in [("enforce", "privileged"), ("audit", "restricted"), ("warn", "restricted")] {
        assert_eq!(labels[format!("pod-security.kubernetes.io/{mode}")], level);
    }
}
