//! Scripts written by hand: one for each documented behaviour.

use super::script::{Id, Op, Script, Shape};
use crate::node::runtime::State;

/// An ID that no container has.
const NOBODY: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

/// Seconds that suffice for a process that reacts at once, on any machine.
const AMPLE: i64 = 60;

pub(super) fn scripts() -> Vec<Script> {
    let mut all = Vec::new();
    let mut add = |name: &str, ops: Vec<Op>| {
        all.push(Script { name: name.to_owned(), ops, alone: false });
    };
    reads(&mut add);
    stops(&mut add);
    commands(&mut add);
    lives(&mut add);
    sandboxes(&mut add);
    for (name, ops) in restarts() {
        all.push(Script { name: name.to_owned(), ops, alone: true });
    }
    all
}

type Add<'a> = &'a mut dyn FnMut(&str, Vec<Op>);

fn reads(add: Add<'_>) {
    add("version and status", vec![Op::Version, Op::Ready]);
    add(
        "lists",
        [
            vec![Op::List],
            made("a", Shape::Polite),
            vec![create("b", Shape::Polite), Op::List, Op::ListName("a".into()), Op::ListName("none".into())],
            made("c", Shape::Job(3)),
            vec![Op::Ended("c".into()), Op::List],
            [State::Created, State::Running, State::Exited, State::Unknown].map(Op::ListState).to_vec(),
            vec![Op::ListSandbox("pod".into()), Op::ListSandbox(prefix("pod")), Op::ListSandbox(nobody())],
        ]
        .concat(),
    );
    add(
        "list by ID",
        [
            made("a", Shape::Polite),
            vec![create("b", Shape::Polite)],
            vec![Op::ListId("a".into()), Op::ListId(prefix("b")), Op::ListId(nobody())],
            vec![Op::ListId(Id::Longer("a".into())), Op::ListId(Id::Capitals("a".into()))],
        ]
        .concat(),
    );
    add(
        "status in every state",
        [
            vec![
                create("a", Shape::Polite),
                Op::Status("a".into()),
                Op::Start("a".into()),
                Op::Status("a".into()),
            ],
            vec![Op::Stop("a".into(), AMPLE), Op::Status("a".into())],
            made("good", Shape::Job(0)),
            vec![Op::Ended("good".into())],
            made("bad", Shape::Job(200)),
            vec![Op::Ended("bad".into())],
        ]
        .concat(),
    );
    add("status of nobody", vec![Op::Status(nobody())]);
    add("status of no ID", vec![Op::Status(Id::Text(String::new()))]);
    add(
        "status by other forms of an ID",
        [
            made("a", Shape::Polite),
            vec![
                Op::Status(prefix("a")),
                Op::Status(Id::Prefix("a".into(), 63)),
                Op::Status(Id::Longer("a".into())),
                Op::Status(Id::Capitals("a".into())),
                Op::Status("pod".into()),
            ],
        ]
        .concat(),
    );
    add(
        "a prefix of two",
        vec![
            Op::Ambiguous("p".into()),
            Op::Status("p".into()),
            Op::Stop("p".into(), 1),
            Op::Exec("p".into(), words("true"), 2),
            Op::Start("p".into()),
            Op::Remove("p".into()),
            Op::ListId("p".into()),
        ],
    );
}

