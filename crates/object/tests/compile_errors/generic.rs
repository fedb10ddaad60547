use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command]
    fn any<T>(&mut self, _value: T) {}
}

fn main() {}
