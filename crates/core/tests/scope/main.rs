//! Every way in which a small group can end a view, on the real engines.
mod intern;
mod member;
mod search;
mod world;

use member::Memory;
use search::Search;
use spindle_core::Order;
use world::Scope;

fn scope() -> Scope {
    Scope {
        members: 3,
        messages: vec![1, 1],
        early: true,
        crashes: 1,
        proofs: true,
        suspicions: 0,
        memory: Memory::Posted,
        order: Order::Total,
    }
}

#[test]
fn try_it() {
    let arg = |name: &str, default: usize| std::env::var(name).map_or(default, |v| v.parse().unwrap());
    let s = Scope {
        members: arg("M", 3),
        early: arg("EARLY", 1) == 1,
        crashes: arg("C", 1),
        proofs: arg("P", 1) == 1,
        suspicions: arg("S", 0) as u8,
        messages: std::env::var("MSG").map_or(vec![1, 1], |v| v.split(',').map(|x| x.parse().unwrap()).collect()),
        memory: search::MEMORIES[arg("MEM", 1)],
        ..scope()
    };
    let report = Search::new(s).run(arg("MAX", 20_000_000));
    println!("{}", report.line("try"));
    if let Some(wrong) = report.wrong {
        panic!("{wrong}");
    }
}
