//! `spindle leave` and `spindle evict`: a member goes at the operator's request, and the others
//! continue.
use crate::admin_client::{ANSWER_WAIT, AdminClient, MemberAnswers, members_of, newest};
use crate::exit::{CliError, CliResult, FAILED};
use crate::log::Verbosity;
use crate::settings::{GroupLocation, GroupSelection};
use crate::views::shortened;
use anyhow::Context;
use serde_json::{Value, json};
use spindle::MemberId;
use spindle_core::control::Request;
use spindle_transport::rendezvous::has_ended;
use std::io::{Write, stdout};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of both commands.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: GroupSelection,

    /// The member's id
    #[arg(long, value_name = "ID")]
    id: u64,

    /// Print one JSON object: "event" ("gone"), id, view, members: the view that continues, and
    /// running: the process of a member that has left, if it has not ended
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// The requested change.
struct RequestedChange {
    found: GroupLocation,
    id: u64,
    json: bool,
}

impl RequestedChange {
    fn of(args: &Args) -> CliResult<RequestedChange> {
        Ok(RequestedChange { found: args.whom.find()?, id: args.id, json: args.json })
    }
}

/// How long the others may take to agree on a view without the member.
const CHANGE_WAIT: Duration = Duration::from_secs(10);
/// How long the process of a member that has left may take to end.
const END_WAIT: Duration = Duration::from_secs(1);
/// How often they are asked.
const ASK_EVERY: Duration = Duration::from_millis(20);

pub(crate) fn leave(args: Args) -> CliResult {
    let target = args.verbosity.begin(args.json).and_then(|()| RequestedChange::of(&args));
    target.and_then(|target| ask_to_leave(&target)).map_err(|failure| failure.told_as_json(args.json))
}

pub(crate) fn evict(args: Args) -> CliResult {
    let target = args.verbosity.begin(args.json).and_then(|()| RequestedChange::of(&args));
    target.and_then(|target| ask_to_evict(&target)).map_err(|failure| failure.told_as_json(args.json))
}

fn ask_to_leave(target: &RequestedChange) -> CliResult {
    let mut client = AdminClient::open(&target.found)?;
    let (id, group) = (MemberId(target.id), &target.found.group);
    if find(&mut client, target)?.is_far {
        let message = format!("member {id} of group {group} is on another host; ask there, or use `spindle evict`");
        return Err(CliError::new(FAILED, message));
    }
    let pid = pid_of(client.ask(&[id], Request::Status)?.get(&id), target.id);
    let answers = client.ask(&[id], Request::Leave)?;
    if answers.is_empty() && client.members()?.contains(&id) {
        let message = format!(
            "member {id} of group {group} did not answer within {ANSWER_WAIT:?}; resume it, or use `spindle evict`"
        );
        return Err(CliError::new(FAILED, message));
    }
    let view = wait_until_gone(&mut client, target, true)?;
    tell(target, view.as_ref(), pid.filter(|pid| !ends(*pid)))
}

fn ask_to_evict(target: &RequestedChange) -> CliResult {
    let mut client = AdminClient::open(&target.found)?;
    let (id, group) = (MemberId(target.id), &target.found.group);
    let found = find(&mut client, target)?;
    if found.others.is_empty() {
        let answers = client.ask(&[id], Request::Status)?;
        let is_alone = answers.values().all(|answer| members_of(answer).len() < 2);
        let message = match is_alone {
            true => format!(
                "member {id} is the only one in group {group}: no other could continue without it; use `spindle leave`, or end it"
            ),
            false => format!(
                "member {id} is the only one of group {group} on this host, and does not evict itself; ask on another host, or use \
                 `spindle leave`"
            ),
        };
        return Err(CliError::new(FAILED, message));
    }
    let answers = client.ask(&found.others, Request::Status)?;
    let Some(judge) = judge(&answers, id) else {
        let message = format!("none of the other members of group {group} answered within {ANSWER_WAIT:?}");
        return Err(CliError::new(FAILED, message));
    };
    client.ask(&[judge], Request::Evict(id))?;
    let view = wait_until_gone(&mut client, target, false)?;
    tell(target, view.as_ref(), None)
}

/// The location of the requested member.
struct Whereabouts {
    /// The other members on this host.
    others: Vec<MemberId>,
    /// True if the member is on another host.
    is_far: bool,
}

fn find(client: &mut AdminClient, target: &RequestedChange) -> CliResult<Whereabouts> {
    let (id, group) = (MemberId(target.id), &target.found.group);
    let mut others = client.members()?;
    if others.contains(&id) {
        others.retain(|member| *member != id);
        return Ok(Whereabouts { others, is_far: false });
    }
    if client.present()?.contains(&id) {
        let message = format!("process {id} of group {group} is not let in yet; stop it with Ctrl-C");
        return Err(CliError::new(FAILED, message));
    }
    // Only the members know those on other hosts.
    let answers = client.ask(&others, Request::Status)?;
    let Some(view) = newest(&answers) else {
        let message = format!(
            "group {group} has no member {id} on this host, and none of those that it has answered within {ANSWER_WAIT:?}"
        );
        return Err(CliError::new(FAILED, message));
    };
    let member = view["members"].as_array().into_iter().flatten().find(|member| member["id"] == target.id);
    let Some(member) = member else {
        let message = format!("group {group} has no member {id}; its members are {}", list(members_of(view)));
        return Err(CliError::new(FAILED, message));
    };
    Ok(Whereabouts { others, is_far: member["far"] == true })
}

