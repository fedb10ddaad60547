//! The record of a group's last view, as a backup has it, and the record of the new group that is
//! restored from it.
use crate::old_logs::RECORD;
use spindle_core::control::{RestartBallot, RestartRecord};
use spindle_core::{MemberId, Rule, View, ViewError, ViewId};
use spindle_log::BackupManifest;
use std::collections::BTreeSet;

/// The record of the last view of a group with logs, from the journal of a member.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct GroupRecord {
    record: RestartRecord,
}

/// The reason why no group is restored from a backup.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RestoreError {
    /// The backup has no record of a view.
    #[error("the backup has no view of a group: it is that of a directory which no member has written")]
    NoRecord,
    /// The record can't be read.
    #[error("the record of the last view can't be read; use the version that wrote the backup")]
    Unreadable,
    /// A subgroup names its members, and the new group lacks some of them.
    #[error("subgroup {subgroup} consists of members {}, and the new group has {}; name these ids", list(.listed), list(.members))]
    Listed {
        /// The subgroup.
        subgroup: String,
        /// The ids in its rule.
        listed: Vec<MemberId>,
        /// The members of the new group.
        members: Vec<MemberId>,
    },
    /// The view of the new group makes no sense.
    #[error("the new group can't have these members: {0}")]
    View(#[from] ViewError),
}

impl GroupRecord {
    /// The kind of the value in the journal of a data directory.
    pub const KIND: u32 = RECORD;

    /// Reads the value in a journal, or in a backup.
    ///
    /// # Errors
    /// [`RestoreError::NoRecord`] for no bytes, [`RestoreError::Unreadable`].
    pub fn parse(bytes: &[u8]) -> Result<GroupRecord, RestoreError> {
        if bytes.is_empty() {
            return Err(RestoreError::NoRecord);
        }
        let (words, rest) = bytes.as_chunks::<8>();
        let words: Vec<u64> = words.iter().map(|word| u64::from_le_bytes(*word)).collect();
        let record = RestartRecord::decode(&words).filter(|_| rest.is_empty());
        record.map(|record| GroupRecord { record }).ok_or(RestoreError::Unreadable)
    }

    /// The last view.
    pub fn view(&self) -> &View {
        &self.record.view
    }

    /// Returns whether the logs of `subgroup` that the member had lack its first messages: the member
    /// joined later.
    pub fn lacks_first(&self, subgroup: &str) -> bool {
        self.record.origins.iter().any(|origin| origin.name == subgroup)
    }

    /// Returns the value for the journal of each member of a new group, which begins with the records
    /// of a backup.
    ///
    /// The group continues after a view of `members` that no process has begun, by the ordinary restart. Its
    /// subgroups are those of the last view, with the members that their rules pick. Versions continue
    /// after those of the backup, and no message gets a clock of at most the cut.
    ///
    /// # Errors
    /// [`RestoreError::Listed`], [`RestoreError::View`].
    pub fn restored(&self, members: &[MemberId], backup: &BackupManifest) -> Result<Vec<u8>, RestoreError> {
        let RestartRecord { view, origins, .. } = &self.record;
        let present: BTreeSet<MemberId> = members.iter().copied().collect();
        for spec in &view.subgroups {
            for rule in [&spec.member_rule, &spec.sender_rule] {
                if let Rule::Only(listed) = rule
                    && listed.iter().any(|id| !present.contains(id))
                {
                    let (subgroup, listed) = (spec.name.clone(), listed.clone());
                    return Err(RestoreError::Listed { subgroup, listed, members: members.to_vec() });
                }
            }
        }
        let mut next = view.next(|_| false, members, &[]);
        next.begin_epochs();
        // A record of the backup may be of a view that the journal did not know when it was read.
        let newest = backup.logs.iter().filter_map(|log| log.last).map(|(last, _)| last.epoch).max().unwrap_or(0);
        next.id = next.id.max(ViewId(newest).next());
        for spec in next.subgroups.iter_mut().filter(|spec| spec.is_logged()) {
            spec.clock = spec.clock.max(backup.cut);
        }
        next.check()?;
        let (origins, promised, accepted) = (origins.clone(), RestartBallot::default(), None);
        let hosts = RestartRecord::unknown_hosts(&next);
        let record = RestartRecord { view: next, hosts, said_last: false, origins, promised, accepted };
        Ok(record.encode().into_iter().flat_map(u64::to_le_bytes).collect())
    }
}

