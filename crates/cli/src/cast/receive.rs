//! `spindle receive`: keeps the files that are cast to a group.
use super::part::{OpenedOffer, PartialFile};
use super::seat::{CastMember, GroupInput};
use super::wire::{self, CastMessage, Offer};
use super::{Garbage, LOOK_EVERY, say};
use crate::exit::{CliError, CliResult, FAILED};
use crate::lines;
use crate::log::Verbosity;
use crate::membership::MembershipArgs;
use crate::progress::ProgressLine;
use crate::quantity::short;
use crate::settings::GroupSelection;
use crate::signals::Stop;
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use serde_json::json;
use spindle::MemberId;
use std::collections::{BTreeMap, VecDeque};
use std::fs::File;
use std::path::PathBuf;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Arguments of `spindle receive`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: GroupSelection,

    /// The directory in which files are kept; it must exist, and no other process may receive into
    /// it
    #[arg(long, value_name = "DIR")]
    into: PathBuf,

    /// Replace existing files that have other contents
    #[arg(long)]
    overwrite: bool,

    /// End after one file
    #[arg(long)]
    once: bool,

    #[command(flatten)]
    membership: MembershipArgs,

    /// Print one JSON object for each file to the standard output, and other events to the standard
    /// error.
    ///
    /// "event" is "ready" (id: this member's; on the standard error), "kept" (name, bytes, seconds,
    /// from: the cast's id, digest), "failed" (name, from, message), "gone" (name, from: the cast
    /// ended before this member had the file; the pieces that it has are kept), or "error"
    /// (message, status; on the standard error).
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// The files of the present casts.
#[derive(Debug)]
struct ReceiveState {
    args: Args,
    /// The transfers by casting member. Each member casts one file at a time.
    transfers: BTreeMap<MemberId, FileTransfer>,
    garbage: Garbage,
    /// The outcome of each file that has ended since the last check.
    ended: VecDeque<Result<(), String>>,
}

#[derive(Debug)]
struct FileTransfer {
    cast: u64,
    offer: Offer,
    begun: Instant,
    state: TransferState,
}

#[derive(Debug)]
enum TransferState {
    Taking(PartialFile, ProgressLine),
    Ended(Result<(), String>),
}

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    args.verbosity.begin(json).and_then(|()| receive(args)).map_err(|failure| failure.told_as_json(json))
}

fn receive(args: Args) -> CliResult {
    let _held = hold(&args)?;
    let stop = Stop::on_signals(drop)?;
    let settings = args.whom.read()?;
    let mut seat = CastMember::take(settings, "behind the command", &args.membership, &stop, args.json)?;
    match args.json {
        true => lines::tell(json!({"event": "ready", "id": seat.me.0})),
        false => eprintln!("member {} receives into {}", seat.me, args.into.display()),
    }
    let (transfers, ended) = Default::default();
    let once = args.once;
    let mut work = ReceiveState { garbage: Garbage::new(args.json), args, transfers, ended };
    let me = seat.me;
    loop {
        let heard = seat.hear(LOOK_EVERY, |from, message| work.hear(me, from, message))?;
        match heard {
            GroupInput::Nothing => {}
            GroupInput::View(members) => work.see(&members),
            GroupInput::Message(answer) => seat.outbox.extend(answer),
        }
        seat.flush()?;
        if let Some(outcome) = work.ended.pop_front()
            && once
        {
            work.see(&[]);
            // The file counts. It is not an error if the others don't agree that this member
            // leaves.
            let _ = seat.leave();
            return outcome.map_err(|error| CliError::new(FAILED, error));
        }
        if stop.flag.load(Ordering::Acquire) {
            work.see(&[]);
            let left = seat.leave();
            return Err(match left.is_ok() {
                true => CliError::stopped(stop.signal(), "and left the group in order"),
                false => CliError::interrupted(stop.signal(), "and left the group"),
            });
        }
    }
}

/// Opens the directory and locks it for this process alone.
fn hold(args: &Args) -> CliResult<File> {
    let name = args.into.display();
    let dir = File::open(&args.into).and_then(|dir| match dir.metadata()?.is_dir() {
        true => Ok(dir),
        false => Err(Errno::NOTDIR.into()),
    });
    let dir = dir.map_err(|error| {
        CliError::new(FAILED, format_args!("can't receive into {name}: {error}; name a directory that is there"))
    })?;
    if flock(&dir, FlockOperation::NonBlockingLockExclusive) == Err(Errno::WOULDBLOCK) {
        let message = format_args!("another process receives into {name}; name another directory").to_string();
        return Err(CliError::new(FAILED, message));
    }
    // Without locks other processes can't be kept out.
    Ok(dir)
}

impl ReceiveState {
    /// Takes a message of `from`, and returns the answer, if there is one.
    fn hear(&mut self, me: MemberId, from: MemberId, message: &[u8]) -> Option<Vec<u8>> {
        if from == me {
            return None;
        }
        match wire::decode(message) {
            Ok((cast, CastMessage::Offer(offer))) => Some(self.offered(from, cast, offer).encode(cast)),
            Ok((cast, CastMessage::Piece { index, data })) => Some(self.take(from, cast, index, data)?.encode(cast)),
            // Only casts need answers.
            Ok(_) => None,
            Err(error) => {
                self.garbage.tell(from, &error);
                None
            }
        }
    }

