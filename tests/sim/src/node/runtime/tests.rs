//! Each documented behaviour of a runtime that `conform::runtime` cannot compare with a real one: other
//! runtimes, faults, exact times.

use super::*;

const ME: Client = Client(1);

struct Bench {
    runtime: Runtime,
    now: u64,
    sandbox: String,
    /// Replies that no call of `end` has taken yet.
    came: Vec<(CallId, Reply)>,
}

impl Bench {
    fn new(flavor: Flavor) -> Self {
        let mut bench = Self {
            runtime: Runtime::new(Options::of(flavor), 7),
            now: 1000,
            sandbox: String::new(),
            came: Vec::new(),
        };
        bench.runtime.set_wall(1000, 1_700_000_000_000);
        let Ok(Answer::Created(id)) = bench.call(Call::RunPodSandbox(pod())) else { panic!() };
        bench.sandbox = id;
        bench
    }

    fn begin(&mut self, call: Call) -> CallId {
        self.runtime.call(self.now, ME, call)
    }

    /// Goes from event to event until this call is answered.
    fn end(&mut self, call: CallId) -> Reply {
        loop {
            let replies = self.runtime.advance(self.now);
            self.came.extend(replies);
            if let Some(at) = self.came.iter().position(|r| r.0 == call) {
                return self.came.remove(at).1;
            }
            self.now = self.runtime.wake_at().expect("an answer is to come").max(self.now + 1);
        }
    }

    fn call(&mut self, call: Call) -> Reply {
        let id = self.begin(call);
        self.end(id)
    }

    fn pass(&mut self, ms: u64) -> Vec<(CallId, Reply)> {
        self.now += ms;
        self.runtime.advance(self.now)
    }

    fn start(&mut self, name: &str, process: Process) -> String {
        let config =
            ContainerConfig { name: name.into(), image: "app:1".into(), process, ..Default::default() };
        let sandbox = self.sandbox.clone();
        let Ok(Answer::Created(id)) = self.call(Call::CreateContainer { sandbox, config }) else { panic!() };
        let _ = self.call(Call::StartContainer { id: id.clone() });
        id
    }

    fn stop(&mut self, id: &str, timeout_s: i64) -> Reply {
        self.call(Call::StopContainer { id: id.into(), timeout_s })
    }

    fn info(&mut self, id: &str) -> ContainerInfo {
        let Ok(Answer::Container(info)) = self.call(Call::ContainerStatus { id: id.into() }) else {
            panic!()
        };
        *info
    }

    fn state(&mut self, id: &str) -> (State, i32) {
        let info = self.info(id);
        (info.state, info.exit_code)
    }
}

/// The sandbox of every bench.
fn pod() -> SandboxConfig {
    SandboxConfig { name: "web".into(), uid: "u".into(), ..SandboxConfig::default() }
}

fn code(reply: &Reply) -> Code {
    reply.as_ref().expect_err("a failure").code
}

const NOBODY_HAS: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

#[test]
fn a_stop_of_nothing_depends_on_the_runtime() {
    assert_eq!(code(&Bench::new(Flavor::Containerd16).stop(NOBODY_HAS, 1)), Code::NotFound);
    assert_eq!(Bench::new(Flavor::Containerd2).stop(NOBODY_HAS, 1), Ok(Answer::Done));
    assert_eq!(Bench::new(Flavor::Crio).stop(NOBODY_HAS, 1), Ok(Answer::Done));
}

#[test]
fn a_name_that_is_taken_depends_on_the_runtime() {
    for (flavor, expected) in [
        (Flavor::Containerd16, Code::Unknown),
        (Flavor::Containerd2, Code::FailedPrecondition),
        (Flavor::Crio, Code::Unknown),
    ] {
        let mut b = Bench::new(flavor);
        assert_eq!(code(&b.call(Call::RunPodSandbox(pod()))), expected, "{flavor:?}");
        b.start("app", Process::polite());
        let config = ContainerConfig { name: "app".into(), image: "app:1".into(), ..Default::default() };
        let again = Call::CreateContainer { sandbox: b.sandbox.clone(), config };
        assert_eq!(code(&b.call(again)), expected, "{flavor:?}");
    }
}

