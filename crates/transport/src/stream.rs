//! The carrier of frames to one peer: a [`Stream`] of bytes in order, and [`SocketStream`], the one
//! that is a socket.
//!
//! A stream that is more than a socket, such as one that encrypts, implements [`Stream`] by
//! copying: out of the slices that it is given, and into each [`Space`]. It reports the bytes that
//! it holds back itself.
use rustix::io::Errno;
use rustix::net::{self, SendAncillaryBuffer, SendFlags, Shutdown, sockopt};
use std::collections::VecDeque;
use std::fmt::{self, Debug};
use std::io::{self, IoSlice};
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::time::Duration;

/// An ordered stream of bytes to one peer and back, which never waits.
pub trait Stream: Debug + Send {
    /// Accepts bytes from the front of `parts` to send them, and returns how many. They may have
    /// left or be held by the stream; the slices are not needed any more.
    ///
    /// # Errors
    /// [`io::ErrorKind::WouldBlock`]: not now. Any other means never again.
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize>;

    /// Copies arrived bytes into `spaces`, from the front, and returns how many; 0 at the end of
    /// the stream.
    ///
    /// # Errors
    /// As [`send`](Self::send).
    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize>;

    /// Reports to the peer that nothing more will be sent.
    fn finish(&mut self);

    /// Returns whether it has accepted bytes that it still holds. It sends them when it is asked to
    /// send, even an empty slice.
    fn holds_back(&self) -> bool {
        false
    }

    /// Sends bytes that it holds back, as many as it can now.
    ///
    /// # Errors
    /// As [`send`](Self::send). A full stream is no error.
    fn send_held(&mut self) -> io::Result<()> {
        match self.holds_back().then(|| self.send(&[])) {
            Some(Err(error)) if error.kind() != io::ErrorKind::WouldBlock => Err(error),
            _ => Ok(()),
        }
    }

    /// Returns whether it may have bytes that the descriptor does not report. A new owner of the
    /// stream has to ask before it waits for the descriptor: the stream may have read ahead while
    /// it had another owner.
    fn has_arrived(&self) -> bool {
        false
    }

    /// Takes back the last bytes that it has returned, if it can: they come again, before all
    /// others. Returns whether it has.
    fn take_back(&mut self, _bytes: &[u8]) -> bool {
        false
    }

    /// Returns the certificate of the peer, once it has been verified; `None` if the stream
    /// verifies none.
    fn peer(&self) -> Option<&Certificate> {
        None
    }

    /// Returns the descriptor that becomes readable when bytes or the end have arrived, and
    /// writable when it can send.
    fn fd(&self) -> BorrowedFd<'_>;
}

/// The certificate that a peer has shown (DER), signed by the group's authority and within its
/// dates.
#[derive(Clone, PartialEq, Eq)]
pub struct Certificate(pub(crate) Box<[u8]>);

impl fmt::Debug for Certificate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Certificate").finish_non_exhaustive()
    }
}

/// A stream that has taken back bytes that it had returned.
#[derive(Debug)]
struct RereadStream {
    stream: Connection,
    bytes: VecDeque<u8>,
}

/// Returns `stream` so that it returns `bytes` again, before all others.
pub fn again(mut stream: Connection, bytes: &[u8]) -> Connection {
    match bytes.is_empty() || stream.take_back(bytes) {
        true => stream,
        false => Box::new(RereadStream { stream, bytes: bytes.iter().copied().collect() }),
    }
}

impl Stream for RereadStream {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        self.stream.send(parts)
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        if self.bytes.is_empty() {
            return self.stream.receive(spaces);
        }
        let bytes = self.bytes.make_contiguous();
        let mut given = 0;
        for space in spaces {
            given += space.fill(&bytes[given..]);
        }
        self.bytes.drain(..given);
        Ok(given)
    }

    fn finish(&mut self) {
        self.stream.finish();
    }

    fn holds_back(&self) -> bool {
        self.stream.holds_back()
    }

    fn has_arrived(&self) -> bool {
        !self.bytes.is_empty() || self.stream.has_arrived()
    }

    fn take_back(&mut self, bytes: &[u8]) -> bool {
        bytes.iter().rev().for_each(|byte| self.bytes.push_front(*byte));
        true
    }

    fn peer(&self) -> Option<&Certificate> {
        self.stream.peer()
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.stream.fd()
    }
}

