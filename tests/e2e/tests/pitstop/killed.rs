//! A program is killed while updates are at every step. Each update continues, and its container is replaced once, or
//! rolled back once.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::pin::pin;

use futures::future::{Either, select};
use futures::{TryStreamExt as _, future};
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt as _;
use kube::api::{ListParams, WatchEvent, WatchParams};
use pitstop_api::condition::{self, ConditionStatus};
use pitstop_api::image_update::{Phase, PodImageUpdate, conditions};
use pitstop_api::nodework::{Answer, AnswerReason};
use pitstop_e2e::images::{self, REPOSITORY, server};
use pitstop_e2e::registry::{Failing, Faults};
use pitstop_e2e::system::{self, CONTROLLER};
use pitstop_e2e::{Context, LONG, Ns, Result, SHORT, bail, ensure, on_cluster, pods, until};
use serde_json::{Value, json};

/// Step of an update when the program is killed; each has its own Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// Just accepted; the daemon has reported nothing about it yet.
    Accepted,
    /// The registry is slow.
    Pulling,
    /// The node has the image, and the update is suspended.
    Pulled,
    /// The node has the image, and the Pod is out of service.
    Draining,
    /// The Pod has the new image, and the old container ends slowly.
    Updating,
    /// The new container is ready.
    Observing,
    /// The Pod has the old image again, and the new container ends slowly.
    RollingBack,
}

impl Step {
    const ALL: [Self; 7] = [
        Self::Accepted,
        Self::Pulling,
        Self::Pulled,
        Self::Draining,
        Self::Updating,
        Self::Observing,
        Self::RollingBack,
    ];

    /// Name of Pod and update.
    fn name(self) -> &'static str {
        match self {
            Self::Accepted => "accepted",
            Self::Pulling => "pulling",
            Self::Pulled => "pulled",
            Self::Draining => "draining",
            Self::Updating => "updating",
            Self::Observing => "observing",
            Self::RollingBack => "rolling-back",
        }
    }

    /// The Pod. Its image version `SLOW` takes ten seconds to end.
    fn pod(self) -> Value {
        let mut app = server("app", 8080);
        let slow = match self {
            Self::Updating => "1",
            Self::RollingBack => "2",
            _ => "none",
        };
        let mut variable = |name: &str, value: &str| {
            app["env"].as_array_mut().expect("variables").push(json!({"name": name, "value": value}));
        };
        variable("SLOW", slow);
        if [Self::Accepted, Self::Pulling].contains(&self) {
            // Overrides the version of the image.
            variable("VERSION", "good");
        }
        if self == Self::RollingBack {
            app["readinessProbe"]["failureThreshold"] = json!(1);
        }
        let pod = pods::pod(self.name(), &[app, pods::idle("other")]);
        if self == Self::Draining { pods::gated(pod, &["pitstop.dev/ready"]) } else { pod }
    }

    fn update(self) -> Value {
        let (tag, mut fields) = match self {
            // No other test needs a slow pull of these images.
            Self::Accepted => ("crash", json!({"observeSeconds": 0})),
            Self::Pulling => ("unready", json!({"observeSeconds": 0})),
            Self::Pulled => ("2", json!({"observeSeconds": 0, "suspend": true})),
            Self::Draining => ("2", json!({"observeSeconds": 0, "unreadyGracePeriodSeconds": 12})),
            Self::Updating => ("2", json!({"observeSeconds": 0})),
            Self::Observing => ("2", json!({"observeSeconds": 12})),
            Self::RollingBack => ("2", json!({"observeSeconds": 600})),
        };
        fields["podRef"] = json!({"name": self.name()});
        images::update(self.name(), tag, &fields)
    }

    /// Whether the update is at the step, as the API server shows it and its Pod; `old` is the first container's ID.
    fn is_at(self, update: &PodImageUpdate, pod: &Pod, old: &str) -> Result<bool> {
        let status = update.status.clone().unwrap_or_default();
        let phase = match self {
            Self::Accepted | Self::Pulling => Phase::Pulling,
            Self::Pulled => Phase::Pulled,
            Self::Draining => Phase::Draining,
            Self::Updating => Phase::Updating,
            Self::Observing => Phase::Observing,
            Self::RollingBack => Phase::RollingBack,
        };
        let accepted = condition::find(&status.conditions, conditions::ACCEPTED);
        let accepted = accepted.is_some_and(|accepted| accepted.status == ConditionStatus::True);
        let image = images::image(pod, "app")?;
        let (is_new, runs_new) = (image.contains('@'), pods::id(pod, "app")? != old);
        let waits = images::reason(update).unwrap_or_default();
        let reported = match self {
            Self::Accepted | Self::Pulling => waits == "Pulling",
            _ => true,
        };
        let in_pod = match self {
            Self::Updating => is_new && !runs_new,
            Self::Observing => is_new && runs_new,
            Self::RollingBack => !is_new && runs_new,
            _ => !is_new && !runs_new,
        };
        Ok(status.phase == Some(phase) && status.completion_time.is_none() && accepted && reported && in_pod)
    }
}

