//! The meeting as its founder lives it: one loop over all connections that never waits for any one of them.
//!
//! Until the roster is complete a connection that ends just leaves. From then on each has a rank, and the first that
//! ends or misbehaves ends the meeting for all.
use super::error::{Fault, Loss, MeetError};
use super::keeper::{Keeper, Rules, admit, hear, refuse};
use super::limits::{
    ACCEPTS_PER_ROUND, FDS_PER_MEMBER, HELLO_TIME, MEMBERS_PER_PART, STARVED_PAUSE, TELL_EVERY, connections_max,
};
use super::sock::{Door, NoPacket, Packet, Receiver, Sent, send, wait};
use super::wire::{Hello, Message};
use super::{Gathering, Meeting, Member, PeerFds, Present, Roster, Session};
use crate::mail::kernel::{is_pidfd, random};
use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;
use spindle_core::{MemberId, Rank};
use std::collections::{BTreeSet, VecDeque};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

/// Holds the meeting whose name `door` has taken.
pub(super) fn found(session: &mut Session<'_>, door: Door) -> Result<Meeting, MeetError> {
    let mut founder = Founder::new(session, door);
    founder.gather(session)?;
    let roster = founder.close()?;
    match founder.trade(session, &roster) {
        Ok(()) => Ok(founder.into_meeting(roster)),
        Err(error) => {
            let error = founder.blame(error, &roster);
            founder.break_up(&error);
            Err(error)
        }
    }
}

struct Founder {
    door: Door,
    rules: Rules,
    myself: Present,
    guests: Vec<Guest>,
    receiver: Receiver,
    /// Set once the roster is complete.
    complete: Option<Roster>,
    /// By rank, once the roster is complete.
    offers: Vec<Option<PeerFds>>,
    told_at: Option<Instant>,
    /// For the caller: dropped connections that it has not been told of.
    dropped: Vec<(u32, Fault)>,
}

/// A connection.
struct Guest {
    socket: OwnedFd,
    pid: u32,
    hello_by: Instant,
    stage: Stage,
    outbox: VecDeque<Letter>,
    /// Has not been told of the latest coming or going.
    stale: bool,
    /// Has descriptors in its outbox that have to wait until fewer are on their way.
    starved: bool,
    fault: Option<Fault>,
}

enum Stage {
    /// Has said nothing.
    Silent,
    /// Waits for the others.
    Present(Present),
    /// The roster is complete; its offer is expected.
    Ranked(Rank),
    /// Its offer is here.
    Offered(Rank),
    /// It holds everybody's offers.
    Ready(Rank),
}

enum Letter {
    Plain(Vec<u8>),
    /// The offers of `count` members from rank `first`.
    Part {
        first: u32,
        count: u32,
    },
}

impl Founder {
    fn new(session: &Session<'_>, door: Door) -> Self {
        let terms = &session.terms;
        Self {
            door,
            rules: Rules { group: terms.group.clone(), members: terms.members, config: terms.config },
            myself: session.myself(),
            guests: Vec::new(),
            receiver: Receiver::new(FDS_PER_MEMBER),
            complete: None,
            offers: Vec::new(),
            told_at: None,
            dropped: Vec::new(),
        }
    }

    /// Runs until everyone is here.
    fn gather(&mut self, session: &mut Session<'_>) -> Result<(), MeetError> {
        while self.present().len() < self.rules.members as usize {
            self.round(session)?;
            self.tell(session);
        }
        Ok(())
    }

    /// Gives everyone present a rank. Wanted ids come first; the others get the smallest that are left, from 1.
    fn close(&mut self) -> Result<Roster, MeetError> {
        let present = self.present();
        let taken: BTreeSet<_> = present.iter().filter_map(|p| p.id).collect();
        let mut free = (1..).map(MemberId).filter(|id| !taken.contains(id));
        // In the order of `present`: the founder, then the guests.
        let ids: Vec<_> = present.iter().filter_map(|p| p.id.or_else(|| free.next())).collect();
        let mut members: Vec<_> =
            ids.iter().zip(&present).map(|(id, present)| Member { id: *id, pid: present.pid }).collect();
        members.sort_by_key(|member| member.id);
        let rank_of = |id: &MemberId| Rank(members.partition_point(|member| member.id < *id) as u32);
        let mut ranks = ids.iter().map(rank_of);
        let me = ranks.next().unwrap_or(Rank(0));
        for guest in &mut self.guests {
            if let (Stage::Present(_), None) = (&guest.stage, &guest.fault)
                && let Some(rank) = ranks.next()
            {
                guest.stage = Stage::Ranked(rank);
            }
        }
        let incarnation = random().map_err(|source| MeetError::Io { doing: "draw random bits", path: None, source })?;
        let roster = Roster { members, me, founder: me, incarnation };
        self.offers.resize_with(roster.members.len(), || None);
        self.complete = Some(roster.clone());
        Ok(roster)
    }

