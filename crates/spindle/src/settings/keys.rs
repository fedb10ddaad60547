//! All keys: their names, allowed values and defaults.
use super::value::ValueKind;
use crate::bulk::BulkSettings;
use crate::config::{LOGGED, LOGGED_BEFORE_DELIVERY};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::limits::{MEMBERS_MAX, MESSAGE_BYTES_MAX, WINDOW_MAX};
use spindle_log::limits::SEGMENT_BYTES_MAX;
use std::time::Duration;

/// One key of a configuration.
#[derive(Debug)]
pub struct Key {
    /// The place of the key: `group.name` is `name` in `[group]`; `subgroup.NAME.window` is
    /// `window` in each `[[subgroup]]`.
    pub path: &'static str,
    /// The meaning, in one line.
    pub about: &'static str,
    /// The default; empty if there is none.
    pub standard: &'static str,
    pub(super) kind: ValueKind,
    /// A value for the example, as TOML.
    pub(super) example: &'static str,
}

impl Key {
    /// Returns the environment variable that sets the key. `NAME` in it stands for the name of a
    /// subgroup. `None`: only a file can set it.
    pub fn variable(&self) -> Option<String> {
        (self.path != SUBGROUP_NAME).then(|| variable(self.path))
    }

    /// Returns the allowed values, in words.
    pub fn allowed(&self) -> String {
        self.kind.allowed()
    }

    /// Returns the table that contains the key: empty, or a path such as `network.tls`.
    pub(super) fn table(&self) -> &'static str {
        if self.path.starts_with(SUBGROUP) {
            "subgroup"
        } else {
            self.path.rsplit_once('.').map_or("", |(table, _)| table)
        }
    }

    /// Returns the name of the key in its table.
    pub(super) fn leaf(&self) -> &'static str {
        self.path.rsplit_once('.').map_or(self.path, |(_, leaf)| leaf)
    }

    pub(super) fn is_of_subgroup(&self) -> bool {
        self.path.starts_with(SUBGROUP)
    }
}

/// The beginning of the paths of a subgroup's keys.
pub(super) const SUBGROUP: &str = "subgroup.NAME.";
pub(super) const SUBGROUP_NAME: &str = "subgroup.NAME.name";
/// The subgroup that exists if a file lists none.
pub(super) const SUBGROUP_STANDARD: &str = "all";
/// The beginning of variable names.
pub(super) const VARIABLES: &str = "SPINDLE_";

const YEAR: Duration = Duration::from_secs(31_536_000);
const LOG_BYTES_MAX: u64 = 1 << 50;
const SHORT: Duration = Duration::from_millis(10);

