//! A durable object whose log is pruned is restored from a backup: its snapshot and the log behind it.
mod common;

use common::{LONG, Scratch, Store, StoreCalls};
use spindle::{Config, Durability, Group, GroupRecord, LogSettings, MemberId, Subgroup};
use spindle_log::{BackupManifest, BackupWriter, CutSource, DataDirectory, Disk, FileDisk, Identity, restore};
use spindle_object::{Replicated, Settings};
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::{SystemTime, UNIX_EPOCH};

/// Directories that are removed with the test.
struct Data(Scratch);

impl Drop for Data {
    fn drop(&mut self) {
        ["1", "2", "copy"].iter().for_each(|name| drop(std::fs::remove_dir_all(self.dir(name))));
    }
}

type Member = (Group, Replicated<Store>);

impl Data {
    fn dir(&self, name: &str) -> PathBuf {
        self.0.path.with_extension(format!("data-{name}"))
    }

    fn config(&self, id: u64) -> Config {
        let log = LogSettings { segment_bytes: 8192, ..LogSettings::default() };
        let subgroup = Subgroup { durability: Durability::Logged { copies: 1 }, ..Subgroup::new("all") };
        let (id, data_dir) = (Some(MemberId(id)), Some(self.dir(&id.to_string())));
        Config { id, data_dir, log, subgroups: vec![subgroup], ..self.0.config(2) }
    }

    fn join(&self) -> Vec<Member> {
        let settings = || Settings { snapshot_every_commands: 7, snapshot_every_bytes: 0, ..Settings::default() };
        let joining = [1, 2].map(|id| {
            std::fs::create_dir_all(self.dir(&id.to_string())).unwrap();
            let config = self.config(id);
            thread::spawn(move || Replicated::join(config, "all", Store::default(), settings()).unwrap())
        });
        joining.into_iter().map(|thread| thread.join().unwrap()).collect()
    }

    fn logs(&self, id: u64) -> Arc<dyn Disk> {
        Arc::new(FileDisk::new(self.dir(&id.to_string()).join("log")).unwrap())
    }

    /// Copies the logs of member 1 beside the member.
    fn copy(&self) -> (Arc<dyn Disk>, BackupManifest) {
        let (source, copy): (_, Arc<dyn Disk>) = (self.logs(1), Arc::new(FileDisk::new(self.dir("copy")).unwrap()));
        let cut = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_nanos() as u64;
        let identity = DataDirectory::identity_of(&*source).unwrap().unwrap();
        let log = CutSource::open(&source, 0, Some("all".into()), cut).unwrap();
        let mut writer = BackupWriter::begin(Arc::clone(&copy), identity, cut).unwrap();
        writer.add(log, &mut |_| true).unwrap();
        let record = spindle_log::journal_value(&*source, GroupRecord::KIND).unwrap().unwrap();
        (copy, writer.finish(record, (cut, true), "test").unwrap())
    }
}

fn finish(members: Vec<Member>) {
    let ending = members.into_iter().map(|(group, store)| {
        drop(store);
        thread::spawn(move || drop(group.finish(LONG).unwrap()))
    });
    ending.collect::<Vec<_>>().into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn an_object_with_a_pruned_log_is_restored_in_a_new_group() {
    let (old, new) = (Data(Scratch::new("backup-old")), Data(Scratch::new("backup-new")));
    let members = old.join();
    let mut sum = 0;
    let (backup, manifest) = loop {
        for _ in 0..50 {
            sum = members[0].1.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
        }
        let (backup, manifest) = old.copy();
        if manifest.logs[0].floor.is_some() {
            break (backup, manifest);
        }
        std::fs::remove_dir_all(old.dir("copy")).unwrap();
        assert!(sum < 10_000, "the log is not pruned: {manifest:?}");
    };
    assert!(!manifest.logs[0].snapshots.is_empty(), "{manifest:?}");
    let before = members[0].1.read_latest(Store::clone, LONG).unwrap();
    // Calls behind the cut are in no backup.
    members[1].1.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
    finish(members);

    let ids = [1, 2].map(MemberId);
    let record = GroupRecord::parse(&manifest.record).unwrap().restored(&ids, &manifest).unwrap();
    for id in [1, 2] {
        let group = new.config(id).group;
        let identity = Identity { group, member: id, incarnation: 99, payloads: manifest.payloads };
        let record = Some((GroupRecord::KIND, &record[..]));
        let files = spindle_log::Config { segment_bytes: 8192, ..spindle_log::Config::default() };
        restore(&backup, &manifest, &new.logs(id), &identity, record, files, &mut |_| true).unwrap();
    }
    let members = new.join();
    for (_, store) in &members {
        let now = store.read_latest(Store::clone, LONG).unwrap();
        assert_eq!((now.entries.get("sum"), &now.entries), (Some(&sum), &before.entries));
    }
    let next = members[1].1.call_durable(&StoreCalls::add("sum".to_owned(), 1), LONG).unwrap();
    assert_eq!(next, sum + 1);
    finish(members);
}
