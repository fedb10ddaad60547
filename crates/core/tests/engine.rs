//! Engines over the simplest possible fabric: copies of rows in one thread, posts applied between
//! polls.
use spindle_core::wire::layout;
use spindle_core::wire::ring::{self, Kind};
use spindle_core::*;
use std::collections::BTreeSet;
use std::ops::Range;

fn process(id: u64) -> Process {
    Process { id: MemberId(id), nonce: 1 }
}

/// One member: its copies of all rows, and its posts that were not taken yet.
struct Memory {
    me: Rank,
    rows: Vec<Vec<u8>>,
    posts: Vec<(Rank, u64, Vec<u8>)>,
    /// The members that it has woken.
    woken: Vec<Rank>,
    /// The members at which its posts arrive only much later.
    unheard: Vec<Rank>,
}

impl Rows for Memory {
    fn load(&self, member: Rank, at: u64) -> u64 {
        let at = at as usize;
        u64::from_le_bytes(self.rows[member.index()][at..at + 8].try_into().unwrap())
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        &self.rows[member.index()][at as usize..(at + len) as usize]
    }

    type Frames<'a> = Lookup<'a, Memory>;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Memory> {
        Lookup::new(self, member, ring)
    }
}

impl Table for Memory {
    fn store(&mut self, at: u64, value: u64) {
        let at = at as usize;
        self.rows[self.me.index()][at..at + 8].copy_from_slice(&value.to_le_bytes());
    }

    fn post(&mut self, peers: &[Rank], range: Range<u64>) {
        self.post_quietly(peers, range);
        self.wake(peers);
    }

    fn wake(&mut self, peers: &[Rank]) {
        self.woken.extend(peers.iter().filter(|peer| **peer != self.me));
    }

    fn post_quietly(&mut self, peers: &[Rank], range: Range<u64>) {
        let bytes = self.rows[self.me.index()][range.start as usize..range.end as usize].to_vec();
        for peer in peers.iter().filter(|peer| **peer != self.me) {
            self.posts.push((*peer, range.start, bytes.clone()));
        }
    }

    fn is_heard(&self, peer: Rank) -> bool {
        !self.unheard.contains(&peer)
    }
}

struct Group {
    engines: Vec<Engine>,
    memories: Vec<Memory>,
    delivered: Vec<Vec<(u32, u64, Vec<u8>)>>,
    /// The number of times that each member was notified of room.
    rooms: Vec<u64>,
    take: usize,
    /// Whether the logs have no room.
    logs_are_full: bool,
    /// The rises of the durable frontier at each member.
    rises: Vec<Vec<DurableRise>>,
    /// The records that each member's log has taken in this epoch, and where it was cut.
    logged: Vec<Vec<Position>>,
    cuts: Vec<Vec<Position>>,
    /// Pairs of members: the second receives no further posts of the first.
    broken: Vec<(usize, usize)>,
    now: u64,
}

/// The upcalls of one engine.
struct Recorder<'a> {
    delivered: &'a mut Vec<(u32, u64, Vec<u8>)>,
    rooms: &'a mut u64,
    rises: &'a mut Vec<DurableRise>,
    logged: &'a mut Vec<Position>,
    cuts: &'a mut Vec<Position>,
    take: usize,
    logs_are_full: bool,
}

impl Upcalls<Memory> for Recorder<'_> {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_, Memory>) {
        self.delivered.extend(batch.take(self.take).map(|m| (m.sender.0, m.round, m.payload.to_vec())));
    }

    fn log(&mut self, _: SubgroupId, records: &mut Records<'_, Memory>) {
        records.offer(|record| {
            self.logged.extend((!self.logs_are_full).then_some(record.position));
            !self.logs_are_full
        });
    }

    fn cut_log(&mut self, _: SubgroupId, from: Position) {
        self.cuts.push(from);
    }

    fn durable(&mut self, _: SubgroupId, rise: DurableRise) {
        self.rises.push(rise);
    }

    fn room(&mut self, _: SubgroupId) {
        *self.rooms += 1;
    }
}

impl Group {
    fn new(members: u32, senders: &[u32], order: Order, ablation: Ablation) -> Group {
        Group::with(members, senders, order, ablation, 1)
    }

    fn with(members: u32, senders: &[u32], order: Order, ablation: Ablation, subgroups: u32) -> Group {
        Group::windowed(members, senders, order, ablation, subgroups, 8)
    }

    fn windowed(members: u32, senders: &[u32], order: Order, ablation: Ablation, subgroups: u32, window: u64) -> Group {
        let subgroup = |i: u32| SubgroupSpec {
            member_rule: Rule::Everyone,
            sender_rule: Rule::Everyone,
            name: format!("s{i}"),
            members: (0..members).map(Rank).collect(),
            senders: senders.iter().copied().map(Rank).collect(),
            order,
            window,
            message_bytes_max: 100,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        };
        let members: Vec<MemberId> = (0..members).map(|i| MemberId(u64::from(i) + 10)).collect();
        let view =
            View { id: ViewId(1), members, nonvoters: vec![], subgroups: (0..subgroups).map(subgroup).collect() };
        let engine = |rank| Engine::new(view.clone(), rank, ablation).unwrap();
        Group::of(view.ranks().map(engine).collect())
    }

    /// The engines of all members of a view, in order.
    fn of(engines: Vec<Engine>) -> Group {
        let rows: Vec<Vec<u8>> = engines[0].layout().rows().iter().map(|row| vec![0; row.size as usize]).collect();
        let ranks = engines[0].view().ranks();
        let memories =
            ranks.map(|me| Memory { me, rows: rows.clone(), posts: vec![], woken: vec![], unheard: vec![] }).collect();
        let (delivered, rooms, rises) =
            (vec![vec![]; engines.len()], vec![0; engines.len()], vec![vec![]; engines.len()]);
        let (logged, cuts) = (vec![vec![]; engines.len()], vec![vec![]; engines.len()]);
        let (take, logs_are_full) = (usize::MAX, false);
        Group { delivered, rooms, engines, memories, take, logs_are_full, rises, logged, cuts, broken: vec![], now: 0 }
    }

    fn try_send(&mut self, member: usize, payload: &[u8], kind: Kind) -> bool {
        self.try_send_at(member, payload, kind, 0)
    }

    /// Sends a message at a time, which counts in a logged subgroup.
    fn try_send_at(&mut self, member: usize, payload: &[u8], kind: Kind, time: u64) -> bool {
        let Some(claims) = self.engines[member].claims(SubgroupId(0)) else { return false };
        let memory = &mut self.memories[member];
        let stamp = |claim: &Claim| memory.store(claims.ring().time_offset(claim.position(), claim.span()), time);
        let Ok(claim) = claims.claim(payload.len() as u64, stamp) else { return false };
        let at = claim.payload_offset(claims.ring()) as usize;
        memory.rows[member][at..at + payload.len()].copy_from_slice(payload);
        claims.commit(claim, kind, payload.len() as u64, |position, word| {
            memory.store(claims.ring().offset(position), word)
        });
        true
    }

    fn poll(&mut self, member: usize) -> Progress {
        let (delivered, rooms) = (&mut self.delivered[member], &mut self.rooms[member]);
        let (rises, logs_are_full) = (&mut self.rises[member], self.logs_are_full);
        let (logged, cuts) = (&mut self.logged[member], &mut self.cuts[member]);
        let mut told = Recorder { delivered, rooms, rises, logged, cuts, take: self.take, logs_are_full };
        let progress = self.engines[member].poll(Time(self.now), &mut self.memories[member], &mut told);
        if let Some((ballot, _)) = self.engines[member].take_acceptance() {
            // Its disk takes no time.
            self.engines[member].note_persisted_acceptance(ballot);
        }
        if self.engines[member].wants_end_notice() {
            self.engines[member].allow_end_notice();
        }
        self.pass_on(member);
        progress
    }

    /// Applies the posts of `member` at their receivers.
    fn pass_on(&mut self, member: usize) {
        for (peer, at, bytes) in std::mem::take(&mut self.memories[member].posts) {
            if !self.broken.contains(&(member, peer.index())) {
                let at = at as usize;
                self.memories[peer.index()].rows[member][at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
    }

    /// Polls all members until no poll does any work.
    fn settle(&mut self) {
        for _ in 0..100_000 {
            let polls: Vec<Progress> = (0..self.engines.len()).map(|i| self.poll(i)).collect();
            if polls.iter().any(|poll| poll.worked) {
                continue;
            }
            match polls.iter().filter_map(|poll| poll.wake_at).min() {
                Some(at) => self.now = self.now.max(at.0),
                None => return,
            }
        }
        panic!("the group never comes to rest");
    }
}

fn senders_take_turns(members: u32, senders: &[u32], order: Order, ablation: Ablation) {
    let mut group = Group::new(members, senders, order, ablation);
    let mut sent: Vec<Vec<Vec<u8>>> = vec![vec![]; members as usize];
    let mut random = 12345u64;
    for step in 0..4000u64 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let sender = senders[(random >> 33) as usize % senders.len()] as usize;
        let payload: Vec<u8> = (0..random >> 40 & 63).map(|i| (i + step) as u8).collect();
        let kind = if step % 17 == 3 { Kind::Void } else { Kind::Message };
        if group.try_send(sender, &payload, kind) && kind == Kind::Message {
            sent[sender].push(payload);
        }
        let member = (random >> 20) as usize % members as usize;
        group.poll(member);
    }
    group.settle();
    let total: usize = sent.iter().map(Vec::len).sum();
    assert!(total > 500, "the rings were reused: {total}");
    for (member, delivered) in group.delivered.iter().enumerate() {
        assert_eq!(delivered.len(), total, "member {member}");
        for (sender, sent) in sent.iter().enumerate() {
            let from: Vec<_> = delivered.iter().filter(|m| m.0 == sender as u32).map(|m| &m.2).collect();
            assert_eq!(from, sent.iter().collect::<Vec<_>>(), "member {member} from {sender}");
        }
        if order == Order::Total {
            assert_eq!(delivered, &group.delivered[0]);
        }
    }
    for &sender in senders {
        group.engines[sender as usize].claims(SubgroupId(0)).unwrap().close();
    }
    group.settle();
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Finished));
}

#[test]
fn every_member_delivers_every_message_in_one_order() {
    for (members, senders) in [(1, &[0][..]), (2, &[0]), (2, &[1]), (2, &[0, 1]), (3, &[0, 2]), (5, &[0, 1, 2, 3, 4])] {
        senders_take_turns(members, senders, Order::Total, Ablation::default());
        senders_take_turns(members, senders, Order::Fifo, Ablation::default());
    }
}

#[test]
fn every_optimisation_can_be_switched_off() {
    let on = Ablation::default();
    let off = [
        Ablation { send_batch: false, ..on },
        Ablation { receive_batch: false, ..on },
        Ablation { delivery_batch: false, ..on },
        Ablation { coalesced_control: false, ..on },
        Ablation { deferred_posts: false, ..on },
        Ablation { send_batch: false, receive_batch: false, delivery_batch: false, deferred_posts: false, ..on },
    ];
    for ablation in off {
        senders_take_turns(3, &[0, 1], Order::Total, ablation);
        senders_take_turns(3, &[0, 1], Order::Fifo, ablation);
    }
}

#[test]
fn without_nulls_an_idle_sender_stops_the_others() {
    for null_sends in [true, false] {
        let mut group = Group::new(2, &[0, 1], Order::Total, Ablation { null_sends, ..Ablation::default() });
        group.try_send(0, b"first", Kind::Message);
        group.try_send(0, b"second", Kind::Message);
        group.settle();
        assert_eq!(group.delivered[1].len(), if null_sends { 2 } else { 1 });
    }
}

#[test]
fn skipped_rounds_cost_the_others_no_nulls() {
    let mut group = Group::new(3, &[0, 1, 2], Order::Total, Ablation::default());
    group.engines[1].claims(SubgroupId(0)).unwrap().skip_rounds(1000);
    group.settle();
    let nulls = |group: &Group, member: usize| group.engines[member].subgroup_stats(SubgroupId(0)).unwrap().nulls;
    assert_eq!([0, 1, 2].map(|i| nulls(&group, i)), [0, 0, 0]);
    for i in 0..100u8 {
        assert!(group.try_send(0, &[i], Kind::Message));
        group.settle();
    }
    assert_eq!(group.delivered[2].len(), 100);
    assert_eq!(nulls(&group, 1), 0, "it had skipped these rounds");
    assert!(nulls(&group, 2) >= 99);
    // Its own next message comes after the skipped rounds, and the other members fill up with
    // nulls.
    group.try_send(1, b"back", Kind::Message);
    group.settle();
    assert_eq!(group.delivered[0].last().unwrap(), &(1, 1000, b"back".to_vec()));
}

#[test]
fn skipping_more_rounds_than_there_are_is_harmless() {
    let mut group = Group::new(2, &[0, 1], Order::Total, Ablation::default());
    for _ in 0..2 {
        group.engines[1].claims(SubgroupId(0)).unwrap().skip_rounds(u64::MAX);
        group.settle();
    }
    for sender in [0, 1, 0] {
        group.try_send(sender, b"on", Kind::Message);
        group.settle();
    }
    assert_eq!(group.delivered[0].len(), 3);
    assert_eq!(group.delivered[0], group.delivered[1]);
}

/// At a member that has caught up with nulls, this number of rounds times this number of senders
/// would exceed a count.
#[test]
fn rounds_beyond_any_view_are_garbage_in_a_large_one_too() {
    let senders: Vec<u32> = (0..65).collect();
    let mut group = Group::new(65, &senders, Order::Total, Ablation::default());
    let entry = group.engines[0].layout().row(Rank(0)).subgroup(SubgroupId(0)).unwrap().entry;
    for rank in 1..65 {
        for at in [layout::entry::ROUNDS, layout::entry::SPOKEN] {
            let at = (entry + at) as usize;
            group.memories[0].rows[rank][at..at + 8].copy_from_slice(&(1u64 << 58).to_le_bytes());
        }
    }
    group.poll(0);
    assert!(matches!(group.engines[0].faults(), [Fault::Counter { counter: "rounds", .. }, ..]));
}

