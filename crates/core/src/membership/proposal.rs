//! The result of a view change, as the words stored in a row: the next view, and the end of the old
//! one.
//!
//! ```text
//! words = checksum | count of the words behind it | ballot | view id | members: count, ids | nonvoters
//!       | subgroups: count, each: name, order, window, largest message, largest leftover, durability, clock, epoch, two rules, members, senders
//!       | trims: by subgroup of the old view that is touched, and sender | nonces of the members that were not in the old view
//! ```
//!
//! A peer may send any words. They are checked before they are used: the result of decoding is a
//! view that passes [`View::check`], and trims of the shape of the old view.
use crate::ids::{MemberId, Process, Rank, ViewId};
use crate::limits;
use crate::multicast::cursor::ROUNDS_MAX;
use crate::view::{Change, Durability, Order, Rule, SubgroupSpec, View};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The end of a view, by subgroup of that view and by sender rank in it. Messages of rounds below
/// these are delivered by every member that continues, and all other messages by none. A subgroup
/// that is not touched has no trims.
pub type Trims = Vec<Box<[u64]>>;

/// The value of an agreement.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct ProposalValue {
    /// The view after this one.
    pub(crate) next: View,
    /// The processes that join with it, in its order. A different process with the id of one of
    /// them is not in the view.
    pub(crate) joined: Vec<Process>,
    /// The end of the old view.
    pub(crate) trims: Trims,
}

/// Words before the content: checksum and count.
const HEAD: usize = 2;

/// Words before the view: checksum, count and ballot.
const CONTENT: usize = HEAD + 1;

/// Encodes a proposal as words, under the ballot of this word.
pub(crate) fn encode(ballot: u64, value: &ProposalValue) -> Vec<u64> {
    let ProposalValue { next, joined, trims } = value;
    let mut words = alloc::vec![0; HEAD];
    words.push(ballot);
    encode_view(next, &mut words);
    for trims in trims {
        words.extend_from_slice(trims);
    }
    words.extend(joined.iter().map(|process| u64::from(process.nonce)));
    sealed(words)
}

/// Returns the word of the ballot of a proposal; `None` if the words are not one complete proposal.
pub(crate) fn ballot_of(words: &[u64]) -> Option<u64> {
    content(words)?.first().copied()
}

/// Returns the same proposal under another ballot.
pub(crate) fn with_ballot(mut words: Vec<u64>, ballot: u64) -> Vec<u64> {
    words[HEAD] = ballot;
    words[0] = checksum(&words[1..]);
    words
}

/// Whether two proposals have the same value, for any ballots.
pub(crate) fn is_same(one: &[u64], other: &[u64]) -> bool {
    one.get(CONTENT..) == other.get(CONTENT..)
}

/// Decodes a proposal to end `old`; `None` if no correct member can have written it.
pub(crate) fn decode(words: &[u64], old: &View) -> Option<ProposalValue> {
    let mut reader = ProposalReader { words: content(words)?.get(CONTENT - HEAD..)? };
    let next = reader.view()?;
    let mut trims = Vec::with_capacity(old.subgroups.len());
    if !next.id.follows(old.id) || !old.has_sound_epochs(&next) {
        return None;
    }
    for (spec, is_touched) in old.subgroups.iter().zip(old.touched_by(&next)) {
        let of_senders = reader.take(if is_touched { spec.senders.len() } else { 0 })?;
        if of_senders.iter().any(|trim| *trim > ROUNDS_MAX) {
            return None;
        }
        trims.push(of_senders.into());
    }
    let joining = next.members.iter().filter(|id| !old.members.contains(id));
    let joined = joining.map(|id| Some(Process { id: *id, nonce: reader.short()? })).collect::<Option<Vec<_>>>()?;
    reader.words.is_empty().then_some(ProposalValue { next, joined, trims })
}

/// The number of words in a slot for proposals to follow `view`: enough for a view twice as large,
/// and for many joins at once.
pub(crate) fn words_max(view: &View) -> usize {
    let mut words = Vec::new();
    encode_view(view, &mut words);
    let trims: usize = view.subgroups.iter().map(|spec| spec.senders.len()).sum();
    CONTENT + 2 * words.len() + trims + limits::PROPOSAL_WORDS_SPARE
}

/// The number of words that encode which subgroups of `view` a ballot touches.
pub(crate) fn touched_words(view: &View) -> usize {
    CONTENT + view.subgroups.len().div_ceil(64)
}