    /// Collects everybody's offers, hands them out, and runs until everyone is ready and knows it.
    fn trade(&mut self, session: &mut Session<'_>, roster: &Roster) -> Result<(), MeetError> {
        session.see(roster.gathering());
        self.post(|rank| [Letter::plain(&Message::View(Roster { me: rank, ..roster.clone() }))]);
        self.offers[roster.me.index()] = Some(session.make(roster)?);
        while self.offers.iter().any(Option::is_none) {
            self.round(session)?;
        }
        let members = roster.members.len();
        self.post(|_| {
            (0..members).step_by(MEMBERS_PER_PART).map(move |first| Letter::Part {
                first: first as u32,
                count: (members - first).min(MEMBERS_PER_PART) as u32,
            })
        });
        let unready = |guest: &Guest| matches!(guest.stage, Stage::Ranked(_) | Stage::Offered(_));
        while self.guests.iter().any(unready) {
            self.round(session)?;
        }
        self.post(|_| [Letter::plain(&Message::Go)]);
        // From here on somebody may have started, so a loss is the death watch's to report.
        while self.guests.iter().any(|guest| guest.fault.is_none() && !guest.outbox.is_empty()) {
            self.wait(session.tick()?)?;
            self.guests.iter_mut().for_each(|guest| guest.flush(&self.offers));
        }
        Ok(())
    }

    /// One turn of the loop: waits for events and answers all of them.
    fn round(&mut self, session: &mut Session<'_>) -> Result<(), MeetError> {
        let tick = session.tick()?;
        let events = self.wait(tick)?;
        // Guests first: those who come in now were not waited for.
        let now = Instant::now();
        for (i, event) in events.iter().enumerate() {
            if event.intersects(PollFlags::IN | PollFlags::HUP | PollFlags::ERR) {
                self.listen_to(i)?;
            }
            if matches!(self.guests[i].stage, Stage::Silent) && self.guests[i].hello_by <= now {
                self.guests[i].fail(Fault::Silent);
            }
        }
        self.sweep()?;
        self.accept(now)?;
        self.guests.iter_mut().for_each(|guest| guest.flush(&self.offers));
        for dropped in std::mem::take(&mut self.dropped) {
            session.see(Gathering { dropped: Some(dropped), ..self.gathering() });
        }
        Ok(())
    }

    /// Waits for events; the answer has one entry a guest.
    fn wait(&self, tick: Duration) -> Result<Vec<PollFlags>, MeetError> {
        let mut timeout = tick;
        let mut fds = Vec::with_capacity(self.guests.len() + 1);
        for guest in &self.guests {
            let wants_out = !guest.outbox.is_empty() && !guest.starved;
            let out = if wants_out { PollFlags::OUT } else { PollFlags::empty() };
            fds.push(PollFd::from_borrowed_fd(guest.socket.as_fd(), PollFlags::IN | out));
            if guest.starved {
                timeout = timeout.min(STARVED_PAUSE);
            } else if guest.stale {
                timeout = timeout.min(TELL_EVERY);
            }
        }
        fds.push(PollFd::new(&self.door, PollFlags::IN));
        wait(&mut fds, Some(timeout)).map_err(|errno| MeetError::io("wait for the members", None, errno))?;
        fds.pop();
        Ok(fds.iter().map(PollFd::revents).collect())
    }

    fn accept(&mut self, now: Instant) -> Result<(), MeetError> {
        for _ in 0..ACCEPTS_PER_ROUND {
            let Some(socket) = self.door.accept()? else { return Ok(()) };
            match admit(socket.as_fd()) {
                Ok(credentials) => self.guests.push(Guest::new(socket, credentials.pid, now)),
                Err(fault) => self.dropped.push((0, fault)),
            }
            if self.guests.len() > connections_max(self.rules.members) {
                self.make_room();
            }
        }
        Ok(())
    }

    /// Drops the oldest connection that has said nothing. There is one: those that did are fewer than the members.
    fn make_room(&mut self) {
        if let Some(oldest) = self.guests.iter().position(|guest| matches!(guest.stage, Stage::Silent)) {
            let guest = self.guests.remove(oldest);
            self.dropped.push((guest.pid, Fault::Crowded));
        }
    }

