//! Requests to the members of a running group, from an admin client that takes no part in it.
use crate::exit::{CliError, CliResult, FAILED, USAGE};
use crate::settings::GroupLocation;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use serde_json::Value;
use spindle::{MemberId, RendezvousError};
use spindle_core::control::{ControlMessage, Request};
use spindle_transport::rendezvous::{ControlSocket, GroupName, Outbox, RuntimeDir, disclose};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// How long a member may take to answer. Its polling thread answers between two polls.
pub(crate) const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Most bytes of an answer, far more than the largest group needs.
const ANSWER_BYTES_MAX: u64 = 64 << 20;

/// An admin client of a group.
#[derive(Debug)]
pub(crate) struct AdminClient {
    dir: RuntimeDir,
    group: GroupName,
    control_socket: ControlSocket,
    outbox: Outbox,
    /// The number of the next request.
    next: u64,
}

/// The members' answers about themselves and their view; see `Status::to_json` of the library.
pub(crate) type MemberAnswers = BTreeMap<MemberId, Value>;

impl AdminClient {
    /// Opens a client to a group that has at least one process.
    pub(crate) fn open(found: &GroupLocation) -> CliResult<AdminClient> {
        let dir = found.open().map_err(|error| CliError::new(FAILED, error))?;
        let group = GroupName::new(&found.group).map_err(|error| CliError::new(USAGE, error))?;
        // This check comes before the address is created, so that a request to an unknown group
        // leaves nothing behind.
        if ControlSocket::present(&dir, &group).map_err(failed)?.is_empty() {
            let place = dir.path().display();
            let message = format!("group {group} has no members at {place}; start a member, or name its --runtime-dir");
            return Err(CliError::new(FAILED, message));
        }
        let control_socket = ControlSocket::client(&dir, &group).map_err(failed)?;
        // Answers to an earlier client at this address may still come.
        let next = u64::from(std::process::id()) << 32;
        Ok(AdminClient { dir, group, control_socket, outbox: Outbox::new(), next })
    }

    /// Returns the live members, that is processes that created the group or were admitted, by
    /// ascending id.
    pub(crate) fn members(&self) -> CliResult<Vec<MemberId>> {
        ControlSocket::members(&self.dir, &self.group).map_err(failed)
    }

    /// Returns the live processes with an address in the group, including those that wait for
    /// admission.
    pub(crate) fn present(&self) -> CliResult<Vec<MemberId>> {
        ControlSocket::present(&self.dir, &self.group).map_err(failed)
    }

    /// Sends a request to all of `members` and waits for their answers, [`ANSWER_WAIT`] at most.
    /// The result lacks members that do not answer.
    pub(crate) fn ask(&mut self, members: &[MemberId], what: Request) -> CliResult<MemberAnswers> {
        let from = self.control_socket.id();
        let mut open = BTreeMap::new();
        for member in members {
            let reply = self.next;
            self.next += 1;
            open.insert(reply, *member);
            self.outbox
                .push(*member, ControlMessage::Request { from, reply, what: what.clone() }, &[])
                .map_err(failed)?;
        }
        let deadline = Instant::now() + ANSWER_WAIT;
        let mut answers = MemberAnswers::new();
        loop {
            let gone = self.outbox.flush(&self.control_socket).map_err(failed)?;
            // A member whose socket was removed creates it again.
            let lives = |member| ControlSocket::lives(&self.dir, &self.group, member).unwrap_or(false);
            open.retain(|_, member| !gone.contains(member) || lives(*member));
            while let Some((message, fds)) = self.control_socket.receive() {
                match message {
                    ControlMessage::Answer { reply, bytes } => {
                        let Some(member) = open.remove(&reply) else { continue };
                        let text = disclose(&fds[0], bytes, ANSWER_BYTES_MAX).map_err(failed)?;
                        if let Ok(answer) = serde_json::from_slice(&text) {
                            answers.insert(member, answer);
                        }
                    }
                    ControlMessage::Refused { why } => return Err(CliError::new(FAILED, why)),
                    _ => {}
                }
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if open.is_empty() || left.is_zero() {
                break;
            }
            self.wait(self.outbox.patience().map_or(left, |patience| patience.min(left)));
        }
        // A member that has not read the request by now must not get it later.
        members.iter().for_each(|member| self.outbox.forget(*member));
        Ok(answers)
    }

    /// Waits until a control message arrives, or until `at_most` has passed.
    fn wait(&self, at_most: Duration) {
        let at_most = Timespec { tv_sec: at_most.as_secs() as i64, tv_nsec: at_most.subsec_nanos().into() };
        // A signal only makes the caller check earlier.
        let _ = poll(&mut [PollFd::new(&self.control_socket, PollFlags::IN)], Some(&at_most));
    }
}

fn failed(error: RendezvousError) -> CliError {
    CliError::new(FAILED, error)
}

/// Returns the ids of the view in an answer, by rank.
pub(crate) fn members_of(answer: &Value) -> Vec<u64> {
    let members = answer["members"].as_array().into_iter().flatten();
    members.filter_map(|member| member["id"].as_u64()).collect()
}

/// Returns the answer with the newest view. If several have that view, returns the one with the
/// lowest rank.
pub(crate) fn newest(answers: &MemberAnswers) -> Option<&Value> {
    answers.values().min_by_key(|answer| {
        let rank = members_of(answer).iter().position(|id| Some(*id) == answer["id"].as_u64());
        (std::cmp::Reverse(answer["view"].as_u64()), rank)
    })
}
