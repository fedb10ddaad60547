//! The bytes of each format. If a test fails here, members of two builds do not understand each
//! other: restore the format, or give it another number.
use serde::{Deserialize, Serialize};
use spindle::MemberId;
use spindle_object::{
    CallId, CommandSpec, Context, ExecuteError, Machine, Message, SessionId, Settings, StateMachine, fingerprint,
};

const SESSION: SessionId = SessionId { member: 3, nonce: 0x1234 };
const ID: CallId = CallId { session: SESSION, number: 300 };

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn messages_have_these_bytes() {
    let messages = [
        (Message::Open { session: SESSION, time_us: 1_000_000 }, "53504f01".to_owned() + "00" + "03b424" + "c0843d"),
        (
            Message::Call { id: ID, time_us: 1, command: 0x0102_0304, since: 2, arguments: b"ab" },
            "53504f01".to_owned() + "01" + "03b424ac02" + "01" + "84868808" + "02" + "026162",
        ),
        (Message::Ask { id: ID, nonce: 5 }, "53504f01".to_owned() + "02" + "03b424ac02" + "05"),
        (Message::Tick { nonce: 128 }, "53504f01".to_owned() + "03" + "8001"),
        (Message::Announce { version: 2, fingerprint: 127 }, "53504f01".to_owned() + "04" + "02" + "7f"),
        (Message::Raise { version: 2, fingerprint: 127 }, "53504f01".to_owned() + "05" + "02" + "7f"),
        (Message::Digest { commands: 1, digest: 255 }, "53504f01".to_owned() + "06" + "01" + "ff01"),
        (Message::Stored, "53504f01".to_owned() + "07"),
    ];
    for (message, bytes) in messages {
        assert_eq!(hex(&message.encode()), bytes, "{message:?}");
        assert_eq!(Message::decode(&message.encode()), Some(message));
    }
}

#[test]
fn other_bytes_are_no_message() {
    let tick = Message::Tick { nonce: 1 }.encode();
    for bytes in [&b""[..], b"SPO", b"SPO\x02\x03\x01", &tick[..4], &[&tick[..], &[0]].concat(), b"SPO\x01\x08\x01"] {
        assert_eq!(Message::decode(bytes), None, "{bytes:?}");
    }
}

#[derive(Serialize, Deserialize)]
struct Pair(u8, String);

impl StateMachine for Pair {
    const COMMANDS: &'static [CommandSpec] =
        &[CommandSpec { id: 1, name: "set", since: 1, signature: "(String) -> u8" }];
    const STATE: u32 = 4;
    const VERSION: u32 = 1;

    fn execute(&mut self, _: u32, arguments: &[u8], _: &mut Context) -> Result<Vec<u8>, ExecuteError> {
        self.1 = String::from_utf8_lossy(arguments).into_owned();
        Ok(vec![self.0])
    }
}

#[test]
fn a_snapshot_has_these_bytes() {
    let mut machine = Machine::new(Pair(9, "x".to_owned()), Settings::default());
    let call = Message::Call { id: ID, time_us: 5, command: 1, since: 1, arguments: b"hi" };
    let messages = [
        Message::Announce { version: 1, fingerprint: fingerprint::<Pair>(&Settings::default(), 1) },
        Message::Open { session: SESSION, time_us: 4 },
        call,
    ];
    for message in messages {
        machine.apply(MemberId(3), &message.encode()).unwrap();
    }
    let snapshot = machine.snapshot();
    assert_eq!(hex(&snapshot), include_str!("snapshot.hex").split_whitespace().collect::<String>());
    let restored = Machine::<Pair>::restore(&snapshot, Settings::default()).unwrap();
    assert_eq!((restored.object().1.as_str(), restored.digest()), ("hi", machine.digest()));
}

#[test]
fn a_fingerprint_has_this_value() {
    assert_eq!(format!("{:016x}", fingerprint::<Pair>(&Settings::default(), 1)), "e0ac863d8f0286e6");
}
