//! The start of a connection: the dialling process says who dials whom and for what, and the
//! dialled process answers. Numbers are little endian.
//!
//! Both are a head (magic, version, length) and a body. The head never changes, so processes of two
//! versions can detect that their versions differ. A body is read to its end and not further,
//! because later bytes belong to the connection's purpose. For any bytes, reading ends with a body
//! or a [`HelloError`].
use super::limits::HELLO_BYTES_MAX;
use crate::rendezvous::GroupName;
use crate::stream::{Space, Stream};
use spindle_core::MemberId;
use spindle_core::control::{Card, Purpose, VERSION};
use spindle_core::wire::bytes::{Reader, WireError, Writer};
use std::io::{self, IoSlice};

const HEAD_BYTES: usize = 16;

/// Which of the two it is. The values differ, so that an echo of a hello is no answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Magic {
    Hello,
    Answer,
}

/// The reason why a peer refused a connection. The values are those of the peer that refuses.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Declined {
    /// The refusing peer speaks another version.
    #[error("it speaks version {0}, and this process {ours}; update the older", ours = VERSION)]
    Version(u32),
    /// The refusing peer belongs to another group.
    #[error("it belongs to group {0}; name the group's own addresses")]
    Group(GroupName),
    /// The refusing peer is not the member that was wanted.
    #[error("it is member {0}, and another was wanted")]
    Member(MemberId),
    /// The refusing peer is another process with the same id.
    #[error("it has the id {0}, too; give one of the two another id, or none")]
    IdConflict(MemberId),
    /// The dialling process has dialled its own address.
    #[error("it is this process itself")]
    Myself,
    /// The certificate that was shown is not valid for the id that was stated.
    #[error("the certificate shown to it does not name {name}, as that of id {id} must", name = super::names::name_of(*.0), id = .0)]
    Identity(MemberId),
    /// The refusing peer has too many connections.
    #[error("it has {0} control connections and takes no more; end processes that are not needed")]
    TooMany(u32),
}

/// The first message on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Hello {
    pub(super) group: GroupName,
    pub(super) purpose: Purpose,
    pub(super) card: Card,
    /// A random number for each endpoint, which distinguishes processes that claim the same id.
    pub(super) process: u128,
    pub(super) wanted: Option<MemberId>,
}

/// The second message on a connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum HelloAnswer {
    /// Contains the card of the process that answers, and its process number.
    Welcome(Card, u128),
    Declined(Declined),
}

