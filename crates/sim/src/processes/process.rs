//! A process: the control plane of the core, and the state that its driver holds for it.
use super::learning::{AppState, Learning, Pledged, StateSending};
use super::logs::{ProcessLog, RecordArrival, RecordSending};
use super::network::PacketLoad;
use super::objects::ProcessObjects;
use super::rows::RowPlaces;
use super::subgroups::Unsent;
use super::watching::{ObserverStream, Watching};
use spindle_core::control::{
    Address, Birth, Bootstrapping, Card, DialError, Install, Me, Member, NoRecords, Purpose, Roster, SeedWait, Seek,
    SharedSettings,
};
use spindle_core::{Engine, MemberId, SubgroupId, View, ViewId};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The access to a member's row.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum RowAccess {
    /// The row is on this host: its number, and the process of its owner.
    Near(usize, usize),
    /// The row arrives over this connection.
    Stream(usize),
}

/// A control message of a process of this host.
#[derive(Clone, Debug)]
pub(super) struct Near {
    pub(super) message: Rc<[u8]>,
    pub(super) attachment: Rc<[u8]>,
    /// The row that the message carries, and its owner's process.
    pub(super) row: Option<(usize, usize)>,
}

/// An event from the network.
#[derive(Clone, Debug)]
pub(super) enum NetworkEvent {
    Reached(Address, Card),
    Delayed(Address, String),
    Lost(Card),
    Failed(Address, Purpose, DialError),
    Stream { with: Card, process: u128, purpose: Purpose, connection: usize, dialled: bool },
    Ended { id: MemberId, incarnation: u128, view: ViewId, answer_within: Duration },
    Answers(Card, u128),
}

