//! Explores all states of a model, and reports violations.

use std::fmt::Write as _;
use std::hash::Hash;

use stateright::{Checker as _, Expectation, HasDiscoveries, Model};

/// A model that describes its states and actions.
pub trait Story: Model {
    /// Its name and bounds, in one line.
    fn title(&self) -> String;

    /// Describes an action for people.
    fn describe(&self, state: &Self::State, action: &Self::Action) -> String;

    /// Describes a state for people, at the end of a story.
    fn show(&self, state: &Self::State) -> String;
}

/// Options of an exploration.
#[derive(Clone, Copy, Debug)]
pub struct Options {
    /// Threads.
    pub threads: usize,
    /// Longest path; `None` for no limit.
    pub depth: Option<usize>,
}

impl Default for Options {
    fn default() -> Self {
        Self { threads: 2, depth: None }
    }
}

/// A broken promise, or an expected state that is never reached.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The promise.
    pub property: &'static str,
    /// Steps that lead to the violation.
    pub story: String,
}

/// Result of an exploration.
#[derive(Clone, Debug)]
pub struct Report {
    /// The model and its bounds.
    pub title: String,
    /// Transitions taken, and one for each initial state.
    pub states: usize,
    /// Distinct states.
    pub unique: usize,
    /// Longest path explored.
    pub depth: usize,
    /// Broken promises and unreached states.
    pub violations: Vec<Violation>,
}

impl Report {
    /// One line for programs.
    pub fn line(&self) -> String {
        let Self { title, states, unique, depth, violations } = self;
        format!("model={title} states={states} unique={unique} depth={depth} violations={}", violations.len())
    }

    /// Whether that promise is broken.
    pub fn breaks(&self, property: &str) -> bool {
        self.violations.iter().any(|v| v.property == property)
    }

    /// Panics with the stories if there are violations.
    #[track_caller]
    pub fn assert_holds(&self) {
        let stories: Vec<String> =
            self.violations.iter().map(|v| format!("{}\n{}", v.property, v.story)).collect();
        assert!(stories.is_empty(), "{}\n{}", self.line(), stories.join("\n"));
    }
}

/// Visits every reachable state, breadth first, until a promise is broken.
pub fn run<M>(model: M, options: Options) -> Report
where
    M: Story + Send + Sync + 'static,
    M::State: Clone + Hash + PartialEq + Send + Sync + 'static,
    M::Action: Clone + PartialEq + Send + Sync + 'static,
{
    let title = model.title();
    let mut builder = model.checker().threads(options.threads).finish_when(HasDiscoveries::AnyFailures);
    if let Some(depth) = options.depth {
        builder = builder.target_max_depth(depth);
    }
    let checker = builder.spawn_bfs().join();
    let model = checker.model();
    let found = checker.discoveries();
    let mut violations = Vec::new();
    for property in model.properties() {
        let story = match (&property.expectation, found.get(property.name)) {
            (Expectation::Always | Expectation::Eventually, Some(path)) => {
                let path = path.clone().into_vec();
                let mut story = String::new();
                for (at, (state, action)) in path.iter().enumerate() {
                    match action {
                        Some(action) => writeln!(story, "{:4}. {}", at + 1, model.describe(state, action)),
                        None => writeln!(story, "then: {}", model.show(state)),
                    }
                    .unwrap();
                }
                story
            }
            (Expectation::Sometimes, None) => "never happens within the bounds".to_owned(),
            _ => continue,
        };
        violations.push(Violation { property: property.name, story });
    }
    // The search may have ended before it reached an expected state.
    if violations.iter().any(|v| found.contains_key(v.property)) {
        violations.retain(|v| found.contains_key(v.property));
    }
    Report {
        title,
        states: checker.state_count(),
        unique: checker.unique_state_count(),
        depth: checker.max_depth(),
        violations,
    }
}
