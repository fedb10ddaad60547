//! Crashes and faults of a simulated disk. A failing seed is run alone with
//! `SEED=n cargo test -p spindle-log --test crash`.
mod model;
use model::{Model, run};
use spindle_log::Error;
use spindle_log::disk::Faults;

fn seeds(count: u64) -> std::ops::Range<u64> {
    match std::env::var("SEED").ok().and_then(|seed| seed.parse().ok()) {
        Some(seed) => seed..seed + 1,
        None => 0..std::env::var("SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(count),
    }
}

fn each(count: u64, run: impl Fn(u64)) {
    for seed in seeds(count) {
        let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| run(seed)));
        if let Err(panic) = result {
            eprintln!("seed {seed} failed: SEED={seed} cargo test -p spindle-log --test crash");
            std::panic::resume_unwind(panic);
        }
    }
}

#[test]
fn seeds_with_all_faults() {
    each(4000, run);
}

/// A run of some dozen operations that dies after the `k`-th write, sync or change of a name.
/// Returns whether it came to its end first.
fn run_to(seed: u64, after: u64, tear_bytes: u64, is_kill: bool) -> bool {
    let mut model = Model::new(seed);
    model.disk.set_faults(Faults { crash_after: Some(after), tear_bytes, ..Faults::default() });
    let mut live = || {
        model.open()?;
        (0..30).try_for_each(|_| model.step())
    };
    let is_whole = live().is_ok();
    model.store = None;
    if is_kill {
        model.disk.kill();
        model.open().unwrap_or_else(|error| panic!("seed {seed}, operation {after}, killed: {error}"));
        model.append().expect("no faults");
        model.store = None;
    }
    model.disk.set_faults(Faults { tear_bytes, ..Faults::default() });
    model.disk.crash();
    model.open().unwrap_or_else(|error| panic!("seed {seed}, operation {after}: {error}"));
    for _ in 0..5 {
        model.append().expect("no faults");
    }
    model.store = None;
    model.disk.crash();
    model.open().unwrap_or_else(|error| panic!("seed {seed}, operation {after}, again: {error}"));
    is_whole
}

#[test]
fn every_crash_point_of_short_runs() {
    let mut points = 0;
    for seed in 0..12 {
        for (tear_bytes, is_kill) in [(512, false), (4096, false), (512, true)] {
            let mut after = 0;
            while !run_to(seed, after, tear_bytes, is_kill) {
                after += 1;
            }
            points += after;
        }
    }
    println!("{points} crash points");
    assert!(points > 2000, "the runs are too short: {points} crash points");
}

/// Records of many segments' length are whole or absent after a crash at any write, sync or change of a name.
#[test]
fn every_crash_point_of_records_larger_than_a_segment() {
    let mut points = 0;
    for (tear_bytes, is_kill) in [(512, false), (4096, false), (512, true)] {
        for after in 0.. {
            let mut model = Model::new(after);
            model.disk.set_faults(Faults { crash_after: Some(after), tear_bytes, ..Faults::default() });
            let mut live = || {
                model.open()?;
                [100, 40_000, 9, 100_000, 8192, 700].into_iter().try_for_each(|length| model.append_one(length))
            };
            let is_whole = live().is_ok();
            model.store = None;
            if is_kill {
                model.disk.kill();
            } else {
                model.disk.crash();
            }
            model.disk.set_faults(Faults { tear_bytes, ..Faults::default() });
            model.open().unwrap_or_else(|error| panic!("operation {after}: {error}"));
            model.append_one(60_000).expect("no faults");
            model.store = None;
            model.disk.crash();
            model.open().unwrap_or_else(|error| panic!("operation {after}, again: {error}"));
            points += 1;
            if is_whole {
                break;
            }
        }
    }
    println!("{points} crash points");
    assert!(points > 60, "the runs are too short: {points} crash points");
}

/// Bit rot in synced data: what is read is what was written, and the damage is reported and repaired
/// from what a peer has, or the last batch is lost at most.
#[test]
fn rot_is_reported_and_repaired() {
    let repaired = std::cell::Cell::new(0);
    each(2500, |seed| {
        let mut model = Model::new(seed);
        model.open().expect("no faults");
        for _ in 0..30 {
            model.step().expect("no faults");
        }
        if seed % 2 == 0 {
            model.store.as_mut().expect("open").record_frontiers().expect("no faults");
            model.recorded = model.acked;
        }
        model.store = None;
        model.disk.crash();
        model.is_rotten = true;
        // Without a recorded frontier a second damage may hide the loss of the last batches.
        let more = if seed % 2 == 0 { model.random.below(3) } else { 0 };
        for _ in 0..=more {
            model.disk.rot("segment-");
        }
        model.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        // Once repaired, nothing is missing any more.
        model.is_rotten = false;
        model.append().expect("no faults");
        model.store = None;
        model.disk.crash();
        model.open().unwrap_or_else(|error| panic!("seed {seed}: after the repair: {error}"));
        repaired.set(repaired.get() + 1);
    });
    println!("{} runs", repaired.get());
}

