//! What completes a command line, by clap's own description of the commands.

use clap::{Arg, Command, ValueHint};
use pitstop_cli_core::target::RequestKind;

/// What completes the last word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    /// These words.
    Words(Vec<Candidate>),
    /// The types before a slash; names follow.
    Kinds(&'static [Type]),
    /// Names of objects, after this text.
    Names(Type, String),
    /// Files of this machine.
    Files,
    /// No completion: any word may follow.
    Nothing,
}

/// A word, and what it means.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// The word.
    pub word: String,
    /// Its meaning in one line; may be empty.
    pub help: String,
}

/// A type of object whose names complete a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Type {
    /// A Pod.
    Pod,
    /// A Deployment.
    Deployment,
    /// A `StatefulSet`.
    StatefulSet,
    /// A `DaemonSet`.
    DaemonSet,
    /// A request.
    Request(RequestKind),
    /// A namespace.
    Namespace,
    /// A node.
    Node,
}

impl Type {
    /// The word before the slash.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pod => "pod",
            Self::Deployment => "deploy",
            Self::StatefulSet => "sts",
            Self::DaemonSet => "ds",
            Self::Request(RequestKind::Restart) => "crr",
            Self::Request(kind) => kind.singular(),
            Self::Namespace => "namespace",
            Self::Node => "node",
        }
    }
}

/// The typed words, as far as completion needs them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    /// The global flags, for the connection to the API server.
    pub globals: Vec<String>,
    /// Number of words that are no flags and no values of flags.
    positional: usize,
    /// The flag whose value the last word is, by its ID.
    pending: Option<String>,
    /// `--` was typed: no flags follow.
    flags_ended: bool,
}

/// Decides what completes the last word. `root` is the whole program.
pub fn decide(root: &Command, words: &[String]) -> (Answer, Typed) {
    let Some((last, before)) = words.split_last() else { return (Answer::Nothing, Typed::default()) };
    let (command, typed) = read(root, before);
    let answer = answer(root, command, &typed, last);
    (answer, typed)
}

fn answer(root: &Command, command: Option<&Command>, typed: &Typed, last: &str) -> Answer {
    let flags = || flags_of(root, command);
    if let Some(id) = &typed.pending {
        return flags()
            .find(|it| it.get_id() == id.as_str())
            .map_or(Answer::Nothing, |it| value(it, "", last));
    }
    if !typed.flags_ended && last.starts_with('-') {
        if let Some((flag, begun)) = last.split_once('=') {
            let arg =
                flags().find(|it| it.get_long().is_some_and(|long| flag.strip_prefix("--") == Some(long)));
            return arg.map_or(Answer::Nothing, |it| value(it, &format!("{flag}="), begun));
        }
        let shown = flags().filter(|it| !it.is_hide_set());
        let all = shown.filter_map(|it| Some(candidate(format!("--{}", it.get_long()?), it.get_help())));
        return Answer::Words(matching(all, last));
    }
    let Some(command) = command else {
        if typed.positional > 0 {
            return Answer::Nothing;
        }
        let all = root.get_subcommands().filter(|it| !it.is_hide_set());
        return Answer::Words(matching(
            all.map(|it| candidate(it.get_name().to_owned(), it.get_about())),
            last,
        ));
    };
    positional(command, typed.positional, last)
}

/// Reads the words before the last.
fn read<'a>(root: &'a Command, words: &[String]) -> (Option<&'a Command>, Typed) {
    let mut command = None;
    let mut typed = Typed::default();
    for word in words {
        if let Some(id) = typed.pending.take() {
            keep_global(root, &id, word, &mut typed);
        } else if typed.flags_ended || !word.starts_with('-') || word == "-" {
            match (command, root.find_subcommand(word)) {
                (None, Some(found)) if !typed.flags_ended => command = Some(found),
                _ => typed.positional += 1,
            }
        } else if word == "--" {
            typed.flags_ended = true;
        } else {
            flag(root, command, word, &mut typed);
        }
    }
    (command, typed)
}

