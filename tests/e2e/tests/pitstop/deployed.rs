//! The daemon's process, image and rights are as small as promised.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::api::authorization::v1::{
    NonResourceAttributes, ResourceAttributes, SubjectAccessReview, SubjectAccessReviewSpec,
};
use kube::Api;
use kube::api::PostParams;
use pitstop_e2e::discovery::{self, Found, VERBS};
use pitstop_e2e::system::{self, CONTROLLER, DAEMON, NAMESPACE};
use pitstop_e2e::{Cluster, Context, Result, on_cluster, pods, process};

#[test]
fn the_daemon_has_no_powers() -> Result<()> {
    on_cluster(async |ns| {
        let pod = system::daemon(&ns.cluster).await?;
        let container = pods::container(&pod, "daemon")?;
        let context = container.security_context.clone().context("no securityContext")?;
        assert_eq!(context.read_only_root_filesystem, Some(true));
        assert_eq!(context.allow_privilege_escalation, Some(false));
        assert_ne!(context.privileged, Some(true));
        let pid = process::of_container(&pods::id(&pod, "daemon")?)?;
        for set in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
            assert_eq!(process::field(pid, set)?, "0000000000000000", "{set}");
        }
        assert_eq!(process::field(pid, "NoNewPrivs")?, "1");
        assert_eq!(process::field(pid, "Seccomp")?, "2", "2 is a filter");
        let ids = |name| process::field(pid, name).map(|text| text.replace('\t', " "));
        assert_eq!(ids("Uid")?, "65532 65532 65532 65532");
        assert_eq!(ids("Gid")?, "0 0 0 0", "the group of the runtime's socket");
        let spec = pod.spec.as_ref().context("no spec")?;
        assert_eq!((spec.host_network, spec.host_pid, spec.host_ipc), (None, None, None));
        Ok(())
    })
}

#[test]
fn the_daemon_is_one_static_binary_on_a_read_only_empty_root() -> Result<()> {
    on_cluster(async |ns| {
        let pod = system::daemon(&ns.cluster).await?;
        let pid = process::of_container(&pods::id(&pod, "daemon")?)?;
        let mounts = mounts(pid)?;
        assert!(mounts["/"].split(',').any(|option| option == "ro"), "the root is mounted {}", mounts["/"]);
        let root = PathBuf::from(format!("/proc/{pid}/root"));
        let mut files = Vec::new();
        let mut folders = vec![PathBuf::from("/")];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(root.join(folder.strip_prefix("/")?))? {
                let entry = entry?;
                let path = folder.join(entry.file_name());
                // Mounts do not come from the image.
                if mounts.contains_key(&*path.to_string_lossy()) {
                    continue;
                }
                if entry.file_type()?.is_dir() {
                    folders.push(path);
                } else {
                    files.push(path);
                }
            }
        }
        assert_eq!(files, [Path::new("/pitstop-daemon")]);
        let program = fs::read(root.join("pitstop-daemon"))?;
        assert!(is_static(&program)?, "it asks for a dynamic linker");
        Ok(())
    })
}

/// The mount points that a process sees, and their options.
fn mounts(pid: i32) -> Result<BTreeMap<String, String>> {
    let text = fs::read_to_string(format!("/proc/{pid}/mountinfo"))?;
    let parts = text.lines().map(|line| {
        let mut words = line.split_whitespace().skip(4);
        Some((words.next()?.to_owned(), words.next()?.to_owned()))
    });
    parts.collect::<Option<_>>().context("mountinfo is not understood")
}

/// Whether a 64-bit ELF program names no dynamic linker.
fn is_static(program: &[u8]) -> Result<bool> {
    const INTERPRETER: u32 = 3;
    assert_eq!(program[..5], *b"\x7fELF\x02");
    let offset = usize::try_from(u64::from_le_bytes(program[32..40].try_into()?))?;
    let size = usize::from(u16::from_le_bytes(program[54..56].try_into()?));
    let count = usize::from(u16::from_le_bytes(program[56..58].try_into()?));
    let headers = program[offset..offset + size * count].chunks(size);
    let kinds = headers.map(|header| Ok(u32::from_le_bytes(header[..4].try_into()?)));
    Ok(!kinds.collect::<Result<Vec<_>>>()?.contains(&INTERPRETER))
}

