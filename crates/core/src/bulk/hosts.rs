//! Which members of a bulk group share a host.
use crate::ids::Rank;
use alloc::vec;
use alloc::vec::Vec;

/// On which hosts the members of a bulk group are. One member of each host, its *head*, takes part in what goes over streams, and lends what it gets to
/// the others there. The root is the head of its host; elsewhere it is the first, by rank from the root on.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Hosts {
    root: Rank,
    /// By position: the root, and then the others as they follow by rank.
    heads: Vec<Rank>,
    /// By rank: the position of the head of its host.
    positions: Vec<Rank>,
}

impl Hosts {
    /// Those of a group whose member of rank i is on the host `hosts[i]`.
    ///
    /// # Panics
    /// If `root` is none of them.
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

    /// Each of `members` is on a host of its own.
    pub fn apart(members: u32, root: Rank) -> Hosts {
        Hosts::new(root, &(0..members).collect::<Vec<_>>())
    }

    /// All `members` are on one.
    pub fn one(members: u32, root: Rank) -> Hosts {
        Hosts::new(root, &vec![(); members as usize])
    }

    /// How many members the group has.
    pub fn members(&self) -> u32 {
        self.positions.len() as u32
    }

    /// How many hosts there are.
    pub fn count(&self) -> u32 {
        self.heads.len() as u32
    }

    /// Who sends.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// One member of each host: the root first, the others as they follow by rank. In this order they are the positions of a schedule.
    pub fn heads(&self) -> &[Rank] {
        &self.heads
    }

    /// The head of a member's host.
    ///
    /// # Panics
    /// If it is no member.
    pub fn head(&self, member: Rank) -> Rank {
        self.heads[self.position(member).index()]
    }

    /// All members of a member's host, it included, by rank.
    ///
    /// # Panics
    /// If it is no member.
    pub fn on_the_host_of(&self, member: Rank) -> impl Iterator<Item = Rank> + use<'_> {
        let position = self.position(member);
        (0..).map(Rank).zip(&self.positions).filter(move |(_, at)| **at == position).map(|(rank, _)| rank)
    }

    /// The position of the head of a member's host.
    ///
    /// # Panics
    /// If it is no member.
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
