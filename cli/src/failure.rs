//! Errors of commands, and their messages.

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
    /// The request is not possible. The message names the object, the field, and what would be right.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self { message: format!("error: {}", plain::lines(&message.into())), class: Class::Invalid }
    }

    /// Something on this machine failed.
    pub fn local(what: &str, error: &(dyn Error + 'static)) -> Self {
        let message = format!("error: {what}: {}", plain::lines(&describe(error)));
        Self { message, class: Class::Fatal }
    }

    /// The API server refused, or did not answer; in kubectl's words.
    pub fn api(error: &kube::Error) -> Self {
        let message = match error {
            // For a missing object, the reason is NotFound. Here the API server does not have the URL.
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

    /// The class of the error.
    pub fn class(&self) -> Class {
        self.class
    }

    /// The message for the user.
    pub fn message(&self) -> &str {
        &self.message
    }

    /// Prints it on standard error.
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
