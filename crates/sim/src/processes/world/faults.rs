//! The faults of a run: cut and mended links, broken connections, and processes that a fault delays.
use super::{DISPLACED_NS, HostsWorld, OPERATOR, ProcessEvent};
use crate::processes::plan::HostsFault;
use crate::processes::process::Near;
use spindle_core::control::{ControlMessage, Request};

impl<'s> HostsWorld<'s> {
    /// Records a fault of a process.
    fn trouble(&mut self, process: usize, until: u64) {
        if let Some(process) = self.processes[process].as_deref_mut() {
            process.troubled = process.troubled.max(until);
        }
    }

    /// Records a fault of the links of a host.
    pub(super) fn trouble_host(&mut self, host: usize, until: u64) {
        self.troubled[host] = self.troubled[host].max(until);
    }

    /// Lets a fault begin, which has this number in the scene.
    pub(in crate::processes) fn inflict(&mut self, number: usize, fault: HostsFault) {
        self.note(|| format!("fault: {fault:?}"));
        match fault {
            HostsFault::Cut { from, to, ns } => {
                self.cut_links(from, to, ns);
                self.push(self.now + ns, ProcessEvent::Mend(number));
            }
            HostsFault::Break { a, b, half } => {
                for connection in self.connections.between(a as usize, b as usize) {
                    self.break_connection(connection, half);
                }
                self.break_lives(a as usize, b as usize, half);
            }
            HostsFault::Pause { place, ns } => {
                let until = self.now + ns;
                if let Some(number) = self.places[place as usize].process {
                    self.trouble(number, until);
                    // The last heartbeat may be some time before the pause. One pause may begin in
                    // another, or shortly after it.
                    let (now, part) = (self.now, self.scene.suspect_after_ns / 8);
                    if let Some(process) = self.living(number) {
                        if process.paused_until + part < now {
                            process.paused_since = now;
                        }
                        process.paused_until = process.paused_until.max(until);
                        let (since, until) = (process.paused_since, process.paused_until);
                        if until - since >= 7 * part {
                            self.suspended = self.suspended.max(until);
                        }
                    }
                }
            }
            HostsFault::Kill { place, down_ns, renamed } => {
                let at = place as usize;
                self.places[at].is_over |= down_ns.is_none();
                if let Some(process) = self.places[at].process {
                    self.outcome.counts.kills += 1;
                    self.die(process, true);
                }
                if let Some(down_ns) = down_ns {
                    let id = if renamed { Some(self.new_id(at)) } else { None };
                    self.push(self.now + down_ns, ProcessEvent::Start { place: at, id });
                }
            }
            HostsFault::DiskFull { place, ns } => {
                self.outcome.counts.disks_full += 1;
                let disk = &mut self.places[place as usize].log_disk;
                disk.full_until = disk.full_until.max(self.now + ns);
            }
            HostsFault::DiskFails { place } => self.places[place as usize].log_disk.fails = true,
            HostsFault::DiskCopied { place } => self.places[place as usize].log_disk.keep_copy(),
            HostsFault::DiskLost { place } => self.places[place as usize].log_disk.is_lost = true,
            HostsFault::KillWaiting { place, down_ns } => self.places[place as usize].dies_waiting = Some(down_ns),
            HostsFault::KillFounding { place, down_ns } => self.places[place as usize].dies_founding = Some(down_ns),
            HostsFault::Leave { place, down_ns } => {
                let at = place as usize;
                self.places[at].is_over |= down_ns.is_none();
                if let Some(number) = self.places[at].process
                    && let Some(process) = self.living(number)
                {
                    process.is_leaving = true;
                    let id = process.me.id;
                    self.excused.insert(id, self.now);
                    self.wake(number, self.now);
                }
            }
            HostsFault::Evict { by, whom } => {
                let whom =
                    self.places[whom as usize].process.and_then(|whom| self.living(whom)).map(|process| process.me.id);
                if let (Some(number), Some(id)) = (self.places[by as usize].process, whom) {
                    self.excused.insert(id, self.now);
                    let message = ControlMessage::Request { from: OPERATOR, reply: 1, what: Request::Evict(id) };
                    let near = Near { message: message.encode().into(), attachment: [].into(), row: None };
                    self.push(self.now, ProcessEvent::Messages { process: number, near });
                }
            }
            HostsFault::Propose { place, change } => self.propose_change(place, &change),
            HostsFault::Full { place, ns } => {
                let until = self.now + ns;
                self.trouble_host(self.scene.places[place as usize].host as usize, until);
                // Other processes may have no connection to it, or it none to them.
                self.suspended = self.suspended.max(until);
                if let Some(number) = self.places[place as usize].process
                    && let Some(process) = self.living(number)
                {
                    process.full_until = process.full_until.max(until);
                    self.outcome.counts.full += 1;
                    self.trouble(number, until);
                    self.wake(number, until);
                }
            }
            HostsFault::Vanish { host } => {
                self.hosts[host as usize].vanish();
                let living: Vec<usize> = self.hosts[host as usize].living.iter().copied().collect();
                for process in living {
                    let at = self.now + self.random.below(DISPLACED_NS);
                    self.push(at, ProcessEvent::Displaced { process });
                }
            }
        }
    }

