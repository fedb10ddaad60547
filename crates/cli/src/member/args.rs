//! The arguments of `spindle member`.
use super::metrics;
use crate::exit::{CliError, CliResult, USAGE};
use crate::log::Verbosity;
use crate::membership::MembershipArgs;
use crate::settings::{GroupSelection, flag_of};
use spindle::settings::Effective;
use std::net::SocketAddr;
use std::path::PathBuf;

/// Arguments of `spindle member`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(super) whom: GroupSelection,

    #[command(flatten)]
    pub(super) membership: MembershipArgs,

    /// The subgroup that the member sends in and prints; messages of other subgroups are received
    /// and dropped [default: the first in the file, or "all" if there is none]
    #[arg(long, value_name = "NAME")]
    pub(super) subgroup: Option<String>,

    /// The file to send; `-` is the standard input
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(super) input: PathBuf,

    /// The file that deliveries are written to; `-` is the standard output. A file is overwritten
    #[arg(short, long, value_name = "FILE", default_value = "-")]
    pub(super) output: PathBuf,

    /// Binary messages instead of lines, in and out: 4 bytes of length (little-endian), then that
    /// many bytes
    #[arg(long)]
    pub(super) frames: bool,

    /// Print the origin of each message: `VIEW:ID:ROUND ` before each line; with --frames, 8 bytes
    /// each (little-endian) between the length and the bytes, not counted in the length.
    ///
    /// The origin is the view in which the message was delivered, the id of its sender, and its
    /// round in the order, which begins again with each view. No two messages have the same three
    /// values, and the values are the same at all members.
    #[arg(long)]
    pub(super) with_origin: bool,

    /// The longest message that uses reserved memory, the same at all members (100, 64k, 1M)
    /// [default: 10000].
    ///
    /// Longer messages, up to the setting group.object_bytes_max, are sent as large messages. Each
    /// takes memory of its own, and this member's next messages wait until all others have it.
    #[arg(long, value_name = "BYTES")]
    pub(super) max_message: Option<String>,

    /// How many messages of that size each member may have on the way, the same at all members
    /// [default: 100, or as many as fit 1 MB if --max-message is given]
    #[arg(long, value_name = "MESSAGES")]
    pub(super) window: Option<String>,

    /// The order of delivery, the same at all members: `total`, or `fifo`, in which only the
    /// messages of each member are in order [default: total]
    #[arg(long, value_name = "ORDER", value_parser = ["total", "fifo"])]
    pub(super) order: Option<String>,

    /// Where messages are kept, the same at all members: in `memory`, or `logged`, also in the log of
    /// each member, in the directory that --data-dir names. `spindle log` reads it. With
    /// `logged-before-delivery` no member delivers a message before it is on the disks of all members
    /// [default: memory]
    #[arg(long, value_name = "WHERE", value_parser = ["memory", "logged", "logged-before-delivery"])]
    pub(super) durability: Option<String>,

    /// The members that a logged subgroup needs for a message to become durable, the same at all
    /// members [default: more than half of --founders]
    #[arg(long, value_name = "MEMBERS")]
    pub(super) durable_copies: Option<String>,

    /// Write to FILE which messages of this member are durable; `-` is the standard output. A file is
    /// overwritten.
    ///
    /// A line `NUMBER EPOCH:SEQUENCE` says that a message is on the disks of all members. NUMBER
    /// counts the messages of the input, from 1, and EPOCH:SEQUENCE is the version under which
    /// `spindle log` has it. The line `NUMBER - REASON` says that a message was not kept by enough
    /// members, or that this member can't know. Lines are in the order of the input. A message
    /// without a line, for instance after a crash, is not known to be durable. The subgroup has to
    /// be logged. At most 65,536 messages wait for their line: then the input is not read.
    #[arg(long, value_name = "FILE")]
    pub(super) durable_acks: Option<PathBuf>,

    /// When the others continue without this member, join again with a new id, and continue with
    /// the input.
    ///
    /// Messages that the group delivers in between are missing in the output. Messages that this
    /// member had sent and not delivered itself may have been delivered to the others or not, and
    /// are not sent again. Both are reported on the standard error.
    #[arg(long)]
    pub(super) rejoin: bool,

    /// Initialise the data directory, so that this seed's votes count. Use it only when the group
    /// is started for the first time, and never for a seed that has lost its disk
    #[arg(long, requires = "data_dir")]
    pub(super) init: bool,

    /// Create a new group from the waiting processes, even if some seeds don't answer or a group
    /// was created before.
    ///
    /// Give it to one process, after all members of the old group have ended: an old group that
    /// still runs elsewhere would continue beside the new one. If a member of a group answers, this
    /// process joins that group.
    #[arg(long)]
    pub(super) force_create: bool,

    /// Restart the group from its logs without these members of its last view, which are lost for
    /// good: ids, separated by commas.
    ///
    /// A group whose processes have all ended waits for all members of its last view. Give this to
    /// the first process that is started on one host, or to the seeds. Messages that only the lost
    /// members have on disk are gone.
    #[arg(long, value_name = "IDS", value_delimiter = ',', requires = "data_dir")]
    pub(super) lost: Vec<u64>,

    /// Serve metrics for Prometheus over HTTP, at http://ADDR/metrics.
    ///
    /// ADDR is a port on the loopback interface, or an IP address and a port; port 0 is any that is
    /// free. There is no encryption and no access control: name an address that only the monitoring
    /// reaches. The guide (docs/guide/monitoring.md) lists the metrics.
    #[arg(long, value_name = "ADDR", value_parser = metrics::parse_address)]
    pub(super) metrics: Option<SocketAddr>,

    /// Report events on the standard error, as one JSON object a line.
    ///
    /// Each has an "event": "warning" (message), "waiting" (members, here: a list of id and pid;
    /// blocked: true if the group runs, and too few of its members are left to admit a process;
    /// restart: view and missing, the members of that last view that the restart of a group waits
    /// for, at the process that leads it, goes_on: true if it waits for them only a while, and not_lost,
    /// members named with --lost that are here;
    /// with --seed-count, seeds: wanted, known, failed, unlike; if there are any, unreached: a list
    /// of seed and why, and seeds_missing: how many more of the seeds have to answer; silent: seeds
    /// that have not answered, if there are any; differing: settings that another process which
    /// waits has with another value, a list of {key, here, there}), "adopted" (key, value, own: a
    /// setting of the running group that this member uses in place of its default), "joined" (view,
    /// rank, id, members: a list of ids), "metrics" (url), "silent" (subgroup: this member does not
    /// send there, so its input is not read), "view" (view, members, joined, left: lists of ids),
    /// "blocked" (view, blocked: whether it can't continue), "lag" (subgroup, member, me: whether
    /// it is this one, behind, seconds, over: a member has not delivered what all had received a
    /// second before, or no longer lags), "conflict" (mine, theirs: two groups of this name, of
    /// which one has to be ended), "stalled" (stalled: whether the output has taken nothing for 2
    /// s, while nothing is delivered here), "evicted" (view, id, sent, delivered, unconfirmed,
    /// given_up: whether an operator's recovery gave this member up), every second "progress" and
    /// at the end "finished" (seconds, sent, sent_bytes, delivered, delivered_bytes), "stopped"
    /// (message, status: a signal stopped it in order), or "error" (message, status).
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    pub(super) verbosity: Verbosity,
}

impl Args {
    /// Returns the effective settings, and the subgroup to send in and print.
    pub(super) fn settle(&self) -> CliResult<(Effective, String)> {
        let mut settings = self.whom.read()?;
        let names = settings.subgroups();
        let subgroup = match &self.subgroup {
            // If no file lists the subgroups, a running group may have others.
            Some(name) if settings.lists_subgroups() && !names.contains(&name.as_str()) => {
                let message =
                    format!("--subgroup {name}: the settings have no such subgroup, but {}", names.join(", "));
                return Err(CliError::new(USAGE, message));
            }
            Some(name) => name.clone(),
            None => names[0].to_string(),
        };
        self.membership.say(&mut settings);
        let said = [
            ("subgroup.NAME.order", &self.order),
            ("subgroup.NAME.window", &self.window),
            ("subgroup.NAME.message_bytes_max", &self.max_message),
            ("subgroup.NAME.durability", &self.durability),
            ("subgroup.NAME.durable_copies", &self.durable_copies),
        ];
        for (path, text) in said {
            if let Some(text) = text {
                settings.flag(&path.replacen("NAME", &subgroup, 1), text, flag_of(path));
            }
        }
        Ok((settings.effective()?, subgroup))
    }
}
