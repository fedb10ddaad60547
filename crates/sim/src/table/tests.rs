use super::*;

fn extents() -> [Extent; 2] {
    [(); 2].map(|()| Extent { size: 1024, control: 256, membership: 64, free: [64..64, 192..256] })
}

fn pair(copy_data: bool) -> (SimTable, SimTable) {
    let table = |me| SimTable::new(Rank(me), &extents(), copy_data, None, Rc::default());
    (table(0), table(1))
}

fn post(from: &mut SimTable, to: &SimTable, range: Range<u64>, travel: Travel) -> bool {
    from.begin_poll();
    from.post(&[Rank(1)], range);
    let [TableAction::Post { range, copied, .. }] = &from.actions[..] else { panic!("one post") };
    to.expect_post(from, range, *copied, travel)
}

const WHOLE: Travel = Travel { due: 10, steps: 1, salt: 5, merge: false, since: u64::MAX };

#[test]
fn a_post_carries_what_its_range_held_and_arrives_when_it_is_due() {
    let (mut from, mut to) = pair(true);
    from.store(64, 7);
    post(&mut from, &to, 64..128, WHOLE);
    from.store(64, 8);
    assert_eq!(to.land(&from, 9, 1).next, Some(10));
    assert_eq!(to.load(Rank(0), 64), 0);
    assert!(to.land(&from, 10, 1).woken);
    assert_eq!(to.load(Rank(0), 64), 7);
}

#[test]
fn a_torn_post_lands_line_by_line_and_before_the_next() {
    let (mut from, mut to) = pair(true);
    from.set_own(256, 1);
    from.set_own(320, 1);
    from.set_own(384, 1);
    from.store(64, 1);
    let torn = Travel { steps: 3, ..WHOLE };
    post(&mut from, &to, 256..448, torn);
    post(&mut from, &to, 64..128, WHOLE);
    let mut now = 10;
    let mut partial = 0;
    while let Some(next) = to.land(&from, now, 5).next {
        let lines = [256, 320, 384].iter().filter(|at| to.load(Rank(0), **at) == 1).count();
        partial += usize::from(lines == 1 || lines == 2);
        assert_eq!(to.load(Rank(0), 64), 0, "it stands behind the torn one");
        now = next;
    }
    assert!(partial > 0);
    assert_eq!([64, 256, 320, 384].map(|at| to.load(Rank(0), at)), [1; 4]);
}

#[test]
fn a_covered_control_post_may_be_left_out_but_data_never() {
    let (mut from, mut to) = pair(false);
    let merge = Travel { merge: true, ..WHOLE };
    from.store(64, 1);
    assert!(!post(&mut from, &to, 64..128, WHOLE));
    from.set_own(256, 9);
    assert!(!post(&mut from, &to, 256..320, merge));
    from.store(64, 2);
    assert!(post(&mut from, &to, 64..192, merge));
    to.land(&from, 10, 1);
    assert_eq!((to.load(Rank(0), 64), to.load(Rank(0), 256)), (2, 9));
    // A post does not merge across a control post that stays.
    post(&mut from, &to, 64..128, WHOLE);
    post(&mut from, &to, 0..64, merge);
    assert!(!post(&mut from, &to, 64..128, merge));
}

#[test]
fn a_word_that_goes_back_is_noticed() {
    let (mut from, mut to) = pair(false);
    for value in [5, 4] {
        from.store(64, value);
        post(&mut from, &to, 64..128, WHOLE);
    }
    to.land(&from, 10, 1);
    assert_eq!(to.went_back.get(), Some((Rank(0), 64, 5, 4)));
}

#[test]
fn a_proposal_may_take_any_value() {
    let (mut from, mut to) = pair(false);
    for value in [5, 4] {
        from.store(192, value);
        post(&mut from, &to, 192..256, WHOLE);
    }
    to.land(&from, 10, 1);
    assert_eq!((to.went_back.get(), to.load(Rank(0), 192)), (None, 4));
}

#[test]
fn posts_of_a_dead_member_arrive_up_to_one_of_them() {
    let (mut from, mut to) = pair(true);
    for value in 1..=3 {
        from.store(64, value);
        from.set_own(256, value);
        post(&mut from, &to, 256..320, WHOLE);
        post(&mut from, &to, 64..128, WHOLE);
    }
    assert_eq!(to.on_the_way(Rank(0)), 6);
    to.lose(Rank(0), 3);
    to.land(&from, 10, 1);
    assert_eq!((to.load(Rank(0), 256), to.load(Rank(0), 64)), (2, 1));
    let link = to.inbound[0].borrow();
    assert!(link.queue.is_empty() && link.words.is_empty() && link.bytes.is_empty());
}

#[test]
fn words_arrive_in_the_middle_of_a_poll_in_order() {
    let to = SimTable::new(Rank(1), &extents(), false, Some(3), Rc::default());
    for value in 1..=50 {
        to.expect_word(Rank(0), 64, value, 10);
        to.expect_word(Rank(0), 72, value, 10);
    }
    let mut seen = vec![];
    for _ in 0..100 {
        let second = to.rows[0].word(72);
        let first = to.rows[0].word(64);
        assert!(first == second || first == second + 1);
        seen.push(to.load(Rank(0), 64));
    }
    seen.dedup();
    assert!(seen.len() > 10 && seen.is_sorted());
}
