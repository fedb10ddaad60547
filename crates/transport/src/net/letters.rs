//! Control messages on a control connection: a head (length of the control message, length of the
//! attachment), the control message as on a control socket, and the attachment.
use super::limits::{ATTACHMENT_BYTES_MAX, LETTERS_PER_SEND, READS_MAX, SENDS_MAX};
use crate::stream::{Space, Stream};
use spindle_core::MemberId;
use spindle_core::control::Letter;
use spindle_core::limits::LETTER_BYTES_MAX;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

const HEAD_BYTES: usize = 8;

/// A control message to be sent, and the member that it is for.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) whom: Option<MemberId>,
    /// Head and control message.
    letter: Vec<u8>,
    attachment: Vec<u8>,
}

impl Parcel {
    /// # Panics
    /// If the control message has descriptors, if the attachment is too long to be sent, or if its
    /// length is not what the control message says.
    pub(super) fn new(whom: Option<MemberId>, letter: &Letter, attachment: &[u8]) -> Parcel {
        assert!(is_for_the_net(letter), "descriptors can't leave the host: {letter:?}");
        assert!(attachment.len() <= ATTACHMENT_BYTES_MAX, "an attachment of {} bytes", attachment.len());
        assert!(fits(letter, attachment.len()), "an attachment of {} bytes with {letter:?}", attachment.len());
        let body = letter.encode();
        let mut letter = Vec::with_capacity(HEAD_BYTES + body.len());
        letter.extend_from_slice(&(body.len() as u32).to_le_bytes());
        letter.extend_from_slice(&(attachment.len() as u32).to_le_bytes());
        letter.extend_from_slice(&body);
        Parcel { whom, letter, attachment: attachment.to_vec() }
    }

    pub(super) fn len(&self) -> usize {
        self.letter.len() + self.attachment.len()
    }
}

fn is_for_the_net(letter: &Letter) -> bool {
    !matches!(letter, Letter::Parts { .. } | Letter::State { .. } | Letter::Objects { .. } | Letter::Bulk { .. })
}

/// Returns whether an attachment of `bytes` is as long as the control message says, if it says so.
fn fits(letter: &Letter, bytes: usize) -> bool {
    match letter {
        Letter::View { bytes: said, .. } | Letter::Answer { bytes: said, .. } => *said == bytes as u64,
        _ => true,
    }
}

/// Sends the parcels that `stream` accepts; `sent` bytes of the first have left before. Returns
/// whether all have left.
///
/// # Errors
/// Returns the stream's errors. A full stream is no error.
pub(super) fn send(parcels: &mut VecDeque<Parcel>, sent: &mut usize, stream: &mut dyn Stream) -> io::Result<bool> {
    for _ in 0..SENDS_MAX {
        if parcels.is_empty() && !stream.holds_back() {
            return Ok(true);
        }
        let mut slices = [IoSlice::new(&[]); 2 * LETTERS_PER_SEND];
        let mut skip = *sent;
        for (slice, bytes) in
            slices.iter_mut().zip(parcels.iter().flat_map(|parcel| [&parcel.letter, &parcel.attachment]))
        {
            let gone = skip.min(bytes.len());
            *slice = IoSlice::new(&bytes[gone..]);
            skip -= gone;
        }
        match stream.send(&slices) {
            Ok(took) => *sent += took,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(false),
            Err(error) => return Err(error),
        }
        while let Some(first) = parcels.front()
            && *sent >= first.len()
        {
            *sent -= first.len();
            parcels.pop_front();
        }
    }
    Ok(false)
}

/// The control message that arrives on a connection.
#[derive(Debug, Default)]
pub(super) struct Arriving {
    bytes: Vec<u8>,
}

/// The result of reading from a connection.
#[derive(Debug)]
pub(super) enum Brought {
    Letter(Letter, Vec<u8>),
    /// A complete control message that is invalid.
    Garbage,
    /// A complete control message that names another sender.
    Forged,
}

/// The state of a connection after reading.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stand {
    /// All bytes that have arrived were read.
    Empty,
    /// There may be more.
    More,
    /// It has ended, or nothing that follows can be understood.
    Over,
}

