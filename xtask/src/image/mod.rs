//! `cargo xtask image`: builds both programs as image archives under `target/images`, with the same bytes on every
//! machine. The kustomizations under `target/deploy` name the images and their nodes.

mod archive;
mod build;
mod elf;
mod install;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, bail};

pub(crate) use self::archive::{Entry, compressed, sha256};
use self::archive::{ImageSpec, archive};
pub(crate) use self::build::{AMD64, ARM64, Target, executables, programs};
use self::install::Source;
use crate::cluster::Cluster;
use crate::progress::{Step, note};
use crate::workspace::{VERSION, shown};

/// An image that pitstop ships.
struct Image {
    /// Name of the crate, of its program and of the file in the image.
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
#[derive(Clone, Debug)]
pub(crate) struct Built {
    /// The archive.
    pub(crate) path: PathBuf,
    /// The image's name without its tag.
    pub(crate) repository: &'static str,
    /// Its tag, which changes with the content.
    pub(crate) tag: String,
    /// Its digest in a registry: `sha256:…`.
    pub(crate) digest: String,
}

impl Built {
    /// The image's name with its tag.
    pub(crate) fn reference(&self) -> String {
        format!("{}:{}", self.repository, self.tag)
    }

    /// Its name without a registry.
    pub(crate) fn name(&self) -> &'static str {
        self.repository.rsplit_once('/').map_or(self.repository, |(_, name)| name)
    }
}

/// What images are built for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, clap::ValueEnum)]
pub(crate) enum Platform {
    /// Nodes with a processor of Intel's or AMD's.
    #[value(name = "linux/amd64")]
    Amd64,
    /// Nodes with a 64-bit processor of Arm's kind.
    #[value(name = "linux/arm64")]
    Arm64,
}

impl Platform {
    fn target(self) -> &'static Target {
        match self {
            Self::Amd64 => &AMD64,
            Self::Arm64 => &ARM64,
        }
    }
}

/// Options of the command.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Platforms of the images. With several, each image is one archive with an index: one name for all nodes.
    #[arg(long, value_delimiter = ',', default_value = "linux/amd64", value_name = "PLATFORM,...")]
    platform: Vec<Platform>,
    /// Build programs that are built faster and are larger.
    #[arg(long)]
    dev: bool,
    /// Put the images into the registry of the cluster that runs.
    #[arg(long, conflicts_with = "registry")]
    push: bool,
    /// Registry and path to which you will push the images, such as registry.example.com/pitstop. What is written under
    /// target/deploy names it. Without it, the images must be on each node: no registry is asked for them.
    #[arg(long, value_parser = registry)]
    registry: Option<String>,
}

/// Accepts what the chart's schema accepts, except an empty text.
pub(crate) fn registry(text: &str) -> Result<String> {
    let (host, path) = text.split_once('/').unwrap_or((text, "-"));
    let (name, port) = host.split_once(':').unwrap_or((host, "0"));
    let all = |text: &str, fits: fn(char) -> bool| !text.is_empty() && text.chars().all(fits);
    let good = all(name, |c| c.is_ascii_alphanumeric() || ".-".contains(c))
        && all(port, |c| c.is_ascii_digit())
        && path
            .split('/')
            .all(|part| all(part, |c| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c)));
    if good {
        Ok(text.to_owned())
    } else {
        bail!("a registry and a path, without a tag, such as registry.example.com/pitstop")
    }
}

/// The command.
pub(crate) fn run(root: &Path, args: &Args) -> Result<()> {
    // A set: order and repetition of platforms do not change the bytes.
    let platforms: BTreeSet<Platform> = args.platform.iter().copied().collect();
    if args.push && !platforms.contains(&Platform::Amd64) {
        bail!("--push: the nodes of the cluster are of linux/amd64, which --platform does not name");
    }
    let targets: Vec<_> = platforms.into_iter().map(Platform::target).collect();
    let source = match &args.registry {
        Some(registry) => Source::Registry(registry),
        None if args.push => Source::Cluster,
        None => Source::Nodes,
    };
    let built = build_for(root, &targets, args.dev)?;
    let architectures: Vec<_> = targets.iter().map(|target| target.architecture).collect();
    install::write(root, &built, &architectures, source)?;
    for image in built.iter().filter(|_| args.push) {
        Cluster::of(root).push(&image.path, &image.reference())?;
    }
    Ok(())
}

/// The packages of the programs in the images.
pub(crate) const PACKAGES: [&str; 2] = [IMAGES[0].package, IMAGES[1].package];

/// Builds every image for the clusters of this machine.
pub(crate) fn build(root: &Path, dev: bool) -> Result<Vec<Built>> {
    let built = build_for(root, &[&AMD64], dev)?;
    name_in_deploy(root, &built)?;
    Ok(built)
}

/// Writes `target/deploy` with these images, for the clusters of this machine.
pub(crate) fn name_in_deploy(root: &Path, images: &[Built]) -> Result<()> {
    install::write(root, images, &[AMD64.architecture], Source::Cluster)
}

