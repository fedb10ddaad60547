//! `spindle cast`: one file to every receiver of a group; and [`receive`], its counterpart.
//!
//! The cast and its receivers are members of the group. A cast *offers* its file, with the digests
//! of its *pieces*. Each receiver answers which pieces it *has*. The cast sends each piece that a
//! receiver lacks, in order, as large ordered messages. Each receiver reports when it has *kept*
//! the file. Messages and views have one order for all members. So the cast knows the pieces of
//! every receiver without asking again: a piece that is delivered here is delivered to all members
//! of the view.
//!
//! [`wire`] defines their messages, [`part`] the file that a receiver stores on disk, and [`seat`]
//! their membership in the group.
mod digest;
mod part;
mod pieces;
pub(crate) mod receive;
mod seat;
mod wire;

use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::lines;
use crate::log::Verbosity;
use crate::membership::MembershipArgs;
use crate::progress::ProgressLine;
use crate::quantity::{bytes, short};
use crate::settings::Sources;
use crate::signals::Stop;
use crate::views::{list, numbers};
use digest::Digest;
use pieces::{PIECES_MAX, Pieces};
use seat::{CastMember, GroupInput};
use serde_json::json;
use spindle::MemberId;
use spindle::bulk::Object;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fs::{self, File};
use std::io::{self, ErrorKind, Write, stdout};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};
use wire::{CastMessage, Offer, PIECE_BYTES_MAX, PIECE_HEADER_BYTES};

/// How often the cast checks whether it has to stop.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long to wait for room for a piece. No event reports that there is room.
const ROOM_WAIT: Duration = Duration::from_millis(5);
/// Largest number of sent pieces that are not delivered here yet.
const PIECES_AHEAD: u32 = 4;
/// Longest silence while an answer is due, for a file of any size.
const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Lowest rate, in bytes a second, at which a receiver reads to find the pieces that it has.
const READ_BYTES_PER_SECOND: u64 = 20_000_000;

/// Arguments of `spindle cast`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The file
    file: PathBuf,

    /// The group's name; settings may contain it instead
    #[arg(long, value_name = "GROUP")]
    to: Option<String>,

    /// The name of the file at the receivers [default: its own name]
    #[arg(long)]
    name: Option<String>,

    /// How many receivers to wait for before sending
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    at_least: u32,

    /// Bytes of a piece (64k, 4M, up to 256M); a later cast resumes by whole pieces of the same
    /// size
    #[arg(long, value_name = "BYTES", default_value = "4M", value_parser = bytes)]
    piece: u64,

    /// Largest rate in bytes a second [default: no limit]
    #[arg(long, value_name = "BYTES", value_parser = bytes)]
    limit: Option<u64>,

    #[command(flatten)]
    sources: Sources,

    #[command(flatten)]
    membership: MembershipArgs,

    /// Print one JSON object to the standard output at the end.
    ///
    /// "event" ("cast"), "name", "bytes", "sent_bytes" (each piece counted once, for any number of
    /// receivers), "seconds" (from the first offer), "bytes_per_second" (of the sent bytes),
    /// "digest" (XXH3-128), "kept" (ids of the receivers that have it), "failed", a list of {id,
    /// message}. Other events are reported on the standard error: "waiting", "warning", "blocked",
    /// "error".
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// The file, and the known state of every member.
#[derive(Debug)]
struct CastState {
    file: File,
    path: PathBuf,
    offer: Offer,
    /// Number that distinguishes this cast from others.
    cast: u64,
    me: MemberId,
    /// The other members of the view.
    members: BTreeMap<MemberId, ReceiverState>,
    /// Receivers that have the file, including those that have left since.
    kept: BTreeSet<MemberId>,
    /// Receivers that don't have the file, and the reason.
    failed: BTreeMap<MemberId, String>,
    garbage: Garbage,
    /// The number of the last offer that was delivered here. The next field has the pieces
    /// delivered since.
    offered: u32,
    since_offer: Pieces,
    /// Pieces that were sent and are not delivered here.
    on_the_way: Pieces,
    /// The piece at which the search for the next one begins.
    cursor: u32,
    /// The next piece, for which there was no room yet.
    next: Option<(u32, Object)>,
    /// Pieces whose memory is to be used again. There are as many as the library sends at once.
    sent: VecDeque<Object>,
    sent_bytes: u64,
    /// Time at which the first piece could be sent.
    begun: Option<Instant>,
    /// Time of the last message that was received.
    heard: Instant,
    outbox: VecDeque<Vec<u8>>,
}

