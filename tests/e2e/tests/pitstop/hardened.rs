//! The hardening guide's options work on a real cluster: the daemon's own seccomp profile, the locked namespace, the
//! share of the API server.

use std::collections::BTreeSet;
use std::fs;
use std::path::PathBuf;

use k8s_openapi::api::flowcontrol::v1::PriorityLevelConfiguration;
use kube::Api;
use pitstop_e2e::cluster::root;
use pitstop_e2e::system::{self, CONTROLLER, DAEMON, NAMESPACE};
use pitstop_e2e::{
    Cluster, Context, LONG, Result, SHORT, bail, ensure, on_cluster, pods, process, requests, until,
};
use serde_json::{Value, json};

/// The profile, as shipped.
fn profile() -> Result<String> {
    Ok(fs::read_to_string(root().join("deploy/seccomp/pitstop-daemon.json"))?)
}

/// Names of all system calls in rules of a profile.
fn names(rules: &Value) -> BTreeSet<String> {
    let rules = rules.as_array().into_iter().flatten();
    let names = rules.filter_map(|rule| rule["names"].as_array()).flatten();
    names.filter_map(Value::as_str).map(str::to_owned).collect()
}

#[test]
fn the_daemon_does_its_work_under_its_own_seccomp_profile() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        let node: PathBuf = cluster.status("/nodes/0/root")?;
        let folder = node.join("var/lib/kubelet/seccomp/pitstop");
        fs::create_dir_all(&folder)?;
        fs::write(folder.join("pitstop-daemon.json"), profile()?)?;
        cluster.install_with(&["seccomp"])?;
        system::healthy(cluster).await?;

        let daemon = system::daemon(cluster).await?;
        let id = pods::id(&daemon, "daemon")?;
        assert_eq!(process::field(process::of_container(&id)?, "Seccomp")?, "2", "2 is a filter");
        // The runtime got the file's profile, and does not use its own.
        let id = id.rsplit('/').next().context("no ID")?;
        let bundle = node.join("run/containerd/io.containerd.runtime.v2.task/k8s.io").join(id);
        let config: Value = serde_json::from_str(&fs::read_to_string(bundle.join("config.json"))?)?;
        let (profile, file) = (&config["linux"]["seccomp"], serde_json::from_str::<Value>(&profile()?)?);
        assert_eq!(profile["defaultAction"], "SCMP_ACT_ERRNO");
        assert_eq!(names(&profile["syscalls"]), names(&file["syscalls"]));

        // Every type of hook: in the container, over the network, by a name that must be resolved.
        let hooked = |mut container: Value, hook: Value| {
            container["lifecycle"] = json!({"preStop": hook});
            container
        };
        let by_name = json!({"httpGet": {"host": "web.example.com", "port": 8080, "path": "/"}});
        let mut pod = pods::pod(
            "web",
            &[
                hooked(pods::web("app"), json!({"exec": {"command": ["true"]}})),
                hooked(pods::idle("asks"), json!({"httpGet": {"port": 8080, "path": "/index.html"}})),
                hooked(pods::idle("waits"), json!({"sleep": {"seconds": 1}})),
                hooked(pods::idle("seeks"), by_name),
            ],
        );
        // No DNS server answers here.
        pod["spec"]["terminationGracePeriodSeconds"] = json!(5);
        let before = ns.start_pod(pod).await?;
        let all = ["asks", "waits", "seeks", "app"];
        for name in all {
            ns.create(requests::recreate(name, "web", &[name])).await?;
            let over = ns.over_within(name, LONG).await?;
            assert_eq!(requests::states(&over), [requests::succeeded(name)]);
            let warned = requests::condition(&over, "PreStopHookFailed").is_some();
            assert_eq!(warned, name == "seeks", "{name}: {:?}", requests::conditions(&over));
        }
        let between = ns.ready("web").await?;
        for name in all {
            pods::assert_restarted_once(&before, &between, name)?;
        }

        // The runtime and the API server, to which the daemon connects, restart.
        cluster.kill("containerd@node1")?;
        cluster.kill("apiserver")?;
        // The API server knows its own kinds before ours.
        until("the API server", LONG, async || Ok(Some(ns.request("app").await?))).await?;
        ns.create(requests::recreate("after", "web", &["waits"])).await?;
        let over = ns.over_within("after", LONG).await?;
        assert_eq!(requests::states(&over), [requests::succeeded("waits")]);
        let now = system::daemon(cluster).await?;
        assert_eq!(pods::restarts(&now, "daemon")?, 0, "it was ended by the filter");

        cluster.install()?;
        system::healthy(cluster).await
    })
}

/// `kubectl`'s message about a refusal; an error if the request is not refused.
fn refused(cluster: &Cluster, args: &[&str], input: &Value) -> Result<String> {
    match cluster.kubectl_with(args, &input.to_string()) {
        Ok(done) => bail!("not refused: {}: {done}", args.join(" ")),
        Err(error) => Ok(format!("{error:#}")),
    }
}

