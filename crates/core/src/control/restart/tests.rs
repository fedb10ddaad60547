use super::*;
use crate::ids::Position;
use crate::ids::Rank;
use crate::membership::Ballot;
use crate::view::{Durability, SubgroupSpec};
use crate::wire::Card;
use alloc::string::{String, ToString};
use alloc::vec;

const HOST: u128 = 7;
const PATIENCE: Duration = Duration::from_secs(5);

fn view(id: u64, members: &[u64]) -> View {
    let all: Vec<Rank> = (0..members.len() as u32).map(Rank).collect();
    let spec = SubgroupSpec {
        members: all.clone(),
        senders: all,
        durability: Durability::Logged { copies: 1 },
        ..SubgroupSpec::of_everyone("all")
    };
    let members = members.iter().copied().map(MemberId).collect();
    View { id: ViewId(id), members, nonvoters: vec![], subgroups: vec![spec].into() }
}

/// The hosts of the members of a view: all the same.
fn one_host(view: &View) -> Vec<u128> {
    vec![HOST; view.members.len()]
}

fn first(view: View, me: MemberId, is_first: bool) -> RestartRecord {
    let hosts = one_host(&view);
    RestartRecord::first(view, hosts, me, is_first)
}

fn learn(record: &mut RestartRecord, view: View, me: u64) {
    let hosts = one_host(&view);
    record.learn(view, hosts, MemberId(me));
}

fn enter(record: &mut RestartRecord, view: View, me: u64) {
    let hosts = one_host(&view);
    record.enter(view, hosts, MemberId(me));
}

fn process(id: u64) -> Process {
    Process { id: MemberId(id), nonce: id as u32 }
}

fn log(sequence: u64, clock: u64) -> LogState {
    let last = Some(Position { epoch: ViewId(1), sequence });
    LogState { name: "all".to_string(), last, clock }
}

/// Processes that restart, and what they have done.
struct Cluster {
    now: Time,
    processes: BTreeMap<MemberId, (Restart, Process)>,
    begun: BTreeMap<MemberId, RestartView>,
    disks: BTreeMap<MemberId, RestartRecord>,
    logs: BTreeMap<MemberId, Vec<LogState>>,
    /// Whether logs get records from others.
    copies: bool,
    /// The logs that are cut off then.
    cut_off: Vec<String>,
}

impl Cluster {
    fn new() -> Cluster {
        let (processes, begun, disks, logs, cut_off) = Default::default();
        Cluster { now: Time(0), processes, begun, disks, logs, copies: true, cut_off }
    }

    fn start(&mut self, id: u64, record: RestartRecord, logs: Vec<LogState>, lost: &[u64]) {
        let me = Process { id: MemberId(id), nonce: self.now.0 as u32 + id as u32 };
        let lost = lost.iter().copied().map(MemberId).collect();
        self.disks.insert(me.id, record.clone());
        self.logs.insert(me.id, logs.clone());
        let setup = RestartSetup { me, record, logs, lost, host: HOST, patience: PATIENCE };
        let mut restart = Restart::new(setup, self.now);
        restart.set_leads(self.processes.is_empty());
        self.processes.insert(me.id, (restart, me));
    }

    /// Runs for this long, in ms.
    fn run(&mut self, ms: u64) {
        for _ in 0..ms / 10 {
            self.now = Time(self.now.0 + 10 * MS);
            let ids: Vec<MemberId> = self.processes.keys().copied().collect();
            for id in ids {
                self.processes.get_mut(&id).unwrap().0.poll(self.now);
                while let Some(output) = self.processes.get_mut(&id).unwrap().0.next_output() {
                    self.carry_out(id, output);
                }
            }
        }
    }

