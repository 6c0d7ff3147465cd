//! What to do about an error: the one question that callers ask of it.

use kube::Error;

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
}

/// The class of an error from the Kubernetes client.
///
/// `404` is [`Class::Invalid`]: callers for whom a missing object is an answer ask [`is_gone`] first.
pub fn classify(error: &Error) -> Class {
    match error {
        Error::Api(status) => classify_code(status.code),
        Error::FromUtf8(_)
        | Error::HttpError(_)
        | Error::SerdeError(_)
        | Error::BuildRequest(_)
        | Error::Discovery(_) => Class::Invalid,
        Error::ProxyProtocolUnsupported { .. }
        | Error::ProxyProtocolDisabled { .. }
        | Error::InferConfig(_)
        | Error::InferKubeconfig(_)
        | Error::RustlsTls(_)
        | Error::TlsRequired => Class::Fatal,
        // `HyperError`, `Service`, `ReadEvents`, `Auth`: a name that does not resolve, a connection that breaks, a
        // token that cannot be read, a certificate that does not verify. All can be cured by a change in flight.
        _ => Class::Retry,
    }
}

/// The class of an HTTP status code of the API server.
pub fn classify_code(code: u16) -> Class {
    match code {
        409 | 412 => Class::Conflict,
        // 401: a projected token is renewed on disk and read again; 410: the version asked for has been compacted.
        401 | 408 | 410 | 429 | 500.. => Class::Retry,
        _ => Class::Invalid,
    }
}

/// Whether the API server says that the object (or its kind) does not exist.
pub fn is_gone(error: &Error) -> bool {
    matches!(error, Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    fn api(code: u16) -> Error {
        Error::Api(Status::failure("m", "r").with_code(code).boxed())
    }

    #[test]
    fn status_codes_have_the_class_that_callers_expect() {
        for (code, class) in [
            (400, Class::Invalid),
            (401, Class::Retry),
            (403, Class::Invalid),
            (404, Class::Invalid),
            (409, Class::Conflict),
            (410, Class::Retry),
            (413, Class::Invalid),
            (422, Class::Invalid),
            (429, Class::Retry),
            (500, Class::Retry),
            (503, Class::Retry),
            (504, Class::Retry),
        ] {
            assert_eq!(classify(&api(code)), class, "{code}");
        }
    }

    #[test]
    fn transport_errors_are_retried() {
        let refused = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
        assert_eq!(classify(&Error::Service(Box::new(refused))), Class::Retry);
        let broken = std::io::Error::from(std::io::ErrorKind::BrokenPipe);
        assert_eq!(classify(&Error::ReadEvents(broken)), Class::Retry);
        assert_eq!(classify(&Error::TlsRequired), Class::Fatal);
    }

    #[test]
    fn only_not_found_is_gone() {
        assert!(is_gone(&api(404)));
        assert!(!is_gone(&api(410)));
        assert!(!is_gone(&Error::TlsRequired));
    }
}
