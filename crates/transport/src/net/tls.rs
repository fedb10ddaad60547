//! Connections between hosts that no outside process can read, forge or open: TLS 1.3, both sides
//! with a certificate.
//!
//! A group has its own certificate authority, which must sign no other certificates: each makes its
//! holder a process of the group. Host names are not compared, because members are reached at
//! addresses that were unknown when the certificate was made. [`Rule`] says whether the names bind
//! the holder to an id. [`Rule::Any`] does not protect members from each other. A certificate can't
//! be revoked. It can be valid for only a short time, because the files are read again when they
//! change.
use super::TARGET;
use super::names::name_of;
use crate::stream::{Certificate, SocketStream, Space, Stream};
use rustls::CertificateError::{self, ExpiredContext, NotValidYetContext};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor, verify_server_name};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, DigitallySignedStruct, InconsistentKeys};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme};
use spindle_core::MemberId;
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The certificate of a process, its key, and the authority by which it verifies peers. Clones
/// share the files, which are [read again](Self::take_warnings) when they change.
#[derive(Clone)]
pub struct Identity {
    files: Arc<Files>,
    rule: Rule,
}

/// The meaning of a certificate for its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Rule {
    /// The certificate shows that the holder belongs to the group. The holder can be any member,
    /// and give any order.
    #[default]
    Any,
    /// The certificate shows which members the holder can be, by its DNS names (SAN):
    /// `spindle-member-7` is member 7. A process that is no member, such as one that evicts or
    /// observes, needs `spindle-admin`.
    Names,
}

/// The files, and their contents.
struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    state: Mutex<State>,
}

struct State {
    loaded: Arc<Loaded>,
    /// The state of the files that were loaded.
    stamps: Stamps,
    looked_at: Instant,
    /// The time since which the files have been different and unusable, and whether a warning of
    /// that was given.
    useless_since: Option<(Instant, bool)>,
    expiry_looked_at: Option<Instant>,
    warnings: Vec<TlsWarning>,
}

/// The content of the files.
struct Loaded {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
    mine: CertifiedKey,
    clients: Arc<dyn ClientCertVerifier>,
    servers: Arc<ByAuthority>,
}

/// The stamp of each file: device, inode, length, and the time of the last change in seconds and
/// nanoseconds. `None`: it does not exist.
type Stamps = [Option<(u64, u64, u64, i64, i64)>; 3];

/// The shortest time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long files may be unusable before a warning. Files that are replaced one by one do not match
/// for a moment.
const USELESS_FOR: Duration = Duration::from_secs(5);
/// The time between two looks at the date of expiry.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The time before its expiry from which on a certificate causes a warning.
const EXPIRES_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Warnings that are kept until they are taken.
const WARNINGS_MAX: usize = 16;

/// A problem with a process's own certificate that an operator should solve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsWarning {
    /// The files have changed, and their new contents can't be used.
    #[error("the certificate that was loaded before stays in use: {0}")]
    Unusable(TlsError),
    /// The certificate expires soon.
    #[error("the certificate in {} expires at {at}; put a new one in its place, signed by the same authority", path.display())]
    Expires {
        /// The file.
        path: PathBuf,
        /// The time of expiry.
        at: String,
    },
}

/// The reason why files are no valid [`Identity`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read the {what} in {}: {source}", path.display())]
    Read {
        /// The expected contents.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{} holds no {what} in PEM form: {why}", path.display())]
    NotPem {
        /// The expected contents.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The authority's certificate can't be used.
    #[error("the authority's certificate in {} can't be used: {why}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The key can't be used.
    #[error("the key in {} can't be used: {why}; take one for ECDSA, Ed25519 or RSA", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate can't be used, or not for both sides of a connection.
    #[error(
        "the certificate in {} can't be used with the authority in {}: {why}; it must be signed by that authority, and serve for \
         clients and servers",
        path.display(), authority.display()
    )]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The authority's file.
        authority: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate, or one between it and the authority's, has expired.
    #[error("the certificate in {} expired at {at}; make a new one, signed by the same authority", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// The time of expiry.
        at: String,
    },
    /// The certificate, or one between it and the authority's, is not valid yet.
    #[error("the certificate in {} is valid from {from} on, and by this host's clock it is {now}; set the clock, or wait", path.display())]
    NotValidYet {
        /// The file.
        path: PathBuf,
        /// The start of its validity.
        from: String,
        /// The current time.
        now: String,
    },
    /// The certificate is for another key.
    #[error("the key in {} is not that of the certificate in {}; name the two that were made together", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// The reason why TLS rejects a connection, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
