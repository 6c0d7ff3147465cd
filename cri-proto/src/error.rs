//! Failures of calls: what went wrong, in which call, on which socket, and what to do.

use std::{fmt, path::Path, sync::Arc, time::Duration};

use tonic::{Code, Status};

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// The same call may succeed later. It may also have taken effect already: read back first.
    Retry,
    /// The state differs from what the caller believed: read again, then decide again.
    Conflict,
    /// The request itself is wrong, and stays wrong until it is changed.
    Invalid,
    /// This runtime can never do it.
    Fatal,
}

/// One call on one socket, for texts: `StopContainer on /run/containerd/containerd.sock`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Name of the call in CRI.
    pub name: &'static str,
    /// The socket of the runtime.
    pub socket: Arc<Path>,
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} on {}", self.name, self.socket.display())
    }
}

/// A failed call. The text names the call and the socket; texts of the runtime in it are cut at 1 KiB.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The socket is missing or refuses, the connection broke, or the runtime is still starting. A call that was
    /// under way may have taken effect.
    #[error("{call}: the container runtime cannot be reached: {detail}")]
    Unreachable {
        /// The call.
        call: Call,
        /// What the connection or the runtime said.
        detail: String,
    },
    /// No answer in time, by our clock or the runtime's. The call may have taken effect. For `ExecSync` it also
    /// means that the command ran into its timeout and was killed.
    #[error("{call}: no answer within {} s{}", limit.as_secs_f64(), after_colon(detail))]
    Deadline {
        /// The call.
        call: Call,
        /// Our deadline.
        limit: Duration,
        /// What the runtime said; empty when it said nothing.
        detail: String,
    },
    /// The container, Pod or image does not exist (any more).
    #[error("{call}: not found: {detail}")]
    NotFound {
        /// The call.
        call: Call,
        /// What the runtime said.
        detail: String,
    },
    /// It exists, but its state does not allow the call.
    #[error("{call}: not possible now: {detail}")]
    State {
        /// The call.
        call: Call,
        /// What the runtime said.
        detail: String,
    },
    /// The runtime lacks this call or this feature.
    #[error("{call}: the container runtime does not support this: {detail}")]
    Unimplemented {
        /// The call.
        call: Call,
        /// What the runtime said.
        detail: String,
    },
    /// The request is wrong.
    #[error("{call}: invalid request: {detail}")]
    Invalid {
        /// The call.
        call: Call,
        /// What the runtime, or this crate before asking it, said.
        detail: String,
    },
    /// A registry or the runtime denied access.
    #[error("{call}: access denied: {detail}")]
    Denied {
        /// The call.
        call: Call,
        /// What the runtime said.
        detail: String,
    },
    /// The answer is larger than we or the runtime allow. The call itself was carried out: a command run by
    /// `ExecSync` has ended, with its output and exit code lost.
    #[error("{call}: the answer is too large: {detail}")]
    TooLarge {
        /// The call.
        call: Call,
        /// Size and limit, in words.
        detail: String,
    },
    /// The answer lacks its main part.
    #[error("{call}: the answer lacks `{field}`")]
    Incomplete {
        /// The call.
        call: Call,
        /// Name of the missing field.
        field: &'static str,
    },
    /// Anything else that the runtime reports; containerd sends most of its own failures as `Unknown`.
    #[error("{call}: the container runtime failed (gRPC code {}): {detail}", i32::from(*code))]
    Other {
        /// The call.
        call: Call,
        /// The gRPC code.
        code: Code,
        /// What the runtime said.
        detail: String,
    },
}

impl Error {
    /// What to do about it.
    pub fn class(&self) -> Class {
        match self {
            Self::Unreachable { .. } | Self::Deadline { .. } | Self::Other { .. } => Class::Retry,
            Self::NotFound { .. } | Self::State { .. } => Class::Conflict,
            Self::Invalid { .. } | Self::Denied { .. } => Class::Invalid,
            Self::Unimplemented { .. } | Self::TooLarge { .. } | Self::Incomplete { .. } => Class::Fatal,
        }
    }

    /// A word from a small fixed set, for metrics.
    pub fn category(&self) -> &'static str {
        match self {
            Self::Unreachable { .. } => "unreachable",
            Self::Deadline { .. } => "deadline",
            Self::NotFound { .. } => "not_found",
            Self::State { .. } => "state",
            Self::Unimplemented { .. } => "unimplemented",
            Self::Invalid { .. } => "invalid",
            Self::Denied { .. } => "denied",
            Self::TooLarge { .. } => "too_large",
            Self::Incomplete { .. } => "incomplete",
            Self::Other { .. } => "other",
        }
    }

    /// The call that failed.
    pub fn call(&self) -> &Call {
        match self {
            Self::Unreachable { call, .. }
            | Self::Deadline { call, .. }
            | Self::NotFound { call, .. }
            | Self::State { call, .. }
            | Self::Unimplemented { call, .. }
            | Self::Invalid { call, .. }
            | Self::Denied { call, .. }
            | Self::TooLarge { call, .. }
            | Self::Incomplete { call, .. }
            | Self::Other { call, .. } => call,
        }
    }

    /// Reads a gRPC status.
    pub(crate) fn from_status(call: Call, limit: Duration, status: &Status) -> Self {
        let detail = describe(status);
        // A status that this process made from a connection failure carries that failure. A status from the runtime
        // carries none.
        let ours = std::error::Error::source(status).is_some();
        match status.code() {
            Code::Unavailable => Self::Unreachable { call, detail },
            Code::Unknown | Code::Internal | Code::Cancelled if ours => Self::Unreachable { call, detail },
            Code::Unknown if status.message().contains(STARTING) => Self::Unreachable { call, detail },
            Code::Unknown if status.message().contains(WRONG_STATE) => Self::State { call, detail },
            Code::Unknown if status.message().contains(BAD_REFERENCE) => Self::Invalid { call, detail },
            Code::Unknown if NO_ACCESS.iter().any(|text| status.message().contains(text)) => {
                Self::Denied { call, detail }
            }
            Code::DeadlineExceeded => Self::Deadline { call, limit, detail },
            Code::NotFound => Self::NotFound { call, detail },
            Code::FailedPrecondition | Code::AlreadyExists | Code::Aborted => Self::State { call, detail },
            Code::Unimplemented => Self::Unimplemented { call, detail },
            Code::InvalidArgument => Self::Invalid { call, detail },
            Code::PermissionDenied | Code::Unauthenticated => Self::Denied { call, detail },
            // The answer is too large: our decoder says OutOfRange, Go's gRPC server ResourceExhausted.
            Code::OutOfRange => Self::TooLarge { call, detail },
            Code::ResourceExhausted if status.message().contains("larger than max") => {
                Self::TooLarge { call, detail }
            }
            code => Self::Other { call, code, detail },
        }
    }
}

