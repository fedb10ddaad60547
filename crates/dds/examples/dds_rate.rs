//! How many samples a second one writer brings to each of several readers, and how long one takes there and back,
//! in processes of their own: `dds_rate [BYTES] [READERS] [SECONDS]`.
use spindle_dds::policy::*;
use spindle_dds::qos::*;
use spindle_dds::{DataReader, DataWriter, DdsDuration, DdsType, DomainConfig, DomainParticipant};
use std::process::{Child, Command};
use std::time::{Duration, Instant};

#[derive(DdsType, Clone, PartialEq, Debug, Default)]
#[dds(final)]
struct Block {
    number: u64,
    #[dds(bound = 16384)]
    data: Vec<u8>,
}

const WAIT: DdsDuration = DdsDuration::from_secs(20);
/// The value of the last sample.
const END: u64 = u64::MAX;

fn participant(domain: u32) -> DomainParticipant {
    let spin = std::env::var("SPIN_US").ok().and_then(|own| own.parse().ok()).unwrap_or(50);
    let ring_bytes = std::env::var("RING").ok().and_then(|own| own.parse().ok()).unwrap_or(1 << 20);
    let config = DomainConfig { spin_for: Duration::from_micros(spin), ring_bytes, ..DomainConfig::new(domain) };
    DomainParticipant::with(config, DomainParticipantQos::default()).unwrap()
}

fn writer(at: &DomainParticipant, topic: &str) -> DataWriter<Block> {
    let topic = at.create_topic(topic, TopicQos::default()).unwrap();
    let qos = DataWriterQos {
        reliability: ReliabilityQosPolicy { max_blocking_time: WAIT, ..ReliabilityQosPolicy::WRITER },
        ..DataWriterQos::default()
    };
    at.create_publisher(PublisherQos::default()).unwrap().create_datawriter(&topic, qos).unwrap()
}

fn reader(at: &DomainParticipant, topic: &str) -> DataReader<Block> {
    let topic = at.create_topic(topic, TopicQos::default()).unwrap();
    let qos = DataReaderQos {
        reliability: ReliabilityQosPolicy::WRITER,
        history: HistoryQosPolicy { kind: HistoryQosPolicyKind::KeepAll },
        ..DataReaderQos::default()
    };
    at.create_subscriber(SubscriberQos::default()).unwrap().create_datareader(&topic, qos).unwrap()
}

/// Reads all bytes of all samples, and answers each with `echo`.
fn read(domain: u32, echo: bool) {
    let at = participant(domain);
    let reader = reader(&at, "blocks");
    let writer = echo.then(|| writer(&at, "echoes"));
    let (mut count, mut bytes, mut sum, mut since) = (0_u64, 0_u64, 0_u64, None);
    loop {
        reader.wait_for_data(WAIT).unwrap();
        for sample in reader.take().unwrap() {
            let Some(data) = sample.data().unwrap() else { continue };
            if data.number == END {
                let took = since.map_or(Duration::ZERO, |since: Instant| since.elapsed());
                let rate = count as f64 / took.as_secs_f64();
                println!(
                    "{rate:.0} samples/s, {:.0} MB/s, {count} samples, sum {sum}",
                    rate * bytes as f64 / count as f64 / 1e6
                );
                return;
            }
            since.get_or_insert_with(Instant::now);
            count += 1;
            bytes += data.data.len() as u64;
            sum = sum.wrapping_add(data.data.iter().map(|byte| u64::from(*byte)).sum());
            writer.iter().for_each(|own| own.write(&data).unwrap());
        }
    }
}

fn spawn(domain: u32, role: &str) -> Child {
    Command::new(std::env::current_exe().unwrap()).args(["--role", role, &domain.to_string()]).spawn().unwrap()
}

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    if let [flag, role, domain] = &arguments[..]
        && flag == "--role"
    {
        return read(domain.parse().unwrap(), role == "echo");
    }
    let number = |index: usize, or: u64| arguments.get(index).map_or(or, |own| own.parse().unwrap());
    let (bytes, readers, seconds) = (number(0, 128), number(1, 1), number(2, 3));
    let domain = std::process::id() * 4;
    let at = participant(domain);
    let children: Vec<Child> = (0..readers).map(|_| spawn(domain, "read")).collect();
    let own = writer(&at, "blocks");
    own.wait_for_subscriptions(readers as usize, WAIT).unwrap();
    let mut block = Block { number: 0, data: vec![1; bytes as usize] };
    let (start, mut count) = (Instant::now(), 0_u64);
    while !count.is_multiple_of(64) || start.elapsed() < Duration::from_secs(seconds) {
        block.number = count;
        own.write(&block).unwrap();
        count += 1;
    }
    own.wait_for_acknowledgments(WAIT).unwrap();
    println!("writer: {:.0} samples/s", count as f64 / start.elapsed().as_secs_f64());
    own.write(&Block { number: END, data: vec![] }).unwrap();
    children.into_iter().for_each(|mut child| _ = child.wait());
    drop((own, at));

    let domain = domain + 1;
    let at = participant(domain);
    let mut child = spawn(domain, "echo");
    let (own, back) = (writer(&at, "blocks"), reader(&at, "echoes"));
    own.wait_for_subscriptions(1, WAIT).unwrap();
    back.wait_for_publications(1, WAIT).unwrap();
    let mut times: Vec<Duration> = Vec::new();
    for number in 0..20_000 {
        block.number = number;
        let start = Instant::now();
        own.write(&block).unwrap();
        back.take_next_timeout(WAIT).unwrap();
        times.push(start.elapsed());
    }
    times.sort_unstable();
    println!("there and back: median {:?}, 99 % {:?}", times[times.len() / 2], times[times.len() * 99 / 100]);
    own.write(&Block { number: END, data: vec![] }).unwrap();
    let _ = child.wait();
}
