//! A puller Pod pulls images for which the registry requires credentials.

use pitstop_api::nodework::PullPolicy;

use super::*;
use crate::deed::Puller;
use crate::kind::Owner;
use crate::pod::{Explanation, Made};

/// The Pod as the watch shows it first.
pub(super) fn pod(puller: &Puller) -> Pod {
    let owner = Owner { kind: "PodImageUpdate".into(), name: "web-0-v2".into(), uid: "u-1".into() };
    let containers = puller.images.iter().map(|image| Container {
        name: image.container.clone(),
        image: image.image.clone(),
        ..Container::default()
    });
    Pod {
        key: puller.key.clone(),
        uid: "puller-1".into(),
        node: Some(puller.node.clone()),
        made: Some(Box::new(Made { owner, ..Made::default() })),
        containers: containers.collect(),
        ..Pod::default()
    }
}

fn waiting(reason: &str, message: &str) -> ContainerState {
    ContainerState::Waiting { reason: reason.into(), message: message.into() }
}

/// The state of a container whose command no image has.
const ENDED: ContainerState = ContainerState::Terminated { exit_code: 128 };

/// An update whose image the daemon may not pull, in a cluster where puller Pods can be made.
fn refused(spec: &Value) -> World {
    let mut world = World { no_puller: None, ..World::new(spec) };
    if let Some(list) = spec["containers"].as_array() {
        let names = list.iter().map(|c| container(c["name"].as_str().unwrap())).collect();
        world.pod.as_mut().unwrap().containers = names;
    }
    world.settle();
    world.answer(AnswerState::Failed, Some(AnswerReason::PullUnauthorized), None);
    world
}

fn two() -> Value {
    json!({"containers": [{"name": "app", "image": "registry.example.com/shop/web:v2"},
        {"name": "proxy", "image": "registry.example.com/shop/web:v3"}]})
}

impl World {
    /// The kubelet reports a container of the puller Pod.
    fn kubelet(&mut self, name: &str, state: ContainerState, image_id: &str) {
        let pod = self.puller.as_mut().unwrap();
        let container = pod.containers.iter_mut().find(|c| c.name == name).unwrap();
        container.status =
            Some(ContainerStatus { state, image_id: image_id.into(), ..ContainerStatus::default() });
        self.settle();
    }

    fn deletes(&self) -> usize {
        self.deeds.iter().filter(|deed| matches!(deed, Deed::DeletePod { .. })).count()
    }

    fn makes(&self) -> usize {
        self.deeds.iter().filter(|deed| matches!(deed, Deed::Pull(_))).count()
    }

    pub(super) fn order_ids(&self) -> Vec<&str> {
        self.orders.iter().map(|order| order.id.as_str()).collect()
    }
}

#[test]
fn the_kubelet_pulls_and_the_daemon_proves_it() {
    let mut world = refused(&json!({"pullTimeoutSeconds": 120}));
    let [Deed::Pull(made)] = &world.deeds[..] else { panic!("{:?}", world.deeds) };
    assert_eq!((made.key.namespace.as_str(), made.key.name.as_str()), ("shop", "pitstop-pull-u-1"));
    assert_eq!((made.lender_uid.as_str(), made.node.as_str(), made.limit), ("pod-1", "node1", 120));
    assert_eq!(made.images[0].image, "registry.example.com/shop/web:v2");
    assert_eq!((world.phase(), world.reason()), (Phase::Pulling, "WaitingForPullerPod"));
    assert_eq!(world.order_ids(), ["u-1/app/1"]);
    world.kubelet("app", waiting("ContainerCreating", ""), "");
    assert_eq!(world.order_ids(), ["u-1/app/1"]);
    world.kubelet("app", ENDED, "registry.example.com/shop/web@sha256:22");
    assert_eq!(world.order_ids(), ["u-1/app/2"]);
    let pull = world.orders[0].action.pull.clone().unwrap();
    assert_eq!(
        (pull.image.as_str(), pull.policy),
        ("registry.example.com/shop/web:v2", Some(PullPolicy::Never))
    );
    assert_eq!((world.reason(), world.deletes()), ("WaitingForDaemon", 0), "the Pod keeps the image");
    assert_eq!(world.image(), "registry.example.com/shop/web:v1", "nothing is stopped before");
    world.pulled();
    assert_eq!((world.puller.as_ref(), world.makes(), world.deletes()), (None, 1, 1));
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v2@{NEW}"));
    // The order stays, to report what runs.
    assert_eq!(world.order_ids(), ["u-1/app/2"]);
    world.starts(true);
    world.runs("config-2");
    world.pass(30);
    assert_eq!((world.phase(), world.reason(), world.orders.len()), (Phase::Succeeded, "Updated", 0));
}

