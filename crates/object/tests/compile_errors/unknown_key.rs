use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command(version = 2)]
    fn put(&mut self) {}
}

fn main() {}
