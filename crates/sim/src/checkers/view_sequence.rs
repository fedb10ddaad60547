//! Invariant 5, one view sequence: the installed views form one chain. Each view that ends has one
//! decision. A member goes from each view to its successor, or joins in the successor.
use super::{Checked, Invariant};
use spindle_core::{MemberId, View, ViewId};

const INVARIANT: Invariant = Invariant(5, "one view sequence");

/// All views so far, and the trims of the ended ones.
#[derive(Clone, Debug)]
pub struct ViewSequence {
    views: Vec<View>,
    trims: Vec<Vec<Box<[u64]>>>,
}

impl ViewSequence {
    /// Returns the chain that begins with `first`.
    pub fn new(first: &View) -> ViewSequence {
        ViewSequence { views: vec![first.clone()], trims: vec![] }
    }

    /// Records the decision that `member` knows: the view `old` ends with these trims, and `next`
    /// follows it.
    ///
    /// # Errors
    /// If another member knows another decision.
    pub fn decided(&mut self, member: MemberId, old: ViewId, next: &View, trims: &[Box<[u64]>]) -> Checked {
        let first = self.views[0].id.0;
        let place = (old.0 - first) as usize;
        if next.id.0 != old.0 + 1 || place >= self.views.len() {
            return INVARIANT.broken(format!("member {member} goes from view {old} to view {}", next.id));
        }
        if place == self.trims.len() {
            self.views.push(next.clone());
            self.trims.push(trims.to_vec());
            return Ok(());
        }
        let (view, trim) = (&self.views[place + 1], &self.trims[place]);
        if view != next {
            return INVARIANT.broken(format!(
                "two views {}: of {:?}, and for member {member} of {:?}{}",
                next.id,
                view.members,
                next.members,
                if view.members == next.members { ", with other subgroups" } else { "" }
            ));
        }
        if trim != trims {
            return INVARIANT
                .broken(format!("view {old} is trimmed at {trim:?}, and for member {member} at {trims:?}"));
        }
        Ok(())
    }

    /// Checks that `member` installs `view`, coming from the view `from` if it was in one.
    ///
    /// # Errors
    /// If `view` is not the next one, not the decided one, or does not contain the member.
    pub fn installed(&self, member: MemberId, view: &View, from: Option<ViewId>) -> Checked {
        let known = self.views.iter().find(|known| known.id == view.id);
        if known != Some(view) {
            return INVARIANT.broken(format!("member {member} installs a view {} that was not decided", view.id));
        }
        if !view.members.contains(&member) {
            return INVARIANT.broken(format!("member {member} installs view {}, which is without it", view.id));
        }
        let before = self.views.iter().find(|known| known.id.0 + 1 == view.id.0);
        let was_there = before.is_some_and(|before| before.members.contains(&member));
        let expected = was_there.then(|| ViewId(view.id.0 - 1));
        if from != expected {
            return INVARIANT
                .broken(format!("member {member} comes to view {} from {from:?}, not from {expected:?}", view.id));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn view(id: u64, members: &[u64]) -> View {
        let members = members.iter().copied().map(MemberId).collect();
        View { id: ViewId(id), members, nonvoters: vec![], subgroups: Default::default() }
    }

    #[test]
    fn two_successors_and_two_trims_are_found() {
        let mut chain = ViewSequence::new(&view(1, &[7, 8, 9]));
        let mut decided =
            |member, old, next: &View, trim| chain.decided(MemberId(member), ViewId(old), next, &[Box::from([trim])]);
        assert_eq!(decided(7, 1, &view(2, &[7, 8]), 5), Ok(()));
        assert_eq!(decided(8, 1, &view(2, &[7, 8]), 5), Ok(()));
        assert_eq!(decided(9, 1, &view(2, &[8, 9]), 5).unwrap_err().number, 5);
        assert!(decided(8, 1, &view(2, &[7, 8]), 6).is_err(), "another trim");
        assert!(decided(8, 2, &view(4, &[8]), 6).is_err(), "one left out");
        assert!(decided(8, 3, &view(4, &[8]), 6).is_err(), "after a view that was not decided");
    }

    #[test]
    fn members_that_skip_a_view_or_install_another_are_found() {
        let mut chain = ViewSequence::new(&view(1, &[7, 8]));
        chain.decided(MemberId(7), ViewId(1), &view(2, &[7, 8, 9]), &[]).unwrap();
        let installed =
            |member, view: &View, from: Option<u64>| chain.installed(MemberId(member), view, from.map(ViewId));
        assert_eq!(installed(7, &view(2, &[7, 8, 9]), Some(1)), Ok(()));
        assert_eq!(installed(9, &view(2, &[7, 8, 9]), None), Ok(()));
        assert_eq!(installed(8, &view(2, &[7, 8, 9]), None).unwrap_err().number, 5);
        assert!(installed(9, &view(2, &[7, 8, 9]), Some(1)).is_err(), "it was not in view 1");
        assert!(installed(8, &view(2, &[7, 8]), Some(1)).is_err(), "another membership");
        assert!(installed(6, &view(2, &[7, 8, 9]), None).is_err(), "not a member");
    }
}
