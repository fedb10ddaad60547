//! How long it takes until all participants of a domain know all endpoints: `dds_crowd [PARTICIPANTS] [TOPICS]
//! [ENDPOINTS]`. The participants are in this process, which has file descriptors for some 60, and each has its share of
//! the endpoints.
use spindle_dds::qos::DomainParticipantQos;
use spindle_dds::{DdsDuration, DdsType, DomainConfig, DomainParticipant};
use std::time::{Duration, Instant};

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(final)]
struct Note {
    number: u64,
}

const WAIT: DdsDuration = DdsDuration::from_secs(120);

fn main() {
    let number = |index: usize, or: usize| std::env::args().nth(index).map_or(or, |own| own.parse().unwrap());
    let (count, topics, each) = (number(1, 20), number(2, 50), number(3, 5));
    let config = DomainConfig {
        join_timeout: Duration::from_secs(120),
        spin_for: Duration::ZERO,
        ring_bytes: 8 << 10,
        ..DomainConfig::new(std::process::id())
    };
    let start = Instant::now();
    let participants: Vec<DomainParticipant> = std::thread::scope(|scope| {
        let join = || DomainParticipant::with(config.clone(), DomainParticipantQos::default()).unwrap();
        let all: Vec<_> = (0..count).map(|_| scope.spawn(join)).collect();
        all.into_iter().map(|own| own.join().unwrap()).collect()
    });
    println!("{count} participants after {:.2?}", start.elapsed());
    let (mut writers, mut readers) = (Vec::new(), Vec::new());
    for topic in 0..topics {
        let name = format!("topic-{topic}");
        for endpoint in 0..each {
            let of = participants[(topic * 7 + endpoint) % count].topic::<Note>(&name).reliable().keep_all();
            match endpoint {
                0 => writers.push(of.max_blocking_time(WAIT).writer().unwrap()),
                _ => readers.push(of.reader().unwrap()),
            }
        }
    }
    println!("{} endpoints created after {:.2?}", writers.len() + readers.len(), start.elapsed());
    let all = |directory: &spindle_dds::directory::Directory| {
        (directory.writers().count(), directory.readers().count()) == (writers.len(), readers.len())
    };
    participants.iter().for_each(|own| own.wait_for(all, WAIT).unwrap());
    println!("all participants know all of them after {:.2?}", start.elapsed());
    writers.iter().for_each(|own| own.wait_for_subscriptions(each - 1, WAIT).unwrap());
    println!("all writers match after {:.2?}", start.elapsed());
    writers.iter().for_each(|own| own.write(&Note { number: 1 }).unwrap());
    readers.iter().for_each(|own| drop(own.take_next_timeout(WAIT).unwrap()));
    println!("all readers have a sample after {:.2?}", start.elapsed());
    let used = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let memory = used.lines().find(|line| line.starts_with("VmRSS")).unwrap_or_default();
    println!("{memory}");
}