#[test]
fn one_pod_pulls_for_all_containers_that_need_it() {
    let mut world = refused(&two());
    assert_eq!((world.makes(), world.puller.as_ref().unwrap().containers.len()), (1, 2));
    world.kubelet("app", ENDED, "x");
    world.kubelet("proxy", waiting("CreateContainerConfigError", "no user"), "");
    assert_eq!(world.order_ids(), ["u-1/app/2", "u-1/proxy/2"]);
    world.pulled();
    assert_eq!((world.phase(), world.deletes()), (Phase::Updating, 1));
}

/// An update of a Pod with `imagePullSecrets`, whose image does not exist by the registry's answer to the daemon.
fn hidden(spec: &Value, no_puller: Option<&str>) -> World {
    let mut world = World { no_puller: no_puller.map(str::to_owned), ..World::new(spec) };
    world.pod.as_mut().unwrap().pull_secrets = true;
    world.settle();
    world.answer(AnswerState::Failed, Some(AnswerReason::PullFailed), None);
    world
}

/// Registries say that a private image does not exist.
#[test]
fn what_the_registry_hides_from_the_daemon_is_pulled_for_a_pod_with_secrets() {
    let mut world = hidden(&json!({}), None);
    assert_eq!((world.reason(), world.makes()), ("WaitingForPullerPod", 1));
    world.kubelet("app", ENDED, "x");
    assert_eq!(world.order_ids(), ["u-1/app/2"]);
    world.pulled();
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v2@{NEW}"));
    // The kubelet does not find it either.
    let mut world = hidden(&json!({}), None);
    world.kubelet("app", waiting("ErrImagePull", "r/web:v2: not found"), "");
    assert_eq!((world.phase(), world.reason(), world.deletes()), (Phase::Failed, "PullFailed", 1));
    assert_eq!(world.pod.as_ref().unwrap().containers, web().containers);
    // No puller Pod can be made: the daemon's answer stands.
    let world = hidden(&json!({}), Some("there is no right to"));
    assert_eq!((world.phase(), world.reason(), world.makes()), (Phase::Failed, "PullFailed", 3));
    let text = &world.update.status.message;
    assert!(text.contains("the daemon's words") && text.contains("no right to"), "{text}");
    assert_eq!(hidden(&json!({"pull": "IfPossible"}), Some("no")).phase(), Phase::Updating);
}

#[test]
fn without_secrets_what_is_not_there_is_believed_at_once() {
    let mut world = World { no_puller: None, ..World::new(&json!({})) };
    world.settle();
    world.answer(AnswerState::Failed, Some(AnswerReason::PullFailed), None);
    assert_eq!((world.phase(), world.reason(), world.makes()), (Phase::Failed, "PullFailed", 0));
}

/// Most Pods have secrets from their service account, and most images are public or on the node.
#[test]
fn a_pod_with_secrets_needs_no_puller_pod_for_what_the_daemon_has() {
    let mut world = World { no_puller: None, ..World::new(&json!({})) };
    world.pod.as_mut().unwrap().pull_secrets = true;
    world.settle();
    assert_eq!((world.reason(), world.order_ids()), ("Pulling", vec!["u-1/app/1"]));
    world.pulled();
    assert_eq!((world.phase(), world.makes()), (Phase::Updating, 0));
}

/// It would lack the container whose pull is under way.
#[test]
fn a_puller_pod_waits_for_the_daemons_word_on_every_container() {
    let mut world = refused(&two());
    let mut world = World {
        deeds: Vec::new(),
        puller: None,
        memory: Memory::new(world.now),
        answers: std::mem::take(&mut world.answers),
        ..world
    };
    world.answers[1].state = AnswerState::Acknowledged;
    world.answers[1].reason = Some(AnswerReason::Pulling);
    world.settle();
    assert_eq!((world.reason(), world.makes()), ("Pulling", 0));
}

