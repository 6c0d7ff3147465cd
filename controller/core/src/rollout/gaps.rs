//! How long Pods are out of service while they are restarted or updated, by this process's clock.

use std::collections::BTreeMap;
use std::time::Duration;

use pitstop_api::rollout::ServiceGap;

use super::history::Rolling;
use super::sorted::Seen;
use super::stage::Stage;
use crate::key::ObjectKey;
use crate::time::Mono;

/// Most gaps that are remembered of one restart or update. Later ones only count in the number and the longest.
pub(super) const MOST: usize = 1_000;

/// The gaps of one restart or update.
#[derive(Clone, Debug, Default)]
pub(super) struct Gaps {
    rolling: Option<Rolling>,
    /// Pods that were available when this process saw the work on them begin. Value: since when they are not.
    begun: BTreeMap<ObjectKey, Option<Mono>>,
    milliseconds: Vec<u32>,
    longest: u32,
    measured: u32,
    /// Gaps that metrics have not counted yet.
    fresh: Vec<Duration>,
}

impl Gaps {
    /// Sets what is under way. Forgets the gaps of another restart or update.
    pub(super) fn set_rolling(&mut self, rolling: Option<Rolling>) {
        if self.rolling != rolling {
            let fresh = std::mem::take(&mut self.fresh);
            *self = Self { rolling, fresh, ..Self::default() };
        }
    }

    /// Measures a Pod. `others`: another owner's request has begun with it.
    pub(super) fn look(
        &mut self,
        now: Mono,
        key: &ObjectKey,
        before: Option<&Seen>,
        seen: &Seen,
        others: bool,
    ) {
        let known = self.begun.remove(key);
        let Some(before) = before.filter(|before| before.uid == seen.uid) else { return };
        let served = before.available && matches!(before.stage, Stage::Waits(_));
        let started = seen.stage == Stage::Started;
        let begins = served && started && !others;
        let Some(since) = known.or_else(|| begins.then_some(None)) else { return };
        let since = match since {
            Some(since) if seen.available => {
                self.measure(now.since(since));
                None
            }
            None if started && !seen.available => Some(now),
            since => since,
        };
        if started || since.is_some() {
            self.begun.insert(key.clone(), since);
        }
    }

    /// The Pod is gone.
    pub(super) fn gone(&mut self, pod: &ObjectKey) {
        self.begun.remove(pod);
    }

    /// Forgets the Pods: the engine no longer reports them.
    pub(super) fn forget_pods(&mut self) {
        self.begun.clear();
    }

    fn measure(&mut self, gap: Duration) {
        let milliseconds = u32::try_from(gap.as_millis()).unwrap_or(u32::MAX);
        if self.milliseconds.len() < MOST {
            self.milliseconds.push(milliseconds);
        }
        self.longest = self.longest.max(milliseconds);
        self.measured = self.measured.saturating_add(1);
        self.fresh.push(gap);
    }

    /// Takes the gaps that were measured since the last call.
    pub(super) fn take_fresh(&mut self) -> Vec<Duration> {
        std::mem::take(&mut self.fresh)
    }

