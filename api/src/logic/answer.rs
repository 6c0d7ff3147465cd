//! What the API server answers to a write, as data.

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// Nobody's fault: try the same thing again after a back-off.
    Retry,
    /// The world moved on: read again, then decide again.
    Conflict,
    /// The request itself is wrong: repeating it cannot help until an input changes.
    Invalid,
    /// The process cannot work at all: say why and exit.
    Fatal,
}

impl Class {
    /// Name for a metric label or a log field.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Conflict => "conflict",
            Self::Invalid => "invalid",
            Self::Fatal => "fatal",
        }
    }

    /// The class of an HTTP status code of the API server.
    ///
    /// `404` is [`Class::Invalid`]: callers for whom a missing object is an answer ask for it first.
    pub fn of_code(code: u16) -> Self {
        match code {
            409 | 412 => Self::Conflict,
            // 401: a projected token is renewed on disk and read again; 410: the version asked for has been compacted.
            401 | 408 | 410 | 429 | 500.. => Self::Retry,
            _ => Self::Invalid,
        }
    }
}

/// The answer to one request.
#[derive(Clone, Debug)]
pub enum Answer {
    /// Success; the body, JSON.
    Body(String),
    /// No success, or no answer at all.
    Failed(Failure),
}

/// Why a request had no success.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object, or its kind, does not exist.
    pub gone: bool,
    /// What to do about it. After [`Class::Retry`] the request may have taken effect all the same.
    pub class: Class,
    /// For people.
    pub message: String,
}

impl Failure {
    /// The API server answered with this code.
    pub fn of_code(code: u16, message: impl Into<String>) -> Self {
        Self { gone: code == 404, class: Class::of_code(code), message: message.into() }
    }

    /// Name for a metric label.
    pub fn label(&self) -> &'static str {
        if self.gone { "gone" } else { self.class.as_str() }
    }
}
