//! The directives of a story, and the scene that its first directives describe.
use super::super::plan::{Differing, FOREVER_NS, HostsScene, LargeMessages, MS, ProcessPlace, S};
use super::super::subgroups::total;
use spindle_core::control::ObjectName;
use spindle_core::{Order, Rule, SubgroupSpec};

/// The delay of a link unless the story names another one.
const DELAY_NS: u64 = MS;
/// The silence that is suspected unless the story names another one.
const SUSPECT_AFTER_NS: u64 = S;
/// The time after which a process that was evicted is restarted.
const RESTART_NS: u64 = 500 * MS;
/// The block size of large messages, in bytes.
const BLOCK_BYTES: u64 = 64;

/// Names of processes. A process has the name of its place, and a prime for each predecessor there.
type ProcessNames = Vec<String>;

/// One line of a story.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Directive {
    /// `processes a,b c`: the founders, by host.
    Processes(Vec<ProcessNames>),
    /// `members N`: the number of members that create the group, if it is not all founders.
    Members(u32),
    /// `durable`: seeds write their votes to disk.
    Durable,
    /// `state`: processes join with the state of the application.
    State,
    /// `suspect after T`.
    SuspectAfter(u64),
    /// `delay T`, or `delay a b T`: the delay of all links, or of those from a to b.
    Delay(Option<(String, String)>, u64),
    /// `subgroup NAME [fifo] [window N] [shard LEAST MOST]`.
    Subgroup(SubgroupSpec),
    /// `large`: messages may be larger than a ring.
    Large,
    /// `settings P other`, or `settings P given`: the processes of a place have another window than
    /// the rest; their user gave it, or it is a default.
    Settings(String, bool),
    /// `bootstrap`: run until all founders have begun the first view; only that is traced.
    Bootstrap,
    /// `run T`.
    Run(u64),
    /// `until P TEXT`: run until the trace of this block has an entry of P that begins so.
    Until(String, String),
    /// `send P COUNT [in SUBGROUP] [bytes N]`.
    Send { by: String, count: u32, subgroup: Option<String>, bytes: Option<usize> },
    /// `crash P...`.
    Crash(ProcessNames),
    /// `restart P [renamed]`.
    Restart(String, bool),
    /// `pause P T`.
    Pause(String, u64),
    /// `cut a b | c`, or `cut a > c` for one direction.
    Cut { from: ProcessNames, to: ProcessNames, both: bool },
    /// `heal`: all links pass again.
    Heal,
    /// `join P`, `join P on Q`: a process starts, on a host of its own or on that of Q.
    Join(String, Option<String>),
    /// `observe P`, `observe P on Q`.
    Observe(String, Option<String>),
    /// `leave P`.
    Leave(String),
    /// `evict P by Q`.
    Evict(String, String),
    /// `give up P... by Q`: an operator declares members lost.
    GiveUp(ProcessNames, String),
    /// `create P NAME [fifo] [window N]`: P proposes a subgroup.
    Create(String, SubgroupSpec),
    /// `alter P NAME window N`.
    Alter(String, String, u64),
    /// `drop P NAME`.
    Drop(String, String),
    /// `expect view N at P...: MEMBERS`.
    ExpectView { view: u64, at: ProcessNames, members: ProcessNames },
    /// `expect delivered P...: MESSAGES`.
    ExpectDelivered { at: ProcessNames, messages: ProcessNames },
    /// `expect undelivered MESSAGES`.
    ExpectUndelivered(ProcessNames),
    /// `expect blocked P...`.
    ExpectBlocked(ProcessNames),
    /// `expect no view N`.
    ExpectNoView(u64),
}