/// Returns whether the system at the other end of the socket `fd` has confirmed all that was handed
/// to this one.
pub fn is_confirmed(fd: BorrowedFd<'_>) -> bool {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is open, and the call writes only this number.
    let asked = unsafe { libc::ioctl(fd.as_raw_fd(), libc::TIOCOUTQ, &raw mut bytes) };
    // If the system can't report it, there is nothing to wait for.
    asked != 0 || bytes == 0
}

/// Makes the system end a TCP connection whose bytes are not acknowledged for so long, at least a
/// millisecond; other sockets stay as they are. For streams that are
/// replaced when they end: after a cut a new one is established sooner than
/// the system sends again on the old one.
///
/// # Errors
/// The system's reason.
pub fn limit_silence(stream: &dyn Stream, silence: Duration) -> io::Result<()> {
    let family = sockopt::socket_domain(stream.fd())?;
    if family == net::AddressFamily::INET || family == net::AddressFamily::INET6 {
        let silence_ms = u32::try_from(silence.as_millis()).unwrap_or(u32::MAX).max(1);
        sockopt::set_tcp_user_timeout(stream.fd(), silence_ms)?;
    }
    Ok(())
}

/// A stream of any kind.
pub type Connection = Box<dyn Stream>;

/// Memory to receive into. No thread reads it meanwhile, and no code may assume that it is only
/// written here.
#[derive(Debug)]
#[repr(transparent)]
pub struct Space<'a> {
    range: libc::iovec,
    _memory: PhantomData<&'a mut [u8]>,
}

impl<'a> Space<'a> {
    /// Creates a space of a buffer.
    pub fn of(bytes: &'a mut [u8]) -> Space<'a> {
        let range = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
        Space { range, _memory: PhantomData }
    }

    /// Creates a space of `len` bytes at `start`.
    ///
    /// # Safety
    /// They may be written during all of `'a`.
    pub unsafe fn at(start: NonNull<u8>, len: usize) -> Space<'a> {
        Space { range: libc::iovec { iov_base: start.as_ptr().cast(), iov_len: len }, _memory: PhantomData }
    }

    /// Returns its length in bytes.
    pub fn len(&self) -> usize {
        self.range.iov_len
    }

    /// Returns whether its length is 0.
    pub fn is_empty(&self) -> bool {
        self.range.iov_len == 0
    }

    /// Copies as much of `bytes` as fits to the start of the space, and returns how much.
    pub fn fill(&mut self, bytes: &[u8]) -> usize {
        let len = bytes.len().min(self.range.iov_len);
        // SAFETY: `range` may be written, by the contract of the constructors, and `bytes` is
        // borrowed from elsewhere.
        unsafe { std::ptr::copy_nonoverlapping(bytes.as_ptr(), self.range.iov_base.cast(), len) };
        len
    }

    /// Drops its first bytes, which are filled, so that filling continues after them.
    ///
    /// # Panics
    /// If it has fewer.
    pub fn advance(&mut self, bytes: usize) {
        assert!(bytes <= self.range.iov_len, "{bytes} bytes of a space of {}", self.range.iov_len);
        self.range.iov_base = self.range.iov_base.wrapping_byte_add(bytes);
        self.range.iov_len -= bytes;
    }
}

