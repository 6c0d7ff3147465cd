//! The kinds: one line each. Lists, watches, writes, metrics and reviews follow from it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource as _;
use kube::core::object::HasStatus as _;
use pitstop_api::logic::watch::Watch;

use crate::key::KindId;
use crate::kind::{About, Head, Kind};
use crate::outcome::Outcome;
use crate::review::Review;

/// Passes the list to another macro: the field that keeps the objects, the name in enums, the type.
///
/// In planning order: a restart waits for what a resize has begun.
macro_rules! kinds {
    ($use:ident) => {
        $use! {
            resizes, Resize, $crate::resize::Resize;
            recreates, Recreate, $crate::recreate::Request;
            images, Image, $crate::image::ImageUpdate;
            rollouts, Rollout, $crate::rollout::Rollout;
            #[cfg(test)] probes, Probe, $crate::probe::Probe;
        }
    };
}
pub(crate) use kinds;

/// A kind that is on the list.
pub trait Registered: Kind {
    /// Wraps an event of its watch.
    fn watched(watch: Watch<Self>) -> Watched;
    /// Wraps the outcome of a write.
    fn written(outcome: Outcome<Self>) -> Written;
    /// Wraps a status.
    fn wrap(status: Self::Status) -> Status;
}

/// Code to run for every kind.
pub trait ForEach {
    /// Runs for one kind.
    fn kind<K: Registered>(&mut self);
}

macro_rules! define {
    ($($(#[$attr:meta])* $field:ident, $name:ident, $kind:ty;)*) => {
        /// An event of the watch of one kind.
        #[derive(Clone, Debug)]
        pub enum Watched {
            $($(#[$attr])* #[doc = concat!("Of [`", stringify!($kind), "`].")] $name(Watch<$kind>),)*
        }

        /// How a write of an object ended.
        #[derive(Clone, Debug)]
        pub enum Written {
            $($(#[$attr])* #[doc = concat!("Of [`", stringify!($kind), "`].")] $name(Outcome<$kind>),)*
        }

        /// A status to write.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Status {
            $($(#[$attr])* #[doc = concat!("Of [`", stringify!($kind), "`].")] $name(Box<<$kind as Head>::Status>),)*
        }

        impl Status {
            /// JSON of an API object that has only this status.
            pub fn object(self, metadata: ObjectMeta) -> serde_json::Result<Vec<u8>> {
                match self {
                    $($(#[$attr])* Self::$name(status) => {
                        let mut object = <$kind as Kind>::Object::default();
                        *object.meta_mut() = metadata;
                        *object.status_mut() = Some(*status);
                        serde_json::to_vec(&object)
                    })*
                }
            }
        }

        $($(#[$attr])* impl Registered for $kind {
            fn watched(watch: Watch<Self>) -> Watched {
                Watched::$name(watch)
            }
            fn written(outcome: Outcome<Self>) -> Written {
                Written::$name(outcome)
            }
            fn wrap(status: Self::Status) -> Status {
                Status::$name(Box::new(status))
            }
        })*

        /// The constant facts of each kind.
        pub fn all() -> impl Iterator<Item = &'static About> {
            [$($(#[$attr])* const { &<$kind as Kind>::ABOUT },)*].into_iter()
        }

        /// Runs `visitor` for every kind.
        pub fn for_each(visitor: &mut impl ForEach) {
            $($(#[$attr])* visitor.kind::<$kind>();)*
        }
    };
}
kinds!(define);

/// How the webhook reviews the objects of this resource.
pub fn review(group: &str, plural: &str) -> Option<&'static Review> {
    all().find(|about| about.group() == group && about.plural == plural)?.review.as_ref()
}

/// The constant facts of this kind.
pub fn about(kind: KindId) -> Option<&'static About> {
    all().find(|about| about.id == kind)
}
