use spindle_object::commands;

struct Store;

#[commands]
impl Store {
    #[command]
    async fn wait(&mut self) {}
}

fn main() {}
