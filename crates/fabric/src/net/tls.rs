//! Connections between hosts that nobody else can read, forge or open: TLS 1.3, both sides with a certificate.
//!
//! A group has a certificate authority of its own, and who has a certificate of it belongs to the group: nothing else is asked for. The
//! names in a certificate are not compared with anything, because members are reached at addresses that nobody knew when it was
//! made. So an authority must sign for nobody else, and a member can take another's id: certificates keep strangers out, they do
//! not protect members from each other. A certificate can't be revoked; it can be made for a short time.
use crate::tcp::{SocketStream, Space, Stream};
use rustls::CertificateError::{ExpiredContext, NotValidYetContext};
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::client::{Resumption, verify_server_cert_signed_by_trust_anchor};
use rustls::crypto::{CryptoProvider, WebPkiSupportedAlgorithms, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::version::TLS13;
use rustls::{ClientConfig, ClientConnection, Connection, DigitallySignedStruct, InconsistentKeys};
use rustls::{RootCertStore, ServerConfig, ServerConnection, SignatureScheme};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// What a process shows to others, and by what it knows them. The files are read once: who has a new certificate opens a new endpoint.
#[derive(Clone)]
pub struct Identity {
    client: Arc<ClientConfig>,
    server: Arc<ServerConfig>,
}

/// Why files are no [`Identity`].
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read the {what} in {}: {source}", path.display())]
    Read {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file is something else.
    #[error("{} holds no {what} in PEM form: {why}", path.display())]
    NotPem {
        /// What should be in it.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The authority's certificate is of no use.
    #[error("the authority's certificate in {} can't be used: {why}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The key is of no use.
    #[error("the key in {} can't be used: {why}; take one for ECDSA, Ed25519 or RSA", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The certificate is of no use, or not for both sides of a connection.
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
        /// What is wrong.
        why: String,
    },
    /// The certificate, or one between it and the authority's, is out of date.
    #[error("the certificate in {} expired at {at}; make a new one, signed by the same authority", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// When.
        at: String,
    },
    /// The certificate, or one between it and the authority's, is for later.
    #[error("the certificate in {} is valid from {from} on, and by this host's clock it is {now}; set the clock, or wait", path.display())]
    NotValidYet {
        /// The file.
        path: PathBuf,
        /// From when on.
        from: String,
        /// What time it is.
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

/// What TLS has against a connection, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
struct Fault(rustls::Error);

/// As rustls says it, but for dates: it counts the seconds up to now, and would say something else each time.
fn in_words(error: &rustls::Error) -> String {
    match error {
        rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. }) => {
            format!("invalid peer certificate: it expired at {}", date(*not_after))
        }
        rustls::Error::InvalidCertificate(NotValidYetContext { not_before, .. }) => {
            format!("invalid peer certificate: it is valid from {} on", date(*not_before))
        }
        other => other.to_string(),
    }
}

/// Whether TLS has something against the connection, rather than the system.
pub(super) fn is_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<Fault>())
}

impl Identity {
    /// From PEM files: the certificates of the authority, that of this process with those between, and its key.
    ///
    /// Dates are looked at here, and by the other side each time that a connection is made.
    ///
    /// # Errors
    /// The first file that won't do.
    pub fn load(authority: &Path, certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
        Identity::load_at(authority, certificate, key, UnixTime::now())
    }

