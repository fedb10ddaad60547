use super::*;
use crate::ids::Position;
use crate::wire::records::RecordBound;
use alloc::string::String;

fn wanted(count: u64) -> Vec<Wanted> {
    let wanted = |number| Wanted { subgroup: SubgroupId(3), sender: Rank(number as u32), number: number << 40 };
    (0..count).map(wanted).collect()
}

fn settings(keys: &[&str]) -> SharedSettings {
    SharedSettings::new(keys.iter().map(|key| (key.to_string(), "100".to_string())))
}

/// The longest settings that travel.
fn long_settings() -> SharedSettings {
    let name = "n".repeat(crate::limits::SETTINGS_BYTES_MAX - " = 100\n".len());
    let settings = settings(&[&name]);
    assert_eq!(settings.text().len(), crate::limits::SETTINGS_BYTES_MAX);
    settings
}

fn position(sequence: u64) -> Position {
    Position { epoch: ViewId(8), sequence }
}

fn want_records(after: Option<Position>, bound: RecordBound, may_skip: bool) -> ControlMessage {
    let wanted = WantedRecords { subgroup: "ledger".to_string(), after, bound, may_skip };
    ControlMessage::WantRecords { incarnation: u128::MAX - 5, from: MemberId(3), reply: 1 << 40, wanted }
}

fn samples() -> Vec<ControlMessage> {
    let (view, from, incarnation) = (ViewId(7), MemberId(3), u128::MAX - 5);
    let birth = Birth { namespace: 1 << 32, started: 99 };
    let present = |count: u64| (0..count).map(|i| (MemberId(i << 40), i as u32)).collect();
    vec![
        ControlMessage::RowDescriptors {
            incarnation,
            view,
            from,
            pid: 4242,
            birth,
            at: 1 << 40,
            bytes: 4160,
            event: false,
            address: None,
            rack: None,
        },
        ControlMessage::RowDescriptors {
            incarnation,
            view,
            from,
            pid: 1,
            birth,
            at: 0,
            bytes: u64::MAX,
            event: true,
            address: Some("10.0.0.1:7411".parse().unwrap()),
            rack: Some("r".repeat(64).parse().unwrap()),
        },
        ControlMessage::Ask {
            from,
            pid: 1,
            birth,
            nonce: 0x0a0b_0c0d,
            config: 0xfeed,
            members: 2,
            observer: true,
            follows: ViewId(0),
            address: None,
            rack: None,
            seeds: None,
            clock: 0,
        },
        ControlMessage::Ask {
            from,
            pid: u32::MAX,
            birth: Birth::default(),
            nonce: 0x0a0b_0c0d,
            config: u64::MAX,
            members: 0,
            observer: false,
            follows: ViewId(0x0102_0304_0506_0708),
            address: Some("[fd00::7]:7411".parse().unwrap()),
            rack: Some("row-1".parse().unwrap()),
            seeds: Some(NonZeroU64::MAX),
            clock: u64::MAX - 4,
        },
        ControlMessage::Refused { why: Refusal::Version(9) },
        ControlMessage::Refused { why: Refusal::Config { settings: settings(&["window"]), incarnation } },
        ControlMessage::Refused { why: Refusal::Config { settings: long_settings(), incarnation: 0 } },
        ControlMessage::Refused { why: Refusal::Founders(3) },
        ControlMessage::Refused { why: Refusal::Full(64) },
        ControlMessage::Refused { why: Refusal::NoState(MemberId(7)) },
        ControlMessage::Refused { why: Refusal::InUse(MemberId(u64::MAX)) },
        ControlMessage::Refused {
            why: Refusal::Clock(ClockSkew { member: from, theirs: 1, ours: u64::MAX, max_ns: 7, is_running: true }),
        },
        ControlMessage::Wait { members: 2, leader: from, blocked: true, present: present(0) },
        ControlMessage::Wait { members: 1024, leader: from, blocked: false, present: present(MEMBERS_MAX as u64) },
        ControlMessage::View { incarnation, view, from, bytes: 1 << 40 },
        ControlMessage::Bootstrap { from, pid: 7, birth, nonce: 9, config: 3, clock: 0, words: vec![] },
        ControlMessage::Bootstrap {
            from,
            pid: u32::MAX,
            birth,
            nonce: u32::MAX,
            config: 0,
            clock: 5 << 60,
            words: vec![u64::MAX - 3; BOOTSTRAP_WORDS_MAX],
        },
        ControlMessage::Request { from, reply: 99, what: Request::Status },
        ControlMessage::Request { from, reply: 99, what: Request::Leave },
        ControlMessage::Request { from, reply: 99, what: Request::Evict(MemberId(5)) },
        ControlMessage::Request { from, reply: 99, what: Request::Recover(vec![MemberId(5), MemberId(u64::MAX)]) },
        ControlMessage::Answer { reply: 99, bytes: 12 },
        ControlMessage::Request { from, reply: 9, what: Request::State },
        ControlMessage::Request { from, reply: 0, what: Request::Forget },
        ControlMessage::Request { from, reply: 0, what: Request::View },
        ControlMessage::Request { from, reply: 0, what: Request::Stopped { incarnation, view, nonce: 7 } },
        ControlMessage::Request { from, reply: 0, what: Request::Patience { incarnation, view } },
        ControlMessage::Request { from, reply: 3, what: Request::RaiseClocks(u64::MAX - 9) },
        ControlMessage::State { view, from },
        ControlMessage::Bulk { incarnation, view, from, number: u64::MAX - 1 },
        ControlMessage::Want { incarnation, view, from, reply: 7, objects: vec![] },
        ControlMessage::Want { incarnation, view, from, reply: u64::MAX, objects: wanted(WANTED_MAX as u64) },
        ControlMessage::Objects { from, reply: 1 << 50 },
        ControlMessage::Port { incarnation, view, from, address: PortAddress::new(&[7; 68]).unwrap() },
        ControlMessage::Port { incarnation, view, from, address: PortAddress::new(&[9; 5]).unwrap() },
        want_records(None, RecordBound::Before(view), true),
        want_records(Some(position(1 << 33)), RecordBound::Through(position(u64::MAX)), false),
        ControlMessage::Records { from, reply: 1 << 50 },
        ControlMessage::NoRecords { from, reply: 4, why: NoRecords::NotMember },
        ControlMessage::NoRecords { from, reply: 4, why: NoRecords::CatchingUp },
        ControlMessage::NoRecords { from, reply: 4, why: NoRecords::Busy },
        ControlMessage::NoRecords { from, reply: 4, why: NoRecords::Pruned { oldest: position(9) } },
        ControlMessage::NoRecords { from, reply: 4, why: NoRecords::Lacks { last: None } },
        ControlMessage::Query { incarnation, from, reply: u64::MAX, bytes: 1 << 20 },
        ControlMessage::QueryAnswer { from, reply: 5, bytes: 0 },
        ControlMessage::NoAnswer { from, reply: 5, why: NoAnswer::Unanswered },
        ControlMessage::NoAnswer { from, reply: 5, why: NoAnswer::Busy },
        ControlMessage::NoAnswer { from, reply: 5, why: NoAnswer::TooLong { bytes: 1 << 40 } },
    ]
}

