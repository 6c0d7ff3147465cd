//! Scripts of API requests, for the model of the API server and for a real API server.
//!
//! A [`Script`] is a list of requests that may use parts of earlier answers. [`run`] sends it to a [`Target`]
//! and returns the answers in a form that can be compared between servers. Tokens replace versions, UIDs and
//! generated names, in order of appearance; one token replaces all times.

mod fixed;
mod generate;
mod model;
mod normal;
mod script;

use http::{Request, Response};
use serde_json::{Value, json};

pub use self::model::Model;
use self::normal::Normal;
pub use self::normal::is_idle;
pub use self::script::{Script, Step};

/// How many scripts are generated, from the seeds 0, 1, 2 ...
const GENERATED: u64 = 300;

/// All scripts: those written by hand, then the generated ones.
pub fn scripts() -> Vec<Script> {
    let mut all = fixed::scripts();
    all.extend((0..GENERATED).map(generate::script));
    all
}

/// The server that runs a script.
pub trait Target {
    /// Sends a request and waits for the answer.
    fn send(&mut self, request: Request<Vec<u8>>) -> Response<Value>;

    /// Opens a watch; returns its number, or the refusal.
    fn watch(&mut self, request: Request<Vec<u8>>) -> Result<usize, Response<Value>>;

    /// All events of a watch since its opening or the last call. `expected` is their number, if the caller
    /// knows it: a real server needs time to send them.
    fn events(&mut self, watch: usize, expected: usize) -> Vec<Value>;
}

/// Where a script runs. No two runs may share a scope.
#[derive(Clone, Debug)]
pub struct Scope {
    /// The namespace; it exists.
    pub namespace: String,
    /// Prefix of the names of cluster-scoped objects.
    pub id: String,
}

/// Runs a script; returns one value per step. `expected` holds the number of events of each step, if known.
pub fn run(script: &Script, scope: &Scope, target: &mut dyn Target, expected: &[usize]) -> Vec<Value> {
    let mut answers: Vec<Value> = Vec::new();
    let mut watches: Vec<Option<usize>> = Vec::new();
    let mut normal = Normal::new(scope);
    let mut results = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        let (answer, result) = match step {
            Step::Send(request) => {
                let response = target.send(request.build(scope, &answers));
                let result = normal.answer(request, response.status().as_u16(), response.body());
                (response.into_body(), result)
            }
            Step::Watch(request) => match target.watch(request.build(scope, &answers)) {
                Ok(watch) => {
                    watches.push(Some(watch));
                    (Value::Null, json!("open"))
                }
                Err(response) => {
                    watches.push(None);
                    let result = normal.answer(request, response.status().as_u16(), response.body());
                    (response.into_body(), result)
                }
            },
            Step::Events(number) => {
                let count = expected.get(index).copied().unwrap_or_default();
                let events = watches[*number].map(|watch| target.events(watch, count)).unwrap_or_default();
                (Value::Null, normal.events(&events))
            }
        };
        answers.push(answer);
        results.push(result);
    }
    results
}

/// The number of events in each step of a result, as input for [`run`].
pub fn expected(results: &[Value]) -> Vec<usize> {
    results.iter().map(|result| result.as_array().map_or(0, Vec::len)).collect()
}

/// Differences between two results of a script, step by step; empty if they are equal.
pub fn differences(script: &Script, model: &[Value], real: &[Value]) -> Vec<String> {
    let mut all = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        let (ours, theirs) = (&model[index], &real[index]);
        if ours != theirs {
            all.push(format!(
                "{} step {index}: {step}\n    model: {ours}\n    real:  {theirs}\n    at:    {}",
                script.name,
                normal::first_difference(ours, theirs)
            ));
        }
    }
    all
}
