//! Disturbs the processes and disks of a round.
use super::super::member::{Member, SUSPECT_AFTER, path, refused};
use super::super::plan::DownEvent;
use super::DisksRound;
use anyhow::{Result, bail};
use std::fs;
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a process may take until it is refused.
const REFUSED_MAX: Duration = Duration::from_secs(20);
/// How long messages may take to become durable again once a disk has space.
const PROGRESS_MAX: Duration = Duration::from_secs(30);

impl DisksRound<'_> {
    pub(super) fn kill_one(&mut self, seat: usize) -> Result<()> {
        if let Some(member) = &mut self.seats[seat].member {
            member.kill();
            member.wait()?;
            let (instance, id) = (member.instance, member.id);
            self.seats[seat].ids.extend(id);
            self.tally.kills += 1;
            self.note(format!("kill process {instance} at seat {seat}"));
        }
        self.view = None;
        self.gone(seat);
        Ok(())
    }

    pub(super) fn kill_all(&mut self) -> Result<()> {
        self.tick()?;
        let view = self.view;
        self.note(format!("kill all{}", view.map_or_else(String::new, |view| format!(", in view {view}"))));
        self.tally.restarts += 1;
        self.seats.iter().filter_map(|seat| seat.member.as_ref()).for_each(Member::kill);
        (0..self.seats.len()).try_for_each(|seat| self.kill_one(seat))?;
        self.deferred.clear();
        // A view may have changed a moment before.
        self.view = view;
        Ok(())
    }

    pub(super) fn down(&mut self, event: DownEvent) -> Result<()> {
        match event {
            DownEvent::Nothing => {}
            DownEvent::Wipe(seat) => {
                let complete = self.seats.iter().filter(|seat| seat.is_complete).count();
                // Two disks have all messages, for the next loss.
                if complete > 2 && self.lost.is_empty() {
                    let member = self.seats[seat].wipe()?;
                    self.tally.wiped += 1;
                    self.lost.extend(member);
                    self.note(format!("the disk of seat {seat}, with member {member:?}, is lost"));
                }
            }
            DownEvent::Copy(seat) if self.lost.is_empty() && self.seats[seat].is_behind => {
                self.seats[seat].keep_copy()?;
                self.note(format!("copy the disk of seat {seat}"));
            }
            DownEvent::Old(seat) if self.lost.is_empty() => self.put_copy(seat)?,
            DownEvent::Missing(seat) if self.lost.is_empty() && !self.seats[seat].ids.is_empty() => {
                self.absent = Some(seat);
            }
            _ => {}
        }
        Ok(())
    }

    pub(super) fn put_copy(&mut self, seat: usize) -> Result<()> {
        if self.seats[seat].has_copy && !self.seats[seat].is_old {
            self.seats[seat].put_copy()?;
            self.tally.old_copies += 1;
            self.note(format!("an old copy is the disk of seat {seat}"));
        }
        Ok(())
    }

    /// Stops a process. Its lock still counts.
    pub(super) fn stop(&mut self, seat: usize, time: Duration) -> Result<()> {
        self.view = None;
        self.tally.stops += 1;
        if let Some(member) = &mut self.seats[seat].member {
            member.stop()?;
            let (instance, pid) = (member.instance, member.pid());
            self.note(format!("stop process {instance} at seat {seat}"));
            self.expect_refused(seat, pid)?;
        }
        self.run(time)?;
        self.go_on(seat);
        self.run(SUSPECT_AFTER / 4)?;
        self.one_view()
    }

    fn go_on(&mut self, seat: usize) {
        self.note(format!("the process at seat {seat} goes on"));
        if let Some(member) = &mut self.seats[seat].member {
            member.go_on();
        }
    }

    /// Starts another process with the directory of a process that lives.
    fn expect_refused(&mut self, seat: usize, pid: u32) -> Result<()> {
        let instance = self.next_instance;
        self.next_instance += 1;
        let data = self.seats[seat].data();
        let (code, said) = refused(&self.starting(seat, instance, &data), REFUSED_MAX)?;
        if code.is_none_or(|code| code == 0) || !said.contains(&format!("in use by process {pid}")) {
            bail!("a second process with the disk of seat {seat} ended with {code:?}, and said: {said}");
        }
        Ok(())
    }

    pub(super) fn stop_and_kill(&mut self, seat: usize, time: Duration) -> Result<()> {
        self.view = None;
        self.tally.stops += 1;
        if let Some(member) = &mut self.seats[seat].member {
            member.stop()?;
            let instance = member.instance;
            self.note(format!("stop process {instance} at seat {seat}"));
        }
        let others: Vec<usize> = (0..self.seats.len()).filter(|other| *other != seat).collect();
        others.iter().try_for_each(|other| self.kill_one(*other))?;
        others.iter().try_for_each(|other| self.start(*other))?;
        self.run(time)?;
        self.go_on(seat);
        self.one_view()
    }

    pub(super) fn full(&mut self, spare: u64, time: Duration, kill: bool) -> Result<()> {
        let seat = self.plan.small;
        if !self.mounts || !self.seats[seat].is_small() {
            return self.run(time);
        }
        self.tally.full_disks += 1;
        self.note(format!("the disk of seat {seat} is full but for {spare} bytes"));
        self.seats[seat].fill(spare)?;
        self.run(time)?;
        if kill {
            return Ok(());
        }
        self.note(format!("the disk of seat {seat} has space"));
        self.make_space()?;
        let (before, begin) = (self.acknowledged(), Instant::now());
        while self.acknowledged() <= before {
            self.tick()?;
            if begin.elapsed() > PROGRESS_MAX {
                bail!("{PROGRESS_MAX:?} after a disk had space again no message became durable:\n{}", self.standing());
            }
            sleep(super::TICK);
        }
        Ok(())
    }

    /// Returns the bytes of all acknowledgements of running processes.
    fn acknowledged(&self) -> u64 {
        let members = self.seats.iter().filter_map(|seat| seat.member.as_ref());
        let len = |member: &Member| fs::metadata(path(&self.folder, member.instance, "acks")).ok();
        members.filter_map(len).map(|file| file.len()).sum()
    }
}