#[test]
fn a_stop_signals_and_kills_when_its_time_is_over() {
    let mut b = Bench::new(Flavor::Containerd16);
    let (polite, stubborn) = (b.start("polite", Process::polite()), b.start("stubborn", Process::stubborn()));
    b.runtime.take_deeds();
    let begin = b.now;
    assert_eq!(b.stop(&polite, 30), Ok(Answer::Done));
    assert!(b.now < begin + 100, "it ended by itself");
    assert_eq!(b.state(&polite), (State::Exited, 7));
    let begin = b.now;
    assert_eq!(b.stop(&stubborn, 5), Ok(Answer::Done));
    assert_eq!(b.now, begin + 5000 + 5 + 2, "grace, kill, answer");
    assert_eq!(b.state(&stubborn), (State::Exited, KILLED));
    let kills: Vec<u64> =
        b.runtime.take_deeds().into_iter().filter(|d| d.kind == DeedKind::Kill).map(|d| d.at).collect();
    assert_eq!(kills, [begin + 5000]);
}

#[test]
fn the_signal_is_sent_once_and_each_stop_kills_by_its_own_time() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::stubborn());
    b.runtime.take_deeds();
    let begin = b.now;
    let long = b.begin(Call::StopContainer { id: id.clone(), timeout_s: 60 });
    b.pass(1000);
    let short = b.begin(Call::StopContainer { id: id.clone(), timeout_s: 2 });
    assert_eq!((b.end(short), b.end(long)), (Ok(Answer::Done), Ok(Answer::Done)));
    assert_eq!(b.info(&id).finished_at / 1_000_000 - 1_700_000_000_000, (begin + 3005 - 1000).cast_signed());
    let terms = b.runtime.take_deeds().iter().filter(|d| d.kind == DeedKind::Term).count();
    assert_eq!(terms, 1);
}

#[test]
fn a_restarted_runtime_has_forgotten_the_signal() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::stubborn());
    b.runtime.take_deeds();
    let stop = b.begin(Call::StopContainer { id: id.clone(), timeout_s: 30 });
    b.pass(100);
    b.runtime.restart(b.now, 300);
    assert_eq!(code(&b.end(stop)), Code::Unavailable, "cut");
    let early = b.call(Call::Version);
    assert_eq!(
        (code(&early), early.unwrap_err().message.as_str()),
        (Code::Unknown, "server is not initialized yet")
    );
    b.pass(60_000);
    assert_eq!(b.state(&id).0, State::Running, "the cut stop never kills");
    b.stop(&id, 1).unwrap();
    let terms = b.runtime.take_deeds().iter().filter(|d| d.kind == DeedKind::Term).count();
    assert_eq!(terms, 2);
}

#[test]
fn a_stop_whose_caller_leaves_never_kills_with_containerd() {
    for (flavor, left) in [(Flavor::Containerd2, State::Running), (Flavor::Crio, State::Exited)] {
        let mut b = Bench::new(flavor);
        let id = b.start("app", Process::stubborn());
        let stop = b.begin(Call::StopContainer { id: id.clone(), timeout_s: 1 });
        b.pass(300);
        b.runtime.cancel(stop);
        assert_eq!(b.pass(2000), [], "no reply");
        assert_eq!(b.state(&id).0, left, "{flavor:?}");
    }
}

#[test]
fn a_client_that_dies_takes_its_commands_with_it() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::polite());
    let cmd = ["sleep", "5"].map(str::to_owned).to_vec();
    b.begin(Call::ExecSync { id, cmd, timeout_s: 10 });
    b.begin(Call::Version);
    b.runtime.cancel_all(ME);
    assert_eq!(b.pass(60_000), []);
    assert_eq!(b.runtime.wake_at(), None);
}

#[test]
fn containers_outlive_the_runtime() {
    let mut b = Bench::new(Flavor::Containerd16);
    let (lives, ends) = (b.start("lives", Process::polite()), b.start("ends", Process::job(500, 3)));
    let made = b.now;
    b.runtime.down(b.now);
    assert_eq!(code(&b.call(Call::Status)), Code::Unavailable);
    b.pass(10_000);
    assert!(!b.runtime.containers()[&ends].alive(b.now));
    assert_eq!(b.runtime.containers()[&ends].info.state, State::Running, "nobody looked");
    b.runtime.up(b.now, 0);
    b.pass(1);
    assert_eq!(b.state(&lives).0, State::Running);
    assert_eq!(b.state(&ends), (State::Exited, 3));
    let ended = b.info(&ends).finished_at / 1_000_000 - 1_700_000_000_000 + 1000;
    assert!(ended.cast_unsigned() <= made + 500, "the true time: {ended} {made}");
}

