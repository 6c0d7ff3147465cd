//! Parts of a state. States share parts, and compare them by a digest of their `Debug` text.
//!
//! The production structs derive `Debug` and have ordered collections, so the text shows every field in a fixed order.
//! The digest is computed once, when a part changes.

use std::collections::HashMap;
use std::fmt::{self, Debug, Write as _};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::ops::Deref;
use std::sync::Arc;

/// A value with the digest of its text.
pub struct Part<T> {
    value: Arc<T>,
    digest: u64,
}

/// The digest of an identifying value.
pub fn digest(of: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    of.hash(&mut hasher);
    hasher.finish()
}

struct Digest(DefaultHasher);

impl fmt::Write for Digest {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.0.write(text.as_bytes());
        Ok(())
    }
}

impl<T: Debug> Part<T> {
    /// A part with the digest of its text.
    pub fn new(value: T) -> Self {
        let mut digest = Digest(DefaultHasher::new());
        write!(digest, "{value:?}").unwrap();
        Self { value: Arc::new(value), digest: digest.0.finish() }
    }

    /// A part with the digest of `of` instead of its text.
    pub fn of(value: T, of: impl Hash) -> Self {
        Self { value: Arc::new(value), digest: digest(of) }
    }

    /// The digest that identifies the part.
    pub fn digest(&self) -> u64 {
        self.digest
    }
}

impl<T> Clone for Part<T> {
    fn clone(&self) -> Self {
        Self { value: Arc::clone(&self.value), digest: self.digest }
    }
}

impl<T> Deref for Part<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> PartialEq for Part<T> {
    fn eq(&self, other: &Self) -> bool {
        self.digest == other.digest
    }
}

impl<T> Eq for Part<T> {}

impl<T> Hash for Part<T> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64(self.digest);
    }
}

impl<T: Debug> Debug for Part<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.value.fmt(f)
    }
}

/// Result of a step: the next part and the actions.
type Next<M, A> = (Part<M>, Vec<Part<A>>);

/// Cache of steps. The cores are pure, so the same step has the same result.
pub struct Memo<M, A>(HashMap<(u64, u64, u64), Next<M, A>>);

/// Number of cached steps at which the cache is cleared, to limit memory.
const STEPS: usize = 150_000;

impl<M, A> Default for Memo<M, A> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<M, A> Memo<M, A> {
    /// The result when `part` handles the event with that digest at that time.
    pub fn step(
        &mut self,
        part: &Part<M>,
        now: u64,
        event: u64,
        step: impl FnOnce() -> Next<M, A>,
    ) -> Next<M, A> {
        if self.0.len() >= STEPS {
            self.0.clear();
        }
        self.0.entry((part.digest, now, event)).or_insert_with(step).clone()
    }
}
