use super::*;

use proptest::prelude::*;

fn at(hours: i64) -> DateTime<Utc> {
    DateTime::from_timestamp(1_700_000_000, 0).unwrap() + TimeDelta::hours(hours)
}

fn config() -> Config {
    Config { names: vec!["webhook.ns.svc".to_owned()], leaf_days: 90, ca_days: 365 }
}

/// How long a change takes to be known everywhere, in seconds; shorter than what [`plan`] waits.
const LAG: i64 = 30;

/// A Secret, a webhook configuration, and everybody who looks at them with a delay.
#[derive(Clone, Debug, Default)]
struct World {
    stored: Option<Stored>,
    /// Fingerprints; `None` without a configuration.
    published: Option<Vec<String>>,
    published_at: DateTime<Utc>,
    seen_since: DateTime<Utc>,
    /// What the API servers trust.
    trusted: Vec<String>,
    /// What the replicas serve, with the certificate of its CA.
    served: Option<(LeafFacts, CertFacts)>,
    stored_at: DateTime<Utc>,
    made: u32,
}

impl World {
    fn new() -> Self {
        Self { published: Some(Vec::new()), ..Self::default() }
    }

    fn bundle(&self) -> Vec<String> {
        self.stored.iter().flat_map(|stored| &stored.bundle).map(|ca| ca.fingerprint.clone()).collect()
    }

    fn seen(&self, now: DateTime<Utc>) -> Published {
        match &self.published {
            None => Published::Absent,
            Some(published) if *published == self.bundle() => {
                Published::Same((now - self.seen_since).to_std().unwrap_or_default())
            }
            Some(_) => Published::Other,
        }
    }

    fn plan(&self, now: DateTime<Utc>) -> Step {
        plan(now, self.stored.as_ref(), self.seen(now), &config())
    }

    fn cert(&mut self, validity: Validity) -> CertFacts {
        self.made += 1;
        let Validity { not_before, not_after } = validity;
        CertFacts { not_before, not_after, fingerprint: format!("f{}", self.made) }
    }

    fn apply(&mut self, now: DateTime<Utc>, step: &Step) {
        match step.clone() {
            Step::Nothing { .. } => return,
            Step::PublishCaBundle => {
                self.published = Some(self.bundle());
                self.published_at = now;
                self.seen_since = now;
                return;
            }
            Step::AddCa { validity, keep } => {
                let ca = self.cert(validity);
                let stored = self.stored.get_or_insert_default();
                stored.bundle.retain(|ca| keep.contains(&ca.fingerprint));
                stored.signer = Some(ca.fingerprint.clone());
                stored.bundle.push(ca);
                assert!(stored.bundle.len() <= MAX_BUNDLE);
            }
            Step::IssueLeaf { validity } => {
                let cert = self.cert(validity);
                let stored = self.stored.as_mut().unwrap();
                stored.leaf = Some(LeafFacts { cert, issuer: stored.signer.clone(), names: config().names });
            }
            Step::DropOldCas { keep } => {
                let stored = self.stored.as_mut().unwrap();
                stored.bundle.retain(|ca| keep.contains(&ca.fingerprint));
            }
        }
        self.stored_at = now;
    }

    /// What is known everywhere by now.
    fn spread(&mut self, now: DateTime<Utc>) {
        if now - self.published_at >= TimeDelta::seconds(LAG) {
            self.trusted = self.published.clone().unwrap_or_default();
        }
        if now - self.stored_at >= TimeDelta::seconds(LAG) {
            self.served = self.newest();
        }
    }

    /// The stored leaf and its CA.
    fn newest(&self) -> Option<(LeafFacts, CertFacts)> {
        let stored = self.stored.as_ref()?;
        Some((stored.leaf.clone()?, issuer(stored)?.clone()))
    }

    /// Whether every API server, late or not, accepts every replica, late or not.
    fn calls_succeed(&self, now: DateTime<Utc>) -> bool {
        [&self.served, &self.newest()].into_iter().all(|served| {
            served.as_ref().is_some_and(|(leaf, ca)| {
                let trusted = [Some(&self.trusted), self.published.as_ref()];
                in_date(now, &leaf.cert)
                    && in_date(now, ca)
                    && trusted.iter().flatten().all(|bundle| bundle.contains(&ca.fingerprint))
            })
        })
    }
}

