//! The list of holds in the message of a Pod's readiness condition, which several writers share.

use std::collections::BTreeSet;

use pitstop_controller_core::readiness::{
    Gate, GateChange, GateCondition, Hold, KRUISE_POD_READY, RECREATE_AGENT, plan,
};

use crate::texts;

/// Input: a byte, then the message. The byte's highest bit says whether the condition is True, the lowest three which
/// holds are wanted.
pub fn readiness_keys(input: &[u8]) {
    let Some((first, message)) = input.split_first() else { return };
    let Some([message]) = texts(message) else { return };
    let holds = ["a", "b", "c"]
        .map(|name| Hold { user_agent: RECREATE_AGENT.to_owned(), key: format!("shop/{name}") });
    let wanted: BTreeSet<Hold> = holds
        .into_iter()
        .enumerate()
        .filter(|(bit, _)| first & (1 << bit) != 0)
        .map(|(_, hold)| hold)
        .collect();
    let condition = GateCondition { open: first & 0x80 != 0, message: message.to_owned() };
    let gate = Gate { type_: KRUISE_POD_READY.to_owned(), condition: Some(condition) };
    let changes = plan(std::slice::from_ref(&gate), &wanted);
    if gate.foreign() {
        assert_eq!(changes, [], "a message that is somebody else's");
        return;
    }
    let held = written(&gate, &changes);
    assert!(!held.foreign(), "what was written is not understood any more");
    assert_eq!(plan(std::slice::from_ref(&held), &wanted), [], "planning again plans something");
    for hold in &wanted {
        assert!(held.held_by(hold), "{hold:?} holds nothing");
    }
    let before = others(&gate);
    assert_eq!(others(&held), before, "the holds of others");
    let released = written(&held, &plan(std::slice::from_ref(&held), &BTreeSet::new()));
    assert_eq!(list(&released), before, "ours do not come off");
    let open = released.condition.as_ref().is_some_and(|c| c.open);
    assert_eq!(open, before.is_empty(), "a Pod that nobody holds is in service");
}

fn written(gate: &Gate, changes: &[GateChange]) -> Gate {
    let Some(change) = changes.first() else { return gate.clone() };
    assert_eq!((changes.len(), &change.type_), (1, &gate.type_));
    let was = gate.condition.as_ref().map(|c| c.open);
    assert_eq!(change.transition, was != Some(change.open));
    let condition = GateCondition { open: change.open, message: change.message.clone() };
    Gate { condition: Some(condition), ..gate.clone() }
}

fn list(gate: &Gate) -> BTreeSet<Hold> {
    let message = gate.condition.as_ref().map_or("", |c| &c.message);
    if message.is_empty() { BTreeSet::new() } else { serde_json::from_str(message).unwrap() }
}

fn others(gate: &Gate) -> BTreeSet<Hold> {
    list(gate).into_iter().filter(|hold| hold.user_agent != RECREATE_AGENT).collect()
}
