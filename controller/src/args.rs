//! Command line.

use std::net::SocketAddr;
use std::time::Duration;

use pitstop_api::text::quoted;
use pitstop_kit::CommonArgs;

/// Restarts containers of running Pods on request.
#[derive(clap::Parser, Debug)]
#[command(version)]
pub struct Args {
    /// Where the admission webhook listens.
    #[arg(long, env = "PITSTOP_WEBHOOK_ADDRESS", default_value = "[::]:9443", value_name = "ADDRESS")]
    pub webhook_address: SocketAddr,

    /// Deadline of requests that name none, for example `90s`, `30m` or `1h`; `0` for none.
    #[arg(long, env = "PITSTOP_DEFAULT_ACTIVE_DEADLINE", default_value = "1h", value_parser = duration, value_name = "DURATION")]
    pub default_active_deadline: Duration,

    /// How many requests of one kind are carried out in a namespace at a time; the others wait with the reason
    /// `TooManyRequests`. `0` for no bound.
    #[arg(
        long,
        env = "PITSTOP_MAX_OPEN_REQUESTS_PER_NAMESPACE",
        default_value_t = 1_000,
        value_name = "NUMBER"
    )]
    pub max_open_requests_per_namespace: usize,

    /// `OpenKruise` is installed in this cluster, and its own controller for `ContainerRecreateRequest`s is off
    /// (feature gate `KruiseDaemon=false`). Without this flag, no request is carried out if there is a sign of Kruise.
    #[arg(long, env = "PITSTOP_KRUISE_CRR_OFF", value_parser = clap::builder::BoolishValueParser::new())]
    pub kruise_crr_off: bool,

    /// If a node's kubelet does not resize Pods, its daemon does. Needs daemons with `--resize`.
    #[arg(long, env = "PITSTOP_RESIZE_CRI", value_parser = clap::builder::BoolishValueParser::new())]
    pub resize_cri: bool,

    /// The namespace that the controller runs in.
    #[arg(long, env = "POD_NAMESPACE", default_value = "pitstop-system")]
    pub namespace: String,

    /// The Pod that the controller runs in.
    #[arg(long, env = "POD_NAME", default_value = "pitstop-controller")]
    pub pod_name: String,

    /// The ServiceAccount that the controller runs as.
    #[arg(long, env = "SERVICE_ACCOUNT", default_value = "pitstop-controller")]
    pub service_account: String,

    /// Logs and metrics.
    #[command(flatten)]
    pub common: CommonArgs,
}

/// Parses `0`, or a whole number with the unit `s`, `m` or `h`.
fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("{} is not a duration such as 0, 90s, 30m or 1h", quoted(text));
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let unit = text.chars().next_back().ok_or_else(wrong)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        _ => return Err(wrong()),
    };
    let number: u64 = text.trim_end_matches(unit).parse().map_err(|_| wrong())?;
    number.checked_mul(seconds).map(Duration::from_secs).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;

    #[test]
    fn kruise_is_off_only_when_it_is_said() {
        let parse = |args: &[&str]| Args::parse_from([&["pitstop-controller"], args].concat()).kruise_crr_off;
        assert!(!parse(&[]));
        assert!(parse(&["--kruise-crr-off"]));
    }

    #[test]
    fn durations() {
        for (text, seconds) in [("0", 0), ("0s", 0), ("90s", 90), ("30m", 1800), ("1h", 3600)] {
            assert_eq!(duration(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "h", "1", "1d", "-1s", "1.5h", "99999999999999999999s", "18446744073709551615h"] {
            assert!(duration(text).is_err(), "{text}");
        }
    }
}