/// Steps until there is nothing to do.
fn settle(world: &mut World, now: DateTime<Utc>) -> Vec<Step> {
    let mut steps = Vec::new();
    for _ in 0..8 {
        let step = world.plan(now);
        if matches!(step, Step::Nothing { .. }) {
            return steps;
        }
        world.apply(now, &step);
        steps.push(step);
    }
    panic!("no end: {steps:?}")
}

#[test]
fn the_first_start_publishes_before_it_signs() {
    let mut world = World::new();
    let steps = settle(&mut world, at(0));
    assert!(
        matches!(steps.as_slice(), [Step::AddCa { .. }, Step::PublishCaBundle, Step::IssueLeaf { .. }]),
        "{steps:?}"
    );
    let Step::Nothing { check_again_in } = world.plan(at(1)) else { panic!("not settled") };
    assert_eq!(check_again_in, Duration::from_hours(12));
}

#[test]
fn without_a_configuration_there_is_nothing_to_publish() {
    let mut world = World { published: None, ..World::default() };
    let steps = settle(&mut world, at(0));
    assert!(matches!(steps.as_slice(), [Step::AddCa { .. }, Step::IssueLeaf { .. }]), "{steps:?}");
    // Installed later, it gets the bundle.
    world.published = Some(Vec::new());
    assert_eq!(world.plan(at(1)), Step::PublishCaBundle);
}

#[test]
fn a_leaf_is_renewed_at_two_thirds_by_the_same_ca() {
    let mut world = World::new();
    settle(&mut world, at(0));
    assert!(matches!(world.plan(at(59 * 24)), Step::Nothing { .. }));
    let steps = settle(&mut world, at(60 * 24));
    assert!(matches!(steps.as_slice(), [Step::IssueLeaf { .. }]), "{steps:?}");
}

#[test]
fn a_new_ca_is_published_a_day_before_it_signs_and_the_old_one_stays_a_day_after() {
    let mut world = World::new();
    let mut now = at(0);
    settle(&mut world, now);
    let (mut added, mut switched, mut dropped) = (None, None, None);
    while dropped.is_none() {
        now += TimeDelta::hours(1);
        for step in settle(&mut world, now) {
            let changed = world.stored.as_ref().is_some_and(|stored| {
                added.is_some() && stored.leaf.as_ref().is_some_and(|leaf| leaf.issuer == stored.signer)
            });
            match step {
                Step::AddCa { ref keep, .. } => {
                    assert_eq!(keep.len(), 1);
                    added = Some(now);
                }
                Step::IssueLeaf { .. } if changed => switched = switched.or(Some(now)),
                Step::DropOldCas { .. } => dropped = Some(now),
                _ => {}
            }
        }
    }
    let (added, switched, dropped) = (added.unwrap(), switched.unwrap(), dropped.unwrap());
    assert!(switched - added >= TimeDelta::hours(OVERLAP_HOURS), "{added} {switched}");
    assert!(dropped - switched >= TimeDelta::hours(OVERLAP_HOURS), "{switched} {dropped}");
    assert!(world.published.as_ref().unwrap().len() == 1 && now < at(365 * 24), "{world:?}");
}

#[test]
fn a_wrong_name_is_cured_at_once() {
    let mut world = World::new();
    settle(&mut world, at(0));
    world.stored.as_mut().unwrap().leaf.as_mut().unwrap().names = vec!["other".to_owned()];
    assert!(matches!(world.plan(at(1)), Step::IssueLeaf { .. }));
}

#[test]
fn a_lost_ca_key_does_not_cut_off_a_leaf_that_works() {
    let mut world = World::new();
    settle(&mut world, at(0));
    let old = world.bundle();
    world.stored.as_mut().unwrap().signer = None;
    let steps = settle(&mut world, at(1));
    let [Step::AddCa { keep, .. }, Step::PublishCaBundle] = steps.as_slice() else { panic!("{steps:?}") };
    assert_eq!(*keep, old);
}