#[test]
fn a_handler_that_stops_early_is_offered_the_rest() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    group.take = 1;
    for i in 0..5 {
        group.try_send(0, &[i], Kind::Message);
    }
    group.settle();
    assert_eq!(group.delivered[1].iter().map(|m| m.2[0]).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn a_full_ring_waits_for_the_slowest_member() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    let fill = |group: &mut Group| (0..).take_while(|_| group.try_send(0, &[0; 100], Kind::Message)).count();
    let first = fill(&mut group);
    assert!(first >= 8, "at least `window` messages fit: {first}");
    group.poll(0);
    assert_eq!(fill(&mut group), 0, "nobody else has received anything");
    group.settle();
    assert_eq!(fill(&mut group), first);
}

#[test]
fn garbage_from_a_peer_is_a_fault_that_names_it() {
    let mut group = Group::new(2, &[0, 1], Order::Total, Ablation::default());
    group.try_send(0, b"fine", Kind::Message);
    group.settle();
    let entry = group.engines[0].layout().row(Rank(1)).subgroup(SubgroupId(0)).unwrap().entry;
    let at = (entry + layout::entry::ROUNDS) as usize;
    group.memories[0].rows[1][at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    group.poll(0);
    assert!(matches!(group.engines[0].faults(), [Fault::Counter { member: Rank(1), .. }]));

    let mut group = Group::new(2, &[0, 1], Order::Total, Ablation::default());
    // An announcement with no frame behind it.
    for at in [layout::entry::PUBLISHED, layout::entry::ROUNDS, layout::entry::SPOKEN, layout::entry::RECEIVED] {
        let at = (entry + at) as usize;
        group.memories[0].rows[1][at..at + 8].copy_from_slice(&64u64.to_le_bytes());
    }
    group.settle();
    assert!(matches!(group.engines[0].faults(), [Fault::Frame { .. }]), "{:?}", group.engines[0].faults());
    assert!(group.engines[0].is_changing() && group.engines[0].suspects(Rank(1)));
}

/// A defect that a consumer on another thread finds ends the group as well: the consumer would wait
/// for ever.
#[test]
fn garbage_that_a_consumer_meets_is_a_fault_too() {
    for order in [Order::Total, Order::Fifo] {
        let mut group = Group::new(2, &[1], order, Ablation::default());
        let (mut cursor, handoff) = group.engines[0].hand_off(SubgroupId(0)).unwrap();
        group.try_send(1, b"fine", Kind::Message);
        group.poll(1);
        let ring = group.engines[0].layout().row(Rank(1)).subgroup(SubgroupId(0)).unwrap().ring.unwrap();
        group.memories[0].rows[1][ring.at as usize..ring.at as usize + 8].fill(0xff);
        group.settle();
        let batch = cursor.advance(&group.memories[0], handoff.frontier());
        batch.report(&handoff);
        group.settle();
        let fault =
            Fault::Frame { subgroup: SubgroupId(0), defect: Defect { sender: Rank(1), position: 0, header: u64::MAX } };
        assert_eq!(group.engines[0].faults(), [fault]);
    }
}

/// No correct sender announces an object before all members have it.
#[test]
fn an_object_that_is_not_here_is_its_senders_fault() {
    for (order, senders) in [(Order::Total, &[0, 1][..]), (Order::Total, &[1]), (Order::Fifo, &[0, 1])] {
        let mut group = Group::new(2, senders, order, Ablation::default());
        group.try_send(1, b"fine", Kind::Message);
        group.try_send(1, &[7; 24], Kind::Object);
        for _ in 0..20 {
            group.poll(1);
            group.poll(0);
        }
        let faults = group.engines[0].faults();
        assert!(matches!(faults, [Fault::Frame { defect: Defect { sender: Rank(1), .. }, .. }]), "{faults:?}");
        assert!(group.engines[0].suspects(Rank(1)));
        assert_eq!(group.delivered[0].iter().map(|got| &got.2[..]).collect::<Vec<_>>(), [b"fine"]);
    }
}

/// Every message is stable, so the view need not end for a peer that breaks the protocol now. The
/// remaining messages are delivered in any case.
#[test]
fn garbage_behind_the_end_keeps_nothing_back() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    (0..5).for_each(|_| assert!(group.try_send(0, b"one of five", Kind::Message)));
    group.engines[0].claims(SubgroupId(0)).unwrap().close();
    // No member takes any message yet.
    group.take = 0;
    for _ in 0..20 {
        group.poll(0);
        group.poll(1);
    }
    let entry = group.engines[1].layout().row(Rank(0)).subgroup(SubgroupId(0)).unwrap().entry;
    let at = (entry + layout::entry::RECEIVED) as usize;
    group.memories[1].rows[0][at..at + 8].copy_from_slice(&u64::MAX.to_le_bytes());
    group.take = 1;
    // Only as long as the engine asks for it.
    let mut polls = 0;
    while {
        let progress = group.poll(1);
        progress.worked || progress.wake_at.is_some()
    } {
        polls += 1;
        assert!(polls < 100, "it never rests");
    }
    assert!(!group.engines[1].is_changing());
    assert_eq!((group.delivered[1].len(), group.engines[1].state()), (5, &State::Finished));
    assert!(matches!(group.engines[1].faults(), [Fault::Counter { member: Rank(0), .. }]));
}

#[test]
fn an_idle_group_is_silent() {
    let mut group = Group::new(3, &[0, 1, 2], Order::Total, Ablation::default());
    group.try_send(1, b"only one", Kind::Message);
    group.settle();
    let posts: Vec<u64> = group.engines.iter().map(|e| e.stats().control_posts).collect();
    for _ in 0..100 {
        (0..3).for_each(|i| assert!(!group.poll(i).worked));
    }
    assert_eq!(posts, group.engines.iter().map(|e| e.stats().control_posts).collect::<Vec<_>>());
}

/// Counters that only free rings are sent with the next post, or at the end of the next poll, and
/// none is left unsent.
#[test]
fn posts_that_only_free_rings_are_deferred_once() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    let posts = |group: &Group| group.engines[0].stats().control_posts;
    let delivered = |group: &Group| group.engines[1].frontiers(SubgroupId(0)).next().unwrap().1.delivered;
    group.try_send(0, b"first", Kind::Message);
    assert!(group.poll(0).worked && group.poll(1).worked);
    let before = posts(&group);
    assert!(group.poll(0).worked);
    assert_eq!(posts(&group), before, "delivered, and not told yet");
    // It is sent along with the next message.
    group.try_send(0, b"second", Kind::Message);
    assert!(group.poll(0).worked && group.poll(1).worked);
    assert_eq!((posts(&group), delivered(&group)), (before + 1, 1));
    // Or alone, after one poll.
    assert!(group.poll(0).worked);
    assert_eq!(posts(&group), before + 1);
    assert!(group.poll(0).worked);
    assert_eq!(posts(&group), before + 2);
    assert!(!group.poll(0).worked && group.poll(1).worked);
    assert_eq!((posts(&group), delivered(&group)), (before + 2, 2));
}

#[test]
fn a_death_ends_the_view() {
    let mut group = Group::new(2, &[0, 1], Order::Total, Ablation::default());
    group.engines[0].member_died(Rank(1));
    group.settle();
    assert_eq!(*group.engines[0].state(), State::Ended);
    assert_eq!(group.engines[0].decision().unwrap().next.members, [MemberId(10)]);
}

#[test]
fn a_member_that_gives_up_is_left_out() {
    let mut group = Group::new(3, &[0, 1], Order::Total, Ablation::default());
    let memory = &mut group.memories[2];
    group.engines[2].abandon(1, memory);
    group.settle();
    for member in 0..2 {
        assert_eq!(*group.engines[member].state(), State::Ended);
        assert_eq!(group.engines[member].decision().unwrap().next.members, [MemberId(10), MemberId(11)]);
    }
}

/// In a Fifo subgroup the counts by sender are stored on lines of their own, and the lines of one
/// post arrive in any order. Found by the simulator: a sender that saw the entry's line first never
/// noticed the other line, and its ring stayed full.
#[test]
fn a_fifo_sender_notices_room_that_arrives_behind_the_entry() {
    let mut group = Group::new(2, &[0], Order::Fifo, Ablation::default());
    let fill = |group: &mut Group| (0..).take_while(|_| group.try_send(0, &[0; 100], Kind::Message)).count();
    let first = fill(&mut group);
    while group.poll(0).worked {}
    let mut taken = 0;
    let mut take = |_: SubgroupId, batch: &mut Batch<'_, Memory>| taken += batch.count();
    while group.engines[1].poll(Time(0), &mut group.memories[1], &mut take).worked {}
    assert_eq!(taken, first);
    for (_, at, bytes) in std::mem::take(&mut group.memories[1].posts) {
        for (i, line) in bytes.chunks(64).enumerate() {
            let at = at as usize + 64 * i;
            group.memories[0].rows[1][at..at + line.len()].copy_from_slice(line);
            while group.poll(0).worked {}
        }
    }
    assert_eq!(fill(&mut group), first);
}

/// An engine reads idle subgroups only now and then while others are busy. Found by the simulator:
/// messages committed in an idle subgroup during the last busy poll were forgotten if the driver
/// relied on `wake_at` and slept.
#[test]
fn a_poll_that_skips_idle_subgroups_asks_for_another() {
    let mut group = Group::with(2, &[0], Order::Total, Ablation::default(), 2);
    let commit = |group: &mut Group, subgroup| {
        let claims = group.engines[0].claims(SubgroupId(subgroup)).unwrap();
        let claim = claims.claim(0, |_| {}).unwrap();
        claims.commit(claim, Kind::Message, 0, |position, word| {
            group.memories[0].store(claims.ring().offset(position), word)
        });
    };
    for _ in 0..500 {
        commit(&mut group, 0);
        assert!(group.poll(0).worked);
        group.poll(1);
    }
    commit(&mut group, 1);
    for _ in 0..100 {
        let progress = group.poll(0);
        if !progress.worked && progress.wake_at.is_none() {
            break;
        }
    }
    assert_eq!(group.engines[0].subgroup_stats(SubgroupId(1)).unwrap().sent, 1);
}

/// A message, a void, and a message only a part of which is announced: no correct sender does this.
#[test]
fn a_frame_that_runs_past_what_is_announced_is_no_panic() {
    let mut group = Group::new(2, &[1], Order::Total, Ablation::default());
    group.try_send(1, b"", Kind::Message);
    group.try_send(1, b"", Kind::Void);
    group.try_send(1, b"sixteen and more bytes", Kind::Message);
    group.poll(1);
    let entry = group.engines[0].layout().row(Rank(1)).subgroup(SubgroupId(0)).unwrap().entry;
    let at = (entry + layout::entry::PUBLISHED) as usize;
    group.memories[0].rows[1][at..at + 8].copy_from_slice(&48u64.to_le_bytes());
    let mut taken = 0;
    let upcall = |_: SubgroupId, batch: &mut Batch<'_, Memory>| batch.for_each(|_| taken += 1);
    group.engines[0].poll(Time(0), &mut group.memories[0], &mut { upcall });
    assert_eq!(taken, 2);
}

/// One of many claims that is never committed stops its ring, and with it the end of the group:
/// messages committed behind it are not lost silently.
#[test]
fn a_leaked_claim_keeps_the_group_from_finishing() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    let claims = group.engines[0].claims(SubgroupId(0)).unwrap();
    let leaked = claims.claim(8, |_| {}).unwrap();
    group.try_send(0, b"behind it", Kind::Message);
    claims.close();
    group.settle();
    assert_eq!(group.delivered[1].len(), 0);
    assert_eq!(*group.engines[0].state(), State::Running);
    claims
        .commit(leaked, Kind::Void, 0, |position, word| group.memories[0].store(claims.ring().offset(position), word));
    group.settle();
    assert_eq!(group.delivered[1].len(), 1);
    assert_eq!(*group.engines[0].state(), State::Finished);
}

/// An exclusive claim that is leaked has no effect.
#[test]
fn a_leaked_exclusive_claim_is_given_out_again() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    let claims = group.engines[0].claims(SubgroupId(0)).unwrap();
    let mut holder = claims.begin_exclusive();
    assert_eq!(claims.claim(8, |_| {}).unwrap_err(), ClaimError::Full, "another claimer");
    let leaked = claims.claim_exclusive(&mut holder, 8, |_| {}).unwrap();
    let claim = claims.claim_exclusive(&mut holder, 5, |_| {}).unwrap();
    assert_eq!(leaked.position(), claim.position());
    let at = claim.payload_offset(claims.ring()) as usize;
    let memory = &mut group.memories[0];
    memory.rows[0][at..at + 5].copy_from_slice(b"hello");
    let round = claims.guess_round(&holder);
    claims.commit_exclusive(&mut holder, claim, Kind::Message, 5, |position, word| {
        memory.store(claims.ring().offset(position), word);
        memory.store(claims.ring().offset(position) + 8, round);
    });
    group.settle();
    assert_eq!(group.delivered[1], [(0, 0, b"hello".to_vec())]);
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Running));
}

/// A group whose second member is faulty: it has announced four rounds of nulls, and then announces
/// a frame with this header.
fn liar(header: [u64; 2]) -> (Group, Cursor, std::sync::Arc<Handoff>) {
    let mut group = Group::new(2, &[0, 1], Order::Total, Ablation::default());
    let (mut cursor, handoff) = group.engines[0].hand_off(SubgroupId(0)).unwrap();
    let place = group.engines[0].layout().row(Rank(1)).subgroup(SubgroupId(0)).unwrap();
    let (entry, ring) = (place.entry, place.ring.unwrap());
    let lie = |group: &mut Group, words: &[(u64, u64)]| {
        for (at, word) in words {
            group.memories[0].rows[1][*at as usize..][..8].copy_from_slice(&word.to_le_bytes());
        }
    };
    for _ in 0..4 {
        group.try_send(0, b"m", Kind::Message);
    }
    lie(&mut group, &[(entry + layout::entry::ROUNDS, 4), (entry + layout::entry::RECEIVED, 8)]);
    for _ in 0..5 {
        group.poll(0);
    }
    let mut batch = cursor.advance(&group.memories[0], handoff.frontier());
    assert_eq!(batch.by_ref().count(), 4);
    batch.report(&handoff);
    group.try_send(0, b"last", Kind::Message);
    let [word, round] = header;
    let words = [
        (ring.at, word),
        (ring.at + 8, round),
        (entry + layout::entry::PUBLISHED, 32),
        (entry + layout::entry::SPOKEN, 5),
        (entry + layout::entry::ROUNDS, 5),
        (entry + layout::entry::RECEIVED, 9),
    ];
    lie(&mut group, &words);
    (group, cursor, handoff)
}

