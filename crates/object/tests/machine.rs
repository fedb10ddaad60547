//! The machine without a group: the effect of each message, and that machines stay equal.
use serde::{Deserialize, Serialize};
use spindle::MemberId;
use spindle_object::{
    Answer, Applied, Call, CallId, CommandSpec, Context, ExecuteError, Machine, Message, Refusal, RestoreError,
    SessionId, Settings, StateMachine, Stopped, decode_arguments, encode_reply, fingerprint,
};
use std::time::Duration;

const ADD: CommandSpec = CommandSpec { id: 1, name: "add", since: 1, signature: "(i64) -> i64" };
const FAIL: CommandSpec = CommandSpec { id: 2, name: "fail", since: 1, signature: "() -> ()" };
const LONG: CommandSpec = CommandSpec { id: 3, name: "long", since: 1, signature: "(u32) -> Vec<u8>" };
const ROLL: CommandSpec = CommandSpec { id: 4, name: "roll", since: 2, signature: "() -> (u64, u64)" };

const ONE: MemberId = MemberId(1);
const TWO: MemberId = MemberId(2);

/// A sum, written without the attribute. `VERSION` stands for builds of different age.
#[derive(Serialize, Deserialize, Clone, Default, PartialEq, Debug)]
struct Sum<const VERSION: u32>(i64);

impl<const VERSION: u32> StateMachine for Sum<VERSION> {
    const COMMANDS: &'static [CommandSpec] = if VERSION == 1 { &[ADD, FAIL, LONG] } else { &[ADD, FAIL, LONG, ROLL] };
    const STATE: u32 = 0;
    const VERSION: u32 = VERSION;

    fn execute(&mut self, command: u32, arguments: &[u8], context: &mut Context) -> Result<Vec<u8>, ExecuteError> {
        match command {
            1 => {
                let (n,): (i64,) = decode_arguments(arguments)?;
                self.0 = self.0.wrapping_add(n);
                encode_reply(&self.0)
            }
            2 => panic!("on purpose"),
            3 => {
                let (len,): (u32,) = decode_arguments(arguments)?;
                encode_reply(&vec![7_u8; len as usize])
            }
            4 if VERSION > 1 => {
                self.0 = context.random() as i64;
                encode_reply(&(self.0, context.now()))
            }
            id => Err(ExecuteError::UnknownCommand { id }),
        }
    }
}

const fn session(nonce: u64) -> SessionId {
    SessionId { member: 1, nonce }
}

fn id(number: u64) -> CallId {
    CallId { session: session(9), number }
}

fn open(nonce: u64, time_us: u64) -> Vec<u8> {
    Message::Open { session: session(nonce), time_us }.encode()
}

fn call(id: CallId, time_us: u64, command: CommandSpec, arguments: &impl Serialize) -> Vec<u8> {
    let arguments = postcard::to_stdvec(arguments).unwrap();
    Message::Call { id, time_us, command: command.id, since: command.since, arguments: &arguments }.encode()
}

fn ask(id: CallId) -> Vec<u8> {
    Message::Ask { id, nonce: 5 }.encode()
}

/// A machine with an open session.
fn machine(settings: &Settings) -> Machine<Sum<2>> {
    let mut machine = Machine::new(Sum(0), settings.clone());
    machine.apply(ONE, &open(9, 1)).unwrap();
    machine
}

fn answer<T: StateMachine>(machine: &mut Machine<T>, message: &[u8]) -> Answer {
    match machine.apply(ONE, message).unwrap() {
        Applied::Called { answer, .. } | Applied::Asked { answer, .. } => answer,
        other => panic!("{other:?}"),
    }
}

fn done(value: &impl Serialize) -> Answer {
    Answer::Done(postcard::to_stdvec(value).unwrap())
}

#[test]
fn a_call_is_executed_once_and_its_reply_is_repeated() {
    let mut machine = machine(&Settings::default());
    let add = call(id(1), 1, ADD, &(5_i64,));
    assert_eq!(answer(&mut machine, &add), done(&5_i64));
    assert_eq!(answer(&mut machine, &call(id(2), 1, ADD, &(1_i64,))), done(&6_i64));
    assert_eq!(answer(&mut machine, &add), done(&5_i64), "the first reply");
    assert_eq!(answer(&mut machine, &ask(id(1))), done(&5_i64));
    assert_eq!((machine.object().0, machine.commands()), (6, 2));
}

