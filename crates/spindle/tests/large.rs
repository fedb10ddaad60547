//! Messages that are too long for a ring.
mod common;

use common::Scratch;
use rcgen::{CertificateParams, KeyPair};
use spindle::{
    Address, Batch, Config, Group, Handler, Identity, MemberId, Network, Node, Order, Poll, Publisher, RackName,
    Security, SendError, SubgroupId, ViewChange, ViewId,
};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(10);

/// The messages that one member has delivered: the sender, the length, and the byte of which the
/// payload consists, if all its bytes are equal.
#[derive(Default, PartialEq, Debug)]
struct Log(Vec<(MemberId, usize, Option<u8>)>);

/// A member, and the messages that it has delivered.
struct Member {
    node: Node,
    log: Log,
}

struct Told<'a>(&'a mut Log, Vec<MemberId>);

impl Handler for Told<'_> {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            let first = message.payload.first().copied();
            let is_plain = message.payload.iter().all(|byte| Some(*byte) == first);
            self.0.0.push((self.1[message.sender.index()], message.payload.len(), first.filter(|_| is_plain)));
        });
    }
}

impl Member {
    fn poll(&mut self) -> Poll {
        // All messages that this call delivers were sent in this view.
        let members = self.node.view().members.clone();
        self.node.poll(&mut Told(&mut self.log, members)).unwrap()
    }
}

fn group(members: u32, change: impl FnOnce(&mut Config)) -> Vec<Member> {
    let mut config = Config::new("large", members);
    change(&mut config);
    config.local().unwrap().into_iter().map(|node| Member { node, log: Log::default() }).collect()
}

fn poll_until(members: &mut [Member], what: &str, done: impl Fn(&[Member]) -> bool) {
    let patience = Instant::now() + LONG;
    while !done(members) {
        members.iter_mut().for_each(|member| _ = member.poll());
        let logs: Vec<_> = members.iter().map(|member| (member.node.status(), &member.log)).collect();
        assert!(Instant::now() < patience, "{what}: {logs:?}");
    }
}

fn poll_until_finished(mut members: Vec<Member>) {
    let patience = Instant::now() + LONG;
    while !members.is_empty() {
        members.retain_mut(|member| member.poll() != Poll::Finished);
        assert!(Instant::now() < patience);
    }
}

#[test]
fn small_and_large_messages_are_in_one_order() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(3, |config| config.subgroups[0].order = order);
        let mut publishers: Vec<_> = members.iter_mut().map(|m| m.node.publisher("all").unwrap()).collect();
        let lengths = [10, 100_000, 1, 2_000_000, 300_000, 20];
        std::thread::scope(|scope| {
            for (i, publisher) in publishers.iter_mut().enumerate() {
                scope.spawn(move || {
                    for (k, len) in lengths.into_iter().enumerate() {
                        publisher.send(&vec![(10 * i + k) as u8; len], LONG).unwrap();
                    }
                });
            }
            poll_until(&mut members, "delivery", |members| members.iter().all(|m| m.log.0.len() == 18));
        });
        for i in 0..3 {
            let id = members[0].node.view().members[i];
            let sent = lengths.iter().enumerate().map(|(k, len)| (id, *len, Some((10 * i + k) as u8)));
            for member in &members {
                assert!(member.log.0.iter().filter(|got| got.0 == id).copied().eq(sent.clone()), "{:?}", member.log);
            }
        }
        if order == Order::Total {
            assert!(members.iter().all(|member| member.log == members[0].log));
        }
        drop(publishers);
        poll_until_finished(members);
    }
}

