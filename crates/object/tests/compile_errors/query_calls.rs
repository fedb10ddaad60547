//! A command can't be asked for as a query.
use serde::{Deserialize, Serialize};
use spindle_object::Replicated;
use std::time::Duration;

#[derive(Serialize, Deserialize)]
struct Store(u64);

#[spindle_object::commands]
impl Store {
    #[command]
    fn set(&mut self, value: u64) {
        self.0 = value;
    }
}

fn ask(store: &Replicated<Store>) {
    let _ = store.query(store.member(), &StoreCalls::set(1), Duration::ZERO);
}

fn main() {}
