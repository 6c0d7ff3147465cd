//! Generates the CRI messages and clients of `cri-proto` from its `.proto` file.
//!
//! The generated code is committed, so that a build needs neither protoc nor a build script: Debian's protoc
//! is older than the syntax of today's CRI, and a generator in every build would cost everyone time.
//! `protox` compiles the proto in pure Rust.

use anyhow::{Context, bail};
use std::{fs, path::Path};

/// The source, from the root of the repository.
const PROTO: &str = "cri-proto/proto/cri.proto";
/// The generated file, from the root of the repository. The generator names it after the proto's package.
const GENERATED: &str = "cri-proto/src/gen/runtime.v1.rs";
const GENERATED_NAME: &str = "runtime.v1.rs";

const HEADER: &str = "\
// Written by `cargo xtask protos` from cri-proto/proto/cri.proto. Edit that file, not this one.

";

/// Writes the generated code, or with `check` fails if the committed code differs.
pub(crate) fn generate(root: &Path, check: bool) -> anyhow::Result<()> {
    let wanted = render(&root.join(PROTO)).with_context(|| format!("generating code from {PROTO}"))?;
    let path = root.join(GENERATED);
    let stored = fs::read_to_string(&path).unwrap_or_default();
    if stored == wanted {
        return Ok(());
    }
    if check {
        bail!("{GENERATED} is not what {PROTO} generates: run `cargo xtask protos` and commit the result");
    }
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    }
    fs::write(&path, wanted).with_context(|| format!("writing {GENERATED}"))
}

/// The Rust text for one proto file.
fn render(proto: &Path) -> anyhow::Result<String> {
    let folder = proto.parent().context("the proto file has no folder")?;
    let descriptors = protox::compile([proto], [folder])?;
    let out = tempfile::tempdir()?;
    tonic_prost_build::configure()
        // A client only: the production crate must not be able to serve.
        .build_server(false)
        // No `connect` functions, which hide the choice of channel: `pitstop_cri::connect` is ours.
        .build_transport(false)
        // Ordered maps: the same answer prints and iterates the same way every time.
        .btree_map(".")
        // Output of commands stays in the buffer it arrived in.
        .bytes(".")
        // Passwords: `cri-proto/src/ext.rs` has a Debug that hides them.
        .skip_debug([".runtime.v1.AuthConfig"])
        .out_dir(out.path())
        .compile_fds(descriptors)?;
    let body = fs::read_to_string(out.path().join(GENERATED_NAME))
        .with_context(|| format!("the generator wrote no {GENERATED_NAME}"))?;
    Ok(format!("{HEADER}{body}"))
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn repository() -> PathBuf {
        crate::workspace::root().unwrap()
    }

    #[test]
    fn committed_code_is_what_the_proto_generates() {
        generate(&repository(), true).unwrap();
    }

    #[test]
    fn stale_code_is_named_with_its_cure() {
        let root = tempfile::tempdir().unwrap();
        fs::create_dir_all(root.path().join("cri-proto/proto")).unwrap();
        fs::copy(repository().join(PROTO), root.path().join(PROTO)).unwrap();

        let error = generate(root.path(), true).unwrap_err().to_string();
        assert!(error.contains(GENERATED) && error.contains("cargo xtask protos"), "{error}");

        generate(root.path(), false).unwrap();
        generate(root.path(), true).unwrap();
    }
}
