//! `cargo xtask image`: both programs as image archives under `target/images`, equal bit for bit wherever
//! they are built, and the kustomizations under `target/deploy` that name them.

mod archive;
mod build;
mod elf;
mod install;

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};

pub(crate) use self::archive::{Entry, sha256, tar as tar_file};
use self::archive::{ImageSpec, archive};
pub(crate) use self::build::{AMD64, ARM64, Target, executables, programs};
use crate::cluster::Cluster;
use crate::progress::{Step, note};
use crate::workspace::{VERSION, shown};

/// An image that pitstop ships.
struct Image {
    /// The crate, the program in it and the file in the image.
    package: &'static str,
    /// The image's name without its tag.
    repository: &'static str,
    user: &'static str,
    title: &'static str,
}

const IMAGES: [Image; 2] = [
    Image {
        package: "pitstop-controller",
        repository: "pitstop.dev/controller",
        user: "65532:65532",
        title: "pitstop controller",
    },
    Image {
        package: "pitstop-daemon",
        repository: "pitstop.dev/daemon",
        // The group that owns the runtime's socket.
        user: "65532:0",
        title: "pitstop node daemon",
    },
];

/// An archive that was written.
pub(crate) struct Built {
    /// The archive.
    pub(crate) path: PathBuf,
    /// The image's name without its tag.
    pub(crate) repository: &'static str,
    /// Its tag, which another content does not have.
    pub(crate) tag: String,
}

impl Built {
    /// The image's name with its tag.
    pub(crate) fn reference(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }
}

/// What is built.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Build programs that are built faster and are larger.
    #[arg(long)]
    dev: bool,
    /// Put the images into the registry of the cluster that runs.
    #[arg(long)]
    push: bool,
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    for image in build(root, args.dev)?.iter().filter(|_| args.push) {
        Cluster::of(root).push(&image.path, &image.reference())?;
    }
    Ok(())
}

/// The packages of the programs in the images.
pub(crate) const PACKAGES: [&str; 2] = [IMAGES[0].package, IMAGES[1].package];

/// Builds every image.
pub(crate) fn build(root: &Path, dev: bool) -> Result<Vec<Built>> {
    let step = Step::begin("building images (about 6 minutes when nothing is built yet)");
    let programs = programs(root, &AMD64, &PACKAGES, &[], dev)?;
    let folder = root.join("target/images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut built = Vec::new();
    for image in &IMAGES {
        let bytes = static_program(&programs, &AMD64, image.package)?;
        let path = folder.join(format!("{}.tar", image.package));
        let entrypoint = format!("/{}", image.package);
        let archive = archive(&image.spec(&entrypoint, &bytes))?;
        write(&path, &archive.bytes)?;
        let one = Built { path, repository: image.repository, tag: archive.tag };
        let kib = bytes.len() / 1024;
        note(format!("{}: {} (program of {kib} KiB)", one.reference(), shown(root, &one.path)));
        built.push(one);
    }
    install::write(root, &built)?;
    step.done();
    Ok(built)
}

/// Builds a program that needs nothing of the machine it runs on, and gives its bytes.
pub(crate) fn program(root: &Path, target: &Target, package: &str) -> Result<Vec<u8>> {
    static_program(&programs(root, target, &[package], &[], false)?, target, package)
}

fn static_program(programs: &BTreeMap<String, PathBuf>, target: &Target, package: &str) -> Result<Vec<u8>> {
    let program = programs.get(package).with_context(|| format!("{package} was not built"))?;
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    elf::require_static(&bytes, target.machine).with_context(|| program.display().to_string())?;
    Ok(bytes)
}

impl Image {
    fn spec<'a>(&self, entrypoint: &'a str, program: &'a [u8]) -> ImageSpec<'a> {
        ImageSpec {
            repository: self.repository,
            version: VERSION,
            architecture: AMD64.architecture,
            user: self.user,
            entrypoint,
            labels: BTreeMap::from([
                ("org.opencontainers.image.licenses", "Apache-2.0"),
                ("org.opencontainers.image.title", self.title),
                ("org.opencontainers.image.version", VERSION),
            ]),
            executables: BTreeMap::from([(entrypoint.trim_start_matches('/'), program)]),
        }
    }
}

/// Replaces a file as a whole: who reads it at the same time sees the old or the new one.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}
