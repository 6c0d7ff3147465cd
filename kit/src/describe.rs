//! Errors and values as people read them: in messages, events, conditions and log lines.
//!
//! Libraries put Rust's debug output into the `Display` of their errors, and some hide the cause behind a few words. So
//! all code shows their errors through [`describe`]; `cargo xtask check` finds exceptions.

use std::error::Error;

use kube::client::AuthError;
use kube::config::KubeconfigError;
use kube::core::Status;
use kube::runtime::watcher;
use serde::Serialize;
use serde_json::Value;

/// The error and its causes as one sentence. A cause that the sentence already contains is left out.
///
/// A refusal of the API server is shown in its own words alone. An error of ours whose source is an error of the client
/// must not repeat the source's text.
pub fn describe(error: &(dyn Error + 'static)) -> String {
    let mut sentence = String::new();
    let mut next = Some(error);
    while let Some(error) = next {
        let (text, cause) = part(error);
        if !text.is_empty() && !sentence.contains(&text) {
            if !sentence.is_empty() {
                sentence.push_str(": ");
            }
            sentence.push_str(&text);
        }
        next = cause;
    }
    sentence
}

type Cause<'a> = Option<&'a (dyn Error + 'static)>;

/// The text of one error without its cause, and the cause.
fn part<'a>(error: &'a (dyn Error + 'static)) -> (String, Cause<'a>) {
    if let Some(error) = error.downcast_ref::<kube::Error>() {
        return of_client(error);
    }
    if let Some(error) = error.downcast_ref::<watcher::Error>() {
        return of_watch(error);
    }
    if let Some(AuthError::ReadTokenFile(cause, path)) = error.downcast_ref() {
        return (format!("cannot read the token file {}", path.display()), Some(cause));
    }
    if let Some(KubeconfigError::ReadConfig(cause, path)) = error.downcast_ref() {
        return (format!("cannot read {}", path.display()), Some(cause));
    }
    (error.to_string(), error.source())
}

fn of_client(error: &kube::Error) -> (String, Cause<'_>) {
    match error {
        kube::Error::Api(status) => (refusal(status), None),
        // hyper's client wraps its causes in an error that only repeats a name from its source code.
        kube::Error::Service(cause) => ("cannot reach the API server".to_owned(), {
            let cause: &(dyn Error + 'static) = cause.as_ref();
            cause.source().or(Some(cause))
        }),
        kube::Error::HyperError(cause) => ("the connection to the API server broke".to_owned(), Some(cause)),
        kube::Error::ReadEvents(cause) => ("the connection to the API server broke".to_owned(), Some(cause)),
        kube::Error::Auth(cause) => ("cannot authenticate to the API server".to_owned(), Some(cause)),
        kube::Error::SerdeError(cause) => ("the API server's answer cannot be read".to_owned(), Some(cause)),
        other => (other.to_string(), other.source()),
    }
}

fn of_watch(error: &watcher::Error) -> (String, Cause<'_>) {
    let what = match error {
        watcher::Error::WatchError(status) => refusal(status),
        watcher::Error::InitialListFailed(_) => "cannot list".to_owned(),
        watcher::Error::WatchStartFailed(_) => "cannot watch".to_owned(),
        watcher::Error::WatchFailed(_) => "the watch broke off".to_owned(),
        watcher::Error::NoResourceVersion => "the answer to the watch has no resourceVersion".to_owned(),
    };
    let cause = if matches!(error, watcher::Error::WatchError(_)) { None } else { error.source() };
    (what, cause)
}

/// kube's reason for an answer that is no `Status`: a page of a proxy, or nothing.
const NO_STATUS: &str = "Failed to parse error data";

/// The text of a refusal by the API server.
fn refusal(status: &Status) -> String {
    let Status { message, reason, code, .. } = status;
    match (message.trim(), reason.as_str()) {
        ("", "" | NO_STATUS) => format!("the API server answered with code {code}"),
        ("", reason) => format!("the API server answered with code {code}, {reason}"),
        (message, NO_STATUS) => format!("the API server answered with code {code}: {message}"),
        (message, _) => message.to_owned(),
    }
}

/// A value as the API shows it: a string as it is, other values as JSON. For fields of log lines.
pub fn shown(value: &impl Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word,
        Ok(value) => value.to_string(),
        Err(error) => describe(&error),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::io::{self, ErrorKind};

    use super::*;

    const FORBIDDEN: &str = "pods \"web\" is forbidden: exceeded quota: small, requested: requests.cpu=2";

    fn refused(message: &str, reason: &str, code: u16) -> kube::Error {
        kube::Error::Api(Status::failure(message, reason).with_code(code).boxed())
    }

    /// Whether the text has none of the marks of Rust's debug output of a refusal.
    fn is_plain(text: &str) -> bool {
        !["Status {", "Some(", "None", "ApiError", "Error("].iter().any(|debug| text.contains(debug))
    }

    #[test]
    fn a_refusal_is_told_in_the_words_of_the_api_server() {
        let refused = || refused(FORBIDDEN, "Forbidden", 403);
        assert!(!is_plain(&refused().to_string()), "kube's own text is plain now");
        assert_eq!(describe(&refused()), FORBIDDEN);
        let watch = watcher::Error::WatchStartFailed(refused());
        assert_eq!(describe(&watch), format!("cannot watch: {FORBIDDEN}"));
        let list = watcher::Error::InitialListFailed(refused());
        assert_eq!(describe(&list), format!("cannot list: {FORBIDDEN}"));
        let gone = Status::failure("too old resource version: 1 (2)", "Expired").with_code(410).boxed();
        assert_eq!(describe(&watcher::Error::WatchError(gone)), "too old resource version: 1 (2)");
    }

    #[test]
    fn an_answer_without_words_has_its_code() {
        for (message, reason, text) in [
            ("", NO_STATUS, "the API server answered with code 503"),
            ("", "", "the API server answered with code 503"),
            ("", "ServiceUnavailable", "the API server answered with code 503, ServiceUnavailable"),
            ("try later\n", NO_STATUS, "the API server answered with code 503: try later"),
        ] {
            assert_eq!(describe(&refused(message, reason, 503)), text);
        }
    }

    #[derive(Debug, thiserror::Error)]
    #[error("client error (Connect)")]
    struct Connecting(#[source] io::Error);

    #[test]
    fn the_cause_behind_a_failed_connection_is_told() {
        let error = Connecting(io::Error::from_raw_os_error(111));
        assert_eq!(
            describe(&kube::Error::Service(Box::new(error))),
            "cannot reach the API server: Connection refused (os error 111)"
        );
        let late = io::Error::new(ErrorKind::TimedOut, "request timed out");
        assert_eq!(
            describe(&kube::Error::Service(Box::new(late))),
            "cannot reach the API server: request timed out"
        );
        let token = AuthError::ReadTokenFile(ErrorKind::NotFound.into(), "/run/token".into());
        assert_eq!(
            describe(&kube::Error::Auth(token)),
            "cannot authenticate to the API server: cannot read the token file /run/token: entity not found"
        );
    }

    #[derive(Debug, thiserror::Error)]
    #[error("cannot store it: {0}")]
    struct Repeating(#[source] io::Error);

    #[test]
    fn a_cause_is_told_once() {
        let error = Repeating(io::Error::from_raw_os_error(28));
        assert_eq!(describe(&error), "cannot store it: No space left on device (os error 28)");
    }

    #[test]
    fn values_are_shown_as_the_api_shows_them() {
        assert_eq!(shown(&pitstop_api::resize::Phase::InProgress), "InProgress");
        let labels = BTreeMap::from([("a", Some("b")), ("c", None)]);
        assert_eq!(shown(&labels), r#"{"a":"b","c":null}"#);
    }
}
