//! Scripts of API requests, for the model of the API server and for the real one.
//!
//! A [`Script`] is a list of requests that may use what earlier answers held. [`run`] sends it to a [`Target`] and gives
//! back the answers in a form in which those of two servers can be compared: versions, UIDs and generated names are
//! replaced by tokens in the order in which they appear, times by one token.

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

/// What scripts are sent to.
pub trait Target {
    /// Sends a request and waits for the answer.
    fn send(&mut self, request: Request<Vec<u8>>) -> Response<Value>;

    /// Opens a watch; its number, or the refusal.
    fn watch(&mut self, request: Request<Vec<u8>>) -> Result<usize, Response<Value>>;

    /// All events of a watch since it was opened or asked last. `expected` is how many there are, when the caller knows:
    /// a real server needs time to send them.
    fn events(&mut self, watch: usize, expected: usize) -> Vec<Value>;
}

/// Where a run of a script takes place. No two runs may share one.
#[derive(Clone, Debug)]
pub struct Place {
    /// The namespace, which is there.
    pub namespace: String,
    /// What names of objects without a namespace begin with.
    pub id: String,
}

/// Runs a script; one value per step. `expected` holds how many events each step gets, where that is known.
pub fn run(script: &Script, place: &Place, target: &mut dyn Target, expected: &[usize]) -> Vec<Value> {
    let mut answers: Vec<Value> = Vec::new();
    let mut watches: Vec<Option<usize>> = Vec::new();
    let mut normal = Normal::new(place);
    let mut results = Vec::new();
    for (index, step) in script.steps.iter().enumerate() {
        let (answer, result) = match step {
            Step::Send(request) => {
                let response = target.send(request.build(place, &answers));
                let result = normal.answer(request, response.status().as_u16(), response.body());
                (response.into_body(), result)
            }
            Step::Watch(request) => match target.watch(request.build(place, &answers)) {
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

/// How many events each step of a result holds, as [`run`] takes it.
pub fn expected(results: &[Value]) -> Vec<usize> {
    results.iter().map(|result| result.as_array().map_or(0, Vec::len)).collect()
}

/// What differs between two results of a script, step by step; nothing when they are equal.
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
