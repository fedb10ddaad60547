use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command]
    fn first(&mut self) -> &str {
        ""
    }
}

fn main() {}
