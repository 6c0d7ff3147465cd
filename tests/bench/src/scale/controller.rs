//! The production controller as a process of this machine, with the rights of its `ServiceAccount`.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail};
use k8s_openapi::api::authentication::v1::{TokenRequest, TokenRequestSpec};
use k8s_openapi::api::core::v1::ServiceAccount;
use kube::Api;
use kube::api::PostParams;
use kube::config::{AuthInfo, Kubeconfig};

use super::stage::Stage;
use crate::harness::processes::{self, Memory};
use crate::harness::programs::NAMESPACE;

const ACCOUNT: &str = "pitstop-controller";
/// Lifetime of the token, in seconds: longer than any run.
const TOKEN_SECONDS: i64 = 6 * 3600;
/// Longest wait until it leads: an abandoned lease must expire, and long lists must be read.
const PATIENCE: Duration = Duration::from_mins(5);
const PERIOD: Duration = Duration::from_millis(100);
/// Memory limit in the Deployment, in MiB. Above it, the controller would be killed.
pub(crate) const LIMIT: f64 = 256.0;

/// A controller process. Drop kills it.
pub(crate) struct Controller {
    child: Child,
    metrics: SocketAddr,
}

impl Controller {
    /// Starts a controller. `log` is the name of its log file.
    pub(crate) async fn start(stage: &Stage, log: &str) -> Result<Self> {
        let kubeconfig = stage.logs.join("controller.kubeconfig");
        fs::write(&kubeconfig, serde_json::to_vec(&credentials(stage).await?)?)?;
        let [metrics, webhook] = [free()?, free()?];
        let path = stage.logs.join(format!("{log}.log"));
        let file = File::create(&path).with_context(|| format!("cannot write {}", path.display()))?;
        let child = Command::new(&stage.program)
            .arg(format!("--metrics-address={metrics}"))
            .arg(format!("--webhook-address={webhook}"))
            .env("KUBECONFIG", kubeconfig)
            .env("POD_NAMESPACE", NAMESPACE)
            .env("POD_NAME", "pitstop-controller-scale")
            .stdin(Stdio::null())
            .stdout(file.try_clone()?)
            .stderr(file)
            .spawn()
            .with_context(|| format!("cannot run {}", stage.program.display()))?;
        Ok(Self { child, metrics })
    }

    /// Starts a controller and waits until it leads and may place orders.
    pub(crate) async fn leading(stage: &Stage, log: &str) -> Result<Self> {
        let mut controller = Self::start(stage, log).await?;
        controller.until("leading", |value| value > 0.5).await?;
        controller.until("daemon_policy_in_force", |value| value > 0.5).await?;
        Ok(controller)
    }

    /// Waits until a metric `pitstop_controller_...` has a wanted value.
    pub(crate) async fn until(&mut self, metric: &str, wanted: impl Fn(f64) -> bool) -> Result<()> {
        let begin = Instant::now();
        while !self.metric(metric).await.is_ok_and(&wanted) {
            self.require_alive()?;
            if begin.elapsed() > PATIENCE {
                bail!("the controller's {metric} is not as wanted after {} s", PATIENCE.as_secs());
            }
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }

    /// The value of a metric `pitstop_controller_...`, labels included in the name.
    pub(crate) async fn metric(&self, name: &str) -> Result<f64> {
        let address = self.metrics;
        let text = tokio::task::spawn_blocking(move || page(address)).await??;
        value(&text, &format!("pitstop_controller_{name}"))
            .with_context(|| format!("there is no metric {name}"))
    }

    /// Memory of the process.
    pub(crate) fn memory(&self) -> Result<Memory> {
        Memory::of(self.child.id())
    }

    /// Resets the memory peak to the current value.
    pub(crate) fn forget_peak(&self) -> Result<()> {
        processes::forget_peak(self.child.id())
    }

    /// Processor time used so far.
    pub(crate) fn cpu(&self) -> Result<Duration> {
        processes::cpu(self.child.id())
    }

    /// Whether the process still runs.
    pub(crate) fn alive(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    fn require_alive(&mut self) -> Result<()> {
        match self.child.try_wait()? {
            Some(status) => bail!("the controller ended: {status}"),
            None => Ok(()),
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(mut self) -> Result<()> {
        self.child.kill()?;
        self.child.wait()?;
        Ok(())
    }

    /// Sends SIGTERM, so that the controller releases the lease, and waits for its end.
    pub(crate) async fn end(mut self) -> Result<()> {
        Command::new("kill").args(["-TERM", &self.child.id().to_string()]).status()?;
        let begin = Instant::now();
        while self.alive()? && begin.elapsed() < Duration::from_secs(30) {
            tokio::time::sleep(PERIOD).await;
        }
        Ok(())
    }
}

impl Drop for Controller {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A copy of the benchmark's KUBECONFIG with a token of the controller's account.
async fn credentials(stage: &Stage) -> Result<Kubeconfig> {
    let accounts: Api<ServiceAccount> = Api::namespaced(stage.client.clone(), NAMESPACE);
    let spec = TokenRequestSpec { expiration_seconds: Some(TOKEN_SECONDS), ..TokenRequestSpec::default() };
    let ask = TokenRequest { spec, ..TokenRequest::default() };
    let made = accounts.create_token_request(ACCOUNT, &PostParams::default(), &ask).await?;
    let token = made.status.context("a token request without an answer")?.token;
    let mut config = Kubeconfig::read()?;
    for user in &mut config.auth_infos {
        user.auth_info = Some(AuthInfo { token: Some(token.clone().into()), ..AuthInfo::default() });
    }
    Ok(config)
}

/// The controller's metrics page.
fn page(address: SocketAddr) -> std::io::Result<String> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(Duration::from_secs(5)))?;
    stream.write_all(b"GET /metrics HTTP/1.1\r\nhost: controller\r\nconnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    Ok(text)
}

/// A free address of this machine.
fn free() -> Result<SocketAddr> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?)
}

/// The value of a metric in a metrics page.
fn value(page: &str, name: &str) -> Option<f64> {
    let rest = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?;
    rest.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_metric_is_found_by_its_whole_name() {
        let page = "HTTP/1.1 200 OK\r\n\r\n# TYPE a gauge\na_total 3\na 0.25\nb{x=\"y\"} 1\n";
        assert_eq!(value(page, "a"), Some(0.25));
        assert_eq!(value(page, "b{x=\"y\"}"), Some(1.0));
        assert_eq!(value(page, "c"), None);
    }
}
