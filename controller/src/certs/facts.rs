//! What the Secret's bytes say: certificates, keys, and which belong together.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::DateTime;
use pitstop_controller_core::certs::{CertFacts, LeafFacts, Stored};
use rcgen::{KeyPair, PublicKeyData};
use rustls::sign::CertifiedKey;
use rustls_pki_types::pem::PemObject;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

use super::secret::Material;

/// Everything that could be read.
pub struct Reading {
    /// The facts to decide on.
    pub stored: Stored,
    /// The CAs of the bundle in the order of [`Stored::bundle`].
    pub bundle: Vec<CertificateDer<'static>>,
    /// The leaf with its key, ready to serve.
    pub pair: Option<Arc<CertifiedKey>>,
}

impl Reading {
    /// Reads the Secret's bytes; what cannot be read counts as absent.
    pub fn new(material: &Material) -> Self {
        let mut facts = Vec::new();
        let mut bundle = Vec::new();
        for der in certificates(&material.ca_crt) {
            let Some(ca) = ca_facts(&der) else { continue };
            if !facts.contains(&ca) {
                facts.push(ca);
                bundle.push(der);
            }
        }
        let pair = pair(material);
        let leaf = pair.as_ref().and_then(|pair| leaf_facts(pair.cert.first()?, &bundle));
        let signer = signer(&material.ca_key, &bundle);
        Self { stored: Stored { bundle: facts, signer, leaf }, bundle, pair }
    }

    /// The bundle as PEM, without anything that could not be read: what is published.
    pub fn bundle_pem(&self) -> String {
        to_pem(&self.bundle)
    }

    /// The CA with this fingerprint.
    pub fn ca(&self, wanted: &str) -> Option<&CertificateDer<'static>> {
        self.bundle.iter().find(|der| fingerprint(der) == wanted)
    }

    /// The CAs with these fingerprints as PEM.
    pub fn keep_pem(&self, keep: &[String]) -> String {
        let kept = self.bundle.iter().filter(|der| keep.contains(&fingerprint(der)));
        to_pem(kept)
    }
}

/// SHA-256 of the certificate, in hex.
pub fn fingerprint(der: &CertificateDer<'_>) -> String {
    let digest = ring::digest::digest(&ring::digest::SHA256, der.as_ref());
    digest.as_ref().iter().fold(String::with_capacity(64), |mut hex, byte| {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
        hex
    })
}

/// Certificates as PEM, one after another.
pub fn to_pem<'a>(certificates: impl IntoIterator<Item = &'a CertificateDer<'static>>) -> String {
    let mut pem = String::new();
    for der in certificates {
        pem.push_str("-----BEGIN CERTIFICATE-----\n");
        let text = STANDARD.encode(der.as_ref());
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let (line, tail) = rest.split_at(rest.len().min(64));
            pem.push_str(line);
            pem.push('\n');
            rest = tail;
        }
        pem.push_str("-----END CERTIFICATE-----\n");
    }
    pem
}

/// The certificates in a PEM text; parts that are none are left out.
fn certificates(pem: &[u8]) -> Vec<CertificateDer<'static>> {
    CertificateDer::pem_slice_iter(pem).filter_map(Result::ok).collect()
}

fn parse<'a>(der: &'a CertificateDer<'_>) -> Option<X509Certificate<'a>> {
    X509Certificate::from_der(der.as_ref()).ok().map(|(_, certificate)| certificate)
}

fn facts(der: &CertificateDer<'_>, certificate: &X509Certificate<'_>) -> Option<CertFacts> {
    let validity = certificate.validity();
    Some(CertFacts {
        not_before: DateTime::from_timestamp(validity.not_before.timestamp(), 0)?,
        not_after: DateTime::from_timestamp(validity.not_after.timestamp(), 0)?,
        fingerprint: fingerprint(der),
    })
}

fn ca_facts(der: &CertificateDer<'_>) -> Option<CertFacts> {
    let certificate = parse(der)?;
    if certificate.is_ca() { facts(der, &certificate) } else { None }
}

fn leaf_facts(der: &CertificateDer<'_>, bundle: &[CertificateDer<'_>]) -> Option<LeafFacts> {
    let leaf = parse(der)?;
    let issuer = bundle.iter().find(|der| {
        parse(der).is_some_and(|ca| {
            ca.subject() == leaf.issuer() && leaf.verify_signature(Some(ca.public_key())).is_ok()
        })
    });
    let names = match leaf.subject_alternative_name() {
        Ok(Some(names)) => names.value.general_names.iter().filter_map(dns_name).collect(),
        Ok(None) | Err(_) => Vec::new(),
    };
    Some(LeafFacts { cert: facts(der, &leaf)?, issuer: issuer.map(|der| fingerprint(der)), names })
}

fn dns_name(name: &GeneralName<'_>) -> Option<String> {
    if let GeneralName::DNSName(name) = name { Some((*name).to_owned()) } else { None }
}

/// The CA that the key belongs to.
fn signer(key: &[u8], bundle: &[CertificateDer<'_>]) -> Option<String> {
    let key = KeyPair::from_pem(std::str::from_utf8(key).ok()?).ok()?;
    let own = key.subject_public_key_info();
    let ca = bundle.iter().find(|der| parse(der).is_some_and(|ca| ca.public_key().raw == own))?;
    Some(fingerprint(ca))
}

/// The leaf with its key, when both can be read and fit.
fn pair(material: &Material) -> Option<Arc<CertifiedKey>> {
    let chain = certificates(&material.tls_crt);
    let key = PrivateKeyDer::from_pem_slice(&material.tls_key).ok()?;
    if chain.is_empty() {
        return None;
    }
    CertifiedKey::from_der(chain, key, &rustls::crypto::ring::default_provider()).ok().map(Arc::new)
}
