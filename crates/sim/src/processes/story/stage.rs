//! The stage: a run whose faults and messages come from a story.
use super::super::objects::OBJECT_BYTES_MIN;
use super::super::plan::{FOREVER_NS, HostsFault, MS, S};
use super::super::process::{ProcessPhase, SimProcess};
use super::super::proposed_changes::ProposedChange;
use super::super::subgroups::{LONG_BYTES, Unsent};
use super::super::world::{Broken, HostsWorld, ProcessEvent};
use super::script::{Directive, Stated, index};
use super::telling::Telling;

/// The longest time of an `until`.
const PATIENCE_NS: u64 = 120 * S;

/// A run of a story.
pub(super) struct StoryStage<'s> {
    world: HostsWorld<'s>,
    stated: &'s Stated,
    /// The cuts: the hosts of both sides.
    cuts: Vec<(u64, u64)>,
    /// The number of the next directive's end.
    until_ns: u64,
}

impl<'s> StoryStage<'s> {
    pub(super) fn new(stated: &'s Stated, broken: Broken) -> StoryStage<'s> {
        let mut world = HostsWorld::new(&stated.scene, broken, None);
        world.telling = Some(Box::new(Telling::new(stated.names.clone())));
        StoryStage { world, stated, cuts: vec![], until_ns: 0 }
    }

    /// Returns the trace since the last call.
    pub(super) fn take_trace(&mut self) -> String {
        self.world.telling.as_mut().expect("a story").take()
    }

    /// Carries out a directive.
    pub(super) fn play(&mut self, directive: &Directive) -> Result<(), String> {
        match directive {
            Directive::Processes(_)
            | Directive::Members(_)
            | Directive::Durable
            | Directive::State
            | Directive::SuspectAfter(_)
            | Directive::Delay(..)
            | Directive::Subgroup(_)
            | Directive::Settings(..)
            | Directive::Large => Ok(()),
            Directive::Bootstrap => self.bootstrap(),
            Directive::Run(ns) => self.run(self.until_ns + ns),
            Directive::Until(process, text) => self.until(process, text),
            Directive::Send { by, count, subgroup, bytes } => self.send(by, *count, subgroup.as_deref(), *bytes),
            Directive::Crash(names) => names.iter().try_for_each(|name| {
                let place = self.place(name)?;
                self.inflict(HostsFault::Kill { place, down_ns: None, renamed: false });
                Ok(())
            }),
            Directive::Restart(name, renamed) => {
                let place = self.place(name)? as usize;
                let id = renamed.then(|| self.world.new_id(place));
                self.world.places[place].is_over = false;
                self.world.push(self.until_ns, ProcessEvent::Start { place, id });
                Ok(())
            }
            Directive::Pause(name, ns) => {
                let place = self.place(name)?;
                self.inflict(HostsFault::Pause { place, ns: *ns });
                Ok(())
            }
            Directive::Cut { from, to, both } => {
                let (from, to) = (self.hosts(from)?, self.hosts(to)?);
                let pairs = [(from, to), (to, from)];
                for (from, to) in pairs.into_iter().take(1 + usize::from(*both)) {
                    self.world.cut_links(from, to, FOREVER_NS);
                    self.cuts.push((from, to));
                }
                Ok(())
            }
            Directive::Heal => {
                self.heal();
                Ok(())
            }
            Directive::Join(name, _) | Directive::Observe(name, _) => {
                let place = self.place(name)? as usize;
                self.world.push(self.until_ns, ProcessEvent::Start { place, id: None });
                Ok(())
            }
            Directive::Leave(name) => {
                let place = self.place(name)?;
                self.inflict(HostsFault::Leave { place, down_ns: None });
                Ok(())
            }
            Directive::Evict(whom, by) => {
                let (by, whom) = (self.place(by)?, self.place(whom)?);
                self.inflict(HostsFault::Evict { by, whom });
                Ok(())
            }
            Directive::GiveUp(lost, by) => {
                let by = self.process(by)?.number;
                let lost = lost.iter().map(|name| self.last_id(name)).collect::<Result<Vec<_>, _>>()?;
                self.world.ask_to_give_up(by, 1, lost);
                Ok(())
            }
            Directive::Create(by, spec) => self.propose(by, ProposedChange::Create(spec.clone())),
            Directive::Alter(by, name, window) => {
                let (name, window, message_bytes_max, rule) = (name.clone(), *window, LONG_BYTES, None);
                self.propose(by, ProposedChange::Alter { name, window, message_bytes_max, rule })
            }
            Directive::Drop(by, name) => self.propose(by, ProposedChange::Drop(name.clone())),
            Directive::ExpectView { view, at, members } => self.expect_view(*view, at, members),
            Directive::ExpectDelivered { at, messages } => at.iter().try_for_each(|name| {
                let found = self.telling().delivered_by(name);
                expect(found == *messages, || format!("{name} has delivered {}", found.join(" ")))
            }),
            Directive::ExpectUndelivered(messages) => messages.iter().try_for_each(|message| {
                let found = self.telling().who_delivered(message);
                expect(found.is_empty(), || format!("{message} was delivered by {}", found.join(" ")))
            }),
            Directive::ExpectBlocked(names) => names.iter().try_for_each(|name| {
                let process = self.process(name)?;
                let is_blocked = matches!(&process.phase, ProcessPhase::Member(member) if member.engine().is_blocked());
                expect(is_blocked, || format!("{name} is not blocked"))
            }),
            Directive::ExpectNoView(view) => {
                let begun = self.telling().newest_view();
                expect(begun < *view, || format!("view {begun} has begun"))
            }
        }
    }

    /// Ends the faults of the story, and runs until the checkers find the group at rest.
    pub(super) fn end(mut self) -> Result<(), String> {
        self.heal();
        self.world.begin_calm(self.until_ns);
        let outcome = self.world.run();
        match outcome.violations.first() {
            Some(violation) => Err(format!("after the last block: {violation}")),
            None => Ok(()),
        }
    }

    fn telling(&self) -> &Telling {
        self.world.telling.as_ref().expect("a story")
    }

    fn inflict(&mut self, fault: HostsFault) {
        self.world.inflict(0, fault);
    }

    fn place(&self, name: &str) -> Result<u32, String> {
        index(&self.stated.names, name).map(|at| at as u32)
    }

    fn hosts(&self, names: &[String]) -> Result<u64, String> {
        let host = |name: &String| self.place(name).map(|place| self.stated.scene.places[place as usize].host);
        names.iter().try_fold(0, |hosts, name| Ok(hosts | 1 << host(name)?))
    }

    fn process(&self, name: &str) -> Result<&SimProcess, String> {
        let place = self.place(name)? as usize;
        let running = self.world.places[place].process.and_then(|number| self.world.processes[number].as_deref());
        running.ok_or_else(|| format!("no process runs as {name}"))
    }

    fn last_id(&self, name: &str) -> Result<spindle_core::MemberId, String> {
        let place = self.place(name)? as usize;
        self.world.places[place].last_id.ok_or_else(|| format!("{name} was never started"))
    }

    fn run(&mut self, until_ns: u64) -> Result<(), String> {
        self.until_ns = until_ns;
        self.world.run_until(until_ns).map_err(|violation| violation.to_string())
    }

    fn until(&mut self, process: &str, text: &str) -> Result<(), String> {
        let end = self.until_ns + PATIENCE_NS;
        while !self.telling().has(process, text) {
            if self.until_ns >= end {
                return Err(format!("nothing like it within {} s", PATIENCE_NS / S));
            }
            self.run(self.until_ns + MS / 5)?;
        }
        Ok(())
    }

    fn bootstrap(&mut self) -> Result<(), String> {
        for name in &self.stated.names[..self.stated.founders] {
            self.until(name, "begins view 1:")?;
        }
        self.world.telling.as_mut().expect("a story").keep_views();
        Ok(())
    }

    fn send(&mut self, by: &str, count: u32, subgroup: Option<&str>, bytes: Option<usize>) -> Result<(), String> {
        let process = self.process(by)?.number;
        let subgroup = subgroup.unwrap_or(&self.stated.scene.subgroups[0].name);
        if bytes.is_some_and(|bytes| bytes < OBJECT_BYTES_MIN) {
            return Err(format!("a large message has at least {OBJECT_BYTES_MIN} bytes"));
        }
        for _ in 0..count {
            let number = self.world.ledger.sends(process as u32, subgroup);
            let sent = (process as u32, number);
            let unsent = bytes.map_or_else(|| Unsent::message(sent, 0), |bytes| Unsent::object(sent, bytes));
            let sender = self.world.living(process).expect("it runs");
            sender.unsent_in(subgroup).push_back(unsent);
        }
        self.world.wake(process, self.until_ns);
        Ok(())
    }

    fn heal(&mut self) {
        for (from, to) in std::mem::take(&mut self.cuts) {
            self.world.mend(from, to);
            self.world.forgive(from | to);
        }
    }

    fn propose(&mut self, by: &str, change: ProposedChange) -> Result<(), String> {
        let place = self.place(by)?;
        self.world.propose_change(place, &change);
        Ok(())
    }

    fn expect_view(&self, view: u64, at: &[String], members: &[String]) -> Result<(), String> {
        at.iter().try_for_each(|name| {
            let process = self.process(name)?;
            let ProcessPhase::Member(member) = &process.phase else { return Err(format!("{name} is no member")) };
            let found = self.world.member_names(process.roster.incarnation(), member.view());
            let count = member.view().id.count();
            let holds = count == view && found == *members;
            expect(holds, || format!("{name} is in view {count}: {}", found.join(" ")))
        })
    }
}

fn expect(holds: bool, why: impl FnOnce() -> String) -> Result<(), String> {
    if holds { Ok(()) } else { Err(why()) }
}
