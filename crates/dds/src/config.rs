//! How a participant finds the others of its domain, and what it may use.
use spindle::Network;
use spindle_dds_core::policy::{PolicyId, PresentationQosPolicyAccessScopeKind};
use spindle_dds_core::qos::Supported;
use std::path::PathBuf;
use std::time::Duration;

/// How a participant joins its domain. The defaults need no configuration: participants on one host with one
/// number find each other.
#[derive(Clone, Debug)]
pub struct DomainConfig {
    /// The number of the domain. Participants of different domains know nothing of each other.
    pub domain_id: u32,
    /// A name for people, which tools show. By default that of the program.
    pub name: String,
    /// How members on different hosts reach each other; the same for all. `None`: all are on this host.
    pub network: Option<Network>,
    /// The rendezvous directory, the same for all participants of a host: [`spindle::Config::runtime_dir`].
    pub runtime_dir: Option<PathBuf>,
    /// How long to wait for the others before the creation of a participant fails. Default: 10 s.
    pub join_timeout: Duration,
    /// How long the polling thread looks for work before it sleeps: [`spindle::Config::spin_for`]. Default: 50 µs.
    /// A higher value costs idle processor time, and saves the time of a wake-up.
    pub spin_for: Duration,
    /// The silence after which a live process counts as hung, and is expelled:
    /// [`spindle::Config::suspect_after`]. The same for all participants. Default: 1 s.
    pub suspect_after: Option<Duration>,
    /// The bytes of samples that this process may have on the way in an order domain, at most: the size of its
    /// ring there. It holds at least 8 samples and at most 1,024. The participant that has been in the domain for the
    /// longest time decides for each order domain that begins. Default: 256 KiB.
    pub ring_bytes: u64,
    /// How long the end of a participant may take: its last samples are delivered before. Default: 5 s.
    pub close_timeout: Duration,
}

impl DomainConfig {
    /// Returns the configuration of a domain on this host.
    pub fn new(domain_id: u32) -> DomainConfig {
        let program = std::env::current_exe().ok();
        let name = program.and_then(|path| Some(path.file_name()?.to_string_lossy().into_owned()));
        DomainConfig {
            domain_id,
            name: name.unwrap_or_default(),
            network: None,
            runtime_dir: None,
            join_timeout: Duration::from_secs(10),
            spin_for: Duration::from_micros(50),
            suspect_after: Some(Duration::from_secs(1)),
            ring_bytes: 256 << 10,
            close_timeout: Duration::from_secs(5),
        }
    }

    /// Returns the name of the group whose members the participants are.
    pub fn group(&self) -> String {
        format!("dds-{}", self.domain_id)
    }
}

/// Returns the policies that participants honour; others are refused with UNSUPPORTED.
///
/// DURABILITY is VOLATILE, LIVELINESS is AUTOMATIC, and PRESENTATION has the scope INSTANCE or TOPIC.
pub fn supported() -> Supported {
    let mut supported = Supported::minimum();
    supported.participant.extend([PolicyId::UserData, PolicyId::TopicData, PolicyId::GroupData]);
    // A volatile writer keeps samples only until they are sent, and always waits for room.
    supported.writer.extend([
        PolicyId::UserData,
        PolicyId::TopicData,
        PolicyId::GroupData,
        PolicyId::Presentation,
        PolicyId::Reliability,
        PolicyId::History,
        PolicyId::ResourceLimits,
        PolicyId::Lifespan,
        PolicyId::WriterDataLifecycle,
    ]);
    supported.reader.extend([PolicyId::UserData, PolicyId::GroupData, PolicyId::Presentation]);
    supported.access_scope = PresentationQosPolicyAccessScopeKind::Topic;
    supported
}
