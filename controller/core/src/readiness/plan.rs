//! From the wanted holds to the conditions to write.

use std::collections::BTreeSet;

use super::{Gate, GateChange, Hold, holds};

/// The conditions to write so that every gate has exactly `wanted` of our holds.
///
/// Holds of other writers stay. Our unwanted holds are dropped, whoever wrote them: this removes holds of requests that
/// no longer exist. A gate without a condition gets one, because its Pod would otherwise never be ready. A message that
/// is not a list of holds belongs to another writer, and stays.
pub fn plan(gates: &[Gate], wanted: &BTreeSet<Hold>) -> Vec<GateChange> {
    gates.iter().filter_map(|gate| change(gate, wanted)).collect()
}

fn change(gate: &Gate, wanted: &BTreeSet<Hold>) -> Option<GateChange> {
    let stored = match &gate.condition {
        Some(condition) => holds(&condition.message)?,
        None => Vec::new(),
    };
    let others = stored.iter().filter(|h| !h.is_ours());
    let holds: BTreeSet<&Hold> = others.chain(wanted).collect();
    let open = holds.is_empty();
    let before = gate.condition.as_ref().map(|c| c.open);
    if before == Some(open) && stored.iter().collect::<BTreeSet<_>>() == holds {
        return None;
    }
    let message = serde_json::to_string(&holds).ok()?;
    Some(GateChange { type_: gate.type_.clone(), open, message, transition: before != Some(open) })
}

#[cfg(test)]
mod tests {
    use pitstop_api::readiness::MAX_HOLDS;

    use super::super::{GateCondition, KRUISE_POD_READY, RECREATE_AGENT, UPDATE_AGENT};
    use super::*;

    fn ours(name: &str) -> Hold {
        Hold { user_agent: RECREATE_AGENT.into(), key: format!("shop/{name}") }
    }

    fn gate(condition: Option<(bool, &str)>) -> Gate {
        let condition = condition.map(|(open, message)| GateCondition { open, message: message.into() });
        Gate { type_: KRUISE_POD_READY.into(), condition }
    }

    fn planned(condition: Option<(bool, &str)>, wanted: &[&str]) -> Option<(bool, String, bool)> {
        let wanted = wanted.iter().map(|name| ours(name)).collect();
        let mut changes = plan(&[gate(condition)], &wanted);
        assert!(changes.len() <= 1);
        changes.pop().map(|c| (c.open, c.message, c.transition))
    }

    const HELD: &str = r#"[{"userAgent":"ContainerRecreateRequest","key":"shop/crr"}]"#;
    const OTHER: &str = r#"{"userAgent":"Advanced","key":"shop/x"}"#;

    #[test]
    fn a_gate_without_a_condition_opens() {
        assert_eq!(planned(None, &[]), Some((true, "[]".into(), true)));
        assert_eq!(planned(None, &["crr"]), Some((false, HELD.into(), true)));
    }

    #[test]
    fn what_stands_already_is_not_written() {
        assert_eq!(planned(Some((true, "[]")), &[]), None);
        assert_eq!(planned(Some((true, "")), &[]), None);
        assert_eq!(planned(Some((false, HELD)), &["crr"]), None);
    }

    /// D24: `OpenKruise` does nothing when the key is in the message of a condition that is True.
    #[test]
    fn d24_a_true_condition_that_lists_the_key_is_repaired() {
        assert_eq!(planned(Some((true, HELD)), &["crr"]), Some((false, HELD.into(), true)));
    }

    #[test]
    fn a_false_condition_that_nobody_holds_opens() {
        assert_eq!(planned(Some((false, "[]")), &[]), Some((true, "[]".into(), true)));
    }

    /// D23: the key of a request that no longer exists comes off.
    #[test]
    fn d23_a_hold_that_nobody_wants_is_released() {
        assert_eq!(planned(Some((false, HELD)), &[]), Some((true, "[]".into(), true)));
        let (open, message, transition) = planned(Some((false, HELD)), &["b", "a"]).unwrap();
        let both = r#"[{"userAgent":"ContainerRecreateRequest","key":"shop/a"},{"userAgent":"ContainerRecreateRequest","key":"shop/b"}]"#;
        assert_eq!((open, message.as_str(), transition), (false, both, false));
    }

    #[test]
    fn the_hold_of_an_update_of_images_comes_off_like_that_of_a_restart() {
        let held = format!(r#"[{{"userAgent":"{UPDATE_AGENT}","key":"shop/piu"}}]"#);
        assert_eq!(planned(Some((false, &held)), &[]), Some((true, "[]".into(), true)));
        assert_eq!(planned(Some((false, &held)), &["crr"]), Some((false, HELD.into(), false)));
    }

    #[test]
    fn holds_of_others_stay() {
        let stored = format!("[{OTHER}]");
        assert_eq!(planned(Some((false, &stored)), &[]), None);
        let (open, message, transition) = planned(Some((false, &stored)), &["crr"]).unwrap();
        let both = format!("[{OTHER},{}]", HELD.trim_matches(['[', ']']));
        assert_eq!((open, message.as_str(), transition), (false, both.as_str(), false));
        assert_eq!(planned(Some((false, &both)), &[]), Some((false, stored, false)));
    }

    #[test]
    fn a_message_that_is_no_list_is_left_alone() {
        assert_eq!(planned(Some((false, "maintenance")), &["crr"]), None);
        assert!(gate(Some((false, "maintenance"))).foreign());
        assert!(
            !gate(Some((false, HELD))).foreign()
                && !gate(Some((true, ""))).foreign()
                && !gate(None).foreign()
        );
        assert_eq!(planned(Some((false, &held_by_others(MAX_HOLDS + 1))), &["crr"]), None);
    }

    fn held_by_others(number: usize) -> String {
        let hold = |n| Hold { user_agent: "Advanced".into(), key: format!("shop/{n:03}") };
        serde_json::to_string(&(0..number).map(hold).collect::<Vec<_>>()).unwrap()
    }

    #[test]
    fn a_hold_beside_as_many_of_others_as_are_read_comes_off_again() {
        let full = held_by_others(MAX_HOLDS);
        let (open, held, _) = planned(Some((false, &full)), &["crr"]).unwrap();
        assert!(!open && gate(Some((false, &held))).held_by(&ours("crr")));
        assert_eq!(planned(Some((false, &held)), &[]), Some((false, full, false)));
    }

    #[test]
    fn a_hold_counts_only_in_a_false_condition() {
        assert!(gate(Some((false, HELD))).held_by(&ours("crr")));
        assert!(!gate(Some((true, HELD))).held_by(&ours("crr")));
        assert!(!gate(Some((false, HELD))).held_by(&ours("other")));
        assert!(!gate(None).held_by(&ours("crr")));
    }
}
