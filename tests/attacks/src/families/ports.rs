//! Ports in the network of the nodes, tried from node A.

use anyhow::{Context as _, Result};
use http::Method;
use pitstop_e2e::system::{self, CONTROLLER};
use serde_json::{Value, json};

use crate::ask::{self, Ask};
use crate::probe::{Answer, Expected, granted, nobody, refused, rights, unreachable};
use crate::report::Report;
use crate::stage::{POD, Stage};
use crate::who::{in_network_of, stranger};

const KUBELET: u16 = 10250;
/// The kubelet's port without authentication, which is off by default.
const READ_ONLY: u16 = 10255;
/// The kubelet's health, which it serves to its own node only.
const KUBELET_HEALTH: u16 = 10248;
const WEBHOOK: &str = "/mutate-containerrecreaterequest";

/// A probe that is sent from inside.
struct Attempt {
    url: String,
    name: &'static str,
    token: Option<String>,
    what: String,
    ask: Ask,
    expected: Expected,
}

pub(super) async fn run(stage: &mut Stage, report: &mut Report) -> Result<()> {
    let mut attempts = Vec::new();
    for node in &stage.nodes {
        kubelet(stage, node, &mut attempts);
    }
    let replicas = system::pods_of(&stage.cluster, CONTROLLER).await?;
    let address = replicas.iter().find_map(|pod| pod.status.as_ref()?.pod_ip.clone());
    controller(stage, &address.context("no controller has an address")?, &mut attempts);
    let daemon = stage.b().daemon.pod.status.as_ref().and_then(|status| status.pod_ip.as_deref());
    health("daemon", daemon.context("the daemon has no address")?, &mut attempts);
    let answers = in_network_of(stage.a().pid, async || send_all(&attempts).await)?;
    for (attempt, answer) in attempts.iter().zip(&answers) {
        report.answered(attempt.name, &attempt.what, &attempt.expected, answer);
    }
    let names = stage.nodes.iter().map(|node| &node.name).chain([&stage.others.name, &stage.own.name]);
    let names: Vec<&str> = names.map(String::as_str).collect();
    for (attempt, answer) in attempts.iter().zip(&answers).filter(|(a, _)| a.what.ends_with(METRICS)) {
        let shown: Vec<&str> = names.iter().copied().filter(|name| answer.text.contains(name)).collect();
        let seen = if shown.is_empty() { "none".to_owned() } else { shown.join(" ") };
        let what = format!("{}: names of nodes and namespaces in it", attempt.what);
        report.fact(attempt.name, &what, "none", &seen);
    }
    Ok(())
}

/// How the reading of a program's metrics is called.
const METRICS: &str = "get /metrics";

async fn send_all(attempts: &[Attempt]) -> Result<Vec<Answer>> {
    let mut answers = Vec::new();
    for attempt in attempts {
        let who = stranger(&attempt.url)?;
        let who = match &attempt.token {
            Some(token) => who.with_token(attempt.name, token),
            None => who,
        };
        answers.push(who.send(attempt.ask.clone()).await);
    }
    Ok(answers)
}

/// A kubelet asks the API server about whoever comes; the right would be `nodes/proxy` and its like.
fn kubelet(stage: &Stage, node: &crate::stage::Node, attempts: &mut Vec<Attempt>) {
    let container = format!("{}/{}-{POD}/app", stage.others.name, node.name);
    let get = ask::get;
    let post = |path: &str| ask::plain(&Method::POST, path);
    let asks = [
        get("/pods"),
        get("/runningpods/"),
        get("/metrics"),
        get("/metrics/cadvisor"),
        get("/metrics/resource"),
        get("/stats/summary"),
        get("/logs/"),
        get("/configz"),
        get("/healthz"),
        get("/debug/pprof/heap"),
        get(&format!("/containerLogs/{container}")),
        post(&format!("/exec/{container}?command=id&output=1")),
        post(&format!("/run/{container}?cmd=id")),
        post(&format!("/attach/{container}?output=1")),
        post(&format!("/checkpoint/{container}")),
    ];
    let url = format!("https://{}:{KUBELET}", node.address);
    let daemon = Some(stage.a().daemon.token.clone());
    let title = |ask: &Ask| {
        let path = ask.uri().path().replace(&container, "CONTAINER");
        format!("kubelet of {}: {} {path}", node.name, ask.method())
    };
    for ask in &asks {
        let (what, expected) = (title(ask), rights());
        attempts.push(Attempt {
            url: url.clone(),
            name: "daemon A",
            token: daemon.clone(),
            what,
            ask: ask.clone(),
            expected,
        });
    }
    for (name, token) in [("stranger", None), ("garbage", Some("garbage".to_owned()))] {
        let (what, ask, expected) = (title(&asks[0]), asks[0].clone(), nobody());
        attempts.push(Attempt { url: url.clone(), name, token, what, ask, expected });
    }
    for port in [READ_ONLY, KUBELET_HEALTH] {
        attempts.push(Attempt {
            url: format!("http://{}:{port}", node.address),
            name: "daemon A",
            token: daemon.clone(),
            what: format!("kubelet of {}: port {port}", node.name),
            ask: get("/pods"),
            expected: unreachable(),
        });
    }
}

