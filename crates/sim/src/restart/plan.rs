//! The content of a scene, and how one is drawn from a seed.
use crate::random::{Random, mix};
use std::fmt;

pub(super) const MS: u64 = 1_000_000;
pub(super) const S: u64 = 1_000 * MS;

/// A fault. Times are in ns. Seats are numbered from 0.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RestartFault {
    /// The process of a seat crashes, and another one is started there.
    Crash {
        /// The seat.
        seat: u32,
        /// How long the seat has no process.
        down_ns: u64,
        /// True if its disk is lost.
        wipe: bool,
    },
    /// The processes of several seats crash within a short time.
    CrashMany {
        /// A bit mask of the seats.
        seats: u64,
        /// The time within which they crash.
        within_ns: u64,
        /// The longest time that a seat has no process.
        down_ns: u64,
    },
    /// No message passes between the hosts in `side` and the others.
    Cut {
        /// A bit mask of hosts.
        side: u64,
        /// The length of the cut.
        ns: u64,
    },
}

/// A duty of a driver that a scene leaves undone, to prove that the checkers find that.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum RestartBroken {
    /// All duties are done.
    #[default]
    Not,
    /// A member shows a view to joiners before the view is on its disk.
    ShownEarly,
    /// A process begins a view before the view is on its own disk.
    BegunEarly,
    /// A process without a record joins without writing one first.
    JoinsWithoutRecord,
    /// A process that joins keeps records that the group does not have.
    TailKept,
    /// A process that joins logs messages of a view before it has the older ones.
    LogsAtOnce,
    /// A process reports records of a restart before they are on disk.
    ReportedEarly,
    /// A log keeps records behind the end of an epoch, where they are logged before delivery.
    LogUncut,
    /// The vote of a member counts before it is on its disk.
    VotesUnwritten,
    /// A member says that it writes nothing more before that is on its disk.
    EndNoticeUnwritten,
    /// A member whose log lacks records continues without the members that have them.
    GoesOnIncomplete,
}

impl RestartBroken {
    /// All broken duties.
    pub const ALL: [RestartBroken; 10] = [
        RestartBroken::ShownEarly,
        RestartBroken::BegunEarly,
        RestartBroken::JoinsWithoutRecord,
        RestartBroken::TailKept,
        RestartBroken::LogsAtOnce,
        RestartBroken::ReportedEarly,
        RestartBroken::LogUncut,
        RestartBroken::VotesUnwritten,
        RestartBroken::EndNoticeUnwritten,
        RestartBroken::GoesOnIncomplete,
    ];
}

/// Everything that determines a run.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RestartScene {
    /// The seed of the random choices during the run.
    pub seed: u64,
    /// By seat, its host. A seat has a disk, and at most one process at a time.
    pub hosts: Vec<u32>,
    /// How many of the seats are members of the first view.
    pub members: u32,
    /// A bit mask of the seats that may lead. With one host, one process leads at a time, and 0.
    pub leads: u64,
    /// The number of logged subgroups.
    pub logs: u32,
    /// The number of members without which no message becomes durable.
    pub copies: u32,
    /// True if messages are delivered once they are durable.
    pub before_delivery: bool,
    /// The longest delay of a message.
    pub delay_ns: u64,
    /// One message in so many is lost; 0: none is.
    pub loss_one_in: u64,
    /// The longest time that a write of a record takes.
    pub write_ns: u64,
    /// The longest time that the sync of a log takes.
    pub sync_ns: u64,
    /// The longest time from the decision on a view until a member hears of it.
    pub learn_ns: u64,
    /// One message in so many steps of a view.
    pub send_one_in: u64,
    /// One write of a record in so many ends with a crash of the process near its end; 0: none does.
    pub crash_one_in: u64,
    /// True if a log that gets no older records begins without them after a while.
    pub gaps: bool,
    /// True if the operator also gives up members that are down and have a disk.
    pub hasty: bool,
    /// True if votes for views count once they are on disk, so that a restart quorum is enough. If not, no record
    /// has hosts, and a restart waits for all members.
    pub votes_on_disk: bool,
    /// How long a restart quorum waits for the other members.
    pub go_on_ns: u64,
    /// How long the operator waits before it gives up members.
    pub patience_ns: u64,
    /// The faults, by ascending time.
    pub faults: Vec<(u64, RestartFault)>,
    /// The time at which all faults are over.
    pub calm_ns: u64,
    /// A duty that is not done.
    pub broken: RestartBroken,
}

