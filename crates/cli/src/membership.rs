//! The flags with which a command takes part in a group.
use crate::settings::flag_of;
use spindle::settings::Settings;

/// The flags for a member's id, for the members that it waits for, and for the connection of
/// members of several hosts.
#[derive(Debug, clap::Args)]
pub(crate) struct MembershipArgs {
    /// How many members create the group: nothing is sent before all of them are present. A running
    /// group is joined with any value [default: 1]
    #[arg(short = 'n', long, value_name = "N")]
    founders: Option<String>,

    /// This member's number, unique in the group [default: the smallest, from 1, that no member has
    /// had; in a group that spans hosts a random one]
    #[arg(long)]
    id: Option<String>,

    /// The silence after which the others continue without a member that hangs (2, 0.3, 300ms), or
    /// `never`; the same at all members. The death of a member is noticed at once with any value
    /// [default: 1]
    #[arg(long, value_name = "SECONDS")]
    suspect_after: Option<String>,

    /// The directory of what this member keeps on disk: the logs of logged subgroups, and the votes
    /// of a seed while a group on several hosts is created
    ///
    /// If it was initialised with --init, any majority of the seeds can create the group. Otherwise
    /// all seeds have to answer.
    #[arg(long, visible_alias = "data", value_name = "DIR")]
    data_dir: Option<String>,

    /// How long to wait for the other members [default: 60]
    #[arg(long, value_name = "SECONDS")]
    gather_timeout: Option<String>,

    /// How long the polling thread polls before it sleeps: a longer time costs idle CPU, a shorter
    /// one more wake-ups [default: 1ms]
    #[arg(long, value_name = "SECONDS")]
    spin_for: Option<String>,

    #[command(flatten)]
    hosts: HostsArgs,
}

/// How processes of several hosts find and reach each other.
#[derive(Debug, clap::Args)]
pub(crate) struct HostsArgs {
    /// The addresses to listen at for members of other hosts, separated by commas
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    listen: Option<String>,

    /// The address at which the others reach this member, if it differs
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    advertise: Option<String>,

    /// The addresses of the seeds, which create the group, separated by commas; the same at all
    /// members
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    seeds: Option<String>,

    /// How many processes the seeds stand for, if a name among them has several addresses: each
    /// address is a seed then
    #[arg(long, value_name = "N", help_heading = "Several hosts")]
    seed_count: Option<String>,

    /// Listen beyond this host without TLS: any process that reaches the port can then read and
    /// send
    #[arg(long, help_heading = "Several hosts")]
    insecure: bool,
}

impl MembershipArgs {
    pub(crate) fn say(&self, settings: &mut Settings) {
        self.hosts.say(settings);
        let said = [
            ("group.founders", &self.founders),
            ("group.suspect_after", &self.suspect_after),
            ("member.id", &self.id),
            ("member.data_dir", &self.data_dir),
            ("member.gather_timeout", &self.gather_timeout),
            ("member.spin_for", &self.spin_for),
        ];
        say(settings, said);
    }
}

impl HostsArgs {
    pub(crate) fn say(&self, settings: &mut Settings) {
        let insecure = self.insecure.then(|| "true".to_string());
        let said = [
            ("network.listen", &self.listen),
            ("network.advertise", &self.advertise),
            ("network.seeds", &self.seeds),
            ("network.seed_count", &self.seed_count),
            ("network.insecure", &insecure),
        ];
        say(settings, said);
    }
}

fn say<const N: usize>(settings: &mut Settings, said: [(&str, &Option<String>); N]) {
    for (path, text) in said {
        if let Some(text) = text {
            settings.flag(path, text, flag_of(path));
        }
    }
}