/// The state of a member in this cast.
#[derive(Debug)]
enum ReceiverState {
    /// The member was offered the file, and has not answered.
    Asked,
    /// A receiver that lacks these pieces.
    Taking(Pieces),
    /// A receiver that has reported the outcome for the file.
    Ended,
    /// The member takes no files.
    Aside,
}

/// Members that sent unreadable messages. Each is reported once.
#[derive(Debug)]
struct Garbage {
    told: BTreeSet<MemberId>,
    json: bool,
}

impl Garbage {
    fn new(json: bool) -> Garbage {
        Garbage { told: BTreeSet::new(), json }
    }

    fn tell(&mut self, from: MemberId, error: &anyhow::Error) {
        if !self.told.insert(from) {
            return;
        }
        let message = format!("a message of member {from} is ignored, and others like it: {error}");
        match self.json {
            true => lines::tell(json!({"event": "warning", "message": message})),
            false => eprintln!("{message}"),
        }
    }
}

/// Prints a line. Errors are ignored, because the transfer of files does not depend on a reader of
/// this output.
fn say(line: &str) {
    let _ = writeln!(stdout().lock(), "{line}");
}

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    args.verbosity.begin(json).and_then(|()| cast(&args)).map_err(|failure| failure.told_as_json(json))
}

fn cast(args: &Args) -> CliResult {
    let (file, offer) = survey(args)?;
    let stop = Stop::on_signals(drop)?;
    let mut settings = args.sources.read()?;
    if let Some(group) = &args.to {
        settings.flag("group.name", group, "--to");
    }
    let mut seat = CastMember::take(settings, "with --to", &args.membership, &stop, args.json)?;
    let mut work = CastState::new(file, args, offer, seat.me)?;
    let outcome = work.run(&mut seat, args, &stop);
    // Every answer that counts has come. It is not an error if the others don't agree that this
    // member leaves.
    let _ = seat.leave();
    outcome?;
    work.report(args.json);
    work.verdict()
}

/// Examines the file before the cast waits for any member.
fn survey(args: &Args) -> CliResult<(File, Offer)> {
    let path = args.file.display();
    let failed = |error: io::Error| CliError::new(FAILED, format_args!("can't read {path}: {error}"));
    let own = args.file.file_name().map(|name| name.to_string_lossy().into_owned());
    let name = args.name.clone().or(own).unwrap_or_default();
    if let Err(error) = wire::check_name(&name) {
        let message =
            format!("{name:?} can't be the name of a file at the receivers: {error}; give it another with --name");
        return Err(CliError::new(USAGE, message));
    }
    if args.limit == Some(0) {
        return Err(CliError::new(
            USAGE,
            "--limit 0: nothing would ever be sent; name the bytes a second, or leave it out",
        ));
    }
    // The check comes before the file is opened, because opening a pipe would wait for its writer.
    if !fs::metadata(&args.file).map_err(failed)?.is_file() {
        return Err(CliError::new(FAILED, format_args!("{path} is no file that could be cast; name a regular file")));
    }
    let file = File::open(&args.file).map_err(failed)?;
    let (bytes, piece_bytes) = (file.metadata().map_err(failed)?.len(), args.piece);
    // Files of /proc have length 0 and content, because the kernel creates the content while they
    // are read.
    if bytes == 0 && file.read_at(&mut [0], 0).map_err(failed)? > 0 {
        let message = format!("{path} has contents and says that it has none; copy it, and cast the copy");
        return Err(CliError::new(FAILED, message));
    }
    if !(1..=PIECE_BYTES_MAX).contains(&piece_bytes) {
        return Err(CliError::new(USAGE, format_args!("--piece {piece_bytes}: from 1 byte to {PIECE_BYTES_MAX}")));
    }
    if bytes.div_ceil(piece_bytes) > PIECES_MAX {
        let message =
            format!("{path} has over {PIECES_MAX} pieces of {piece_bytes} bytes; make them larger with --piece");
        return Err(CliError::new(USAGE, message));
    }
    let (digest, pieces) = Digest::of_pieces(&file, bytes, piece_bytes).map_err(|error| match error.kind() {
        ErrorKind::UnexpectedEof => became_shorter(&args.file),
        _ => failed(error),
    })?;
    Ok((file, Offer { number: 0, name, bytes, piece_bytes, digest, pieces }))
}

