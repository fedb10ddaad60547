//! The plan of a seed: a view, the senders, and the faults. It is drawn before the run, and printed
//! before its trace.
use crate::actions::{Action, ActionKind, InstallStep, When};
use crate::options::{Faults, Options, Setting, Visibility};
use crate::random::{Random, mix};
use drawing::{draw_ablation, draw_apps, draw_ids, draw_logs, draw_member, draw_members, draw_rules, draw_subgroups};
use spindle_core::{Ablation, Change, Liveness, MemberId, Rank, Rule, SubgroupId, View, ViewId};
use std::fmt;

mod alterations;
mod drawing;
mod large;

/// One thread of one member that sends in one subgroup.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct AppPlan {
    /// The thread's member, as an index into [`Plan::members`].
    pub member: usize,
    /// The subgroup in which it sends.
    pub subgroup: SubgroupId,
    /// The number of claims that it makes.
    pub claims: u32,
    /// The longest pause between two claims, in ns.
    pub think_ns: u64,
    /// The longest time from claim to commit, in ns.
    pub hold_ns: u64,
}

/// One process, and its faults.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemberPlan {
    /// Its id, for as long as it lives.
    pub id: MemberId,
    /// The longest time between two of its polls, in ns.
    pub poll_ns: u64,
    /// Its pauses: disjoint spans in ns, ascending.
    pub pauses: Vec<(u64, u64)>,
    /// The times at which its clock jumps, each with the jump in ns.
    pub clock_jumps: Vec<(u64, i64)>,
    /// The subgroups whose deliveries it hands to a consumer on another thread.
    pub hand_offs: Vec<SubgroupId>,
}

/// A whole run.
#[derive(Clone, PartialEq, Debug)]
pub struct Plan {
    /// The seed from which it was drawn.
    pub seed: u64,
    /// The first view.
    pub view: View,
    /// How stores become visible to the other members.
    pub visibility: Visibility,
    /// The optimisations that are on, at all members.
    pub ablation: Ablation,
    /// The faults that may occur.
    pub faults: Faults,
    /// All processes: those of the first view, by rank, then the joiners.
    pub members: Vec<MemberPlan>,
    /// The joins, leaves and failures, with their times.
    pub actions: Vec<Action>,
    /// Changes of subgroups, for [`ActionKind::Change`].
    pub changes: Vec<Change>,
    /// The silence after which a member is suspected, in ns; `None` if members are not suspected
    /// for silence.
    pub suspect_after_ns: Option<u64>,
    /// The sending threads.
    pub apps: Vec<AppPlan>,
    /// The longest time of a post in ns, by the rank of the posting member and of the peer.
    pub link_ns: Vec<Vec<u64>>,
    /// The longest time in which a consumer processes a batch, in ns.
    pub consumer_ns: u64,
    /// The number of events after which the run is reported as never coming to rest.
    pub events_max: u64,
    /// The setting from which it was drawn. In another setting the same seed gives another plan.
    pub setting: Setting,
}

/// The maximum number of joiners.
const JOINERS_MAX: usize = 8;
/// The maximum number of members in the first view, if members join and leave.
const SENIORS_MAX: u32 = 32;

