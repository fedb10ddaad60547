//! Reports of views on the standard error, as lines for people or as JSON.
use crate::lines;
use serde_json::json;
use spindle::{Incarnation, Lag, MemberId, ViewChange, ViewId};

/// Reports a change in one line.
pub(crate) fn tell(change: &ViewChange, json: bool) {
    let (view, members) = (change.new.id, &change.new.members);
    if json {
        let (joined, left, members) = (numbers(&change.joined), numbers(&change.left), numbers(members));
        lines::tell(json!({"event": "view", "view": view.0, "members": members, "joined": joined, "left": left}));
        return;
    }
    let is = |ids: &[MemberId], one, many| if ids.len() == 1 { one } else { many };
    let left = &change.left;
    let gone = (!left.is_empty()).then(|| format!("{} {} gone", list(left), is(left, "is", "are")));
    let joined = &change.joined;
    let come = (!joined.is_empty()).then(|| format!("{} {} come", list(joined), is(joined, "has", "have")));
    let mut what: Vec<String> = [gone, come].into_iter().flatten().collect();
    if what.is_empty() {
        what.push("the same members".to_string());
    }
    eprintln!("view {view}: {}; {}", what.join(", "), list(members));
}

/// Reports in one line that a member can't continue to the next view, or that it can again.
pub(crate) fn tell_blocked(view: ViewId, is_blocked: bool, json: bool) {
    match (json, is_blocked) {
        (true, _) => lines::tell(json!({"event": "blocked", "view": view.0, "blocked": is_blocked})),
        (false, true) => eprintln!(
            "view {view}: it can't end: too few members are here to agree on the next; waits until one is back, or has ended"
        ),
        (false, false) => eprintln!("view {view}: it goes on"),
    }
}

/// Reports that another group of this name exists.
pub(crate) fn tell_conflict(mine: Incarnation, theirs: Incarnation, json: bool) {
    match json {
        true => eprintln!("{}", json!({"event": "conflict", "mine": mine.to_string(), "theirs": theirs.to_string()})),
        false => eprintln!(
            "there are two groups of this name, {mine}, which this member is in, and {theirs}: end the members of one, and start them again"
        ),
    }
}

/// Formats ids as "member 2", or "members 1, 3".
pub(crate) fn list(ids: &[MemberId]) -> String {
    format!("member{} {}", if ids.len() == 1 { "" } else { "s" }, shortened(ids))
}

/// The most members that a line lists; it counts the others.
const LISTED_MAX: usize = 8;

/// Formats a list as "1, 2, 3", and what is too long as "1, 2, 3, 4, 5, 6, 7, 8 and 92 more".
pub(crate) fn shortened<T: ToString>(list: &[T]) -> String {
    let shown: Vec<String> = list.iter().take(LISTED_MAX).map(ToString::to_string).collect();
    match list.len().saturating_sub(LISTED_MAX) {
        0 => shown.join(", "),
        more => format!("{} and {more} more", shown.join(", ")),
    }
}

pub(crate) fn numbers(ids: &[MemberId]) -> Vec<u64> {
    ids.iter().map(|id| id.0).collect()
}

/// Reports that a member begins to lag, or no longer does. In lines for people, this member reports
/// its own output instead.
pub(crate) fn tell_lag(lag: &Lag, json: bool) {
    let Lag { subgroup, member, is_me, behind, lasted, is_over, .. } = lag;
    let seconds = lasted.as_secs_f64();
    match (json, is_over) {
        (true, _) => lines::tell(json!({
            "event": "lag", "subgroup": subgroup, "member": member.0, "me": is_me, "behind": behind,
            "seconds": seconds, "over": is_over,
        })),
        (false, _) if *is_me => {}
        (false, false) => eprintln!(
            "member {member} lags in subgroup {subgroup}: {behind} sequence numbers behind, for {seconds:.1} s; when the rings are full, all senders wait for it"
        ),
        (false, true) => eprintln!("member {member} lags no longer in subgroup {subgroup}, after {seconds:.1} s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_lists_are_shortened() {
        let ids: Vec<MemberId> = (1..=100).map(MemberId).collect();
        assert_eq!(list(&ids[..1]), "member 1");
        assert_eq!(list(&ids[..8]), "members 1, 2, 3, 4, 5, 6, 7, 8");
        assert_eq!(list(&ids), "members 1, 2, 3, 4, 5, 6, 7, 8 and 92 more");
    }
}
