//! When the webhook's certificates are made, published, renewed and forgotten.
//!
//! [`plan`] looks at what is stored and what is published and names the one next [`Step`]. It is asked again after
//! each step, so it may be interrupted anywhere, also by another replica. There is one road, for the first start, the
//! yearly renewal and the repair of damage alike: add a CA to the bundle, publish the bundle, sign a leaf, and
//! later forget the CAs that nothing needs.
//!
//! What it keeps: a leaf is signed only by a CA that is published; the stored bundle always holds the CA of a leaf
//! that works, so publishing it never breaks what is served; after a change of CA, both are published for at least
//! [`OVERLAP_HOURS`].

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};

/// Shortest time that the old CA and the new one are published together, before the new one first signs and after.
pub const OVERLAP_HOURS: i64 = 24;
/// How far certificates are dated back, so that a verifier whose clock is late accepts them at once. In minutes.
pub const BACKDATE_MINUTES: i64 = 60;
/// Age in seconds of a publication from which every API server is taken to know it.
pub const SETTLE_SECONDS: u64 = 60;
/// Most CAs in the bundle.
pub const MAX_BUNDLE: usize = 4;
/// A leaf with fewer days left is renewed without waiting for the overlap.
const URGENT_DAYS: i64 = 7;
/// Longest time until the plan is made again, in hours: the wall clock may be set meanwhile.
const CHECK_HOURS: u64 = 12;

/// What is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Config {
    /// DNS names that the leaf must hold.
    pub names: Vec<String>,
    /// Life of a leaf in days.
    pub leaf_days: u16,
    /// Life of a CA in days; more than twice that of a leaf.
    pub ca_days: u16,
}

/// What matters of one certificate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CertFacts {
    /// From when it is valid; its making is [`BACKDATE_MINUTES`] later.
    pub not_before: DateTime<Utc>,
    /// Until when it is valid.
    pub not_after: DateTime<Utc>,
    /// SHA-256 of its DER, in hex.
    pub fingerprint: String,
}

/// A leaf whose private key is there and fits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeafFacts {
    /// The certificate.
    pub cert: CertFacts,
    /// Fingerprint of the CA in the bundle whose signature it bears, if any.
    pub issuer: Option<String>,
    /// Its DNS names.
    pub names: Vec<String>,
}

/// What the Secret holds, as far as it can be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stored {
    /// The CAs of the bundle.
    pub bundle: Vec<CertFacts>,
    /// Fingerprint of the CA in the bundle that the stored CA key belongs to, if any.
    pub signer: Option<String>,
    /// The leaf.
    pub leaf: Option<LeafFacts>,
}

/// How the `caBundle` of the webhook's configuration compares with the stored bundle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Published {
    /// There is no such configuration, so nobody verifies anything.
    Absent,
    /// It differs.
    Other,
    /// It is the same, and has been seen so for this long by this process.
    Same(Duration),
}

/// The validity of a certificate to make.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Validity {
    /// First instant.
    pub not_before: DateTime<Utc>,
    /// Last instant.
    pub not_after: DateTime<Utc>,
}

/// What to do next.
#[derive(Clone, Debug, PartialEq, Eq)]
#[must_use]
pub enum Step {
    /// Nothing, until something changes or this time has passed.
    Nothing {
        /// At most twelve hours.
        check_again_in: Duration,
    },
    /// Make a CA and store its certificate in the bundle, its key in place of the old one. The leaf stays.
    AddCa {
        /// Of the new CA.
        validity: Validity,
        /// Fingerprints of the CAs that stay in the bundle.
        keep: Vec<String>,
    },
    /// Write the stored bundle into the webhook's configuration.
    PublishCaBundle,
    /// Make a leaf, signed by the stored CA key, and store it in place of the old one.
    IssueLeaf {
        /// Of the new leaf.
        validity: Validity,
    },
    /// Store a bundle of only these CAs.
    DropOldCas {
        /// Fingerprints of the CAs that stay in the bundle.
        keep: Vec<String>,
    },
}

