use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command(since = 0)]
    fn put(&mut self) {}
}

fn main() {}
