//! The effective values, and their meaning for the library.
use super::problem::{Origin, Problem, SettingsError};
use super::topology::{Host, Topology};
use super::value::{Value, ValueKind};
use super::{KEYS, Key, Settings, path_of, paths, utf8};
use crate::config::{LOGGED, LOGGED_BEFORE_DELIVERY, SUBGROUPS, key_of};
use crate::{
    Address, Adoption, Config, Durability, Identity, IdentityRule, LogSettings, MemberId, Names, Network, OfiOptions,
    Order, RackName, Security, Subgroup, Transport, Who,
};
use spindle_transport::rendezvous::RuntimeDir;
use std::ffi::OsStr;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

/// Every key with its effective value.
#[derive(Clone, Debug)]
pub struct Effective {
    entries: Vec<Entry>,
    pub(super) problems: Vec<Problem>,
}

/// One key, its value, and the origin of the value.
#[derive(Clone, Debug)]
pub struct Entry {
    /// The key's path, with the name of its subgroup: `subgroup.prices.window`.
    pub path: String,
    /// The description of the key.
    pub key: &'static Key,
    /// The value; `None` if no source gave one and there is no default that is known before the
    /// group is joined.
    pub value: Option<Value>,
    /// The origin of the value.
    pub origin: Origin,
    /// Values of other sources that have no effect, the next one in precedence first.
    pub hidden: Vec<(Value, Origin)>,
}

/// How members of several hosts find each other.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NetworkSettings {
    /// The addresses to listen at: `host:port` each.
    pub listen: Vec<String>,
    /// The address at which others reach this member, if it differs.
    pub advertise: Option<String>,
    /// The addresses at which to look for members: `host:port` each.
    pub seeds: Vec<String>,
    /// How many processes the seeds stand for, if a name among them stands for several.
    pub seed_count: Option<u32>,
    /// Whether to listen beyond this host without TLS.
    pub insecure: bool,
    /// How long a connection may be silent until it counts as broken.
    pub silence: Duration,
    /// The rack of this member, if it was given.
    pub rack: Option<String>,
    /// The file that assigns hosts to racks, if there is one.
    pub topology: Option<PathBuf>,
    /// Certificates; `None`: no TLS.
    pub tls: Option<TlsFiles>,
    /// The transport of the messages.
    pub fabric: FabricSettings,
}

/// The transport of the members' rows between hosts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum FabricSettings {
    /// Streams.
    Tcp,
    /// libfabric.
    Ofi {
        /// The libfabric provider; `None`: the first that is found.
        provider: Option<String>,
        /// The network card or interface, by the provider's name for it; `None`: the first that is
        /// found.
        domain: Option<String>,
        /// The IP address of this side; `None`: that of `listen`, if it has one.
        address: Option<String>,
    },
}

/// PEM files, and the meaning of the certificates in them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    /// The authority that signs the members' certificates.
    pub ca: PathBuf,
    /// This member's certificate.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The ids that a certificate permits.
    pub identity: IdentityRule,
}

impl Effective {
    /// Finds the effective value of each key.
    pub(super) fn lay_over(settings: &Settings) -> Effective {
        let entries = paths(KEYS, settings.subgroups()).map(|(key, subgroup)| {
            let said = settings.given.iter().filter(|g| g.key.path == key.path && g.subgroup.as_deref() == subgroup);
            let mut said: Vec<_> = said.collect();
            // The later one of two values with the same rank counts.
            said.sort_by_key(|given| given.rank);
            let mut said = said.into_iter().rev().map(|given| (given.value.clone(), given.origin.clone()));
            let (value, origin) = match said.next() {
                Some((value, origin)) => (Some(value), origin),
                None => (standard(key), Origin::Standard),
            };
            Entry { path: path_of(key, subgroup), key, value, origin, hidden: said.collect() }
        });
        let mut effective = Effective { entries: entries.collect(), problems: Vec::new() };
        for name in settings.subgroups() {
            effective.choose_window(name);
            effective.choose_copies(name);
        }
        effective.set_missing("runtime_dir", Value::Path(RuntimeDir::default_path()));
        effective
    }

    fn choose_window(&mut self, subgroup: &str) {
        let bytes = match self.value(&format!("subgroup.{subgroup}.message_bytes_max")) {
            Some(Value::Bytes(bytes)) => *bytes,
            _ => 0,
        };
        self.set_missing(&format!("subgroup.{subgroup}.window"), Value::Number(Subgroup::window_for(bytes)));
    }

