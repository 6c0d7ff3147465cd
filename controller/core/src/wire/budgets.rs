//! Disruption budgets, as far as rollouts look at them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kube::core::{Selector, SelectorExt as _};
use serde::Deserialize;

use crate::workload::Budget;

/// A `PodDisruptionBudget`.
#[derive(Deserialize)]
pub(super) struct SlimBudget {
    metadata: ObjectMeta,
    #[serde(default)]
    spec: SlimBudgetSpec,
    #[serde(default)]
    status: SlimBudgetStatus,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct SlimBudgetSpec {
    selector: Option<LabelSelector>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SlimBudgetStatus {
    observed_generation: i64,
    desired_healthy: i64,
    current_healthy: i64,
    expected_pods: i64,
}

impl SlimBudget {
    /// The budget and its selector. An absent selector selects no Pod, an empty one all. An unreadable one selects
    /// none, as for the budget's own controller.
    pub(super) fn read(self) -> Option<(Selector, Budget)> {
        let Self { metadata, spec, status } = self;
        let selector: Selector = spec.selector?.try_into().ok()?;
        let observed = metadata.generation.unwrap_or_default() <= status.observed_generation;
        let count = |number: i64| u32::try_from(number).unwrap_or_default();
        let budget = Budget {
            name: metadata.name.unwrap_or_default(),
            desired_healthy: observed.then(|| count(status.desired_healthy)),
            healthy: count(status.current_healthy),
            expected: count(status.expected_pods),
            partial: false,
        };
        Some((selector, budget))
    }

    /// The budget, if it selects Pods with these labels.
    pub(super) fn of(self, labels: &BTreeMap<String, String>) -> Option<Budget> {
        self.read().filter(|(selector, _)| selector.matches(labels)).map(|(_, budget)| budget)
    }
}

/// Budgets of a namespace, and how many of the counted Pods each selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pods: usize,
    budgets: Vec<(Selector, Budget, usize)>,
}

impl Counted {
    /// Number of budgets.
    pub(super) fn len(&self) -> usize {
        self.budgets.len()
    }

    /// Adds budgets, before any Pod.
    pub(super) fn take(&mut self, budgets: Vec<SlimBudget>) {
        let read = budgets.into_iter().filter_map(SlimBudget::read);
        self.budgets.extend(read.map(|(selector, budget)| (selector, budget, 0)));
    }

    /// Counts a Pod with these labels.
    pub(super) fn count(&mut self, labels: &BTreeMap<String, String>) {
        self.pods = self.pods.saturating_add(1);
        for (_, _, pods) in self.budgets.iter_mut().filter(|(selector, ..)| selector.matches(labels)) {
            *pods = pods.saturating_add(1);
        }
    }

    /// The budgets that select any counted Pod.
    pub(super) fn found(&self) -> Vec<Budget> {
        let any = self.budgets.iter().filter(|(_, _, pods)| *pods > 0);
        any.map(|(_, budget, pods)| Budget { partial: *pods < self.pods, ..budget.clone() }).collect()
    }
}
