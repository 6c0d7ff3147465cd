//! What the documentation shows must be true: links lead somewhere, requests are valid.

use std::fs;
use std::path::{Path, PathBuf};

use pitstop_api::recreate::{self, ContainerRecreateRequest};
use pitstop_api::resize::{self, PodResize};
use pitstop_manifests_test::root;
use serde_json::Value;

/// The pages at the top and every page under `docs/`.
fn pages() -> Vec<PathBuf> {
    let mut pages = ["README.md", "SECURITY.md"].map(|name| root().join(name)).to_vec();
    let mut folders = vec![root().join("docs")];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "md") {
                pages.push(path);
            }
        }
    }
    pages
}

/// The targets of `[text](target)`, without those on the web.
fn links(page: &str) -> impl Iterator<Item = &str> {
    page.split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next())
        .filter(|target| !target.contains("://"))
}

/// The contents of fenced blocks of a language.
fn blocks<'a>(page: &'a str, language: &str) -> Vec<&'a str> {
    let fence = format!("```{language}\n");
    page.split(fence.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

/// The anchor that a heading gets, as the usual viewers make it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

fn leads_somewhere(page: &Path, target: &str) -> bool {
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_path_buf() } else { page.with_file_name("").join(file) };
    if !path.exists() {
        return false;
    }
    let text = || fs::read_to_string(&path).unwrap();
    fragment.is_empty() || text().lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == fragment)
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        broken.extend(
            links(&text)
                .filter(|target| !leads_somewhere(&page, target))
                .map(|target| format!("{}: {target}", page.display())),
        );
    }
    assert!(broken.is_empty(), "{broken:#?}");
}

#[test]
fn every_request_that_is_shown_is_one_that_is_accepted() {
    let mut shown = 0;
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        for block in blocks(&text, "yaml") {
            let objects: Vec<Value> = serde_saphyr::from_multiple(block)
                .unwrap_or_else(|error| panic!("{}: {error}\n{block}", page.display()));
            for object in objects {
                // A misspelt field would be dropped without a word.
                let (refused, read_back) = match object["kind"].as_str() {
                    Some("ContainerRecreateRequest") => {
                        let request: ContainerRecreateRequest = read(&object);
                        (recreate::validate(&request.spec).err(), serde_json::to_value(&request.spec))
                    }
                    Some("PodResize") => {
                        let request: PodResize = read(&object);
                        (resize::validate(&request.spec).err(), serde_json::to_value(&request.spec))
                    }
                    _ => continue,
                };
                assert_eq!(refused, None, "{}", page.display());
                assert_eq!(read_back.unwrap(), object["spec"], "{}", page.display());
                shown += 1;
            }
        }
    }
    assert!(shown >= 3, "{shown}");
}

fn read<T: serde::de::DeserializeOwned>(object: &Value) -> T {
    serde_json::from_value(object.clone()).unwrap()
}

/// Those of the programs' own readiness are checked where they are named, in `run.rs` of each.
#[test]
fn every_reason_is_explained() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let explained = |reason: &str| {
        let rows = page.lines().filter(|line| line.starts_with("| ")).map(|line| line.split(" | ").take(2));
        rows.flatten().any(|cell| cell.trim_start_matches("| ") == format!("`{reason}`"))
    };
    let reasons = pitstop_controller_core::recreate::all_reasons()
        .chain(pitstop_controller_core::resize::all_reasons());
    let missing: Vec<&str> = reasons.filter(|reason| !explained(reason)).collect();
    assert!(missing.is_empty(), "{missing:?}");
    assert!(!explained("Whatever"));
}
