//! Records on their way from the log of this member to a process whose log lacks them. They go through
//! a pipe or over a stream, as the application's state does. A thread of its own reads and writes them.
use super::{TARGET, position, version};
use crate::control_plane::ControlPlane;
use crate::transfer::{CarryWriter, PATIENCE, STREAM_WAIT};
use spindle_core::control::{ControlMessage, NoRecords, Purpose, RECORD_STREAMS_MAX, RecordOrder, WantedRecords};
use spindle_fabric::pipe::PipeWriter;
use spindle_log::{Error, Hold, Readers, StreamEnd, StreamWriter, Version};
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use tracing::{debug, info};

/// How often a log that is pruned meanwhile is asked for its oldest record.
const HOLD_ATTEMPTS_MAX: u32 = 8;

/// The log of a subgroup, as far as it is on disk at one moment.
pub(crate) struct RecordSource {
    pub(crate) readers: Readers,
    /// Whether all records below the bound of the request are on disk.
    pub(crate) is_complete: bool,
    /// Whether all its records are known to be the group's: it does not catch up itself.
    pub(crate) is_settled: bool,
    /// Where the log begins if it has no record.
    pub(crate) begins: Version,
}

/// Sends records to processes that ask for them, a few at once.
#[derive(Debug, Default)]
pub(crate) struct RecordServer {
    served: Arc<AtomicUsize>,
}

/// A process that is served.
struct Served(Arc<AtomicUsize>);

impl Drop for Served {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl RecordServer {
    /// Whether it sends records now.
    pub(crate) fn is_busy(&self) -> bool {
        self.served.load(Ordering::Relaxed) > 0
    }