    /// Takes in one message of guest `i`.
    fn listen_to(&mut self, i: usize) -> Result<(), MeetError> {
        let heard = match self.guests[i].stage {
            Stage::Silent => self.welcome(i),
            _ => self.converse(i),
        };
        match heard {
            Ok(()) | Err(NoPacket::Empty) => Ok(()),
            Err(NoPacket::Fault(fault)) => {
                self.guests[i].fail(fault);
                Ok(())
            }
            Err(NoPacket::FdLimit) => Err(MeetError::fd_limit("receive a member's memory")),
        }
    }

    fn welcome(&mut self, i: usize) -> Result<(), NoPacket> {
        let Some(hello) = hear(&mut self.receiver, self.guests[i].socket.as_fd())? else { return Ok(()) };
        let judged = self.rules.judge(&hello, &self.present(), self.is_full());
        let guest = &mut self.guests[i];
        match judged {
            Ok(()) => guest.seat(&hello),
            Err(refusal) => guest.fault = Some(refuse(guest.socket.as_fd(), refusal)),
        }
        if guest.fault.is_none() {
            self.guests.iter_mut().for_each(|guest| guest.stale = true);
        }
        Ok(())
    }

    fn converse(&mut self, i: usize) -> Result<(), NoPacket> {
        let guest = &mut self.guests[i];
        let packet = self.receiver.receive(guest.socket.as_fd())?;
        match (&guest.stage, &packet.message) {
            (Stage::Ranked(rank), Message::Offer) => {
                let rank = *rank;
                let offer = offer(packet).map_err(NoPacket::Fault)?;
                self.offers[rank.index()] = Some(offer);
                guest.stage = Stage::Offered(rank);
                Ok(())
            }
            (Stage::Offered(rank), Message::Ready) if guest.outbox.is_empty() => {
                let rank = *rank;
                packet.expect_fds(0).map_err(NoPacket::Fault)?;
                guest.stage = Stage::Ready(rank);
                Ok(())
            }
            _ => Err(NoPacket::Fault(Fault::OutOfTurn)),
        }
    }

    /// Removes the connections that failed.
    fn sweep(&mut self) -> Result<(), MeetError> {
        let mut left = false;
        let mut lost = None;
        for guest in self.guests.extract_if(.., |guest| guest.fault.is_some()) {
            let Some(fault) = guest.fault else { continue };
            left |= matches!(guest.stage, Stage::Present(_));
            lost = lost.or(guest.stage.rank().map(|rank| (rank, fault.loss())));
            self.dropped.push((guest.pid, fault));
        }
        if left {
            self.guests.iter_mut().for_each(|guest| guest.stale = true);
        }
        match (lost, &self.complete) {
            (Some((rank, why)), Some(roster)) => {
                let member = roster.members[rank.index()];
                Err(MeetError::lost(member.id, member.pid, why))
            }
            _ => Ok(()),
        }
    }

    /// Tells the caller and everyone present who is here.
    fn tell(&mut self, session: &mut Session<'_>) {
        let gathering = self.gathering();
        session.see(gathering.clone());
        let now = Instant::now();
        if self.told_at.is_some_and(|at| now < at + TELL_EVERY) {
            return;
        }
        let news = Message::Here(gathering).encode();
        for guest in &mut self.guests {
            // A guest that does not read gets the next news instead.
            if guest.stale && guest.outbox.is_empty() && matches!(guest.stage, Stage::Present(_)) {
                guest.outbox.push_back(Letter::Plain(news.clone()));
                guest.flush(&self.offers);
                guest.stale = false;
                self.told_at = Some(now);
            }
        }
    }

    /// Sends letters to every member.
    fn post<L: IntoIterator<Item = Letter>>(&mut self, letters: impl Fn(Rank) -> L) {
        for guest in &mut self.guests {
            guest.stale = false;
            if let Some(rank) = guest.stage.rank() {
                guest.outbox.extend(letters(rank));
                guest.flush(&self.offers);
            }
        }
    }

    /// Once the roster is complete a deadline has somebody to name: the first that did not do its part.
    fn blame(&self, error: MeetError, roster: &Roster) -> MeetError {
        let late = |guest: &&Guest| matches!(guest.stage, Stage::Ranked(_) | Stage::Offered(_));
        let rank = self.guests.iter().find(late).and_then(|guest| guest.stage.rank());
        match (error, rank) {
            (MeetError::TimedOut { .. }, Some(rank)) => {
                let member = roster.members[rank.index()];
                MeetError::lost(member.id, member.pid, Loss::Late)
            }
            (error, _) => error,
        }
    }

