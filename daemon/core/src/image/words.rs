//! What the registry says, as it may be told: without secrets, and what it means.

use pitstop_api::condition::truncate;
use pitstop_api::nodework::{AnswerReason, MAX_MESSAGE};

use super::PullFailure;

/// What a failed pull means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Meaning {
    /// Why it has failed for good; absent where another try may help.
    pub(super) reason: Option<AnswerReason>,
    /// What is told.
    pub(super) text: String,
}

/// Words of runtimes and registries for a lack of rights.
const RIGHTS: [&str; 8] = [
    "401 unauthorized",
    "403 forbidden",
    "unauthorized",
    "authorization failed",
    "insufficient_scope",
    "pull access denied",
    "authentication required",
    "denied: ",
];

/// What a failed pull means: what the registry refuses or does not have, it will not give a moment later.
pub(super) fn meaning(failure: &PullFailure) -> Meaning {
    let text = truncate(&without_secrets(&failure.message), MAX_MESSAGE);
    let said = text.to_ascii_lowercase();
    let says = |words: &[&str]| words.iter().any(|word| said.contains(word));
    // A registry that is not to tell whether an image exists says that it is not there, or that rights are missing.
    let reason = if says(&RIGHTS) {
        Some(AnswerReason::PullUnauthorized)
    } else if says(&["no space left on device", "disk quota exceeded"]) {
        Some(AnswerReason::NoDiskRoom)
    } else if failure.missing
        || says(&[
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

/// The text without users and passwords in URLs, without what follows a URL's question mark, and without tokens.
pub(super) fn without_secrets(text: &str) -> String {
    let mut told = String::with_capacity(text.len());
    let mut hides_next = false;
    for (i, word) in text.split(' ').enumerate() {
        if i > 0 {
            told.push(' ');
        }
        if std::mem::take(&mut hides_next) && !word.is_empty() {
            told.push_str(HIDDEN);
            continue;
        }
        let low = word.to_ascii_lowercase();
        hides_next = ["bearer", "basic", "authorization:"].iter().any(|name| low.ends_with(name));
        told.push_str(&word_without(word));
    }
    told
}

/// What stands for what is not told.
const HIDDEN: &str = "[hidden]";

fn word_without(word: &str) -> String {
    let Some((scheme, rest)) = word.split_once("://") else {
        return match word.split_once('=') {
            Some((name, _)) if is_secret(name) => format!("{name}={HIDDEN}"),
            _ => word.to_owned(),
        };
    };
    let (place, query) = rest.split_once('?').map_or((rest, None), |(place, query)| (place, Some(query)));
    let host_from = place.split('/').next().and_then(|authority| authority.rfind('@'));
    let place = host_from.and_then(|at| place.get(at.saturating_add(1)..)).unwrap_or(place);
    // What ends the word ends the URL: it is kept, so that the sentence is whole.
    let end =
        query.map(|query| query.chars().rev().take_while(|c| "\":,;)".contains(*c)).collect::<Vec<_>>());
    let end: String = end.iter().flatten().rev().collect();
    let query = if query.is_some() { format!("?{HIDDEN}{end}") } else { String::new() };
    format!("{scheme}://{place}{query}")
}

fn is_secret(name: &str) -> bool {
    let low = name.to_ascii_lowercase();
    ["token", "password", "passwd", "secret", "signature", "auth"].iter().any(|word| low.contains(word))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn means(missing: bool, message: &str) -> Option<AnswerReason> {
        meaning(&PullFailure { missing, message: message.into() }).reason
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

    #[test]
    fn no_secret_is_told_and_the_sentence_stays_whole() {
        for (text, told) in [
            ("GET \"https://me:pass@r.example.com/v2/\": 401", "GET \"https://r.example.com/v2/\": 401"),
            (
                "Get \"https://s3.example.com/blob?X-Amz-Signature=abc&x=1\": EOF",
                "Get \"https://s3.example.com/blob?[hidden]\": EOF",
            ),
            ("Authorization: Bearer abc.def refused", "Authorization: [hidden] abc.def refused"),
            ("with Bearer abc.def refused", "with Bearer [hidden] refused"),
            ("token=abc is old", "token=[hidden] is old"),
            ("nothing to hide: r/web:v2@sha256:12", "nothing to hide: r/web:v2@sha256:12"),
        ] {
            assert_eq!(without_secrets(text), told);
        }
    }

    proptest! {
        #[test]
        fn no_secret_of_a_url_survives(
            before in "[a-z \":]{0,12}", user in "[a-z]{1,5}", secret in "[A-Z0-9]{8,16}", after in "[a-z \":]{0,12}",
        ) {
            for text in [
                format!("{before} https://{user}:{secret}@host/path{after}"),
                format!("{before} https://host/path?sig={secret}{after}"),
                format!("{before} Bearer {secret} {after}"),
                format!("{before} password={secret} {after}"),
            ] {
                prop_assert!(!without_secrets(&text).contains(&secret), "{}", without_secrets(&text));
            }
        }
    }
}
