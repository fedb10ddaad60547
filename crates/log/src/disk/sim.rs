//! A disk in memory, deterministic from a seed, with the faults of real ones.
//!
//! A write is visible at once and *pending* until a sync. A crash of the machine keeps any part of
//! what is pending, in pieces of [`Faults::tear_bytes`], and any of the pending changes of names.
//! A failed sync drops some of what was pending and forgets that it was, as Linux does: a second
//! sync then succeeds, and the bytes are lost all the same.
use super::{Disk, File, Locked};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, ErrorKind, IoSlice};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The faults of a simulated disk. Each rate is "one in n operations", and 0 is never.
#[derive(Clone, Copy, Debug, Default)]
pub struct Faults {
    /// Writes that fail after a part was written.
    pub write_errors: u32,
    /// Syncs that fail. The state of what they were to sync is unknown.
    pub sync_errors: u32,
    /// Reads that fail.
    pub read_errors: u32,
    /// Writes that write a part and report that.
    pub short_writes: u32,
    /// Files that cannot be created for lack of space.
    pub full_creates: u32,
    /// Syncs that report success and do nothing.
    pub lies: u32,
    /// The unit that a crash keeps or loses: 512 or 4096. 0 stands for 512.
    pub tear_bytes: u64,
    /// The operation after which every further one fails, until [`SimDisk::crash`].
    pub crash_after: Option<u64>,
}

/// A simulated disk. Clones share it.
#[derive(Clone)]
pub struct SimDisk(Arc<Mutex<State>>);

struct State {
    random: u64,
    faults: Faults,
    capacity: u64,
    files: Vec<Content>,
    names: BTreeMap<String, Node>,
    durable_names: BTreeMap<String, Node>,
    changes: Vec<Change>,
    locks: BTreeSet<String>,
    operations: u64,
    is_dead: bool,
    /// Grows with each crash and kill, so that handles of an earlier process fail.
    life: u64,
}

#[derive(Default)]
struct Content {
    visible: Vec<u8>,
    durable: Vec<u8>,
    pending: Vec<(u64, Vec<u8>)>,
}

#[derive(Clone, Copy, PartialEq)]
enum Node {
    Directory,
    File(usize),
}

#[derive(Clone)]
enum Change {
    Link(String, Node),
    Unlink(String),
    Rename(String, String, Node),
}

impl Change {
    fn directory(&self) -> &str {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::Rename(path, ..) => parent(path),
        }
    }

    fn apply(self, names: &mut BTreeMap<String, Node>) {
        match self {
            Self::Link(path, node) => drop(names.insert(path, node)),
            Self::Unlink(path) => drop(names.remove(&path)),
            Self::Rename(from, to, node) => {
                names.remove(&from);
                names.insert(to, node);
            }
        }
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(parent, _)| parent)
}

fn dead() -> io::Error {
    io::Error::other("the simulated machine has crashed")
}

fn errno(code: i32) -> io::Error {
    io::Error::from_raw_os_error(code)
}

const EIO: i32 = 5;