/// Returns a number for each kind of control message, refusal and request. A new kind does not
/// compile until it has a number, and the test below fails until it has a sample.
fn kind(message: &ControlMessage) -> usize {
    match message {
        ControlMessage::RowDescriptors { .. } => 0,
        ControlMessage::Ask { .. } => 1,
        ControlMessage::Wait { .. } => 2,
        ControlMessage::View { .. } => 3,
        ControlMessage::Answer { .. } => 4,
        ControlMessage::State { .. } => 5,
        ControlMessage::Port { .. } => 6,
        ControlMessage::Bulk { .. } => 7,
        ControlMessage::Want { .. } => 8,
        ControlMessage::Objects { .. } => 9,
        ControlMessage::Bootstrap { .. } => 10,
        ControlMessage::Refused { why } => match why {
            Refusal::Version(_) => 11,
            Refusal::Config { .. } => 12,
            Refusal::Founders(_) => 13,
            Refusal::Full(_) => 14,
            Refusal::InUse(_) => 15,
            Refusal::NoState(_) => 16,
            Refusal::Clock(_) => 33,
        },
        ControlMessage::Request { what, .. } => match what {
            Request::Status => 17,
            Request::Leave => 18,
            Request::Evict(_) => 19,
            Request::Recover(_) => 20,
            Request::State => 21,
            Request::Forget => 22,
            Request::View => 23,
            Request::Stopped { .. } => 24,
            Request::Patience { .. } => 25,
            Request::RaiseClocks(_) => 32,
        },
        ControlMessage::WantRecords { .. } => 26,
        ControlMessage::Records { .. } => 27,
        ControlMessage::NoRecords { .. } => 28,
        ControlMessage::Query { .. } => 29,
        ControlMessage::QueryAnswer { .. } => 30,
        ControlMessage::NoAnswer { .. } => 31,
    }
}

/// The samples that are short enough to be mutated in many ways.
fn short_samples() -> Vec<ControlMessage> {
    samples().into_iter().filter(|message| message.encode().len() < 200).collect()
}

#[test]
fn every_kind_of_message_has_a_sample_that_is_mutated() {
    let kinds: alloc::collections::BTreeSet<usize> = short_samples().iter().map(kind).collect();
    assert!(kinds.iter().copied().eq(0..=33), "{kinds:?}");
}

#[test]
fn every_message_survives_the_trip() {
    for message in samples() {
        let bytes = message.encode();
        assert!(bytes.len() <= CONTROL_MESSAGE_BYTES_MAX);
        assert_eq!(ControlMessage::decode(&bytes), Ok(message));
    }
}