impl Arriving {
    /// Returns the bytes of the incomplete control message.
    pub(super) fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Reads through `buffer`, and hands on every control message that became complete, which is
    /// from `from` or forged.
    pub(super) fn receive(
        &mut self,
        stream: &mut dyn Stream,
        buffer: &mut [u8],
        from: MemberId,
        mut hand_on: impl FnMut(Brought),
    ) -> Stand {
        for _ in 0..READS_MAX {
            let got = match stream.receive(&mut [Space::of(buffer)]) {
                Ok(0) => return Stand::Over,
                Ok(got) => got,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Stand::Empty,
                Err(_) => return Stand::Over,
            };
            let mut rest = &buffer[..got];
            while !rest.is_empty() {
                let Some(wanted) = self.wanted() else {
                    hand_on(Brought::Garbage);
                    return Stand::Over;
                };
                let (taken, behind) = rest.split_at((wanted - self.bytes.len()).min(rest.len()));
                self.bytes.extend_from_slice(taken);
                rest = behind;
                if self.is_whole() {
                    hand_on(read(std::mem::take(&mut self.bytes), from));
                }
            }
            if got < buffer.len() && !stream.has_arrived() {
                return Stand::Empty;
            }
        }
        Stand::More
    }

    fn lengths(&self) -> Option<(usize, usize)> {
        let (letter, rest) = self.bytes.split_first_chunk::<4>()?;
        let (attachment, _) = rest.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*letter) as usize, u32::from_le_bytes(*attachment) as usize))
    }

    /// Returns how many bytes the control message has, as far as that is known; `None`: more than
    /// any control message has.
    fn wanted(&self) -> Option<usize> {
        let Some((letter, attachment)) = self.lengths() else { return Some(HEAD_BYTES) };
        (letter <= LETTER_BYTES_MAX && attachment <= ATTACHMENT_BYTES_MAX).then_some(HEAD_BYTES + letter + attachment)
    }

    fn is_whole(&self) -> bool {
        self.lengths().is_some_and(|(letter, attachment)| {
            // The lengths may be invalid. Then no control message is complete, and the next byte
            // shows it.
            self.bytes.len() == HEAD_BYTES + letter + attachment
        })
    }
}