impl SimDisk {
    /// An empty disk of `capacity` bytes.
    pub fn new(seed: u64, capacity: u64) -> Self {
        Self(Arc::new(Mutex::new(State {
            random: seed,
            faults: Faults::default(),
            capacity,
            files: Vec::new(),
            names: BTreeMap::new(),
            durable_names: BTreeMap::new(),
            changes: Vec::new(),
            locks: BTreeSet::new(),
            operations: 0,
            is_dead: false,
            life: 0,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the faults from now on. [`Faults::crash_after`] counts from now.
    pub fn set_faults(&self, faults: Faults) {
        let mut state = self.state();
        state.operations = 0;
        state.faults = faults;
    }

    /// Sets the capacity in bytes.
    pub fn set_capacity(&self, bytes: u64) {
        self.state().capacity = bytes;
    }

    /// The operations that changed something since the faults were set.
    pub fn operations(&self) -> u64 {
        self.state().operations
    }

    /// Ends the process: locks are released, and what was written stays visible and pending.
    pub fn kill(&self) {
        let mut state = self.state();
        state.life += 1;
        state.is_dead = false;
        state.faults = Faults::default();
        state.locks.clear();
    }

    /// Ends the machine: what is pending survives in part. All faults end.
    pub fn crash(&self) {
        let mut state = self.state();
        let state = &mut *state;
        let tear = if state.faults.tear_bytes == 0 { 512 } else { state.faults.tear_bytes };
        state.life += 1;
        state.is_dead = false;
        state.faults = Faults::default();
        state.locks.clear();
        let keep = state.below(5);
        for index in 0..state.files.len() {
            for (offset, bytes) in std::mem::take(&mut state.files[index].pending) {
                state.land(index, offset, &bytes, tear, keep);
            }
            state.files[index].visible = state.files[index].durable.clone();
        }
        let keep = state.below(5);
        for change in std::mem::take(&mut state.changes) {
            if state.below(4) < keep {
                change.apply(&mut state.durable_names);
            }
        }
        state.names = state.durable_names.clone();
        let names = state.names.clone();
        state.names.retain(|path, _| parent(path).is_empty() || names.contains_key(parent(path)));
        state.durable_names = state.names.clone();
    }

    /// Flips one bit of synced data in a file whose path contains `part`. Returns file and offset.
    pub fn rot(&self, part: &str) -> Option<(String, u64)> {
        let mut state = self.state();
        let names: Vec<(String, usize)> = state
            .names
            .iter()
            .filter_map(|(path, node)| match node {
                Node::File(index) if path.contains(part) && !state.files[*index].durable.is_empty() => {
                    Some((path.clone(), *index))
                }
                _ => None,
            })
            .collect();
        if names.is_empty() {
            return None;
        }
        let (path, index) = names[state.below(names.len() as u64) as usize].clone();
        let length = state.files[index].durable.len() as u64;
        let offset = state.below(length);
        let bit = 1 << state.below(8);
        state.flip(index, offset, bit);
        Some((path, offset))
    }

    /// Flips bits of one byte of a file.
    pub fn flip(&self, path: &str, offset: u64, bits: u8) {
        let mut state = self.state();
        if let Some(Node::File(index)) = state.names.get(path).copied() {
            state.flip(index, offset, bits);
        }
    }

    /// The bytes of a file.
    pub fn content(&self, path: &str) -> Option<Vec<u8>> {
        let state = self.state();
        match state.names.get(path) {
            Some(Node::File(index)) => Some(state.files[*index].visible.clone()),
            _ => None,
        }
    }

    /// Replaces a file by durable bytes.
    pub fn put(&self, path: &str, bytes: Vec<u8>) {
        let mut state = self.state();
        state.files.push(Content { visible: bytes.clone(), durable: bytes, pending: Vec::new() });
        let node = Node::File(state.files.len() - 1);
        state.names.insert(path.to_owned(), node);
        state.durable_names.insert(path.to_owned(), node);
    }

    /// All paths of files.
    pub fn paths(&self) -> Vec<String> {
        let state = self.state();
        state.names.iter().filter(|(_, node)| **node != Node::Directory).map(|(path, _)| path.clone()).collect()
    }

    /// A copy of the disk as it is, with its own further fate.
    #[must_use]
    pub fn fork(&self, seed: u64) -> Self {
        let copy = Self::new(seed, self.state().capacity);
        let (mut to, from) = (copy.state(), self.state());
        to.files = from
            .files
            .iter()
            .map(|content| Content {
                visible: content.visible.clone(),
                durable: content.durable.clone(),
                pending: content.pending.clone(),
            })
            .collect();
        to.names = from.names.clone();
        to.durable_names = from.durable_names.clone();
        to.changes = from.changes.clone();
        drop((to, from));
        copy
    }
}

impl State {
    /// A number below `bound`, by splitmix64.
    fn below(&mut self, bound: u64) -> u64 {
        self.random = self.random.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.random;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        (mixed ^ (mixed >> 31)) % bound.max(1)
    }

    fn strikes(&mut self, rate: u32) -> bool {
        rate != 0 && self.below(u64::from(rate)) == 0
    }

    fn alive(&self, life: u64) -> io::Result<()> {
        if self.is_dead || self.life != life { Err(dead()) } else { Ok(()) }
    }

    /// Counts an operation that changes something.
    fn step(&mut self, life: u64) -> io::Result<()> {
        self.alive(life)?;
        if self.faults.crash_after.is_some_and(|last| self.operations >= last) {
            self.is_dead = true;
            return Err(dead());
        }
        self.operations += 1;
        Ok(())
    }

    fn used(&self) -> u64 {
        self.names
            .values()
            .map(|node| match node {
                Node::File(index) => self.files[*index].visible.len() as u64,
                Node::Directory => 0,
            })
            .sum()
    }

    fn flip(&mut self, index: usize, offset: u64, bits: u8) {
        let content = &mut self.files[index];
        for bytes in [&mut content.visible, &mut content.durable] {
            if let Some(byte) = bytes.get_mut(offset as usize) {
                *byte ^= bits;
            }
        }
    }

    fn write(&mut self, index: usize, offset: u64, bytes: &[u8]) {
        put(&mut self.files[index].visible, offset, bytes);
        self.files[index].pending.push((offset, bytes.to_vec()));
    }

    /// Makes a part of a pending write durable: of 4 pieces about `keep`.
    fn land(&mut self, index: usize, offset: u64, bytes: &[u8], tear: u64, keep: u64) {
        let mut start = 0;
        while start < bytes.len() {
            let end = ((offset + start as u64) / tear + 1) * tear - offset;
            let end = (end as usize).min(bytes.len());
            if self.below(4) < keep {
                put(&mut self.files[index].durable, offset + start as u64, &bytes[start..end]);
            }
            start = end;
        }
    }

    fn change(&mut self, change: Change) {
        change.clone().apply(&mut self.names);
        self.changes.push(change);
    }

    fn file(&self, path: &str) -> io::Result<usize> {
        match self.names.get(path) {
            Some(Node::File(index)) => Ok(*index),
            _ => Err(ErrorKind::NotFound.into()),
        }
    }
}

fn put(to: &mut Vec<u8>, offset: u64, bytes: &[u8]) {
    let end = offset as usize + bytes.len();
    if to.len() < end {
        to.resize(end, 0);
    }
    to[offset as usize..end].copy_from_slice(bytes);
}

struct Handle {
    disk: SimDisk,
    index: usize,
    life: u64,
}

impl Disk for SimDisk {
    fn create_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        if path.is_empty() || state.names.get(path) == Some(&Node::Directory) {
            return Ok(());
        }
        let life = state.life;
        state.step(life)?;
        state.change(Change::Link(path.to_owned(), Node::Directory));
        Ok(())
    }

    fn list(&self, path: &str) -> io::Result<Vec<String>> {
        let state = self.state();
        state.alive(state.life)?;
        if !path.is_empty() && state.names.get(path) != Some(&Node::Directory) {
            return Err(ErrorKind::NotFound.into());
        }
        Ok(state
            .names
            .keys()
            .filter(|name| parent(name) == path)
            .map(|name| name.rsplit('/').next().unwrap_or(name).to_owned())
            .collect())
    }

    fn create(&self, path: &str, bytes: u64) -> io::Result<Arc<dyn File>> {
        let mut state = self.state();
        let life = state.life;
        state.step(life)?;
        if !parent(path).is_empty() && !state.names.contains_key(parent(path)) {
            return Err(ErrorKind::NotFound.into());
        }
        let rate = state.faults.full_creates;
        let is_full = state.strikes(rate) || state.used() + bytes > state.capacity;
        state.files.push(Content::default());
        let index = state.files.len() - 1;
        state.change(Change::Link(path.to_owned(), Node::File(index)));
        if is_full {
            let part = state.below(bytes + 1).min(state.capacity.saturating_sub(state.used()));
            state.write(index, 0, &vec![0; part as usize]);
            return Err(ErrorKind::StorageFull.into());
        }
        state.write(index, 0, &vec![0; bytes as usize]);
        Ok(Arc::new(Handle { disk: self.clone(), index, life }))
    }

    fn open(&self, path: &str) -> io::Result<Arc<dyn File>> {
        let state = self.state();
        state.alive(state.life)?;
        Ok(Arc::new(Handle { disk: self.clone(), index: state.file(path)?, life: state.life }))
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.step(life)?;
        let node = Node::File(state.file(from)?);
        state.change(Change::Rename(from.to_owned(), to.to_owned(), node));
        Ok(())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.step(life)?;
        state.file(path)?;
        state.change(Change::Unlink(path.to_owned()));
        Ok(())
    }

    fn sync_directory(&self, path: &str) -> io::Result<()> {
        let mut state = self.state();
        let life = state.life;
        state.step(life)?;
        let rate = state.faults.sync_errors;
        if state.strikes(rate) {
            return Err(errno(EIO));
        }
        let rate = state.faults.lies;
        if state.strikes(rate) {
            return Ok(());
        }
        let (now, later) =
            std::mem::take(&mut state.changes).into_iter().partition(|change| change.directory() == path);
        state.changes = later;
        let now: Vec<Change> = now;
        now.into_iter().for_each(|change| change.apply(&mut state.durable_names));
        Ok(())
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let state = self.state();
        state.alive(state.life)?;
        Ok(state.capacity.saturating_sub(state.used()))
    }

    fn lock(&self, path: &str) -> io::Result<Locked> {
        let mut state = self.state();
        state.alive(state.life)?;
        if !state.locks.insert(path.to_owned()) {
            return Ok(Locked::By(1));
        }
        Ok(Locked::Owned(Box::new(Unlock { disk: self.clone(), path: path.to_owned(), life: state.life })))
    }

    fn shown(&self, path: &str) -> String {
        path.to_owned()
    }
}

struct Unlock {
    disk: SimDisk,
    path: String,
    life: u64,
}

impl Drop for Unlock {
    fn drop(&mut self) {
        let mut state = self.disk.state();
        if state.life == self.life {
            state.locks.remove(&self.path);
        }
    }
}

impl File for Handle {
    fn write_at(&self, slices: &[IoSlice<'_>], offset: u64) -> io::Result<usize> {
        let bytes: Vec<u8> = slices.iter().flat_map(|slice| slice.iter().copied()).collect();
        let mut state = self.disk.state();
        state.step(self.life)?;
        let (errors, shorts) = (state.faults.write_errors, state.faults.short_writes);
        if state.strikes(errors) {
            let part = state.below(bytes.len() as u64 + 1) as usize;
            state.write(self.index, offset, &bytes[..part]);
            return Err(errno(EIO));
        }
        let growth = (offset + bytes.len() as u64).saturating_sub(state.files[self.index].visible.len() as u64);
        if growth > 0 && state.used() + growth > state.capacity {
            return Err(ErrorKind::StorageFull.into());
        }
        let mut part = bytes.len();
        if state.strikes(shorts) {
            part = 1 + state.below(bytes.len() as u64) as usize;
        }
        state.write(self.index, offset, &bytes[..part]);
        Ok(part)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut state = self.disk.state();
        state.alive(self.life)?;
        let rate = state.faults.read_errors;
        if state.strikes(rate) {
            return Err(errno(EIO));
        }
        let visible = &state.files[self.index].visible;
        let from = visible.len().min(offset as usize);
        let count = buffer.len().min(visible.len() - from);
        buffer[..count].copy_from_slice(&visible[from..from + count]);
        Ok(count)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut state = self.disk.state();
        state.step(self.life)?;
        let (errors, lies) = (state.faults.sync_errors, state.faults.lies);
        let fails = state.strikes(errors);
        if !fails && state.strikes(lies) {
            return Ok(());
        }
        for (offset, bytes) in std::mem::take(&mut state.files[self.index].pending) {
            if fails {
                state.land(self.index, offset, &bytes, 4096, 2);
            } else {
                put(&mut state.files[self.index].durable, offset, &bytes);
            }
        }
        if fails { Err(errno(EIO)) } else { Ok(()) }
    }

    fn bytes(&self) -> io::Result<u64> {
        let state = self.disk.state();
        state.alive(self.life)?;
        Ok(state.files[self.index].visible.len() as u64)
    }
}