fn pod_of(account: &str) -> Value {
    let mut pod = pods::pod("intruder", &[pods::idle("app")]);
    pod["spec"]["serviceAccountName"] = json!(account);
    pod
}

fn workload(kind: &str, name: &str) -> Value {
    let template = json!({
        "metadata": {"labels": {"app": "x"}},
        "spec": {"serviceAccountName": DAEMON, "containers": [pods::idle("app")]},
    });
    json!({
        "apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name},
        "spec": {"selector": {"matchLabels": {"app": "x"}}, "template": template},
    })
}

/// Tries everything that must be refused, as an administrator.
async fn nobody_gets_in(cluster: &Cluster) -> Result<()> {
    let dry: &[&str] = &["--namespace", NAMESPACE, "create", "--dry-run=server", "--filename", "-"];
    let pods_only = "only pitstop's DaemonSet and Deployment have Pods";
    until("the policies to hold", SHORT, async || {
        Ok(refused(cluster, dry, &pod_of(DAEMON)).ok().filter(|text| text.contains(pods_only)))
    })
    .await?;
    let token = json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/service-account-token",
        "metadata": {"name": "x", "annotations": {"kubernetes.io/service-account.name": DAEMON}},
    });
    for (input, text) in [
        (pod_of(DAEMON), pods_only),
        (pod_of(CONTROLLER), pods_only),
        (pod_of("default"), pods_only),
        (workload("DaemonSet", "intruder"), "the only DaemonSet"),
        (workload("Deployment", "intruder"), "the only Deployment"),
        (workload("ReplicaSet", "intruder"), "only Deployments have ReplicaSets"),
        (token, "no Secret holds a token"),
    ] {
        let error = refused(cluster, dry, &input)?;
        ensure!(error.contains(text), "{input}: {error}");
    }
    // The DaemonSet controller may create Pods with the daemon's account only.
    let as_daemon_sets = ["--as=system:serviceaccount:kube-system:daemon-set-controller"];
    let error = refused(cluster, &[dry, &as_daemon_sets].concat(), &pod_of(CONTROLLER))?;
    ensure!(error.contains(pods_only), "{error}");
    for account in [DAEMON, CONTROLLER, "default"] {
        let error = refused(cluster, &["--namespace", NAMESPACE, "create", "token", account], &Value::Null)?;
        ensure!(error.contains("only kubelets ask for tokens"), "{account}: {error}");
    }
    let daemon = system::daemon(cluster).await?.metadata.name.context("a Pod without a name")?;
    let error = refused(
        cluster,
        &["--namespace", NAMESPACE, "exec", &daemon, "--", "/pitstop-daemon"],
        &Value::Null,
    )?;
    ensure!(error.contains("nobody enters a Pod"), "{error}");
    let debug =
        ["--namespace", NAMESPACE, "debug", &daemon, "--image=pitstop.dev/test/busybox:1", "--", "true"];
    let error = refused(cluster, &debug, &Value::Null)?;
    ensure!(error.contains("nor adds a container"), "{error}");
    // Other namespaces are not restricted.
    let elsewhere = ["--namespace", "default", "create", "--dry-run=server", "--filename", "-"];
    cluster.kubectl_with(&elsewhere, &pod_of("default").to_string())?;
    cluster.kubectl(&["--namespace", "default", "create", "token", "default"]).map(drop)
}

#[test]
fn a_locked_namespace_has_pitstops_own_pods_and_nobody_else() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        cluster.documented("lock", &[])?;
        let checked = async {
            nobody_gets_in(cluster).await?;
            // pitstop's own Pods come back.
            cluster.kubectl(&["--namespace", NAMESPACE, "delete", "pods", "--all"])?;
            system::healthy(cluster).await
        };
        let checked = checked.await;
        cluster.documented("unlock", &[])?;
        checked?;
        let before = ns.start_pod(pods::app("web")).await?;
        ns.create(requests::recreate("again", "web", &["app"])).await?;
        ns.over("again").await?;
        pods::assert_restarted_once(&before, &ns.pod("web").await?, "app")
    })
}

#[test]
fn requests_of_both_programs_are_on_levels_of_their_own() -> Result<()> {
    on_cluster(async |ns| {
        let levels: Api<PriorityLevelConfiguration> = Api::all(ns.cluster.client.clone());
        for account in [DAEMON, CONTROLLER] {
            let uid = levels.get(account).await?.metadata.uid.context("no UID")?;
            let request = http::Request::get("/apis/pitstop.dev/v1alpha1/nodeworks")
                .header("Impersonate-User", format!("system:serviceaccount:{NAMESPACE}:{account}"))
                .header("Impersonate-Group", "system:serviceaccounts")
                .body(kube::client::Body::empty())?;
            let answer = ns.cluster.client.send(request).await?;
            ensure!(answer.status().is_success(), "{account}: {}", answer.status());
            let level = answer.headers().get("X-Kubernetes-PF-PriorityLevel-UID").context("no level")?;
            assert_eq!(level.to_str()?, uid, "{account}");
        }
        Ok(())
    })
}