/// Found in review: with garbage at another sender's turn, or a frame in a round that was announced
/// as null, a walk by runs delivered nothing, returned that messages existed, and reported no
/// defect.
#[test]
fn garbage_at_anothers_turn_keeps_nothing_back_and_is_found() {
    for header in [[2 << 32 | 4, 2], [u64::MAX, 5]] {
        let (mut group, mut cursor, handoff) = liar(header);
        let (mut taken, mut empty) = (0, 0);
        for _ in 0..20 {
            group.poll(0);
            let mut batch = cursor.advance(&group.memories[0], handoff.frontier());
            let before = taken;
            let ready = batch.has_next();
            Batch::for_each(&mut batch, |_| taken += 1);
            empty += u32::from(ready && taken == before);
            batch.report(&handoff);
        }
        assert_eq!((taken, empty), (1, 0), "{header:x?}");
    }
}

/// Found in review: a frame in a round that was announced as null kept a closed cursor from its end
/// for good.
#[test]
fn garbage_in_a_round_that_has_passed_does_not_keep_the_end_of_a_view_away() {
    let (mut group, mut cursor, _) = liar([2 << 32 | 4, 2]);
    group.poll(0);
    cursor.close(&group.memories[0], &[5, 5]);
    assert_eq!(cursor.advance(&group.memories[0], 0).count(), 1);
    assert!(cursor.is_at_end());
}

/// Found in review: a walk by runs that was ended by a panic was forgotten, and its messages were
/// delivered again.
#[test]
fn a_panic_in_the_middle_of_a_batch_brings_no_message_twice() {
    for senders in [&[0][..], &[0, 1], &[0, 1, 2, 3, 4]] {
        for order in [Order::Total, Order::Fifo] {
            let mut group = Group::new(5, senders, order, Ablation::default());
            let (mut cursor, handoff) = group.engines[4].hand_off(SubgroupId(0)).unwrap();
            for i in 0..4 {
                group.try_send(0, &[i], Kind::Message);
            }
            group.settle();
            let mut taken = vec![];
            for _ in 0..2 {
                let batch = cursor.advance(&group.memories[4], handoff.frontier());
                let walk = || {
                    batch.for_each(|message| {
                        taken.push(message.payload[0]);
                        if taken.len() == 3 {
                            std::panic::resume_unwind(Box::new(()));
                        }
                    })
                };
                let _ = std::panic::catch_unwind(std::panic::AssertUnwindSafe(walk));
            }
            assert_eq!(taken, [0, 1, 2, 3], "{} senders, {order:?}", senders.len());
        }
    }
}

/// Found in review: the next batch began with the sender at which a full batch had ended.
#[test]
fn a_busy_fifo_sender_does_not_keep_the_others_waiting() {
    let mut group = Group::new(3, &[0, 1], Order::Fifo, Ablation::default());
    group.take = 1;
    let mut polls = 0;
    while !group.delivered[2].iter().any(|message| message.0 == 1) {
        if polls == 20 {
            assert!(group.try_send(1, b"small", Kind::Message));
        }
        assert!(polls < 40, "{} messages of the busy one", group.delivered[2].len());
        while group.try_send(0, &[0; 100], Kind::Message) {}
        // Everything is announced before the third member takes a message.
        for member in [0, 0, 0, 0, 0, 0, 0, 0, 1, 2] {
            group.poll(member);
        }
        polls += 1;
    }
}

/// Frames that were committed at once are announced a sector at a time, so that their space is
/// freed while the rest is delivered.
#[test]
fn a_ring_that_was_filled_at_once_is_freed_in_parts() {
    for exclusive in [true, false] {
        let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
        let claims = group.engines[0].claims(SubgroupId(0)).unwrap();
        let ring = *claims.ring();
        let mut holder = exclusive.then(|| claims.begin_exclusive());
        let mut send = |group: &mut Group| {
            let claim = match &mut holder {
                Some(holder) => claims.claim_exclusive(holder, 16, |_| {}),
                None => claims.claim(16, |_| {}),
            };
            let Ok(claim) = claim else { return false };
            let memory = &mut group.memories[0];
            let guess = holder.as_ref().map_or(0, |holder| claims.guess_round(holder));
            let store = |position, word| {
                memory.store(ring.offset(position), word);
                memory.store(ring.offset(position) + 8, guess);
            };
            match &mut holder {
                Some(holder) => claims.commit_exclusive(holder, claim, Kind::Message, 16, store),
                None => claims.commit(claim, Kind::Message, 16, store),
            }
            true
        };
        let sent = (0..).take_while(|_| send(&mut group)).count();
        assert_eq!(sent as u64, ring.capacity / 32);
        while group.poll(0).worked {}
        // The second member delivers a little more than the first sector.
        group.take = 1;
        for _ in 0..=sent / ring::SECTORS {
            group.poll(1);
        }
        group.take = usize::MAX;
        while group.poll(0).worked {}
        let more = (0..).take_while(|_| send(&mut group)).count();
        assert_eq!(more, sent / ring::SECTORS, "exclusive: {exclusive}");
        group.settle();
        assert_eq!(group.delivered[1].len(), sent + more);
    }
}

#[test]
#[should_panic(expected = "exclusively from the start")]
fn two_exclusive_claimers_are_refused() {
    let group = Group::new(2, &[0], Order::Total, Ablation::default());
    let claims = group.engines[0].claims(SubgroupId(0)).unwrap();
    let _first = claims.begin_exclusive();
    let _second = claims.begin_exclusive();
}

#[test]
fn a_consumer_that_is_gone_delays_no_member() {
    for order in [Order::Total, Order::Fifo] {
        let mut group = Group::new(2, &[0, 1], order, Ablation::default());
        let (_cursor, handoff) = group.engines[1].hand_off(SubgroupId(0)).unwrap();
        let fill = |group: &mut Group| (0..).take_while(|_| group.try_send(0, &[0; 100], Kind::Message)).count();
        let first = fill(&mut group);
        group.settle();
        assert_eq!(fill(&mut group), 0, "the consumer has taken nothing");
        handoff.give_up();
        group.settle();
        assert_eq!(fill(&mut group), first);
        (0..2).for_each(|sender| group.engines[sender].claims(SubgroupId(0)).unwrap().close());
        group.settle();
        assert!(group.engines.iter().all(|engine| *engine.state() == State::Finished));
    }
}

/// A member that has every message that any member sent needs no peer any more: a slow consumer
/// gets all of them, even if a member dies meanwhile.
#[test]
fn a_death_after_everything_is_stable_takes_nothing_from_a_slow_consumer() {
    let mut group = Group::new(3, &[0], Order::Total, Ablation::default());
    let (mut cursor, handoff) = group.engines[1].hand_off(SubgroupId(0)).unwrap();
    group.try_send(0, b"the last", Kind::Message);
    group.engines[0].claims(SubgroupId(0)).unwrap().close();
    group.settle();
    group.engines[1].member_died(Rank(0));
    group.settle();
    assert_eq!(*group.engines[1].state(), State::Running);
    let mut batch = cursor.advance(&group.memories[1], handoff.frontier());
    assert_eq!(batch.next().unwrap().payload, b"the last");
    batch.report(&handoff);
    group.settle();
    assert_eq!(*group.engines[1].state(), State::Finished);
}

/// Each member's row as its owner has it, which is what an observer of shared memory reads.
struct Owners<'a>(&'a [Memory]);

impl Rows for Owners<'_> {
    fn load(&self, member: Rank, at: u64) -> u64 {
        self.0[member.index()].load(member, at)
    }

    fn bytes(&self, member: Rank, at: u64, len: u64) -> &[u8] {
        self.0[member.index()].bytes(member, at, len)
    }

    type Frames<'a>
        = Lookup<'a, Self>
    where
        Self: 'a;

    fn frames(&self, member: Rank, ring: &Ring) -> Lookup<'_, Self> {
        Lookup::new(self, member, ring)
    }
}

/// (sender, round, payload) of messages, in the order of delivery.
type Delivered = Vec<(u32, u64, Vec<u8>)>;

/// The messages that an observer got, and the rounds that were reported to it as missed.
#[derive(Default)]
struct Followed {
    got: Delivered,
    gaps: Vec<Gap>,
}

impl Followed {
    fn follow(&mut self, observer: &mut Observer, rows: &Owners<'_>) {
        loop {
            match observer.next(rows) {
                Ok(Some(seen)) => self.got.push((seen.sender.0, seen.round, observer.payload().to_vec())),
                Ok(None) => return,
                Err(lapped) => {
                    let gaps = observer.go_on(&lapped, rows);
                    assert!(
                        gaps.iter().any(|gap| gap.sender == lapped.sender && gap.rounds.start == lapped.round)
                            || observer.view().subgroups[0].order == Order::Total
                    );
                    self.gaps.extend(gaps);
                }
            }
        }
    }
}

/// An observer starts in the middle, reads now and then, and follows to the end of a view that a
/// death ends. Every message that a member delivers is one of three: before its beginning, seen, or
/// reported as missed.
#[test]
fn an_observer_sees_what_the_members_deliver_and_knows_what_it_missed() {
    let (mut laps, mut missed, mut seen) = (0, 0, 0);
    for seed in 0..300u64 {
        let order = if seed % 4 == 3 { Order::Fifo } else { Order::Total };
        let senders: &[u32] = [&[0, 1, 2][..], &[1], &[0, 2]][seed as usize % 3];
        let mut group = Group::new(3, senders, order, Ablation::default());
        let mut random = seed * 77 + 1;
        let mut next = move || {
            random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            random >> 33
        };
        let mut observer: Option<(Observer, Vec<Gap>, Followed)> = None;
        let patience = [4, 40, 400][seed as usize % 3];
        let steps = 400 + next() % 400;
        for step in 0..steps + 200 {
            if step == steps {
                group.engines[1].member_died(Rank(0));
                group.engines[2].member_died(Rank(0));
            }
            let sender = senders[next() as usize % senders.len()] as usize;
            if step < steps && next() % 2 == 0 {
                let kind = if next() % 13 == 0 { Kind::Void } else { Kind::Message };
                group.try_send(sender, &[step as u8; 30][..next() as usize % 30], kind);
            }
            if next() % 97 == 0 {
                group.engines[sender].claims(SubgroupId(0)).unwrap().skip_rounds(next() % 1_000_000_000);
            }
            let member = if step < steps { next() as usize % 3 } else { 1 + next() as usize % 2 };
            group.poll(member);
            let rows = Owners(&group.memories);
            match &mut observer {
                None if step > 100 => {
                    group.engines.iter_mut().for_each(|engine| engine.set_observed(true));
                    let begun = Observer::new(group.engines[1].view().clone(), &rows).unwrap();
                    let behind = begun.behind(SubgroupId(0));
                    observer = Some((begun, behind, Followed::default()));
                }
                Some((observer, _, followed)) if next() % patience == 0 || step > steps => {
                    followed.follow(observer, &rows);
                }
                _ => {}
            }
        }
        let (observer, behind, Followed { got, gaps }) = observer.unwrap();
        let all = &group.delivered[1];
        let is_in = |gaps: &[Gap], sender: u32, round: u64| {
            gaps.iter().filter(|gap| gap.sender.0 == sender && gap.rounds.contains(&round)).count()
        };
        for message in all {
            let (sender, round, _) = message;
            let times = got.iter().filter(|got| *got == message).count();
            let places = [is_in(&behind, *sender, *round), times, is_in(&gaps, *sender, *round)];
            assert_eq!(places.iter().sum::<usize>(), 1, "seed {seed}, {order:?}: {message:?} is {places:?}");
            missed += places[2];
        }
        if order == Order::Total {
            assert!(got.iter().all(|message| all.contains(message)), "seed {seed}");
            assert!(got.is_sorted_by_key(|(sender, round, _)| (*round, *sender)), "seed {seed}");
        }
        for sender in senders {
            let of = got.iter().filter(|message| message.0 == *sender);
            assert!(of.is_sorted_by(|one, other| one.1 < other.1), "seed {seed}");
        }
        assert!(observer.is_at_end(&Owners(&group.memories)), "seed {seed}");
        assert_eq!(observer.decision(), group.engines[1].decision(), "seed {seed}");
        (laps, seen) = (laps + gaps.len(), seen + got.len());
    }
    assert!(laps > 100 && missed > 1000 && seen > 1000, "{laps} gaps, {missed} missed, {seen} seen");
}

/// A group of silent members. Members that are not running are not polled.
fn silent(members: u32) -> Group {
    Group::new(members, &[0], Order::Total, Ablation::default())
}

impl Group {
    /// Polls these members often enough for them to agree, if they can.
    fn run(&mut self, members: &[usize]) {
        for _ in 0..20 {
            members.iter().for_each(|member| _ = self.poll(*member));
        }
    }

    /// All links work again, and carry everything that was posted meanwhile.
    fn heal(&mut self) {
        self.heal_but(&[]);
    }

    /// The same for all links but these.
    fn heal_but(&mut self, broken: &[(usize, usize)]) {
        self.broken = broken.to_vec();
        for owner in 0..self.engines.len() {
            let row = self.memories[owner].rows[owner].clone();
            let others = self.memories.iter_mut().enumerate().filter(|(to, _)| !broken.contains(&(owner, *to)));
            others.for_each(|(_, memory)| memory.rows[owner].clone_from(&row));
        }
    }

