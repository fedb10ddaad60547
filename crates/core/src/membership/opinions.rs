//! One member's opinions of the others: proofs of death, which are final, and suspicions, which are
//! taken back when the suspect is heard again (docs/protocol/views.md, "Opinions and proofs").
//!
//! No safety rests on a suspicion. It decides whether the member closes its view, whether it leads,
//! and which members it leaves out of its own proposals.
use super::ranks::{Ranks, bit};
use super::telling::{Silence, Teller};
use crate::ids::{Rank, Time};
use crate::mutation::mutation;
use crate::table::{Rows, Table};
use crate::view::View;
use crate::wire::layout::membership;
use alloc::vec::Vec;

/// How often a member shows that it is alive in a suspicion time.
const BEATS: u64 = 32;
/// The maximum number of doublings of a member's suspicion time. Each false suspicion of the member
/// doubles it.
const DOUBTS_MAX: u32 = 4;
/// The number of suspicion times in which the member has to be heard to take back a doubling.
const CALM: u64 = 64;
/// The number of suspicion times that a member has to begin a view in which it was not heard yet,
/// and one more for so many members. All of them take in the memory of all, perhaps on few cores.
const BEGINNING: u64 = 2;
const BEGINNING_MEMBERS: u64 = 32;
/// A suspicion that was reported to this member is taken back only by signs of life that come later
/// than the suspicion time divided by this. Earlier signs may have been under way already.
const OVERTAKEN: u64 = 4;
/// A member that was cut off counts at most the suspicion time divided by this of the silence of a
/// member that it does not hear yet.
const EXCUSED: u64 = 2;
/// The number of beats without a sign of life after which an awaited member is asked for one.
const ASK_AFTER: u64 = 2;
/// The time used instead of the suspicion time for taking turns as leaders if silence has no limit,
/// in ns.
const PATIENCE_NS: u64 = 1_000_000_000;
/// The maximum of that time, however long the suspicion time is: one hour.
const PATIENCE_MAX_NS: u64 = 3_600 * 1_000_000_000;

/// When a member shows that it is alive, and which members it expects to show it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub enum Liveness {
    /// At all times, for all members. So the end of a connection, or of a host, is noticed in an
    /// idle group.
    #[default]
    Constant,
    /// A member shows it while another member asks for it, and expects it of the members for which
    /// it waits. An idle group sleeps. Only for members whose ends the kernel reports.
    OnDemand,
}

/// The signs of life of one member.
#[derive(Clone, Copy, Hash, Debug, Default)]
struct Pulse {
    heartbeat: u64,
    /// How long the heartbeat did not change while this member looked, in ns.
    silent_ns: u64,
    /// How long it changed since the last false suspicion, in ns.
    calm_ns: u64,
    /// The number of suspicions that recently proved false.
    doubts: u32,
    /// Signs of life before this moment do not refute a suspicion.
    deaf_until: Time,
    /// True if a part of the silence was not counted, because this member was cut off.
    excused: bool,
}

#[derive(Clone, Hash, Debug)]
pub(crate) struct Opinions {
    me: Rank,
    peers: Vec<Rank>,
    /// The members that this member suspects because of what it has seen or was told; taken back
    /// when they are heard.
    silent: Ranks,
    /// The members that are suspected until the view ends: proven dead, or faulty.
    barred: Ranks,
    /// The members that this one is asked to evict. They are not suspected for it: they may be
    /// alive and well.
    evicting: Ranks,
    /// The members that are proven dead, with final rows.
    dead: Ranks,
    /// The members whose rows say that they suspect this member.
    estranged: Ranks,
    /// True if this member's row holds other suspicions than these.
    unpublished: bool,
    suspect_after_ns: Option<u64>,
    liveness: Liveness,
    /// The members that this one asks for a sign of life.
    asking: Ranks,
    heartbeat: u64,
    pulses: Vec<Pulse>,
    /// The times of the first poll and of the last one.
    begun: Option<Time>,
    now: Time,
    /// The last time at which a suspicion was taken back, or this member stood still for so long
    /// that others may suspect it.
    returned_at: Option<Time>,
    /// True if the clock has advanced by more than the others wait, and no wait has been adjusted
    /// for it.
    jumped: bool,
    /// True if this member did not hear more than half of the members, itself included, at its last
    /// look.
    cut_off: bool,
    /// The last time at which the others' heartbeats were checked.
    looked: Option<Time>,
    /// The time until the next check, in ns.
    wait_ns: u64,
    /// True if this member has to be polled for that check although nothing happens.
    is_due: bool,
    /// True if it checks at the next poll, however soon after the last check.
    before_sleep: bool,
    /// Whether words of the others' membership blocks may have changed since this member last
    /// looked for requests, and whether one asked it.
    moved: bool,
    was_asked: bool,
    teller: Teller,
}

