//! `spindle dds pub`: samples of a topic from JSON.
use super::domain::{DomainArgs, SLICE, Session};
use super::echo::warn;
use super::endpoints::{endpoints, writer_qos};
use super::output::count;
use super::why::pairs;
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::{lines, quantity};
use serde_json::Value;
use spindle_dds::qos::TopicQos;
use spindle_dds::{DdsError, DynamicTopic, DynamicWriter, Guid};
use std::io::{BufRead, stdin};
use std::sync::mpsc::{Receiver, RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `spindle dds pub`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The topic
    topic: String,

    /// The sample as JSON, such as '{"sensor": "a", "value": 1}'; by default each line of the standard input is one
    #[arg(long, value_name = "DATA")]
    json: Option<String>,

    /// Publish so many samples a second; without it, as fast as they are taken
    #[arg(long, value_name = "HZ", value_parser = rate)]
    rate: Option<f64>,

    /// End after so many samples; with --json and without --rate, 1 by default
    #[arg(long, value_name = "N")]
    count: Option<u64>,

    /// Take the type from this topic, if no participant has the other one yet
    #[arg(long, value_name = "TOPIC")]
    type_from: Option<String>,

    /// The longest wait for the topic, for its readers, and at the end for the last samples
    #[arg(long, value_name = "TIME", default_value = "10", value_parser = quantity::seconds)]
    timeout: Duration,

    #[command(flatten)]
    domain: DomainArgs,
}

/// The lines of the input that wait to be sent.
const LINES_MAX: usize = 64;

fn rate(text: &str) -> Result<f64, String> {
    let rate = text.parse::<f64>().ok().filter(|rate| (1e-3..=1e6).contains(rate));
    rate.ok_or_else(|| "a rate is a number of samples a second, 0.001 to 1000000".to_string())
}

pub(super) fn run(args: &Args) -> CliResult {
    let given = args.json.as_deref().map(|text| parse(text, "--json", USAGE)).transpose()?;
    args.domain.visit(false, "spindle dds pub", |session| {
        let Some(topic) = topic(session, args)? else { return Ok(()) };
        let (publisher, qos) = session.participant.with_directory(|directory| writer_qos(directory, &args.topic))?;
        let writer = session.participant.create_publisher(publisher)?.create_dynamic_datawriter(&topic, qos)?;
        wait_for_readers(session, &writer, args.timeout)?;
        let sent = send(session, args, &topic, &writer, given.as_ref());
        let delivered = session.wait(args.timeout, |part| writer.wait_for_acknowledgments(part));
        lines::tell(format_args!("published {}", count(usize::try_from(sent?).unwrap_or(usize::MAX), "sample")));
        Ok(delivered?)
    })
}

fn parse(text: &str, place: &str, status: u8) -> CliResult<Value> {
    serde_json::from_str(text).map_err(|error| CliError::new(status, format_args!("{place} is no JSON: {error}")))
}

/// Finds or creates the topic.
fn topic(session: &Session, args: &Args) -> CliResult<Option<DynamicTopic>> {
    let Some(other) = &args.type_from else { return session.find(&args.topic, args.timeout) };
    let Some(found) = session.find(other, args.timeout)? else { return Ok(None) };
    let (name, description) = (found.type_name(), found.data_type().description().clone());
    Ok(Some(session.participant.create_dynamic_topic(&args.topic, name, description, TopicQos::default())?))
}