#[test]
fn asking_for_a_call_that_has_not_come_cancels_it() {
    let mut machine = machine(&Settings::default());
    let cancelled = Answer::Refused(Refusal::Cancelled);
    assert_eq!(answer(&mut machine, &ask(id(3))), cancelled);
    assert_eq!(answer(&mut machine, &call(id(3), 1, ADD, &(5_i64,))), cancelled);
    assert_eq!(machine.object().0, 0);
    assert_eq!(answer(&mut machine, &ask(id(1_000_000))), Answer::Refused(Refusal::Ahead));
    assert_eq!(answer(&mut machine, &ask(id(u64::MAX))), Answer::Refused(Refusal::Ahead));
    assert_eq!(answer(&mut machine, &call(id(4), 1, ADD, &(5_i64,))), done(&5_i64));
}

#[test]
fn a_session_ends_with_the_time_of_the_log() {
    let settings = Settings { session_idle: Duration::from_micros(100), ..Settings::default() };
    let mut machine = machine(&settings);
    assert_eq!(answer(&mut machine, &call(id(1), 101, ADD, &(5_i64,))), done(&5_i64), "not later than its end");
    machine.apply(ONE, &open(10, 150)).unwrap();
    machine.apply(ONE, &open(10, 60)).unwrap();
    assert_eq!(machine.time(), Duration::from_micros(150), "it never falls");
    assert_eq!(machine.sessions(), 2);
    machine.apply(TWO, &open(11, 202)).unwrap();
    for message in [call(id(1), 1, ADD, &(5_i64,)), ask(id(1))] {
        assert_eq!(answer(&mut machine, &message), Answer::Refused(Refusal::NoSession));
    }
    assert_eq!((machine.object().0, machine.sessions()), (5, 2));
}

#[test]
fn sessions_and_outcomes_are_bounded() {
    let settings = Settings {
        sessions_max: 2,
        calls_kept: 4,
        reply_bytes_max: 100,
        replies_bytes_max: 150,
        ..Settings::default()
    };
    let mut machine = machine(&settings);
    for number in 0..6 {
        answer(&mut machine, &call(id(number), 1, ADD, &(1_i64,)));
    }
    assert_eq!(answer(&mut machine, &call(id(1), 1, ADD, &(1_i64,))), Answer::Refused(Refusal::Forgotten));
    assert_eq!(answer(&mut machine, &ask(id(1))), Answer::Refused(Refusal::Forgotten));
    assert_eq!(answer(&mut machine, &ask(id(2))), done(&3_i64));
    assert_eq!(machine.object().0, 6);

    let long = |number, len: u32| call(id(number), 1, LONG, &(len,));
    assert!(matches!(answer(&mut machine, &long(6, 200)), Answer::Done(reply) if reply.len() == 202), "the first time");
    assert_eq!(answer(&mut machine, &ask(id(6))), Answer::ReplyNotKept { len: 202 });
    answer(&mut machine, &long(7, 90));
    answer(&mut machine, &long(8, 90));
    assert!(matches!(answer(&mut machine, &ask(id(7))), Answer::Done(_)));
    assert_eq!(answer(&mut machine, &ask(id(8))), Answer::ReplyNotKept { len: 91 }, "both are too many bytes");
    answer(&mut machine, &call(id(11), 1, ADD, &(0_i64,)));
    answer(&mut machine, &long(12, 90));
    assert!(matches!(answer(&mut machine, &ask(id(12))), Answer::Done(_)), "the first is forgotten, which makes room");

    machine.apply(ONE, &open(10, 1)).unwrap();
    answer(&mut machine, &ask(id(12)));
    machine.apply(ONE, &open(11, 1)).unwrap();
    assert_eq!(machine.sessions(), 2);
    assert!(matches!(answer(&mut machine, &ask(id(12))), Answer::Done(_)), "it was used after the other");
}

#[test]
fn a_command_that_is_not_known_or_not_readable_is_refused_for_good() {
    let mut machine = machine(&Settings::default());
    let unknown = CommandSpec { id: 77, ..ADD };
    let refused = Answer::Refused(Refusal::UnknownCommand { command: 77 });
    assert_eq!(answer(&mut machine, &call(id(1), 1, unknown, &())), refused);
    assert_eq!(answer(&mut machine, &call(id(1), 1, ADD, &(1_i64,))), refused, "the id is used");
    assert_eq!(answer(&mut machine, &call(id(2), 1, ADD, &())), Answer::Refused(Refusal::Arguments));
    assert_eq!(answer(&mut machine, &call(id(3), 1, ADD, &(1_i64, 1_i64))), Answer::Refused(Refusal::Arguments));
    assert_eq!((machine.object().0, machine.commands()), (0, 0));
}