impl Opinions {
    pub(crate) fn new(view: &View, me: Rank, teller: Teller) -> Opinions {
        let members = view.members.len();
        Opinions {
            me,
            peers: view.ranks().filter(|rank| *rank != me).collect(),
            silent: Ranks::none(members),
            barred: Ranks::none(members),
            evicting: Ranks::none(members),
            dead: Ranks::none(members),
            estranged: Ranks::none(members),
            unpublished: false,
            suspect_after_ns: None,
            liveness: Liveness::Constant,
            asking: Ranks::none(members),
            heartbeat: 0,
            pulses: alloc::vec![Pulse::default(); members],
            begun: None,
            now: Time(0),
            returned_at: None,
            jumped: false,
            cut_off: false,
            looked: None,
            wait_ns: 0,
            is_due: false,
            before_sleep: false,
            moved: true,
            was_asked: false,
            teller,
        }
    }

    /// Takes over the experience with `rank` from `old`, an earlier view, where it had the rank
    /// `was`.
    pub(crate) fn inherit(&mut self, rank: Rank, old: &Opinions, was: Rank) {
        let Pulse { doubts, calm_ns, .. } = old.pulses[was.index()];
        self.pulses[rank.index()] = Pulse { doubts, calm_ns, ..Pulse::default() };
    }

    pub(crate) fn set_suspect_after(&mut self, ns: Option<u64>) {
        self.suspect_after_ns = ns;
    }

    pub(crate) fn suspect_after(&self) -> Option<u64> {
        self.suspect_after_ns
    }

    pub(crate) fn set_liveness(&mut self, liveness: Liveness) {
        self.liveness = liveness;
    }

    pub(crate) fn liveness(&self) -> Liveness {
        self.liveness
    }

