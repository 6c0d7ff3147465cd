//! Requests the web app's page repeatedly, through the API server's proxy.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};

use super::kubectl::{Kubectl, Running};
use super::{NAMESPACE, POD};

/// Period of the probes.
pub(super) const PERIOD: Duration = Duration::from_millis(50);
/// How long an answer may take.
const PATIENCE: Duration = Duration::from_secs(1);

/// Access to the app.
pub(super) struct Route {
    /// `kubectl proxy`, which authenticates requests.
    _proxy: Running,
    address: String,
}

/// A thread that probes until this value is dropped.
pub(super) struct Prober {
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Route {
    pub(super) fn open(kubectl: &Kubectl) -> Result<Self> {
        let (proxy, stdout) = kubectl.spawn(["proxy", "--port=0"])?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line).context("`kubectl proxy` says nothing")?;
        let address = line.trim().rsplit(' ').next().unwrap_or_default().to_owned();
        if !address.contains(':') {
            bail!("`kubectl proxy` says {line:?} instead of its address");
        }
        Ok(Self { _proxy: proxy, address })
    }

    /// The body of a page of the app.
    pub(super) fn get(&self, page: &str) -> Result<String> {
        get(&self.address, page)
    }

    /// Starts a prober. `report` gets the time of each answer and whether it was good, and returns whether to go on.
    pub(super) fn probe(&self, report: impl Fn(Instant, bool) -> bool + Send + 'static) -> Prober {
        let address = self.address.clone();
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let asked = Instant::now();
                let good = get(&address, "").is_ok();
                if !report(Instant::now(), good) {
                    return;
                }
                std::thread::sleep(PERIOD.saturating_sub(asked.elapsed()));
            }
        });
        Prober { stop, thread: Some(thread) }
    }
}

impl Drop for Prober {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            // A thread that panicked needs no stop.
            let _ = thread.join();
        }
    }
}

fn get(address: &str, page: &str) -> Result<String> {
    let mut stream = TcpStream::connect(address).context("cannot reach `kubectl proxy`")?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let path = format!("/api/v1/namespaces/{NAMESPACE}/pods/{POD}:8080/proxy/{page}");
    write!(stream, "GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n")?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).with_context(|| format!("no answer to GET {path}"))?;
    body(&answer).map(str::to_owned).with_context(|| format!("GET {path}"))
}

/// The body of an answer. Fails unless the status is 200.
fn body(answer: &str) -> Result<&str> {
    let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((answer, ""));
    let first = head.lines().next().unwrap_or_default();
    if first.split(' ').nth(1) != Some("200") {
        bail!("answered with {first:?}");
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_good_answer_counts() {
        assert_eq!(body("HTTP/1.0 200 OK\r\nA: b\r\n\r\nhello\n").unwrap(), "hello\n");
        assert!(body("HTTP/1.0 503 Service Unavailable\r\n\r\nno").is_err());
        assert!(body("").is_err());
    }
}
