use super::*;

/// Versions in the order of the group: three messages of epoch 1, two of epoch 3.
const VERSIONS: [(u64, u64); 5] = [(1, 0), (1, 1), (1, 4), (3, 0), (3, 1)];
/// Their senders and numbers.
const SENT: [(u32, u32); 5] = [(1, 1), (2, 1), (1, 2), (4, 1), (4, 2)];

fn sent(at: usize) -> Sent {
    Sent { instance: SENT[at].0, number: SENT[at].1 }
}

fn logged(at: usize) -> Logged {
    Logged { version: Version::new(VERSIONS[at].0, VERSIONS[at].1), sent: sent(at) }
}

/// A log with these of the messages, in this order.
fn log(seat: usize, places: &[usize]) -> SeatLog {
    let records = places.iter().map(|at| logged(*at)).collect();
    SeatLog { seat, records, is_complete: true, is_current: true }
}

fn ack(at: usize) -> Ack {
    Ack { sent: sent(at), version: logged(at).version }
}

fn deliveries(instance: u32, places: &[usize]) -> Deliveries {
    let list = places.iter().map(|at| Delivered { view: VERSIONS[*at].0, sent: sent(*at) }).collect();
    Deliveries { instance, list }
}

fn union(places: &[usize]) -> Union {
    check_logs(&[log(0, places)], true).unwrap()
}

fn broken<T: std::fmt::Debug>(result: Result<T, Breach>) -> String {
    result.unwrap_err().what
}

#[test]
fn prefixes_pass_while_the_group_is_down_and_not_at_the_end() {
    let mut logs = [log(0, &[0, 1, 2, 3, 4]), log(1, &[0, 1]), log(2, &[])];
    assert_eq!(check_logs(&logs, false).unwrap().len(), 5);
    assert_eq!(
        broken(check_logs(&logs, true)),
        "the log of seat 1 ends where others have 1:4 (message 2 of process 1)"
    );
    logs[1] = log(1, &[0, 1, 2, 3, 4]);
    logs[2] = SeatLog { is_complete: false, ..log(2, &[3, 4]) };
    check_logs(&logs, true).unwrap();
}

#[test]
fn a_log_that_lost_its_end_behind_an_acknowledgement_is_noticed() {
    let logs = [log(0, &[0, 1, 2, 3, 4]), log(1, &[0, 1, 2, 3])];
    let all = check_logs(&logs, false).unwrap();
    check_acks(&[ack(3)], &logs, &all, Some(3)).unwrap();
    let lacks = "message 2 of process 4 was acknowledged as durable at 3:1, and the log of seat 1 lacks it";
    assert_eq!(broken(check_acks(&[ack(4)], &logs, &all, Some(3))), lacks);
    // Members came and went in that life, so one log suffices until all have caught up.
    check_acks(&[ack(4)], &logs, &all, None).unwrap();
    let all = union(&[0, 1, 2, 3]);
    let lost = "message 2 of process 4 was acknowledged as durable at 3:1, and is in no log";
    assert_eq!(broken(check_acks(&[ack(4)], &[log(0, &[0, 1, 2, 3])], &all, None)), lost);
}

#[test]
fn a_log_that_lost_its_beginning_is_noticed_unless_its_disk_was_wiped() {
    let mut logs = [log(0, &[0, 1, 2, 3]), log(1, &[2, 3])];
    let what = "the log of seat 1 has 1:4 where others have 1:0 (message 1 of process 1)";
    assert_eq!(broken(check_logs(&logs, false)), what);
    logs[1].is_complete = false;
    let all = check_logs(&logs, true).unwrap();
    check_acks(&[ack(0), ack(3)], &logs, &all, Some(1)).unwrap();
}

#[test]
fn a_missing_record_is_noticed() {
    let logs = [log(0, &[0, 1, 2, 3]), log(1, &[0, 2, 3])];
    let what = "the log of seat 1 has 1:4 where others have 1:1 (message 1 of process 2)";
    assert_eq!(broken(check_logs(&logs, false)), what);
    // All lack it.
    let what = "3:1 is message 2 of process 4 behind message 0 of that process";
    assert_eq!(broken(check_logs(&[log(0, &[0, 1, 2, 4])], true)), what);
}

