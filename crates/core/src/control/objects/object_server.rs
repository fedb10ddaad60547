//! The object server: the order in which a member sends its cached objects to the observers that
//! ask for them.
use super::TARGET;
use crate::control::Wanted;
use crate::ids::{MemberId, ViewId};
use alloc::collections::VecDeque;
use alloc::vec::Vec;
use tracing::info;

/// The maximum number of observers that are served at once. The others wait for their turn.
const SERVED_MAX: usize = 8;
/// The maximum number of waiting observers. One that is rejected gets no answer, and asks another
/// member.
const WAITING_MAX: usize = 64;

/// The objects that an observer wants from a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ObjectOrder {
    /// The observer.
    pub from: MemberId,
    /// The view.
    pub view: ViewId,
    /// The number that the answer repeats.
    pub reply: u64,
    /// The objects.
    pub objects: Vec<Wanted>,
}

/// The observers that wait for objects of one member.
#[derive(Debug, Default)]
pub struct ObjectServer {
    waiting: VecDeque<ObjectOrder>,
}

impl ObjectServer {
    /// Takes an order. It replaces an earlier order of the same observer that still waits.
    pub fn ask(&mut self, order: ObjectOrder) {
        self.waiting.retain(|waiting| waiting.from != order.from);
        match self.waiting.len() < WAITING_MAX {
            true => self.waiting.push_back(order),
            false => {
                info!(target: TARGET, follower = order.from.0, waiting = WAITING_MAX, "too many followers wait for objects")
            }
        }
    }

    /// Returns the next order to carry out, while `served` orders are under way.
    pub fn next(&mut self, served: usize) -> Option<ObjectOrder> {
        if served < SERVED_MAX { self.waiting.pop_front() } else { None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(from: u64, reply: u64) -> ObjectOrder {
        ObjectOrder { from: MemberId(from), view: ViewId(1), reply, objects: Vec::new() }
    }

    #[test]
    fn a_process_that_asks_again_does_not_wait_for_what_it_asked_for_before() {
        let mut serving = ObjectServer::default();
        (0..2 * WAITING_MAX as u64).for_each(|from| serving.ask(order(from, 1)));
        assert_eq!(serving.waiting.len(), WAITING_MAX);
        serving.ask(order(3, 2));
        assert_eq!(serving.waiting.len(), WAITING_MAX);
        assert!(serving.waiting.iter().filter(|order| order.from == MemberId(3)).all(|order| order.reply == 2));
    }

    #[test]
    fn orders_are_carried_out_one_after_the_other_and_few_at_once() {
        let mut serving = ObjectServer::default();
        (0..20).for_each(|from| serving.ask(order(from, 1)));
        let mut served: Vec<ObjectOrder> = Vec::new();
        while let Some(order) = serving.next(served.len()) {
            served.push(order);
        }
        assert_eq!(served, (0..SERVED_MAX as u64).map(|from| order(from, 1)).collect::<Vec<_>>());
        assert_eq!(serving.next(SERVED_MAX), None);
        assert_eq!(serving.next(SERVED_MAX - 1), Some(order(SERVED_MAX as u64, 1)));
    }
}
