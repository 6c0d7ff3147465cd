//! The sequence of reads, and their meaning.

use chrono::DateTime;
use serde_json::{Value, json};

use super::*;
use crate::action::{Action, Event};
use crate::key::ObjectKey;
use crate::outcome::Outcome;
use crate::wire::{Exchange, Over, Step};

fn begin() -> Step {
    let action = Action::Survey { key: ObjectKey::new("shop", "node1") };
    Exchange::begin(action, DateTime::UNIX_EPOCH).unwrap()
}

fn over(step: Step) -> Over {
    match step {
        Step::Over(over) => *over,
        Step::Send(request, _) => panic!("{request:?}"),
    }
}

/// Gives these answers in turn. Returns the requests and the end.
fn run(answers: &[Answer]) -> (Vec<String>, Over) {
    let (mut step, mut asked) = (begin(), Vec::new());
    for answer in answers {
        let Step::Send(request, exchange) = step else { panic!("{step:?}") };
        assert_eq!((request.method().as_str(), request.body().len()), ("GET", 0));
        asked.push(request.uri().to_string());
        step = exchange.answered(answer.clone());
    }
    (asked, over(step))
}

fn body(value: &Value) -> Answer {
    Answer::Body(value.to_string())
}

fn outcome(answers: &[Answer]) -> Outcome<Survey> {
    let Event::Surveyed { key, outcome } = run(answers).1.event else { panic!() };
    assert_eq!(key, ObjectKey::new("shop", "node1"));
    outcome
}

fn found(answers: &[Answer]) -> Survey {
    match outcome(answers) {
        Outcome::Written(survey) => survey,
        other => panic!("{other:?}"),
    }
}

fn nothing() -> Answer {
    body(&json!({"kind": "List", "metadata": {"resourceVersion": "7"}, "items": []}))
}

