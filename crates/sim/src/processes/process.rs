//! A process: the control plane of the core, and what its driver holds for it.
use super::learning::{App, Learning, Pledged, Sending};
use super::network::Load;
use super::objects::Objects;
use super::rows::Places;
use super::subgroups::Unsent;
use super::watching::{Guest, Watching};
use spindle_core::control::{
    Address, Birth, Bootstrapping, Card, DialError, Install, Me, Member, Purpose, Roster, Seek, Waits,
};
use spindle_core::{Engine, MemberId, SubgroupId, View, ViewId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// A member's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Way {
    /// On this host: its number, and the process of its owner.
    Near(usize, usize),
    /// A connection.
    Stream(usize),
}

/// A letter of a process of this host.
#[derive(Clone, Debug)]
pub(super) struct Near {
    pub(super) letter: Rc<[u8]>,
    pub(super) enclosure: Rc<[u8]>,
    /// The row that goes with it, and its owner's process.
    pub(super) row: Option<(usize, usize)>,
}

/// What has come from the network.
#[derive(Clone, Debug)]
pub(super) enum Heard {
    Reached(Address, Card),
    Delayed(Address, String),
    Lost(Card),
    Failed(Address, Purpose, DialError),
    Stream { with: Card, process: u128, purpose: Purpose, connection: usize, dialled: bool },
    Ended { id: MemberId, incarnation: u128, view: ViewId, answer_within: Duration },
    Answers(Card, u128),
}

/// Letters to one address.
#[derive(Debug)]
pub(super) struct Post {
    pub(super) letters: VecDeque<(Option<MemberId>, Load)>,
    pub(super) state: PostState,
    pub(super) waiting_since: u64,
    pub(super) back_off: u64,
    /// The process that the last connection was made with.
    pub(super) with: Option<Card>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum PostState {
    Trying,
    Pausing(u64),
    Up(usize),
}

/// A table and the streams that fill it.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) incarnation: u128,
    pub(super) view: Arc<View>,
    pub(super) places: Places,
    /// By rank.
    pub(super) streams: Vec<Option<usize>>,
    /// The processes of members of this host, to be woken.
    pub(super) near: Vec<Option<usize>>,
    /// A bit for each rank whose stream continues in the next view, or is not needed any more.
    pub(super) continued: u64,
    /// Bytes of the rows, and of their control blocks.
    pub(super) sizes: Vec<(u64, u64)>,
}

/// The row that was made for a view that has not begun here.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) view: ViewId,
    pub(super) row: usize,
    /// When it was made.
    pub(super) since: u64,
}

/// A view that is over.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) table: Table,
    pub(super) since: u64,
}

/// How far a process is.
#[derive(Debug)]
pub(super) enum Phase {
    Seeks(Seek),
    /// Its first view is about to begin.
    Installs(Box<Install>),
    Member(Box<Member>),
    /// It takes over the state of the application.
    Learns(Box<Learning>),
    /// It observes.
    Watches(Box<Watching>),
    /// It has ended for its group, and ends soon.
    Out,
}

/// How it is learnt that a process, by its number, has ended.
#[derive(Debug)]
pub(super) enum Death {
    /// The kernel tells so, of one that was watched.
    Told(usize),
    /// It had ended when it was to be watched.
    Found(usize),
}

#[derive(Debug)]
pub(super) struct Process {
    pub(super) number: usize,
    pub(super) place: usize,
    pub(super) host: usize,
    pub(super) me: Me,
    /// What tells it from all others.
    pub(super) nonce: u128,
    pub(super) address: Address,
    pub(super) card: Card,
    pub(super) is_alive: bool,
    pub(super) paused_since: u64,
    pub(super) paused_until: u64,
    /// How long its application takes for what this step has handed to it, and until when it does.
    pub(super) busy_ns: u64,
    pub(super) busy_until: u64,
    /// Until when it has no room for descriptors.
    pub(super) full_until: u64,
    pub(super) started: u64,
    pub(super) roster: Roster<Way>,
    pub(super) boot: Option<Bootstrapping>,
    pub(super) phase: Phase,
    pub(super) mailbox: VecDeque<Near>,
    pub(super) heard: VecDeque<Heard>,
    pub(super) deaths: VecDeque<(MemberId, Death)>,
    pub(super) is_displaced: bool,
    /// Letters to processes of this host that have no address now, and when they are tried again.
    pub(super) outbox: VecDeque<(MemberId, Near)>,
    pub(super) tries: BTreeMap<MemberId, (u64, u64)>,
    /// Processes that are reached though their addresses have vanished.
    pub(super) held: BTreeMap<MemberId, usize>,
    pub(super) watched: BTreeMap<MemberId, usize>,
    pub(super) posts: BTreeMap<Address, Post>,
    /// Connections for letters from others.
    pub(super) inlets: BTreeSet<usize>,
    pub(super) table: Option<Table>,
    /// Tables of views that have ended, in which subgroups go on.
    pub(super) older: Vec<Table>,
    pub(super) made: Option<Made>,
    pub(super) over: Vec<Over>,
    /// By subgroup, what is to be sent, or sent again.
    pub(super) unsent: BTreeMap<String, VecDeque<Unsent>>,
    pub(super) sends_at: u64,
    /// What it was told that it waits for.
    pub(super) is_told: bool,
    /// Whether the last answer that it got was that the group can't go on.
    pub(super) knows_blocked: bool,
    /// The last that it was told by what decides about the founding.
    pub(super) waits: Option<Waits>,
    pub(super) is_refused: bool,
    pub(super) is_leaving: bool,
    /// By subgroup, the first message that it has sent since all is calm.
    pub(super) probes: BTreeMap<String, u32>,
    /// Orders of the last second, and the second.
    pub(super) orders: (u64, u64),
    /// Its large messages.
    pub(super) objects: Objects,
    /// What its application has delivered.
    pub(super) app: App,
    /// Processes that follow over streams.
    pub(super) guests: Vec<Guest>,
    /// States that it sends, and those whose connections have yet to stand.
    pub(super) sending: Vec<Sending>,
    pub(super) pledged: Vec<Pledged>,
    /// Connections over which states begin to come, with their views.
    pub(super) incoming: Vec<(ViewId, MemberId, usize)>,
    /// When something went wrong last that concerns it.
    pub(super) troubled: u64,
}

impl Process {
    /// The table of the newest view, or of an older one in which subgroups go on.
    pub(super) fn table_of(&self, view: ViewId) -> Option<&Table> {
        self.older.iter().chain(&self.table).find(|table| table.view.id == view)
    }

    /// Where a subgroup of the newest view stands: the engine and the table with which its epoch began, and its number there.
    pub(super) fn home(&self, subgroup: SubgroupId) -> Option<(&Engine, &Table, SubgroupId)> {
        let Phase::Member(member) = &self.phase else { return None };
        let (engine, id) = member.home(subgroup)?;
        Some((engine, self.table_of(engine.view().id)?, id))
    }
}

/// What tells a process from others that had its number.
pub(super) fn birth(number: usize) -> Birth {
    Birth { namespace: 1, started: number as u64 }
}
