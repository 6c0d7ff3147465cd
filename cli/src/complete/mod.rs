//! Completion, as kubectl asks plugins for it. A program `kubectl_complete-pitstop` gets the words after
//! `kubectl pitstop`, completes the last, and prints candidates and a directive
//! (kubectl's `pkg/cmd/plugin/plugin_completion.go`, and cobra's `__complete`).

mod decide;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::{CommandFactory as _, Parser};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, StatefulSet};
use k8s_openapi::api::core::v1::{Namespace, Node, Pod};
use kube::api::ListParams;
use kube::core::ApiResource;
use pitstop_api::image_update::PodImageUpdate;
use pitstop_api::recreate::ContainerRecreateRequest;
use pitstop_api::resize::PodResize;
use pitstop_api::rollout::InPlaceRollout;
use pitstop_cli_core::plain;
use pitstop_cli_core::target::RequestKind;

use self::decide::{Answer, Candidate, Type, decide};
use crate::args::{Cli, Globals};
use crate::output;
use crate::session::Session;

/// The program name that kubectl looks for.
const PROGRAM: &str = "kubectl_complete-pitstop";
/// The command that does the same, as in programs made with cobra.
const COMMAND: &str = "__complete";
/// Longest wait for names: a typing user does not wait longer.
const MOST_TIME: Duration = Duration::from_millis(500);
/// Most names in a list.
const MOST_NAMES: u32 = 500;

// Cobra's directives.
const FILES: u8 = 0;
const NO_SPACE: u8 = 2;
const NO_FILES: u8 = 4;

/// The words to complete, if the program was called for that.
pub fn words(args: impl IntoIterator<Item = OsString>) -> Option<Vec<String>> {
    let mut args = args.into_iter();
    let program = args.next()?;
    let called = Path::new(&program).file_stem().is_some_and(|it| it == PROGRAM);
    if !called && args.next()? != COMMAND {
        return None;
    }
    Some(args.map(|it| it.to_string_lossy().into_owned()).collect())
}

/// Prints completions of the last word. Errors are never printed: they would appear in the command line.
pub fn run(words: &[String]) -> ExitCode {
    let mut root = Cli::command();
    root.build();
    let (answer, typed) = decide(&root, words);
    let last = words.last().map(String::as_str).unwrap_or_default();
    let (candidates, directive) = match answer {
        Answer::Words(candidates) => (candidates, NO_FILES),
        Answer::Kinds(kinds) => (before_slash(kinds, last), NO_FILES | NO_SPACE),
        Answer::Names(kind, before) => (matching_names(kind, &before, last, &typed.globals), NO_FILES),
        Answer::Files => (Vec::new(), FILES),
        Answer::Nothing => (Vec::new(), NO_FILES),
    };
    for Candidate { word, help } in candidates {
        output::print(&if help.is_empty() { word } else { format!("{word}\t{help}") });
    }
    output::print(&format!(":{directive}"));
    ExitCode::SUCCESS
}

fn before_slash(kinds: &[Type], last: &str) -> Vec<Candidate> {
    let words = kinds.iter().map(|it| format!("{}/", it.word())).filter(|it| it.starts_with(last));
    words.map(|word| Candidate { word, help: String::new() }).collect()
}

/// The global flags alone.
#[derive(Debug, Parser)]
struct GlobalsOnly {
    #[command(flatten)]
    globals: Globals,
}

/// Names of objects that begin with the last word; empty if the API server does not give them in time.
fn matching_names(kind: Type, before: &str, last: &str, globals: &[String]) -> Vec<Candidate> {
    let args = std::iter::once("kubectl-pitstop").chain(globals.iter().map(String::as_str));
    let Ok(GlobalsOnly { globals }) = GlobalsOnly::try_parse_from(args) else { return Vec::new() };
    let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_all().build() else {
        return Vec::new();
    };
    let names = runtime.block_on(async { tokio::time::timeout(MOST_TIME, names(kind, &globals)).await });
    // A credential plugin may never end: do not wait for it.
    runtime.shutdown_background();
    let words = names.ok().flatten().unwrap_or_default().into_iter();
    let words = words.map(|name| format!("{before}{}", plain::line(&name, 253)));
    words.filter(|it| it.starts_with(last)).map(|word| Candidate { word, help: String::new() }).collect()
}

async fn names(kind: Type, globals: &Globals) -> Option<Vec<String>> {
    let session = Session::open(globals).await.ok()?;
    let resource = match kind {
        Type::Pod => ApiResource::erase::<Pod>(&()),
        Type::Deployment => ApiResource::erase::<Deployment>(&()),
        Type::StatefulSet => ApiResource::erase::<StatefulSet>(&()),
        Type::DaemonSet => ApiResource::erase::<DaemonSet>(&()),
        Type::Request(RequestKind::Restart) => ApiResource::erase::<ContainerRecreateRequest>(&()),
        Type::Request(RequestKind::Resize) => ApiResource::erase::<PodResize>(&()),
        Type::Request(RequestKind::ImageUpdate) => ApiResource::erase::<PodImageUpdate>(&()),
        Type::Request(RequestKind::Rollout) => ApiResource::erase::<InPlaceRollout>(&()),
        Type::Namespace => ApiResource::erase::<Namespace>(&()),
        Type::Node => ApiResource::erase::<Node>(&()),
    };
    let params = ListParams::default().limit(MOST_NAMES);
    let list = session.dynamic(&resource).list_metadata(&params).await.ok()?;
    Some(list.items.into_iter().filter_map(|it| it.metadata.name).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kubectl_calls_it_by_its_name_and_a_shell_by_a_command() {
        let called = |args: &[&str]| words(args.iter().map(OsString::from));
        let some = Some(vec!["restart".to_owned(), String::new()]);
        assert_eq!(called(&["/usr/bin/kubectl_complete-pitstop", "restart", ""]), some);
        assert_eq!(called(&["kubectl-pitstop", "__complete", "restart", ""]), some);
        assert_eq!(called(&["kubectl-pitstop", "restart", ""]), None);
        assert_eq!(called(&["kubectl-pitstop"]), None);
    }

    #[test]
    fn types_end_with_a_slash() {
        let words = before_slash(&[Type::Pod, Type::Deployment], "d");
        assert_eq!(words, [Candidate { word: "deploy/".to_owned(), help: String::new() }]);
    }
}
