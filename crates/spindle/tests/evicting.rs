//! Members that others are told to go on without, at any moment of a change of the view.
mod common;

use common::Scratch;
use spindle::{Batch, Config, Ended, Handler, MemberId, Node, Poll, SubgroupId};
use spindle_fabric::mail::{Delivery, GroupName, Letter, Mailbox, Request, RuntimeDir};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

struct Nothing;

impl Handler for Nothing {
    fn deliver(&mut self, _: SubgroupId, _: &mut Batch<'_>) {}
}

/// Three members that this thread polls: nothing means silence.
fn found(scratch: &Scratch) -> Vec<Node> {
    let founder = |id| Config { id: Some(id), suspect_after: None, ..scratch.group(3, LONG) };
    let joining = [1, 2, 3].map(|id| {
        let config = founder(id);
        std::thread::spawn(move || config.join().unwrap())
    });
    joining.map(|thread| thread.join().unwrap()).into()
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
        let mut nodes = found(&scratch);
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
