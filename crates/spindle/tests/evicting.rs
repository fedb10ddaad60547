//! Members that others are told to go on without, at any moment of a change of the view.
mod common;

use common::Scratch;
use spindle::{Batch, Config, Ended, Handler, MemberId, Node, Poll, SubgroupId};
use spindle_core::control::{Letter, Request};
use spindle_fabric::mail::{Delivery, GroupName, Mailbox, RuntimeDir};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, _: &mut Batch<'_>) {}
}

/// Members that this thread polls.
fn found<const N: usize>(scratch: &Scratch, suspect_after: Option<Duration>) -> [Node; N] {
    let joining: [_; N] = std::array::from_fn(|i| {
        let config = Config { id: Some(i as u64 + 1), suspect_after, ..scratch.group(N as u32, LONG) };
        std::thread::spawn(move || config.join().unwrap())
    });
    joining.map(|thread| thread.join().unwrap())
}

fn poll(nodes: &mut [Node]) -> Vec<Result<Poll, Ended>> {
    nodes.iter_mut().map(|node| node.poll(&mut Nothing)).collect()
}

/// The first is asked to evict the third while the second leaves: in the old view, between the two, or in the new one.
#[test]
fn a_member_may_be_evicted_at_any_moment_of_a_change() {
    let mut moments = [0; 3];
    for polls in 0..30 {
        let scratch = Scratch::new(&format!("evicting-{polls}"));
        // Nothing means silence.
        let mut nodes: [Node; 3] = found(&scratch, None);
        let _publishers: Vec<_> = nodes.iter_mut().map(|node| node.publisher("all").unwrap()).collect();
        let visitor = Mailbox::visit(&RuntimeDir::new(&scratch.0).unwrap(), &GroupName::new("g").unwrap()).unwrap();
        nodes[1].leave();
        let mut left = false;
        for _ in 0..polls {
            left |= poll(&mut nodes).into_iter().any(|polled| matches!(polled, Err(Ended::Left)));
        }
        moments[if nodes[0].view().members.len() == 2 { 2 } else { usize::from(left) }] += 1;
        let evict = Letter::Request { from: visitor.id(), reply: 1, what: Request::Evict(MemberId(3)) };
        assert_eq!(visitor.send(MemberId(1), &evict, &[]).unwrap(), Delivery::Done);
        let patience = Instant::now() + LONG;
        let (mut evicted, mut gone) = (false, left);
        while !(evicted && gone && nodes[0].view().members == [MemberId(1)]) {
            for polled in poll(&mut nodes) {
                gone |= matches!(polled, Err(Ended::Left));
                evicted |= matches!(polled, Err(Ended::Evicted { .. }));
            }
            assert!(Instant::now() < patience, "after {polls} polls: {gone} {evicted} {:?}", nodes[0].view().members);
        }
    }
    assert!(moments.iter().all(|count| *count > 0), "too few moments were tried: {moments:?}");
}

/// A handler that takes its time with each message, but never as long as a member may be silent.
struct Slow(u32);

impl Handler for Slow {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|_| {
            std::thread::sleep(Duration::from_millis(30));
            self.0 += 1;
        });
    }
}

#[test]
fn who_takes_its_time_in_each_of_many_upcalls_is_not_silent() {
    let scratch = Scratch::new("slow");
    let [mut slow, mut other] = found(&scratch, Some(Duration::from_millis(200)));
    let mut publisher = other.publisher("all").unwrap();
    let mut slows = Slow(0);
    let patience = Instant::now() + LONG;
    for sent in 1..=40 {
        publisher.send(b"m", LONG).unwrap();
        while slows.0 < sent {
            slow.poll(&mut slows).unwrap();
            // Often, so that it looks at the clock in between.
            (0..100).for_each(|_| _ = other.poll(&mut Nothing).unwrap());
            assert_eq!(other.view().members.len(), 2, "after {sent} messages");
            assert!(Instant::now() < patience);
        }
    }
}