#[test]
fn a_panic_stops_the_machine_and_names_the_command() {
    let mut machine = machine(&Settings::default());
    let stopped = machine.apply(ONE, &call(id(1), 1, FAIL, &())).unwrap_err();
    assert_eq!(stopped, Stopped::Panicked { command: "fail", id: id(1), message: "on purpose".to_owned() });
    assert!(stopped.to_string().starts_with("the command fail (call 1-0000000000000009-1) panicked: on purpose"));
    assert_eq!(machine.apply(ONE, &open(1, 1)).unwrap_err(), stopped);
}

#[test]
fn a_command_is_enabled_once_every_member_has_its_version() {
    let settings = Settings::default();
    let mut new = machine(&settings);
    let mut old: Machine<Sum<1>> = Machine::new(Sum(0), settings);
    old.apply(ONE, &open(9, 1)).unwrap();
    let roll = |number| call(id(number), 7, ROLL, &());
    let refused = Answer::Refused(Refusal::NotEnabled { needs: 2, enabled: 1 });
    assert_eq!(answer(&mut new, &roll(1)), refused);
    assert_eq!(answer(&mut old, &roll(1)), refused, "also by members that do not know the command");

    let announcements = [old.announcement().encode(), new.announcement().encode()];
    for (sender, message) in [ONE, TWO].into_iter().zip(&announcements) {
        assert_eq!(new.raise([ONE, TWO]), None);
        new.apply(sender, message).unwrap();
        old.apply(sender, message).unwrap();
    }
    assert_eq!((new.raise([ONE, TWO]), old.raise([ONE, TWO])), (None, None), "one of them is old");
    assert_eq!(new.digest(), old.digest());
    let raise = new.raise([TWO]).unwrap().encode();
    assert_eq!(new.apply(TWO, &raise).unwrap(), Applied::Raised { version: 2 });
    assert_eq!(old.apply(TWO, &raise).unwrap_err(), Stopped::Version { mine: 1, group: 2 });
    assert!(matches!(answer(&mut new, &roll(2)), Answer::Done(_)));
    assert_eq!(answer(&mut new, &roll(1)), refused, "the outcome stays");
    assert_eq!(new.raise([TWO]), None);

    let snapshot = new.snapshot();
    let restored = Machine::<Sum<1>>::restore(&snapshot, Settings::default());
    assert_eq!(restored.unwrap_err(), RestoreError::Version { mine: 1, group: 2 });
}

#[test]
fn members_with_other_settings_or_commands_are_stopped() {
    let (settings, other) = (Settings::default(), Settings { calls_kept: 7, ..Settings::default() });
    let (mut first, mut second) = (machine(&settings), machine(&other));
    let announcement = first.announcement().encode();
    first.apply(ONE, &announcement).unwrap();
    let (mine, group) = (fingerprint::<Sum<2>>(&other, 1), fingerprint::<Sum<2>>(&settings, 1));
    assert_eq!(second.apply(ONE, &announcement).unwrap_err(), Stopped::Fingerprint { version: 1, mine, group });
    let restored = Machine::<Sum<2>>::restore(&first.snapshot(), other);
    assert_eq!(restored.unwrap_err(), RestoreError::Fingerprint { version: 1, mine, group });
    // Before the first announcement, the settings of the snapshot count.
    let restored =
        Machine::<Sum<2>>::restore(&machine(&Settings { calls_kept: 8, ..settings.clone() }).snapshot(), settings);
    assert!(matches!(restored.unwrap_err(), RestoreError::Fingerprint { .. }));
}

#[test]
fn digests_are_due_after_every_n_commands() {
    let mut machine = machine(&Settings { digest_every: 3, ..Settings::default() });
    for number in 1..10 {
        let applied = machine.apply(ONE, &call(id(number), 1, ADD, &(1_i64,))).unwrap();
        let Applied::Called { digest, .. } = applied else { panic!() };
        assert_eq!(digest.map(|digest| digest.commands), number.is_multiple_of(3).then_some(number));
        assert!(digest.is_none_or(|digest| digest.digest == machine.digest()));
    }
}

#[test]
fn clock_and_randomness_come_from_the_message() {
    let commands: Call<Sum<2>, (u64, u64)> = Call::new(ROLL, &());
    assert_eq!(commands.command(), &ROLL);
    let mut one = Context::new(ONE, id(1), Duration::from_secs(3), 4);
    let mut other = one.clone();
    let drawn: Vec<_> = (0..3).map(|_| one.random()).collect();
    assert_eq!(drawn, (0..3).map(|_| other.random()).collect::<Vec<_>>());
    assert_ne!(drawn[0], drawn[1]);
    assert_ne!(Context::new(ONE, id(2), Duration::ZERO, 4).random(), drawn[0]);
    assert_eq!((one.sender(), one.id(), one.now(), one.index()), (ONE, id(1), Duration::from_secs(3), 4));
}

