//! What a watch delivers.

/// A change of one kind's objects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Watch<T> {
    /// An object is new or changed.
    Upsert(T),
    /// An object is gone; its last state.
    Gone(T),
    /// All objects there are: a list, at the start or after the watch broke.
    Restart(Vec<T>),
}