/// Encodes which subgroups the ballot of this word touches.
pub(crate) fn encode_touched(ballot: u64, touched: &[bool]) -> Vec<u64> {
    let mut words = alloc::vec![0; CONTENT + touched.len().div_ceil(64)];
    words[HEAD] = ballot;
    for (i, _) in touched.iter().enumerate().filter(|(_, touched)| **touched) {
        words[CONTENT + i / 64] |= 1 << (i % 64);
    }
    sealed(words)
}

/// Decodes which of the `subgroups` of a view the ballot of this word touches; `None` if the words
/// are not complete or belong to another ballot.
pub(crate) fn decode_touched(words: &[u64], ballot: u64, subgroups: usize) -> Option<Vec<bool>> {
    let content = content(words)?;
    let bits = content.get(CONTENT - HEAD..)?;
    let is_whole = content.first() == Some(&ballot) && bits.len() == subgroups.div_ceil(64);
    is_whole.then(|| (0..subgroups).map(|i| bits[i / 64] >> (i % 64) & 1 == 1).collect())
}

/// A process that wants to be admitted.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(crate) struct Join {
    /// The process.
    pub(crate) process: Process,
    /// Whether it votes in its first view.
    pub(crate) votes: bool,
}

/// The changes that one member proposes for the next view.
#[derive(Clone, PartialEq, Eq, Hash, Debug, Default)]
pub(crate) struct ProposedChanges {
    /// The processes that want to be admitted, in the order in which they asked.
    pub(crate) joins: Vec<Join>,
    /// The changes of subgroups.
    pub(crate) changes: Vec<Change>,
}

impl ProposedChanges {
    /// Encodes the proposed changes. Words without any proposed change take no space.
    pub(crate) fn encode(&self) -> Vec<u64> {
        let mut words = alloc::vec![0; HEAD];
        words.push(self.joins.len() as u64);
        words.extend(self.joins.iter().flat_map(|join| {
            let Process { id, nonce } = join.process;
            [id.0, u64::from(nonce) | u64::from(join.votes) << 32]
        }));
        words.push(self.changes.len() as u64);
        for change in &self.changes {
            match change {
                Change::Create(spec) | Change::Alter(spec) => {
                    words.push(u64::from(matches!(change, Change::Alter(_))));
                    encode_subgroup(spec, 0, &mut words);
                }
                Change::Drop(name) => {
                    words.push(2);
                    encode_name(name, &mut words);
                }
                Change::Enter { name, id } | Change::Exit { name, id } => {
                    words.extend([3 + u64::from(matches!(change, Change::Exit { .. })), id.0]);
                    encode_name(name, &mut words);
                }
                Change::Clock { name, clock } => {
                    words.extend([5, *clock]);
                    encode_name(name, &mut words);
                }
            }
        }
        sealed(words)
    }

    /// Decodes proposed changes; `None` if no correct member can have written these words.
    pub(crate) fn decode(words: &[u64]) -> Option<ProposedChanges> {
        if words.first() == Some(&0) {
            return Some(ProposedChanges::default());
        }
        let mut reader = ProposalReader { words: content(words)? };
        let count = reader.count(limits::MEMBERS_MAX)?;
        let joins = (0..count).map(|_| reader.join()).collect::<Option<Vec<_>>>()?;
        let count = reader.count(limits::CHANGES_MAX)?;
        let changes = (0..count).map(|_| reader.change()).collect::<Option<Vec<_>>>()?;
        reader.words.is_empty().then_some(ProposedChanges { joins, changes })
    }
}

/// Fills in the checksum and count of words that begin with room for them.
fn sealed(mut words: Vec<u64>) -> Vec<u64> {
    words[1] = (words.len() - HEAD) as u64;
    words[0] = checksum(&words[1..]);
    words
}

/// The words after a correct checksum and count.
fn content(words: &[u64]) -> Option<&[u64]> {
    let count = usize::try_from(*words.get(1)?).ok()?;
    let words = words.get(..HEAD.checked_add(count)?)?;
    (words[0] == checksum(&words[1..])).then_some(&words[HEAD..])
}

impl View {
    /// Encodes the view as words, for processes that were not members of the view before.
    pub fn encode(&self) -> Vec<u64> {
        let mut words = Vec::new();
        encode_view(self, &mut words);
        words
    }

