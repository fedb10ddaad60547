//! A process before it is in a group: its start, its search for the group, and its end.
use super::host::LockedRole;
use super::learning::AppState;
use super::objects::ProcessObjects;
use super::plan::{MS, SeedName};
use super::process::{ProcessPhase, SimProcess, birth};
use super::subgroups::first_view;
use super::views::{FAREWELL_NS, NextView};
use super::world::{Broken, HostsWorld, ProcessEvent};
use crate::checkers::Checked;
use crate::random::mix;
use spindle_core::control::{
    Address, Book, Bootstrapping, Card, ControlEvent, FoundGroup, Me, Refusal, Roster, Seeds, Seek, Setup, Wants,
};
use spindle_core::ids::CLIENT_IDS_FROM;
use spindle_core::{MemberId, Time, limits};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// How far the clocks of members may differ, in ns.
pub(super) const CLOCK_SKEW_MAX_NS: u64 = 60_000 * MS;
/// The time on a right clock when a run begins, in ns since 1970.
pub(super) const CLOCK_BEGIN: u64 = 1 << 60;

impl HostsWorld<'_> {
    /// Starts a process in a place, with this id if one is given.
    pub(super) fn start(&mut self, place: usize, id: Option<MemberId>) -> Checked {
        if self.places[place].process.is_some() || self.places[place].is_over {
            return Ok(());
        }
        let plan = &self.scene.places[place];
        let (host, is_seed, is_unreachable) = (plan.host as usize, plan.is_seed, plan.is_unreachable);
        let number = self.processes.len();
        let kept = id.or(self.places[place].last_id);
        let id = match kept {
            Some(id) => id,
            None if plan.is_observer => MemberId(CLIENT_IDS_FROM + 100 + place as u64),
            None if self.scene.is_afar || !self.scene.seed.is_multiple_of(3) => MemberId(1 + place as u64),
            None if self.broken == Broken::IdsGivenAgain => self.hosts[host].lowest(),
            None => self.hosts[host].unused(),
        };
        if !self.hosts[host].bind(id, number) {
            // Another process has the id. The host may have given the id to that process in the
            // meantime.
            if !self.scene.is_afar {
                self.places[place].last_id = None;
            }
            self.push(self.now + 100 * MS, ProcessEvent::Start { place, id: None });
            return Ok(());
        }
        self.outcome.counts.restarts += u64::from(self.places[place].last_id.is_some());
        self.places[place].process = Some(number);
        self.places[place].last_id = Some(id);
        self.hosts[host].living.insert(number);
        let port = match (is_seed, is_unreachable) {
            (true, _) => 7411,
            // A process that advertises a wrong address does so again after a restart.
            (false, true) => 7412,
            (false, false) => 8000 + number,
        };
        let is_observer = plan.is_observer;
        let address = match self.scene.name {
            Some(name) if is_seed => self.begin_seed(place, name),
            _ => format!("10.0.{host}.{}:{port}", place + 1).parse().expect("an address"),
        };
        self.listeners.insert(address.clone(), (host, Some(number)));
        if is_unreachable {
            self.unreachable.insert(address.clone());
        }
        self.process_places.push(place);
        let me = Me { id, pid: 100 + number as u32, birth: birth(number) };
        let rack = self.scene.rack(host).map(|name| name.parse().expect("a name"));
        let card = Card { id, host: host as u128, address: address.clone(), rack };
        let nonce = u128::from(self.random.word());
        let mut process = self.new_process((number, place, host), me, card, address);
        process.nonce = nonce;
        self.note(|| format!("process {number} starts in place {place} on host {host}, as member {id}"));
        self.tell_start(number, place, id);
        if is_observer {
            self.begin_watching(&mut process);
        } else if self.scene.is_afar {
            process.boot = Some(self.begin_boot(&process));
        } else if let LockedRole::Joiner(_) = self.stand(&mut process) {
            match self.scene.learns {
                true => self.begin_learning(&mut process),
                false => process.phase = ProcessPhase::Seeks(Box::new(Seek::joiner(self.wants(place)))),
            }
        }
        self.add_process(process);
        self.wake(number, self.now + 1_000);
        Ok(())
    }

    /// Returns how far the clock of a process is off, in ns: mostly by less than a quarter of the bound, now
    /// and then by ten times the bound. It is not drawn, so that other seeds stay the same.
    fn clock_of(&self, place: usize, number: usize) -> i64 {
        let drawn = mix(self.scene.seed ^ mix(0xc10c + number as u64));
        let wrong = if drawn & 8 == 0 { 10 } else { -10 } * CLOCK_SKEW_MAX_NS as i64;
        let is_wrong = self.scene.is_afar && self.scene.wrong_clocks && drawn.is_multiple_of(8);
        let slight = (drawn >> 8) % (CLOCK_SKEW_MAX_NS / 2);
        let slight = slight as i64 - (CLOCK_SKEW_MAX_NS / 4) as i64;
        self.places[place].clock.unwrap_or(if is_wrong { wrong } else { 0 }) + slight
    }

    pub(super) fn wants(&self, place: usize) -> Wants {
        let (settings, adoption) = self.scene.settings(place);
        Wants { settings, adoption, members: self.scene.members, learns: self.scene.learns }
    }

    fn new_process(
        &mut self,
        (number, place, host): (usize, usize, usize),
        me: Me,
        card: Card,
        address: Address,
    ) -> SimProcess {
        let book = self.scene.is_afar.then(|| Book::new(card.clone(), self.seeds(address.clone()), true));
        let (control_socket, heard, deaths, outbox, tries, held, watched, posts) = Default::default();
        let room = limits::MEMBERS_MAX as u32;
        let seek = match self.scene.is_afar {
            true => Seek::afar(self.wants(place), room),
            false => Seek::founder(self.wants(place), self.scene.members),
        };
        let (settings, _) = self.scene.settings(place);
        let mut roster = Roster::new(me, 1 + number as u32, book);
        roster.bound_clocks(Some(Duration::from_nanos(CLOCK_SKEW_MAX_NS)));
        SimProcess {
            number,
            place,
            host,
            me,
            nonce: 0,
            address,
            card,
            is_alive: true,
            clock: self.clock_of(place, number),
            paused_since: 0,
            paused_until: 0,
            busy_ns: 0,
            busy_until: 0,
            full_until: 0,
            started: self.now,
            roster,
            boot: None,
            phase: ProcessPhase::Seeks(Box::new(seek)),
            control_socket,
            heard,
            deaths,
            is_displaced: false,
            outbox,
            tries,
            held,
            watched,
            posts,
            inlets: BTreeSet::new(),
            table: None,
            older: vec![],
            made: None,
            over: vec![],
            unsent: BTreeMap::new(),
            sends_at: if self.telling.is_some() { u64::MAX } else { self.now },
            is_told: false,
            settings,
            knows_blocked: false,
            waits: None,
            is_refused: false,
            is_leaving: false,
            probes: BTreeMap::new(),
            orders: (0, 0),
            objects: ProcessObjects::new(Duration::from_nanos(self.scene.suspect_after_ns)),
            app: AppState::default(),
            observers: vec![],
            sending: vec![],
            pledged: vec![],
            incoming: vec![],
            troubled: 0,
            logs: BTreeMap::new(),
            has_logs: false,
            disk_failed: false,
            record_sendings: vec![],
            record_arrivals: vec![],
            no_records: vec![],
        }
    }

    fn seeds(&self, me: Address) -> Seeds {
        let seeds = self.scene.places.iter().enumerate().filter(|(_, place)| place.is_seed);
        if self.scene.name.is_some() {
            let name = "seeds.test:7411".parse().expect("a name");
            return Seeds::new(vec![name], Some(seeds.count() as u32), me);
        }
        let address = |(number, place): (usize, &super::plan::ProcessPlace)| {
            format!("10.0.{}.{}:7411", place.host, number + 1).parse().expect("an address")
        };
        Seeds::new(seeds.map(address).collect(), None, me)
    }

    /// Returns the address of a seed that starts. The seeds' name soon resolves to it.
    fn begin_seed(&mut self, place: usize, name: SeedName) -> Address {
        let before = self.process_places.iter().filter(|of| **of == place).count();
        let host = self.scene.places[place].host;
        let network = if name.moves { before } else { 0 };
        self.outcome.counts.moved += u64::from(network > 0);
        let address: Address = format!("10.{network}.{host}.{}:7411", place + 1).parse().expect("an address");
        let at = self.now + self.random.range(1, name.late_ns);
        self.push(at, ProcessEvent::Renamed { address: address.clone(), is_there: true });
        address
    }

    /// Starts a look-up of the seeds' name.
    pub(super) fn look_up(&mut self, process: usize, asked: Address) {
        let Some(name) = self.scene.name else { return };
        self.outcome.counts.look_ups += 1;
        let at = self.now + self.random.range(1, name.look_up_ns);
        self.push(at, ProcessEvent::LookedUp { process, name: asked });
    }

    /// Answers a look-up, now and then with an error.
    pub(super) fn answer_look_up(&mut self, number: usize, name: Address) {
        let fails = !self.is_calm && self.random.one_in(10);
        let found: Vec<Address> = self.named.iter().cloned().collect();
        let now = self.now;
        if let Some(process) = self.living(number) {
            let found = if fails { Err("no answer".into()) } else { Ok(&found[..]) };
            process.roster.looked_up(&name, found);
            self.wake(number, now);
        }
    }

    fn begin_boot(&mut self, process: &SimProcess) -> Bootstrapping {
        let durable = self.scene.places[process.place].is_durable;
        let belongs = self.places[process.place].belongs.take();
        let mut record = if durable { self.places[process.place].disk.clone() } else { Default::default() };
        record.belongs = belongs.or(record.belongs);
        self.places[process.place].knows = record.belongs;
        if self.broken == Broken::BelongsForgotten {
            record = Default::default();
        }
        let random = u128::from(self.random.word()) << 64 | u128::from(self.random.word());
        let me = process.roster.as_process();
        let setup = Setup { me, members: self.scene.members, random, durable, record };
        Bootstrapping::new(setup, process.roster.process(), process.settings.digest(), false, Time(self.now))
    }

    /// Runs a step of a process that looks for its group.
    pub(super) fn seek(&mut self, process: &mut SimProcess, news: Vec<ControlEvent>) -> NextView {
        let now = Time(self.now);
        let ProcessPhase::Seeks(seek) = &mut process.phase else { return Ok(u64::MAX) };
        if process.is_leaving {
            return self.go_away(process);
        }
        let mut found = None;
        let may_ask = self.broken != Broken::AsksOnce || self.now < process.started + 100 * MS;
        if (seek.is_due(now) && may_ask) || self.broken == Broken::AsksAlways {
            let here = self.hosts[process.host].members();
            if let Some(boot) = &mut process.boot {
                boot.hold(!here.is_empty());
            }
            found = seek.ask(&here, &mut process.roster, now);
        }
        let asked_with = seek.settings(now).digest();
        let found = match found {
            Some(found) => Some(found),
            None => seek.step(news, &mut process.roster, now),
        };
        let found = found.or_else(|| {
            let (begun, cards) = process.boot.as_mut()?.take_begun()?;
            process.roster.hear_of_founders(spindle_core::ViewId(1), &begun.members, cards);
            Some(begun.into())
        });
        process.is_told |= seek.differing(now).is_some();
        let (own, _) = self.scene.settings(process.place);
        if seek.settings(now).digest() != asked_with {
            let whose = if *seek.settings(now) == own { "its own settings" } else { "the settings of the group" };
            self.tell(process.number, || format!("asks with {whose}"));
        }
        let settings = match &found {
            Some(FoundGroup::View { incarnation, .. }) => seek.settings_in(*incarnation),
            Some(FoundGroup::Group) => seek.settings(now),
            _ => &own,
        };
        process.settings = settings.clone();
        if let Some(boot) = &mut process.boot {
            boot.adopt(seek.settings(now).digest());
        }
        let heard = seek.take_heard();
        if let Some(here) = heard.last() {
            (process.is_told, process.knows_blocked) = (true, here.blocked);
        }
        self.carry_out(process)?;
        match found {
            Some(FoundGroup::Refused(why)) => return self.refused(process, why),
            Some(FoundGroup::Gone) => {
                if self.stand(process) == LockedRole::Founder {
                    process.phase =
                        ProcessPhase::Seeks(Box::new(Seek::founder(self.wants(process.place), self.scene.members)));
                }
            }
            Some(FoundGroup::Group) => {
                self.begin_learning(process);
                return Ok(self.now + 1_000);
            }
            Some(FoundGroup::Founders { .. }) if self.dies_founding(process) => return Ok(u64::MAX),
            Some(FoundGroup::View { incarnation, view }) if self.enter(process, incarnation) => {
                self.note(|| {
                    format!("process {} is let in to view {} of group {incarnation:032x}", process.number, view.id)
                });
                self.tell(process.number, || format!("is admitted to view {}", view.id.count()));
                self.outcome.counts.joins += 1;
                process.roster.set_incarnation(incarnation);
                return self.begin_first(process, view, &[]);
            }
            Some(FoundGroup::Founders { incarnation, members })
                if incarnation.is_none_or(|incarnation| self.enter(process, incarnation)) =>
            {
                if let Some(incarnation) = incarnation {
                    process.roster.set_incarnation(incarnation);
                }
                let view = first_view(&self.scene.subgroups, members);
                let ProcessPhase::Seeks(seek) = &process.phase else { unreachable!("it seeks") };
                seek.creates(&view, &mut process.roster, now);
                self.carry_out(process)?;
                return self.begin_first(process, view, &[]);
            }
            Some(FoundGroup::View { .. } | FoundGroup::Founders { .. }) | None => {}
        }
        // The process may ask another one next, or a founder may have changed its decision.
        Ok(self.now + if self.broken == Broken::AsksAlways { MS / 100 } else { 10 * MS })
    }

    pub(super) fn enter(&mut self, process: &SimProcess, incarnation: u128) -> bool {
        let (id, number, host) = (process.me.id, process.number, &mut self.hosts[process.host]);
        match self.scene.is_afar {
            _ if self.broken == Broken::LockIgnored => true,
            true => host.enter_afar(id, number, incarnation),
            false => host.enter(id, number, incarnation),
        }
    }

    pub(super) fn refused(&mut self, process: &mut SimProcess, why: Refusal) -> NextView {
        self.note(|| format!("process {} is refused: {why}", process.number));
        self.tell(process.number, || format!("is refused: {why}"));
        self.outcome.counts.refusals += 1;
        process.is_refused = true;
        match why {
            Refusal::InUse(_) => {
                let id = self.new_id(process.place);
                self.places[process.place].last_id = Some(id);
            }
            // Its operator sets the clock to that of the group, or sets it right.
            Refusal::Clock(skew) => {
                let true_time = (CLOCK_BEGIN + self.now) as i64;
                let theirs = skew.theirs as i64 - true_time;
                let is_right = theirs.unsigned_abs() <= CLOCK_SKEW_MAX_NS || !skew.is_running;
                self.places[process.place].clock = Some(if is_right { 0 } else { theirs });
                self.outcome.counts.skewed += 1;
            }
            // Its user has to change the settings first.
            Refusal::Config { .. } => self.places[process.place].is_over = true,
            _ => {}
        }
        self.go_away(process)
    }

    /// Ends a process that is no member, and informs the processes that may wait for it.
    pub(super) fn go_away(&mut self, process: &mut SimProcess) -> NextView {
        process.roster.farewell();
        process.phase = ProcessPhase::Out;
        let stays = if self.scene.is_afar { FAREWELL_NS } else { 2 * MS };
        self.push(self.now + stays, ProcessEvent::Exit { process: process.number });
        Ok(u64::MAX)
    }
}