/// Reads a flag: `--long`, `--long=value`, `-s`, `-svalue`.
fn flag(root: &Command, command: Option<&Command>, word: &str, typed: &mut Typed) {
    let (name, inline) = match word.split_once('=') {
        Some((name, value)) => (name, Some(value)),
        None => (word, None),
    };
    let (arg, inline) = if let Some(long) = name.strip_prefix("--") {
        (flags_of(root, command).find(|it| it.get_long() == Some(long)), inline)
    } else {
        let mut letters = word.chars();
        letters.next();
        let short = letters.next();
        let rest = letters.as_str();
        let arg = flags_of(root, command).find(|it| short.is_some() && it.get_short() == short);
        (arg, (!rest.is_empty()).then(|| rest.strip_prefix('=').unwrap_or(rest)))
    };
    let Some(arg) = arg else { return };
    let id = arg.get_id().as_str();
    match (arg.get_action().takes_values(), inline) {
        (true, None) => typed.pending = Some(id.to_owned()),
        (true, Some(value)) => keep_global(root, id, value, typed),
        (false, _) if is_global(root, id) => typed.globals.extend(arg.get_long().map(|it| format!("--{it}"))),
        (false, _) => {}
    }
}

/// Keeps the value of a global flag.
fn keep_global(root: &Command, id: &str, value: &str, typed: &mut Typed) {
    let global = root.get_arguments().find(|it| it.get_id() == id && it.is_global_set());
    typed.globals.extend(global.and_then(|it| it.get_long()).map(|long| format!("--{long}={value}")));
}

fn is_global(root: &Command, id: &str) -> bool {
    root.get_arguments().any(|it| it.get_id() == id && it.is_global_set())
}

/// Flags of the command, and the global ones.
fn flags_of<'a>(root: &'a Command, command: Option<&'a Command>) -> impl Iterator<Item = &'a Arg> {
    // clap hands global flags on to each command.
    let own = command.into_iter().flat_map(Command::get_arguments);
    let own = own.filter(|it| !it.is_positional() && !it.is_global_set());
    own.chain(root.get_arguments().filter(|it| !it.is_positional() && it.is_global_set()))
}

/// What completes the value of a flag.
fn value(arg: &Arg, before: &str, begun: &str) -> Answer {
    if matches!(arg.get_value_hint(), ValueHint::AnyPath | ValueHint::FilePath) {
        return Answer::Files;
    }
    let possible = arg.get_possible_values();
    let shown = possible.iter().filter(|it| !it.is_hide_set());
    let all = shown.map(|it| candidate(format!("{before}{}", it.get_name()), it.get_help()));
    if !possible.is_empty() {
        return Answer::Words(matching(all, &format!("{before}{begun}")));
    }
    match arg.get_id().as_str() {
        "namespace" | "controller_namespace" => Answer::Names(Type::Namespace, before.to_owned()),
        _ => Answer::Nothing,
    }
}

/// What completes a word that is no flag.
fn positional(command: &Command, number: usize, last: &str) -> Answer {
    let mut args = command.get_positionals();
    let last_arg = command.get_positionals().last().filter(|it| takes_many(it));
    let Some(arg) = args.nth(number).or(last_arg) else { return Answer::Nothing };
    if !arg.get_possible_values().is_empty() {
        return value(arg, "", last);
    }
    let types = types(command.get_name());
    // After the target, `resize` and `set-image` take amounts and images.
    if types.is_empty()
        || (number > 0 && !takes_many(arg))
        || arg.get_id().as_str() == "images"
        || arg.get_id() == "requests" && command.get_name() == "resize"
    {
        return Answer::Nothing;
    }
    if let [only @ Type::Node] = types {
        return Answer::Names(*only, String::new());
    }
    match last.split_once('/') {
        None => Answer::Kinds(types),
        Some((word, _)) => {
            let found = types.iter().find(|it| it.word() == word);
            found.map_or(Answer::Nothing, |it| Answer::Names(*it, format!("{word}/")))
        }
    }
}

fn takes_many(arg: &Arg) -> bool {
    arg.get_num_args().is_some_and(|it| it.max_values() > 1)
        || matches!(arg.get_action(), clap::ArgAction::Append)
}

const RESTART: Type = Type::Request(RequestKind::Restart);
const RESIZE: Type = Type::Request(RequestKind::Resize);
const UPDATE: Type = Type::Request(RequestKind::ImageUpdate);
const ROLLOUT: Type = Type::Request(RequestKind::Rollout);

