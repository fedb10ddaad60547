//! The sessions of an object: the outcomes of recent calls, so that no call is executed twice.
//!
//! INV-ONCE: a call is executed only if its session exists, its number is not below the session's
//! floor, and no outcome is kept for it. A session that has expired does not come back: a handle
//! opens another one.
use crate::answer::{Answer, Refusal};
use crate::id::{CallId, SessionId};
use crate::settings::Settings;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::time::Duration;

/// One session.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize, Debug)]
struct Session {
    /// The time of the log at its last use, in microseconds.
    used_us: u64,
    /// The index of the message that used it last.
    used: u64,
    /// Outcomes of calls with lower numbers are not kept.
    floor: u64,
    outcomes: BTreeMap<u64, Answer>,
}

/// All sessions.
#[derive(Clone, PartialEq, Eq, Default, Serialize, Deserialize, Debug)]
pub(crate) struct Sessions {
    sessions: BTreeMap<SessionId, Session>,
    /// By last use. The time of the log never falls, so those that expire first come first.
    by_use: BTreeMap<u64, SessionId>,
    /// The bytes of all kept replies.
    reply_bytes: u64,
}

/// The position and time of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At {
    pub(crate) index: u64,
    pub(crate) time_us: u64,
}

impl Sessions {
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Opens a session, unless it exists.
    pub(crate) fn open(&mut self, id: SessionId, at: At, settings: &Settings) {
        if self.touch(id, at) {
            return;
        }
        while self.sessions.len() >= settings.sessions_max.max(1) as usize {
            self.remove_oldest();
        }
        let session = Session { used_us: at.time_us, used: at.index, floor: 0, outcomes: BTreeMap::new() };
        self.sessions.insert(id, session);
        self.by_use.insert(at.index, id);
    }

    /// Removes the sessions that were not used for too long.
    pub(crate) fn expire(&mut self, time_us: u64, idle: Duration) {
        let idle_us = u64::try_from(idle.as_micros()).unwrap_or(u64::MAX);
        while let Some((_, id)) = self.by_use.first_key_value()
            && self.sessions[id].used_us.saturating_add(idle_us) < time_us
        {
            self.remove_oldest();
        }
    }

    /// Returns the outcome of a call that must not be executed, or `None` if it is to be executed
    /// (INV-ONCE).
    pub(crate) fn outcome(&mut self, id: CallId, at: At) -> Option<Answer> {
        if !self.touch(id.session, at) {
            return Some(Answer::Refused(Refusal::NoSession));
        }
        let session = &self.sessions[&id.session];
        if id.number < session.floor {
            return Some(Answer::Refused(Refusal::Forgotten));
        }
        session.outcomes.get(&id.number).cloned()
    }

    /// Keeps the outcome of a call of a session that exists.
    pub(crate) fn keep(&mut self, id: CallId, answer: &Answer, settings: &Settings) {
        let Some(session) = self.sessions.get_mut(&id.session) else { return };
        let kept = match answer {
            Answer::Done(reply) => {
                let len = reply.len() as u64;
                let is_kept = len <= u64::from(settings.reply_bytes_max)
                    && self.reply_bytes.saturating_add(len) <= settings.replies_bytes_max;
                if is_kept { answer.clone() } else { Answer::ReplyNotKept { len } }
            }
            other => other.clone(),
        };
        self.reply_bytes += bytes(&kept);
        session.outcomes.insert(id.number, kept);
        session.floor = session.floor.max(id.number.saturating_add(1).saturating_sub(calls_kept(settings)));
        let kept = session.outcomes.split_off(&session.floor);
        self.reply_bytes -= std::mem::replace(&mut session.outcomes, kept).values().map(bytes).sum::<u64>();
    }

    /// Returns the outcome of a call, after which it is final: a call that was not executed is
    /// cancelled.
    pub(crate) fn ask(&mut self, id: CallId, at: At, settings: &Settings) -> Answer {
        if let Some(answer) = self.outcome(id, at) {
            return answer;
        }
        let session = &self.sessions[&id.session];
        let highest = session.outcomes.last_key_value().map_or(session.floor, |(number, _)| *number);
        if id.number > highest.saturating_add(calls_kept(settings)) {
            return Answer::Refused(Refusal::Ahead);
        }
        let answer = Answer::Refused(Refusal::Cancelled);
        self.keep(id, &answer, settings);
        answer
    }

    /// Notes the use of a session. Returns false if it does not exist.
    fn touch(&mut self, id: SessionId, at: At) -> bool {
        let Some(session) = self.sessions.get_mut(&id) else { return false };
        self.by_use.remove(&session.used);
        (session.used, session.used_us) = (at.index, at.time_us);
        self.by_use.insert(at.index, id);
        true
    }

    fn remove_oldest(&mut self) {
        if let Some((_, id)) = self.by_use.pop_first()
            && let Some(session) = self.sessions.remove(&id)
        {
            self.reply_bytes -= session.outcomes.values().map(bytes).sum::<u64>();
        }
    }

    /// Returns false if sessions from a snapshot contradict themselves.
    pub(crate) fn is_sound(&self) -> bool {
        let replies: u64 = self.sessions.values().flat_map(|session| session.outcomes.values()).map(bytes).sum();
        replies == self.reply_bytes
            && self.by_use.len() == self.sessions.len()
            && self.sessions.iter().all(|(id, session)| {
                self.by_use.get(&session.used) == Some(id)
                    && session.outcomes.first_key_value().is_none_or(|(number, _)| *number >= session.floor)
            })
    }
}

fn calls_kept(settings: &Settings) -> u64 {
    u64::from(settings.calls_kept.max(1))
}

fn bytes(answer: &Answer) -> u64 {
    match answer {
        Answer::Done(reply) => reply.len() as u64,
        Answer::ReplyNotKept { .. } | Answer::Refused(_) => 0,
    }
}
