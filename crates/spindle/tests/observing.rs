//! Following a group from outside. Each member has its own `ControlSocket`, on a thread of this
//! process, and one process only observes.
mod common;

use common::Scratch;
use spindle::{
    Batch, Config, Group, Handler, JoinError, MemberId, Missed, ObserveError, Observed, Observing, Order, Publisher,
    SubgroupId, ViewChange,
};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const SOON: Duration = Duration::from_millis(10);

fn group(scratch: &Scratch, members: u32) -> Config {
    let mut config = Config { suspect_after: None, ..scratch.group(members, LONG) };
    config.subgroups[0].message_bytes_max = 64;
    config
}

/// An event that a member or an observer received.
#[derive(Clone, PartialEq, Eq, Debug)]
enum Told {
    /// View, sender's id, round, payload.
    Message(u64, u64, u64, Vec<u8>),
    /// Its number, and the ids of its members.
    View(u64, Vec<u64>),
}

fn view(change: &ViewChange) -> Told {
    Told::View(change.new.id.0, change.new.members.iter().map(|id| id.0).collect())
}

/// The events that a member received, readable while it runs.
#[derive(Clone, Default)]
struct Log {
    told: Arc<Mutex<Vec<Told>>>,
    /// The member's view: its number, and the members by rank.
    view: (u64, Vec<u64>),
}

impl Handler for Log {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        let mut told = self.told.lock().unwrap();
        batch.for_each(|message| {
            let (view, members) = &self.view;
            assert_eq!(message.sender_id.0, members[message.sender.index()]);
            told.push(Told::Message(*view, members[message.sender.index()], message.round, message.payload.to_vec()));
        });
    }

    fn view_changed(&mut self, change: &ViewChange) {
        self.view = (change.new.id.0, change.new.members.iter().map(|id| id.0).collect());
        self.told.lock().unwrap().push(view(change));
    }
}

struct Member {
    group: Group,
    publisher: Publisher,
    log: Arc<Mutex<Vec<Told>>>,
}

impl Member {
    fn join(config: Config) -> Member {
        let mut node = config.join().unwrap();
        let publisher = node.publisher("all").unwrap();
        let view = (node.view().id.0, node.view().members.iter().map(|id| id.0).collect());
        let log = Log { view, ..Log::default() };
        let told = Arc::clone(&log.told);
        Member { group: node.start(log).unwrap(), publisher, log: told }
    }

    fn send(&mut self, text: &str) {
        self.publisher.send(text.as_bytes(), LONG).unwrap();
    }

    fn told(&self) -> Vec<Told> {
        self.log.lock().unwrap().clone()
    }
}

/// Returns the founders of a group, in the order of their ids.
fn create(scratch: &Scratch, count: u32, order: Order) -> Vec<Member> {
    let founder = |id: u32| {
        let mut config = group(scratch, count);
        config.id = Some(MemberId(u64::from(id)));
        config.subgroups[0].order = order;
        std::thread::spawn(|| Member::join(config))
    };
    let founders: Vec<_> = (1..=count).map(founder).collect();
    founders.into_iter().map(|founder| founder.join().unwrap()).collect()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    let patience = Instant::now() + LONG;
    while !done() {
        assert!(Instant::now() < patience, "waited for {what}");
        std::thread::yield_now();
    }
}

/// The events that an observer received, and those that it missed.
#[derive(Default)]
struct Seen {
    told: Vec<Told>,
    missed: Vec<Missed>,
    views_missed: BTreeSet<u64>,
}

impl Seen {
    /// Takes the observer's next event. An error that is no timeout is the end.
    fn take(&mut self, observing: &mut Observing) -> Result<(), ObserveError> {
        match observing.next(SOON) {
            Ok(Observed::Message { view, message, .. }) => {
                let sender = view.members[message.sender.index()].0;
                assert_eq!(message.sender_id.0, sender);
                self.told.push(Told::Message(view.id.0, sender, message.round, message.payload.to_vec()));
            }
            Ok(Observed::ViewChanged(change)) => self.told.push(view(&change)),
            Ok(Observed::Missed(missed)) => self.missed.push(missed),
            Ok(Observed::ViewsMissed { first, last }) => self.views_missed.extend(first.0..=last.0),
            Ok(other) => panic!("{other:?}"),
            Err(ObserveError::TimedOut { .. }) => {}
            Err(end) => return Err(end),
        }
        Ok(())
    }

