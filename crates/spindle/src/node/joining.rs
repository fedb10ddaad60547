//! The ways from a [`Config`] to a [`Node`]: a process joins a group, with or without its state, or
//! makes all members of a group itself.
use super::Node;
use crate::bootstrap_progress::BootstrapProgress;
use crate::config::{Config, Terms};
use crate::control_plane::ControlPlane;
use crate::error::JoinError;
use crate::handler::Handler;
use crate::joining::{Candidate, First, Joined, no_event_count};
use crate::logs::Logs;
use spindle_core::{Engine, MemberId};
use spindle_fabric::{Arena, LogClock, MemberEventCount};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

impl Config {
    /// Joins the group, or creates it together with the other processes of this configuration.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join(self) -> Result<Node, JoinError> {
        self.join_with(&mut |_| {}, &AtomicBool::new(false))
    }

    /// As [`join`](Self::join). Reports the present and missing processes to `progress`, and gives
    /// up soon after `cancelled` is set.
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn join_with(
        self,
        progress: &mut dyn FnMut(&BootstrapProgress),
        cancelled: &AtomicBool,
    ) -> Result<Node, JoinError> {
        let mut candidate = Candidate::new(&self, progress, cancelled)?;
        Node::of(candidate.join()?)
    }

    /// As [`join_with`](Self::join_with), for applications that have a state.
    ///
    /// `handler` [restores](Handler::restore) the state of a member and [learns](Handler::learn)
    /// the messages since then. When the call returns, it has the same state as all members. The
    /// group does not wait meanwhile. If the group is just being created, no state exists and
    /// nothing is learned.
    ///
    /// # Errors
    /// [`JoinError`]; [`JoinError::Restore`] if the handler could not restore the state;
    /// [`JoinError::GroupGone`] if all members ended after it had restored it. The handler then
    /// contains the state of no group, so begin with a new handler.
    pub fn learn(
        self,
        handler: &mut impl Handler,
        progress: &mut dyn FnMut(&BootstrapProgress),
        cancelled: &AtomicBool,
    ) -> Result<Node, JoinError> {
        let mut candidate = Candidate::new(&self, progress, cancelled)?;
        Node::of(candidate.learn(handler)?)
    }

    /// Returns all members of the group, in this process: for tests and experiments. The data
    /// directory of each is `member-ID` in the [data directory](Self::data_dir).
    ///
    /// # Errors
    /// [`JoinError`].
    pub fn local(&self) -> Result<Vec<Node>, JoinError> {
        self.check()?;
        let board = Arc::default();
        let view = self.view((1..=u64::from(self.founders)).map(MemberId).collect());
        // Nodes of one process may be polled by one thread, which is then silent at all but one of
        // them.
        let clock = LogClock::new(self.clock.clone());
        let terms = Terms { suspect_after: None, ..self.terms(&clock) };
        let installing = |id: &MemberId| -> Result<_, JoinError> {
            let mut control_plane = ControlPlane::local(&board, *id);
            let event_count = MemberEventCount::create().map_err(no_event_count)?;
            let me = view.rank_of(*id).expect("a member of its own view");
            let engine = Engine::new(view.clone(), me, terms.ablation)?;
            let data_dir = terms.data_dir.as_ref().map(|dir| dir.join(format!("member-{id}")));
            let logs = Logs::open(&Terms { data_dir, ..terms.clone() }, &view, &mut control_plane)?;
            let first =
                First::new(engine, &[], &mut control_plane, Arena::new(event_count), terms.suspect_after, None)?;
            Ok((control_plane, first, logs))
        };
        let members: Vec<_> = view.members.iter().map(installing).collect::<Result<_, _>>()?;
        let begun = members.into_iter();
        begun
            .map(|(control_plane, first, logs)| Node::new(control_plane, first, (logs, false), terms.clone()))
            .collect()
    }
}

impl Node {
    /// Returns the node of a process that has joined.
    fn of(joined: Joined) -> Result<Node, JoinError> {
        let Joined { first, logs, is_restored, control_plane, terms } = joined;
        Node::new(control_plane, first, (logs, is_restored), terms)
    }
}