    fn carry_out(&mut self, id: MemberId, output: RestartOutput) {
        let (now, me) = (self.now, self.processes[&id].1);
        match output {
            RestartOutput::Send { to, message } => {
                let bytes = message.encode();
                let message = RestartMessage::decode(&bytes).expect("a message is decoded as it was encoded");
                for (restart, process) in self.processes.values_mut() {
                    let is_to = match to {
                        RestartTo::Leaders => restart.leads && *process != me,
                        RestartTo::Process(to) => *process == to,
                    };
                    if is_to {
                        restart.hear(me, message.clone(), now);
                    }
                }
            }
            RestartOutput::Persist(record) => {
                let decoded = RestartRecord::decode(&record.encode());
                assert_eq!(decoded.as_ref(), Some(&*record));
                self.disks.insert(id, *record);
                self.processes.get_mut(&id).unwrap().0.persisted(now);
            }
            RestartOutput::CatchUp(longest) => {
                for log in longest {
                    let has_it = |holder: &Process| self.logs[&holder.id].contains(&log.state);
                    assert!(log.holders.iter().all(has_it));
                    let runs =
                        |holder: &Process| self.processes.get(&holder.id).is_some_and(|found| found.1 == *holder);
                    if self.copies && log.holders.iter().any(runs) {
                        let logs = self.logs.get_mut(&id).unwrap();
                        logs.retain(|own| own.name != log.state.name);
                        logs.push(log.state);
                        logs.sort_by(|one, other| one.name.cmp(&other.name));
                    }
                }
                self.processes.get_mut(&id).unwrap().0.set_logs(self.logs[&id].clone(), &self.cut_off, now);
            }
            RestartOutput::Begin(value) => {
                assert_eq!(self.disks[&id].view, value.view, "a view is on disk before it begins");
                let last = |logs: &[LogState]| logs.first().and_then(|log| log.last);
                assert_eq!(last(&self.logs[&id]), last(&value.logs), "INV-LEVEL");
                self.begun.insert(id, *value);
            }
        }
    }
}

#[test]
fn a_group_restarts_when_all_members_of_its_last_view_are_back() {
    let mut cluster = Cluster::new();
    // The first member left before the others: its disk has an older view.
    cluster.start(3, first(view(1, &[1, 2, 3]), MemberId(3), true), vec![log(9, 5)], &[]);
    cluster.run(500);
    assert_eq!(cluster.processes[&MemberId(3)].0.waiting().missing, [MemberId(1), MemberId(2)]);
    let mut later = first(view(1, &[1, 2, 3]), MemberId(1), true);
    learn(&mut later, view(2, &[1, 3]), 1);
    cluster.start(1, later, vec![log(7, 6)], &[]);
    cluster.run(2_000);
    let begun = &cluster.begun[&MemberId(3)];
    assert_eq!(begun.view.id, ViewId(3));
    assert_eq!(begun.view.members, [MemberId(1), MemberId(3)]);
    assert_eq!(begun.logs, [log(9, 5)]);
    assert_eq!(cluster.begun[&MemberId(1)], *begun);
}

/// Track record: the view of a restart began with logs of different lengths. If all members with the
/// longest one ended before the others had copied it, those went on without.
#[test]
fn no_view_is_proposed_before_all_logs_end_alike() {
    let mut cluster = Cluster::new();
    cluster.copies = false;
    let base = view(1, &[1, 2, 3]);
    for (id, last) in [(1, 4), (2, 9), (3, 9)] {
        cluster.start(id, first(base.clone(), MemberId(id), true), vec![log(last, last)], &[]);
    }
    cluster.run(3_000);
    let waiting = |cluster: &Cluster| cluster.processes[&MemberId(1)].0.waiting();
    assert_eq!(waiting(&cluster).behind, [MemberId(1)]);
    assert!(cluster.begun.is_empty());
    // One member with the records ends: the other one has them, too.
    cluster.processes.remove(&MemberId(2));
    cluster.copies = true;
    cluster.run(1_000);
    assert_eq!(cluster.begun[&MemberId(1)].logs, [log(9, 9)]);
    assert_eq!(cluster.logs[&MemberId(1)], [log(9, 9)]);
    assert_eq!(cluster.begun[&MemberId(3)], cluster.begun[&MemberId(1)]);
}

#[test]
fn a_member_for_which_no_log_reaches_back_far_enough_is_not_in_the_view() {
    for all_lack in [false, true] {
        let mut cluster = Cluster::new();
        (cluster.copies, cluster.cut_off) = (false, vec!["all".to_string()]);
        for (id, last) in [(1, 4), (2, 9), (3, 9)] {
            let record = first(view(3, &[1, 2, 3]), MemberId(id), !all_lack);
            cluster.start(id, record, vec![log(last, last)], &[]);
        }
        cluster.run(3_000);
        assert_eq!(cluster.begun[&MemberId(2)].view.members, [MemberId(2), MemberId(3)]);
        assert!(!cluster.begun.contains_key(&MemberId(1)));
        let mut record = cluster.disks[&MemberId(1)].clone();
        // It has learned of the view, and lacks what came before.
        assert_eq!(record.origins.last().unwrap().since, cluster.begun[&MemberId(2)].view.id);
        // It joins with the state of a member, and its log begins again.
        enter(&mut record, view(5, &[1, 2, 3]), 1);
        assert_eq!(record.origins.last().unwrap().since, ViewId(5));
    }
}

