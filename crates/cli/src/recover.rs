//! `spindle recover`: the remaining members of a group continue without members that are lost for
//! good, although they are no majority.
use crate::admin_client::{ANSWER_WAIT, AdminClient, MemberAnswers, members_of, newest};
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::log::Verbosity;
use crate::settings::{GroupLocation, GroupSelection};
use crate::views::shortened;
use anyhow::Context;
use serde_json::{Value, json};
use spindle::MemberId;
use spindle_core::control::Request;
use std::io::{IsTerminal, Write, stderr, stdin, stdout};
use std::thread;
use std::time::{Duration, Instant};

/// Arguments of `spindle recover`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    whom: GroupSelection,

    /// The members that are lost for good, by their ids: 3,4
    #[arg(long, value_name = "IDS", value_delimiter = ',', required = true)]
    lost: Vec<u64>,

    /// Don't ask before members are given up
    #[arg(long)]
    yes: bool,

    /// Print one JSON object: "event" ("recovered"), lost, view, members: those of the new view;
    /// needs --yes
    #[arg(long)]
    json: bool,

    #[command(flatten)]
    verbosity: Verbosity,
}

/// How long the remaining members may take to agree.
const CHANGE_WAIT: Duration = Duration::from_secs(60);
/// How often they are asked.
const ASK_EVERY: Duration = Duration::from_millis(50);

pub(crate) fn recover(args: Args) -> CliResult {
    let begun = args.verbosity.begin(args.json);
    begun.and_then(|()| run(&args)).map_err(|failure| failure.told_as_json(args.json))
}

fn run(args: &Args) -> CliResult {
    let found = args.whom.find()?;
    let mut client = AdminClient::open(&found)?;
    let answers = ask_all(&mut client)?;
    let Some(view) = newest(&answers) else {
        let message = format!("no member of group {} on this host answered within {ANSWER_WAIT:?}", found.group);
        return Err(CliError::new(FAILED, message));
    };
    check(args, &found, view)?;
    if let Some(lives) = args.lost.iter().find(|id| answers.contains_key(&MemberId(**id))) {
        let message = format!(
            "member {lives} of group {} lives, on this host; end its process first, or don't name it",
            found.group
        );
        return Err(CliError::new(FAILED, message));
    }
    confirm(args, &found, view)?;
    give_up(args, &found, &mut client)
}

fn ask_all(client: &mut AdminClient) -> CliResult<MemberAnswers> {
    let members = client.members()?;
    client.ask(&members, Request::Status)
}

/// Finds the mistakes that the status alone shows.
fn check(args: &Args, found: &GroupLocation, view: &Value) -> CliResult {
    let (group, members) = (&found.group, members_of(view));
    if let Some(stranger) = args.lost.iter().find(|id| !members.contains(id)) {
        let message = format!("group {group} has no member {stranger}; its members are {}", shortened(&members));
        return Err(CliError::new(FAILED, message));
    }
    if members.iter().all(|id| args.lost.contains(id)) {
        let message = format!("all members of group {group} are named; name those that are lost, and no other");
        return Err(CliError::new(USAGE, message));
    }
    if view["blocked"] != true {
        let message = format!(
            "group {group} is not blocked: its members {} are in view {} and go on; members that are silent are left out by themselves, and \
             `spindle evict` lets the others go on without one that lives",
            shortened(&members),
            view["view"]
        );
        return Err(CliError::new(FAILED, message));
    }
    Ok(())
}