/// The settings of a socket. `None` leaves a setting as it is.
#[derive(Clone, Debug, Default)]
pub struct SocketOptions {
    /// Bytes that the system holds for sending (`SO_SNDBUF`). The system chooses well by itself for
    /// most networks. A small buffer makes posts wait in the row, where they can merge, and costs
    /// throughput where the round trip is long.
    pub send_buffer_bytes: Option<u32>,
    /// Bytes that the system holds for receiving (`SO_RCVBUF`).
    pub receive_buffer_bytes: Option<u32>,
    /// How long a TCP connection may be silent until it counts as broken, in ms
    /// (`TCP_USER_TIMEOUT`, keepalive). It is silent while its sent bytes are unacknowledged, its
    /// probes are unanswered, or its peer's buffer is full because the peer reads nothing. 0 turns
    /// it off. If it is too low, a busy network, or a process that was stopped for a moment, costs
    /// a member its membership. So it should not be less than the time after which members suspect
    /// each other. If it is too high, a machine that has lost its power is detected late. `None`:
    /// [`SILENCE_MS`](Self::SILENCE_MS).
    pub silence_ms: Option<u32>,
}

impl SocketOptions {
    /// The default silence after which a connection counts as broken.
    pub const SILENCE_MS: u32 = 10_000;
}

/// A stream socket: TCP over IPv4 or IPv6, or a Unix one.
#[derive(Debug)]
pub struct SocketStream {
    socket: OwnedFd,
}

impl SocketStream {
    /// Wraps a connected stream socket, which is non-blocking from now on.
    ///
    /// # Errors
    /// The system's refusal of an option.
    pub fn new(socket: impl Into<OwnedFd>, options: &SocketOptions) -> io::Result<SocketStream> {
        let socket = socket.into();
        rustix::io::ioctl_fionbio(&socket, true)?;
        if let Some(bytes) = options.send_buffer_bytes {
            sockopt::set_socket_send_buffer_size(&socket, bytes as usize)?;
        }
        if let Some(bytes) = options.receive_buffer_bytes {
            sockopt::set_socket_recv_buffer_size(&socket, bytes as usize)?;
        }
        let family = sockopt::socket_domain(&socket)?;
        if family == net::AddressFamily::INET || family == net::AddressFamily::INET6 {
            sockopt::set_tcp_nodelay(&socket, true)?;
            watch_silence(&socket, options.silence_ms.unwrap_or(SocketOptions::SILENCE_MS))?;
        }
        Ok(SocketStream { socket })
    }
}

/// Makes the system end the connection when the peer's machine is silent for so long.
fn watch_silence(socket: &OwnedFd, silence_ms: u32) -> io::Result<()> {
    sockopt::set_tcp_user_timeout(socket, silence_ms)?;
    sockopt::set_socket_keepalive(socket, silence_ms > 0)?;
    if silence_ms > 0 {
        // In whole seconds, at least one. After the first probe the user timeout decides.
        let third = Duration::from_secs(u64::from(silence_ms / 3000).max(1));
        sockopt::set_tcp_keepidle(socket, third)?;
        sockopt::set_tcp_keepintvl(socket, third)?;
    }
    Ok(())
}

impl Stream for SocketStream {
    fn send(&mut self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        let mut nothing = SendAncillaryBuffer::default();
        let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        match rustix::io::retry_on_intr(|| net::sendmsg(&self.socket, parts, &mut nothing, flags)) {
            // The system has no memory at the moment.
            Err(Errno::NOBUFS | Errno::NOMEM) => Err(io::ErrorKind::WouldBlock.into()),
            result => Ok(result?),
        }
    }

    fn receive(&mut self, spaces: &mut [Space<'_>]) -> io::Result<usize> {
        let (parts, count) = (spaces.as_ptr().cast::<libc::iovec>(), spaces.len() as libc::c_int);
        loop {
            // SAFETY: `Space` is an iovec by representation, each of memory that may be written;
            // `readv` reads `count` of them.
            let got = unsafe { libc::readv(self.socket.as_raw_fd(), parts, count) };
            if let Ok(got) = usize::try_from(got) {
                return Ok(got);
            }
            let error = io::Error::last_os_error();
            if Errno::from_io_error(&error) != Some(Errno::INTR) {
                return Err(error);
            }
        }
    }

    fn finish(&mut self) {
        // It may be closed already.
        let _ = net::shutdown(&self.socket, Shutdown::Write);
    }

    fn fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}
