//! Whether `OpenKruise` serves the same kind: two controllers that carry out the same requests would restart
//! containers twice.
//!
//! Any sign of Kruise counts, not only signs of its own controller for `ContainerRecreateRequest`. A flag of Kruise's
//! own process turns that controller off, so only the user knows for sure. Facts about Kruise are from its source at
//! 1.9 (`pkg/webhook`, chart `kruise`).

use std::fmt;

/// The `MutatingWebhookConfiguration` of Kruise's chart, without which Kruise's manager cannot run.
pub const WEBHOOK_CONFIGURATION: &str = "kruise-mutating-webhook-configuration";
/// The CRD that both would own.
pub const DEFINITION: &str = "containerrecreaterequests.apps.kruise.io";
/// The release name that Kruise's installation guide gives its chart.
pub const HELM_RELEASE: &str = "kruise";

/// One object, as far as its watch has shown it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Seen<T> {
    /// The first list has not arrived.
    #[default]
    NotYet,
    /// The object does not exist.
    Absent,
    /// The object exists.
    Present(T),
}

/// Kruise's webhook configuration, reduced to what decisions need.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Configuration {
    /// The API server calls one of its webhooks for `ContainerRecreateRequest`s.
    pub asked_about_requests: bool,
}

/// The CRD of `ContainerRecreateRequest`, reduced to what decisions need. Ours has neither.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Definition {
    /// A webhook converts its versions.
    pub converted: bool,
    /// The Helm release that it belongs to.
    pub helm_release: Option<String>,
}

/// The objects that may show signs of Kruise.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Surroundings {
    /// [`WEBHOOK_CONFIGURATION`].
    pub configuration: Seen<Configuration>,
    /// [`DEFINITION`].
    pub definition: Seen<Definition>,
}

/// A sign of Kruise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sign {
    /// Its webhook configuration exists.
    Installed,
    /// The API server calls its webhook for requests.
    Asked,
    /// Its webhook converts requests between versions.
    Converts,
    /// Its Helm release owns the definition.
    Owns,
}

impl fmt::Display for Sign {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Installed => write!(f, "there is the MutatingWebhookConfiguration {WEBHOOK_CONFIGURATION}"),
            Self::Asked => write!(f, "a webhook of {WEBHOOK_CONFIGURATION} is asked about requests"),
            Self::Converts => write!(f, "a webhook converts the versions of {DEFINITION}"),
            Self::Owns => write!(f, "the Helm release {HELM_RELEASE} owns {DEFINITION}"),
        }
    }
}

/// Whether pitstop carries out requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Not all objects are known yet: no request is carried out.
    Unknown,
    /// Requests are carried out.
    Serve,
    /// The user says that Kruise's controller is off: requests are carried out. Holds the signs that make requests
    /// fail.
    ServeBeside(Vec<Sign>),
    /// No request is carried out, because of these signs.
    Refuse(Vec<Sign>),
}

impl Mode {
    /// Whether requests are carried out.
    pub fn serves(&self) -> bool {
        matches!(self, Self::Serve | Self::ServeBeside(_))
    }
}

/// Decides. `kruise_off`: the user says that Kruise's own controller for requests is off.
pub fn judge(surroundings: &Surroundings, kruise_off: bool) -> Mode {
    let signs = signs(surroundings);
    if kruise_off {
        // Only signs that make requests fail: with its gate off, Kruise's webhook refuses every request.
        let in_the_way: Vec<Sign> =
            signs.into_iter().filter(|sign| matches!(sign, Sign::Asked | Sign::Converts)).collect();
        return if in_the_way.is_empty() { Mode::Serve } else { Mode::ServeBeside(in_the_way) };
    }
    if !signs.is_empty() {
        return Mode::Refuse(signs);
    }
    match (&surroundings.configuration, &surroundings.definition) {
        (Seen::NotYet, _) | (_, Seen::NotYet) => Mode::Unknown,
        _ => Mode::Serve,
    }
}

fn signs(surroundings: &Surroundings) -> Vec<Sign> {
    let mut signs = Vec::new();
    if let Seen::Present(configuration) = &surroundings.configuration {
        signs.push(Sign::Installed);
        signs.extend(configuration.asked_about_requests.then_some(Sign::Asked));
    }
    if let Seen::Present(definition) = &surroundings.definition {
        signs.extend(definition.converted.then_some(Sign::Converts));
        let owner = definition.helm_release.as_deref();
        signs.extend((owner == Some(HELM_RELEASE)).then_some(Sign::Owns));
    }
    signs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seen(configuration: Seen<Configuration>, definition: Seen<Definition>) -> Surroundings {
        Surroundings { configuration, definition }
    }

    fn ours() -> Seen<Definition> {
        Seen::Present(Definition::default())
    }

    fn kruise(asked_about_requests: bool) -> Seen<Configuration> {
        Seen::Present(Configuration { asked_about_requests })
    }

    #[test]
    fn alone_it_serves_once_it_has_looked() {
        assert_eq!(judge(&seen(Seen::Absent, ours()), false), Mode::Serve);
        assert_eq!(judge(&seen(Seen::Absent, Seen::Absent), false), Mode::Serve);
        for unknown in [Surroundings::default(), seen(Seen::Absent, Seen::NotYet), seen(Seen::NotYet, ours())]
        {
            let mode = judge(&unknown, false);
            assert_eq!(mode, Mode::Unknown);
            assert!(!mode.serves());
        }
    }

    #[test]
    fn any_sign_of_kruise_is_enough_to_refuse() {
        use Sign::{Asked, Converts, Installed, Owns};
        let definition = |converted, release: Option<&str>| {
            Seen::Present(Definition { converted, helm_release: release.map(str::to_owned) })
        };
        for (found, signs) in [
            (seen(kruise(true), ours()), vec![Installed, Asked]),
            (seen(kruise(false), ours()), vec![Installed]),
            // An object that is not known yet cannot cancel a sign.
            (seen(kruise(true), Seen::NotYet), vec![Installed, Asked]),
            (seen(Seen::Absent, definition(true, None)), vec![Converts]),
            (seen(Seen::NotYet, definition(false, Some("kruise"))), vec![Owns]),
        ] {
            let mode = judge(&found, false);
            assert!(!mode.serves());
            assert_eq!(mode, Mode::Refuse(signs));
        }
        // A user's own chart may contain our CRD.
        assert_eq!(judge(&seen(Seen::Absent, definition(false, Some("platform"))), false), Mode::Serve);
    }

    #[test]
    fn who_was_told_serves_at_once_and_says_what_is_in_the_way() {
        assert_eq!(judge(&Surroundings::default(), true), Mode::Serve);
        assert_eq!(judge(&seen(kruise(false), ours()), true), Mode::Serve);
        let mode = judge(&seen(kruise(true), ours()), true);
        assert_eq!(mode, Mode::ServeBeside(vec![Sign::Asked]));
        assert!(mode.serves());
    }
}
