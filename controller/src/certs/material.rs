//! The Secret's content: CAs, and the webhook's certificate with its key. Makes it, and checks whether it works.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use pem::{EncodeConfig, LineEnding, Pem};
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DistinguishedName, DnType, ExtendedKeyUsagePurpose,
    IsCa, KeyPair, KeyUsagePurpose, date_time_ymd,
};
use rustls::RootCertStore;
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier as _;
use rustls::crypto::ring::default_provider;
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use x509_parser::certificate::X509Certificate;
use x509_parser::prelude::FromDer as _;
use x509_parser::time::ASN1Time;

/// Lifetime of a certificate and its CA, in days.
const LIFE_DAYS: i64 = 90;
/// How far certificates are dated back, in minutes, so that a client whose clock is late accepts them at once.
const BACKDATE_MINUTES: i64 = 60;
/// Most CAs that stay in the bundle beside a new one.
const MAX_KEPT: usize = 2;

/// The Secret's content as PEM; a missing part is empty.
#[derive(Clone, Default)]
pub struct Material {
    /// The CA of the certificate, and earlier CAs.
    pub ca_crt: Vec<u8>,
    /// The certificate.
    pub tls_crt: Vec<u8>,
    /// Its private key.
    pub tls_key: Vec<u8>,
}

impl fmt::Debug for Material {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Material").finish_non_exhaustive()
    }
}

/// Makes a CA, and a certificate that it signs for these DNS names. The newest CAs of `before` stay trusted.
///
/// The CA's key signs only this certificate, and is not stored.
pub fn issue(now: DateTime<Utc>, names: &[String], before: &Reading) -> Result<Material, rcgen::Error> {
    // Each CA has a name of its own, so that a client with two of them tries the right one.
    let name = format!("pitstop webhook CA {}", now.to_rfc3339_opts(SecondsFormat::Secs, true));
    let mut ca = params(now, &name, Vec::new())?;
    ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let ca = CertifiedIssuer::self_signed(ca, KeyPair::generate()?)?;

    let mut leaf = params(now, "pitstop webhook", names.to_vec())?;
    leaf.use_authority_key_identifier_extension = true;
    leaf.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    leaf.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let leaf = leaf.signed_by(&key, &ca)?;

    let kept = before.cas(now).take(MAX_KEPT);
    Ok(Material {
        ca_crt: to_pem(std::iter::once(ca.der()).chain(kept)).into_bytes(),
        tls_crt: to_pem([leaf.der()]).into_bytes(),
        tls_key: key.serialize_pem().into_bytes(),
    })
}

fn params(now: DateTime<Utc>, name: &str, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // rcgen uses a third time crate; only this code meets it.
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(now - TimeDelta::minutes(BACKDATE_MINUTES));
    params.not_after = epoch + since_epoch(now + TimeDelta::days(LIFE_DAYS));
    Ok(params)
}

/// Whole seconds since 1970; certificates are never dated earlier.
fn since_epoch(time: DateTime<Utc>) -> Duration {
    Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}

fn to_pem<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> String {
    let pems: Vec<Pem> = certificates.into_iter().map(|der| Pem::new("CERTIFICATE", der.as_ref())).collect();
    pem::encode_many_config(&pems, EncodeConfig::new().set_line_ending(LineEnding::LF))
}

/// The readable part of the Secret's content.
#[derive(Default)]
pub struct Reading {
    bundle: Vec<CertificateDer<'static>>,
    /// The certificate with its key; `None` if either is missing, or they do not fit.
    pub pair: Option<Arc<CertifiedKey>>,
}

impl Reading {
    /// Reads the bytes. Unreadable parts count as absent.
    pub fn new(material: &Material) -> Self {
        let certificates = |pem| CertificateDer::pem_slice_iter(pem).filter_map(Result::ok);
        let mut bundle: Vec<CertificateDer<'static>> = Vec::new();
        for der in certificates(&material.ca_crt) {
            if parsed(&der).is_some_and(|ca| ca.is_ca()) && !bundle.contains(&der) {
                bundle.push(der);
            }
        }
        let chain: Vec<_> = certificates(&material.tls_crt).collect();
        let key = PrivateKeyDer::from_pem_slice(&material.tls_key).ok();
        let pair = key.filter(|_| !chain.is_empty());
        let pair = pair.and_then(|key| CertifiedKey::from_der(chain, key, &default_provider()).ok());
        Self { bundle, pair: pair.map(Arc::new) }
    }

    /// The readable part of the bundle as PEM, for publication.
    pub fn bundle_pem(&self) -> String {
        to_pem(&self.bundle)
    }