struct Fault(rustls::Error);

/// Returns rustls's text, except for dates: rustls counts the seconds up to now, so its text would
/// differ each time.
fn in_words(error: &rustls::Error) -> String {
    match error {
        // The type that reports this is not rustls's own.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("UnsupportedCertVersion") =>
        {
            "it is an X.509 v1 certificate, which can't say what it is for; make one of version 3 (openssl x509 -req with -extfile)"
                .into()
        }
        rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. }) => {
            format!("invalid peer certificate: it expired at {}", date(*not_after))
        }
        rustls::Error::InvalidCertificate(NotValidYetContext { not_before, .. }) => {
            format!("invalid peer certificate: it is valid from {} on", date(*not_before))
        }
        other => other.to_string(),
    }
}

/// Returns whether TLS, and not the system, rejects the connection.
pub(super) fn is_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Fault>())
}

impl Identity {
    /// Loads an identity from PEM files: the certificates of the authority, that of this process
    /// with those between, and its key.
    ///
    /// Dates are checked here, and by the other side each time that a connection is made.
    ///
    /// # Errors
    /// The first file that can't be used.
    pub fn load(authority: &Path, certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
        Identity::load_at(authority, certificate, key, UnixTime::now())
    }

    /// Loads an identity as a process whose clock says that it is `now`.
    pub(crate) fn load_at(
        authority: &Path,
        certificate: &Path,
        key: &Path,
        now: UnixTime,
    ) -> Result<Identity, TlsError> {
        // So that the files are found if the process changes its directory.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let paths = [absolute(authority), absolute(certificate), absolute(key)];
        let stamps = paths.each_ref().map(stamp);
        let loaded = Arc::new(Loaded::read(authority, certificate, key, now)?);
        let state = State {
            loaded,
            stamps,
            looked_at: Instant::now(),
            useless_since: None,
            expiry_looked_at: None,
            warnings: vec![],
        };
        let [authority, certificate, key] = paths;
        let files = Arc::new(Files { authority, certificate, key, state: Mutex::new(state) });
        Ok(Identity { files, rule: Rule::default() })
    }

    /// Sets the rule, which must be the same in all processes of a group.
    pub fn with_rule(self, rule: Rule) -> Identity {
        Identity { rule, ..self }
    }

    /// Returns the rule for certificates.
    pub fn rule(&self) -> Rule {
        self.rule
    }

    /// Looks at the files if the last look is at least a second old, and at the dates once a day.
    /// Returns the warnings for an operator since the last call: files that changed and can't be
    /// used, and an expiry within a week. The files are looked at for each connection, too.
    pub fn take_warnings(&self) -> Vec<TlsWarning> {
        let mut state = self.files.lock();
        self.files.look(&mut state, Instant::now(), UnixTime::now());
        std::mem::take(&mut state.warnings)
    }

    /// Returns whether its own certificate is valid for this id.
    pub(super) fn is_of(&self, id: MemberId) -> bool {
        self.admits(id, self.current().mine.cert.first().cloned().map(|first| Certificate(first[..].into())).as_ref())
    }

    /// Returns whether a peer that shows this certificate may have this id.
    pub(super) fn admits(&self, id: MemberId, peer: Option<&Certificate>) -> bool {
        match self.rule {
            Rule::Any => true,
            Rule::Names => peer.is_some_and(|peer| peer.has_name(&name_of(id))),
        }
    }

    fn current(&self) -> Arc<Loaded> {
        let mut state = self.files.lock();
        self.files.look(&mut state, Instant::now(), UnixTime::now());
        Arc::clone(&state.loaded)
    }

