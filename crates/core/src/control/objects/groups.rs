//! The bulk groups of a view: how they come about, and which member is lost to them.
//!
//! For each sender of a subgroup that has an object there is a bulk group of the subgroup's members, in each view anew. One member of each host, its *head*,
//! takes part in what goes over streams, and lends it to the others of its host. The sender opens the group. The other heads take part when its stream
//! reaches them, and a member that is no head when its head's socket does.
//!
//! The head that has to make a stream judges the other one if that does not come about; a head that waits for it judges much later, when the maker has not been
//! judged either. A member that is lost to a group for long is at the end of a way that is broken: deaths are told sooner, and a member that has
//! left the group because the view was over is not in the view so long. Then the view is renewed, as the groups of the next one have ways of their own. The member is
//! suspected only if these do not come about.
use super::TARGET;
use crate::bulk::{Algorithm, Hosts, Racks};
use crate::control::RackName;
use crate::ids::{MemberId, Rank, SubgroupId, Time, ViewId};
use crate::view::View;
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;
use tracing::warn;

/// The pause between two looks at links that did not come about.
pub const LINK_LOOK: Duration = Duration::from_millis(50);
/// How long a member may be lost to a bulk group before that is remedied, where silence means nothing.
const LOST_GRACE: Duration = Duration::from_secs(1);
/// How often a link may be late before a member that waits for it, and does not make it, takes its maker for lost.
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
    /// The number of the group of `root` in a subgroup.
    pub fn number_of(subgroup: SubgroupId, root: Rank) -> u64 {
        u64::from(subgroup.0) << 32 | u64::from(root.0)
    }

    /// The group of this number, if there can be one with the member `me`. `host` tells on which host a member is.
    pub fn new(view: &'a View, number: u64, me: Rank, host: impl Fn(MemberId) -> u128) -> Option<ObjectGroup<'a>> {
        let (subgroup, root) = (SubgroupId((number >> 32) as u32), Rank(number as u32));
        let spec = view.subgroups.get(subgroup.index())?;
        // One whose epoch began before the view has no ring in it.
        if !spec.senders.contains(&root) || !spec.members.contains(&me) || spec.epoch.is_some() {
            return None;
        }
        let keys: Vec<u128> = spec.members.iter().map(|rank| host(view.members[rank.index()])).collect();
        let place = spec.members.iter().position(|rank| *rank == root)?;
        Some(ObjectGroup { view, subgroup, root, me, hosts: Hosts::new(Rank(place as u32), &keys) })
    }

    /// Its number in the view.
    pub fn number(&self) -> u64 {
        ObjectGroup::number_of(self.subgroup, self.root)
    }

    /// The view.
    pub fn view(&self) -> ViewId {
        self.view.id
    }

    /// The subgroup.
    pub fn subgroup(&self) -> SubgroupId {
        self.subgroup
    }

    /// The member that sends.
    pub fn root(&self) -> Rank {
        self.root
    }

    /// This member.
    pub fn me(&self) -> Rank {
        self.me
    }

    /// Whether this member sends.
    pub fn is_mine(&self) -> bool {
        self.root == self.me
    }

    /// Its members, by their ranks in the view. A member's place here is its rank in the group.
    pub fn members(&self) -> &'a [Rank] {
        &self.view.subgroups[self.subgroup.index()].members
    }

    /// The rank in the group of one of its members.
    ///
    /// # Panics
    /// If it is none.
    pub fn place(&self, member: Rank) -> Rank {
        let place = self.members().iter().position(|rank| *rank == member);
        Rank(place.expect("a member of the subgroup") as u32)
    }

    /// This member's rank in the group.
    pub fn my_place(&self) -> Rank {
        self.place(self.me)
    }

    /// The id of a member of the view.
    pub fn id(&self, member: Rank) -> MemberId {
        self.view.members[member.index()]
    }

    /// Which of its members share a host.
    pub fn hosts(&self) -> &Hosts {
        &self.hosts
    }

    /// The heads of the other hosts, in the order of the schedule.
    fn other_heads(&self) -> impl Iterator<Item = Rank> + Clone + use<'_, 'a> {
        let me = self.my_place();
        self.hosts.heads().iter().filter(move |place| **place != me).map(|place| self.members()[place.index()])
    }

    /// Whether this member takes part through a socket of `from`: it lends only as the head of this host.
    pub fn is_lent_by(&self, from: Rank) -> bool {
        from != self.me && self.members().contains(&from) && self.hosts.head(self.my_place()) == self.place(from)
    }

    /// Whether `from` and this member are heads of two hosts.
    fn is_between_heads(&self, from: Rank) -> bool {
        let is_head = |member| self.hosts.heads().contains(&self.place(member));
        from != self.me && self.members().contains(&from) && is_head(from) && is_head(self.me)
    }

    /// Whether the stream between this member and `other`, heads of two hosts, is this member's to make. The root makes all of its own, so that the others
    /// hear of the group; of two others it is the one of the lower rank.
    fn makes_stream(&self, other: Rank) -> bool {
        self.is_mine() || (other != self.root && self.me < other)
    }

    /// Tells this group from all others, with the incarnation of the group of members.
    pub fn tag(&self, incarnation: u128) -> u64 {
        let words = [incarnation as u64, (incarnation >> 64) as u64, self.view.id.0, self.number()];
        // FNV-1a, word by word.
        words.into_iter().fold(0xcbf2_9ce4_8422_2325, |hash, word: u64| (hash ^ word).wrapping_mul(0x100_0000_01b3))
    }

    /// How blocks spread from host to host: by racks as soon as there are two of them. All members are told the same racks, and that they were is
    /// checked when their streams begin.
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
pub enum Step<S> {
    /// Makes the stream to a head. To be repeated until it is there, at no cost if it is being made.
    Dial(MemberId),
    /// Begins, with the streams to the other heads, by their ranks in the group. If it has begun, [`ObjectGroups::began`] is called.
    Begin(Vec<(Rank, S)>),
}