/// IDs of the containers `app`, in the order in which they were seen, by Pod.
type Instances = RefCell<BTreeMap<String, Vec<String>>>;

/// Records them until the watch ends.
async fn watch(ns: &Ns, instances: &Instances) -> Result<()> {
    let events = ns.pods().watch(&WatchParams::default(), "0").await?;
    let note = async |event| {
        if let WatchEvent::Added(pod) | WatchEvent::Modified(pod) = event
            && let Ok(id) = pods::id(&pod, "app")
        {
            let mut instances = instances.borrow_mut();
            let seen = instances.entry(pod.name_any()).or_default();
            if !seen.contains(&id) {
                seen.push(id);
            }
        }
        Ok(())
    };
    events.try_for_each(note).await?;
    bail!("the watch has ended")
}

/// Waits until the node's daemon pulls for the update.
async fn pulls(ns: &Ns, name: &str) -> Result<()> {
    let uid = images::api(ns).get(name).await?.metadata.uid.context("an update without a UID")?;
    until("the daemon to pull", SHORT, async || {
        let orders = ns.orders_of(&uid).await?;
        let pulls = |answer: &Answer| answer.reason == Some(AnswerReason::Pulling);
        Ok(orders.iter().any(|(_, answer)| answer.as_ref().is_some_and(pulls)).then_some(()))
    })
    .await
}

/// The Pods before their updates, and the registry's fault.
struct Scene {
    before: BTreeMap<&'static str, Pod>,
    slow: Option<Failing>,
}

impl Scene {
    /// Brings every update to its step.
    async fn set(ns: &Ns) -> Result<Self> {
        let started =
            future::try_join_all(Step::ALL.map(async |step| ns.start_pod(step.pod()).await)).await?;
        let before = Step::ALL.iter().map(|step| step.name()).zip(started).collect();
        let mut scene = Self { before, slow: None };
        for step in [Step::RollingBack, Step::Pulled] {
            images::create(ns, step.update()).await?;
        }
        scene.arrives(ns, Step::Pulled).await?;
        until("the new container to be watched", LONG, async || {
            let is_watched = |update: &PodImageUpdate| images::reason(update) == Some("Observing");
            Ok(Some(images::api(ns).get(Step::RollingBack.name()).await?).filter(is_watched))
        })
        .await?;
        // The node has that image and does not pull it again.
        let faults = Faults { delay_milliseconds: 12_000, ..Faults::default() };
        scene.slow = Some(Failing::with(&ns.cluster, &faults)?);
        images::create(ns, Step::Pulling.update()).await?;
        scene.arrives(ns, Step::Pulling).await?;
        pulls(ns, Step::Pulling.name()).await?;
        for step in [Step::Observing, Step::Draining] {
            images::create(ns, step.update()).await?;
        }
        // Makes the new container unready.
        ns.kubectl(&["exec", Step::RollingBack.name(), "-c", "app", "--", "rm", "/tmp/www/index.html"])?;
        for step in [Step::Observing, Step::Draining, Step::RollingBack] {
            scene.arrives(ns, step).await?;
        }
        for step in [Step::Updating, Step::Accepted] {
            images::create(ns, step.update()).await?;
            scene.arrives(ns, step).await?;
        }
        Ok(scene)
    }

    fn old(&self, step: Step) -> Result<String> {
        pods::id(self.before.get(step.name()).context("no such Pod")?, "app")
    }

    async fn arrives(&self, ns: &Ns, step: Step) -> Result<()> {
        let (name, old) = (step.name(), self.old(step)?);
        until(&format!("the update {name}"), LONG, async || {
            let update = images::api(ns).get(name).await?;
            let is_at = step.is_at(&update, &ns.pod(name).await?, &old)?;
            ensure!(
                is_at || update.status.as_ref().is_none_or(|s| s.completion_time.is_none()),
                "{update:?}"
            );
            Ok(is_at.then_some(()))
        })
        .await
    }

