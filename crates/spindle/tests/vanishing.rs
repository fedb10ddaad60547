//! Groups on one host whose runtime directory, or a socket in it, is removed while they run.
mod common;

use common::Scratch;
use spindle::{Batch, Config, Ended, Handler, MemberId, Node, Poll, SubgroupId};
use std::path::Path;
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Counts {
    delivered: usize,
    bytes: usize,
}

impl Handler for Counts {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            self.delivered += 1;
            self.bytes += message.payload.len();
        });
    }
}

struct Member {
    node: Node,
    counts: Counts,
    ended: Option<Ended>,
}

fn config(scratch: &Scratch, id: u64, members: u32) -> Config {
    let suspect_after = Some(Duration::from_secs(3));
    Config { id: Some(MemberId(id)), suspect_after, object_bytes_max: 8 << 20, ..scratch.group(members, LONG) }
}

/// Members that this thread polls.
fn create(scratch: &Scratch, members: u32) -> Vec<Member> {
    let joining: Vec<_> = (1..=u64::from(members))
        .map(|id| {
            let config = config(scratch, id, members);
            std::thread::spawn(move || config.join().unwrap())
        })
        .collect();
    let member = |node| Member { node, counts: Counts::default(), ended: None };
    joining.into_iter().map(|thread| member(thread.join().unwrap())).collect()
}

/// Polls all until it is `done`.
fn run(members: &mut [Member], what: &str, mut done: impl FnMut(&mut [Member]) -> bool) {
    let start = Instant::now();
    while !done(members) {
        for member in members.iter_mut().filter(|member| member.ended.is_none()) {
            match member.node.poll(&mut member.counts) {
                Ok(Poll::Worked | Poll::Idle) => {}
                Ok(Poll::Finished) => panic!("nobody has finished"),
                Err(ended) => member.ended = Some(ended),
            }
        }
        let ended: Vec<_> = members.iter().map(|member| &member.ended).collect();
        let views: Vec<_> = members.iter().map(|member| &member.node.view().members).collect();
        assert!(start.elapsed() < LONG, "{what}: {ended:?} {views:?}");
    }
}

fn are_in(members: &[Member], ids: &[u64]) -> bool {
    let ids: Vec<_> = ids.iter().copied().map(MemberId).collect();
    let living = members.iter().filter(|member| member.ended.is_none());
    living.into_iter().all(|member| member.node.view().members == ids)
}

/// No view may show that `remove` was applied to the directory.
fn one_group_stays_one(name: &str, remove: impl Fn(&Path)) {
    let scratch = Scratch::new(name);
    let mut members = create(&scratch, 3);
    let mut publishers: Vec<_> = members.iter_mut().map(|member| member.node.publisher("all").unwrap()).collect();
    remove(&scratch.0);
    let third = members.pop().unwrap();
    let mut third = [third];
    third[0].node.leave();
    publishers.pop();
    members.extend(third);
    run(&mut members, "the third leaves", |members| {
        are_in(members, &[1, 2]) && matches!(members[2].ended, Some(Ended::Left))
    });
    for publisher in &mut publishers {
        publisher.send(b"after", Duration::ZERO).unwrap();
    }
    run(&mut members, "both deliver both", |members| members[..2].iter().all(|member| member.counts.delivered == 2));
    // The members have no socket of their own in the directory, and make them again.
    let joins = config(&scratch, 4, 1);
    let joining = std::thread::spawn(move || joins.join().unwrap());
    run(&mut members, "a fourth joins", |_| joining.is_finished());
    let node = joining.join().unwrap();
    members.push(Member { node, counts: Counts::default(), ended: None });
    run(&mut members, "they are three again", |members| are_in(members, &[1, 2, 4]));
    assert!(members.iter().all(|member| matches!(member.ended, None | Some(Ended::Left))));
}

#[test]
fn a_member_leaves_when_the_directory_is_gone() {
    one_group_stays_one("vanishing-dir", |dir| std::fs::remove_dir_all(dir).unwrap());
}

#[test]
fn a_member_leaves_when_the_directory_is_elsewhere() {
    one_group_stays_one("vanishing-renamed", |dir| {
        let elsewhere = dir.with_extension("elsewhere");
        std::fs::rename(dir, &elsewhere).unwrap();
        std::fs::remove_dir_all(elsewhere).unwrap();
    });
}

#[test]
fn a_member_leaves_when_one_socket_is_gone() {
    one_group_stays_one("vanishing-socket", |dir| {
        std::fs::remove_file(dir.join("g.1.sock")).unwrap();
        std::fs::remove_file(dir.join("g.1.live")).unwrap();
    });
}

/// Large messages go through sockets that members hand to each other in control messages.
#[test]
fn a_large_message_is_sent_when_the_directory_is_gone() {
    let scratch = Scratch::new("vanishing-large");
    let mut members = create(&scratch, 3);
    let mut publisher = members[0].node.publisher("all").unwrap();
    std::fs::remove_dir_all(&scratch.0).unwrap();
    let bytes = 1 << 20;
    publisher.send_object(vec![7; bytes], Duration::ZERO).unwrap();
    run(&mut members, "all have it", |members| members.iter().all(|member| member.counts.bytes == bytes));
    assert!(are_in(&members, &[1, 2, 3]) && members.iter().all(|member| member.ended.is_none()));
}
