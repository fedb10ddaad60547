//! The settings that a process needs before it joins: the group, the number of its founders,
//! and its subgroups.
use crate::error::JoinError;
use spindle_core::control::Adoption;
use spindle_core::wire::ring::HEADER_BYTES;
use spindle_core::{Ablation, Durability, MemberId, Order, Rank, Rule, SubgroupSpec, View, ViewId, limits};
use spindle_fabric::WallClock;
use spindle_log::limits::LOG_NAME_BYTES_MAX;
use spindle_transport::rendezvous::{GroupName, RuntimeDir};
use std::path::PathBuf;
use std::time::Duration;

mod network;
mod shared_settings;
mod terms;

pub use network::{Network, Transport};
pub(crate) use shared_settings::take_over;
#[cfg(feature = "settings")]
pub(crate) use shared_settings::{LOGGED, LOGGED_BEFORE_DELIVERY, SUBGROUPS, key_of};
pub(crate) use terms::Terms;

/// How to join a group. All members of a group give the same `group`, `founders` and `subgroups`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The group's name: 1 to 64 alphanumeric ASCII characters, `.`, `_` and `-`. Groups of
    /// different users are separate.
    pub group: String,
    /// The number of members that create the group. No message is sent before all of them are
    /// present. A process joins a running group whatever this number is.
    pub founders: u32,
    /// This member's id, unique in the group. By default it is the smallest id, from 1, that no
    /// member has had in the group, or a random id in a group that spans hosts; with the logs of an
    /// earlier process, it is the id of that process. A process that asks
    /// for the id of a member that died waits until the others have continued without that member.
    /// The ranks of the founders follow their ids; later members come after them.
    pub id: Option<MemberId>,
    /// The subgroups; at least one.
    pub subgroups: Vec<Subgroup>,
    /// How long to wait for the others before [`JoinError`] reports the missing ones. A process that
    /// [learns](Config::learn) waits that long for each part of the state, not for the whole.
    pub gather_timeout: Duration,
    /// The rendezvous directory, the same for all members. Only its user can enter it. By default
    /// `/tmp/spindle-UID`, in the library as in the command.
    pub runtime_dir: Option<PathBuf>,
    /// How long the polling thread looks for work before it sleeps.
    ///
    /// `Duration::MAX` is *polling*: the thread occupies a core. `Duration::ZERO` is *interrupt*:
    /// each wait is a sleep, which a peer or thread with work ends. Anything between is *hybrid*. A
    /// higher value costs idle CPU; a lower value costs a wake-up (some 10 µs, more between hosts)
    /// more often. If another thread wants the same core, the polling thread yields between looks.
    /// If that thread keeps the core, the polling thread sleeps at once.
    pub spin_for: Duration,
    /// The silence after which a live member counts as hung. The others then evict it and continue
    /// without it. Deaths are known at once. A lower value finds hung members sooner; pauses of
    /// nine tenths of the value are safe. `None`: only deaths count. The same for all members.
    /// Without a [`network`](Self::network), the silence of a member counts only while another
    /// member waits for it.
    pub suspect_after: Option<Duration>,
    /// The longest message that is sent as an [object](crate::Publisher::send_object), in bytes; 0
    /// permits none. Each member has memory for a few of them. The same for all members.
    pub object_bytes_max: u64,
    /// How far the wall clocks of members may differ. `None`: by any time. The same for all members.
    ///
    /// The times of a log never fall, so a member whose clock is wrong by a year would move them ahead
    /// by a year, for good. A process whose clock differs from that of the members by more is refused
    /// with [`Refusal::Clock`](spindle_core::control::Refusal::Clock). If the clock of a member steps by
    /// more while it runs, the member sends with the time that has passed instead
    /// ([`ClockStatus`](crate::ClockStatus)). Both hold for processes with a
    /// [data directory](Self::data_dir). Default: 5 min, which machines meet whose clocks were set by hand.
    /// A lower value refuses more machines; with a higher one the times of a log say less.
    pub clock_skew_max: Option<Duration>,
    /// The wall clock of this process: that of the system, unless a test shifts it.
    pub clock: WallClock,
    /// How members on different hosts find and reach each other. `None`: all members are on this
    /// host. Either all members have a network or none has.
    pub network: Option<Network>,
    /// The directory of what this process keeps on disk.
    ///
    /// A member of a group with [logged](Subgroup::durability) subgroups stores its logs there, in
    /// `log`. A process that joins a living group continues the logs of an earlier process of the same
    /// member, and gets the records that they lack from the other members. A seed stores its votes there while a group between hosts is created, if the directory
    /// was [initialised](crate::initialise_data_dir). A majority of such seeds then creates the
    /// group; without it, every seed has to answer. Other processes need no directory.
    pub data_dir: Option<PathBuf>,
    /// The files of the logs in the data directory, and how much of them this process keeps.
    pub log: LogSettings,
    /// The [incarnation](crate::Node::incarnation) of a group between hosts that may live and that
    /// this process was a member of. The process then looks for a group and creates none.
    pub was_member_of: Option<u128>,
    /// Forces the creation of a group between hosts, as an operator's decision.
    ///
    /// This process and those that wait with it create the group as soon as they are
    /// [enough](Self::founders), although not every seed answers, or a group was created before. Set
    /// it for one process only, when all members of the earlier group have ended. Otherwise the
    /// earlier group continues elsewhere beside the new one.
    pub force_create: bool,
    /// Members of the last view that are lost for good, as an operator's decision. A group whose
    /// processes have all ended restarts from its logs when all members of its last view are back.
    /// With this it restarts without these members, if the process that leads the restart (on one
    /// host the first to start) has the list. Messages that no other member has on disk are lost with
    /// them. A member that is named and is there holds the restart.
    pub lost: Vec<MemberId>,
    /// Whether this process adopts the shared settings of a running group: the subgroups,
    /// [`suspect_after`](Self::suspect_after), [`object_bytes_max`](Self::object_bytes_max) and
    /// [`clock_skew_max`](Self::clock_skew_max).
    ///
    /// By default it does not: the code of a program relies on its subgroups and message sizes.
    /// With other settings than those of the group, [`join`](Self::join) then fails with
    /// [`JoinError::OtherSettings`], which has each difference. A program that adopts finds the
    /// group's subgroups in [`Node::view`](crate::Node::view); a smaller message size there makes
    /// longer messages objects, or refuses them.
    ///
    /// Processes that only wait to create a group never adopt each other's settings. They report
    /// the differences in their [progress](crate::BootstrapProgress), and wait.
    pub adoption: Adoption,
    /// Optimisations to switch off, for measuring.
    pub ablation: Ablation,
}

