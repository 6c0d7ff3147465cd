//! How writes end.

/// How a write ended.
#[derive(Clone, Debug)]
pub enum Outcome<T> {
    /// It took effect; the object as stored.
    Written(T),
    /// The object no longer exists.
    Gone,
    /// Its precondition failed.
    Conflict,
    /// It failed, perhaps after it took effect. Worth another try.
    Retry,
    /// It was refused, so it had no effect. Worth another try: an API server that has just started refuses requests
    /// until it knows the roles.
    Refused(String),
}

/// The API server's words for a path that it does not serve.
pub(crate) const NOT_SERVED: &str = "could not find the requested resource";
