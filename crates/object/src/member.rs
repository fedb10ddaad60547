//! The member's part on the polling thread: applies the messages of the subgroup.
use crate::answer::Answer;
use crate::answering::Answering;
use crate::error::{End, StartError};
use crate::history::{
    Base, Bound, Files, History, HistoryError, Joined, Preloading, Snapshotting, Then, before_epoch, position,
};
use crate::id::CallId;
use crate::machine::{Applied, Checkpoint, Machine, Stopped};
use crate::message::Message;
use crate::shared::Shared;
use crate::state_machine::{StateMachine, command};
use crate::waiting::{Inside, Key};
use spindle::{
    Batch, Durability, Ended, Handler, IncomingQuery, JoinError, LogAccess, LoggedExtent, MemberId, Position,
    ReplayedMessage, SharedPublisher, Snapshot, State, SubgroupId, View, ViewChange,
};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Cursor, Read};
use std::panic::resume_unwind;
use std::sync::{Arc, Weak};

/// The digests that are compared at a time. A digest is compared after the calls that were in the
/// rings before it, which are a multiple of `Settings::calls_kept`.
const CHECKPOINTS_MAX: usize = 1024;

/// The handler of a member.
pub(crate) struct Member<T: StateMachine> {
    pub(crate) shared: Arc<Shared<T>>,
    name: String,
    place: Option<Place>,
    /// Whether the version may have to be raised.
    raise_due: bool,
    /// By the number of commands.
    checkpoints: BTreeMap<u64, Compared>,
    /// The highest number of commands after which most members agreed with this one.
    agreed: u64,
    /// Whether it has the state of another member.
    is_restored: bool,
    /// Whether that state is kept until it is on disk, and as much of it as there is.
    keeps_state: bool,
    joined: Option<Joined>,
    /// The thread that writes snapshots, if it does.
    snapshotting: Option<Snapshotting>,
    /// The thread that answers queries, if the type has some.
    answering: Option<Answering>,
    /// Whether the state can be made from this member's disk, and whether other members have to be told.
    is_stored: bool,
    stored_due: bool,
    /// The members that have said the same of their disks.
    stored: BTreeSet<MemberId>,
}

/// A digest that is compared with those of the other members.
struct Compared {
    mine: u64,
    /// The last command before it.
    command: &'static str,
    id: CallId,
    digests: BTreeMap<MemberId, u64>,
}

/// The member's place in the group.
struct Place {
    me: MemberId,
    subgroup: Option<SubgroupId>,
    /// The members of the subgroup, the oldest first.
    members: Vec<MemberId>,
    /// The disks that a message needs to be durable.
    copies: usize,
    /// The handles keep the publisher, so that the group can finish when they are dropped.
    publisher: Weak<SharedPublisher>,
}

impl<T: StateMachine> Member<T> {
    /// Creates the handler. If it `keeps_state`, the state of another member that it gets becomes its
    /// first snapshot.
    pub(crate) fn new(shared: Arc<Shared<T>>, name: &str, keeps_state: bool) -> Member<T> {
        Member {
            shared,
            name: name.to_owned(),
            place: None,
            raise_due: false,
            checkpoints: BTreeMap::new(),
            agreed: 0,
            is_restored: false,
            keeps_state,
            joined: None,
            snapshotting: None,
            answering: None,
            is_stored: false,
            stored_due: false,
            stored: BTreeSet::new(),
        }
    }

    pub(crate) fn enter(&mut self, me: MemberId, view: &View, publisher: Weak<SharedPublisher>) {
        self.place = Some(Place { me, subgroup: None, members: vec![], copies: 0, publisher });
        self.look_at(view);
    }