    /// Cuts the links from the hosts in `from` to those in `to`, for a time.
    pub(in crate::processes) fn cut_links(&mut self, from: u64, to: u64, ns: u64) {
        let changed = self.links.set(from, to, true, self.now);
        self.outcome.counts.partitions += u64::from(!changed.is_empty());
        for (a, b) in changed {
            self.trouble_host(a, self.now + ns);
            self.trouble_host(b, self.now + ns);
            self.cut(a, b);
        }
    }

    pub(super) fn mend_links(&mut self, number: usize) {
        let HostsFault::Cut { from, to, .. } = self.scene.faults[number].1 else { return };
        self.note(|| format!("fault {number} is over"));
        self.mend(from, to);
    }

    /// Restores the links from the hosts in `from` to those in `to`.
    pub(in crate::processes) fn mend(&mut self, from: u64, to: u64) {
        let changed = self.links.set(from, to, false, self.now);
        self.outcome.counts.heals += u64::from(!changed.is_empty());
        self.note(|| format!("{changed:?} pass"));
        for (a, b) in changed {
            self.trouble_host(a, self.now);
            self.trouble_host(b, self.now);
            for (process, due) in self.connections.release((a, b), &self.links, &mut self.random, self.now) {
                self.wake(process, due);
            }
        }
    }

    /// Handles the cut of a link: packets over it are not acknowledged.
    fn cut(&mut self, a: usize, b: usize) {
        let now = self.now;
        let mut silences = vec![];
        for number in self.connections.between(a, b) {
            let connection = self.connections.get_mut(number).expect("it is there");
            let silence_ns = connection.silence_ns;
            for (end, side) in connection.ends.iter_mut().enumerate() {
                if side.is_open && side.stuck.is_none() && !side.out.is_empty() {
                    side.stuck = Some(now);
                    silences.push((number, end, silence_ns));
                }
            }
        }
        for (connection, end, silence_ns) in silences {
            self.push(now + silence_ns, ProcessEvent::Silence { connection, end, since: now });
        }
    }

    pub(super) fn silence(&mut self, number: usize, end: usize, since: u64) {
        let Some(connection) = self.connections.get(number) else { return };
        let side = &connection.ends[end];
        if side.is_open && side.stuck == Some(since) {
            let (process, hosts) = (side.process, connection.hosts());
            self.outcome.counts.breaks += 1;
            self.note(|| format!("connection {number} breaks at process {process}, after a silence"));
            self.trouble_host(hosts.0, self.now);
            self.trouble_host(hosts.1, self.now);
            self.close(number, end);
            self.wake(process, self.now);
        }
    }

    /// Breaks a connection, with the packets in flight. If `half`, one side does not learn of it.
    pub(super) fn break_connection(&mut self, number: usize, half: bool) {
        let untold = half.then(|| self.random.below(2) as usize);
        let Some(connection) = self.connections.get_mut(number) else { return };
        let (a, b) = connection.hosts();
        connection.is_black = true;
        let silence_ns = connection.silence_ns;
        connection.ends.iter_mut().for_each(|end| end.out.clear());
        let sides: Vec<(usize, bool)> = connection.ends.iter().map(|end| (end.process, end.is_open)).collect();
        self.outcome.counts.breaks += 1;
        if half {
            self.trouble_host(a, self.now);
            self.trouble_host(b, self.now);
        }
        self.note(|| format!("connection {number} of processes {sides:?} breaks; untold: {untold:?}"));
        for (end, (process, is_open)) in sides.into_iter().enumerate() {
            if !is_open {
                continue;
            }
            let now = self.now;
            let at = match untold == Some(end) {
                true => now + silence_ns,
                false => now + self.links.delay(&mut self.random, a, b),
            };
            if let Some(connection) = self.connections.get_mut(number) {
                connection.ends[end].stuck = Some(now);
            }
            let _ = process;
            self.push(at, ProcessEvent::Silence { connection: number, end, since: now });
        }
    }
}
