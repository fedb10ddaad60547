//! Who is let in and who is not: members with mailboxes of their own, on threads of this process.
use spindle::{Config, JoinError, Node, Refusal};
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc::channel;
use std::thread::{self, JoinHandle};
use std::time::Duration;

const LONG: Duration = Duration::from_secs(60);

/// A directory that goes with the test.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Scratch {
        Scratch(std::env::temp_dir().join(format!("spindle-{name}-{}", std::process::id())))
    }

    fn config(&self, members: u32) -> Config {
        let mut config = Config::new("g", members);
        config.runtime_dir = Some(self.0.clone());
        config.gather_timeout = LONG;
        config
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Founds a group on a thread of its own, and waits until it is there for the others to find.
fn found(config: Config) -> JoinHandle<Result<Node, JoinError>> {
    let (tell, here) = channel();
    let founder = thread::spawn(move || {
        let mut progress = move |_: &_| tell.send(()).unwrap_or_default();
        config.join_with(&mut progress, &AtomicBool::new(false))
    });
    here.recv_timeout(LONG).unwrap();
    founder
}

#[test]
fn who_would_found_another_number_is_refused_and_hinders_nobody() {
    let scratch = Scratch::new("founders");
    let founder = found(scratch.config(2));
    // It would complete the group.
    let refused = scratch.config(3).join().unwrap_err();
    assert!(matches!(refused, JoinError::Refused(Refusal::Founders(2))), "{refused}");
    let second = scratch.config(2).join().unwrap();
    assert_eq!(founder.join().unwrap().unwrap().view().members, second.view().members);
}

#[test]
fn who_minds_no_number_founds_with_the_others() {
    let scratch = Scratch::new("any-number");
    let founder = found(scratch.config(2));
    let second = scratch.config(1).join().unwrap();
    assert_eq!(second.view().members.len(), 2);
    founder.join().unwrap().unwrap();
}

#[test]
fn who_would_suspect_sooner_is_refused() {
    let scratch = Scratch::new("suspicion");
    let founder = found(scratch.config(2));
    let mut config = scratch.config(2);
    config.suspect_after = Some(Duration::from_secs(7));
    let refused = config.join().unwrap_err();
    assert!(matches!(refused, JoinError::Refused(Refusal::Config(_))), "{refused}");
    scratch.config(2).join().unwrap();
    founder.join().unwrap().unwrap();
}
