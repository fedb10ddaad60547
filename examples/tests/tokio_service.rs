//! The service on tokio, with clients at both members.
mod support;

use rustix::process::Signal;
use std::io::{BufRead, BufReader, Write};
use std::net::TcpStream;
use support::{LONG, Scratch, Terminal};

struct Client(BufReader<TcpStream>);

impl Client {
    fn connect(address: &str) -> Client {
        let stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(LONG)).unwrap();
        Client(BufReader::new(stream))
    }

    fn ask(&mut self, line: &str) -> String {
        writeln!(self.0.get_mut(), "{line}").unwrap();
        let mut answer = String::new();
        self.0.read_line(&mut answer).unwrap();
        answer.trim_end().to_owned()
    }
}

#[test]
fn clients_of_both_members_change_the_same_counters() {
    let scratch = Scratch::new("tokio");
    let dir = scratch.runtime_dir("counters");
    let start = |id: &str| Terminal::start(env!("CARGO_BIN_EXE_tokio_service"), &["--id", id, "--runtime-dir", &dir]);
    let mut members = ["1", "2"].map(start);
    let addresses = members.each_mut().map(|member| {
        let line = member.wait_for("address", |line| line.starts_with("listening at "));
        line.trim_start_matches("listening at ").to_owned()
    });
    std::thread::scope(|scope| {
        for address in &addresses {
            for _ in 0..3 {
                scope.spawn(move || {
                    let mut client = Client::connect(address);
                    for _ in 0..50 {
                        assert!(client.ask("add hits 1").starts_with("hits = "));
                    }
                });
            }
        }
    });
    let mut client = Client::connect(&addresses[0]);
    assert_eq!(client.ask("add hits 0"), "hits = 300");
    assert!(client.ask("add hits many").starts_with("error: \"many\""));
    assert!(client.ask("nonsense").starts_with("error: write add"));
    members[1].signal(Signal::INT);
    assert!(members[1].wait_for_end().success());
    // The service continues with the other member.
    assert_eq!(client.ask("add hits 5"), "hits = 305");
    assert_eq!(client.ask("get hits"), "hits = 305");
    members[0].signal(Signal::INT);
    assert!(members[0].wait_for_end().success());
}
