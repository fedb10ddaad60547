//! A member of a group across its views: joins, suspicions and their reasons, the start of the next
//! view, and the end of this member's membership.
//!
//! The driver polls the [engine](Member::engine) with the memory of the view, reports events to the
//! member, and carries out the orders of its [`Roster`]. One view leads to the next in three steps:
//!
//! 1. The engine reports that the view has ended. [`Member::end_view`] makes an [`Install`]. The
//!    driver makes this member's row in the next view, and reports that it is
//!    [prepared](Install::prepared).
//! 2. [`Member::look`] returns whether the view begins. It does not begin before the application
//!    has received the rest of the previous view. The driver then takes the rows that have arrived
//!    ([`Roster::take_part`]).
//! 3. [`Member::begin`] continues in the next view with the valid rows.
//!
//! Subgroups that the change does not touch continue meanwhile. They also continue in later views,
//! with the rows with which their epochs began. The driver keeps the tables of [`Member::older`]
//! views, and [polls](Member::poll_older) their engines too. [`Member::home`] returns the engine
//! with which a subgroup's epoch began.
mod admission;
mod epochs;
mod leaving;
mod streams;
mod suspicion;
mod view_change;

use super::{
    ASK_EVERY, Begun, ControlEvent, Install, Joins, ObjectOrder, Readmissions, RecordOrder, Redials, Request, Roster,
    SharedSettings,
};
use crate::clock::ClockAhead;
use crate::ids::{MemberId, Process, Rank, Time, ViewId};
use crate::membership::Unrecoverable;
use crate::multicast::engine::Engine;
use crate::multicast::stats::EngineStats;
use crate::mutation::mutation;
use crate::table::Rows;
use crate::view::View;
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet, VecDeque};
use alloc::string::String;
use alloc::sync::Arc;
use alloc::vec::Vec;
use core::fmt;
use core::time::Duration;
use leaving::Leaving;
use tracing::info;

/// The target of events about views.
const TARGET: &str = "spindle::view";

/// A function that reads words of a row in the previous view.
pub type Words = Box<dyn Fn(Rank, u64) -> u64 + Send>;

/// The configuration that all members share, as far as a [`Member`] uses it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Terms {
    /// All shared settings.
    pub settings: SharedSettings,
    /// The silence after which a member is suspected, if silence is suspected.
    pub suspect_after: Option<Duration>,
}

/// Why a member does not do what a request asks for.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Declined {
    /// The group can't be recovered.
    #[error(transparent)]
    Recovery(#[from] Unrecoverable),
    /// The clocks of logs are not raised that far.
    #[error(transparent)]
    Clock(#[from] ClockAhead),
}

impl Declined {
    /// Whether the reason passes by itself, so that the request may be made again.
    pub fn is_passing(&self) -> bool {
        matches!(self, Declined::Recovery(why) if why.is_passing())
    }
}

/// A task of the driver that follows from news.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Heard {
    /// The driver answers a request with the state of this member.
    Answer {
        /// The process that made the request.
        to: MemberId,
        /// The number to repeat in the answer.
        reply: u64,
        /// The reason why this member does not do what was requested, if it does not.
        refused: Option<Declined>,
    },
    /// A view without this member was decided. Its [era](ViewId::era) is a later one if an
    /// operator's recovery gave this member up.
    Evicted {
        /// That view.
        next: ViewId,
    },
    /// The driver sends objects to a process that follows.
    Send(ObjectOrder),
    /// The driver sends records of its log to a process that lacks them, or refuses.
    SendRecords(RecordOrder),
    /// News that does not concern the membership.
    Other(ControlEvent),
}

