//! The flags by which a command takes part in a group.
use crate::settings::flag_of;
use spindle::settings::Settings;

/// Who a member is, whom it waits for, and how members of several hosts meet.
#[derive(Debug, clap::Args)]
pub(crate) struct Membership {
    /// How many members found the group: nothing is sent before all of them are there. A group that runs is joined
    /// whatever this says [default: 1]
    #[arg(short = 'n', long, value_name = "N")]
    members: Option<String>,

    /// This member's number, unique in the group [default: the smallest, from 1, that nobody has had; in a group that spans hosts one
    /// at random]
    #[arg(long)]
    id: Option<String>,

    /// The silence after which the others go on without a member that lives but hangs (2, 0.3, 300ms), or `never`. The same
    /// at all members. A member that dies is noticed at once, whatever this says [default: 1]
    #[arg(long, value_name = "SECONDS")]
    suspect_after: Option<String>,

    /// Where a seed keeps its votes while a group on several hosts is founded
    ///
    /// If it was initialised with --init, more than half of the seeds found the group, whichever they are. Otherwise all seeds have to
    /// answer.
    #[arg(long, value_name = "DIR")]
    data_dir: Option<String>,

    /// How long to wait for the other members [default: 60]
    #[arg(long, value_name = "SECONDS")]
    gather_timeout: Option<String>,

    /// How long the polling thread looks for work before it sleeps: more costs idle CPU, less a wake-up more often
    /// [default: 1ms]
    #[arg(long, value_name = "SECONDS")]
    spin_for: Option<String>,

    #[command(flatten)]
    hosts: Hosts,
}

/// How processes of several hosts find and reach each other.
#[derive(Debug, clap::Args)]
pub(crate) struct Hosts {
    /// Where to listen for members of other hosts; several with commas between
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    listen: Option<String>,

    /// Where the others reach this member, if not there
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    advertise: Option<String>,

    /// Where to look for the group, the same at all members; several with commas between. They found it
    #[arg(long, value_name = "HOST:PORT", help_heading = "Several hosts")]
    seeds: Option<String>,

    /// How many processes the seeds stand for, if a name among them stands for several: each of its addresses is a seed then
    #[arg(long, value_name = "N", help_heading = "Several hosts")]
    seed_count: Option<String>,

    /// Listen beyond this host without TLS: whoever reaches the port can then read and send
    #[arg(long, help_heading = "Several hosts")]
    insecure: bool,
}

impl Membership {
    pub(crate) fn say(&self, settings: &mut Settings) {
        self.hosts.say(settings);
        let said = [
            ("group.members", &self.members),
            ("group.suspect_after", &self.suspect_after),
            ("member.id", &self.id),
            ("member.data_dir", &self.data_dir),
            ("member.gather_timeout", &self.gather_timeout),
            ("member.spin_for", &self.spin_for),
        ];
        say(settings, said);
    }
}

impl Hosts {
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