#[test]
fn what_the_kubelet_cannot_pull_ends_the_request_without_the_pod() {
    let denied = "rpc error: code = Unknown desc = failed to pull: https://me:pass@r.example.com/v2/: 401 Unauthorized";
    let gone = "Back-off pulling image \"x\": ErrImagePull: rpc error: r/web:v9: not found";
    for (reason, message, expected, part) in [
        ("ErrImagePull", denied, "PullFailed", "401 Unauthorized"),
        ("ImagePullBackOff", gone, "PullFailed", "not found"),
        ("ErrImagePull", "write /x: no space left on device", "NoDiskRoom", "no space left"),
        ("InvalidImageName", "couldn't parse image name", "PullFailed", "couldn't parse image name"),
    ] {
        let mut world = refused(&json!({}));
        world.kubelet("app", waiting(reason, message), "");
        assert_eq!((world.phase(), world.reason()), (Phase::Failed, expected), "{message}");
        let text = &world.update.status.message;
        assert!(text.contains(part) && text.contains(reason) && !text.contains("pass"), "{text}");
        assert!(text.contains("the daemon's words"), "{text}");
        assert_eq!((world.puller.as_ref(), world.makes(), world.deletes()), (None, 1, 1));
        assert_eq!(world.pod, Some(web()));
        assert_eq!(world.condition(conditions::PULLED).status, ConditionStatus::False);
    }
}

#[test]
fn what_may_be_pulled_later_is_waited_for_and_told() {
    let mut world = refused(&json!({"pullTimeoutSeconds": 60}));
    world.kubelet("app", waiting("ErrImagePull", "dial tcp: connection refused"), "");
    assert_eq!((world.phase(), world.reason()), (Phase::Pulling, "WaitingForPullerPod"));
    assert!(world.condition(conditions::COMPLETE).message.contains("connection refused"));
    world.pass(59);
    assert_eq!(world.phase(), Phase::Pulling);
    assert_eq!(world.wake_at, Some(Mono(world.now.0 + 1_000)));
    world.pass(1);
    assert_eq!((world.phase(), world.reason(), world.deletes()), (Phase::Failed, "PullFailed", 1));
    let text = &world.update.status.message;
    assert!(text.contains("not pulled within 60 s") && text.contains("connection refused"), "{text}");
}

#[test]
fn a_pod_that_the_kubelet_does_not_run_proves_nothing() {
    for (reason, expected) in [("OutOfcpu", "CannotProvePull"), ("DeadlineExceeded", "PullFailed")] {
        let mut world = refused(&json!({}));
        let pod = world.puller.as_mut().unwrap();
        pod.finished = true;
        let ended = Explanation { reason: reason.into(), message: "no room for 1m".into() };
        pod.made.as_mut().unwrap().ended = ended;
        world.settle();
        assert_eq!((world.phase(), world.reason(), world.deletes()), (Phase::Failed, expected, 1));
        let reported = world.update.status.message.contains("OutOfcpu: no room for 1m");
        assert_eq!(reported, reason == "OutOfcpu");
    }
}

#[test]
fn what_keeps_it_from_being_made_is_told_and_nothing_is_stopped() {
    let mut world = World { no_puller: Some("exceeded quota: q".into()), ..World::new(&json!({})) };
    world.settle();
    world.answer(AnswerState::Failed, Some(AnswerReason::PullUnauthorized), None);
    assert_eq!((world.phase(), world.reason(), world.makes()), (Phase::Failed, "CannotProvePull", 3));
    let text = &world.update.status.message;
    assert!(text.contains("the daemon's words") && text.contains("exceeded quota: q"), "{text}");
    assert_eq!(world.pod, Some(web()));
}

#[test]
fn where_the_pull_may_be_the_kubelets_a_puller_pod_is_tried_once() {
    let mut world = refused(&json!({"pull": "IfPossible", "suspend": true}));
    world.kubelet("app", waiting("ErrImagePull", "401 Unauthorized"), "");
    assert_eq!((world.phase(), world.reason()), (Phase::Pulled, "Suspended"));
    assert_eq!((world.puller.as_ref(), world.makes(), world.deletes()), (None, 1, 1));
    world.pass(1_000);
    assert_eq!(world.makes(), 1);
    world.update.spec.suspend = false;
    world.settle();
    assert_eq!(world.phase(), Phase::Updating);
    assert_eq!(world.condition(conditions::PULLED).status, ConditionStatus::Unknown);
    world.starts(true);
    assert_eq!(world.order_ids(), ["u-1/app/2"]);
    let asked = &world.orders[0].action.pull.as_ref().unwrap().image;
    assert_eq!(asked, "registry.example.com/shop/web:v2");
    // If a puller Pod pulls, the digest is known.
    let mut world = refused(&json!({"pull": "IfPossible"}));
    world.kubelet("app", ENDED, "x");
    world.pulled();
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v2@{NEW}"));
}

