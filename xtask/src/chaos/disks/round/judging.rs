//! Reads and judges the files that the processes of a round leave.
use super::super::files;
use super::super::judge::{Ack, SeatLog, check_acks, check_all_sent, check_deliveries, check_logs};
use super::super::member::path;
use super::DisksRound;
use anyhow::{Context, Error, Result};
use std::fs;

/// The evidence so far.
#[derive(Debug, Default)]
pub(super) struct Evidence {
    /// Processes that have ended, and whose files were not read.
    pub(super) ended: Vec<u32>,
    acks: Vec<Ack>,
}

impl DisksRound<'_> {
    /// Judges the logs while no process runs.
    pub(super) fn judge_down(&mut self) -> Result<()> {
        let since = self.view;
        self.judge(since, &[], false).context("all processes were killed")
    }

    /// Judges the logs after all processes have finished.
    pub(super) fn judge_end(&mut self) -> Result<()> {
        let mut counts = vec![];
        for seat in 0..self.seats.len() {
            if let Some(member) = &mut self.seats[seat].member {
                counts.push((member.instance, member.end_input()));
            }
            self.gone(seat);
        }
        self.judge(Some(0), &counts, true).context("all processes have finished")
    }

    /// Compares all that was written. All members were in one view since the epoch `since`, if that
    /// is known. The processes in `counts` have finished after so many messages.
    fn judge(&mut self, since: Option<u64>, counts: &[(u32, u32)], at_end: bool) -> Result<()> {
        let mut logs = vec![];
        for (seat, of) in self.seats.iter().enumerate() {
            let records = files::read_log(&of.data()).with_context(|| format!("the log of seat {seat}"))?;
            logs.push(SeatLog { seat, records, is_complete: of.is_complete, is_current: since.is_some() });
        }
        let (mut deliveries, ended) = (vec![], std::mem::take(&mut self.evidence.ended));
        for instance in &ended {
            deliveries.push(files::read_deliveries(&path(&self.folder, *instance, "out"), *instance)?);
            let (acks, refused) = files::read_acks(&path(&self.folder, *instance, "acks"), *instance)?;
            self.tally.not_durable += refused;
            self.tally.durable += acks.len() as u64;
            self.evidence.acks.extend(acks);
        }
        let union = check_logs(&logs, at_end).map_err(Error::msg)?;
        check_deliveries(&deliveries, &union).map_err(Error::msg)?;
        check_acks(&self.evidence.acks, &logs, &union, since).map_err(Error::msg)?;
        check_all_sent(counts, &union).map_err(Error::msg)?;
        self.tally.deliveries += deliveries.iter().map(|of| of.list.len() as u64).sum::<u64>();
        self.tally.logged = union.len() as u64;
        let last = |log: &SeatLog| log.records.last().map(|last| last.version);
        let shortest = logs.iter().filter(|log| log.is_complete).map(last).min().flatten();
        for (seat, log) in self.seats.iter_mut().zip(&logs) {
            seat.is_behind = last(log) <= shortest;
        }
        let lens: Vec<usize> = logs.iter().map(|log| log.records.len()).collect();
        let acks = self.evidence.acks.len();
        self.note(format!("logs of {lens:?} records, {acks} acknowledged as durable so far"));
        for instance in ended {
            for what in ["out", "acks"] {
                let _ = fs::remove_file(path(&self.folder, instance, what));
            }
        }
        Ok(())
    }
}
