//! A stage: one view with the state that belongs to it alone. That is its memory, its members'
//! engines and consumers, and the state of the checkers of one view. The state that outlives a view
//! (time, processes, applications) belongs to the world.
use crate::actions::InstallStep;
use crate::apps::Consumer;
use crate::checkers::monotone::Monotone;
use crate::checkers::null_rule::NullRule;
use crate::checkers::primary::Primary;
use crate::checkers::total_order::TotalOrder;
use crate::checkers::uniformity::Uniformity;
use crate::ledger::Ledger;
use crate::plan::Plan;
use crate::seat::Seat;
use crate::table::{Extent, SimTable};
use spindle_core::wire::layout::{entry, membership};
use spindle_core::{Engine, Layout, Order, Rank, RowLayout, SubgroupId, View};
use std::cell::Cell;
use std::rc::Rc;

/// The meaning of a word of a control block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WordMeaning {
    Unused,
    Membership(&'static str, Option<InstallStep>),
    /// The members that it suspects: a suspicion may be withdrawn.
    Suspected,
    Promised,
    Accepted,
    Decided,
    Heartbeat,
    Proposal,
    Entry(SubgroupId, &'static str),
    BySender(SubgroupId, usize),
}

/// A member that has installed the view.
pub(super) struct StageMember {
    pub(super) engine: Engine,
    pub(super) scheduled: bool,
    /// True if the view has ended for it.
    pub(super) has_ended: bool,
    /// True if it has finished with this view, and no subgroup continues here.
    pub(super) finished: bool,
    /// True if it knows how the view ends.
    pub(super) knows_end: bool,
    /// The time at which it asked to be polled even without an event.
    pub(super) alarm: Option<u64>,
    /// Polls that it will still make without work.
    pub(super) spins: u64,
    pub(super) words: Vec<WordMeaning>,
    pub(super) subgroups: u64,
    /// By subgroup: the stable frontier that the trace contains last.
    pub(super) stable: Vec<u64>,
}

pub(super) struct Stage {
    pub(super) view: View,
    pub(super) layout: Layout,
    /// By rank: the member's process.
    pub(super) cast: Vec<usize>,
    /// By rank: the members that have installed the view.
    pub(super) members: Vec<Option<StageMember>>,
    pub(super) tables: Vec<SimTable>,
    /// Stores and posts so far in the current poll.
    pub(super) count: Rc<Cell<u64>>,
    pub(super) consumers: Vec<Consumer>,
    pub(super) ledger: Ledger,
    pub(super) total_order: TotalOrder,
    pub(super) monotone: Monotone,
    pub(super) null_rule: NullRule,
    pub(super) uniformity: Uniformity,
    pub(super) primary: Primary,
}

impl std::fmt::Display for Seat {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "v{} m{}", self.stage + 1, self.rank)
    }
}

impl Stage {
    /// Returns the stage of `view`, which no member has installed yet. `cast` contains the
    /// processes of its members.
    pub(super) fn new(plan: &Plan, view: &View, cast: Vec<usize>) -> Stage {
        let layout = Layout::new(view).expect("a view that was agreed on is well formed");
        let extent = |row: &RowLayout| Extent {
            size: row.size,
            control: row.control,
            membership: row.membership,
            free: row.free(),
        };
        let extents: Vec<Extent> = layout.rows().iter().map(extent).collect();
        let control: Vec<u64> = extents.iter().map(|extent| extent.control).collect();
        let count = Rc::new(Cell::new(0));
        let chance = |rank: Rank| plan.seed ^ u64::from(rank.0) ^ view.id.0 << 32;
        let mid_poll = |rank: Rank| plan.faults.mid_poll_arrivals.then_some(chance(rank));
        let tables = view
            .ranks()
            .map(|me| SimTable::new(me, &extents, !plan.faults.late_copies, mid_poll(me), Rc::clone(&count)));
        let ring =
            |rank: Rank, id| layout.row(rank).subgroup(id).and_then(|place| place.ring).expect("a sender's ring");
        Stage {
            tables: tables.collect(),
            count,
            ledger: Ledger::new(&begun_by(view), ring),
            total_order: TotalOrder::new(view.subgroups.len(), view.members.len()),
            monotone: Monotone::new(&control),
            null_rule: NullRule::new(view.subgroups.iter().map(|spec| spec.senders.len())),
            uniformity: Uniformity::new(view.subgroups.len()),
            primary: Primary::new(view),
            members: view.ranks().map(|_| None).collect(),
            consumers: vec![],
            view: view.clone(),
            layout,
            cast,
        }
    }

    /// Installs the view at the member of `engine`, and hands the deliveries of `hand_offs` to
    /// consumers.
    pub(super) fn install(&mut self, mut engine: Engine, hand_offs: &[SubgroupId]) {
        let me = engine.me();
        for &id in hand_offs {
            if let Some((cursor, handoff)) = engine.hand_off(id) {
                self.consumers.push(Consumer::new(me, id, cursor, handoff));
            }
        }
        self.members[me.index()] = Some(StageMember {
            engine,
            scheduled: false,
            has_ended: false,
            finished: false,
            knows_end: false,
            alarm: None,
            spins: 0,
            words: words_of(&self.layout, &self.view, me),
            subgroups: self.view.subgroups_of(me).count() as u64,
            stable: vec![0; self.view.subgroups.len()],
        });
    }

