//! Who sends requests: a holder of a token, a kubelet, the administrator.

use std::fs::File;
use std::os::fd::AsFd;
use std::path::Path;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result};
use http::header::AUTHORIZATION;
use http_body_util::BodyExt as _;
use kube::client::Body;
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use nix::sched::{CloneFlags, setns};
use tokio::time::timeout;

use crate::ask::Ask;
use crate::probe::Answer;

/// Longest wait for a whole answer.
const PATIENCE: Duration = Duration::from_secs(30);

/// Somebody who sends requests to one server.
#[derive(Clone)]
pub struct Who {
    /// For the table.
    pub name: String,
    client: Client,
    token: Option<String>,
}

impl Who {
    /// Whoever a client stands for.
    pub fn with_client(name: &str, client: Client) -> Self {
        Self { name: name.to_owned(), client, token: None }
    }

    /// Somebody else with a token, at the same server. The client must have no credentials of its own.
    #[must_use]
    pub fn with_token(&self, name: &str, token: &str) -> Self {
        Self { name: name.to_owned(), client: self.client.clone(), token: Some(token.to_owned()) }
    }

    /// The same under another name.
    #[must_use]
    pub fn with_name(&self, name: &str) -> Self {
        Self { name: name.to_owned(), ..self.clone() }
    }

    /// Sends a request. A failure to get an answer is an answer without a code.
    pub async fn send(&self, ask: Ask) -> Answer {
        match timeout(PATIENCE, self.try_send(ask)).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(error)) => Answer { code: 0, text: format!("{error:#}") },
            Err(_) => Answer { code: 0, text: format!("no answer for {PATIENCE:?}") },
        }
    }

    async fn try_send(&self, mut ask: Ask) -> Result<Answer> {
        if let Some(token) = &self.token {
            ask.headers_mut().insert(AUTHORIZATION, format!("Bearer {token}").parse()?);
        }
        let response = self.client.send(ask.map(Body::from)).await?;
        let code = response.status().as_u16();
        let bytes = response.into_body().collect().await?.to_bytes();
        Ok(Answer { code, text: String::from_utf8_lossy(&bytes).into_owned() })
    }
}

/// The API server, to which clients connect.
pub struct ApiServer {
    config: Config,
}

impl ApiServer {
    /// By the address and the CA of the administrator's kubeconfig, and none of its credentials.
    pub async fn of_kubeconfig() -> Result<Self> {
        let mut config = Config::from_kubeconfig(&KubeConfigOptions::default()).await?;
        config.auth_info = kube::config::AuthInfo::default();
        // Codes are to be seen as they come.
        config.default_retry = false;
        Ok(Self { config })
    }

    /// Nobody: no credentials at all.
    pub fn nobody(&self) -> Result<Who> {
        Ok(Who::with_client("nobody", Client::try_from(self.config.clone())?))
    }

    /// The holder of the client certificate in a kubeconfig file.
    pub async fn holder_of(&self, name: &str, kubeconfig: &Path) -> Result<Who> {
        let file = Kubeconfig::read_from(kubeconfig)
            .with_context(|| format!("cannot read {}", kubeconfig.display()))?;
        let user = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
        let mut config = self.config.clone();
        config.auth_info = user.auth_info;
        Ok(Who::with_client(name, Client::try_from(config)?))
    }
}

/// Somebody who comes without credentials to a server of the nodes' own network. Whose certificate it shows, is not
/// looked at: what is probed is the server's judgement of the client.
pub fn stranger(url: &str) -> Result<Who> {
    let mut config = Config::new(url.parse()?);
    config.accept_invalid_certs = true;
    config.connect_timeout = Some(Duration::from_secs(5));
    config.default_retry = false;
    Ok(Who::with_client("stranger", Client::try_from(config)?))
}

/// Runs `work` on a thread in the network of a process, which is one that the machine itself is not part of.
pub fn in_network_of<T: Send>(pid: i32, work: impl AsyncFnOnce() -> Result<T> + Send) -> Result<T> {
    let path = format!("/proc/{pid}/ns/net");
    let namespace = File::open(&path).with_context(|| format!("cannot open {path}"))?;
    let inside = || {
        // Only this thread moves.
        setns(namespace.as_fd(), CloneFlags::CLONE_NEWNET).with_context(|| format!("cannot enter {path}"))?;
        pitstop_e2e::runtime()?.block_on(work())
    };
    thread::scope(|scope| scope.spawn(inside).join().unwrap())
}
