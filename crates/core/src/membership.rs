//! The agreement that ends a view: who goes on, and with which messages (docs/protocol/views.md).
//!
//! One member's side of it, over the membership blocks of all rows. [`Membership::watch`] runs while the view works and says
//! when it has to end; [`Membership::agree`] runs from the wedge to the decision. Nothing is remembered about roles: who leads
//! is computed from the rows each time, so no death leaves a role unfilled.
//!
//! Invariants kept here: INV-FENCE (nobody leads over a member that still listens to a lower rank), INV-ADOPT (a leader takes the
//! newest proposal that a quorum knows), INV-QUORUM, INV-TRIM (a trim is what every member that goes on has).
use crate::cursor::ROUNDS_MAX;
use crate::fault::Fault;
use crate::ids::{MemberId, Rank, SubgroupId, Time};
use crate::layout::{Layout, Place, membership};
use crate::limits;
use crate::planted::planted;
use crate::proposal::{self, Trims, Wishes};
use crate::table::{Rows, Table};
use crate::view::{Change, View};
use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::ops::Range;

/// The number of a proposal. Ordered by the leader's rank first: leadership only moves up in rank within a view, and what a
/// former leader left behind must never outrank a decision that was made after its fence.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Ballot {
    /// Whose proposal it is.
    pub leader: Rank,
    /// Its how-manieth, from 1.
    pub round: u32,
}

/// What a view change decided.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub struct Decision {
    /// Under which number.
    pub ballot: Ballot,
    /// The view that follows.
    pub next: View,
    /// What is still delivered in the old one.
    pub trims: Trims,
}

/// A set of ranks, as the words that stand in a row.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Ranks {
    words: Box<[u64]>,
}

/// How many a member has with it, of those that may live: it and whom it does not suspect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Standing {
    /// More than half.
    Majority,
    /// As many as it suspects.
    Half,
    /// Fewer: it can go on with nobody, unless others stop. It is more likely that it was alone than that all they were.
    Outvoted,
}

/// What decides whether a leader has a quorum: whom it suspects, and what it knows of them.
#[derive(Clone, Copy)]
struct Stand<'a> {
    leader: Rank,
    suspected: &'a Ranks,
    dead: &'a Ranks,
    gone: &'a Ranks,
}

/// What to do about somebody who suspects me.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Verdict {
    GiveUp,
    /// It is the other that has to go.
    Suspect,
    GoOn,
}

/// How often a member shows that it lives, in parts of the silence after which it is suspected.
const BEATS: u64 = 32;

/// What I have heard of one member.
#[derive(Clone, Copy, Hash, Debug, Default)]
struct Pulse {
    heartbeat: u64,
    /// How long it has been the same, in ns, as far as I looked.
    silent_ns: u64,
}

/// One member's part in the end of its view.
#[derive(Clone, Hash, Debug)]
pub(crate) struct Membership {
    me: Rank,
    everyone: Vec<Rank>,
    /// The others.
    peers: Vec<Rank>,
    /// As they stand in my row.
    suspected: Ranks,
    /// Proven dead, so that their rows are final.
    dead: Ranks,
    /// They do nothing any more, but what they did can't be read.
    gone: Ranks,
    /// Something is to be done about the membership: the view has to end.
    closing: bool,
    wedged: bool,
    leaving: bool,
    /// What I want of the next view.
    wishes: Wishes,
    ballot: Option<Ballot>,
    /// The words of the proposal that I adopted.
    value: Vec<u64>,
    /// Whether I made it myself, and whom it leaves out then.
    made: Option<Ranks>,
    /// Into which slot of my row the next proposal goes.
    slot: u64,
    decision: Option<Decision>,
    evicted: bool,
    blocked: bool,
    suspect_after_ns: Option<u64>,
    heartbeat: u64,
    pulses: Vec<Pulse>,
    /// When I looked at the others' heartbeats last.
    looked: Option<Time>,
    /// How long after it I look again, in ns.
    wait_ns: u64,
}

impl Ballot {
    /// As a word of a row: ballots that follow each other ascend, whatever their slots.
    fn encode(self, slot: u64) -> u64 {
        if planted!(RoundsBeforeRanks) {
            return u64::from(self.round) << 33 | u64::from(self.leader.0) << 1 | slot;
        }
        u64::from(self.leader.0) << 33 | u64::from(self.round) << 1 | slot
    }

    /// What a peer wrote: the ballot and its slot; `None` for nothing.
    fn decode(word: u64) -> Option<(Ballot, u64)> {
        let (high, low) = ((word >> 33) as u32, (word >> 1) as u32);
        let (leader, round) = if planted!(RoundsBeforeRanks) { (low, high & 0x7fff_ffff) } else { (high, low) };
        (word != 0).then_some((Ballot { leader: Rank(leader), round }, word & 1))
    }

    /// For comparing.
    fn order(self) -> u64 {
        self.encode(0)
    }
}

impl Ranks {
    pub(crate) fn none(members: usize) -> Ranks {
        Ranks { words: alloc::vec![0; members.div_ceil(64)].into() }
    }

    /// What stands from `at` on in the row of `member`, in a view of so many.
    fn read<R: Rows>(member: Rank, at: u64, members: usize, table: &R) -> Ranks {
        let ats = (at..).step_by(8).take(members.div_ceil(64));
        Ranks { words: ats.map(|at| table.load(member, at)).collect() }
    }

