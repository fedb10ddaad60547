//! `spindle dds doctor`: whether DDS works on this host and in this domain.
use super::domain::DomainArgs;
use super::endpoints::endpoints;
use super::output::{count, line};
use super::why::{Pair, pairs};
use crate::exit::{CliError, CliResult, FAILED};
use crate::signals::Stop;
use serde_json::json;
use spindle_dds::policy::{HistoryQosPolicy, HistoryQosPolicyKind, ReliabilityQosPolicy};
use spindle_dds::qos::{DataReaderQos, DataWriterQos, DomainParticipantQos, PublisherQos, SubscriberQos, TopicQos};
use spindle_dds::xcdr::{
    DataType, DynamicValue, Extensibility, MemberType, PrimitiveKind, StructType, TypeBody, TypeCollector,
    TypeDescription,
};
use spindle_dds::{DdsDuration, DdsError, DomainConfig, DomainParticipant};
use std::collections::BTreeSet;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// Arguments of `spindle dds doctor`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print one JSON object for each check: "event" "check", "check", "ok", "detail".
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// The samples whose time is measured.
const SAMPLES: usize = 100;
/// The longest wait for a step.
const STEP_WAIT: DdsDuration = DdsDuration::from_secs(10);
const TYPE_NAME: &str = "spindle::Doctor";

/// Prints the checks, and counts those that fail.
struct Report {
    json: bool,
    failed: usize,
}

impl Report {
    /// Prints a check. Returns what it found.
    fn check<T>(&mut self, check: &str, found: Result<(T, String), String>) -> CliResult<Option<T>> {
        let (value, detail) = match found {
            Ok((value, detail)) => (Some(value), detail),
            Err(detail) => (None, detail),
        };
        let is_ok = value.is_some();
        self.failed += usize::from(!is_ok);
        match self.json {
            true => line(json!({"event": "check", "check": check, "ok": is_ok, "detail": detail}))?,
            false => line(format_args!("{} {check}: {detail}", if is_ok { "ok    " } else { "failed" }))?,
        }
        Ok(value)
    }
}

pub(super) fn run(args: &Args) -> CliResult {
    let stop = args.domain.begin(args.json)?;
    let (config, group) = args.domain.config("spindle dds doctor")?;
    let mut report = Report { json: args.json, failed: 0 };
    let dir = group.open().map(|dir| ((), dir.path().display().to_string())).map_err(|error| error.to_string());
    report.check("runtime directory", dir)?;
    let joined = report.check("join", join(&config))?;
    let outcome = joined.as_ref().map_or(Ok(()), |one| examine(&mut report, &config, one, &stop));
    if let Some(one) = joined {
        let start = Instant::now();
        let left = one.close().map(|()| ((), ms(start.elapsed()))).map_err(|error| error.to_string());
        report.check("leave", left)?;
    }
    outcome?;
    match report.failed {
        0 => Ok(()),
        failed => Err(CliError::new(FAILED, format_args!("{} failed", count(failed, "check")))),
    }
}

fn ms(of: Duration) -> String {
    format!("{:.1} ms", of.as_secs_f64() * 1000.0)
}

fn join(config: &DomainConfig) -> Result<(DomainParticipant, String), String> {
    let start = Instant::now();
    let one =
        DomainParticipant::with(config.clone(), DomainParticipantQos::default()).map_err(|error| error.to_string())?;
    let took = ms(start.elapsed());
    let others = one.participants().map_err(|error| error.to_string())?.len().saturating_sub(1);
    let detail = format!("{took}, domain {} has {}", config.domain_id, count(others, "other participant"));
    Ok((one, detail))
}

fn examine(report: &mut Report, config: &DomainConfig, one: &DomainParticipant, stop: &Stop) -> CliResult {
    let own = one.guid();
    let found = one.with_directory(|directory| {
        let all = endpoints(directory, own);
        let near = all.iter().flat_map(|own| directory.near_misses(own.guid)).map(|reason| reason.to_string());
        (pairs(directory, &all, |_| true), near.collect::<BTreeSet<_>>())
    });
    let found = found.map_err(|error| error.to_string());
    report.check("endpoints", found.and_then(|(pairs, near)| judge(&pairs, &near)))?;
    report.check("samples", exchange(config, one, stop).map_err(|error| error.to_string()))?;
    Ok(())
}