#[test]
fn every_cut_and_every_addition_is_noticed() {
    for message in samples() {
        let mut bytes = message.encode();
        for cut in 0..bytes.len() {
            let expected = if cut < 8 { WireError::Magic } else { WireError::Short };
            assert_eq!(ControlMessage::decode(&bytes[..cut]), Err(expected), "{message:?} cut to {cut}");
        }
        bytes.push(0);
        assert_eq!(ControlMessage::decode(&bytes), Err(WireError::Long { extra: 1 }));
    }
}

#[test]
fn no_more_are_told_than_a_message_takes() {
    let present: Vec<_> = (0..MEMBERS_MAX as u64 + 5).map(|i| (MemberId(i), 1)).collect();
    let sent = ControlMessage::Wait { members: 1, leader: MemberId(0), blocked: false, present: present.clone() };
    let received = ControlMessage::Wait {
        members: 1,
        leader: MemberId(0),
        blocked: false,
        present: present[..MEMBERS_MAX].to_vec(),
    };
    assert_eq!(ControlMessage::decode(&sent.encode()), Ok(received));
    let want = |objects| ControlMessage::Want { incarnation: 1, view: ViewId(2), from: MemberId(3), reply: 4, objects };
    let most = wanted(WANTED_MAX as u64);
    let mut bytes = want(wanted(WANTED_MAX as u64 + 1)).encode();
    assert_eq!(ControlMessage::decode(&bytes), Ok(want(most)));
    bytes[56] += 1;
    assert_eq!(ControlMessage::decode(&bytes), Err(WireError::Value { field: "number of objects" }));
}

#[test]
fn wrong_fields_are_named() {
    let (from, address, rack, seeds) = (MemberId(1), None, None, None);
    let birth = Birth::default();
    let ask = ControlMessage::Ask {
        from,
        pid: 1,
        birth,
        nonce: 2,
        config: 1,
        members: 1,
        observer: true,
        follows: ViewId(0),
        address,
        rack,
        seeds,
        clock: 0,
    };
    let mut bytes = ask.encode();
    bytes[60] = 2;
    assert_eq!(ControlMessage::decode(&bytes), Err(WireError::Value { field: "request to observe" }), "{bytes:?}");
    bytes[12] = 77;
    assert_eq!(ControlMessage::decode(&bytes), Err(WireError::Kind { got: 77 }));
}

#[test]
fn other_versions_can_ask_and_refuse_and_nothing_else() {
    for message in samples() {
        assert_eq!(stranger(&message.encode()), None);
        let mut bytes = message.encode_as(VERSION + 1);
        assert_eq!(ControlMessage::decode(&bytes), Err(WireError::Version { got: VERSION + 1 }));
        // The content after the header does not matter.
        bytes.truncate(16);
        let expected = match message {
            ControlMessage::Ask { .. } | ControlMessage::Request { .. } => Stranger::Asks,
            ControlMessage::Refused { .. } => Stranger::Refuses { version: VERSION + 1 },
            _ => Stranger::Else,
        };
        assert_eq!(stranger(&bytes), Some(expected));
    }
    assert_eq!(stranger(b"spndmail"), None);
    assert_eq!(stranger(b"GET / HTTP/1.1\r\n"), None);
}

/// Checks that decoding returns an error, or a control message that equals its own decoded
/// encoding.
#[test]
#[expect(clippy::disallowed_methods, reason = "the harness of cargo test passes no arguments on")]
fn garbage_messages_never_panic() {
    let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
    std::println!("replay: SEED={seed} cargo test -p spindle-core garbage_letters_never_panic");
    let mut state = seed | 1;
    let mut random = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let valid: Vec<_> = short_samples().iter().map(ControlMessage::encode).collect();
    let mut kinds = alloc::collections::BTreeSet::new();
    let mut understood = 0_u32;
    for i in 0..100_000_u32 {
        let mut bytes = if i % 4 == 0 {
            let length = random() % 200;
            (0..length).map(|_| random() as u8).collect()
        } else {
            valid[random() as usize % valid.len()].clone()
        };
        for _ in 0..random() % 4 {
            let at = random() as usize % bytes.len().max(1);
            match bytes.get_mut(at) {
                Some(byte) => *byte ^= 1 << (random() % 8),
                None => bytes.push(random() as u8),
            }
        }
        stranger(&bytes);
        if let Ok(message) = ControlMessage::decode(&bytes) {
            // An address can be written in several ways.
            kinds.insert(kind(&message));
            assert_eq!(ControlMessage::decode(&message.encode()), Ok(message));
            understood += 1;
        }
    }
    assert_eq!(kinds.len(), 34, "{kinds:?}");
    // Most inputs are a valid message with up to three flipped bits.
    assert!((10_000..90_000).contains(&understood), "{understood}");
}

/// Each line is the length of a sample's bytes and their FNV-1a digest: peers of this version send
/// nothing else.
#[test]
fn bytes_are_those_of_this_version() {
    let digest = |bytes: &[u8]| {
        let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
    };
    let line = |bytes: Vec<u8>| std::format!("{} {:016x}\n", bytes.len(), digest(&bytes));
    let found: String = samples().iter().map(|message| line(message.encode())).collect();
    assert_eq!(found, include_str!("../../../../tests/golden/control_messages.txt"));
}
