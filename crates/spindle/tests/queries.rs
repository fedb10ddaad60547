//! Queries of one member to the application of another one, on one host and between hosts.
#[path = "common/afar.rs"]
mod afar;
mod common;

use afar::{Hosts, LONG};
use common::Scratch;
use spindle::{Batch, Config, Group, Handler, IncomingQuery, MemberId, Publisher, QueryError, SubgroupId};
use std::future::Future;
use std::pin::pin;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::task::{Context, Waker};
use std::thread;
use std::time::{Duration, Instant};

/// The most bytes of a query and of an answer.
const MAX: usize = 1 << 20;

/// Repeats the query, or as its first byte says.
struct Echo {
    held: Sender<IncomingQuery>,
}

const DROP: u8 = 1;
const BUSY: u8 = 2;
const LONG_ANSWER: u8 = 3;
const HOLD: u8 = 4;

impl Handler for Echo {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(drop);
    }

    fn query(&mut self, query: IncomingQuery) {
        match query.bytes().first().copied() {
            Some(DROP) => drop(query),
            Some(BUSY) => query.refuse_as_busy(),
            Some(LONG_ANSWER) => query.answer(&vec![7; MAX + 1]),
            Some(HOLD) => drop(self.held.send(query)),
            _ => {
                let bytes = query.bytes().to_vec();
                query.answer(&bytes);
            }
        }
    }
}

struct Member {
    group: Group,
    publisher: Publisher,
    held: Receiver<IncomingQuery>,
}

impl Member {
    fn id(&self) -> MemberId {
        self.group.id()
    }

    fn leave(self) {
        drop(self.publisher);
        self.group.leave(LONG).unwrap();
    }
}

fn join(config: Config) -> Member {
    let mut node = config.join().unwrap();
    let publisher = node.publisher("all").unwrap();
    let (hold, held) = channel();
    Member { group: node.start(Echo { held: hold }).unwrap(), publisher, held }
}

fn create(configs: Vec<Config>) -> Vec<Member> {
    let joining: Vec<_> = configs.into_iter().map(|config| thread::spawn(|| join(config))).collect();
    joining.into_iter().map(|member| member.join().unwrap()).collect()
}

/// All ends of a query, from the first member to the others.
fn asks_others(mut members: Vec<Member>) {
    let queries = members[0].group.queries();
    let ask = |to: MemberId, bytes: &[u8]| queries.ask(to, bytes).wait(LONG);
    let (own, second, third) = (members[0].id(), members[1].id(), members[2].id());
    for bytes in [vec![], vec![9], (0..MAX).map(|i| 5 + i as u8 % 200).collect()] {
        for to in [second, third] {
            assert_eq!(ask(to, &bytes).unwrap()[..], bytes[..]);
        }
    }
    let max = MAX as u64;
    assert_eq!(ask(second, &vec![9; MAX + 1]), Err(QueryError::TooLong { bytes: max + 1, max }));
    let too_long = QueryError::AnswerTooLong { member: second, bytes: max + 1, max };
    assert_eq!(ask(second, &[LONG_ANSWER]), Err(too_long));
    assert_eq!(ask(third, &[DROP]), Err(QueryError::Unanswered(third)));
    assert_eq!(ask(third, &[BUSY]), Err(QueryError::Busy(third)));
    assert_eq!(ask(own, &[9]), Err(QueryError::NoMember(own)));
    assert_eq!(ask(MemberId(999), &[9]), Err(QueryError::NoMember(MemberId(999))));
    // Many at once, by several threads.
    thread::scope(|scope| {
        for number in 5..9 {
            let queries = queries.clone();
            scope.spawn(move || {
                let asked: Vec<_> = (0..50).map(|i| (i, queries.ask(second, &[number, i]))).collect();
                asked.into_iter().for_each(|(i, answer)| assert_eq!(answer.wait(LONG).unwrap()[..], [number, i]));
            });
        }
    });

    // Too late, and then an answer that no query waits for.
    let waited = Duration::from_millis(30);
    assert_eq!(queries.ask(second, &[HOLD]).wait(waited), Err(QueryError::TimedOut { member: second, waited }));
    members[1].held.recv_timeout(LONG).unwrap().answer(b"late");
    assert_eq!(ask(second, &[9]).unwrap()[..], [9]);

    // As a future, which is answered by another thread.
    let asked = queries.ask(second, &[HOLD]);
    let held = members[1].held.recv_timeout(LONG).unwrap();
    assert_eq!(held.from(), own);
    let mut asked = pin!(asked);
    assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    held.answer(b"soon");
    let until = Instant::now() + LONG;
    while asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        assert!(Instant::now() < until);
        thread::yield_now();
    }

    // The member leaves with a query that it has not answered.
    let asked = queries.ask(third, &[HOLD]);
    let leaving = members.pop().unwrap();
    let held = leaving.held.recv_timeout(LONG).unwrap();
    leaving.leave();
    assert_eq!(asked.wait(LONG), Err(QueryError::Gone(third)));
    drop(held);
    assert_eq!(ask(third, &[9]), Err(QueryError::NoMember(third)));
    assert_eq!(ask(second, &[9]).unwrap()[..], [9]);

    // The member that asks leaves.
    let asked = queries.ask(second, &[HOLD]);
    members.remove(0).leave();
    assert_eq!(asked.wait(LONG), Err(QueryError::Ended));
    assert_eq!(queries.ask(second, &[9]).wait(LONG), Err(QueryError::Ended));
}

#[test]
fn each_query_on_one_host_has_one_end() {
    let scratch = Scratch::new("queries");
    asks_others(create((0..3).map(|_| scratch.group(3, LONG)).collect()));
}

#[test]
fn each_query_between_hosts_has_one_end() {
    let hosts = Hosts::new("queries-hosts", 3, Duration::from_secs(5));
    asks_others(create((0..3).map(|seed| hosts.seed(seed, 3)).collect()));
}

#[test]
fn an_upcall_and_members_of_one_process_wait_for_no_answer() {
    let mut nodes = Config::new("g", 2).local().unwrap();
    let asked = nodes[0].queries().ask(nodes[1].id(), b"hi").wait(LONG);
    assert_eq!(asked, Err(QueryError::Local));
    drop(nodes.split_off(0));

    let scratch = Scratch::new("queries-upcall");
    let members = create((0..2).map(|_| scratch.group(2, LONG)).collect());
    let (queries, second) = (members[0].group.queries(), members[1].id());
    let config = Config { group: "other".to_owned(), ..scratch.group(1, LONG) };
    let mut node = config.join().unwrap();
    let (say, hear) = channel();
    let mut publisher = node.publisher("all").unwrap();
    let group = node.start(move |_: SubgroupId, batch: &mut Batch<'_>| {
        batch.for_each(drop);
        say.send(queries.ask(second, &[HOLD]).wait(LONG)).unwrap();
    });
    publisher.send(b"go", LONG).unwrap();
    assert_eq!(hear.recv_timeout(LONG).unwrap(), Err(QueryError::InUpcall));
    drop((publisher, group.unwrap()));
}