/// Control messages to one address.
#[derive(Debug)]
pub(super) struct ControlQueue {
    pub(super) messages: VecDeque<(Option<MemberId>, PacketLoad)>,
    pub(super) state: ControlQueueState,
    pub(super) waiting_since: u64,
    pub(super) back_off: u64,
    /// The process to which the last connection was made.
    pub(super) with: Option<Card>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ControlQueueState {
    Trying,
    Pausing(u64),
    Up(usize),
}

/// A table and the streams that fill it.
#[derive(Clone, Debug)]
pub(super) struct StreamedTable {
    pub(super) incarnation: u128,
    pub(super) view: Arc<View>,
    pub(super) places: RowPlaces,
    /// By rank.
    pub(super) streams: Vec<Option<usize>>,
    /// The processes of members of this host, which posts wake.
    pub(super) near: Vec<Option<usize>>,
    /// A bit mask of the ranks whose stream continues in the next view, or is no longer needed.
    pub(super) continued: u64,
    /// The sizes of the rows and of their control blocks in bytes.
    pub(super) sizes: Vec<(u64, u64)>,
}

/// The preallocated row for a view that has not begun here.
#[derive(Debug)]
pub(super) struct Made {
    pub(super) view: ViewId,
    pub(super) row: usize,
    /// The time at which it was made.
    pub(super) since: u64,
}

/// A view that is over.
#[derive(Debug)]
pub(super) struct EndedView {
    pub(super) table: StreamedTable,
    pub(super) since: u64,
}

/// The state of a process.
#[derive(Debug)]
pub(super) enum ProcessPhase {
    Seeks(Box<Seek>),
    /// Its first view is about to begin.
    Installs(Box<Install>),
    Member(Box<Member>),
    /// It receives the state of the application.
    Learns(Box<Learning>),
    /// It observes.
    Watches(Box<Watching>),
    /// It has left its group, and ends soon.
    Out,
}

/// The way in which a process learns that another one, by its number, has ended.
#[derive(Debug)]
pub(super) enum DeathNotice {
    /// The kernel reports the end of a watched process.
    Reported(usize),
    /// The process had already ended when the watch was to begin.
    Found(usize),
}

#[derive(Debug)]
pub(super) struct SimProcess {
    pub(super) number: usize,
    pub(super) place: usize,
    pub(super) host: usize,
    pub(super) me: Me,
    /// The number that distinguishes it from all other processes.
    pub(super) nonce: u128,
    pub(super) address: Address,
    pub(super) card: Card,
    pub(super) is_alive: bool,
    /// How far its clock is off, in ns.
    pub(super) clock: i64,
    pub(super) paused_since: u64,
    pub(super) paused_until: u64,
    /// The time that its application needs for the deliveries of this step, and the time until
    /// which the application is busy.
    pub(super) busy_ns: u64,
    pub(super) busy_until: u64,
    /// The time until which it has no room for descriptors.
    pub(super) full_until: u64,
    pub(super) started: u64,
    pub(super) roster: Roster<RowAccess>,
    pub(super) boot: Option<Bootstrapping>,
    pub(super) phase: ProcessPhase,
    pub(super) control_socket: VecDeque<Near>,
    pub(super) heard: VecDeque<NetworkEvent>,
    pub(super) deaths: VecDeque<(MemberId, DeathNotice)>,
    pub(super) is_displaced: bool,
    /// Control messages to processes of this host that have no address now, and the times of the
    /// next attempts.
    pub(super) outbox: VecDeque<(MemberId, Near)>,
    pub(super) tries: BTreeMap<MemberId, (u64, u64)>,
    /// Processes that can be reached although their addresses have vanished.
    pub(super) held: BTreeMap<MemberId, usize>,
    pub(super) watched: BTreeMap<MemberId, usize>,
    pub(super) posts: BTreeMap<Address, ControlQueue>,
    /// Incoming connections for control messages.
    pub(super) inlets: BTreeSet<usize>,
    pub(super) table: Option<StreamedTable>,
    /// Tables of ended views in which subgroups continue.
    pub(super) older: Vec<StreamedTable>,
    pub(super) made: Option<Made>,
    pub(super) over: Vec<EndedView>,
    /// By subgroup: the messages to send, or to send again.
    pub(super) unsent: BTreeMap<String, VecDeque<Unsent>>,
    pub(super) sends_at: u64,
    /// True if it has reported what it waits for.
    pub(super) is_told: bool,
    /// The settings with which the process takes part: its own, or those that it has adopted.
    pub(super) settings: SharedSettings,
    /// True if the last answer that it got was that the group can't continue.
    pub(super) knows_blocked: bool,
    /// The last report of its bootstrap.
    pub(super) waits: Option<SeedWait>,
    pub(super) is_refused: bool,
    pub(super) is_leaving: bool,
    /// By subgroup: the first message that it has sent since all faults are over.
    pub(super) probes: BTreeMap<String, u32>,
    /// The number of orders in the last second, and that second.
    pub(super) orders: (u64, u64),
    /// Its large messages.
    pub(super) objects: ProcessObjects,
    /// The deliveries of its application.
    pub(super) app: AppState,
    /// Processes that observe or learn over streams.
    pub(super) observers: Vec<ObserverStream>,
    /// States that it sends, and pending ones whose connections are not yet established.
    pub(super) sending: Vec<StateSending>,
    pub(super) pledged: Vec<Pledged>,
    /// Connections over which states begin to arrive, with their views.
    pub(super) incoming: Vec<(ViewId, MemberId, usize)>,
    /// The time of the last fault that concerns it.
    pub(super) troubled: u64,
    /// By subgroup: its logs. The records are on the disk of its place.
    pub(super) logs: BTreeMap<String, ProcessLog>,
    /// True if it has opened the disk of its place.
    pub(super) has_logs: bool,
    /// True if nothing more reaches its disk.
    pub(super) disk_failed: bool,
    /// Records that it sends, those that come, and refusals to send some.
    pub(super) record_sendings: Vec<RecordSending>,
    pub(super) record_arrivals: Vec<RecordArrival>,
    pub(super) no_records: Vec<(MemberId, u64, NoRecords)>,
}

impl SimProcess {
    /// Returns the table of the newest view, or of an older one in which subgroups continue.
    pub(super) fn table_of(&self, view: ViewId) -> Option<&StreamedTable> {
        self.older.iter().chain(&self.table).find(|table| table.view.id == view)
    }

    /// Returns the home of a subgroup of the newest view: the engine and the table with which its
    /// epoch began, and its number there.
    pub(super) fn home(&self, subgroup: SubgroupId) -> Option<(&Engine, &StreamedTable, SubgroupId)> {
        let ProcessPhase::Member(member) = &self.phase else { return None };
        let (engine, id) = member.home(subgroup)?;
        Some((engine, self.table_of(engine.view().id)?, id))
    }
}

/// Returns the birth of a process, which distinguishes it from others that had its number.
pub(super) fn birth(number: usize) -> Birth {
    Birth { namespace: 1, started: number as u64 }
}