/// Asks the operator, because only the operator can know that the members are lost.
fn confirm(args: &Args, found: &GroupLocation, view: &Value) -> CliResult {
    if args.yes {
        return Ok(());
    }
    if args.json || !stdin().is_terminal() {
        let message = "members are given up for ever: say --yes if that is meant";
        return Err(CliError::new(USAGE, message));
    }
    let (lost, left) = (shortened(&args.lost), shortened(&left(view, &args.lost)));
    let group = &found.group;
    let mut out = stderr().lock();
    let asked = write!(
        out,
        "Group {group} is in view {}, and too few of its members are left to continue.\n\
         \x20 continue: {left}\n\
         \x20 given up: {lost}\n\
         What only members that are given up have delivered is lost. One of them that lives ends when it meets the others;\n\
         until then, if they can go on among themselves, there are two groups.\n\
         Are all of {lost} lost for good? [y/N] ",
        view["view"]
    );
    asked.and_then(|()| out.flush()).context("can't write to the standard error")?;
    let mut line = String::new();
    stdin().read_line(&mut line).context("can't read the standard input")?;
    match line.trim() {
        "y" | "Y" | "yes" => Ok(()),
        _ => Err(CliError::new(FAILED, "no member was given up")),
    }
}

/// Asks a member to give up the lost members, until they are gone. It asks again if the view was
/// just changing, or ended with the lost members in the next one.
fn give_up(args: &Args, found: &GroupLocation, client: &mut AdminClient) -> CliResult {
    let deadline = Instant::now() + CHANGE_WAIT;
    // The view in which a member has given up the lost members.
    let mut given_up_in: Option<u64> = None;
    let mut said = String::new();
    loop {
        let answers = ask_all(client)?;
        let view = newest(&answers);
        let is_over = |view: &&Value| !members_of(view).iter().any(|id| args.lost.contains(id));
        if let Some(view) = view.filter(is_over) {
            return tell(args, found, view);
        }
        let number = view.and_then(|view| view["view"].as_u64());
        let asked = view.and_then(|view| view["id"].as_u64());
        let mut why = match (view, given_up_in) {
            (None, _) => "no member on this host answers".to_string(),
            (_, Some(_)) => {
                "the other members that are left have not followed yet; one of them may hear one that is given up: see \
                             `spindle status` on its host"
                    .to_string()
            }
            _ => "it is not blocked now".to_string(),
        };
        // In a view that has just begun no member is missed yet.
        let is_blocked = view.is_some_and(|view| view["blocked"] == true);
        if let Some(asked) = asked.map(MemberId).filter(|_| given_up_in != number && is_blocked) {
            let lost = args.lost.iter().copied().map(MemberId).collect();
            let answer = client.ask(&[asked], Request::Recover(lost))?.remove(&asked);
            match answer.as_ref().map(|answer| (answer["refused"].as_str(), answer["passing"] == true)) {
                Some((None, _)) => given_up_in = number,
                Some((Some(refusal), false)) if given_up_in.is_none() => {
                    return Err(CliError::new(FAILED, format_args!("member {asked} refuses: {refusal}")));
                }
                Some((Some(refusal), _)) => why = format!("member {asked} refuses for now: {refusal}"),
                None => why = format!("member {asked} did not answer within {ANSWER_WAIT:?}"),
            }
        }
        if Instant::now() >= deadline {
            let message = format!("group {} has not gone on after {CHANGE_WAIT:?}: {why}", found.group);
            return Err(CliError::new(FAILED, message));
        }
        if given_up_in.is_none() && why != said && !args.json {
            // The line is lost if the standard error is gone.
            let _ = writeln!(stderr().lock(), "{why}");
            said = why;
        }
        thread::sleep(ASK_EVERY);
    }
}

fn tell(args: &Args, found: &GroupLocation, view: &Value) -> CliResult {
    let members = members_of(view);
    let line = match args.json {
        true => json!({"event": "recovered", "lost": args.lost, "view": view["view"], "members": members}).to_string(),
        false => format!("group {} continues in view {}: {}", found.group, view["view"], shortened(&members)),
    };
    Ok(writeln!(stdout().lock(), "{line}").context("can't write to the standard output")?)
}

/// Returns the members of the view that are not lost.
fn left(view: &Value, lost: &[u64]) -> Vec<u64> {
    members_of(view).into_iter().filter(|id| !lost.contains(id)).collect()
}
