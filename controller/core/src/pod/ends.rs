//! What the kubelet does when a container ends.
//!
//! As `ContainerShouldRestart` in `pkg/api/v1/pod/util.go` of Kubernetes 1.36 decides: first the container's own rules,
//! then its own policy, then the Pod's.

use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

use super::{Container, ContainerKind, Pod, RestartPolicy};

/// Most `restartPolicyRules` of a container; the API server accepts no more.
pub const MAX_RULES: usize = 20;
/// Most exit codes in one of them; the API server accepts no more.
pub const MAX_EXIT_CODES: usize = 255;

/// `restartPolicy` and `restartPolicyRules` of a container (KEP-5307; Kubernetes 1.35 and later).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OwnPolicy {
    /// Used when no rule matches.
    pub policy: RestartPolicy,
    /// The first one that matches decides.
    pub rules: Vec<RestartRule>,
}

/// One of `restartPolicyRules`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RestartRule {
    /// The action is `RestartAllContainers` (KEP-5532), not `Restart`.
    pub all: bool,
    /// The operator is `NotIn`, not `In`.
    pub not_in: bool,
    /// The exit codes.
    pub codes: BTreeSet<i32>,
}

/// What the kubelet does with a container that has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterEnd {
    /// It starts the container again.
    Restarts,
    /// It restarts every container of the Pod; a kubelet without that feature goes by the container's policy.
    RestartsAll,
    /// It leaves the container ended.
    Stays,
}

/// Whether a container that is stopped runs again, whatever its exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AfterStop {
    /// The kubelet starts it again with every exit code.
    Runs,
    /// With some exit codes the kubelet restarts every container of the Pod; with the others it starts this one again.
    RunsPerhapsAll,
    /// The kubelet leaves it ended with this exit code, and with some others it does not.
    Depends(i32),
    /// The kubelet leaves it ended with every exit code.
    Stays,
}

impl Pod {
    /// What the kubelet does when the container ends with that exit code.
    pub fn after_end(&self, container: &Container, exit_code: i32) -> AfterEnd {
        let own = container.own_policy.as_deref();
        let rules = own.into_iter().flat_map(|own| &own.rules);
        if let Some(rule) = rules.into_iter().find(|rule| rule.codes.contains(&exit_code) != rule.not_in) {
            return if rule.all { AfterEnd::RestartsAll } else { AfterEnd::Restarts };
        }
        let again = match container.kind {
            ContainerKind::Sidecar => true,
            ContainerKind::Ephemeral => false,
            ContainerKind::Main | ContainerKind::Init => {
                match own.map_or(self.restart_policy, |own| own.policy) {
                    RestartPolicy::Always => true,
                    RestartPolicy::OnFailure => exit_code != 0,
                    RestartPolicy::Never => false,
                }
            }
        };
        if again { AfterEnd::Restarts } else { AfterEnd::Stays }
    }

    /// What the kubelet does when the container is stopped: its program chooses the exit code.
    pub fn after_stop(&self, container: &Container) -> AfterStop {
        // All codes except 0 that no rule names end like the first such code.
        let named = container.own_policy.iter().flat_map(|own| &own.rules).flat_map(|rule| &rule.codes);
        let named: BTreeSet<i32> = named.copied().collect();
        let unnamed = (1..=i32::MAX).find(|code| !named.contains(code));
        let codes: BTreeSet<i32> = [0].into_iter().chain(unnamed).chain(named).collect();
        let ends = || codes.iter().map(|code| (*code, self.after_end(container, *code)));
        let stays = ends().find(|(_, end)| *end == AfterEnd::Stays);
        let runs = ends().any(|(_, end)| end != AfterEnd::Stays);
        match stays {
            Some((code, _)) if runs => AfterStop::Depends(code),
            Some(_) => AfterStop::Stays,
            None if ends().any(|(_, end)| end == AfterEnd::RestartsAll) => AfterStop::RunsPerhapsAll,
            None => AfterStop::Runs,
        }
    }

