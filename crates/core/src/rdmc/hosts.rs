//! The partition of the members of a bulk group into hosts.
use crate::ids::Rank;
use alloc::vec;
use alloc::vec::Vec;

/// The hosts of the members of a bulk group. One member of each host, its *host leader*, takes part
/// in the transfer over streams, and shares the data that it receives with the other members of the
/// host. The root is the leader of its host. On another host the leader is the first member, by
/// rank from the root on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    root: Rank,
    /// By position: the root, and then the other host leaders, ordered by rank from the root on.
    heads: Vec<Rank>,
    /// By rank: the position of the leader of the member's host.
    positions: Vec<Rank>,
}

impl Hosts {
    /// Returns the hosts of a group whose member of rank i is on the host `hosts[i]`.
    ///
    /// # Panics
    /// If `root` is not one of the members.
    pub fn new<H: PartialEq>(root: Rank, hosts: &[H]) -> Hosts {
        assert!(root.index() < hosts.len(), "the root is a member");
        let mut made = Hosts { root, heads: vec![], positions: vec![Rank(0); hosts.len()] };
        let (before, from_root) = hosts.split_at(root.index());
        for (host, rank) in from_root.iter().chain(before).zip((root.0..hosts.len() as u32).chain(0..root.0)) {
            let known = made.heads.iter().position(|head| hosts[head.index()] == *host);
            made.positions[rank as usize] = Rank(known.unwrap_or(made.heads.len()) as u32);
            if known.is_none() {
                made.heads.push(Rank(rank));
            }
        }
        made
    }

    /// Returns hosts with one of `members` on each.
    pub fn apart(members: u32, root: Rank) -> Hosts {
        Hosts::new(root, &(0..members).collect::<Vec<_>>())
    }

    /// Returns a single host with all `members`.
    pub fn one(members: u32, root: Rank) -> Hosts {
        Hosts::new(root, &vec![(); members as usize])
    }

    /// The number of members in the group.
    pub fn members(&self) -> u32 {
        self.positions.len() as u32
    }

    /// The number of hosts.
    pub fn count(&self) -> u32 {
        self.heads.len() as u32
    }

    /// The rank of the sender.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// One member of each host: the root first, the others ordered by rank from the root on. In
    /// this order they are the positions of a schedule.
    pub fn heads(&self) -> &[Rank] {
        &self.heads
    }

    /// The leader of a member's host.
    ///
    /// # Panics
    /// If `member` is not a member.
    pub fn head(&self, member: Rank) -> Rank {
        self.heads[self.position(member).index()]
    }

    /// All members of a member's host, including itself, by rank.
    ///
    /// # Panics
    /// If `member` is not a member.
    pub fn on_the_host_of(&self, member: Rank) -> impl Iterator<Item = Rank> + use<'_> {
        let position = self.position(member);
        (0..).map(Rank).zip(&self.positions).filter(move |(_, at)| **at == position).map(|(rank, _)| rank)
    }

    /// The position of the leader of a member's host.
    ///
    /// # Panics
    /// If `member` is not a member.
    pub fn position(&self, member: Rank) -> Rank {
        self.positions[member.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_the_first_head_and_the_others_follow() {
        let hosts = Hosts::new(Rank(3), &["a", "b", "a", "b", "c", "a"]);
        assert_eq!(hosts.heads(), [Rank(3), Rank(4), Rank(5)]);
        assert_eq!((0..6).map(|rank| hosts.head(Rank(rank)).0).collect::<Vec<_>>(), [5, 3, 5, 3, 4, 5]);
        assert_eq!(hosts.on_the_host_of(Rank(2)).collect::<Vec<_>>(), [Rank(0), Rank(2), Rank(5)]);
        assert_eq!(Hosts::apart(3, Rank(1)).heads(), [Rank(1), Rank(2), Rank(0)]);
        assert_eq!(Hosts::one(3, Rank(1)).heads(), [Rank(1)]);
    }
}