/// The files of a member's logs. Segments are pruned, the oldest first, once a bound allows it; the
/// newest segment always stays.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LogSettings {
    /// The bytes of a segment, a multiple of 4,096. A log has one segment that is not full, and a
    /// spare one, so that no message waits until a file is made.
    pub segment_bytes: u64,
    /// The bytes that the log of a subgroup may have. `None`: any number.
    pub bytes_max: Option<u64>,
    /// The age of the messages that are kept, by this host's clock. `None`: any age.
    pub age_max: Option<Duration>,
    /// How long a group that finishes waits for this member's disk, if that takes nothing: it is
    /// full, or does not answer. After that this member ends with
    /// [`Ended::LogFull`](crate::Ended::LogFull) or [`Ended::Log`](crate::Ended::Log), and the
    /// others finish. Default: 60 s. A lower value leaves less time to free space.
    pub wait_max: Duration,
    /// How long the members of the last view that have come wait for the others when the group restarts, if
    /// they can continue without them: a majority on several hosts, with all that is durable. `None`: until all
    /// are back. Default: 10 s. The members that come later join. Messages that are not durable may be lost with the
    /// others.
    pub restart_wait: Option<Duration>,
}

impl LogSettings {
    pub(crate) fn files(&self) -> spindle_log::Config {
        spindle_log::Config { segment_bytes: self.segment_bytes, ..spindle_log::Config::default() }
    }
}

impl Default for LogSettings {
    fn default() -> LogSettings {
        LogSettings {
            segment_bytes: 64 << 20,
            bytes_max: None,
            age_max: None,
            wait_max: Duration::from_secs(60),
            restart_wait: Some(Duration::from_secs(10)),
        }
    }
}

