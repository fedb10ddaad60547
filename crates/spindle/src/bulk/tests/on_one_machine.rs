//! Tests of groups in the memory of one machine.
use super::*;

#[test]
fn on_one_machine_objects_are_lent() {
    let settings = BulkSettings { direct_below: BLOCK, ..BulkSettings::default() };
    for members in 1..=9 {
        let root = members / 2;
        let mut cluster = Cluster::new(local(members, root, &settings));
        check_objects(&mut cluster, root, &SIZES);
    }
    let mut cluster = Cluster::new(local(3, 0, &settings));
    let mut segment = Segment::create(5000).unwrap();
    segment.copy_from_slice(&content(0, 5000));
    cluster.root(0).send(segment).unwrap();
    cluster.run_until("delivery", |told| completed(told).len() == 1);
    let at_root = completed(&cluster.members[0].1)[0].1.clone();
    assert!(at_root.segment().is_some(), "what stands in a segment is not copied");
    // The memory of an object lives as long as any member reads it.
    drop(at_root);
    cluster.members[0].1.clear();
    cluster.kill(0);
    assert!(*completed(&cluster.members[2].1)[0].1 == *content(0, 5000));
}

#[test]
fn on_one_machine_a_death_fails_the_group_once_at_each_member() {
    for dead in 0..4 {
        let mut cluster = Cluster::new(local(4, 1, &BulkSettings::default()));
        cluster.root(1).send(content(0, 3)).unwrap();
        cluster.run_until("delivery", |told| completed(told).len() == 1);
        // No member is polled before one of them dies, so the objects that are sent now are not
        // everywhere.
        cluster.root(1).send(content(1, 100_000)).unwrap();
        cluster.root(1).send(content(2, 3)).unwrap();
        let full = cluster.root(1).send(vec![1]);
        assert!(matches!(full, Err(BulkSendError::Session(spindle_core::rdmc::SessionSendError::Full { slots: 2 }))));
        cluster.kill(dead);
        cluster.run_until("the end", |told| !failures(told).is_empty());
        cluster.run_to_rest();
        for (member, (_, told)) in (0..).zip(&cluster.members).filter(|(member, _)| *member != dead) {
            let [failure] = failures(told)[..] else { panic!("{told:?}") };
            assert_eq!(failure.dead, Rank(dead), "{member}: {failure}");
            assert_eq!(failure.objects.is_empty(), member != 1, "the root says what is not everywhere");
            let complete: Vec<_> = completed(told).into_iter().map(|(object, _)| object).collect();
            assert_eq!(complete, (0..complete.len() as u64).collect::<Vec<_>>(), "a prefix");
        }
    }
}