/// A member of a group.
pub struct Member {
    engine: Engine,
    /// The engines of ended views in which subgroups continue, the oldest first.
    older: Vec<Engine>,
    /// The sum of the counters of engines that are gone.
    gone: EngineStats,
    view: Arc<View>,
    terms: Terms,
    /// The next view, once this one has ended.
    next: Option<Install>,
    joins: Joins,
    /// True if the processes that will join with the next view were reported to the driver.
    told_newcomers: bool,
    readmissions: Readmissions,
    redials: Redials,
    /// Members of this view that were suspected because their connections reported their end.
    told_ended: BTreeSet<MemberId>,
    /// Members of the view whose rows never came here.
    absent: BTreeSet<MemberId>,
    /// Members of the view whose streams are broken.
    down: BTreeSet<MemberId>,
    /// Members with which this one shares a subgroup that stays with an older view.
    sharing: BTreeSet<(ViewId, MemberId)>,
    /// True if the places of some absent members are unknown.
    seeks: bool,
    /// The time at which this member last looked for these members.
    sought: Time,
    /// The previous view and its rows, if some rows of this view have not arrived.
    before: Option<(Arc<View>, Words)>,
    /// Members to evict until a view without them has begun: their eviction was requested.
    evicting: BTreeSet<MemberId>,
    leaving: Leaving,
    /// The processes that want the state of this member's application, in the order of their
    /// requests.
    states: VecDeque<MemberId>,
    /// The time at which this member last looked for missing members that a view change needs.
    looked: Time,
    /// The time at which this member last asked others whether they continue without it.
    asked: Time,
    /// The time at which this member last reported to others that it delivers the rest of this
    /// view, if it has.
    told_rest: Option<Time>,
    /// The eras in which logs of this member began to lack records, by subgroup.
    lacking_since: BTreeMap<String, u32>,
    /// True if this view has groups for large messages.
    has_object_groups: bool,
    /// True if a process follows, as far as the driver has reported.
    is_followed: bool,
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Member").field("engine", &self.engine).field("next", &self.next).finish_non_exhaustive()
    }
}

impl Member {
    /// A member whose first view begins.
    pub fn new<W>(begun: Begun, terms: Terms, roster: &Roster<W>, now: Time) -> Member {
        let Begun { engine, view, absent } = begun;
        let (told_ended, down, evicting, sharing, lacking_since) = Default::default();
        let mut member = Member {
            engine,
            older: Vec::new(),
            gone: EngineStats::default(),
            view,
            readmissions: Readmissions::new(terms.suspect_after),
            redials: Redials::new(terms.suspect_after),
            terms,
            next: None,
            joins: Joins::default(),
            told_newcomers: false,
            told_ended,
            absent,
            down,
            sharing,
            seeks: true,
            sought: now - ASK_EVERY,
            before: None,
            evicting,
            leaving: Leaving::No,
            states: VecDeque::new(),
            looked: now,
            asked: now,
            told_rest: None,
            lacking_since,
            has_object_groups: false,
            is_followed: false,
        };
        for id in member.absent.clone() {
            // It may be known by now that it has written nothing in this view.
            if roster.is_dead(id) {
                member.died(id, roster);
            }
        }
        member.begin_redials(roster, now);
        member.weigh_epochs(roster);
        let (me, view, members) = (roster.me().0, member.view.id.0, &member.view.members);
        info!(target: TARGET, me, view, members = ?ids(members), absent = ?ids(&member.absent), "first view begins");
        member
    }

    /// The engine of the newest view that has begun here.
    pub fn engine(&self) -> &Engine {
        &self.engine
    }

    /// The same, to be polled.
    #[inline]
    pub fn engine_mut(&mut self) -> &mut Engine {
        &mut self.engine
    }

    /// The newest engine, and those of older views in which subgroups go on.
    fn engines(&self) -> impl Iterator<Item = &Engine> {
        core::iter::once(&self.engine).chain(&self.older)
    }

    fn engines_mut(&mut self) -> impl Iterator<Item = &mut Engine> {
        core::iter::once(&mut self.engine).chain(&mut self.older)
    }

    /// Returns the counters of the engines of all views so far, added up.
    pub fn engine_stats(&self) -> EngineStats {
        let mut sum = self.gone;
        self.engines().for_each(|engine| sum += engine.stats());
        sum
    }

    /// The newest view that has begun here.
    pub fn view(&self) -> &Arc<View> {
        &self.view
    }

    /// The view that is about to begin.
    pub fn next(&self) -> Option<&Install> {
        self.next.as_ref()
    }

    /// The same, to be prepared.
    pub fn next_mut(&mut self) -> Option<&mut Install> {
        self.next.as_mut()
    }