    /// Returns how often the observer was informed that it missed this message.
    fn missed(&self, view: u64, sender: u64, round: u64) -> usize {
        let is_it = |missed: &&Missed| {
            missed.view.id.0 == view
                && missed
                    .gaps
                    .iter()
                    .any(|gap| missed.view.members[gap.sender.index()].0 == sender && gap.rounds.contains(&round))
        };
        self.missed.iter().filter(is_it).count() + usize::from(self.views_missed.contains(&view))
    }

    /// Returns how often the observer received, and missed, a message whose view ended before all
    /// members had it, though some had delivered it. If the order is by sender, the message comes
    /// again in a later view, before all others of that sender. Only receivers that had delivered
    /// it pass over it.
    fn later(&self, view: u64, sender: u64, round: u64, payload: &[u8]) -> [usize; 2] {
        let views = self.told.iter().filter_map(|told| match told {
            Told::View(later, _) if *later > view => Some(*later),
            _ => None,
        });
        for later in views.chain(self.views_missed.range(view + 1..).copied()).collect::<BTreeSet<u64>>() {
            let is_it = |told: &Told| {
                matches!(told, Told::Message(v, s, r, text)
                    if (*v, *s) == (later, sender) && *r <= round && text == payload)
            };
            let told = usize::from(self.told.iter().any(is_it));
            let missed = usize::from((0..=round).any(|round| self.missed(later, sender, round) > 0));
            if told + missed > 0 {
                return [told, if told > 0 { 0 } else { missed }];
            }
        }
        [0, 0]
    }

    fn finish(mut self, mut observing: Observing) -> (Seen, ObserveError) {
        let patience = Instant::now() + LONG;
        loop {
            if let Err(end) = self.take(&mut observing) {
                return (self, end);
            }
            assert!(Instant::now() < patience, "{:?}", self.told.last());
        }
    }
}

/// Sets its flag when it is dropped. The threads of a scope must end before a failure can be
/// reported.
struct StopsAtTheEnd<'a>(&'a AtomicBool);

impl Drop for StopsAtTheEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn an_observer_is_told_what_the_members_are_from_view_to_view() {
    for order in [Order::Total, Order::Fifo] {
        let scratch = Scratch::new(&format!("follow-{order:?}"));
        let mut members = create(&scratch, 3, order);
        for member in &mut members {
            (0..100).for_each(|i| member.send(&format!("before {i}")));
        }
        until("what was sent before", || members.iter().all(|member| member.told().len() == 300));
        let mut config = group(&scratch, 1);
        config.subgroups[0].order = order;
        let mut observing = config.clone().observe().unwrap();
        assert_eq!(observing.view().members.len(), 3);
        until("everybody to know of it", || members.iter().all(|member| member.group.status().observers == 1));

        // No member sends more than half a ring ahead of the observer, so the observer misses
        // nothing.
        let ahead = AtomicU64::new(0);
        let stop = AtomicBool::new(false);
        let seen = std::thread::scope(|scope| {
            let _stop = StopsAtTheEnd(&stop);
            let watch = scope.spawn(|| {
                let mut seen = Seen::default();
                let end = loop {
                    let before = seen.told.len();
                    if let Err(end) = seen.take(&mut observing) {
                        break end;
                    }
                    let messages = seen.told[before..].iter().filter(|told| matches!(told, Told::Message(..)));
                    ahead.fetch_sub(messages.count() as u64, Ordering::AcqRel);
                };
                let Seen { told, missed, views_missed } = &seen;
                let is_end = matches!(end, ObserveError::Finished);
                assert!(is_end, "{end}: {:?}, {missed:?}, {views_missed:?}", told.last());
                assert!(matches!(observing.next(SOON), Err(ObserveError::Finished)), "it says so again");
                seen
            });
            let talk = |mut publisher: Publisher, id: usize| {
                let (ahead, stop) = (&ahead, &stop);
                scope.spawn(move || {
                    let mut i = 0;
                    while !stop.load(Ordering::Relaxed) {
                        if ahead.fetch_add(1, Ordering::AcqRel) > 30 {
                            ahead.fetch_sub(1, Ordering::AcqRel);
                            std::thread::yield_now();
                            continue;
                        }
                        publisher.send(format!("{id} says {i}").as_bytes(), LONG).unwrap();
                        i += 1;
                    }
                })
            };
            let grown = |member: &(Group, Arc<Mutex<Vec<Told>>>), by: usize| {
                let before = member.1.lock().unwrap().len();
                until("more deliveries", || member.1.lock().unwrap().len() > before + by);
            };
            let third = members.pop().unwrap();
            let mut groups = vec![];
            for (id, Member { group, publisher, log }) in members.into_iter().enumerate() {
                talk(publisher, id);
                groups.push((group, log));
            }
            grown(&groups[0], 500);
            // One member gives up in the middle, which equals a crash. Later another one joins.
            drop(third);
            until("the second view", || groups[0].0.view().id.0 == 2);
            grown(&groups[0], 500);
            let joiner = Member::join(Config { id: Some(MemberId(4)), ..config });
            talk(joiner.publisher, 9);
            groups.push((joiner.group, joiner.log));
            until("the third view", || groups[0].0.view().id.0 == 3);
            grown(&groups[0], 500);
            stop.store(true, Ordering::Relaxed);
            let finish = |(group, log): (Group, Arc<Mutex<Vec<Told>>>)| {
                scope.spawn(move || {
                    group.finish(LONG).unwrap();
                    log.lock().unwrap().clone()
                })
            };
            let finished: Vec<_> = groups.into_iter().map(finish).collect();
            let mut logs: Vec<Vec<Told>> = finished.into_iter().map(|finished| finished.join().unwrap()).collect();
            let seen = watch.join().unwrap();
            assert!(seen.missed.is_empty() && seen.views_missed.is_empty(), "{:?}", seen.missed);
            let first = logs.remove(0).split_off(300);
            if order == Order::Total {
                assert!(seen.told == first, "the observer was told something else than the first member");
                assert!(seen.told == logs[0][300..], "the observer was told something else than the second member");
            } else {
                let only = |list: &[Told], id: u64| -> Vec<Vec<u8>> {
                    let of = |told: &Told| match told {
                        Told::Message(_, sender, _, payload) if *sender == id => Some(payload.clone()),
                        _ => None,
                    };
                    list.iter().filter_map(of).collect()
                };
                for id in [1, 2, 4] {
                    assert!(only(&seen.told, id) == only(&first, id), "of member {id} it was told something else");
                }
            }
            seen
        });
        let views = seen.told.iter().filter(|told| matches!(told, Told::View(..)));
        let views: Vec<&Told> = views.collect();
        assert_eq!(views, [&Told::View(2, vec![1, 2]), &Told::View(3, vec![1, 2, 4])]);
    }
}