/// All keys, in the order in which they are shown.
pub const KEYS: &[Key] = &[
    Key {
        path: "runtime_dir",
        about: "Where the members of this host meet: a directory that only its user can enter (mode 700)",
        standard: "/tmp/spindle-UID",
        kind: ValueKind::Path,
        example: "\"/tmp/spindle-1000\"",
    },
    Key {
        path: "group.name",
        about: "The group's name",
        standard: "",
        kind: ValueKind::GroupName,
        example: "\"example\"",
    },
    Key {
        path: "group.founders",
        about: "How many members create the group: nothing is sent before all are there. A group that runs is joined anyway",
        standard: "1",
        kind: ValueKind::Number { least: 1, most: MEMBERS_MAX as u64 },
        example: "1",
    },
    Key {
        path: "group.suspect_after",
        about: "The silence after which the others go on without a member that lives but hangs",
        standard: "1s",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: true },
        example: "\"1s\"",
    },
    Key {
        path: "group.object_bytes_max",
        about: "The longest message of all, one that no ring holds; each member needs memory for some of them. 0: none",
        standard: "1GiB",
        kind: ValueKind::Bytes { most: BulkSettings::OBJECT_BYTES_MAX },
        example: "\"1GiB\"",
    },
    Key {
        path: "group.clock_skew_max",
        about: "How far the clocks of members that keep logs may differ: a process with another clock is not let in, and a step of a \
                member's clock by more does not count",
        standard: "5min",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: true },
        example: "\"5min\"",
    },
    Key {
        path: "member.id",
        about: "This member's number, unique in the group",
        standard: "the smallest, from 1, that no process has had; in a group that spans hosts one at random",
        kind: ValueKind::Number { least: 0, most: CLIENT_IDS_FROM - 1 },
        example: "1",
    },
    Key {
        path: "member.data_dir",
        about: "Where this member keeps the logs of logged subgroups, and a seed its votes while a group on several hosts is created, if \
                it was initialised: more than half of such seeds create the group. Otherwise all seeds have to answer",
        standard: "",
        kind: ValueKind::Path,
        example: "\"/var/lib/spindle\"",
    },
    Key {
        path: "member.log_segment_bytes",
        about: "The length of a segment of a log, a multiple of 4096; each log takes two of them at least",
        standard: "64MiB",
        kind: ValueKind::Bytes { most: SEGMENT_BYTES_MAX },
        example: "\"64MiB\"",
    },
    Key {
        path: "member.log_bytes_max",
        about: "How long the log of a subgroup may get: the oldest segments are pruned. 0: any length",
        standard: "0",
        kind: ValueKind::Bytes { most: LOG_BYTES_MAX },
        example: "\"10GiB\"",
    },
    Key {
        path: "member.log_age_max",
        about: "How old messages in the logs may get, by this host's clock: older segments are pruned",
        standard: "never",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: true },
        example: "\"7d\"",
    },
    Key {
        path: "member.log_wait_max",
        about: "How long a group that finishes waits for this member's disk if it takes nothing, because it is full or does not answer: then \
                this member ends with an error",
        standard: "60s",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: false },
        example: "\"60s\"",
    },
    Key {
        path: "member.restart_wait",
        about: "How long the members of the last view that have come wait for the others when a group with logs restarts, if they can \
                continue without them: a majority on several hosts, with all that is durable",
        standard: "10s",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: true },
        example: "\"10s\"",
    },
    Key {
        path: "member.gather_timeout",
        about: "How long to wait for the other members",
        standard: "60s",
        kind: ValueKind::Time { least: SHORT, most: YEAR, never: false },
        example: "\"60s\"",
    },
    Key {
        path: "member.spin_for",
        about: "How long the polling thread looks for work before it sleeps: more costs idle CPU, less costs a wake-up more often",
        standard: "1ms",
        kind: ValueKind::Time { least: Duration::ZERO, most: YEAR, never: false },
        example: "\"1ms\"",
    },
    Key {
        path: SUBGROUP_NAME,
        about: "The subgroup's name, unique in the group",
        standard: SUBGROUP_STANDARD,
        kind: ValueKind::SubgroupName,
        example: "\"all\"",
    },
    Key {
        path: "subgroup.NAME.members",
        about: "Its members: all, the first so many by rank, a list of ranks, or one of several shards that share the members among them",
        standard: "all",
        kind: ValueKind::Who { shards: true },
        example: "\"all\"",
    },
    Key {
        path: "subgroup.NAME.senders",
        about: "Its senders among these; members that never send cost the others nothing if they are left out",
        standard: "all",
        kind: ValueKind::Who { shards: false },
        example: "\"all\"",
    },
    Key {
        path: "subgroup.NAME.order",
        about: "The order of delivery: the same at all members, or only that of each sender",
        standard: "total",
        kind: ValueKind::Choice(&["total", "fifo"]),
        example: "\"total\"",
    },
    Key {
        path: "subgroup.NAME.window",
        about: "Messages of the largest size that each sender may have on the way",
        standard: "what fits a ring of 1 MB, at least 4",
        kind: ValueKind::Number { least: 1, most: WINDOW_MAX },
        example: "100",
    },
    Key {
        path: "subgroup.NAME.message_bytes_max",
        about: "The longest message",
        standard: "10000",
        kind: ValueKind::Bytes { most: MESSAGE_BYTES_MAX },
        example: "10000",
    },
    Key {
        path: "subgroup.NAME.durability",
        about: "Where its messages are kept: in the memory of the members only, or in the log of each member too, which needs \
                member.data_dir and the total order, and has messages of at most 256 MiB. With logged-before-delivery no member delivers a \
                message before it is on the disks of all members, and of at least durable_copies",
        standard: "memory",
        kind: ValueKind::Choice(&["memory", LOGGED, LOGGED_BEFORE_DELIVERY]),
        example: "\"memory\"",
    },
    Key {
        path: "subgroup.NAME.durable_copies",
        about: "The members that the subgroup needs for a message of a logged subgroup to become durable",
        standard: "more than half of the founders",
        kind: ValueKind::Number { least: 1, most: MEMBERS_MAX as u64 },
        example: "2",
    },
    Key {
        path: "network.listen",
        about: "Where this member listens for those of other hosts; port 0 is any",
        standard: "",
        kind: ValueKind::Addresses,
        example: "[\"0.0.0.0:7411\"]",
    },
    Key {
        path: "network.advertise",
        about: "The address at which the others reach this member, where that is not the one that it listens on",
        standard: "",
        kind: ValueKind::Address,
        example: "\"this-host.example.org:7411\"",
    },
    Key {
        path: "network.seeds",
        about: "The seeds, at which processes look for the group: addresses of members that create it, the same at all members",
        standard: "",
        kind: ValueKind::Addresses,
        example: "[\"host-a:7411\", \"host-b:7411\", \"host-c:7411\"]",
    },
    Key {
        path: "network.seed_count",
        about: "How many processes the seeds stand for, if a name among them stands for several: each of its addresses is a seed then",
        standard: "as many as there are seeds",
        kind: ValueKind::Number { least: 1, most: MEMBERS_MAX as u64 },
        example: "3",
    },
    Key {
        path: "network.insecure",
        about: "Whether members may listen beyond this host without TLS: whoever reaches the port can then read and send",
        standard: "false",
        kind: ValueKind::Switch,
        example: "false",
    },
    Key {
        path: "network.silence",
        about: "How long a connection may be dead until it counts as broken; not less than group.suspect_after",
        standard: "10s",
        kind: ValueKind::Time { least: Duration::from_secs(1), most: YEAR, never: false },
        example: "\"10s\"",
    },
    Key {
        path: "network.rack",
        about: "The rack that this member stands in; blocks of large messages cross once from one rack to the next",
        standard: "what the topology says, if there is one",
        kind: ValueKind::Rack,
        example: "\"row-1\"",
    },
    Key {
        path: "network.topology",
        about: "TOML file of which hosts stand in which rack, the same at all members; if it is given, this host has to be in it",
        standard: "",
        kind: ValueKind::Path,
        example: "\"racks.toml\"",
    },
    Key {
        path: "network.tls.ca",
        about: "PEM file of the authority that signs the members' certificates",
        standard: "",
        kind: ValueKind::Path,
        example: "\"ca.pem\"",
    },
    Key {
        path: "network.tls.cert",
        about: "PEM file of this member's certificate, with those between it and the authority",
        standard: "",
        kind: ValueKind::Path,
        example: "\"member.pem\"",
    },
    Key {
        path: "network.tls.key",
        about: "PEM file of this member's private key",
        standard: "",
        kind: ValueKind::Path,
        example: "\"member.key\"",
    },
    Key {
        path: "network.tls.identity",
        about: "What a certificate is good for: any id, or those that its DNS names state (spindle-member-7; spindle-admin for a process that is no member). The same at all members",
        standard: "any",
        kind: ValueKind::Choice(&["any", "names"]),
        example: "\"any\"",
    },
    Key {
        path: "network.fabric.kind",
        about: "What carries the messages between hosts: TCP, or libfabric (RDMA). The same at all members",
        standard: "tcp",
        kind: ValueKind::Choice(&["tcp", "ofi"]),
        example: "\"tcp\"",
    },
    Key {
        path: "network.fabric.provider",
        about: "The libfabric provider, if that is to be used: verbs, tcp. The same at all members",
        standard: "what libfabric finds first",
        kind: ValueKind::Word,
        example: "\"verbs\"",
    },
    Key {
        path: "network.fabric.domain",
        about: "The network card or interface, by the provider's name for it",
        standard: "what libfabric finds first",
        kind: ValueKind::Word,
        example: "\"mlx5_0\"",
    },
    Key {
        path: "network.fabric.address",
        about: "The IP address of this member in that network, without a port",
        standard: "that of listen or advertise, if they have one",
        kind: ValueKind::Word,
        example: "\"192.168.7.1\"",
    },
];

