//! `spindle status`: the state of a group, as its members report it.
use crate::admin_client::{ANSWER_WAIT, AdminClient, MemberAnswers, members_of, newest};
use crate::exit::{CliError, CliResult, FAILED};
use crate::log::Verbosity;
use crate::quantity::short;
use crate::screen::Screen;
use crate::settings::{GroupLocation, GroupSelection};
use crate::signals::Stop;
use crate::views::shortened;
use anyhow::Context;
use serde_json::{Value, json};
use spindle::MemberId;
use spindle_core::control::Request;
use std::io::{IsTerminal, stdout};
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::time::Duration;

/// Arguments of `spindle status`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: GroupSelection,

    /// Repeat every second, until the group has ended or Ctrl-C
    #[arg(short, long)]
    watch: bool,

    /// Print one JSON object, with --watch one a second.
    ///
    /// "group", "view", "observers" (how many processes follow it, as the newest view's first
    /// member knows), "changing" (the view is coming to its end), "blocked" (it can't end: too few
    /// members are present to agree), "members", a list by rank of {id, pid, far (it is on another
    /// host, and so is not asked), rack (or null), rank, answers, view (its newest, if it answers),
    /// leads, asleep, suspected, given_up (by `spindle recover`), finished, clock (null if it has no logs, or {skew_max_ms, ahead_ms (how
    /// far a message was ahead of its clock), stepped_ms (or null), refusals})}, "subgroups", a list of
    /// {name, stable, log (null if it is not logged, or {persisted, durable, undelivered (what waits to be durable
    /// before it is delivered), lacks_members (it waits for more members, not for disks), epoch, taken, clock, queued_bytes,
    /// disk_bytes, is_full, commits (their number), commits_us (their time), catching_up (null, or {source, records, bytes} that came from other members)} of the member that answered), members: [{id, rounds, received, delivered, lag, lagging_ms (or null)}]}, and "waiting": ids of
    /// processes that are not in the view.
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// The least time by which messages are ahead of a member's clock that is shown, in ms.
const CLOCK_WORTH_MS: i64 = 1_000;
/// Time between two updates with `--watch`.
const WATCH_EVERY: Duration = Duration::from_secs(1);

pub(crate) fn run(args: Args) -> CliResult {
    let json = args.json;
    args.verbosity.begin(json).and_then(|()| show(&args)).map_err(|failure| failure.told_as_json(json))
}

fn show(args: &Args) -> CliResult {
    let found = args.whom.find()?;
    let mut client = AdminClient::open(&found)?;
    let live = args.watch && stdout().is_terminal() && !args.json;
    let mut screen = Screen::new(live);
    let (tell, signals) = channel();
    // A signal after the end of the watch has no effect.
    let _stop = Stop::on_signals(move |_| tell.send(()).unwrap_or_default())?;
    loop {
        let Some(group) = look(&mut client, &found)? else {
            let gone = CliError::new(FAILED, format_args!("group {} has no members any more", found.group));
            if !args.watch {
                return Err(gone);
            }
            let end = match args.json {
                true => summary(&found.group, &[], &[], &MemberAnswers::new()).to_string(),
                false => format!("group {} has ended", found.group),
            };
            return Ok(screen.line(&end).context("can't write to the standard output")?);
        };
        let lines = if args.json { vec![group.to_string()] } else { table(&group) };
        let drawn = match live {
            true => screen.redraw(&lines),
            false => lines.iter().try_for_each(|line| screen.line(line)),
        };
        drawn.context("can't write to the standard output")?;
        if !args.watch {
            let silent = group["members"].as_array().is_none_or(|all| all.iter().all(|m| m["answers"] == false));
            let message = format!(
                "no member of group {} answered within {ANSWER_WAIT:?}: stopped, or still waiting for others?",
                found.group
            );
            return if silent { Err(CliError::new(FAILED, message)) } else { Ok(()) };
        }
        match signals.recv_timeout(WATCH_EVERY) {
            Err(RecvTimeoutError::Timeout) => {}
            // Ctrl-C ends a watch normally.
            _ => return Ok(()),
        }
    }
}

/// Returns the current state of the group; `None`: the group has no process any more.
fn look(client: &mut AdminClient, found: &GroupLocation) -> CliResult<Option<Value>> {
    let members = client.members()?;
    let answers = client.ask(&members, Request::Status)?;
    // A member that left meanwhile must not be listed as a member without an answer.
    let present = client.present()?;
    let members: Vec<MemberId> = members.into_iter().filter(|id| present.contains(id)).collect();
    if present.is_empty() {
        return Ok(None);
    }
    Ok(Some(summary(&found.group, &members, &present, &answers)))
}