/// Waits for the readers that are there, and warns of those that don't match.
fn wait_for_readers(session: &Session, writer: &DynamicWriter, timeout: Duration) -> CliResult {
    let own = writer.guid();
    let participant = &session.participant;
    let announced = session.wait(timeout, |part| participant.wait_for(|it| it.writer(own).is_some(), part));
    if let Err(DdsError::Timeout { .. }) = announced {
        let message = format!("the domain did not take the writer within {timeout:?}; see the events (-v)");
        return Err(CliError::new(FAILED, message));
    }
    announced?;
    let (matching, wrong) = session.participant.with_directory(|directory| {
        let matching = directory.matches().filter(|(writer, ..)| *writer == own).count();
        let all = endpoints(directory, Guid([0; 16]));
        let pairs = pairs(directory, &all, |topic| topic == writer.topic_name());
        let wrong = pairs.into_iter().filter(|pair| pair.writer.guid == own && pair.found.is_err());
        (matching, wrong.flat_map(|pair| pair.lines()).collect::<Vec<_>>())
    })?;
    if !wrong.is_empty() {
        warn(false, wrong.join("\n"));
    }
    if matching == 0 {
        warn(
            false,
            format!("no reader of topic '{}' matches now; samples that none reads are lost", writer.topic_name()),
        );
        return Ok(());
    }
    match session.wait(timeout, |part| writer.wait_for_subscriptions(matching, part)) {
        Ok(()) => Ok(()),
        // A reader may have gone meanwhile.
        Err(DdsError::Timeout { .. }) => {
            warn(false, format!("of {} some don't receive yet", count(matching, "reader")));
            Ok(())
        }
        Err(error) => Err(error.into()),
    }
}

/// Sends the samples. Returns how many.
fn send(
    session: &Session,
    args: &Args,
    topic: &DynamicTopic,
    writer: &DynamicWriter,
    given: Option<&Value>,
) -> CliResult<u64> {
    let by_default = if given.is_some() && args.rate.is_none() { 1 } else { u64::MAX };
    let limit = args.count.unwrap_or(by_default);
    let (input, start, mut sent) = (given.is_none().then(read_lines), Instant::now(), 0);
    let given = given.map(|value| (value.clone(), "--json".to_string(), USAGE));
    let mut source = Source { input, given, number: 0 };
    while sent < limit && !session.is_stopped() {
        let Some((json, place, status)) = source.next(session)? else { break };
        let value = topic.data_type().from_json(&json);
        let value = value.map_err(|error| CliError::new(status, format_args!("{place}: {error}")))?;
        if let Some(rate) = args.rate {
            let at = start + Duration::from_secs_f64(sent as f64 / rate);
            while !session.is_stopped() && at > Instant::now() {
                thread::sleep(at.saturating_duration_since(Instant::now()).min(SLICE));
            }
            if session.is_stopped() {
                break;
            }
        }
        writer.write(&value).map_err(|error| CliError::new(FAILED, format_args!("{place}: {error}")))?;
        sent += 1;
    }
    Ok(sent)
}

/// The origin of samples.
struct Source {
    input: Option<Receiver<std::io::Result<String>>>,
    /// The sample that is sent each time, with its place and the status of its errors.
    given: Option<(Value, String, u8)>,
    /// The lines that were read.
    number: u64,
}

impl Source {
    /// Returns the next sample, its place and the status of its errors; `None` at the end.
    fn next(&mut self, session: &Session) -> CliResult<Option<(Value, String, u8)>> {
        let Some(input) = &self.input else { return Ok(self.given.clone()) };
        loop {
            match input.recv_timeout(SLICE) {
                Ok(Ok(text)) => {
                    self.number += 1;
                    if text.trim().is_empty() {
                        continue;
                    }
                    let place = format!("line {} of the input", self.number);
                    return Ok(Some((parse(&text, &place, FAILED)?, place, FAILED)));
                }
                Ok(Err(error)) => return Err(CliError::new(FAILED, format_args!("can't read the input: {error}"))),
                Err(RecvTimeoutError::Timeout) if !session.is_stopped() => {}
                Err(_) => return Ok(None),
            }
        }
    }
}

/// Reads the standard input on a thread of its own, which a signal need not interrupt.
fn read_lines() -> Receiver<std::io::Result<String>> {
    let (send, lines) = sync_channel(LINES_MAX);
    thread::spawn(move || {
        for line in stdin().lock().lines() {
            let is_last = line.is_err();
            if send.send(line).is_err() || is_last {
                return;
            }
        }
    });
    lines
}
