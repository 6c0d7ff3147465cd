//! Looks at images and pulls of the daemon, as in `daemon/src/image.rs`.

use pitstop_api::id::ContainerId;
use pitstop_daemon_core::{Action, Event, Image, Look, NamedContainer, NewestContainer, PullFailure};

use super::{DaemonProcess, Machine, call_failure, facts, status};
use crate::node::image;
use crate::node::keys;
use crate::node::runtime::{self, Answer, Call, Code, ContainerInfo, Runtime, State};
use crate::world::effect::{Asked, Effect, Purpose};

/// What a look reads beside the container that its order names.
#[derive(Clone, Debug, Default)]
pub(super) struct Wanted {
    pod: String,
    container: String,
    image: String,
    room: bool,
}

impl DaemonProcess {
    pub(super) fn image_action(&mut self, action: Action, machine: &mut Machine<'_>) -> Option<Effect> {
        match action {
            Action::LookAtImage { order_id, container_id, pod_uid, container, image, room } => {
                let wanted = Wanted { pod: pod_uid, container, image, room };
                self.image_looks.insert(order_id.clone(), wanted);
                Some(status(order_id, container_id, Purpose::Image))
            }
            // The answer is for the image, not for one order.
            Action::Pull { image, limit, .. } => Some(Effect::Call(Asked {
                order_id: image.clone(),
                container_id: String::new(),
                purpose: Purpose::Pull,
                call: Call::PullImage { image },
                limit: u64::try_from(limit.as_millis()).unwrap_or(u64::MAX),
            })),
            Action::CancelPull { image } => {
                let of = |asked: &Asked| asked.purpose == Purpose::Pull && asked.order_id == image;
                let calls = self.calls.iter().filter(|(_, (asked, ..))| of(asked)).map(|(id, _)| *id);
                for id in calls.collect::<Vec<_>>() {
                    machine.runtime.cancel(id);
                    self.calls.remove(&id);
                }
                None
            }
            _ => None,
        }
    }

    /// The runtime answered about the container that the order names. The rest comes from the runtime's present state.
    pub(super) fn image_seen(
        &mut self,
        now: u64,
        order_id: String,
        container_id: &str,
        reply: &runtime::Reply,
        machine: &Machine<'_>,
    ) -> Event {
        let wanted = self.image_looks.remove(&order_id).unwrap_or_default();
        let runtime = &*machine.runtime;
        let named = match reply {
            Ok(Answer::Container(info)) if info.id == container_id => Some(named(info, runtime)),
            Err(failure) if failure.code != Code::NotFound => {
                return Event::ImageSeen(order_id, Err(call_failure(failure)));
            }
            _ => None,
        };
        let newest = newest_of(runtime, &wanted);
        let heir = newest.filter(|_| named.is_none()).map(|info| self::named(info, runtime));
        let look = Look {
            named,
            heir,
            image: runtime.image(&wanted.image).map(to_image),
            newest: newest.and_then(|info| to_newest(info, runtime)),
            free: wanted.room.then(|| runtime.free_bytes(now)),
        };
        Event::ImageSeen(order_id, Ok(Box::new(look)))
    }
}

fn to_image(image: &image::Image) -> Image {
    Image { id: image.id.clone(), digests: image.digests.iter().cloned().collect(), bytes: 1 << 20 }
}

/// Every second container reports the image name in its Pod, as runtimes do from CRI 1.29 on.
fn named(info: &ContainerInfo, runtime: &Runtime) -> NamedContainer {
    let new = info.id.as_bytes().last().is_some_and(|byte| byte % 2 == 0);
    let asked = if new { info.image.clone() } else { String::new() };
    let known = runtime.image(&info.image_id);
    let names = known.into_iter().flat_map(|image| image.tags.iter().chain(&image.digests));
    let references = names.cloned().chain([info.image_ref.clone()]).collect();
    NamedContainer { facts: facts(info), asked, references }
}

fn newest_of<'a>(runtime: &'a Runtime, wanted: &Wanted) -> Option<&'a ContainerInfo> {
    let label = |info: &ContainerInfo, key: &str| info.labels.get(key).cloned().unwrap_or_default();
    let of_name = runtime.containers().values().map(|c| &c.info).filter(|info| {
        label(info, keys::POD_UID) == wanted.pod && label(info, keys::CONTAINER_NAME) == wanted.container
    });
    of_name.max_by_key(|info| (info.attempt, info.created_at))
}

fn to_newest(info: &ContainerInfo, runtime: &Runtime) -> Option<NewestContainer> {
    let image = runtime.image(&info.image_id).map(to_image);
    Some(NewestContainer {
        id: ContainerId::parse(&info.id).ok()?,
        runs: info.state == State::Running,
        started: info.state != State::Created,
        image_id: info.image_id.clone(),
        digests: image.map(|image| image.digests).unwrap_or_default(),
    })
}

/// Result of a pull.
pub(super) fn pulled(reply: &runtime::Reply) -> Result<(), PullFailure> {
    match reply {
        Ok(_) => Ok(()),
        Err(failure) => {
            Err(PullFailure { missing: failure.code == Code::NotFound, message: failure.message.clone() })
        }
    }
}
