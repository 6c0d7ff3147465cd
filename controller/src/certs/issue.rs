//! Makes CAs and leaves: ECDSA P-256, signed with SHA-256.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use pitstop_controller_core::certs::Validity;
use rcgen::{
    BasicConstraints, CertificateParams, DnType, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair,
    KeyUsagePurpose, date_time_ymd,
};
use rustls_pki_types::CertificateDer;

/// A certificate and its private key, both as PEM.
pub struct Issued {
    /// The certificate.
    pub cert_pem: String,
    /// The key.
    pub key_pem: String,
}

/// A CA that may sign leaves only.
pub fn ca(validity: &Validity) -> Result<Issued, rcgen::Error> {
    // Each CA has a name of its own, so that a verifier with two of them tries the right one.
    let made = validity.not_before.to_rfc3339_opts(SecondsFormat::Secs, true);
    let mut params = params(validity, &format!("pitstop webhook CA {made}"), Vec::new())?;
    params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
    params.key_usages = vec![KeyUsagePurpose::KeyCertSign];
    let key = KeyPair::generate()?;
    let cert = params.self_signed(&key)?;
    Ok(Issued { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}

/// A server certificate for these DNS names.
pub fn leaf(
    validity: &Validity,
    names: &[String],
    ca: &CertificateDer<'_>,
    ca_key_pem: &str,
) -> Result<Issued, rcgen::Error> {
    let issuer = Issuer::from_ca_cert_der(ca, KeyPair::from_pem(ca_key_pem)?)?;
    let mut params = params(validity, "pitstop webhook", names.to_vec())?;
    params.use_authority_key_identifier_extension = true;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate()?;
    let cert = params.signed_by(&key, &issuer)?;
    Ok(Issued { cert_pem: cert.pem(), key_pem: key.serialize_pem() })
}

fn params(validity: &Validity, name: &str, names: Vec<String>) -> Result<CertificateParams, rcgen::Error> {
    let mut params = CertificateParams::new(names)?;
    params.distinguished_name = rcgen::DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, name);
    // rcgen's dates are those of a third time crate; this is the one place that meets it.
    let epoch = date_time_ymd(1970, 1, 1);
    params.not_before = epoch + since_epoch(validity.not_before);
    params.not_after = epoch + since_epoch(validity.not_after);
    Ok(params)
}

/// Whole seconds; certificates are never dated before 1970.
fn since_epoch(time: DateTime<Utc>) -> Duration {
    Duration::from_secs(u64::try_from(time.timestamp()).unwrap_or(0))
}
