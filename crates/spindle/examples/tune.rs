//! scratch
use spindle::*;
use std::sync::atomic::*;
use std::time::*;
fn fill(b: &mut [u8], seed: u64) {
    let (w, r) = b.as_chunks_mut::<8>();
    for c in w {
        *c = seed.to_le_bytes();
    }
    r.fill(seed as u8);
}
fn check(b: &[u8]) -> u64 {
    let (w, r) = b.as_chunks::<8>();
    let mut s = 0u64;
    for c in w {
        s = s.wrapping_add(u64::from_le_bytes(*c));
    }
    for c in r {
        s = s.wrapping_add(*c as u64);
    }
    s
}
fn main() {
    let a: Vec<String> = std::env::args().collect();
    let size: u64 = a[1].parse().unwrap();
    let senders: u32 = a[2].parse().unwrap();
    let window: u64 = a.get(3).map_or((1 << 20) / ((size + 31) / 16 * 16), |x| x.parse().unwrap());
    let burst: usize = a.get(4).map_or(64, |x| x.parse().unwrap());
    let secs = 2.0;
    let mut c = Config::new("x", 2);
    c.subgroups[0].message_bytes_max = size;
    c.subgroups[0].window = window;
    c.subgroups[0].senders = Who::First(senders);
    let nodes = c.local().unwrap();
    let go = std::sync::Arc::new(AtomicBool::new(true));
    let hs: Vec<_> = nodes
        .into_iter()
        .enumerate()
        .map(|(i, mut node)| {
            let go = go.clone();
            std::thread::spawn(move || {
                let mut p = if (i as u32) < senders {
                    Some(node.publisher("all").unwrap())
                } else {
                    node.close_unused_publishers();
                    None
                };
                let mut got = 0u64;
                let mut sum = 0u64;
                let mut n = 0u64;
                let start = Instant::now();
                let mut h = |_: SubgroupId, b: &mut Batch<'_>| {
                    for m in b {
                        got += 1;
                        if m.sender.0 != i as u32 {
                            sum = sum.wrapping_add(check(m.payload));
                        }
                    }
                };
                let mut k = 0u64;
                loop {
                    if let Some(pp) = &mut p {
                        for _ in 0..burst {
                            match pp.try_claim(size).unwrap() {
                                Some(mut f) => {
                                    n += 1;
                                    fill(&mut f, n);
                                    f.commit();
                                }
                                None => break,
                            }
                        }
                    }
                    k += 1;
                    if k % 64 == 0
                        && p.is_some()
                        && (!go.load(Ordering::Relaxed) || start.elapsed().as_secs_f64() > secs)
                    {
                        go.store(false, Ordering::Relaxed);
                        p = None;
                    }
                    if node.poll(&mut h).unwrap() == Poll::Finished {
                        break;
                    }
                }
                let t = start.elapsed().as_secs_f64();
                (got, sum, t, node.status())
            })
        })
        .collect();
    for h in hs {
        let (got, sum, t, st) = h.join().unwrap();
        let s = &st.subgroups[0].stats;
        println!(
            "{:.2} M/s {:.2} GB/s sum {sum:x} polls {} prod {} sent/batch {:.1} deliv/batch {:.1} nulls {}",
            got as f64 / t / 1e6,
            got as f64 * size as f64 / t / 1e9,
            st.engine.polls,
            st.engine.productive_polls,
            s.sent as f64 / s.send_batches.max(1) as f64,
            s.delivered as f64 / s.delivery_batches.max(1) as f64,
            s.nulls
        );
    }
}
