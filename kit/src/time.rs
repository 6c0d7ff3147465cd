//! The one conversion between chrono, the domain's time, and jiff, the time of kube and k8s-openapi.
//!
//! Conversions go through whole microseconds, the finest that Kubernetes' API carries.

use chrono::{DateTime, Utc};
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, Time};

#[allow(clippy::disallowed_types)] // only this module may
type Timestamp = jiff::Timestamp;

/// A chrono time that jiff cannot hold: its years end at 9999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0} is outside of the years that Kubernetes' times can hold")]
pub struct OutOfRange(pub DateTime<Utc>);

/// The same instant, cut to whole microseconds.
pub fn from_jiff(time: Timestamp) -> DateTime<Utc> {
    // chrono's range contains jiff's, so the default is never taken.
    DateTime::from_timestamp_micros(floor_micros(time)).unwrap_or_default()
}

/// The same instant, cut to whole microseconds.
pub fn to_jiff(time: DateTime<Utc>) -> Result<Timestamp, OutOfRange> {
    Timestamp::from_microsecond(time.timestamp_micros()).map_err(|_| OutOfRange(time))
}

/// A `metav1.Time`, cut to whole seconds: the API server keeps no more.
pub fn from_time(time: &Time) -> DateTime<Utc> {
    whole_seconds(from_jiff(time.0))
}

/// A `metav1.Time`, cut to whole seconds.
pub fn to_time(time: DateTime<Utc>) -> Result<Time, OutOfRange> {
    to_jiff(whole_seconds(time)).map(Time)
}

/// A `metav1.MicroTime`.
pub fn from_micro_time(time: &MicroTime) -> DateTime<Utc> {
    from_jiff(time.0)
}

/// A `metav1.MicroTime`, cut to whole microseconds.
pub fn to_micro_time(time: DateTime<Utc>) -> Result<MicroTime, OutOfRange> {
    to_jiff(time).map(MicroTime)
}

/// The last whole second at or before the instant.
pub fn whole_seconds(time: DateTime<Utc>) -> DateTime<Utc> {
    DateTime::from_timestamp(time.timestamp(), 0).unwrap_or(time)
}

/// Microseconds since 1970, rounded down also before it.
fn floor_micros(time: Timestamp) -> i64 {
    let since: SignedDuration = time.as_duration();
    i64::try_from(since.as_nanos().div_euclid(1000)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 0001-01-01 and 9999-12-30 (jiff's last hours are taken by offsets), in seconds from 1970.
    const YEARS: std::ops::Range<i64> = -62_135_596_800..253_402_207_200;

    proptest! {
        #[test]
        fn instants_survive_the_round_trip(seconds in YEARS, micros in 0u32..1_000_000) {
            let time = DateTime::from_timestamp(seconds, micros * 1000).unwrap();
            let there = to_jiff(time).unwrap();
            prop_assert_eq!(there.as_second() - i64::from(there.subsec_nanosecond() < 0), seconds);
            prop_assert_eq!(from_jiff(there), time);
            prop_assert_eq!(from_micro_time(&to_micro_time(time).unwrap()), time);
            prop_assert_eq!(from_time(&to_time(time).unwrap()), whole_seconds(time));
        }

        #[test]
        fn finer_parts_are_cut_the_same_way_in_both_directions(seconds in YEARS, nanos in 0u32..1_000_000_000) {
            let fine = DateTime::from_timestamp(seconds, nanos).unwrap();
            let cut = DateTime::from_timestamp(seconds, nanos / 1000 * 1000).unwrap();
            prop_assert_eq!(from_jiff(to_jiff(fine).unwrap()), cut);
            let jiff = Timestamp::from_nanosecond(
                i128::from(seconds) * 1_000_000_000 + i128::from(nanos)).unwrap();
            prop_assert_eq!(from_jiff(jiff), cut);
        }

        #[test]
        fn json_is_what_chrono_reads(seconds in YEARS) {
            let time = DateTime::from_timestamp(seconds, 0).unwrap();
            let json = serde_json::to_string(&to_time(time).unwrap()).unwrap();
            prop_assert_eq!(serde_json::from_str::<DateTime<Utc>>(&json).unwrap(), time);
        }
    }

    #[test]
    fn years_that_kubernetes_cannot_hold_are_refused() {
        assert!(to_jiff(DateTime::<Utc>::MAX_UTC).is_err());
        assert!(to_time(DateTime::<Utc>::MIN_UTC).is_err());
    }
}