    fn suspect_each_other(&mut self, one: &[usize], other: &[usize]) {
        for (from, to) in one.iter().flat_map(|one| other.iter().map(move |other| (*one, *other))) {
            self.broken.extend([(from, to), (to, from)]);
            self.engines[from].suspect(Rank(to as u32));
            self.engines[to].suspect(Rank(from as u32));
        }
    }

    fn trust_each_other(&mut self) {
        for engine in &mut self.engines {
            engine.view().ranks().for_each(|rank| engine.trust(rank));
        }
    }

    fn next_sizes(&self) -> Vec<Option<usize>> {
        let size = |engine: &Engine| engine.decision().map(|decision| decision.next.members.len());
        self.engines.iter().map(size).collect()
    }
}

/// Track record: all links down for longer than the suspicion time, without a majority on any side,
/// wedged a group for good.
#[test]
fn a_group_that_fell_apart_goes_on_with_all_members_when_the_links_are_back() {
    for sides in [&[&[0][..], &[1]][..], &[&[0, 1], &[2, 3]], &[&[0], &[1], &[2]], &[&[0, 1], &[2, 3], &[4]]] {
        let members: Vec<usize> = sides.concat();
        let mut group = silent(members.len() as u32);
        for (i, one) in sides.iter().enumerate() {
            sides[i + 1..].iter().for_each(|other| group.suspect_each_other(one, other));
        }
        group.run(&members);
        assert!(group.engines.iter().all(|engine| engine.is_blocked() && engine.decision().is_none()), "{sides:?}");
        group.heal();
        group.trust_each_other();
        // Another leader may have made a higher ballot meanwhile, and the leader backs off.
        for second in 60..70 {
            group.now = second * 1_000_000_000;
            group.run(&members);
        }
        assert_eq!(group.next_sizes(), vec![Some(members.len()); members.len()], "{sides:?}");
        assert!(group.engines.iter().all(|engine| *engine.state() == State::Ended));
    }
}

/// Track record: one of three was cut off, another died meanwhile, and the cut healed. The survivor
/// that was not cut off ended itself.
#[test]
fn a_member_that_was_cut_off_makes_a_majority_after_another_died() {
    let mut group = silent(3);
    group.suspect_each_other(&[0], &[1, 2]);
    group.run(&[0]);
    group.engines[1].suspect(Rank(2));
    group.run(&[0, 1]);
    assert_eq!(group.next_sizes(), [None; 3]);
    group.heal();
    for (one, other) in [(0, 1), (1, 0)] {
        group.engines[one].trust(Rank(other));
    }
    for second in 60..70 {
        group.now = second * 1_000_000_000;
        group.run(&[0, 1]);
    }
    assert_eq!(group.next_sizes()[..2], [Some(2); 2]);
}

#[test]
fn a_majority_goes_on_and_the_minority_ends_only_by_its_decision() {
    let mut group = silent(5);
    group.suspect_each_other(&[0, 1], &[2, 3, 4]);
    group.run(&[0, 1, 2, 3, 4]);
    assert_eq!(group.next_sizes(), [None, None, Some(3), Some(3), Some(3)]);
    assert!(group.engines[..2].iter().all(|engine| *engine.state() == State::Running && engine.is_blocked()));
    group.heal();
    group.run(&[0, 1]);
    assert!(group.engines[..2].iter().all(|engine| *engine.state() == State::Evicted));
}

/// A cut between two members, both of which a third member can reach: one end of it is left out,
/// and the rest continues.
#[test]
fn a_cut_that_is_not_transitive_removes_one_end_of_it() {
    for cut in [(0, 1), (0, 2), (1, 2)] {
        let mut group = silent(3);
        group.suspect_each_other(&[cut.0], &[cut.1]);
        for round in 0..40 {
            group.now = round * 200_000_000;
            group.run(&[0, 1, 2]);
        }
        let sizes = group.next_sizes();
        assert_eq!(sizes.iter().filter(|size| **size == Some(2)).count(), 3, "{cut:?}: {sizes:?}");
        let evicted = group.engines.iter().position(|engine| *engine.state() == State::Evicted);
        assert!(evicted.is_some_and(|evicted| evicted == cut.0 || evicted == cut.1), "{cut:?}: {evicted:?}");
    }
}

#[test]
fn the_last_of_many_goes_on_alone_if_all_deaths_are_proven_and_all_rows_final() {
    for members in 2..7 {
        let mut group = silent(members);
        for dead in 1..members {
            group.engines[0].member_died(Rank(dead));
        }
        group.run(&[0]);
        assert_eq!(group.next_sizes()[0], Some(1), "{members} members");
        let mut group = silent(members);
        for dead in 1..members {
            group.engines[0].member_gone(Rank(dead));
        }
        group.run(&[0]);
        assert!(group.engines[0].is_blocked(), "{members} members: their rows are not final");
    }
}

/// A decision of the dead binds a member that only hung.
#[test]
fn a_value_that_the_dead_may_have_decided_is_taken() {
    let mut group = silent(3);
    for member in [0, 1] {
        group.engines[member].suspect(Rank(2));
    }
    group.run(&[0, 1]);
    assert_eq!(group.next_sizes()[..2], [Some(2); 2]);
    group.engines[2].member_died(Rank(0));
    group.engines[2].member_died(Rank(1));
    group.run(&[2]);
    assert_eq!(*group.engines[2].state(), State::Evicted);
}

#[test]
fn a_leader_that_knows_of_fewer_deaths_is_replaced_by_one_that_has_a_quorum() {
    let mut group = silent(4);
    for dead in [2, 3] {
        group.engines[0].member_gone(Rank(dead));
        group.engines[1].member_died(Rank(dead));
    }
    group.run(&[0, 1]);
    assert_eq!(group.next_sizes(), [None; 4], "1 follows 0 for a while");
    assert!(group.engines[0].is_blocked() && !group.engines[1].is_blocked());
    group.now = 2_000_000_000;
    group.run(&[0, 1]);
    assert_eq!(group.next_sizes()[..2], [Some(2); 2]);
}

#[test]
fn a_decision_that_comes_in_words_ends_the_view() {
    let mut group = silent(3);
    assert!(group.engines[0].admit(process(99)));
    while group.engines[2].ballot().is_none() {
        (0..3).for_each(|member| _ = group.poll(member));
    }
    group.broken = vec![(0, 2), (1, 2)];
    group.run(&[0, 1, 2]);
    assert_eq!(group.next_sizes(), [Some(4), Some(4), None]);
    let words = group.engines[0].decided().unwrap().to_vec();
    group.engines[2].learn(vec![1, 2, 3]);
    group.run(&[2]);
    assert_eq!(group.engines[2].decision(), None);
    group.engines[2].learn(words);
    group.run(&[2]);
    assert_eq!(group.engines[2].decision(), group.engines[0].decision());
    assert_eq!(*group.engines[2].state(), State::Ended);
}

/// A process's predecessor with the same id may have begun a view on which the members agreed
/// before they learned of the process.
#[test]
fn a_decision_names_the_process_that_asked_last_with_an_id() {
    let mut group = silent(3);
    let [first, second] = [1, 2].map(|nonce| Process { id: MemberId(99), nonce });
    assert!(group.engines[0].admit(first) && !group.engines[0].admit(first));
    assert!(group.engines[0].admit(second));
    group.run(&[0, 1, 2]);
    for engine in &group.engines {
        assert_eq!(engine.decision().unwrap().joined, [second]);
    }
}

/// The ids of the members of the next view, by member, if it is decided.
fn next_members(group: &Group) -> Vec<Option<Vec<u64>>> {
    let ids = |engine: &Engine| Some(engine.decision()?.next.members.iter().map(|id| id.0).collect());
    group.engines.iter().map(ids).collect()
}

/// Track record: the named member led, took the request for a suspicion of itself, and left out the
/// member that was asked.
#[test]
fn the_member_that_is_named_is_evicted_whatever_its_rank() {
    for (by, named) in [(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)] {
        let mut group = silent(3);
        let ids: Vec<u64> = group.engines[0].view().members.iter().map(|id| id.0).collect();
        group.engines[by].evict(Rank(named));
        for second in 0..10 {
            group.now = second * 1_000_000_000;
            group.run(&[0, 1, 2]);
        }
        let rest: Vec<u64> = (0..3).filter(|rank| *rank != named as usize).map(|rank| ids[rank]).collect();
        assert_eq!(next_members(&group), vec![Some(rest); 3], "{by} is asked to evict {named}");
        assert_eq!(*group.engines[named as usize].state(), State::Evicted);
    }
}

/// Track record: the member that was asked had one more bad link. Together with the request it
/// counted as the end of two bad links, and was left out instead of the member that was named.
#[test]
fn bad_links_save_no_member_that_is_named() {
    let mut group = silent(4);
    let ids: Vec<u64> = group.engines[0].view().members.iter().map(|id| id.0).collect();
    group.suspect_each_other(&[3], &[2]);
    group.engines[3].evict(Rank(1));
    for second in 0..20 {
        group.now = second * 1_000_000_000;
        group.run(&[0, 1, 2, 3]);
    }
    // The younger of the two members that can't reach each other is left out, too.
    assert_eq!(next_members(&group)[0], Some(vec![ids[0], ids[2]]));
}

/// Track record: a member that was asked to evict another during a cut stopped reading its
/// heartbeats, and missed its vote for ever.
#[test]
fn a_member_that_is_to_be_evicted_is_heard_again_after_a_cut() {
    for members in [2, 3] {
        let mut group = silent(members);
        let all: Vec<usize> = (0..members as usize).collect();
        group.engines.iter_mut().for_each(|engine| engine.set_suspect_after(Some(1_000_000_000)));
        let pass = |group: &mut Group, ms: std::ops::Range<u64>| {
            for ms in ms.step_by(20) {
                group.now = ms * 1_000_000;
                all.iter().for_each(|member| _ = group.poll(*member));
            }
        };
        pass(&mut group, 0..500);
        group.broken = all.iter().flat_map(|one| all.iter().map(move |other| (*one, *other))).collect();
        pass(&mut group, 500..5_000);
        group.engines[1].evict(Rank(0));
        pass(&mut group, 5_000..10_000);
        assert!(group.engines[1].is_blocked() && group.engines[1].decision().is_none());
        group.heal();
        pass(&mut group, 10_000..60_000);
        assert_eq!(group.next_sizes(), vec![Some(members as usize - 1); members as usize]);
        assert_eq!(*group.engines[0].state(), State::Evicted);
    }
}

/// Track record: a leader that was cut off for less than the suspicion time evicted a member whose
/// connection took a little longer than the others' to come back.
#[test]
fn a_leader_that_was_cut_off_has_patience_with_connections_to_come() {
    let mut group = silent(5);
    group.engines.iter_mut().for_each(|engine| engine.set_suspect_after(Some(SECOND)));
    let pass = |group: &mut Group, ms: std::ops::Range<u64>| {
        for ms in ms.step_by(20) {
            group.now = ms * 1_000_000;
            (0..5).for_each(|member| _ = group.poll(member));
        }
    };
    pass(&mut group, 0..500);
    group.broken = (1..5).flat_map(|other| [(0, other), (other, 0)]).collect();
    pass(&mut group, 500..1_300);
    group.heal_but(&[(0, 4), (4, 0)]);
    pass(&mut group, 1_300..1_700);
    assert!(!group.engines[0].suspects(Rank(4)), "it was heard in time");
    group.heal();
    pass(&mut group, 1_700..3_000);
    assert_eq!(group.next_sizes(), [Some(5); 5], "the member that was not cut off has closed the view");
    // The silence of a member that has died counts in the end.
    let mut group = silent(5);
    group.engines.iter_mut().for_each(|engine| engine.set_suspect_after(Some(SECOND)));
    pass(&mut group, 0..500);
    for ms in (500..3_000).step_by(500) {
        group.broken = (1..5).flat_map(|other| [(0, other), (other, 0)]).collect();
        pass(&mut group, ms..ms + 300);
        group.heal_but(&[(0, 4), (4, 0)]);
        pass(&mut group, ms + 300..ms + 500);
        assert_eq!(group.engines[0].suspects(Rank(4)), ms >= 1_500, "{ms}");
    }
}

/// A group of members that show that they are alive while others wait for them, and suspect members
/// that do not for a second.
fn on_demand(members: u32, senders: &[u32], order: Order) -> Group {
    let mut group = Group::new(members, senders, order, Ablation::default());
    for engine in &mut group.engines {
        engine.set_suspect_after(Some(SECOND));
        engine.set_liveness(Liveness::OnDemand);
    }
    group
}

const SECOND: u64 = 1_000_000_000;

impl Group {
    fn heartbeat(&self, member: usize) -> u64 {
        self.memories[member].load(Rank(member as u32), layout::membership::HEARTBEAT)
    }

    /// Polls these members when it is time for them, or after a post, until `end`. Returns how
    /// often it was time for one of them.
    fn pass_time(&mut self, members: &[usize], end: u64) -> u32 {
        let mut timers = 0;
        loop {
            // A post of one member wakes the others.
            while members.iter().filter(|member| self.poll(**member).worked).count() > 0 {}
            let last = |member: &usize| {
                self.engines[*member].before_sleep();
                self.poll(*member).wake_at
            };
            match members.iter().filter_map(last).min() {
                // A member that is polled again at once does not sleep.
                Some(Time(at)) if at <= self.now && self.now < end => self.now += SECOND / 1000,
                Some(Time(at)) if at > self.now && at <= end => (self.now, timers) = (at, timers + 1),
                _ => {
                    self.now = end;
                    return timers;
                }
            }
        }
    }
}

