//! Measures the cache of a reader: writes and takes per second, for some numbers of keys.
use spindle_dds_core::cache::*;
use spindle_dds_core::policy::*;
use spindle_dds_core::qos::*;
use spindle_dds_core::*;
use std::sync::Arc;
use std::time::Instant;

const WRITER: Guid = Guid([1; 16]);

fn main() {
    println!("{:>8} {:>10} {:>14} {:>14}", "keys", "history", "ns per write", "ns per take");
    for keys in [1_u64, 100, 10_000, 1_000_000] {
        for history in [HistoryQosPolicyKind::KeepLast(1), HistoryQosPolicyKind::KeepAll] {
            measure(keys, history);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "it measures time")]
fn measure(keys: u64, history: HistoryQosPolicyKind) {
    let mut qos = DataReaderQos { reliability: ReliabilityQosPolicy::WRITER, ..DataReaderQos::default() };
    qos.history.kind = history;
    let key_of: KeyReader<Arc<[u8]>> = Arc::new(|payload: &Arc<[u8]>| Ok(payload.clone()));
    let mut cache = ReaderCache::new(&qos, &SubscriberQos::default(), key_of).expect("the policies fit");
    let info = WriterInfo { guid: WRITER, strength: 0, lifespan: DdsDuration::INFINITE, alive: true };
    let _ = cache.deliver(Position::default(), ReaderEvent::WriterMatched(info), DdsTime::default());
    let payload: Arc<[u8]> = Arc::from([0; 16]);
    let (rounds, batch) = (2_000_000_u64.max(keys), 1000.min(keys.max(100)));
    let (mut writing, mut taking, mut taken) = (0, 0, 0_u64);
    let mut seq = 0;
    while seq < rounds {
        let start = Instant::now();
        for _ in 0..batch {
            seq += 1;
            let key = (seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)) % keys;
            let change = CacheChange {
                writer: WRITER,
                kind: ChangeKind::Write,
                instance: InstanceHandle(u128::from(key).to_be_bytes()),
                source_timestamp: DdsTime::from_nanos(seq as i64),
                set: None,
                payload: payload.clone(),
            };
            let position = Position { seq, ..Position::default() };
            let _ = cache.deliver(position, ReaderEvent::Change(change), DdsTime::from_nanos(seq as i64));
        }
        writing += start.elapsed().as_nanos();
        let start = Instant::now();
        if let Ok(selection) = cache.take(&Select::any(), DdsTime::from_nanos(seq as i64)) {
            taken += selection.samples.len() as u64;
            cache.return_loan(selection.loan).expect("the loan is open");
        }
        taking += start.elapsed().as_nanos();
    }
    let kind = if history == HistoryQosPolicyKind::KeepAll { "KEEP_ALL" } else { "KEEP_LAST" };
    println!("{keys:>8} {kind:>10} {:>14} {:>14}", writing / u128::from(seq), taking / u128::from(taken.max(1)));
}
