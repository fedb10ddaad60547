//! Messages that are too large for a ring: their contents, their names in rings, and the copies
//! that a process has.
use super::blocks::RunningSession;
use super::keeping::{ObjectAnswer, ServedProcess};
use super::ledger::MessageId;
use crate::random::mix;
use spindle_core::control::{self, GroupLinks, ObjectCache, ObjectGroups, ObjectName, ObjectOrder, Outgoing, Wanted};
use spindle_core::{MemberId, Rank, SubgroupId, ViewId};
use std::collections::BTreeMap;
use std::ops::Deref;
use std::rc::{Rc, Weak};
use std::time::Duration;

/// The content of an object.
pub(super) type ObjectContent = Rc<[u8]>;

/// The length of the shortest object. It is longer than any message that a ring holds, so the
/// length separates objects from messages.
pub(super) const OBJECT_BYTES_MIN: usize = ObjectName::BYTES as usize;

/// Returns the content of a message that is sent as an object. Every byte depends on the message
/// and on its length.
pub(super) fn content((sender, number): MessageId, len: usize) -> ObjectContent {
    let word = u64::from(sender) << 32 | u64::from(number);
    let rest = (1..).flat_map(|at| mix(word ^ mix(at << 32 | len as u64)).to_le_bytes());
    word.to_le_bytes().into_iter().chain(rest).take(len.max(OBJECT_BYTES_MIN)).collect()
}

/// The object table of a view. A ring is identified by its owner and its start.
pub(super) type SimObjectTable = control::ObjectTable<(Rank, u64), ObjectContent>;

/// A connection that belongs to a bulk group. When the last copy of the handle is dropped, the
/// process closes its side.
#[derive(Clone, Debug)]
pub(super) struct StreamHandle(Rc<usize>);

impl Deref for StreamHandle {
    type Target = usize;

    fn deref(&self) -> &usize {
        &self.0
    }
}

/// A connection to another member of a bulk group, made by that member.
#[derive(Debug)]
pub(super) struct BulkConnection {
    /// The group's number.
    pub(super) number: u64,
    pub(super) from: MemberId,
    /// True if the leader of this host lends objects over it.
    pub(super) lends: bool,
    pub(super) stream: StreamHandle,
}

/// A connection attempt for a stream in a bulk group.
#[derive(Debug)]
pub(super) struct Dialling {
    pub(super) address: control::Address,
    pub(super) failed_at: Option<u64>,
}

/// The large messages of a process.
#[derive(Debug)]
pub(super) struct ProcessObjects {
    /// By subgroup: the objects to send.
    pub(super) outgoing: BTreeMap<String, Outgoing<ObjectContent>>,
    /// By subgroup of the view: the position in this process's ring below which all messages are
    /// delivered everywhere.
    pub(super) settled: BTreeMap<SubgroupId, u64>,
    pub(super) object_table: SimObjectTable,
    pub(super) links: GroupLinks<BulkConnection>,
    pub(super) groups: ObjectGroups<StreamHandle>,
    /// The groups of the view that have begun, by number.
    pub(super) running: BTreeMap<u64, RunningSession>,
    pub(super) dialling: BTreeMap<(ViewId, u64, MemberId), Dialling>,
    pub(super) object_cache: ObjectCache<ObjectContent>,
    /// The number of objects that it keeps.
    pub(super) kept_count: usize,
    pub(super) serving: control::ObjectServer,
    pub(super) served: Vec<ServedProcess>,
    /// Orders for processes on other hosts whose connections are not yet established.
    pub(super) pledged: Vec<ObjectOrder>,
    /// The connections with objects for which this process has asked.
    pub(super) answers: Vec<ObjectAnswer>,
    handles: Vec<(Weak<usize>, usize)>,
}

impl ProcessObjects {
    pub(super) fn new(suspect_after: Duration) -> ProcessObjects {
        ProcessObjects {
            outgoing: BTreeMap::new(),
            settled: BTreeMap::new(),
            object_table: SimObjectTable::default(),
            links: GroupLinks::default(),
            groups: ObjectGroups::new(Some(suspect_after)),
            running: BTreeMap::new(),
            dialling: BTreeMap::new(),
            object_cache: ObjectCache::default(),
            kept_count: 0,
            serving: control::ObjectServer::default(),
            served: vec![],
            pledged: vec![],
            answers: vec![],
            handles: vec![],
        }
    }

    /// Returns the handle of a connection.
    pub(super) fn stream(&mut self, connection: usize) -> StreamHandle {
        let handle = Rc::new(connection);
        self.handles.push((Rc::downgrade(&handle), connection));
        StreamHandle(handle)
    }

    /// Returns the connections whose handles were dropped.
    pub(super) fn dropped(&mut self) -> Vec<usize> {
        let gone = self.handles.extract_if(.., |(handle, _)| handle.strong_count() == 0);
        gone.map(|(_, connection)| connection).collect()
    }

    pub(super) fn outgoing_in(&mut self, name: &str) -> &mut Outgoing<ObjectContent> {
        if !self.outgoing.contains_key(name) {
            self.outgoing.insert(name.into(), Outgoing::default());
        }
        self.outgoing.get_mut(name).expect("it is there")
    }

    /// Keeps objects that are no longer needed here, if an observer or learner exists.
    pub(super) fn keep(
        &mut self,
        view: ViewId,
        (subgroup, sender): (SubgroupId, Rank),
        objects: impl IntoIterator<Item = (u64, ObjectContent)>,
    ) {
        for (number, content) in objects {
            let bytes = content.len() as u64;
            let given_up = self.object_cache.keep(view, Wanted { subgroup, sender, number }, content, bytes);
            self.kept_count = self.kept_count + 1 - given_up.len();
        }
    }

    /// Records whether an observer or learner exists.
    pub(super) fn set_followed(&mut self, is_followed: bool) {
        self.kept_count -= self.object_cache.set_on(is_followed).len();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::subgroups::decode;

    #[test]
    fn contents_tell_messages_apart_and_no_byte_of_them_can_change() {
        for len in [24, 64, 65, 200] {
            let object = content((3, 7), len);
            assert_eq!((object.len(), decode(&object)), (len, (3, 7)));
            for at in 0..len {
                let mut other = object.to_vec();
                other[at] ^= 1;
                assert_ne!(decode(&other), (3, 7), "byte {at}");
            }
            assert_ne!(decode(&object[..len - 1]), (3, 7));
        }
        let name = ObjectName { number: 1, bytes: 2, own: 3 };
        assert_eq!(ObjectName::decode(&name.encode()), Some(name));
    }

    #[test]
    fn a_stream_is_closed_when_its_last_handle_is_dropped() {
        let mut objects = ProcessObjects::new(Duration::from_secs(1));
        let (one, other) = (objects.stream(5), objects.stream(6));
        let copy = one.clone();
        drop((one, other));
        assert_eq!(objects.dropped(), [6]);
        drop(copy);
        assert_eq!((objects.dropped(), objects.dropped()), (vec![5], vec![]));
    }
}