/// An idle group does nothing, however long one of its members hangs.
#[test]
fn in_an_idle_group_none_shows_that_it_lives_and_none_is_suspected() {
    let mut group = on_demand(3, &[0, 1, 2], Order::Total);
    let timers = group.pass_time(&[0, 1, 2], SECOND);
    assert!(timers <= 3, "{timers}");
    let before: Vec<u64> = (0..3).map(|member| group.heartbeat(member)).collect();
    // The last member to begin sees the others at its first poll, and they see it at their second.
    assert_eq!(before, [2, 2, 1], "it has begun");
    assert_eq!(group.pass_time(&[0, 1], 100 * SECOND), 0);
    assert_eq!((0..3).map(|member| group.heartbeat(member)).collect::<Vec<_>>(), before);
    // The member that hung runs again.
    assert!(group.try_send(0, b"a", Kind::Message));
    group.pass_time(&[0, 1, 2], 101 * SECOND);
    assert!(group.delivered.iter().all(|delivered| delivered.len() == 1));
    assert!(group.engines.iter().all(|engine| !engine.is_changing()));
}

/// The wait begins with the message.
#[test]
fn a_member_that_hangs_is_suspected_once_others_wait_for_it() {
    for order in [Order::Total, Order::Fifo] {
        let mut group = on_demand(3, &[0, 1], order);
        group.pass_time(&[0, 1, 2], 10 * SECOND);
        assert!(group.try_send(0, b"a", Kind::Message));
        let sent = group.now;
        group.pass_time(&[0, 1], sent + SECOND - 1);
        assert!(!group.engines[0].suspects(Rank(2)) && !group.engines[0].is_changing(), "{order:?}");
        group.pass_time(&[0, 1], sent + SECOND + 10_000_000);
        assert!(group.engines[0].suspects(Rank(2)), "{order:?}");
        group.pass_time(&[0, 1], sent + 2 * SECOND);
        assert_eq!(group.next_sizes()[..2], [Some(2); 2], "{order:?}");
    }
}

/// Asked for a sign of life, the member gives one, for as long as others wait.
#[test]
fn a_member_that_can_not_deliver_is_not_suspected_while_it_lives() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    assert!(group.try_send(0, b"a", Kind::Message));
    // No message that the others have received reaches member 2, whose application waits for it.
    group.take = 0;
    group.pass_time(&[0, 1, 2], 30 * SECOND);
    assert!(group.delivered.iter().all(Vec::is_empty));
    assert!(group.engines.iter().all(|engine| !engine.is_changing()));
    assert!(group.heartbeat(2) > 100);
    group.take = usize::MAX;
    group.pass_time(&[0, 1, 2], 31 * SECOND);
    assert!(group.delivered.iter().all(|delivered| delivered.len() == 1));
    let before = group.heartbeat(2);
    assert_eq!(group.pass_time(&[0, 1, 2], 100 * SECOND), 0);
    assert_eq!(group.heartbeat(2), before);
}

/// The others have received the message, and cannot deliver it before its sender has received their
/// earlier messages.
#[test]
fn a_sender_that_hangs_is_suspected_while_others_wait_for_its_receipt() {
    let mut group = on_demand(3, &[0, 1], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    assert!(group.try_send(1, b"a", Kind::Message));
    group.poll(1);
    group.pass_time(&[0, 2], 12 * SECOND);
    assert!(group.engines[0].suspects(Rank(1)), "its receipt is awaited");
}

/// All others have received the message. Only its sender knows which member has not delivered it.
#[test]
fn a_member_that_hangs_before_it_delivers_is_suspected_by_the_sender() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    assert!(group.try_send(0, b"a", Kind::Message));
    group.poll(0);
    // It receives the message before the others have, and so does not deliver it.
    group.poll(2);
    group.pass_time(&[0, 1], 12 * SECOND);
    assert!(group.delivered[2].is_empty() && group.delivered[0].len() == 1);
    assert!(group.engines[0].suspects(Rank(2)), "its delivery is awaited");
}

/// All have delivered the message. It becomes durable once it is on the disk of each member.
#[test]
fn a_member_that_hangs_before_its_log_is_on_disk_is_suspected() {
    let mut group = on_demand(3, &[0], Order::Total);
    let mut view = group.engines[0].view().clone();
    view.subgroups = view.subgroups.iter().cloned().map(logged).collect();
    let engine = |rank| Engine::new(view.clone(), rank, Ablation::default()).unwrap();
    group = Group::of(view.ranks().map(engine).collect());
    for engine in &mut group.engines {
        engine.set_suspect_after(Some(SECOND));
        engine.set_liveness(Liveness::OnDemand);
    }
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    assert!(group.try_send(0, b"a", Kind::Message));
    group.pass_time(&[0, 1, 2], 30 * SECOND);
    assert!(group.delivered.iter().all(|delivered| delivered.len() == 1));
    let durable = |group: &Group| group.engines.iter().map(|engine| engine.durable(SubgroupId(0))).collect::<Vec<_>>();
    assert_eq!(durable(&group), [Some(0); 3]);
    assert!(group.engines.iter().all(|engine| !engine.is_changing()), "a slow disk is no hang");
    let position = Position { epoch: ViewId(1), sequence: 0 };
    group.engines[..2].iter_mut().for_each(|engine| engine.note_persisted(SubgroupId(0), Some(position)));
    group.pass_time(&[0, 1], 32 * SECOND);
    assert_eq!(durable(&group), [Some(0); 3]);
    assert!(group.engines[0].suspects(Rank(2)), "its disk is awaited");
    group.engines[2].note_persisted(SubgroupId(0), Some(position));
    group.pass_time(&[0, 1, 2], 33 * SECOND);
    assert_eq!(group.engines[2].persisted(SubgroupId(0)), Some(1));
}

/// Members of a logged subgroup that needs two copies.
fn logged_group(members: u32) -> Group {
    let mut view = silent(members).engines[0].view().clone();
    view.subgroups = view.subgroups.iter().cloned().map(logged).collect();
    let engine = |rank| Engine::new(view.clone(), rank, Ablation::default()).unwrap();
    Group::of(view.ranks().map(engine).collect())
}

/// The group with one more member, in the view that follows.
fn with_a_joiner(group: &mut Group) -> Group {
    assert!(group.engines[0].admit(process(99)));
    // A group whose logs are full does not come to rest.
    group.run(&(0..group.engines.len()).collect::<Vec<_>>());
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Ended));
    let mut engines: Vec<Engine> = group.engines.iter_mut().map(|engine| engine.successor().unwrap()).collect();
    let view = engines[0].view().clone();
    engines.push(Engine::new(view.clone(), view.rank_of(MemberId(99)).unwrap(), Ablation::default()).unwrap());
    Group::of(engines)
}

/// Track record: the next view's engine was made before the log had the rest of the epoch, and the
/// next epoch counted as durable before the rest was on disk.
#[test]
fn what_the_log_takes_after_the_next_engine_was_made_is_awaited_on_disk() {
    let mut group = logged_group(2);
    group.settle();
    group.logs_are_full = true;
    assert!(group.try_send(0, b"a", Kind::Message));
    let mut next = with_a_joiner(&mut group);
    assert!(group.delivered.iter().all(|delivered| delivered.len() == 1));
    assert!(group.engines.iter().all(Engine::has_rest), "the logs lack it");
    group.logs_are_full = false;
    group.settle();
    assert!(!group.engines.iter().any(Engine::has_rest));
    for (engine, old) in next.engines.iter_mut().zip(&group.engines) {
        engine.follow_log(old, SubgroupId(0));
    }
    next.run(&[0, 1, 2]);
    assert!(next.rises.iter().all(Vec::is_empty), "it is on no disk");
    let position = Position { epoch: ViewId(1), sequence: 0 };
    next.engines[..2].iter_mut().for_each(|engine| engine.note_persisted(SubgroupId(0), Some(position)));
    next.run(&[0, 1, 2]);
    let frontier = Position { epoch: next.engines[0].view().id, sequence: 0 };
    assert_eq!(next.rises[0], [DurableRise { frontier, covers_older: true }]);
}

/// Track record: a message that only one of the two members that it needed had on disk counted as
/// durable once another member had joined, which lacks it.
#[test]
fn a_joiner_makes_no_older_message_durable() {
    let mut group = logged_group(1);
    group.settle();
    assert!(group.try_send(0, b"a", Kind::Message));
    group.settle();
    let position = Position { epoch: ViewId(1), sequence: 0 };
    group.engines[0].note_persisted(SubgroupId(0), Some(position));
    group.settle();
    assert!(group.rises[0].is_empty(), "it has one copy");
    let mut next = with_a_joiner(&mut group);
    next.run(&[0, 1]);
    let frontier = Position { epoch: next.engines[0].view().id, sequence: 0 };
    assert_eq!(next.rises[0], [DurableRise { frontier, covers_older: false }]);
}

/// The next epoch begins with the smallest of the clocks that members have written beside their cuts:
/// each of them covers all messages below the trims. A larger one may be that of a message that no
/// member delivers.
#[test]
fn an_epoch_begins_with_a_clock_of_messages_that_are_delivered() {
    let mut group = logged_group(3);
    assert!(group.try_send_at(0, b"a", Kind::Message, 1_000));
    group.settle();
    // The sender dies when one of the others has the second message.
    group.broken = vec![(0, 2)];
    assert!(group.try_send_at(0, b"b", Kind::Message, 5_000));
    group.run(&[0, 1]);
    for member in [1, 2] {
        group.engines[member].suspect(Rank(0));
    }
    group.run(&[1, 2]);
    assert_eq!(group.delivered[1..].iter().map(Vec::len).collect::<Vec<_>>(), [1, 1]);
    let clock = |engine: &mut Engine| engine.successor().unwrap().view().subgroups[0].clock;
    assert_eq!(group.engines[1..].iter_mut().map(clock).collect::<Vec<_>>(), [1_000, 1_000]);
}

fn logged(spec: SubgroupSpec) -> SubgroupSpec {
    SubgroupSpec { durability: Durability::Logged { copies: 2 }, ..spec }
}

/// Members of a subgroup that delivers only what is on two disks or more.
fn durable_group(members: u32, senders: &[u32]) -> Group {
    let mut view = Group::new(members, senders, Order::Total, Ablation::default()).engines[0].view().clone();
    for spec in view.subgroups.iter_mut() {
        spec.durability = Durability::LoggedBeforeDelivery { copies: 2 };
    }
    let engine = |rank| Engine::new(view.clone(), rank, Ablation::default()).unwrap();
    Group::of(view.ranks().map(engine).collect())
}

impl Group {
    /// Everything that the logs of these members have taken is on disk.
    fn sync(&mut self, members: &[usize]) {
        for &member in members {
            let last = self.logged[member].last().copied();
            self.engines[member].note_persisted(SubgroupId(0), last);
        }
    }

    /// The number of messages that each member has delivered.
    fn counts(&self) -> Vec<usize> {
        self.delivered.iter().map(Vec::len).collect()
    }
}

/// INV-DELIVER-DURABLE. Nulls need no disk.
#[test]
fn a_message_is_delivered_once_it_is_on_all_disks() {
    let mut group = durable_group(3, &[0, 1]);
    for round in 0..40 {
        let before = round as usize;
        assert!(group.try_send(usize::from(round % 3 == 0), &[round], Kind::Message));
        group.settle();
        assert!(group.logged.iter().all(|logged| logged.len() == before + 1), "the log is ahead");
        assert_eq!(group.counts(), [before; 3], "it is on no disk");
        assert_eq!(group.engines[0].undurable(SubgroupId(0)).map(|undurable| undurable.lacks_members), Some(false));
        group.sync(&[0, 1]);
        group.settle();
        assert_eq!(group.counts(), [before; 3], "a disk lacks it");
        group.sync(&[2]);
        group.settle();
        assert_eq!(group.counts(), [before + 1; 3]);
    }
    assert_eq!(group.engines[0].undurable(SubgroupId(0)), None, "no null waits for a disk");
    [0, 1].iter().for_each(|sender| group.engines[*sender].claims(SubgroupId(0)).unwrap().close());
    group.settle();
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Finished));
}

/// The window bounds how far a disk lags.
#[test]
fn a_disk_that_writes_nothing_holds_up_the_senders() {
    let mut group = durable_group(2, &[0]);
    let fill = |group: &mut Group| {
        let mut sent = 0;
        while group.try_send(0, &[0; 90], Kind::Message) {
            sent += 1;
            group.settle();
        }
        sent
    };
    let ring = fill(&mut group);
    group.sync(&[0]);
    group.settle();
    assert_eq!((fill(&mut group), group.counts()), (0, vec![0, 0]));
    group.sync(&[1]);
    group.settle();
    assert_eq!(group.counts(), [ring; 2]);
    assert_eq!(fill(&mut group), ring);
}

/// A thread of its own gets no message earlier either.
#[test]
fn a_consumer_gets_a_message_once_it_is_on_all_disks() {
    let mut group = durable_group(2, &[0]);
    let (cursor, handoff) = group.engines[1].hand_off(SubgroupId(0)).unwrap();
    assert!(group.try_send(0, b"a", Kind::Message));
    group.settle();
    assert!(!cursor.is_behind(handoff.frontier()));
    group.sync(&[0, 1]);
    group.settle();
    assert!(cursor.is_behind(handoff.frontier()));
}

/// The view ends while the disk of one member is slow. Messages that some disk lacks are sent again, and
/// are cut off the logs.
#[test]
fn a_view_ends_without_waiting_for_a_disk() {
    let mut group = durable_group(3, &[0]);
    assert!(group.try_send(0, b"a", Kind::Message) && group.try_send(0, b"b", Kind::Message));
    group.settle();
    let first = Some(Position { epoch: ViewId(1), sequence: 0 });
    group.sync(&[0]);
    group.engines[1].note_persisted(SubgroupId(0), first);
    group.settle();
    assert_eq!(group.counts(), [0; 3], "the disk of member 2 is slow");
    // Member 1 leaves, and its disk counts, too.
    group.engines[1].leave();
    group.run(&[0, 1, 2]);
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Ended && !engine.has_rest()));
    assert_eq!(group.counts(), [0; 3]);
    let from = Position { epoch: ViewId(1), sequence: 0 };
    assert_eq!(group.cuts, vec![vec![from]; 3], "the logs have both");
    let mut resend = group.engines[0].resend(SubgroupId(0)).unwrap();
    let resent = std::iter::from_fn(|| resend.next(&group.memories[0])).count();
    assert_eq!(resent, 2);
    // Nothing of the old epoch is awaited on a disk.
    let mut next = Group::of([0, 2].map(|member| group.engines[member].successor().unwrap()).into());
    next.settle();
    let frontier = Position { epoch: next.engines[0].view().id, sequence: 0 };
    assert_eq!(next.rises[0], [DurableRise { frontier, covers_older: true }]);
}

