//! What our parser says of references of images, and what the one says that kubelets and containerd read them with.
//!
//! `references.jsonl` holds the words of `github.com/distribution/reference`; `tests/cluster/lab/reference` makes it, and shows
//! that it is so.

use std::collections::BTreeMap;

use pitstop_api::image::Reference;
use serde::Deserialize;

/// What is said of one text. Without a path: it is refused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
struct Parsed {
    text: String,
    #[serde(default)]
    registry: String,
    #[serde(default)]
    path: String,
    #[serde(default)]
    tag: String,
    #[serde(default)]
    digest: String,
}

fn parse(text: &str) -> Parsed {
    let text = text.to_owned();
    let Ok(reference) = Reference::parse(&text) else { return Parsed { text, ..Parsed::default() } };
    let (registry, path) = reference.repository();
    let (tag, digest) = (reference.tag.unwrap_or_default(), reference.digest.unwrap_or_default());
    Parsed { text, registry, path, tag, digest }
}

/// Where both differ on purpose: the name of the reason.
fn reason(theirs: &Parsed, ours: &Parsed) -> Option<&'static str> {
    let refuses = ours.path.is_empty() && !theirs.path.is_empty();
    // All runtimes name images by SHA-256, and an order's answer has room for nothing longer.
    if refuses && !theirs.digest.is_empty() && !theirs.digest.starts_with("sha256:") {
        return Some("only SHA-256");
    }
    // What has a point and is no host name is for them a path of no registry, which nobody can pull.
    if refuses && theirs.registry.is_empty() {
        return Some("no path without a registry");
    }
    // Host names know no case: who writes one in another way means the same repository.
    let host = theirs.registry.to_ascii_lowercase();
    let hub = host == "docker.io" || host == "index.docker.io";
    let path = if hub && !theirs.path.contains('/') {
        format!("library/{}", theirs.path)
    } else {
        theirs.path.clone()
    };
    let registry = if hub { "docker.io".to_owned() } else { host };
    let folded = Parsed { registry, path, ..theirs.clone() };
    (!theirs.path.is_empty() && folded == *ours).then_some("host names know no case")
}

#[test]
fn it_says_what_kubelets_and_containerd_say() {
    let path = std::env::var("PITSTOP_REFERENCES")
        .unwrap_or_else(|_| concat!(env!("CARGO_MANIFEST_DIR"), "/tests/references.jsonl").to_owned());
    let text = std::fs::read_to_string(path).unwrap();
    let (mut read, mut refused, mut wrong) = (0, 0, Vec::new());
    let mut on_purpose = BTreeMap::<&str, usize>::new();
    for line in text.lines() {
        let theirs: Parsed = serde_json::from_str(line).unwrap();
        *(if theirs.path.is_empty() { &mut refused } else { &mut read }) += 1;
        let ours = parse(&theirs.text);
        if theirs == ours {
            continue;
        }
        match reason(&theirs, &ours) {
            Some(reason) => *on_purpose.entry(reason).or_default() += 1,
            None => wrong.push((theirs, ours)),
        }
    }
    println!("{read} read, {refused} refused, other on purpose: {on_purpose:?}");
    let some: Vec<String> =
        wrong.iter().take(20).map(|(theirs, ours)| format!("{theirs:?}\n  {ours:?}")).collect();
    assert!(wrong.is_empty(), "{} texts:\n{}", wrong.len(), some.join("\n"));
    assert!(read > 500 && refused > 500, "{read} and {refused}");
    let reasons = ["host names know no case", "no path without a registry", "only SHA-256"];
    assert_eq!(on_purpose.into_keys().collect::<Vec<_>>(), reasons);
}