/// Finds the pairs that don't match, and names that are close.
fn judge(pairs: &[Pair], near: &BTreeSet<String>) -> Result<((), String), String> {
    let wrong = pairs.iter().filter(|pair| pair.found.is_err()).flat_map(Pair::lines);
    let wrong: Vec<String> = wrong.chain(near.iter().cloned()).collect();
    match wrong.is_empty() {
        true => Ok(((), format!("{} of a writer and a reader, all match", count(pairs.len(), "pair")))),
        false => Err(wrong.join("\n  ")),
    }
}

/// Returns the configuration of a second participant of this process, which listens at any port.
fn second(config: &DomainConfig) -> DomainConfig {
    let mut config = config.clone();
    for address in config.network.iter_mut().flat_map(|network| &mut network.listen) {
        let text = address.to_string();
        let any_port = text.rsplit_once(':').and_then(|(host, _)| format!("{host}:0").parse().ok());
        *address = any_port.unwrap_or_else(|| address.clone());
    }
    config
}

/// Sends samples to a second participant, and measures their times.
fn exchange(config: &DomainConfig, one: &DomainParticipant, stop: &Stop) -> Result<((), String), DdsError> {
    let begin = Instant::now();
    let other = DomainParticipant::with(second(config), DomainParticipantQos::default())?;
    let name = format!("spindle-doctor-{}", one.guid());
    let topic = one.create_dynamic_topic(&name, TYPE_NAME, description(), TopicQos::default())?;
    let writer = one.create_publisher(PublisherQos::default())?;
    let writer = writer.create_dynamic_datawriter(&topic, DataWriterQos::default())?;
    let topic = other.create_dynamic_topic(&name, TYPE_NAME, description(), TopicQos::default())?;
    let qos = DataReaderQos {
        reliability: ReliabilityQosPolicy::WRITER,
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        ..DataReaderQos::default()
    };
    let reader = other.create_subscriber(SubscriberQos::default())?.create_dynamic_datareader(&topic, qos)?;
    writer.wait_for_subscriptions(1, STEP_WAIT)?;
    let mut times = Vec::new();
    for number in 0..SAMPLES as u64 {
        let sample = DynamicValue::Struct(vec![("number".to_string(), DynamicValue::UInt64(number))]);
        if stop.flag.load(Ordering::Acquire) {
            return Err(DdsError::Error("a signal stopped it".to_string()));
        }
        let start = Instant::now();
        writer.write(&sample)?;
        let left = STEP_WAIT.to_std().unwrap_or_default().saturating_sub(begin.elapsed());
        reader.wait_for_data(left.into())?;
        times.push(start.elapsed());
        let taken = reader.take()?;
        if taken.len() != 1 || taken[0].data()? != Some(sample) {
            return Err(DdsError::Error(format!("sample {number} did not arrive as it was written")));
        }
    }
    times.sort_unstable();
    let (median, max) = (times[SAMPLES / 2].as_secs_f64() * 1e6, times[SAMPLES - 1].as_secs_f64() * 1e6);
    other.close()?;
    let detail =
        format!("{median:.0} us from write to read (median of {SAMPLES} to a second participant), {max:.0} us at most");
    Ok(((), detail))
}

/// Returns the type of the samples: a structure of one number.
fn description() -> TypeDescription {
    let mut types = TypeCollector::default();
    let root = types.named(TYPE_NAME, |_| {
        TypeBody::Struct(StructType {
            extensibility: Extensibility::Final,
            nested: false,
            autoid_hash: false,
            members: vec![MemberType {
                name: "number".to_string(),
                id: 0,
                data: DataType::Primitive(PrimitiveKind::UInt64),
                key: false,
                optional: false,
                must_understand: false,
                external: false,
                hash_id: None,
            }],
        })
    });
    types.finish(root)
}
