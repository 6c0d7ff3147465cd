//! The objects of every kind.

use chrono::{DateTime, Utc};

use super::Engine;
use super::any::AnyStore;
use super::store::Store;
use crate::action::Action;
use crate::key::{KindId, ObjectKey};
use crate::kind::Kind;
use crate::kinds::{Registered, Watched, Written, kinds};
use crate::time::Mono;

/// A kind whose objects the engine keeps.
pub(super) trait Stored: Registered {
    fn store(stores: &Stores) -> &Store<Self>;
    fn store_mut(stores: &mut Stores) -> &mut Store<Self>;
}

macro_rules! stores {
    ($($(#[$attr:meta])* $field:ident, $name:ident, $kind:ty;)*) => {
        /// The stores by kind.
        #[derive(Clone, Debug)]
        pub(super) struct Stores {
            $($(#[$attr])* pub(super) $field: Store<$kind>,)*
        }

        impl Stores {
            /// Empty stores. `most`: how many requests of a kind are carried out in a namespace at a time; None: no
            /// limit.
            pub(super) fn new(most: Option<usize>) -> Self {
                Self { $($(#[$attr])* $field: Store::new(most),)* }
            }

            pub(super) fn each(&self) -> impl Iterator<Item = &dyn AnyStore> {
                [$($(#[$attr])* any(&self.$field),)*].into_iter()
            }

            pub(super) fn each_mut(&mut self) -> impl Iterator<Item = &mut dyn AnyStore> {
                [$($(#[$attr])* any_mut(&mut self.$field),)*].into_iter()
            }
        }

        $($(#[$attr])* impl Stored for $kind {
            fn store(stores: &Stores) -> &Store<Self> {
                &stores.$field
            }
            fn store_mut(stores: &mut Stores) -> &mut Store<Self> {
                &mut stores.$field
            }
        })*

        impl Engine {
            pub(super) fn objects_changed(&mut self, now: Mono, wall: DateTime<Utc>, watched: Watched) {
                match watched {
                    $($(#[$attr])* Watched::$name(watch) => self.requests_changed(now, wall, watch),)*
                }
            }

            pub(super) fn written(
                &mut self,
                now: Mono,
                key: &ObjectKey,
                uid: &str,
                outcome: Written,
                actions: &mut Vec<Action>,
            ) {
                match outcome {
                    $($(#[$attr])* Written::$name(outcome) => {
                        self.request_written(now, key, uid, outcome, actions);
                    })*
                }
            }

            /// Plans all marked objects. One kind may mark objects of another.
            pub(super) fn plan_requests(&mut self, now: Mono, wall: DateTime<Utc>) -> Vec<Action> {
                let mut actions = Vec::new();
                self.stores.each_mut().for_each(AnyStore::apply_limit);
                while self.stores.each().any(AnyStore::is_dirty) {
                    $($(#[$attr])* while let Some(key) = self.stores.$field.dirty.pop_first() {
                        self.plan_request::<$kind>(now, wall, &key, &mut actions);
                    })*
                }
                actions
            }
        }
    };
}
kinds!(stores);

fn any<K: Kind>(store: &Store<K>) -> &dyn AnyStore {
    store
}

fn any_mut<K: Kind>(store: &mut Store<K>) -> &mut dyn AnyStore {
    store
}

impl Stores {
    /// The store of that kind.
    pub(super) fn of(&self, kind: KindId) -> Option<&dyn AnyStore> {
        self.named(kind.name())
    }

    /// The store of the kind with that name.
    pub(super) fn named(&self, kind: &str) -> Option<&dyn AnyStore> {
        self.each().find(|store| store.about().id.name() == kind)
    }

    /// The store of the kind with that name.
    pub(super) fn named_mut(&mut self, kind: &str) -> Option<&mut dyn AnyStore> {
        self.each_mut().find(|store| store.about().id.name() == kind)
    }
}
