//! `spindle dds why`: why writers and readers match, or why not.
use super::domain::{DomainArgs, Session};
use super::endpoints::{Endpoint, Side, endpoints, find, topic_names};
use super::output::line;
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use serde_json::{Value, json};
use spindle_dds::DdsDuration;
use spindle_dds::directory::Directory;
use spindle_dds::matching::{EndpointMatch, Mismatch};
use std::collections::BTreeSet;

/// Arguments of `spindle dds why`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A topic; or a writer and a reader, as `spindle dds ls --qos` names them or by the begin of their identities
    #[arg(num_args = 1..=2, required = true, value_name = "TOPIC|ENDPOINT")]
    words: Vec<String>,

    /// Print JSON objects.
    ///
    /// For each pair "event" "pair": writer and reader (as of `spindle dds ls`), matches, and terms ({partition:
    /// {writer, reader}, representation, consistency}, or null) or reasons (a list of texts). For each name
    /// that is close "event" "near_miss": reason.
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// The answer about a pair.
pub(super) struct Pair {
    pub(super) writer: Endpoint,
    pub(super) reader: Endpoint,
    pub(super) found: Result<EndpointMatch, Vec<Mismatch>>,
}

pub(super) fn run(args: &Args) -> CliResult {
    args.domain.visit(args.json, "spindle dds why", |session| {
        let (pairs, near_misses) = match &args.words[..] {
            [topic] => of_topic(session, topic, args.json)?,
            [one, other] => (vec![of_two(session, one, other)?], BTreeSet::new()),
            _ => return Err(CliError::new(USAGE, "name a topic, or a writer and a reader")),
        };
        for pair in &pairs {
            if args.json { line(pair.to_json())? } else { pair.lines().into_iter().try_for_each(line)? }
        }
        for reason in &near_misses {
            match args.json {
                true => line(json!({"event": "near_miss", "reason": reason}))?,
                false => line(reason)?,
            }
        }
        match pairs.iter().filter(|pair| pair.found.is_err()).count() {
            0 => Ok(()),
            wrong if pairs.len() == 1 => Err(CliError::new(FAILED, format_args!("{wrong} pair does not match"))),
            wrong => {
                let all = pairs.len();
                Err(CliError::new(FAILED, format_args!("{wrong} of {all} pairs don't match")))
            }
        }
    })
}

/// Returns all pairs of the endpoints that are on one topic each.
pub(super) fn pairs(directory: &Directory, all: &[Endpoint], is_wanted: impl Fn(&str) -> bool) -> Vec<Pair> {
    let of = |side: Side| all.iter().filter(move |own| own.side == side);
    let mut pairs = Vec::new();
    for writer in of(Side::Writer).filter(|own| is_wanted(&own.topic)) {
        for reader in of(Side::Reader).filter(|own| own.topic == writer.topic) {
            if let Ok(found) = directory.why(writer.guid, reader.guid) {
                pairs.push(Pair { writer: writer.clone(), reader: reader.clone(), found });
            }
        }
    }
    pairs
}

fn of_topic(session: &Session, topic: &str, json: bool) -> CliResult<(Vec<Pair>, BTreeSet<String>)> {
    let own = session.participant.guid();
    let (is_known, pairs, sides, near_misses) = session.participant.with_directory(|directory| {
        let all = endpoints(directory, own);
        let here: Vec<&Endpoint> = all.iter().filter(|own| own.topic == topic).collect();
        let near = here.iter().flat_map(|own| directory.near_misses(own.guid));
        let near: BTreeSet<String> = near.map(|reason| reason.to_string()).collect();
        let has = |side: Side| here.iter().any(|own| own.side == side);
        let sides = [has(Side::Writer), has(Side::Reader)];
        let is_known = topic_names(directory, own).contains(topic);
        (is_known, pairs(directory, &all, |name| name == topic), sides, near)
    })?;
    if !is_known {
        // It has the error, with the names that are close.
        session.participant.find_dynamic_topic(topic, DdsDuration::ZERO)?;
    }
    let lack = match sides {
        [true, true] => None,
        [true, false] => Some("no readers"),
        [false, true] => Some("no writers"),
        [false, false] => Some("no writers and no readers"),
    };
    if let Some(lack) = lack.filter(|_| !json) {
        line(format_args!("topic '{topic}' has {lack}"))?;
    }
    Ok((pairs, near_misses))
}

fn of_two(session: &Session, one: &str, other: &str) -> CliResult<Pair> {
    let own = session.participant.guid();
    let all = session.participant.with_directory(|directory| endpoints(directory, own))?;
    let (one, other) = (find(&all, one)?, find(&all, other)?);
    let (writer, reader) = match (one.side, other.side) {
        (Side::Writer, Side::Reader) => (one, other),
        (Side::Reader, Side::Writer) => (other, one),
        (side, _) => {
            return Err(CliError::new(USAGE, format_args!("both are {}s; name a writer and a reader", side.name())));
        }
    };
    let found = session.participant.why(writer.guid, reader.guid)?;
    Ok(Pair { writer, reader, found })
}

impl Pair {
    pub(super) fn lines(&self) -> Vec<String> {
        let both = format!("{} and {}", self.writer.shown(), self.reader.shown());
        match &self.found {
            Ok(terms) => {
                let EndpointMatch { partition, representation, consistency } = terms;
                let (own, other) = (&partition.writer, &partition.reader);
                let partition = match own == other {
                    true if own.is_empty() => "the default partition".to_string(),
                    true => format!("partition '{own}'"),
                    false => format!("partitions '{own}' and '{other}'"),
                };
                vec![format!("{both} match: {partition}, {representation}, {consistency}")]
            }
            Err(reasons) => {
                let head = format!("{both} don't match:");
                std::iter::once(head).chain(reasons.iter().map(|reason| format!("  {reason}"))).collect()
            }
        }
    }

    fn to_json(&self) -> Value {
        let mut object = json!({
            "event": "pair",
            "writer": self.writer.to_json(false),
            "reader": self.reader.to_json(false),
            "matches": self.found.is_ok(),
        });
        match &self.found {
            Ok(EndpointMatch { partition, representation, consistency }) => {
                object["terms"] = json!({
                    "partition": {"writer": partition.writer, "reader": partition.reader},
                    "representation": representation.to_string(),
                    "consistency": consistency.to_string(),
                });
            }
            Err(reasons) => object["reasons"] = reasons.iter().map(ToString::to_string).collect(),
        }
        object
    }
}