    /// Decodes the result of [`encode`](Self::encode); `None` for other words.
    pub fn decode(words: &[u64]) -> Option<View> {
        let mut reader = ProposalReader { words };
        let view = reader.view()?;
        reader.words.is_empty().then_some(view)
    }
}

/// The bit of a durability beside the number of copies: messages are delivered when they are durable.
const BEFORE_DELIVERY: u64 = 1 << 32;

fn encode_view(view: &View, words: &mut Vec<u64>) {
    words.push(view.id.0);
    encode_ids(&view.members, words);
    encode_ranks(&view.nonvoters, view.members.len(), words);
    words.push(view.subgroups.len() as u64);
    for spec in &view.subgroups {
        encode_subgroup(spec, view.members.len(), words);
    }
}

/// Encodes a subgroup of a view of `members` members.
fn encode_subgroup(spec: &SubgroupSpec, members: usize, words: &mut Vec<u64>) {
    encode_name(&spec.name, words);
    words.push(u64::from(spec.order == Order::Fifo));
    words.extend([spec.window, spec.message_bytes_max, spec.leftover_bytes_max]);
    words.push(match spec.durability {
        Durability::InMemory => 0,
        Durability::Logged { copies } => copies.into(),
        Durability::LoggedBeforeDelivery { copies } => BEFORE_DELIVERY | u64::from(copies),
    });
    words.push(spec.clock);
    words.push(spec.epoch.map_or(0, |epoch| epoch.0));
    for rule in [&spec.member_rule, &spec.sender_rule] {
        match rule {
            Rule::Everyone => words.push(0),
            Rule::Only(ids) => {
                words.push(1);
                encode_ids(ids, words);
            }
            Rule::First(count) => words.extend([2, u64::from(*count)]),
            Rule::Shard { set, least, most } => words.extend([3, *set, *least, *most].map(u64::from)),
        }
    }
    for ranks in [&spec.members, &spec.senders] {
        encode_ranks(ranks, members, words);
    }
}

/// Encodes a set of ranks of a view of `members` members, one bit each.
fn encode_ranks(ranks: &[Rank], members: usize, words: &mut Vec<u64>) {
    let first = words.len();
    words.resize(first + members.div_ceil(64), 0);
    for rank in ranks {
        words[first + rank.index() / 64] |= 1 << (rank.0 % 64);
    }
}

/// Encodes a name as its length and its bytes, with zeros behind them.
pub(crate) fn encode_name(name: &str, words: &mut Vec<u64>) {
    encode_bytes(name.as_bytes(), words);
}

/// Appends bytes with their number.
pub(crate) fn encode_bytes(bytes: &[u8], words: &mut Vec<u64>) {
    words.push(bytes.len() as u64);
    words.extend(bytes.chunks(8).map(|chunk| {
        let mut bytes = [0; 8];
        bytes[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(bytes)
    }));
}

fn encode_ids(ids: &[MemberId], words: &mut Vec<u64>) {
    words.push(ids.len() as u64);
    words.extend(ids.iter().map(|id| id.0));
}

struct ProposalReader<'a> {
    words: &'a [u64],
}