/// Types of a command's targets.
fn types(command: &str) -> &'static [Type] {
    use Type::{DaemonSet, Deployment, Namespace, Node, Pod, StatefulSet};
    match command {
        "restart" | "set-image" => &[Pod, Deployment, StatefulSet, DaemonSet],
        "resize" => &[Pod],
        "status" | "explain" => &[Pod, Deployment, StatefulSet, DaemonSet, RESTART, RESIZE, UPDATE, ROLLOUT],
        "wait" | "cancel" => &[RESTART, RESIZE, UPDATE, ROLLOUT, Deployment, StatefulSet, DaemonSet],
        "enable" | "disable" => &[Namespace, Deployment, StatefulSet, DaemonSet],
        "pause" | "resume" => &[Deployment, StatefulSet, DaemonSet, ROLLOUT],
        "undo" => &[Deployment, StatefulSet, DaemonSet],
        "node" => &[Node],
        _ => &[],
    }
}

fn candidate(word: String, help: Option<&clap::builder::StyledStr>) -> Candidate {
    let help = help.map(ToString::to_string).unwrap_or_default();
    Candidate { word, help: help.lines().next().unwrap_or_default().to_owned() }
}

fn matching(all: impl Iterator<Item = Candidate>, begun: &str) -> Vec<Candidate> {
    all.filter(|it| it.word.starts_with(begun)).collect()
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::args::Cli;

    fn decided(line: &str) -> (Answer, Typed) {
        let words: Vec<String> = line.split(' ').map(ToOwned::to_owned).collect();
        let mut root = Cli::command();
        root.build();
        decide(&root, &words)
    }

    fn words(line: &str) -> Vec<String> {
        match decided(line).0 {
            Answer::Words(all) => all.into_iter().map(|it| it.word).collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn commands_flags_and_values_are_completed() {
        assert_eq!(words("re"), ["resize", "restart", "resume"]);
        assert_eq!(words("restart --dry"), ["--dry-run"]);
        assert_eq!(words("restart --kubec"), ["--kubeconfig"]);
        assert_eq!(words("restart --dry-run="), ["--dry-run=none", "--dry-run=client", "--dry-run=server"]);
        assert_eq!(words("restart --dry-run s"), ["server"]);
        assert_eq!(words("completion ba"), ["bash"]);
        assert_eq!(words("-n shop sta"), ["status"]);
        let Answer::Words(all) = decided("doc").0 else { panic!("no words") };
        assert!(all[0].help.starts_with("Check the installation"), "{all:?}");
    }

    #[test]
    fn names_are_asked_for_where_a_target_stands() {
        assert_eq!(decided("restart po").0, Answer::Kinds(types("restart")));
        assert_eq!(decided("restart -c app pod/w").0, Answer::Names(Type::Pod, "pod/".into()));
        assert_eq!(decided("restart pod/a deploy/").0, Answer::Names(Type::Deployment, "deploy/".into()));
        assert_eq!(decided("node ").0, Answer::Names(Type::Node, String::new()));
        assert_eq!(decided("status -n ").0, Answer::Names(Type::Namespace, String::new()));
        assert_eq!(decided("status --namespace=s").0, Answer::Names(Type::Namespace, "--namespace=".into()));
        assert_eq!(decided("wait crr/").0, Answer::Names(Type::Request(RequestKind::Restart), "crr/".into()));
        for line in [
            "restart node/",
            "resize pod/a cp",
            "set-image pod/a ap",
            "status pod/a ",
            "nothing x",
            "restart -c ",
        ] {
            assert_eq!(decided(line).0, Answer::Nothing, "{line}");
        }
        assert_eq!(decided("status --kubeconfig ").0, Answer::Files);
    }

    #[test]
    fn the_connection_is_that_of_the_flags() {
        let (_, typed) = decided("--context prod restart -nshop --insecure-skip-tls-verify --as=ann pod/");
        assert_eq!(
            typed.globals,
            ["--context=prod", "--namespace=shop", "--insecure-skip-tls-verify", "--as=ann"]
        );
        let (answer, typed) = decided("restart -- --na");
        assert_eq!(answer, Answer::Kinds(types("restart")));
        assert!(typed.globals.is_empty());
    }

    #[test]
    fn every_command_that_takes_a_target_has_types() {
        for command in Cli::command().get_subcommands() {
            let takes = command.get_positionals().any(|it| it.get_possible_values().is_empty());
            let local = ["manual"].contains(&command.get_name());
            assert_eq!(takes && !local, !types(command.get_name()).is_empty(), "{}", command.get_name());
        }
    }
}