/// One subgroup: a stream of messages with an order of its own.
#[derive(Clone, Debug)]
pub struct Subgroup {
    /// The name, unique in the group.
    pub name: String,
    /// The members of the subgroup.
    pub members: Who,
    /// The members that send. Members that never send cost the others nothing; those that send
    /// rarely cost nulls.
    pub senders: Who,
    /// The order of delivery.
    pub order: Order,
    /// How many undelivered messages of the largest size each sender may have. A larger window
    /// rides out longer pauses of a member. The ring takes about `window * (message_bytes_max +
    /// 16)` bytes, and is fastest while it fits into a core's cache.
    pub window: u64,
    /// The largest message that is stored in a ring, in bytes. Longer messages are
    /// [objects](crate::Publisher::send_object), if this is at least 24.
    pub message_bytes_max: u64,
    /// Where messages are kept, and whether they are delivered [before they are
    /// durable](Durability::LoggedBeforeDelivery). A [logged](Durability::Logged) subgroup needs a
    /// [data directory](Config::data_dir) at each member, is totally ordered, and its objects have at most
    /// [`LOGGED_MESSAGE_BYTES_MAX`](Self::LOGGED_MESSAGE_BYTES_MAX) bytes.
    pub durability: Durability,
}

/// A selection of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// All members.
    All,
    /// The first members by rank, as many as given.
    First(u32),
    /// The members with these ranks.
    Ranks(Vec<u32>),
    /// One shard of several. It is meant for [members](Subgroup::members); as a selection of
    /// senders it means all. The subgroups with the same `set` divide the group's members among
    /// them, and keep them as members come and go.
    Shard {
        /// The set of shards that this one belongs to.
        set: u32,
        /// The least number of members. With fewer, the shard is unavailable: no member may send in
        /// it.
        least: u32,
        /// The largest number of members.
        most: u32,
    },
}

impl Config {
    /// The default [largest difference of clocks](Self::clock_skew_max).
    pub const CLOCK_SKEW_MAX: Duration = Duration::from_secs(300);

    /// Returns the configuration of a group with one subgroup, "all", in which all members send up
    /// to [`Subgroup::MESSAGE_BYTES_MAX`] bytes.
    pub fn new(group: impl Into<String>, founders: u32) -> Config {
        Config {
            group: group.into(),
            founders,
            id: None,
            subgroups: vec![Subgroup::new("all")],
            gather_timeout: Duration::from_secs(60),
            runtime_dir: None,
            spin_for: Duration::from_millis(1),
            suspect_after: Some(Duration::from_secs(1)),
            object_bytes_max: 1 << 30,
            clock_skew_max: Some(Config::CLOCK_SKEW_MAX),
            clock: WallClock::default(),
            network: None,
            data_dir: None,
            log: LogSettings::default(),
            was_member_of: None,
            force_create: false,
            lost: vec![],
            adoption: Adoption::Never,
            ablation: Ablation::default(),
        }
    }

    /// Returns the runtime directory and the name of the group.
    pub(crate) fn place(&self) -> Result<(RuntimeDir, GroupName), JoinError> {
        let dir = self.runtime_dir.clone().unwrap_or_else(RuntimeDir::default_path);
        Ok((RuntimeDir::new(dir)?, GroupName::new(&self.group)?))
    }

    /// Whether this process may have logs, so that its clock matters.
    pub(crate) fn may_log(&self) -> bool {
        self.data_dir.is_some() || self.subgroups.iter().any(Subgroup::is_logged)
    }

    /// Refuses a configuration that makes no valid view.
    pub(crate) fn check(&self) -> Result<(), JoinError> {
        if self.subgroups.is_empty() {
            return Err(JoinError::NoSubgroup);
        }
        if self.founders == 0 || self.founders as usize > limits::MEMBERS_MAX {
            return Err(JoinError::Founders { got: self.founders });
        }
        self.view((1..=u64::from(self.founders)).map(MemberId).collect()).check()?;
        let logged = || self.subgroups.iter().filter(|subgroup| subgroup.is_logged());
        if let Some(long) = logged().find(|subgroup| subgroup.name.len() > LOG_NAME_BYTES_MAX) {
            let (subgroup, bytes) = (long.name.clone(), long.name.len() as u64);
            return Err(JoinError::LogName { subgroup, bytes });
        }
        match logged().next() {
            Some(logged) if self.data_dir.is_none() => Err(JoinError::NoDataDir { subgroup: logged.name.clone() }),
            Some(_) => Ok(self.log.files().check()?),
            None => Ok(()),
        }
    }