/// Builds every image for some targets.
pub(crate) fn build_for(root: &Path, targets: &[&Target], dev: bool) -> Result<Vec<Built>> {
    let names = targets.iter().map(|target| target.architecture).collect::<Vec<_>>();
    let step = Step::begin(format!(
        "building images for {} (about 6 minutes when nothing is built yet)",
        names.join(", ")
    ));
    let mut programs = Vec::new();
    for target in targets {
        programs.push((*target, self::programs(root, target, &PACKAGES, &[], dev)?));
    }
    let folder = root.join("target/images");
    fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    let mut built = Vec::new();
    for image in &IMAGES {
        let mut contents = Vec::new();
        for (target, programs) in &programs {
            contents.push((target.architecture, static_program(programs, target, image.package)?));
        }
        let path = folder.join(file_name(image.package, &names));
        let entrypoint = format!("/{}", image.package);
        let archive = archive(&image.spec(&entrypoint, &contents))?;
        write(&path, &archive.bytes)?;
        let one = Built { path, repository: image.repository, tag: archive.tag, digest: archive.digest };
        let kib = contents.iter().map(|(_, bytes)| format!("{} KiB", bytes.len() / 1024)).collect::<Vec<_>>();
        note(format!("{}: {} (program of {})", one.reference(), shown(root, &one.path), kib.join(", ")));
        built.push(one);
    }
    step.done();
    Ok(built)
}

/// File name of an image's archive. Names the architectures, except amd64 alone, which nearly all nodes have.
fn file_name(package: &str, architectures: &[&str]) -> String {
    match architectures {
        [only] if *only == AMD64.architecture => format!("{package}.tar"),
        _ => format!("{package}-{}.tar", architectures.join("-")),
    }
}

/// Builds a static program and returns its bytes.
pub(crate) fn program(root: &Path, target: &Target, package: &str) -> Result<Vec<u8>> {
    static_program(&programs(root, target, &[package], &[], false)?, target, package)
}

/// Bytes of a built program. Fails unless it is static and for the target.
pub(crate) fn static_program(
    programs: &BTreeMap<String, PathBuf>,
    target: &Target,
    package: &str,
) -> Result<Vec<u8>> {
    let program = programs.get(package).with_context(|| format!("{package} was not built"))?;
    let bytes = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    elf::require_static(&bytes, target.machine).with_context(|| program.display().to_string())?;
    Ok(bytes)
}

impl Image {
    /// `programs`: bytes by processor.
    fn spec<'a>(&self, entrypoint: &'a str, programs: &'a [(&'a str, Vec<u8>)]) -> ImageSpec<'a> {
        let path = entrypoint.trim_start_matches('/');
        let platform = |(architecture, program): &'a (&'a str, Vec<u8>)| archive::Platform {
            architecture,
            executables: BTreeMap::from([(path, program.as_slice())]),
        };
        ImageSpec {
            repository: self.repository,
            version: VERSION,
            user: self.user,
            entrypoint,
            labels: BTreeMap::from([
                ("org.opencontainers.image.licenses", "Apache-2.0"),
                ("org.opencontainers.image.title", self.title),
                ("org.opencontainers.image.version", VERSION),
            ]),
            platforms: programs.iter().map(platform).collect(),
        }
    }
}

/// Replaces a file atomically: a concurrent reader sees the old or the new one.
fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    let new = path.with_extension("new");
    fs::write(&new, bytes).with_context(|| format!("cannot write {}", new.display()))?;
    fs::rename(&new, path).with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::workspace;

    #[derive(clap::Parser)]
    struct Command {
        #[command(flatten)]
        args: Args,
    }

    fn platforms(args: &[&str]) -> Result<Vec<Platform>, clap::Error> {
        Command::try_parse_from([&["image"], args].concat()).map(|command| command.args.platform)
    }

    #[test]
    fn images_are_for_amd64_unless_something_else_is_asked_for() {
        assert_eq!(platforms(&[]).unwrap(), [Platform::Amd64]);
        assert_eq!(platforms(&["--platform", "linux/arm64"]).unwrap(), [Platform::Arm64]);
        let both = platforms(&["--platform", "linux/arm64,linux/amd64"]).unwrap();
        assert_eq!(both, [Platform::Arm64, Platform::Amd64]);
        assert!(platforms(&["--platform", "linux/riscv64"]).is_err());
    }

    #[test]
    fn what_the_cluster_cannot_run_is_not_pushed_to_it() {
        let args = Command::parse_from(["image", "--push", "--platform", "linux/arm64"]).args;
        let error = run(Path::new("/nowhere"), &args).unwrap_err().to_string();
        assert_eq!(
            error,
            "--push: the nodes of the cluster are of linux/amd64, which --platform does not name"
        );
    }

    #[test]
    fn a_registry_has_a_name_and_no_tag() {
        for good in ["registry.example.com/pitstop", "127.0.0.1:5000/a/b", "registry.example.com"] {
            assert_eq!(registry(good).unwrap(), good);
        }
        for bad in ["", "a/", "a/b:1", "a b", "https://a", "a:b", "a:1:2/c", "a/B", "a_b"] {
            registry(bad).unwrap_err();
        }
        // If this changes, so must the function.
        let schema =
            fs::read_to_string(workspace::root().unwrap().join("deploy/chart/values.schema.json")).unwrap();
        let schema: serde_json::Value = serde_json::from_str(&schema).unwrap();
        let pattern = &schema["properties"]["image"]["properties"]["registry"]["pattern"];
        assert_eq!(pattern, "^([a-zA-Z0-9.-]+(:[0-9]+)?(/[a-z0-9._-]+)*)?$");
    }

    #[test]
    fn an_archive_says_what_it_is_for_unless_that_is_amd64_alone() {
        let name = |architectures: &[&str]| file_name("pitstop-daemon", architectures);
        assert_eq!(name(&["amd64"]), "pitstop-daemon.tar");
        assert_eq!(name(&["arm64"]), "pitstop-daemon-arm64.tar");
        assert_eq!(name(&["amd64", "arm64"]), "pitstop-daemon-amd64-arm64.tar");
    }
}