    pub(crate) fn has(&self, rank: Rank) -> bool {
        self.words[rank.index() / 64] >> (rank.0 % 64) & 1 == 1
    }

    /// Whether it is new.
    fn add(&mut self, rank: Rank) -> bool {
        let new = !self.has(rank);
        self.words[rank.index() / 64] |= 1 << (rank.0 % 64);
        new
    }

    fn remove(&mut self, rank: Rank) {
        self.words[rank.index() / 64] &= !(1 << (rank.0 % 64));
    }

    fn add_all(&mut self, others: &Ranks) {
        self.words.iter_mut().zip(&others.words).for_each(|(mine, theirs)| *mine |= theirs);
    }

    fn count(&self) -> usize {
        self.words.iter().map(|word| word.count_ones() as usize).sum()
    }
}

/// Who is silent, at one look.
#[derive(Default)]
struct Silence {
    /// Peers that are listened to.
    listened: u32,
    /// Of those, who has been silent for half the time of suspicion, or longer.
    silent: u32,
    /// And of those, who has not been for all of it.
    undecided: u32,
    longest_ns: u64,
}

impl Silence {
    fn count(&mut self, ns: u64, suspect_after_ns: u64) {
        self.silent += u32::from(ns >= suspect_after_ns / 2);
        self.undecided += u32::from((suspect_after_ns / 2..suspect_after_ns).contains(&ns));
        self.longest_ns = self.longest_ns.max(ns);
    }

    /// Whether it may be I who is cut off, or deaf, which shows soon: most are silent, and those for whom it is not long enough will be, or
    /// speak. If I suspected one after the other, those who hear me would believe the first few accusations, before they see that they
    /// are against everybody.
    fn is_mine_perhaps(&self, suspect_after_ns: u64) -> bool {
        2 * self.silent > self.listened && self.undecided > 0 && self.longest_ns < suspect_after_ns / 2 * 3
    }
}

impl Membership {
    pub(crate) fn new(view: &View, me: Rank) -> Membership {
        let members = view.members.len();
        Membership {
            me,
            everyone: view.ranks().collect(),
            peers: view.ranks().filter(|rank| *rank != me).collect(),
            suspected: Ranks::none(members),
            dead: Ranks::none(members),
            gone: Ranks::none(members),
            closing: false,
            wedged: false,
            leaving: false,
            wishes: Wishes::default(),
            ballot: None,
            value: Vec::new(),
            made: None,
            slot: 0,
            decision: None,
            evicted: false,
            blocked: false,
            suspect_after_ns: None,
            heartbeat: 0,
            pulses: alloc::vec![Pulse::default(); members],
            looked: None,
            wait_ns: 0,
        }
    }

    pub(crate) fn set_suspect_after(&mut self, ns: Option<u64>) {
        self.suspect_after_ns = ns;
    }

    pub(crate) fn suspect_after(&self) -> Option<u64> {
        self.suspect_after_ns
    }

    /// I suspect `member`: it has to go. Whether that is new.
    pub(crate) fn suspect(&mut self, member: Rank) -> bool {
        let new = member != self.me && self.suspected.add(member);
        self.closing |= new;
        new
    }

    /// `member` is dead beyond doubt, and its row final.
    pub(crate) fn died(&mut self, member: Rank) {
        self.dead.add(member);
        self.gone.remove(member);
        self.suspect(member);
    }

    /// `member` does nothing any more, and its row is unknown.
    pub(crate) fn is_gone(&mut self, member: Rank) {
        if !self.dead.has(member) {
            self.gone.add(member);
            self.suspect(member);
        }
    }

    /// Blocked, and all others are gone: nobody can ever tell me how the view went on.
    pub(crate) fn is_stranded(&self) -> bool {
        self.blocked && self.unsuspected().count() + self.dead.count() + self.gone.count() == self.everyone.len()
    }

    /// Blocked, and one of those whom I lead would not be without me: it has heard the last words of more. Those before it would give up as I do.
    pub(crate) fn is_outdone<R: Rows>(&self, rows: &R) -> bool {
        let members = self.everyone.len();
        let led: Vec<Rank> = self.unsuspected().filter(|rank| *rank != self.me).collect();
        let could_go_on = |(before, next): (usize, &Rank)| {
            let stopped = Ranks::read(*next, membership::stopped(members), members, rows);
            let (heard, unheard): (Vec<Rank>, Vec<Rank>) =
                self.everyone.iter().filter(|rank| self.suspected.has(**rank)).partition(|rank| stopped.has(**rank));
            let has_rival = unheard.iter().any(|rank| rank > next);
            !has_rival && 2 * (led.len() - before) > members - heard.len() - 1 - before
        };
        self.blocked && led.iter().enumerate().any(could_go_on)
    }

    pub(crate) fn admit(&mut self, view: &View, joiner: MemberId) -> bool {
        let known = view.members.contains(&joiner) || self.wishes.joins.contains(&joiner);
        // In a full view its wish would be carried from view to view, each of which ends for it.
        let full = view.members.len() == limits::MEMBERS_MAX || self.wishes.joins.len() == limits::JOINS_MAX;
        if known || full {
            return false;
        }
        self.wishes.joins.push(joiner);
        self.closing = true;
        true
    }