fn summary(group: &str, members: &[MemberId], present: &[MemberId], answers: &MemberAnswers) -> Value {
    let Some(base) = newest(answers) else {
        let silent: Vec<Value> = members.iter().map(|id| json!({"id": id.0, "answers": false})).collect();
        let waiting = present.iter().filter(|id| !members.contains(id)).map(|id| id.0);
        let waiting: Vec<u64> = waiting.collect();
        return json!({"group": group, "view": null, "members": silent, "subgroups": [], "waiting": waiting});
    };
    let ids = members_of(base);
    let any = |id: u64, what: &str| {
        let told = answers.values().flat_map(|answer| answer["members"].as_array().into_iter().flatten());
        told.into_iter().any(|member| member["id"] == id && member[what] == true)
    };
    let listed = base["members"].as_array().into_iter().flatten().zip(0u32..).map(|(member, rank)| {
        let mut member = member.clone();
        let id = member["id"].as_u64().unwrap_or(0);
        let answer = answers.get(&MemberId(id));
        member["rank"] = rank.into();
        member["answers"] = answer.is_some().into();
        member["view"] = answer.map_or(Value::Null, |answer| answer["view"].clone());
        member["clock"] = answer.map_or(Value::Null, |answer| answer["clock"].clone());
        member["suspected"] = any(id, "suspected").into();
        member["given_up"] = any(id, "given_up").into();
        member
    });
    let waiting: Vec<u64> = present.iter().map(|id| id.0).filter(|id| !ids.contains(id)).collect();
    let is = |what: &str| answers.values().any(|answer| answer["view"] == base["view"] && answer[what] == true);
    json!({
        "group": group,
        "view": base["view"],
        "changing": is("changing"),
        "blocked": is("blocked"),
        "observers": base["observers"],
        "members": listed.collect::<Vec<_>>(),
        "subgroups": base["subgroups"],
        "waiting": waiting,
    })
}

/// Formats the result of [`summary`] as lines for people.
fn table(group: &Value) -> Vec<String> {
    let members: Vec<&Value> = group["members"].as_array().into_iter().flatten().collect();
    let name = group["group"].as_str().unwrap_or_default();
    let mut lines = vec![match group["view"].as_u64() {
        None => format!("group {name}: no member answers"),
        Some(view) => {
            let state = match (group["blocked"] == true, group["changing"] == true) {
                (true, _) => ", which can't end: too few members are there to agree on the next",
                (false, true) => ", which is changing",
                (false, false) => "",
            };
            let plural = if members.len() == 1 { "" } else { "s" };
            format!("group {name}: {} member{plural} in view {view}{state}", members.len())
        }
    }];
    // Randomly drawn ids are long.
    let width = members.iter().map(|member| member["id"].to_string().len()).fold(10, usize::max);
    lines.push(format!("{:>width$} {:>9} {:>6}  state", "member", "process", "rank"));
    for member in members {
        let number = |what: &str| member[what].as_u64().map_or("-".to_string(), |n| n.to_string());
        let [id, pid, rank] = ["id", "pid", "rank"].map(number);
        lines.push(format!("{id:>width$} {pid:>9} {rank:>6}  {}", state(member, &group["view"])));
    }
    for subgroup in group["subgroups"].as_array().into_iter().flatten() {
        let name = subgroup["name"].as_str().unwrap_or_default();
        lines.push(format!("subgroup {name}: {} sequence numbers are stable in this view", subgroup["stable"]));
        if let Some(log) = subgroup["log"].as_object() {
            lines.push(log_line(log));
        }
        lines.push(format!(
            "{:>width$} {:>16} {:>16} {:>16} {:>10}",
            "member", "rounds", "received", "delivered", "lag"
        ));
        for member in subgroup["members"].as_array().into_iter().flatten() {
            let [id, rounds, received, delivered, lag] =
                ["id", "rounds", "received", "delivered", "lag"].map(|what| member[what].as_u64().unwrap_or(0));
            let lagging = match member["lagging_ms"].as_u64() {
                Some(ms) => format!("  lags for {:.1} s", ms as f64 / 1e3),
                None => String::new(),
            };
            lines.push(format!("{id:>width$} {rounds:>16} {received:>16} {delivered:>16} {lag:>10}{lagging}"));
        }
    }
    let waiting: Vec<String> = group["waiting"].as_array().into_iter().flatten().map(Value::to_string).collect();
    match group["observers"].as_u64().unwrap_or(0) {
        0 => {}
        1 => lines.push("one process observes".to_string()),
        observers => lines.push(format!("{observers} processes observe")),
    }
    if !waiting.is_empty() {
        lines.push(format!("not in the view, but here: {}", shortened(&waiting)));
    }
    lines
}