impl RestartScene {
    /// Draws the scene of a seed.
    pub fn from_seed(seed: u64) -> RestartScene {
        let mut random = Random::new(seed, 31);
        let random = &mut random;
        let seats = random.range(2, 6) as u32;
        let count = if random.one_in(2) { 1 } else { random.range(2, u64::from(seats)) as u32 };
        let hosts: Vec<u32> = (0..seats).map(|seat| seat % count).collect();
        let members = if random.one_in(2) { seats } else { random.range(1, seats.into()) as u32 };
        let leads = match count {
            1 => 0,
            _ if random.one_in(2) => (1 << seats) - 1,
            _ => random.below(1 << seats) | 1 << random.below(seats.into()),
        };
        let calm_ns = random.range(5, 40) * S;
        let wipes = random.one_in(3);
        let kinds: Vec<u64> = (0..5).filter(|_| random.one_in(2)).collect();
        let number = random.range(1, 8);
        let mut faults = vec![];
        for _ in 0..number {
            let (kind, at) = (if kinds.is_empty() { 1 } else { random.pick(&kinds) }, random.range(S, calm_ns));
            draw_fault(random, kind, (&hosts, count, wipes), &mut |after, fault| faults.push((at + after, fault)));
        }
        faults.sort_by_key(|(at, _)| *at);
        faults.retain(|(at, _)| *at < calm_ns);
        RestartScene {
            seed,
            hosts,
            members,
            leads,
            logs: 1 + u32::from(random.one_in(3)),
            copies: random.range(1, 3) as u32,
            before_delivery: mix(seed ^ 0x66_de11).is_multiple_of(3),
            delay_ns: random.pick(&[MS / 10, 5 * MS, 100 * MS]),
            loss_one_in: if random.one_in(2) { 0 } else { random.range(5, 50) },
            write_ns: random.pick(&[0, 20 * MS, 300 * MS]),
            sync_ns: random.pick(&[MS, 100 * MS, 2 * S]),
            learn_ns: random.pick(&[MS, 50 * MS, 500 * MS]),
            send_one_in: random.range(1, 10),
            crash_one_in: if random.one_in(2) { 0 } else { random.range(3, 30) },
            gaps: random.one_in(4),
            hasty: random.one_in(3),
            votes_on_disk: mix(seed ^ 0x0007_07e5).is_multiple_of(2),
            go_on_ns: [0, S, 5 * S, 20 * S][(mix(seed ^ 0x90_0e) % 4) as usize],
            patience_ns: random.range(3, 10) * S,
            faults,
            calm_ns,
            broken: RestartBroken::Not,
        }
    }
}

fn draw_fault(
    random: &mut Random,
    kind: u64,
    (hosts, count, wipes): (&[u32], u32, bool),
    add: &mut dyn FnMut(u64, RestartFault),
) {
    let seats = hosts.len() as u64;
    let seat = random.below(seats) as u32;
    let all = (1u64 << seats) - 1;
    let longest = random.pick(&[200 * MS, 2 * S, 8 * S]);
    let down_ns = random.range(MS, longest);
    let within_ns = random.pick(&[0, 5 * MS, 300 * MS, 3 * S]);
    match kind {
        0 => add(0, RestartFault::Crash { seat, down_ns, wipe: wipes && random.one_in(3) }),
        1 => add(0, RestartFault::CrashMany { seats: all, within_ns, down_ns }),
        // Crashes all, and some of them again while they restart.
        2 => {
            add(0, RestartFault::CrashMany { seats: all, within_ns, down_ns });
            for _ in 0..random.range(1, 3) {
                let (seats, again) = (random.below(all + 1), random.below(3 * S));
                let fault = RestartFault::CrashMany { seats, within_ns: 0, down_ns: random.range(MS, S) };
                add(within_ns + down_ns + again, fault);
            }
        }
        // Crashes all one by one, so that the view shrinks.
        3 => {
            let mut at = 0;
            for seat in 0..seats as u32 {
                add(at, RestartFault::Crash { seat, down_ns: 8 * S, wipe: wipes && random.one_in(8) });
                at += random.below(3 * S);
            }
        }
        _ if count > 1 => add(0, RestartFault::Cut { side: random.below(1 << count), ns: random.range(S, 10 * S) }),
        _ => add(0, RestartFault::Crash { seat, down_ns, wipe: false }),
    }
}

impl fmt::Display for RestartScene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let RestartScene {
            seed,
            hosts,
            members,
            leads,
            logs,
            copies,
            before_delivery,
            gaps,
            hasty,
            calm_ns,
            votes_on_disk,
            ..
        } = self;
        writeln!(
            f,
            "seed {seed}: seats on hosts {hosts:?}, {members} in the first view, leaders {leads:b}; {logs} logs, {copies} copies, before delivery: {before_delivery}, votes on disk: {votes_on_disk}; messages \
             take up to {} us, one in {} is lost; records take up to {} ms, syncs {} ms; gaps: {gaps}; hasty operator: {hasty}; calm \
             after {} ms",
            self.delay_ns / 1000,
            self.loss_one_in,
            self.write_ns / MS,
            self.sync_ns / MS,
            calm_ns / MS
        )?;
        self.faults.iter().try_for_each(|(at, fault)| writeln!(f, "{} ms: {fault:?}", at / MS))
    }
}
