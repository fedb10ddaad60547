use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    fn len(&self) -> u64 {
        0
    }
}

fn main() {}
