//! Why a command did not do what it was asked to, and how that is told.

use std::error::Error;
use std::process::ExitCode;

use pitstop_cli_core::plain;
use pitstop_kit::{Class, classify, describe};

/// An error that ends a command.
#[derive(Debug)]
pub struct Failure {
    message: String,
    class: Class,
}

impl Failure {
    /// What was asked for cannot be: the object, the field, what would be right.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: format!("error: {}", plain::lines(&message.into())), class: Class::Invalid }
    }

    /// Something of this machine failed.
    pub fn local(what: &str, error: &(dyn Error + 'static)) -> Self {
        let message = format!("error: {what}: {}", plain::lines(&describe(error)));
        Self { message, class: Class::Fatal }
    }

    /// The API server refused, or did not answer; in kubectl's words.
    pub fn api(error: &kube::Error) -> Self {
        let message = match error {
            // The API server itself names what it does not find; this is a URL that it does not have.
            kube::Error::Api(status) if status.code == 404 && status.reason != "NotFound" => {
                "error: the API server does not have this type of object. Is pitstop installed? See docs/install.md".to_owned()
            }
            kube::Error::Api(status) => {
                let reason = status.reason.as_str();
                let from = if reason.is_empty() || reason.contains(' ') {
                    "Error from server".to_owned()
                } else {
                    format!("Error from server ({reason})")
                };
                format!("{from}: {}", describe(error))
            }
            other => format!("error: {}", describe(other)),
        };
        Self { message: plain::lines(&message), class: classify(error) }
    }

    /// What to do about it.
    pub fn class(&self) -> Class {
        self.class
    }

    /// What is told of it.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Tells it on standard error.
    pub fn report(&self) -> ExitCode {
        eprintln!("{}", self.message);
        ExitCode::FAILURE
    }
}

impl From<kube::Error> for Failure {
    fn from(error: kube::Error) -> Self {
        Self::api(&error)
    }
}
