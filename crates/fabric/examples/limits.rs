//! Prints this machine's limits as measured by two bare processes:
//! `cargo run --release --example limits`.
use std::time::Duration;

use spindle_fabric::probe::{Cores, Percentiles, ProbeError, clock, futex_wake, hop, memcpy, raw_ring};

const RING_BYTES: u64 = 1 << 20;
const EACH: Duration = Duration::from_millis(300);
const MOMENT: Duration = Duration::from_millis(10);

fn main() -> Result<(), ProbeError> {
    println!("{:<28}{:>14}{:>14}{:>20}", "raw ring, 1 MiB", "blocks/s", "GB/s", "hop just then, ns");
    let mut cores = None;
    for block_bytes in [16, 128, 1024, 10_240] {
        let got = raw_ring(block_bytes, RING_BYTES, EACH)?;
        cores = Some(got.cores);
        let hop_ns = hop(MOMENT)?.one_way.p50_ns;
        let (millions, gigabytes) = (got.blocks_per_second / 1e6, got.bytes_per_second / 1e9);
        println!("{:<28}{millions:>12.2} M{gigabytes:>14.2}{hop_ns:>20.0}", format!("  {block_bytes} B"));
    }

    println!("\n{:<28}{:>10}{:>10}{:>10}{:>10}{:>10}", "ns", "min", "p50", "p99", "p99.9", "max");
    row("hop, one way", hop(EACH)?.one_way);
    row("futex wake, back to back", futex_wake(EACH, Duration::ZERO)?.wake);
    row("futex wake, after 200 us", futex_wake(EACH, Duration::from_micros(200))?.wake);

    println!("\n{:<28}{:>14}", "memcpy, one thread", "GB/s");
    for (name, bytes) in [("10 KB, in cache", 10_240), ("4 MiB, above L2", 4 << 20), ("256 MiB, memory", 256 << 20)] {
        println!("{:<28}{:>14.2}", format!("  {name}"), memcpy(bytes, EACH)?.bytes_per_second / 1e9);
    }
    let clock = clock();
    println!("\nreading the clock: {:.1} ns, in steps of {} ns", clock.read_ns, clock.step_ns);
    match cores {
        Some(Cores::Two { parent, child }) => println!("pinned: reader to core {parent}, writer to core {child}"),
        Some(Cores::One { core }) => println!("one core only, {core}: the two processes took turns"),
        None => {}
    }
    Ok(())
}

fn row(name: &str, of: Percentiles) {
    let Percentiles { min_ns, p50_ns, p99_ns, p999_ns, max_ns, .. } = of;
    println!("{:<28}{min_ns:>10.0}{p50_ns:>10.0}{p99_ns:>10.0}{p999_ns:>10.0}{max_ns:>10.0}", format!("  {name}"));
}
