//! Subgroups that change while messages are in flight: shards that lose members and get others, and
//! windows and message sizes that grow and shrink.
use super::{JOINERS_MAX, PlannedChanges};
use crate::actions::{Action, ActionKind};
use crate::random::{Random, mix};
use spindle_core::wire::ring::frame_bytes;
use spindle_core::{Change, Rule, SubgroupSpec, View};

/// The approximate size of a ring in bytes, as in the first view.
const RING_BYTES: u64 = 8192;
/// How far clocks are raised at least, in ns: beyond the times of a run, which begin at 2^60.
const CLOCK_RAISE: u64 = (1 << 60) + (1 << 40);
/// The time before which clocks are raised, in ns: while most messages are sent.
const RAISED_BEFORE: u64 = 60_000;

/// Turns some of the subgroups into shards that divide the members among them.
pub(super) fn draw_shards(random: &mut Random, subgroups: &mut [SubgroupSpec], members: u32) {
    let count = subgroups.len() as u64;
    // If there are several subgroups, one of all members stays.
    let first = usize::from(count > 1);
    let shards = random.range(1, (count - first as u64).clamp(1, 2)) as usize;
    // Most shards have exactly as many members as they need.
    let each = (members / shards as u32).max(1);
    for spec in &mut subgroups[first..first + shards] {
        let least = random.range(1, u64::from(each).max(1)) as u32;
        let least = if random.one_in(3) { least } else { each };
        spec.member_rule = Rule::Shard { set: 1, least, most: least + random.below(3) as u32 };
        if random.one_in(2) {
            spec.sender_rule = Rule::Everyone;
        }
    }
}

/// Describes a change in one line.
pub(super) fn describe(change: &Change) -> String {
    match change {
        Change::Alter(spec) => {
            format!("{} gets a window of {} and messages to {} bytes", spec.name, spec.window, spec.message_bytes_max)
        }
        other => format!("{other:?}"),
    }
}

impl PlannedChanges {
    /// Draws members that leave or crash, and others that replace them a while later.
    pub(super) fn draw_turnover(&mut self, random: &mut Random, members: usize) {
        let unit = self.suspect_after_ns.unwrap_or(100_000);
        let mut at = random.below(100_000);
        for _ in 0..random.range(1, 2) {
            if self.joiners >= JOINERS_MAX {
                return;
            }
            let process = random.below(members as u64) as usize;
            let goes = match random.one_in(3) {
                true => ActionKind::Crash { process, actions: random.below(12) },
                false => ActionKind::Leave { process },
            };
            self.actions.push(Action::at(at, goes));
            self.joiners += 1;
            at += random.range(unit / 16, unit * 2);
            self.actions.push(Action::at(at, ActionKind::Join { process: members + self.joiners - 1 }));
            at += random.below(unit);
        }
        self.end_ns = self.end_ns.max(at);
    }

    /// Draws changes of windows and message sizes, for subgroups that keep their rules.
    pub(super) fn draw_alterations(&mut self, random: &mut Random, view: &View) -> Vec<Change> {
        let mut changes = vec![];
        let processes = view.members.len() + self.joiners;
        let horizon = self.end_ns + self.suspect_after_ns.unwrap_or(100_000);
        let mut at = random.below(horizon / 2);
        for _ in 0..random.range(1, 3) {
            let spec = random.pick(&(0..view.subgroups.len()).collect::<Vec<_>>());
            let spec = &view.subgroups[spec];
            let message_bytes_max = random.pick(&[0, 8, 24, 100, 600, 2000]);
            let fitting = (RING_BYTES / frame_bytes(message_bytes_max)).max(1);
            let window = random.range(1, 16).min(fitting);
            let (members, senders) = (vec![], vec![]);
            let altered = SubgroupSpec { members, senders, window, message_bytes_max, ..spec.clone() };
            let what = ActionKind::Change { process: random.below(processes as u64) as usize, change: changes.len() };
            changes.push(Change::Alter(altered));
            self.actions.push(Action::at(at, what));
            // Often the next change comes before the remaining messages of the last one have been
            // sent again.
            at += random.pick(&[1_000, 20_000, horizon / 2]);
        }
        self.add_raise(view, &mut changes, at);
        changes
    }

    /// Adds the raise of a logged subgroup's clock to some plans. It is not drawn, so that other seeds
    /// stay the same.
    fn add_raise(&mut self, view: &View, changes: &mut Vec<Change>, at: u64) {
        let Some(spec) = view.subgroups.iter().find(|spec| spec.is_logged()) else { return };
        if mix(at).is_multiple_of(2) {
            let process = (mix(at) >> 8) as usize % view.members.len();
            let what = ActionKind::Change { process, change: changes.len() };
            self.actions.push(Action::at(mix(at) % RAISED_BEFORE, what));
            changes.push(Change::Clock { name: spec.name.clone(), clock: CLOCK_RAISE + at });
        }
    }
}
