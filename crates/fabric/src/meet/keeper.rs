//! Who may come in, and the founder's duty after the meeting: to hold the group's name and tell newcomers that they
//! are too late.
use super::Present;
use super::error::Fault;
use super::limits::{ACCEPT_PAUSE, ACCEPTS_PER_ROUND, FDS_PER_MEMBER, HELLO_TIME, NEWCOMERS_MAX};
use super::sock::{Credentials, Door, NoPacket, Receiver, send};
use super::wire::{Hello, Message, Refusal};
use crate::mail::GroupName;
use crate::mail::bytes::WireError;
use rustix::process::geteuid;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// What newcomers must agree with.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) group: GroupName,
    pub(super) members: u32,
    pub(super) config: u64,
}

impl Rules {
    /// Whether a newcomer fits in with those `present`, of whom there is no more room for any if `complete`.
    pub(super) fn judge(&self, hello: &Hello, present: &[Present], complete: bool) -> Result<(), Refusal> {
        if hello.group != self.group {
            return Err(Refusal::Group);
        }
        if hello.members != self.members {
            return Err(Refusal::Members(self.members));
        }
        if hello.config != self.config {
            return Err(Refusal::Config(self.config));
        }
        if let Some(holder) = present.iter().find(|p| p.id.is_some() && p.id == hello.id)
            && let Some(id) = holder.id
        {
            return Err(Refusal::IdInUse { id, pid: holder.pid });
        }
        if complete {
            return Err(Refusal::Running { pids: present.iter().map(|p| p.pid).collect() });
        }
        Ok(())
    }
}

impl Refusal {
    /// In a word, for whoever watches the founder.
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::Version => "it speaks another version",
            Self::Group => "it looks for another group",
            Self::Members(_) => "it wants another number of members",
            Self::Config(_) => "it has another configuration",
            Self::IdInUse { .. } => "its id is in use",
            Self::Running { .. } => "the group is complete",
            Self::NotYours { .. } => "it belongs to another user",
        }
    }
}

/// Tells a newcomer why it can't come in, if it still listens.
pub(super) fn refuse(socket: BorrowedFd<'_>, refusal: Refusal) -> Fault {
    let reason = refusal.reason();
    let _ = send(socket, &Message::Refusal(refusal).encode(), &[]);
    Fault::Refused(reason)
}

/// The kernel's word on a newcomer, unless it is none of this user's.
pub(super) fn admit(socket: BorrowedFd<'_>) -> Result<Credentials, Fault> {
    // The call can't fail on a connected socket; if it does, nothing is known of who is there.
    let Ok(credentials) = Credentials::of(socket) else { return Err(Fault::Refused("its user is unknown")) };
    if !credentials.trusted() {
        return Err(refuse(socket, Refusal::NotYours { uid: geteuid().as_raw() }));
    }
    Ok(credentials)
}

/// A newcomer's first message. `None`: not here yet.
pub(super) fn hear(receiver: &mut Receiver, socket: BorrowedFd<'_>) -> Result<Option<Hello>, NoPacket> {
    let packet = match receiver.receive(socket) {
        Ok(packet) => packet,
        Err(NoPacket::Empty) => return Ok(None),
        Err(NoPacket::Fault(Fault::Wire(WireError::Version { .. }))) => {
            return Err(NoPacket::Fault(refuse(socket, Refusal::Version)));
        }
        Err(other) => return Err(other),
    };
    packet.expect_fds(0).map_err(NoPacket::Fault)?;
    match packet.message {
        Message::Hello(hello) => Ok(Some(hello)),
        _ => Err(NoPacket::Fault(Fault::OutOfTurn)),
    }
}

/// Holds the group's name, at its founder; at the others there is nothing to hold.
///
/// The name is free again once this is dropped, or the process is dead. Newcomers are answered only while a
/// [`Watcher`](super::Watcher) has it.
#[derive(Debug)]
pub struct Keeper {
    post: Option<Post>,
}

#[derive(Debug)]
struct Post {
    door: Door,
    rules: Rules,
    present: Vec<Present>,
    newcomers: Vec<Newcomer>,
    /// Set while there is no descriptor for a newcomer.
    paused_until: Option<Instant>,
    receiver: Receiver,
}

#[derive(Debug)]
struct Newcomer {
    socket: OwnedFd,
    hello_by: Instant,
}

impl Keeper {
    /// That of a member that is not the founder.
    pub(super) fn none() -> Self {
        Self { post: None }
    }

    pub(super) fn new(door: Door, rules: Rules, present: Vec<Present>) -> Self {
        let receiver = Receiver::new(FDS_PER_MEMBER);
        Self { post: Some(Post { door, rules, present, newcomers: Vec::new(), paused_until: None, receiver }) }
    }

    /// Whether this process founded the group and so holds its name.
    pub fn is_founder(&self) -> bool {
        self.post.is_some()
    }

    /// What to wait for before the next [`Keeper::serve`].
    pub(super) fn waits_for(&self) -> impl Iterator<Item = BorrowedFd<'_>> {
        self.post.iter().flat_map(|post| {
            let open = post.paused_until.is_none() && post.newcomers.len() < NEWCOMERS_MAX;
            open.then(|| post.door.as_fd()).into_iter().chain(post.newcomers.iter().map(|n| n.socket.as_fd()))
        })
    }

    /// How long to wait at most; `None`: without end.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let post = self.post.as_ref()?;
        let next = post.newcomers.iter().map(|n| n.hello_by).chain(post.paused_until).min()?;
        Some(next.saturating_duration_since(now))
    }

    /// Answers everybody who has said something, without waiting.
    pub(super) fn serve(&mut self, now: Instant) {
        let Some(post) = &mut self.post else { return };
        if post.paused_until.is_some_and(|until| until <= now) {
            post.paused_until = None;
        }
        let Post { rules, present, newcomers, receiver, .. } = post;
        newcomers.retain(|newcomer| {
            let waits = match hear(receiver, newcomer.socket.as_fd()) {
                Ok(None) => true,
                Ok(Some(hello)) => {
                    if let Err(refusal) = rules.judge(&hello, present, true) {
                        refuse(newcomer.socket.as_fd(), refusal);
                    }
                    false
                }
                Err(_) => false,
            };
            waits && newcomer.hello_by > now
        });
        post.accept(now);
    }
}

impl Post {
    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_ROUND {
            if self.paused_until.is_some() || self.newcomers.len() >= NEWCOMERS_MAX {
                return;
            }
            match self.door.accept() {
                Ok(Some(socket)) if admit(socket.as_fd()).is_ok() => {
                    self.newcomers.push(Newcomer { socket, hello_by: now + HELLO_TIME });
                }
                Ok(Some(_)) => {}
                Ok(None) => return,
                // No descriptor or no memory: the newcomer stays in the queue, and trying at once again would spin.
                Err(_) => self.paused_until = Some(now + ACCEPT_PAUSE),
            }
        }
    }
}
