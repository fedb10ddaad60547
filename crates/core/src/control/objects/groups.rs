//! The bulk groups of a view: how they are made, and which member is lost to them.
//!
//! Each sender of a subgroup that has an object gets a bulk group of the subgroup's members, a new
//! one in each view. One member of each host, its leader (*head* in the code), takes part in the
//! streams, and shares the received blocks with the other members of its host. The sender opens the
//! group. The other host leaders take part when its stream reaches them. A member that is no host
//! leader takes part when its host leader's socket reaches it.
//!
//! If a stream is not made, the host leader that has to make it counts the other one as lost. A
//! host leader that waits for a stream counts the maker as lost much later, when the maker has not
//! been judged either. A member that stays lost to a group is at the end of a broken connection:
//! deaths are reported sooner, and a member that left the group because the view was over does not
//! stay in the view that long. Then the view is renewed, because the groups of the next view have
//! their own connections. The member is suspected only if these are not made.
use super::TARGET;
use crate::control::RackName;
use crate::ids::{MemberId, Rank, SubgroupId, Time, ViewId};
use crate::rdmc::{Algorithm, Hosts, Racks};
use crate::view::View;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use tracing::warn;

/// The interval at which missing links are checked.
pub const LINK_LOOK: Duration = Duration::from_millis(50);
/// How long a member may be lost to a bulk group before the remedy, if silence has no limit.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How often a link may be late before a member that waits for it, and does not make it, counts its
/// maker as lost.
const LATE_MAX: u32 = 3;

/// One bulk group of a view, as one of its members knows it.
#[derive(Debug)]
pub struct ObjectGroup<'a> {
    view: &'a View,
    subgroup: SubgroupId,
    root: Rank,
    me: Rank,
    hosts: Hosts,
}

impl<'a> ObjectGroup<'a> {
    /// Returns the number of the group of `root` in a subgroup.
    pub fn number_of(subgroup: SubgroupId, root: Rank) -> u64 {
        u64::from(subgroup.0) << 32 | u64::from(root.0)
    }

    /// Returns the group of this number, if one with the member `me` can exist. `host` returns the
    /// host of a member.
    pub fn new(view: &'a View, number: u64, me: Rank, host: impl Fn(MemberId) -> u128) -> Option<ObjectGroup<'a>> {
        let (subgroup, root) = (SubgroupId((number >> 32) as u32), Rank(number as u32));
        let spec = view.subgroups.get(subgroup.index())?;
        // A subgroup whose epoch began before the view has no ring in it.
        if !spec.senders.contains(&root) || !spec.members.contains(&me) || spec.epoch.is_some() {
            return None;
        }
        let keys: Vec<u128> = spec.members.iter().map(|rank| host(view.members[rank.index()])).collect();
        let place = spec.members.iter().position(|rank| *rank == root)?;
        Some(ObjectGroup { view, subgroup, root, me, hosts: Hosts::new(Rank(place as u32), &keys) })
    }

    /// Returns its number in the view.
    pub fn number(&self) -> u64 {
        ObjectGroup::number_of(self.subgroup, self.root)
    }

    /// Returns the view.
    pub fn view(&self) -> ViewId {
        self.view.id
    }

    /// Returns the subgroup.
    pub fn subgroup(&self) -> SubgroupId {
        self.subgroup
    }

    /// Returns the member that sends.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// Returns this member.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// True if this member sends.
    pub fn is_mine(&self) -> bool {
        self.root == self.me
    }

    /// Returns its members, by their ranks in the view. A member's index in this list is its rank
    /// in the group.
    pub fn members(&self) -> &'a [Rank] {
        &self.view.subgroups[self.subgroup.index()].members
    }

    /// Returns the rank in the group of one of its members.
    ///
    /// # Panics
    /// If `member` is no member of the group.
    pub fn position(&self, member: Rank) -> Rank {
        let place = self.members().iter().position(|rank| *rank == member);
        Rank(place.expect("a member of the subgroup") as u32)
    }

    /// Returns this member's rank in the group.
    pub fn my_position(&self) -> Rank {
        self.position(self.me)
    }

    /// Returns the id of a member of the view.
    pub fn id(&self, member: Rank) -> MemberId {
        self.view.members[member.index()]
    }

