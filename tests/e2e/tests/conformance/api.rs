//! Compares the model of the API server with the real one.

use std::io::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use http::{Request, Response};
use http_body_util::BodyExt as _;
use kube::client::Body;
use pitstop_e2e::{Cluster, Context as _, Result, bail, on_bare_cluster, runtime};
use pitstop_sim::conform::api::{Model, Scope, Script, Target, differences, expected, is_idle, run, scripts};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tokio::time::timeout;

/// How many scripts run at a time.
const THREADS: usize = 8;
/// How long to wait for an expected event.
const PATIENCE: Duration = Duration::from_secs(10);
/// How long to wait for unexpected events.
const SILENCE: Duration = Duration::from_millis(150);

/// The real API server, for one script.
struct Real<'a> {
    runtime: &'a Runtime,
    cluster: &'a Cluster,
    watches: Vec<Stream>,
}

/// An open watch: the body and the bytes already read of the next line.
struct Stream {
    body: Body,
    buffer: Vec<u8>,
}

impl Stream {
    /// The next event; None if none comes in time, or the watch has ended.
    async fn next(&mut self, patience: Duration) -> Option<Value> {
        loop {
            if let Some(end) = self.buffer.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = self.buffer.drain(..=end).collect();
                return serde_json::from_slice(&line).ok();
            }
            let frame = timeout(patience, self.body.frame()).await.ok()??.ok()?;
            self.buffer.extend_from_slice(&frame.into_data().ok()?);
        }
    }
}

impl Real<'_> {
    fn ask(&self, request: Request<Vec<u8>>) -> Result<Response<Body>> {
        let request = request.map(Body::from);
        self.runtime.block_on(async {
            timeout(Duration::from_mins(1), self.cluster.client.send(request))
                .await
                .context("no answer")?
                .context("cannot ask")
        })
    }

    fn read(&self, response: Response<Body>) -> Response<Value> {
        let (parts, body) = response.into_parts();
        let bytes = self.runtime.block_on(body.collect()).map(http_body_util::Collected::to_bytes);
        let bytes = bytes.unwrap_or_else(|error| format!("{error:#}").into());
        // The API server answers unknown paths in plain text; clients make a Status of it.
        let missing = || {
            let reason = if parts.status == 404 { "NotFound" } else { "" };
            json!({ "kind": "Status", "status": "Failure", "code": parts.status.as_u16(), "reason": reason,
                    "message": String::from_utf8_lossy(&bytes) })
        };
        let value = serde_json::from_slice(&bytes).unwrap_or_else(|_| missing());
        Response::from_parts(parts, value)
    }
}

fn unanswered(error: &anyhow::Error) -> Response<Value> {
    let mut response = Response::new(json!({ "kind": "Status", "message": format!("{error:#}") }));
    *response.status_mut() = http::StatusCode::BAD_GATEWAY;
    response
}

impl Target for Real<'_> {
    fn send(&mut self, request: Request<Vec<u8>>) -> Response<Value> {
        match self.ask(request) {
            Ok(response) => self.read(response),
            Err(error) => unanswered(&error),
        }
    }

    fn watch(&mut self, request: Request<Vec<u8>>) -> Result<usize, Response<Value>> {
        match self.ask(request) {
            Ok(response) if response.status() == 200 => {
                self.watches.push(Stream { body: response.into_body(), buffer: Vec::new() });
                Ok(self.watches.len() - 1)
            }
            Ok(response) => Err(self.read(response)),
            Err(error) => Err(unanswered(&error)),
        }
    }

    fn events(&mut self, watch: usize, expected: usize) -> Vec<Value> {
        let stream = &mut self.watches[watch];
        self.runtime.block_on(async {
            let mut events = Vec::new();
            loop {
                let patience = if events.len() < expected { PATIENCE } else { SILENCE };
                match stream.next(patience).await {
                    Some(event) if is_idle(&event) => {}
                    Some(event) => events.push(event),
                    None => return events,
                }
            }
        })
    }
}