#[test]
fn large_messages_of_a_member_that_stays_survive_a_death_in_their_midst() {
    for order in [Order::Total, Order::Fifo] {
        let mut members = group(4, |config| config.subgroups[0].order = order);
        let mut publishers: Vec<_> = members.iter_mut().map(|m| m.node.publisher("all").unwrap()).collect();
        let _dying = publishers.remove(3);
        let mut quick = publishers.remove(0);
        std::thread::scope(|scope| {
            scope.spawn(move || {
                for k in 0..40 {
                    quick.send(&vec![k; if k % 3 == 0 { 8 } else { 400_000 }], LONG).unwrap();
                }
            });
            let sent = |member: &Member| member.log.0.iter().filter(|got| got.0 == MemberId(1)).count();
            poll_until(&mut members, "a beginning", |members| sent(&members[1]) >= 10);
            drop(members.remove(3));
            poll_until(&mut members, "the rest", |members| {
                members.iter().all(|m| sent(m) == 40 && m.node.view().id == ViewId(2))
            });
        });
        for member in &members {
            let got: Vec<u8> = member.log.0.iter().map(|got| got.2.expect("one byte, many times")).collect();
            assert_eq!(got, (0..40).collect::<Vec<u8>>());
        }
        // The next view carries large messages as well.
        for publisher in &mut publishers {
            publisher.send_object(vec![77; 1 << 20], LONG).unwrap();
        }
        poll_until(&mut members, "more", |members| members.iter().all(|m| m.log.0.len() == 42));
        drop(publishers);
        poll_until_finished(members);
    }
}

#[test]
fn so_many_are_on_the_way_and_no_more() {
    let mut members = group(2, |_| {});
    let mut publisher = members[0].node.publisher("all").unwrap();
    let mut sent = 0;
    loop {
        match publisher.send_object(vec![1; 70_000], Duration::ZERO) {
            Ok(()) => sent += 1,
            Err(SendError::TooMany { most: 8, .. }) => break,
            Err(error) => panic!("{error}"),
        }
        assert!(sent < 100, "nobody polls");
    }
    poll_until(&mut members, "delivery", |members| members.iter().all(|m| m.log.0.len() == sent));
    while publisher.send_object(vec![2; 70_000], Duration::ZERO).is_err() {
        members.iter_mut().for_each(|member| _ = member.poll());
    }
    poll_until(&mut members, "delivery", |members| members.iter().all(|m| m.log.0.len() == sent + 1));
    drop(publisher);
    poll_until_finished(members);
}

#[test]
fn too_long_messages_are_refused_and_a_member_alone_sends_to_itself() {
    let mut members = group(1, |config| config.object_bytes_max = 50_000);
    let mut publisher = members[0].node.publisher("all").unwrap();
    let error = publisher.send(&[0; 50_001], LONG).unwrap_err();
    assert!(matches!(error, SendError::TooLong { len: 50_001, max: 50_000 }), "{error}");
    publisher.send(&[3; 50_000], LONG).unwrap();
    publisher.send(&[4; 5], LONG).unwrap();
    poll_until(&mut members, "delivery", |members| members[0].log.0.len() == 2);
    assert_eq!(
        members[0].log.0.iter().map(|got| (got.1, got.2)).collect::<Vec<_>>(),
        [(50_000, Some(3)), (5, Some(4))]
    );
    drop(publisher);
    poll_until_finished(members);
}

/// The messages that one member on one of several hosts has delivered, and the views between them.
#[derive(Clone, Default)]
struct Notes(Arc<Mutex<Vec<String>>>);

impl Handler for Notes {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            let first = message.payload[0];
            assert!(message.payload.iter().all(|byte| *byte == first), "one byte, many times");
            self.0.lock().unwrap().push(format!("{first} {}", message.payload.len()));
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.0.lock().unwrap().push(format!("view of {}", change.new.members.len()));
    }
}

impl Notes {
    fn wait(&self, what: &str, ready: impl Fn(&[String]) -> bool) {
        let start = Instant::now();
        while !ready(&self.0.lock().unwrap()) {
            assert!(start.elapsed() < LONG, "no {what}: {:?}", self.0.lock().unwrap());
            thread::sleep(Duration::from_millis(1));
        }
    }

    fn messages(&self) -> Vec<String> {
        self.0.lock().unwrap().iter().filter(|line| !line.starts_with("view")).cloned().collect()
    }
}

type Running = (Group, Publisher, Notes);