impl Plan {
    /// Draws the plan of `seed`.
    ///
    /// # Panics
    /// If `options` asks for no members, for more than 64, or for a maximum below the minimum.
    pub fn from_seed(seed: u64, options: &Options) -> Plan {
        if options.setting == Setting::Large {
            return Plan::large(seed, options);
        }
        let (least, most) = (options.members_min, options.members_max);
        assert!((1..=64).contains(&least) && (least..=64).contains(&most), "1 to 64 members, not {least} to {most}");
        let mut random = Random::new(seed, 0);
        let mut faults = options.faults.draw(&mut random);
        if faults.long_lag {
            // A small group with one long stream keeps the seed affordable.
            (faults.many_subgroups, faults.tiny_windows, faults.skips) = (false, false, false);
        }
        // Joiners must fit below 64 members.
        faults.membership = (faults.membership || options.setting == Setting::Views) && least <= SENIORS_MAX;
        if faults.membership {
            // Rings that many senders share and close at different times have seeds of their own.
            (faults.many_subgroups, faults.long_lag, faults.early_close) = (false, false, false);
        }
        faults.objects = options.faults.objects && mix(seed ^ 0x0b_1ec7).is_multiple_of(3);
        let members = draw_members(&mut random, &faults, options);
        let mut ablation = draw_ablation(&mut random, &faults);
        ablation.epochs = !mix(seed ^ 0x0e_90c4).is_multiple_of(4);
        // Without nulls all senders must send the same number of rounds, which members that join or
        // leave do not.
        ablation.null_sends |= faults.membership;
        let mut subgroups = draw_subgroups(&mut random, &faults, members);
        if !ablation.null_sends || (faults.membership && !ablation.receive_batch) {
            // Every sender must send as many rounds as the others, or its subgroup stops. A large
            // group that receives one sequence number at a time would take very long for the
            // skipped rounds.
            faults.skips = false;
        }
        faults.logs = options.faults.logs && mix(seed ^ 0x1_0661).is_multiple_of(3);
        if faults.logs {
            draw_logs(seed, &mut subgroups, members, faults.membership);
        }
        let visibility = random.pick(&[Visibility::Posted, Visibility::Shared]);
        let visibility = options.visibility.unwrap_or(visibility);
        let mut changes = match faults.membership {
            true => PlannedChanges::draw(&mut Random::new(seed, 3), &faults, options, visibility, members),
            false => PlannedChanges::default(),
        };
        faults.absent_rows = options.faults.absent_rows && faults.membership && visibility == Visibility::Shared;
        if faults.absent_rows {
            faults.absent_rows = changes.draw_absent_rows(&mut Random::new(seed, 5), members as usize);
        }
        faults.splits = options.faults.splits && faults.membership && visibility == Visibility::Posted;
        if faults.splits {
            faults.splits = changes.draw_splits(&mut Random::new(seed, 6), members as usize);
        }
        faults.shards = options.faults.shards && faults.membership && mix(seed ^ 0x5_4a2d).is_multiple_of(3);
        if faults.shards {
            changes.draw_turnover(&mut Random::new(seed, 7), members as usize);
        }
        let ids = draw_ids(&mut random, members as usize + changes.joiners);
        let first = &ids[..members as usize];
        let view = if faults.membership {
            draw_rules(&mut Random::new(seed, 4), &ids, &mut subgroups);
            if faults.shards {
                alterations::draw_shards(&mut Random::new(seed, 8), &mut subgroups, members);
            }
            // The first view follows from the rules, as every later view does.
            View { id: ViewId(0), members: vec![], nonvoters: vec![], subgroups: subgroups.into() }.next(
                |_| true,
                first,
                &[],
            )
        } else {
            View { id: ViewId(1), members: first.to_vec(), nonvoters: vec![], subgroups: subgroups.into() }
        };
        let apps = match faults.membership {
            true => changes.draw_apps(&mut random, &view, &ids, options.deliveries / 2),
            false => draw_apps(&mut random, &faults, &view, &ablation, options.deliveries),
        };
        faults.alterations = options.faults.alterations && faults.membership && mix(seed ^ 0xa17e2).is_multiple_of(3);
        let altered = match faults.alterations {
            true => changes.draw_alterations(&mut Random::new(seed, 9), &view),
            false => vec![],
        };
        let slow_link = |random: &mut Random| if faults.slow_links && random.one_in(4) { 20_000 } else { 2_000 };
        let processes = 0..ids.len();
        Plan {
            seed,
            visibility,
            ablation,
            members: ids.iter().map(|id| draw_member(&mut random, &faults, &view, *id)).collect(),
            link_ns: processes.clone().map(|_| processes.clone().map(|_| slow_link(&mut random)).collect()).collect(),
            consumer_ns: if faults.slow_consumers { 30_000 } else { 1_500 },
            actions: changes.actions,
            changes: altered,
            suspect_after_ns: changes.suspect_after_ns,
            view,
            faults,
            apps,
            events_max: options.events_max,
            setting: options.setting,
        }
    }

    /// Returns when members signal that they live. Members of one host signal while others wait for
    /// them.
    pub(crate) fn liveness(&self) -> Liveness {
        match self.visibility {
            Visibility::Shared => Liveness::OnDemand,
            Visibility::Posted => Liveness::Constant,
        }
    }

    /// Returns the links that are cut, by processes: the time, the sender and the receiver.
    pub(crate) fn cuts(&self) -> impl Iterator<Item = (When, usize, usize)> {
        self.actions.iter().filter_map(|action| match action.what {
            ActionKind::Cut { from, to, .. } => Some((action.when, from, to)),
            _ => None,
        })
    }

