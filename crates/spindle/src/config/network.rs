//! The network of a member in a group that spans hosts: addresses, seeds, security, transport.
use spindle_core::control::{Address, RackName};
use spindle_fabric_ofi::OfiOptions;
use spindle_transport::SocketOptions;
use spindle_transport::net::{Names, Security};
use std::time::Duration;

/// The configuration of a member in a group that spans hosts. Either all members have one or none
/// has.
#[derive(Clone, Debug)]
pub struct Network {
    /// The addresses of this host at which this process listens. Port 0 lets the system choose,
    /// which is right for all processes but seeds.
    pub listen: Vec<Address>,
    /// The address at which others reach this process, if it is not the first of `listen`. It is
    /// required behind a wildcard address or an address translation.
    pub advertise: Option<Address>,
    /// The addresses of the processes with which the group starts. All members give the same ones
    /// in the same order.
    ///
    /// The seeds create the group when all of them are present, or when more than half are present
    /// that store [votes](crate::Config::data_dir). One seed that answers is enough to join the
    /// group later. Each seed is one process, even a name with several addresses, unless
    /// `seed_count` says otherwise.
    pub seeds: Vec<Address>,
    /// How many processes the seeds stand for, if names among them stand for several, as that of a
    /// headless service does. All members give the same number. It has to be the number of all
    /// processes at these names when the group is created.
    ///
    /// Each address of a name is then a seed. The seeds are sorted by address instead of the order
    /// in which they were given. Names are resolved for as long as the process looks for the group.
    /// The group is created only while exactly this number of addresses is known. If a name has
    /// IPv4 and IPv6 addresses, only the IPv4 addresses count.
    pub seed_count: Option<u32>,
    /// The resolver of names: the system, unless the application supplies another.
    pub names: Names,
    /// The trusted processes.
    pub security: Security,
    /// How long the operating system may see a connection silent before it counts as broken.
    /// Independently, members suspect a member that is silent for
    /// [`suspect_after`](crate::Config::suspect_after).
    pub silence: Duration,
    /// The rack of this process, if hosts are in racks. Each member reports its own, and the others
    /// trust it. Blocks of [large messages](crate::Publisher::send_object) cross once from one rack
    /// to the next. All processes without a rack count as one rack.
    pub rack: Option<RackName>,
    /// The transport of the members' rows between hosts. Control messages, and data for observers,
    /// always use streams.
    pub transport: Transport,
}

/// The transport of the members' rows between hosts, the same at all members.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum Transport {
    /// Streams: TCP, or TLS over it.
    #[default]
    Tcp,
    /// libfabric, for RDMA hardware. Without an address it uses that of [`Network::listen`], if
    /// that is an IP address. libfabric encrypts nothing, so it is for [trusted
    /// networks](Security::Insecure) only.
    Ofi(OfiOptions),
}

impl Network {
    /// Returns a configuration that listens at `listen` and looks for the group at `seeds`; all on
    /// loopback, unless `security` is set.
    pub fn new(listen: Address, seeds: Vec<Address>) -> Network {
        Network {
            listen: vec![listen],
            advertise: None,
            seeds,
            seed_count: None,
            names: Names::default(),
            security: Security::default(),
            silence: Duration::from_millis(SocketOptions::SILENCE_MS.into()),
            rack: None,
            transport: Transport::Tcp,
        }
    }
}
