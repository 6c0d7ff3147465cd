//! Log lines on standard output, one JSON object each.

use std::str::FromStr;

use tracing::{Level, level_filters::LevelFilter};
use tracing_subscriber::{filter::Targets, layer::SubscriberExt, util::SubscriberInitExt};

/// How log lines look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// One JSON object per line.
    Json,
    /// For people at a terminal.
    Text,
}

/// Which events are logged: a level, or a comma-separated list of `target=level`.
#[derive(Clone, Debug)]
pub struct Filter(Targets);

/// Text that is no level and no list of directives.
#[derive(Debug, thiserror::Error)]
#[error("neither a level (error, warn, info, debug, trace, off) nor a list such as `info,pitstop_kit=debug`")]
pub struct FilterError;

impl FromStr for Filter {
    type Err = FilterError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // `Targets` takes a word that is no level for a target, and would then silently disable all other targets.
        let is_level = |part: &str| part.parse::<LevelFilter>().is_ok();
        if text.split(',').any(|part| !part.contains('=') && !is_level(part)) {
            return Err(FilterError);
        }
        let mut targets: Targets = text.parse().map_err(|_| FilterError)?;
        // The client reports each failed attempt at error level. `watch` and the executors count failures, and log each
        // change once.
        for noisy in ["kube_client", "kube_runtime"] {
            if !text.contains(noisy) && !targets.would_enable(noisy, &Level::DEBUG) {
                targets = targets.with_target(noisy, LevelFilter::OFF);
            }
        }
        Ok(Self(targets))
    }
}

/// Sends log lines to standard output from now on.
///
/// Later calls do nothing: the first one decides.
pub fn init(filter: &Filter, format: Format) {
    let registry = tracing_subscriber::registry().with(filter.0.clone());
    let installed = match format {
        Format::Json => registry
            .with(
                tracing_subscriber::fmt::layer()
                    .json()
                    .flatten_event(true)
                    .with_current_span(true)
                    .with_span_list(false),
            )
            .try_init(),
        Format::Text => registry.with(tracing_subscriber::fmt::layer()).try_init(),
    };
    if installed.is_err() {
        tracing::debug!("logging was set up before");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enabled(filter: &str, target: &str, level: Level) -> bool {
        filter.parse::<Filter>().unwrap().0.would_enable(target, &level)
    }

    #[test]
    fn a_level_applies_to_all_but_the_client() {
        assert!(enabled("info", "pitstop_controller", Level::INFO));
        assert!(!enabled("info", "pitstop_controller", Level::DEBUG));
        assert!(!enabled("info", "kube_client::client::builder", Level::ERROR));
        assert!(enabled("debug", "kube_client::client::builder", Level::DEBUG));
        assert!(enabled("info,kube_client=warn", "kube_client", Level::WARN));
    }

    #[test]
    fn directives_apply_to_their_target() {
        assert!(enabled("warn,pitstop_kit=debug", "pitstop_kit::watch", Level::DEBUG));
        assert!(!enabled("warn,pitstop_kit=debug", "pitstop_daemon", Level::INFO));
        assert!(!enabled("off", "pitstop_daemon", Level::ERROR));
        assert!("loud".parse::<Filter>().is_err());
        assert!("info,pitstop=loud".parse::<Filter>().is_err());
    }
}