/// Returns members that start at once, on these hosts. The first host's first member is the seed.
fn hosts(scratch: &Scratch, hosts: &[u32]) -> Vec<Running> {
    let places: Vec<(u32, &str)> = hosts.iter().map(|host| (*host, "")).collect();
    in_racks(scratch, &places)
}

/// Returns members as [`hosts`] does, with the racks of these hosts.
fn in_racks(scratch: &Scratch, places: &[(u32, &str)]) -> Vec<Running> {
    std::fs::create_dir_all(&scratch.0).unwrap();
    let members = places.len() as u32;
    let joining: Vec<_> = (0..members).zip(places).map(|(i, place)| join(scratch, i, members, *place)).collect();
    joining.into_iter().map(|joining| joining.join().unwrap()).collect()
}

/// Makes member `i` join on a thread, on this host and in this rack.
fn join(scratch: &Scratch, i: u32, members: u32, place: (u32, &str)) -> thread::JoinHandle<Running> {
    join_as(config(scratch, i, members, place))
}

fn config(scratch: &Scratch, i: u32, members: u32, (host, rack): (u32, &str)) -> Config {
    let at = |i: u32| -> Address { format!("unix:{}/member{i}", scratch.0.display()).parse().unwrap() };
    Config {
        runtime_dir: Some(scratch.0.join(format!("host{host}"))),
        network: Some(Network { rack: rack.parse().ok(), ..Network::new(at(i), vec![at(0)]) }),
        id: Some(MemberId(u64::from(i) + 1)),
        suspect_after: Some(LONG),
        ..scratch.group(members, LONG)
    }
}

fn join_as(config: Config) -> thread::JoinHandle<Running> {
    thread::spawn(move || {
        let mut node = config.join().unwrap();
        let publisher = node.publisher("all").unwrap();
        let notes = Notes::default();
        (node.start(notes.clone()).unwrap(), publisher, notes)
    })
}

/// Waits until a member is in a view of these ids, in which each id has this rack; "" for none.
fn wait_for_racks((group, ..): &Running, expected: &[(u64, &str)]) {
    let start = Instant::now();
    loop {
        let members = group.status().members;
        let rack = |rack: Option<RackName>| rack.map(|rack| rack.to_string()).unwrap_or_default();
        let found: Vec<_> = members.into_iter().map(|member| (member.id.0, rack(member.rack))).collect();
        if found.iter().map(|(id, rack)| (*id, rack.as_str())).eq(expected.iter().copied()) {
            return;
        }
        assert!(start.elapsed() < LONG, "{found:?} instead of {expected:?}");
    }
}

fn finish(members: Vec<Running>) {
    let ending: Vec<_> = members
        .into_iter()
        .map(|(group, publisher, _)| {
            drop(publisher);
            thread::spawn(move || group.finish(LONG).map(|_| ()))
        })
        .collect();
    ending.into_iter().for_each(|member| member.join().unwrap().unwrap());
}

#[test]
fn between_hosts_blocks_go_over_streams_and_inside_them_they_are_lent() {
    let scratch = Scratch::new("large-hosts");
    // One member has a host for itself. Each of the others is the head in the groups of some
    // senders and not of others.
    let mut members = hosts(&scratch, &[0, 1, 1, 2, 2]);
    for (i, (_, publisher, _)) in members.iter_mut().enumerate() {
        publisher.send(&vec![i as u8; 1_500_000], LONG).unwrap();
        publisher.send(&[10 + i as u8; 20], LONG).unwrap();
    }
    for (_, _, notes) in &members {
        notes.wait("delivery", |lines| lines.len() == 10);
        assert_eq!(notes.messages(), members[0].2.messages());
    }
    finish(members);
}

