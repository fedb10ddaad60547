//! A member: a process that executes calls, serves a socket, and calls when it is ordered to.
use crate::caller::{Job, call_inside, fill};
use crate::durable::{self, DurableCalls};
use crate::measured::CallsRun;
use crate::server::listen;
use crate::store::{DurabilityArg, Store};
use serde::{Deserialize, Serialize};
use spindle::{Config, Group, Subgroup};
use spindle_object::{Replicated, Settings};
use std::error::Error;
use std::io::{BufRead, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// How long a member may wait for the others, at the beginning and at the end.
pub(crate) const WAIT: Duration = Duration::from_secs(30);
/// How long a member may be silent until the others suspect it: a disk may hold it up.
const SUSPECT_AFTER: Duration = Duration::from_secs(10);

/// The orders to a process that becomes a member.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Setup {
    /// The directory in which the members meet.
    pub(crate) dir: PathBuf,
    pub(crate) members: u32,
    pub(crate) durability: DurabilityArg,
    /// The directory of its log.
    pub(crate) data_dir: Option<PathBuf>,
}

/// An order to a member, a line of JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Order {
    Fill(Job),
    Call(Job),
    /// Durable calls, in turns with syncs of as many files in the directory.
    Durable(Job, PathBuf, u32),
}

/// The answer to an order, a line of JSON. `Ready` comes when the member has joined.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Told {
    Ready(SocketAddr),
    Filled,
    Called(CallsRun),
    Durable(DurableCalls),
    Failed(String),
}

/// Joins, and carries out orders until their end.
pub(crate) fn run(setup: &Setup, orders: impl BufRead, mut told: impl Write) -> Result<(), Box<dyn Error>> {
    let result = join(setup).and_then(|(group, store)| Ok((group, listen(&store, setup.durability)?, store)));
    let mut tell = |answer: Told| -> Result<(), Box<dyn Error>> {
        writeln!(told, "{}", serde_json::to_string(&answer)?)?;
        Ok(told.flush()?)
    };
    let (group, address, store) = match result {
        Ok(joined) => joined,
        Err(error) => return tell(Told::Failed(error.to_string())),
    };
    tell(Told::Ready(address))?;
    for line in orders.lines() {
        let done = match serde_json::from_str(&line?)? {
            Order::Fill(job) => fill(&store, &job).map(|()| Told::Filled),
            Order::Call(job) => call_inside(&store, setup.durability, &job).map(Told::Called),
            Order::Durable(job, dir, files) => {
                durable::measure(&store, setup.durability, &job, (&dir, files)).map(Told::Durable)
            }
        };
        tell(done.unwrap_or_else(|error| Told::Failed(error.to_string())))?;
    }
    drop(store);
    group.leave(WAIT)?;
    Ok(())
}

fn join(setup: &Setup) -> Result<(Group, Replicated<Store>), Box<dyn Error>> {
    let mut config = Config::new("calls", setup.members);
    config.runtime_dir = Some(setup.dir.clone());
    config.gather_timeout = WAIT;
    config.suspect_after = Some(SUSPECT_AFTER);
    config.subgroups =
        vec![Subgroup { durability: setup.durability.of_subgroup(setup.members), ..Subgroup::new("all") }];
    config.data_dir = setup.data_dir.clone();
    Ok(Replicated::join(config, "all", Store::default(), Settings::default())?)
}