/// Runs one script on both sides; returns the differences.
fn compare(script: &Script, number: usize, runtime: &Runtime, cluster: &Cluster) -> Result<Vec<String>> {
    let stamp = std::process::id();
    let scope =
        Scope { namespace: format!("conform-{stamp}-{number}"), id: format!("conform-{stamp}-{number}-id-") };
    let ours = run(script, &scope, &mut Model::new(&scope), &[]);
    let mut real = Real { runtime, cluster, watches: Vec::new() };
    let namespace = json!({ "metadata": { "name": scope.namespace } });
    let create = Request::post("/api/v1/namespaces").header("content-type", "application/json");
    let made = real.send(create.body(serde_json::to_vec(&namespace)?)?);
    if made.status() != 201 {
        bail!("cannot make a namespace: {}", made.body());
    }
    let theirs = run(script, &scope, &mut real, &expected(&ours));
    clean_up(&mut real, &scope.namespace)?;
    Ok(differences(script, &ours, &theirs))
}

/// Removes finalizers and Pods in the namespace, then the namespace.
fn clean_up(real: &mut Real<'_>, namespace: &str) -> Result<()> {
    for kind in [
        "api/v1/namespaces/NS/pods",
        "api/v1/namespaces/NS/configmaps",
        "apis/coordination.k8s.io/v1/namespaces/NS/leases",
        "apis/apps.kruise.io/v1alpha1/namespaces/NS/containerrecreaterequests",
    ] {
        let path = format!("/{}", kind.replace("NS", namespace));
        let list = real.send(Request::get(path.as_str()).body(Vec::new())?);
        for item in list.body()["items"].as_array().into_iter().flatten() {
            let one = format!("{path}/{}", item["metadata"]["name"].as_str().unwrap_or_default());
            if item["metadata"]["finalizers"].is_array() {
                let release =
                    Request::patch(one.as_str()).header("content-type", "application/merge-patch+json");
                real.send(release.body(br#"{"metadata":{"finalizers":null}}"#.to_vec())?);
            }
            if path.ends_with("pods") {
                real.send(Request::delete(format!("{one}?gracePeriodSeconds=0")).body(Vec::new())?);
            }
        }
    }
    real.send(Request::delete(format!("/api/v1/namespaces/{namespace}")).body(Vec::new())?);
    Ok(())
}

#[test]
fn the_model_answers_as_the_real_api_server() -> Result<()> {
    on_bare_cluster(async |_| {
        let all = scripts();
        let only = std::env::var("CONFORM_ONLY").unwrap_or_default();
        let next = AtomicUsize::new(0);
        let found: Mutex<Vec<(usize, String)>> = Mutex::new(Vec::new());
        let work = || -> Result<()> {
            let runtime = runtime()?;
            let cluster = runtime.block_on(Cluster::connect())?;
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                let Some(script) = all.get(number) else { return Ok(()) };
                if script.name.contains(&only) {
                    let differ = compare(script, number, &runtime, &cluster).context(script.name.clone())?;
                    found.lock().unwrap().extend(differ.into_iter().map(|text| (number, text)));
                }
            }
        };
        thread::scope(|scope| {
            let threads: Vec<_> = (0..THREADS).map(|_| scope.spawn(work)).collect();
            threads.into_iter().try_for_each(|thread| thread.join().unwrap())
        })?;
        let mut found = found.into_inner().unwrap();
        found.sort();
        let scripts: std::collections::BTreeSet<usize> = found.iter().map(|(number, _)| *number).collect();
        writeln!(
            std::io::stdout(),
            "api scripts: {}, differences: {} in {} scripts",
            all.len(),
            found.len(),
            scripts.len()
        )?;
        if !found.is_empty() {
            let list: Vec<String> = found.into_iter().map(|(_, text)| text).collect();
            bail!("the model differs from the real API server:\n{}", list.join("\n"));
        }
        Ok(())
    })
}
