//! `spindle dds ls`, `ps` and `typeof`: the directory of a domain.
use super::domain::{DomainArgs, Session};
use super::endpoints::{Endpoint, Side, endpoints, fits, short, topic_names};
use super::output::{line, listed, table};
use crate::admin_client::{AdminClient, newest};
use crate::exit::{CliError, CliResult, FAILED};
use serde_json::{Value, json};
use spindle::MemberId;
use spindle_core::control::Request;
use spindle_dds::DdsDuration;
use spindle_dds::directory::{Directory, DomainPlan, ParticipantEntry};
use std::collections::{BTreeMap, BTreeSet};

/// Arguments of `spindle dds ls`.
#[derive(Debug, clap::Args)]
pub(crate) struct LsArgs {
    /// Only topics with this name, or whose names fit this pattern with `*`, `?` and `[a-z]`
    #[arg(long, value_name = "GLOB")]
    topic: Option<String>,

    /// Print each writer and reader with the policies that differ from the default
    #[arg(long)]
    qos: bool,

    /// Print one JSON object for each topic.
    ///
    /// "event" "topic", "topic", "types" (a list of {name, hash (or null)}), "writers" and "readers" (lists of {guid,
    /// participant, name, process, topic, type, and with --qos qos}), "order_domain" (null before the first writer,
    /// or {number, level, topics, members, senders, observers, message_bytes_max}).
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// Arguments of `spindle dds ps`.
#[derive(Debug, clap::Args)]
pub(crate) struct PsArgs {
    /// Print one JSON object for each participant.
    ///
    /// "event" "participant", "guid", "name", "process" (its id in the group), "pid" (or null), "host" ("this",
    /// "another" or null), "writers" and "readers" (lists as of `spindle dds ls`).
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

/// Arguments of `spindle dds typeof`.
#[derive(Debug, clap::Args)]
pub(crate) struct TypeofArgs {
    /// The topic
    topic: String,

    /// Print one JSON object for each type: "event" "type", "topic", "name", "hash", "idl".
    #[arg(long)]
    pub(super) json: bool,

    #[command(flatten)]
    domain: DomainArgs,
}

pub(super) fn ls(args: &LsArgs) -> CliResult {
    args.domain.visit(args.json, "spindle dds ls", |session| {
        let own = session.participant.guid();
        let is_wanted = |topic: &String| args.topic.as_ref().is_none_or(|pattern| fits(topic, pattern));
        let found = session.participant.with_directory(|directory| {
            let all = endpoints(directory, own);
            let topics = topic_names(directory, own).into_iter().filter(is_wanted);
            topics.map(|topic| TopicLine::of(directory, &all, topic)).collect::<Vec<_>>()
        })?;
        match (args.json, &args.topic) {
            (true, _) => found.iter().try_for_each(|topic| line(topic.to_json(args.qos))),
            (false, None) if found.is_empty() => {
                line(format_args!("domain {} has no topics", session.participant.domain_id()))
            }
            (false, Some(pattern)) if found.is_empty() => {
                line(format_args!("domain {} has no topics that fit {pattern:?}", session.participant.domain_id()))
            }
            (false, _) if args.qos => found.iter().try_for_each(TopicLine::print_with_qos),
            (false, _) => {
                let heads = ["TOPIC", "TYPE", "WRITERS", "READERS", "ORDER DOMAIN"].map(str::to_string).to_vec();
                table(std::iter::once(heads).chain(found.iter().map(TopicLine::row)).collect::<Vec<_>>())
            }
        }
    })
}

/// A topic of the listing.
struct TopicLine {
    topic: String,
    /// Names and hashes.
    types: BTreeSet<(String, Option<String>)>,
    writers: Vec<Endpoint>,
    readers: Vec<Endpoint>,
    plan: Option<DomainPlan>,
}

impl TopicLine {
    fn of(directory: &Directory, all: &[Endpoint], topic: String) -> TopicLine {
        let of = |side: Side| {
            let own = all.iter().filter(|own| own.topic == topic && own.side == side);
            own.cloned().collect::<Vec<_>>()
        };
        let topics = directory.topics().filter(|own| own.topic.name == topic);
        let types = topics.map(|own| (own.topic.type_name.clone(), own.type_hash.map(|hash| hash.to_string())));
        let (writers, readers) = (of(Side::Writer), of(Side::Reader));
        let used = writers.iter().chain(&readers).map(|own| (own.type_name.clone(), own.type_hash.clone()));
        let types = types.chain(used).collect();
        let plan = directory.domain_of(&topic).and_then(|domain| directory.plan(domain)).cloned();
        TopicLine { topic, types, writers, readers, plan }
    }

    fn shown_types(&self) -> String {
        let mut names: Vec<&str> = self.types.iter().map(|(name, _)| name.as_str()).collect();
        names.dedup();
        match self.types.len() == names.len() {
            true => listed(names),
            false => format!("{} ({} types)", listed(names), self.types.len()),
        }
    }

    fn shown_plan(&self) -> String {
        let Some(plan) = &self.plan else { return "-".to_string() };
        let observers = match &plan.observers[..] {
            [] => String::new(),
            all => format!("; observers {}", listed(all)),
        };
        let DomainPlan { domain, members, senders, .. } = plan;
        format!("{domain}: members {}; senders {}{observers}", listed(members), listed(senders))
    }

    fn row(&self) -> Vec<String> {
        let (writers, readers) = (self.writers.len().to_string(), self.readers.len().to_string());
        vec![self.topic.clone(), self.shown_types(), writers, readers, self.shown_plan()]
    }

