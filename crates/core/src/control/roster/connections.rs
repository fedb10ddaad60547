//! The streams between members on different hosts: which member makes each, and which continue in
//! the next view.
use super::{Arrival, Roster, RosterOrder};
use crate::control::{Book, Failure, Purpose};
use crate::ids::{MemberId, ViewId};
use crate::mutation::mutation;
use crate::view::View;
use alloc::vec::Vec;

impl<W> Roster<W> {
    /// Keeps the stream over which this process follows a view.
    pub fn keep_observer_stream(&mut self, incarnation: u128, view: ViewId, with: MemberId, way: W) {
        self.dialled(view, with);
        self.keep_part(incarnation, view, with, way);
    }

    fn dialled(&mut self, view: ViewId, with: MemberId) {
        if let Some(book) = &mut self.book {
            book.dialled(view, with);
        }
    }

    /// Keeps the stream of a member in a later view, or of the same process in a view that has
    /// begun.
    pub fn keep_stream(&mut self, of: (u128, ViewId), (from, process): (MemberId, u128), way: W) {
        let (incarnation, view) = of;
        self.dialled(view, from);
        if view > self.begun {
            if self.keep_part(incarnation, view, from, way) {
                self.streams.note_process(view, from, process);
            }
            return;
        }
        if incarnation != self.incarnation || mutation!(LateStreamsRefused) {
            return;
        }
        let known = self.streams.process(view, from);
        // A late row belongs to the process that was admitted, if that process is known.
        let known = known.or(self.processes.far_instance(from).filter(|_| view == self.begun));
        if known.is_some_and(|known| known != process) && !mutation!(NoncesIgnored) {
            return self.streams.fail(view, from, Failure::Another);
        }
        if known.is_some() || (view == self.begun && self.members.contains(&from)) {
            self.streams.note_process(view, from, process);
            self.streams.arrive(Arrival { view, from, way });
        }
    }

    /// Notes the members whose streams or libfabric connections are open in this view, while the
    /// next view is installed.
    ///
    /// These connections continue in the next view, so no others are made for it.
    pub fn continue_ways(&mut self, with: impl IntoIterator<Item = MemberId>) {
        self.streams.continue_with(with);
    }

    /// True if the way to `id` continues in the next view, as far as is known.
    pub fn continues(&self, id: MemberId) -> bool {
        self.streams.continues(id)
    }

    /// Keeps the stream to a member of this view for the next `view`, with the process that had it.
    ///
    /// If a stream was dialled for that view, this one is dropped. If another stream was already
    /// kept as a continued one, it had broken unnoticed, and this one was made in its place.
    pub fn keep_continued(&mut self, view: ViewId, with: MemberId, way: W) {
        let is_dialled = self.has_parts(view, with) && !self.streams.has_continued(with);
        if is_dialled || !self.keep_part(self.incarnation, view, with, way) {
            return;
        }
        self.streams.note_continued(with);
        let streamed = self.streams.process(self.begun, with);
        let process = streamed.or(self.processes.far_instance(with));
        if let Some(process) = process {
            self.streams.note_process(view, with, process);
        }
    }

    /// Returns the ways that have arrived for views that have begun here.
    pub fn take_arrivals(&mut self) -> Vec<Arrival<W>> {
        self.streams.take_arrivals()
    }

    /// Returns the streams of begun views that could not be made, with the reasons.
    pub fn take_failures(&mut self) -> Vec<(ViewId, MemberId, Failure)> {
        self.streams.take_failures()
    }

    /// Returns the members of `view` on other hosts to which this member makes the streams.
    pub fn dialled_by_me(&self, view: &View) -> Vec<MemberId> {
        if !self.streams_rows() {
            return Vec::new();
        }
        let is_mine = |id: &MemberId| *id != self.me.id && self.is_far(*id) && self.is_mine(view.id, *id);
        view.members.iter().copied().filter(is_mine).collect()
    }

    /// True if this member has to make the stream to `id` in a view.
    ///
    /// A newcomer makes the streams to earlier members. It knows all members from the member that
    /// reported the view to it, while earlier members may not know it yet. If both members are
    /// newcomers, or neither is, the one with the lower id makes the stream.
    pub(super) fn is_mine(&self, view: ViewId, id: MemberId) -> bool {
        match (self.is_new(view, self.me.id), self.is_new(view, id)) {
            (mine, theirs) if mine == theirs => self.me.id < id,
            (mine, _) => mine,
        }
    }

