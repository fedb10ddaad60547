//! The contents of the files of an identity, as TLS needs them. Every connection is verified anew: no
//! session is resumed.
use super::authority::ByAuthority;
use super::error::{TlsError, date, in_words};
use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
use rustls::client::Resumption;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig};
use std::path::Path;
use std::sync::Arc;
use std::{fmt, io};

const PROTOCOL: &[u8] = b"spindle";

/// The content of the files.
pub(super) struct Loaded {
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
    pub(super) mine: CertifiedKey,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<ByAuthority>,
}

impl Loaded {
    /// Returns whether others with the same authority would accept the certificate at this time.
    pub(super) fn check(&self, now: UnixTime) -> Result<(), rustls::Error> {
        check(&self.mine, &*self.clients, &self.servers, now)
    }

    pub(super) fn read(authority: &Path, certificate: &Path, key: &Path, now: UnixTime) -> Result<Loaded, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let useless = |why: &dyn fmt::Display| TlsError::Authority { path: authority.into(), why: why.to_string() };
        let mut roots = RootCertStore::empty();
        for root in certificates("authority's certificate", authority)? {
            roots.add(root).map_err(|error| useless(&error))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| useless(&error))? as Arc<dyn ClientCertVerifier>;
        let servers = Arc::new(ByAuthority { roots, algorithms: provider.signature_verification_algorithms });
        let wrong = |why: rustls::Error| {
            let path = certificate.into();
            match why {
                rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. }) => {
                    TlsError::Expired { path, at: date(not_after) }
                }
                rustls::Error::InvalidCertificate(NotValidYetContext { not_before, time }) => {
                    TlsError::NotValidYet { path, from: date(not_before), now: date(time) }
                }
                other => TlsError::Certificate { path, authority: authority.into(), why: in_words(&other) },
            }
        };
        let mine = certified(certificate, key, &provider, wrong)?;
        check(&mine, &*clients, &servers, now).map_err(wrong)?;
        let resolver = Arc::new(SingleCertAndKey::from(mine.clone()));
        let new = "the provider has TLS 1.3";
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect(new)
            .with_client_cert_verifier(Arc::clone(&clients))
            .with_cert_resolver(Arc::clone(&resolver) as _);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect(new)
            .dangerous()
            .with_custom_certificate_verifier(Arc::clone(&servers) as _)
            .with_client_cert_resolver(resolver);
        // Every connection is verified anew.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        // So that no other program that trusts the same authority is taken for a member.
        server.alpn_protocols = vec![PROTOCOL.into()];
        client.alpn_protocols = vec![PROTOCOL.into()];
        Ok(Loaded { client: Arc::new(client), server: Arc::new(server), mine, clients, servers })
    }

    /// Returns the same without a certificate to show when it dials.
    #[cfg(test)]
    pub(super) fn without_certificate(&self) -> Loaded {
        let mut client = (*self.client).clone();
        client.client_auth_cert_resolver = Arc::new(Nothing);
        let (server, mine) = (Arc::clone(&self.server), self.mine.clone());
        let (clients, servers) = (Arc::clone(&self.clients), Arc::clone(&self.servers));
        Loaded { client: Arc::new(client), server, mine, clients, servers }
    }
}

fn certificates(what: &'static str, path: &Path) -> Result<Vec<CertificateDer<'static>>, TlsError> {
    let unread = |error| unread(what, path, error);
    let found: Vec<_> =
        CertificateDer::pem_file_iter(path).map_err(unread)?.collect::<Result<_, _>>().map_err(unread)?;
    match found.is_empty() {
        true => Err(unread(pem::Error::NoItemsFound)),
        false => Ok(found),
    }
}

fn unread(what: &'static str, path: &Path, error: pem::Error) -> TlsError {
    let path = path.into();
    match error {
        pem::Error::Io(source) if source.kind() != io::ErrorKind::InvalidData => TlsError::Read { what, path, source },
        pem::Error::NoItemsFound => TlsError::NotPem { what, path, why: "there is none in it".into() },
        other => TlsError::NotPem { what, path, why: other.to_string() },
    }
}

fn certified(
    certificate: &Path,
    key: &Path,
    provider: &CryptoProvider,
    wrong: impl Fn(rustls::Error) -> TlsError,
) -> Result<CertifiedKey, TlsError> {
    let chain = certificates("certificate", certificate)?;
    let der = PrivateKeyDer::from_pem_file(key).map_err(|error| unread("key", key, error))?;
    let loaded = provider.key_provider.load_private_key(der);
    let loaded = loaded.map_err(|error| TlsError::Key { path: key.into(), why: error.to_string() })?;
    let certified = CertifiedKey::new(chain, loaded);
    match certified.keys_match() {
        Ok(()) | Err(rustls::Error::InconsistentKeys(InconsistentKeys::Unknown)) => Ok(certified),
        Err(rustls::Error::InconsistentKeys(_)) => {
            Err(TlsError::Mismatch { certificate: certificate.into(), key: key.into() })
        }
        Err(error) => Err(wrong(error)),
    }
}

/// Returns whether others with the same authority would accept it at this time.
fn check(
    mine: &CertifiedKey,
    clients: &dyn ClientCertVerifier,
    servers: &ByAuthority,
    now: UnixTime,
) -> Result<(), rustls::Error> {
    let (first, rest) = mine.cert.split_first().expect("a certificate was read");
    clients.verify_client_cert(first, rest, now)?;
    servers.verify(first, rest, now)
}

#[cfg(test)]
#[derive(Debug)]
struct Nothing;

#[cfg(test)]
impl rustls::client::ResolvesClientCert for Nothing {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[rustls::SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}
