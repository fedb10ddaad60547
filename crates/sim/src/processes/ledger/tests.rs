use super::*;
use crate::processes::subgroups::{first_view, plain, total};

const KEY: ViewKey = (7, 1);

/// Processes 0 to 2 are members of a view with a Fifo subgroup, in which process 0 has sent
/// four messages and a void.
fn ledger() -> HostsLedger {
    let mut ledger = HostsLedger::default();
    let fifo = SubgroupSpec { order: Order::Fifo, ..total("f") };
    let ids: Vec<MemberId> = [1, 2, 3].map(MemberId).to_vec();
    let view = first_view(&[fifo], ids.clone());
    for (process, id) in ids.into_iter().enumerate() {
        ledger.begins(KEY.0, &view, process, id).unwrap();
    }
    for number in 1..=4 {
        assert_eq!(ledger.sends(0, "f"), number);
        ledger.commits(KEY, 0, 0, Some(number));
        if number == 2 {
            ledger.commits(KEY, 0, 0, None);
        }
    }
    ledger
}

/// Returns the number of the invariant that a process breaks if it delivers these messages, and
/// ends the view with this trim of the first sender.
fn breaks(numbers: &[u32], trim: u64) -> Option<u8> {
    let mut ledger = ledger();
    let mut delivers = numbers.iter().map(|number| ledger.delivers(KEY, 1, 0, (0, *number), 5));
    let delivered = delivers.find_map(Result::err);
    let trims = [trim, 0, 0];
    let ended = delivered.map_or_else(|| ledger.ends(KEY, 1, SubgroupId(0), &trims), Err);
    ended.err().map(|violation| violation.number)
}

#[test]
fn gaps_duplicates_and_messages_below_the_trims_that_are_missing_are_found() {
    assert_eq!(breaks(&[1, 2, 3], 4), None);
    assert_eq!(breaks(&[1, 2, 3, 4], 2), None, "more than the trims say");
    assert_eq!(breaks(&[1, 2], 4), Some(4), "round 3 is message 3");
    assert_eq!(breaks(&[1, 2], 6), Some(4), "there are five rounds");
    assert_eq!(breaks(&[2], 0), Some(3), "without the first");
    assert_eq!(breaks(&[1, 3], 0), Some(3));
    assert_eq!(breaks(&[1, 2, 2], 0), Some(3));
    assert_eq!(breaks(&[1, 5], 0), Some(2), "it was not sent");
}

/// In the next view, which all processes begin, process 0 sends the messages from this one on
/// again.
fn delivers_again(from: u32, given_up: &[u32]) -> Checked {
    let mut ledger = ledger();
    ledger.delivers(KEY, 1, 0, (0, 1), 5)?;
    let view = View { id: ViewId(2), ..ledger.views[&KEY].view.clone() };
    for process in 0..3 {
        ledger.begins(KEY.0, &view, process, MemberId(1 + process as u64))?;
    }
    given_up.iter().for_each(|number| ledger.gives_up(0, "f", *number));
    (from..=4).for_each(|number| ledger.commits((KEY.0, 2), 0, 0, Some(number)));
    ledger.delivers((KEY.0, 2), 1, 0, (0, from.max(2)), 6)
}

#[test]
fn a_message_that_is_not_sent_again_is_found_unless_it_was_given_up() {
    assert_eq!(delivers_again(2, &[]), Ok(()));
    assert_eq!(delivers_again(1, &[]), Ok(()), "what was delivered before is passed over");
    assert_eq!(delivers_again(3, &[]).unwrap_err().number, 3);
    assert_eq!(delivers_again(3, &[2]), Ok(()));
}

#[test]
fn an_observer_of_a_fifo_subgroup_is_told_all_behind_its_first() {
    let ledger = ledger();
    let told = |last, number| ledger.observes_fifo(KEY, 9, 0, last, (0, number)).err().map(|broken| broken.number);
    assert_eq!([told(None, 3), told(Some(3), 4), told(Some(1), 2)], [None; 3]);
    assert_eq!([told(Some(1), 3), told(Some(3), 3), told(Some(3), 2)], [Some(3); 3]);
    assert_eq!(told(None, 5), Some(2));
}

#[test]
fn members_that_know_other_subgroups_of_a_view_are_found() {
    let mut ledger = HostsLedger::default();
    let mut view = first_view(&plain(), vec![MemberId(1)]);
    ledger.sees(7, &view).unwrap();
    assert_eq!(ledger.sees(7, &view), Ok(false));
    view.subgroups[1].window += 1;
    assert_eq!(ledger.sees(7, &view).unwrap_err().number, 5);
}
