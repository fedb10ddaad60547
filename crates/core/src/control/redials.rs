//! Decides when to dial broken streams again. No I/O: time is an argument.
//!
//! The member that dialled a stream dials it again; the other waits. So two connection attempts
//! never cross. The pause between attempts begins at a few milliseconds and doubles. Its maximum is
//! far below the silence after which a member is suspected. A stream that soon breaks again does
//! not return to the short pauses.
//!
//! [`Redials`] judges no member, except by an answer of the member's own host: two refused
//! connections in a row, or another process at its address.
use crate::mutation::mutation;
use crate::{MemberId, Time, ViewId};
use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::time::Duration;

/// The first pause.
const PAUSE_MIN: Duration = Duration::from_millis(4);
/// The longest pause, unless the limit of silence is short.
const PAUSE_MAX: Duration = Duration::from_millis(250);
/// The longest pause, as a part of the silence after which a member is suspected.
const PAUSES_PER_SILENCE: u32 = 8;
/// The time after which a connection attempt without an outcome counts as lost.
const ATTEMPT_MAX: Duration = Duration::from_secs(10);
/// The number of refused connections in a row that prove the end of the process: its host answers,
/// and the process does not listen.
const REFUSALS: u32 = 2;

/// The reason why a connection attempt failed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Failure {
    /// Nothing on the peer's host listens at its address.
    Refused,
    /// Another process answers at the peer's address.
    Another,
    /// Any other failure, which proves nothing about the peer's process.
    Silent,
}

/// The streams that this member dials: those of the current view, and those of earlier views that
/// still have data to transfer.
#[derive(Debug)]
pub struct Redials {
    pause_max: Duration,
    streams: BTreeMap<(ViewId, MemberId), RedialStream>,
}

#[derive(Debug)]
struct RedialStream {
    state: RedialState,
    /// The next pause.
    pause: Duration,
    /// The number of connections refused in a row.
    refused: u32,
}

#[derive(Clone, Copy, Debug)]
enum RedialState {
    Up(Time),
    /// The next attempt begins at this time.
    Pausing(Time),
    /// An attempt has been under way since this time.
    Trying(Time),
}

impl Redials {
    /// Returns no streams. The pauses depend on the silence after which a member is suspected, if
    /// there is a limit.
    pub fn new(suspect_after: Option<Duration>) -> Redials {
        let part = suspect_after.map_or(PAUSE_MAX, |after| after / PAUSES_PER_SILENCE);
        Redials { pause_max: part.clamp(PAUSE_MIN, PAUSE_MAX), streams: BTreeMap::new() }
    }

    /// Adds the stream to `peer` in `view`, which this member dials. It counts as up until it is
    /// reported as [down](Self::down).
    pub fn add(&mut self, view: ViewId, peer: MemberId, now: Time) {
        let stream = RedialStream { state: RedialState::Up(now), pause: PAUSE_MIN, refused: 0 };
        self.streams.insert((view, peer), stream);
    }

    /// True if this member dials the stream to `peer` in `view`.
    pub fn has(&self, view: ViewId, peer: MemberId) -> bool {
        self.streams.contains_key(&(view, peer))
    }

    /// Notes that a new stream is attached.
    pub fn up(&mut self, view: ViewId, peer: MemberId, now: Time) {
        if let Some(stream) = self.streams.get_mut(&(view, peer)) {
            (stream.state, stream.refused) = (RedialState::Up(now), 0);
        }
    }

    /// Notes that the stream has ended. The first attempt follows at once if the stream was up for
    /// long.
    pub fn down(&mut self, view: ViewId, peer: MemberId, now: Time) {
        let Some(stream) = self.streams.get_mut(&(view, peer)) else { return };
        let RedialState::Up(since) = stream.state else { return };
        if now.since(since) > self.pause_max {
            stream.pause = PAUSE_MIN;
            stream.state = RedialState::Pausing(now);
        } else {
            stream.rest(now, self.pause_max);
        }
    }

    /// Notes that an attempt has failed. True if the answer of the peer's host proves that the
    /// process has ended. The stream is dialled again in either case.
    pub fn failed(&mut self, view: ViewId, peer: MemberId, failure: Failure, now: Time) -> bool {
        let Some(stream) = self.streams.get_mut(&(view, peer)) else { return false };
        if !matches!(stream.state, RedialState::Trying(_)) {
            return false;
        }
        stream.rest(now, self.pause_max);
        stream.refused = if failure == Failure::Refused { stream.refused + 1 } else { 0 };
        failure == Failure::Another || stream.refused == REFUSALS
    }

    /// Returns the streams to dial now, and counts an attempt for each.
    pub fn due(&mut self, now: Time) -> Vec<(ViewId, MemberId)> {
        let is_due = |stream: &RedialStream| match stream.state {
            RedialState::Up(_) => false,
            RedialState::Pausing(until) => until <= now,
            RedialState::Trying(since) => now.since(since) >= ATTEMPT_MAX,
        };
        let due = self.streams.iter_mut().filter(|(_, stream)| is_due(stream));
        due.map(|(key, stream)| {
            stream.state = RedialState::Trying(now);
            *key
        })
        .collect()
    }

