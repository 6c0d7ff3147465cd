//! Watches the Pod and its request, probes the app, and prints events as they happen.

use std::io::BufReader;
use std::sync::mpsc::{self, Receiver, Sender};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};
use serde::Deserialize;
use serde_json::Value;

use super::kubectl::{Kubectl, Running};
use super::objects::{PodView, RequestView};
use super::probe::{self, Prober, Route};
use super::{NAMESPACE, POD, REQUEST};

/// Longest wait for the watches to start.
const START: Duration = Duration::from_secs(15);
/// Longest wait for the end; above the request's own deadline.
const END: Duration = Duration::from_secs(90);
/// Wait for the watch of requests: `kubectl get --watch` does not report the start of a watch without objects.
const WATCH_START: Duration = Duration::from_secs(1);

/// An observation.
enum Observation {
    Pod(PodView),
    Request(RequestView),
    Answer(bool),
    /// The end of a watch, with the reason.
    Ended(String),
}

type Seen = (Instant, Observation);

/// The watches and the probe.
pub(super) struct Follower {
    seen: Receiver<Seen>,
    /// The Pod before anything happens.
    pod: PodView,
    // Dropped in this order: the prober ends before its route does.
    _prober: Prober,
    route: Route,
    _watches: [Running; 2],
}

/// Times of observed changes.
#[derive(Debug, Default)]
pub(super) struct Times {
    request: Option<Instant>,
    last_answer: Option<Instant>,
    silent_since: Option<Instant>,
    answers_again: Option<Instant>,
    not_ready: Option<Instant>,
    ready_again: Option<Instant>,
}

impl Follower {
    /// Starts the watches and the probe. Prints nothing before the request exists.
    pub(super) fn start(kubectl: &Kubectl) -> Result<Self> {
        let (sender, seen) = mpsc::channel();
        let pods = watch(kubectl, "pods", sender.clone(), |pod| PodView::read(pod).map(Observation::Pod))?;
        let requests = watch(kubectl, "containerrecreaterequests", sender.clone(), |request| {
            RequestView::read(request).map(Observation::Request)
        })?;
        let route = Route::open(kubectl)?;
        let prober = route.probe(move |at, good| sender.send((at, Observation::Answer(good))).is_ok());
        // The Pod exists, so its watch reports it when it starts. The watch of requests started at the same time.
        let until = Instant::now() + START;
        let pod = loop {
            match seen.recv_timeout(until.saturating_duration_since(Instant::now())) {
                Ok((_, Observation::Pod(pod))) => break pod,
                Ok((_, Observation::Ended(why))) => bail!(why),
                Ok(_) => {}
                Err(_) => bail!("the watch of Pod {POD} does not start"),
            }
        };
        std::thread::sleep(WATCH_START);
        Ok(Self { seen, pod, route, _prober: prober, _watches: [pods, requests] })
    }

    /// Number of starts that the app has written into the shared volume.
    pub(super) fn count_starts(&self) -> Result<usize> {
        Ok(self.route.get("starts.txt")?.lines().count())
    }

    /// Prints events until the request is over and the app answers again.
    pub(super) fn follow(&mut self) -> Result<Times> {
        let mut story = Story { pod: self.pod.clone(), ..Story::default() };
        let until = Instant::now() + END;
        while !story.over() {
            let Ok((at, seen)) = self.seen.recv_timeout(until.saturating_duration_since(Instant::now()))
            else {
                bail!("not over after {} s: {}", END.as_secs(), story.missing());
            };
            for line in story.take(at, seen)? {
                println!("    {line}");
            }
        }
        Ok(story.times)
    }
}

/// The observations so far.
#[derive(Default)]
struct Story {
    times: Times,
    pod: PodView,
    request: Option<RequestView>,
}

impl Story {
    /// Adds an observation, and returns the lines to print.
    fn take(&mut self, at: Instant, observation: Observation) -> Result<Vec<String>> {
        let lines = match observation {
            Observation::Ended(why) => bail!(why),
            Observation::Answer(good) => self.times.answer(at, good).into_iter().collect(),
            Observation::Pod(new) => {
                let old = std::mem::replace(&mut self.pod, new.clone());
                if old.ready && !new.ready {
                    self.times.not_ready.get_or_insert(at);
                } else if !old.ready && new.ready {
                    self.times.ready_again = Some(at);
                }
                old.changes(&new)
            }
            Observation::Request(new) if new.name == REQUEST => {
                let mut lines = Vec::new();
                if self.request.is_none() {
                    self.times.request = Some(at);
                    lines.push(format!("request  {REQUEST} is there"));
                }
                let old = self.request.replace(new.clone()).unwrap_or_default();
                lines.extend(old.changes(&new));
                lines
            }
            Observation::Request(_) => Vec::new(),
        };
        let Some(start) = self.times.request else { return Ok(Vec::new()) };
        let ms = at.saturating_duration_since(start).as_millis();
        Ok(lines.into_iter().map(|line| format!("{ms:>6}  {line}")).collect())
    }

    /// Whether the demo has nothing more to wait for. The probes need not have failed.
    fn over(&self) -> bool {
        let times = &self.times;
        self.request.as_ref().is_some_and(RequestView::over)
            && self.pod.ready
            && (times.silent_since.is_none() || times.answers_again.is_some())
    }

    /// What the demo still waits for.
    fn missing(&self) -> String {
        match &self.request {
            None => format!("request {REQUEST} did not appear"),
            Some(request) if !request.over() => {
                let phase = request.phase.map(|phase| format!("{phase:?}")).unwrap_or_default();
                format!("request {REQUEST} is {phase}: {}", request.complete.2)
            }
            Some(_) if !self.pod.ready => format!("Pod {POD} is not ready"),
            Some(_) => "the app does not answer".to_owned(),
        }
    }
}