    fn is_in_next(&self, id: MemberId) -> bool {
        self.next.as_ref().is_some_and(|next| next.has(id))
    }

    fn rank_of(&self, id: MemberId) -> Option<Rank> {
        self.view.rank_of(id)
    }

    /// Takes in what has happened. `rows` are those of the view.
    pub fn hear<W>(
        &mut self,
        news: ControlEvent,
        rows: &impl Rows,
        roster: &mut Roster<W>,
        now: Time,
    ) -> Option<Heard> {
        match news {
            ControlEvent::Died(id) => {
                self.forget_joiner(id);
                self.died(id, roster);
            }
            // A member's streams tell what has become of it.
            ControlEvent::Lost(id) if self.rank_of(id).is_none() => self.forget_joiner(id),
            ControlEvent::Lost(_) => {}
            ControlEvent::Asks(asks) => self.asked(asks, rows, roster, now),
            ControlEvent::Requests { from, reply, what } => return self.requested(from, reply, what, rows, roster),
            ControlEvent::View { incarnation, view, decision } => {
                return self.hear_of(incarnation, &view, decision, roster);
            }
            ControlEvent::Reached(card) => roster.tell_view_at(self.newest_shown(), &card),
            ControlEvent::Meets(_) if mutation!(StrangersPass) => {}
            ControlEvent::Meets(card) => {
                roster.tell_view_at(self.newest_shown(), &card);
                roster.ask_view_at(&card);
            }
            ControlEvent::Wants(order) => {
                if self.rank_of(order.from).is_none() && !self.is_in_next(order.from) {
                    // This member forgets a process that reads its control messages slowly.
                    roster.add_observer(order.from);
                }
                return Some(Heard::Send(order));
            }
            ControlEvent::WantsRecords(order) => return Some(Heard::SendRecords(order)),
            other => return Some(Heard::Other(other)),
        }
        None
    }

    /// The newest view that this member knows to be decided.
    pub fn newest(&self) -> &Arc<View> {
        self.next.as_ref().map_or(&self.view, Install::view)
    }

    /// The newest decided view that this member may announce. A view that is kept on disk is there
    /// before its memory is [prepared](Install::prepared).
    fn newest_shown(&self) -> &Arc<View> {
        self.next.as_ref().filter(|next| next.is_prepared()).map_or(&self.view, Install::view)
    }

    /// Another process wants something.
    fn requested<W>(
        &mut self,
        from: MemberId,
        reply: u64,
        what: Request,
        rows: &impl Rows,
        roster: &mut Roster<W>,
    ) -> Option<Heard> {
        let mut refused = None;
        match what {
            Request::Leave => {
                self.leave();
            }
            Request::State => {
                if !self.states.contains(&from) {
                    self.states.push_back(from);
                }
                return None;
            }
            Request::Forget => {
                self.forget_joiner(from);
                roster.forget_observer(from);
                return None;
            }
            Request::Evict(id) => self.evict(id, roster.me()),
            Request::RaiseClocks(clock) => match roster.is_clock_ahead(clock) {
                Some(ahead) => refused = Some(Declined::Clock(ahead)),
                None => self.raise_clocks(clock),
            },
            Request::Recover(lost) => refused = self.recover(&lost, roster, rows).err().map(Declined::from),
            Request::View => {
                roster.tell_view(self.newest_shown(), [from]);
                return None;
            }
            Request::Stopped { nonce, .. } => {
                self.has_stopped(Process { id: from, nonce }, roster);
                return None;
            }
            Request::Patience { incarnation, view } => {
                let rank = self.rank_of(from).filter(|_| incarnation == roster.incarnation());
                if let Some(rank) = rank.filter(|_| self.view.id.follows(view)) {
                    self.engine.heard(rank);
                }
                return None;
            }
            _ => {}
        }
        Some(Heard::Answer { to: from, reply, refused })
    }
}

/// Ids as numbers, for events.
fn ids<'a>(ids: impl IntoIterator<Item = &'a MemberId>) -> Vec<u64> {
    ids.into_iter().map(|id| id.0).collect()
}

#[cfg(test)]
mod tests;
