#![allow(missing_docs, unused, missing_debug_implementations)]
use spindle_core::{MemberId, Rank};
use std::{os::fd::OwnedFd, path::*, sync::atomic::AtomicBool, time::*};
#[derive(Debug, thiserror::Error)] #[error("x")] pub struct MeetError;
#[derive(Debug)] pub struct Gathering; #[derive(Debug)] pub struct GroupName; #[derive(Debug)] pub struct RuntimeDir; #[derive(Debug)] pub struct Watcher; #[derive(Debug)] pub struct Keeper;
pub struct Offer { pub row: OwnedFd, pub bell: OwnedFd }
pub struct PeerFds { pub row: OwnedFd, pub bell: OwnedFd, pub pidfd: OwnedFd }
pub struct Member { pub id: MemberId, pub pid: u32 }
pub struct Roster { pub members: Vec<Member>, pub me: Rank, pub founder: Rank, pub incarnation: u128 }
pub struct Meeting { pub roster: Roster, pub peers: Vec<PeerFds>, pub keeper: Keeper }
pub struct Terms<'a> { pub dir: &'a RuntimeDir, pub group: &'a GroupName, pub members: u32, pub id: Option<MemberId>, pub config: u64, pub deadline: Instant, pub cancelled: &'a AtomicBool }
impl RuntimeDir { pub fn new(p: impl Into<PathBuf>) -> Result<Self, MeetError> { todo!() } pub fn default_for_user(p: Option<&Path>) -> Result<Self, MeetError> { todo!() } }
impl GroupName { pub fn new(p: &str) -> Result<Self, MeetError> { todo!() } }
pub fn meet<E: Into<Box<dyn std::error::Error + Send + Sync>>>(t: &Terms<'_>, p: &mut dyn FnMut(&Gathering), m: impl FnOnce(&Roster) -> Result<Offer, E>) -> Result<Meeting, MeetError> { todo!() }
impl Watcher { pub fn spawn(p: Vec<(Rank, OwnedFd)>, k: Keeper, f: impl Fn(Rank) + Send + 'static) -> std::io::Result<Watcher> { todo!() } }