    /// Makes the stream to `id` again.
    pub fn redial(&mut self, view: ViewId, id: MemberId) {
        self.dial(view, id, Purpose::Part { incarnation: self.incarnation, view });
    }

    fn dial(&mut self, view: ViewId, id: MemberId, purpose: Purpose) {
        if let Some(address) = self.book.as_mut().and_then(|book| book.dial(id, view)) {
            self.orders.push_back(RosterOrder::Dial { address, whom: id, purpose });
        }
    }

    /// Makes the streams to members of `view` on other hosts that this member has to make.
    ///
    /// The caller repeats the call until all streams exist. If rows go through libfabric, this
    /// member only watches the processes of the others.
    pub fn connect(&mut self, view: &View) {
        let mine = |id: &MemberId| *id != self.me.id && self.is_mine(view.id, *id);
        let mine: Vec<MemberId> = view.members.iter().copied().filter(mine).collect();
        for id in mine {
            let Some(book) = &mut self.book else { return };
            if let Some(address) = book.watch(id, view.id) {
                self.orders.push_back(RosterOrder::WatchFar { address, id, view: view.id });
            }
            let continues = self.streams.continues(id) && view.id > self.begun;
            if book.streams_rows() && !continues && !self.parts.has(view.id, id) {
                self.redial(view.id, id);
            }
        }
    }

    /// Makes the streams over which members on other hosts let this process follow `view`. The
    /// caller repeats the call until all streams exist.
    pub fn dial_as_observer(&mut self, view: &View) {
        for id in &view.members {
            if !self.parts.has(view.id, *id) {
                self.dial(view.id, *id, Purpose::Observer { incarnation: self.incarnation, view: view.id });
            }
        }
    }

    /// True if the rows of members on other hosts arrive over streams, one for each view.
    pub fn streams_rows(&self) -> bool {
        self.book.as_ref().is_some_and(Book::streams_rows)
    }

    /// Notes the ended views in which subgroups of this member continue. Their streams may be made
    /// again.
    pub(in crate::control) fn set_older(&mut self, views: impl Iterator<Item = ViewId>) {
        self.streams.set_older(views);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::me;
    use super::*;
    use crate::control::{Card, Seeds};
    use crate::ids::Time;
    use crate::view::View;

    #[test]
    fn the_newest_stream_that_continues_counts_unless_one_was_dialled_for_the_view() {
        let card = |id: u64| {
            let address = alloc::format!("h{id}:1").parse().unwrap();
            Card { id: MemberId(id), host: id.into(), address, rack: None }
        };
        let book = Book::new(card(1), Seeds::new(Vec::new(), None, card(1).address), true);
        let mut roster: Roster<u32> = Roster::new(me(1), 1, Some(book));
        roster.set_incarnation(7);
        [2, 3].map(card).into_iter().for_each(|card| roster.learn(card));
        let view = |id| View {
            id: ViewId(id),
            members: [1, 2, 3].map(MemberId).to_vec(),
            nonvoters: Vec::new(),
            subgroups: Default::default(),
        };
        roster.begin(&view(4), Time(0));
        let dials = |roster: &mut Roster<u32>| {
            roster.connect(&view(5));
            let orders = core::iter::from_fn(|| roster.next_order());
            orders
                .filter_map(|order| if let RosterOrder::Dial { whom, .. } = order { Some(whom.0) } else { None })
                .collect::<Vec<u64>>()
        };
        roster.continue_ways([2].map(MemberId));
        assert_eq!(dials(&mut roster), [3]);
        roster.keep_continued(ViewId(5), MemberId(2), 20);
        roster.keep_continued(ViewId(5), MemberId(2), 21);
        roster.keep_stream((7, ViewId(5)), (MemberId(3), 9), 30);
        roster.keep_continued(ViewId(5), MemberId(3), 31);
        roster.continue_ways([]);
        assert_eq!(dials(&mut roster), [0; 0], "both are here");
        assert_eq!([2, 3].map(|id| roster.take_part(ViewId(5), MemberId(id))), [Some(21), Some(30)]);
        roster.begin(&view(5), Time(0));
        // The stream broke before it continued.
        roster.continue_ways([2, 3].map(MemberId));
        roster.continue_ways([]);
        roster.connect(&view(6));
        assert_eq!(
            core::iter::from_fn(|| roster.next_order())
                .filter(|order| matches!(order, RosterOrder::Dial { .. }))
                .count(),
            2
        );
    }
}