    pub(crate) fn wish(&mut self, view: &View, change: Change) -> bool {
        // One that fits no proposal would be wished for without end.
        let alone = Wishes { changes: alloc::vec![change.clone()], ..Wishes::default() };
        let has_room = self.wishes.changes.len() < limits::CHANGES_MAX;
        let fits = has_room && alone.encode().len() <= limits::PROPOSAL_WORDS_SPARE;
        let wanted = fits && view.wants(&change) && !self.wishes.changes.contains(&change);
        if wanted {
            self.wishes.changes.push(change);
            self.closing = true;
        }
        wanted
    }

    pub(crate) fn take_wishes(&mut self) -> Wishes {
        core::mem::take(&mut self.wishes)
    }

    pub(crate) fn leave(&mut self) {
        (self.leaving, self.closing) = (true, true);
    }

    pub(crate) fn is_wedged(&self) -> bool {
        self.wedged
    }

    pub(crate) fn is_blocked(&self) -> bool {
        self.blocked
    }

    pub(crate) fn is_evicted(&self) -> bool {
        self.evicted
    }

    pub(crate) fn is_suspected(&self, member: Rank) -> bool {
        self.suspected.has(member)
    }

    pub(crate) fn decision(&self) -> Option<&Decision> {
        self.decision.as_ref()
    }

    pub(crate) fn ballot(&self) -> Option<Ballot> {
        self.ballot
    }

    /// The lowest rank that I don't suspect.
    pub(crate) fn leader(&self) -> Rank {
        self.unsuspected().next().unwrap_or(self.me)
    }

    fn unsuspected(&self) -> impl Iterator<Item = Rank> {
        self.everyone.iter().copied().filter(|rank| !self.suspected.has(*rank))
    }

    /// Shows that I live, and looks who else does. When to come again.
    #[inline]
    pub(crate) fn beat<T: Table>(&mut self, now: Time, table: &mut T) -> Option<Time> {
        let suspect_after_ns = self.suspect_after_ns?;
        self.beat_every(suspect_after_ns, now, table)
    }

    pub(crate) fn next_heartbeat(&mut self) -> u64 {
        self.heartbeat += 1;
        self.heartbeat
    }