    fn choose_copies(&mut self, subgroup: &str) {
        if matches!(self.text(&format!("subgroup.{subgroup}.durability")), Some(LOGGED | LOGGED_BEFORE_DELIVERY)) {
            let founders = self.number("group.founders").unwrap_or(1) as u32;
            let copies = Subgroup::durable_copies_for(founders);
            self.set_missing(&format!("subgroup.{subgroup}.durable_copies"), Value::Number(copies.into()));
        }
    }

    fn set_missing(&mut self, path: &str, value: Value) {
        if let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == path && entry.value.is_none()) {
            entry.value = Some(value);
        }
    }

    /// Returns all keys, in order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Returns the key of this path.
    pub fn entry(&self, path: &str) -> Option<&Entry> {
        self.entries.iter().find(|entry| entry.path == path)
    }

    /// Returns the problems that a user should know although they do not prevent joining.
    pub fn warnings(&self) -> &[Problem] {
        &self.problems
    }

    /// Returns the rule by which a process adopts the shared settings of a running group: all but
    /// those that its user gave in a file, a variable or a flag. If a file lists subgroups, their
    /// list is given, too.
    pub fn adoption(&self) -> Adoption {
        let given = self.entries.iter().filter(|entry| entry.origin != Origin::Standard);
        let key = |entry: &Entry| match entry.path.strip_prefix("subgroup.").and_then(|path| path.rsplit_once('.')) {
            Some((_, "name")) => SUBGROUPS.to_string(),
            Some((name, leaf)) => key_of(name, leaf),
            None => entry.path.clone(),
        };
        Adoption::Except(given.map(key).collect())
    }

    /// Returns the configuration to join with. It adopts no settings of a running group, unless the
    /// caller sets [`Config::adoption`] to [`adoption`](Self::adoption).
    ///
    /// # Errors
    /// No group is named, certificates can't be used, an address is invalid, or the topology does
    /// not give the rack of this host.
    pub fn config(&self) -> Result<Config, SettingsError> {
        let Some(name) = self.text("group.name") else {
            let message =
                "no group is named; set group.name, in [group] of a file or as SPINDLE_GROUP_NAME".to_string();
            let key = Some("group.name".to_string());
            let problem = Problem { origin: Origin::Standard, key, message, is_error: true };
            return Err(SettingsError::Wrong(vec![problem]));
        };
        let mut config = Config::new(name, self.number("group.founders").unwrap_or(1) as u32);
        config.id = self.number("member.id").map(MemberId);
        config.runtime_dir = Some(self.runtime_dir());
        config.suspect_after = self.time("group.suspect_after");
        config.clock_skew_max = self.time("group.clock_skew_max");
        config.object_bytes_max = self.number("group.object_bytes_max").unwrap_or(config.object_bytes_max);
        config.gather_timeout = self.time("member.gather_timeout").unwrap_or(config.gather_timeout);
        config.data_dir = self.path("member.data_dir");
        config.log = LogSettings {
            segment_bytes: self.number("member.log_segment_bytes").unwrap_or(config.log.segment_bytes),
            bytes_max: self.number("member.log_bytes_max").filter(|bytes| *bytes > 0),
            age_max: self.time("member.log_age_max"),
            wait_max: self.time("member.log_wait_max").unwrap_or(config.log.wait_max),
            restart_wait: self.time("member.restart_wait"),
        };
        config.spin_for = self.time("member.spin_for").unwrap_or(config.spin_for);
        config.subgroups = self.subgroups();
        config.network = self.network().map(|network| self.meet(network)).transpose()?;
        Ok(config)
    }

    /// Returns the network configuration for a group that spans hosts.
    fn meet(&self, network: NetworkSettings) -> Result<Network, SettingsError> {
        let parse = |key: &str, text: &String| {
            text.parse::<Address>().map_err(|error| {
                let entry = self.entry(key).expect("a key of the schema");
                SettingsError::Wrong(vec![entry.problem(format!("{key}: {error}"), true)])
            })
        };
        let all = |key: &str, texts: &[String]| texts.iter().map(|text| parse(key, text)).collect::<Result<_, _>>();
        let security = match &network.tls {
            Some(TlsFiles { ca, cert, key, identity }) => {
                Security::Tls(Identity::load(ca, cert, key)?.with_rule(*identity))
            }
            None if network.insecure => Security::Insecure,
            None => Security::Local,
        };
        Ok(Network {
            listen: all("network.listen", &network.listen)?,
            advertise: network.advertise.iter().map(|text| parse("network.advertise", text)).next().transpose()?,
            seeds: all("network.seeds", &network.seeds)?,
            seed_count: network.seed_count,
            names: Names::default(),
            security,
            silence: network.silence,
            rack: self.rack()?.map(|(rack, _)| rack),
            transport: self.transport(network.fabric)?,
        })
    }

    /// Returns the rack of this member and the origin of that value. The value is `network.rack`,
    /// or else comes from the file that `network.topology` names. In that file the rack is found by
    /// the addresses at which this member is reached and by the host's own name. `None`: no source
    /// says anything about racks.
    ///
    /// # Errors
    /// The file can't be read, is wrong, or does not give exactly one rack for this host.
    pub fn rack(&self) -> Result<Option<(RackName, Origin)>, SettingsError> {
        let said = self.entry("network.rack").expect("a key of the schema");
        if let Some(rack) = self.text("network.rack").and_then(|rack| rack.parse().ok()) {
            return Ok(Some((rack, said.origin.clone())));
        }
        let Some(path) = self.path("network.topology") else { return Ok(None) };
        let name = path.display().to_string();
        let bytes = std::fs::read(&path).map_err(|source| SettingsError::Read { path, source })?;
        let text = utf8(&name, &bytes).map_err(|problem| SettingsError::Wrong(vec![problem]))?;
        let topology = Topology::read(&name, text).map_err(SettingsError::Wrong)?;
        let found = topology.find(&self.host());
        found.map(|(rack, origin)| Some((rack.clone(), origin.clone()))).map_err(|what| {
            let entry = self.entry("network.topology").expect("a key of the schema");
            let message = format!("{name}: {what}; change that, or name the rack in network.rack");
            SettingsError::Wrong(vec![entry.problem(message, true)])
        })
    }

    /// Stores the result of [`rack`](Self::rack) as the value of `network.rack`.
    ///
    /// # Errors
    /// Those of [`rack`](Self::rack).
    pub fn find_rack(&mut self) -> Result<(), SettingsError> {
        if let Some((rack, origin)) = self.rack()?
            && let Some(entry) = self.entries.iter_mut().find(|entry| entry.path == "network.rack")
        {
            (entry.value, entry.origin) = (Some(Value::Text(rack.to_string())), origin);
        }
        Ok(())
    }

    /// Returns the names and addresses by which a topology knows this host.
    fn host(&self) -> Host {
        // A host without a name is known by its addresses.
        let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let listen = self.list("network.listen");
        match self.text("network.advertise") {
            Some(address) => Host::new(&[address.to_string()], &name),
            None => Host::new(&listen, &name),
        }
    }

    fn transport(&self, fabric: FabricSettings) -> Result<Transport, SettingsError> {
        let FabricSettings::Ofi { provider, domain, address } = fabric else { return Ok(Transport::Tcp) };
        let parse = |text: String| {
            text.parse::<IpAddr>().map_err(|_| {
                let entry = self.entry("network.fabric.address").expect("a key of the schema");
                let message = format!("network.fabric.address is an IP address without a port, not {text:?}");
                SettingsError::Wrong(vec![entry.problem(message, true)])
            })
        };
        Ok(Transport::Ofi(OfiOptions { provider, domain, address: address.map(parse).transpose()? }))
    }

    /// Returns the group's name, if it was given.
    pub fn group(&self) -> Option<&str> {
        self.text("group.name")
    }

    /// Returns the rendezvous directory of this host.
    pub fn runtime_dir(&self) -> PathBuf {
        self.path("runtime_dir").unwrap_or_else(RuntimeDir::default_path)
    }

    /// Returns the subgroups, in their order.
    pub fn subgroups(&self) -> Vec<Subgroup> {
        let names = self.entries.iter().filter(|entry| entry.key.path == super::keys::SUBGROUP_NAME);
        let names = names.map(|entry| entry.value.as_ref().map(Value::to_string).unwrap_or_default());
        names.map(|name| self.subgroup(name)).collect()
    }

    fn subgroup(&self, name: String) -> Subgroup {
        let of = |leaf: &str| format!("subgroup.{name}.{leaf}");
        let who = |leaf| match self.value(&of(leaf)) {
            Some(Value::Who(who)) => who.clone(),
            _ => Who::All,
        };
        let copies = || self.number(&of("durable_copies")).unwrap_or(1) as u32;
        let durability = match self.text(&of("durability")) {
            Some(LOGGED) => Durability::Logged { copies: copies() },
            Some(LOGGED_BEFORE_DELIVERY) => Durability::LoggedBeforeDelivery { copies: copies() },
            _ => Durability::InMemory,
        };
        Subgroup {
            durability,
            members: who("members"),
            senders: who("senders"),
            order: if self.text(&of("order")) == Some("fifo") { Order::Fifo } else { Order::Total },
            window: self.number(&of("window")).unwrap_or(Subgroup::WINDOW),
            message_bytes_max: self.number(&of("message_bytes_max")).unwrap_or(Subgroup::MESSAGE_BYTES_MAX),
            name,
        }
    }

    /// Returns how members of several hosts find each other; `None`: the group stays on this host.
    pub fn network(&self) -> Option<NetworkSettings> {
        self.asks_for_network()?;
        let tls = || {
            let path = |leaf: &str| self.path(&format!("network.tls.{leaf}"));
            let identity = match self.text("network.tls.identity") {
                Some("names") => IdentityRule::Names,
                _ => IdentityRule::Any,
            };
            Some(TlsFiles { ca: path("ca")?, cert: path("cert")?, key: path("key")?, identity })
        };
        let fabric = match self.text("network.fabric.kind") {
            Some("ofi") => {
                let said = |leaf: &str| self.text(&format!("network.fabric.{leaf}")).map(str::to_string);
                FabricSettings::Ofi { provider: said("provider"), domain: said("domain"), address: said("address") }
            }
            _ => FabricSettings::Tcp,
        };
        Some(NetworkSettings {
            listen: self.list("network.listen"),
            advertise: self.text("network.advertise").map(str::to_string),
            seeds: self.list("network.seeds"),
            seed_count: self.number("network.seed_count").map(|count| count as u32),
            insecure: self.value("network.insecure") == Some(&Value::Switch(true)),
            silence: self.time("network.silence").unwrap_or_default(),
            rack: self.text("network.rack").map(str::to_string),
            topology: self.path("network.topology"),
            tls: tls(),
            fabric,
        })
    }

    /// Checks that the named files can be opened and that the topology gives the rack of this host.
    pub fn check_files(&self) -> Vec<Problem> {
        let files = self.entries.iter().filter(|entry| entry.path.starts_with("network.tls."));
        let wrong = files.filter_map(|entry| {
            let Some(Value::Path(path)) = &entry.value else { return None };
            let error = match std::fs::File::open(path).and_then(|file| file.metadata()) {
                Ok(metadata) if metadata.is_file() => return None,
                Ok(_) => "it is no file".to_string(),
                Err(error) => error.to_string(),
            };
            let message = format!("{} names {}, which can't be read: {error}", entry.path, path.display());
            Some(entry.problem(message, true))
        });
        let rack = match self.rack() {
            Ok(_) => vec![],
            Err(SettingsError::Wrong(problems)) => problems,
            Err(error) => {
                let entry = self.entry("network.topology").expect("a key of the schema");
                vec![entry.problem(format!("network.topology: {error}"), true)]
            }
        };
        wrong.chain(rack).collect()
    }

    fn asks_for_network(&self) -> Option<&Entry> {
        let asks = |entry: &&Entry| matches!(&entry.value, Some(Value::List(list)) if !list.is_empty());
        ["network.listen", "network.seeds"].iter().filter_map(|path| self.entry(path)).find(asks)
    }

    pub(super) fn value(&self, path: &str) -> Option<&Value> {
        self.entry(path)?.value.as_ref()
    }

    pub(super) fn text(&self, path: &str) -> Option<&str> {
        match self.value(path) {
            Some(Value::Text(text)) => Some(text),
            _ => None,
        }
    }

    pub(super) fn list(&self, path: &str) -> Vec<String> {
        match self.value(path) {
            Some(Value::List(list)) => list.clone(),
            _ => Vec::new(),
        }
    }

    pub(super) fn time(&self, path: &str) -> Option<Duration> {
        match self.value(path) {
            Some(Value::Time(time)) => *time,
            _ => None,
        }
    }

    pub(super) fn number(&self, path: &str) -> Option<u64> {
        match self.value(path) {
            Some(Value::Number(number) | Value::Bytes(number)) => Some(*number),
            _ => None,
        }
    }

    pub(super) fn path(&self, path: &str) -> Option<PathBuf> {
        match self.value(path) {
            Some(Value::Path(path)) => Some(path.clone()),
            _ => None,
        }
    }
}

impl Entry {
    /// Returns the environment variable that sets the key. `None`: only a file can set it.
    pub fn variable(&self) -> Option<String> {
        self.key.variable().map(|_| super::keys::variable(&self.path))
    }

    /// Returns a problem with this key, at the place where its value was given.
    pub(super) fn problem(&self, message: String, is_error: bool) -> Problem {
        Problem { origin: self.origin.clone(), key: Some(self.path.clone()), message, is_error }
    }
}

/// Returns the default, if it is a value and not a description.
fn standard(key: &Key) -> Option<Value> {
    match key.kind {
        ValueKind::Path => None,
        _ => key.kind.parse(OsStr::new(key.standard)).filter(|_| !key.standard.is_empty()),
    }
}
