//! Command-line flags that both programs take.

use std::net::SocketAddr;

use crate::log::{Filter, Format};

/// Flags for logs and metrics; flatten them into a program's own `Args`.
#[derive(clap::Args, Clone, Debug)]
pub struct CommonArgs {
    /// What to log: a level (`error`, `warn`, `info`, `debug`, `trace`) or directives such as `info,pitstop=debug`.
    #[arg(long, env = "PITSTOP_LOG_LEVEL", default_value = "info", value_name = "LEVEL")]
    pub log_level: Filter,

    /// How log lines look.
    #[arg(long, env = "PITSTOP_LOG_FORMAT", default_value = "json", value_enum)]
    pub log_format: Format,

    /// Where to serve `/healthz`, `/readyz` and `/metrics`, as `address:port`.
    #[arg(long, env = "PITSTOP_METRICS_ADDRESS", default_value = "[::]:8080", value_name = "ADDRESS")]
    pub metrics_address: SocketAddr,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(clap::Parser)]
    struct Program {
        #[command(flatten)]
        common: CommonArgs,
    }

    #[test]
    fn defaults_and_overrides() {
        let args = Program::try_parse_from(["p"]).unwrap().common;
        assert_eq!(args.metrics_address.port(), 8080);
        assert_eq!(args.log_format, Format::Json);
        let args = Program::try_parse_from([
            "p",
            "--log-level=debug,hyper=warn",
            "--log-format=text",
            "--metrics-address=127.0.0.1:9",
        ])
        .unwrap()
        .common;
        assert_eq!(args.log_format, Format::Text);
        assert_eq!(args.metrics_address.to_string(), "127.0.0.1:9");
    }

    #[test]
    fn wrong_values_are_refused() {
        assert!(Program::try_parse_from(["p", "--log-level=loud"]).is_err());
        assert!(Program::try_parse_from(["p", "--metrics-address=8080"]).is_err());
    }
}