/// A certificate that is its own authority.
fn identity(scratch: &Scratch) -> Identity {
    std::fs::create_dir_all(&scratch.0).unwrap();
    let [pem_at, key_at] = ["pem", "key"].map(|end| scratch.0.join(format!("own.{end}")));
    let key = KeyPair::generate().unwrap();
    let pem = CertificateParams::new(vec!["host".into()]).unwrap().self_signed(&key).unwrap().pem();
    std::fs::write(&pem_at, pem).unwrap();
    std::fs::write(&key_at, key.serialize_pem()).unwrap();
    Identity::load(&pem_at, &pem_at, &key_at).unwrap()
}

/// Large messages over TLS hung in half of all runs. A peer sends its first counters as soon as it
/// has the connection, and TLS had read them along with the answer to the hello.
#[test]
fn over_tls_large_messages_of_all_arrive_each_time() {
    for (count, rounds) in [(2, 4), (5, 2)] {
        for (order, round) in
            [Order::Total, Order::Fifo].into_iter().flat_map(|order| (0..rounds).map(move |n| (order, n)))
        {
            let scratch = Scratch::new(&format!("large-tls-{count}-{order:?}-{round}"));
            let identity = identity(&scratch);
            let secured = |i| {
                let mut config = config(&scratch, i, count, (i, ""));
                config.network.as_mut().unwrap().security = Security::Tls(identity.clone());
                config.subgroups[0].order = order;
                join_as(config)
            };
            let joining: Vec<_> = (0..count).map(secured).collect();
            let mut members: Vec<_> = joining.into_iter().map(|member| member.join().unwrap()).collect();
            for (i, (_, publisher, _)) in members.iter_mut().enumerate() {
                publisher.send(&vec![i as u8; 200_000], LONG).unwrap();
                publisher.send(&[10 + i as u8; 20], LONG).unwrap();
            }
            for (_, _, notes) in &members {
                notes.wait("delivery", |lines| lines.len() == 2 * count as usize);
                if order == Order::Total {
                    assert_eq!(notes.messages(), members[0].2.messages());
                }
            }
            finish(members);
        }
    }
}

#[test]
fn between_hosts_all_or_none_get_a_large_message_when_one_is_lost() {
    all_or_none("large-lost", &[0, 1, 2, 3], 3);
}

#[test]
fn so_it_is_when_one_is_lost_that_lends() {
    all_or_none("large-lost-head", &[0, 1, 1, 2], 1);
}

#[test]
fn so_it_is_when_one_is_lost_that_is_lent_to() {
    all_or_none("large-lost-mate", &[0, 1, 1, 2], 2);
}

#[test]
fn so_it_is_when_one_is_lost_beside_the_sender() {
    all_or_none("large-lost-beside", &[0, 0, 1, 2, 2], 1);
}

/// The first member sends, and one member fails while it does.
fn all_or_none(name: &str, places: &[u32], lost: usize) {
    let scratch = Scratch::new(name);
    let mut members = hosts(&scratch, places);
    let lost = members.remove(lost);
    let (group, mut publisher, notes) = members.remove(0);
    let sending = thread::spawn(move || {
        (0..30).for_each(|i| publisher.send(&vec![i; 3_000_000], LONG).unwrap());
        publisher
    });
    notes.wait("beginning", |lines| lines.len() >= 3);
    // It may be about to pass blocks on.
    drop(lost);
    notes.wait("rest", |lines| lines.len() == 31);
    let publisher = sending.join().unwrap();
    members.push((group, publisher, notes));
    let expected: Vec<String> = (0..30).map(|i| format!("{i} 3000000")).collect();
    for (_, _, notes) in &members {
        notes.wait("rest", |lines| lines.len() == 31);
        assert_eq!(notes.messages(), expected);
    }
    finish(members);
}

