//! `spindle sim`, as a process.
mod common;

use common::{Running, Scratch};

#[test]
fn seeds_run_and_replay_to_the_same_trace() {
    let scratch = Scratch::new();
    let objects =
        |words: &[&str]| Running::start(scratch.spindle(["sim", "--json"]).args(words)).done().expect(0).objects();
    let all = &objects(&["--seeds", "20", "--from", "100"])[0];
    assert_eq!((&all["seeds"], &all["failures"]), (&20.into(), &serde_json::json!([])));
    assert!(all["deliveries"].as_u64().unwrap() > 0);
    let one = objects(&["--seed", "107", "--trace"]);
    assert_eq!(one, objects(&["--seed", "107", "--trace"]));
    assert!(one[0]["trace"].as_str().unwrap().lines().count() > 10);
    let told = Running::start(&mut scratch.spindle(["sim", "--seed", "107"])).done().expect(0);
    assert!(String::from_utf8(told.stdout).unwrap().contains(one[0]["trace_hash"].as_str().unwrap()));
}

#[test]
fn seeds_of_the_block_multicast_run_and_replay() {
    let scratch = Scratch::new();
    let object = |words: &[&str]| {
        Running::start(scratch.spindle(["sim", "--bulk", "--json"]).args(words)).done().expect(0).objects().remove(0)
    };
    let all = object(&["--seeds", "20", "--from", "40"]);
    assert_eq!((&all["seeds"], &all["failures"]), (&20.into(), &serde_json::json!([])));
    assert!(all["blocks"].as_u64().unwrap() > 0 && all["deaths"].as_u64().unwrap() > 0, "{all}");
    assert_eq!(object(&["--seed", "50"]), object(&["--seed", "50"]));
}

#[test]
fn seeds_of_founding_between_hosts_run_and_replay() {
    let scratch = Scratch::new();
    let object = |words: &[&str]| {
        Running::start(scratch.spindle(["sim", "--bootstrap", "--json"]).args(words))
            .done()
            .expect(0)
            .objects()
            .remove(0)
    };
    let all = object(&["--seeds", "20", "--from", "40"]);
    assert_eq!((&all["seeds"], &all["failures"]), (&20.into(), &serde_json::json!([])));
    assert!(all["bootstraps"].as_u64().unwrap() > 0 && all["joins"].as_u64().unwrap() > 0, "{all}");
    assert_eq!(object(&["--seed", "50"]), object(&["--seed", "50"]));
}

#[test]
fn one_seed_and_many_exclude_each_other() {
    let scratch = Scratch::new();
    Running::start(&mut scratch.spindle(["sim", "--seed", "1", "--seeds", "2"])).done().expect(2);
    Running::start(&mut scratch.spindle(["sim", "--trace"])).done().expect(2);
    Running::start(&mut scratch.spindle(["sim", "--bulk", "--views"])).done().expect(2);
}