/// Rights of an account: `verb group/resource`, with `@namespace` for a right in one namespace only.
type Rights = BTreeSet<String>;

#[test]
fn the_daemon_may_read_orders_and_write_answers_and_nothing_else() -> Result<()> {
    on_cluster(async |ns| {
        let rights = own_rights(&ns.cluster, DAEMON).await?;
        let expected = [
            "list pitstop.dev/nodeworks",
            "watch pitstop.dev/nodeworks",
            "update pitstop.dev/nodeworks/status",
        ];
        assert_eq!(rights, expected.map(str::to_owned).into());
        Ok(())
    })
}

#[test]
fn the_controller_may_do_what_it_does_and_nothing_else() -> Result<()> {
    on_cluster(async |ns| {
        let rights = own_rights(&ns.cluster, CONTROLLER).await?;
        let requests = "apps.kruise.io/containerrecreaterequests";
        let expected = [
            format!("list {requests}"),
            format!("watch {requests}"),
            format!("create {requests}"),
            format!("patch {requests}"),
            format!("delete {requests}"),
            format!("update {requests}/status"),
            "get core/pods".to_owned(),
            "list core/pods".to_owned(),
            "watch core/pods".to_owned(),
            "patch core/pods".to_owned(),
            "patch core/pods/status".to_owned(),
            "patch core/pods/resize".to_owned(),
            "list pitstop.dev/inplacerollouts".to_owned(),
            "watch pitstop.dev/inplacerollouts".to_owned(),
            "update pitstop.dev/inplacerollouts/status".to_owned(),
            "get apps/daemonsets".to_owned(),
            "get apps/deployments".to_owned(),
            "get apps/statefulsets".to_owned(),
            "list apps/daemonsets".to_owned(),
            "list apps/deployments".to_owned(),
            "list apps/statefulsets".to_owned(),
            "watch apps/daemonsets".to_owned(),
            "watch apps/deployments".to_owned(),
            "watch apps/statefulsets".to_owned(),
            "list apps/replicasets".to_owned(),
            "list apps/controllerrevisions".to_owned(),
            "create pitstop.dev/podimageupdates".to_owned(),
            "patch pitstop.dev/podimageupdates".to_owned(),
            "create pitstop.dev/podresizes".to_owned(),
            "list policy/poddisruptionbudgets".to_owned(),
            "list pitstop.dev/podimageupdates".to_owned(),
            "watch pitstop.dev/podimageupdates".to_owned(),
            "delete pitstop.dev/podimageupdates".to_owned(),
            "update pitstop.dev/podimageupdates/status".to_owned(),
            "list pitstop.dev/podresizes".to_owned(),
            "watch pitstop.dev/podresizes".to_owned(),
            "delete pitstop.dev/podresizes".to_owned(),
            "update pitstop.dev/podresizes/status".to_owned(),
            "get core/nodes".to_owned(),
            "list pitstop.dev/nodeworks".to_owned(),
            "watch pitstop.dev/nodeworks".to_owned(),
            "create pitstop.dev/nodeworks".to_owned(),
            "patch pitstop.dev/nodeworks".to_owned(),
            "create events.k8s.io/events".to_owned(),
            "patch events.k8s.io/events".to_owned(),
            // Narrower rights are bound to names, which these reviews do not show.
            format!("create coordination.k8s.io/leases@{NAMESPACE}"),
            format!("create core/secrets@{NAMESPACE}"),
        ];
        assert_eq!(rights, expected.into());
        Ok(())
    })
}

/// Rights of the `ServiceAccount`, minus those of any account.
async fn own_rights(cluster: &Cluster, account: &str) -> Result<Rights> {
    let questions = questions(cluster).await?;
    let own = rights(cluster, account, &questions).await?;
    let anybody = rights(cluster, "there-is-no-such-account", &questions).await?;
    assert!(!anybody.is_empty(), "everybody may at least ask what they may do");
    Ok(&own - &anybody)
}