#[test]
fn on_one_machine_nonsense_closes_the_group_with_its_reason() {
    const OBJECT: u64 = 6;
    let greeting = |near: &OwnedFd| {
        let mut bytes = [0; 56];
        assert_eq!(rustix::net::recv(near, &mut bytes, rustix::net::RecvFlags::empty()).unwrap().1, 56);
        bytes
    };
    type Is = fn(&BulkDown) -> bool;
    let cases: Vec<(&str, Vec<u8>, Is)> = vec![
        ("too short", vec![1; 20], |down| matches!(down, BulkDown::Garbage { .. })),
        ("no frame", vec![1; 56], |down| matches!(down, BulkDown::Garbage { .. })),
        ("an object without memory", frame(OBJECT, 0, [0, 9], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
        ("an object of another length", [frame(OBJECT, 1, [0, 9], [0; 4]), vec![1; 8]].concat(), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("an object in memory that was never handed over", frame(OBJECT, 0, [0, 9], [5, 0, 0, 0]), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("an object without its memory", frame(OBJECT, 2, [0, 9], [5, 4096, 0, 0]), |down| {
            matches!(down, BulkDown::Garbage { .. })
        }),
        ("another object", [frame(OBJECT, 1, [1, 9], [0; 4]), vec![1; 9]].concat(), |down| {
            matches!(down, BulkDown::Garbage { word: 1 })
        }),
        ("a count to who is no root", frame(7, 0, [0, 0], [0; 4]), |down| matches!(down, BulkDown::Garbage { .. })),
        ("nothing", vec![], |down| matches!(down, BulkDown::Closed)),
    ];
    for (what, bytes, is) in cases {
        let mut parts = LocalPart::parts(2, Rank(0)).unwrap();
        let node = BulkNode::on_one_machine(&BulkSettings::default(), parts.pop().unwrap()).unwrap();
        let root = parts.pop().unwrap().into_fds().pop().unwrap();
        let mut answer = greeting(&root);
        (answer[4], answer[24]) = (answer[24], answer[4]);
        let send = |bytes: &[u8]| rustix::net::send(&root, bytes, rustix::net::SendFlags::empty()).unwrap();
        send(&answer);
        if !bytes.is_empty() {
            send(&bytes);
        }
        let mut cluster = Cluster::new(vec![node]);
        if bytes.is_empty() {
            drop(root);
        }
        cluster.run_until("the end", |told| !failures(told).is_empty());
        let failure = failures(&cluster.members[0].1)[0];
        let FailureCause::Down(down) = &failure.cause else { panic!("{what}: {failure}") };
        assert!(is(down), "{what}: {down:?}");
    }
}

#[test]
fn memory_is_reused_when_no_process_reads_it() {
    let mut cluster = Cluster::new(local(3, 0, &BulkSettings::default()));
    let sends = |cluster: &mut Cluster, count: u64| {
        let mut segment = cluster.root(0).segment(100_000).unwrap();
        let start = segment.as_ptr() as usize;
        segment.copy_from_slice(&content(count, 100_000));
        cluster.root(0).send(segment).unwrap();
        cluster.run_until("delivery", |told| completed(told).len() as u64 == 1);
        let data: Vec<Object> =
            cluster.members.iter_mut().map(|(_, told)| completed(&std::mem::take(told)).remove(0).1).collect();
        assert!(data.iter().all(|data| **data == *content(count, 100_000)));
        cluster.run_to_rest();
        cluster.members.iter_mut().for_each(|(_, told)| told.clear());
        (start, data)
    };
    let (first, read) = sends(&mut cluster, 0);
    let (second, also_read) = sends(&mut cluster, 1);
    assert_ne!(first, second, "it is read");
    // One of the receivers, the root, and both but the root still have it.
    let [at_root, at_one, at_two]: [Object; 3] = read.try_into().unwrap();
    drop([at_one]);
    let (third, third_read) = sends(&mut cluster, 2);
    assert!(third != first && third != second);
    drop(at_two);
    let (fourth, fourth_read) = sends(&mut cluster, 3);
    assert_ne!(fourth, first, "the root's application has it");
    drop(at_root);
    let where_mapped = third_read[1].as_ptr();
    drop(third_read);
    let (fifth, fifth_read) = sends(&mut cluster, 4);
    assert!(fifth == first || fifth == third);
    assert!(fifth != third || fifth_read[1].as_ptr() == where_mapped, "and the others have it mapped");
    // Objects that are still read have not changed.
    assert!(also_read.iter().all(|data| **data == *content(1, 100_000)));
    assert!(fourth_read.iter().all(|data| **data == *content(3, 100_000)));
    // The same object in two groups, one of which ends while it is read: the other does not use its
    // memory.
    let mut other = Cluster::new(local(2, 0, &BulkSettings::default()));
    let mut segment = cluster.root(0).segment(300_000).unwrap();
    let shared_at = segment.as_ptr() as usize;
    segment.copy_from_slice(&content(50, 300_000));
    let shared = Object::from(segment);
    cluster.root(0).send(shared.clone()).unwrap();
    other.root(0).send(shared).unwrap();
    for cluster in [&mut cluster, &mut other] {
        cluster.run_until("delivery", |told| completed(told).len() == 1);
    }
    let still_read = completed(&other.members[1].1).remove(0).1;
    drop(other);
    cluster.members.iter_mut().for_each(|(_, told)| told.clear());
    cluster.run_to_rest();
    assert_ne!(cluster.root(0).segment(300_000).unwrap().as_ptr() as usize, shared_at);
    assert!(*still_read == *content(50, 300_000));
    // More than are kept.
    let many: Vec<_> = (5..20).map(|count| sends(&mut cluster, count)).collect();
    for (count, (_, data)) in (5..).zip(&many) {
        assert!(data.iter().all(|data| **data == *content(count, 100_000)));
    }
}
