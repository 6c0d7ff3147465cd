//! The controller's program without an API server.
//!
//! `cargo xtask arm64` runs this with the program of another processor.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test; clippy.toml excepts only functions marked as tests, not their helpers"
)]

#[path = "../../daemon/tests/program/process.rs"]
mod process;

use process::{Process, free_port, kubeconfig};

#[tokio::test]
async fn without_an_api_server_it_lives_and_says_what_is_missing() {
    let folder = tempfile::tempdir().unwrap();
    let server = format!("http://127.0.0.1:{}", free_port().await);
    let kubeconfig = kubeconfig(folder.path(), &server, "");
    let webhook = format!("--webhook-address=127.0.0.1:{}", free_port().await);
    let mut controller =
        Process::start(env!("CARGO_BIN_EXE_pitstop-controller"), folder.path(), &kubeconfig, &[&webhook])
            .await;
    let missing = controller.answers("/readyz", |text| text.contains("missing: ")).await;
    for name in ["lease synced", "webhook certificate loaded", "Pods synced"] {
        assert!(missing.contains(&format!("missing: {name}")), "{missing}");
    }
    assert_eq!(controller.get("/healthz").await.as_deref(), Some("ok\n"));
    assert_eq!(controller.end().await.code(), Some(0));
}
