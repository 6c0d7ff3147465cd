//! Behaviour of a Pod's containers, from one annotation of the Pod for each container.
//!
//! ```json
//! {"metadata": {"annotations": {"sim.pitstop.dev/app": "{\"term\":[300,0],\"runs\":[[5000,1]],\"ready\":800}"}}}
//! ```
//!
//! This container ends with code 0, 300 ms after the stop signal. Its first instance crashes after 5 s with
//! code 1; the later ones run on. It is ready 800 ms after its start.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::runtime::Process;

/// Prefix of the annotations; the container's name follows.
pub const PREFIX: &str = "sim.pitstop.dev/";

/// Behaviour of a container. Times are milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default, deny_unknown_fields)]
pub struct Behaviour {
    /// Duration of its start.
    pub start: u64,
    /// Whether its start fails.
    pub start_fails: bool,
    /// When and with what code it ends after the stop signal; null if it ignores the signal.
    pub term: Option<(u64, i32)>,
    /// When and with what code its instances end by themselves, in the order of their restart counts; null for never.
    pub runs: Vec<Option<(u64, i32)>>,
    /// Instances beyond `runs` behave as its last entry, instead of running for ever.
    pub repeat: bool,
    /// When it passes its readiness probe; null for never, 0 for a container without a probe.
    pub ready: Option<u64>,
    /// Duration and exit code of its preStop hook.
    pub hook: (u64, i32),
    /// Its memory use, in mebibytes.
    pub uses: i64,
    /// Other commands that it can run: duration and exit code.
    pub commands: BTreeMap<String, (u64, i32)>,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            start: 20,
            start_fails: false,
            term: Some((100, 143)),
            runs: Vec::new(),
            repeat: false,
            ready: Some(0),
            hook: (200, 0),
            uses: 0,
            commands: BTreeMap::new(),
        }
    }
}

impl Behaviour {
    /// Parses an annotation.
    ///
    /// # Panics
    /// If the scenario's annotation is wrong.
    pub fn parse(text: &str) -> Self {
        serde_json::from_str(text).unwrap_or_else(|error| panic!("behaviour {text}: {error}"))
    }

    /// The process of an instance.
    ///
    /// # Panics
    /// Never: a restart count fits.
    pub fn process(&self, restart_count: u32, hook_command: Option<&[String]>) -> Process {
        let at = usize::try_from(restart_count).unwrap();
        let beyond = if self.repeat { self.runs.last().copied() } else { None };
        let mut commands = self.commands.clone();
        if let Some(command) = hook_command {
            commands.insert(command.join(" "), self.hook);
        }
        Process {
            start_ms: self.start,
            start_fails: self.start_fails,
            runs: self.runs.get(at).copied().or(beyond).flatten(),
            out_of_memory: false,
            term: self.term,
            needs: 1,
            commands,
            uses: self.uses,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instances_follow_their_list() {
        let one = Behaviour::parse(r#"{"runs":[[5000,1],null],"term":null,"ready":800}"#);
        assert_eq!(one.process(0, None).runs, Some((5000, 1)));
        assert_eq!(one.process(1, None).runs, None);
        assert_eq!((one.process(7, None).runs, one.term, one.ready), (None, None, Some(800)));
        let loops = Behaviour::parse(r#"{"runs":[[10,1]],"repeat":true}"#);
        assert_eq!(loops.process(9, None).runs, Some((10, 1)));
        let hook = ["/bye".to_owned(), "now".to_owned()];
        assert_eq!(loops.process(0, Some(&hook)).commands["/bye now"], (200, 0));
    }
}
