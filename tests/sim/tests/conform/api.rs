use std::collections::BTreeSet;

use pitstop_sim::conform::api::{Model, Scope, Step, differences, run, scripts};
use serde_json::Value;

fn scope(name: &str) -> Scope {
    Scope { namespace: format!("namespace-{name}"), id: format!("id-{name}-") }
}

fn answers(at: &str) -> Vec<Vec<Value>> {
    scripts()
        .iter()
        .map(|script| {
            let scope = scope(at);
            run(script, &scope, &mut Model::new(&scope), &[])
        })
        .collect()
}

#[test]
fn a_script_has_the_same_answers_again_and_elsewhere() {
    let (first, again, elsewhere) = (answers("a"), answers("a"), answers("b"));
    assert_eq!(first, again);
    let found: Vec<String> = scripts()
        .iter()
        .zip(first.iter().zip(&elsewhere))
        .flat_map(|(script, (one, other))| differences(script, one, other))
        .collect();
    assert_eq!(found, Vec::<String>::new());
}

#[test]
fn there_are_enough_scripts_and_they_meet_every_kind_of_answer() {
    let all = scripts();
    assert!(all.len() >= 300, "{}", all.len());
    let names: BTreeSet<&str> = all.iter().map(|script| script.name.as_str()).collect();
    assert_eq!(names.len(), all.len(), "names are unique");
    let mut seen = BTreeSet::new();
    let mut refused = 0;
    let mut requests = 0;
    for (script, results) in all.iter().zip(answers("a")) {
        for (step, result) in script.steps.iter().zip(results) {
            if let (Step::Send(draft), Some(code)) = (step, result["code"].as_u64()) {
                requests += 1;
                refused += usize::from(code >= 300);
                seen.insert(format!("{} {code}", draft.method));
            }
        }
    }
    assert!(refused * 4 > requests && refused * 4 < requests * 3, "{refused} of {requests} are refused");
    for wanted in [
        "POST 201",
        "POST 400",
        "POST 404",
        "POST 405",
        "POST 409",
        "POST 422",
        "PUT 200",
        "PUT 201",
        "PUT 400",
        "PUT 404",
        "PUT 409",
        "PUT 422",
        "PATCH 200",
        "PATCH 400",
        "PATCH 404",
        "PATCH 409",
        "PATCH 415",
        "PATCH 422",
        "DELETE 200",
        "DELETE 404",
        "DELETE 409",
        "DELETE 422",
        "GET 200",
        "GET 400",
        "GET 404",
        "GET 504",
    ] {
        assert!(seen.contains(wanted), "no script is answered {wanted}: {seen:?}");
    }
}
