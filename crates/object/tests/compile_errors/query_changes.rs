//! A query can't change the object.
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct Store(u64);

#[spindle_object::commands]
impl Store {
    #[command]
    fn set(&mut self, value: u64) {
        self.0 = value;
    }

    #[query]
    fn take(&mut self) -> u64 {
        std::mem::take(&mut self.0)
    }
}

fn main() {}
