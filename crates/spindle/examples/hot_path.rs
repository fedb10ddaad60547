//! The hot path and nothing else: two members on one thread, messages from claim to delivered at both.
//!
//! Run under a tool that counts instructions, with two counts, and divide the difference: what is left is the cost of one
//! message, sender and receiver together. `cargo xtask instructions` does that.
//!
//! Usage: `hot_path SIZE COUNT BURST SENDERS`, SIZE in bytes, BURST messages claimed between two polls.
use spindle::{Batch, Config, Poll, SubgroupId, Who};

fn main() {
    let mut arguments = std::env::args().skip(1).map(|word| word.parse::<u64>().expect("a number"));
    let mut next = || arguments.next().expect("SIZE COUNT BURST SENDERS");
    let (size, count, burst, senders) = (next(), next(), next(), next());
    let mut config = Config::new("hot-path", 2);
    config.subgroups[0].senders = Who::First(senders as u32);
    config.subgroups[0].message_bytes_max = size;
    config.subgroups[0].window = 16 * burst;
    let mut nodes = config.local().expect("two members in one process");
    let mut publishers: Vec<_> =
        nodes.iter_mut().take(senders as usize).map(|node| node.publisher("all").unwrap()).collect();
    let mut sent = 0;
    // An application that looks at nothing: what is counted is what Spindle does.
    let mut handler = |_: SubgroupId, batch: &mut Batch<'_>| batch.for_each(|_| {});
    while sent < count {
        for publisher in &mut publishers {
            for _ in 0..burst {
                let Some(mut frame) = publisher.try_claim(size).unwrap() else { break };
                if let Some(start) = frame.first_chunk_mut() {
                    *start = u64::to_ne_bytes(sent);
                }
                frame.commit();
                sent += 1;
            }
        }
        for node in nodes.iter_mut().rev() {
            node.poll(&mut handler).unwrap();
        }
    }
    publishers.clear();
    let mut running: Vec<_> = nodes.into_iter().collect();
    let mut delivered = 0;
    while !running.is_empty() {
        running.retain_mut(|node| {
            let finished = node.poll(&mut handler).unwrap() == Poll::Finished;
            delivered += if finished { node.status().subgroups[0].stats.delivered } else { 0 };
            !finished
        });
    }
    assert_eq!(delivered, 2 * sent, "all members delivered all messages");
    println!("{sent} messages, {delivered} deliveries");
}