    /// Returns which of its members share a host.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// Returns the leaders of the other hosts, in the order of the schedule.
    fn other_heads(&self) -> impl Iterator<Item = Rank> + Clone + use<'_, 'a> {
        let me = self.my_position();
        self.hosts.heads().iter().filter(move |place| **place != me).map(|place| self.members()[place.index()])
    }

    /// True if this member takes part through a socket of `from`, which is then the leader of this
    /// host.
    pub fn is_lent_by(&self, from: Rank) -> bool {
        from != self.me && self.members().contains(&from) && self.hosts.head(self.my_position()) == self.position(from)
    }

    /// True if `from` and this member are the leaders of two hosts.
    fn is_between_heads(&self, from: Rank) -> bool {
        let is_head = |member| self.hosts.heads().contains(&self.position(member));
        from != self.me && self.members().contains(&from) && is_head(from) && is_head(self.me)
    }

    /// True if this member has to make the stream to `other`. Both are leaders of hosts. The root
    /// makes all of its own streams, so that the other leaders learn of the group. Between two
    /// others, the one with the lower rank makes the stream.
    fn makes_stream(&self, other: Rank) -> bool {
        self.is_mine() || (other != self.root && self.me < other)
    }

    /// Returns a tag that distinguishes this group from all others. `incarnation` is that of the
    /// group of members.
    pub fn tag(&self, incarnation: u128) -> u64 {
        let words = [incarnation as u64, (incarnation >> 64) as u64, self.view.id.0, self.number()];
        // FNV-1a over words.
        words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3))
    }

    /// Returns how blocks spread from host to host: by racks if at least two racks exist. All
    /// members get the same racks; this is checked when their streams begin.
    pub fn algorithm<'r>(&self, rack: impl Fn(MemberId) -> Option<&'r RackName>) -> Algorithm {
        let heads = self.hosts.heads().iter().map(|place| self.id(self.members()[place.index()]));
        let racks = Racks::grouped(heads.map(rack));
        match racks.count() {
            1 => Algorithm::BinomialPipeline,
            _ => Algorithm::Hybrid(racks),
        }
    }
}

/// A step of the driver for a group that has not begun.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum GroupStep<S> {
    /// Make the stream to a host leader. The driver repeats the step until the stream exists; while
    /// it is being made, the step costs nothing.
    Dial(MemberId),
    /// Begin with the streams to the other host leaders, by their ranks in the group. If the group
    /// has begun, [`ObjectGroups::began`] is called.
    Begin(Vec<(Rank, S)>),
}

/// The bulk groups of a member in one view. `S` is the driver's handle of a stream.
#[derive(Debug)]
pub struct ObjectGroups<S> {
    /// The groups by number.
    groups: BTreeMap<u64, GroupState<S>>,
    /// The members that are lost to a group of this view, and since when.
    lost: Vec<(Rank, Time)>,
    /// How long they may be lost before the remedy.
    grace: Duration,
    /// True if the hosts of some members are unknown.
    waits: bool,
    /// The members for which a view was renewed, and that view. They have been in no group since.
    renewed: BTreeMap<MemberId, ViewId>,
}

/// The remedy for the loss of a member to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// Renew the view with the same members, in case the connection to this member is broken for
    /// large messages only.
    Renew(Rank),
    /// Suspect the member: a view was renewed for it, and it is in no group of the next one.
    Suspect(Rank),
}

#[derive(Debug)]
enum GroupState<S> {
    /// The group's streams are being made.
    Opening {
        /// The streams that exist, by rank in the view.
        streams: BTreeMap<Rank, S>,
        since: Time,
        /// The number of times that it was late.
        late: u32,
    },
    /// The group is in use.
    Begun,
}

impl<S> GroupState<S> {
    fn opening(now: Time) -> GroupState<S> {
        GroupState::Opening { streams: BTreeMap::new(), since: now, late: 0 }
    }
}

impl<S> ObjectGroups<S> {
    /// Returns the groups of a member that suspects others after a silence of `suspect_after`, if
    /// at all.
    pub fn new(suspect_after: Option<Duration>) -> ObjectGroups<S> {
        let grace = suspect_after.unwrap_or(LOST_GRACE);
        ObjectGroups { groups: BTreeMap::new(), lost: Vec::new(), grace, waits: false, renewed: BTreeMap::new() }
    }