    /// As somebody whose clock says that it is `now`.
    pub(super) fn load_at(
        authority: &Path,
        certificate: &Path,
        key: &Path,
        now: UnixTime,
    ) -> Result<Identity, TlsError> {
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let useless = |why: &dyn fmt::Display| TlsError::Authority { path: authority.into(), why: why.to_string() };
        let mut roots = RootCertStore::empty();
        for root in certificates("authority's certificate", authority)? {
            roots.add(root).map_err(|error| useless(&error))?;
        }
        let roots = Arc::new(roots);
        let clients = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider))
            .build()
            .map_err(|error| useless(&error))?;
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
                other => TlsError::Certificate { path, authority: authority.into(), why: other.to_string() },
            }
        };
        let mine = certified(certificate, key, &provider, wrong)?;
        check(&mine, &*clients, &servers, now).map_err(wrong)?;
        let mine = Arc::new(SingleCertAndKey::from(mine));
        let new = "the provider has TLS 1.3";
        let mut server = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(&[&TLS13])
            .expect(new)
            .with_client_cert_verifier(clients)
            .with_cert_resolver(Arc::clone(&mine) as _);
        let mut client = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[&TLS13])
            .expect(new)
            .dangerous()
            .with_custom_certificate_verifier(servers)
            .with_client_cert_resolver(mine);
        // Every connection is judged anew.
        server.send_tls13_tickets = 0;
        server.session_storage = Arc::new(NoServerSessionStorage {});
        client.resumption = Resumption::disabled();
        client.enable_sni = false;
        // So that nothing else that trusts the same authority is taken for a member.
        server.alpn_protocols = vec![PROTOCOL.into()];
        client.alpn_protocols = vec![PROTOCOL.into()];
        Ok(Identity { client: Arc::new(client), server: Arc::new(server) })
    }

    /// One that dials without showing anything.
    #[cfg(test)]
    pub(super) fn without_certificate(mut self) -> Identity {
        let client = Arc::make_mut(&mut self.client);
        client.client_auth_cert_resolver = Arc::new(Nothing);
        self
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

/// Whether others with the same authority would take it at this time.
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

/// A time as people read it.
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

/// Knows who is dialled by the authority that signed, whatever the names are.
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
/// Bytes that are held back for a socket that is full, about.
const SEND_BYTES: usize = 256 << 10;

/// A socket over which TLS is spoken. What is sent before both sides are sure of each other waits for that.
///
/// An end that the peer did not announce is an error of kind [`UnexpectedEof`](io::ErrorKind::UnexpectedEof), not the end: anybody
/// between could have made it. Receiving may leave something [held back](Stream::holds_back), too.
pub struct TlsStream {
    socket: SocketStream,
    tls: Connection,
    /// Encrypted bytes, of which `arrived` are to be looked at.
    incoming: Box<[u8]>,
    arrived: std::ops::Range<usize>,
    /// Whether there is something to give without asking the socket.
    more: bool,
    failed: Option<rustls::Error>,
    finishes: bool,
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
    /// On the socket of who `dialled`, or was dialled.
    ///
    /// # Errors
    /// None but for want of random bits.
    pub fn new(socket: SocketStream, identity: &Identity, dialled: bool) -> io::Result<TlsStream> {
        let tls = if dialled {
            // It is sent to nobody and compared with nothing.
            let name = ServerName::try_from("spindle").expect("it is a name");
            ClientConnection::new(Arc::clone(&identity.client), name).map(Connection::from)
        } else {
            ServerConnection::new(Arc::clone(&identity.server)).map(Connection::from)
        };
        let mut tls = tls.map_err(io::Error::other)?;
        tls.set_buffer_limit(Some(SEND_BYTES));
        let incoming = vec![0; RECEIVE_BYTES].into();
        let mut stream = TlsStream { socket, tls, incoming, arrived: 0..0, more: false, failed: None, finishes: false };
        // Who dialled begins, even if it only wants to receive. Should that fail, so will what follows.
        let _ = stream.flush();
        Ok(stream)
    }

    fn check(&self) -> io::Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, Fault(error.clone()))),
        }
    }

    /// Sends what is held back.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut Outlet(&mut self.socket))?;
        }
        if std::mem::take(&mut self.finishes) {
            self.socket.finish();
        }
        Ok(())
    }

    /// Gives what is decrypted, and says how much that was.
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

    /// Decrypts some of what has arrived, after asking the socket if need be.
    fn take_in(&mut self) -> io::Result<()> {
        if self.arrived.is_empty() {
            let got = self.socket.receive(&mut [Space::of(&mut self.incoming)])?;
            self.arrived = 0..got;
        }
        let taken = self.tls.read_tls(&mut &self.incoming[self.arrived.clone()])?;
        self.arrived.start += taken;
        let processed = self.tls.process_new_packets();
        // Answers, and what waited for them; or what is wrong. Should the socket be full, that is held back.
        let _ = self.flush();
        if let Err(error) = processed {
            self.failed = Some(error);
            self.socket.finish();
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
            // Rarely so: there is more than can be held.
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
        // What the socket does not take is held back.
        let _ = self.flush();
    }

    fn holds_back(&self) -> bool {
        self.tls.wants_write()
    }

    fn has_arrived(&self) -> bool {
        self.more
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.fd()
    }
}

/// Writes to a socket as TLS wants it.
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
    use super::super::test_authority::Authority;
    use super::*;
    use crate::conformance::PATIENCE;
    use crate::tcp::SocketOptions;
    use rcgen::ExtendedKeyUsagePurpose;
    use std::fs;
    use std::io::Read;
    use std::os::unix::net::UnixStream;
    use std::time::Instant;

    fn stream(socket: UnixStream, identity: &Identity, dialled: bool) -> TlsStream {
        let options = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: None, silence_ms: None };
        TlsStream::new(SocketStream::new(socket, &options).unwrap(), identity, dialled).unwrap()
    }

    /// Who dialled, and who was dialled.
    fn pair() -> [TlsStream; 2] {
        let authority = Authority::new();
        let (near, far) = UnixStream::pair().unwrap();
        [stream(near, &authority.identity(), true), stream(far, &authority.identity(), false)]
    }

    fn is_pending<T>(result: &io::Result<T>) -> bool {
        matches!(result, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends as much of `bytes` as is taken.
    fn push(stream: &mut TlsStream, bytes: &mut &[u8]) {
        let (first, second) = bytes.split_at(bytes.len() / 3);
        match stream.send(&[IoSlice::new(first), IoSlice::new(second)]) {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
            sent => *bytes = &bytes[sent.unwrap()..],
        }
    }

    /// Receives what there is, into spaces of odd sizes.
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
        // What is decrypted is told of, as the descriptor does not.
        push(&mut far, &mut &b"twelve bytes"[..]);
        assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 9);
        assert!(near.has_arrived());
        assert_eq!(near.receive(&mut [Space::of(&mut [0; 9])]).unwrap(), 3);
        assert!(!near.has_arrived());
    }

    /// A socket that takes nothing any more: what was taken before is held back, bounded, and arrives.
    #[test]
    fn what_is_held_back_is_bounded_and_arrives() {
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

    /// Bytes go through `change` on their way to who was dialled. What comes of it.
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
    fn an_end_that_nobody_told_is_none() {
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
        // Each in the place of another.
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
    fn who_has_a_certificate_that_is_out_of_date_or_for_later_is_told_when() {
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
    fn times_are_told_as_people_read_them() {
        let told = |seconds| date(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)));
        assert_eq!(told(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(told(951_868_799), "2000-02-29 23:59:59 UTC");
        assert_eq!(told(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(told(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(told(253_402_300_799), "9999-12-31 23:59:59 UTC");
    }
}
