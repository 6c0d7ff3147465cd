//! The targets of commands, as users write them: `pod/web-0`, `deploy/web`, `crr/restart-1`.

use pitstop_api::rollout::TargetKind;
use pitstop_api::text::quoted;
use pitstop_api::{image_update, recreate, resize, rollout};

/// A kind of request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RequestKind {
    /// `ContainerRecreateRequest`.
    Restart,
    /// `PodResize`.
    Resize,
    /// `PodImageUpdate`.
    ImageUpdate,
    /// `InPlaceRollout`.
    Rollout,
}

impl RequestKind {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Restart, Self::Resize, Self::ImageUpdate, Self::Rollout];

    /// The value of `kind`.
    pub fn kind(self) -> &'static str {
        match self {
            Self::Restart => recreate::KIND,
            Self::Resize => resize::KIND,
            Self::ImageUpdate => image_update::KIND,
            Self::Rollout => rollout::KIND,
        }
    }

    /// The singular name, as kubectl writes it before a slash.
    pub fn singular(self) -> &'static str {
        match self {
            Self::Restart => "containerrecreaterequest",
            Self::Resize => "podresize",
            Self::ImageUpdate => "podimageupdate",
            Self::Rollout => "inplacerollout",
        }
    }

    /// The plural name, as in URLs.
    pub fn plural(self) -> &'static str {
        match self {
            Self::Restart => recreate::PLURAL,
            Self::Resize => resize::PLURAL,
            Self::ImageUpdate => image_update::PLURAL,
            Self::Rollout => rollout::PLURAL,
        }
    }

    /// The short name.
    pub(crate) fn short(self) -> &'static str {
        match self {
            Self::Restart => "crr",
            Self::Resize => "prz",
            Self::ImageUpdate => "piu",
            Self::Rollout => "ipr",
        }
    }
}

/// The target of a command. All targets are in one namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Target {
    /// A Pod.
    Pod(String),
    /// A workload and all of its Pods.
    Workload(TargetKind, String),
    /// A request.
    Request(RequestKind, String),
}

impl Target {
    /// Reads `TYPE/NAME`. Types have the names that kubectl takes, in any case.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((type_, name)) = text.split_once('/') else {
            return Err(format!(
                "{} is not a target: write TYPE/NAME, such as pod/web-0 or deploy/web",
                quoted(text)
            ));
        };
        Self::of(type_, name)
    }

    /// Reads the words of a command line: `TYPE/NAME ...`, or `TYPE NAME ...`. At most [`MAX_TARGETS`].
    pub fn parse_all(words: &[String]) -> Result<Vec<Self>, String> {
        if words.len() > MAX_TARGETS {
            return Err(format!("at most {MAX_TARGETS} targets can be named, not {}", words.len()));
        }
        match words {
            [type_, names @ ..] if !type_.contains('/') && !names.is_empty() => {
                names.iter().map(|name| Self::of(type_, name)).collect()
            }
            words => words.iter().map(|word| Self::parse(word)).collect(),
        }
    }

    fn of(type_: &str, name: &str) -> Result<Self, String> {
        let name = checked_name(name)?;
        let type_ = type_.to_ascii_lowercase();
        let type_ = type_.split('.').next().unwrap_or_default();
        Ok(match type_ {
            "pod" | "pods" | "po" => Self::Pod(name),
            "deployment" | "deployments" | "deploy" => Self::Workload(TargetKind::Deployment, name),
            "statefulset" | "statefulsets" | "sts" => Self::Workload(TargetKind::StatefulSet, name),
            "daemonset" | "daemonsets" | "ds" => Self::Workload(TargetKind::DaemonSet, name),
            _ => {
                let names =
                    |kind: &&RequestKind| [kind.singular(), kind.plural(), kind.short()].contains(&type_);
                let kind = RequestKind::ALL.iter().find(names).ok_or_else(|| unknown(type_))?;
                Self::Request(*kind, name)
            }
        })
    }
}

impl std::fmt::Display for Target {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Pod(name) => write!(f, "pod/{name}"),
            Self::Workload(kind, name) => write!(f, "{}/{name}", kind.name().to_ascii_lowercase()),
            Self::Request(kind, name) => write!(f, "{}/{name}", kind.singular()),
        }
    }
}

/// Most targets of one command.
pub const MAX_TARGETS: usize = 1000;

fn unknown(type_: &str) -> String {
    format!(
        "{} is not a type that pitstop services: use pod, deployment, statefulset, daemonset, containerrecreaterequest, \
         podresize, podimageupdate or inplacerollout",
        quoted(type_)
    )
}

/// Fails unless the text is an object's name (RFC 1123 subdomain): only names may get into a URL.
pub fn checked_name(name: &str) -> Result<String, String> {
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-' || c == '.';
    if name.is_empty() || name.len() > 253 || !name.chars().all(plain) {
        return Err(format!(
            "{} is not a valid object name: it has 1 to 253 lower case letters, digits, - and .",
            quoted(name)
        ));
    }
    Ok(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn all(words: &[&str]) -> Result<Vec<Target>, String> {
        Target::parse_all(&words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>())
    }

    #[test]
    fn targets_are_named_as_in_kubectl() {
        let web = || "web".to_owned();
        for (text, target) in [
            ("pod/web", Target::Pod(web())),
            ("po/web", Target::Pod(web())),
            ("deploy/web", Target::Workload(TargetKind::Deployment, web())),
            ("Deployment.apps/web", Target::Workload(TargetKind::Deployment, web())),
            ("sts/web", Target::Workload(TargetKind::StatefulSet, web())),
            ("daemonsets/web", Target::Workload(TargetKind::DaemonSet, web())),
            ("crr/web", Target::Request(RequestKind::Restart, web())),
            ("podresize/web", Target::Request(RequestKind::Resize, web())),
            ("podimageupdates.pitstop.dev/web", Target::Request(RequestKind::ImageUpdate, web())),
            ("ipr/web", Target::Request(RequestKind::Rollout, web())),
        ] {
            assert_eq!(Target::parse(text), Ok(target.clone()), "{text}");
            assert_eq!(Target::parse(&target.to_string()), Ok(target));
        }
        assert_eq!(all(&["deploy", "a", "b"]), all(&["deploy/a", "deploy/b"]));
    }

    #[test]
    fn wrong_targets_are_refused_with_what_would_be_right() {
        for (words, expected) in [
            (&["web"][..], "write TYPE/NAME"),
            (&["node/web"], "not a type that pitstop services"),
            (&["pod/"], "not a valid object name"),
            (&["pod/../x"], "not a valid object name"),
            (&["pod/a/b"], "not a valid object name"),
            (&["deploy", "a", "B"], "not a valid object name"),
        ] {
            assert!(all(words).unwrap_err().contains(expected), "{words:?}");
        }
        let many = vec!["pod/a".to_owned(); MAX_TARGETS + 1];
        assert!(Target::parse_all(&many).is_err());
    }
}