/// The new member can't know of the observer by itself. The observer has not looked since before
/// that member came.
#[test]
fn the_first_messages_of_a_joiner_are_kept_for_observers() {
    for order in [Order::Total, Order::Fifo] {
        let scratch = Scratch::new(&format!("newcomer-{order:?}"));
        let members = create(&scratch, 2, order);
        let mut config = group(&scratch, 1);
        config.subgroups[0].order = order;
        let mut observing = config.clone().observe().unwrap();
        until("everybody to know of it", || members.iter().all(|member| member.group.status().observers == 1));
        let mut newcomer = Member::join(Config { id: Some(MemberId(4)), ..config });
        let sent: Vec<String> = (0..30).map(|i| format!("{i}")).collect();
        sent.iter().for_each(|text| newcomer.send(text));
        let has_all = |member: &Member| {
            let told = member.told();
            told.iter().filter(|told| matches!(told, Told::Message(..))).count() == sent.len()
        };
        until("everybody to have it all", || members.iter().chain([&newcomer]).all(has_all));
        let mut seen = Seen::default();
        until("the observer to have it all", || {
            seen.take(&mut observing).unwrap();
            assert!(seen.missed.is_empty() && seen.views_missed.is_empty(), "{order:?}: {:?}", seen.missed);
            seen.told.len() > sent.len()
        });
        assert_eq!(seen.told[0], Told::View(2, vec![1, 2, 4]));
        let texts = seen.told[1..].iter().map(|told| match told {
            Told::Message(2, 4, _, payload) => String::from_utf8(payload.clone()).unwrap(),
            other => panic!("{other:?}"),
        });
        assert_eq!(texts.collect::<Vec<_>>(), sent);
    }
}