    /// Returns an identity that dials without showing a certificate.
    #[cfg(test)]
    pub(super) fn without_certificate(self) -> Identity {
        {
            let mut state = self.files.lock();
            let mut client = (*state.loaded.client).clone();
            client.client_auth_cert_resolver = Arc::new(Nothing);
            let Loaded { server, mine, clients, servers, .. } = &*state.loaded;
            let (server, mine) = (Arc::clone(server), mine.clone());
            let (clients, servers) = (Arc::clone(clients), Arc::clone(servers));
            state.loaded = Arc::new(Loaded { client: Arc::new(client), server, mine, clients, servers });
        }
        self
    }
}

fn stamp(path: &PathBuf) -> Option<(u64, u64, u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl Files {
    fn lock(&self) -> MutexGuard<'_, State> {
        // No code here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, state: &mut State, now: Instant, time: UnixTime) {
        if now.saturating_duration_since(state.looked_at) >= LOOK_EVERY {
            state.looked_at = now;
            self.reload(state, now, time);
        }
        let is_due = |at: Instant| now.saturating_duration_since(at) >= EXPIRY_LOOK_EVERY;
        if state.expiry_looked_at.is_none_or(is_due) {
            state.expiry_looked_at = Some(now);
            let later = UnixTime::since_unix_epoch(Duration::from_secs(time.as_secs()) + EXPIRES_WITHIN);
            if let Err(rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. })) = state.loaded.check(later)
            {
                state.warn(TlsWarning::Expires { path: self.certificate.clone(), at: date(not_after) });
            }
        }
    }

    fn reload(&self, state: &mut State, now: Instant, time: UnixTime) {
        let stamps = [&self.authority, &self.certificate, &self.key].map(stamp);
        if stamps == state.stamps {
            state.useless_since = None;
            return;
        }
        match Loaded::read(&self.authority, &self.certificate, &self.key, time) {
            Ok(loaded) => {
                (state.loaded, state.stamps) = (Arc::new(loaded), stamps);
                info!(target: TARGET, certificate = %self.certificate.display(), "certificate read again");
                (state.useless_since, state.expiry_looked_at) = (None, None);
            }
            Err(error) => {
                let (since, is_told) = state.useless_since.get_or_insert((now, false));
                if !*is_told && now.saturating_duration_since(*since) >= USELESS_FOR {
                    *is_told = true;
                    state.warn(TlsWarning::Unusable(error));
                }
            }
        }
    }
}

impl State {
    fn warn(&mut self, warning: TlsWarning) {
        warn!(target: TARGET, reason = %warning, "certificate");
        if self.warnings.len() == WARNINGS_MAX {
            self.warnings.remove(0);
        }
        self.warnings.push(warning);
    }
}

impl Loaded {
    /// Returns whether others with the same authority would accept the certificate at this time.
    fn check(&self, now: UnixTime) -> Result<(), rustls::Error> {
        check(&self.mine, &*self.clients, &self.servers, now)
    }

    fn read(authority: &Path, certificate: &Path, key: &Path, now: UnixTime) -> Result<Loaded, TlsError> {
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
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

const PROTOCOL: &[u8] = b"spindle";

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

/// Returns a time in a readable form.
fn date(time: UnixTime) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut day, second) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let mut year = 1970;
    // A certificate's date has four digits for its year.
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", day + 1)
}

/// Verifies the dialled process by the authority that signed, whatever the names are.
#[derive(Debug)]
struct ByAuthority {
    roots: Arc<RootCertStore>,
    algorithms: WebPkiSupportedAlgorithms,
}