    /// Begins to write snapshots of the object, in a member that has joined. `first` is the machine before
    /// the first message, encoded; `preloading` reads the newest snapshot.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn begin_history(
        &mut self,
        access: LogAccess,
        (first, preloading): (Option<Vec<u8>>, Preloading<T>),
        view: &View,
    ) -> Result<(), StartError> {
        let settings = self.shared.read().settings().clone();
        let history = Arc::new(History::new(Files::of(&access), first, settings.clone(), preloading));
        let spec = view.subgroup(&self.name).map(|id| &view.subgroups[id.index()]);
        if self.is_restored {
            history.end_start();
        }
        // The log lacks what the member has got as a state. This thread does not encode it: nothing polls
        // the member meanwhile.
        let base = spec.zip(self.joined.take()).map(|(spec, joined)| {
            let at = (before_epoch(spec.epoch.unwrap_or(view.id)), spec.clock);
            Base { at, joined }
        });
        // The state was made from the log and a snapshot, or the log begins with the first message.
        (self.is_stored, self.stored_due) = (!self.is_restored, !self.is_restored);
        let started = Snapshotting::start(&history, access, base, &settings);
        self.snapshotting = started.map_err(|error| StartError::Join(JoinError::Thread(error)))?;
        let _ = self.shared.history.set(history);
        Ok(())
    }

    /// Begins to answer queries of other members.
    ///
    /// # Errors
    /// No thread can be started.
    pub(crate) fn begin_answers(&mut self) -> Result<(), StartError> {
        let started = Answering::start(&self.shared);
        self.answering = started.map_err(|error| StartError::Join(JoinError::Thread(error)))?;
        Ok(())
    }

    /// Drops what is kept for a first snapshot: the subgroup has no log.
    pub(crate) fn forget_state(&mut self) {
        self.joined = None;
    }

    fn look_at(&mut self, view: &View) {
        let Some(place) = &mut self.place else { return };
        place.subgroup = view.subgroup(&self.name);
        let ranks = place.subgroup.map(|id| view.subgroups[id.index()].members.clone()).unwrap_or_default();
        let members: Vec<MemberId> = ranks.iter().map(|rank| view.members[rank.index()]).collect();
        let durability = place.subgroup.map_or(Durability::InMemory, |id| view.subgroups[id.index()].durability);
        place.copies = durability.copies().unwrap_or(0) as usize;
        // Members that have come know nothing of the disks of the others.
        let has_come = |id: &MemberId| !place.members.contains(id);
        self.stored_due |= self.is_stored && members.iter().any(has_come);
        self.stored.retain(|id| members.contains(id) && !has_come(id));
        place.members = members;
        self.raise_due = true;
        self.let_prune_lost();
    }

    /// Says whether messages may be pruned that were on too few disks when members left: every member has
    /// a state on its disk that contains them, and these are enough.
    fn let_prune_lost(&self) {
        let (Some(place), Some(snapshotting)) = (&self.place, &self.snapshotting) else { return };
        let have_all = !place.members.is_empty() && place.members.iter().all(|id| self.stored.contains(id));
        snapshotting.let_prune_lost(have_all && place.members.len() >= place.copies);
    }

    /// Tells the others that the state can be made from this member's disk, once it can.
    fn tell_stored(&mut self) {
        if !self.is_stored && self.snapshotting.as_ref().is_some_and(Snapshotting::has_base) {
            (self.is_stored, self.stored_due) = (true, true);
        }
        self.stored_due = self.stored_due && !self.send(&Message::Stored);
    }

    /// Applies a message and gives its outcome to the caller. If the machine stops, this member
    /// leaves the group by a panic of its handler, which the other members see as its end.
    fn apply(&mut self, sender: MemberId, payload: &[u8]) {
        let applied = self.shared.write().apply(sender, payload);
        match applied {
            Ok(applied) => {
                self.count(payload, &applied);
                if self.shared.watches.has_some() {
                    self.shared.watches.look(self.shared.read().object());
                }
                self.note(sender, payload, applied);
            }
            Err(stopped) => self.stop(stopped),
        }
    }

    /// Counts a message towards the next snapshot.
    fn count(&mut self, payload: &[u8], applied: &Applied) {
        if let Some(snapshotting) = &mut self.snapshotting {
            snapshotting.note(payload.len(), matches!(applied, Applied::Called { .. }));
        }
    }

    fn look_at_snapshots(&mut self) {
        self.snapshotting.iter_mut().for_each(Snapshotting::look);
    }

    /// Begins with the newest snapshot on disk, if one is valid. Returns the first message of the log that
    /// it does not contain.
    fn begin_with_snapshot(&mut self, log: &LoggedExtent) -> Option<Position> {
        let Some(history) = self.shared.history.get().cloned() else { return log.first };
        let newest = history.newest(Bound::ALL);
        history.end_start();
        let why = match newest {
            Ok(Then { machine, last: Some((last, _)), .. }) => {
                tracing::info!(target: "spindle::object", version = %last, "the object was read from a snapshot");
                *self.shared.write() = machine;
                return Some(position(last.next()));
            }
            Ok(Then { last: None, .. }) => return log.first,
            // The object can't be encoded, so it has no snapshots.
            Err(HistoryError::Pruned { .. }) if log.is_complete => return log.first,
            Err(HistoryError::Pruned { .. }) => Stopped::LogIncomplete { first: log.first },
            Err(HistoryError::Stopped(stopped)) => stopped,
            Err(error) => Stopped::Unreadable { reason: error.to_string() },
        };
        self.stop(why)
    }

    fn stop(&self, stopped: Stopped) -> ! {
        tracing::error!(target: "spindle::object", "this member has stopped: {stopped}");
        self.shared.write().stop(stopped.clone());
        self.shared.end(End::Stopped(stopped.clone()));
        resume_unwind(Box::new(stopped.to_string()))
    }

    fn note(&mut self, sender: MemberId, payload: &[u8], applied: Applied) {
        let is_mine = self.place.as_ref().is_some_and(|place| place.me == sender);
        let passed = Answer::Done(vec![]);
        let waiting = &self.shared.waiting;
        match applied {
            Applied::Called { id, answer, digest } => {
                waiting.resolve(Key::Call(id), &answer);
                digest.into_iter().for_each(|digest| self.checkpoint(id, name_of::<T>(payload), digest));
            }
            Applied::Asked { nonce, answer } if is_mine => waiting.resolve(Key::Ask(nonce), &answer),
            Applied::Ticked { nonce } if is_mine => waiting.resolve(Key::Tick(nonce), &passed),
            Applied::Opened(session) => waiting.resolve(Key::Open(session), &passed),
            Applied::Announced => self.raise_due = true,
            Applied::Raised { version } => {
                tracing::info!(target: "spindle::object", version, "the group is at a version")
            }
            Applied::Digest(digest) => self.compare(sender, digest),
            Applied::Stored => {
                self.stored.insert(sender);
                self.let_prune_lost();
            }
            Applied::Asked { .. } | Applied::Ticked { .. } | Applied::Foreign => {}
        }
    }

    /// Keeps the digest of this member, and sends it to the others.
    fn checkpoint(&mut self, id: CallId, command: &'static str, Checkpoint { commands, digest }: Checkpoint) {
        self.checkpoints.insert(commands, Compared { mine: digest, command, id, digests: BTreeMap::new() });
        if self.checkpoints.len() > CHECKPOINTS_MAX {
            self.checkpoints.pop_first();
        }
        // If the ring is full, the others do without the digest of this member.
        self.send(&Message::Digest { commands, digest });
    }

    /// Stops this member if most members have another digest (INV-OBJECT).
    fn compare(&mut self, sender: MemberId, Checkpoint { commands, digest }: Checkpoint) {
        let members = self.place.as_ref().map_or(0, |place| place.members.len());
        let Some(compared) = self.checkpoints.get_mut(&commands) else { return };
        compared.digests.insert(sender, digest);
        let is_most = compared.digests.values().filter(|other| **other == digest).count() * 2 > members;
        let Compared { mine, command, id, .. } = *compared;
        if digest == mine {
            self.agreed = if is_most { self.agreed.max(commands) } else { self.agreed };
            return;
        }
        tracing::error!(target: "spindle::object", commands, mine, theirs = digest, member = sender.0, "states differ");
        if is_most {
            self.stop(Stopped::Diverged { agreed: self.agreed, commands, command, id, mine, theirs: digest });
        }
    }

    /// Raises the version of the group, if this is its oldest member and all members have announced a
    /// later one.
    fn raise(&mut self) {
        let Some(place) = self.place.as_ref().filter(|_| self.raise_due) else { return };
        let is_oldest = place.members.first() == Some(&place.me);
        let raise = if is_oldest { self.shared.read().raise(place.members.iter().copied()) } else { None };
        self.raise_due = raise.is_some_and(|message| !self.send(&message));
    }

    /// Sends a message if the ring has room.
    fn send(&self, message: &Message<'_>) -> bool {
        let publisher = self.place.as_ref().and_then(|place| place.publisher.upgrade());
        let Some(mut publisher) = publisher.map(|publisher| SharedPublisher::clone(&publisher)) else { return false };
        let bytes = message.encode();
        match publisher.try_claim(bytes.len() as u64) {
            Ok(Some(mut frame)) => {
                frame.copy_from_slice(&bytes);
                frame.commit();
                true
            }
            Ok(None) | Err(_) => false,
        }
    }
}