impl<'a> ProposalReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u64]> {
        let (taken, rest) = self.words.split_at_checked(count)?;
        self.words = rest;
        Some(taken)
    }

    fn word(&mut self) -> Option<u64> {
        Some(self.take(1)?[0])
    }

    fn count(&mut self, most: usize) -> Option<usize> {
        usize::try_from(self.word()?).ok().filter(|count| *count <= most)
    }

    fn short(&mut self) -> Option<u32> {
        u32::try_from(self.word()?).ok()
    }

    fn ids(&mut self) -> Option<Vec<MemberId>> {
        let count = self.count(limits::MEMBERS_MAX)?;
        Some(self.take(count)?.iter().copied().map(MemberId).collect())
    }

    fn join(&mut self) -> Option<Join> {
        let (id, word) = (MemberId(self.word()?), self.word()?);
        let process = Process { id, nonce: word as u32 };
        (word >> 33 == 0).then_some(Join { process, votes: word >> 32 == 1 })
    }

    /// Decodes a set of ranks of a view of `members` members, one bit each.
    fn ranks(&mut self, members: usize) -> Option<Vec<Rank>> {
        let words = self.take(members.div_ceil(64))?;
        let mut ranks = Vec::with_capacity(words.iter().map(|word| word.count_ones() as usize).sum());
        for (first, word) in (0..).step_by(64).zip(words) {
            let mut rest = *word;
            while rest != 0 {
                ranks.push(Rank(first + rest.trailing_zeros()));
                rest &= rest - 1;
            }
        }
        ranks.last().is_none_or(|last| last.index() < members).then_some(ranks)
    }

    fn rule(&mut self) -> Option<Rule> {
        match self.word()? {
            0 => Some(Rule::Everyone),
            1 => Some(Rule::Only(self.ids()?)),
            2 => Some(Rule::First(self.short()?)),
            3 => Some(Rule::Shard { set: self.short()?, least: self.short()?, most: self.short()? }),
            _ => None,
        }
    }

    fn name(&mut self) -> Option<String> {
        let len = self.count(limits::NAME_BYTES_MAX)?;
        let mut bytes: Vec<u8> = self.take(len.div_ceil(8))?.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        String::from_utf8(bytes).ok()
    }

    fn subgroup(&mut self, of: usize) -> Option<SubgroupSpec> {
        let name = self.name()?;
        let order = match self.word()? {
            0 => Order::Total,
            1 => Order::Fifo,
            _ => return None,
        };
        let (window, message_bytes_max, leftover_bytes_max) = (self.word()?, self.word()?, self.word()?);
        let durability = match self.word()? {
            0 => Durability::InMemory,
            word => match (u32::try_from(word & !BEFORE_DELIVERY).ok()?, word & BEFORE_DELIVERY) {
                (copies, 0) => Durability::Logged { copies },
                (copies, _) => Durability::LoggedBeforeDelivery { copies },
            },
        };
        let clock = self.word()?;
        let epoch = Some(ViewId(self.word()?)).filter(|epoch| epoch.0 != 0);
        let (member_rule, sender_rule) = (self.rule()?, self.rule()?);
        let (members, senders) = (self.ranks(of)?, self.ranks(of)?);
        Some(SubgroupSpec {
            name,
            members,
            senders,
            member_rule,
            sender_rule,
            order,
            window,
            message_bytes_max,
            leftover_bytes_max,
            durability,
            clock,
            epoch,
        })
    }

    fn change(&mut self) -> Option<Change> {
        match self.word()? {
            0 => Some(Change::Create(self.subgroup(0)?)),
            1 => Some(Change::Alter(self.subgroup(0)?)),
            2 => Some(Change::Drop(self.name()?)),
            kind @ (3 | 4) => {
                let (id, name) = (MemberId(self.word()?), self.name()?);
                Some(if kind == 3 { Change::Enter { name, id } } else { Change::Exit { name, id } })
            }
            5 => {
                let (clock, name) = (self.word()?, self.name()?);
                Some(Change::Clock { name, clock })
            }
            _ => None,
        }
    }

    fn view(&mut self) -> Option<View> {
        let (id, members) = (ViewId(self.word()?), self.ids()?);
        let nonvoters = self.ranks(members.len())?;
        let count = self.count(limits::SUBGROUPS_MAX)?;
        let subgroups = (0..count).map(|_| self.subgroup(members.len())).collect::<Option<Vec<_>>>()?;
        let view = View { id, members, nonvoters, subgroups: subgroups.into() };
        // The last member may leave: then no member continues.
        (view.members.is_empty() || view.check().is_ok()).then_some(view)
    }
}

