//! Whether a controller leads: only the leader decides anything.

use chrono::DateTime;

use super::{Facts, Finding};
use crate::duration::age;
use crate::known::Known;
use crate::plain;

const CHECK: &str = "leader";
/// Seconds without renewal after which no controller leads. The leader renews every 5 s, and another may take over
/// after 15 s (controller/core/src/lease.rs). Doubled, because clocks of two machines are compared.
const TERM: i64 = 30;

pub(super) fn check(facts: &Facts) -> Vec<Finding> {
    let logs = || format!("See the log: kubectl -n {} logs deployment/pitstop-controller", facts.system);
    let lease = match &facts.lease {
        Known::Unread(why) => return vec![Finding::unknown(CHECK, "the Lease", why)],
        Known::Missing => return vec![Finding::error(CHECK, "no controller has ever been leader", logs())],
        Known::Is(lease) => lease.spec.as_ref(),
    };
    let holder = lease.and_then(|it| it.holder_identity.as_deref()).filter(|it| !it.is_empty());
    let Some(holder) = holder.map(|it| plain::line(it, 253)) else {
        return vec![Finding::error(
            CHECK,
            "no controller leads: the last leader released the Lease",
            logs(),
        )];
    };
    let renewed = lease
        .and_then(|it| it.renew_time.as_ref())
        .and_then(|it| DateTime::from_timestamp(it.0.as_second(), 0));
    let (Some(renewed), Known::Is(now)) = (renewed, &facts.now) else {
        let text = format!("when {holder} renewed its Lease");
        return vec![Finding::unknown(CHECK, &text, "no time in the response")];
    };
    let passed = now.signed_duration_since(renewed).num_seconds();
    let finding = if passed > TERM {
        let text = format!("{holder} has not renewed its Lease for {}: no controller leads", age(passed));
        Finding::error(CHECK, text, logs())
    } else if passed < -TERM {
        let text =
            format!("{holder} renews its Lease; its clock is {} ahead of the API server's", age(-passed));
        Finding::warning(CHECK, text, "Correct the clock of its node. pitstop itself compares no clocks.")
    } else {
        Finding::ok(CHECK, format!("{holder} leads, and renewed its Lease {} ago", age(passed)))
    };
    vec![finding]
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::super::Level;
    use super::super::fixtures::{at, healthy, lease};
    use super::*;

    fn after(seconds: i64) -> Finding {
        let now = Known::Is(at(0) + TimeDelta::seconds(seconds));
        check(&Facts { now, lease: Known::Is(lease("pitstop-controller-a")), ..healthy() }).remove(0)
    }

    #[test]
    fn a_lease_that_is_renewed_has_a_leader() {
        assert_eq!(after(4), Finding::ok(CHECK, "pitstop-controller-a leads, and renewed its Lease 4s ago"));
        assert_eq!(after(-3).verdict, Level::Ok);
        assert_eq!(after(30).verdict, Level::Ok);
    }

    #[test]
    fn a_lease_that_is_not_renewed_has_none() {
        let late = after(31);
        assert_eq!(
            (late.verdict, &*late.text),
            (Level::Error, "pitstop-controller-a has not renewed its Lease for 31s: no controller leads")
        );
        assert_eq!(after(-31).verdict, Level::Warning);
        let returned = Facts { lease: Known::Is(lease("")), ..healthy() };
        assert!(check(&returned)[0].text.starts_with("no controller leads"));
        let timeless = Facts { now: Known::Missing, ..healthy() };
        assert_eq!(check(&timeless)[0].verdict, Level::Unknown);
    }
}