impl Times {
    fn answer(&mut self, at: Instant, good: bool) -> Option<String> {
        match (good, self.silent_since, self.answers_again) {
            (true, Some(since), None) => {
                self.answers_again = Some(at);
                let ms = at.saturating_duration_since(since).as_millis();
                Some(format!("app      answers again, {ms} ms after the first try in vain"))
            }
            (true, None, _) => {
                self.last_answer = Some(at);
                None
            }
            (false, None, _) if self.request.is_some() => {
                self.silent_since = Some(at);
                Some("app      does not answer".to_owned())
            }
            _ => None,
        }
    }

    /// How long the app was away, as text.
    pub(super) fn away(&self) -> String {
        let between = |from: Option<Instant>, to: Option<Instant>| {
            Some(to?.saturating_duration_since(from?).as_millis())
        };
        let period = probe::PERIOD.as_millis();
        let answers = match between(self.last_answer, self.answers_again) {
            Some(ms) => format!("{ms} ms from its last answer to its next one (asked every {period} ms)"),
            None => format!("less than {period} ms: every request was answered"),
        };
        match between(self.not_ready, self.ready_again) {
            Some(ms) => format!("{answers}; the Pod was not Ready for {ms} ms"),
            None => answers,
        }
    }
}

/// One change, as kubectl prints it.
#[derive(Deserialize)]
struct Change {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

/// Starts a watch of a kind in the demo's namespace.
fn watch(
    kubectl: &Kubectl,
    kind: &'static str,
    seen: Sender<Seen>,
    parse: fn(Value) -> Result<Observation>,
) -> Result<Running> {
    let args = ["-n", NAMESPACE, "get", kind, "--watch", "--output-watch-events", "-o", "json"];
    let (running, stdout) = kubectl.spawn(args)?;
    std::thread::spawn(move || {
        let changes = serde_json::Deserializer::from_reader(BufReader::new(stdout)).into_iter::<Change>();
        let why =
            read(changes, &seen, parse).map_or_else(|error| format!("{error:#}"), |()| "it ended".to_owned());
        // The send fails if the demo is over.
        let _ = seen.send((Instant::now(), Observation::Ended(format!("the watch of {kind}: {why}"))));
    });
    Ok(running)
}

fn read(
    changes: impl Iterator<Item = serde_json::Result<Change>>,
    seen: &Sender<Seen>,
    parse: fn(Value) -> Result<Observation>,
) -> Result<()> {
    for change in changes {
        let Change { kind, object } = change?;
        match kind.as_str() {
            "ADDED" | "MODIFIED" => {}
            "ERROR" => bail!("{object}"),
            _ => continue,
        }
        if seen.send((Instant::now(), parse(object)?)).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::demo::objects::ContainerView;
    use pitstop_api::recreate::Phase;

    fn pod(id: &str, exit_code: Option<i64>, ready: bool) -> Observation {
        let app = ContainerView {
            id: id.into(),
            running: exit_code.is_none(),
            exit_code,
            ..ContainerView::default()
        };
        Observation::Pod(PodView { ready, containers: [("app".into(), app)].into(), ..PodView::default() })
    }

    fn request(phase: Option<Phase>, active: bool) -> Observation {
        let complete = (false, String::new(), "because".into());
        Observation::Request(RequestView {
            name: REQUEST.into(),
            phase,
            complete,
            active,
            ..RequestView::default()
        })
    }

    #[test]
    fn a_story_from_the_request_to_its_end() {
        let zero = Instant::now();
        let mut story = Story::default();
        let mut lines = Vec::new();
        let mut see = |ms: u64, observation| {
            lines.extend(story.take(zero + Duration::from_millis(ms), observation).unwrap());
            story.over()
        };
        assert!(!see(0, pod("a", None, true)));
        assert!(!see(10, Observation::Answer(true)));
        assert!(!see(20, request(None, true)));
        assert!(!see(30, request(Some(Phase::Recreating), true)));
        assert!(!see(60, Observation::Answer(false)));
        assert!(!see(70, pod("a", Some(0), false)));
        assert!(!see(110, Observation::Answer(false)));
        assert!(!see(170, pod("b", None, true)));
        assert!(!see(180, request(Some(Phase::Completed), true)));
        assert!(!see(190, request(Some(Phase::Completed), false)));
        assert!(see(200, Observation::Answer(true)));
        assert_eq!(
            lines,
            [
                "     0  request  restart-app is there",
                "    10  request  Recreating: because",
                "    40  app      does not answer",
                "    50  Pod      container app has ended with exit code 0",
                "    50  Pod      not Ready",
                "   150  Pod      container app runs again, as b: restart 0",
                "   150  Pod      Ready again",
                "   160  request  Completed: because",
                "   170  request  label `active` is gone",
                "   180  app      answers again, 140 ms after the first try in vain",
            ]
        );
        assert_eq!(
            story.times.away(),
            "190 ms from its last answer to its next one (asked every 50 ms); the Pod was not Ready for 100 ms"
        );
    }

    #[test]
    fn what_is_missing_is_named() {
        let mut story = Story::default();
        assert_eq!(story.missing(), "request restart-app did not appear");
        story.take(Instant::now(), request(Some(Phase::Recreating), true)).unwrap();
        assert_eq!(story.missing(), "request restart-app is Recreating: because");
        story.take(Instant::now(), request(Some(Phase::Completed), false)).unwrap();
        assert_eq!(story.missing(), "Pod web is not ready");
        assert!(story.take(Instant::now(), Observation::Ended("why".into())).is_err());
    }
}
