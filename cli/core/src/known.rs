//! A value that the caller may not be allowed to read.

/// The result of reading a value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Known<T> {
    /// The value.
    Is(T),
    /// The value does not exist.
    #[default]
    Missing,
    /// It cannot be read, for this reason: usually the API server's message, which names the missing right.
    Unread(String),
}

impl<T> Known<T> {
    /// The value, if it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Is(it) => Some(it),
            Self::Missing | Self::Unread(_) => None,
        }
    }

    /// Applies `of` to the value, if it is known.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Is(it) => Known::Is(of(it)),
            Self::Missing => Known::Missing,
            Self::Unread(why) => Known::Unread(why),
        }
    }
}

impl<T> Known<Vec<T>> {
    /// The list; empty if it is missing or unreadable.
    pub fn all(&self) -> &[T] {
        self.get().map(Vec::as_slice).unwrap_or_default()
    }
}
