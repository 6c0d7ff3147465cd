//! The cluster as all probes find it: pitstop installed and in use on two nodes, and everybody who sends probes.

use anyhow::{Context as _, Result, ensure};
use http::Method;
use k8s_openapi::api::core::v1::Pod;
use pitstop_e2e::ns::Ns;
use pitstop_e2e::system::{self, CONTROLLER, DAEMON, NAMESPACE};
use pitstop_e2e::{Cluster, LONG, SHORT, pods, requests, until};
use serde_json::{Value, json};

use crate::ask;
use crate::probe::{Answer, policy};
use crate::who::{ApiServer, Who};

/// Where order books are.
pub const BOOKS: &str = "/apis/pitstop.dev/v1alpha1/nodeworks";
/// The Pod that requests of the stage have worked on, one on each node by the node's name before it.
pub const POD: &str = "web";

/// A node of the cluster.
pub struct Node {
    /// Its name.
    pub name: String,
    /// Its address in the nodes' network.
    pub address: String,
    /// The machine's ID of the first process in it.
    pub pid: i32,
    /// Its kubelet, by the kubelet's own certificate.
    pub kubelet: Who,
    /// The daemon's Pod on it.
    pub daemon: Holder,
}

/// A Pod of pitstop's and its real token.
pub struct Holder {
    /// The Pod.
    pub pod: Pod,
    /// The token as the kubelet has put it into the Pod.
    pub token: String,
    /// Whoever has stolen it.
    pub who: Who,
}

impl Holder {
    /// The Pod's name.
    pub fn name(&self) -> &str {
        self.pod.metadata.name.as_deref().unwrap()
    }

    /// The Pod's UID.
    pub fn uid(&self) -> &str {
        self.pod.metadata.uid.as_deref().unwrap()
    }
}

/// All of it.
pub struct Stage {
    /// The cluster, with the administrator's client.
    pub cluster: Cluster,
    /// The administrator.
    pub admin: Who,
    /// No credentials at all; what tokens are sent with.
    pub nobody: Who,
    /// Both nodes, A and B.
    pub nodes: [Node; 2],
    /// A replica of the controller.
    pub controller: Holder,
    /// The namespace of Pods that belong to somebody else than the user.
    pub others: Ns,
    /// The user's namespace.
    pub own: Ns,
}

impl Stage {
    /// Installs pitstop, has it restart a container on each node, and collects the tokens. Ends only when the daemon's
    /// policy is seen to refuse.
    pub async fn set_up() -> Result<Self> {
        let cluster = Cluster::connect().await?;
        cluster.install().context("cannot install pitstop")?;
        system::healthy(&cluster).await?;
        let server = ApiServer::of_kubeconfig().await?;
        let nobody = server.nobody()?;
        let admin = Who::with_client("administrator", cluster.client.clone());
        let nodes = nodes(&cluster, &server, &nobody).await?;
        let controller = controller(&cluster, &nobody).await?;
        let others = Ns::open(Cluster::connect().await?).await?;
        let own = Ns::open(Cluster::connect().await?).await?;
        let stage = Self { cluster, admin, nobody, nodes, controller, others, own };
        stage.use_it().await?;
        stage.until_guarded().await?;
        Ok(stage)
    }

    /// Removes the namespaces that were made.
    pub async fn clear(&self) -> Result<()> {
        self.others.close().await?;
        self.own.close().await
    }

    /// A request on each node, carried out: the daemons work under the policy, and each node has its order book.
    async fn use_it(&self) -> Result<()> {
        for node in &self.nodes {
            let name = format!("{}-{POD}", node.name);
            self.others.start_pod(on(&node.name, pods::app(&name))).await?;
            self.others.create(requests::recreate(&name, &name, &["app"])).await?;
            let over = self.others.over(&name).await?;
            ensure!(
                requests::states(&over) == [requests::succeeded("app")],
                "the request on {} ended otherwise: {}",
                node.name,
                requests::message(&over)
            );
        }
        for node in &self.nodes {
            until("the orders to be dropped", SHORT, async || {
                let book = self.stored(&format!("{BOOKS}/{}", node.name)).await?;
                let orders = book.pointer("/spec/orders").and_then(Value::as_array).map_or(0, Vec::len);
                Ok((orders == 0).then_some(()))
            })
            .await?;
        }
        Ok(())
    }