    fn beat_every<T: Table>(&mut self, suspect_after_ns: u64, now: Time, table: &mut T) -> Option<Time> {
        if self.peers.is_empty() {
            return None;
        }
        let (step_ns, wait_ns) = (suspect_after_ns / BEATS, self.wait_ns);
        let looked = *self.looked.get_or_insert(now);
        // A clock that went back starts again.
        let passed_ns = now.0.saturating_sub(looked.0);
        if passed_ns < wait_ns && now >= looked && self.heartbeat > 0 {
            return Some(Time(looked.0 + wait_ns));
        }
        self.looked = Some(now);
        let heartbeat = self.next_heartbeat();
        table.store(membership::HEARTBEAT, heartbeat);
        table.post_quietly(&self.peers, membership::HEARTBEAT..membership::HEARTBEAT + 8);
        // If I stood still, or my clock jumped, the others' silence is no longer than what I can vouch for.
        let silent_ns = passed_ns.min(2 * step_ns);
        let (mut is_lost, mut silence) = (false, Silence::default());
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.suspected.has(peer) {
                continue;
            }
            let heartbeat = table.load(peer, membership::HEARTBEAT);
            let pulse = &mut self.pulses[peer.index()];
            silence.listened += 1;
            if heartbeat != pulse.heartbeat {
                *pulse = Pulse { heartbeat, silent_ns: 0 };
                continue;
            }
            pulse.silent_ns += silent_ns;
            silence.count(pulse.silent_ns, suspect_after_ns);
            is_lost |= pulse.silent_ns >= suspect_after_ns && table.load(peer, membership::LEFT) == 0;
        }
        if is_lost && !silence.is_mine_perhaps(suspect_after_ns) {
            // Who fell silent together goes together: if it is I who was cut off, the others see at once that it is from all.
            self.suspect_silent(suspect_after_ns - 2 * step_ns, table);
        }
        // Who is overdue is looked at more often: its end decides when the others go on.
        let overdue = self.pulses.iter().any(|pulse| pulse.silent_ns > 3 * step_ns);
        self.wait_ns = if overdue { step_ns / 8 } else { step_ns };
        Some(Time(now.0 + self.wait_ns))
    }

    /// Suspects all who have been silent for so long.
    #[cold]
    fn suspect_silent<T: Table>(&mut self, ns: u64, table: &T) {
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.pulses[peer.index()].silent_ns >= ns && table.load(peer, membership::LEFT) == 0 {
                self.suspect(peer);
            }
        }
    }

    /// Whether this view has to end: for a reason of mine, or of anybody whom I listen to.
    #[inline]
    pub(crate) fn watch<T: Table>(&mut self, table: &T) -> bool {
        let mut gone = false;
        for peer in &self.peers {
            // One line of the peer's row.
            gone |= table.load(*peer, membership::ABANDONED) != 0;
            self.closing |= table.load(*peer, membership::CLOSING) != 0;
        }
        if gone {
            self.see_the_gone(table);
        }
        self.closing
    }

    /// Who left, or gave up, has written the last word of its row: as good as dead.
    #[cold]
    fn see_the_gone<T: Table>(&mut self, table: &T) {
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            let gone = |word| table.load(peer, word) != 0;
            if !self.dead.has(peer) && (gone(membership::LEFT) || gone(membership::ABANDONED)) {
                self.died(peer);
            }
        }
    }

    /// The engine has stopped announcing and receiving, and its cuts stand in my row and are posted.
    pub(crate) fn wedge<T: Table>(&mut self, layout: &Layout, table: &mut T) {
        (self.wedged, self.closing) = (true, true);
        self.store_wishes(layout, table);
        if self.leaving {
            table.store(membership::LEAVING, 1);
        }
        self.store_suspected(table);
        table.store(membership::CLOSING, 1);
        table.store(membership::WEDGED, 1);
        table.post(&self.peers, membership::CLOSING..membership::LEAVING + 8);
    }

    /// Writes down what fits of my wishes. The rest is for the view after the next.
    fn store_wishes<T: Table>(&self, layout: &Layout, table: &mut T) {
        let range = &layout.row(self.me).wishes;
        let mut wishes = self.wishes.clone();
        while wishes != Wishes::default() {
            let words = wishes.encode();
            if words.len() as u64 * 8 <= range.end - range.start {
                return self.write(range.start, &words, table);
            }
            if wishes.joins.len() > 1 {
                wishes.joins.truncate(wishes.joins.len() / 2);
            } else if wishes.changes.pop().is_none() {
                return;
            }
        }
    }

    /// Whom I suspect, and who of them has stopped: that first, so that nobody sees me worse off than I am.
    fn store_suspected<T: Table>(&self, table: &mut T) {
        let stopped = membership::stopped(self.everyone.len());
        (stopped..).step_by(8).zip(self.stopped()).for_each(|(at, word)| table.store(at, word));
        let words = &self.suspected.words;
        (membership::SUSPECTED..).step_by(8).zip(words).for_each(|(at, word)| table.store(at, *word));
        table.post(&self.peers, membership::SUSPECTED..stopped + 8 * words.len() as u64);
    }

    /// Of whom I know that they do nothing any more, as words of a row.
    fn stopped(&self) -> impl Iterator<Item = u64> {
        self.dead.words.iter().zip(&self.gone.words).map(|(dead, gone)| dead | gone)
    }

    /// Whether `member` does nothing any more, as far as I know.
    fn has_stopped(&self, member: Rank) -> bool {
        self.dead.has(member) || self.gone.has(member)
    }

    /// Stores `words` from `at` on in my row, and posts them.
    fn write<T: Table>(&self, at: u64, words: &[u64], table: &mut T) {
        for (at, word) in (at..).step_by(8).zip(words) {
            table.store(at, *word);
        }
        table.post(&self.peers, at..at + 8 * words.len() as u64);
    }

    /// One step of the agreement. Whether anything changed.
    ///
    /// # Errors
    /// If what was decided can't be read: nobody knows then how to go on.
    pub(crate) fn agree<T: Table>(&mut self, view: &View, layout: &Layout, table: &mut T) -> Result<bool, Fault> {
        if self.decision.is_some() || self.evicted {
            return Ok(false);
        }
        let spread = self.spread(table);
        if self.learn(view, layout, table)? {
            return Ok(true);
        }
        if self.evicted {
            return Ok(true);
        }
        let leader = self.leader();
        let moved =
            if leader == self.me { self.lead(view, layout, table) } else { self.follow(leader, view, layout, table) };
        Ok(spread | moved)
    }

    /// Takes over the suspicions of all whom I listen to, until there is nothing new, and notices if one of them is against me.
    fn spread<T: Table>(&mut self, table: &mut T) -> bool {
        let before = self.suspected.count();
        self.see_the_gone(table);
        let members = self.everyone.len();
        let told = self.hearsay(table);
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            // Once, since more may arrive between two looks.
            let theirs = Ranks::read(peer, membership::SUSPECTED, members, table);
            let stopped = Ranks::read(peer, membership::stopped(members), members, table);
            let is_outvoted = self.standing_of(&theirs, &stopped) == Standing::Outvoted && !planted!(OutvotedBelieved);
            let standing = self.standing(&told);
            let am_outvoted = standing == Standing::Outvoted;
            if theirs.has(self.me) && !self.dead.has(peer) {
                match self.judge(peer, is_outvoted, standing, table) {
                    Verdict::GiveUp => self.evicted = !planted!(EvictedGoesOn),
                    Verdict::Suspect => _ = self.suspect(peer),
                    Verdict::GoOn => {}
                }
            }
            let is_heard = !self.suspected.has(peer) || planted!(ReadsSuspected);
            if !is_heard || is_outvoted && !am_outvoted || planted!(SuspicionKept) {
                continue;
            }
            for j in 0..self.everyone.len() {
                let rank = self.everyone[j];
                if rank != self.me && theirs.has(rank) {
                    self.suspected.add(rank);
                }
            }
        }
        let changed = self.suspected.count() > before;
        if changed || before > 0 && !self.stored(table) {
            self.store_suspected(table);
        }
        changed
    }

    /// Who has stopped, as those tell whom I trust.
    fn hearsay<T: Table>(&self, table: &T) -> Ranks {
        let members = self.everyone.len();
        let mut told = Ranks::none(members);
        for peer in self.peers.iter().filter(|peer| !self.suspected.has(**peer)) {
            told.add_all(&Ranks::read(*peer, membership::stopped(members), members, table));
        }
        told
    }

    /// How I stand. Whom others have `told` to have stopped counts as if I knew it: one of them may lead me that does.
    fn standing(&self, told: &Ranks) -> Standing {
        let has_stopped = |rank| self.has_stopped(rank) || (told.has(rank) && self.suspected.has(rank));
        self.standing_among(&self.suspected, |rank| !has_stopped(rank))
    }

    /// How another stands that suspects these, and knows of those who have `stopped`. It is what it knows itself that says whether it can go
    /// on: the last words of the dead may have come to it and not to me, or the other way round. But nobody has stopped whom I still trust.
    fn standing_of(&self, suspects: &Ranks, stopped: &Ranks) -> Standing {
        self.standing_among(suspects, |rank| !(stopped.has(rank) && self.suspected.has(rank)))
    }

    fn standing_among(&self, suspects: &Ranks, may_live: impl Fn(Rank) -> bool) -> Standing {
        let (mut with_it, mut lost) = (0, 0);
        for rank in self.everyone.iter().copied().filter(|rank| may_live(*rank)) {
            *(if suspects.has(rank) { &mut lost } else { &mut with_it }) += 1;
        }
        match lost.cmp(&with_it) {
            Ordering::Less => Standing::Majority,
            Ordering::Equal => Standing::Half,
            Ordering::Greater => Standing::Outvoted,
        }
    }

    /// What I, who stand so, do about a live member that suspects me.
    fn judge<T: Table>(&self, peer: Rank, is_outvoted: bool, standing: Standing, table: &T) -> Verdict {
        let am_outvoted = standing == Standing::Outvoted;
        let is_lower = peer < self.me;
        if self.suspected.has(peer) && !planted!(ReadsSuspected) {
            // Two that suspect each other would wait for each other for ever. One gives up, unless others can settle it.
            let can_wait = standing == Standing::Majority || (is_outvoted && !am_outvoted);
            // It is the higher rank; but what has followed a leader behind the lower one would take that along.
            let has_followed = |ballot: Option<Ballot>, behind| ballot.is_some_and(|ballot| ballot.leader > behind);
            let gives_way = match is_lower {
                true => !has_followed(self.ballot, peer),
                false => has_followed(ballot_in(table, peer, membership::BALLOT), self.me),
            };
            return if gives_way && !can_wait { Verdict::GiveUp } else { Verdict::GoOn };
        }
        match (am_outvoted, is_outvoted) {
            (false, false) => Verdict::GiveUp,
            (false, true) => Verdict::Suspect,
            _ if is_lower => Verdict::GiveUp,
            (true, true) => Verdict::Suspect,
            // They will tell me how they went on.
            (true, false) => Verdict::GoOn,
        }
    }

    /// Whether my row holds all my suspicions, and what I know of those who have stopped.
    fn stored<T: Table>(&self, table: &T) -> bool {
        let words = self.suspected.words.iter().copied().chain(self.stopped());
        (membership::SUSPECTED..).step_by(8).zip(words).all(|(at, word)| table.load(self.me, at) == word)
    }

    /// Those whose rows I may read: who is unsuspected, and who is dead beyond doubt.
    fn readable(&self) -> impl Iterator<Item = Rank> {
        let reads = |rank: &Rank| !self.suspected.has(*rank) || (self.dead.has(*rank) && !planted!(DeadRowsUnread));
        self.everyone.iter().copied().filter(reads)
    }

    /// Looks whether somebody knows the decision. A decision is one whoever tells it: who is suspected may have made it with all that
    /// it needed, and never hear of the suspicion.
    fn learn<T: Table>(&mut self, view: &View, layout: &Layout, table: &mut T) -> Result<bool, Fault> {
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.dead.has(peer) && planted!(DeadRowsUnread) {
                continue;
            }
            match self.learn_from(peer, view, layout, table) {
                Ok(true) => return Ok(true),
                Err(fault) if !self.suspected.has(peer) || self.dead.has(peer) => return Err(fault),
                Ok(false) | Err(_) => {}
            }
        }
        Ok(false)
    }

    fn learn_from<T: Table>(
        &mut self,
        knows: Rank,
        view: &View,
        layout: &Layout,
        table: &mut T,
    ) -> Result<bool, Fault> {
        let Some(ballot) = ballot_in(table, knows, membership::COMMITTED) else { return Ok(false) };
        let words = match self.ballot {
            Some(mine) if mine == ballot => self.value.clone(),
            _ => match read_proposal(knows, layout, table) {
                Some((found, words)) if found == ballot => words,
                // It can't change any more: it only has to arrive.
                _ => return Ok(false),
            },
        };
        let (next, trims) = proposal::decode(&words, view).ok_or(Fault::Proposal { member: knows })?;
        // A newer one that I hold has the same value, and a ballot never falls.
        if self.ballot.is_none_or(|mine| mine.order() < ballot.order()) {
            self.adopt(ballot, &words, layout, table);
        }
        self.decide(Decision { ballot, next, trims }, table);
        self.evicted |= self.is_left_behind(view, layout, table) && !planted!(EvictedGoesOn);
        Ok(true)
    }

    /// Whether what is decided is not for me: it leaves me out against my will, or its trims are not what I have. The suspicion
    /// that is behind it may have come after I last looked.
    fn is_left_behind<T: Table>(&self, view: &View, layout: &Layout, table: &T) -> bool {
        let Some(Decision { next, trims, .. }) = &self.decision else { return false };
        let lacks = |id: u32, trims: &[u64]| {
            let place = layout.row(self.me).place(SubgroupId(id));
            let cuts = |place: Place| (place.cut..).step_by(8).zip(trims);
            place.is_some_and(|place| cuts(place).any(|(at, trim)| table.load(self.me, at) < *trim))
        };
        let is_out = next.rank_of(view.members[self.me.index()]).is_none() && !self.leaving;
        is_out || (0..).zip(trims).any(|(id, trims)| lacks(id, trims))
    }

    /// As a follower: acknowledges the newest proposal of my leader.
    fn follow<T: Table>(&mut self, leader: Rank, view: &View, layout: &Layout, table: &mut T) -> bool {
        // What it only acknowledged, as a follower of another, is not its own.
        let is_new =
            |ballot: Ballot| ballot.leader == leader && self.ballot.is_none_or(|mine| mine.order() < ballot.order());
        if !ballot_in(table, leader, membership::BALLOT).is_some_and(is_new) {
            return false;
        }
        let Some((ballot, words)) = read_proposal(leader, layout, table) else { return false };
        if !is_new(ballot) {
            return false;
        }
        if proposal::decode(&words, view).is_none() {
            self.suspect(leader);
            return true;
        }
        self.made = None;
        self.adopt(ballot, &words, layout, table);
        true
    }

    fn lead<T: Table>(&mut self, view: &View, layout: &Layout, table: &mut T) -> bool {
        let others: Vec<Rank> = self.unsuspected().filter(|rank| *rank != self.me).collect();
        // INV-FENCE: nobody whom I lead reads, or acknowledges, a former leader any more.
        let behind_fence = |rank: &Rank| {
            (0..self.me.0).map(Rank).all(|lower| bit(table, *rank, membership::SUSPECTED, lower)) || planted!(NoFence)
        };
        let is_wedged = |rank: &Rank| table.load(*rank, membership::WEDGED) != 0;
        if !others.iter().all(|rank| behind_fence(rank) && is_wedged(rank)) {
            return false;
        }
        let followed = |rank: Rank| ballot_in(table, rank, membership::BALLOT).map(|ballot| ballot.leader);
        if self.readable().any(|rank| self.dead.has(rank) && followed(rank) > Some(self.me)) {
            // What leaves me out may be decided, and nobody is left to tell.
            self.evicted = true;
            return true;
        }
        self.blocked = !self.is_quorum(&self.stand(), table);
        if self.blocked {
            return false;
        }
        let mine = self.ballot.filter(|ballot| ballot.leader == self.me);
        let current = self.made.as_ref().is_none_or(|without| *without == self.suspected);
        let Some(ballot) = mine.filter(|_| current) else { return self.propose(view, layout, table) };
        let has_acknowledged = |rank: &Rank| ballot_in(table, *rank, membership::BALLOT) == Some(ballot);
        let decided = others.iter().all(has_acknowledged) || planted!(DecidesAlone);
        if decided {
            let words = core::mem::take(&mut self.value);
            let decoded = proposal::decode(&words, view);
            let (next, trims) = decoded.expect("I have made it, or checked it when I adopted it");
            self.decide(Decision { ballot, next, trims }, table);
            self.evicted |= self.is_left_behind(view, layout, table) && !planted!(EvictedGoesOn);
        }
        decided
    }

    /// INV-QUORUM: members that go on, against all but those that are dead beyond doubt and have been heard to the end. The dead
    /// who had turned away from me may have helped a leader behind me over its fence, so they are no help to me as long as that
    /// leader may live and be unheard.
    ///
    /// Those that are gone unheard may have decided among themselves before. Then they were more than half of themselves and of those
    /// who go on, none of whom was dead to them. So if nobody else is left out, half of the two is enough.
    fn is_quorum<R: Rows>(&self, of: &Stand<'_>, rows: &R) -> bool {
        let Stand { leader, suspected, dead, gone } = of;
        let unsuspected = self.everyone.iter().filter(|rank| !suspected.has(**rank)).count();
        let has_rival = self.everyone.iter().any(|rank| rank > leader && suspected.has(*rank) && !dead.has(*rank));
        let left_out =
            |rank: &&Rank| dead.has(**rank) && !(has_rival && bit(rows, **rank, membership::SUSPECTED, *leader));
        let left_out = self.everyone.iter().filter(left_out).count();
        let absent = if planted!(DeadCountAsPresent) { 0 } else { left_out };
        let present = if planted!(DeadCountAsPresent) { unsuspected + dead.count() } else { unsuspected };
        let counted = self.everyone.len() - absent;
        let all_others_gone = present + gone.count() == counted;
        2 * present > counted || (all_others_gone && 2 * present == counted) || planted!(NoQuorum)
    }

    /// How I would lead.
    fn stand(&self) -> Stand<'_> {
        let Membership { me, suspected, dead, gone, .. } = self;
        Stand { leader: *me, suspected, dead, gone }
    }

    /// Whether whom I follow can't go on, as its row tells, so that I can't either. It is the leader that is [blocked](Self::is_blocked).
    #[inline]
    pub(crate) fn is_held_up<R: Rows>(&self, rows: &R) -> bool {
        self.wedged && !self.evicted && self.decision.is_none() && self.leader_is_blocked(rows)
    }

    #[cold]
    fn leader_is_blocked<R: Rows>(&self, rows: &R) -> bool {
        let leader = self.leader();
        if leader == self.me {
            return false;
        }
        let (members, mut gone) = (self.everyone.len(), Ranks::none(self.everyone.len()));
        let suspected = Ranks::read(leader, membership::SUSPECTED, members, rows);
        let mut dead = Ranks::read(leader, membership::stopped(members), members, rows);
        // A row does not tell who is dead from who is gone.
        for rank in self.everyone.iter().copied().filter(|rank| self.gone.has(*rank)) {
            if dead.has(rank) {
                dead.remove(rank);
                gone.add(rank);
            }
        }
        // What it suspects was written behind what it had decided before.
        let has_decided = ballot_in(rows, leader, membership::COMMITTED).is_some();
        let of = Stand { leader, suspected: &suspected, dead: &dead, gone: &gone };
        !has_decided && !self.is_quorum(&of, rows)
    }

    /// INV-ADOPT: the newest proposal of those whose rows I have to read, if there is any; else one of my own.
    fn propose<T: Table>(&mut self, view: &View, layout: &Layout, table: &mut T) -> bool {
        let round = self.ballot.filter(|ballot| ballot.leader == self.me).map_or(0, |ballot| ballot.round) + 1;
        let ballot = Ballot { leader: self.me, round };
        let is_garbage = |words: &[u64]| proposal::decode(words, view).is_none();
        // Of the dead, whose rows are final, what nobody can have meant is passed over.
        let means_nothing = |rank: Rank| {
            self.dead.has(rank) && read_proposal(rank, layout, table).is_none_or(|(_, words)| is_garbage(&words))
        };
        let theirs = |rank: Rank| {
            let ballot = ballot_in(table, rank, membership::BALLOT).filter(|_| !means_nothing(rank))?;
            Some((ballot, rank))
        };
        let others = self.readable().filter(|rank| *rank != self.me).filter_map(theirs);
        let newest = others.max_by_key(|(ballot, _)| ballot.order());
        let newest = newest.filter(|(theirs, _)| self.ballot.is_none_or(|mine| theirs.order() > mine.order()));
        let newest = newest.filter(|_| !planted!(NeverAdopts));
        if let Some((theirs, rank)) = newest {
            if theirs.leader > self.me {
                // Somebody listens to a leader behind me: it suspects me, and its suspicion is on the way.
                return false;
            }
            let Some((found, words)) = read_proposal(rank, layout, table) else { return false };
            if found != theirs {
                return false;
            }
            if is_garbage(&words) {
                self.suspect(rank);
                return true;
            }
            self.made = None;
            self.adopt(ballot, &words, layout, table);
            return true;
        }
        if self.ballot.is_some() && self.made.is_none() {
            // What I hold is another's, and may be decided.
            let words = core::mem::take(&mut self.value);
            self.adopt(ballot, &words, layout, table);
            return true;
        }
        let words = self.make(view, layout, table);
        self.made = Some(self.suspected.clone());
        self.adopt(ballot, &words, layout, table);
        true
    }

    /// A proposal of my own: who is not suspected and wants to stay, who wants to join, and what all who have not failed hold.
    fn make<T: Table>(&self, view: &View, layout: &Layout, table: &T) -> Vec<u64> {
        let is_leaving = |rank: Rank| table.load(rank, membership::LEAVING) != 0;
        let stays = |rank: Rank| !self.suspected.has(rank) && !is_leaving(rank);
        let trims: Trims = (0..)
            .zip(&view.subgroups)
            .map(|(id, spec)| {
                let cut = |sender: usize| {
                    let heard = self.unsuspected().filter_map(|rank| {
                        let place = layout.row(rank).place(SubgroupId(id))?;
                        Some(table.load(rank, place.cut + 8 * sender as u64))
                    });
                    // INV-TRIM. Of a subgroup whose members are all gone nothing is left to deliver.
                    let trim = if planted!(TrimIsLongest) { heard.max() } else { heard.min() };
                    trim.map_or(0, |trim| trim.min(ROUNDS_MAX))
                };
                (0..spec.senders.len()).map(cut).collect()
            })
            .collect();
        let Wishes { joins, changes } = self.all_wishes(layout, table);
        let room = limits::MEMBERS_MAX - view.ranks().filter(|rank| stays(*rank)).count();
        let joins: Vec<MemberId> = joins.into_iter().filter(|id| !view.members.contains(id)).take(room).collect();
        let (mut joining, mut changing) = (joins.len(), changes.len());
        loop {
            let next = view.next(stays, &joins[..joining], &changes[..changing]);
            let words = proposal::encode(&next, &trims);
            if words.len() as u64 * 8 <= slot_bytes(layout, self.me) {
                return words;
            }
            // What does not fit is for the view after it.
            if joining > 0 {
                joining /= 2;
            } else {
                changing /= 2;
            }
        }
    }

    /// What all those wish who go on, each wish once. Of changes that contradict each other the one of the lowest rank counts.
    fn all_wishes<T: Table>(&self, layout: &Layout, table: &T) -> Wishes {
        let mut all = Wishes::default();
        for rank in self.unsuspected() {
            // Garbage is no wish.
            let Some(wishes) = Wishes::decode(&read(rank, &layout.row(rank).wishes, table)) else { continue };
            for join in wishes.joins {
                if !all.joins.contains(&join) {
                    all.joins.push(join);
                }
            }
            let of_lower_ranks = all.changes.len();
            for change in wishes.changes {
                let is_contradicted = all.changes[..of_lower_ranks].iter().any(|other| other.contradicts(&change));
                if !is_contradicted && !all.changes.contains(&change) {
                    all.changes.push(change);
                }
            }
        }
        all
    }

    /// Copies a proposal into my row, and then sets my ballot.
    fn adopt<T: Table>(&mut self, ballot: Ballot, words: &[u64], layout: &Layout, table: &mut T) {
        let word = ballot.encode(self.slot);
        if planted!(BallotBeforeProposal) {
            self.write(membership::BALLOT, &[word], table);
        }
        self.write(slot_range(layout, self.me, self.slot).start, words, table);
        self.write(membership::BALLOT, &[word], table);
        (self.ballot, self.value) = (Some(ballot), words.to_vec());
        // The other slot next, so that what my ballot speaks of is never half written.
        self.slot = if planted!(OneSlot) { self.slot } else { 1 - self.slot };
    }

    /// It is decided.
    fn decide<T: Table>(&mut self, decision: Decision, table: &mut T) {
        let word = table.load(self.me, membership::BALLOT);
        self.write(membership::COMMITTED, &[word], table);
        self.blocked = false;
        self.decision = Some(decision);
    }

    /// I have delivered everything below the trims.
    pub(crate) fn end<T: Table>(&self, table: &mut T) {
        self.write(membership::ENDED, &[1], table);
    }
}