#[test]
fn a_process_that_is_not_in_the_last_view_may_lead() {
    let mut cluster = Cluster::new();
    cluster.start(3, first(view(1, &[1, 3]), MemberId(3), true), vec![log(9, 5)], &[]);
    let mut later = first(view(1, &[1, 3]), MemberId(1), true);
    learn(&mut later, view(2, &[1]), 1);
    cluster.start(1, later, vec![log(7, 6)], &[]);
    cluster.run(2_000);
    assert_eq!(cluster.begun[&MemberId(1)].view.members, [MemberId(1)]);
    assert!(!cluster.begun.contains_key(&MemberId(3)));
}

#[test]
fn a_group_waits_for_a_member_that_is_missing_or_until_it_is_given_up() {
    for lost in [&[][..], &[2]] {
        let mut cluster = Cluster::new();
        for id in [1, 3] {
            cluster.start(id, first(view(1, &[1, 2, 3]), MemberId(id), true), vec![log(1, 1)], lost);
        }
        cluster.run(5_000);
        assert_eq!(cluster.begun.len(), if lost.is_empty() { 0 } else { 2 });
        if let Some(begun) = cluster.begun.get(&MemberId(1)) {
            assert_eq!(begun.view.members, [MemberId(1), MemberId(3)]);
            assert!(begun.view.id.era() > 0);
        } else {
            assert_eq!(cluster.processes[&MemberId(1)].0.waiting().missing, [MemberId(2)]);
        }
    }
}

#[test]
fn a_member_that_is_given_up_and_is_here_holds_the_restart() {
    let mut cluster = Cluster::new();
    for id in [1, 2, 3] {
        cluster.start(id, first(view(1, &[1, 2, 3]), MemberId(id), true), vec![], &[2]);
    }
    cluster.run(5_000);
    assert!(cluster.begun.is_empty());
    assert_eq!(cluster.processes[&MemberId(1)].0.waiting().not_lost, [MemberId(2)]);
}

#[test]
fn members_whose_logs_lack_the_begin_are_not_in_the_view() {
    let mut cluster = Cluster::new();
    let mut late = first(view(2, &[1, 2]), MemberId(2), false);
    cluster.start(1, first(view(2, &[1, 2]), MemberId(1), true), vec![log(3, 3)], &[]);
    cluster.start(2, late.clone(), vec![log(4, 4)], &[]);
    cluster.run(2_000);
    assert_eq!(cluster.begun[&MemberId(1)].view.members, [MemberId(1)]);
    // A record that only the other one has was not durable, and may not come back.
    assert_eq!(cluster.begun[&MemberId(1)].logs, [log(3, 3)]);
    assert!(!cluster.begun.contains_key(&MemberId(2)));
    assert_eq!(cluster.disks[&MemberId(2)].view.id, ViewId(3));
    // A log that has got everything is complete.
    late.caught_up("all", Some(Position { epoch: ViewId(2), sequence: 0 }));
    assert_eq!(late.origins.len(), 1);
    late.caught_up("all", None);
    assert!(late.origins.is_empty());
}

/// Track record 224.
#[test]
fn a_gap_counts_up_to_the_end_of_the_log() {
    let mut record = first(view(1, &[1, 2]), MemberId(2), true);
    enter(&mut record, view(5, &[1, 2]), 2);
    let last = |epoch| Some(Position { epoch: ViewId(epoch), sequence: 3 });
    assert_eq!(record.gap_before("all", last(3)), None, "what it lacks is behind its end");
    assert_eq!(record.gap_before("all", last(5)), Some(ViewId(5)), "it begins with view 5");
    enter(&mut record, view(9, &[1, 2]), 2);
    assert_eq!(record.gap_before("all", last(5)), Some(ViewId(5)), "the views 6 to 8 are behind its end");
    assert_eq!(record.gap_before("all", None), None, "it has no record");
    assert_eq!(record.gap_before("other", last(5)), None);
}

