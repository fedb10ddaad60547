//! The meeting as a member lives it that is not the founder: one connection, one message after the other.
use super::error::{Fault, Loss, MeetError};
use super::keeper::Keeper;
use super::limits::{FDS_PER_MEMBER, STARVED_PAUSE};
use super::sock::{Credentials, NoPacket, Packet, Receiver, Sent, send, wait_readable};
use super::wire::{Hello, Message, Refusal, VERSION};
use super::{Meeting, PeerFds, Roster, Session};
use crate::mail::bytes::WireError;
use rustix::io::Errno;
use rustix::process::geteuid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// How an attempt to join ended.
pub(super) enum Outcome {
    Met(Box<Meeting>),
    /// The founder left before the roster was complete: nothing is lost yet.
    FounderGone,
}

/// Joins the group whose founder is at the other end of `socket`.
pub(super) fn join(session: &mut Session<'_>, socket: OwnedFd) -> Result<Outcome, MeetError> {
    let founder = Credentials::of(socket.as_fd())?;
    if !founder.trusted() {
        return Err(MeetError::NotYours { ours: geteuid().as_raw(), theirs: founder.uid });
    }
    let mut line = Line { socket, receiver: Receiver::for_parts() };
    let Some(roster) = line.wait_for_view(session)? else { return Ok(Outcome::FounderGone) };
    session.see(roster.gathering());
    let mine = session.make(&roster)?;
    let fds = [mine.row.as_fd(), mine.bell.as_fd(), mine.pidfd.as_fd()];
    line.say(session, &roster, &Message::Offer, &fds)?;
    let peers = line.wait_for_peers(session, &roster)?;
    line.say(session, &roster, &Message::Ready, &[])?;
    line.wait_for_go(session, &roster)?;
    Ok(Outcome::Met(Box::new(Meeting { roster, peers, keeper: Keeper::none() })))
}

/// The connection to the founder.
struct Line {
    socket: OwnedFd,
    receiver: Receiver,
}

impl Line {
    /// Says who this process is and waits until everyone is here. `None`: the founder left.
    fn wait_for_view(&mut self, session: &mut Session<'_>) -> Result<Option<Roster>, MeetError> {
        let terms = &session.terms;
        let hello = Message::Hello(Hello {
            group: terms.group.clone(),
            members: terms.members,
            id: terms.id,
            config: terms.config,
            pid: std::process::id(),
        });
        // A failure shows in what is received: the founder's reason, if it had one, or the end.
        let _ = send(self.socket.as_fd(), &hello.encode(), &[]);
        loop {
            let packet = match self.next(session)? {
                Ok(packet) => packet,
                Err(Fault::Closed | Fault::Broken(_)) => return Ok(None),
                Err(fault) => return Err(founder_fault(session, fault)),
            };
            packet.expect_fds(0).map_err(|fault| founder_fault(session, fault))?;
            match packet.message {
                Message::Refusal(refusal) => return Err(refused(session, refusal)),
                Message::Here(gathering) => session.see(gathering),
                Message::View(roster) if roster.members.len() == session.terms.members as usize => {
                    return Ok(Some(roster));
                }
                _ => return Err(founder_fault(session, Fault::OutOfTurn)),
            }
        }
    }

    fn wait_for_peers(&mut self, session: &mut Session<'_>, roster: &Roster) -> Result<Vec<PeerFds>, MeetError> {
        let mut peers = Vec::with_capacity(roster.members.len());
        while peers.len() < roster.members.len() {
            let packet = self.next_of(session, roster)?;
            let Message::Part { first, count } = packet.message else {
                return Err(founder_fault(session, Fault::OutOfTurn));
            };
            let expected = count as usize * FDS_PER_MEMBER;
            packet.expect_fds(expected).map_err(|fault| founder_fault(session, fault))?;
            if first as usize != peers.len() || peers.len() + count as usize > roster.members.len() {
                return Err(founder_fault(session, Fault::OutOfTurn));
            }
            let mut fds = packet.fds.into_iter();
            while let (Some(row), Some(bell), Some(pidfd)) = (fds.next(), fds.next(), fds.next()) {
                peers.push(PeerFds { row, bell, pidfd });
            }
        }
        Ok(peers)
    }