impl ByAuthority {
    fn verify(
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

/// Encrypted bytes that are read from a socket at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Approximate bytes that are held back for a socket that is full.
const SEND_BYTES: usize = 256 << 10;

impl Certificate {
    /// Returns whether `name` is among its alternative names (SAN), as a DNS name.
    pub fn has_name(&self, name: &str) -> bool {
        let Ok(name) = ServerName::try_from(name) else { return false };
        ParsedCertificate::try_from(&CertificateDer::from(&*self.0))
            .is_ok_and(|parsed| verify_server_name(&parsed, &name).is_ok())
    }
}

/// A socket that carries TLS. Data that is sent before both sides have verified each other waits
/// for that.
///
/// An end that the peer did not announce is an error of kind
/// [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), not the end: any process on the path could have
/// caused it. Receiving may leave bytes [held back](Stream::holds_back), too.
pub struct TlsStream {
    socket: SocketStream,
    tls: Connection,
    /// Encrypted bytes. The range `arrived` of them is still to be decrypted.
    incoming: Box<[u8]>,
    arrived: std::ops::Range<usize>,
    /// Whether there are bytes to return without asking the socket.
    more: bool,
    failed: Option<rustls::Error>,
    finishes: bool,
    peer: Option<Certificate>,
}

impl fmt::Debug for TlsStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { socket, arrived, more, failed, finishes, .. } = self;
        let mut out = f.debug_struct("TlsStream");
        out.field("socket", socket).field("arrived", arrived).field("more", more);
        out.field("failed", failed).field("finishes", finishes).finish_non_exhaustive()
    }
}

impl TlsStream {
    /// Creates a stream on the socket of the side that `dialled`, or of the one that was dialled.
    ///
    /// # Errors
    /// Only the lack of random bits.
    pub fn new(socket: SocketStream, identity: &Identity, dialled: bool) -> io::Result<TlsStream> {
        let current = identity.current();
        let tls = if dialled {
            // It is not sent, and it is compared with nothing.
            let name = ServerName::try_from("spindle").expect("it is a name");
            ClientConnection::new(Arc::clone(&current.client), name).map(Connection::from)
        } else {
            ServerConnection::new(Arc::clone(&current.server)).map(Connection::from)
        };
        let mut tls = tls.map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(SEND_BYTES));
        let incoming = vec![0; RECEIVE_BYTES].into();
        let (more, failed, finishes, peer) = (false, None, false, None);
        let mut stream = TlsStream { socket, tls, incoming, arrived: 0..0, more, failed, finishes, peer };
        // The dialling side begins, even if it only wants to receive. If that fails, later calls
        // fail too.
        let _ = stream.flush();
        Ok(stream)
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, Fault(error.clone()))),
        }
    }

    /// Sends the bytes that are held back.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut Outlet(&mut self.socket))?;
        }
        if std::mem::take(&mut self.finishes) {
            self.socket.finish();
        }
        Ok(())
    }

    /// Copies decrypted bytes into `spaces`, and returns their number.
    fn give(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        let mut gave = 0;
        for space in spaces {
            while !space.is_empty() {
                let mut reader = self.tls.reader();
                let bytes = match reader.fill_buf() {
                    Ok([]) => return Ok(gave),
                    Ok(bytes) => bytes,
                    Err(_) if gave > 0 => return Ok(gave),
                    Err(error) => return Err(error),
                };
                let filled = space.fill(bytes);
                reader.consume(filled);
                space.advance(filled);
                gave += filled;
            }
        }
        Ok(gave)
    }

    /// Decrypts some of the bytes that have arrived, and reads the socket first if there are none.
    fn take_in(&mut self) -> io::Result<()> {
        if self.arrived.is_empty() {
            let got = self.socket.receive(&mut [Space::of(&mut self.incoming)])?;
            self.arrived = 0..got;
        }
        let taken = self.tls.read_tls(&mut &self.incoming[self.arrived.clone()])?;
        self.arrived.start += taken;
        let processed = self.tls.process_new_packets();
        // Sends answers and the data that waited for them, or an alert. If the socket is full, they
        // are held back.
        let _ = self.flush();
        if let Err(error) = processed {
            self.failed = Some(error);
            self.socket.finish();
        }
        if self.peer.is_none() && !self.tls.is_handshaking() {
            let first = self.tls.peer_certificates().and_then(|chain| chain.first());
            self.peer = first.map(|first| Certificate(first[..].into()));
        }
        self.check()
    }
}