/// A generator of the tests.
struct Chance(u64);

impl Chance {
    fn next(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }

    fn message(&mut self) -> Vec<u8> {
        let id = CallId { session: session(self.next(5)), number: self.next(12) };
        let time_us = 1000 + self.next(60);
        match self.next(10) {
            0 => Message::Open { session: id.session, time_us }.encode(),
            1 => Message::Ask { id, nonce: self.next(9) }.encode(),
            2 => Message::Tick { nonce: self.next(9) }.encode(),
            3 => call(id, time_us, LONG, &(self.next(30) as u32,)),
            4 => call(id, time_us, ROLL, &()),
            5 => call(id, time_us, CommandSpec { id: 40 + self.next(9) as u32, ..ADD }, &()),
            _ => call(id, time_us, ADD, &(self.next(1000) as i64,)),
        }
    }

    fn settings(&mut self) -> Settings {
        Settings {
            session_idle: Duration::from_micros(5 + self.next(60)),
            sessions_max: 1 + self.next(5) as u32,
            calls_kept: 1 + self.next(8) as u32,
            reply_bytes_max: self.next(30) as u32,
            replies_bytes_max: self.next(100),
            digest_every: self.next(4),
            ..Settings::default()
        }
    }
}

/// INV-OBJECT and INV-ONCE, for any messages: a machine that is restored at any point stays equal,
/// and no call is executed twice.
#[test]
fn machines_stay_equal_and_execute_no_call_twice() {
    for seed in 0..300 {
        let mut chance = Chance(seed);
        let settings = chance.settings();
        let (mut one, mut other) =
            (Machine::new(Sum::<2>(0), settings.clone()), Machine::new(Sum::<2>(0), settings.clone()));
        let mut first_replies = std::collections::BTreeMap::new();
        for step in 0..200 {
            let message = chance.message();
            if chance.next(20) == 0 {
                other = Machine::restore(&one.snapshot(), settings.clone()).unwrap();
            }
            let (before, object) = (one.commands(), one.object().clone());
            let applied = one.apply(ONE, &message).unwrap();
            assert_eq!(applied, other.apply(ONE, &message).unwrap(), "seed {seed}, step {step}");
            assert_eq!(one.digest(), other.digest(), "seed {seed}, step {step}");
            assert!(one.sessions() <= u64::from(settings.sessions_max), "seed {seed}, step {step}");
            match applied {
                Applied::Called { id, answer: Answer::Done(reply), .. } if one.commands() > before => {
                    // The ids of a session that was replaced may come again in this test only: real
                    // sessions have a random number.
                    first_replies.insert(id, reply);
                }
                Applied::Called { id, answer: Answer::Done(reply), .. } => {
                    assert_eq!(first_replies.get(&id), Some(&reply), "seed {seed}, step {step}");
                    assert_eq!(one.object(), &object, "seed {seed}, step {step}");
                }
                _ => assert_eq!(one.object(), &object, "seed {seed}, step {step}"),
            }
        }
    }
}

/// Bytes that were changed are refused, or are another valid message.
#[test]
fn no_bytes_make_a_machine_panic() {
    let mut chance = Chance(1);
    for seed in 0..200 {
        let settings = chance.settings();
        let mut machine = machine(&settings);
        for _ in 0..50 {
            let mut message = chance.message();
            for _ in 0..chance.next(4) {
                let at = chance.next(message.len() as u64) as usize;
                message[at] ^= 1 << chance.next(8);
            }
            message.truncate(message.len() - chance.next(3) as usize % message.len());
            match machine.apply(ONE, &message) {
                Ok(_) => {}
                // The bytes became the command that panics, or a later version.
                Err(_) => machine = self::machine(&settings),
            }
        }
        let snapshot = machine.snapshot();
        for _ in 0..50 {
            let mut damaged = snapshot.clone();
            let at = chance.next(damaged.len() as u64) as usize;
            damaged[at] ^= 1 << chance.next(8);
            damaged.truncate(damaged.len() - chance.next(2) as usize);
            assert!(Machine::<Sum<2>>::restore(&damaged, settings.clone()).is_err(), "seed {seed}");
        }
    }
}
