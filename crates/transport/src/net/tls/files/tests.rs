//! Tests of files that change while they are in use.
use super::super::identity::Identity;
use super::*;
use crate::stream::Certificate;
use crate::testing::Authority;
use std::fs;

fn is_named(identity: &Identity, name: &str) -> bool {
    Certificate(identity.files().lock().loaded.mine.cert[0][..].into()).has_name(name)
}

/// Returns the warnings of a look at the files, this long after they were loaded.
fn warnings(identity: &Identity, start: Instant, after: Duration) -> Vec<String> {
    let mut state = identity.files().lock();
    identity.files().look(&mut state, start + after, UnixTime::now());
    state.warnings.drain(..).map(|warning| warning.to_string()).collect()
}

#[test]
fn files_that_change_are_read_again_and_the_old_stay_if_they_are_of_no_use() {
    let authority = Authority::new();
    let named = |name: &str| {
        let san = rcgen::SanType::DnsName(name.try_into().unwrap());
        authority.sign("member", |params| params.subject_alt_names = vec![san])
    };
    let identity = authority.load(&named("first"));
    let (clone, start, second) = (identity.clone(), Instant::now(), Duration::from_secs(1));
    assert!(warnings(&identity, start, second).is_empty() && is_named(&identity, "first"));
    let (cert, key) = named("second");
    assert!(
        warnings(&identity, start, second * 3 / 2).is_empty() && is_named(&identity, "first"),
        "at most once a second"
    );
    assert!(warnings(&identity, start, 2 * second).is_empty() && is_named(&clone, "second"));
    // The key is replaced later, and there is no warning meanwhile.
    let new = fs::read(&key).unwrap();
    named("third");
    let other = fs::read(&key).unwrap();
    fs::write(&key, new).unwrap();
    assert!(warnings(&identity, start, 4 * second).is_empty() && is_named(&identity, "second"));
    fs::write(&key, other).unwrap();
    assert!(warnings(&identity, start, 10 * second).is_empty() && is_named(&identity, "third"));
    fs::remove_file(&cert).unwrap();
    assert!(warnings(&identity, start, 12 * second).is_empty());
    let told = warnings(&identity, start, 17 * second);
    assert!(matches!(&told[..], [one] if one.contains("stays in use: can't read the certificate in ")), "{told:?}");
    assert!(warnings(&identity, start, 20 * second).is_empty() && is_named(&identity, "third"), "told once");
    named("fourth");
    assert!(warnings(&identity, start, 22 * second).is_empty() && is_named(&identity, "fourth"));
}

#[test]
fn an_expiry_within_a_week_is_warned_of_once_a_day() {
    let authority = Authority::new();
    let files = authority.sign("short", |params| params.not_after = rcgen::date_time_ymd(2030, 1, 8));
    let identity = authority.load_in(2029, &files);
    let (start, mut state, day) = (Instant::now(), identity.files().lock(), Duration::from_secs(24 * 3600));
    let new_year = Duration::from_secs(1_893_456_000);
    let mut told = |at: Instant, time: Duration| {
        identity.files().look(&mut state, at, UnixTime::since_unix_epoch(time));
        state.warnings.drain(..).map(|warning| warning.to_string()).collect::<Vec<_>>()
    };
    assert!(told(start, new_year - day).is_empty());
    let soon = told(start + day, new_year + day);
    assert!(matches!(&soon[..], [one] if one.contains("expires at 2030-01-08 00:00:00 UTC")), "{soon:?}");
    assert!(told(start + day + day / 2, new_year + day).is_empty());
    assert_eq!(told(start + 2 * day, new_year + 2 * day).len(), 1);
}
