//! The strategy of a rollout, as far as a command sets it. Other fields stay as they are.

use pitstop_api::rollout::{OnFailure, Share};
use serde_json::{Map, Value, json};

/// Fields of `spec.strategy`.
#[derive(Clone, Debug, Default)]
pub struct StrategyOptions {
    /// How many Pods may be unavailable.
    pub max_unavailable: Option<Share>,
    /// Seconds out of service before the first stop.
    pub drain: Option<i64>,
    /// How many Pods go first.
    pub canary: Option<i32>,
    /// Seconds for which a Pod must have run before it counts.
    pub soak: Option<i64>,
    /// What happens when Pods have failed.
    pub on_failure: Option<OnFailure>,
}

impl StrategyOptions {
    /// The fields that are set.
    pub fn fields(&self) -> Map<String, Value> {
        let fields = [
            ("maxUnavailable", self.max_unavailable.as_ref().map(|share| json!(share))),
            ("unreadyGracePeriodSeconds", self.drain.map(Value::from)),
            ("canary", self.canary.map(|pods| json!({"pods": pods}))),
            ("soakSeconds", self.soak.map(Value::from)),
            ("onFailure", self.on_failure.map(|it| json!(it))),
        ];
        fields.into_iter().filter_map(|(field, value)| Some((field.to_owned(), value?))).collect()
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use pitstop_api::rollout::Strategy;

    use super::*;

    #[test]
    fn fields_have_the_names_of_the_api() {
        assert_eq!(StrategyOptions::default().fields(), Map::new());
        let options = StrategyOptions {
            max_unavailable: Some(Share(IntOrString::String("25%".into()))),
            drain: Some(5),
            canary: Some(2),
            soak: Some(30),
            on_failure: Some(OnFailure::RollBack),
        };
        let read: Strategy = serde_json::from_value(options.fields().into()).unwrap();
        assert_eq!(read.max_unavailable, options.max_unavailable);
        assert_eq!((read.unready_grace_period_seconds, read.soak_seconds), (Some(5), Some(30)));
        assert_eq!(read.canary.map(|canary| canary.pods), Some(2));
        assert_eq!(read.on_failure, OnFailure::RollBack);
    }
}