impl Directive {
    pub(super) fn parse(line: &str) -> Result<Directive, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let name = |word: &str| word.to_owned();
        let names = |words: &[&str]| words.iter().map(|word| name(word)).collect::<ProcessNames>();
        Ok(match &words[..] {
            ["processes", hosts @ ..] if !hosts.is_empty() => {
                let host = |host: &&str| host.split(',').map(str::to_owned).collect();
                Directive::Processes(hosts.iter().map(host).collect())
            }
            ["members", count] => Directive::Members(number(count)?),
            ["durable"] => Directive::Durable,
            ["state"] => Directive::State,
            ["suspect", "after", time] => Directive::SuspectAfter(ns(time)?),
            ["delay", time] => Directive::Delay(None, ns(time)?),
            ["delay", from, to, time] => Directive::Delay(Some((name(from), name(to))), ns(time)?),
            ["subgroup", subgroup, rest @ ..] => Directive::Subgroup(spec(subgroup, rest)?),
            ["large"] => Directive::Large,
            ["settings", process, "other"] => Directive::Settings(name(process), false),
            ["settings", process, "given"] => Directive::Settings(name(process), true),
            ["bootstrap"] => Directive::Bootstrap,
            ["run", time] => Directive::Run(ns(time)?),
            ["until", process, text @ ..] if !text.is_empty() => Directive::Until(name(process), text.join(" ")),
            ["send", by, count, rest @ ..] => {
                let (mut subgroup, mut bytes) = (None, None);
                for pair in rest.chunks(2) {
                    match pair {
                        ["in", it] => subgroup = Some(name(it)),
                        ["bytes", count] => bytes = Some(number(count)? as usize),
                        _ => return Err(format!("{pair:?} is unknown; use `in SUBGROUP` or `bytes N`")),
                    }
                }
                Directive::Send { by: name(by), count: number(count)?, subgroup, bytes }
            }
            ["crash", who @ ..] if !who.is_empty() => Directive::Crash(names(who)),
            ["restart", process] => Directive::Restart(name(process), false),
            ["restart", process, "renamed"] => Directive::Restart(name(process), true),
            ["pause", process, time] => Directive::Pause(name(process), ns(time)?),
            ["cut", sides @ ..] => {
                let at = sides
                    .iter()
                    .position(|word| ["|", ">"].contains(word))
                    .ok_or("use `cut a b | c` or `cut a > c`")?;
                let (from, to) = (names(&sides[..at]), names(&sides[at + 1..]));
                Directive::Cut { from, to, both: sides[at] == "|" }
            }
            ["heal"] => Directive::Heal,
            ["join", process] => Directive::Join(name(process), None),
            ["join", process, "on", beside] => Directive::Join(name(process), Some(name(beside))),
            ["observe", process] => Directive::Observe(name(process), None),
            ["observe", process, "on", beside] => Directive::Observe(name(process), Some(name(beside))),
            ["leave", process] => Directive::Leave(name(process)),
            ["evict", whom, "by", by] => Directive::Evict(name(whom), name(by)),
            ["give", "up", whom @ .., "by", by] => Directive::GiveUp(names(whom), name(by)),
            ["create", by, subgroup, rest @ ..] => Directive::Create(name(by), spec(subgroup, rest)?),
            ["alter", by, subgroup, "window", count] => {
                Directive::Alter(name(by), name(subgroup), u64::from(number(count)?))
            }
            ["drop", by, subgroup] => Directive::Drop(name(by), name(subgroup)),
            ["expect", "view", view, "at", rest @ ..] => {
                let (at, members) = sides(rest)?;
                Directive::ExpectView { view: u64::from(number(view)?), at, members }
            }
            ["expect", "delivered", rest @ ..] => {
                let (at, messages) = sides(rest)?;
                Directive::ExpectDelivered { at, messages }
            }
            ["expect", "undelivered", messages @ ..] => Directive::ExpectUndelivered(names(messages)),
            ["expect", "blocked", at @ ..] => Directive::ExpectBlocked(names(at)),
            ["expect", "no", "view", view] => Directive::ExpectNoView(u64::from(number(view)?)),
            _ => return Err("unknown directive; see crates/sim/src/processes/story/script.rs".into()),
        })
    }
}

fn number(word: &str) -> Result<u32, String> {
    word.parse().map_err(|error| format!("{word:?} is no number: {error}"))
}

/// Reads a time such as `5ms` or `2s`.
fn ns(word: &str) -> Result<u64, String> {
    let (digits, unit) = match word.strip_suffix("ms") {
        Some(digits) => (digits, MS),
        None => (word.strip_suffix('s').ok_or_else(|| format!("{word:?} is no time; use `5ms` or `2s`"))?, S),
    };
    Ok(u64::from(number(digits)?) * unit)
}

/// Reads names, a colon after the last one, and names behind it.
fn sides(words: &[&str]) -> Result<(ProcessNames, ProcessNames), String> {
    let text = words.join(" ");
    let (left, right) = text.split_once(':').ok_or("a colon is missing between the processes and what is expected")?;
    let names = |text: &str| text.split_whitespace().map(str::to_owned).collect();
    Ok((names(left), names(right)))
}

fn spec(name: &str, options: &[&str]) -> Result<SubgroupSpec, String> {
    let mut spec = SubgroupSpec { window: 16, ..total(name) };
    let mut words = options.iter();
    while let Some(word) = words.next() {
        let mut next = || words.next().ok_or_else(|| format!("{word} has no value")).and_then(|word| number(word));
        match *word {
            "fifo" => spec.order = Order::Fifo,
            "window" => spec.window = u64::from(next()?),
            "shard" => spec.member_rule = Rule::Shard { set: 0, least: next()?, most: next()? },
            _ => return Err(format!("{word:?} is unknown; use `fifo`, `window N` or `shard LEAST MOST`")),
        }
    }
    Ok(spec)
}