/// What was decided, if any row says that something was: for those who are no members.
pub(crate) fn read_decision<R: Rows>(view: &View, layout: &Layout, rows: &R) -> Option<Decision> {
    // A row that says so and holds nothing of it hides no other's.
    view.ranks().find_map(|rank| {
        let committed = ballot_in(rows, rank, membership::COMMITTED)?;
        let (ballot, words) = read_proposal(rank, layout, rows)?;
        let (next, trims) = proposal::decode(&words, view)?;
        (ballot == committed).then_some(Decision { ballot, next, trims })
    })
}

/// The ballot in the word at `at` of the row of `rank`, if there is one.
fn ballot_in<R: Rows>(rows: &R, rank: Rank, at: u64) -> Option<Ballot> {
    Ballot::decode(rows.load(rank, at)).map(|(ballot, _)| ballot)
}

/// Whether `other` is in the set that begins at `at` in the row of `rank`.
fn bit<R: Rows>(rows: &R, rank: Rank, at: u64, other: Rank) -> bool {
    let word = rows.load(rank, at + 8 * (other.0 as u64 / 64));
    word >> (other.0 % 64) & 1 == 1
}

fn slot_bytes(layout: &Layout, member: Rank) -> u64 {
    let slots = &layout.row(member).proposals;
    (slots.end - slots.start) / 2
}

