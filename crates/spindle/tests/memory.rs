//! System resources that a group holds while its views change. No other test runs in this process,
//! because the test inspects everything that the process holds.
use spindle::{Batch, Change, Config, Durability, Handler, Node, Order, Rule, SubgroupId, SubgroupSpec, ViewId};
use std::time::{Duration, Instant};

const LONG: Duration = Duration::from_secs(20);
const VIEWS: u64 = 200;

#[derive(Default)]
struct Count(u64);

impl Handler for Count {
    fn deliver(&mut self, _: SubgroupId, batch: &mut Batch<'_>) {
        batch.for_each(|message| {
            assert_eq!(message.payload, b"in every view");
            self.0 += 1;
        });
    }
}

/// Returns the numbers of mappings of rows, and of open descriptors, of this process.
fn held() -> (usize, usize) {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let mappings = maps.lines().filter(|line| line.contains("memfd:spindle-rows")).count();
    (mappings, std::fs::read_dir("/proc/self/fd").unwrap().count())
}

/// Each member maps the memory of each other member once, and its own. The places of rows of ended
/// views are used again, except those of views with live epochs.
#[test]
fn views_that_change_take_no_more_memory_mappings_and_descriptors() {
    let mut nodes: Vec<(Node, Count)> =
        Config::new("memory", 3).local().unwrap().into_iter().map(|node| (node, Count::default())).collect();
    let mut publisher = nodes[0].0.publisher("all").unwrap();
    let spec = SubgroupSpec {
        name: "now and then".to_string(),
        members: vec![],
        senders: vec![],
        member_rule: Rule::Everyone,
        sender_rule: Rule::Everyone,
        order: Order::Total,
        window: 64,
        message_bytes_max: 1_000,
        leftover_bytes_max: 0,
        durability: Durability::InMemory,
        clock: 0,
        epoch: None,
    };
    let mut early = None;
    for view in 1..=VIEWS {
        publisher.send(b"in every view", LONG).unwrap();
        let patience = Instant::now() + LONG;
        let is_behind = |(node, count): &(Node, Count)| node.view().id != ViewId(view) || count.0 < view;
        while nodes.iter().any(is_behind) {
            for (node, count) in &mut nodes {
                node.poll(count).unwrap();
            }
            assert!(Instant::now() < patience, "view {view}");
        }
        let change = if view % 2 == 1 { Change::Create(spec.clone()) } else { Change::Drop(spec.name.clone()) };
        assert!(nodes[view as usize % 3].0.propose_change(change).unwrap());
        if view == 10 {
            early = Some(held());
        }
    }
    let ((mappings, descriptors), (early_mappings, early_descriptors)) = (held(), early.unwrap());
    // Each member has one mapping to write and two to read for the rows of the first view, which
    // stay as long as "all" does, and as many for other rows. More mappings may remain from a
    // moment at which longer rows were needed.
    assert!((6..=18).contains(&mappings) && mappings <= early_mappings, "{mappings} mappings, {early_mappings} before");
    assert!(descriptors <= early_descriptors + 12, "{descriptors} descriptors, {early_descriptors} before");
}
