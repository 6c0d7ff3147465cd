//! The command line.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser};

use crate::commands::Command;

/// Services running Pods in place: same Pod, same node, same IP, same volumes.
#[derive(Debug, Parser)]
#[command(name = "kubectl-pitstop", bin_name = "kubectl pitstop", version, max_term_width = 100)]
pub struct Cli {
    /// The flags of every command.
    #[command(flatten)]
    pub globals: Globals,
    /// The command.
    #[command(subcommand)]
    pub command: Command,
}

/// kubectl's global flags, with kubectl's names and meanings.
#[derive(Args, Clone, Debug, Default)]
#[command(next_help_heading = "Options of kubectl")]
pub struct Globals {
    /// The kubeconfig file. Default: the files in KUBECONFIG, or ~/.kube/config.
    #[arg(long, global = true, value_name = "FILE")]
    pub kubeconfig: Option<PathBuf>,
    /// The context of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub context: Option<String>,
    /// The cluster of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub cluster: Option<String>,
    /// The user of the kubeconfig.
    #[arg(long, global = true, value_name = "NAME")]
    pub user: Option<String>,
    /// The namespace. Default: the namespace of the context, or `default`.
    #[arg(short, long, global = true, value_name = "NAME")]
    pub namespace: Option<String>,
    /// The address of the API server.
    #[arg(short, long, global = true, value_name = "URL")]
    pub server: Option<String>,
    /// A bearer token for the API server.
    #[arg(long, global = true, value_name = "TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Act as this user.
    #[arg(long = "as", global = true, value_name = "USER")]
    pub as_user: Option<String>,
    /// Act as a member of this group; can be repeated. Needs `--as`.
    #[arg(long = "as-group", global = true, value_name = "GROUP")]
    pub as_group: Vec<String>,
    /// A file with the certificate authority of the API server.
    #[arg(long, global = true, value_name = "FILE")]
    pub certificate_authority: Option<PathBuf>,
    /// A file with the client's certificate.
    #[arg(long, global = true, value_name = "FILE")]
    pub client_certificate: Option<PathBuf>,
    /// A file with the key of the client's certificate.
    #[arg(long, global = true, value_name = "FILE")]
    pub client_key: Option<PathBuf>,
    /// Do not verify the API server's certificate. Others can then read and change the traffic.
    #[arg(long, global = true)]
    pub insecure_skip_tls_verify: bool,
    /// The name that the API server's certificate must have.
    #[arg(long, global = true, value_name = "NAME")]
    pub tls_server_name: Option<String>,
    /// How long to wait for one response of the API server, such as `30s` or `2m`. `0` means the default, 30 s.
    #[arg(long, global = true, value_name = "DURATION", value_parser = duration)]
    pub request_timeout: Option<Duration>,
}

impl Globals {
    /// A flag sets the user or the credentials.
    pub fn sets_user(&self) -> bool {
        let certificate = self.client_certificate.is_some() || self.client_key.is_some();
        self.token.is_some() || self.as_user.is_some() || certificate
    }

    /// The first flag that changes the cluster or the user.
    pub fn first_connection_flag(&self) -> Option<&'static str> {
        let given = [
            ("--context", self.context.is_some()),
            ("--cluster", self.cluster.is_some()),
            ("--user", self.user.is_some()),
            ("--token", self.token.is_some()),
            ("--as", self.as_user.is_some() || !self.as_group.is_empty()),
            ("--certificate-authority", self.certificate_authority.is_some()),
            ("--client-certificate", self.client_certificate.is_some()),
            ("--client-key", self.client_key.is_some()),
            ("--insecure-skip-tls-verify", self.insecure_skip_tls_verify),
            ("--tls-server-name", self.tls_server_name.is_some()),
        ];
        given.into_iter().find(|(_, given)| *given).map(|(flag, _)| flag)
    }
}

/// A duration as kubectl reads it: numbers with the units `h`, `m`, `s`, `ms`, or a number of seconds.
pub fn duration(text: &str) -> Result<Duration, String> {
    pitstop_cli_core::duration::parse(text)
}

/// As [`duration`], for fields that count whole seconds.
pub fn seconds(text: &str) -> Result<i64, String> {
    pitstop_cli_core::duration::seconds(text)
}