    /// Returns how long this member waits for others before it acts without them, in ns.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.suspect_after_ns.unwrap_or(PATIENCE_NS).min(PATIENCE_MAX_NS)
    }

    /// True if this member stood still, or its clock jumped, since the last call.
    pub(crate) fn heed_clock(&mut self, now: Time) -> bool {
        self.returned_at = self.returned_at.map(|at| at.min(now));
        core::mem::take(&mut self.jumped)
    }

    /// True if this member leaves `rank` out of its decisions.
    pub(crate) fn suspects(&self, rank: Rank) -> bool {
        self.silent.has(rank) || self.barred.has(rank) || self.estranged.has(rank)
    }

    pub(crate) fn is_dead(&self, rank: Rank) -> bool {
        self.dead.has(rank)
    }

    /// True if `rank` is suspected because of what this member has seen itself.
    pub(crate) fn is_silent(&self, rank: Rank) -> bool {
        self.silent.has(rank)
    }

    /// True if `rank` is suspected until the view ends.
    pub(crate) fn is_barred(&self, rank: Rank) -> bool {
        self.barred.has(rank)
    }

    /// Returns the last time at which a suspicion was taken back, or this member continued after it
    /// stood still.
    pub(crate) fn returned_at(&self) -> Option<Time> {
        self.returned_at
    }

    /// Suspects `rank` until it is heard again. True if that is new.
    pub(crate) fn suspect(&mut self, rank: Rank) -> bool {
        if rank == self.me {
            return false;
        }
        let overtaken_ns = self.suspect_after_ns.map_or(0, |ns| ns / OVERTAKEN);
        let pulse = &mut self.pulses[rank.index()];
        pulse.deaf_until = Time(self.now.0.saturating_add(overtaken_ns));
        self.add_silent(rank)
    }

    fn add_silent(&mut self, rank: Rank) -> bool {
        let new = self.silent.add(rank);
        self.unpublished |= new;
        new
    }

    /// Takes a suspicion of `rank` back. Whether there was one.
    pub(crate) fn trust(&mut self, rank: Rank) -> bool {
        let was = !mutation!(SuspicionKept) && self.silent.remove(rank);
        if was {
            self.unpublished = true;
            self.returned_at = Some(self.now);
            let pulse = &mut self.pulses[rank.index()];
            pulse.doubts = (pulse.doubts + 1).min(DOUBTS_MAX);
            self.teller.trusted(rank, pulse.silent_ns, pulse.doubts);
            (pulse.silent_ns, pulse.calm_ns) = (0, 0);
        }
        was
    }

    /// `rank` has shown that it lives, otherwise than by its heartbeat.
    pub(crate) fn heard(&mut self, rank: Rank) {
        let pulse = &mut self.pulses[rank.index()];
        if !self.barred.has(rank) && self.now >= pulse.deaf_until {
            pulse.silent_ns = 0;
            self.trust(rank);
        }
    }

    /// Suspects `rank` for as long as the view lasts. Whether that is new.
    pub(crate) fn bar(&mut self, rank: Rank) -> bool {
        let new = rank != self.me && self.barred.add(rank);
        self.unpublished |= new;
        new
    }

    /// Notes a request to leave `rank` out of the next view, although it may be alive and well.
    /// Whether that is new.
    pub(crate) fn evict(&mut self, rank: Rank) -> bool {
        let new = rank != self.me && self.evicting.add(rank);
        if mutation!(EvictionIsProof) {
            self.bar(rank);
        }
        self.unpublished |= new;
        new
    }

    /// The members that this member leaves out of what it decides on.
    pub(crate) fn suspected(&self) -> Ranks {
        let mut suspected = self.silent.clone();
        suspected.unite(&self.barred);
        suspected.unite(&self.estranged);
        suspected
    }

    pub(crate) fn evicting(&self) -> &Ranks {
        &self.evicting
    }

    pub(crate) fn dead(&self) -> &Ranks {
        &self.dead
    }

    /// Whether this member is asked to evict `rank`.
    pub(crate) fn is_evicting(&self, rank: Rank) -> bool {
        self.evicting.has(rank)
    }

    /// `rank` is proven dead, and its row final.
    pub(crate) fn died(&mut self, rank: Rank) -> bool {
        self.dead.add(rank);
        self.bar(rank)
    }

    /// Notes peers that have left or given up. Returns whether anything is new.
    ///
    /// A peer that leaves or gives up writes this in its row at the very end. So its row is as
    /// final as the row of a dead member.
    #[cold]
    pub(crate) fn see_final_words<T: Table>(&mut self, table: &T) -> bool {
        let mut new = false;
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            let has = |word| table.load(peer, word) != 0;
            if !self.dead.has(peer) && (has(membership::LEFT) || has(membership::ABANDONED)) {
                match has(membership::LEFT) {
                    true => self.teller.left(peer),
                    false => self.teller.dead(peer, "the end notice of its row: it gave the group up, or was evicted"),
                }
                new |= self.died(peer);
            }
        }
        new
    }

    /// Notes who says that it does not hear this member. Whether anything is new.
    pub(crate) fn see_estranged<R: Rows>(&mut self, rows: &R) -> bool {
        let mut new = false;
        for peer in &self.peers {
            let suspects_me = bit(rows, *peer, membership::SUSPECTED, self.me);
            let changed = if suspects_me { self.estranged.add(*peer) } else { self.estranged.remove(*peer) };
            match suspects_me {
                true if changed => self.teller.suspects_me(*peer),
                false if changed => self.teller.hears_me_again(*peer),
                _ => {}
            }
            new |= changed;
        }
        new
    }

    /// Writes down whom this member suspects by what it has seen itself, and whom it is asked to
    /// evict, if that has changed. Whether it has.
    pub(crate) fn publish<T: Table>(&mut self, table: &mut T) -> bool {
        if !core::mem::take(&mut self.unpublished) {
            return false;
        }
        let mut at = membership::SUSPECTED;
        for word in self.silent.union(&self.barred).chain(self.evicting.words().iter().copied()) {
            table.store(at, word);
            at += 8;
        }
        table.post_quietly(&self.peers, membership::SUSPECTED..at);
        true
    }

    /// When this member looked at the others last, but for looks before a sleep.
    pub(crate) fn looked(&self) -> Option<Time> {
        self.looked
    }

    /// The time of the last poll.
    pub(crate) fn now(&self) -> Time {
        self.now
    }

    /// Whether this view is older than the time for which others are waited for.
    pub(crate) fn has_settled(&self) -> bool {
        self.begun.is_some_and(|begun| self.now.0.saturating_sub(begun.0) >= self.patience_ns())
    }

    /// The next heartbeat.
    pub(crate) fn next_heartbeat(&mut self) -> u64 {
        self.heartbeat += 1;
        self.heartbeat
    }

    /// Whether it is time to [look](Self::look). If not, when it is; `None`: when something else
    /// happens.
    #[inline]
    pub(crate) fn is_time(&mut self, now: Time) -> Result<(), Option<Time>> {
        self.now = now;
        self.begun.get_or_insert(now);
        if self.suspect_after_ns.is_none() || self.peers.is_empty() {
            return Err(None);
        }
        match self.next_look(now) {
            Some(at) if !self.before_sleep => Err(self.is_due.then_some(at)),
            _ => {
                self.before_sleep = false;
                Ok(())
            }
        }
    }

    /// When the wait after the last look is over, if it is not. A clock that went back starts
    /// again.
    #[inline]
    fn next_look(&self, now: Time) -> Option<Time> {
        let looked = self.looked.filter(|looked| now >= *looked && now.0 - looked.0 < self.wait_ns)?;
        Some(Time(looked.0 + self.wait_ns))
    }

    /// The next poll is the last before a sleep, which ends when a member asks this one for a sign
    /// of life, or when it is time for a look that this poll finds to be necessary.
    pub(crate) fn before_sleep(&mut self) {
        self.before_sleep = self.liveness == Liveness::OnDemand;
    }

    /// Shows that this member lives, if that is wanted, and looks who else does of those that are
    /// `awaited`: whether it suspects another for its silence, and when to come again.
    pub(crate) fn look<T: Table>(&mut self, now: Time, awaited: &Ranks, table: &mut T) -> (bool, Option<Time>) {
        let Some(suspect_after_ns) = self.suspect_after_ns else { return (false, None) };
        // A member that has not been heard in this view may ask in a row that is not here yet.
        let has_met_all = self.unheard().next().is_none();
        let is_asked = self.liveness == Liveness::Constant || !has_met_all || self.is_asked(table);
        let was_due = core::mem::replace(&mut self.is_due, is_asked || !awaited.is_empty());
        if let Some(at) = self.next_look(now) {
            // Only the poll before a sleep looks so soon.
            self.ask(&[], awaited, table);
            return (false, self.is_due.then_some(at));
        }
        let step_ns = suspect_after_ns / BEATS;
        let looked = self.looked.unwrap_or(now);
        let passed_ns = now.0.saturating_sub(looked.0);
        if now < looked {
            // The clock went back: no signs of life after this time are ignored any more.
            self.pulses.iter_mut().for_each(|pulse| pulse.deaf_until = pulse.deaf_until.min(now));
        }
        self.looked = Some(now);
        if is_asked {
            let heartbeat = self.next_heartbeat();
            table.store(membership::HEARTBEAT, heartbeat);
            table.post_quietly(&self.peers, membership::HEARTBEAT..membership::HEARTBEAT + 8);
        }
        if passed_ns > suspect_after_ns / OVERTAKEN && was_due {
            // It may be this member that the others have not heard.
            (self.returned_at, self.jumped) = (Some(now), true);
        }
        // If this member stood still, or its clock jumped, it vouches for no more of the others'
        // silence than this.
        let silent_ns = passed_ns.min(2 * step_ns);
        let (mut overdue, mut is_new) = (false, false);
        let at_beginning = BEGINNING + self.pulses.len() as u64 / BEGINNING_MEMBERS;
        let mut asked = Vec::new();
        for i in 0..self.peers.len() {
            let peer = self.peers[i];
            if self.barred.has(peer) {
                continue;
            }
            let heartbeat = table.load(peer, membership::HEARTBEAT);
            let pulse = &mut self.pulses[peer.index()];
            if heartbeat != pulse.heartbeat {
                let is_overtaken = now < pulse.deaf_until && now >= looked;
                if !is_overtaken || !self.silent.has(peer) {
                    pulse.heartbeat = heartbeat;
                    (pulse.silent_ns, pulse.excused) = (0, false);
                    self.hear(peer, silent_ns, suspect_after_ns);
                }
                continue;
            }
            if !awaited.has(peer) {
                pulse.silent_ns = 0;
                continue;
            }
            pulse.silent_ns = pulse.silent_ns.saturating_add(silent_ns);
            let is_to_be_asked = pulse.silent_ns >= ASK_AFTER * step_ns || self.silent.has(peer);
            let may_ask = self.liveness == Liveness::OnDemand && !mutation!(AsksNobody);
            if may_ask && is_to_be_asked && self.asking.add(peer) {
                asked.push(peer);
                // However late this look is, the answer has the time that is left from here.
                pulse.silent_ns = pulse.silent_ns.min(ASK_AFTER * step_ns);
            }
            let beginning = if pulse.heartbeat == 0 { at_beginning } else { 1 };
            let is_hasty = mutation!(NoTimeToBegin) && pulse.heartbeat == 0;
            let limit_ns =
                if is_hasty { 3 * step_ns } else { suspect_after_ns.saturating_mul(beginning << pulse.doubts) };
            overdue |= pulse.silent_ns > 3 * step_ns;
            if pulse.silent_ns >= limit_ns && table.load(peer, membership::LEFT) == 0 {
                let Pulse { heartbeat, silent_ns, doubts, .. } = *pulse;
                if self.add_silent(peer) {
                    is_new = true;
                    self.teller.silent(peer, Silence { heartbeat, silent_ns, limit_ns, doubts });
                }
            }
        }
        self.ask(&asked, awaited, table);
        self.see_cut(suspect_after_ns);
        // A member that is overdue is looked at more often: the end of the wait decides when the
        // others go on.
        self.wait_ns = if overdue { step_ns / 8 } else { step_ns };
        (is_new, self.is_due.then_some(Time(now.0 + self.wait_ns)))
    }

    /// Notes whether this member is cut off. When it hears more than half of the members again, its
    /// connections to the others may be under way, so it counts less of their silence. A member's
    /// silence is excused once.
    fn see_cut(&mut self, suspect_after_ns: u64) {
        let is_lost = |pulse: &Pulse| pulse.silent_ns >= suspect_after_ns / OVERTAKEN;
        let counted = self.peers.iter().filter(|peer| !self.barred.has(**peer));
        let (lost, heard) = counted.fold((0, 1), |(lost, heard), peer| match is_lost(&self.pulses[peer.index()]) {
            true => (lost + 1, heard),
            false => (lost, heard + 1),
        });
        let was_cut_off = core::mem::replace(&mut self.cut_off, lost >= heard);
        if !was_cut_off || self.cut_off || mutation!(CutCounted) {
            return;
        }
        let most_ns = suspect_after_ns / EXCUSED;
        for peer in self.peers.iter().filter(|peer| !self.silent.has(**peer)) {
            let pulse = &mut self.pulses[peer.index()];
            if pulse.silent_ns > most_ns && !core::mem::replace(&mut pulse.excused, true) {
                pulse.silent_ns = most_ns;
            }
        }
    }

    /// Adds the members that have not been heard in this view: each is awaited until it has begun
    /// it.
    pub(crate) fn await_beginnings(&self, awaited: &mut Ranks) {
        self.unheard().for_each(|peer| _ = awaited.add(peer));
    }

    fn unheard(&self) -> impl Iterator<Item = Rank> {
        let has_begun = |peer: &Rank| self.barred.has(*peer) || self.pulses[peer.index()].heartbeat > 0;
        self.peers.iter().copied().filter(move |peer| !has_begun(peer))
    }

    /// Whether another member asks this one for a sign of life.
    fn is_asked<R: Rows>(&mut self, rows: &R) -> bool {
        // Questions are taken back quietly.
        if core::mem::take(&mut self.moved) || self.was_asked {
            let asking = membership::asking(self.pulses.len());
            self.was_asked = !mutation!(AskedInVain)
                && self.peers.iter().any(|peer| !self.barred.has(*peer) && bit(rows, *peer, asking, self.me));
        }
        self.was_asked
    }

    /// Words of the others' membership blocks may have moved.
    pub(crate) fn note_moved(&mut self) {
        self.moved = true;
    }

    /// Writes down whom this member asks for a sign of life: no member that is not `awaited`.
    /// Members that are newly `asked` are woken.
    fn ask<T: Table>(&mut self, asked: &[Rank], awaited: &Ranks, table: &mut T) {
        let is_less = self.asking.retain(awaited);
        if asked.is_empty() && !is_less {
            return;
        }
        let start = membership::asking(self.pulses.len());
        let mut at = start;
        for word in self.asking.words().iter().copied() {
            table.store(at, word);
            at += 8;
        }
        table.post_quietly(&self.peers, start..at);
        table.wake(asked);
    }

    /// `peer` has shown that it lives.
    fn hear(&mut self, peer: Rank, passed_ns: u64, suspect_after_ns: u64) {
        if self.trust(peer) {
            return;
        }
        let pulse = &mut self.pulses[peer.index()];
        pulse.calm_ns = pulse.calm_ns.saturating_add(passed_ns);
        if pulse.doubts > 0 && pulse.calm_ns >= suspect_after_ns.saturating_mul(CALM) {
            (pulse.doubts, pulse.calm_ns) = (pulse.doubts - 1, 0);
        }
    }
}
