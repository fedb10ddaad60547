//! An operator of groups that have lost their quorum. It knows which processes have ended, and
//! gives up no other process.
use super::plan::MS;
use super::process::{Near, ProcessPhase, SimProcess};
use super::world::{HostsWorld, OPERATOR, ProcessEvent};
use spindle_core::MemberId;
use spindle_core::control::{ControlMessage, Request};

/// The interval of the operator's requests.
const ASK_NS: u64 = 500 * MS;
/// The number of a request to give up members that may live.
pub(super) const MISTAKE: u64 = 2;

impl HostsWorld<'_> {
    /// Checks whether a group has lost its quorum. When it is time, it asks a member to continue
    /// without the ended members. Returns true if such a group and an operator exist.
    pub(super) fn recover(&mut self) -> bool {
        let Some(after) = self.scene.recovers_ns else { return false };
        if self.scene.errs && !self.is_mistaken && self.now >= after.max(self.asks_at) {
            self.err();
        }
        let living: Vec<&SimProcess> =
            self.processes.iter().flatten().map(|process| &**process).filter(|process| process.is_alive).collect();
        let newest = self.newest_view(&living).filter(|_| !self.ledger.may_be_two);
        let lost = newest.filter(|(of, newest)| !self.has_quorum(&living, *of, newest));
        let Some((of, newest)) = lost else {
            if self.lost_since.take().is_some_and(|_| self.asks_at > 0) {
                self.outcome.counts.recoveries += 1;
                self.recovered_at = self.now;
                self.asks_at = 0;
            }
            return false;
        };
        // A process that waits for its first view has begun none, and waits again.
        let is_member = |process: &&&SimProcess| {
            process.roster.incarnation() == of && matches!(process.phase, ProcessPhase::Member(_))
        };
        let members: Vec<&SimProcess> = living.iter().filter(is_member).copied().collect();
        let is_gone = |id: &MemberId| !members.iter().any(|process| process.me.id == *id);
        let gone: Vec<MemberId> = newest.members.iter().copied().filter(is_gone).collect();
        let votes =
            |process: &&SimProcess| newest.rank_of(process.me.id).is_some_and(|rank| !newest.nonvoters.contains(&rank));
        if !members.iter().any(votes) {
            // Either no member is left that could continue, or all are about to begin that view.
            // After a mistake a member with an id in it may be in a group of its own.
            let is_behind = |process: &&SimProcess| {
                let ProcessPhase::Member(member) = &process.phase else { return false };
                let decided = member.engine().decision().map(|decision| decision.next.id);
                let next = member.next().map(|next| next.view().id).or(decided);
                let view = member.view().id;
                newest.rank_of(process.me.id).is_some()
                    && view < newest.id
                    && (!self.is_mistaken || next == Some(newest.id))
            };
            return members.iter().any(is_behind);
        }
        let asked: Vec<usize> = members.iter().map(|process| process.number).collect();
        if self.now >= *self.lost_since.get_or_insert(self.now) + after && self.now >= self.asks_at {
            let number = self.random.pick(&asked);
            self.asks_at = self.now + ASK_NS;
            self.ask_to_give_up(number, 1, gone);
        }
        true
    }

    /// Lets an operator ask a process to give members up.
    pub(super) fn ask_to_give_up(&mut self, number: usize, reply: u64, lost: Vec<MemberId>) {
        self.note(|| format!("an operator asks process {number} to give up {lost:?}"));
        let message = ControlMessage::Request { from: OPERATOR, reply, what: Request::Recover(lost) };
        let near = Near { message: message.encode().into(), attachment: [].into(), row: None };
        self.push(self.now, ProcessEvent::Messages { process: number, near });
    }

    /// Asks a blocked member to give up the members that it does not hear.
    fn err(&mut self) {
        let living = self.processes.iter().flatten().filter(|process| process.is_alive);
        let blocked: Vec<usize> = living
            .filter(|process| matches!(&process.phase, ProcessPhase::Member(member) if member.engine().is_blocked()))
            .map(|process| process.number)
            .collect();
        if blocked.is_empty() {
            return;
        }
        let number = self.random.pick(&blocked);
        let Some(ProcessPhase::Member(member)) = self.processes[number].as_deref().map(|process| &process.phase) else {
            return;
        };
        let (view, engine) = (member.view(), member.engine());
        let unheard = view.ranks().filter(|rank| engine.suspects(*rank)).map(|rank| view.members[rank.index()]);
        let lost: Vec<MemberId> = unheard.collect();
        self.asks_at = self.now + ASK_NS;
        self.excused.extend(lost.iter().map(|id| (*id, self.now)));
        self.ask_to_give_up(number, MISTAKE, lost);
    }
}
