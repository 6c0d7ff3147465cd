//! What can be enabled and disabled.

use pitstop_api::rollout::TargetKind;
use pitstop_api::text::quoted;

use crate::target::Target;

/// A namespace, or a workload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SwitchTarget {
    /// A namespace.
    Namespace(String),
    /// A workload in the command's namespace.
    Workload(TargetKind, String),
}

impl SwitchTarget {
    /// Reads `namespace/shop`, `ns/shop`, or a workload such as `deploy/web`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let namespace = text.split_once('/').filter(|(type_, _)| {
            ["namespace", "namespaces", "ns"].iter().any(|name| type_.eq_ignore_ascii_case(name))
        });
        if let Some((_, name)) = namespace {
            let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            let fits = !name.is_empty() && name.len() <= 63 && name.chars().all(plain);
            return if fits {
                Ok(Self::Namespace(name.to_owned()))
            } else {
                Err(format!(
                    "{} is not a valid namespace name: it has 1 to 63 lower case letters, digits and -",
                    quoted(name)
                ))
            };
        }
        match Target::parse(text)? {
            Target::Workload(kind, name) => Ok(Self::Workload(kind, name)),
            target => Err(format!(
                "{target} cannot be enabled or disabled: name a namespace or a workload, such as namespace/shop or deploy/web"
            )),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespaces_and_workloads_are_read() {
        assert_eq!(SwitchTarget::parse("ns/shop"), Ok(SwitchTarget::Namespace("shop".into())));
        assert_eq!(SwitchTarget::parse("Namespace/shop"), Ok(SwitchTarget::Namespace("shop".into())));
        assert_eq!(
            SwitchTarget::parse("sts/db"),
            Ok(SwitchTarget::Workload(TargetKind::StatefulSet, "db".into()))
        );
        for (text, expected) in [
            ("ns/", "is not a valid namespace name"),
            ("ns/a/b", "is not a valid namespace name"),
            ("pod/web", "pod/web cannot be enabled or disabled"),
            ("shop", "is not a target"),
        ] {
            assert!(SwitchTarget::parse(text).unwrap_err().contains(expected), "{text}");
        }
    }
}
