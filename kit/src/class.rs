//! The class of an error: what a caller should do about it.

use kube::Error;
pub use pitstop_api::logic::answer::Class;
use pitstop_api::logic::answer::Failure;

use crate::describe::describe;

/// The class of an error from the Kubernetes client.
///
/// `404` is [`Class::Invalid`]: a caller that expects a missing object checks for it first.
pub fn classify(error: &Error) -> Class {
    match error {
        Error::Api(status) => Class::of_code(status.code),
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
        // token that cannot be read, a certificate that does not verify. All can be cured while the process runs.
        _ => Class::Retry,
    }
}

/// The error as the cores see it.
pub fn failure(error: &Error) -> Failure {
    let gone = matches!(error, Error::Api(status) if status.code == 404);
    Failure { gone, class: classify(error), message: describe(error) }
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
    fn a_failure_has_the_words_of_the_api_server_and_nothing_else() {
        assert_eq!(failure(&api(403)).message, "m");
    }

    #[test]
    fn only_not_found_is_gone() {
        assert!(failure(&api(404)).gone);
        assert!(!failure(&api(410)).gone);
        assert!(!failure(&Error::TlsRequired).gone);
    }
}
