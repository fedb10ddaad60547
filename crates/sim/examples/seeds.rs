//! Runs seeds: `seeds FIRST COUNT`, or `seeds SEED` for the story of one.
use spindle_sim::{Options, Plan, campaign, explain};

fn main() {
    let args: Vec<u64> = std::env::args().skip(1).map(|a| a.parse().expect("a number")).collect();
    let options = Options::default();
    if let [seed] = args[..] {
        println!("{}", explain(&Plan::from_seed(seed, &options)).1);
        return;
    }
    let summary = campaign(args[0]..args[0] + args[1], 2, &options, |s| s.failures.len() < 5);
    let failures = &summary.failures;
    println!("{:?}", spindle_sim::Summary { failures: vec![], ..summary.clone() });
    failures.iter().for_each(|f| println!("{}: {}", f.0, f.1));
}
