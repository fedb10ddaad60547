use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command]
    fn make() {}
}

fn main() {}
