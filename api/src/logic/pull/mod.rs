//! The meaning of messages of registries and runtimes about a failed pull.

mod secrets;

pub use secrets::without_secrets;

use crate::condition::truncate;
use crate::nodework::{AnswerReason, MAX_MESSAGE};

/// What a failed pull means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meaning {
    /// Why the pull failed for good; `None` if another try may help.
    pub reason: Option<AnswerReason>,
    /// The message without secrets, truncated.
    pub text: String,
}

/// Texts of runtimes and registries for missing rights. A registry with a pull limit for anonymous users has another
/// limit for users with credentials.
const RIGHTS: [&str; 11] = [
    "401 unauthorized",
    "403 forbidden",
    "unauthorized",
    "authorization failed",
    "insufficient_scope",
    "pull access denied",
    "authentication required",
    "denied: ",
    "access to the resource is denied",
    "no basic auth credentials",
    "unauthenticated pull rate limit",
];

/// What a failed pull means. A registry that refuses an image, or does not have it, does not give it a moment later.
/// `missing`: the image is known not to exist.
pub fn meaning(message: &str, missing: bool) -> Meaning {
    let text = truncate(&without_secrets(message), MAX_MESSAGE);
    let lower = text.to_ascii_lowercase();
    let has = |words: &[&str]| words.iter().any(|word| lower.contains(word));
    // A registry that hides whether an image exists reports it as not found, or reports missing rights.
    let reason = if has(&RIGHTS) {
        Some(AnswerReason::PullUnauthorized)
    } else if has(&["no space left on device", "disk quota exceeded"]) {
        Some(AnswerReason::NoDiskRoom)
    } else if missing
        || has(&[
            "manifest unknown",
            "name unknown",
            ": not found",
            "404 not found",
            "invalid reference",
            "no match for platform",
        ])
    {
        Some(AnswerReason::PullFailed)
    } else {
        None
    };
    Meaning { reason, text }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn means(missing: bool, message: &str) -> Option<AnswerReason> {
        meaning(message, missing).reason
    }

    #[test]
    fn what_runtimes_say_is_understood() {
        use AnswerReason::{NoDiskRoom, PullFailed, PullUnauthorized};
        for (text, reason) in [
            ("failed to resolve reference \"r/web:v9\": r/web:v9: not found", Some(PullFailed)),
            ("reading manifest v9 in r/web: manifest unknown", Some(PullFailed)),
            (
                "pull access denied, repository does not exist or may require authorization: server message: \
                 insufficient_scope: authorization failed",
                Some(PullUnauthorized),
            ),
            (
                "failed to do request: unexpected status from HEAD request: 401 Unauthorized",
                Some(PullUnauthorized),
            ),
            (
                "failed to resolve reference: failed to authorize: failed to fetch anonymous token: 403 Forbidden",
                Some(PullUnauthorized),
            ),
            (
                "initializing source docker://shop/web:v2: reading manifest v2 in docker.io/shop/web: requested access \
                 to the resource is denied",
                Some(PullUnauthorized),
            ),
            (
                "failed to resolve reference: failed to authorize: failed to fetch anonymous token: unexpected status \
                 from GET request to https://r/token: 401 Unauthorized",
                Some(PullUnauthorized),
            ),
            (
                "reading manifest v2 in r/web: authorization failed: no basic auth credentials",
                Some(PullUnauthorized),
            ),
            (
                "httpReadSeeker: failed open: unexpected status from GET request: 429 Too Many Requests\n\
                 toomanyrequests: You have reached your unauthenticated pull rate limit.",
                Some(PullUnauthorized),
            ),
            ("toomanyrequests: You have reached your pull rate limit as 'shop'", None),
            ("unexpected status from HEAD request: 404 Not Found", Some(PullFailed)),
            ("write /var/lib/containerd/x: no space left on device", Some(NoDiskRoom)),
            ("dial tcp: lookup r on 10.0.0.10:53: no such host", None),
            ("dial tcp 127.0.0.1:5000: connect: connection refused", None),
            ("unexpected status from GET request: 503 Service Unavailable", None),
            ("unexpected status from HEAD request: 429 Too Many Requests", None),
            ("x509: certificate signed by unknown authority", None),
        ] {
            assert_eq!(means(false, text), reason, "{text}");
        }
        assert_eq!(means(true, "whatever"), Some(PullFailed));
        assert_eq!(means(true, "authorization failed"), Some(PullUnauthorized));
    }
}
