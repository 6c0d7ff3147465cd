//! Pods that are chosen by labels: one rollout restarts them, in order and within a budget.

use std::collections::BTreeMap;

use pitstop_api::rollout::{InPlaceRollout, InPlaceRolloutSpec, PodSelector};
use pitstop_api::text::quoted;

/// Reads `app=web,tier=front`. A rollout selects by equality alone.
pub fn labels(text: &str) -> Result<BTreeMap<String, String>, String> {
    let wrong = || {
        format!(
            "{} is not a selector of a rollout: write labels and their values, such as app=web,tier=front",
            quoted(text)
        )
    };
    text.split(',')
        .map(|part| {
            let (name, value) = part.split_once('=').ok_or_else(wrong)?;
            let (name, value) = (name.trim(), value.strip_prefix('=').unwrap_or(value).trim());
            let plain = !name.is_empty() && !name.ends_with('!') && !value.contains(['=', ' ']);
            plain.then(|| (name.to_owned(), value.to_owned())).ok_or_else(wrong)
        })
        .collect()
}

/// The rollout of `all` that selects exactly those labels; of several, the one that acts.
pub fn existing(labels: &BTreeMap<String, String>, all: Vec<InPlaceRollout>) -> Option<InPlaceRollout> {
    let same = |rollout: &InPlaceRollout| {
        rollout.spec.selector.as_ref().is_some_and(|selector| selector.match_labels == *labels)
    };
    crate::rollouts::oldest_first(all.into_iter().filter(same).collect()).into_iter().next()
}

/// A rollout that does nothing yet; the API server generates its name from a label's value.
pub fn new(labels: BTreeMap<String, String>) -> InPlaceRollout {
    let value = labels.values().next().map_or("", String::as_str).to_ascii_lowercase();
    let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let value: String = value.chars().map(|c| if plain(c) { c } else { '-' }).take(50).collect();
    let value = value.trim_matches('-');
    let prefix = if value.is_empty() { "selected" } else { value };
    let selector = Some(PodSelector { match_labels: labels });
    let mut made = InPlaceRollout::new("", InPlaceRolloutSpec { selector, ..InPlaceRolloutSpec::default() });
    made.metadata.name = None;
    made.metadata.generate_name = Some(format!("{prefix}-"));
    made
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::rollouts::tests::{for_deployment, rollout};

    fn of(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn labels_and_their_values_are_read() {
        assert_eq!(labels("app=web, tier==front"), Ok(of(&[("app", "web"), ("tier", "front")])));
        assert_eq!(labels("a.b/c="), Ok(of(&[("a.b/c", "")])));
        for text in ["", "app", "app!=web", "app in (a,b)", "=web", "app===web"] {
            assert!(labels(text).unwrap_err().contains("write labels and their values"), "{text}");
        }
    }

    #[test]
    fn the_same_labels_are_the_same_rollout() {
        let selects = |labels: &BTreeMap<String, String>| json!({"selector": {"matchLabels": labels}});
        let (web, more) = (of(&[("app", "web")]), of(&[("app", "web"), ("tier", "front")]));
        let all = vec![
            rollout("more", "01", &selects(&more)),
            rollout("late", "09", &selects(&web)),
            rollout("early", "05", &selects(&web)),
            rollout("workload", "00", &for_deployment("web")),
        ];
        assert_eq!(existing(&web, all.clone()).unwrap().metadata.name.as_deref(), Some("early"));
        assert_eq!(existing(&of(&[("app", "db")]), all), None);
    }

    #[test]
    fn a_new_one_is_named_after_a_label() {
        for (value, name) in
            [("web", "web-"), ("Web_1.x", "web-1-x-"), ("", "selected-"), ("__", "selected-")]
        {
            let made = serde_json::to_value(new(of(&[("app", value)]))).unwrap();
            assert_eq!(made["metadata"], json!({"generateName": name}));
            assert_eq!(
                made["spec"],
                json!({"selector": {"matchLabels": {"app": value}}, "templateChanges": "Native"})
            );
        }
    }
}