    /// Returns the first view of the group, with the given members by rank.
    pub(crate) fn view(&self, members: Vec<MemberId>) -> View {
        let count = members.len() as u32;
        let everyone: Vec<Rank> = (0..count).map(Rank).collect();
        let subgroups = self.subgroups.iter().map(|s| s.spec(&members, &everyone)).collect();
        let mut view = View { id: ViewId(1), members, nonvoters: vec![], subgroups };
        view.share_out();
        view
    }
}

impl Subgroup {
    /// The default [window](Subgroup::window).
    pub const WINDOW: u64 = 100;
    /// The default [longest message](Subgroup::message_bytes_max) of a ring, in bytes.
    pub const MESSAGE_BYTES_MAX: u64 = 10_000;

    /// The longest message of a [logged](Durability::Logged) subgroup, if
    /// [`object_bytes_max`](Config::object_bytes_max) allows it, in bytes. The polling thread copies a message to
    /// the log at once, and must not count as hung meanwhile.
    pub const LOGGED_MESSAGE_BYTES_MAX: u64 = 256 << 20;

    /// Returns the window with which a ring for longest messages of so many bytes takes as much
    /// memory as a default ring does, 1 MB; at least 4.
    pub const fn window_for(message_bytes_max: u64) -> u64 {
        const RING_BYTES: u64 = Subgroup::WINDOW * (Subgroup::MESSAGE_BYTES_MAX + HEADER_BYTES);
        const WINDOW_MIN: u64 = 4;
        let window = RING_BYTES / message_bytes_max.saturating_add(HEADER_BYTES);
        if window < WINDOW_MIN { WINDOW_MIN } else { window }
    }

    /// Returns a totally ordered subgroup in which all members send up to
    /// [`MESSAGE_BYTES_MAX`](Self::MESSAGE_BYTES_MAX) bytes, with a window of
    /// [`WINDOW`](Self::WINDOW) messages.
    pub fn new(name: impl Into<String>) -> Subgroup {
        Subgroup {
            name: name.into(),
            members: Who::All,
            senders: Who::All,
            order: Order::Total,
            window: Subgroup::WINDOW,
            message_bytes_max: Subgroup::MESSAGE_BYTES_MAX,
            durability: Durability::InMemory,
        }
    }

    /// Whether its messages are kept in logs.
    pub(crate) fn is_logged(&self) -> bool {
        self.durability.copies().is_some()
    }

    /// Returns the default number of [copies](Durability::Logged) in a group with so many founders:
    /// more than half.
    pub const fn durable_copies_for(founders: u32) -> u32 {
        founders / 2 + 1
    }

    fn spec(&self, ids: &[MemberId], everyone: &[Rank]) -> SubgroupSpec {
        // The members of a shard depend on the other shards.
        let is_shard = matches!(self.members, Who::Shard { .. });
        let members = if is_shard { Vec::new() } else { self.members.of(everyone) };
        SubgroupSpec {
            member_rule: self.members.rule(ids),
            sender_rule: self.senders.rule(ids),
            name: self.name.clone(),
            senders: self.senders.of(&members),
            members,
            order: self.order,
            window: self.window,
            message_bytes_max: self.message_bytes_max,
            leftover_bytes_max: 0,
            durability: self.durability,
            clock: 0,
            epoch: None,
        }
    }
}

impl Who {
    /// Returns the rule for the members in later views. Ranks mean the members that have them now.
    fn rule(&self, ids: &[MemberId]) -> Rule {
        match self {
            Who::All => Rule::Everyone,
            Who::First(count) => Rule::First(*count),
            Who::Ranks(ranks) => {
                let listed = ranks.iter().filter_map(|rank| ids.get(*rank as usize));
                Rule::Only(listed.copied().collect())
            }
            Who::Shard { set, least, most } => Rule::Shard { set: *set, least: *least, most: *most },
        }
    }

    fn of(&self, from: &[Rank]) -> Vec<Rank> {
        match self {
            Who::All | Who::Shard { .. } => from.to_vec(),
            Who::First(count) => from.iter().copied().take(*count as usize).collect(),
            Who::Ranks(ranks) => {
                let mut ranks: Vec<Rank> = ranks.iter().copied().map(Rank).collect();
                ranks.sort_unstable();
                ranks.dedup();
                ranks
            }
        }
    }
}