    /// Returns true if no fault affects the process itself, apart from faults of its links. It runs
    /// all the time, is never falsely suspected, and is never made to suspect another process.
    pub(crate) fn leaves_alone(&self, process: usize) -> bool {
        let is_met = |action: &Action| match action.what {
            ActionKind::Crash { process: one, .. }
            | ActionKind::Hang { process: one, .. }
            | ActionKind::Leave { process: one } => one == process,
            ActionKind::Suspect { by: one, whom: other } | ActionKind::Miss { process: one, whom: other } => {
                one == process || other == process
            }
            ActionKind::Join { .. } | ActionKind::Cut { .. } | ActionKind::Change { .. } => false,
        };
        let MemberPlan { pauses, clock_jumps, .. } = &self.members[process];
        pauses.is_empty() && clock_jumps.is_empty() && !self.actions.iter().any(is_met)
    }
}

/// The changes of the membership.
#[derive(Debug, Default)]
struct PlannedChanges {
    actions: Vec<Action>,
    joiners: usize,
    suspect_after_ns: Option<u64>,
    /// The time at which the last change has begun, in ns.
    end_ns: u64,
}

impl PlannedChanges {
    fn draw(
        random: &mut Random,
        faults: &Faults,
        options: &Options,
        visibility: Visibility,
        members: u32,
    ) -> PlannedChanges {
        // Over a network only silence shows that a member has failed.
        let silence = visibility == Visibility::Posted || random.one_in(2);
        let suspect_after_ns = silence.then(|| random.pick(&[500_000, 1_000_000, 2_000_000]));
        let mut changes = PlannedChanges { suspect_after_ns, ..PlannedChanges::default() };
        let kinds = [faults.crashes, faults.hangs, faults.false_suspicions, faults.joins, faults.leaves, faults.cuts];
        // Joins count twice, so that enough members are left for the other changes.
        let kinds: Vec<usize> = (0..6).chain([3]).filter(|kind| kinds[*kind]).collect();
        let count = if kinds.is_empty() { 0 } else { random.range(1, options.actions.max(1)) };
        // Often all changes come at once, often one change of the view after the other.
        let unit = suspect_after_ns.unwrap_or(100_000);
        let spread = random.pick(&[unit / 64, unit / 4, unit * 2, unit * 4]);
        for _ in 0..count {
            let together = random.one_in(3);
            changes.end_ns += if together { random.below(2) * random.below(2_000) } else { random.below(spread) };
            let kind = random.pick(&kinds);
            let what = changes.what(random, kind, visibility, members as usize);
            // Half of the crashes and suspicions occur in the middle of an agreement.
            let step = random.pick(&[
                InstallStep::Suspects,
                InstallStep::Wedges,
                InstallStep::Adopts,
                InstallStep::Decides,
                InstallStep::Ends,
                InstallStep::Installs,
            ]);
            let on = When::Step { process: random.below(u64::from(members)) as usize, view: random.range(1, 4), step };
            let when = if matches!(kind, 0 | 2) && random.one_in(2) { on } else { When::At(changes.end_ns) };
            let what = match (what, on) {
                (Some(ActionKind::Crash { actions, .. }), When::Step { process, .. }) if when == on => {
                    Some(ActionKind::Crash { process, actions })
                }
                _ => what,
            };
            changes.actions.extend(what.map(|what| Action { when, what }));
            // A lost process returns under another id.
            if faults.joins && kind != 3 && random.one_in(2) {
                let what = changes.what(random, 3, visibility, members as usize);
                let at = changes.end_ns + random.below(unit * 2);
                changes.actions.extend(what.map(|what| Action::at(at, what)));
            }
        }
        changes
    }

    fn what(&mut self, random: &mut Random, kind: usize, visibility: Visibility, members: usize) -> Option<ActionKind> {
        let process = random.below((members + self.joiners) as u64) as usize;
        let other = random.below((members + self.joiners) as u64) as usize;
        let silence = self.suspect_after_ns.unwrap_or(1_000_000);
        Some(match kind {
            0 => ActionKind::Crash { process, actions: random.below(12) },
            1 => ActionKind::Hang { process, ns: silence * random.pick(&[40, 85, 95, 105, 130, 400]) / 100 },
            2 if process != other => ActionKind::Suspect { by: process, whom: other },
            3 if self.joiners < JOINERS_MAX => {
                self.joiners += 1;
                ActionKind::Join { process: members + self.joiners - 1 }
            }
            4 => ActionKind::Leave { process },
            5 if process != other && visibility == Visibility::Posted => {
                let ns = match random.below(6) {
                    0 => u64::MAX,
                    _ => silence * random.pick(&[30, 90, 120, 300]) / 100,
                };
                ActionKind::Cut { from: process, to: other, ns }
            }
            _ => return None,
        })
    }