impl Stream for TlsStream {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.check()?;
        let offered: usize = parts.iter().map(|part| part.len()).sum();
        let mut took = 0;
        let mut rest: Vec<IoSlice<'_>>;
        let mut left = parts;
        let flushed = loop {
            let now = if took < offered { self.tls.writer().write_vectored(left)? } else { 0 };
            took += now;
            match self.flush() {
                Ok(()) if now > 0 && took < offered => {}
                other => break other,
            }
            // Rarely needed: there is more than can be held back.
            rest = parts.to_vec();
            let mut slices = &mut rest[..];
            IoSlice::advance_slices(&mut slices, took);
            left = slices;
        };
        match flushed {
            Err(error) if took == 0 || error.kind() != io::ErrorKind::WouldBlock => Err(error),
            Ok(()) if took == 0 && offered > 0 => Err(io::ErrorKind::WouldBlock.into()),
            _ => Ok(took),
        }
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        self.check()?;
        let gave = loop {
            match self.give(spaces) {
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    self.more = false;
                    self.take_in()?;
                }
                gave => break gave?,
            }
        };
        let is_dry = matches!(self.tls.reader().fill_buf(), Err(error) if error.kind() == io::ErrorKind::WouldBlock);
        self.more = !is_dry || !self.arrived.is_empty();
        Ok(gave)
    }

    fn finish(&mut self) {
        self.tls.send_close_notify();
        self.finishes = true;
        // Bytes that the socket does not accept are held back.
        let _ = self.flush();
    }

    fn holds_back(&self) -> bool {
        self.tls.wants_write()
    }

    fn has_arrived(&self) -> bool {
        self.more
    }

    fn peer(&self) -> Option<&Certificate> {
        self.peer.as_ref()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}

/// Writes to a socket through the interface that TLS needs.
struct Outlet<'a>(&'a mut SocketStream);