fn read(mut bytes: Vec<u8>, from: MemberId) -> Brought {
    let (head, rest) = bytes.split_first_chunk::<4>().expect("it has a head");
    let letter_bytes = u32::from_le_bytes(*head) as usize;
    let decoded = Letter::decode(&rest[4..4 + letter_bytes]);
    let attachment = bytes.split_off(HEAD_BYTES + letter_bytes);
    match decoded {
        Ok(letter) if !is_for_the_net(&letter) || !fits(&letter, attachment.len()) => Brought::Garbage,
        Ok(letter) if letter.from().is_some_and(|other| other != from) => Brought::Forged,
        Ok(letter) => Brought::Letter(letter, attachment),
        Err(_) => Brought::Garbage,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{SocketOptions, SocketStream};
    use spindle_core::ViewId;
    use spindle_core::control::{Birth, Request};
    use std::io::{Read, Write};
    use std::os::unix::net::UnixStream;

    const ME: MemberId = MemberId(3);

    fn request(reply: u64) -> Letter {
        Letter::Request { from: ME, reply, what: Request::Status }
    }

    fn view(from: MemberId, bytes: u64) -> Letter {
        Letter::View { incarnation: 7, view: ViewId(2), from, bytes }
    }

    fn bytes_of(parcels: impl IntoIterator<Item = Parcel>) -> Vec<u8> {
        parcels.into_iter().flat_map(|parcel| [parcel.letter, parcel.attachment].concat()).collect()
    }

    fn near() -> (SocketStream, UnixStream) {
        let (near, far) = UnixStream::pair().unwrap();
        let options = SocketOptions { send_buffer_bytes: Some(1), receive_buffer_bytes: None, silence_ms: None };
        (SocketStream::new(near, &options).unwrap(), far)
    }

    /// Returns what arrives of `bytes`, given in pieces.
    fn arriving(bytes: &[u8], bite: usize) -> (Vec<Brought>, Stand) {
        let (mut near, mut far) = near();
        let (mut arriving, mut brought, mut stand) = (Arriving::default(), vec![], Stand::Empty);
        for bite in bytes.chunks(bite) {
            far.write_all(bite).unwrap();
            stand = arriving.receive(&mut near, &mut [0; 300], ME, |one| brought.push(one));
            if stand == Stand::Over {
                break;
            }
        }
        (brought, stand)
    }

    #[test]
    fn letters_arrive_whole_in_bites_of_any_size() {
        let attachment = vec![9; 1000];
        let sent = || {
            [
                (request(1), vec![]),
                (view(ME, 1000), attachment.clone()),
                (Letter::Answer { reply: 2, bytes: 0 }, vec![]),
            ]
        };
        let bytes = bytes_of(sent().map(|(letter, attachment)| Parcel::new(None, &letter, &attachment)));
        for bite in [1, 2, 7, 8, 9, 100, bytes.len()] {
            let (brought, stand) = arriving(&bytes, bite);
            assert_eq!(stand, Stand::Empty);
            let letters: Vec<_> = brought
                .into_iter()
                .map(|one| match one {
                    Brought::Letter(letter, attachment) => (letter, attachment),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(letters, sent());
        }
    }

    #[test]
    fn what_is_no_letter_or_of_another_is_left_out() {
        let raw = |letter: &Letter, attachment: &[u8]| {
            let body = letter.encode();
            let lengths = [body.len() as u32, attachment.len() as u32].map(u32::to_le_bytes).concat();
            [&lengths, &body[..], attachment].concat()
        };
        let other = MemberId(4);
        let bytes = [
            raw(
                &Letter::Parts {
                    incarnation: 1,
                    view: ViewId(1),
                    from: ME,
                    pid: 1,
                    birth: Birth::default(),
                    at: 0,
                    bytes: 64,
                    event: false,
                    address: None,
                    rack: None,
                },
                &[],
            ),
            raw(&Letter::State { view: ViewId(1), from: ME }, &[]),
            raw(&view(ME, 3), b"four"),
            raw(&view(other, 4), b"four"),
            raw(&Letter::Request { from: other, reply: 1, what: Request::Leave }, &[]),
            [0; 8].to_vec(),
            raw(&request(1), b"what nobody asked for"),
        ]
        .concat();
        let (brought, stand) = arriving(&bytes, bytes.len());
        assert_eq!(stand, Stand::Empty);
        let kinds: String = brought
            .iter()
            .map(|one| match one {
                Brought::Letter(..) => 'L',
                Brought::Garbage => 'g',
                Brought::Forged => 'f',
            })
            .collect();
        assert_eq!(kinds, "gggffgL");
    }

    #[test]
    fn lengths_that_no_letter_has_end_the_connection_and_take_no_memory() {
        for lengths in [[LETTER_BYTES_MAX as u32 + 1, 0], [1, ATTACHMENT_BYTES_MAX as u32 + 1], [u32::MAX, u32::MAX]] {
            let bytes = [&lengths.map(u32::to_le_bytes).concat()[..], b"x"].concat();
            let (brought, stand) = arriving(&bytes, 9);
            assert!(stand == Stand::Over && matches!(brought[..], [Brought::Garbage]));
        }
        let (mut near, mut far) = near();
        let mut large = Arriving::default();
        far.write_all(&[1, ATTACHMENT_BYTES_MAX as u32].map(u32::to_le_bytes).concat()).unwrap();
        assert_eq!(large.receive(&mut near, &mut [0; 300], ME, |one| panic!("{one:?}")), Stand::Empty);
        assert!(large.bytes.capacity() < 4096, "{}", large.bytes.capacity());
    }

    #[test]
    fn what_a_stream_takes_leaves_and_the_rest_stays() {
        let (mut near, mut far) = near();
        let letters: Vec<_> =
            (0..20).map(|reply| (Letter::Answer { reply, bytes: 3000 }, vec![reply as u8; 3000])).collect();
        let parcel = |(letter, attachment): &(Letter, Vec<u8>)| Parcel::new(None, letter, attachment);
        let expected = bytes_of(letters.iter().map(parcel));
        let (mut parcels, mut sent) = (letters.iter().map(parcel).collect(), 0);
        let (mut got, mut buffer, mut full) = (vec![], [0; 777], 0);
        while !send(&mut parcels, &mut sent, &mut near).unwrap() {
            full += 1;
            let read = far.read(&mut buffer).unwrap();
            got.extend_from_slice(&buffer[..read]);
        }
        assert!(full > 2 && parcels.is_empty() && sent == 0);
        drop(near);
        far.read_to_end(&mut got).unwrap();
        assert!(got == expected);
    }

    #[test]
    fn what_can_not_leave_is_a_bug() {
        let refused = |letter: Letter, attachment: &[u8]| {
            assert!(std::panic::catch_unwind(|| Parcel::new(None, &letter, attachment)).is_err(), "{letter:?}");
        };
        refused(
            Letter::Parts {
                incarnation: 1,
                view: ViewId(1),
                from: ME,
                pid: 1,
                birth: Birth::default(),
                at: 0,
                bytes: 64,
                event: false,
                address: None,
                rack: None,
            },
            &[],
        );
        refused(Letter::State { view: ViewId(1), from: ME }, &[]);
        refused(view(ME, 3), b"four");
        refused(request(1), &vec![0; ATTACHMENT_BYTES_MAX + 1]);
    }
}
