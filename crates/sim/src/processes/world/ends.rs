//! The ends of processes, and how other processes learn of them.
use super::{ANSWER_MIN_NS, ANSWER_ROUND_TRIPS, DEATH_NS, HostsWorld, LivenessWatch, ProcessEvent};
use crate::processes::plan::{HostsFault, MS, S};
use crate::processes::process::NetworkEvent;
use spindle_core::control::Incarnation;
use std::time::Duration;

impl<'s> HostsWorld<'s> {
    /// Ends a process. If it is `killed`, its data in flight may be lost.
    pub(in crate::processes) fn die(&mut self, number: usize, killed: bool) {
        let Some(process) = self.living(number) else { return };
        process.is_alive = false;
        let (id, host, place, address) = (process.me.id, process.host, process.place, process.address.clone());
        self.note(|| format!("process {number}, member {id}, ends"));
        self.tell(number, || if killed { "is killed".into() } else { "exits".into() });
        self.excused.insert(id, self.now);
        self.ended = self.now;
        self.hosts[host].end(number);
        self.places[place].process = None;
        self.places[place].log_disk.writer_ends(killed, &mut self.random);
        if killed {
            let is_durable = self.scene.places[place].is_durable;
            self.places[place].knows = self.places[place].disk.belongs.filter(|_| is_durable);
        }
        if let Some((_, listener)) = self.listeners.get_mut(&address).filter(|(_, listener)| *listener == Some(number))
        {
            *listener = None;
            if let Some(name) = self.scene.name.filter(|_| self.scene.places[place].is_seed) {
                let at = self.now + self.random.range(1, name.late_ns);
                self.push(at, ProcessEvent::Renamed { address, is_there: false });
            }
        }
        for (connection, end) in self.connections.open_of(number) {
            let side = &mut self.connections.get_mut(connection).expect("it is open").ends[end];
            if killed && self.random.one_in(3) {
                side.out.truncate(self.random.below(side.out.len() as u64 + 1) as usize);
            }
            self.close(connection, end);
        }
        self.connections.forget_closed();
        let neighbours: Vec<usize> = self.hosts[host].living.iter().copied().collect();
        for process in neighbours {
            let at = self.now + self.random.below(DEATH_NS);
            self.push(at, ProcessEvent::Death { process, id, of: number });
        }
        let told: Vec<usize> = self.lives.iter().filter_map(|life| life.other(number)).collect();
        for process in told {
            let to = self.processes[process].as_deref().map_or(host, |process| process.host);
            let at = self.now + self.links.delay(&mut self.random, host, to);
            self.push(at, ProcessEvent::LifeEnds { process, of: number, tries: 0 });
        }
    }

    pub(super) fn life_ends(&mut self, process: usize, of: usize, tries: u32) {
        let hosts = [process, of].map(|number| self.processes[number].as_deref().map_or(0, |process| process.host));
        if !self.links.passes(hosts[1], hosts[0]) {
            if tries < 20 {
                self.push(self.now + 700 * MS, ProcessEvent::LifeEnds { process, of, tries: tries + 1 });
            }
            return;
        }
        let Some(at) = self.lives.iter().position(|life| life.other(of) == Some(process)) else { return };
        let life = self.lives.swap_remove(at);
        self.tell_end(process, life);
    }

    pub(super) fn tell_end(&mut self, process: usize, life: LivenessWatch) {
        let LivenessWatch { incarnation, view, .. } = life;
        let Some(other) = life.other(process).and_then(|other| self.processes[other].as_deref()) else { return };
        let (id, host, now) = (other.me.id, other.host, self.now);
        let Some(from) = self.processes[process].as_deref().map(|process| process.host) else { return };
        let trip = self.links.round_trip(&mut self.random, from, host);
        let answer_within = Duration::from_nanos(ANSWER_MIN_NS + ANSWER_ROUND_TRIPS * trip);
        if let Some(told) = self.living(process) {
            told.heard.push_back(NetworkEvent::Ended { id, incarnation, view, answer_within });
            self.wake(process, now);
        }
    }

    /// Breaks the connections between two hosts that report the ends of processes there.
    pub(super) fn break_lives(&mut self, a: usize, b: usize, half: bool) {
        let host = |process: usize| self.scene.places[self.process_places[process]].host as usize;
        let is_between = |life: &mut LivenessWatch| {
            let hosts = life.processes.map(host);
            hosts == [a, b] || hosts == [b, a]
        };
        let broken: Vec<LivenessWatch> = self.lives.extract_if(.., is_between).collect();
        for life in broken {
            let untold = half.then(|| self.random.below(2) as usize);
            for (side, process) in life.processes.into_iter().enumerate() {
                if untold != Some(side) {
                    let at = self.now + self.links.delay(&mut self.random, a, b);
                    self.push(at, ProcessEvent::LifeBreaks { process, life });
                }
            }
        }
    }

    pub(super) fn exit(&mut self, number: usize) {
        let Some(process) = self.living(number) else { return };
        let (place, is_leaving) = (process.place, process.is_leaving);
        let incarnation = process.roster.incarnation();
        let belongs = (incarnation != 0 && !is_leaving).then_some(Incarnation(incarnation));
        self.places[place].belongs = belongs;
        self.places[place].knows = belongs.or(self.places[place].knows).filter(|_| !is_leaving);
        self.die(number, false);
        let down_ns = if is_leaving { self.leave_pause(place) } else { self.scene.restart_ns };
        self.push(self.now + down_ns, ProcessEvent::Start { place, id: None });
    }

    fn leave_pause(&self, place: usize) -> u64 {
        let pause = self.scene.faults.iter().find_map(|(_, fault)| match fault {
            HostsFault::Leave { place: of, down_ns } if *of as usize == place => *down_ns,
            _ => None,
        });
        pause.unwrap_or(S)
    }
}