fn stops(add: Add<'_>) {
    add("stop of a polite one", [made("a", Shape::Polite), stop_and_look("a", AMPLE)].concat());
    add("stop of a stubborn one", [made("a", Shape::Stubborn), stop_and_look("a", 1)].concat());
    add("stop with two seconds", [made("a", Shape::Stubborn), stop_and_look("a", 2)].concat());
    add("stop without grace", [made("a", Shape::Polite), stop_and_look("a", 0)].concat());
    add("stop with less than none", [made("a", Shape::Polite), stop_and_look("a", -5)].concat());
    add(
        "stop again and again",
        [made("a", Shape::Polite), stop_and_look("a", AMPLE), stop_and_look("a", 1), stop_and_look("a", 0)]
            .concat(),
    );
    add("stop of one never started", [vec![create("a", Shape::Polite)], stop_and_look("a", 1)].concat());
    add(
        "stop of one that ended",
        [made("a", Shape::Job(4)), vec![Op::Ended("a".into())], stop_and_look("a", 1)].concat(),
    );
    add("stop of nobody", vec![Op::Stop(nobody(), 1), Op::Stop(nobody(), 0)]);
    add("stop of no ID", vec![Op::Stop(Id::Text(String::new()), 1)]);
    add(
        "stop by a prefix",
        [made("a", Shape::Polite), vec![Op::Stop(prefix("a"), AMPLE), Op::Status("a".into())]].concat(),
    );
    add(
        "stop by an ID in capitals",
        [made("a", Shape::Polite), vec![Op::Stop(Id::Capitals("a".into()), AMPLE), Op::Status("a".into())]]
            .concat(),
    );
    let begin = |name: &str, grace| Op::BeginStop(name.into(), "a".into(), grace);
    let end = |name: &str| Op::End(name.into());
    add(
        "two stops of a polite one",
        [made("a", Shape::Polite), vec![begin("x", AMPLE), begin("y", AMPLE), end("x"), end("y")]].concat(),
    );
    add(
        "a short stop beside a long one",
        [
            made("a", Shape::Stubborn),
            vec![begin("long", AMPLE), Op::Pause(300), begin("short", 1), end("short"), end("long")],
            vec![Op::Status("a".into())],
        ]
        .concat(),
    );
    add(
        "a long stop beside a short one",
        [
            made("a", Shape::Stubborn),
            vec![begin("short", 2), Op::Pause(300), begin("long", AMPLE), end("long"), end("short")],
            vec![Op::Status("a".into())],
        ]
        .concat(),
    );
    add(
        "a kill beside a stop",
        [
            made("a", Shape::Stubborn),
            vec![begin("long", AMPLE), Op::Pause(300), Op::Stop("a".into(), 0), end("long")],
            vec![Op::Status("a".into())],
        ]
        .concat(),
    );
    add(
        "the signal is sent once",
        [
            made("a", Shape::Second),
            vec![begin("long", AMPLE), Op::Pause(500), Op::Stop("a".into(), 1), end("long")],
            vec![Op::Status("a".into())],
        ]
        .concat(),
    );
    add(
        "a stop that is left never kills",
        [
            made("a", Shape::Stubborn),
            vec![
                begin("x", 1),
                Op::Pause(400),
                Op::Leave("x".into()),
                Op::Pause(1800),
                Op::Status("a".into()),
            ],
            stop_and_look("a", 1),
        ]
        .concat(),
    );
    add(
        "a stop that is left has sent its signal",
        [
            made("a", Shape::Polite),
            vec![begin("x", AMPLE), Op::Pause(300), Op::Leave("x".into()), Op::Ended("a".into())],
        ]
        .concat(),
    );
    add(
        "the signal of a stop that was left counts",
        [
            made("a", Shape::Second),
            vec![begin("x", AMPLE), Op::Pause(500), Op::Leave("x".into()), Op::Pause(200)],
            stop_and_look("a", 1),
        ]
        .concat(),
    );
}

