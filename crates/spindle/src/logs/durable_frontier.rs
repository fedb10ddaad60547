//! The durable frontier of a subgroup, for threads and tasks that wait for it.
use crate::shared::Awaited;
use spindle_core::{DurableRise, Position, SubgroupSpec, ViewId};
use std::ops::Range;

/// The frontier, and the threads and tasks that wait for it.
pub(crate) type DurableFrontier = Awaited<DurabilityState>;

/// The durability of a subgroup's messages, as far as it is known.
#[derive(Debug, Default)]
pub(crate) struct DurabilityState {
    /// All messages before it are on the disks of all members, but for those in `lost`.
    frontier: Option<Position>,
    /// Messages that are on too few disks for ever.
    lost: Vec<Range<Position>>,
    standing: Standing,
    /// Whether only durable messages are delivered, so that logs run ahead of delivery.
    delivers_durable: bool,
}

#[derive(Clone, Copy, Debug)]
enum Standing {
    Logged(Copies),
    /// The subgroup was dropped, and one of its name was created that keeps no log: since this
    /// epoch.
    InMemory {
        since: ViewId,
    },
    /// This member is no longer in the subgroup.
    Ended,
}

impl Default for Standing {
    fn default() -> Standing {
        Standing::Logged(Copies::default())
    }
}

/// The members of a subgroup, and how many it needs for a message to become durable.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Copies {
    pub(crate) present: u32,
    pub(crate) needed: u32,
}

/// The result of a look at one message.
pub(crate) enum Found {
    Durable,
    /// It is on too few disks, and stays so.
    Lost,
    Pending(Copies),
    Ended,
    /// Its subgroup kept no log when it was delivered.
    InMemory,
    /// Its subgroup was dropped, and has a successor without a log.
    Dropped,
}

impl Found {
    pub(crate) fn is_final(&self) -> bool {
        !matches!(self, Found::Pending(_))
    }
}

impl DurabilityState {
    pub(crate) fn find(&self, epoch: ViewId, sequence: u64) -> Found {
        let position = Position { epoch, sequence };
        match self.standing {
            Standing::InMemory { since } if epoch >= since => Found::InMemory,
            _ if self.lost.iter().any(|lost| lost.contains(&position)) => Found::Lost,
            _ if self.frontier.is_some_and(|frontier| position < frontier) => Found::Durable,
            Standing::InMemory { .. } => Found::Dropped,
            Standing::Ended => Found::Ended,
            Standing::Logged(copies) => Found::Pending(copies),
        }
    }

    /// Where the messages end that stay in this log: `None` if all that are on disk do.
    pub(crate) fn kept_before(&self) -> Option<Position> {
        let none = Position { epoch: ViewId(0), sequence: 0 };
        self.delivers_durable.then(|| self.frontier.unwrap_or(none))
    }

    /// All messages before it are on the disks of all members. `oldest` is the first one of this log.
    pub(crate) fn settled(&self, oldest: Option<Position>) -> Option<Position> {
        let is_here = |lost: &&Range<Position>| oldest.is_some_and(|oldest| oldest < lost.end);
        let lost = self.lost.iter().filter(is_here).map(|lost| lost.start).min();
        self.frontier.map(|frontier| lost.map_or(frontier, |lost| lost.min(frontier)))
    }

    /// All messages before it are on the disks of all members, or stay on too few.
    pub(crate) fn frontier(&self) -> Option<Position> {
        self.frontier
    }
}

impl DurableFrontier {
    pub(crate) fn raise(&self, DurableRise { frontier, covers_older }: DurableRise) {
        self.change(|state| {
            let first = |epoch| Position { epoch, sequence: 0 };
            let known = state.frontier.unwrap_or(first(ViewId(0)));
            if !covers_older && known.epoch < frontier.epoch {
                state.lost.push(known..first(frontier.epoch));
            }
            state.frontier = state.frontier.max(Some(frontier));
        });
    }