    /// Tells every member that there will be no group, and because of whom. Any other failure is the founder's own,
    /// and its silence says so.
    fn break_up(&mut self, error: &MeetError) {
        if let MeetError::MemberLost { id, pid, why } = *error {
            let letter = Message::Lost { id, pid, why }.encode();
            for guest in self.guests.iter().filter(|guest| guest.stage.rank().is_some()) {
                let _ = send(guest.socket.as_fd(), &letter, &[]);
            }
        }
    }

    fn into_meeting(self, roster: Roster) -> Meeting {
        let keeper = Keeper::new(self.door, self.rules, roster.gathering().present);
        Meeting { peers: self.offers.into_iter().flatten().collect(), roster, keeper }
    }

    /// Who is here, under the ids that they have by now.
    fn present(&self) -> Vec<Present> {
        if let Some(roster) = &self.complete {
            return roster.gathering().present;
        }
        let guests = self.guests.iter().filter_map(|guest| match (&guest.stage, &guest.fault) {
            (Stage::Present(present), None) => Some(*present),
            _ => None,
        });
        [self.myself].into_iter().chain(guests).collect()
    }

    fn is_full(&self) -> bool {
        self.present().len() >= self.rules.members as usize
    }

    fn gathering(&self) -> Gathering {
        Gathering { members: self.rules.members, present: self.present(), dropped: None }
    }
}

impl Guest {
    fn new(socket: OwnedFd, pid: u32, now: Instant) -> Self {
        let hello_by = now + HELLO_TIME;
        let outbox = VecDeque::new();
        Self { socket, pid, hello_by, stage: Stage::Silent, outbox, stale: false, starved: false, fault: None }
    }

    fn seat(&mut self, hello: &Hello) {
        // What the process says of itself counts only where the kernel can't name it.
        if self.pid == 0 {
            self.pid = hello.pid;
        }
        self.stage = Stage::Present(Present { id: hello.id, pid: self.pid });
    }

    fn fail(&mut self, fault: Fault) {
        self.fault.get_or_insert(fault);
    }

    /// Sends what can be sent without waiting.
    fn flush(&mut self, offers: &[Option<PeerFds>]) {
        self.starved = false;
        while let Some(letter) = self.outbox.front() {
            match letter.send(self.socket.as_fd(), offers) {
                Ok(Sent::Done) => drop(self.outbox.pop_front()),
                Ok(Sent::Full) => return,
                Ok(Sent::Starved) => {
                    self.starved = true;
                    return;
                }
                Err(errno) => {
                    self.fail(if errno == Errno::PIPE { Fault::Closed } else { Fault::Broken(errno) });
                    return;
                }
            }
        }
    }
}

impl Stage {
    fn rank(&self) -> Option<Rank> {
        match self {
            Self::Silent | Self::Present(_) => None,
            Self::Ranked(rank) | Self::Offered(rank) | Self::Ready(rank) => Some(*rank),
        }
    }
}

impl Letter {
    fn plain(message: &Message) -> Self {
        Self::Plain(message.encode())
    }

    fn send(&self, socket: BorrowedFd<'_>, offers: &[Option<PeerFds>]) -> Result<Sent, Errno> {
        match self {
            Self::Plain(bytes) => send(socket, bytes, &[]),
            Self::Part { first, count } => {
                let offers = offers[*first as usize..][..*count as usize].iter().flatten();
                let fds: Vec<_> = offers.flat_map(|o| [o.row.as_fd(), o.bell.as_fd(), o.pidfd.as_fd()]).collect();
                send(socket, &Message::Part { first: *first, count: *count }.encode(), &fds)
            }
        }
    }
}

/// A member's three descriptors, of which the third must be of a process.
fn offer(packet: Packet) -> Result<PeerFds, Fault> {
    packet.expect_fds(FDS_PER_MEMBER)?;
    let mut fds = packet.fds.into_iter();
    match (fds.next(), fds.next(), fds.next()) {
        (Some(row), Some(bell), Some(pidfd)) if is_pidfd(pidfd.as_fd()) => Ok(PeerFds { row, bell, pidfd }),
        _ => Err(Fault::Fds { got: FDS_PER_MEMBER as u32, expected: FDS_PER_MEMBER as u32 }),
    }
}
