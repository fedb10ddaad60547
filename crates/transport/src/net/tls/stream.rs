//! A socket that carries TLS.
use super::error::TlsFault;
use super::identity::Identity;
use crate::stream::{Certificate, SocketStream, Space, Stream};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, Connection, ServerConnection};
use std::fmt;
use std::io::{self, BufRead, IoSlice, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Encrypted bytes that are read from a socket at once.
const RECEIVE_BYTES: usize = 64 << 10;
/// Approximate bytes that are held back for a socket that is full.
const SEND_BYTES: usize = 256 << 10;

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
            Some(error) => Err(io::Error::new(io::ErrorKind::InvalidData, TlsFault(error.clone()))),
        }
    }

    /// Sends the bytes that are held back.
    fn flush(&mut self) -> io::Result<()> {
        while self.tls.wants_write() {
            self.tls.write_tls(&mut SocketWriter(&mut self.socket))?;
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
struct SocketWriter<'a>(&'a mut SocketStream);

impl Write for SocketWriter<'_> {
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
mod tests;
