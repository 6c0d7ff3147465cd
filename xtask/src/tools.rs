//! External programs that commands run, each in a fixed version, since another version judges otherwise.

use std::path::{Path, PathBuf};

use anyhow::Result;

use crate::progress::Step;
use crate::sh::Cmd;

/// A crate that is a program.
pub(crate) struct Tool {
    /// Name of the crate and of its program.
    pub(crate) name: &'static str,
    pub(crate) version: &'static str,
    /// Arguments to print its version.
    pub(crate) args: &'static [&'static str],
}

impl Tool {
    /// Path of our own copy under `target/tools`. The first call installs it.
    pub(crate) fn installed(&self, root: &Path) -> Result<PathBuf> {
        let Self { name, version, args } = self;
        let folder = root.join("target/tools");
        let program = folder.join("bin").join(name);
        let is_there =
            program.is_file() && Cmd::new(&program).args(*args).read().is_ok_and(|text| self.matches(&text));
        if !is_there {
            let step =
                Step::begin(format!("installing {name} {version} into target/tools (some minutes, once)"));
            // Not optimized: that would take longer than it saves, since the program does little itself. No debug
            // information: nobody debugs it.
            Cmd::cargo()
                .env("CARGO_PROFILE_DEV_DEBUG", "none")
                // Shares dependencies with our own programs.
                .env("CARGO_TARGET_DIR", root.join("target"))
                // The wrapper of `.ci/run` is for our own code.
                .env("RUSTC_WORKSPACE_WRAPPER", "")
                .args(["install", "--debug", "--locked", "--quiet", name, "--version", version])
                .args(["--force", "--root"])
                .arg(&folder)
                .dir(root)
                .run_quiet()?;
            step.done();
        }
        Ok(program)
    }

    fn matches(&self, output: &str) -> bool {
        output.split_whitespace().any(|word| word.trim_start_matches('v') == self.version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_version_is_replaced() {
        let tool = Tool { name: "cargo-x", version: "1.2.3", args: &["--version"] };
        assert!(tool.matches("cargo-x 1.2.3\n") && tool.matches("cargo-x v1.2.3\n"));
        assert!(!tool.matches("cargo-x 0.1.0\n"));
    }
}