#[test]
fn the_certificates_of_an_installation_that_slept_for_years_are_replaced() {
    let mut world = World::new();
    settle(&mut world, at(0));
    let steps = settle(&mut world, at(24 * 1000));
    let [Step::AddCa { keep, .. }, Step::PublishCaBundle, Step::IssueLeaf { .. }] = steps.as_slice() else {
        panic!("{steps:?}")
    };
    assert!(keep.is_empty());
}

fn any_cert() -> impl Strategy<Value = CertFacts> {
    (-500_i64..100, 1_i64..400, 0_u8..4).prop_map(|(from, days, name)| CertFacts {
        not_before: at(from * 24),
        not_after: at((from + days) * 24),
        fingerprint: format!("x{name}"),
    })
}

fn any_fingerprint() -> impl Strategy<Value = Option<String>> {
    proptest::option::of((0_u8..5).prop_map(|name| format!("x{name}")))
}

prop_compose! {
    fn any_stored()(
        bundle in proptest::collection::vec(any_cert(), 0..6),
        signer in any_fingerprint(),
        leaf in proptest::option::of((any_cert(), any_fingerprint(), any::<bool>())),
    ) -> Stored {
        let mut bundle: Vec<CertFacts> = bundle;
        bundle.sort_by(|a, b| a.fingerprint.cmp(&b.fingerprint));
        bundle.dedup_by(|a, b| a.fingerprint == b.fingerprint);
        let leaf = leaf.map(|(cert, issuer, named)| LeafFacts {
            cert,
            issuer,
            names: if named { config().names } else { Vec::new() },
        });
        Stored { bundle, signer, leaf }
    }
}

proptest! {
    /// Years of life, looked at in odd moments, with leaders that are away for weeks or start anew: from the first
    /// success on no call fails. Sometimes the CA key is lost while nobody leads.
    #[test]
    fn calls_never_fail(
        waits in proptest::collection::vec((0_u8..20, 1_i64..130_000, any::<bool>()), 200..1200),
    ) {
        let mut world = World::new();
        let mut now = at(0);
        let mut works = false;
        let mut back = at(0);
        for (kind, seconds, restarted) in waits {
            // No leader for two thirds of what is left at a renewal, and not again before that is made good.
            let kind = if kind == 4 && now - back < TimeDelta::days(3) { 5 } else { kind };
            // A step, then a while; often seconds, now and then up to two weeks without a leader.
            let seconds = match kind { 0..4 | 10..17 => 1 + seconds % 40, 4 => seconds * 10, _ => seconds };
            if kind == 4 && restarted && let Some(stored) = &mut world.stored {
                stored.signer = None;
            }
            let step = if kind == 4 { Step::Nothing { check_again_in: Duration::ZERO } } else { world.plan(now) };
            world.apply(now, &step);
            if restarted {
                world.seen_since = now;
            }
            // Every moment of the while that could differ from its neighbours.
            for part in [0, 1, LAG, seconds / 2, seconds - 1] {
                let moment = now + TimeDelta::seconds(part.min(seconds));
                world.spread(moment);
                works |= world.calls_succeed(moment);
                prop_assert!(!works || world.calls_succeed(moment), "{moment} after {step:?}: {world:?}");
            }
            now += TimeDelta::seconds(seconds);
            if kind == 4 {
                back = now;
            }
        }
        prop_assert!(works || now < at(24), "{world:?}");
    }

    /// Whatever somebody left in the Secret and the configuration, a few steps cure it.
    #[test]
    fn any_state_is_cured(stored in proptest::option::of(any_stored()), published in proptest::option::of(Just(Vec::new()))) {
        let mut world = World { stored, published, ..World::default() };
        let before = world.clone();
        let steps = settle(&mut world, at(0));
        prop_assert!(steps.len() <= 5, "{steps:?}");
        let cured = world.stored.as_ref().unwrap();
        prop_assert!(!matches!(leaf(at(0), cured, &config()), Leaf::Broken), "{before:?} {steps:?}");
        prop_assert!(world.published.as_ref().is_none_or(|published| *published == world.bundle()));
        // A leaf that worked was not cut off on the way.
        if let Some(old) = &before.stored && leaf(at(0), old, &config()) != Leaf::Broken {
            prop_assert!(world.bundle().contains(old.leaf.as_ref().unwrap().issuer.as_ref().unwrap()));
        }
    }
}
