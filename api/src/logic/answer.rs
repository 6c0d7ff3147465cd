//! What the API server answers to a write, as data.

/// What a caller should do about an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A temporary failure: send the same request again after a back-off.
    Retry,
    /// The state has changed: read again, then decide again.
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
    /// `404` is [`Class::Invalid`]: a caller that expects a missing object checks for it first.
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

/// Why a request failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The object, or its kind, does not exist.
    pub gone: bool,
    /// What to do about it. After [`Class::Retry`], the request may have taken effect.
    pub class: Class,
    /// For people.
    pub message: String,
}

impl Failure {
    /// The API server answered with this HTTP status code.
    pub fn of_code(code: u16, message: impl Into<String>) -> Self {
        let message = message.into();
        // The patch names the UID of a deleted object, and another object has its name. That is a failed precondition,
        // though the API server reports a change of an immutable field.
        let other = code == 422 && message.contains("metadata.uid: Invalid value");
        let class = if other { Class::Conflict } else { Class::of_code(code) };
        Self { gone: code == 404, class, message }
    }

    /// Name for a metric label.
    pub fn label(&self) -> &'static str {
        if self.gone { "gone" } else { self.class.as_str() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_for_an_object_of_another_uid_is_a_conflict() {
        let of = |code, message: &str| Failure::of_code(code, message).class;
        let other = "Pod \"web\" is invalid: metadata.uid: Invalid value: \"1\": field is immutable";
        assert_eq!(of(422, other), Class::Conflict);
        assert_eq!(of(403, other), Class::Invalid, "words of a webhook");
        assert_eq!(of(422, "Pod \"web\" is invalid: spec: Forbidden"), Class::Invalid);
    }
}
