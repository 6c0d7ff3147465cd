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
    /// It, and which labels it selects. An absent selector selects none, an empty one all. One that cannot be read is for nobody:
    /// neither does its own controller count by it.
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

    /// It, if it selects Pods of these labels.
    pub(super) fn of(self, labels: &BTreeMap<String, String>) -> Option<Budget> {
        self.read().filter(|(selector, _)| selector.matches(labels)).map(|(_, budget)| budget)
    }
}

/// Budgets of a namespace, and how many of some Pods each selects.
#[derive(Clone, Debug, Default)]
pub(super) struct Counted {
    pods: usize,
    budgets: Vec<(Selector, Budget, usize)>,
}

impl Counted {
    /// So many they are.
    pub(super) fn len(&self) -> usize {
        self.budgets.len()
    }

    /// Takes budgets in, before any Pod.
    pub(super) fn take(&mut self, budgets: Vec<SlimBudget>) {
        let read = budgets.into_iter().filter_map(SlimBudget::read);
        self.budgets.extend(read.map(|(selector, budget)| (selector, budget, 0)));
    }

    /// Counts a Pod of these labels.
    pub(super) fn count(&mut self, labels: &BTreeMap<String, String>) {
        self.pods = self.pods.saturating_add(1);
        for (_, _, pods) in self.budgets.iter_mut().filter(|(selector, ..)| selector.matches(labels)) {
            *pods = pods.saturating_add(1);
        }
    }

    /// Those that select any of the Pods.
    pub(super) fn found(&self) -> Vec<Budget> {
        let any = self.budgets.iter().filter(|(_, _, pods)| *pods > 0);
        any.map(|(_, budget, pods)| Budget { partial: *pods < self.pods, ..budget.clone() }).collect()
    }
}