#[test]
fn members_of_several_racks_deliver_large_messages_in_one_order() {
    let scratch = Scratch::new("large-racks");
    // The members of host 1 share memory with each other, and a rack with a third member. One
    // member has no known rack.
    let mut members = in_racks(&scratch, &[(0, "r1"), (1, "r2"), (1, "r2"), (2, "r2"), (3, "r1"), (4, "")]);
    let expected = [(1, "r1"), (2, "r2"), (3, "r2"), (4, "r2"), (5, "r1"), (6, "")];
    members.iter().for_each(|member| wait_for_racks(member, &expected));
    for (i, (_, publisher, _)) in members.iter_mut().enumerate() {
        publisher.send(&vec![i as u8; 1_500_000], LONG).unwrap();
        publisher.send(&[10 + i as u8; 20], LONG).unwrap();
    }
    for (_, _, notes) in &members {
        notes.wait("delivery", |lines| lines.len() == 12);
        assert_eq!(notes.messages(), members[0].2.messages());
    }
    finish(members);
}

#[test]
fn the_first_of_a_rack_dies_in_the_midst_and_another_rack_comes() {
    let scratch = Scratch::new("large-rack-lost");
    let mut members = in_racks(&scratch, &[(0, "r1"), (1, "r1"), (2, "r2"), (3, "r2")]);
    // This member takes over the messages that come from the sender's rack.
    let lost = members.remove(2);
    let (group, mut publisher, notes) = members.remove(0);
    let sending = thread::spawn(move || {
        (0..20).for_each(|i| publisher.send(&vec![i; 2_000_000], LONG).unwrap());
        publisher
    });
    notes.wait("beginning", |lines| lines.len() >= 3);
    drop(lost);
    notes.wait("rest", |lines| lines.len() == 21);
    members.insert(0, (group, sending.join().unwrap(), notes));
    members.push(join(&scratch, 4, 1, (4, "r3")).join().unwrap());
    let expected = [(1, "r1"), (2, "r1"), (4, "r2"), (5, "r3")];
    members.iter().for_each(|member| wait_for_racks(member, &expected));
    for (i, (_, publisher, _)) in (20..).zip(&mut members) {
        publisher.send(&vec![i; 1_500_000], LONG).unwrap();
    }
    let old: Vec<String> = (0..20).map(|i| format!("{i} 2000000")).collect();
    let new = |notes: &Notes| notes.messages().split_off(notes.messages().len().saturating_sub(4));
    for (i, (_, _, notes)) in members.iter().enumerate() {
        let count = if i == 3 { 4 } else { 24 };
        notes.wait("all", |lines| lines.iter().filter(|line| !line.starts_with("view")).count() == count);
        assert_eq!(notes.messages()[..count - 4], old[..count - 4]);
        assert_eq!(new(notes), new(&members[0].2));
    }
    finish(members);
}

#[test]
fn receivers_and_senders_of_many_threads_have_them_too() {
    let mut members = group(2, |config| config.subgroups[0].order = Order::Total);
    let mut receiver = members[0].node.receiver("all").unwrap();
    let gone = members[1].node.receiver("all").unwrap();
    let publishers: Vec<_> = members.iter_mut().map(|m| m.node.publisher("all").unwrap().share()).collect();
    thread::scope(|scope| {
        for (i, publisher) in publishers.into_iter().enumerate() {
            for k in 0..3 {
                let mut publisher = publisher.clone();
                scope.spawn(move || {
                    (0..10).for_each(|n| {
                        publisher.send(&vec![(i * 3 + k) as u8; if n % 2 == 0 { 9 } else { 90_000 }], LONG).unwrap()
                    });
                });
            }
        }
        let receiving = scope.spawn(move || {
            let mut got = vec![];
            while got.len() < 60 {
                for message in &mut receiver.receive(LONG).unwrap() {
                    assert!(message.payload.iter().all(|byte| *byte == message.payload[0]));
                    got.push((message.payload[0], message.payload.len()));
                }
            }
            got
        });
        // No thread delivers from that receiver any more, and it delays no member.
        drop(gone);
        while !receiving.is_finished() {
            members.iter_mut().for_each(|member| _ = member.poll());
        }
        let got = receiving.join().unwrap();
        for sender in 0..6 {
            let lengths: Vec<usize> = got.iter().filter(|got| got.0 == sender).map(|got| got.1).collect();
            assert_eq!(lengths, [9, 90_000].repeat(5));
        }
    });
    poll_until_finished(members);
}