/// The state of a subgroup's log at the member that answered.
fn log_line(log: &serde_json::Map<String, Value>) -> String {
    let count = |key: &str| log[key].as_u64().map_or("none yet".to_string(), |count| count.to_string());
    let queued = short(log["queued_bytes"].as_u64().unwrap_or(0) as f64);
    let full = if log["is_full"] == true { ", and the disk has no space" } else { "" };
    let catching_up = log["catching_up"].as_object().map(|status| {
        let bytes = short(status["bytes"].as_u64().unwrap_or(0) as f64);
        let source = status["source"].as_u64().map(|id| format!(" from member {id}")).unwrap_or_default();
        format!(", catches up{source}: {} records, {bytes}B", status["records"])
    });
    let catching_up = catching_up.unwrap_or_default();
    let (here, everywhere) = (count("persisted"), count("durable"));
    let files = short(log["disk_bytes"].as_u64().unwrap_or(0) as f64);
    let undelivered = log["undelivered"].as_u64().filter(|count| *count > 0).map(|count| {
        let what = if log["lacks_members"] == true { "more members" } else { "disks" };
        format!(", {count} wait for {what} before they are delivered")
    });
    let undelivered = undelivered.unwrap_or_default();
    format!(
        "  log: {here} on disk here, {everywhere} on all disks, {queued}B queued, {files}B of files{full}{undelivered}{catching_up}"
    )
}

fn state(member: &Value, view: &Value) -> String {
    let is = |what: &str| member[what] == true;
    let mut words = vec![];
    if is("leads") {
        words.push("leads".to_string());
    }
    if is("suspected") {
        words.push("suspected".to_string());
    }
    if is("given_up") {
        words.push("given up".to_string());
    }
    if is("far") {
        words.push("on another host".to_string());
    } else if !is("answers") {
        words.push("does not answer".to_string());
    } else if is("asleep") {
        words.push("asleep".to_string());
    }
    if is("finished") {
        words.push("has sent all".to_string());
    }
    let clock = |what: &str| member["clock"][what].as_i64();
    if let Some(ms) = clock("stepped_ms") {
        words.push(format!("its clock has stepped by {:.1} s", ms as f64 / 1e3));
    }
    if let Some(ms) = clock("ahead_ms").filter(|ms| *ms >= CLOCK_WORTH_MS) {
        words.push(format!("had messages from {:.1} s ahead of its clock", ms as f64 / 1e3));
    }
    if is("answers") && member["view"] != *view {
        words.push(format!("still in view {}", member["view"]));
    }
    if words.is_empty() {
        words.push("awake".to_string());
    }
    words.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(id: u64, view: u64, ids: &[u64]) -> Value {
        let members = ids.iter().map(|other| json!({"id": other, "pid": 10 + other, "leads": *other == ids[0]}));
        let members: Vec<Value> = members.collect();
        json!({"id": id, "view": view, "changing": false, "blocked": false, "members": members, "subgroups": []})
    }

    #[test]
    fn the_newest_view_counts_and_who_is_behind_or_silent_is_told() {
        let ids = [1, 2, 3, 4].map(MemberId);
        let answers = [(1, answer(1, 2, &[1, 2, 3])), (2, answer(2, 3, &[2, 3, 1]))];
        let answers: MemberAnswers = answers.into_iter().map(|(id, answer)| (MemberId(id), answer)).collect();
        let group = summary("g", &ids[..3], &ids, &answers);
        assert_eq!((&group["view"], &group["waiting"]), (&json!(3), &json!([4])));
        let lines = table(&group);
        assert_eq!(lines[0], "group g: 3 members in view 3");
        let states: Vec<&str> = lines[2..5].iter().map(|line| line[29..].trim()).collect();
        assert_eq!(states, ["leads", "does not answer", "still in view 2"], "{lines:#?}");
    }

    #[test]
    fn a_member_of_another_host_is_not_said_to_be_silent_and_a_long_id_keeps_its_column() {
        let ids = [1, 9_072_462_129_466_432_003].map(MemberId);
        let mut answer = answer(1, 1, &ids.map(|id| id.0));
        answer["members"][1]["far"] = true.into();
        let group = summary("g", &ids[..1], &ids[..1], &MemberAnswers::from([(ids[0], answer)]));
        let lines = table(&group);
        assert_eq!(lines[1], "             member   process   rank  state");
        assert_eq!(lines[2], "                  1        11      0  leads");
        let pid = 10 + ids[1].0;
        assert_eq!(lines[3].trim_start(), format!("{} {pid} {:>6}  on another host", ids[1], 1));
    }
}
