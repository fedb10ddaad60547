//! Invariants 19 and 20: the views that begin form one chain across restarts, and each is on disk
//! before it begins.
use super::{Checked, Invariant};
use spindle_core::control::{RestartBallot, RestartMessage, RestartRecord};
use spindle_core::{Process, View, ViewId};
use std::collections::BTreeMap;

const ONE_CHAIN: Invariant = Invariant(19, "one chain across restarts");
const RECORDED: Invariant = Invariant(20, "a view is on disk before it begins");

/// The views that processes have begun, by number.
#[derive(Clone, Debug, Default)]
pub struct RestartChain {
    begun: BTreeMap<ViewId, Vec<Process>>,
}

impl RestartChain {
    /// Records that a process begins a view with these processes. `working` contains the views in
    /// which processes that the beginner can reach work.
    ///
    /// # Errors
    /// If another view of this number has begun, or a later view that does not follow from this one
    /// by a recovery is in use, or a recovery is still in use beside this view.
    pub fn begins(&mut self, id: ViewId, processes: &[Process], working: &[ViewId]) -> Checked {
        if let Some(other) = self.begun.get(&id) {
            return match other == processes {
                true => Ok(()),
                false => {
                    ONE_CHAIN.broken(format!("view {id:?} begins with {processes:?}, and has begun with {other:?}"))
                }
            };
        }
        // A recovery that has a higher era replaces this view, and one of another tag is not in the
        // same chain.
        if let Some(other) = working.iter().find(|other| other.era() > id.era()) {
            return ONE_CHAIN.broken(format!("view {id:?} begins beside {other:?} of a recovery"));
        }
        self.begun.insert(id, processes.to_vec());
        Ok(())
    }

    /// Returns the number of views.
    pub fn count(&self) -> u64 {
        self.begun.len() as u64
    }
}

/// Checks the record on the disk of a process that begins a view.
///
/// # Errors
/// If the view is not on the disk.
pub fn is_recorded(disk: Option<&RestartRecord>, view: &View) -> Checked {
    match disk.is_some_and(|disk| disk.view == *view) {
        true => Ok(()),
        false => {
            RECORDED.broken(format!("view {:?} begins, and the disk has {:?}", view.id, disk.map(|disk| disk.view.id)))
        }
    }
}

/// Checks a message that a process sends while its disk contains this record.
///
/// # Errors
/// If the message contains a promise or a vote that is not on the disk.
pub fn is_true(message: &RestartMessage, disk: Option<&RestartRecord>) -> Checked {
    let is_on_disk = |base: ViewId, ballot: RestartBallot, votes: bool| {
        disk.is_some_and(|disk| {
            let voted = disk.accepted.as_ref().is_some_and(|(accepted, _)| *accepted >= ballot);
            disk.view.id > base || disk.view.id == base && disk.promised >= ballot && (voted || !votes)
        })
    };
    let is_true = match message {
        RestartMessage::Promise { base, ballot, .. } => is_on_disk(*base, *ballot, false),
        RestartMessage::Accepted { base, ballot } => is_on_disk(*base, *ballot, true),
        _ => true,
    };
    match is_true {
        true => Ok(()),
        false => ONE_CHAIN.broken(format!(
            "{message:?} is sent, and the disk has {:?}",
            disk.map(|disk| (disk.view.id, disk.promised, disk.accepted.as_ref().map(|(ballot, _)| *ballot)))
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::MemberId;

    fn processes(nonces: &[u32]) -> Vec<Process> {
        nonces.iter().map(|nonce| Process { id: MemberId(u64::from(*nonce)), nonce: *nonce }).collect()
    }

    #[test]
    fn a_second_view_of_one_number_is_found() {
        let mut chain = RestartChain::default();
        chain.begins(ViewId(2), &processes(&[1, 2]), &[]).unwrap();
        chain.begins(ViewId(2), &processes(&[1, 2]), &[]).unwrap();
        assert!(chain.begins(ViewId(2), &processes(&[1]), &[]).is_err());
        assert_eq!(chain.count(), 1);
    }

    #[test]
    fn a_view_beside_a_recovery_is_found() {
        let mut chain = RestartChain::default();
        let recovered = ViewId(1).recovered(7);
        chain.begins(recovered, &processes(&[1]), &[]).unwrap();
        assert!(chain.clone().begins(ViewId(2), &processes(&[2]), &[recovered]).is_err());
        chain.begins(ViewId(2), &processes(&[2]), &[]).unwrap();
    }

    #[test]
    fn a_view_that_is_not_on_disk_is_found() {
        let view = View { id: ViewId(1), members: vec![MemberId(1)], nonvoters: vec![], subgroups: vec![].into() };
        let record = RestartRecord::first(view.clone(), vec![1], MemberId(1), true);
        is_recorded(Some(&record), &view).unwrap();
        assert!(is_recorded(Some(&record), &View { id: ViewId(2), ..view.clone() }).is_err());
        assert!(is_recorded(None, &view).is_err());
    }

    #[test]
    fn an_answer_that_is_not_on_disk_is_found() {
        let view = View { id: ViewId(1), members: vec![MemberId(1)], nonvoters: vec![], subgroups: vec![].into() };
        let mut record = RestartRecord::first(view, vec![1], MemberId(1), true);
        let ballot = RestartBallot { round: 1, leader: MemberId(1), nonce: 1 };
        let base = ViewId(1);
        let (logs, origins) = Default::default();
        let promise =
            RestartMessage::Promise { base, ballot, accepted: None, logs, origins, said_last: false, host: 1 };
        assert!(is_true(&promise, None).is_err() && is_true(&promise, Some(&record)).is_err());
        record.promised = ballot;
        is_true(&promise, Some(&record)).unwrap();
        assert!(is_true(&RestartMessage::Accepted { base, ballot }, Some(&record)).is_err());
    }
}