    /// Returns the time until a stream is [due](Self::due); `None` if none waits.
    pub fn patience(&self, now: Time) -> Option<Duration> {
        let pauses = self.streams.values().filter_map(|stream| match stream.state {
            RedialState::Pausing(until) => Some(until.since(now)),
            RedialState::Up(_) | RedialState::Trying(_) => None,
        });
        pauses.min()
    }

    /// True if a stream waits for its next attempt.
    pub fn is_pausing(&self) -> bool {
        self.streams.values().any(|stream| matches!(stream.state, RedialState::Pausing(_)))
    }

    /// Forgets all streams except the `wanted` ones.
    pub fn retain(&mut self, wanted: impl Fn(ViewId, MemberId) -> bool) {
        self.streams.retain(|(view, peer), _| wanted(*view, *peer));
    }
}

impl RedialStream {
    fn rest(&mut self, now: Time, pause_max: Duration) {
        let gives_up = mutation!(RedialsGiveUp) && self.pause >= 4 * PAUSE_MIN;
        self.state = if gives_up { RedialState::Up(now) } else { RedialState::Pausing(now + self.pause) };
        self.pause = (2 * self.pause).min(pause_max);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;

    const VIEW: ViewId = ViewId(3);
    const PEER: MemberId = MemberId(7);
    const MS: Duration = Duration::from_millis(1);

    /// Redials with one stream that has been up for long.
    fn redials(suspect_after: Option<Duration>) -> (Redials, Time) {
        let (mut redials, start) = (Redials::new(suspect_after), Time(0));
        redials.add(VIEW, PEER, start);
        (redials, start + Duration::from_secs(100))
    }

    /// Lets the next attempt fail. Returns the pause before it, and whether the failure proved the
    /// end of the process.
    fn fail(redials: &mut Redials, now: &mut Time, failure: Failure) -> (Duration, bool) {
        let pause = redials.patience(*now).unwrap();
        assert!(pause.is_zero() || redials.due(*now).is_empty());
        *now += pause;
        assert_eq!(redials.due(*now), [(VIEW, PEER)]);
        assert!(!redials.is_pausing() && redials.due(*now).is_empty(), "one attempt at a time");
        (pause, redials.failed(VIEW, PEER, failure, *now))
    }

    #[test]
    fn pauses_double_up_to_a_part_of_the_silence_that_is_suspected() {
        for (after, most) in [(None, 250), (Some(5000), 250), (Some(800), 100), (Some(1), 4)] {
            let (mut redials, mut now) = redials(after.map(|after| after * MS));
            redials.down(VIEW, PEER, now);
            let pauses: Vec<_> = (0..12).map(|_| fail(&mut redials, &mut now, Failure::Silent).0).collect();
            assert_eq!(pauses[..3], [Duration::ZERO, 4 * MS, (8 * MS).min(most * MS)]);
            assert!(pauses.windows(2).all(|pair| pair[0] <= pair[1]) && pauses[11] == most * MS, "{pauses:?}");
        }
    }

    #[test]
    fn a_flapping_stream_keeps_its_pauses() {
        let (mut redials, mut now) = redials(None);
        redials.down(VIEW, PEER, now);
        let mut pauses = vec![];
        for _ in 0..10 {
            let pause = redials.patience(now).unwrap();
            pauses.push(pause);
            now += pause;
            assert_eq!(redials.due(now).len(), 1);
            redials.up(VIEW, PEER, now);
            assert!(redials.patience(now).is_none());
            redials.down(VIEW, PEER, now + MS);
        }
        assert!(pauses[9] >= 249 * MS, "{pauses:?}");
        redials.due(now + 300 * MS);
        redials.up(VIEW, PEER, now);
        now += Duration::from_secs(1);
        redials.down(VIEW, PEER, now);
        assert_eq!(redials.patience(now), Some(Duration::ZERO), "it has been up for long");
    }

    #[test]
    fn two_refusals_in_a_row_are_reported_once() {
        let (mut redials, mut now) = redials(None);
        redials.down(VIEW, PEER, now);
        let failures = [
            (Failure::Refused, false),
            (Failure::Silent, false),
            (Failure::Refused, false),
            (Failure::Refused, true),
            (Failure::Refused, false),
            (Failure::Silent, false),
            (Failure::Another, true),
        ];
        for (failure, is_reported) in failures {
            assert_eq!(fail(&mut redials, &mut now, failure).1, is_reported, "{failure:?}");
        }
    }

    #[test]
    fn only_streams_that_this_member_dials_are_dialled_again() {
        let (mut redials, now) = redials(None);
        redials.down(VIEW, MemberId(8), now);
        assert!(redials.due(now).is_empty() && !redials.failed(VIEW, MemberId(8), Failure::Another, now));
        redials.down(VIEW, PEER, now);
        redials.retain(|view, _| view != VIEW);
        assert!(redials.due(now).is_empty() && !redials.is_pausing());
    }
}