/// The member that ended may have seen the message on all disks, and delivered it.
#[test]
fn what_all_members_that_go_on_have_on_disk_is_delivered_at_the_end() {
    let mut group = durable_group(4, &[0]);
    assert!(group.try_send(0, b"a", Kind::Message) && group.try_send(0, b"b", Kind::Message));
    group.settle();
    let first = Some(Position { epoch: ViewId(1), sequence: 0 });
    (1..3).for_each(|member| group.engines[member].note_persisted(SubgroupId(0), first));
    group.sync(&[3]);
    group.settle();
    assert_eq!(group.counts(), [0; 4], "the disk of member 0 is slow");
    (1..4).for_each(|member| group.engines[member].member_died(Rank(0)));
    group.run(&[1, 2, 3]);
    assert_eq!(group.counts(), [0, 1, 1, 1]);
    let from = Position { epoch: ViewId(1), sequence: 1 };
    assert_eq!(group.cuts[1..], vec![vec![from]; 3]);
    assert_eq!(group.next_sizes()[1..], [Some(3); 3]);
}

impl Group {
    /// The logs of these members lack records of older epochs.
    fn lack(&mut self, members: &[usize]) {
        (0..self.engines.len()).for_each(|member| {
            let lacks = members.contains(&member);
            self.engines[member].set_lacking(lacks.then_some(SubgroupId(0)).into_iter());
        });
    }

    /// Lets these members run for this long, in s.
    fn run_for(&mut self, seconds: u64, members: &[usize]) {
        for _ in 0..seconds / 5 {
            self.now += 5_000_000_000;
            self.run(members);
        }
    }
}

/// INV-COMPLETE. Track record: members that had joined, and not caught up yet, went on without those that had what was
/// durable before.
#[test]
fn no_member_goes_on_if_only_the_ended_have_complete_logs() {
    for (complete, goes_on) in [(0, false), (1, true)] {
        let mut group = durable_group(3, &[0]);
        group.lack(&[0, 1, 2].into_iter().filter(|member| *member != complete).collect::<Vec<_>>());
        group.settle();
        (1..3).for_each(|member| group.engines[member].member_died(Rank(0)));
        group.run_for(60, &[1, 2]);
        let sizes = group.next_sizes();
        assert_eq!(sizes[1..], if goes_on { [Some(2); 2] } else { [None; 2] });
        if !goes_on {
            assert_eq!(
                (group.engines[1].state(), group.engines[1].incomplete().map(|(id, ended)| (id, ended.to_vec()))),
                (&State::Incomplete, Some((SubgroupId(0), vec![Rank(0)])))
            );
            group.engines[2].member_died(Rank(1));
            group.run_for(60, &[2]);
            assert_eq!((group.engines[2].state(), group.next_sizes()), (&State::Incomplete, vec![None; 3]));
        }
    }
}

/// That a member is silent, or wants to leave, is no reason to end.
#[test]
fn members_with_complete_logs_are_waited_for_until_the_others_have_caught_up() {
    for leaves in [false, true] {
        let mut group = durable_group(3, &[0]);
        group.lack(&[1, 2]);
        group.settle();
        match leaves {
            true => group.engines[0].leave(),
            false => (1..3).for_each(|member| group.engines[member].suspect(Rank(0))),
        }
        let there: &[usize] = if leaves { &[0, 1, 2] } else { &[1, 2] };
        group.run_for(100, there);
        assert!(there.iter().all(|member| *group.engines[*member].state() == State::Running), "leaves: {leaves}");
        group.lack(&[1]);
        group.run(there);
        assert_eq!(group.next_sizes()[1..], [Some(2); 2], "leaves: {leaves}");
    }
    // A member that leaves does not wait for ever.
    let mut group = durable_group(2, &[0]);
    group.lack(&[1]);
    group.settle();
    group.engines[0].leave();
    group.run_for(100, &[0, 1]);
    assert_eq!(group.next_sizes(), [None; 2]);
    group.run_for(60, &[0, 1]);
    assert_eq!(group.next_sizes()[1..], [Some(1)]);
}

/// A member that dies before its disk has the last messages is missed at the end, too.
#[test]
fn the_end_of_a_group_waits_for_no_disk_of_a_member_that_died() {
    let mut group = durable_group(3, &[0]);
    assert!(group.try_send(0, b"a", Kind::Message));
    group.engines[0].claims(SubgroupId(0)).unwrap().close();
    group.settle();
    group.sync(&[0, 1]);
    group.settle();
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Running));
    (0..2).for_each(|member| group.engines[member].member_died(Rank(2)));
    group.run(&[0, 1]);
    assert_eq!(group.counts(), [1, 1, 0], "both disks have it");
    assert_eq!(group.next_sizes()[..2], [Some(2); 2]);
}

/// Messages wait in the rings for more members, and are logged in their epoch only.
#[test]
fn a_subgroup_with_too_few_members_delivers_and_logs_nothing() {
    let mut group = durable_group(1, &[0]);
    assert!(group.try_send(0, b"a", Kind::Message));
    group.settle();
    assert!(group.logged[0].is_empty() && group.delivered[0].is_empty());
    assert_eq!(group.engines[0].undurable(SubgroupId(0)).map(|undurable| undurable.lacks_members), Some(true));
    let committed = group.engines[0].committed();
    assert!(group.engines[0].is_delivered(&committed), "a member that leaves does not wait for others to come");
    let next = with_a_joiner(&mut group);
    assert!(group.delivered[0].is_empty() && group.cuts[0].is_empty());
    let mut resend = group.engines[0].resend(SubgroupId(0)).unwrap();
    assert!(resend.next(&group.memories[0]).is_some(), "it is sent again to both");
    assert_eq!(next.engines[0].view().subgroups[0].members.len(), 2);
}

/// Observers, and processes that learn a state, get no message before the members.
#[test]
fn an_observer_gets_a_message_once_it_is_on_all_disks() {
    let mut group = durable_group(2, &[0, 1]);
    group.engines.iter_mut().for_each(|engine| engine.set_observed(true));
    let mut observer = Observer::new(group.engines[0].view().clone(), &Owners(&group.memories)).unwrap();
    assert!(group.try_send(0, b"a", Kind::Message));
    group.settle();
    group.sync(&[1]);
    group.settle();
    assert_eq!(observer.next(&Owners(&group.memories)), Ok(None));
    group.sync(&[0]);
    group.settle();
    assert!(observer.next(&Owners(&group.memories)).unwrap().is_some());

    let mut group = durable_group(1, &[0]);
    let mut observer = Observer::new(group.engines[0].view().clone(), &Owners(&group.memories)).unwrap();
    assert!(group.try_send(0, b"a", Kind::Message));
    group.settle();
    assert_eq!(observer.next(&Owners(&group.memories)), Ok(None), "there are too few members");
}

/// Track record: a member that hung before it had a large message held back every message of its
/// sender, for ever.
#[test]
fn a_member_that_hangs_while_a_large_message_waits_for_it_is_suspected() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    let claims = group.engines[0].claims(SubgroupId(0)).unwrap().clone();
    claims.set_gate(0);
    assert!(group.try_send(0, b"a", Kind::Object));
    group.pass_time(&[0, 1, 2], 20 * SECOND);
    assert!(group.engines.iter().all(|engine| !engine.is_changing()), "all live");
    group.pass_time(&[0, 1], 22 * SECOND);
    assert!(group.engines[0].suspects(Rank(2)), "what is held back is awaited");
    assert!(group.delivered.iter().all(Vec::is_empty));
}

/// Track record: an observer of an idle group waited for the memory of a member that hung, until it
/// gave up.
#[test]
fn a_member_that_hangs_is_suspected_while_a_process_needs_the_memory_of_all() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    group.engines[1].await_all(Time(12 * SECOND));
    group.pass_time(&[1, 2, 0], 13 * SECOND);
    assert_eq!(group.pass_time(&[0, 1, 2], 20 * SECOND), 0, "the wait is over");
    group.engines[1].await_all(Time(22 * SECOND));
    group.pass_time(&[0, 1], 22 * SECOND);
    assert!(group.engines[1].suspects(Rank(2)), "all are awaited");
}

/// A member that begins a view late may ask in a row that has not reached a peer. That peer shows
/// that it is alive until it has seen a sign of life of every member.
#[test]
fn a_member_shows_that_it_lives_until_it_has_heard_all() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1], SECOND / 2);
    let before = group.heartbeat(1);
    group.pass_time(&[0, 1], SECOND);
    assert!(group.heartbeat(1) > before + 10, "{before}");
    group.pass_time(&[0, 1, 2], 2 * SECOND);
    let before = group.heartbeat(1);
    assert_eq!(group.pass_time(&[0, 1, 2], 10 * SECOND), 0);
    assert_eq!(group.heartbeat(1), before);
}

/// Its application takes 25 ms for each of the queued messages. That is less than the silence after
/// which it is suspected, and more in all.
#[test]
fn a_member_whose_application_is_slow_is_not_suspected_for_the_length_of_its_queue() {
    const EACH: u64 = SECOND / 40;
    const COUNT: usize = 200;
    for liveness in [Liveness::OnDemand, Liveness::Constant] {
        let mut group = Group::windowed(3, &[0], Order::Total, Ablation::default(), 1, COUNT as u64);
        for engine in &mut group.engines {
            engine.set_suspect_after(Some(SECOND));
            engine.set_liveness(liveness);
        }
        while group.try_send(0, b"slow", Kind::Message) {}
        let end = group.now + 60 * SECOND;
        while group.now < end {
            let before = group.delivered[2].len();
            group.poll(2);
            let took = EACH * (group.delivered[2].len() - before) as u64;
            group.engines[2].upcalls_took(Some(took));
            let until = group.now + 1_000_000 + took;
            while group.now < until {
                group.poll(0);
                group.poll(1);
                group.now += 1_000_000;
            }
            assert!(!group.engines[0].suspects(Rank(2)) && !group.engines[1].suspects(Rank(2)), "silent for too long");
        }
        assert_eq!(group.delivered[2].len(), group.delivered[0].len());
        assert!(group.delivered[2].len() >= COUNT);
    }
}

/// Members that sleep without a timer, and are polled when they are woken. Each wakes for the first
/// member that closes the view, for the ballot, for the value and for the decision.
#[test]
fn a_view_ends_with_a_few_wake_ups_of_each_member() {
    const MEMBERS: u32 = 12;
    let mut group = Group::new(MEMBERS, &[0, 1], Order::Total, Ablation::default());
    group.settle();
    group.memories.iter_mut().for_each(|memory| memory.woken.clear());
    let (mut awake, mut wakes) = (BTreeSet::from([7]), vec![0; MEMBERS as usize]);
    group.engines[7].leave();
    while let Some(member) = awake.pop_first() {
        wakes[member] += 1;
        while group.poll(member).worked {}
        let woken = std::mem::take(&mut group.memories[member].woken);
        awake.extend(woken.iter().map(|rank| rank.index()));
    }
    let has_ended = |engine: &Engine| *engine.state() == State::Ended;
    assert!(group.engines.iter().all(has_ended), "a member sleeps that others wait for");
    assert!(wakes[1..].iter().all(|wakes| *wakes <= 6) && wakes[0] <= 4 * MEMBERS, "{wakes:?}");
}

/// The simulator's processes do not hang for ever, so no liveness check fails for these mutations.
#[cfg(mutation)]
#[test]
#[ignore = "wants a process of its own: cargo xtask mutations"]
fn mutations_of_liveness_fail_their_tests() {
    use spindle_core::mutation::{Mutation, activate};
    let tests = [
        (
            Mutation::ReceiptUnawaited,
            a_sender_that_hangs_is_suspected_while_others_wait_for_its_receipt as fn(),
            "its receipt is awaited",
        ),
        (
            Mutation::DeliveryUnawaited,
            a_member_that_hangs_before_it_delivers_is_suspected_by_the_sender,
            "its delivery is awaited",
        ),
        (
            Mutation::GateUnawaited,
            a_member_that_hangs_while_a_large_message_waits_for_it_is_suspected,
            "what is held back is awaited",
        ),
        (
            Mutation::OlderUnawaited,
            a_member_that_delays_a_subgroup_of_an_older_epoch_is_awaited,
            "its receipt is awaited in the older view",
        ),
        (
            Mutation::LeavesUnheard,
            a_member_that_left_is_needed_in_no_older_view,
            "its end notices there are on their way",
        ),
        (Mutation::OlderUnclosed, messages_announced_before_the_last_closed_are_delivered, "all of it is delivered"),
        (
            Mutation::FollowerUnawaited,
            a_member_that_hangs_is_suspected_while_a_process_needs_the_memory_of_all,
            "all are awaited",
        ),
        (
            Mutation::PaceKept,
            a_member_whose_application_is_slow_is_not_suspected_for_the_length_of_its_queue,
            "silent for too long",
        ),
        (Mutation::LogUnawaited, a_member_that_hangs_before_its_log_is_on_disk_is_suspected, "its disk is awaited"),
        (Mutation::CutCounted, a_leader_that_was_cut_off_has_patience_with_connections_to_come, "it was heard in time"),
        (
            Mutation::LeaderUnwoken,
            a_view_ends_with_a_few_wake_ups_of_each_member,
            "a member sleeps that others wait for",
        ),
    ];
    for (bug, test, reason) in tests {
        activate(Some(bug));
        let held = std::panic::catch_unwind(test);
        activate(None);
        let panic = held.expect_err("the test passes, whatever the bug");
        assert_eq!(panic.downcast_ref::<&str>(), Some(&reason), "{bug:?}");
    }
}