/// The bulk groups of a member in one view. `S` is the driver's handle of a stream.
#[derive(Debug)]
pub struct ObjectGroups<S> {
    /// By number.
    groups: BTreeMap<u64, State<S>>,
    /// Members that are lost to a group of this view, since when.
    lost: Vec<(Rank, Time)>,
    /// How long they may be before that is remedied.
    grace: Duration,
    /// It is not known where all members are.
    waits: bool,
    /// Members for which a view was renewed, which one, and which have been in no group since.
    renewed: BTreeMap<MemberId, ViewId>,
}

/// The remedy for the loss of a member to a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Remedy {
    /// The view is renewed with the same members, if the way to this one is broken for large messages only.
    Renew(Rank),
    /// The member is suspected: a view was renewed for it, and it is in no group of the next one.
    Suspect(Rank),
}

#[derive(Debug)]
enum State<S> {
    /// Its streams are being made.
    Opening {
        /// The streams that are here, by the rank in the view.
        streams: BTreeMap<Rank, S>,
        since: Time,
        /// How often it was late.
        late: u32,
    },
    /// It is served.
    Begun,
}

impl<S> State<S> {
    fn opening(now: Time) -> State<S> {
        State::Opening { streams: BTreeMap::new(), since: now, late: 0 }
    }
}

impl<S> ObjectGroups<S> {
    /// The groups of a member that suspects others after such a silence, if at all.
    pub fn new(suspect_after: Option<Duration>) -> ObjectGroups<S> {
        let grace = suspect_after.unwrap_or(LOST_GRACE);
        ObjectGroups { groups: BTreeMap::new(), lost: Vec::new(), grace, waits: false, renewed: BTreeMap::new() }
    }

    /// The view has ended.
    pub fn end_view(&mut self) {
        self.groups.clear();
        self.lost.clear();
        self.waits = false;
    }

