//! TLS to a server whose certificate nobody verifies.
//!
//! Hooks go to the Pod's own server, whose certificate rarely names an address; the kubelet verifies neither
//! (`insecureContainerLifecycleHTTPClient` in `pkg/kubelet/kubelet.go`, Kubernetes 1.36). No secret of ours travels
//! here: the request is all from the Pod's own handler. The connection to the API server is another one and verifies.

use std::io;
use std::sync::Arc;

use pitstop_kit::describe;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{self, ClientConfig, DigitallySignedStruct, SignatureScheme};

/// Why there is no TLS.
pub(super) enum Failure {
    /// The server answered with something else.
    NotTls,
    /// For people.
    Other(String),
}

/// Speaks TLS over a connection to `host`.
pub(super) async fn connect(stream: TcpStream, host: &str) -> Result<TlsStream<TcpStream>, Failure> {
    let other = |text: String| Failure::Other(text);
    let name = ServerName::try_from(host.to_owned()).map_err(|error| other(describe(&error)))?;
    // Made anew each time: hooks over TLS are rare, and nothing of it stays in memory.
    let provider = Arc::new(ring::default_provider());
    let config = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| other(describe(&error)))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(Anyone(provider)))
        .with_no_client_auth();
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .map_err(|error| if not_tls(&error) { Failure::NotTls } else { other(describe(&error)) })
}

/// The first byte from the server begins no TLS record. That of `HTTP/1.1 400 Bad Request` does not.
fn not_tls(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    matches!(error, Some(rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType)))
}

/// Takes every certificate, and every proof that the server holds its key.
#[derive(Debug)]
struct Anyone(Arc<CryptoProvider>);

impl ServerCertVerifier for Anyone {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn verify_tls13_signature(
        &self,
        _: &[u8],
        _: &CertificateDer<'_>,
        _: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        Ok(HandshakeSignatureValid::assertion())
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}