/// A process that wants to join waits for the leader.
#[test]
fn a_leader_that_hangs_is_suspected_while_others_wait_for_it_to_let_a_process_in() {
    let mut group = on_demand(3, &[0], Order::Total);
    group.pass_time(&[0, 1, 2], 10 * SECOND);
    group.engines[1].await_leader(true);
    group.pass_time(&[1, 2], 10 * SECOND + SECOND / 2);
    assert!(!group.engines[1].suspects(Rank(0)));
    group.pass_time(&[1, 2], 12 * SECOND);
    assert!(group.engines[1].suspects(Rank(0)));
}

/// Track record: a member that was told to suspect another one ignored its heartbeats after its own
/// clock had gone back.
#[test]
fn a_suspicion_that_was_told_ends_although_the_clock_went_back() {
    let mut group = silent(2);
    group.engines.iter_mut().for_each(|engine| engine.set_suspect_after(Some(1_000_000_000)));
    let pass = |group: &mut Group, ms: std::ops::Range<u64>| {
        for ms in ms.step_by(20) {
            group.now = ms * 1_000_000;
            [0, 1].iter().for_each(|member| _ = group.poll(*member));
        }
    };
    pass(&mut group, 100_000..100_500);
    group.now = 100_600_000_000;
    group.poll(0);
    group.engines[0].suspect(Rank(1));
    group.poll(0);
    // The first poll after the clock has gone back finds no sign of life.
    group.now = 50_000_000_000;
    group.poll(0);
    pass(&mut group, 50_020..53_000);
    assert!(!group.engines[0].suspects(Rank(1)));
}

#[test]
fn one_of_two_members_that_are_to_evict_each_other_stays() {
    let mut group = silent(2);
    group.engines[0].evict(Rank(1));
    group.engines[1].evict(Rank(0));
    for second in 0..60 {
        group.now = second * 1_000_000_000;
        group.run(&[0, 1]);
    }
    assert_eq!(group.next_sizes(), [Some(1); 2]);
    assert_eq!([0, 1].map(|member| *group.engines[member].state() == State::Evicted), [false, true]);
}

/// The other member leaves: without the named member no member would be left.
#[test]
fn the_last_member_that_stays_is_not_evicted() {
    let mut group = silent(2);
    group.engines[0].evict(Rank(1));
    group.engines[0].leave();
    group.run(&[0, 1]);
    assert_eq!(next_members(&group)[1], Some(vec![group.engines[1].view().members[1].0]));
    assert_eq!(*group.engines[1].state(), State::Ended);
}

/// Track record: a joiner that died while the view changed was admitted to the view after the next,
/// whose members had forgotten its death.
#[test]
fn an_admission_that_is_taken_back_is_not_carried_to_the_next_view() {
    for withdraws in [false, true] {
        let mut group = silent(3);
        group.engines[2].leave();
        while !group.engines[0].is_changing() {
            (0..3).for_each(|member| _ = group.poll(member));
        }
        // Too late for the view on which the members are agreeing.
        assert!(group.engines[0].admit(process(99)) && group.engines[0].admit_nonvoter(process(98)));
        if withdraws {
            group.engines[0].withdraw(MemberId(99));
            group.engines[0].withdraw(MemberId(98));
        }
        group.settle();
        let mut next = Group::of(group.engines[..2].iter_mut().map(|engine| engine.successor().unwrap()).collect());
        assert_eq!(next.engines[0].view().members.len(), 2);
        next.settle();
        assert_eq!(next.next_sizes(), [(!withdraws).then_some(4); 2]);
    }
}

/// Track record: a joiner that could not be reached blocked a group of one for good.
#[test]
fn a_joiner_that_never_begins_blocks_no_group() {
    for members in [1, 2] {
        let mut group = silent(members);
        assert!(group.engines[0].admit_nonvoter(process(99)));
        group.settle();
        let mut next = Group::of(group.engines.iter_mut().map(|engine| engine.successor().unwrap()).collect());
        assert_eq!(next.engines[0].view().nonvoters, [Rank(members)]);
        let alive: Vec<usize> = (0..members as usize).collect();
        next.engines.iter_mut().for_each(|engine| engine.suspect(Rank(members)));
        next.run(&alive);
        assert!(next.next_sizes().iter().all(|size| *size == Some(members as usize)), "{members}");
    }
}

#[test]
fn a_joiner_that_has_begun_becomes_a_voter_by_a_view_that_touches_nothing_else() {
    let mut group = silent(2);
    assert!(group.engines[0].admit_nonvoter(process(99)));
    group.settle();
    let mut engines: Vec<Engine> = group.engines.iter_mut().map(|engine| engine.successor().unwrap()).collect();
    let view = engines[0].view().clone();
    engines.push(Engine::new(view.clone(), Rank(2), Ablation::default()).unwrap());
    let mut next = Group::of(engines);
    next.run(&[0, 1]);
    assert!(next.engines.iter().all(|engine| !engine.is_changing()));
    let mut life = None;
    next.engines[2].show_life(|at, word| life = Some((at, word)));
    let (at, word) = life.unwrap();
    next.memories.iter_mut().for_each(|memory| memory.rows[2][at as usize..][..8].copy_from_slice(&word.to_le_bytes()));
    next.run(&[0, 1, 2]);
    assert!(next.engines.iter().all(|engine| !engine.is_changing()), "the view is new");
    next.now = 1_000_000_000;
    next.settle();
    let decided = next.engines[2].decision().unwrap();
    assert_eq!((&decided.next.members, &decided.next.nonvoters), (&view.members, &vec![]));
}

#[test]
fn messages_kept_for_observers_count_as_delivered() {
    for order in [Order::Total, Order::Fifo] {
        let mut group = Group::new(2, &[0], order, Ablation::default());
        group.engines[0].set_observed(true);
        for _ in 0..30 {
            assert!(group.try_send(0, &[7; 90], Kind::Message));
            let sent = group.engines[0].committed();
            assert!(!group.engines[0].is_delivered(&sent));
            group.settle();
            assert!(group.engines[0].is_delivered(&sent), "{order:?}");
        }
    }
}

/// A sender that tries again only when it was notified of room, in rings so small that half of one
/// is less than a message takes.
#[test]
fn observers_stop_no_sender_however_small_its_ring_is() {
    for (order, window) in [Order::Total, Order::Fifo].into_iter().flat_map(|order| (1..=9).map(move |w| (order, w))) {
        for len in [0, 40, 100] {
            let mut group = Group::windowed(2, &[0], order, Ablation::default(), 1, window);
            group.engines[0].set_observed(true);
            let (mut sent, mut rooms) = (0, 0);
            while sent < 200 {
                if group.try_send(0, &[sent; 100][..len], Kind::Message) {
                    sent += 1;
                    continue;
                }
                group.settle();
                let case = format!("{order:?}, window {window}, {len} bytes, after {sent} messages");
                assert!(group.rooms[0] > rooms, "nobody is told of room: {case}");
                rooms = group.rooms[0];
            }
            // Space that was held back is free once no observer is left.
            group.engines[0].set_observed(false);
            group.settle();
            let claims = group.engines[0].claims(SubgroupId(0)).unwrap();
            let spans = claims.ring().capacity / ring::frame_bytes(len as u64);
            let free = (0..).take_while(|_| group.try_send(0, &[1; 100][..len], Kind::Message)).count() as u64;
            assert!(free >= spans, "{order:?}, window {window}: {free} of {spans}");
        }
    }
}

#[test]
fn a_ring_of_many_messages_keeps_half_of_them_for_observers() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    group.engines[0].set_observed(true);
    let ring = *group.engines[0].claims(SubgroupId(0)).unwrap().ring();
    let entry = group.engines[0].layout().row(Rank(0)).subgroup(SubgroupId(0)).unwrap().entry;
    for sent in 1..100 {
        assert!(group.try_send(0, &[7; 100], Kind::Message));
        group.settle();
        let (published, freed) =
            (sent * ring.frame_bytes_max, group.memories[1].load(Rank(0), entry + layout::entry::FREED));
        assert_eq!(freed, published.saturating_sub(ring.capacity / 2));
    }
}

/// A counter that goes back is found at each poll, and nothing ends a view in which all members
/// have finished.
#[test]
fn a_fault_is_kept_once() {
    let mut group = Group::new(2, &[0], Order::Total, Ablation::default());
    let (_cursor, _handoff) = group.engines[1].hand_off(SubgroupId(0)).unwrap();
    group.try_send(0, b"the last", Kind::Message);
    (0..2).for_each(|member| group.engines[member].claims(SubgroupId(0)).into_iter().for_each(|claims| claims.close()));
    group.settle();
    let entry = group.engines[1].layout().row(Rank(0)).subgroup(SubgroupId(0)).unwrap().entry;
    let at = (entry + layout::entry::ROUNDS) as usize;
    group.memories[1].rows[0][at..at + 8].fill(0);
    for _ in 0..50 {
        group.poll(1);
    }
    assert_eq!(*group.engines[1].state(), State::Running);
    assert_eq!(group.engines[1].faults().len(), 1);
}

/// Ends the view of all members.
fn settled_with(changes: [(usize, Change); 2]) -> Group {
    let mut group = Group::new(3, &[0], Order::Total, Ablation::default());
    for (member, change) in changes {
        assert!(group.engines[member].propose_change(change));
    }
    group.settle();
    assert!(group.engines.iter().all(|engine| *engine.state() == State::Ended));
    Group::of(group.engines.iter_mut().map(|engine| engine.successor().unwrap()).collect())
}

#[test]
fn among_contradictory_changes_that_of_the_lower_rank_counts_for_good() {
    let alter = |window| Change::Alter(SubgroupSpec { window, ..SubgroupSpec::of_everyone("s0") });
    for changes in [[(1, alter(20)), (2, alter(30))], [(2, alter(30)), (1, alter(20))]] {
        let mut next = settled_with(changes);
        next.settle();
        assert!(next.engines.iter().all(|engine| !engine.is_changing() && engine.view().subgroups[0].window == 20));
    }
    let list = |ids: &[u64]| Rule::Only(ids.iter().copied().map(MemberId).collect());
    let create = |name, rule| Change::Create(SubgroupSpec { member_rule: rule, ..SubgroupSpec::of_everyone(name) });
    let next = settled_with([(0, create("t", list(&[10]))), (1, create("u", list(&[10])))]);
    assert_eq!(next.engines[0].view().subgroups.len(), 3, "two that don't contradict each other");
}

/// Track record 127: the lists of a subgroup that was taken from a view and altered made the member
/// that proposed the change panic.
#[test]
fn the_lists_of_a_subgroup_mean_nothing_in_a_proposed_change() {
    let mut group = Group::new(3, &[0], Order::Total, Ablation::default());
    let known = group.engines[0].view().subgroups[0].clone();
    assert!(!known.members.is_empty());
    assert!(group.engines[0].propose_change(Change::Alter(SubgroupSpec {
        window: 20,
        leftover_bytes_max: 9,
        ..known.clone()
    })));
    assert!(
        !group.engines[0].propose_change(Change::Alter(SubgroupSpec { window: 20, ..known.clone() })),
        "the same once more"
    );
    group.settle();
    let next = group.engines[0].successor().unwrap().view().subgroups[0].clone();
    assert_eq!((next.window, next.leftover_bytes_max, next.members), (20, 0, known.members));
}

#[test]
fn a_full_view_admits_no_joiner() {
    let view = |members: u64| {
        let members = (0..members).map(MemberId).collect();
        View { id: ViewId(1), members, nonvoters: vec![], subgroups: Default::default() }
    };
    let engine = |members| Engine::new(view(members), Rank(0), Ablation::default()).unwrap();
    assert!(engine(limits::MEMBERS_MAX as u64 - 1).admit(process(1 << 20)));
    assert!(!engine(limits::MEMBERS_MAX as u64).admit(process(1 << 20)));
}

#[test]
fn changes_are_proposed_up_to_a_limit() {
    let mut group = Group::new(1, &[0], Order::Total, Ablation::default());
    let change = |i| Change::Create(SubgroupSpec { window: 1, ..SubgroupSpec::of_everyone(format!("t{i}")) });
    let pending = (0..limits::CHANGES_MAX + 1).filter(|i| group.engines[0].propose_change(change(*i))).count();
    assert_eq!(pending, limits::CHANGES_MAX);
}

/// Writes into all copies of the row of `rank` that it has accepted a proposal of the leader 0, or
/// knows it to be decided, although none exists.
fn lie_about_a_ballot(group: &mut Group, rank: usize, word: u64) {
    let ballot = 5u64 << 32 | 1 << 1;
    for memory in &mut group.memories {
        memory.rows[rank][word as usize..word as usize + 8].copy_from_slice(&ballot.to_le_bytes());
    }
}

#[test]
fn a_proposal_that_no_member_can_have_made_stops_no_leader() {
    for is_dead in [false, true] {
        let mut group = silent(4);
        lie_about_a_ballot(&mut group, 2, layout::membership::ACCEPTED);
        group.engines[0].member_died(Rank(1));
        group.engines[3].member_died(Rank(1));
        if is_dead {
            [0, 3].iter().for_each(|member| group.engines[*member].member_died(Rank(2)));
        }
        let members = if is_dead { &[0, 3][..] } else { &[0, 2, 3] };
        for round in 0..40 {
            group.now = round * 500_000_000;
            group.run(members);
        }
        assert!(group.engines[0].suspects(Rank(2)));
        assert_eq!(group.next_sizes()[0], Some(2), "dead: {is_dead}");
        assert_eq!(*group.engines[3].state(), State::Ended);
    }
}

#[test]
fn a_row_that_lies_about_the_decision_hides_it_from_no_observer() {
    let mut group = Group::new(3, &[0], Order::Total, Ablation::default());
    (1..3).for_each(|member| group.engines[member].member_died(Rank(0)));
    for _ in 0..20 {
        (1..3).for_each(|member| _ = group.poll(member));
    }
    lie_about_a_ballot(&mut group, 0, layout::membership::DECIDED);
    let rows = Owners(&group.memories);
    let mut observer = Observer::new(group.engines[1].view().clone(), &rows).unwrap();
    assert_eq!(observer.next(&rows), Ok(None));
    assert!(observer.decision().is_some());
    assert_eq!(observer.decision(), group.engines[1].decision());
}

