//! The documentation must be correct: links have targets, requests are valid.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use pitstop_api::recreate::{self, ContainerRecreateRequest};
use pitstop_api::resize::{self, PodResize};
use pitstop_manifests_test::{docs, kustomize, root};
use serde_json::Value;

/// The pages at the top and every page under `docs/`.
fn pages() -> Vec<PathBuf> {
    docs::pages().unwrap()
}

/// The targets of `[text](target)`, without web addresses and code.
fn links(page: &str) -> Vec<String> {
    let prose = page.split("\n\n").map(|paragraph| paragraph.split('`').step_by(2).collect::<String>());
    let targets = prose.flat_map(|text| {
        let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
        targets.map(str::to_owned).collect::<Vec<_>>()
    });
    targets.filter(|target| !target.contains("://")).collect()
}

/// The anchor of a heading, as usual viewers generate it.
fn anchor(heading: &str) -> String {
    let text = heading.trim_start_matches('#').trim().to_lowercase();
    text.chars()
        .filter(|c| c.is_alphanumeric() || matches!(c, ' ' | '-' | '_'))
        .map(|c| if c == ' ' { '-' } else { c })
        .collect()
}

/// Whether the target of a link on the page exists, including its heading.
pub(crate) fn leads_somewhere(page: &Path, target: &str) -> bool {
    let (file, fragment) = target.split_once('#').unwrap_or((target, ""));
    let path = if file.is_empty() { page.to_path_buf() } else { page.with_file_name("").join(file) };
    if !path.exists() {
        return false;
    }
    let text = || fs::read_to_string(&path).unwrap();
    fragment.is_empty() || text().lines().filter(|l| l.starts_with('#')).any(|l| anchor(l) == fragment)
}

#[test]
fn what_is_code_is_no_link() {
    let page = "[`a`](b.md) and `[x](c)`, as in\n\n```sh\n[x](d)\n```\n\n[web](https://e) [e](f.md#g)";
    assert_eq!(links(page), ["b.md", "f.md#g"]);
}

