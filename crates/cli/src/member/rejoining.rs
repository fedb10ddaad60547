//! A member joins its group again after the others have continued without it.
use super::RunningMember;
use super::output::DeliveryOutput;
use crate::exit::{CliError, CliResult, ENDED, FAILED, USAGE};
use crate::lines;
use crate::quantity::messages;
use serde_json::json;
use spindle::{Config, Group, JoinError, MemberId, Node, RendezvousError, ViewId};
use spindle_transport::rendezvous::{ControlSocket, GroupName};
use std::fmt;
use std::sync::atomic::Ordering;

/// Number of ids that are tried when a member joins again, because others may take ids at the same
/// time.
const IDS_TRIED_MAX: u64 = 64;

/// How a group ended for a member that may join again.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupLoss {
    /// The newest view that contained the member.
    pub(super) view: ViewId,
    /// True if an operator's recovery gave the member up.
    pub(super) given_up: bool,
}

impl fmt::Display for GroupLoss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.given_up {
            true => write!(f, "given up after view {}", self.view),
            false => write!(f, "evicted from view {}", self.view),
        }
    }
}

impl RunningMember {
    /// Joins the group again after it has continued without this member.
    pub(super) fn rejoin(&mut self, left_out: GroupLoss, output: DeliveryOutput) -> CliResult<Group> {
        self.counts.end_group(super::SETTLE_WAIT);
        let (sent, delivered) =
            (self.counts.sent.load(Ordering::Relaxed), self.counts.delivered.load(Ordering::Relaxed));
        let (unconfirmed, last) = (self.counts.give_up(), left_out.view);
        if self.args.json {
            let object = json!({
                "event": "evicted", "view": last.0, "id": self.id, "sent": sent, "delivered": delivered,
                "unconfirmed": unconfirmed, "given_up": left_out.given_up,
            });
            lines::tell(object);
        } else {
            let why = if left_out.given_up { ", by an operator's recovery" } else { "" };
            eprintln!("{left_out}: the others went on without this member{why}. It joins again");
        }
        let node = self.join_as_new(left_out)?;
        if node.view().members.len() == 1 && node.view().id.0 == 1 {
            return Err(nobody_left(left_out));
        }
        if !self.args.json {
            let view = node.view().id;
            let mut lost = match view > last {
                true => format!("what the group delivered in between is missing here (views {last} to {view})"),
                false => format!(
                    "another group was created meanwhile; what was delivered after view {last} of the one before is missing here"
                ),
            };
            if unconfirmed > 0 {
                lost += &format!(
                    "; of {} sent, the last {unconfirmed} may have been delivered elsewhere or not",
                    messages(sent)
                );
            }
            eprintln!("{lost}");
        }
        self.start(node, output)
    }

    /// Joins under an id that, as far as this process knows, no member has had. A reference to the
    /// old id always means the evicted member.
    fn join_as_new(&self, left_out: GroupLoss) -> CliResult<Node> {
        if self.config.network.is_some() {
            return self.join_from_afar(left_out);
        }
        let dir = self.found.open().map_err(|error| CliError::new(FAILED, error))?;
        let group = GroupName::new(&self.found.group).map_err(|error| CliError::new(USAGE, error))?;
        let failed = |error: RendezvousError| CliError::new(FAILED, error);
        if ControlSocket::members(&dir, &group).map_err(failed)?.is_empty() {
            return Err(nobody_left(left_out));
        }
        let present = ControlSocket::present(&dir, &group).map_err(failed)?;
        let newest = present.last().map_or(0, |id| id.0).max(self.ids_max);
        for id in newest + 1..newest + IDS_TRIED_MAX {
            let config = Config { id: Some(MemberId(id)), founders: 1, ..self.config.clone() };
            match self.try_join(&config)? {
                Err(JoinError::Rendezvous(RendezvousError::IdInUse { .. })) => {}
                joined => return self.joined(joined),
            }
        }
        Err(CliError::new(FAILED, format_args!("the ids from {newest} up are all in use; start it again with --id")))
    }

    /// Does the same as [`join_as_new`](Self::join_as_new) in a group that spans hosts. The local
    /// directory does not show the remaining members of such a group, or the ids in use. So the
    /// join asks the seeds and draws a random id. A process that was a member creates no other
    /// group.
    fn join_from_afar(&self, left_out: GroupLoss) -> CliResult<Node> {
        let config =
            Config { id: None, was_member_of: Some(self.incarnation), force_create: false, ..self.config.clone() };
        match self.try_join(&config)? {
            Err(error @ JoinError::TimedOut { .. }) => {
                let message = format!("{left_out}, and the group was not found again: {error}");
                Err(CliError::new(ENDED, message))
            }
            joined => self.joined(joined),
        }
    }
}

fn nobody_left(left_out: GroupLoss) -> CliError {
    CliError::new(ENDED, format_args!("{left_out}, and the group has no member left to join again"))
}
