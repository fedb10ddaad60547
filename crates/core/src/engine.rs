//! The engine: all of a member's subgroups, evaluated by one thread, and the posts that result.
//!
//! [`Engine::poll`] never blocks and does bounded work. It stores into my row as it goes, in the order in which peers may
//! see it, and posts at the end: the frames of all subgroups, then one span of control words per peer.
use crate::ablation::Ablation;
use crate::claims::Claims;
use crate::cursor::{Cursor, Handoff};
use crate::fault::Fault;
use crate::ids::{Rank, SubgroupId, Time};
use crate::layout::{Layout, membership};
use crate::stats::{EngineStats, Frontier, SubgroupStats};
use crate::subgroup::{Changes, Subgroup};
use crate::table::Table;
use crate::upcalls::Upcalls;
use crate::view::{View, ViewError};
use alloc::sync::Arc;
use alloc::vec::Vec;

/// What a poll did and when the engine needs the next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Progress {
    /// Whether it found anything to do. Then there may be more to do at once, whatever `wake_at` says.
    pub worked: bool,
    /// When to poll again even if nothing happens; `None` if only an event can bring more work.
    pub wake_at: Option<Time>,
}

/// How the engine stands.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum State {
    /// It works.
    Running,
    /// Every member has finished sending and everything is delivered here.
    Finished,
    /// It has stopped for good.
    Failed(Fault),
}

/// Polls for which a subgroup is looked at every time after it last did something.
const HOT_POLLS: u32 = 64;
/// While others are busy, an idle subgroup is looked at once in so many polls.
const IDLE_SCAN: u64 = 16;

/// The protocol of one member in one view.
#[derive(Debug)]
pub struct Engine {
    view: View,
    layout: Layout,
    me: Rank,
    ablation: Ablation,
    subgroups: Vec<Subgroup>,
    /// Per subgroup, how many more polls it is looked at every time.
    hot: Vec<u32>,
    everyone: Vec<Rank>,
    /// Subgroups whose entries this poll has changed, by index.
    dirty: Vec<usize>,
    /// Scratch: who gets this poll's control post.
    audience: Vec<Rank>,
    last_worked: bool,
    /// The first member that died before it had left.
    dead: Option<Rank>,
    finished: bool,
    all_finished: bool,
    state: State,
    stats: EngineStats,
}

impl Engine {
    /// The engine of the member `me` of `view`. All memory that it will ever need is allocated here.
    ///
    /// # Errors
    /// What [`View::check`] finds.
    ///
    /// # Panics
    /// If `me` is not a rank of the view.
    pub fn new(view: View, me: Rank, ablation: Ablation) -> Result<Engine, ViewError> {
        let layout = Layout::new(&view)?;
        assert!(me.index() < view.members.len(), "rank {me} is not of a view of {}", view.members.len());
        let mine = view.subgroups_of(me).map(|(id, _)| Subgroup::new(&view, &layout, me, id));
        let subgroups: Vec<Subgroup> = mine.collect();
        Ok(Engine {
            hot: alloc::vec![0; subgroups.len()],
            dirty: Vec::with_capacity(subgroups.len()),
            audience: Vec::with_capacity(view.members.len()),
            everyone: view.ranks().collect(),
            view,
            layout,
            me,
            ablation,
            subgroups,
            last_worked: false,
            dead: None,
            finished: false,
            all_finished: false,
            state: State::Running,
            stats: EngineStats::default(),
        })
    }

    /// Does what there is to do.
    pub fn poll<T: Table>(&mut self, now: Time, table: &mut T, upcalls: &mut impl Upcalls<T>) -> Progress {
        self.stats.polls += 1;
        if self.state != State::Running {
            return Progress { worked: false, wake_at: None };
        }
        // Idle subgroups drop out of the scan while others are busy.
        let scan_all = !self.last_worked || self.all_finished || self.stats.polls.is_multiple_of(IDLE_SCAN);
        let mut worked = false;
        let mut pending = false;
        let mut skipped = false;
        for i in 0..self.subgroups.len() {
            if !scan_all && self.hot[i] == 0 {
                skipped = true;
                continue;
            }
            let subgroup = &mut self.subgroups[i];
            let changes = match subgroup.evaluate(table, upcalls, &self.ablation) {
                Ok(changes) => changes,
                Err(fault) => {
                    self.state = State::Failed(fault);
                    return Progress { worked: true, wake_at: None };
                }
            };
            pending |= subgroup.is_pending();
            self.hot[i] = if changes.worked { HOT_POLLS } else { self.hot[i].saturating_sub(1) };
            worked |= changes.worked;
            self.post_data(i, changes, table);
        }
        self.post_control(table);
        if scan_all && let Some(fault) = self.loss(table) {
            self.state = State::Failed(fault);
            return Progress { worked: true, wake_at: None };
        }
        worked |= self.finish(table, worked || skipped);
        self.last_worked = worked;
        self.stats.productive_polls += u64::from(worked);
        // The subgroups that were not looked at may have something, and nothing else will tell.
        let asks = skipped && !crate::planted::planted!(IdleForgotten);
        let again = pending || asks || (self.all_finished && self.state == State::Running && worked);
        Progress { worked, wake_at: again.then_some(now) }
    }

    /// Tells the engine that the fabric knows `member` to be dead. Means nothing if it had left.
    pub fn member_died<T: Table>(&mut self, member: Rank, table: &T) {
        if table.load(member, membership::LEFT) == 0 {
            self.dead.get_or_insert(member);
            // The next poll looks everywhere.
            self.last_worked = false;
        }
    }

