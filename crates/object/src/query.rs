//! Queries of one member.
use crate::answering::execute;
use crate::error::QueryError;
use crate::query_message::{QueryOutcome, QueryReply, QueryRequest};
use crate::replicated::Replicated;
use crate::state_machine::{Query, StateMachine};
use crate::waiting::Inside;
use serde::de::DeserializeOwned;
use spindle::MemberId;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

impl<T: StateMachine> Replicated<T> {
    /// Asks one member, which answers from its object. The query changes nothing, is not ordered with
    /// commands, and is in no log, so it costs the other members nothing.
    ///
    /// The answer is from the state that this member has now, or a later one: the member waits until it
    /// has come to that state. It is from a state no earlier than that of any answer that this handle, or a
    /// clone of it, has got before. Other members may be ahead, so it is not
    /// [the latest](Self::read_latest).
    ///
    /// # Errors
    /// [`QueryError`].
    pub fn query<R: DeserializeOwned>(
        &self,
        member: MemberId,
        query: &Query<T, R>,
        timeout: Duration,
    ) -> Result<R, QueryError> {
        let start = Instant::now();
        match self.ask(member, query, timeout)? {
            Ask::Own(asking) => self.answer_myself(&asking, (member, query), timeout),
            Ask::Other(asked) => {
                let answer = asked.wait(timeout.saturating_sub(start.elapsed()));
                self.conclude(&answer.map_err(|error| self.not_answered(error))?, (member, query))
            }
        }
    }

    /// As [`query`](Self::query), asynchronously, in any runtime. The member waits for at most `wait` until
    /// its state is late enough. The future ends with the membership of the member at the latest.
    ///
    /// # Errors
    /// [`QueryError`]. A query may be lost with a connection between hosts, so give the future a deadline.
    pub async fn query_async<R: DeserializeOwned>(
        &self,
        member: MemberId,
        query: &Query<T, R>,
        wait: Duration,
    ) -> Result<R, QueryError> {
        match self.ask(member, query, wait)? {
            Ask::Own(asking) => self.answer_myself(&asking, (member, query), Duration::ZERO),
            Ask::Other(asked) => {
                let answer = asked.await;
                self.conclude(&answer.map_err(|error| self.not_answered(error))?, (member, query))
            }
        }
    }

    fn ask<R>(&self, member: MemberId, query: &Query<T, R>, wait: Duration) -> Result<Ask, QueryError> {
        if Inside::is_running() {
            return Err(QueryError::InHandler);
        }
        if let Some(end) = self.shared.waiting.ended() {
            return Err(end.into());
        }
        let arguments = query.arguments.as_ref().map_err(|error| QueryError::Encode(error.clone()))?;
        let after = self.shared.read().messages().max(self.seen.load(Ordering::Acquire));
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let asking = QueryRequest { after, wait_ms, query: query.spec.id, types: query.spec.types(), arguments };
        Ok(match member == self.member() {
            true => Ask::Own(asking.encode()),
            false => Ask::Other(self.queries.ask(member, &asking.encode())),
        })
    }

    /// Answers from this member's object. It is behind only if another member has answered before from a
    /// later state, which a tick overtakes.
    fn answer_myself<R: DeserializeOwned>(
        &self,
        asking: &[u8],
        asked: (MemberId, &Query<T, R>),
        timeout: Duration,
    ) -> Result<R, QueryError> {
        let asking = QueryRequest::decode(asking).expect("it was encoded here");
        if self.shared.read().messages() < asking.after {
            self.read_latest(|_| (), timeout).map_err(QueryError::NotUpToDate)?;
        }
        let machine = self.shared.read();
        let reply = execute(machine.object(), &asking);
        let answer = match &reply {
            Ok(reply) => QueryOutcome::Done(reply),
            Err(outcome) => *outcome,
        };
        let answer = QueryReply { messages: machine.messages(), answer }.encode();
        drop(machine);
        self.conclude(&answer, asked)
    }

    /// Turns an answer into the reply of the query.
    fn conclude<R: DeserializeOwned>(
        &self,
        answer: &[u8],
        (member, query): (MemberId, &Query<T, R>),
    ) -> Result<R, QueryError> {
        let query = query.spec.name;
        let Some(QueryReply { messages, answer }) = QueryReply::decode(answer) else {
            return Err(QueryError::Foreign { member });
        };
        match answer {
            QueryOutcome::Done(reply) => {
                self.seen.fetch_max(messages, Ordering::AcqRel);
                match postcard::take_from_bytes(reply) {
                    Ok((reply, [])) => Ok(reply),
                    _ => Err(QueryError::NotEncoded { member, query }),
                }
            }
            QueryOutcome::Behind => Err(QueryError::Behind { member, has: messages }),
            QueryOutcome::Unknown => Err(QueryError::Unknown { member, query }),
            QueryOutcome::OtherTypes => Err(QueryError::OtherTypes { member, query }),
            QueryOutcome::NotEncoded => Err(QueryError::NotEncoded { member, query }),
            QueryOutcome::Panicked => Err(QueryError::Panicked { member, query }),
            QueryOutcome::Stopped => Err(QueryError::Stopped { member }),
        }
    }

    /// A machine that stops ends the group, which does not know why.
    fn not_answered(&self, error: spindle::QueryError) -> QueryError {
        match (&error, self.shared.waiting.ended()) {
            (spindle::QueryError::Ended, Some(end)) => end.into(),
            _ => error.into(),
        }
    }
}

/// A query on its way.
enum Ask {
    /// To this member.
    Own(Vec<u8>),
    Other(spindle::Asked),
}