#[test]
fn every_end_deletes_it_first() {
    type End = fn(&mut World);
    let ends: [(End, &str); 4] = [
        (|world| world.update.spec.cancel = true, "Cancelled"),
        (|world| world.now = Mono(world.now.0 + 4_000_000), "DeadlineExceeded"),
        (|world| world.pod = None, "PodGone"),
        (|world| world.pod.as_mut().unwrap().containers[0].image = "other:v1".into(), "Superseded"),
    ];
    for (end, expected) in ends {
        let mut world = refused(&json!({"pullTimeoutSeconds": 86_400}));
        assert!(world.puller.is_some());
        end(&mut world);
        // A deed stays planned until its effect is seen.
        let plan = world.plan();
        assert!(matches!(plan.deed, Some(Deed::DeletePod { .. })) || plan.read.is_some(), "{plan:?}");
        assert!(!world.update.completed());
        world.settle();
        assert_eq!((world.reason(), world.puller.as_ref(), world.deletes()), (expected, None, 1));
    }
}

#[test]
fn one_that_the_watch_does_not_show_yet_is_waited_for_before_the_end() {
    let mut world = refused(&json!({}));
    let pod = world.puller.take();
    // As if the API server had been faster than the watch.
    world.memory.puller.shown = None;
    world.memory.puller.awaited_since = Some(world.now);
    world.update.spec.cancel = true;
    world.settle();
    assert!(!world.update.completed());
    world.puller = pod;
    world.settle();
    assert_eq!((world.reason(), world.deletes()), ("Cancelled", 1));
    // The watch never shows it.
    let mut world = refused(&json!({}));
    world.puller = None;
    world.memory.puller.awaited_since = Some(world.now);
    world.update.spec.cancel = true;
    world.pass(9);
    assert!(!world.update.completed());
    world.pass(1);
    assert_eq!(world.reason(), "Cancelled");
}

#[test]
fn an_api_server_that_fails_is_asked_again_and_told_of() {
    let mut world = refused(&json!({}));
    let made = world.deeds[0].clone();
    world.puller = None;
    world.memory = Memory { puller: super::super::puller::Memory::default(), ..world.memory };
    world.memory.deed_done(world.now, &made, Done::Retry("etcd is away".into()));
    world.settle();
    assert_eq!((world.reason(), world.makes()), ("WaitingForPullerPod", 1));
    assert!(world.condition(conditions::COMPLETE).message.contains("etcd is away"));
    assert_eq!(world.wake_at, Some(Mono(world.now.0 + 10_000)));
    world.pass(10);
    assert_eq!((world.makes(), world.puller.is_some()), (2, true));
}

#[test]
fn one_that_cannot_be_deleted_keeps_no_request_open() {
    let mut world = refused(&json!({}));
    world.memory.puller.undeletable = 3;
    world.update.spec.cancel = true;
    world.settle();
    assert_eq!((world.reason(), world.deletes()), ("Cancelled", 0));
}

#[test]
fn what_is_left_of_one_that_is_over_is_deleted() {
    let mut world = refused(&json!({}));
    let pod = world.puller.clone();
    world.update.spec.cancel = true;
    world.settle();
    // A creation by a former leader arrives late.
    world.puller = pod.map(|pod| Pod { uid: "puller-2".into(), ..pod });
    world.settle();
    assert_eq!((world.puller.as_ref(), world.deletes()), (None, 2));
}

