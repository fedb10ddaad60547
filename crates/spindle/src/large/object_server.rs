//! Objects on their way from a member to a process that follows. Like the application's state, they
//! go through a pipe or over a stream. A thread of its own writes them.
//!
//! ```text
//! stream = for each object that was asked for: its length + 1, or 0 if it is not kept any more (u64) | its bytes
//! ```
use super::object_cache::LargeObjectCache;
use crate::control_plane::ControlPlane;
use crate::shared::Notices;
use crate::transfer::{CarryReader, CarryWriter, PATIENCE, STREAM_WAIT, TransferWay};
use spindle_core::control::{self, ControlMessage, ObjectOrder, Purpose, Wanted};
use spindle_core::{MemberId, ViewId};
use spindle_fabric::pipe::{PipeReader, PipeWriter};
use spindle_transport::Connection;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;
use tracing::{debug, info};

/// The target of events of objects.
const TARGET: &str = "spindle::object";

/// The number of bytes that are read at once. A follower that cancels notices it after this many
/// bytes.
const PIECE_BYTES: usize = 1 << 20;

/// The objects that a member sends to processes that follow. The core's
/// [`LargeObjectServer`](control::ObjectServer) decides which process is next.
#[derive(Debug, Default)]
pub(crate) struct LargeObjectServer {
    orders: control::ObjectServer,
    served: Arc<AtomicUsize>,
}

/// A process that is served.
struct Served {
    count: Arc<AtomicUsize>,
    notices: Arc<Notices>,
}

impl Drop for Served {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
        // Other processes may wait.
        self.notices.ring();
    }
}

impl LargeObjectServer {
    /// Takes the order of a process.
    pub(crate) fn ask(&mut self, order: ObjectOrder) {
        self.orders.ask(order);
    }

    /// Serves the processes that wait, as far as the core allows.
    pub(crate) fn serve(&mut self, control_plane: &mut ControlPlane, object_cache: &Arc<LargeObjectCache>) {
        while let Some(order) = self.orders.next(self.served.load(Ordering::Relaxed)) {
            let ObjectOrder { from, view, reply, objects } = order;
            let (object_cache, notices) = (Arc::clone(object_cache), Arc::clone(control_plane.notices()));
            self.served.fetch_add(1, Ordering::Relaxed);
            let served = Served { count: Arc::clone(&self.served), notices: Arc::clone(&notices) };
            let thread = thread::Builder::new().name("spindle-objects".into());
            // Without a thread or memory for it, the follower receives no answer, and asks another
            // member.
            let count = objects.len();
            let started = if control_plane.is_far(from) {
                let stream = control_plane.dial_for(from, Purpose::Objects { view, reply });
                thread.spawn(move || {
                    let _served = served;
                    let Ok(stream) = stream.recv_timeout(STREAM_WAIT) else { return };
                    tell(from, view, count, &send_afar(&object_cache, view, &objects, stream));
                })
            } else {
                let message = ControlMessage::Objects { from: control_plane.me, reply };
                thread.spawn(move || {
                    let _served = served;
                    let sent = send(&object_cache, view, &objects, |pipe| notices.tell_of_pipe(from, message, pipe));
                    tell(from, view, count, &sent);
                })
            };
            if let Err(error) = started {
                info!(target: TARGET, follower = from.0, view = view.0, reason = %error, "objects not sent");
            }
        }
    }
}

/// Logs the result of sending `objects`.
fn tell(to: MemberId, view: ViewId, objects: usize, sent: &io::Result<()>) {
    match sent {
        Ok(()) => debug!(target: TARGET, follower = to.0, view = view.0, objects, "objects sent"),
        Err(error) => {
            info!(target: TARGET, follower = to.0, view = view.0, objects, reason = %error, "objects not sent")
        }
    }
}

/// Writes objects into a pipe. `tell` gets the pipe's ends for the reader.
fn send(
    object_cache: &LargeObjectCache,
    view: ViewId,
    wanted: &[Wanted],
    tell: impl FnOnce([OwnedFd; 2]),
) -> io::Result<()> {
    let expected =
        wanted.iter().map(|wanted| 8 + object_cache.find(view, wanted).map_or(0, |object| object.len() as u64)).sum();
    let (mut writer, ends) = PipeWriter::create(Some(expected), PATIENCE).map_err(io::Error::other)?;
    tell(ends);
    for wanted in wanted {
        // The objects are found one after the other. So the thread holds no more than one while it
        // waits for its reader.
        let object = object_cache.find(view, wanted);
        writer.write_all(&head(object.as_deref()))?;
        writer.write_from(object.as_deref().unwrap_or_default())?;
    }
    writer.finish();
    Ok(())
}

/// Writes objects over a stream to another host.
fn send_afar(
    object_cache: &LargeObjectCache,
    view: ViewId,
    wanted: &[Wanted],
    connection: Connection,
) -> io::Result<()> {
    let mut writer = CarryWriter::new(connection, PATIENCE);
    for wanted in wanted {
        let object = object_cache.find(view, wanted);
        writer.write_all(&head(object.as_deref()))?;
        writer.write_from(object.as_deref().unwrap_or_default())?;
    }
    writer.finish()
}

fn head(object: Option<&[u8]>) -> [u8; 8] {
    object.map_or(0, |object| object.len() as u64 + 1).to_le_bytes()
}