/// Where the proposal with this slot stands.
fn slot_range(layout: &Layout, member: Rank, slot: u64) -> Range<u64> {
    let bytes = slot_bytes(layout, member);
    let start = layout.row(member).proposals.start + slot * bytes;
    start..start + bytes
}

/// The words in `range` of the row of `member`, of which the second says how many follow it.
fn read<R: Rows>(member: Rank, range: &Range<u64>, rows: &R) -> Vec<u64> {
    let count = rows.load(member, range.start + 8).saturating_add(2).min((range.end - range.start) / 8);
    (0..count).map(|i| rows.load(member, range.start + 8 * i)).collect()
}

/// The newest proposal in the row of `member`, if it is there as a whole.
fn read_proposal<R: Rows>(member: Rank, layout: &Layout, table: &R) -> Option<(Ballot, Vec<u64>)> {
    let word = table.load(member, membership::BALLOT);
    let (ballot, slot) = Ballot::decode(word)?;
    let words = read(member, &slot_range(layout, member, slot), table);
    // Two adoptions later the slot is written again. The first of them moves the ballot.
    (table.load(member, membership::BALLOT) == word).then_some((ballot, words))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ballots_go_by_rank_first_and_survive_the_word() {
        let ballot = |leader, round| Ballot { leader: Rank(leader), round };
        let ascending = [ballot(0, 1), ballot(0, 2), ballot(0, u32::MAX), ballot(1, 1), ballot(1023, 7)];
        assert!(ascending.windows(2).all(|pair| pair[0] < pair[1] && pair[0].encode(1) < pair[1].encode(0)));
        for ballot in ascending {
            for slot in [0, 1] {
                assert_eq!(Ballot::decode(ballot.encode(slot)), Some((ballot, slot)));
            }
        }
        assert_eq!(Ballot::decode(0), None);
    }

    #[test]
    fn sets_of_ranks_hold_what_was_added() {
        let mut ranks = Ranks::none(130);
        for rank in [0, 63, 64, 129] {
            assert!(ranks.add(Rank(rank)));
            assert!(!ranks.add(Rank(rank)));
        }
        assert_eq!(ranks.count(), 4);
        assert!(ranks.has(Rank(129)) && !ranks.has(Rank(128)));
    }
}