/// What pitstop itself listens on. Both ports answer whoever reaches them; the `NetworkPolicies` of `deploy/` say who
/// does, and this cluster's network does not know them.
fn controller(stage: &Stage, address: &str, attempts: &mut Vec<Attempt>) {
    health("controller", address, attempts);
    let webhook = format!("https://{address}:9443");
    let json = "application/json";
    let raw = |body: Vec<u8>| ask::raw(&Method::POST, WEBHOOK, json, body);
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000)).into_bytes();
    let review = review(stage);
    let cases: [(&str, Ask, Expected); 12] = [
        ("webhook: get", ask::get(WEBHOOK), refused(405, "only POST")),
        ("webhook: another path", ask::post("/mutate-pods", &json!({})), refused(404, "not found")),
        ("webhook: metrics", ask::get("/metrics"), refused(404, "not found")),
        (
            "webhook: text",
            ask::raw(&Method::POST, WEBHOOK, "text/plain", b"{}".to_vec()),
            refused(415, "only application/json"),
        ),
        ("webhook: no JSON", raw(b"{".to_vec()), refused(400, "no AdmissionReview")),
        ("webhook: nothing", raw(Vec::new()), refused(400, "no AdmissionReview")),
        ("webhook: bytes", raw(vec![0xff; 1024]), refused(400, "no AdmissionReview")),
        (
            "webhook: no request in it",
            raw(br#"{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}"#.to_vec()),
            refused(400, "has no request"),
        ),
        ("webhook: 100,000 lists in each other", raw(deep), refused(400, "no AdmissionReview")),
        ("webhook: 2 MiB of nothing", raw(vec![b' '; 2 << 20]), refused(400, "no AdmissionReview")),
        (
            "webhook: a review that nobody asked for: known residual",
            ask::post(WEBHOOK, &review),
            granted(200),
        ),
        (
            "webhook: a review that says it is the controller's: known residual",
            ask::post(WEBHOOK, &by_controller(review.clone())),
            granted(200),
        ),
    ];
    for (what, ask, expected) in cases {
        let url = webhook.clone();
        attempts.push(Attempt { url, name: "stranger", token: None, what: what.to_owned(), ask, expected });
    }
}

/// The port of metrics and health, which both programs have.
fn health(program: &str, address: &str, attempts: &mut Vec<Attempt>) {
    let long = ask::header(ask::get("/metrics"), "x-pad", &"x".repeat(16 << 10));
    let cases = [
        (METRICS, ask::get("/metrics"), granted(200)),
        ("get /healthz", ask::get("/healthz"), granted(200)),
        ("post /metrics", ask::plain(&Method::POST, "/metrics"), refused(405, "only GET")),
        ("get /debug/pprof/heap", ask::get("/debug/pprof/heap"), refused(404, "not found")),
        ("get /../etc/passwd", ask::get("/../etc/passwd"), refused(404, "not found")),
        ("a head of 16 KiB", long, refused(431, "")),
    ];
    for (what, ask, expected) in cases {
        let (url, what) = (format!("http://{address}:8080"), format!("{program}: {what}"));
        attempts.push(Attempt { url, name: "stranger", token: None, what, ask, expected });
    }
}

/// A review of a new request, as the API server sends them. The answer shows what the webhook fills in: it reads the
/// Pod. Nothing is stored.
fn review(stage: &Stage) -> Value {
    let pod = format!("{}-{POD}", stage.b().name);
    let object = pitstop_e2e::requests::recreate("attacks", &pod, &["app"]);
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {
        "uid": "attacks", "operation": "CREATE", "name": "attacks", "namespace": stage.others.name,
        "kind": {"group": "apps.kruise.io", "version": "v1alpha1", "kind": "ContainerRecreateRequest"},
        "resource": {"group": "apps.kruise.io", "version": "v1alpha1", "resource": "containerrecreaterequests"},
        "userInfo": {}, "object": object}})
}

fn by_controller(mut review: Value) -> Value {
    review["request"]["userInfo"] =
        json!({"username": format!("system:serviceaccount:{}:{CONTROLLER}", system::NAMESPACE)});
    review
}