#[test]
fn links_lead_somewhere() {
    let mut broken = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        broken.extend(
            links(&text)
                .into_iter()
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
        for block in docs::blocks(&text).into_iter().filter(|block| block.language == "yaml") {
            let objects: Vec<Value> = serde_saphyr::from_multiple(&block.text)
                .unwrap_or_else(|error| panic!("{}:{}: {error}", page.display(), block.line));
            for object in objects {
                // Parsing would drop a misspelt field silently.
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

/// Each program's `run.rs` checks the reasons of its readiness.
#[test]
fn every_reason_is_explained() {
    let page = fs::read_to_string(root().join("docs/troubleshooting.md")).unwrap();
    let explained = |reason: &str| {
        let rows = page.lines().filter(|line| line.starts_with("| ")).map(|line| line.split(" | ").take(2));
        rows.flatten().any(|cell| cell.trim_start_matches("| ") == format!("`{reason}`"))
    };
    let reasons = pitstop_controller_core::recreate::all_reasons()
        .chain(pitstop_controller_core::resize::all_reasons())
        .chain(pitstop_controller_core::image::all_reasons())
        .chain(pitstop_controller_core::rollout::all_reasons());
    // The schema and kubectl's columns require one word.
    let word = |reason: &str| {
        reason.starts_with(|c: char| c.is_ascii_uppercase())
            && reason.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let wrong: Vec<&str> = reasons.filter(|reason| !explained(reason) || !word(reason)).collect();
    assert!(wrong.is_empty(), "{wrong:?}");
    assert!(!explained("Whatever"));
}

/// Parts of commands that change the installation. A test runs each such command from the page.
const COMMANDS: [&str; 5] =
    ["-k deploy/", "-k target/", "kubectl replace --filename", " set env ", "create rolebinding"];

#[test]
fn every_command_that_installs_changes_or_removes_pitstop_is_marked_to_be_run() {
    let mut unmarked = Vec::new();
    for page in pages() {
        let text = fs::read_to_string(&page).unwrap();
        let run: Vec<(usize, usize)> = docs::blocks(&text)
            .into_iter()
            .filter(|block| block.mark.is_some() && block.language == "sh")
            .map(|block| (block.line, block.line + block.text.lines().count()))
            .collect();
        for (at, line) in text.lines().enumerate().map(|(at, line)| (at + 1, line)) {
            let is_one = COMMANDS.iter().any(|command| line.contains(command));
            if is_one && !run.iter().any(|(first, end)| (*first..*end).contains(&at)) {
                unmarked.push(format!("{}:{at}: {line}", page.display()));
            }
        }
    }
    assert!(unmarked.is_empty(), "{unmarked:#?}");
}

/// The blocks of commands that no test runs: page, start of the block, reason.
const NOT_RUN: [(&str, &str, &str); 28] = [
    ("README.md", "kubectl pitstop restart", PLUGIN),
    ("docs/contributing.md", "sha256sum --check SHA256SUMS", "for the files of a release"),
    ("docs/contributing.md", "sudo -E env", "it starts the cluster that the tests have"),
    ("docs/design/testing.md", "cargo test --profile sim", "a command of contributors"),
    (
        "docs/install.md",
        "cargo xtask image --registry",
        "a build of minutes; what the tests install was built likewise",
    ),
    ("docs/install.md", "cargo xtask image\n", "what the tests install was built by it"),
    ("docs/install.md", "ctr --namespace k8s.io images import", "one command for each kind of node"),
    ("docs/install.md", "kubectl pitstop doctor", PLUGIN),
    ("docs/quick-start.md", "cargo xtask image\nk3d", "it needs Docker"),
    ("docs/quick-start.md", "cargo xtask image\nkind", "it needs Docker"),
    ("docs/tasks/harden.md", "strace -ff", "it goes on until it is ended"),
    ("docs/tasks/restart-a-container.md", "kubectl get crr --watch", "it goes on until it is ended"),
    ("docs/tasks/update-a-workload.md", "kubectl patch daemonset agent --namespace=shop -p", RELEASE),
    ("docs/tasks/update-a-workload.md", "kubectl rollout resume deployment web", RELEASE),
    (
        "docs/tasks/use-kubectl-pitstop.md",
        "cargo install --locked --path cli",
        "it installs into the user's own folder",
    ),
    ("docs/tasks/use-kubectl-pitstop.md", "cargo xtask plugin", "it installs into /usr/local/bin"),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop doctor", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop enable", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop explain", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop node", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop resize", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop restart", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "kubectl pitstop wait", PLUGIN),
    ("docs/tasks/use-kubectl-pitstop.md", "ln -s kubectl-pitstop", "it installs beside the plugin"),
    (
        "docs/tasks/use-kubectl-pitstop.md",
        "source <(kubectl-pitstop",
        "it changes the shell that it is run in",
    ),
    ("docs/tasks/watch-pitstop.md", "kubectl", "for a cluster with the Prometheus Operator"),
    (
        "docs/troubleshooting.md",
        "kubectl --namespace pitstop-system port-forward",
        "it goes on until it is ended",
    ),
    (
        "docs/troubleshooting.md",
        "kubectl get crr web-0-restart",
        "one command for each object that there may be",
    ),
];
const PLUGIN: &str = "tests/e2e/tests/pitstop/cli.rs runs each command of the plugin in a terminal";
const RELEASE: &str = "the release of a StatefulSet is run";

#[test]
fn every_block_of_commands_is_marked_to_be_run_or_said_not_to_be() {
    let mut wrong = Vec::new();
    let mut listed = BTreeSet::new();
    for page in pages() {
        for block in docs::blocks(&fs::read_to_string(&page).unwrap()) {
            let at = || format!("{}:{}", page.display(), block.line);
            if ["bash", "console", "shell"].contains(&&*block.language) {
                wrong.push(format!("{}: a block of commands is `sh`", at()));
            }
            if block.language != "sh" || block.mark.is_some() {
                continue;
            }
            let is_this = |of: &str, start: &str| page == root().join(of) && block.text.starts_with(start);
            match NOT_RUN.iter().position(|(of, start, _)| is_this(of, start)) {
                Some(one) => drop(listed.insert(one)),
                None => wrong.push(format!("{}: neither run nor in NOT_RUN: {}", at(), block.text)),
            }
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    let gone: Vec<_> = NOT_RUN.iter().enumerate().filter(|(at, _)| !listed.contains(at)).collect();
    assert!(gone.is_empty(), "no page has these any more: {gone:?}");
}

/// The tests on the real cluster name every mark, and no others.
#[test]
fn every_mark_is_run_by_a_test() {
    let mut marks = BTreeSet::new();
    for page in pages() {
        marks.extend(
            docs::blocks(&fs::read_to_string(page).unwrap()).into_iter().filter_map(|block| block.mark),
        );
    }
    let mut run = BTreeSet::new();
    let mut folders = vec![root().join("tests/e2e")];
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()) {
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let text = fs::read_to_string(&path).unwrap_or_default();
            for call in ["documented(\"", "paste(\""] {
                let names = text.split(call).skip(1).filter_map(|rest| rest.split('"').next());
                run.extend(names.map(str::to_owned));
            }
        }
    }
    assert!(marks.len() > 3);
    assert_eq!(marks, run);
}

/// Every `kustomization.yaml` on a page can be applied from the folder that the page names.
#[test]
fn every_kustomization_that_is_shown_is_understood() {
    let mut shown = 0;
    for page in pages() {
        for block in docs::blocks(&fs::read_to_string(&page).unwrap()) {
            let Some((_, rest)) = block.text.split_once("kustomization.yaml") else { continue };
            let Some(at) = rest.find("apiVersion:") else { continue };
            let text = rest[at..].split("EOF").next().unwrap();
            // Built folders are under `target`, which a checkout lacks. Use their sources instead.
            let text = text
                .replace("- ../deploy/", "- ../../deploy/")
                .replace("deploy/gate-webhook", "deploy/overlays/gate-webhook");
            let objects = kustomize::load_text(&text, &root().join("deploy/base"));
            let objects =
                objects.unwrap_or_else(|error| panic!("{}:{}: {error:#}", page.display(), block.line));
            assert!(objects.len() > 20, "{}", page.display());
            shown += 1;
        }
    }
    assert!(shown >= 1, "{shown}");
}