#[test]
fn a_pod_of_its_name_that_is_not_its_own_is_left_alone() {
    let mut world = refused(&json!({}));
    world.puller.as_mut().unwrap().made = None;
    world.settle();
    assert_eq!((world.reason(), world.deletes()), ("CannotProvePull", 0));
    assert!(world.update.status.message.contains("another owner"), "{}", world.update.status.message);
    // The same for a Pod of another request.
    let mut world = refused(&json!({}));
    world.puller.as_mut().unwrap().made.as_mut().unwrap().owner.uid = "u-2".into();
    world.settle();
    assert_eq!((world.reason(), world.deletes()), ("CannotProvePull", 0));
}

#[test]
fn what_admission_makes_of_it_is_told() {
    let mut world = refused(&json!({}));
    world.puller.as_mut().unwrap().containers[0].image = "mirror.example.com/shop/web:v2".into();
    world.settle();
    assert_eq!((world.reason(), world.deletes()), ("CannotProvePull", 1));
    let text = &world.update.status.message;
    assert!(text.contains("to mirror.example.com/shop/web:v2"), "{text}");
}

impl World {
    /// The puller Pod mounts this image, and its container has the image that runs.
    fn mounts(&mut self, image: &str) {
        let pod = self.puller.as_mut().unwrap();
        pod.containers[0].image = "registry.example.com/shop/web:v1".into();
        pod.made.as_mut().unwrap().volumes = [("app".to_owned(), image.to_owned())].into();
        self.settle();
    }
}

#[test]
fn an_image_that_is_mounted_is_pulled_when_the_container_is_made() {
    let mut world = refused(&json!({}));
    world.mounts("registry.example.com/shop/web:v2");
    assert_eq!((world.reason(), world.deletes()), ("WaitingForPullerPod", 0));
    world.kubelet("app", waiting("ContainerCreating", ""), "");
    assert_eq!(world.order_ids(), ["u-1/app/1"]);
    world.kubelet("app", ENDED, "registry.example.com/shop/web@sha256:11");
    assert_eq!(world.order_ids(), ["u-1/app/2"]);
    world.pulled();
    assert_eq!(world.image(), format!("registry.example.com/shop/web:v2@{NEW}"));
}

#[test]
fn what_admission_makes_of_a_volume_is_told() {
    let mut world = refused(&json!({}));
    world.mounts("mirror.example.com/shop/web:v2");
    assert_eq!((world.reason(), world.deletes()), ("CannotProvePull", 1));
    let text = &world.update.status.message;
    assert!(text.contains("to mirror.example.com/shop/web:v2"), "{text}");
}

#[test]
fn one_that_somebody_deletes_is_made_anew_and_not_for_ever() {
    let mut world = refused(&json!({}));
    for made in 1..3 {
        assert_eq!(world.makes(), made);
        world.puller = None;
        world.settle();
    }
    world.puller = None;
    world.settle();
    assert_eq!((world.reason(), world.makes()), ("CannotProvePull", 3));
    assert!(world.update.status.message.contains("deleted the puller Pod 3 times"));
}

#[test]
fn one_that_is_going_is_waited_for() {
    let mut world = refused(&json!({}));
    world.puller.as_mut().unwrap().deleting = true;
    world.settle();
    assert_eq!((world.makes(), world.deletes(), world.reason()), (1, 0, "WaitingForPullerPod"));
}

#[test]
fn an_image_that_the_node_loses_is_pulled_anew() {
    let mut world = refused(&json!({"suspend": true}));
    world.kubelet("app", ENDED, "x");
    world.pulled();
    assert_eq!((world.reason(), world.puller.as_ref()), ("Suspended", None));
    world.answer(AnswerState::Failed, Some(AnswerReason::ImageNeverPull), None);
    assert_eq!((world.reason(), world.makes()), ("WaitingForPullerPod", 2));
    world.puller.as_mut().unwrap().uid = "puller-2".into();
    world.kubelet("app", ENDED, "x");
    assert_eq!(world.order_ids(), ["u-1/app/3"]);
    world.pulled();
    assert_eq!((world.reason(), world.puller.as_ref()), ("Suspended", None));
}

#[test]
fn what_the_kubelet_says_and_the_daemon_does_not_find_is_no_proof() {
    let mut world = refused(&json!({}));
    world.kubelet("app", ENDED, "x");
    world.answer(AnswerState::Failed, Some(AnswerReason::ImageNeverPull), None);
    assert_eq!((world.phase(), world.reason(), world.makes()), (Phase::Failed, "PullFailed", 1));
    assert_eq!((world.pod.clone(), world.puller), (Some(web()), None));
}
