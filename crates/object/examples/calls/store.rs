//! The replicated key-value store that is measured, and its operations.
use clap::ValueEnum;
use serde::{Deserialize, Serialize};
use spindle::Durability;
use spindle_object::{Replicated, commands};
use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;

/// A key-value store, whose revision is the number of its changes.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Store {
    revision: u64,
    entries: BTreeMap<String, Vec<u8>>,
}

#[commands]
impl Store {
    /// Sets a key, and returns the new revision.
    #[command]
    pub(crate) fn put(&mut self, key: &str, value: &[u8]) -> u64 {
        match self.entries.get_mut(key) {
            Some(found) => {
                found.clear();
                found.extend_from_slice(value);
            }
            None => {
                self.entries.insert(key.to_owned(), value.to_vec());
            }
        }
        self.revision += 1;
        self.revision
    }
}

/// An operation of the store.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Operation {
    /// Sets a key
    Put,
    /// Reads a key with all changes that were answered anywhere before
    Get,
}

/// When a put has its reply.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize, ValueEnum)]
#[serde(rename_all = "snake_case")]
pub(crate) enum DurabilityArg {
    /// Once the member has executed it; nothing is on a disk
    Memory,
    /// Once the member has executed it and it is on the disks of all members
    Logged,
    /// Once the member has executed it, which members do when it is on the disks of all of them
    LoggedBeforeDelivery,
}

impl DurabilityArg {
    /// Returns the durability of a subgroup of `members`.
    pub(crate) fn of_subgroup(self, members: u32) -> Durability {
        let copies = members / 2 + 1;
        match self {
            DurabilityArg::Memory => Durability::InMemory,
            DurabilityArg::Logged => Durability::Logged { copies },
            DurabilityArg::LoggedBeforeDelivery => Durability::LoggedBeforeDelivery { copies },
        }
    }
}

/// The reply to a put is the revision, 8 bytes; that to a get is the value.
pub(crate) type Reply = Result<Vec<u8>, String>;
pub(crate) type Replying<'a> = Pin<Box<dyn Future<Output = Reply> + 'a>>;

/// Returns the name of a key. Keys are as long as those of the peers' benchmarks.
pub(crate) fn key(number: u32) -> String {
    format!("key-{number:08}")
}

pub(crate) fn put<'a>(
    store: &'a Replicated<Store>,
    durability: DurabilityArg,
    key: &str,
    value: &[u8],
) -> Replying<'a> {
    let call = StoreCalls::put(key, value);
    Box::pin(async move {
        let revision = match durability {
            DurabilityArg::Logged => store.call_durable_async(&call).await.map_err(|error| error.to_string()),
            _ => store.call_async(&call).await.map_err(|error| error.to_string()),
        };
        Ok(revision?.to_le_bytes().to_vec())
    })
}

pub(crate) fn get<'a>(store: &'a Replicated<Store>, key: &str) -> Replying<'a> {
    let key = key.to_owned();
    Box::pin(async move {
        let found = store.read_latest_async(|store| store.entries.get(&key).cloned()).await;
        found.map_err(|error| error.to_string())?.ok_or_else(|| format!("{key} is not set"))
    })
}
