//! Additions to the generated messages: safe reading of enums, and a Debug without secrets.

use std::fmt;

use crate::v1;

impl v1::Container {
    /// The state. An unknown number is [`v1::ContainerState::ContainerUnknown`]; the generated `state()` would return
    /// `ContainerCreated`.
    pub fn known_state(&self) -> v1::ContainerState {
        container_state(self.state)
    }
}

impl v1::ContainerStatus {
    /// The state. An unknown number is [`v1::ContainerState::ContainerUnknown`]; the generated `state()` would return
    /// `ContainerCreated`.
    pub fn known_state(&self) -> v1::ContainerState {
        container_state(self.state)
    }

    /// The CPU and memory settings that the runtime was given; `None` if the runtime does not report them.
    pub fn linux_resources(&self) -> Option<&v1::LinuxContainerResources> {
        self.resources.as_ref()?.linux.as_ref()
    }
}

impl v1::PodSandboxStatus {
    /// The Pod's own addresses in their order; empty for a Pod on the node's network.
    pub fn ips(&self) -> impl Iterator<Item = &str> {
        self.network
            .iter()
            .flat_map(|network| {
                std::iter::once(network.ip.as_str())
                    .chain(network.additional_ips.iter().map(|ip| ip.ip.as_str()))
            })
            .filter(|ip| !ip.is_empty())
    }
}

impl v1::RuntimeStatus {
    /// Whether the runtime says that it can run containers.
    pub fn runtime_ready(&self) -> bool {
        self.conditions.iter().any(|condition| condition.r#type == "RuntimeReady" && condition.status)
    }
}

fn container_state(number: i32) -> v1::ContainerState {
    v1::ContainerState::try_from(number).unwrap_or(v1::ContainerState::ContainerUnknown)
}

impl fmt::Debug for v1::AuthConfig {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AuthConfig")
            .field("username", &self.username)
            .field("server_address", &self.server_address)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_state_from_the_future_is_unknown() {
        let state = |number| v1::Container { state: number, ..Default::default() }.known_state();
        assert_eq!(state(1), v1::ContainerState::ContainerRunning);
        assert_eq!(state(7), v1::ContainerState::ContainerUnknown);
        assert_eq!(state(-1), v1::ContainerState::ContainerUnknown);
    }

    #[test]
    fn addresses_of_a_dual_stack_pod() {
        let ip = |ip: &str| v1::PodIp { ip: ip.to_owned() };
        let network = |first: &str, more| v1::PodSandboxStatus {
            network: Some(v1::PodSandboxNetworkStatus { ip: first.to_owned(), additional_ips: more }),
            ..Default::default()
        };
        let dual = network("10.1.0.2", vec![ip("fd00::2")]);
        assert_eq!(dual.ips().collect::<Vec<_>>(), ["10.1.0.2", "fd00::2"]);
        assert_eq!(network("", vec![]).ips().count(), 0);
        assert_eq!(v1::PodSandboxStatus::default().ips().count(), 0);
    }

    #[test]
    fn no_secret_is_printed() {
        let auth = v1::AuthConfig {
            username: "ann".into(),
            password: "s3cret".into(),
            auth: "s3cret".into(),
            server_address: "registry.example".into(),
            identity_token: "s3cret".into(),
            registry_token: "s3cret".into(),
        };
        let text = format!("{:?}", v1::PullImageRequest { auth: Some(auth), ..Default::default() });
        assert!(text.contains("ann") && !text.contains("s3cret"), "{text}");
    }
}