    /// Notes the members of the epoch that begins with the view `epoch`, if this member is in it.
    pub(crate) fn begin(&self, epoch: ViewId, spec: Option<&SubgroupSpec>) {
        self.change(|state| state.delivers_durable |= spec.is_some_and(|spec| spec.durability.delivers_durable()));
        let standing = match spec {
            None => Standing::Ended,
            Some(SubgroupSpec { durability, members, .. }) => match durability.copies() {
                Some(needed) => Standing::Logged(Copies { present: members.len() as u32, needed }),
                None => Standing::InMemory { since: epoch },
            },
        };
        self.stand(standing);
    }

    fn stand(&self, standing: Standing) {
        self.change(|state| {
            state.standing = match (state.standing, standing) {
                // A later epoch of the same successor, or its end.
                (known @ Standing::InMemory { .. }, Standing::InMemory { .. } | Standing::Ended) => known,
                _ => standing,
            }
        });
    }

    /// Notes that the group has ended for this member.
    pub(crate) fn end(&self) {
        self.stand(Standing::Ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rise(epoch: u64, sequence: u64, covers_older: bool) -> DurableRise {
        DurableRise { frontier: Position { epoch: ViewId(epoch), sequence }, covers_older }
    }

    #[test]
    fn messages_that_an_epoch_left_on_too_few_disks_stay_lost() {
        let frontier = DurableFrontier::default();
        let found = |epoch, sequence| frontier.look(|state| state.find(ViewId(epoch), sequence));
        frontier.raise(rise(1, 3, true));
        assert!(matches!(found(1, 2), Found::Durable) && matches!(found(1, 3), Found::Pending(_)));
        frontier.raise(rise(2, 0, true));
        assert!(matches!(found(1, 3), Found::Durable) && matches!(found(2, 0), Found::Pending(_)));
        frontier.raise(rise(4, 0, false));
        assert!(matches!(found(2, 0), Found::Lost) && matches!(found(1, 9), Found::Durable));
        frontier.raise(rise(4, 5, false));
        assert!(matches!(found(4, 4), Found::Durable) && matches!(found(3, 7), Found::Lost));
        frontier.end();
        assert!(matches!(found(4, 5), Found::Ended));
    }

    #[test]
    fn messages_on_too_few_disks_settle_nothing_where_the_log_has_some() {
        let frontier = DurableFrontier::default();
        let at = |epoch, sequence| Some(Position { epoch: ViewId(epoch), sequence });
        let settled = |oldest| frontier.look(|state| (state.settled(oldest), state.frontier()));
        assert_eq!(settled(at(1, 0)), (None, None));
        frontier.raise(rise(1, 3, true));
        assert_eq!(settled(at(1, 0)), (at(1, 3), at(1, 3)));
        frontier.raise(rise(4, 6, false));
        assert_eq!(settled(at(1, 0)), (at(1, 3), at(4, 6)));
        // A log that begins later has lost nothing.
        assert_eq!(settled(at(4, 0)), (at(4, 6), at(4, 6)));
        frontier.raise(rise(5, 2, true));
        assert_eq!((settled(at(3, 9)), settled(None)), ((at(1, 3), at(5, 2)), (at(5, 2), at(5, 2))));
    }

    #[test]
    fn a_successor_without_a_log_ends_the_waits() {
        let frontier = DurableFrontier::default();
        let found = |epoch, sequence| frontier.look(|state| state.find(ViewId(epoch), sequence));
        frontier.raise(rise(1, 3, true));
        let spec = SubgroupSpec::of_everyone("ledger");
        frontier.begin(ViewId(3), Some(&spec));
        frontier.begin(ViewId(4), Some(&spec));
        assert!(matches!(found(1, 2), Found::Durable) && matches!(found(1, 3), Found::Dropped));
        assert!(matches!(found(3, 0), Found::InMemory) && matches!(found(4, 0), Found::InMemory));
        frontier.end();
        assert!(matches!(found(1, 3), Found::Dropped) && matches!(found(4, 0), Found::InMemory));
    }
}
