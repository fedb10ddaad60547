//! The domain that a command joins.
use crate::exit::{CliError, CliResult, FAILED};
use crate::log::Verbosity;
use crate::quantity;
use crate::settings::{GroupLocation, Sources, dds_domain, flag_of};
use crate::signals::Stop;
use spindle::Config;
use spindle::settings::Origin;
use spindle_dds::qos::DomainParticipantQos;
use spindle_dds::{DdsDuration, DdsError, DomainConfig, DomainParticipant, DynamicTopic};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// The longest wait without a look at the signals.
pub(super) const SLICE: Duration = Duration::from_millis(50);

/// The domain, and how it is joined.
#[derive(Clone, Debug, clap::Args)]
pub(super) struct DomainArgs {
    /// The number of the domain; by default $SPINDLE_DDS_DOMAIN, else 0
    #[arg(long, value_name = "N")]
    domain: Option<u32>,

    /// The longest wait for the other participants while the command joins the domain
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = quantity::seconds)]
    join_timeout: Duration,

    #[command(flatten)]
    sources: Sources,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// The command as a participant of a domain.
pub(super) struct Session {
    pub(super) participant: DomainParticipant,
    pub(super) stop: Stop,
    pub(super) group: GroupLocation,
}

impl From<DdsError> for CliError {
    fn from(error: DdsError) -> CliError {
        CliError::new(FAILED, error)
    }
}

impl DomainArgs {
    /// Returns the configuration of a participant with this name, and the place of its group.
    pub(super) fn config(&self, name: &str) -> CliResult<(DomainConfig, GroupLocation)> {
        let domain = self.domain.map_or_else(dds_domain, Ok)?;
        let own = DomainConfig::new(domain);
        let mut settings = self.sources.read()?;
        settings.flag("group.name", own.group(), flag_of("group.name"));
        let effective = settings.effective()?;
        let Config { network, suspect_after, .. } = effective.config()?;
        let is_given = effective.entry("group.suspect_after").is_some_and(|entry| entry.origin != Origin::Standard);
        let group = GroupLocation::of(&effective)?;
        let config = DomainConfig {
            name: name.to_string(),
            network,
            runtime_dir: Some(group.dir.clone()),
            join_timeout: self.join_timeout,
            suspect_after: if is_given { suspect_after } else { own.suspect_after },
            ..own
        };
        Ok((config, group))
    }

    /// Starts to print events and to handle signals.
    pub(super) fn begin(&self, json: bool) -> CliResult<Stop> {
        self.verbosity.begin(json)?;
        Ok(Stop::on_signals(|_| {})?)
    }

    /// Joins the domain, works there, and leaves it in order.
    pub(super) fn visit(&self, json: bool, name: &str, work: impl FnOnce(&Session) -> CliResult) -> CliResult {
        let stop = self.begin(json)?;
        let (config, group) = self.config(name)?;
        let participant = DomainParticipant::with(config, DomainParticipantQos::default())?;
        let session = Session { participant, stop, group };
        let outcome = work(&session);
        let left = session.participant.close();
        outcome?;
        Ok(left?)
    }
}

impl Session {
    /// Returns whether a signal asked the command to stop.
    pub(super) fn is_stopped(&self) -> bool {
        self.stop.flag.load(Ordering::Acquire)
    }

    /// Waits in parts, each at most [`SLICE`], until the time or the patience is over: a signal ends the patience of
    /// waits that have begun, and of later ones.
    pub(super) fn wait(
        &self,
        timeout: Duration,
        mut part: impl FnMut(DdsDuration) -> Result<(), DdsError>,
    ) -> Result<(), DdsError> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            match part(DdsDuration::from(left.min(SLICE))) {
                Err(DdsError::Timeout { .. }) if !left.is_zero() && !self.is_stopped() => {}
                outcome => return outcome,
            }
        }
    }

    /// Waits for a topic. Returns `None` if a signal stopped the command meanwhile.
    pub(super) fn find(&self, topic: &str, timeout: Duration) -> CliResult<Option<DynamicTopic>> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            if self.is_stopped() {
                return Ok(None);
            }
            match self.participant.find_dynamic_topic(topic, DdsDuration::from(left.min(SLICE))) {
                Ok(found) => return Ok(Some(found)),
                Err(error @ DdsError::PreconditionNotMet { .. }) => {
                    // No description will come for the type of a topic that is there.
                    let types = self.participant.topic_types(topic)?;
                    let lacks_description = !types.is_empty() && types.iter().all(|own| own.description.is_none());
                    if left.is_zero() || lacks_description {
                        return Err(error.into());
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}