fn commands(add: Add<'_>) {
    let sh = |script: &str| ["/bin/sh", "-c", script].map(str::to_owned).to_vec();
    let exec = |cmd: Vec<String>, timeout| Op::Exec("a".into(), cmd, timeout);
    add(
        "exit codes",
        [
            made("a", Shape::Polite),
            [0, 1, 3, 127, 255].map(|n| exec(sh(&format!("exit {n}")), 20)).to_vec(),
            vec![exec(sh("kill -9 $$"), 20), exec(sh("sleep 0.2; exit 3"), 20), exec(sh("true"), 0)],
        ]
        .concat(),
    );
    add(
        "commands that are not there",
        [
            made("a", Shape::Polite),
            vec![
                exec(words("/none"), 20),
                exec(words("none"), 20),
                exec(sh("none"), 20),
                Op::Status("a".into()),
            ],
        ]
        .concat(),
    );
    add(
        "a command that takes too long",
        [
            made("a", Shape::Polite),
            vec![exec(words("/bin/sleep 60"), 1), exec(sh("true"), 20), Op::Status("a".into())],
        ]
        .concat(),
    );
    add(
        "commands where none can run",
        [
            vec![create("a", Shape::Polite), exec(sh("true"), 20), Op::Start("a".into())],
            stop_and_look("a", AMPLE),
            vec![exec(sh("true"), 20), Op::Exec(nobody(), sh("true"), 20)],
            vec![Op::Exec(Id::Text(String::new()), sh("true"), 20)],
        ]
        .concat(),
    );
    add(
        "a command by a prefix",
        [made("a", Shape::Polite), vec![Op::Exec(prefix("a"), sh("exit 4"), 20)]].concat(),
    );
    let begin = |cmd: Vec<String>| Op::BeginExec("x".into(), "a".into(), cmd, 50);
    add(
        "a command ends with its container",
        [
            made("a", Shape::Polite),
            vec![begin(words("/bin/sleep 40")), Op::Pause(500), Op::Stop("a".into(), 0), Op::End("x".into())],
        ]
        .concat(),
    );
    add(
        "a command beside a stop",
        [
            made("a", Shape::Stubborn),
            vec![begin(sh("sleep 0.3; exit 5")), Op::Stop("a".into(), 2), Op::End("x".into())],
        ]
        .concat(),
    );
    add(
        "a command that is left",
        [
            made("a", Shape::Polite),
            vec![begin(words("/bin/sleep 40")), Op::Pause(300), Op::Leave("x".into()), exec(sh("true"), 20)],
            stop_and_look("a", AMPLE),
        ]
        .concat(),
    );
}

fn lives(add: Add<'_>) {
    add(
        "start twice",
        [made("a", Shape::Polite), vec![Op::Start("a".into()), Op::Status("a".into())]].concat(),
    );
    add(
        "start of one that ended",
        [
            made("a", Shape::Job(0)),
            vec![Op::Ended("a".into()), Op::Start("a".into()), Op::Status("a".into())],
        ]
        .concat(),
    );
    add("start of nobody", vec![Op::Start(nobody()), Op::Start(Id::Text(String::new()))]);
    add(
        "start of what is not there",
        vec![
            create("a", Shape::Missing),
            Op::Start("a".into()),
            Op::Status("a".into()),
            Op::Start("a".into()),
            Op::Stop("a".into(), 1),
            Op::Remove("a".into()),
            Op::Status("a".into()),
        ],
    );
    add(
        "start by a prefix",
        vec![create("a", Shape::Polite), Op::Start(prefix("a")), Op::Status("a".into())],
    );
    add(
        "create twice under one name",
        [
            made("a", Shape::Polite),
            vec![create("a", Shape::Polite), Op::List, Op::Create("a".into(), Shape::Polite, 1), Op::List],
        ]
        .concat(),
    );
    add(
        "create where nothing is",
        vec![
            Op::CreateIn(nobody(), "a".into(), Shape::Polite),
            Op::CreateOf("none:missing".into(), "b".into()),
            Op::CreateIn(prefix("pod"), "c".into(), Shape::Polite),
            Op::List,
        ],
    );
    add(
        "a name is free again after its removal",
        vec![
            create("a", Shape::Polite),
            Op::Remove("a".into()),
            create("a", Shape::Polite),
            Op::Status("a".into()),
        ],
    );
    add(
        "remove of one that ended",
        [
            made("a", Shape::Job(0)),
            vec![
                Op::Ended("a".into()),
                Op::Remove("a".into()),
                Op::Status("a".into()),
                Op::Remove("a".into()),
            ],
            vec![Op::Stop("a".into(), 1), Op::List],
        ]
        .concat(),
    );
    add(
        "remove of one that runs",
        [made("a", Shape::Polite), vec![Op::Remove("a".into()), Op::Status("a".into()), Op::List]].concat(),
    );
    add("remove of nobody", vec![Op::Remove(nobody()), Op::Remove(Id::Text(String::new()))]);
    add(
        "remove while it is stopped",
        [
            made("a", Shape::Stubborn),
            vec![Op::BeginStop("x".into(), "a".into(), AMPLE), Op::Pause(300), Op::Remove("a".into())],
            vec![Op::End("x".into()), Op::Status("a".into())],
        ]
        .concat(),
    );
}