/// A leader that is not in a subgroup depends on the words of its members.
#[test]
fn a_cut_beyond_all_rounds_makes_no_liar_of_the_leader() {
    let of =
        |ranks: Vec<Rank>| SubgroupSpec { members: ranks.clone(), senders: ranks, ..SubgroupSpec::of_everyone("s") };
    let (members, subgroups) = ((0..3).map(MemberId).collect(), vec![of(vec![Rank(1)])]);
    let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: subgroups.into() };
    let engine = |rank| Engine::new(view.clone(), rank, Ablation::default()).unwrap();
    let mut group = Group::of(view.ranks().map(engine).collect());
    let cut = group.engines[0].layout().row(Rank(1)).cut(SubgroupId(0)).unwrap() as usize;
    group.engines[2].leave();
    for _ in 0..20 {
        for member in 0..3 {
            group.poll(member);
            group.memories.iter_mut().for_each(|memory| memory.rows[1][cut..cut + 8].fill(0xff));
        }
    }
    assert!(group.engines.iter().all(|engine| engine.decision().is_some() && !engine.suspects(Rank(0))));
}

/// A learner becomes a member. Messages of a Fifo sender that it has observed beyond the end of the
/// view are sent again, and not delivered to it again.
#[test]
fn a_new_member_skips_what_it_observed_beyond_the_end() {
    for handed_off in [false, true] {
        let mut group = Group::new(2, &[0, 1], Order::Fifo, Ablation::default());
        // A group with observers.
        group.engines.iter_mut().for_each(|engine| engine.keep_epochs(false));
        let mut observer = Observer::new(group.engines[0].view().clone(), &Owners(&group.memories)).unwrap();
        assert!(group.engines[1].admit(process(99)));
        for _ in 0..3 {
            group.poll(1);
        }
        assert!(group.engines[1].is_changing());
        // Announced to an observer, and not received by the other member any more.
        assert!(group.try_send(0, b"late", Kind::Message));
        group.poll(0);
        assert!(observer.next(&Owners(&group.memories)).unwrap().is_some());
        group.settle();
        assert_eq!(observer.next(&Owners(&group.memories)).unwrap(), None);
        assert!(observer.is_at_end(&Owners(&group.memories)));
        let next = observer.decision().unwrap().next.clone();
        let known: Vec<_> = observer.successor(next.clone()).unwrap().known().collect();
        assert_eq!(known, [(SubgroupId(0), Rank(0), 1)]);
        // Nor if the subgroup has too few members for a while.
        let mut unavailable = next.clone();
        unavailable.subgroups[0].member_rule = Rule::Shard { set: 0, least: 9, most: 9 };
        unavailable.subgroups[0].senders.clear();
        let meanwhile = observer.successor(unavailable).unwrap();
        assert_eq!(meanwhile.known().collect::<Vec<_>>(), known);
        assert_eq!(meanwhile.successor(next.clone()).unwrap().known().collect::<Vec<_>>(), known);
        let mut engines: Vec<Engine> = group.engines.iter_mut().map(|old| old.successor().unwrap()).collect();
        engines.push(Engine::new(next, Rank(2), Ablation::default()).unwrap());
        known.iter().for_each(|(subgroup, sender, rounds)| engines[2].pass_over(*subgroup, *sender, *rounds));
        let mut group = Group::of(engines);
        let consumer = handed_off.then(|| group.engines[2].hand_off(SubgroupId(0)).unwrap());
        for payload in [b"late", b"next"] {
            assert!(group.try_send(0, payload, Kind::Message));
        }
        group.settle();
        let got: Vec<Vec<u8>> = match consumer {
            Some((mut cursor, handoff)) => {
                let batch = cursor.advance(&group.memories[2], handoff.frontier());
                batch.map(|message| message.payload.to_vec()).collect()
            }
            None => group.delivered[2].iter().map(|message| message.2.clone()).collect(),
        };
        assert_eq!(got, [b"next".to_vec()], "handed off: {handed_off}");
    }
}

/// Two members in `s0`, and three in `s1`, the last of which leaves: the old view, which continues
/// in `s0`, and the next view of the members that stay.
fn one_leaves(order: Order, suspect_after: Option<u64>) -> (Group, Group) {
    let spec = |name, count| {
        let ids = (10..10 + u64::from(count)).map(MemberId).collect();
        let ranks: Vec<Rank> = (0..count).map(Rank).collect();
        SubgroupSpec {
            member_rule: Rule::Only(ids),
            members: ranks.clone(),
            senders: ranks,
            order,
            ..SubgroupSpec::of_everyone(name)
        }
    };
    let members = [10, 11, 12].map(MemberId).to_vec();
    let view = View { id: ViewId(1), members, nonvoters: vec![], subgroups: vec![spec("s0", 2), spec("s1", 3)].into() };
    let ablation = Ablation { epochs: true, ..Ablation::default() };
    let engine = |rank| Engine::new(view.clone(), rank, ablation).unwrap();
    let mut old = Group::of(view.ranks().map(engine).collect());
    for engine in &mut old.engines {
        engine.set_suspect_after(suspect_after);
        engine.set_liveness(Liveness::OnDemand);
    }
    assert!(old.try_send(0, b"before", Kind::Message));
    old.engines[2].leave();
    while old.engines.iter().any(|engine| *engine.state() == State::Running) {
        (0..3).for_each(|member| _ = old.poll(member));
    }
    let next = Group::of(old.engines[..2].iter_mut().map(|engine| engine.successor().unwrap()).collect());
    old.now = next.now;
    (old, next)
}

/// Polls these members in both views, as a driver does, until nothing happens.
fn run_both(old: &mut Group, next: &mut Group, members: &[usize]) {
    for _ in 0..1_000 {
        let mut worked = false;
        for &member in members {
            old.now = next.now;
            worked |= old.poll(member).worked | next.poll(member).worked;
            let (delivered, rooms) = (&mut old.delivered[member], &mut old.rooms[member]);
            let rises = &mut old.rises[member];
            let (logged, cuts) = (&mut old.logged[member], &mut old.cuts[member]);
            let mut told = Recorder { delivered, rooms, rises, logged, cuts, take: usize::MAX, logs_are_full: false };
            worked |= next.engines[member].tend(&mut old.engines[member], &mut old.memories[member], &mut told);
            old.pass_on(member);
            next.pass_on(member);
        }
        if !worked {
            return;
        }
    }
    panic!("the group never comes to rest");
}

#[test]
fn a_subgroup_that_a_change_does_not_touch_goes_on() {
    let (mut old, mut next) = one_leaves(Order::Total, None);
    let (s0, s1) = (SubgroupId(0), SubgroupId(1));
    let view = next.engines[0].view();
    assert_eq!([s0, s1].map(|id| view.epoch(id)), [ViewId(1), ViewId(2)]);
    assert!(old.engines[0].goes_on() && !old.engines[2].goes_on());
    assert!(
        next.engines[0].needs(ViewId(1)) && next.engines[0].claims(s0).is_none() && old.engines[0].resend(s0).is_none()
    );
    let texts = |old: &Group, member: usize| -> Vec<String> {
        old.delivered[member].iter().map(|(_, _, text)| String::from_utf8_lossy(text).into_owned()).collect()
    };
    // Without the next view, and with it.
    assert!(old.try_send(1, b"between", Kind::Message));
    (0..9).for_each(|i| _ = old.poll(i % 2));
    assert_eq!([0, 1].map(|member| texts(&old, member)), [["before", "between"]; 2]);
    assert!(old.try_send(0, b"after", Kind::Message));
    run_both(&mut old, &mut next, &[0, 1]);
    assert_eq!([0, 1].map(|member| texts(&old, member)), [["before", "between", "after"]; 2]);
    // The group ends when all members have closed in both.
    next.engines.iter().for_each(|engine| engine.claims(s1).unwrap().close());
    run_both(&mut old, &mut next, &[0, 1]);
    assert!(next.engines.iter().all(|engine| *engine.state() == State::Running));
    assert!(old.try_send(1, b"last", Kind::Message));
    old.engines[..2].iter().for_each(|engine| engine.claims(s0).unwrap().close());
    run_both(&mut old, &mut next, &[0, 1]);
    assert!(next.engines.iter().all(|engine| *engine.state() == State::Finished));
    assert_eq!([0, 1].map(|member| texts(&old, member).len()), [4; 2]);
}

#[test]
fn the_end_of_a_later_view_ends_an_older_epoch() {
    let (mut old, mut next) = one_leaves(Order::Total, None);
    let s0 = SubgroupId(0);
    run_both(&mut old, &mut next, &[0, 1]);
    // The other member has it, and dies before it acknowledges it.
    assert!(old.try_send(0, b"unacknowledged", Kind::Message));
    old.broken.push((1, 0));
    (0..9).for_each(|i| _ = old.poll(i % 2));
    assert_eq!(old.delivered[0].len(), 1);
    next.engines[0].member_died(Rank(1));
    run_both(&mut old, &mut next, &[0]);
    assert_eq!(*next.engines[0].state(), State::Ended);
    assert_eq!(next.engines[0].decision().unwrap().trims[0].len(), 2);
    assert!(old.engines[0].is_closed(s0) && !old.engines[0].goes_on());
    assert_eq!(old.delivered[0].len(), 2, "the survivor alone decides what belongs to the epoch");
    let mut last = next.engines[0].successor().unwrap();
    last.follow(&old.engines[0], s0);
    assert!(last.claims(s0).is_some() && !last.needs(ViewId(1)) && old.engines[0].resend(s0).is_some());
}

#[test]
fn a_member_that_delays_a_subgroup_of_an_older_epoch_is_awaited() {
    const SUSPECT_AFTER: u64 = 1_000_000;
    for sends in [false, true] {
        let (mut old, mut next) = one_leaves(Order::Total, Some(SUSPECT_AFTER));
        run_both(&mut old, &mut next, &[0, 1]);
        assert!(!sends || old.try_send(0, b"unreceived", Kind::Message));
        for _ in 0..400 {
            next.now += SUSPECT_AFTER / 40;
            run_both(&mut old, &mut next, &[0]);
        }
        assert!(next.engines[0].suspects(Rank(1)) == sends, "its receipt is awaited in the older view");
    }
}

/// The view was not to be observed, which a process that stood still for long does not know.
#[test]
fn an_observer_does_not_wait_for_subgroups_that_go_on() {
    for order in [Order::Total, Order::Fifo] {
        let (mut old, mut next) = one_leaves(order, None);
        let mut observer = Observer::new(old.engines[0].view().clone(), &Owners(&old.memories)).unwrap();
        assert!(old.try_send(1, b"behind the end", Kind::Message));
        run_both(&mut old, &mut next, &[1]);
        let rows = Owners(&old.memories);
        while let Some(seen) = observer.next(&rows).unwrap() {
            assert_eq!((seen.subgroup, order), (SubgroupId(0), Order::Fifo), "no other has received it");
        }
        assert!(observer.decision().is_some() && observer.is_at_end(&rows), "{order:?}");
    }
}

/// The rows of two views reach a peer independently, and in a Fifo subgroup the sender waits for no
/// receipt.
#[test]
fn messages_announced_before_the_last_closed_are_delivered() {
    let (mut old, mut next) = one_leaves(Order::Fifo, None);
    let (s0, s1) = (SubgroupId(0), SubgroupId(1));
    run_both(&mut old, &mut next, &[0, 1]);
    next.engines.iter().for_each(|engine| engine.claims(s1).unwrap().close());
    old.engines[..2].iter().for_each(|engine| engine.claims(s0).unwrap().close());
    // The other member's writes in its old row arrive late.
    assert!(old.try_send(1, b"late", Kind::Message));
    old.broken.push((1, 0));
    run_both(&mut old, &mut next, &[1]);
    run_both(&mut old, &mut next, &[0, 1]);
    assert!(*next.engines[0].state() == State::Running, "all of it is delivered");
    old.broken.clear();
    let row = old.memories[1].rows[1].clone();
    old.memories[0].rows[1].copy_from_slice(&row);
    run_both(&mut old, &mut next, &[0, 1]);
    assert!(next.engines.iter().all(|engine| *engine.state() == State::Finished));
    assert_eq!(old.delivered[0].len(), 2);
}

/// The rows of two views reach a peer independently. If a member dies right after it has set `LEFT`
/// in the newest row, posts of the older row that are still in transit are lost.
#[test]
fn a_member_that_left_is_needed_in_no_older_view() {
    let finish = |old: &mut Group, next: &mut Group| {
        next.engines.iter().for_each(|engine| engine.claims(SubgroupId(1)).unwrap().close());
        old.engines[..2].iter().for_each(|engine| engine.claims(SubgroupId(0)).unwrap().close());
        run_both(old, next, &[0, 1]);
    };
    let state = |next: &Group| [0, 1].map(|member: usize| next.engines[member].state().clone());
    for order in [Order::Total, Order::Fifo] {
        let (mut old, mut next) = one_leaves(order, None);
        old.memories[0].unheard.push(Rank(1));
        old.memories[1].unheard.push(Rank(0));
        finish(&mut old, &mut next);
        assert!(state(&next) == [State::Running, State::Running], "its end notices there are on their way");
        let progress = next.poll(0);
        assert!(!progress.worked && progress.wake_at.is_some(), "it looks again, but not at once");
        old.memories[0].unheard.clear();
        run_both(&mut old, &mut next, &[0]);
        assert_eq!(state(&next), [State::Finished, State::Running]);
        // Nothing is expected from the other member, and nothing is sent to it.
        run_both(&mut old, &mut next, &[1]);
        assert_eq!(state(&next), [State::Finished, State::Finished]);

        // A member that has ended can't receive, and the other one finds out.
        let (mut old, mut next) = one_leaves(order, Some(1_000_000));
        old.memories[0].unheard.push(Rank(1));
        old.memories[1].unheard.push(Rank(0));
        finish(&mut old, &mut next);
        for _ in 0..400 {
            next.now += 25_000;
            run_both(&mut old, &mut next, &[0]);
        }
        assert_eq!(state(&next), [State::Finished, State::Running]);
    }
}