/// A crash after every operation of a repair: the damage is still reported, or it is repaired.
#[test]
fn every_crash_point_of_a_repair() {
    let mut points = 0;
    for seed in 0..60 {
        let mut model = Model::new(seed);
        model.open().expect("no faults");
        (0..25).for_each(|_| model.step().expect("no faults"));
        model.store.take().expect("open").record_frontiers().expect("no faults");
        model.recorded = model.acked;
        model.disk.crash();
        model.is_rotten = true;
        model.disk.rot("segment-");
        let (damaged, records, acked) = (model.disk.clone(), model.records.clone(), model.acked);
        let Some(damage) = model.damage() else { continue };
        for after in 0.. {
            model.disk = damaged.fork(seed + after);
            (model.records, model.acked, model.recorded) = (records.clone(), acked, acked);
            model.disk.set_faults(Faults { crash_after: Some(after), ..Faults::default() });
            let is_whole = model.repair(&damage).is_ok();
            model.disk.crash();
            model.open().unwrap_or_else(|error| panic!("seed {seed}, operation {after}: {error}"));
            model.store = None;
            points += 1;
            if is_whole {
                break;
            }
        }
    }
    println!("{points} crash points");
    assert!(points > 100, "{points} crash points");
}

/// Damage to one page of the state, of the journal or of a snapshot loses nothing or is reported.
#[test]
fn rot_beside_the_segments_loses_nothing() {
    each(600, |seed| {
        let mut model = Model::new(seed);
        model.open().expect("no faults");
        for _ in 0..30 {
            model.step().expect("no faults");
        }
        model.store = None;
        model.disk.crash();
        let file = ["state", "journal-", "snapshot-"][(seed % 3) as usize];
        model.disk.rot(file);
        model.is_rotten = file == "snapshot-";
        model.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    });
}

/// A disk whose syncs lie loses acknowledged records: detected, or a prefix without a wrong record.
#[test]
fn a_sync_that_lies_never_gives_wrong_records() {
    let reported = std::cell::Cell::new(0);
    each(1500, |seed| {
        let mut model = Model::new(seed);
        model.open().expect("no faults");
        model.is_lying = true;
        model.disk.set_faults(Faults { lies: 3, ..Faults::default() });
        let mut live = || (0..30).try_for_each(|_| model.step());
        let _ = live();
        model.store = None;
        model.disk.crash();
        match model.open() {
            Ok(()) => {}
            Err(Error::Corrupt(_) | Error::CorruptFile { .. }) => reported.set(reported.get() + 1),
            Err(error) => panic!("seed {seed}: {error}"),
        }
    });
    println!("{} runs reported the loss", reported.get());
    assert!(std::env::var("SEED").is_ok() || reported.get() > 100);
}

/// A disk that fills: refused before the reserve is touched, and nothing acknowledged is lost.
#[test]
fn a_full_disk_refuses_before_the_reserve() {
    each(300, |seed| {
        let mut model = Model::new(seed);
        model.open().expect("no faults");
        let paths = model.disk.paths();
        let used: u64 = paths.iter().filter_map(|path| model.disk.content(path)).map(|bytes| bytes.len() as u64).sum();
        model.disk.set_capacity(used + 30_000 + model.random.below(30_000));
        let mut refused = 0;
        for _ in 0..40 {
            match model.append() {
                Err(Error::Full { .. }) => {
                    model.records.truncate(model.acked);
                    refused += 1;
                }
                other => other.unwrap_or_else(|error| panic!("seed {seed}: {error}")),
            }
            // The journal still takes values.
            model.store.as_mut().expect("open").journal().put(0, b"ballot").expect("it has its space");
            model.store.as_mut().expect("open").journal().put(0, b"").expect("it has its space");
        }
        assert!(refused > 0, "seed {seed}: the disk did not fill");
        model.store = None;
        model.disk.crash();
        model.disk.set_capacity(1 << 30);
        model.forget_journal();
        model.open().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        model.append().expect("there is space again");
    });
}
