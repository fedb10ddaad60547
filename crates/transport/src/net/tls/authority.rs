//! Verifies the certificates of peers.
use crate::stream::Certificate;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::ParsedCertificate;
use rustls::{DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::sync::Arc;

/// Verifies the dialled process by the authority that signed, whatever the names are.
#[derive(Debug)]
pub(super) struct ByAuthority {
    pub(super) roots: Arc<RootCertStore>,
    pub(super) algorithms: WebPkiSupportedAlgorithms,
}

impl ByAuthority {
    pub(super) fn verify(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<(), rustls::Error> {
        let parsed = ParsedCertificate::try_from(first)?;
        verify_server_cert_signed_by_trust_anchor(&parsed, &self.roots, rest, now, self.algorithms.all)
    }
}

impl ServerCertVerifier for ByAuthority {
    fn verify_server_cert(
        &self,
        first: &CertificateDer<'_>,
        rest: &[CertificateDer<'_>],
        _name: &ServerName<'_>,
        _ocsp: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        self.verify(first, rest, now)?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signed, &self.algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signed, &self.algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.algorithms.supported_schemes()
    }
}

impl Certificate {
    /// Returns whether `name` is among its alternative names (SAN), as a DNS name.
    pub fn has_name(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        ParsedCertificate::try_from(&CertificateDer::from(&*self.0))
            .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }
}
