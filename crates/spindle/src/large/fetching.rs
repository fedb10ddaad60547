//! A process that follows and waits for objects: a driver of the core's [`Fetching`], which says which member is asked. Here are the names in frames, and
//! the thread that reads the objects.
use super::object_server::receive_apart;
use crate::control_plane::ControlPlane;
use crate::shared::Notices;
use crate::transfer::TransferWay;
use spindle_core::control::ObjectName;
use spindle_core::control::{Fetched, Fetching};
use spindle_core::{Lapped, MemberId, Seen, Time, View};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, TryRecvError};

/// Messages of a view, in their order, of which the first is to come.
#[derive(Debug, Default)]
pub(crate) struct ReorderBuffer {
    fetching: Fetching,
    coming: Option<Coming>,
}

/// The way over which the objects come that were asked for.
#[derive(Debug)]
struct Coming {
    question: u64,
    objects: Receiver<Option<Vec<u8>>>,
    cancelled: Arc<AtomicBool>,
}

impl Drop for Coming {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

impl ReorderBuffer {
    /// Whether nothing is waited for.
    #[inline]
    pub(crate) fn is_empty(&self) -> bool {
        self.fetching.is_empty()
    }

    /// Whether more may be read.
    pub(crate) fn has_room(&self) -> bool {
        self.fetching.has_room()
    }

    /// A message that stood in its frame.
    pub(crate) fn put(&mut self, seen: Seen, payload: &[u8]) {
        self.fetching.put(seen, payload);
    }

    /// An object, and the name that stood in its frame. It is not longer than `bytes_max`, if it is to be had.
    pub(crate) fn want(&mut self, lapped: &Lapped, name: &[u8], bytes_max: u64) {
        let name = ObjectName::decode(name).map(|name| (name.number, name.bytes));
        self.fetching.want(lapped, name, bytes_max);
    }

    /// The first, if it has come.
    pub(crate) fn take(&mut self) -> Option<Fetched> {
        self.fetching.take()
    }

    /// Objects begin to come.
    pub(crate) fn answered(&mut self, from: MemberId, reply: u64, way: TransferWay, notices: &Arc<Notices>, now: Time) {
        let Some(lengths) = self.fetching.answered(from, reply, now) else { return };
        let cancelled = Arc::default();
        match receive_apart(way, lengths, Arc::clone(&cancelled), Arc::clone(notices)) {
            Ok(objects) => self.coming = Some(Coming { question: reply, objects, cancelled }),
            Err(_) => self.fetching.broke_off(),
        }
    }

    /// Nothing comes from `id` any more.
    pub(crate) fn lost(&mut self, id: MemberId) {
        self.fetching.lost(id);
        self.give_up_ways();
    }

    /// A step: takes in what has come of `view`, and asks for what is missing.
    pub(crate) fn step(&mut self, control_plane: &mut ControlPlane, view: &View) {
        self.take_in(control_plane.now());
        if control_plane.act(|roster, now| self.fetching.step(view, roster, now)) {
            control_plane.flush_now();
        }
        self.give_up_ways();
    }

    fn take_in(&mut self, now: Time) {
        while let Some(coming) = &self.coming {
            match coming.objects.try_recv() {
                Ok(object) => self.fetching.came(object, now),
                Err(TryRecvError::Disconnected) => self.fetching.broke_off(),
                Err(TryRecvError::Empty) => return,
            }
            self.give_up_ways();
        }
    }

    /// A way is not read on when its question is over.
    fn give_up_ways(&mut self) {
        let question = self.fetching.question();
        self.coming.take_if(|coming| question != Some(coming.question));
    }