    fn offered(&mut self, from: MemberId, cast: u64, offer: Offer) -> CastMessage<'static> {
        if let Some(known) = self.transfers.get_mut(&from).filter(|known| known.cast == cast) {
            known.offer.number = offer.number;
            return known.answer();
        }
        // A member that starts another cast has given up its earlier one.
        if let Some(FileTransfer { state: TransferState::Taking(part, _), .. }) = self.transfers.remove(&from) {
            part.park();
        }
        let is_taken =
            |other: &&FileTransfer| other.offer.name == offer.name && matches!(other.state, TransferState::Taking(..));
        let begun = Instant::now();
        let taken = self.transfers.iter().find(|(_, other)| is_taken(other)).map(|(id, _)| *id);
        let opened = match taken {
            Some(other) => {
                Err(format!("member {other} casts a file of this name at the same time; cast it again later"))
            }
            None => {
                PartialFile::open(&self.args.into, &offer, self.args.overwrite).map_err(|error| format!("{error:#}"))
            }
        };
        let state = match opened {
            Ok(OpenedOffer::Same) => TransferState::Ended(Ok(())),
            Ok(OpenedOffer::Part(part)) => {
                TransferState::Taking(part, ProgressLine::new(&offer.name, offer.bytes, self.args.json))
            }
            Err(error) => TransferState::Ended(Err(error)),
        };
        let mut transfer = FileTransfer { cast, offer, begun, state };
        transfer.finish_if_whole();
        self.note(from, &transfer);
        let answer = transfer.answer();
        self.transfers.insert(from, transfer);
        answer
    }

    fn take(&mut self, from: MemberId, cast: u64, index: u32, data: &[u8]) -> Option<CastMessage<'static>> {
        // A member that joined after the offer can't use these pieces. The cast offers the file
        // again.
        let mut transfer = self.transfers.remove(&from)?;
        let TransferState::Taking(part, progress) = &mut transfer.state else {
            self.transfers.insert(from, transfer);
            return None;
        };
        if transfer.cast == cast {
            match part.write(&transfer.offer, index, data) {
                Ok(()) => {
                    let (offer, have) = (&transfer.offer, part.have());
                    progress.show(|| offer.bytes_but(&have.missing(have)));
                }
                Err(error) => transfer.state = TransferState::Ended(Err(format!("{error:#}"))),
            }
            transfer.finish_if_whole();
            self.note(from, &transfer);
        }
        let answer = matches!(transfer.state, TransferState::Ended(_)).then(|| transfer.answer());
        self.transfers.insert(from, transfer);
        answer
    }

    /// Reports the end of a transfer, if it has ended.
    fn note(&mut self, from: MemberId, transfer: &FileTransfer) {
        let FileTransfer { offer, begun, state: TransferState::Ended(outcome), .. } = transfer else { return };
        let Offer { name, bytes, digest, .. } = offer;
        let (seconds, id) = (begun.elapsed().as_secs_f64(), from.0);
        match (outcome, self.args.json) {
            (Ok(()), true) => {
                let object = json!({
                    "event": "kept", "name": name, "bytes": bytes, "seconds": seconds, "from": id,
                    "digest": digest.to_string(),
                });
                say(&object.to_string());
            }
            (Ok(()), false) => {
                let bytes = short(*bytes as f64);
                say(&format!("{name}: {bytes}B from member {id} in {seconds:.1} s, XXH3-128 {digest}"));
            }
            (Err(error), true) => {
                say(&json!({"event": "failed", "name": name, "from": id, "message": error}).to_string());
            }
            (Err(error), false) => eprintln!("{name} from member {id}: {error}"),
        }
        self.ended.push_back(outcome.clone());
    }

    /// Parks the files of casts that have left.
    fn see(&mut self, members: &[MemberId]) {
        let gone = self.transfers.extract_if(.., |from, _| !members.contains(from));
        for (from, FileTransfer { offer, state, .. }) in gone {
            let TransferState::Taking(part, progress) = state else { continue };
            let name = &offer.name;
            if self.args.json {
                say(&json!({"event": "gone", "name": name, "from": from.0}).to_string());
            } else {
                let (have, count) = (part.have().len(), offer.count());
                progress.line(&format!(
                    "{name}: the cast by member {from} ended early; {have} of {count} pieces are here, the next cast of it sends the rest"
                ));
            }
            part.park();
        }
    }
}

impl FileTransfer {
    /// Returns the answer for the cast.
    fn answer(&self) -> CastMessage<'static> {
        match &self.state {
            TransferState::Taking(part, _) => {
                CastMessage::Have { offer: self.offer.number, pieces: part.have().clone() }
            }
            TransferState::Ended(outcome) => CastMessage::Kept(outcome.clone()),
        }
    }

    fn finish_if_whole(&mut self) {
        if !matches!(&self.state, TransferState::Taking(part, _) if part.have().is_all()) {
            return;
        }
        // This is a placeholder state that no other code reads.
        if let TransferState::Taking(part, progress) = std::mem::replace(&mut self.state, TransferState::Ended(Ok(())))
        {
            drop(progress);
            self.state = TransferState::Ended(part.finish(&self.offer).map_err(|error| format!("{error:#}")));
        }
    }
}