/// containerd 1.6 has no codes for these; `tests/containerd.rs` checks the texts.
const STARTING: &str = "server is not initialized yet";
const WRONG_STATE: &str = "container is in CONTAINER_";
const BAD_REFERENCE: &str = "failed to parse image reference";
const NO_ACCESS: [&str; 2] = ["401 Unauthorized", "403 Forbidden"];

/// Most bytes of a text from outside that go into an error.
const DETAIL_LIMIT: usize = 1024;

/// The message of a status and, for a failed connection, the innermost cause ("No such file or directory").
fn describe(status: &Status) -> String {
    let mut text = status.message().to_owned();
    let mut cause = std::error::Error::source(status);
    let mut last = None;
    while let Some(error) = cause {
        last = Some(error.to_string());
        cause = error.source();
    }
    if let Some(last) = last.filter(|last| !text.contains(last.as_str())) {
        if !text.is_empty() {
            text.push_str(": ");
        }
        text.push_str(&last);
    }
    if text.is_empty() {
        text.push_str(status.code().description());
    }
    cut(text)
}

fn cut(mut text: String) -> String {
    if text.len() > DETAIL_LIMIT {
        text.truncate(text.floor_char_boundary(DETAIL_LIMIT));
        text.push_str(" [cut]");
    }
    text
}

fn after_colon(detail: &str) -> String {
    if detail.is_empty() { String::new() } else { format!(": {detail}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        Call { name: "StopContainer", socket: Path::new("/run/x.sock").into() }
    }

    fn from(code: Code, message: &str) -> Error {
        Error::from_status(call(), Duration::from_secs(5), &Status::new(code, message))
    }

    #[test]
    fn codes_of_the_runtime_have_a_class() {
        let cases = [
            (Code::Unavailable, "unreachable", Class::Retry),
            (Code::DeadlineExceeded, "deadline", Class::Retry),
            (Code::Unknown, "other", Class::Retry),
            (Code::Internal, "other", Class::Retry),
            (Code::ResourceExhausted, "other", Class::Retry),
            (Code::NotFound, "not_found", Class::Conflict),
            (Code::FailedPrecondition, "state", Class::Conflict),
            (Code::AlreadyExists, "state", Class::Conflict),
            (Code::InvalidArgument, "invalid", Class::Invalid),
            (Code::PermissionDenied, "denied", Class::Invalid),
            (Code::Unauthenticated, "denied", Class::Invalid),
            (Code::Unimplemented, "unimplemented", Class::Fatal),
            (Code::OutOfRange, "too_large", Class::Fatal),
        ];
        for (code, category, class) in cases {
            let error = from(code, "why");
            assert_eq!((error.category(), error.class()), (category, class), "{code:?}");
            let text = error.to_string();
            assert!(text.starts_with("StopContainer on /run/x.sock: ") && text.ends_with("why"), "{text}");
            assert_eq!(error.call(), &call());
        }
        let category = |text| from(Code::Unknown, text).category();
        assert_eq!(category("server is not initialized yet"), "unreachable");
        assert_eq!(category("failed to exec in container: container is in CONTAINER_EXITED state"), "state");
        assert_eq!(category("failed to parse image reference \"A\": invalid reference format"), "invalid");
        let error = from(Code::ResourceExhausted, "trying to send message larger than max (17 vs. 16)");
        assert_eq!(error.category(), "too_large");
    }

    #[test]
    fn an_empty_message_is_explained() {
        assert!(
            from(Code::NotFound, "")
                .to_string()
                .ends_with(": not found: Some requested entity was not found")
        );
        let silent = Error::Deadline { call: call(), limit: Duration::from_secs(5), detail: String::new() };
        assert_eq!(silent.to_string(), "StopContainer on /run/x.sock: no answer within 5 s");
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        let text = from(Code::Unknown, &"é".repeat(100_000)).to_string();
        assert!(text.len() < DETAIL_LIMIT + 200 && text.ends_with("é [cut]"), "{}", text.len());
        let odd = from(Code::Unknown, &format!("x{}", "é".repeat(100_000))).to_string();
        assert!(odd.ends_with("é [cut]"));
    }
}