    /// Draws members that begin views without the memory of others, in about half of the seeds.
    /// Returns true if any were drawn.
    fn draw_absent_rows(&mut self, random: &mut Random, members: usize) -> bool {
        let processes = members + self.joiners;
        for _ in 0..random.below(2) * random.range(1, 3) {
            let view = random.range(2, 4);
            let one_side = |random: &mut Random| -> Vec<bool> { (0..processes).map(|_| random.one_in(2)).collect() };
            let side = match random.below(3) {
                0 => one_side(random),
                _ => {
                    let alone = random.below(processes as u64) as usize;
                    (0..processes).map(|process| process == alone).collect()
                }
            };
            // One side lacks the memory of the other, or the reverse, or both; not always all of
            // it.
            let (to, from, chance) = (random.below(3), random.below(3), random.range(1, 3));
            for process in 0..processes {
                for whom in (0..processes).filter(|whom| *whom != process) {
                    let misses = match (side[process], side[whom]) {
                        (true, false) => to != 0,
                        (false, true) => from != 0,
                        _ => false,
                    };
                    if misses && random.below(3) < chance {
                        let what = ActionKind::Miss { process, whom };
                        self.actions.push(Action::on(process, view, InstallStep::Installs, what));
                    }
                }
            }
            // Many of them crash on the way: in this view, or as soon as the next one has begun.
            let dying = match random.below(3) {
                0 => side.clone(),
                1 => side.iter().map(|is_in| !is_in).collect(),
                _ => one_side(random),
            };
            let crashes = random.one_in(2);
            for process in (0..processes).filter(|process| crashes && dying[*process]) {
                let step = random.pick(&[
                    InstallStep::Adopts,
                    InstallStep::Adopts,
                    InstallStep::Decides,
                    InstallStep::Ends,
                    InstallStep::Installs,
                ]);
                let view = view + u64::from(step == InstallStep::Installs);
                let what = ActionKind::Crash { process, actions: random.below(12) };
                self.actions.push(Action::on(process, view, step, what));
            }
        }
        self.actions.iter().any(|action| matches!(action.what, ActionKind::Miss { .. }))
    }

    /// Draws members that lose contact with the others and regain it, in about half of the seeds.
    /// Returns true if any were drawn. Mostly the contact is lost for about the suspicion time, so
    /// that these members return in the middle of the agreement without them.
    fn draw_splits(&mut self, random: &mut Random, members: usize) -> bool {
        let processes = members + self.joiners;
        let silence = self.suspect_after_ns.expect("over a network silence has a meaning");
        let count = random.below(2) * random.range(1, 2);
        for _ in 0..count {
            let alone = random.below(2) as usize * random.below(processes as u64) as usize;
            let side: Vec<bool> = match random.one_in(3) {
                true => (0..processes).map(|_| random.one_in(3)).collect(),
                false => (0..processes).map(|process| process == alone).collect(),
            };
            // One side does not hear the other, or the reverse, or both. Links need not be restored
            // at the same time.
            let (out, back) = random.pick(&[(true, true), (true, false), (false, true)]);
            let (least, most) = random.pick(&[(90, 110), (95, 140), (30, 300)]);
            let percent = random.range(least, most);
            let spread = random.pick(&[1, silence / 64, silence / 4]);
            let step = random.pick(&[
                InstallStep::Suspects,
                InstallStep::Wedges,
                InstallStep::Adopts,
                InstallStep::Decides,
                InstallStep::Installs,
            ]);
            let on = When::Step { process: random.below(members as u64) as usize, view: random.range(1, 3), step };
            let at = When::At(random.below(self.end_ns + silence));
            let when = if random.one_in(3) { on } else { at };
            for from in 0..processes {
                for to in 0..processes {
                    let is_cut = match (side[from], side[to]) {
                        (true, false) => out,
                        (false, true) => back,
                        _ => false,
                    };
                    let ns = silence * percent / 100 + random.below(spread);
                    if is_cut {
                        self.actions.push(Action { when, what: ActionKind::Cut { from, to, ns } });
                    }
                }
            }
        }
        count > 0
    }