    fn wait_for_go(&mut self, session: &mut Session<'_>, roster: &Roster) -> Result<(), MeetError> {
        match self.next_of(session, roster)?.message {
            Message::Go => Ok(()),
            _ => Err(founder_fault(session, Fault::OutOfTurn)),
        }
    }

    /// Sends to a founder whose roster is complete.
    fn say(
        &mut self,
        session: &Session<'_>,
        roster: &Roster,
        message: &Message,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(), MeetError> {
        let bytes = message.encode();
        loop {
            session.tick()?;
            match send(self.socket.as_fd(), &bytes, fds) {
                Ok(Sent::Done) => return Ok(()),
                Ok(Sent::Full | Sent::Starved) => std::thread::sleep(STARVED_PAUSE),
                // The founder's last word says whom it lost.
                Err(Errno::PIPE | Errno::CONNRESET) => loop {
                    self.next_of(session, roster)?;
                },
                Err(errno) => return Err(MeetError::io("send to the founder", None, errno)),
            }
        }
    }

    /// The next message of a founder whose roster is complete.
    fn next_of(&mut self, session: &Session<'_>, roster: &Roster) -> Result<Packet, MeetError> {
        match self.next(session)? {
            Ok(Packet { message: Message::Lost { id, pid, why }, .. }) => Err(MeetError::lost(id, pid, why)),
            Ok(packet) => Ok(packet),
            Err(fault @ (Fault::Closed | Fault::Broken(_))) => Err(founder_lost(roster, fault.loss())),
            Err(fault) => Err(founder_fault(session, fault)),
        }
    }

    fn next(&mut self, session: &Session<'_>) -> Result<Result<Packet, Fault>, MeetError> {
        loop {
            let tick = session.tick()?;
            match self.receiver.receive(self.socket.as_fd()) {
                Ok(packet) => return Ok(Ok(packet)),
                Err(NoPacket::Fault(fault)) => return Ok(Err(fault)),
                Err(NoPacket::FdLimit) => return Err(MeetError::fd_limit("receive the members' memory")),
                Err(NoPacket::Empty) => wait_readable(self.socket.as_fd(), tick)?,
            }
        }
    }
}

fn founder_lost(roster: &Roster, why: Loss) -> MeetError {
    let founder = roster.members[roster.founder.index()];
    MeetError::lost(founder.id, founder.pid, why)
}

fn founder_fault(session: &Session<'_>, fault: Fault) -> MeetError {
    match fault {
        Fault::Wire(WireError::Version { got }) => MeetError::VersionMismatch { ours: VERSION, theirs: got },
        fault => match session.terms.dir.socket_path(session.terms.group) {
            Ok(socket) => MeetError::Founder { socket, fault },
            Err(error) => error.into(),
        },
    }
}

/// The founder's reason, in this process's words.
fn refused(session: &Session<'_>, refusal: Refusal) -> MeetError {
    let terms = &session.terms;
    match refusal {
        // A founder of this version has no reason to say so; one of another version fails in the header.
        Refusal::Version | Refusal::Group => founder_fault(session, Fault::OutOfTurn),
        Refusal::Members(theirs) => MeetError::MembersMismatch { ours: terms.members, theirs },
        Refusal::Config(theirs) => MeetError::ConfigMismatch { ours: terms.config, theirs },
        Refusal::IdInUse { id, pid } => MeetError::IdInUse { id, pid },
        Refusal::Running { pids } => MeetError::GroupRunning { members: pids.len() as u32, pids },
        Refusal::NotYours { uid } => MeetError::NotYours { ours: geteuid().as_raw(), theirs: uid },
    }
}