#[test]
fn a_log_lacks_the_views_that_its_member_has_missed() {
    let mut record = first(view(1, &[1, 2]), MemberId(2), true);
    learn(&mut record, view(2, &[1, 2]), 2);
    assert!(record.origins.is_empty());
    learn(&mut record, view(4, &[1, 2]), 2);
    assert_eq!(record.origins[0].since, ViewId(4));
    let mut record = first(view(1, &[1, 2]), MemberId(2), true);
    enter(&mut record, view(2, &[1, 2]), 2);
    assert_eq!(record.origins[0].since, ViewId(2));
}

#[test]
fn a_view_that_was_accepted_is_decided_by_the_next_leader() {
    let mut cluster = Cluster::new();
    let base = view(1, &[1, 2, 3]);
    let mut next = base.next(|rank| rank != Rank(2), &[], &[]);
    next.begin_epochs();
    let members = [1, 2].map(|id| Process { id: MemberId(id), nonce: 99 }).to_vec();
    let value = RestartView { view: next.clone(), hosts: one_host(&next), members, logs: vec![] };
    for id in [1, 2, 3] {
        let mut record = first(base.clone(), MemberId(id), true);
        if id == 2 {
            let ballot = RestartBallot { round: 5, leader: MemberId(2), nonce: 99 };
            (record.promised, record.accepted) = (ballot, Some((ballot, value.clone())));
        }
        cluster.start(id, record, vec![], &[]);
    }
    cluster.run(20_000);
    // The processes of that view have ended, so it is the base of another restart.
    let begun = &cluster.begun[&MemberId(1)];
    assert_eq!((begun.view.id, &begun.view.members), (ViewId(3), &next.members));
    assert!(!cluster.begun.contains_key(&MemberId(3)));
}

#[test]
fn a_view_begins_when_a_majority_has_it_on_disk() {
    let base = view(1, &[1, 2, 3]);
    let record = first(base.clone(), MemberId(1), true);
    let (me, lost) = (process(1), BTreeSet::new());
    let setup = RestartSetup { me, record, logs: vec![], lost, host: HOST, patience: PATIENCE };
    let mut leader = Restart::new(setup, Time(0));
    leader.set_leads(true);
    let mut begun = false;
    // Returns the ballots that the leader asks others to promise and to accept.
    let mut run = |leader: &mut Restart| {
        leader.poll(Time(MS));
        let mut asked = vec![];
        while let Some(output) = leader.next_output() {
            match output {
                RestartOutput::Persist(_) => leader.persisted(Time(MS)),
                RestartOutput::Begin(_) => begun = true,
                RestartOutput::Send { message: RestartMessage::Prepare { ballot, .. }, .. } => {
                    asked.push((ballot, false))
                }
                RestartOutput::Send { message: RestartMessage::Accept { ballot, .. }, .. } => {
                    asked.push((ballot, true))
                }
                RestartOutput::Send { .. } | RestartOutput::CatchUp(_) => {}
            }
        }
        (asked, begun)
    };
    for id in [2, 3] {
        leader.hear(process(id), RestartMessage::Hello { base: base.id }, Time(0));
    }
    let (asked, _) = run(&mut leader);
    let (ballot, _) = asked[0];
    for id in [2, 3] {
        let (logs, origins) = Default::default();
        let promise = RestartMessage::Promise {
            base: base.id,
            ballot,
            accepted: None,
            logs,
            origins,
            said_last: false,
            host: HOST,
        };
        leader.hear(process(id), promise, Time(MS));
    }
    let (asked, has_begun) = run(&mut leader);
    assert!(asked.contains(&(ballot, true)) && !has_begun, "its own disk is not enough");
    leader.hear(process(3), RestartMessage::Accepted { base: base.id, ballot }, Time(MS));
    assert!(run(&mut leader).1);
}