/// Returns the scene of a story. Its places are in the order of their names' first mention.
pub(super) fn scene<'d>(directives: impl Iterator<Item = &'d Directive>) -> Result<Stated, String> {
    let (mut names, mut places, mut hosts): (ProcessNames, Vec<ProcessPlace>, u32) = Default::default();
    let (mut members, mut durable, mut learns, mut large) = (None, false, false, None);
    let (mut suspect_after_ns, mut all_ns, mut delays, mut subgroups) = (SUSPECT_AFTER_NS, DELAY_NS, vec![], vec![]);
    let (mut founders, mut settings) = (0, vec![]);
    let place = |host, start_ns| ProcessPlace {
        host,
        start_ns,
        is_seed: false,
        is_durable: false,
        is_unreachable: false,
        is_observer: false,
    };
    for directive in directives {
        match directive {
            Directive::Processes(by_host) => {
                for (number, name) in
                    by_host.iter().enumerate().flat_map(|(at, host)| host.iter().map(move |it| (at, it)))
                {
                    names.push(name.clone());
                    places.push(place(number as u32, 0));
                }
                (hosts, founders) = (by_host.len() as u32, places.len());
            }
            Directive::Join(name, beside) | Directive::Observe(name, beside) => {
                let host = match beside {
                    Some(beside) => places[index(&names, beside)?].host,
                    None => {
                        hosts += 1;
                        hosts - 1
                    }
                };
                names.push(name.clone());
                let is_observer = matches!(directive, Directive::Observe(..));
                places.push(ProcessPlace { is_observer, ..place(host, FOREVER_NS) });
            }
            Directive::Members(count) => members = Some(*count),
            Directive::Durable => durable = true,
            Directive::State => learns = true,
            Directive::Settings(name, is_given) => settings.push((name, *is_given)),
            Directive::SuspectAfter(ns) => suspect_after_ns = *ns,
            Directive::Delay(None, ns) => all_ns = *ns,
            Directive::Delay(Some(link), ns) => delays.push((link, *ns)),
            Directive::Subgroup(spec) => subgroups.push(spec.clone()),
            Directive::Large => {
                let (ahead, longest) = (2, 16 * BLOCK_BYTES);
                large = Some(LargeMessages {
                    one_in: u64::MAX,
                    longest,
                    block_bytes: BLOCK_BYTES,
                    ahead,
                    direct_below: 0,
                    racks: 0,
                });
            }
            _ => {}
        }
    }
    if founders == 0 {
        return Err("the story has no `processes`".into());
    }
    if subgroups.is_empty() {
        subgroups.push(SubgroupSpec { window: 16, ..total("main") });
    }
    if large.is_some() {
        subgroups.iter_mut().for_each(|spec| spec.message_bytes_max = spec.message_bytes_max.max(ObjectName::BYTES));
    }
    let is_afar = hosts > 1;
    for place in places.iter_mut().take(founders.min(3)).filter(|_| is_afar) {
        (place.is_seed, place.is_durable) = (true, durable);
    }
    let mut links = vec![vec![all_ns; hosts as usize]; hosts as usize];
    for ((from, to), ns) in delays {
        let host = |name| index(&names, name).map(|at| places[at].host as usize);
        links[host(from)?][host(to)?] = ns;
    }
    let differing = settings
        .into_iter()
        .map(|(name, is_given)| index(&names, name).map(|place| Differing { place: place as u32, is_given }));
    let differing = differing.collect::<Result<_, _>>()?;
    let scene = HostsScene {
        seed: 1,
        hosts,
        is_afar,
        places,
        name: None,
        members: members.unwrap_or(founders as u32),
        delays: links,
        jitter_ns: 0,
        loss_one_in: 0,
        lost_percent: 0,
        suspect_after_ns,
        send_every_ns: 100 * MS,
        restart_ns: RESTART_NS,
        faults: vec![],
        calm_ns: FOREVER_NS,
        learns,
        subgroups,
        recovers_ns: None,
        errs: false,
        large,
        epochs: true,
        wrong_clocks: false,
        logs: None,
        slow: None,
        differing,
    };
    Ok(Stated { scene, names, founders })
}

/// A scene, the names of its places, and the number of founders.
#[derive(Debug)]
pub(super) struct Stated {
    pub(super) scene: HostsScene,
    pub(super) names: ProcessNames,
    pub(super) founders: usize,
}

/// Returns the number of the place with this name.
pub(super) fn index(names: &[String], name: &str) -> Result<usize, String> {
    let found = names.iter().position(|known| known == name.trim_end_matches('\''));
    found.ok_or_else(|| format!("there is no process {name:?} in the story"))
}
