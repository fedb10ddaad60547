//! What a member says before it joins: the group, how many found it, and its subgroups.
use crate::network::{Network, Transport};
use spindle_core::control::ANY_CONFIG;
use spindle_core::{Ablation, MemberId, Order, Rank, Rule, SubgroupSpec, View, ViewId};
use std::path::PathBuf;
use std::time::Duration;

/// How to join a group. All members of a group give the same `group`, `members` and `subgroups`.
#[derive(Clone, Debug)]
pub struct Config {
    /// The group's name: 1 to 64 letters, digits, `.`, `_` and `-`. Groups of different users don't meet.
    pub group: String,
    /// How many members found the group: nothing is sent before all of them are there. A group that runs is joined whatever this
    /// says.
    pub members: u32,
    /// This member's id, unique in the group; by default the smallest, from 1, that nobody has had in it, or a random one in a group that
    /// spans hosts. Who asks for the id of a
    /// member that died waits until the others have gone on without that one. The founders' ranks follow their ids; later members
    /// come behind them.
    pub id: Option<u64>,
    /// The subgroups; at least one.
    pub subgroups: Vec<Subgroup>,
    /// How long to wait for the others before [`JoinError`](crate::JoinError) tells who is missing. Who [learns](Config::learn) waits
    /// that long for each part of the state, not for the whole.
    pub gather_timeout: Duration,
    /// Where members meet: a directory that only its user can enter, the same for all members. By default
    /// `spindle-<uid>` in the directory for temporary files.
    pub runtime_dir: Option<PathBuf>,
    /// How long the polling thread looks for work before it sleeps: how it waits. `Duration::MAX` is *polling*: it takes a core for
    /// itself. `Duration::ZERO` is *interrupt*: each wait is a sleep, which whoever has something ends. Anything between is *hybrid*:
    /// more costs idle CPU, less costs a wake-up (some 10 µs, more between hosts) more often. Where another thread wants the same core it gives way between looks, and where that thread keeps
    /// the core it sleeps at once.
    pub spin_for: Duration,
    /// The silence after which a member that lives is taken for hung, and the others go on without it: it is evicted. Deaths are
    /// known at once. Shorter finds hung members sooner; pauses of nine tenths of it are safe. `None`: only deaths count. The same for
    /// all members. Without a [`network`](Self::network) the silence of a member counts while another waits for it.
    pub suspect_after: Option<Duration>,
    /// The longest message that is sent as an [object](crate::Publisher::send_object), in bytes; 0: none are. Each member has memory for a few of
    /// them. The same for all members.
    pub object_bytes_max: u64,
    /// How members on different hosts find and reach each other. `None`: all are on this one. The same for all members in that.
    pub network: Option<Network>,
    /// Where a seed keeps its votes while a group between hosts is founded, if it was [initialised](crate::initialise_data_dir). Then a
    /// majority of such seeds founds the group. Without it every seed has to answer. Others than seeds need none.
    pub data_dir: Option<PathBuf>,
    /// The [incarnation](crate::Node::incarnation) of the group between hosts that this process was a member of and that may live: it looks
    /// for a group and founds none.
    pub was_member_of: Option<u128>,
    /// An operator's word: a group between hosts is founded by this process and those that wait with it, as soon as they are
    /// [enough](Self::members), although not every seed answers, or a group was founded before. To be given to one process,
    /// when all members of that group have ended: a group that lives elsewhere continues beside the new one.
    pub found: bool,
    /// Optimisations to switch off, for measuring.
    pub ablation: Ablation,
}

/// One subgroup: a stream of messages with an order of its own.
#[derive(Clone, Debug)]
pub struct Subgroup {
    /// Its name, unique in the group.
    pub name: String,
    /// Who is in it.
    pub members: Who,
    /// Who of those sends. Members that never send cost the others nothing; those that send rarely cost nulls.
    pub senders: Who,
    /// The order of delivery.
    pub order: Order,
    /// Messages of the largest size that each sender may have on the way. More rides out longer pauses of a member; the
    /// ring takes about `window * (message_bytes_max + 16)` bytes, and runs fastest while that fits a core's cache.
    pub window: u64,
    /// The largest message that stands in a ring, in bytes. Longer ones are [objects](crate::Publisher::send_object), if this is at least 24.
    pub message_bytes_max: u64,
}

/// A choice of members.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// Everybody.
    All,
    /// The first so many, by rank.
    First(u32),
    /// These ranks.
    Ranks(Vec<u32>),
    /// For [members](Subgroup::members) only, of senders it means all: one shard of several. The subgroups with the same `set` share the group's
    /// members among them, and keep them, however these come and go.
    Shard {
        /// Which shards belong together.
        set: u32,
        /// With fewer members the shard is unavailable: nobody may send in it.
        least: u32,
        /// It never has more.
        most: u32,
    },
}

impl Config {
    /// The configuration of a group with one subgroup, called "all", in which everybody sends up to 10,000 bytes.
    pub fn new(group: impl Into<String>, members: u32) -> Config {
        Config {
            group: group.into(),
            members,
            id: None,
            subgroups: vec![Subgroup::new("all")],
            gather_timeout: Duration::from_secs(60),
            runtime_dir: None,
            spin_for: Duration::from_millis(1),
            suspect_after: Some(Duration::from_secs(1)),
            object_bytes_max: 1 << 30,
            network: None,
            data_dir: None,
            was_member_of: None,
            found: false,
            ablation: Ablation::default(),
        }
    }

    /// The first view of the group, with the given members by rank.
    pub(crate) fn view(&self, members: Vec<MemberId>) -> View {
        let count = members.len() as u32;
        let everyone: Vec<Rank> = (0..count).map(Rank).collect();
        let subgroups = self.subgroups.iter().map(|s| s.spec(&members, &everyone)).collect();
        let mut view = View { id: ViewId(1), members, nonvoters: vec![], subgroups };
        view.share_out();
        view
    }

    /// A number that differs, in all likelihood, when anything differs that members must agree on.
    pub(crate) fn digest(&self) -> u64 {
        // FNV-1a over the version, which decides how the view is laid out, and the debug form of what has to be alike.
        let transport = match self.network.as_ref().map(|network| &network.transport) {
            None => "false".to_string(),
            Some(Transport::Tcp) => "true".to_string(),
            Some(Transport::Ofi(options)) => format!("{:?} of libfabric", options.provider),
        };
        let version = env!("CARGO_PKG_VERSION");
        let Config { suspect_after, object_bytes_max, subgroups, .. } = self;
        let text = format!("{version} {suspect_after:?} {object_bytes_max} {subgroups:?} {transport}");
        text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x100_0000_01b3))
    }

    /// What an observer of this configuration shows.
    pub(crate) fn observer_digest(&self) -> u64 {
        if self.subgroups.is_empty() { ANY_CONFIG } else { self.digest() }
    }
}

impl Subgroup {
    /// A totally ordered subgroup in which everybody sends up to 10,000 bytes, 100 messages at a time.
    pub fn new(name: impl Into<String>) -> Subgroup {
        Subgroup {
            name: name.into(),
            members: Who::All,
            senders: Who::All,
            order: Order::Total,
            window: 100,
            message_bytes_max: 10_000,
        }
    }

    fn spec(&self, ids: &[MemberId], everyone: &[Rank]) -> SubgroupSpec {
        // Who is in a shard depends on the others.
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
            epoch: None,
        }
    }
}

impl Who {
    /// Who it is in the views to come. Ranks mean those who have them now.
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