/// Reads objects of these lengths on a thread of its own, which sends each to the returned channel:
/// `None` if the object is not kept any more. The thread ends early if the way breaks off, if
/// something else comes than was asked for, or soon after `cancelled` is set.
///
/// # Errors
/// When no thread can be started.
pub(super) fn receive_apart(
    way: TransferWay,
    lengths: Vec<u64>,
    cancelled: Arc<AtomicBool>,
    notices: Arc<Notices>,
) -> io::Result<Receiver<Option<Vec<u8>>>> {
    let (tell, told) = channel();
    thread::Builder::new().name("spindle-objects".into()).spawn(move || {
        // After a failure, the channel ends before all objects were sent.
        let _ = receive(way, &lengths, &tell, &cancelled, &notices);
        drop(tell);
        notices.ring();
    })?;
    Ok(told)
}

fn receive(
    way: TransferWay,
    lengths: &[u64],
    tell: &Sender<Option<Vec<u8>>>,
    cancelled: &AtomicBool,
    notices: &Notices,
) -> io::Result<()> {
    let mut bytes: Box<dyn Read> = match way {
        TransferWay::Pipe(ends) => Box::new(PipeReader::open(ends, PATIENCE).map_err(io::Error::other)?),
        TransferWay::Stream(connection) => Box::new(CarryReader::new(connection, PATIENCE)),
    };
    for len in lengths {
        let mut word = [0; 8];
        bytes.read_exact(&mut word)?;
        let object = match u64::from_le_bytes(word).checked_sub(1) {
            None => None,
            Some(got) if got == *len => Some(read_object(&mut bytes, *len, cancelled)?),
            Some(_) => return Err(io::ErrorKind::InvalidData.into()),
        };
        if tell.send(object).is_err() {
            return Ok(());
        }
        notices.ring();
    }
    // Over a stream the writer waits until its end is read.
    bytes.read(&mut [0]).map(drop)
}

fn read_object(bytes: &mut impl Read, len: u64, cancelled: &AtomicBool) -> io::Result<Vec<u8>> {
    let len = usize::try_from(len).map_err(|_| io::ErrorKind::OutOfMemory)?;
    let mut object = vec![];
    object.try_reserve_exact(len)?;
    while object.len() < len {
        if cancelled.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::Interrupted.into());
        }
        let piece = PIECE_BYTES.min(len - object.len()) as u64;
        if bytes.by_ref().take(piece).read_to_end(&mut object)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
    Ok(object)
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use spindle_core::{Rank, SubgroupId};
    use spindle_transport::{SocketOptions, SocketStream};
    use std::os::unix::net::UnixStream;
    use std::sync::mpsc::RecvTimeoutError;
    use std::time::Duration;

    const PATIENCE: Duration = Duration::from_secs(20);

    fn wanted(numbers: &[u64]) -> Vec<Wanted> {
        numbers.iter().map(|number| Wanted { subgroup: SubgroupId(0), sender: Rank(1), number: *number }).collect()
    }

    /// Returns the way over which a member that keeps these objects of view 1 sends the ones with
    /// these numbers.
    pub(in crate::large) fn sent(object_cache: LargeObjectCache, numbers: &[u64], is_far: bool) -> TransferWay {
        let wanted = wanted(numbers);
        if is_far {
            let sockets: [UnixStream; 2] = UnixStream::pair().unwrap().into();
            let [near, far] =
                sockets.map(|socket| Box::new(SocketStream::new(socket, &SocketOptions::default()).unwrap()));
            thread::spawn(move || send_afar(&object_cache, ViewId(1), &wanted, near));
            return TransferWay::Stream(far);
        }
        let (tell, told) = channel();
        thread::spawn(move || send(&object_cache, ViewId(1), &wanted, |ends| tell.send(ends).unwrap()));
        TransferWay::Pipe(told.recv_timeout(PATIENCE).unwrap())
    }

    fn receive(way: TransferWay, lengths: &[u64]) -> Receiver<Option<Vec<u8>>> {
        receive_apart(way, lengths.to_vec(), Arc::default(), Arc::default()).unwrap()
    }

    #[test]
    fn objects_come_in_the_order_of_the_question_and_what_is_not_kept_is_told() {
        let long = vec![7; 5_000_000];
        for is_far in [false, true] {
            let object_cache = LargeObjectCache::of(&[(2, &long), (3, b""), (5, b"short")]);
            let coming = receive(sent(object_cache, &[5, 4, 2, 3], is_far), &[5, 9, 5_000_000, 0]);
            let next = || coming.recv_timeout(PATIENCE);
            assert_eq!(next(), Ok(Some(b"short".to_vec())));
            assert_eq!(next(), Ok(None));
            assert!(next() == Ok(Some(long.clone())));
            assert_eq!(next(), Ok(Some(vec![])));
            assert_eq!(next(), Err(RecvTimeoutError::Disconnected));
        }
    }

    #[test]
    fn something_else_than_was_asked_for_and_an_early_end_are_the_end() {
        for is_far in [false, true] {
            let object_cache = || LargeObjectCache::of(&[(1, b"right"), (2, b"longer than it says")]);
            let coming = receive(sent(object_cache(), &[1, 2], is_far), &[5, 6]);
            assert_eq!(coming.recv_timeout(PATIENCE), Ok(Some(b"right".to_vec())));
            assert_eq!(coming.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
            let coming = receive(sent(object_cache(), &[1], is_far), &[5, 6]);
            assert_eq!(coming.recv_timeout(PATIENCE), Ok(Some(b"right".to_vec())));
            assert_eq!(coming.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
        }
    }

    #[test]
    fn an_object_without_readers_is_not_read_further() {
        let cancelled = Arc::new(AtomicBool::new(true));
        let way = sent(LargeObjectCache::of(&[(1, b"right")]), &[1], false);
        let coming = receive_apart(way, vec![5], cancelled, Arc::default()).unwrap();
        assert_eq!(coming.recv_timeout(PATIENCE), Err(RecvTimeoutError::Disconnected));
    }
}