    /// The policy acts up to a second after it was made.
    async fn until_guarded(&self) -> Result<()> {
        let [a, b] = &self.nodes;
        until("the policy to refuse a daemon", LONG, async || {
            let path = format!("{BOOKS}/{}", b.name);
            let write = ask::put(&format!("{path}/status?dryRun=All"), &self.stored(&path).await?);
            let answer = a.daemon.who.send(write).await;
            ensure!(policy("").is_met(&answer), "{} {}", answer.code, answer.message());
            Ok(Some(()))
        })
        .await
    }

    /// An object as it is stored.
    pub async fn stored(&self, path: &str) -> Result<Value> {
        self.done(ask::get(path)).await.map(|answer| answer.json())
    }

    /// Does something as the administrator.
    pub async fn done(&self, ask: ask::Ask) -> Result<Answer> {
        let what = format!("{} {}", ask.method(), ask.uri());
        let answer = self.admin.send(ask).await;
        ensure!((200..300).contains(&answer.code), "{what}: {} {}", answer.code, answer.message());
        Ok(answer)
    }

    /// A token that the administrator asks for; `spec` is that of a `TokenRequest`.
    pub async fn token(&self, namespace: &str, account: &str, spec: &Value) -> Result<String> {
        let answer = self.done(token_request(namespace, account, spec)).await?.json();
        let token = answer.pointer("/status/token").and_then(Value::as_str);
        token.map(str::to_owned).context("a TokenRequest without a token")
    }

    /// As [`Self::token`], and who sends it.
    pub async fn daemons_token(&self, name: &str, spec: &Value) -> Result<Who> {
        Ok(self.nobody.with_token(name, &self.token(NAMESPACE, DAEMON, spec).await?))
    }

    /// Node A, from which the attacks come.
    pub fn a(&self) -> &Node {
        &self.nodes[0]
    }

    /// Node B, which is attacked.
    pub fn b(&self) -> &Node {
        &self.nodes[1]
    }
}

/// A request for a token.
pub fn token_request(namespace: &str, account: &str, spec: &Value) -> ask::Ask {
    let path = format!("/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token");
    let object = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    ask::with(&Method::POST, &path, &object)
}

/// The spec of a request for a token that is bound to an object.
pub fn bound_to(kind: &str, name: &str, uid: &str) -> Value {
    json!({"boundObjectRef": {"apiVersion": "v1", "kind": kind, "name": name, "uid": uid}})
}

/// The Pod on that node.
pub fn on(node: &str, mut pod: Value) -> Value {
    pod["spec"]["nodeName"] = json!(node);
    pod
}

async fn nodes(cluster: &Cluster, server: &ApiServer, nobody: &Who) -> Result<[Node; 2]> {
    let statuses: Vec<Value> = cluster.status("/nodes")?;
    let daemons = system::pods_of(cluster, DAEMON).await?;
    let mut nodes = Vec::new();
    for (node, letter) in statuses.iter().zip(["A", "B"]) {
        let name = node["name"].as_str().context("a node without a name")?;
        let on_it = |pod: &&Pod| pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(name);
        let pod = daemons.iter().find(on_it).with_context(|| format!("no daemon on {name}"))?;
        let kubeconfig = cluster.config(name, "kubelet.kubeconfig");
        nodes.push(Node {
            name: name.to_owned(),
            address: node["address"].as_str().context("a node without an address")?.to_owned(),
            pid: i32::try_from(node["pid"].as_i64().context("a node without a process")?)?,
            kubelet: server.holder_of(&format!("kubelet {letter}"), &kubeconfig).await?,
            daemon: holder(cluster, nobody, &format!("daemon {letter}"), pod.clone())?,
        });
    }
    nodes
        .try_into()
        .ok()
        .context("the attacks need a cluster of two nodes: `cargo xtask cluster up --nodes 2`")
}

async fn controller(cluster: &Cluster, nobody: &Who) -> Result<Holder> {
    let pod = system::pods_of(cluster, CONTROLLER).await?.pop().context("no controller")?;
    holder(cluster, nobody, "controller", pod)
}

/// Takes the token of a Pod from its node.
fn holder(cluster: &Cluster, nobody: &Who, name: &str, pod: Pod) -> Result<Holder> {
    /// What `deploy/` calls the volume in both programs' Pods.
    const VOLUME: &str = "token";
    let uid = pod.metadata.uid.as_deref().context("a Pod without a UID")?;
    let node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()).context("a Pod without a node")?;
    let path = format!("/var/lib/kubelet/pods/{uid}/volumes/kubernetes.io~projected/{VOLUME}/token");
    let token = cluster.exec(node, &["cat", &path])?.trim().to_owned();
    Ok(Holder { who: nobody.with_token(name, &token), pod, token })
}