    /// Whether there are any, or are to be.
    pub fn are_there(&self) -> bool {
        !self.groups.is_empty()
    }

    /// Whether to come again soon: links may have to be tried again, or a loss be remedied.
    pub fn is_pending(&self) -> bool {
        self.waits || !self.lost.is_empty() || self.groups.values().any(|state| matches!(state, State::Opening { .. }))
    }

    /// Notes that a member is lost to a group.
    pub fn lose(&mut self, member: Rank, now: Time) {
        self.lost.push((member, now));
    }

    /// Returns what is to be done about members of `view` that are lost to a group for too long, once for each loss.
    pub fn overdue(&mut self, view: &View, me: Rank, now: Time) -> Vec<Remedy> {
        let (grace, renewed) = (self.grace, &mut self.renewed);
        let overdue = self.lost.extract_if(.., |(_, since)| now.since(*since) >= grace);
        let remedy = |rank: Rank| {
            let id = view.members[rank.index()];
            match renewed.get(&id) {
                // It is lost to several groups of this view.
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
        self.groups.entry(ObjectGroup::number_of(subgroup, me)).or_insert_with(|| State::opening(now));
    }

    /// Takes in a stream from `from`, unless the group has begun. A process that takes other members for heads than its peers is in no group with them, and learns
    /// it when its stream ends.
    pub fn stream_came(&mut self, group: &ObjectGroup<'_>, from: Rank, stream: S, now: Time) {
        if !group.is_between_heads(from) {
            return;
        }
        let state = self.groups.entry(group.number()).or_insert_with(|| State::opening(now));
        if let State::Opening { streams, .. } = state {
            streams.insert(from, stream);
        }
    }

    /// The numbers of the groups that have not begun.
    pub fn opening(&self) -> Vec<u64> {
        self.groups
            .iter()
            .filter(|(_, state)| matches!(state, State::Opening { .. }))
            .map(|(number, _)| *number)
            .collect()
    }

    /// Says what to do for a group that has not begun: makes the streams that are this member's to make, and begins when all are there. This member's own group
    /// does not begin before it `has_objects` for it.
    pub fn step(&mut self, group: &ObjectGroup<'_>, has_objects: bool, now: Time) -> Vec<Step<S>> {
        let Some(State::Opening { streams, since, late }) = self.groups.get_mut(&group.number()) else {
            return Vec::new();
        };
        let is_late = now.since(*since) >= self.grace;
        *late += u32::from(is_late);
        let mut steps = Vec::new();
        let missing: Vec<Rank> = group.other_heads().filter(|head| !streams.contains_key(head)).collect();
        for head in &missing {
            let is_mine = group.makes_stream(*head);
            if is_mine {
                steps.push(Step::Dial(group.id(*head)));
            }
            if is_late && (is_mine || *late > LATE_MAX) {
                let (view, member) = (group.view.id.0, group.id(*head).0);
                warn!(target: TARGET, view, member, is_mine, late, "stream for large messages does not come about");
                self.lost.push((*head, now));
            }
        }
        if is_late {
            *since = now;
        }
        if missing.is_empty() && (!group.is_mine() || has_objects) {
            let mut streams = core::mem::take(streams);
            let heads = group.other_heads().filter_map(|head| Some((group.place(head), streams.remove(&head)?)));
            steps.push(Step::Begin(heads.collect()));
        }
        steps
    }

    /// Says whether this member [knows the places](super::super::Roster::finds_places) of all. Until then no group opens, for no fault of its members: the wait
    /// for these begins afterwards. Returns the same.
    pub fn may_open(&mut self, knows_places: bool, now: Time) -> bool {
        self.waits = !knows_places;
        for state in self.groups.values_mut().filter(|_| !knows_places) {
            if let State::Opening { since, .. } = state {
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
        self.groups.insert(group.number(), State::Begun);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::view::SubgroupSpec;
    use alloc::vec;

    const GRACE: Duration = Duration::from_secs(2);
    const NS: Duration = Duration::from_nanos(1);

    /// A view of the members 10 to 15, in whose one subgroup these ranks are and send.
    fn view(members: &[u32]) -> View {
        let members: Vec<Rank> = members.iter().copied().map(Rank).collect();
        let spec = SubgroupSpec { senders: members.clone(), members, ..SubgroupSpec::of_everyone("s") };
        View { id: ViewId(3), members: (10..16).map(MemberId).collect(), nonvoters: vec![], subgroups: vec![spec] }
    }

    /// The group of `root` as `me` knows it, with member 10 + i on the host `hosts[i]`.
    fn group<'a>(view: &'a View, hosts: [u128; 6], root: u32, me: u32) -> ObjectGroup<'a> {
        let number = ObjectGroup::number_of(SubgroupId(0), Rank(root));
        ObjectGroup::new(view, number, Rank(me), |id| hosts[id.0 as usize - 10]).expect("a group")
    }

    const ALL: [u32; 6] = [0, 1, 2, 3, 4, 5];
    /// The heads of the group of rank 1 are the ranks 1, 2 and 4.
    const HOSTS: [u128; 6] = [1, 1, 2, 2, 3, 3];

    fn groups() -> ObjectGroups<char> {
        ObjectGroups::new(Some(GRACE))
    }

    fn dials(ids: &[u64]) -> Vec<Step<char>> {
        ids.iter().map(|id| Step::Dial(MemberId(*id))).collect()
    }

    #[test]
    fn there_is_a_group_for_each_sender_of_a_subgroup_of_mine() {
        let view = view(&[1, 3, 4]);
        let of = |subgroup, root, me| {
            let number = ObjectGroup::number_of(SubgroupId(subgroup), Rank(root));
            ObjectGroup::new(&view, number, Rank(me), |_| 0).map(|group| (group.number(), group.my_place()))
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
        // Another head, which hears of the group by the root's stream.
        let mut groups = self::groups();
        let theirs = group(&view, HOSTS, 1, 2);
        assert_eq!(groups.step(&theirs, false, now), []);
        groups.stream_came(&theirs, Rank(1), 'r', now);
        assert_eq!(groups.step(&theirs, false, now), dials(&[14]));
        // The third, to which the second makes it.
        let mut groups = self::groups();
        let theirs = group(&view, HOSTS, 1, 4);
        groups.stream_came(&theirs, Rank(1), 'r', now);
        assert_eq!(groups.step(&theirs, false, now), []);
        groups.stream_came(&theirs, Rank(2), 's', now);
        // By their places in the schedule.
        assert_eq!(groups.step(&theirs, false, now), [Step::Begin(vec![(Rank(1), 'r'), (Rank(2), 's')])]);
    }

    #[test]
    fn a_group_of_mine_begins_when_it_has_something_to_send_and_others_when_all_streams_are_here() {
        let view = view(&ALL);
        let (mut groups, now) = (groups(), Time(0));
        let mine = group(&view, HOSTS, 1, 1);
        groups.stream_came(&mine, Rank(2), 'a', now);
        groups.stream_came(&mine, Rank(4), 'b', now);
        assert_eq!(groups.step(&mine, false, now), []);
        assert_eq!(groups.step(&mine, true, now), [Step::Begin(vec![(Rank(2), 'a'), (Rank(4), 'b')])]);
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
        // The root is the head of its host, whatever its rank.
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
            // Often meanwhile.
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
            // To two groups.
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

    /// The racks of the bulk group of `root` in the one subgroup of a view of six, each on a host of its own, with rank i in `racks[i]`. None: the
    /// binomial pipeline.
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
        // Only those of the subgroup count.
        assert_eq!(racks(&[1, 3, 4], mixed, 3), positions(&[&[0], &[1], &[2]]));
        assert_eq!(racks(&[2, 4], mixed, 4), None);
        assert_eq!(racks(&ALL, [a; 6], 2), None);
        assert_eq!(racks(&ALL, [None; 6], 2), None);
    }
}