fn node() -> Answer {
    body(&json!({"metadata": {"name": "node1", "labels": {"a": "b"}}, "spec": {"podCIDR": "x"},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3800m", "memory": "2Gi", "pods": "110"}}}))
}

#[test]
fn a_survey_reads_limit_ranges_quotas_and_the_node() {
    let (asked, over) = run(&[nothing(), nothing(), node()]);
    assert_eq!(asked.len(), 3);
    assert!(asked[0].starts_with("/api/v1/namespaces/shop/limitranges?"), "{asked:?}");
    assert!(asked[1].starts_with("/api/v1/namespaces/shop/resourcequotas?"), "{asked:?}");
    assert!(asked[..2].iter().all(|uri| uri.contains("limit=64")), "{asked:?}");
    assert_eq!(asked[2].trim_end_matches('?'), "/api/v1/nodes/node1");
    assert_eq!((over.name, over.object.as_str(), over.failure), ("survey", "shop/node1", None));
    let survey = found(&[nothing(), nothing(), node()]);
    let allocatable = Amounts { cpu: Some(3800), memory: Some(2 << 30) };
    assert_eq!(survey, Survey { allocatable, ..Survey::default() });
}

#[test]
fn limit_ranges_are_understood() {
    let ranges = body(&json!({"items": [
        {"metadata": {"name": "a"}, "spec": {"limits": [
            {"type": "Container", "max": {"cpu": "1", "memory": "1Gi", "ephemeral-storage": "1Gi"},
             "min": {"cpu": "50m"}, "default": {"cpu": "1"}, "maxLimitRequestRatio": {"cpu": "1500m", "memory": "2"}},
            {"type": "PersistentVolumeClaim", "max": {"storage": "1Gi"}}]}},
        {"metadata": {"name": "b"}, "spec": {"limits": [{"type": "Pod", "max": {"cpu": "2"}}]}},
        {"metadata": {"name": "c"}}]}));
    let survey = found(&[ranges, nothing(), node()]);
    let (none, cpu) = (Amounts::default(), |cpu| Amounts { cpu: Some(cpu), memory: None });
    let container = Limit {
        type_: LimitType::Container,
        min: cpu(50),
        max: Amounts { cpu: Some(1000), memory: Some(1 << 30) },
        max_ratio: Amounts { cpu: Some(1500), memory: Some(2000) },
    };
    let pod = Limit { type_: LimitType::Pod, min: none, max: cpu(2000), max_ratio: none };
    assert_eq!(survey.limits, [container, pod]);
}

#[test]
fn quotas_are_understood() {
    let quotas = body(&json!({"items": [
        {"metadata": {"name": "a", "namespace": "shop"},
         "spec": {"hard": {"cpu": "9"}, "scopes": ["NotTerminating", "NotBestEffort", "CrossNamespacePodAffinity"]},
         "status": {"hard": {"requests.cpu": "2", "limits.memory": "1Gi", "pods": "4"}, "used": {"requests.cpu": "300m"}}},
        {"metadata": {"name": "b"}, "spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "In", "values": ["high"]},
            {"scopeName": "PriorityClass", "operator": "Like", "values": ["low"]},
            {"scopeName": "Terminating", "operator": "Exists"}]}}},
        {"metadata": {"name": "c"}, "spec": {"scopeSelector": {"matchExpressions": [
            {"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]},
            {"scopeName": "PriorityClass", "operator": "DoesNotExist"},
            {"scopeName": "BestEffort", "operator": "Exists"}]}}}]}));
    let survey = found(&[nothing(), quotas, node()]);
    let bounds = vec![
        QuotaBound { counted: ResourceName::LimitsMemory, hard: 1 << 30, used: None },
        QuotaBound { counted: ResourceName::RequestsCpu, hard: 2000, used: Some(300) },
    ];
    let scopes = vec![Scope::Terminating(false), Scope::BestEffort(false)];
    let high = || vec!["high".to_owned()];
    assert_eq!(
        survey.quotas,
        [
            Quota { name: "a".into(), scopes, bounds },
            Quota {
                name: "b".into(),
                scopes: vec![Scope::PriorityIn(high()), Scope::Terminating(true)],
                bounds: vec![]
            },
            Quota {
                name: "c".into(),
                scopes: vec![
                    Scope::PriorityNotIn(high()),
                    Scope::Prioritized(false),
                    Scope::BestEffort(true)
                ],
                bounds: vec![]
            },
        ]
    );
}

#[test]
fn what_is_missing_is_said() {
    let failed = |code, text: &str| Answer::Failed(Failure::of_code(code, text));
    let forbidden = "limitranges is forbidden: User \"x\" cannot list resource \"limitranges\"";
    for before in [vec![], vec![nothing()], vec![nothing(), nothing()]] {
        let right = ["list limitranges", "list resourcequotas", "get nodes"][before.len()];
        let mut answers = before.clone();
        answers.push(failed(403, forbidden));
        let Outcome::Refused(text) = outcome(&answers) else { panic!("{right}") };
        assert!(
            text.contains(&format!("needs the right to {right}")) && text.contains("resize-cri"),
            "{text}"
        );
        answers.pop();
        answers.push(failed(503, "busy"));
        assert!(matches!(outcome(&answers), Outcome::Retry));
        answers.pop();
        answers.push(Answer::Body("no JSON".into()));
        assert!(matches!(outcome(&answers), Outcome::Retry));
    }
    assert!(matches!(
        outcome(&[nothing(), nothing(), failed(404, "nodes \"node1\" not found")]),
        Outcome::Gone
    ));
}

#[test]
fn a_namespace_with_more_than_is_read_is_not_taken_for_one_with_less() {
    let more = body(&json!({"metadata": {"continue": "token"}, "items": []}));
    for answers in [vec![more.clone()], vec![nothing(), more]] {
        let Outcome::Refused(text) = outcome(&answers) else { panic!() };
        assert!(text.contains("more than 64"), "{text}");
    }
}
