//! `spindle dds echo`: the samples of a topic, as they come.
use super::domain::{DomainArgs, SLICE, Session};
use super::endpoints::{reader_qos, short};
use super::output::line;
use crate::calendar::Utc;
use crate::exit::{CliError, CliResult, FAILED};
use crate::{lines, quantity};
use serde_json::{Value, json};
use spindle_dds::instance::InstanceState;
use spindle_dds::{DdsDuration, DdsError, DdsTime, DynamicReader, DynamicSample, Guid};
use std::time::{Duration, Instant};

/// Arguments of `spindle dds echo`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic
    topic: String,

    /// End after so many samples and changes of state
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// End with status 1 if no sample comes for so long, the topic included
    ///
    /// Without it the command waits 10 s for the topic, and for samples until Ctrl-C.
    #[arg(long, value_name = "TIME", value_parser = quantity::seconds)]
    timeout: Option<Duration>,

    /// Print one JSON object for each sample.
    ///
    /// "position" (order domain, view and number in it: its place in the order on which all readers agree),
    /// "source_time", "writer", "state" (of its instance: ALIVE, NOT_ALIVE_DISPOSED, NOT_ALIVE_NO_WRITERS), and
    /// "data", or "key" if only the state changed.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// How long a command waits for a topic without `--timeout`.
const TOPIC_WAIT: Duration = Duration::from_secs(10);

pub(super) fn run(args: &Args) -> CliResult {
    args.domain.visit(args.json, "spindle dds echo", |session| {
        let Some(reader) = reader(session, &args.topic, args.timeout)? else { return Ok(()) };
        let outcome = print(args, session, &reader);
        let counters = reader.counters();
        for (count, what) in [
            (counters.rejected, "samples had no room, as the output is too slow"),
            (counters.undecodable, "samples are not of the type of the topic"),
        ] {
            if count > 0 {
                warn(args.json, format!("{count} {what}"));
            }
        }
        outcome
    })
}

/// Tells a warning on the standard error.
pub(super) fn warn(json: bool, message: String) {
    match json {
        true => lines::tell(json!({"event": "warning", "message": message})),
        false => lines::tell(format_args!("warning: {message}")),
    }
}

/// Waits for a topic and creates a reader of it. Returns `None` if a signal stopped the command meanwhile.
pub(super) fn reader(session: &Session, topic: &str, timeout: Option<Duration>) -> CliResult<Option<DynamicReader>> {
    let Some(found) = session.find(topic, timeout.unwrap_or(TOPIC_WAIT))? else { return Ok(None) };
    let (subscriber, qos) = session.participant.with_directory(|directory| reader_qos(directory, topic))?;
    let subscriber = session.participant.create_subscriber(subscriber)?;
    Ok(Some(subscriber.create_dynamic_datareader(&found, qos)?))
}

/// Waits a short time for samples, and returns those that there are in their order.
pub(super) fn next(reader: &DynamicReader) -> CliResult<Vec<DynamicSample>> {
    match reader.wait_for_data(DdsDuration::from(SLICE)) {
        Ok(()) | Err(DdsError::Timeout { .. }) => {}
        Err(error) => return Err(error.into()),
    }
    let mut samples = reader.take()?;
    // All are of one order domain; the cache has them by instance.
    samples.sort_by_key(|sample| sample.info().position.place());
    Ok(samples)
}

fn print(args: &Args, session: &Session, reader: &DynamicReader) -> CliResult {
    let (mut left, mut last) = (args.count.unwrap_or(u64::MAX), Instant::now());
    while left > 0 && !session.is_stopped() {
        for sample in next(reader)? {
            match args.json {
                true => line(to_json(&sample)?)?,
                false => line(to_text(&sample)?)?,
            }
            last = Instant::now();
            left -= 1;
            if left == 0 {
                break;
            }
        }
        if let Some(timeout) = args.timeout.filter(|timeout| last.elapsed() > *timeout) {
            let topic = &args.topic;
            let message = format!("no sample of topic '{topic}' came for {timeout:?}; see `spindle dds why {topic}`");
            return Err(CliError::new(FAILED, message));
        }
    }
    Ok(())
}

/// Returns the state of an instance after a sample. With data it is alive, whatever came later.
fn state(sample: &DynamicSample) -> &'static str {
    match sample.info().instance_state {
        _ if sample.info().valid_data => "ALIVE",
        InstanceState::Alive => "ALIVE",
        InstanceState::NotAliveDisposed => "NOT_ALIVE_DISPOSED",
        InstanceState::NotAliveNoWriters => "NOT_ALIVE_NO_WRITERS",
    }
}

fn time(of: DdsTime) -> String {
    Utc(Duration::from_nanos(u64::try_from(of.as_nanos()).unwrap_or(0))).to_string()
}

fn to_json(sample: &DynamicSample) -> Result<Value, DdsError> {
    let info = sample.info();
    let mut object = json!({
        "position": info.position.to_string(),
        "source_time": time(info.source_timestamp),
        "writer": Guid(info.publication_handle.0).to_string(),
        "state": state(sample),
    });
    match sample.data()? {
        Some(data) => object["data"] = data.to_json(),
        None => object["key"] = sample.key()?.to_json(),
    }
    Ok(object)
}

fn to_text(sample: &DynamicSample) -> Result<String, DdsError> {
    let info = sample.info();
    let data = match sample.data()? {
        Some(data) => data.to_string(),
        None => format!("key {}", sample.key()?),
    };
    let writer = short(Guid(info.publication_handle.0));
    let (at, state) = (time(info.source_timestamp), state(sample));
    Ok(format!("{} {at} {writer} {state} {data}", info.position))
}