    /// Sends records of `source`, or the reason why there are none.
    pub(crate) fn serve(
        &self,
        order: RecordOrder,
        source: Result<RecordSource, NoRecords>,
        control_plane: &mut ControlPlane,
    ) {
        let RecordOrder { from: to, reply, wanted, .. } = order;
        let has_room = self.served.load(Ordering::Relaxed) < RECORD_STREAMS_MAX;
        let source = match source.and_then(|source| has_room.then_some(source).ok_or(NoRecords::Busy)) {
            Ok(source) => source,
            Err(why) => {
                debug!(target: TARGET, to = to.0, subgroup = wanted.subgroup, reason = %why, "records are refused");
                return control_plane.post(to, ControlMessage::NoRecords { from: control_plane.me, reply, why });
            }
        };
        self.served.fetch_add(1, Ordering::Relaxed);
        let served = Served(Arc::clone(&self.served));
        let thread = thread::Builder::new().name("spindle-records".into());
        // Without a thread the process gets no answer, and asks another member.
        let started = if control_plane.is_far(to) {
            let stream = control_plane.dial_for(to, Purpose::Records { reply });
            thread.spawn(move || {
                let _served = served;
                let Ok(stream) = stream.recv_timeout(STREAM_WAIT) else { return };
                let sent = send(&source, &wanted, CarryWriter::new(stream, PATIENCE));
                tell(&wanted, to.0, sent.and_then(|(writer, sent)| writer.finish().map(|()| sent)));
            })
        } else {
            let notices = Arc::clone(control_plane.notices());
            let message = ControlMessage::Records { from: control_plane.me, reply };
            thread.spawn(move || {
                let _served = served;
                let (writer, ends) = match PipeWriter::create(None, PATIENCE) {
                    Ok(pipe) => pipe,
                    Err(error) => return tell(&wanted, to.0, Err(io::Error::other(error))),
                };
                notices.tell_of_pipe(to, message, ends);
                let sent = send(&source, &wanted, writer);
                tell(&wanted, to.0, sent.map(|(writer, sent)| (writer.finish(), sent).1));
            })
        };
        if let Err(error) = started {
            info!(target: TARGET, to = to.0, reason = %error, "records are not sent");
        }
    }
}

/// Reports the number of records that were sent and the end, or why not all were sent.
fn tell(wanted: &WantedRecords, to: u64, sent: io::Result<(u64, StreamEnd)>) {
    match sent {
        Ok((records, end)) => debug!(target: TARGET, to, subgroup = wanted.subgroup, records, ?end, "records sent"),
        Err(error) => info!(target: TARGET, to, subgroup = wanted.subgroup, reason = %error, "records are not sent"),
    }
}

/// Writes the records that a process wants and that are on disk now, and the end. Returns the transport, the
/// number of records, and the end.
pub(super) fn send<W: Write>(
    source: &RecordSource,
    wanted: &WantedRecords,
    to: W,
) -> io::Result<(W, (u64, StreamEnd))> {
    let mut writer = StreamWriter::new(to);
    let mut records = 0;
    let end = match first(source, wanted).map_err(io::Error::other)? {
        Err(end) => end,
        Ok((from, hold)) => {
            let mut reader = source.readers.reader();
            reader.seek(from);
            // A log may grow faster than its records go out.
            let until = source.readers.durable().filter(|_| !source.is_complete);
            while let Some(record) = reader.next().map_err(io::Error::other)? {
                if !wanted.bound.contains(position(record.version)) {
                    break;
                }
                writer.put(&record)?;
                records += 1;
                hold.iter().for_each(|hold| hold.advance(record.version));
                if until.is_some_and(|until| record.version >= until) {
                    break;
                }
            }
            if source.is_complete { StreamEnd::Complete } else { StreamEnd::NotYet }
        }
    };
    Ok((writer.finish(end)?, (records, end)))
}

/// Returns the version from which records are read, and what keeps them from being pruned; or the end,
/// if none are sent.
pub(super) fn first(
    source: &RecordSource,
    wanted: &WantedRecords,
) -> Result<Result<(Version, Option<Hold>), StreamEnd>, Error> {
    let RecordSource { readers, is_complete, is_settled, begins } = source;
    let after = wanted.after.map(version);
    for _ in 0..HOLD_ATTEMPTS_MAX {
        let oldest = readers.oldest();
        // A log that was never pruned has all messages of the group: requests for those before its first
        // epoch are refused earlier. So a record before its oldest one is not the group's.
        let is_whole = *is_settled && readers.floor().is_none();
        let is_pruned = after.is_some_and(|after| oldest.unwrap_or(*begins) > after) && !is_whole;
        // A log without records may get some below the bound.
        if is_pruned && !wanted.may_skip {
            return Ok(Err(match oldest {
                None if !is_complete => StreamEnd::NotYet,
                oldest => StreamEnd::Pruned { oldest: oldest.unwrap_or(*begins) },
            }));
        }
        let from = after.max(oldest.filter(|_| wanted.may_skip)).unwrap_or(Version::MIN);
        let hold = match readers.hold(from) {
            Ok(hold) => hold,
            Err(Error::Pruned { .. }) if wanted.may_skip => continue,
            Err(Error::Pruned { oldest }) => return Ok(Err(StreamEnd::Pruned { oldest })),
            Err(error) => return Err(error),
        };
        let Some(after) = after.filter(|_| !wanted.may_skip) else {
            return Ok(Ok((if Some(from) == after { from.next() } else { from }, Some(hold))));
        };
        let durable = readers.durable();
        if durable.is_none_or(|durable| durable < after) {
            // The disk of the process that asks was faster, or the group restarted without it.
            return Ok(Err(if *is_complete { StreamEnd::Lacks { last: durable } } else { StreamEnd::NotYet }));
        }
        let mut reader = readers.reader();
        if reader.get(after)?.is_some() {
            return Ok(Ok((after.next(), Some(hold))));
        }
        if !is_settled {
            return Ok(Err(StreamEnd::NotYet));
        }
        return Ok(Err(StreamEnd::Lacks { last: reader.last_before(after)? }));
    }
    Ok(Err(StreamEnd::NotYet))
}
