//! The law that no file names a package registry. Each build machine chooses its source of packages, which may be its
//! own mirror.

use std::collections::BTreeSet;
use std::path::Path;

use anyhow::{Result, bail};

use super::files;
use crate::cluster;
use crate::sh::is_installed;
use crate::workspace::shown;

/// Hosts of registries. Written in parts, since the law applies to this file too.
const REGISTRIES: [&str; 11] = [
    concat!("index.", "crates.io"),
    concat!("static.", "crates.io"),
    concat!("proxy.", "golang.org"),
    concat!("sum.", "golang.org"),
    concat!("goproxy", ".io"),
    concat!("goproxy", ".cn"),
    concat!("registry.", "npmjs.org"),
    concat!("pypi", ".org"),
    concat!("files.", "pythonhosted.org"),
    concat!("deb.", "debian.org"),
    concat!("archive.", "ubuntu.com"),
];

pub(super) fn check(root: &Path) -> Result<()> {
    let mut hosts: BTreeSet<String> = REGISTRIES.map(str::to_owned).into();
    hosts.extend(mirrors(root));
    let mut named = Vec::new();
    for path in files::all(root)? {
        // Lock files name the sources of packages in their own form; cargo deny checks them.
        let locked = path.file_name().is_some_and(|name| name == "Cargo.lock");
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        if !locked {
            named.extend(hosts_in(&text, &hosts).map(|host| format!("{} names {host}", shown(root, &path))));
        }
    }
    if !named.is_empty() {
        bail!("{}", named.join("; "));
    }
    Ok(())
}

fn hosts_in<'a>(text: &str, hosts: &'a BTreeSet<String>) -> impl Iterator<Item = &'a str> {
    hosts.iter().map(String::as_str).filter(|host| text.contains(host))
}

/// Hosts from which this machine is configured to take packages.
fn mirrors(root: &Path) -> BTreeSet<String> {
    let mut settings = String::new();
    if is_installed("go") {
        settings = cluster::go(&cluster::module(root))
            .args(["env", "GOPROXY", "GOSUMDB"])
            .read()
            .unwrap_or_default();
    }
    let home =
        std::env::var("CARGO_HOME").or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    for name in ["config.toml", "config"] {
        let file = home.as_ref().map(|home| Path::new(home).join(name));
        settings.push_str(&file.ok().and_then(|file| std::fs::read_to_string(file).ok()).unwrap_or_default());
        settings.push('\n');
    }
    for name in ["CARGO_REGISTRIES_CRATES_IO_INDEX", "PIP_INDEX_URL", "NPM_CONFIG_REGISTRY"] {
        settings.push_str(&std::env::var(name).unwrap_or_default());
        settings.push('\n');
    }
    urls(&settings)
}

/// Hosts of all URLs in a text, except local hosts and hosts that have more than packages.
fn urls(text: &str) -> BTreeSet<String> {
    let host = |rest: &str| {
        let end = rest.find(|c: char| c == '/' || c == '"' || c == '\'' || c == ',' || c.is_whitespace());
        let authority = end.map_or(rest, |end| rest.get(..end).unwrap_or(rest));
        let host = authority.rsplit('@').next().unwrap_or(authority);
        host.split(':').next().unwrap_or(host).to_owned()
    };
    let common = ["", "localhost", "127.0.0.1", "[", "github.com"];
    text.split("://").skip(1).map(host).filter(|host| !common.contains(&host.as_str())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_machines_mirrors_are_known_by_their_hosts() {
        let settings = "https://user:key@mirror.example.com:8443/go,direct\n\
                        [registry]\nindex = \"sparse+https://crates.example.org/index/\"\n\
                        x = 'http://127.0.0.1:80/' # https://github.com/x\n";
        assert_eq!(urls(settings), ["crates.example.org", "mirror.example.com"].map(str::to_owned).into());
    }

    #[test]
    fn a_named_host_is_found() {
        let hosts = BTreeSet::from(["mirror.example.com".to_owned()]);
        assert_eq!(
            hosts_in("GOPROXY=https://mirror.example.com", &hosts).collect::<Vec<_>>(),
            ["mirror.example.com"]
        );
        assert_eq!(hosts_in("example.com", &hosts).count(), 0);
    }
}