#[test]
fn words_that_are_none_are_refused() {
    let record = first(view(1, &[1, 2, 3]), MemberId(3), false);
    let words = record.encode();
    assert_eq!(RestartRecord::decode(&words), Some(record));
    for cut in 0..words.len() {
        assert_eq!(RestartRecord::decode(&words[..cut]), None);
    }
    let message = RestartMessage::Promise {
        base: ViewId(3),
        ballot: RestartBallot::default(),
        accepted: None,
        logs: vec![log(4, 4)],
        origins: vec![LogOrigin { name: "a long name of a subgroup".to_string(), since: ViewId(9) }],
        said_last: true,
        host: HOST << 99,
    };
    let card = Card { id: MemberId(4), host: u128::MAX / 3, address: "host:9000".parse().unwrap(), rack: None };
    let process = Process { id: MemberId(4), nonce: 4 };
    let (to, ballot, base) = (process, RestartBallot::default(), ViewId(3));
    let logs = vec![LongestLog { state: log(4, 4), holders: vec![process] }];
    for message in [message, RestartMessage::CatchUp { to, ballot, base, logs, cards: vec![card] }] {
        let words = message.encode();
        assert_eq!(RestartMessage::decode(&words), Some(message));
        for cut in 0..words.len() {
            assert_eq!(RestartMessage::decode(&words[..cut]), None);
        }
    }
}

/// A record of a group whose members 1 to 3 are on three hosts.
fn apart(id: u64) -> RestartRecord {
    RestartRecord::first(view(1, &[1, 2, 3]), vec![11, 12, 13], MemberId(id), true)
}

#[test]
fn members_on_most_hosts_restart_when_the_others_do_not_come_for_a_while() {
    let mut cluster = Cluster::new();
    cluster.start(1, apart(1), vec![log(9, 5)], &[]);
    cluster.run(2 * PATIENCE.as_millis() as u64);
    let wait = cluster.processes[&MemberId(1)].0.waiting();
    assert!(wait.missing == [MemberId(2), MemberId(3)] && !wait.goes_on && cluster.begun.is_empty());
    cluster.start(2, apart(2), vec![log(7, 5)], &[]);
    cluster.run(PATIENCE.as_millis() as u64 - 500);
    let wait = cluster.processes[&MemberId(1)].0.waiting();
    assert!(wait.missing == [MemberId(3)] && wait.goes_on && cluster.begun.is_empty());
    cluster.run(2_000);
    let begun = &cluster.begun[&MemberId(2)];
    assert_eq!(begun.view.members, [MemberId(1), MemberId(2)]);
    assert_eq!((begun.view.id, &begun.logs[..]), (ViewId(2), &[log(9, 5)][..]), "it is no recovery");
}

#[test]
fn members_that_may_be_known_as_dead_do_not_count_for_a_restart_without_others() {
    for case in 0..4 {
        let mut cluster = Cluster::new();
        for id in [1, 2] {
            let mut record = apart(id);
            match case {
                // The absent member may know of the deaths on its host, from the kernel.
                0 => record.hosts = vec![13, 13, 13],
                1 => record.said_last = true,
                2 => record.hosts[2] = 0,
                // None of the two has all messages.
                _ => record.note_origin(&LogOrigin { name: "all".to_string(), since: ViewId(1) }),
            }
            cluster.start(id, record, vec![log(9, 5)], &[]);
        }
        cluster.run(20_000);
        assert!(cluster.begun.is_empty(), "case {case}");
        let mut record = apart(3);
        record.hosts = cluster.processes[&MemberId(1)].0.record().hosts.clone();
        cluster.start(3, record, vec![log(9, 5)], &[]);
        cluster.run(10_000);
        assert!(cluster.begun.contains_key(&MemberId(3)), "case {case}: all are back");
    }
}

/// A member lives in the view that the others have lost, and can decide nothing alone. It answers each of them.
#[test]
fn a_member_that_lives_and_waits_in_vain_does_not_hold_up_the_others() {
    let mut cluster = Cluster::new();
    for id in 1..=3 {
        cluster.start(id, apart(id), vec![log(7, 9)], &[]);
    }
    cluster.run(1_000);
    let begun = |cluster: &Cluster, id| cluster.begun.get(&MemberId(id)).map(|value: &RestartView| value.view.id);
    assert_eq!([1, 2, 3].map(|id| begun(&cluster, id)), [Some(ViewId(2)); 3]);
    // Two of them are started again.
    for id in 1..=2 {
        let record = RestartRecord { hosts: vec![11, 12, 13], ..cluster.disks[&MemberId(id)].clone() };
        cluster.begun.remove(&MemberId(id));
        cluster.start(id, record, vec![log(7, 9)], &[]);
    }
    for id in [1, 3] {
        cluster.processes.get_mut(&MemberId(id)).unwrap().0.set_leads(true);
    }
    let patience = PATIENCE.as_millis() as u64;
    cluster.run(patience - 500);
    assert_eq!([1, 2].map(|id| begun(&cluster, id)), [None; 2]);
    cluster.run(6_000);
    assert_eq!([1, 2].map(|id| begun(&cluster, id)), [Some(ViewId(3)); 2]);
}