    /// Draws applications whose messages are spread over the time in which the membership changes.
    fn draw_apps(&self, random: &mut Random, view: &View, ids: &[MemberId], deliveries: u64) -> Vec<AppPlan> {
        let mut apps = vec![];
        let horizon = self.end_ns + self.suspect_after_ns.unwrap_or(100_000) * random.range(1, 3);
        for (subgroup, spec) in (0..).map(SubgroupId).zip(&view.subgroups) {
            let total = random.range(deliveries / 4, deliveries) / view.subgroups.len() as u64;
            let each = (total / view.members.len() as u64).max(2);
            for (member, id) in ids.iter().enumerate() {
                let may_send = |rule: &Rule| !matches!(rule, Rule::Only(list) if !list.contains(id));
                let claims = [0, random.range(1, each), each, each * 2][random.below(4) as usize];
                if claims == 0 || !may_send(&spec.member_rule) || !may_send(&spec.sender_rule) {
                    continue;
                }
                let threads = if random.one_in(2) { 1 } else { random.range(2, 3).min(claims) };
                for _ in 0..threads {
                    let claims = claims / threads;
                    // Some end long before the run does, and some keep their rings full.
                    let think_ns = (horizon * random.pick(&[0, 1, 2, 4]) / 2 / claims).max(200);
                    let hold_ns = random.pick(&[50, 500, 5_000, 100_000]);
                    apps.push(AppPlan { member, subgroup, claims: claims as u32, think_ns, hold_ns });
                }
            }
        }
        apps
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let ranks = |list: &[Rank]| list.iter().map(|r| format!("m{r}")).collect::<Vec<_>>().join(" ");
        writeln!(f, "seed {}: {} members, {:?} memory", self.seed, self.view.members.len(), self.visibility)?;
        writeln!(f, "faults: {}", self.faults.names().join(", "))?;
        let Ablation {
            send_batch,
            receive_batch,
            delivery_batch,
            null_sends,
            coalesced_control,
            deferred_posts,
            epochs,
        } = self.ablation;
        let off: Vec<&str> = [
            (send_batch, "send_batch"),
            (receive_batch, "receive_batch"),
            (delivery_batch, "delivery_batch"),
            (null_sends, "null_sends"),
            (coalesced_control, "coalesced_control"),
            (deferred_posts, "deferred_posts"),
            (epochs, "epochs"),
        ]
        .iter()
        .filter(|o| !o.0)
        .map(|o| o.1)
        .collect();
        if let Some(ns) = self.suspect_after_ns {
            writeln!(f, "suspected after: {ns} ns of silence")?;
        }
        writeln!(f, "switched off: {}", if off.is_empty() { "nothing".into() } else { off.join(", ") })?;
        for (id, s) in (0..).map(SubgroupId).zip(&self.view.subgroups) {
            let order = format!("{:?}", s.order).to_lowercase();
            write!(
                f,
                "subgroup s{id}: {order} order, window {}, messages to {} bytes, ",
                s.window, s.message_bytes_max
            )?;
            write!(f, "members {}, senders {}", ranks(&s.members), ranks(&s.senders))?;
            let rule = |rule: &Rule| match rule {
                Rule::Everyone => "everyone".into(),
                Rule::Only(ids) => ids.iter().map(|id| format!("#{id}")).collect::<Vec<_>>().join(" "),
                Rule::First(count) => format!("the first {count}"),
                Rule::Shard { set, least, most } => format!("a shard of {least} to {most} of set {set}"),
            };
            match self.faults.membership {
                true => writeln!(f, ", later {}, of them {}", rule(&s.member_rule), rule(&s.sender_rule))?,
                false => writeln!(f)?,
            }
        }
        for (process, member) in self.members.iter().enumerate() {
            let who = if process < self.view.members.len() { "member m" } else { "joiner p" };
            write!(f, "{who}{process}: id #{}, polls within {} ns", member.id, member.poll_ns)?;
            for (from, to) in &member.pauses {
                write!(f, ", pauses {from}..{to} ns")?;
            }
            for (at, by) in &member.clock_jumps {
                write!(f, ", clock {by:+} ns at {at} ns")?;
            }
            for id in &member.hand_offs {
                write!(f, ", hands off s{id}")?;
            }
            for app in self.apps.iter().filter(|app| app.member == process) {
                write!(f, ", thread sends {} in s{}", app.claims, app.subgroup)?;
            }
            writeln!(f)?;
        }
        for (i, change) in self.changes.iter().enumerate() {
            writeln!(f, "change {i}: {}", alterations::describe(change))?;
        }
        self.actions.iter().try_for_each(|action| writeln!(f, "{action}"))
    }
}
