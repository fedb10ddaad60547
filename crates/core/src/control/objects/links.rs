//! Bulk connections that other members have made, until this member asks for those of a view.
use crate::ids::ViewId;
use alloc::vec::Vec;

/// How many views ahead of the current one connections are kept for.
const VIEWS_AHEAD_MAX: u64 = 4;
/// The maximum number of kept connections.
const LINKS_MAX: usize = 1 << 12;

/// Bulk connections. `L` is the driver's handle of one.
#[derive(Debug)]
pub struct GroupLinks<L> {
    /// Each with the incarnation of its group, and its view.
    links: Vec<(u128, ViewId, L)>,
    /// The newest view that has begun; 0 if none has.
    begun: ViewId,
}

impl<L> Default for GroupLinks<L> {
    fn default() -> GroupLinks<L> {
        GroupLinks { links: Vec::new(), begun: ViewId(0) }
    }
}

impl<L> GroupLinks<L> {
    /// Keeps a connection in `view` of the group `incarnation`, if a process of the group `mine`
    /// may ask for it. `mine` is 0 as long as this process knows of no group.
    pub fn keep(&mut self, mine: u128, incarnation: u128, view: ViewId, link: L) {
        let is_mine = [incarnation, 0].contains(&mine);
        // A process that waits for admission does not know yet which view will admit it.
        let is_near = self.begun.0 == 0 || view.ahead_of(self.begun) <= VIEWS_AHEAD_MAX;
        if is_mine && is_near && view >= self.begun && self.links.len() < LINKS_MAX {
            self.links.push((incarnation, view, link));
        }
    }

    /// Notes that a view has begun.
    pub fn begin(&mut self, view: ViewId) {
        self.begun = view;
    }

    /// Returns the connections in `view`, and forgets those of earlier views and of other groups.
    pub fn take(&mut self, incarnation: u128, view: ViewId) -> Vec<L> {
        self.links.retain(|(of, at, _)| *of == incarnation && *at >= view);
        self.links.extract_if(.., |(_, at, _)| *at == view).map(|(.., link)| link).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GROUP: u128 = 7;

    #[test]
    fn ways_are_kept_until_their_view_begins() {
        let mut links = GroupLinks::default();
        links.keep(GROUP, GROUP, ViewId(3), 'a');
        links.begin(ViewId(3));
        assert_eq!(links.take(GROUP, ViewId(3)), ['a']);
        links.keep(GROUP, GROUP, ViewId(4), 'b');
        links.keep(GROUP, GROUP, ViewId(2), 'c');
        links.keep(GROUP, GROUP, ViewId(3), 'd');
        assert_eq!(links.take(GROUP, ViewId(3)), ['d'], "the past is over, and the future is not here yet");
        links.begin(ViewId(4));
        assert_eq!(links.take(GROUP, ViewId(4)), ['b']);
        assert_eq!(links.take(GROUP, ViewId(4)), []);
    }

    #[test]
    fn ways_of_other_groups_and_of_views_far_ahead_are_not_kept() {
        let mut links = GroupLinks::default();
        links.begin(ViewId(3));
        links.keep(GROUP, GROUP + 1, ViewId(3), 'a');
        links.keep(GROUP, GROUP, ViewId(3 + VIEWS_AHEAD_MAX + 1), 'b');
        links.keep(GROUP, GROUP, ViewId(3 + VIEWS_AHEAD_MAX), 'c');
        assert_eq!(links.links.len(), 1);
        assert_eq!(links.take(GROUP, ViewId(3 + VIEWS_AHEAD_MAX)), ['c']);
    }

    #[test]
    fn a_process_that_waits_to_be_let_in_keeps_all() {
        let mut links = GroupLinks::default();
        links.keep(0, GROUP, ViewId(1000), 'a');
        links.keep(0, GROUP + 1, ViewId(1000), 'b');
        links.begin(ViewId(1000));
        assert_eq!(links.take(GROUP, ViewId(1000)), ['a'], "it has been let into this group");
    }

    #[test]
    fn they_are_bounded() {
        let mut links = GroupLinks::default();
        (0..2 * LINKS_MAX).for_each(|_| links.keep(GROUP, GROUP, ViewId(1), ()));
        assert_eq!(links.take(GROUP, ViewId(1)).len(), LINKS_MAX);
    }
}