impl Write for Outlet<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.send(&[IoSlice::new(bytes)])
    }

    fn write_vectored(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.0.send(parts)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
#[derive(Debug)]
struct Nothing;

#[cfg(test)]
impl rustls::client::ResolvesClientCert for Nothing {
    fn resolve(&self, _hints: &[&[u8]], _schemes: &[SignatureScheme]) -> Option<Arc<CertifiedKey>> {
        None
    }

    fn has_certs(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::SocketOptions;
    use crate::testing::Authority;
    use crate::testing::PATIENCE;
    use rcgen::ExtendedKeyUsagePurpose;
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    fn stream(socket: UnixStream, identity: &Identity, dialled: bool) -> TlsStream {
        let options = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: None, silence_ms: None };
        TlsStream::new(SocketStream::new(socket, &options).unwrap(), identity, dialled).unwrap()
    }

    /// Creates the dialling side and the dialled side.
    fn pair() -> [TlsStream; 2] {
        let authority = Authority::new();
        let (near, far) = UnixStream::pair().unwrap();
        [stream(near, &authority.identity(), true), stream(far, &authority.identity(), false)]
    }

    fn is_pending<T>(result: &io::Result<T>) -> bool {
        matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends as much of `bytes` as is accepted.
    fn push(stream: &mut TlsStream, bytes: &mut &[u8]) {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        match stream.send(&[IoSlice::new(first), IoSlice::new(second)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => *bytes = &bytes[sent.unwrap()..],
        }
    }

    /// Receives what has arrived, into spaces of odd sizes.
    fn pull(stream: &mut TlsStream, into: &mut Vec<u8>) -> io::Result<bool> {
        let (mut first, mut second) = ([0; 1001], [0; 20_003]);
        match stream.receive(&mut [Space::of(&mut first), Space::of(&mut second)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Ok(true),
            Err(error) => Err(error),
            Ok(got) => {
                into.extend_from_slice(&first[..got.min(1001)]);
                into.extend_from_slice(&second[..got.saturating_sub(1001)]);
                Ok(got > 0)
            }
        }
    }

    fn noise(bytes: usize) -> Vec<u8> {
        (0..bytes as u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect()
    }

    #[test]
    fn bytes_pass_both_ways_at_once_and_the_end_is_told() {
        let [mut near, mut far] = pair();
        let (forth, back) = (noise(3_000_000), noise(1_234_567));
        let (mut to_send, mut to_answer) = (&forth[..], &back[..]);
        let (mut came, mut returned, start) = (vec![], vec![], Instant::now());
        while came.len() < forth.len() || returned.len() < back.len() {
            assert!(start.elapsed() < PATIENCE, "{} and {} bytes came", came.len(), returned.len());
            push(&mut near, &mut to_send);
            push(&mut far, &mut to_answer);
            assert!(pull(&mut far, &mut came).unwrap() && pull(&mut near, &mut returned).unwrap());
        }
        assert!(came == forth && returned == back);
        near.finish();
        assert!(!pull(&mut far, &mut came).unwrap(), "the end is told");
        assert!(is_pending(&near.receive(&mut [Space::of(&mut [0; 9])])), "and only to one side");
        // Decrypted bytes must be reported, because the descriptor does not show them.
        push(&mut far, &mut &b"twelve bytes"[..]);
        assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 9);
        assert!(near.has_arrived());
        assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 3);
        assert!(!near.has_arrived());
    }

    /// A socket that accepts nothing more: the bytes that were accepted before are held back,
    /// bounded, and arrive.
    #[test]
    fn held_back_posts_are_bounded_and_arrive() {
        let [mut near, mut far] = pair();
        let (bytes, mut came) = (noise(8 << 20), vec![]);
        let (mut rest, start) = (&bytes[..], Instant::now());
        push(&mut near, &mut &b"x"[..]);
        while came.is_empty() {
            pull(&mut far, &mut came).unwrap();
            pull(&mut near, &mut vec![]).unwrap();
        }
        came.clear();
        while !is_pending(&near.send(&[IoSlice::new(rest)]).map(|sent| rest = &rest[sent..])) {}
        let taken = bytes.len() - rest.len();
        assert!(near.holds_back() && taken < 2 * SEND_BYTES, "{taken}");
        near.finish();
        while pull(&mut far, &mut came).unwrap() {
            assert!(start.elapsed() < PATIENCE, "{} bytes came", came.len());
            let _ = near.send(&[]);
        }
        assert!(came == bytes[..taken]);
    }

    /// Sends bytes through `change` to the dialled side. Returns what arrives.
    fn through(change: impl Fn(usize, &mut [u8])) -> io::Result<Vec<u8>> {
        let authority = Authority::new();
        let (near, mut near_end) = UnixStream::pair().unwrap();
        let (far, mut far_end) = UnixStream::pair().unwrap();
        let mut near = stream(near, &authority.identity(), true);
        let mut far = stream(far, &authority.identity(), false);
        near_end.set_nonblocking(true).unwrap();
        far_end.set_nonblocking(true).unwrap();
        let (mut came, mut at, mut buffer, start) = (vec![], 0, [0; 4096], Instant::now());
        let bytes = noise(20_000);
        let mut rest = &bytes[..];
        while came.len() < bytes.len() {
            assert!(start.elapsed() < PATIENCE, "{} bytes came", came.len());
            push(&mut near, &mut rest);
            if let Ok(got) = near_end.read(&mut buffer) {
                change(at, &mut buffer[..got]);
                at += got;
                far_end.write_all(&buffer[..got]).unwrap();
            }
            if !pull(&mut far, &mut came)? {
                break;
            }
            if let Ok(got) = far_end.read(&mut buffer) {
                near_end.write_all(&buffer[..got]).unwrap();
            }
            pull(&mut near, &mut vec![]).unwrap();
        }
        Ok(came)
    }

    #[test]
    fn a_bit_that_was_turned_is_noticed() {
        assert_eq!(through(|_, _| {}).unwrap(), noise(20_000));
        for turned in [300, 5000, 15_000] {
            let turn = |at, bytes: &mut [u8]| {
                if let Some(byte) = usize::checked_sub(turned, at).and_then(|at| bytes.get_mut(at)) {
                    *byte ^= 1;
                }
            };
            let error = through(turn).unwrap_err();
            assert!(is_fault(&error), "{error}");
        }
    }

    #[test]
    fn an_end_without_a_report_is_none() {
        let [mut near, mut far] = pair();
        let (mut came, start) = (vec![], Instant::now());
        push(&mut near, &mut &b"all of it?"[..]);
        while came.is_empty() {
            assert!(start.elapsed() < PATIENCE);
            assert!(pull(&mut far, &mut came).unwrap() && pull(&mut near, &mut vec![]).unwrap());
        }
        drop(near);
        let error = pull(&mut far, &mut came).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof, "{error}");
    }

    #[test]
    fn files_that_will_not_do_are_named() {
        let authority = Authority::new();
        let ca = authority.path("ca.pem");
        let (cert, key) = authority.sign("good", |_| {});
        Identity::load(&ca, &cert, &key).unwrap();
        let load = |ca: &Path, cert: &Path, key: &Path| Identity::load(ca, cert, key).unwrap_err();
        let none = authority.path("none");
        for (why, wanted) in [
            (load(&none, &cert, &key), "authority's certificate"),
            (load(&ca, &none, &key), "certificate"),
            (load(&ca, &cert, &none), "key"),
        ] {
            assert!(matches!(&why, TlsError::Read { what, path, .. } if *what == wanted && *path == none), "{why}");
        }
        let (text, binary, broken) = (authority.path("text"), authority.path("binary"), authority.path("broken"));
        fs::write(&text, "not a certificate").unwrap();
        fs::write(&binary, noise(1000)).unwrap();
        fs::write(&broken, "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n").unwrap();
        for wrong in [&text, &binary, &broken] {
            for why in [load(wrong, &cert, &key), load(&ca, wrong, &key), load(&ca, &cert, wrong)] {
                assert!(matches!(&why, TlsError::NotPem { path, .. } if path == wrong), "{why}");
            }
        }
        // Each file in the place of another.
        assert!(matches!(load(&ca, &key, &key), TlsError::NotPem { what: "certificate", .. }));
        assert!(matches!(load(&ca, &cert, &cert), TlsError::NotPem { what: "key", .. }));
        fs::write(&broken, "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n").unwrap();
        assert!(matches!(load(&broken, &cert, &key), TlsError::Authority { .. }));
        assert!(matches!(load(&ca, &broken, &key), TlsError::Certificate { .. }));
        fs::write(&broken, "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n").unwrap();
        assert!(matches!(load(&ca, &cert, &broken), TlsError::Key { .. }));
        let (other, other_key) = authority.sign("other", |_| {});
        assert!(matches!(load(&ca, &cert, &other_key), TlsError::Mismatch { .. }));
        let elsewhere = Authority::new().path("ca.pem");
        assert!(matches!(load(&elsewhere, &other, &other_key), TlsError::Read { .. }));
        let foreign = Authority::new();
        let why = load(&foreign.path("ca.pem"), &cert, &key);
        assert!(matches!(&why, TlsError::Certificate { .. }), "{why}");
        for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth] {
            let (cert, key) = authority.sign("half", |params| params.extended_key_usages = vec![usage]);
            assert!(matches!(load(&ca, &cert, &key), TlsError::Certificate { .. }));
        }
    }

    #[test]
    fn an_expired_or_early_certificate_is_reported_with_its_dates() {
        let authority = Authority::new();
        let refused = |(cert, key): (PathBuf, PathBuf)| {
            let why = Identity::load(&authority.path("ca.pem"), &cert, &key).unwrap_err().to_string();
            assert!(why.contains(cert.to_str().unwrap()), "{why}");
            why
        };
        let old = authority.sign("old", |params| params.not_after = rcgen::date_time_ymd(2000, 2, 29));
        let why = refused(old);
        assert!(why.contains("expired at 2000-02-29 00:00:00 UTC"), "{why}");
        let early = authority.sign("early", |params| params.not_before = rcgen::date_time_ymd(4000, 12, 31));
        let why = refused(early);
        assert!(why.contains("valid from 4000-12-31 00:00:00 UTC on, and by this host's clock it is 2"), "{why}");
    }

    #[test]
    fn a_certificate_of_version_1_is_called_so() {
        let authority = Authority::new();
        let (cert, key) = authority.sign("first", |_| {});
        // The 13th byte of the certificate, after two lengths of two bytes: a one-digit number, 2
        // for version 3.
        let mut lines: Vec<String> = fs::read_to_string(&cert).unwrap().lines().map(str::to_string).collect();
        assert!(lines[1][16..].starts_with("Ag"), "{}", lines[1]);
        lines[1].replace_range(16..18, "AA");
        fs::write(&cert, lines.join("\n")).unwrap();
        let why = Identity::load(&authority.path("ca.pem"), &cert, &key).unwrap_err();
        assert!(matches!(&why, TlsError::Certificate { why, .. } if why.contains("X.509 v1 certificate")), "{why}");
    }

    fn is_named(identity: &Identity, name: &str) -> bool {
        Certificate(identity.files.lock().loaded.mine.cert[0][..].into()).has_name(name)
    }

    /// Returns the warnings of a look at the files, this long after they were loaded.
    fn warnings(identity: &Identity, start: Instant, after: Duration) -> Vec<String> {
        let mut state = identity.files.lock();
        identity.files.look(&mut state, start + after, UnixTime::now());
        state.warnings.drain(..).map(|warning| warning.to_string()).collect()
    }

    #[test]
    fn files_that_change_are_read_again_and_the_old_stay_if_they_are_of_no_use() {
        let authority = Authority::new();
        let named = |name: &str| {
            let san = rcgen::SanType::DnsName(name.try_into().unwrap());
            authority.sign("member", |params| params.subject_alt_names = vec![san])
        };
        let identity = authority.load(&named("first"));
        let (clone, start, second) = (identity.clone(), Instant::now(), Duration::from_secs(1));
        assert!(warnings(&identity, start, second).is_empty() && is_named(&identity, "first"));
        let (cert, key) = named("second");
        assert!(
            warnings(&identity, start, second * 3 / 2).is_empty() && is_named(&identity, "first"),
            "at most once a second"
        );
        assert!(warnings(&identity, start, 2 * second).is_empty() && is_named(&clone, "second"));
        // The key is replaced later, and there is no warning meanwhile.
        let new = fs::read(&key).unwrap();
        named("third");
        let other = fs::read(&key).unwrap();
        fs::write(&key, new).unwrap();
        assert!(warnings(&identity, start, 4 * second).is_empty() && is_named(&identity, "second"));
        fs::write(&key, other).unwrap();
        assert!(warnings(&identity, start, 10 * second).is_empty() && is_named(&identity, "third"));
        fs::remove_file(&cert).unwrap();
        assert!(warnings(&identity, start, 12 * second).is_empty());
        let told = warnings(&identity, start, 17 * second);
        assert!(matches!(&told[..], [one] if one.contains("stays in use: can't read the certificate in ")), "{told:?}");
        assert!(warnings(&identity, start, 20 * second).is_empty() && is_named(&identity, "third"), "told once");
        named("fourth");
        assert!(warnings(&identity, start, 22 * second).is_empty() && is_named(&identity, "fourth"));
    }

    #[test]
    fn an_expiry_within_a_week_is_warned_of_once_a_day() {
        let authority = Authority::new();
        let files = authority.sign("short", |params| params.not_after = rcgen::date_time_ymd(2030, 1, 8));
        let identity = authority.load_in(2029, &files);
        let (start, mut state, day) = (Instant::now(), identity.files.lock(), Duration::from_secs(24 * 3600));
        let new_year = Duration::from_secs(1_893_456_000);
        let mut told = |at: Instant, time: Duration| {
            identity.files.look(&mut state, at, UnixTime::since_unix_epoch(time));
            state.warnings.drain(..).map(|warning| warning.to_string()).collect::<Vec<_>>()
        };
        assert!(told(start, new_year - day).is_empty());
        let soon = told(start + day, new_year + day);
        assert!(matches!(&soon[..], [one] if one.contains("expires at 2030-01-08 00:00:00 UTC")), "{soon:?}");
        assert!(told(start + day + day / 2, new_year + day).is_empty());
        assert_eq!(told(start + 2 * day, new_year + 2 * day).len(), 1);
    }

    #[test]
    fn times_are_told_as_people_read_them() {
        let told = |seconds| date(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)));
        assert_eq!(told(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(told(951_868_799), "2000-02-29 23:59:59 UTC");
        assert_eq!(told(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(told(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(told(253_402_300_799), "9999-12-31 23:59:59 UTC");
    }
}