    fn print_with_qos(&self) -> CliResult {
        line(format_args!("{}: type {}, order domain {}", self.topic, self.shown_types(), self.shown_plan()))?;
        let all = self.writers.iter().chain(&self.readers);
        all.map(|own| format!("  {}: {}", own.shown(), own.shown_qos())).try_for_each(line)
    }

    fn to_json(&self, with_qos: bool) -> Value {
        let types = self.types.iter().map(|(name, hash)| json!({"name": name, "hash": hash}));
        let plan = self.plan.as_ref().map(|plan| {
            json!({
                "number": plan.domain,
                "level": plan.level.to_string(),
                "topics": plan.topics,
                "members": plan.members,
                "senders": plan.senders,
                "observers": plan.observers,
                "message_bytes_max": plan.message_bytes_max,
            })
        });
        let objects = |all: &[Endpoint]| all.iter().map(|own| own.to_json(with_qos)).collect::<Vec<_>>();
        json!({
            "event": "topic",
            "topic": self.topic,
            "types": types.collect::<Vec<_>>(),
            "writers": objects(&self.writers),
            "readers": objects(&self.readers),
            "order_domain": plan,
        })
    }
}

pub(super) fn ps(args: &PsArgs) -> CliResult {
    args.domain.visit(args.json, "spindle dds ps", |session| {
        let own = session.participant.guid();
        let (mut participants, all) = session.participant.with_directory(|directory| {
            let participants: Vec<_> = directory.participants().filter(|it| it.guid != own).cloned().collect();
            (participants, endpoints(directory, own))
        })?;
        participants.sort_by_key(|it| (it.member, it.guid));
        let places = places(session);
        let of = |participant: &ParticipantEntry, side: Side| {
            let own = all.iter().filter(|own| own.participant == participant.guid && own.side == side);
            own.collect::<Vec<_>>()
        };
        if args.json {
            return participants.iter().try_for_each(|it| {
                let objects = |side: Side| of(it, side).into_iter().map(|own| own.to_json(false)).collect::<Vec<_>>();
                let place = places.get(&it.member);
                line(json!({
                    "event": "participant",
                    "guid": it.guid.to_string(),
                    "name": it.name,
                    "process": it.member,
                    "pid": place.map(|place| place.pid),
                    "host": place.map(ProcessPlace::host),
                    "writers": objects(Side::Writer),
                    "readers": objects(Side::Reader),
                }))
            });
        }
        if participants.is_empty() {
            return line(format_args!("domain {} has no other participants", session.participant.domain_id()));
        }
        let heads = ["PROCESS", "PARTICIPANT", "NAME", "PID", "HOST", "WRITERS", "READERS"].map(str::to_string);
        let rows = participants.iter().map(|it| {
            let topics = |side: Side| listed(of(it, side).into_iter().map(|own| &own.topic).collect::<BTreeSet<_>>());
            let place = places.get(&it.member);
            vec![
                it.member.to_string(),
                short(it.guid),
                it.name.clone(),
                place.map_or("-".to_string(), |place| place.pid.to_string()),
                place.map_or("-", ProcessPlace::host).to_string(),
                topics(Side::Writer),
                topics(Side::Reader),
            ]
        });
        table(std::iter::once(heads.to_vec()).chain(rows).collect::<Vec<_>>())
    })
}

/// The place of a process.
struct ProcessPlace {
    pid: u64,
    is_far: bool,
}

impl ProcessPlace {
    fn host(&self) -> &'static str {
        if self.is_far { "another" } else { "this" }
    }
}

/// Returns the places of the processes of the group, as the process of this command knows them. Without an answer
/// there are none.
fn places(session: &Session) -> BTreeMap<u64, ProcessPlace> {
    let guid = session.participant.guid();
    let own = session.participant.with_directory(|directory| directory.participant(guid).map(|own| own.member));
    let Ok(Some(own)) = own else { return BTreeMap::new() };
    let answers = AdminClient::open(&session.group)
        .and_then(|mut client| client.ask(&[MemberId(own)], Request::Status))
        .unwrap_or_default();
    let members = newest(&answers).and_then(|answer| answer["members"].as_array()).into_iter().flatten();
    let place = |member: &Value| {
        let place = ProcessPlace { pid: member["pid"].as_u64()?, is_far: member["far"] == true };
        Some((member["id"].as_u64()?, place))
    };
    members.filter_map(place).collect()
}

pub(super) fn type_of(args: &TypeofArgs) -> CliResult {
    args.domain.visit(args.json, "spindle dds typeof", |session| {
        let types = session.participant.topic_types(&args.topic)?;
        let mut described = types.iter().filter_map(|own| Some((own, own.description.as_ref()?))).peekable();
        if described.peek().is_none() {
            // It has the error of an unknown topic, and of a type without a description.
            session.participant.find_dynamic_topic(&args.topic, DdsDuration::ZERO)?;
            return Err(CliError::new(FAILED, format_args!("topic '{}' has changed; try again", args.topic)));
        }
        let several = types.len() > 1;
        for (index, (own, description)) in described.enumerate() {
            let (hash, idl) = (own.hash.map_or(String::new(), |hash| hash.to_string()), description.to_idl());
            if args.json {
                let (topic, name) = (&args.topic, &own.name);
                line(json!({"event": "type", "topic": topic, "name": name, "hash": hash, "idl": idl}))?;
                continue;
            }
            let gap = if index > 0 { "\n" } else { "" };
            let head = if several { format!("{gap}// type {} ({hash})\n", own.name) } else { String::new() };
            line(format_args!("{head}{}", idl.trim_end()))?;
        }
        Ok(())
    })
}