/// How good the stored leaf is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Leaf {
    /// Not yet to be renewed; when it is.
    Good { due: DateTime<Utc> },
    /// To be renewed, but still accepted until it ends.
    Due { end: DateTime<Utc> },
    /// Not accepted by anybody, or not there.
    Broken,
}

/// The next step; call it again after each step and each change.
pub fn plan(now: DateTime<Utc>, stored: Option<&Stored>, published: Published, config: &Config) -> Step {
    let nothing_stored = Stored::default();
    let stored = stored.unwrap_or(&nothing_stored);
    let signer = signer(now, stored);
    let leaf = leaf(now, stored, config);

    // Before all else the bundle goes out: whatever is stored in it is right to trust, and everything waits for it.
    if published == Published::Other && signer.is_some() {
        return Step::PublishCaBundle;
    }
    let Some(signer) = signer.filter(|ca| now < due(ca)) else {
        let keep = newest(in_use(now, stored, leaf), MAX_BUNDLE - 1);
        return Step::AddCa { validity: validity(now, config.ca_days, None), keep };
    };

    let settled = match published {
        Published::Absent => Duration::MAX,
        Published::Other => Duration::ZERO,
        Published::Same(since) => since,
    };
    let mut wake = vec![due(signer)];
    match leaf {
        Leaf::Broken => return issue(now, config, signer),
        Leaf::Due { end } => match waiting(now, end - now, stored, signer, settled) {
            None => return issue(now, config, signer),
            Some(wait) => wake.push(now + wait),
        },
        Leaf::Good { due } => wake.push(due),
    }

    let (keep, forget_at) = keep(now, stored, leaf, signer);
    if keep.len() < stored.bundle.len() {
        return Step::DropOldCas { keep };
    }
    wake.extend(forget_at);
    Step::Nothing { check_again_in: until(now, wake) }
}

/// The CA that the stored key belongs to, if it may sign now.
fn signer(now: DateTime<Utc>, stored: &Stored) -> Option<&CertFacts> {
    let fingerprint = stored.signer.as_ref()?;
    stored.bundle.iter().find(|ca| ca.fingerprint == *fingerprint && in_date(now, ca))
}

/// How good the stored leaf is.
fn leaf(now: DateTime<Utc>, stored: &Stored, config: &Config) -> Leaf {
    let Some(leaf) = &stored.leaf else { return Leaf::Broken };
    let trusted = issuer(stored).is_some_and(|ca| in_date(now, ca));
    let named = config.names.iter().all(|name| leaf.names.contains(name));
    if !trusted || !named || !in_date(now, &leaf.cert) {
        return Leaf::Broken;
    }
    // A leaf ends with its CA, even when its own date says otherwise.
    let end = issuer(stored).map_or(leaf.cert.not_after, |ca| leaf.cert.not_after.min(ca.not_after));
    let due = two_thirds(leaf.cert.not_before, end);
    if now < due { Leaf::Good { due } } else { Leaf::Due { end } }
}

/// The CA of the stored leaf.
fn issuer(stored: &Stored) -> Option<&CertFacts> {
    let fingerprint = stored.leaf.as_ref()?.issuer.as_ref()?;
    stored.bundle.iter().find(|ca| ca.fingerprint == *fingerprint)
}

/// How long the renewal of a leaf that still works must wait for the API servers; `None` when it need not.
fn waiting(
    now: DateTime<Utc>,
    left: TimeDelta,
    stored: &Stored,
    signer: &CertFacts,
    settled: Duration,
) -> Option<TimeDelta> {
    let leaf = stored.leaf.as_ref()?;
    if leaf.issuer.as_ref() == Some(&signer.fingerprint) {
        return None;
    }
    let settle = Duration::from_secs(SETTLE_SECONDS).saturating_sub(settled);
    let settle = TimeDelta::from_std(settle).unwrap_or_default();
    let age = now - made(signer);
    let overlap = if left < TimeDelta::days(URGENT_DAYS) {
        TimeDelta::zero()
    } else {
        TimeDelta::hours(OVERLAP_HOURS) - age
    };
    Some(settle.max(overlap)).filter(|wait| *wait > TimeDelta::zero())
}

