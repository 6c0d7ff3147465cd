//! Laws about each crate's own Cargo.toml: it inherits the workspace's lints and versions.

/// A breach if a crate does not inherit the workspace's lints.
pub(super) fn lints(name: &str, manifest: &str) -> Option<String> {
    let inherited = entries(manifest).any(|(section, key, value)| {
        (section == "lints" && key == "workspace" || section.is_empty() && key == "lints.workspace")
            && value == "true"
    });
    (!inherited).then(|| {
        format!("{name} does not inherit the lints: its Cargo.toml needs `[lints] workspace = true`")
    })
}

/// Breaches: dependencies with a version, path or git source of their own instead of the workspace's.
pub(super) fn versions(name: &str, manifest: &str) -> Vec<String> {
    let of_own = |(section, key, value): (&str, &str, &str)| {
        let (list, within) = dependencies(section)?;
        // A section for one dependency: its entries are not dependencies.
        if let Some(dependency) = within {
            return (key == "version" || key == "path" || key == "git")
                .then(|| (list.to_owned(), dependency.to_owned()));
        }
        let inherited = key.ends_with(".workspace") && value == "true"
            || value.replace(' ', "").contains("workspace=true");
        // A further line for an inherited dependency, such as `serde.features`.
        let further =
            key.split_once('.').is_some_and(|(_, field)| !["version", "path", "git"].contains(&field));
        (!inherited && !further).then(|| (list.to_owned(), key.to_owned()))
    };
    let say = |(list, key)| {
        format!("{name}: {key} in [{list}] must be taken from the workspace (`workspace = true`)")
    };
    entries(manifest).filter_map(of_own).map(say).collect()
}

/// A section's list of dependencies, and the dependency if the section is for only one.
fn dependencies(section: &str) -> Option<(&str, Option<&str>)> {
    // [target.'cfg(unix)'.dependencies]: the part before is only a condition.
    let start = section.rfind("dependencies")?;
    let list = section.get(..start + "dependencies".len())?;
    let rest = section.get(list.len()..)?;
    if rest.is_empty() { Some((list, None)) } else { rest.strip_prefix('.').map(|one| (list, Some(one))) }
}

/// Section, key and value of every `key = value` line. A value of several lines is cut to its first line.
fn entries(manifest: &str) -> impl Iterator<Item = (&str, &str, &str)> {
    let mut section = "";
    manifest.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(move |line| {
        if let Some(name) = line.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
            section = name.trim_matches(['[', ']']);
            return None;
        }
        let (key, value) = line.split_once('=')?;
        Some((section, key.trim(), value.trim()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lints_are_inherited_or_it_is_a_breach() {
        assert_eq!(lints("a", "[package]\nname = \"a\"\n\n[lints]\nworkspace = true\n"), None);
        assert_eq!(lints("a", "lints.workspace = true\n[package]\nname = \"a\"\n"), None);
        assert!(lints("a", "[package]\nedition.workspace = true\n").is_some());
        assert!(lints("a", "[lints]\n# workspace = true\n[lints.rust]\nunsafe_code = \"allow\"\n").is_some());
    }

    #[test]
    fn the_workspaces_versions_are_fine() {
        let manifest = "[package]\nversion.workspace = true\n[dependencies]\nserde.workspace = true\n\
                        kube = { workspace = true, features = [\"client\"] }\nhttp = {workspace=true}\n\
                        [target.'cfg(unix)'.dependencies]\nnix.workspace = true\n\
                        [dev-dependencies.insta]\nworkspace = true\n[features]\nx = []\n";
        assert_eq!(versions("a", manifest), [""; 0]);
    }

    #[test]
    fn own_versions_are_breaches() {
        let manifest = "[dependencies]\nserde = \"1\"\nkube = { version = \"5\" }\n\
                        [build-dependencies.prost]\nversion = \"1\"\n";
        assert_eq!(
            versions("a", manifest),
            [
                "a: serde in [dependencies] must be taken from the workspace (`workspace = true`)",
                "a: kube in [dependencies] must be taken from the workspace (`workspace = true`)",
                "a: prost in [build-dependencies] must be taken from the workspace (`workspace = true`)"
            ]
        );
    }
}