#[test]
fn a_view_that_was_accepted_while_the_group_ran_is_finished_first() {
    // Members 1 and 3 may have decided it, and begun it. It is on the disk of member 1.
    let mut cluster = Cluster::new();
    let mut accepted = apart(1);
    accepted.accept(Ballot { round: 1, leader: Rank(0) }, view(2, &[1, 2]), vec![11, 12]);
    // An older value of a ballot that failed.
    let mut older = apart(2);
    older.accept(Ballot { round: 1, leader: Rank(0) }, view(2, &[1, 2]), vec![11, 12]);
    older.accepted.as_mut().unwrap().0 = RestartBallot::default();
    older.accepted.as_mut().unwrap().1.view = view(2, &[2, 3]);
    cluster.start(1, accepted, vec![log(9, 5)], &[]);
    cluster.start(2, older, vec![log(9, 5)], &[]);
    cluster.run(3 * PATIENCE.as_millis() as u64);
    let begun = &cluster.begun[&MemberId(2)];
    assert_eq!((begun.view.id, &begun.view.members[..]), (ViewId(3), &[MemberId(1), MemberId(2)][..]));
}

/// Track record: a leader that had not heard the newest promise of a process asked its log for less than it
/// had.
#[test]
fn a_log_that_is_longer_than_asked_gets_nothing() {
    let (me, lost) = (process(1), BTreeSet::new());
    let setup = RestartSetup { me, record: apart(1), logs: vec![log(9, 9)], lost, host: HOST, patience: PATIENCE };
    let mut restart = Restart::new(setup, Time(0));
    let (ballot, leader) = (RestartBallot { round: 1, leader: MemberId(2), nonce: 2 }, process(2));
    let (base, hosts) = (view(1, &[1, 2, 3]), vec![11, 12, 13]);
    restart.hear(leader, RestartMessage::Prepare { to: me, ballot, base: base.clone(), hosts }, Time(1));
    for (last, is_asked) in [(7, false), (9, false), (12, true)] {
        let logs = vec![LongestLog { state: log(last, last), holders: vec![process(3)] }];
        let message = RestartMessage::CatchUp { to: me, ballot, base: base.id, logs, cards: vec![] };
        restart.hear(leader, message, Time(2));
        let mut asked = false;
        while let Some(output) = restart.next_output() {
            asked |= matches!(output, RestartOutput::CatchUp(_));
            if matches!(output, RestartOutput::Persist(_)) {
                restart.persisted(Time(2));
            }
        }
        assert_eq!(asked, is_asked, "to record {last}");
    }
}

/// Returns what a process sends, once its records are written.
fn sent(restart: &mut Restart) -> Vec<RestartMessage> {
    let mut sent = vec![];
    while let Some(output) = restart.next_output() {
        match output {
            RestartOutput::Send { message, .. } => sent.push(message),
            RestartOutput::Persist(_) => restart.persisted(Time(2)),
            RestartOutput::CatchUp(_) | RestartOutput::Begin(_) => {}
        }
    }
    sent
}

/// The last records that the promises among these messages name.
fn promised(sent: &[RestartMessage]) -> Vec<u64> {
    let last = |message: &RestartMessage| match message {
        RestartMessage::Promise { logs, .. } => logs[0].last.map(|last| last.sequence),
        _ => None,
    };
    sent.iter().filter_map(last).collect()
}

