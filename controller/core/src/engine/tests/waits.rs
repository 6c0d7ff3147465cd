//! Which requests report their wait: few in a short storm, all in a long wait.

use super::*;
use crate::time::earliest;

/// Requests that name one Pod.
struct Storm {
    bench: Bench,
    /// Number of requests: in all, and made so far.
    all: u64,
    made: u64,
    /// Milliseconds from one request to the next, and from an acceptance until the new container runs; None: never.
    apart: u64,
    takes: Option<u64>,
    /// When the request at work is served.
    served_at: Option<Mono>,
    restarts: u64,
    ended: u64,
    /// Writes that report a wait: when, and since when the request had been waiting.
    reports: Vec<(Mono, Mono)>,
}

fn name(number: u64) -> String {
    format!("r{number:05}")
}

impl Storm {
    fn new(all: u64, apart: u64, takes: Option<u64>) -> Self {
        let bench = Bench::new(vec![pod("web")], Vec::new());
        let (made, restarts, ended) = (0, 0, 0);
        Self { bench, all, made, apart, takes, served_at: None, restarts, ended, reports: Vec::new() }
    }

    fn made_at(&self, number: u64) -> Mono {
        Mono(number * self.apart)
    }

    /// Runs until `end`, or until all have ended.
    fn until(&mut self, end: Mono) {
        while self.ended < self.all {
            let arrives = (self.made < self.all).then(|| self.made_at(self.made));
            let next = earliest(earliest(arrives, self.served_at), self.bench.wake_at());
            let Some(next) = next.filter(|next| *next <= end) else { return };
            self.bench.now = self.bench.now.max(next);
            if arrives.is_some_and(|at| at <= next) {
                let request = request(&name(self.made), "web", i64::try_from(self.made).unwrap());
                self.made += 1;
                self.bench.requests.insert(request.key.clone(), request.clone());
                let actions = self.bench.step(Event::of::<Request>(Watch::Upsert(request)));
                self.carry_out(actions);
            }
            if self.served_at.take_if(|at| *at <= next).is_some() {
                self.serve();
            }
            let actions = self.bench.step(Event::Tick);
            self.carry_out(actions);
        }
    }

    fn serve(&mut self) {
        let actions = self.bench.acknowledge();
        self.carry_out(actions);
        self.restarts += 1;
        let mut pod = Pod { resource_version: format!("pod-{}", self.restarts), ..pod("web") };
        let status = pod.containers[0].status.as_mut().unwrap();
        status.container_id = format!("containerd://{:064x}", self.restarts + 1);
        status.restart_count = i32::try_from(self.restarts).unwrap();
        let actions = self.bench.step(Event::Pods(Watch::Upsert(pod)));
        self.carry_out(actions);
    }

    fn carry_out(&mut self, actions: Vec<Action>) {
        let mut todo = VecDeque::from(actions);
        while let Some(action) = todo.pop_front() {
            if matches!(action, Action::Emit(_) | Action::Count(_)) {
                continue;
            }
            if let Action::Write {
                object: Object { key, .. },
                write: Write::Status { status: Status::Recreate(status), .. },
            } = &action
            {
                let waited_since =
                    Mono(u64::try_from(self.bench.requests[key].created).unwrap() * self.apart);
                if status.phase == Some(Phase::Completed) {
                    self.ended += 1;
                } else if status.target.is_some() {
                    self.served_at = self.takes.map(|takes| Mono(self.bench.now.0 + takes));
                } else {
                    self.reports.push((self.bench.now, waited_since));
                }
            }
            let answer = self.bench.write(&action);
            todo.extend(self.bench.step(answer));
        }
    }
}

/// Only requests that came while few waited.
#[test]
fn in_a_storm_that_gets_on_few_tell_that_they_wait() {
    for (all, apart, takes, few) in [(900, 20, 100, 8), (3_000, 20, 100, 8), (3_000, 0, 190, 7)] {
        let mut storm = Storm::new(all, apart, Some(takes));
        storm.until(Mono(3_600_000));
        assert_eq!((storm.ended, storm.reports.len()), (all, few), "{all} requests, {takes} ms each");
    }
}

#[test]
fn where_nothing_moves_each_tells_once_and_in_time() {
    for (all, most) in [(2, 0), (20, 10_000), (100, 50_000), (3_000, 600_000)] {
        let mut storm = Storm::new(all, 0, None);
        storm.until(Mono(0));
        // The daemon is at work, so the first one does not end.
        let acknowledged = storm.bench.acknowledge();
        storm.carry_out(acknowledged);
        storm.until(Mono(3_500_000));
        assert_eq!(u64::try_from(storm.reports.len()).unwrap(), all - 1, "all but the one that is at work");
        // New requests begin at most 50 times a second.
        let last = storm.reports.iter().map(|(at, since)| at.0 - since.0).max().unwrap();
        assert!(last <= most + all * 20, "{all} requests: {last} ms");
        assert!(last >= most, "{all} requests: {last} ms");
    }
}
