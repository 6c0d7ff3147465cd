//! The container runtimes that the nodes of a cluster can run.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

use crate::cluster;
use crate::options;
use crate::sh::Cmd;

/// A container runtime.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Containerd {
    name: &'static str,
    /// Whether it is built here, from the module in `tests/cluster/containerd`. If not, Debian's is installed.
    built: bool,
}

/// Debian's containerd.
pub(crate) const ONE: Containerd = Containerd { name: "containerd-1", built: false };
/// The containerd 2.x of our own module.
pub(crate) const TWO: Containerd = Containerd { name: "containerd-2", built: true };

/// Go module that ours requires, and that its commands come from.
const MODULE: &str = "github.com/containerd/containerd/v2";
/// Build tags that leave out snapshotters that need C or that no node here uses.
const TAGS: &str = "no_aufs,no_btrfs,no_devmapper,no_zfs";

impl Containerd {
    /// Takes `--runtime NAME` out of the arguments of `up`. Returns the runtime and the other arguments.
    pub(crate) fn chosen<'a>(
        args: &[&'a str],
        default: &'static Self,
    ) -> Result<(&'static Self, Vec<&'a str>)> {
        const FLAG: &str = "--runtime";
        let (asked, rest) = options::taken(args, FLAG);
        let Some(name) = asked else { return Ok((default, rest)) };
        let known = [&TWO, &ONE];
        let names = known.map(|one| one.name).join(", ");
        let chosen = known.into_iter().find(|one| one.name == name);
        let chosen =
            chosen.with_context(|| format!("{FLAG} {name}: there is no such runtime here, only {names}"))?;
        Ok((chosen, rest))
    }

    /// Its name: `containerd-2`.
    pub(crate) fn name(&self) -> &'static str {
        self.name
    }

    /// Its version, without a `v`. Fails if Debian's is not installed.
    pub(crate) fn version(&self, root: &Path) -> Result<String> {
        if self.built {
            return version(root);
        }
        // `containerd github.com/containerd/containerd 1.6.20~ds1 1.6.20~ds1-1+deb12u1`
        let text = Cmd::new("containerd").arg("--version").read()?;
        let version = text.split_whitespace().nth(2).with_context(|| format!("containerd said {text:?}"))?;
        Ok(version.to_owned())
    }

    /// Folder of its programs in the checkout. None for Debian's.
    pub(crate) fn folder(&self, root: &Path) -> Option<PathBuf> {
        self.built.then(|| root.join("target/cluster/bin").join(self.name))
    }

    /// Builds it, and returns a `PATH` with its programs first.
    pub(crate) fn on_path(&self, root: &Path) -> Result<OsString> {
        self.build(root)?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let folders = self.folder(root).into_iter().chain(std::env::split_paths(&path));
        std::env::join_paths(folders).context("PATH")
    }

    /// Builds its programs, unless it is Debian's; takes seconds if nothing changed.
    pub(crate) fn build(&self, root: &Path) -> Result<()> {
        let Some(mut folder) = self.folder(root) else { return Ok(()) };
        // Go takes a path with a final slash as a folder.
        folder.push("");
        let flags = format!("-s -w -X {MODULE}/version.Version={}", version(root)?);
        let go =
            cluster::go_compiling(&module(root), "build").args(["-v", "-tags", TAGS, "-ldflags", &flags]);
        go.arg("-o").arg(folder).arg("tool").run_quiet().context("cannot build tests/cluster/containerd")
    }
}

fn module(root: &Path) -> PathBuf {
    cluster::module(root).join("containerd")
}

/// The version, without its `v`, as containerd reports itself.
fn version(root: &Path) -> Result<String> {
    let manifest = module(root).join("go.mod");
    let text =
        fs::read_to_string(&manifest).with_context(|| format!("cannot read {}", manifest.display()))?;
    let version = required_version(&text).map(str::to_owned);
    version.with_context(|| format!("{} names no {MODULE}", manifest.display()))
}

fn required_version(manifest: &str) -> Option<&str> {
    let mut lines = manifest.lines().map(|line| line.trim_start_matches("require ").trim());
    let required = lines.find_map(|line| line.strip_prefix(MODULE)?.strip_prefix(" v"))?;
    required.split_whitespace().next()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::workspace;

    #[test]
    fn a_runtime_is_chosen_and_the_rest_is_handed_on() {
        assert_eq!(Containerd::chosen(&["--nodes", "2"], &ONE).unwrap(), (&ONE, vec!["--nodes", "2"]));
        let args = ["--runtime", "containerd-2", "--nodes", "2"];
        assert_eq!(Containerd::chosen(&args, &ONE).unwrap(), (&TWO, vec!["--nodes", "2"]));
        let error = Containerd::chosen(&["--runtime=crio"], &TWO).unwrap_err().to_string();
        assert_eq!(error, "--runtime crio: there is no such runtime here, only containerd-2, containerd-1");
    }

    #[test]
    fn the_module_names_the_version() {
        let version = version(&workspace::root().unwrap()).unwrap();
        assert!(version.starts_with("2."), "{version}");
        assert_eq!(required_version("require (\n\tgithub.com/containerd/containerd/api v1.10.0\n)\n"), None);
    }

    #[test]
    fn only_what_is_built_has_a_folder() {
        let folder = TWO.folder(Path::new("/checkout"));
        assert_eq!(folder.as_deref(), Some(Path::new("/checkout/target/cluster/bin/containerd-2")));
        assert_eq!(ONE.folder(Path::new("/checkout")), None);
    }
}