/// Track record: a process cut a log for one leader, and had promised another one its end meanwhile. The view of that
/// one began with records that no log had.
#[test]
fn a_log_loses_nothing_that_the_newest_leader_counts_on() {
    let (me, lost) = (process(1), BTreeSet::new());
    let setup = RestartSetup { me, record: apart(1), logs: vec![log(9, 9)], lost, host: HOST, patience: PATIENCE };
    let mut restart = Restart::new(setup, Time(0));
    let base = view(1, &[1, 2, 3]);
    let ballot = |leader: u64| RestartBallot { round: leader, leader: MemberId(leader), nonce: leader as u32 };
    let prepare = |leader: u64| {
        let (base, hosts) = (base.clone(), vec![11, 12, 13]);
        RestartMessage::Prepare { to: me, ballot: ballot(leader), base, hosts }
    };
    let catch_up = |leader: u64| {
        let logs = vec![LongestLog { state: log(12, 12), holders: vec![process(3)] }];
        RestartMessage::CatchUp { to: me, ballot: ballot(leader), base: base.id, logs, cards: vec![] }
    };
    let cut = |restart: &mut Restart, sequence| restart.begin_cut("all", log(sequence, 0).last, Time(2));
    restart.hear(process(2), prepare(2), Time(1));
    assert!(!cut(&mut restart, 7), "no leader has ordered it");
    assert_eq!(promised(&sent(&mut restart)), [9]);
    restart.hear(process(2), catch_up(2), Time(1));
    assert!(cut(&mut restart, 7));
    assert_eq!(promised(&sent(&mut restart)), [9, 7]);
    // The next leader hears of it, and the log stays.
    restart.hear(process(3), prepare(3), Time(1));
    assert_eq!(promised(&sent(&mut restart)), [7]);
    assert!(!cut(&mut restart, 5));
    restart.hear(process(3), catch_up(3), Time(1));
    assert!(cut(&mut restart, 5));
    assert_eq!(promised(&sent(&mut restart)), [7, 5]);
    // A promise that was overtaken on its way.
    for (last, is_accepted) in [(7, false), (5, true), (4, true)] {
        let mut next = base.next(|_| true, &[], &[]);
        next.begin_epochs();
        let members = vec![me, process(2), process(3)];
        let value = RestartView { view: next, hosts: vec![11, 12, 13], members, logs: vec![log(last, last)] };
        let ballot = RestartBallot { round: 13 - last, ..ballot(3) };
        restart.hear(process(3), RestartMessage::Accept { to: me, ballot, value: Box::new((base.id, value)) }, Time(2));
        let accepted = sent(&mut restart).iter().any(|message| matches!(message, RestartMessage::Accepted { .. }));
        assert_eq!(accepted, is_accepted, "to record {last}");
    }
}

/// Track record: the messages of a log were lost, because another log of the same member was incomplete.
#[test]
fn a_whole_log_counts_though_another_one_of_its_member_is_incomplete() {
    let mut cluster = Cluster::new();
    let mut base = view(1, &[1, 2]);
    let mut other = base.subgroups[0].clone();
    other.name = "other".to_string();
    base.subgroups = vec![base.subgroups[0].clone(), other].into();
    let logs = |last: u64| vec![log(last, last), LogState { name: "other".to_string(), ..log(4, 4) }];
    let mut incomplete = first(base.clone(), MemberId(2), true);
    incomplete.note_origin(&LogOrigin { name: "other".to_string(), since: ViewId(1) });
    cluster.start(1, first(base, MemberId(1), true), logs(5), &[]);
    cluster.start(2, incomplete, logs(9), &[]);
    cluster.run(2_000);
    let begun = &cluster.begun[&MemberId(1)];
    assert_eq!((&begun.view.members[..], begun.logs[0].last), (&[MemberId(1)][..], log(9, 9).last));
}

#[test]
fn without_smaller_quorums_all_members_are_needed() {
    let mut smaller = 0;
    for (members, hosts, votes) in (1..=4u32).flat_map(|n| (0..16).flat_map(move |h| (1..16).map(move |v| (n, h, v)))) {
        let ids: Vec<u64> = (1..=u64::from(members)).collect();
        let mut base = view(1, &ids);
        base.nonvoters = (0..members).filter(|rank| votes >> rank & 1 == 0).map(Rank).collect();
        if base.nonvoters.len() == ids.len() {
            continue;
        }
        let on = (0..members).map(|rank| 1 + (hosts >> rank & 1)).collect();
        let record = RestartRecord::first(base, on, MemberId(1), true);
        let (me, lost) = (process(1), BTreeSet::new());
        let has_smaller = record.has_smaller_quorums();
        let setup = RestartSetup { me, record, logs: vec![], lost, host: HOST, patience: PATIENCE };
        let restart = Restart::new(setup, Time(0));
        let all = (1u32 << members) - 1;
        let is_enough = |here: u32| restart.is_enough(|id| here >> (id.0 - 1) & 1 == 1, |_| false);
        assert!(is_enough(all));
        let found = (0..all).any(is_enough);
        assert!(has_smaller || !found, "{:?}", restart.record());
        smaller += u32::from(found);
    }
    assert!(smaller > 0);
}
