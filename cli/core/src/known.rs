//! What is known of something that the caller may not be allowed to read.

/// Something that was asked for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Known<T> {
    /// It.
    Is(T),
    /// There is none.
    #[default]
    Missing,
    /// It cannot be read, for this reason: the API server's words, which name the right that the caller lacks.
    Unread(String),
}

impl<T> Known<T> {
    /// It, where it is known.
    pub fn get(&self) -> Option<&T> {
        match self {
            Self::Is(it) => Some(it),
            Self::Missing | Self::Unread(_) => None,
        }
    }

    /// What `of` makes of it, where it is known.
    pub fn map<U>(self, of: impl FnOnce(T) -> U) -> Known<U> {
        match self {
            Self::Is(it) => Known::Is(of(it)),
            Self::Missing => Known::Missing,
            Self::Unread(why) => Known::Unread(why),
        }
    }
}

impl<T> Known<Vec<T>> {
    /// All of a list; none where it cannot be read.
    pub fn all(&self) -> &[T] {
        self.get().map(Vec::as_slice).unwrap_or_default()
    }
}