/// A leaf that does not outlive its CA.
fn issue(now: DateTime<Utc>, config: &Config, signer: &CertFacts) -> Step {
    Step::IssueLeaf { validity: validity(now, config.leaf_days, Some(signer)) }
}

/// The CAs that must stay in the bundle, and when the next of the others can go.
fn keep(
    now: DateTime<Utc>,
    stored: &Stored,
    leaf: Leaf,
    signer: &CertFacts,
) -> (Vec<String>, Option<DateTime<Utc>>) {
    let used = in_use(now, stored, leaf);
    let Some(current) = &stored.leaf else { return (fingerprints(&used), None) };
    // Before the leaf has changed to the signer, the CA of the leaf is needed, and the others may be too: replicas
    // may serve an older leaf.
    let forget_at = made(&current.cert) + TimeDelta::hours(OVERLAP_HOURS);
    let changed = current.issuer.as_ref() == Some(&signer.fingerprint);
    if changed && now >= forget_at {
        return (vec![signer.fingerprint.clone()], None);
    }
    let waiting = changed && used.len() > 1;
    (fingerprints(&used), waiting.then_some(forget_at))
}

/// The CAs that may still be needed: those in date, the leaf's own first.
fn in_use(now: DateTime<Utc>, stored: &Stored, leaf: Leaf) -> Vec<&CertFacts> {
    let own = issuer(stored).filter(|_| leaf != Leaf::Broken);
    let others = stored.bundle.iter().filter(|ca| in_date(now, ca) && own != Some(*ca));
    own.into_iter().chain(others).collect()
}

/// The first of the list and the newest of the rest, `most` in all, each once.
fn newest(cas: Vec<&CertFacts>, most: usize) -> Vec<String> {
    let mut cas = cas;
    if let Some((_, rest)) = cas.split_first_mut() {
        rest.sort_by_key(|ca| std::cmp::Reverse(ca.not_before));
    }
    cas.truncate(most);
    fingerprints(&cas)
}

fn fingerprints(cas: &[&CertFacts]) -> Vec<String> {
    cas.iter().map(|ca| ca.fingerprint.clone()).collect()
}

/// When a CA is to be followed by another one.
fn due(ca: &CertFacts) -> DateTime<Utc> {
    two_thirds(ca.not_before, ca.not_after)
}

fn two_thirds(from: DateTime<Utc>, to: DateTime<Utc>) -> DateTime<Utc> {
    from + (to - from) / 3 * 2
}

/// When a certificate was made.
fn made(cert: &CertFacts) -> DateTime<Utc> {
    cert.not_before + TimeDelta::minutes(BACKDATE_MINUTES)
}

fn in_date(now: DateTime<Utc>, cert: &CertFacts) -> bool {
    cert.not_before <= now && now < cert.not_after
}

/// From a little before now, for so many days, but not beyond the CA's end.
fn validity(now: DateTime<Utc>, days: u16, ca: Option<&CertFacts>) -> Validity {
    let not_after = now + TimeDelta::days(i64::from(days));
    let not_before = now - TimeDelta::minutes(BACKDATE_MINUTES);
    match ca {
        Some(ca) => {
            Validity { not_before: not_before.max(ca.not_before), not_after: not_after.min(ca.not_after) }
        }
        None => Validity { not_before, not_after },
    }
}

/// From now to the first of the times: at least a second, at most [`CHECK_HOURS`].
fn until(now: DateTime<Utc>, times: Vec<DateTime<Utc>>) -> Duration {
    let most = Duration::from_hours(CHECK_HOURS);
    let first = times.into_iter().min().map_or(most, |time| (time - now).to_std().unwrap_or_default());
    first.clamp(Duration::from_secs(1), most)
}

#[cfg(test)]
#[path = "certs_tests.rs"]
mod tests;