/// Returns the name of the command that a message calls.
fn name_of<T: StateMachine>(payload: &[u8]) -> &'static str {
    match Message::decode(payload) {
        Some(Message::Call { command: id, .. }) => command::<T>(id).map_or("?", |command| command.name),
        _ => "?",
    }
}

impl<T: StateMachine> Handler for Member<T> {
    fn deliver(&mut self, subgroup: SubgroupId, batch: &mut Batch<'_>) {
        let _inside = Inside::enter();
        let is_mine = self.place.as_ref().is_some_and(|place| place.subgroup == Some(subgroup));
        batch.for_each(|message| {
            if is_mine {
                self.apply(message.sender_id, message.payload);
            }
        });
        self.answering.iter().for_each(Answering::note_moved);
        self.look_at_snapshots();
        self.tell_stored();
        self.raise();
    }

    fn view_changed(&mut self, change: &ViewChange) {
        let _inside = Inside::enter();
        self.look_at(&change.new);
        self.tell_stored();
        self.raise();
    }

    fn query(&mut self, query: IncomingQuery) {
        // Without queries, the member that asks learns that it gets no answer.
        if let Some(answering) = &self.answering {
            answering.take(query);
        }
    }

    fn ended(&mut self, reason: Option<&Ended>) {
        self.shared.end(reason.map_or(End::Left, |reason| End::Ended(reason.clone())));
    }