    /// Fails unless every update is at its step now.
    async fn all_are_there(&self, ns: &Ns) -> Result<()> {
        let all = ListParams::default();
        let (updates, pods) = (images::api(ns), ns.pods());
        let (updates, pods) = future::try_join(updates.list(&all), pods.list(&all)).await?;
        for step in Step::ALL {
            let is_named = |name: String| name == step.name();
            let update = updates.items.iter().find(|u| is_named(u.name_any())).context("no update")?;
            let pod = pods.items.iter().find(|p| is_named(p.name_any())).context("no Pod")?;
            ensure!(step.is_at(update, pod, &self.old(step)?)?, "not {step:?}: {:?}", update.status);
        }
        Ok(())
    }

    /// Ends the delay and the suspension, and checks how the updates end.
    async fn go_on(mut self, ns: &Ns, instances: &Instances) -> Result<()> {
        self.slow.take();
        ns.kubectl(&["patch", "piu/pulled", "--type=merge", r#"--patch={"spec":{"suspend":false}}"#])?;
        for step in Step::ALL {
            let name = step.name();
            let (update, reason) = images::over(ns, name).await?;
            let status = update.status.context("no status")?;
            let goes_back = step == Step::RollingBack;
            let (phase, expected, new) =
                if goes_back { (Phase::RolledBack, "NotReady", 2) } else { (Phase::Succeeded, "Updated", 1) };
            ensure!(reason == expected && status.phase == Some(phase), "{name}: {status:?}");
            let (before, after) = (&self.before[name], ns.ready(name).await?);
            pods::assert_same_identity(before, &after)?;
            pods::assert_untouched(before, &after, "other")?;
            let restarts = pods::restarts(&after, "app")? - pods::restarts(before, "app")?;
            let seen = instances.borrow().get(name).cloned().unwrap_or_default();
            ensure!(restarts == new, "{name}: {restarts} restarts, {seen:?}");
            ensure!(Ok(seen.len()) == usize::try_from(1 + new), "{name}: {seen:?}");
            ensure!(seen.first() == Some(&self.old(step)?), "{name}: {seen:?}");
            ensure!(seen.last() == Some(&pods::id(&after, "app")?), "{name}: {seen:?}");
            let (image, runs) = (images::image(&after, "app")?, &pods::status(&after, "app")?.image_id);
            let pulled = status.containers[0].pulled.as_ref().context("nothing pulled")?;
            if goes_back {
                ensure!(*runs == pods::status(before, "app")?.image_id, "{name}: {image}, {runs}");
            } else {
                ensure!(image.starts_with(REPOSITORY) && image.ends_with(&pulled.digest), "{name}: {image}");
                ensure!(runs.ends_with(&pulled.digest) || *runs == pulled.image_id, "{name}: {runs}");
            }
        }
        images::no_order_is_left(ns).await
    }
}

fn at_every_step(kill: impl AsyncFnOnce(&Ns) -> Result<()>) -> Result<()> {
    on_cluster(async |ns| {
        images::with_component(ns, async {
            images::opt_in(&ns.cluster, &ns.name)?;
            let instances = Instances::default();
            let body = async {
                let scene = Scene::set(ns).await?;
                scene.all_are_there(ns).await?;
                kill(ns).await?;
                scene.all_are_there(ns).await.context("after the kill")?;
                scene.go_on(ns, &instances).await
            };
            match select(pin!(body), pin!(watch(ns, &instances))).await {
                Either::Left((result, _)) | Either::Right((result, _)) => result,
            }
        })
        .await
    })
}

#[test]
fn the_daemon_at_every_step_of_updates() -> Result<()> {
    at_every_step(async |ns| system::kill_9(&[system::daemon(&ns.cluster).await?]))
}

#[test]
fn both_controllers_at_every_step_of_updates() -> Result<()> {
    at_every_step(async |ns| system::kill_9(&system::pods_of(&ns.cluster, CONTROLLER).await?))
}

#[test]
fn the_runtime_at_every_step_of_updates() -> Result<()> {
    at_every_step(async |ns| ns.cluster.kill("containerd@node1"))
}

#[test]
fn the_kubelet_at_every_step_of_updates() -> Result<()> {
    at_every_step(async |ns| ns.cluster.kill("kubelet@node1"))
}
