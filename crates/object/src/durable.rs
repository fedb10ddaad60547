//! Calls that return once they survive the end of all members.
use crate::answer::Answer;
use crate::error::{CallError, DurableError};
use crate::id::CallId;
use crate::replicated::{Called, Replicated, Sent, settle};
use crate::state_machine::{Call, StateMachine};
use serde::de::DeserializeOwned;
use spindle::NotDurable;
use std::time::{Duration, Instant};

impl<T: StateMachine> Replicated<T> {
    /// Calls a command, and returns its reply once its message is durable: on the disks of all members
    /// of the subgroup, which has at least `durable_copies` members. The members that start again with
    /// these disks have executed it.
    ///
    /// `timeout` is the time for all of it. A refused call returns at once.
    ///
    /// # Errors
    /// [`DurableError`]. The subgroup is to be [logged](spindle::Durability::Logged): in another one
    /// the command is executed, and the error has [`NotDurable::InMemory`].
    pub fn call_durable<R: DeserializeOwned>(
        &self,
        call: &Call<T, R>,
        timeout: Duration,
    ) -> Result<R, DurableError<R>> {
        let (start, sent) = (Instant::now(), Sent::default());
        let Called { id, answer, receipt } = self.block(self.call_once(call, &sent), &sent, timeout)?;
        if is_refused(&answer) {
            return Ok(settle(id, answer, true)?);
        }
        let durable = receipt.durable().wait(timeout.saturating_sub(start.elapsed()));
        conclude(id, settle(id, answer, true), durable)
    }

    /// As [`call_durable`](Self::call_durable), asynchronously, in any runtime. While the subgroup has too
    /// few members the future waits for more.
    ///
    /// # Errors
    /// [`DurableError`], without timeouts.
    pub async fn call_durable_async<R: DeserializeOwned>(&self, call: &Call<T, R>) -> Result<R, DurableError<R>> {
        let Called { id, answer, receipt } = self.call_once(call, &Sent::default()).await?;
        if is_refused(&answer) {
            return Ok(settle(id, answer, true)?);
        }
        let durable = receipt.durable().await;
        conclude(id, settle(id, answer, true), durable)
    }
}

/// True if the call has changed nothing.
fn is_refused(answer: &Answer) -> bool {
    matches!(answer, Answer::Refused(_))
}

fn conclude<R>(id: CallId, reply: Result<R, CallError>, durable: Result<(), NotDurable>) -> Result<R, DurableError<R>> {
    match durable {
        Ok(()) => Ok(reply?),
        Err(why) => Err(DurableError::NotDurable { id, reply: reply.map_err(Box::new), why }),
    }
}