/// Every verb on every resource that the API server knows, in all namespaces and in pitstop's.
async fn questions(cluster: &Cluster) -> Result<Vec<SubjectAccessReviewSpec>> {
    let mut asked = BTreeSet::new();
    let mut questions = Vec::new();
    for Found { group, resource, .. } in discovery::resources(&cluster.client).await? {
        if !asked.insert((group.clone(), resource.name.clone())) {
            continue;
        }
        let (name, subresource) = match resource.name.split_once('/') {
            Some((name, subresource)) => (name.to_owned(), Some(subresource.to_owned())),
            None => (resource.name.clone(), None),
        };
        let scopes = if resource.namespaced { vec![None, Some(NAMESPACE.to_owned())] } else { vec![None] };
        for (verb, namespace) in VERBS.iter().flat_map(|verb| scopes.iter().map(move |scope| (verb, scope))) {
            let attributes = ResourceAttributes {
                group: Some(group.clone()),
                resource: Some(name.clone()),
                subresource: subresource.clone(),
                verb: Some((*verb).to_owned()),
                namespace: namespace.clone(),
                ..ResourceAttributes::default()
            };
            questions.push(SubjectAccessReviewSpec {
                resource_attributes: Some(attributes),
                ..SubjectAccessReviewSpec::default()
            });
        }
    }
    for path in ["/metrics", "/logs", "/debug/pprof/", "/api", "/configz", "/*"] {
        questions.push(SubjectAccessReviewSpec {
            non_resource_attributes: Some(NonResourceAttributes {
                path: Some(path.to_owned()),
                verb: Some("get".to_owned()),
            }),
            ..SubjectAccessReviewSpec::default()
        });
    }
    Ok(questions)
}

/// Rights among `questions` that a `ServiceAccount` in pitstop's namespace has.
async fn rights(cluster: &Cluster, account: &str, questions: &[SubjectAccessReviewSpec]) -> Result<Rights> {
    const AT_A_TIME: usize = 16;
    let api: Api<SubjectAccessReview> = Api::all(cluster.client.clone());
    let groups =
        ["system:serviceaccounts", &format!("system:serviceaccounts:{NAMESPACE}"), "system:authenticated"];
    let answers: Vec<Option<String>> = stream::iter(questions)
        .map(async |question| {
            let spec = SubjectAccessReviewSpec {
                user: Some(format!("system:serviceaccount:{NAMESPACE}:{account}")),
                groups: Some(groups.map(str::to_owned).to_vec()),
                ..question.clone()
            };
            let review = SubjectAccessReview { spec, ..SubjectAccessReview::default() };
            let answer = api.create(&PostParams::default(), &review).await?;
            let allowed = answer.status.context("a review without an answer")?.allowed;
            anyhow::Ok(allowed.then(|| named(question)))
        })
        .buffer_unordered(AT_A_TIME)
        .try_collect()
        .await?;
    let mut rights: Rights = answers.into_iter().flatten().collect();
    // A right in all namespaces includes the one namespace.
    let everywhere = rights.clone();
    rights.retain(|right| right.split_once('@').is_none_or(|(right, _)| !everywhere.contains(right)));
    Ok(rights)
}

fn named(question: &SubjectAccessReviewSpec) -> String {
    if let Some(path) = &question.non_resource_attributes {
        return format!("get {}", path.path.clone().unwrap_or_default());
    }
    let asked = question.resource_attributes.clone().unwrap_or_default();
    let group = asked.group.filter(|group| !group.is_empty()).unwrap_or_else(|| "core".to_owned());
    let subresource = asked.subresource.map(|name| format!("/{name}")).unwrap_or_default();
    let scope = asked.namespace.map(|name| format!("@{name}")).unwrap_or_default();
    let (verb, resource) = (asked.verb.unwrap_or_default(), asked.resource.unwrap_or_default());
    format!("{verb} {group}/{resource}{subresource}{scope}")
}