/// The tables and their meaning.
pub(super) const TABLES: [(&str, &str); 6] = [
    ("group", "The same at all members."),
    ("member", "This member's own."),
    (
        "subgroup",
        "One stream of messages with an order of its own. The same at all members, as often as there are subgroups.",
    ),
    ("network", "For groups on several hosts. Without listen and seeds, the group stays on this one."),
    ("network.tls", "Certificates: with these, members know each other, and no other process can read or send."),
    ("network.fabric", "What carries the messages between hosts."),
];

/// Keys of earlier versions, each with the key that it is now.
const RENAMED: [(&str, &str); 1] = [("group.members", "group.founders")];

/// Returns the key that has taken the place of the key with this path, if an earlier version had it.
pub(super) fn renamed(path: &str) -> Option<&'static str> {
    RENAMED.iter().find(|(old, _)| *old == path).map(|(_, new)| *new)
}

/// Returns the variable of an earlier version's key, and of the key that it is now.
pub(super) fn renamed_variable(name: &str) -> Option<(&'static str, String)> {
    RENAMED.iter().find(|(old, _)| variable(old) == name).map(|(_, new)| (*new, variable(new)))
}

/// Returns the key of this path. `subgroup.prices.window` is found as `subgroup.NAME.window`, with
/// the name.
pub(super) fn find(path: &str) -> Option<(&'static Key, Option<&str>)> {
    if let Some((name, leaf)) = path.strip_prefix("subgroup.").and_then(|rest| rest.rsplit_once('.')) {
        let key = KEYS.iter().find(|key| key.is_of_subgroup() && key.leaf() == leaf)?;
        return Some((key, Some(name)));
    }
    KEYS.iter().find(|key| key.path == path).map(|key| (key, None))
}