    /// Whether a client that trusts the bundle accepts a server with this pair, under all of these names.
    pub fn accepts(&self, pair: &CertifiedKey, names: &[String], at: DateTime<Utc>) -> bool {
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(self.cas(at).cloned());
        let verifier = WebPkiServerVerifier::builder_with_provider(roots.into(), default_provider().into());
        let (Ok(verifier), Some((leaf, chain))) = (verifier.build(), pair.cert.split_first()) else {
            return false;
        };
        let at = UnixTime::since_unix_epoch(since_epoch(at));
        names.iter().all(|name| {
            ServerName::try_from(name.as_str())
                .is_ok_and(|name| verifier.verify_server_cert(leaf, chain, &name, &[], at).is_ok())
        })
    }

    /// The CAs of the bundle that are valid at this time, the newest first if pitstop wrote them.
    fn cas(&self, at: DateTime<Utc>) -> impl Iterator<Item = &CertificateDer<'static>> {
        let at = ASN1Time::from_timestamp(at.timestamp()).ok();
        let in_date = move |ca: &X509Certificate<'_>| at.is_some_and(|at| ca.validity().is_valid_at(at));
        self.bundle.iter().filter(move |der| parsed(der).is_some_and(|ca| in_date(&ca)))
    }
}

/// When the certificate ends, in seconds since 1970.
pub fn not_after(pair: &CertifiedKey) -> Option<i64> {
    Some(parsed(pair.cert.first()?)?.validity().not_after.timestamp())
}

fn parsed<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der.as_ref()).ok().map(|(_, certificate)| certificate)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(days: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_700_000_000, 0).unwrap() + TimeDelta::days(days)
    }

    fn names() -> Vec<String> {
        vec!["webhook.ns.svc".to_owned(), "webhook.ns.svc.cluster.local".to_owned()]
    }

    fn first() -> Material {
        issue(at(0), &names(), &Reading::default()).unwrap()
    }

    /// Whether a client that trusts the content's bundle accepts its certificate.
    fn works(material: &Material, day: i64) -> bool {
        let reading = Reading::new(material);
        reading.pair.as_ref().is_some_and(|pair| reading.accepts(pair, &names(), at(day)))
    }

    #[test]
    fn what_is_issued_works_from_before_its_making_to_its_end() {
        let material = first();
        let reading = Reading::new(&material);
        assert_eq!(reading.bundle_pem().as_bytes(), material.ca_crt);
        let pair = reading.pair.as_ref().unwrap();
        assert_eq!(not_after(pair), Some(at(90).timestamp()));
        assert!(reading.accepts(pair, &names(), at(0) - TimeDelta::minutes(59)));
        assert!(
            [(0, true), (89, true), (-1, false), (91, false)]
                .iter()
                .all(|(day, ok)| works(&material, *day) == *ok)
        );
        assert!(!reading.accepts(pair, &["elsewhere.ns.svc".to_owned()], at(0)));
        assert!(!format!("{material:?}").contains("KEY"));
    }

    #[test]
    fn a_bundle_keeps_the_newest_cas_that_are_in_date() {
        let mut material = first();
        for (day, expected) in [(60, 2), (61, 3), (62, 3), (145, 3), (1000, 1)] {
            let before = Reading::new(&material);
            material = issue(at(day), &names(), &before).unwrap();
            let after = Reading::new(&material);
            assert_eq!(after.bundle.len(), expected, "on day {day}");
            let old = before.pair.unwrap();
            assert_eq!(after.accepts(&old, &names(), at(day)), day < 1000, "the one before, on day {day}");
            assert!(works(&material, day));
        }
    }

    #[test]
    fn what_cannot_be_read_is_absent_and_what_does_not_fit_does_not_work() {
        let (good, other) = (first(), first());
        let damaged = |change: &dyn Fn(&mut Material)| {
            let mut material = good.clone();
            change(&mut material);
            works(&material, 0)
        };
        assert!(!works(&Material::default(), 0));
        assert!(!damaged(&|m| m.tls_key = b"x".to_vec()));
        assert!(!damaged(&|m| m.tls_key.clone_from(&other.tls_key)));
        assert!(!damaged(&|m| m.tls_crt.clear()));
        assert!(!damaged(&|m| m.ca_crt.clone_from(&other.ca_crt)));
        assert!(!damaged(&|m| m.ca_crt.clone_from(&m.tls_crt)));
        // Twice the same CA, a certificate among the CAs, and rubbish.
        let rubbish = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
        let ca_crt = [&good.ca_crt[..], rubbish, &good.ca_crt, &good.tls_crt].concat();
        let mixed = Material { ca_crt, ..good.clone() };
        assert_eq!(Reading::new(&mixed).bundle_pem().as_bytes(), good.ca_crt);
        assert!(works(&mixed, 0));
    }
}