    /// Notes that the view has ended.
    pub fn end_view(&mut self) {
        self.groups.clear();
        self.lost.clear();
        self.waits = false;
    }

    /// True if groups exist or are wanted.
    pub fn are_there(&self) -> bool {
        !self.groups.is_empty()
    }

    /// True if another call is due soon, to try links again or to remedy a loss.
    pub fn is_pending(&self) -> bool {
        self.waits
            || !self.lost.is_empty()
            || self.groups.values().any(|state| matches!(state, GroupState::Opening { .. }))
    }

    /// Notes that a member is lost to a group.
    pub fn lose(&mut self, member: Rank, now: Time) {
        self.lost.push((member, now));
    }

    /// Returns the remedies for members of `view` that are lost to a group for too long, once for
    /// each loss.
    pub fn overdue(&mut self, view: &View, me: Rank, now: Time) -> Vec<Remedy> {
        let (grace, renewed) = (self.grace, &mut self.renewed);
        let overdue = self.lost.extract_if(.., |(_, since)| now.since(*since) >= grace);
        let remedy = |rank: Rank| {
            let id = view.members[rank.index()];
            match renewed.get(&id) {
                // The member is lost to several groups of this view.
                Some(known) if *known == view.id => None,
                Some(_) => Some(Remedy::Suspect(rank)),
                None => {
                    renewed.insert(id, view.id);
                    Some(Remedy::Renew(rank))
                }
            }
        };
        overdue.map(|(rank, _)| rank).filter(|rank| *rank != me).filter_map(remedy).collect()
    }

    /// Opens the group of this member in a subgroup, for which it has an object.
    pub fn want(&mut self, subgroup: SubgroupId, me: Rank, now: Time) {
        self.groups.entry(ObjectGroup::number_of(subgroup, me)).or_insert_with(|| GroupState::opening(now));
    }

    /// Takes in a stream from `from`, unless the group has begun. A process that takes other
    /// members for host leaders than its peers do is in no group with them. It learns so when its
    /// stream ends.
    pub fn stream_came(&mut self, group: &ObjectGroup<'_>, from: Rank, stream: S, now: Time) {
        if !group.is_between_heads(from) {
            return;
        }
        let state = self.groups.entry(group.number()).or_insert_with(|| GroupState::opening(now));
        if let GroupState::Opening { streams, .. } = state {
            streams.insert(from, stream);
        }
    }