fn became_shorter(path: &Path) -> CliError {
    CliError::new(FAILED, format_args!("{} became shorter while it was cast; cast it again", path.display()))
}

impl CastState {
    fn new(file: File, args: &Args, offer: Offer, me: MemberId) -> CliResult<CastState> {
        let mut cast = [0; 8];
        rustix::rand::getrandom(&mut cast, rustix::rand::GetRandomFlags::empty())
            .map_err(|error| CliError::new(FAILED, format_args!("the system has no random numbers: {error}")))?;
        let none = Pieces::none(offer.count());
        let (members, kept, failed, outbox) = Default::default();
        Ok(CastState {
            file,
            path: args.file.clone(),
            offer,
            cast: u64::from_le_bytes(cast),
            me,
            members,
            kept,
            failed,
            garbage: Garbage::new(args.json),
            offered: 0,
            since_offer: none.clone(),
            on_the_way: none,
            cursor: 0,
            next: None,
            sent: VecDeque::new(),
            sent_bytes: 0,
            begun: None,
            heard: Instant::now(),
            outbox,
        })
    }

    /// Runs until every receiver has reported the outcome for the file.
    fn run(&mut self, seat: &mut CastMember, args: &Args, stop: &Stop) -> CliResult {
        let deadline = Instant::now() + seat.gather_timeout;
        let mut progress = ProgressLine::new(&self.offer.name, self.offer.bytes, args.json);
        let mut is_busy = false;
        while !self.is_over() {
            if stop.flag.load(Ordering::Acquire) {
                return Err(self.interrupted(stop.signal()));
            }
            let wait = if is_busy { Duration::ZERO } else { LOOK_EVERY };
            match seat.hear(wait, |from, message| self.hear(from, message))? {
                GroupInput::Nothing => {}
                GroupInput::View(members) => self.see(&members),
                GroupInput::Message(()) => self.heard = Instant::now(),
            }
            self.check_patience()?;
            seat.outbox.append(&mut self.outbox);
            seat.flush()?;
            if self.begun.is_none() {
                self.begin_if_all_are_there(args, deadline, &progress)?;
            }
            is_busy = self.begun.is_some() && self.send_next(seat, args.limit)?;
            progress.show(|| self.held_bytes());
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        let is_open = |standing: &ReceiverState| matches!(standing, ReceiverState::Asked | ReceiverState::Taking(_));
        self.begun.is_some() && !self.members.values().any(is_open)
    }

    fn see(&mut self, members: &[MemberId]) {
        let gone = self.members.extract_if(.., |id, _| !members.contains(id));
        for (id, standing) in gone.collect::<Vec<_>>() {
            if let ReceiverState::Taking(_) = standing {
                self.failed.insert(id, "it went before it had all of it".to_string());
            }
        }
        let known = self.members.len();
        for id in members.iter().filter(|id| **id != self.me) {
            self.members.entry(*id).or_insert(ReceiverState::Asked);
        }
        if self.members.len() > known {
            self.offer.number += 1;
            self.outbox.push_back(CastMessage::Offer(self.offer.clone()).encode(self.cast));
            self.heard = Instant::now();
        }
    }

    fn hear(&mut self, from: MemberId, message: &[u8]) {
        let (cast, message) = match wire::decode(message) {
            Ok(message) => message,
            Err(error) => return self.garbage.tell(from, &error),
        };
        if cast != self.cast {
            if matches!(message, CastMessage::Offer(_)) {
                self.outbox.push_back(CastMessage::Aside.encode(cast));
            }
            return;
        }
        match message {
            CastMessage::Offer(offer) if from == self.me => {
                self.offered = offer.number;
                self.since_offer = Pieces::none(self.offer.count());
            }
            CastMessage::Piece { index, .. } if from == self.me => {
                self.on_the_way.remove(index);
                self.since_offer.insert(index);
                for standing in self.members.values_mut() {
                    if let ReceiverState::Taking(lacks) = standing {
                        lacks.remove(index);
                    }
                }
            }
            // The answer is to an earlier offer. Another answer follows.
            CastMessage::Have { offer, .. } if offer != self.offered => {}
            CastMessage::Have { pieces, .. } if pieces.count() == self.offer.count() => {
                // The receiver answered when it read the offer. Every later piece has been
                // delivered to it, too.
                let lacks = pieces.missing(&self.since_offer);
                self.answered(from, ReceiverState::Taking(lacks));
            }
            CastMessage::Kept(outcome) => {
                self.answered(from, ReceiverState::Ended);
                match outcome {
                    Ok(()) => drop(self.kept.insert(from)),
                    Err(error) => drop(self.failed.insert(from, error)),
                }
            }
            CastMessage::Aside => self.answered(from, ReceiverState::Aside),
            _ => self.garbage.tell(from, &anyhow::anyhow!("it answers what was not asked")),
        }
    }

    fn answered(&mut self, from: MemberId, is: ReceiverState) {
        if let Some(standing) = self.members.get_mut(&from).filter(|standing| !matches!(standing, ReceiverState::Ended))
        {
            *standing = is;
            self.cursor = 0;
        }
    }

    fn begin_if_all_are_there(&mut self, args: &Args, deadline: Instant, progress: &ProgressLine) -> CliResult {
        // Receivers that are done with the file may have left.
        let taking = self.members.iter().filter(|(_, standing)| matches!(standing, ReceiverState::Taking(_)));
        let receivers: BTreeSet<MemberId> = taking.map(|(id, _)| *id).chain(self.kept.iter().copied()).collect();
        let here = receivers.iter().chain(self.failed.keys()).count();
        let is_asked = self.members.values().any(|standing| matches!(standing, ReceiverState::Asked));
        if here >= args.at_least as usize && !is_asked {
            self.begun = Some(Instant::now());
            if !args.json && !receivers.is_empty() {
                let receivers: Vec<MemberId> = receivers.into_iter().collect();
                let (name, bytes) = (&self.offer.name, short(self.offer.bytes as f64));
                let mut line = format!("{name}: {bytes}B to {}", list(&receivers));
                let there = self.held_bytes();
                if there > 0 {
                    line += &format!("; {}B are there already", short(there as f64));
                }
                progress.line(&line);
            }
            return Ok(());
        }
        if here < args.at_least as usize && Instant::now() >= deadline {
            let message = format!(
                "{here} of {} receivers are here after the wait; start `spindle receive` where the file is wanted, or wait longer with \
                 --gather-timeout",
                args.at_least
            );
            return Err(CliError::new(FAILED, message));
        }
        Ok(())
    }

    /// Sends a piece that a receiver lacks, if the limits allow it. Returns true if the next piece
    /// can follow at once.
    fn send_next(&mut self, seat: &mut CastMember, limit: Option<u64>) -> CliResult<bool> {
        if self.on_the_way.len() >= PIECES_AHEAD.min(self.offer.count()) || self.is_over_limit(limit) {
            return Ok(false);
        }
        if self.next.is_none() {
            let Some(index) = self.lowest_lacking() else { return Ok(false) };
            self.next = Some((index, self.read(index)?));
        }
        let Some((index, object)) = &self.next else { return Ok(false) };
        let index = *index;
        let is_sent = seat.try_send(object, ROOM_WAIT)?;
        if is_sent {
            self.sent.extend(self.next.take().map(|(_, object)| object));
            self.on_the_way.insert(index);
            self.sent_bytes += self.offer.len(index);
            self.cursor = index + 1;
        }
        Ok(is_sent)
    }

    /// Returns true if more bytes were sent by now than the limit allows.
    fn is_over_limit(&self, limit: Option<u64>) -> bool {
        let (Some(limit), Some(begun)) = (limit, self.begun) else { return false };
        self.sent_bytes as f64 > limit as f64 * begun.elapsed().as_secs_f64()
    }

    /// Returns the next piece to send: the first one that a receiver lacks from the cursor on, or
    /// else from the beginning.
    fn lowest_lacking(&self) -> Option<u32> {
        let search = |from: u32| {
            let lacking = self.members.values().filter_map(|standing| {
                let ReceiverState::Taking(lacks) = standing else { return None };
                let mut at = lacks.next(from)?;
                while self.on_the_way.contains(at) {
                    at = lacks.next(at + 1)?;
                }
                Some(at)
            });
            lacking.min()
        };
        search(self.cursor).or_else(|| search(0))
    }

    /// Returns memory for a piece. Takes the memory of a piece that the library has released, if
    /// there is one, because fresh memory costs more than the copy into it.
    fn room(&mut self) -> Vec<u8> {
        for _ in 0..self.sent.len() {
            match self.sent.pop_front().map(Object::into_vec) {
                Some(Ok(room)) => return room,
                Some(Err(object)) => self.sent.push_back(object),
                None => {}
            }
        }
        Vec::new()
    }

    fn read(&mut self, index: u32) -> CliResult<Object> {
        let mut message = self.room();
        let (len, path) = (self.offer.len(index), self.path.display());
        wire::prepare_piece(&mut message, self.cast, index, len);
        let data = &mut message[PIECE_HEADER_BYTES..];
        let read = self.file.read_exact_at(data, self.offer.start(index));
        read.map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => became_shorter(&self.path),
            _ => CliError::new(FAILED, format_args!("can't read {path} any more: {error}; cast it again")),
        })?;
        if Digest::of(data) != self.offer.pieces[index as usize] {
            let message = format!("{path} has changed while it was cast; cast it again");
            return Err(CliError::new(FAILED, message));
        }
        Ok(message.into())
    }

    /// Returns the number of bytes that all remaining receivers have.
    fn held_bytes(&self) -> u64 {
        let held = self.members.values().filter_map(|standing| match standing {
            ReceiverState::Taking(lacks) => Some(self.offer.bytes_but(lacks)),
            _ => None,
        });
        held.min().unwrap_or(if self.kept.is_empty() { 0 } else { self.offer.bytes })
    }

    fn check_patience(&self) -> CliResult {
        let patience = ANSWER_WAIT + Duration::from_secs(self.offer.bytes / READ_BYTES_PER_SECOND);
        let due = self.members.iter().filter(|(_, standing)| match standing {
            ReceiverState::Asked => true,
            ReceiverState::Taking(_) => self.begun.is_some(),
            _ => false,
        });
        let due: Vec<MemberId> = due.map(|(id, _)| *id).collect();
        if due.is_empty() || self.heard.elapsed() < patience {
            return Ok(());
        }
        let message = format!(
            "nothing was heard of {} for {patience:?}; see what they do with `spindle status`, end or evict them, and cast it again",
            list(&due)
        );
        Err(CliError::new(FAILED, message))
    }

    fn interrupted(&self, signal: i32) -> CliError {
        let (held, bytes) = (short(self.held_bytes() as f64), short(self.offer.bytes as f64));
        let message = format!("when {held}B of {bytes}B were everywhere; cast it again, which goes on from there");
        CliError::interrupted(signal, message)
    }

    fn report(&self, json: bool) {
        let seconds = self.begun.map_or(0.0, |begun| begun.elapsed().as_secs_f64());
        let (Offer { name, bytes, digest, .. }, sent) = (&self.offer, self.sent_bytes);
        let rate = sent as f64 / seconds.max(1e-9);
        let kept: Vec<MemberId> = self.kept.iter().copied().collect();
        if json {
            let failed = self.failed.iter().map(|(id, message)| json!({"id": id.0, "message": message}));
            let object = json!({
                "event": "cast", "name": name, "bytes": bytes, "sent_bytes": sent, "seconds": seconds, "bytes_per_second": rate,
                "digest": digest.to_string(), "kept": numbers(&kept), "failed": failed.collect::<Vec<_>>(),
            });
            say(&object.to_string());
        } else if !kept.is_empty() {
            let (bytes, sent) = (short(*bytes as f64), short(sent as f64));
            let (all, rate) = (list(&kept), rate / 1e9);
            say(&format!(
                "{name}: {bytes}B at {all} ({sent}B sent in {seconds:.1} s, {rate:.2} GB/s), XXH3-128 {digest}"
            ));
        }
    }

    /// Returns an error unless every receiver has the file.
    fn verdict(&self) -> CliResult {
        if self.failed.is_empty() && !self.kept.is_empty() {
            return Ok(());
        }
        let name = Path::new(&self.offer.name).display();
        let failed: Vec<String> = self.failed.iter().map(|(id, error)| format!("member {id}: {error}")).collect();
        let (kept, all) = (self.kept.len(), self.kept.len() + self.failed.len());
        let message =
            format!("{kept} of {all} receivers have {name}; {}; cast it again when that is mended", failed.join("; "));
        Err(CliError::new(FAILED, message))
    }
}