#[test]
fn a_duplicate_is_noticed() {
    let mut logs = [log(0, &[0, 1, 2]), log(1, &[0, 1, 2])];
    for log in &mut logs {
        log.records.push(Logged { version: Version::new(3, 0), sent: sent(1) });
    }
    let what = "message 1 of process 2 is twice in logs, at 1:1 and at 3:0 (seat 0)";
    assert_eq!(broken(check_logs(&logs, true)), what);
}

#[test]
fn a_swapped_record_is_noticed() {
    let mut logs = [log(0, &[0, 1, 2]), log(1, &[0, 1, 2])];
    logs[1].records.swap(1, 2);
    assert_eq!(broken(check_logs(&logs, true)), "the log of seat 1 has 1:1 behind 1:4");
    // Their contents alone are swapped.
    logs[1].records = vec![logged(0), Logged { sent: sent(2), ..logged(1) }, Logged { sent: sent(1), ..logged(2) }];
    let what = "position 1:1 is message 1 of process 2 at seat 0 and message 2 of process 1 at seat 1";
    assert_eq!(broken(check_logs(&logs, true)), what);
}

#[test]
fn a_log_that_left_the_last_view_may_have_more_until_the_end() {
    let mut logs = [log(0, &[0, 1, 3]), log(1, &[0, 1, 2])];
    assert!(check_logs(&logs, false).is_err());
    logs[1].is_current = false;
    assert_eq!(check_logs(&logs, false).unwrap().len(), 4);
    assert!(check_logs(&logs, true).is_err());
}

#[test]
fn an_acknowledgement_names_the_version_in_the_logs() {
    let (logs, all) = ([log(0, &[0, 1, 2])], union(&[0, 1, 2]));
    let wrong = Ack { version: Version::new(1, 3), ..ack(2) };
    let what = "message 2 of process 1 was acknowledged as durable at 1:3, and is at 1:4 in logs";
    assert_eq!(broken(check_acks(&[wrong], &logs, &all, None)), what);
}

#[test]
fn deliveries_are_those_of_the_logs_and_an_end_that_no_disk_has() {
    let all = union(&[0, 1, 2, 3]);
    check_deliveries(&[deliveries(1, &[0, 1, 2, 3, 4]), deliveries(2, &[1, 2]), deliveries(3, &[])], &all).unwrap();
    let gap = broken(check_deliveries(&[deliveries(1, &[0, 2])], &all));
    assert_eq!(gap, "process 1 delivered message 1 of process 1 right before message 2 of process 1, unlike the logs");
    assert!(check_deliveries(&[deliveries(1, &[0, 1, 1])], &all).is_err(), "a duplicate");
    assert!(check_deliveries(&[deliveries(1, &[1, 0])], &all).is_err(), "another order");
    // Records of the logs come before messages that no log has.
    let mut late = deliveries(1, &[0, 1]);
    late.list.insert(1, Delivered { view: 1, sent: Sent { instance: 9, number: 1 } });
    assert!(check_deliveries(&[late], &all).is_err());
    let mut elsewhere = deliveries(1, &[0, 1]);
    elsewhere.list[1].view = 2;
    let what = "process 1 delivered message 1 of process 2 in view 2, and the logs have it in 1";
    assert_eq!(broken(check_deliveries(&[elsewhere], &all)), what);
}

#[test]
fn processes_agree_in_the_order_of_what_no_disk_has() {
    let all = union(&[0]);
    let mut other = deliveries(2, &[1, 2]);
    check_deliveries(&[deliveries(1, &[0, 1, 2]), other.clone()], &all).unwrap();
    other.list = [0, 2].map(|at| Delivered { view: 1, sent: sent(at) }).to_vec();
    let what = "behind message 1 of process 1 process 1 delivered message 1 of process 2, and process 2 message 2 of process 1";
    assert_eq!(broken(check_deliveries(&[deliveries(1, &[0, 1, 2]), other], &all)), what);
}

#[test]
fn messages_of_a_process_that_finished_are_in_the_logs() {
    let all = union(&[0, 1, 2, 3]);
    check_all_sent(&[(1, 2), (2, 1), (4, 1)], &all).unwrap();
    let what = "message 2 of process 4 was sent, its process finished, and it is in no log";
    assert_eq!(broken(check_all_sent(&[(4, 2)], &all)), what);
}