fn list(ids: &[MemberId]) -> String {
    ids.iter().map(MemberId::to_string).collect::<Vec<_>>().join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use spindle_core::{Durability, SubgroupSpec};
    use spindle_log::{BackupLog, PayloadKind, Version};

    fn record(rule: Rule) -> GroupRecord {
        let logged = Durability::Logged { copies: 2 };
        let ledger = SubgroupSpec { durability: logged, clock: 40, ..SubgroupSpec::of_everyone("ledger") };
        let chat = SubgroupSpec { member_rule: rule, ..SubgroupSpec::of_everyone("chat") };
        let view = View { id: ViewId(6), members: vec![], nonvoters: vec![], subgroups: vec![ledger, chat].into() };
        let view = view.next(|_| true, &[MemberId(4), MemberId(2)], &[]);
        let hosts = RestartRecord::unknown_hosts(&view);
        let record = RestartRecord::first(view, hosts, MemberId(2), false);
        let bytes: Vec<u8> = record.encode().into_iter().flat_map(u64::to_le_bytes).collect();
        GroupRecord::parse(&bytes).unwrap()
    }

    fn backup(epoch: u64) -> BackupManifest {
        let log = BackupLog { last: Some((Version::new(epoch, 3), 70)), ..BackupLog::default() };
        BackupManifest {
            group: "g".into(),
            incarnation: 1,
            member: 2,
            payloads: PayloadKind::Messages,
            cut: 77,
            taken_at: 0,
            is_settled: true,
            software: String::new(),
            record: vec![],
            logs: vec![log],
            files: vec![],
        }
    }

    #[test]
    fn a_new_group_continues_after_the_records_and_the_cut_of_a_backup() {
        let old = record(Rule::Everyone);
        assert!(old.lacks_first("ledger") && !old.lacks_first("chat"));
        let members = [1, 2, 3].map(MemberId);
        for (epoch, next) in [(5, 8), (7, 8), (9, 10)] {
            let new = GroupRecord::parse(&old.restored(&members, &backup(epoch)).unwrap()).unwrap();
            let view = new.view();
            assert_eq!((view.id, &view.members[..]), (ViewId(next), &members[..]));
            assert!(view.subgroups.iter().all(|spec| spec.members.len() == 3 && spec.epoch.is_none()));
            assert_eq!(view.subgroups.iter().map(|spec| spec.clock).collect::<Vec<_>>(), [77, 0]);
            assert!(new.lacks_first("ledger"));
        }
    }

    #[test]
    fn members_that_make_no_sense_and_records_that_are_none_are_refused() {
        let listed = record(Rule::Only(vec![MemberId(4), MemberId(9)]));
        let error = listed.restored(&[MemberId(4)], &backup(1)).unwrap_err();
        assert!(matches!(&error, RestoreError::Listed { subgroup, .. } if subgroup == "chat"), "{error}");
        assert!(listed.restored(&[MemberId(4), MemberId(9)], &backup(1)).is_ok());
        let twice = listed.restored(&[MemberId(4), MemberId(9), MemberId(4)], &backup(1)).unwrap_err();
        assert!(matches!(twice, RestoreError::View(ViewError::MemberTwice { .. })), "{twice}");
        assert_eq!(GroupRecord::parse(&[]), Err(RestoreError::NoRecord));
        assert_eq!(GroupRecord::parse(&[1; 20]), Err(RestoreError::Unreadable));
    }
}