    /// Another view is followed.
    pub(crate) fn begin(&mut self) {
        self.fetching.begin();
        self.give_up_ways();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Config;
    use crate::large::LargeObjectCache;
    use crate::large::object_server::tests::sent;
    use spindle_core::{Rank, SubgroupId};
    use std::time::{Duration, Instant};

    const PATIENCE: Duration = Duration::from_secs(20);
    const BYTES_MAX: u64 = 1000;

    struct Test {
        ahead: ReorderBuffer,
        control_plane: ControlPlane,
        view: View,
    }

    impl Test {
        /// A process that follows three members, which get no control messages.
        fn new() -> Test {
            let control_plane = ControlPlane::local(&Arc::default(), MemberId(9));
            let view = Config::new("g", 3).view([1, 2, 3].map(MemberId).to_vec());
            Test { ahead: ReorderBuffer::default(), control_plane, view }
        }

        fn want(&mut self, number: u64, bytes: u64) {
            let name = ObjectName { number, bytes, own: 0 };
            let (subgroup, sender) = (SubgroupId(0), Rank(1));
            let lapped = Lapped { subgroup, sender, round: number, is_object: true };
            self.ahead.want(&lapped, &name.encode(), BYTES_MAX);
        }

        fn step(&mut self) {
            self.ahead.step(&mut self.control_plane, &self.view);
        }

        /// The first question goes to rank 0 of the view: the id of the process that asks is a multiple of three.
        fn begin_answer(&mut self, objects: &[(u64, &[u8])], numbers: &[u64]) {
            self.step();
            let reply = self.ahead.fetching.question().expect("it has asked a member");
            let (way, notices) =
                (sent(LargeObjectCache::of(objects), numbers, false), Arc::clone(self.control_plane.notices()));
            self.ahead.answered(MemberId(1), reply, way, &notices, self.control_plane.now());
            assert!(self.ahead.coming.is_some());
        }

        /// Waits for the next message.
        fn next(&mut self) -> Fetched {
            let patience = Instant::now() + PATIENCE;
            loop {
                self.ahead.take_in(self.control_plane.now());
                if let Some(next) = self.ahead.take() {
                    return next;
                }
                assert!(Instant::now() < patience);
                std::thread::yield_now();
            }
        }
    }

    #[test]
    fn objects_come_over_the_way_of_the_answer() {
        let mut test = Test::new();
        test.want(10, 3);
        test.want(12, 4);
        test.begin_answer(&[(10, b"one"), (12, b"four")], &[10, 12]);
        for (round, payload) in [(10, b"one".as_slice()), (12, b"four")] {
            let seen = Seen { subgroup: SubgroupId(0), sender: Rank(1), round };
            assert_eq!(test.next(), Fetched::Message(seen, payload.to_vec()));
        }
        assert!(test.ahead.is_empty() && test.ahead.coming.is_none());
    }

    #[test]
    fn an_answer_to_another_question_is_not_read() {
        let mut test = Test::new();
        test.want(10, 3);
        test.step();
        let reply = test.ahead.fetching.question().unwrap();
        let (way, notices) =
            (sent(LargeObjectCache::of(&[(10, b"one")]), &[10], false), Arc::clone(test.control_plane.notices()));
        test.ahead.answered(MemberId(1), reply + 1, way, &notices, test.control_plane.now());
        assert!(test.ahead.coming.is_none());
    }

    #[test]
    fn a_way_is_given_up_when_its_question_is_over() {
        for is_view_over in [false, true] {
            let mut test = Test::new();
            test.want(10, 3);
            test.begin_answer(&[], &[10]);
            let cancelled = Arc::clone(&test.ahead.coming.as_ref().unwrap().cancelled);
            match is_view_over {
                true => test.ahead.begin(),
                false => test.ahead.lost(MemberId(1)),
            }
            assert!(test.ahead.coming.is_none() && cancelled.load(Ordering::Relaxed));
            assert_eq!(test.ahead.is_empty(), is_view_over);
        }
    }

    #[test]
    fn a_way_that_breaks_off_leads_to_another_question() {
        let mut test = Test::new();
        test.want(10, 3);
        // It comes with another length than its name says.
        test.begin_answer(&[(10, b"longer")], &[10]);
        let (first, patience) = (test.ahead.fetching.question(), Instant::now() + PATIENCE);
        while test.ahead.fetching.question() == first {
            test.step();
            assert!(Instant::now() < patience);
            std::thread::yield_now();
        }
        assert!(test.ahead.fetching.question().is_some() && test.ahead.coming.is_none());
    }
}