    /// Gives the group up: tells the others that I acknowledge nothing more, and in `reason`, which is not 0 and means nothing
    /// here, why. Means nothing once everything is finished.
    pub fn abandon<T: Table>(&mut self, reason: u64, table: &mut T) {
        if self.state != State::Finished {
            self.announce(membership::ABANDONED, reason.max(1), table);
        }
    }

    /// How the engine stands.
    pub fn state(&self) -> &State {
        &self.state
    }

    /// My rank.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// The view.
    pub fn view(&self) -> &View {
        &self.view
    }

    /// Where everything stands in the rows.
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// My ring's claims in `subgroup`; `None` if I don't send there.
    pub fn claims(&self, subgroup: SubgroupId) -> Option<Arc<Claims>> {
        self.subgroup(subgroup)?.claims().cloned()
    }

    /// Hands the deliveries of `subgroup` to a consumer on another thread; `None` if I am not in it.
    ///
    /// # Panics
    /// If the engine has been polled.
    pub fn hand_off(&mut self, subgroup: SubgroupId) -> Option<(Cursor, Arc<Handoff>)> {
        assert_eq!(self.stats.polls, 0, "deliveries are handed off before the first poll");
        let found = self.subgroups.iter_mut().find(|s| s.id() == subgroup)?;
        Some(found.hand_off(&self.view, &self.layout))
    }

    /// Counts of the whole engine.
    pub fn stats(&self) -> EngineStats {
        self.stats
    }

    /// Counts of `subgroup`; `None` if I am not in it.
    pub fn subgroup_stats(&self, subgroup: SubgroupId) -> Option<SubgroupStats> {
        Some(self.subgroup(subgroup)?.stats())
    }

    /// How many places of the order of `subgroup` every member has received, as I know it.
    pub fn stable(&self, subgroup: SubgroupId) -> Option<u64> {
        Some(self.subgroup(subgroup)?.stable())
    }

    /// How far each member of `subgroup` is, as I know it. Who has delivered least holds back the senders.
    pub fn frontiers(&self, subgroup: SubgroupId) -> impl Iterator<Item = (Rank, Frontier)> {
        self.subgroup(subgroup).into_iter().flat_map(Subgroup::frontiers)
    }

    fn subgroup(&self, id: SubgroupId) -> Option<&Subgroup> {
        self.subgroups.iter().find(|s| s.id() == id)
    }

    fn post_data<T: Table>(&mut self, index: usize, changes: Changes, table: &mut T) {
        self.stats.data_posts += changes.data_posts;
        self.stats.control_posts += changes.control_posts;
        if !changes.entry {
            return;
        }
        self.dirty.push(index);
        if crate::planted::planted!(ControlBeforeData) {
            table.post(self.subgroups[index].members(), self.subgroups[index].entry());
        }
        if !changes.data.is_empty() {
            table.post(self.subgroups[index].members(), changes.data);
            self.stats.data_posts += 1;
        }
    }

    fn post_control<T: Table>(&mut self, table: &mut T) {
        match self.dirty[..] {
            [] => return,
            [first, .., last] if self.ablation.coalesced_control => {
                // One span over all changed entries; a peer that shares only some of them gets the others' words too,
                // and reads none of them.
                let span = self.subgroups[first].entry().start..self.subgroups[last].entry().end;
                self.audience.clear();
                for rank in &self.everyone {
                    if self.dirty.iter().any(|&i| self.subgroups[i].members().binary_search(rank).is_ok()) {
                        self.audience.push(*rank);
                    }
                }
                table.post(&self.audience, span);
                self.stats.control_posts += 1;
            }
            _ => {
                for &i in &self.dirty {
                    table.post(self.subgroups[i].members(), self.subgroups[i].entry());
                    self.stats.control_posts += 1;
                }
            }
        }
        self.dirty.clear();
    }

    /// The end of a group: when everybody has finished sending and I have delivered everything, I leave.
    fn finish<T: Table>(&mut self, table: &mut T, worked: bool) -> bool {
        if worked {
            return false;
        }
        if !self.finished {
            if !self.subgroups.iter().all(Subgroup::has_finished_sending) {
                return false;
            }
            self.finished = true;
            self.announce(membership::FINISHED, 1, table);
            return true;
        }
        if !self.all_finished {
            let finished = |rank: &Rank| table.load(*rank, membership::FINISHED) != 0;
            self.all_finished = self.everyone.iter().all(finished);
            // The next poll looks at every subgroup once more, now that nobody announces anything new.
            return self.all_finished;
        }
        if !self.subgroups.iter().all(Subgroup::has_delivered_all) {
            return false;
        }
        self.announce(membership::LEFT, 1, table);
        self.state = State::Finished;
        true
    }

    /// Who is lost to the group: dead, or gone of its own will. Means nothing to a member that needs nobody any more.
    fn loss<T: Table>(&self, table: &T) -> Option<Fault> {
        let is_set = |word: u64| move |rank: &Rank| table.load(*rank, word) != 0;
        let abandoned = self.everyone.iter().copied().find(is_set(membership::ABANDONED));
        let fault = match (self.dead, abandoned) {
            (Some(member), _) => Fault::Died { member },
            (None, Some(member)) => Fault::Abandoned { member },
            (None, None) => return None,
        };
        // Looked at before the flags are, the counters may be behind them: then the next poll tells.
        let done = self.subgroups.iter().all(Subgroup::has_received_all);
        let alone = done && self.everyone.iter().all(is_set(membership::FINISHED));
        (!alone).then_some(fault)
    }

    fn announce<T: Table>(&mut self, word: u64, value: u64, table: &mut T) {
        table.store(word, value);
        table.post(&self.everyone, word..word + 8);
        self.stats.control_posts += 1;
    }
}