    /// The restart policy that the kubelet applies to the container, as a phrase for messages.
    pub fn restart_policy_of(&self, container: &Container) -> String {
        let name = |policy: RestartPolicy| match policy {
            RestartPolicy::Always => "Always",
            RestartPolicy::OnFailure => "OnFailure",
            RestartPolicy::Never => "Never",
        };
        match container.own_policy.as_deref() {
            None => format!("restartPolicy is {}", name(self.restart_policy)),
            Some(own) if own.rules.is_empty() => {
                format!("the container's restartPolicy is {}", name(own.policy))
            }
            Some(own) => {
                format!("the container's restartPolicy is {}, with restartPolicyRules", name(own.policy))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(policy: RestartPolicy, rules: &[RestartRule]) -> OwnPolicy {
        OwnPolicy { policy, rules: rules.to_vec() }
    }

    fn rule(all: bool, not_in: bool, codes: &[i32]) -> RestartRule {
        RestartRule { all, not_in, codes: codes.iter().copied().collect() }
    }

    fn case(pod: RestartPolicy, own_policy: Option<OwnPolicy>, kind: ContainerKind) -> (Pod, Container) {
        let container = Container {
            name: "app".into(),
            kind,
            own_policy: own_policy.map(Box::new),
            ..Container::default()
        };
        (Pod { restart_policy: pod, ..Pod::default() }, container)
    }

    #[test]
    fn the_pods_policy_decides_where_the_container_has_none() {
        use AfterEnd::{Restarts, Stays};
        for (policy, zero, one) in [
            (RestartPolicy::Always, Restarts, Restarts),
            (RestartPolicy::OnFailure, Stays, Restarts),
            (RestartPolicy::Never, Stays, Stays),
        ] {
            let (pod, app) = case(policy, None, ContainerKind::Main);
            assert_eq!((pod.after_end(&app, 0), pod.after_end(&app, 1)), (zero, one), "{policy:?}");
            let (pod, proxy) = case(policy, None, ContainerKind::Sidecar);
            assert_eq!(pod.after_end(&proxy, 0), Restarts, "a sidecar always comes back");
        }
        let (pod, debugger) = case(RestartPolicy::Always, None, ContainerKind::Ephemeral);
        assert_eq!(pod.after_end(&debugger, 1), Stays);
    }

    #[test]
    fn the_containers_own_policy_goes_before_the_pods() {
        let (pod, app) =
            case(RestartPolicy::Always, Some(own(RestartPolicy::Never, &[])), ContainerKind::Main);
        assert_eq!(pod.after_end(&app, 1), AfterEnd::Stays);
        assert_eq!(pod.after_stop(&app), AfterStop::Stays);
        let (pod, app) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::Always, &[])), ContainerKind::Main);
        assert_eq!(pod.after_end(&app, 0), AfterEnd::Restarts);
        assert_eq!(pod.after_stop(&app), AfterStop::Runs);
        let (pod, app) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::OnFailure, &[])), ContainerKind::Main);
        assert_eq!(pod.after_stop(&app), AfterStop::Depends(0));
    }

    #[test]
    fn the_first_rule_that_matches_decides() {
        let rules = [rule(false, false, &[42, 43]), rule(true, false, &[43, 44])];
        let (pod, app) =
            case(RestartPolicy::Always, Some(own(RestartPolicy::Never, &rules)), ContainerKind::Main);
        assert_eq!(pod.after_end(&app, 42), AfterEnd::Restarts);
        assert_eq!(pod.after_end(&app, 43), AfterEnd::Restarts);
        assert_eq!(pod.after_end(&app, 44), AfterEnd::RestartsAll);
        assert_eq!(pod.after_end(&app, 143), AfterEnd::Stays);
        assert_eq!(pod.after_stop(&app), AfterStop::Depends(0));
    }

    #[test]
    fn not_in_matches_every_other_code() {
        let all_but_zero = [rule(false, true, &[0])];
        let (pod, app) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::Never, &all_but_zero)), ContainerKind::Main);
        assert_eq!(pod.after_end(&app, 0), AfterEnd::Stays);
        assert_eq!(pod.after_end(&app, 143), AfterEnd::Restarts);
        assert_eq!(pod.after_stop(&app), AfterStop::Depends(0));
        let everything = [rule(false, false, &[0]), rule(false, true, &[0])];
        let (pod, app) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::Never, &everything)), ContainerKind::Main);
        assert_eq!(pod.after_stop(&app), AfterStop::Runs);
    }

    /// Only the codes 1 and 2 are left out, which no short list of usual codes would show.
    #[test]
    fn a_single_code_that_ends_it_for_good_is_found() {
        let rules = [rule(false, true, &[1, 2])];
        let (pod, app) =
            case(RestartPolicy::Always, Some(own(RestartPolicy::Never, &rules)), ContainerKind::Main);
        assert_eq!(pod.after_stop(&app), AfterStop::Depends(1));
    }

    #[test]
    fn a_restart_of_all_containers_is_told_apart() {
        let rules = [rule(true, false, &[88])];
        let (pod, app) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::Always, &rules)), ContainerKind::Main);
        assert_eq!(pod.after_stop(&app), AfterStop::RunsPerhapsAll);
        let (pod, proxy) =
            case(RestartPolicy::Never, Some(own(RestartPolicy::Always, &rules)), ContainerKind::Sidecar);
        assert_eq!(pod.after_end(&proxy, 88), AfterEnd::RestartsAll);
        assert_eq!(pod.after_end(&proxy, 0), AfterEnd::Restarts);
    }

    #[test]
    fn messages_name_whose_policy_it_is() {
        let (pod, app) = case(RestartPolicy::Never, None, ContainerKind::Main);
        assert_eq!(pod.restart_policy_of(&app), "restartPolicy is Never");
        let (pod, app) =
            case(RestartPolicy::Always, Some(own(RestartPolicy::OnFailure, &[])), ContainerKind::Main);
        assert_eq!(pod.restart_policy_of(&app), "the container's restartPolicy is OnFailure");
        let rules = [rule(false, false, &[42])];
        let (pod, app) =
            case(RestartPolicy::Always, Some(own(RestartPolicy::Never, &rules)), ContainerKind::Main);
        assert_eq!(
            pod.restart_policy_of(&app),
            "the container's restartPolicy is Never, with restartPolicyRules"
        );
    }
}