#[test]
fn a_hanging_runtime_answers_late() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::stubborn());
    let stop = b.begin(Call::StopContainer { id: id.clone(), timeout_s: 1 });
    let hung_at = b.now;
    b.runtime.hang(b.now + 20_000);
    let version = b.begin(Call::Version);
    assert_eq!(b.pass(5000), []);
    assert!(b.runtime.containers()[&id].alive(b.now), "its timers hang as well");
    assert!(b.end(version).is_ok());
    assert!(b.end(stop).is_ok());
    assert!(b.now >= hung_at + 20_000);
}

#[test]
fn planned_failures_and_lies() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::polite());
    b.runtime.fail_next(Method::StopContainer, Code::Internal, false);
    assert_eq!(code(&b.stop(&id, 1)), Code::Internal);
    assert_eq!(b.state(&id).0, State::Running);
    b.runtime.lie_next_stops(1);
    assert_eq!(b.stop(&id, 1), Ok(Answer::Done));
    b.pass(5000);
    assert_eq!(b.state(&id).0, State::Running);
    b.runtime.fail_next(Method::StopContainer, Code::Unavailable, true);
    assert_eq!(code(&b.stop(&id, 1)), Code::Unavailable);
    b.pass(5000);
    assert_eq!(b.state(&id), (State::Exited, 7), "it failed and worked");
    let asked = b.runtime.take_deeds().into_iter().filter_map(|deed| match deed.kind {
        DeedKind::StopAsked(client, grace) => Some((client, grace)),
        _ => None,
    });
    assert_eq!(asked.collect::<Vec<_>>(), [(ME, 1)], "whose stop it was is known all the same");
    assert!(b.stop(&id, 1).is_ok(), "each plan counts once");
}

#[test]
fn a_process_that_hangs_in_the_kernel_outlives_the_kill() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::stubborn());
    b.runtime.undying(b.now, &id, b.now + 30_000);
    let begin = b.now;
    assert!(b.stop(&id, 0).is_ok());
    assert!(b.now >= begin + 30_000);
}

#[test]
fn a_reboot_ends_everything() {
    for wiped in [false, true] {
        let mut b = Bench::new(Flavor::Containerd16);
        let id = b.start("app", Process::polite());
        let boot = b.runtime.boot_id().to_owned();
        b.runtime.reboot(b.now, wiped);
        assert_ne!(b.runtime.boot_id(), boot);
        b.runtime.up(b.now, 0);
        b.pass(1);
        let answer = b.call(Call::ContainerStatus { id: id.clone() });
        if wiped {
            assert_eq!(code(&answer), Code::NotFound);
        } else {
            assert_eq!(b.state(&id), (State::Exited, 255));
            let sandbox = b.sandbox.clone();
            let Ok(Answer::Sandbox(s)) = b.call(Call::PodSandboxStatus { id: sandbox }) else { panic!() };
            assert!(!s.ready);
        }
    }
}

#[test]
fn a_sandbox_takes_its_containers_with_it() {
    let mut b = Bench::new(Flavor::Containerd16);
    let id = b.start("app", Process::stubborn());
    let sandbox = b.sandbox.clone();
    b.runtime.break_sandbox(b.now, &sandbox);
    b.pass(1);
    assert_eq!(b.state(&id), (State::Exited, KILLED));
    let other = ContainerConfig { name: "b".into(), image: "app:1".into(), ..Default::default() };
    let Ok(Answer::Created(late)) = b.call(Call::CreateContainer { sandbox: sandbox.clone(), config: other })
    else {
        panic!()
    };
    assert_eq!(code(&b.call(Call::StartContainer { id: late })), Code::Unknown);
    assert!(b.call(Call::RemovePodSandbox { id: sandbox }).is_ok());
    assert_eq!(code(&b.call(Call::ContainerStatus { id })), Code::NotFound);
}

#[test]
fn the_same_seed_makes_the_same_ids() {
    let ids = |seed| {
        let mut b = Bench::new(Flavor::Containerd16);
        b.runtime.rng = Rng::new(seed);
        b.start("app", Process::polite())
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    assert!(ids(1).len() == 64 && ids(1).bytes().all(|b| b.is_ascii_hexdigit()));
}

#[test]
fn replies_to_the_kubelet_are_its_own() {
    let mut b = Bench::new(Flavor::Containerd16);
    let call = b.runtime.call(b.now, Client::KUBELET, Call::Version);
    assert_eq!(b.pass(10), []);
    assert_eq!(b.runtime.wake_at(), Some(0), "the kubelet has to look");
    let replies = b.runtime.take_replies();
    assert_eq!((replies.len(), replies[0].0), (1, call));
    assert_eq!(b.runtime.wake_at(), None);
}
