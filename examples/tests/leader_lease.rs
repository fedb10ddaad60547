//! The election: a lease that is not extended ends, and its holder is refused after that.
mod support;

use rustix::process::Signal;
use support::{Scratch, Terminal};

/// The members by their ids, and the leader with its token, as the first line of each reports it.
struct Members {
    terminals: Vec<(u64, Terminal)>,
    leader: u64,
    token: u64,
}

impl Members {
    fn start(scratch: &Scratch) -> Members {
        let dir = scratch.runtime_dir("lease");
        let program = env!("CARGO_BIN_EXE_leader_lease");
        let start = |_| Terminal::start(program, &["--runtime-dir", &dir, "--lease-ms", "4000"]);
        let terminals: Vec<_> = (0..3).map(start).collect();
        let terminals = terminals.into_iter().map(|mut terminal| {
            let line = terminal.wait_for("id", |line| line.starts_with("member ") && !line.contains("leads"));
            (line["member ".len()..].parse().unwrap(), terminal)
        });
        let mut members = Members { terminals: terminals.collect(), leader: 0, token: 0 };
        members.elect();
        members
    }

    /// Waits until every member reports a leader that the last one did not have the token of.
    fn elect(&mut self) {
        let before = self.token;
        for (_, terminal) in &mut self.terminals {
            let line = terminal.wait_for("leader", |line| leader(line).is_some_and(|(_, token)| token > before));
            let (member, token) = leader(&line).unwrap();
            if token > self.token {
                (self.leader, self.token) = (member, token);
            }
        }
    }

    /// Takes the leader out.
    fn remove_leader(&mut self) -> Terminal {
        let at = self.terminals.iter().position(|(id, _)| *id == self.leader).unwrap();
        self.terminals.remove(at).1
    }

    fn terminal(&mut self, leads: bool) -> &mut Terminal {
        let leader = self.leader;
        &mut self.terminals.iter_mut().find(|(id, _)| (*id == leader) == leads).unwrap().1
    }

    fn leave(self) {
        for (_, mut terminal) in self.terminals {
            terminal.end_input();
            assert!(terminal.wait_for_end().success());
        }
    }
}

/// Reads `member M leads with token T`.
fn leader(line: &str) -> Option<(u64, u64)> {
    let (member, token) = line.strip_prefix("member ")?.split_once(" leads with token ")?;
    Some((member.parse().ok()?, token.parse().ok()?))
}

#[test]
fn a_follower_takes_over_from_a_leader_that_was_killed() {
    let scratch = Scratch::new("lease-kill");
    let mut members = Members::start(&scratch);
    assert_eq!(members.terminal(true).ask("write first", "written"), "written as entry 1");
    let refused = members.terminal(false).ask("write never", "not written");
    assert_eq!(refused, format!("not written: member {} leads", members.leader));

    let mut killed = members.remove_leader();
    killed.signal(Signal::KILL);
    assert!(!killed.wait_for_end().success());
    members.elect();
    assert_eq!(members.terminal(true).ask("write second", "written"), "written as entry 2");
    assert_eq!(members.terminal(false).ask("show", "2 entries"), "2 entries, the last is \"second\"");

    // A leader that leaves releases its lease.
    let mut left = members.remove_leader();
    left.end_input();
    assert!(left.wait_for_end().success());
    members.elect();
    members.leave();
}

#[test]
fn a_leader_that_was_paused_does_not_act_any_more() {
    let scratch = Scratch::new("lease-pause");
    let mut members = Members::start(&scratch);
    let mut paused = members.remove_leader();
    paused.signal(Signal::STOP);
    members.elect();
    paused.write("write late");
    paused.signal(Signal::CONT);
    paused.wait_for("refusal", |line| line.starts_with("not the leader"));
    assert!(!paused.wait_for_end().success());
    assert!(!paused.lines.iter().any(|line| line.starts_with("written")), "{:?}", paused.lines);
    assert_eq!(members.terminal(true).ask("show", "0 entries"), "0 entries, the last is \"\"");
    assert_eq!(members.terminal(true).ask("write next", "written"), "written as entry 1");
    members.leave();
}

/// The member continues, and only its application stops to extend the lease. The application does
/// not know that the lease is over, so the token decides.
#[test]
fn the_token_of_an_old_lease_is_refused() {
    let scratch = Scratch::new("lease-token");
    let mut members = Members::start(&scratch);
    let (leader, token) = (members.leader, members.token);
    members.terminal(true).write("hang");
    members.terminal(true).wait_for_line("hangs");
    let (id, mut hanging) = (leader, members.remove_leader());
    members.elect();
    assert_eq!(hanging.ask("write late", "not written"), format!("not written: token {token} is over"));
    members.terminals.push((id, hanging));
    assert_eq!(members.terminal(true).ask("write next", "written"), "written as entry 1");
    members.leave();
}
