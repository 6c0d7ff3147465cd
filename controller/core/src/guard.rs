//! Whether the API server restricts each daemon to its own node.
//!
//! All daemons share one `ServiceAccount`. The `ValidatingAdmissionPolicy` [`POLICY`] keeps the token of one daemon
//! from writing the answers of another. It also denies everybody the creation of one `NodeWork`, [`PROBE`]. A dry run
//! of that creation shows whether the policy exists, is bound and is in force; see `deploy/base/daemon/policy.yaml`.

use std::time::Duration;

use kube::Resource;
use kube::core::params::PostParams;
use kube::core::{Request as Builder, request};
use pitstop_api::logic::answer::{Answer, Class, Failure};
use pitstop_api::nodework::{NodeWork, NodeWorkSpec};

/// Name of the policy and of its binding.
pub const POLICY: &str = "pitstop-daemon";
/// The `NodeWork` that the policy denies to everybody. No node has this name: it is in the project's own domain.
pub const PROBE: &str = "self-check.pitstop.dev";

/// How long a denial counts. The controller notices the removal of the policy after this time at the latest.
const LOOK_AGAIN: Duration = Duration::from_mins(1);
/// How soon to look again without a denial: an installation is under way, or the API server is unavailable.
const LOOK_SOON: Duration = Duration::from_secs(2);

/// What one answer shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PolicyState {
    /// The policy denied it.
    InForce,
    /// No denial by the policy: the API server accepted the probe, or refused it for another reason. Says which.
    Missing(String),
    /// The API server did not decide, for this reason. The previous state still counts.
    Unknown(String),
}

impl PolicyState {
    /// How long until the next probe.
    pub fn look_again(&self) -> Duration {
        match self {
            Self::InForce => LOOK_AGAIN,
            Self::Missing(_) | Self::Unknown(_) => LOOK_SOON,
        }
    }
}

/// A request to create [`PROBE`] as a dry run: nothing is stored, whatever the answer.
pub fn probe() -> Result<http::Request<Vec<u8>>, request::Error> {
    let body = serde_json::to_vec(&NodeWork::new(PROBE, NodeWorkSpec::default()))
        .map_err(request::Error::SerializeBody)?;
    let params = PostParams { dry_run: true, ..PostParams::default() };
    Builder::new(NodeWork::url_path(&(), None)).create(&params, body)
}

/// What the answer to [`probe`] shows. The API server names the policy that denies (`ValidatingAdmissionPolicy 'NAME'
/// with binding 'NAME' denied request`, apiserver `plugin/policy/validating`).
pub fn judge(answer: &Answer) -> PolicyState {
    let by_the_policy = format!("ValidatingAdmissionPolicy '{POLICY}'");
    match answer {
        Answer::Failed(Failure { class: Class::Retry, message, .. }) => PolicyState::Unknown(message.clone()),
        Answer::Failed(Failure { message, .. }) if message.contains(&by_the_policy) => PolicyState::InForce,
        Answer::Failed(Failure { message, .. }) => {
            PolicyState::Missing(format!("the API server denied the test for another reason: {message}"))
        }
        Answer::Body(_) => PolicyState::Missing("the API server did not deny the test".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn failed(code: u16, message: &str) -> Answer {
        Answer::Failed(Failure::of_code(code, message))
    }

    #[test]
    fn the_probe_stores_nothing() {
        let request = probe().unwrap();
        assert_eq!(request.method(), "POST");
        assert_eq!(request.uri(), "/apis/pitstop.dev/v1alpha1/nodeworks?&dryRun=All");
        let body: NodeWork = serde_json::from_slice(request.body()).unwrap();
        assert_eq!((body.metadata.name.as_deref(), body.spec.orders.len()), (Some(PROBE), 0));
    }

    #[test]
    fn only_a_denial_by_the_policy_counts() {
        let denial = "nodeworks.pitstop.dev \"self-check.pitstop.dev\" is forbidden: ValidatingAdmissionPolicy \
                      'pitstop-daemon' with binding 'pitstop-daemon' denied request: no";
        assert_eq!(judge(&failed(403, denial)), PolicyState::InForce);
        for answer in [
            Answer::Body("{}".to_owned()),
            failed(403, "User \"x\" cannot create resource \"nodeworks\" in API group \"pitstop.dev\""),
            failed(403, "ValidatingAdmissionPolicy 'another' with binding 'another' denied request: no"),
            failed(409, "nodeworks.pitstop.dev \"self-check.pitstop.dev\" already exists"),
            failed(404, "the server could not find the requested resource"),
        ] {
            let state = judge(&answer);
            assert!(matches!(state, PolicyState::Missing(_)), "{answer:?}: {state:?}");
            assert_eq!(state.look_again(), LOOK_SOON);
        }
    }

    #[test]
    fn an_api_server_that_is_away_shows_nothing() {
        for code in [429, 500, 503, 504] {
            assert!(matches!(judge(&failed(code, "later")), PolicyState::Unknown(_)), "{code}");
        }
    }
}