    /// Returns the numbers of the groups that have not begun.
    pub fn opening(&self) -> Vec<u64> {
        self.groups
            .iter()
            .filter(|(_, state)| matches!(state, GroupState::Opening { .. }))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Returns the steps for a group that has not begun: it makes the streams that this member has
    /// to make, and begins when all streams exist. This member's own group does not begin before it
    /// `has_objects` for it.
    pub fn step(&mut self, group: &ObjectGroup<'_>, has_objects: bool, now: Time) -> Vec<GroupStep<S>> {
        let Some(GroupState::Opening { streams, since, late }) = self.groups.get_mut(&group.number()) else {
            return Vec::new();
        };
        let is_late = now.since(*since) >= self.grace;
        *late += u32::from(is_late);
        let mut steps = Vec::new();
        let missing: Vec<Rank> = group.other_heads().filter(|head| !streams.contains_key(head)).collect();
        for head in &missing {
            let is_mine = group.makes_stream(*head);
            if is_mine {
                steps.push(GroupStep::Dial(group.id(*head)));
            }
            if is_late && (is_mine || *late > LATE_MAX) {
                let (view, member) = (group.view.id.0, group.id(*head).0);
                warn!(target: TARGET, view, member, is_mine, late, "stream for large messages is not made");
                self.lost.push((*head, now));
            }
        }
        if is_late {
            *since = now;
        }
        if missing.is_empty() && (!group.is_mine() || has_objects) {
            let mut streams = core::mem::take(streams);
            let heads = group.other_heads().filter_map(|head| Some((group.position(head), streams.remove(&head)?)));
            steps.push(GroupStep::Begin(heads.collect()));
        }
        steps
    }

    /// Notes whether this member [knows the places](super::super::Roster::finds_places) of all, and
    /// returns the same value. Until then no group opens, through no fault of its members: their
    /// time limits begin afterwards.
    pub fn may_open(&mut self, knows_places: bool, now: Time) -> bool {
        self.waits = !knows_places;
        for state in self.groups.values_mut().filter(|_| !knows_places) {
            if let GroupState::Opening { since, .. } = state {
                *since = now;
            }
        }
        knows_places
    }

    /// Notes that a group has begun.
    pub fn began(&mut self, group: &ObjectGroup<'_>) {
        for head in group.other_heads() {
            self.renewed.remove(&group.id(head));
        }
        self.groups.insert(group.number(), GroupState::Begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::SubgroupSpec;
    use alloc::vec;

    const GRACE: Duration = Duration::from_secs(2);
    const NS: Duration = Duration::from_nanos(1);

    /// Returns a view of the members 10 to 15. Its only subgroup has these ranks as members and
    /// senders.
    fn view(members: &[u32]) -> View {
        let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
        let spec = SubgroupSpec { senders: members.clone(), members, ..SubgroupSpec::of_everyone("s") };
        View {
            id: ViewId(3),
            members: (10..16).map(MemberId).collect(),
            nonvoters: vec![],
            subgroups: vec![spec].into(),
        }
    }

    /// Returns the group of `root` as `me` knows it, with member 10 + i on the host `hosts[i]`.
    fn group<'a>(view: &'a View, hosts: [u128; 6], root: u32, me: u32) -> ObjectGroup<'a> {
        let number = ObjectGroup::number_of(SubgroupId(0), Rank(root));
        ObjectGroup::new(view, number, Rank(me), |id| hosts[id.0 as usize - 10]).expect("a group")
    }

    const ALL: [u32; 6] = [0, 1, 2, 3, 4, 5];
    /// The host leaders of the group of rank 1 are the ranks 1, 2 and 4.
    const HOSTS: [u128; 6] = [1, 1, 2, 2, 3, 3];

    fn groups() -> ObjectGroups<char> {
        ObjectGroups::new(Some(GRACE))
    }

    fn dials(ids: &[u64]) -> Vec<GroupStep<char>> {
        ids.iter().map(|id| GroupStep::Dial(MemberId(*id))).collect()
    }

    #[test]
    fn there_is_a_group_for_each_sender_of_a_subgroup_of_mine() {
        let view = view(&[1, 3, 4]);
        let of = |subgroup, root, me| {
            let number = ObjectGroup::number_of(SubgroupId(subgroup), Rank(root));
            ObjectGroup::new(&view, number, Rank(me), |_| 0).map(|group| (group.number(), group.my_position()))
        };
        assert_eq!(of(0, 3, 4), Some((3, Rank(2))));
        assert_eq!([of(0, 0, 4), of(0, 3, 0), of(1, 3, 4), of(0, u32::MAX, 4)], [None; 4]);
    }

    #[test]
    fn the_root_makes_its_streams_and_of_others_the_lower_rank() {
        let view = view(&ALL);
        let mut groups = groups();
        let now = Time(0);
        // The root.
        let mine = group(&view, HOSTS, 1, 1);
        groups.want(SubgroupId(0), Rank(1), now);
        assert_eq!(groups.opening(), [mine.number()]);
        assert_eq!(groups.step(&mine, true, now), dials(&[12, 14]));
        // Another host leader, which learns of the group by the root's stream.
        let mut groups = self::groups();
        let theirs = group(&view, HOSTS, 1, 2);
        assert_eq!(groups.step(&theirs, false, now), []);
        groups.stream_came(&theirs, Rank(1), 'r', now);
        assert_eq!(groups.step(&theirs, false, now), dials(&[14]));
        // The third host leader, to which the second one makes a stream.
        let mut groups = self::groups();
        let theirs = group(&view, HOSTS, 1, 4);
        groups.stream_came(&theirs, Rank(1), 'r', now);
        assert_eq!(groups.step(&theirs, false, now), []);
        groups.stream_came(&theirs, Rank(2), 's', now);
        // By their positions in the schedule.
        assert_eq!(groups.step(&theirs, false, now), [GroupStep::Begin(vec![(Rank(1), 'r'), (Rank(2), 's')])]);
    }

    #[test]
    fn a_group_of_mine_begins_when_it_has_something_to_send_and_others_when_all_streams_are_here() {
        let view = view(&ALL);
        let (mut groups, now) = (groups(), Time(0));
        let mine = group(&view, HOSTS, 1, 1);
        groups.stream_came(&mine, Rank(2), 'a', now);
        groups.stream_came(&mine, Rank(4), 'b', now);
        assert_eq!(groups.step(&mine, false, now), []);
        assert_eq!(groups.step(&mine, true, now), [GroupStep::Begin(vec![(Rank(2), 'a'), (Rank(4), 'b')])]);
        assert!(groups.is_pending());
        groups.began(&mine);
        assert!(!groups.is_pending() && groups.opening().is_empty() && groups.step(&mine, true, now).is_empty());
        groups.stream_came(&mine, Rank(2), 'c', now);
        assert!(!groups.is_pending(), "streams that come too late are dropped");
    }

    #[test]
    fn streams_are_taken_from_heads_by_heads_only() {
        let view = view(&[0, 1, 2, 4, 5]);
        let (mut groups, now) = (groups(), Time(0));
        let mine = group(&view, HOSTS, 1, 2);
        for from in [0, 2, 3, 5] {
            groups.stream_came(&mine, Rank(from), 'x', now);
        }
        let no_head = group(&view, HOSTS, 1, 5);
        groups.stream_came(&no_head, Rank(1), 'x', now);
        assert!(groups.opening().is_empty());
    }

    #[test]
    fn only_the_head_of_this_host_lends() {
        let view = view(&[0, 1, 2, 4, 5]);
        let no_head = group(&view, HOSTS, 1, 5);
        assert_eq!(
            [0, 1, 2, 3, 4, 5].map(|from| no_head.is_lent_by(Rank(from))),
            [false, false, false, false, true, false]
        );
        let head = group(&view, HOSTS, 1, 4);
        assert!(ALL.iter().all(|from| !head.is_lent_by(Rank(*from))));
        // The root is the leader of its host, whatever its rank.
        assert!(group(&view, HOSTS, 1, 0).is_lent_by(Rank(1)));
    }

    #[test]
    fn the_maker_of_a_stream_judges_and_a_member_that_waits_does_much_later() {
        let view = view(&ALL);
        let (mut groups, mut now) = (groups(), Time(0));
        let theirs = group(&view, HOSTS, 1, 2);
        groups.stream_came(&theirs, Rank(1), 'r', now);
        now += GRACE - NS;
        groups.step(&theirs, false, now);
        assert!(groups.lost.is_empty());
        now += NS;
        groups.step(&theirs, false, now);
        assert_eq!(groups.lost, [(Rank(4), now)], "this member makes the stream to it");
        assert!(groups.overdue(&view, Rank(2), now + (GRACE - NS)).is_empty());
        assert_eq!(groups.overdue(&view, Rank(2), now + GRACE), [Remedy::Renew(Rank(4))]);
        assert!(groups.overdue(&view, Rank(2), now + GRACE).is_empty(), "once");

        let (mut groups, mut now) = (self::groups(), Time(0));
        let theirs = group(&view, HOSTS, 1, 4);
        groups.stream_came(&theirs, Rank(2), 's', now);
        for _ in 0..LATE_MAX {
            now += GRACE;
            groups.step(&theirs, false, now);
            // A second call within the time limit changes nothing.
            groups.step(&theirs, false, now + NS);
            assert!(groups.lost.is_empty());
        }
        now += GRACE;
        groups.step(&theirs, false, now);
        assert_eq!(groups.lost, [(Rank(1), now)], "the root has not made it");
    }

    #[test]
    fn a_view_is_renewed_once_for_a_way_that_does_not_come_about_and_each_time_for_one_that_breaks() {
        let (mut groups, mut view) = (groups(), view(&ALL));
        let same = view.clone();
        let mut lose = |groups: &mut ObjectGroups<char>| {
            // The member is lost to two groups.
            (0..2).for_each(|_| groups.lose(Rank(4), Time(0)));
            let remedies = groups.overdue(&view, Rank(1), Time(0) + GRACE);
            groups.end_view();
            view.id.0 += 1;
            remedies
        };
        assert_eq!(lose(&mut groups), [Remedy::Renew(Rank(4))]);
        assert_eq!(lose(&mut groups), [Remedy::Suspect(Rank(4)); 2]);
        groups.began(&group(&same, HOSTS, 1, 1));
        assert_eq!(lose(&mut groups), [Remedy::Renew(Rank(4))]);
        groups.began(&group(&same, HOSTS, 1, 1));
        assert_eq!(lose(&mut groups), [Remedy::Renew(Rank(4))]);
    }

    #[test]
    fn a_member_does_not_suspect_itself_and_a_view_that_ends_forgets_losses() {
        let (mut groups, view) = (groups(), view(&ALL));
        groups.lose(Rank(0), Time(0));
        groups.lose(Rank(1), Time(0));
        assert!(groups.is_pending());
        assert_eq!(groups.overdue(&view, Rank(0), Time(0) + GRACE), [Remedy::Renew(Rank(1))]);
        groups.lose(Rank(1), Time(0));
        groups.want(SubgroupId(0), Rank(0), Time(0));
        groups.end_view();
        assert!(!groups.is_pending() && groups.overdue(&view, Rank(0), Time(0) + GRACE).is_empty());
        assert_eq!(ObjectGroups::<()>::new(None).grace, LOST_GRACE);
    }

    #[test]
    fn tags_tell_groups_views_and_incarnations_apart() {
        let (first, mut second) = (view(&ALL), view(&ALL));
        second.id = ViewId(4);
        let tags = [
            group(&first, HOSTS, 1, 2).tag(7),
            group(&first, HOSTS, 2, 2).tag(7),
            group(&first, HOSTS, 1, 2).tag(8),
            group(&first, HOSTS, 1, 2).tag(7 << 64),
            group(&second, HOSTS, 1, 2).tag(7),
        ];
        assert!((0..tags.len()).all(|i| !tags[..i].contains(&tags[i])), "{tags:?}");
        assert_eq!(tags[0], group(&first, HOSTS, 1, 4).tag(7), "the same at all members");
    }

    /// Returns the racks of the bulk group of `root` in the only subgroup of a view of six members,
    /// each on its own host, with rank i in `racks[i]`. `None` means the binomial pipeline.
    fn racks(members: &[u32], racks: [Option<&str>; 6], root: u32) -> Option<Racks> {
        let racks = racks.map(|rack| rack.map(|rack| rack.parse::<RackName>().unwrap()));
        let view = view(members);
        let algorithm = |me: &u32| {
            let group = group(&view, [0, 1, 2, 3, 4, 5], root, *me);
            group.algorithm(|id| racks[id.0 as usize - 10].as_ref())
        };
        let mut all: Vec<Algorithm> = members.iter().map(algorithm).collect();
        all.dedup();
        match (all.pop(), all.is_empty()) {
            (Some(Algorithm::Hybrid(racks)), true) => Some(racks),
            (Some(Algorithm::BinomialPipeline), true) => None,
            other => panic!("{other:?}"),
        }
    }

    fn positions(list: &[&[u32]]) -> Option<Racks> {
        Some(Racks::new(list.iter().map(|rack| rack.iter().copied().map(Rank).collect()).collect()).unwrap())
    }

    #[test]
    fn the_senders_rack_is_the_first_and_the_sender_the_first_in_it() {
        let [a, b] = [Some("a"), Some("b")];
        let mixed = [a, a, b, None, b, None];
        assert_eq!(racks(&ALL, mixed, 0), positions(&[&[0, 1], &[2, 4], &[3, 5]]));
        // Ranks 4, 5, 0, 1, 2, 3 have the positions 0 to 5.
        assert_eq!(racks(&ALL, mixed, 4), positions(&[&[0, 4], &[1, 5], &[2, 3]]));
        // Only the racks of the subgroup's members count.
        assert_eq!(racks(&[1, 3, 4], mixed, 3), positions(&[&[0], &[1], &[2]]));
        assert_eq!(racks(&[2, 4], mixed, 4), None);
        assert_eq!(racks(&ALL, [a; 6], 2), None);
        assert_eq!(racks(&ALL, [None; 6], 2), None);
    }
}