/// The reason why the start of a connection failed.
#[derive(Debug, thiserror::Error)]
pub(super) enum HelloError {
    #[error("version {0}")]
    Version(u32),
    #[error(transparent)]
    Wire(#[from] WireError),
    #[error("the connection was closed")]
    Ended,
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Hello {
    pub(super) fn encode(&self) -> Vec<u8> {
        self.encode_as(VERSION)
    }

    /// Encodes it as a program of another version might.
    pub(super) fn encode_as(&self, version: u32) -> Vec<u8> {
        framed(Magic::Hello, version, |out| {
            out.text(self.group.as_str());
            self.purpose.put(out);
            self.card.put(out);
            out.u128(self.process);
            out.u32(u32::from(self.wanted.is_some()));
            out.u64(self.wanted.map_or(0, |id| id.0));
        })
    }

    pub(super) fn decode(body: &[u8]) -> Result<Hello, WireError> {
        let mut from = Reader(body);
        let hello = Hello {
            group: group(&mut from)?,
            purpose: Purpose::read(&mut from)?,
            card: Card::read(&mut from)?,
            process: from.u128()?,
            wanted: match (from.u32()?, from.u64()?) {
                (0, 0) => None,
                (1, id) => Some(MemberId(id)),
                _ => return Err(WireError::Value { field: "wanted member" }),
            },
        };
        from.end()?;
        Ok(hello)
    }
}

impl HelloAnswer {
    pub(super) fn encode(&self) -> Vec<u8> {
        framed(Magic::Answer, VERSION, |out| match self {
            HelloAnswer::Welcome(card, process) => {
                out.u32(0);
                card.put(out);
                out.u128(*process);
            }
            HelloAnswer::Declined(why) => put_declined(out, why),
        })
    }

    pub(super) fn decode(body: &[u8]) -> Result<HelloAnswer, WireError> {
        let mut from = Reader(body);
        let answer = match from.u32()? {
            0 => HelloAnswer::Welcome(Card::read(&mut from)?, from.u128()?),
            1 => HelloAnswer::Declined(Declined::Version(from.u32()?)),
            2 => HelloAnswer::Declined(Declined::Group(group(&mut from)?)),
            3 => HelloAnswer::Declined(Declined::Member(MemberId(from.u64()?))),
            4 => HelloAnswer::Declined(Declined::IdConflict(MemberId(from.u64()?))),
            5 => HelloAnswer::Declined(Declined::Myself),
            6 => HelloAnswer::Declined(Declined::TooMany(from.u32()?)),
            7 => HelloAnswer::Declined(Declined::Identity(MemberId(from.u64()?))),
            _ => return Err(WireError::Value { field: "answer" }),
        };
        from.end()?;
        Ok(answer)
    }
}

/// The part of a connection's start that has arrived.
#[derive(Debug)]
pub(super) struct HelloReader {
    magic: Magic,
    bytes: Vec<u8>,
}

impl HelloReader {
    pub(super) fn new(magic: Magic) -> HelloReader {
        HelloReader { magic, bytes: vec![] }
    }

    /// Continues to read, and returns the body when it is complete.
    ///
    /// # Errors
    /// The reason why the bytes are no valid start of a connection.
    pub(super) fn receive(&mut self, stream: &mut dyn Stream) -> Result<Option<&[u8]>, HelloError> {
        loop {
            let wanted = self.wanted()?;
            let have = self.bytes.len();
            if have == wanted {
                return Ok(Some(&self.bytes[HEAD_BYTES..]));
            }
            let mut more = [0; HEAD_BYTES + HELLO_BYTES_MAX];
            match stream.receive(&mut [Space::of(&mut more[..wanted - have])]) {
                Ok(0) => return Err(HelloError::Ended),
                Ok(got) => self.bytes.extend_from_slice(&more[..got]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(None),
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Returns how many bytes it has, as far as that is known.
    fn wanted(&self) -> Result<usize, HelloError> {
        let Some((head, _)) = self.bytes.split_first_chunk::<HEAD_BYTES>() else { return Ok(HEAD_BYTES) };
        let mut from = Reader(head);
        if from.u64()? != self.magic.number() {
            return Err(WireError::Magic.into());
        }
        match from.u32()? {
            VERSION => {}
            other => return Err(HelloError::Version(other)),
        }
        match from.u32()? as usize {
            bytes if bytes <= HELLO_BYTES_MAX => Ok(HEAD_BYTES + bytes),
            bytes => Err(WireError::Long { extra: (bytes - HELLO_BYTES_MAX) as u64 }.into()),
        }
    }
}

/// Bytes to be sent.
#[derive(Debug, Default)]
pub(super) struct HelloWriter {
    bytes: Vec<u8>,
    sent: usize,
}

impl HelloWriter {
    pub(super) fn new(bytes: Vec<u8>) -> HelloWriter {
        HelloWriter { bytes, sent: 0 }
    }

    /// Continues to send; returns whether all bytes have left.
    ///
    /// # Errors
    /// Returns the stream's errors. A full stream is no error.
    pub(super) fn send(&mut self, stream: &mut dyn Stream) -> io::Result<bool> {
        while self.sent < self.bytes.len() || stream.holds_back() {
            match stream.send(&[IoSlice::new(&self.bytes[self.sent..])]) {
                Ok(sent) => self.sent += sent,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(error) => return Err(error),
            }
        }
        Ok(true)
    }
}

impl Magic {
    fn number(self) -> u64 {
        u64::from_le_bytes(*match self {
            Magic::Hello => b"spndhelo",
            Magic::Answer => b"spndansw",
        })
    }
}

fn framed(magic: Magic, version: u32, body: impl FnOnce(&mut Writer)) -> Vec<u8> {
    let mut out = Writer(Vec::with_capacity(256));
    out.u64(magic.number());
    out.u32(version);
    out.u32(0);
    body(&mut out);
    let bytes = out.0.len() - HEAD_BYTES;
    debug_assert!(bytes <= HELLO_BYTES_MAX);
    out.0[HEAD_BYTES - 4..HEAD_BYTES].copy_from_slice(&(bytes as u32).to_le_bytes());
    out.0
}

fn group(from: &mut Reader<'_>) -> Result<GroupName, WireError> {
    let field = "name of a group";
    GroupName::new(from.text(field)?).map_err(|_| WireError::Value { field })
}

fn put_declined(out: &mut Writer, why: &Declined) {
    match why {
        Declined::Version(version) => [1, *version].into_iter().for_each(|value| out.u32(value)),
        Declined::Group(group) => {
            out.u32(2);
            out.text(group.as_str());
        }
        Declined::Member(id) => {
            out.u32(3);
            out.u64(id.0);
        }
        Declined::IdConflict(id) => {
            out.u32(4);
            out.u64(id.0);
        }
        Declined::Myself => out.u32(5),
        Declined::TooMany(connections) => [6, *connections].into_iter().for_each(|value| out.u32(value)),
        Declined::Identity(id) => {
            out.u32(7);
            out.u64(id.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{SocketOptions, SocketStream};
    use spindle_core::ViewId;
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    fn a_card() -> Card {
        Card { id: MemberId(u64::MAX), host: u128::MAX - 7, address: "[::1]:4117".parse().unwrap(), rack: None }
    }

    fn longest_card() -> Card {
        let address = format!("unix:/{}", "x".repeat(106)).parse().unwrap();
        Card { address, rack: Some("r".repeat(64).parse().unwrap()), ..a_card() }
    }

    fn hellos() -> Vec<Hello> {
        let (incarnation, view) = (u128::MAX - 1, ViewId(7));
        let purposes = [
            Purpose::Control,
            Purpose::Part { incarnation, view },
            Purpose::Observer { incarnation, view },
            Purpose::State { view },
            Purpose::Bulk { incarnation, view, number: u64::MAX },
            Purpose::Objects { view, reply: u64::MAX },
            Purpose::Records { reply: u64::MAX },
            Purpose::Life { incarnation, view },
        ];
        let hello = |purpose| Hello {
            group: GroupName::new("demo").unwrap(),
            purpose,
            card: a_card(),
            process: u128::MAX / 3,
            wanted: Some(MemberId(0)),
        };
        let mut hellos: Vec<_> = purposes.map(hello).into();
        let group = GroupName::new(&"g".repeat(64)).unwrap();
        hellos.push(Hello { group, card: longest_card(), wanted: None, ..hellos[1].clone() });
        hellos
    }

    fn answers() -> Vec<HelloAnswer> {
        let mut answers: Vec<_> = [
            Declined::Version(9),
            Declined::Group(GroupName::new(&"g".repeat(64)).unwrap()),
            Declined::Member(MemberId(u64::MAX)),
            Declined::IdConflict(MemberId(3)),
            Declined::Myself,
            Declined::TooMany(2048),
            Declined::Identity(MemberId(u64::MAX)),
        ]
        .map(HelloAnswer::Declined)
        .into();
        answers.extend([a_card(), longest_card()].map(|card| HelloAnswer::Welcome(card, 77)));
        answers
    }

    fn body(bytes: &[u8]) -> &[u8] {
        &bytes[HEAD_BYTES..]
    }

    #[test]
    fn messages_survive_encoding() {
        for hello in hellos() {
            assert_eq!(Hello::decode(body(&hello.encode())), Ok(hello));
        }
        for answer in answers() {
            assert_eq!(HelloAnswer::decode(body(&answer.encode())), Ok(answer));
        }
    }

    #[test]
    fn every_cut_and_every_addition_is_noticed() {
        for hello in hellos() {
            let mut bytes = hello.encode();
            for cut in 0..body(&bytes).len() {
                assert_eq!(Hello::decode(&body(&bytes)[..cut]), Err(WireError::Short), "{hello:?} cut to {cut}");
            }
            bytes.push(0);
            assert_eq!(Hello::decode(body(&bytes)), Err(WireError::Long { extra: 1 }));
        }
        for answer in answers() {
            let mut bytes = answer.encode();
            for cut in 0..body(&bytes).len() {
                assert_eq!(HelloAnswer::decode(&body(&bytes)[..cut]), Err(WireError::Short), "{answer:?} cut to {cut}");
            }
            bytes.push(0);
            assert_eq!(HelloAnswer::decode(body(&bytes)), Err(WireError::Long { extra: 1 }));
        }
    }

    fn ends() -> (SocketStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        (SocketStream::new(near, &SocketOptions::default()).unwrap(), far)
    }

    /// However the bytes are cut, the hello is read whole, and nothing after it.
    #[test]
    fn a_hello_is_read_to_its_end_and_no_further() {
        let hello = &hellos()[1];
        let mut bytes = hello.encode();
        let length = bytes.len();
        bytes.extend_from_slice(b"behind");
        for cut in 0..=bytes.len() {
            let (mut near, mut far) = ends();
            let mut incoming = HelloReader::new(Magic::Hello);
            far.write_all(&bytes[..cut]).unwrap();
            let early = incoming.receive(&mut near).unwrap().is_some();
            assert_eq!(early, cut >= length);
            far.write_all(&bytes[cut..]).unwrap();
            let read = incoming.receive(&mut near).unwrap().expect("it is whole");
            assert_eq!(Hello::decode(read).as_ref(), Ok(hello));
            let mut rest = [0; 9];
            assert_eq!(near.receive(&mut [Space::of(&mut rest)]).unwrap(), 6);
            assert_eq!(&rest[..6], b"behind");
        }
    }

    fn read(bytes: &[u8]) -> Result<bool, HelloError> {
        let (mut near, mut far) = ends();
        far.write_all(bytes).unwrap();
        drop(far);
        HelloReader::new(Magic::Hello).receive(&mut near).map(|body| body.is_some())
    }

    #[test]
    fn heads_that_are_none_end_it() {
        let hello = hellos()[0].encode();
        assert!(read(&hello).unwrap());
        assert!(matches!(read(&hello[..hello.len() - 1]), Err(HelloError::Ended)));
        assert!(matches!(read(b"GET / HTTP/1.1\r\n\r\n"), Err(HelloError::Wire(WireError::Magic))));
        assert!(matches!(read(&answers()[0].encode()), Err(HelloError::Wire(WireError::Magic))));
        assert!(
            matches!(read(&hellos()[0].encode_as(VERSION + 1)[..HEAD_BYTES]), Err(HelloError::Version(v)) if v == VERSION + 1)
        );
        let mut long = hello;
        long[12..16].copy_from_slice(&u32::MAX.to_le_bytes());
        assert!(matches!(read(&long), Err(HelloError::Wire(WireError::Long { .. }))));
    }

    /// Arbitrary bytes are read or refused, and a result that was read says what its bytes say.
    #[test]
    fn garbage_hellos_never_panic() {
        let seed = std::env::var("SEED").ok().and_then(|s| s.parse().ok()).unwrap_or(0x5eed_u64);
        println!("replay: SEED={seed} cargo test -p spindle-transport garbage_hellos_never_panic");
        let mut state = seed | 1;
        let mut random = move || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            state
        };
        let valid: Vec<Vec<u8>> =
            hellos().iter().map(Hello::encode).chain(answers().iter().map(HelloAnswer::encode)).collect();
        let (mut understood, mut refused) = (0_u32, 0_u32);
        for i in 0..100_000_u32 {
            let mut bytes = if i % 4 == 0 {
                let length = random() % 200;
                (0..length).map(|_| random() as u8).collect()
            } else {
                valid[random() as usize % valid.len()][HEAD_BYTES..].to_vec()
            };
            for _ in 0..random() % 4 {
                let at = random() as usize % bytes.len().max(1);
                match bytes.get_mut(at) {
                    Some(byte) => *byte ^= 1 << (random() % 8),
                    None => bytes.push(random() as u8),
                }
            }
            match (Hello::decode(&bytes), HelloAnswer::decode(&bytes)) {
                (Ok(hello), _) => assert_eq!(body(&hello.encode()), bytes),
                (_, Ok(answer)) => assert_eq!(body(&answer.encode()), bytes),
                _ => refused += 1,
            }
            understood = i + 1 - refused;
        }
        // Most were valid, with up to three bits turned.
        assert!((10_000..90_000).contains(&understood), "{understood}");
    }

    /// Lengths and FNV-1a digests of the samples' bytes: peers of this version send nothing else.
    #[test]
    fn bytes_are_those_of_this_version() {
        let digest = |bytes: &[u8]| {
            let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
            bytes.iter().fold(0xcbf2_9ce4_8422_2325, mix)
        };
        let expected: &[(usize, u64)] = &[
            (130, 0x454b_9d86_b5ba_b5b6),
            (130, 0xdd26_799a_e0ba_6713),
            (130, 0x7bf0_67a0_d4f8_fb1a),
            (130, 0x207e_bfe0_55a1_5ae0),
            (130, 0x53e6_518c_1bdb_3438),
            (130, 0x1170_3ebd_bbef_cc3e),
            (130, 0x209c_9b8c_a2f3_9d7f),
            (130, 0xb137_53af_c02e_3846),
            (356, 0x8e09_8ccf_a9bf_04c3),
            (24, 0xbc44_b304_28e1_48a1),
            (88, 0x5487_01ed_b9e3_ae3b),
            (28, 0x5271_dad5_eabd_8ef6),
            (28, 0x700d_0dfa_4ba9_672a),
            (20, 0x1587_c9bb_b52c_f850),
            (24, 0xafaf_007d_a9a4_8227),
            (28, 0x8d54_4647_87ec_1432),
            (78, 0x4be3_e90c_30c4_373f),
            (244, 0x6d20_e24e_2ded_058e),
        ];
        let (hellos, answers) = (hellos(), answers());
        let bytes = hellos.iter().map(Hello::encode).chain(answers.iter().map(HelloAnswer::encode));
        let found: Vec<(usize, u64)> = bytes.map(|bytes| (bytes.len(), digest(&bytes))).collect();
        assert_eq!(found, expected);
    }
}
