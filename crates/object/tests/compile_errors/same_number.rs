use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command(id = 7)]
    fn one(&mut self) {}

    #[command(id = 7)]
    fn two(&mut self) {}
}

fn main() {}