    fn snapshot(&mut self) -> Option<Snapshot> {
        let _inside = Inside::enter();
        let bytes = self.shared.read().snapshot();
        Some(Snapshot { len: Some(bytes.len() as u64), bytes: Box::new(Cursor::new(bytes)) })
    }

    fn restore(&mut self, state: &mut State) -> io::Result<()> {
        let mut bytes = Vec::new();
        state.read_to_end(&mut bytes)?;
        let mut machine = self.shared.write();
        let restored = Machine::restore(&bytes, machine.settings().clone()).map_err(io::Error::other)?;
        *machine = restored;
        self.is_restored = true;
        self.joined = self.keeps_state.then(|| Joined::new(bytes));
        Ok(())
    }

    fn replays(&self) -> bool {
        true
    }

    fn replay_from(&mut self, subgroup: SubgroupId, log: &LoggedExtent) -> Option<Position> {
        if self.place.as_ref().is_none_or(|place| place.subgroup != Some(subgroup)) {
            return None;
        }
        self.begin_with_snapshot(log)
    }

    fn replay(&mut self, _subgroup: SubgroupId, message: &ReplayedMessage<'_>) {
        let _inside = Inside::enter();
        // No caller waits, and the digests were compared before.
        let applied = self.shared.write().apply(message.sender, message.payload);
        match applied {
            Ok(applied) => self.count(message.payload, &applied),
            Err(stopped) => self.stop(stopped),
        }
    }

    fn learn(&mut self, view: &View, subgroup: SubgroupId, message: &spindle::Message<'_>) {
        let _inside = Inside::enter();
        if view.subgroups[subgroup.index()].name == self.name {
            // The machine keeps the reason for which it stops, and `join` returns it.
            let _ = self.shared.write().apply(message.sender_id, message.payload);
            if self.joined.as_mut().is_some_and(|joined| !joined.learn(message.sender_id, message.payload)) {
                tracing::warn!(target: "spindle::object", "too many messages came while this member joined: it writes no first snapshot");
                self.joined = None;
            }
        }
    }
}

impl<T: StateMachine> Drop for Member<T> {
    fn drop(&mut self) {
        // The thread ends before the node, which owns the files.
        self.snapshotting = None;
        self.answering = None;
        self.shared.end(End::Left);
    }
}