/// The observer does not look once while the members send enough to fill their rings hundreds of
/// times. Meanwhile the view changes more often than the observer has room for control messages. No
/// member waits for the observer, though silence means nothing in this group. When the observer
/// looks, each message is either delivered to it or reported as missed, and never both.
#[test]
fn a_sleeping_observer_delays_no_member_and_learns_what_it_missed() {
    for order in [Order::Total, Order::Fifo] {
        for changes in [0, 1, 8] {
            let scratch = Scratch::new(&format!("asleep-{order:?}-{changes}"));
            let mut members = create(&scratch, 2, order);
            let mut config = group(&scratch, 1);
            config.subgroups[0].order = order;
            let mut observing = config.clone().observe().unwrap();
            until("everybody to know of it", || members.iter().all(|member| member.group.status().observers == 1));
            let flood = |members: &mut Vec<Member>| {
                for i in 0..2_000 {
                    members.iter_mut().for_each(|member| member.send(&format!("{i}")));
                }
            };
            flood(&mut members);
            for _ in 0..changes {
                let Member { group, publisher, .. } = Member::join(config.clone());
                members[0].send("with the newcomer");
                drop(publisher);
                group.leave(LONG).unwrap();
                members[1].send("without it");
            }
            flood(&mut members);
            let view = 1 + 2 * changes;
            until("the last view", || members.iter().all(|member| member.group.view().id.0 == view));
            let mut seen = Seen::default();
            let patience = Instant::now() + LONG;
            let mut marks = 0;
            // The member sends this until the observer receives it. An observer that was forgotten
            // begins at the present when it is known again.
            while !seen.told.iter().any(|told| matches!(told, Told::Message(_, _, _, payload) if payload == b"the end"))
            {
                assert!(
                    Instant::now() < patience,
                    "{order:?}, {changes} changes: {:?}, {:?}, {:?}, marks {marks} {:?}",
                    seen.told.last(),
                    seen.missed,
                    seen.views_missed,
                    members[0].group.status()
                );
                if seen.take(&mut observing).is_ok() && marks < 1_000_000 {
                    members[0].send("the end");
                    marks += 1;
                }
            }
            members.iter_mut().for_each(|member| member.send("and goodbye"));
            let groups: Vec<_> = members.into_iter().map(|Member { group, log, .. }| (group, log)).collect();
            let threads: Vec<_> = groups
                .into_iter()
                .map(|(group, log)| std::thread::spawn(move || (group.finish(LONG).map(drop), log)))
                .collect();
            let (seen, end) = seen.finish(observing);
            assert!(matches!(end, ObserveError::Finished), "{end}");
            let mut missed = 0;
            for thread in threads {
                let (finished, log) = thread.join().unwrap();
                finished.unwrap();
                for told in log.lock().unwrap().iter() {
                    let Told::Message(view, sender, round, payload) = told else { continue };
                    let mut places =
                        [seen.told.iter().filter(|seen| *seen == told).count(), seen.missed(*view, *sender, *round)];
                    if order == Order::Fifo && places == [0, 0] {
                        places = seen.later(*view, *sender, *round, payload);
                    }
                    assert_eq!(places.iter().sum::<usize>(), 1, "{order:?}, {changes}: {told:?} is {places:?}");
                    missed += places[1];
                }
            }
            assert!(missed > 3_000, "{missed}");
        }
    }
}

#[test]
fn a_refused_observer_gets_the_reason() {
    let scratch = Scratch::new("no-observer");
    let nobody = group(&scratch, 1).observe();
    assert!(
        matches!(&nobody, Err(JoinError::NoGroup { group, dir }) if group == "g" && *dir == scratch.0),
        "{nobody:?}"
    );
    assert_eq!(std::fs::read_dir(&scratch.0).unwrap().count(), 0, "it leaves nothing behind");

    let mut members = create(&scratch, 1, Order::Total);
    let mut other = group(&scratch, 1);
    other.subgroups[0].window += 1;
    let refused = other.clone().observe();
    assert!(matches!(refused, Err(JoinError::Refused(_))), "{refused:?}");
    // Without subgroups the observer takes the group as it is.
    other.subgroups.clear();
    let mut observing = other.clone().observe().unwrap();
    assert_eq!(members[0].group.status().observers, 1);
    drop(other.observe().unwrap());
    until("one to have gone", || members[0].group.status().observers == 1);
    assert!(matches!(observing.next(Duration::ZERO), Err(ObserveError::TimedOut { .. })));
    members[0].send("alone");
    until("the message", || members[0].told().len() == 1);
    drop(members);
    let mut seen = Seen::default();
    let end = loop {
        if let Err(end) = seen.take(&mut observing) {
            break end;
        }
    };
    assert!(matches!(end, ObserveError::GroupGone), "{end}");
    assert_eq!(seen.told, [Told::Message(1, 1, 0, b"alone".to_vec())]);
}