    /// Returns a member that has installed the view.
    pub(super) fn member(&self, rank: Rank) -> &StageMember {
        self.members[rank.index()].as_ref().expect("it has installed the view")
    }

    pub(super) fn member_mut(&mut self, rank: Rank) -> &mut StageMember {
        self.members[rank.index()].as_mut().expect("it has installed the view")
    }

    /// Returns true if a process sends in a subgroup; None if it is not in the subgroup.
    pub(super) fn role(&self, process: usize, subgroup: SubgroupId) -> Option<bool> {
        let rank = Rank(self.cast.iter().position(|one| *one == process)? as u32);
        let spec = &self.view.subgroups[subgroup.index()];
        spec.members.contains(&rank).then(|| spec.senders.contains(&rank))
    }

    /// Returns all pairs of subgroup and sender rank.
    pub(super) fn lanes(&self) -> Vec<(SubgroupId, usize)> {
        let groups = (0..).map(SubgroupId).zip(&self.ledger.groups);
        groups.flat_map(|(id, group)| (0..group.lanes.len()).map(move |sender| (id, sender))).collect()
    }

    /// Returns the memory of two members.
    pub(super) fn pair(&mut self, from: Rank, to: Rank) -> [&mut SimTable; 2] {
        self.tables.get_disjoint_mut([from.index(), to.index()]).expect("two members")
    }
}

/// A member's copies in their present state; reading them lets nothing arrive.
pub(super) struct Still<'a>(pub(super) &'a SimTable);

impl spindle_core::Rows for Still<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.0.rows[member.index()].word(at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.0.rows[member.index()].slice(at, len)
    }

    type Frames<'a>
        = spindle_core::Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &spindle_core::Ring) -> spindle_core::Lookup<'_, Self> {
        spindle_core::Lookup::new(self, member, ring)
    }
}

/// Returns the view without the members of subgroups whose epoch began earlier.
fn begun_by(view: &View) -> View {
    let mut begun = view.clone();
    for spec in begun.subgroups.iter_mut().filter(|spec| spec.epoch.is_some()) {
        spec.members.clear();
        spec.senders.clear();
    }
    begun
}

fn words_of(layout: &Layout, view: &View, me: Rank) -> Vec<WordMeaning> {
    let mut words = vec![WordMeaning::Unused; layout.row(me).control as usize / 8];
    let mut name = |at: u64, word: WordMeaning| words[at as usize / 8] = word;
    name(membership::FINISHED, WordMeaning::Membership("finished sending", None));
    name(membership::LEFT, WordMeaning::Membership("leaving", None));
    name(membership::ABANDONED, WordMeaning::Membership("gone", None));
    name(membership::HEARTBEAT, WordMeaning::Heartbeat);
    name(membership::CLOSING, WordMeaning::Membership("for ending the view", Some(InstallStep::Wedges)));
    name(membership::COMPLETE, WordMeaning::Membership("showing its logs", None));
    name(membership::LEAVING, WordMeaning::Membership("asking to be left out", None));
    name(membership::PROMISED, WordMeaning::Promised);
    name(membership::ACCEPTED, WordMeaning::Accepted);
    name(membership::DECIDED, WordMeaning::Decided);
    name(membership::PERSISTED, WordMeaning::Membership("with its acceptance on disk", None));
    name(membership::ENDED, WordMeaning::Membership("through with the view", Some(InstallStep::Ends)));
    for i in 0..view.members.len().div_ceil(64) as u64 {
        name(membership::SUSPECTED + 8 * i, WordMeaning::Suspected);
        name(membership::evicting(view.members.len()) + 8 * i, WordMeaning::Suspected);
        name(membership::asking(view.members.len()) + 8 * i, WordMeaning::Suspected);
    }
    for at in (layout.row(me).proposals.start..layout.row(me).touched.end).step_by(8) {
        name(at, WordMeaning::Proposal);
    }
    for (id, spec) in view.subgroups_of(me) {
        let Some(place) = layout.row(me).subgroup(id) else { continue };
        let names = [
            (entry::PUBLISHED, "published"),
            (entry::ROUNDS, "rounds"),
            (entry::SPOKEN, "spoken"),
            (entry::FREED, "freed"),
            (entry::RECEIVED, "received"),
            (entry::DELIVERED, "delivered"),
            (entry::PERSISTED, "persisted"),
            (entry::CLOSED, "closed"),
        ];
        for (at, name) in names {
            words[(place.entry + at) as usize / 8] = WordMeaning::Entry(id, name);
        }
        if spec.order == Order::Fifo {
            for sender in 0..spec.senders.len() {
                words[place.by_sender as usize / 8 + sender] = WordMeaning::BySender(id, sender);
            }
        }
    }
    words
}