/// FNV-1a by words, which distinguishes torn and arbitrary words from those that a member wrote.
fn checksum(words: &[u64]) -> u64 {
    words.iter().fold(0xcbf2_9ce4_8422_2325, |sum, word| (sum ^ word).wrapping_mul(0x100_0000_01b3).rotate_left(29))
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;
    use alloc::vec;

    fn view() -> View {
        let spec = |name: &str, order, member_rule, senders: &[u32]| SubgroupSpec {
            name: name.to_string(),
            members: vec![Rank(0), Rank(1), Rank(2)],
            senders: senders.iter().copied().map(Rank).collect(),
            member_rule,
            sender_rule: Rule::First(2),
            order,
            window: 10,
            message_bytes_max: 100,
            leftover_bytes_max: 0,
            durability: Durability::InMemory,
            clock: 0,
            epoch: None,
        };
        let subgroups = vec![
            spec("all of them", Order::Total, Rule::Everyone, &[0, 2]),
            spec("f", Order::Fifo, Rule::Only(vec![MemberId(5), MemberId(u64::MAX)]), &[1]),
        ];
        View {
            id: ViewId(7),
            members: vec![MemberId(5), MemberId(1), MemberId(9)],
            nonvoters: vec![Rank(1)],
            subgroups: subgroups.into(),
        }
    }

    fn without_joins(old: &View, trims: Trims) -> ProposalValue {
        ProposalValue { next: old.next(|_| true, &[], &[]), joined: vec![], trims }
    }

    #[test]
    fn a_proposal_says_what_it_said() {
        let mut old = view();
        old.subgroups[0].durability = Durability::LoggedBeforeDelivery { copies: 2 };
        let next = old.next(|rank| rank != Rank(1), &[MemberId(77), MemberId(78)], &[]);
        assert_eq!(next.members, [5, 9, 77, 78].map(MemberId));
        assert_eq!(next.subgroups[0].senders, [Rank(0), Rank(1)]);
        assert_eq!((&next.subgroups[1].members[..], &next.subgroups[1].senders[..]), (&[Rank(0)][..], &[Rank(0)][..]));
        let trims: Trims = vec![[3, 4].into(), [5].into()];
        let joined = vec![Process { id: MemberId(77), nonce: 1 }, Process { id: MemberId(78), nonce: u32::MAX }];
        let value = ProposalValue { next, joined, trims };
        let words = encode(6, &value);
        assert_eq!(ballot_of(&words), Some(6));
        let other = with_ballot(words.clone(), 8);
        assert!(is_same(&words, &other) && ballot_of(&other) == Some(8));
        assert!(words.len() <= words_max(&old));
        assert_eq!(decode(&words, &old), Some(value.clone()));
        assert_eq!(View::decode(&value.next.encode()), Some(value.next));
    }

    #[test]
    fn trims_that_no_round_reaches_are_refused() {
        let old = view();
        let proposal = |trim| encode(6, &without_joins(&old, vec![[3, trim].into(), [5].into()]));
        assert!(decode(&proposal(ROUNDS_MAX), &old).is_some());
        for trim in [ROUNDS_MAX + 1, u64::MAX] {
            assert_eq!(decode(&proposal(trim), &old), None);
        }
    }

    #[test]
    fn any_wrong_word_is_noticed() {
        let old = view();
        let words = encode(6, &without_joins(&old, vec![[3, 4].into(), [5].into()]));
        for i in 0..words.len() {
            for bit in [0, 17, 63] {
                let mut wrong = words.clone();
                wrong[i] ^= 1 << bit;
                assert_eq!(decode(&wrong, &old), None, "bit {bit} of word {i}");
            }
        }
        for len in 0..words.len() {
            assert_eq!(decode(&words[..len], &old), None);
        }
        let other = View { id: ViewId(6), ..old };
        assert_eq!(decode(&words, &other), None, "it does not follow that view");
    }

    #[test]
    fn proposed_changes_say_what_they_said_and_garbage_is_none() {
        let spec = view().subgroups.remove(1);
        let bare = SubgroupSpec { members: vec![], senders: vec![], ..spec };
        let name = "f".to_string();
        let proposed = ProposedChanges {
            joins: [(3, u32::MAX), (u64::MAX, 0)]
                .map(|(id, nonce)| Join { process: Process { id: MemberId(id), nonce }, votes: id > 3 })
                .into(),
            changes: vec![
                Change::Create(bare.clone()),
                Change::Alter(SubgroupSpec { member_rule: Rule::Shard { set: 1, least: 2, most: 3 }, ..bare }),
                Change::Drop(name.clone()),
                Change::Enter { name: name.clone(), id: MemberId(1) },
                Change::Exit { name: name.clone(), id: MemberId(2) },
                Change::Clock { name, clock: u64::MAX - 3 },
            ],
        };
        let words = proposed.encode();
        assert_eq!(ProposedChanges::decode(&words), Some(proposed));
        assert_eq!(ProposedChanges::decode(&[0; 20]), Some(ProposedChanges::default()));
        for i in 0..words.len() {
            let mut wrong = words.clone();
            wrong[i] ^= 1 << 9;
            assert_eq!(ProposedChanges::decode(&wrong), None, "word {i}");
        }
    }
}
