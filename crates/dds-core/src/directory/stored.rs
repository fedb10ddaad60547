//! A directory as it is serialised: its entries, and the state that does not follow from them.
use super::domain::Domain;
use super::entry::{ParticipantEntry, ReaderEntry, TopicEntry, WriterEntry};
use crate::id::Guid;
use serde::{Deserialize, Serialize};
use spindle_xcdr::TypeHash;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// The serialised form. The maps are lists in the order of their keys.
#[derive(Serialize, Deserialize)]
#[serde(rename = "Directory")]
pub(super) struct Stored<'a> {
    pub(super) version: u64,
    pub(super) types: BTreeMap<TypeHash, BTreeMap<TypeHash, Vec<u8>>>,
    pub(super) participants: Cow<'a, BTreeMap<Guid, ParticipantEntry>>,
    pub(super) topics: Cow<'a, BTreeMap<Guid, TopicEntry>>,
    pub(super) writers: Cow<'a, BTreeMap<Guid, WriterEntry>>,
    pub(super) readers: Cow<'a, BTreeMap<Guid, ReaderEntry>>,
    pub(super) writer_numbers: Cow<'a, BTreeMap<Guid, u32>>,
    pub(super) writer_next: u32,
    pub(super) domain_next: u32,
    pub(super) domains: Cow<'a, BTreeMap<u32, Domain>>,
}