/// Returns the member that evicts `id`: the leader of the newest view, or else the first of the
/// other members.
fn judge(answers: &MemberAnswers, id: MemberId) -> Option<MemberId> {
    let base = newest(answers)?;
    let leader = base["members"].as_array().into_iter().flatten().find(|member| member["leads"] == true);
    let leader = leader.and_then(|leader| leader["id"].as_u64()).map(MemberId);
    leader.filter(|leader| *leader != id && answers.contains_key(leader)).or_else(|| answers.keys().next().copied())
}

/// Waits until the others' view is one without the member, and with `has_to_end` until its process
/// has given up its place too: it may be stuck. Returns that view; `None`: no member is left here.
fn wait_until_gone(client: &mut AdminClient, target: &RequestedChange, has_to_end: bool) -> CliResult<Option<Value>> {
    let deadline = Instant::now() + CHANGE_WAIT;
    loop {
        let members = client.members()?;
        let others: Vec<MemberId> = members.iter().copied().filter(|member| member.0 != target.id).collect();
        let answers = client.ask(&others, Request::Status)?;
        let gone = answers.values().all(|answer| !members_of(answer).contains(&target.id));
        let is_stuck = has_to_end && others.len() < members.len();
        match newest(&answers) {
            Some(view) if gone && !is_stuck => return Ok(Some(view.clone())),
            None if members.is_empty() => return Ok(None),
            _ => {}
        }
        if Instant::now() >= deadline {
            if let (Some(view), true) = (newest(&answers).filter(|_| gone), is_stuck) {
                return Err(stuck(target, view));
            }
            return Err(still_there(target, newest(&answers)));
        }
        thread::sleep(ASK_EVERY);
    }
}

/// Returns the failure of a member that the others have let go and whose process does not end.
fn stuck(target: &RequestedChange, view: &Value) -> CliError {
    let (RequestedChange { found: GroupLocation { group, .. }, id, .. }, number) = (target, &view["view"]);
    let message = format!(
        "the others of group {group} continue without member {id} in view {number}, and its process has not ended after \
         {CHANGE_WAIT:?}: it is stopped, or its output takes nothing; resume it, read its output, or end it"
    );
    CliError::new(FAILED, message)
}

fn still_there(target: &RequestedChange, view: Option<&Value>) -> CliError {
    let RequestedChange { found: GroupLocation { group, .. }, id, .. } = target;
    let member = |view: &Value| {
        let found = view["members"].as_array()?.iter().find(|member| member["id"] == *id)?;
        let place = if found["far"] == true { " on its host" } else { "" };
        Some(format!("{}{place}", found["pid"]))
    };
    let why = match view {
        None => "the others do not answer".to_string(),
        Some(view) if view["blocked"] == true => match member(view) {
            Some(process) => {
                format!("the others are too few to agree while it hangs; end or resume process {process}")
            }
            None => "the others are too few to agree".to_string(),
        },
        Some(_) => "the others are still about it; see `spindle status`".to_string(),
    };
    CliError::new(
        FAILED,
        format_args!("member {id} of group {group} is still in the view after {CHANGE_WAIT:?}: {why}"),
    )
}

/// Returns the process of a member, by an answer of a member.
fn pid_of(answer: Option<&Value>, id: u64) -> Option<u32> {
    let member = answer?["members"].as_array()?.iter().find(|member| member["id"] == id)?;
    let pid = u32::try_from(member["pid"].as_u64()?).ok()?;
    Some(pid).filter(|pid| *pid != 0)
}

/// Waits for the end of a process, for [`END_WAIT`] at most. Returns whether it has ended.
fn ends(pid: u32) -> bool {
    let deadline = Instant::now() + END_WAIT;
    while !has_ended(pid) {
        if Instant::now() >= deadline {
            return false;
        }
        thread::sleep(ASK_EVERY);
    }
    true
}

/// Reports the end. `running` is the process of the member, if it has not ended.
fn tell(target: &RequestedChange, view: Option<&Value>, running: Option<u32>) -> CliResult {
    let (id, ids) = (target.id, view.map(members_of).unwrap_or_default());
    let number = view.and_then(|view| view["view"].as_u64());
    let line = match number {
        _ if target.json => {
            let mut object = json!({"event": "gone", "id": id, "view": number, "members": ids});
            if let Some(pid) = running {
                object["running"] = pid.into();
            }
            object.to_string()
        }
        _ if running.is_some() => format!(
            "member {id} has left the group, and its process {} still runs: it has more to do, or its output takes nothing",
            running.unwrap_or_default()
        ),
        Some(number) => format!("member {id} is gone; view {number}: {}", list(ids)),
        None => format!("member {id} is gone; it was the last one of group {} on this host", target.found.group),
    };
    Ok(writeln!(stdout().lock(), "{line}").context("can't write to the standard output")?)
}

fn list(ids: impl IntoIterator<Item = u64>) -> String {
    let ids: Vec<u64> = ids.into_iter().collect();
    if ids.is_empty() { "none".to_string() } else { shortened(&ids) }
}