fn sandboxes(add: Add<'_>) {
    add(
        "a sandbox that is stopped",
        [
            made("a", Shape::Stubborn),
            vec![create("b", Shape::Polite), Op::SandboxStatus("pod".into()), Op::StopSandbox("pod".into())],
            vec![Op::SandboxStatus("pod".into()), Op::Status("a".into()), Op::Status("b".into())],
            vec![Op::Start("b".into()), Op::Status("b".into()), Op::StopSandbox("pod".into())],
        ]
        .concat(),
    );
    add(
        "a sandbox that is removed",
        [
            made("a", Shape::Polite),
            vec![Op::RemoveSandbox("pod".into()), Op::SandboxStatus("pod".into()), Op::Status("a".into())],
            vec![Op::RemoveSandbox("pod".into()), Op::StopSandbox("pod".into())],
        ]
        .concat(),
    );
    add(
        "a sandbox of nobody",
        vec![Op::SandboxStatus(nobody()), Op::StopSandbox(nobody()), Op::RemoveSandbox(nobody())],
    );
    add(
        "two sandboxes of a Pod",
        [
            made("a", Shape::Polite),
            vec![Op::StopSandbox("pod".into()), Op::Sandbox("pod2".into(), 1)],
            vec![Op::CreateIn("pod2".into(), "b".into(), Shape::Polite), Op::Start("b".into()), Op::List],
            vec![Op::SandboxStatus("pod".into()), Op::SandboxStatus(prefix("pod2"))],
        ]
        .concat(),
    );
    add(
        "a sandbox of a name that is taken",
        vec![Op::Sandbox("pod3".into(), 0), Op::SandboxStatus("pod".into())],
    );
}

fn restarts() -> Vec<(&'static str, Vec<Op>)> {
    let begin = Op::BeginStop("x".into(), "a".into(), AMPLE);
    vec![
        (
            "a stop that the runtime's end cuts",
            [
                made("a", Shape::Stubborn),
                vec![begin.clone(), Op::Pause(400), Op::Restart, Op::End("x".into()), Op::Status("a".into())],
                stop_and_look("a", 1),
            ]
            .concat(),
        ),
        (
            "a runtime that starts anew sends the signal again",
            [
                made("a", Shape::Second),
                vec![begin, Op::Pause(500), Op::Restart, Op::End("x".into()), Op::Status("a".into())],
                stop_and_look("a", AMPLE),
            ]
            .concat(),
        ),
        (
            "what ends while the runtime is away is found",
            [
                made("a", Shape::Job(6)),
                vec![
                    create("b", Shape::Polite),
                    Op::Down,
                    Op::Ended("a".into()),
                    Op::List,
                    Op::SandboxStatus("pod".into()),
                ],
            ]
            .concat(),
        ),
    ]
}

fn create(name: &str, shape: Shape) -> Op {
    Op::Create(name.to_owned(), shape, 0)
}

/// Creates and starts a container.
fn made(name: &str, shape: Shape) -> Vec<Op> {
    vec![create(name, shape), Op::Start(name.into())]
}

fn stop_and_look(name: &str, grace: i64) -> Vec<Op> {
    vec![Op::Stop(name.into(), grace), Op::Status(name.into())]
}

fn prefix(name: &str) -> Id {
    Id::Prefix(name.to_owned(), 16)
}

fn nobody() -> Id {
    Id::Text(NOBODY.to_owned())
}

fn words(text: &str) -> Vec<String> {
    text.split(' ').map(str::to_owned).collect()
}