    /// The gaps for the status. None if none was measured.
    pub(super) fn to_status(&self) -> Option<ServiceGap> {
        let mut sorted = self.milliseconds.clone();
        sorted.sort_unstable();
        let last = sorted.len().checked_sub(1)?;
        let (low, high) = (sorted.get(last / 2)?, sorted.get(sorted.len() / 2)?);
        Some(ServiceGap {
            measured: i32::try_from(self.measured).unwrap_or(i32::MAX),
            median_milliseconds: low.midpoint(*high).into(),
            maximum_milliseconds: self.longest.into(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::super::sorted::Pull;
    use super::super::stage::Rank;
    use super::*;

    fn seen(stage: Stage, available: bool) -> Seen {
        let (ahead, node) = (Pull::Nothing, "node1".into());
        Seen { uid: "a".into(), stage, ahead, proves: false, available, node, number_on_node: None }
    }

    /// A Pod goes through these stages, one second each.
    fn goes(gaps: &mut Gaps, stages: &[(Stage, bool)]) {
        let (key, mut before) = (ObjectKey::new("shop", "web-0"), None);
        for (second, (stage, available)) in (0..).zip(stages) {
            let now = seen(stage.clone(), *available);
            gaps.look(Mono(second * 1_000), &key, before.as_ref(), &now, false);
            before = Some(now);
        }
        assert!(gaps.begun.is_empty(), "it is done, or was never measured");
    }

    fn of(stages: &[(Stage, bool)]) -> Vec<u32> {
        let mut gaps = Gaps::default();
        goes(&mut gaps, stages);
        gaps.milliseconds
    }

    const WAITS: Stage = Stage::Waits(Rank::Available(0));

    #[test]
    fn a_gap_is_from_not_ready_to_ready() {
        let started = |available| (Stage::Started, available);
        let current = |available| (Stage::Current, available);
        let way =
            [(WAITS, true), started(true), started(false), started(false), started(true), current(true)];
        assert_eq!(of(&way), [2_000]);
        let at_once = [(WAITS, true), started(false), started(true), current(true)];
        assert_eq!(of(&at_once), [1_000], "the request and its effect are seen at once");
        let twice = [(WAITS, true), started(false), started(true), started(false), current(true)];
        assert_eq!(of(&twice), [1_000, 1_000]);
        let later = [(WAITS, true), started(true), current(true), current(false), current(true)];
        assert!(of(&later).is_empty(), "it was done before");
        let failed = (Stage::Failed(String::new()), false);
        let late = [(WAITS, true), started(false), failed, (Stage::Failed(String::new()), true)];
        assert_eq!(of(&late), [2_000]);
    }

    #[test]
    fn what_was_out_of_service_or_begun_before_is_left_out() {
        let out = [(Stage::Started, false), (Stage::Started, true), (Stage::Current, true)];
        let with = |first| [&[first][..], &out[..]].concat();
        assert_eq!(of(&with((WAITS, true))), [1_000]);
        assert!(of(&with((WAITS, false))).is_empty(), "it was broken");
        assert!(of(&with((Stage::Started, true))).is_empty(), "another process has begun with it");
    }

    #[test]
    fn another_pod_or_request_makes_no_gap() {
        let key = ObjectKey::new("shop", "web-0");
        let (waits, started) = (seen(WAITS, true), seen(Stage::Started, false));
        let mut gaps = Gaps::default();
        gaps.look(Mono(0), &key, Some(&waits), &started, true);
        assert!(gaps.begun.is_empty(), "of somebody else");
        gaps.look(Mono(0), &key, Some(&waits), &started, false);
        let another = Seen { uid: "b".into(), ..seen(Stage::Started, true) };
        gaps.look(Mono(1), &key, Some(&started), &another, false);
        assert!(gaps.begun.is_empty() && gaps.to_status().is_none());
    }

    #[test]
    fn the_median_is_in_the_middle_and_few_are_remembered() {
        let status = |all: &[u64]| {
            let mut gaps = Gaps::default();
            for gap in all {
                gaps.measure(Duration::from_millis(*gap));
            }
            assert_eq!(gaps.take_fresh().len(), all.len());
            assert!(gaps.take_fresh().is_empty() && gaps.milliseconds.len() <= MOST);
            gaps.to_status().map(|gap| (gap.measured, gap.median_milliseconds, gap.maximum_milliseconds))
        };
        assert_eq!(status(&[]), None);
        assert_eq!(status(&[7]), Some((1, 7, 7)));
        assert_eq!(status(&[9, 1, 4]), Some((3, 4, 9)));
        assert_eq!(status(&[9, 1, 4, 6]), Some((4, 5, 9)));
        assert_eq!(status(&[u64::MAX]), Some((1, u32::MAX.into(), u32::MAX.into())));
        let mut many = vec![1; MOST];
        many.extend([50; 2 * MOST]);
        assert_eq!(status(&many), Some((3_000, 1, 50)));
    }
}
