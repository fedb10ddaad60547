//! Profiles of policies: values, inheritance, errors, hostile texts, round trips, and the guide.
#![expect(clippy::disallowed_methods, reason = "the seed of a random test is a variable")]
mod errors;
mod guide;
mod hostile;
mod inheritance;
mod policies;
mod random;

use spindle_dds_core::qos::profile::{ProfileSets, QosProvider};
use std::fmt;

/// Reads the contents of the profile `L::P`.
fn xml_sets(contents: &str) -> ProfileSets {
    let text = in_profile(contents);
    let provider = QosProvider::from_xml("q.xml", &text).unwrap_or_else(|errors| panic!("{errors}"));
    provider.sets("L::P", "T").unwrap()
}

fn toml_sets(text: &str) -> ProfileSets {
    let provider = QosProvider::from_toml("q.toml", text).unwrap_or_else(|errors| panic!("{errors}"));
    provider.sets("L::P", "T").unwrap()
}

/// Puts the contents of the profile `L::P` on lines of their own, from the second.
fn in_profile(contents: &str) -> String {
    format!("<dds><qos_library name=\"L\"><qos_profile name=\"P\">\n{contents}\n</qos_profile></qos_library></dds>")
}

/// A generator of random numbers (xorshift). It prints as the seed that repeats it.
struct Chance {
    seed: u64,
    state: u64,
}

impl Chance {
    fn seeded() -> Chance {
        let seed = std::env::var("DDS_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
        Chance { seed, state: seed | 1 << 63 }
    }

    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state
    }

    fn below(&mut self, bound: usize) -> usize {
        ((self.next() >> 11) % bound.max(1) as u64) as usize
    }
}

impl fmt::Display for Chance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DDS_SEED={}", self.seed)
    }
}