/// Returns the key at `leaf` of a table.
pub(super) fn find_in(table: &str, leaf: &str) -> Option<&'static Key> {
    KEYS.iter().find(|key| key.table() == table && key.leaf() == leaf)
}

/// Returns the variable for a path: capitals, digits and underscores.
pub(super) fn variable(path: &str) -> String {
    let letter = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    VARIABLES.chars().chain(path.chars().map(letter)).collect()
}

/// The least similarity of two names, from 0 to 1, at which one is suggested for the other.
const ALIKE: f64 = 0.75;

/// Returns the name that `wrong` resembles most, if it resembles any.
pub(super) fn nearest(wrong: &str, names: impl IntoIterator<Item = String>) -> Option<String> {
    let wrong = wrong.to_lowercase();
    let rated = names.into_iter().map(|name| (strsim::jaro_winkler(&wrong, &name.to_lowercase()), name));
    let best = rated.max_by(|(a, _), (b, _)| a.total_cmp(b));
    best.filter(|(alike, _)| *alike >= ALIKE).map(|(_, name)| name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ffi::OsStr;

    #[test]
    fn every_key_is_found_by_its_path_and_has_a_variable_of_its_own() {
        for (i, key) in KEYS.iter().enumerate() {
            assert_eq!(find(key.path).unwrap().0.path, key.path);
            assert_eq!(find_in(key.table(), key.leaf()).unwrap().path, key.path);
            assert!(key.table().is_empty() || TABLES.iter().any(|(table, _)| *table == key.table()), "{}", key.path);
            let before = KEYS[..i].iter().filter_map(Key::variable);
            assert!(key.variable().is_none_or(|own| before.into_iter().all(|other| other != own)), "{}", key.path);
        }
        let (key, name) = find("subgroup.a.b.window").unwrap();
        assert_eq!((key.path, name), ("subgroup.NAME.window", Some("a.b")));
        assert_eq!(variable("network.tls.ca"), "SPINDLE_NETWORK_TLS_CA");
    }

    #[test]
    fn a_key_that_was_renamed_is_gone_and_the_new_one_exists() {
        for (old, new) in RENAMED {
            assert!(find(old).is_none() && find(new).is_some(), "{old}");
            assert_eq!(renamed(old), Some(new));
        }
        assert_eq!(renamed("group.founders"), None);
        let new = ("group.founders", "SPINDLE_GROUP_FOUNDERS".to_string());
        assert_eq!(renamed_variable("SPINDLE_GROUP_MEMBERS"), Some(new));
    }

    #[test]
    fn standards_that_are_values_are_allowed_ones() {
        let values = ["1", "1s", "60s", "1ms", "all", "total", "10000", "false", "10s", "tcp"];
        for key in KEYS.iter().filter(|key| values.contains(&key.standard)) {
            let value = key.kind.parse(OsStr::new(key.standard)).unwrap_or_else(|| panic!("{}", key.path));
            assert_eq!(value.to_string(), key.standard);
        }
    }

    #[test]
    fn a_slip_finds_what_was_meant_and_nonsense_finds_nothing() {
        let names = || ["name", "founders", "suspect_after", "object_bytes_max"].map(str::to_string);
        assert_eq!(nearest("fuonders", names()).as_deref(), Some("founders"));
        assert_eq!(nearest("suspectafter", names()).as_deref(), Some("suspect_after"));
        assert_eq!(nearest("xyzzy", names()), None);
    }
}
