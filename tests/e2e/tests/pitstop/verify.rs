//! What cgroups hold, reported by the daemon for orders that the test places.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::Api;
use kube::api::PostParams;
use pitstop_api::logic::cgroup::{self, Kind, Overhead, Part};
use pitstop_api::nodework::{
    Answer, AnswerReason, AnswerState, CgroupReading, NodeWork, NodeWorkSpec, Order, OrderContainer,
    OrderPod, Verify,
};
use pitstop_api::quantity::{Resource, Resources};
use pitstop_e2e::ns::NODE;
use pitstop_e2e::system;
use pitstop_e2e::{Cluster, Context, LONG, Ns, Result, SHORT, on_cluster, pods, until};
use serde_json::{Value, json};

/// An order about a container; `attempt` distinguishes its ID.
fn order(pod: &Pod, container: &str, attempt: u32) -> Result<Order> {
    let id = pods::id(pod, container)?;
    let meta = pod.metadata.clone();
    Ok(Order {
        id: format!("by-hand/{container}/{attempt}"),
        pod: OrderPod {
            namespace: meta.namespace.context("no namespace")?,
            name: meta.name.context("no name")?,
            uid: meta.uid.context("no UID")?,
        },
        container: OrderContainer {
            name: container.to_owned(),
            id: id.rsplit('/').next().context("no ID")?.to_owned(),
        },
        action: Verify::default().into(),
        ..Order::default()
    })
}

/// Places an order, and returns the daemon's final answer.
async fn answered(cluster: &Cluster, order: Order) -> Result<Answer> {
    let books: Api<NodeWork> = Api::all(cluster.client.clone());
    let id = order.id.clone();
    let spec = NodeWorkSpec { orders: vec![order], ..NodeWorkSpec::default() };
    match books.get_opt(NODE).await? {
        Some(book) => {
            let next = NodeWork { spec, ..book };
            books.replace(NODE, &PostParams::default(), &next).await?;
        }
        None => drop(books.create(&PostParams::default(), &NodeWork::new(NODE, spec)).await?),
    }
    until("an answer", SHORT, async || {
        let status = books.get(NODE).await?.status.unwrap_or_default();
        let answer = status.answers.into_iter().find(|a| a.order_id == id);
        Ok(answer.filter(|a| a.state != AnswerState::Acknowledged))
    })
    .await
}

/// Requests and limits of a container of the Pod.
fn resources(pod: &Pod, container: &str) -> Result<Resources> {
    let given = pods::container(pod, container)?.resources.clone().unwrap_or_default();
    let of = |list: &Option<BTreeMap<String, Quantity>>, resource: Resource| {
        resource.parse(&list.as_ref()?.get(resource.as_str())?.0)
    };
    Ok(Resources {
        cpu_request: of(&given.requests, Resource::Cpu),
        cpu_limit: of(&given.limits, Resource::Cpu),
        memory_request: of(&given.requests, Resource::Memory),
        memory_limit: of(&given.limits, Resource::Memory),
    })
}

/// Differences between the cgroups and the Pod's spec.
fn differences(pod: &Pod, container: &str, observed: &CgroupReading) -> Result<Vec<String>> {
    let part = |name| Ok(Part { kind: Kind::Main, resources: resources(pod, name)? });
    let parts = ["app", "sidecar"].map(part).into_iter().collect::<Result<Vec<_>>>()?;
    let own = cgroup::container_differs(&resources(pod, container)?, &observed.container);
    let pods = cgroup::pod_differs(&cgroup::of_pod(&parts, Overhead::default()), &observed.pod);
    Ok(own.into_iter().chain(pods).collect())
}

fn limited(mut container: Value, cpu: (&str, &str), memory: (&str, &str)) -> Value {
    container["resources"] = json!({
        "requests": {"cpu": cpu.0, "memory": memory.0},
        "limits": {"cpu": cpu.1, "memory": memory.1},
    });
    container
}

#[test]
fn the_daemon_tells_what_the_kernel_has_before_and_after_a_resize() -> Result<()> {
    on_cluster(async |ns| {
        let cluster = &ns.cluster;
        // A controller withdraws orders that belong to no request.
        system::without_controllers(cluster, async {
            Box::pin(looks(ns)).await?;
            let books: Api<NodeWork> = Api::all(cluster.client.clone());
            let book = NodeWork { spec: NodeWorkSpec::default(), ..books.get(NODE).await? };
            books.replace(NODE, &PostParams::default(), &book).await?;
            Ok(())
        })
        .await
    })
}

async fn looks(ns: &Ns) -> Result<()> {
    let cluster = &ns.cluster;
    // Limits that are not whole pages or percents, and a request below the minimum.
    let app = limited(pods::idle("app"), ("15m", "155m"), ("30M", "60M"));
    let sidecar = limited(pods::idle("sidecar"), ("1m", "50m"), ("16Mi", "32Mi"));
    let before = ns.start_pod(pods::pod("web", &[app, sidecar])).await?;
    for container in ["app", "sidecar"] {
        let answer = answered(cluster, order(&before, container, 1)?).await?;
        assert_eq!((answer.state, answer.reason), (AnswerState::Done, None), "{answer:?}");
        let observed = answer.observed.context("nothing observed")?;
        assert_eq!(differences(&before, container, &observed)?, [""; 0], "{observed:?}");
        let (own, pods) = (observed.container.memory_usage, observed.pod.memory_usage);
        assert!(own > Some(0) && pods >= own, "{observed:?}");
        assert_eq!((observed.container.oom_kills, observed.pod.oom_kills), (Some(0), Some(0)));
    }

    let more = json!({"spec": {"containers": [
        limited(json!({"name": "app"}), ("200m", "400m"), ("50M", "100M")),
    ]}});
    ns.kubectl(&["patch", "pod", "web", "--subresource=resize", "--patch", &more.to_string()])?;
    let after = ns.pod("web").await?;
    let mut attempt = 1;
    until("the resize to be in the cgroups", LONG, async || {
        attempt += 1;
        let observed = answered(cluster, order(&before, "app", attempt)?).await?.observed;
        let observed = observed.context("nothing observed")?;
        let differences = differences(&after, "app", &observed)?;
        Ok(differences.is_empty().then_some(()))
    })
    .await?;
    pods::assert_untouched(&before, &ns.pod("web").await?, "app")?;

    let mut other = order(&before, "app", 0)?;
    other.pod.uid = "5f0c".to_owned();
    let answer = answered(cluster, other).await?;
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::WrongContainer)));
    assert_eq!(answer.observed, None);
    let mut gone = order(&before, "app", 0)?;
    gone.id = "by-hand/gone/1".to_owned();
    gone.container.id = "0".repeat(64);
    let answer = answered(cluster, gone).await?;
    assert_eq!((answer.state, answer.reason), (AnswerState::Refused, Some(AnswerReason::NotRunning)));
    Ok(())
}
