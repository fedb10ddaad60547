//! Control messages on a control connection: a head (length of the control message, length of the
//! attachment), the control message as on a control socket, and the attachment.
use super::limits::{ATTACHMENT_BYTES_MAX, CONTROL_MESSAGES_PER_SEND, READS_MAX, SENDS_MAX};
use crate::stream::{Space, Stream};
use spindle_core::MemberId;
use spindle_core::control::ControlMessage;
use spindle_core::limits::CONTROL_MESSAGE_BYTES_MAX;
use std::collections::VecDeque;
use std::io::{self, IoSlice};

const HEAD_BYTES: usize = 8;

/// A control message to be sent, and the member that it is for.
#[derive(Debug)]
pub(super) struct QueuedMessage {
    pub(super) whom: Option<MemberId>,
    /// Head and control message.
    message: Vec<u8>,
    attachment: Vec<u8>,
}

impl QueuedMessage {
    /// # Panics
    /// If the control message has descriptors, if the attachment is too long to be sent, or if its
    /// length is not what the control message says.
    pub(super) fn new(whom: Option<MemberId>, message: &ControlMessage, attachment: &[u8]) -> QueuedMessage {
        assert!(is_for_the_net(message), "descriptors can't leave the host: {message:?}");
        assert!(attachment.len() <= ATTACHMENT_BYTES_MAX, "an attachment of {} bytes", attachment.len());
        assert!(fits(message, attachment.len()), "an attachment of {} bytes with {message:?}", attachment.len());
        let body = message.encode();
        let mut message = Vec::with_capacity(HEAD_BYTES + body.len());
        message.extend_from_slice(&(body.len() as u32).to_le_bytes());
        message.extend_from_slice(&(attachment.len() as u32).to_le_bytes());
        message.extend_from_slice(&body);
        QueuedMessage { whom, message, attachment: attachment.to_vec() }
    }

    pub(super) fn len(&self) -> usize {
        self.message.len() + self.attachment.len()
    }
}

fn is_for_the_net(message: &ControlMessage) -> bool {
    !matches!(
        message,
        ControlMessage::RowDescriptors { .. }
            | ControlMessage::State { .. }
            | ControlMessage::Objects { .. }
            | ControlMessage::Records { .. }
            | ControlMessage::Bulk { .. }
    )
}

/// Returns whether an attachment of `bytes` is as long as the control message says, if it says so.
fn fits(message: &ControlMessage, bytes: usize) -> bool {
    match message {
        ControlMessage::View { bytes: said, .. } | ControlMessage::Answer { bytes: said, .. } => *said == bytes as u64,
        _ => true,
    }
}

/// Sends the parcels that `stream` accepts; `sent` bytes of the first have left before. Returns
/// whether all have left.
///
/// # Errors
/// Returns the stream's errors. A full stream is no error.
pub(super) fn send(
    parcels: &mut VecDeque<QueuedMessage>,
    sent: &mut usize,
    stream: &mut dyn Stream,
) -> io::Result<bool> {
    for _ in 0..SENDS_MAX {
        if parcels.is_empty() && !stream.holds_back() {
            return Ok(true);
        }
        let mut slices = [IoSlice::new(&[]); 2 * CONTROL_MESSAGES_PER_SEND];
        let mut skip = *sent;
        for (slice, bytes) in
            slices.iter_mut().zip(parcels.iter().flat_map(|parcel| [&parcel.message, &parcel.attachment]))
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
    ControlMessage(ControlMessage, Vec<u8>),
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
        let (message, rest) = self.bytes.split_first_chunk::<4>()?;
        let (attachment, _) = rest.split_first_chunk::<4>()?;
        Some((u32::from_le_bytes(*message) as usize, u32::from_le_bytes(*attachment) as usize))
    }

    /// Returns how many bytes the control message has, as far as that is known; `None`: more than
    /// any control message has.
    fn wanted(&self) -> Option<usize> {
        let Some((message, attachment)) = self.lengths() else { return Some(HEAD_BYTES) };
        (message <= CONTROL_MESSAGE_BYTES_MAX && attachment <= ATTACHMENT_BYTES_MAX)
            .then_some(HEAD_BYTES + message + attachment)
    }

    fn is_whole(&self) -> bool {
        self.lengths().is_some_and(|(message, attachment)| {
            // The lengths may be invalid. Then no control message is complete, and the next byte
            // shows it.
            self.bytes.len() == HEAD_BYTES + message + attachment
        })
    }
}

fn read(mut bytes: Vec<u8>, from: MemberId) -> Brought {
    let (head, rest) = bytes.split_first_chunk::<4>().expect("it has a head");
    let message_bytes = u32::from_le_bytes(*head) as usize;
    let decoded = ControlMessage::decode(&rest[4..4 + message_bytes]);
    let attachment = bytes.split_off(HEAD_BYTES + message_bytes);
    match decoded {
        Ok(message) if !is_for_the_net(&message) || !fits(&message, attachment.len()) => Brought::Garbage,
        Ok(message) if message.from().is_some_and(|other| other != from) => Brought::Forged,
        Ok(message) => Brought::ControlMessage(message, attachment),
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

    fn request(reply: u64) -> ControlMessage {
        ControlMessage::Request { from: ME, reply, what: Request::Status }
    }

    fn view(from: MemberId, bytes: u64) -> ControlMessage {
        ControlMessage::View { incarnation: 7, view: ViewId(2), from, bytes }
    }

    fn bytes_of(parcels: impl IntoIterator<Item = QueuedMessage>) -> Vec<u8> {
        parcels.into_iter().flat_map(|parcel| [parcel.message, parcel.attachment].concat()).collect()
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
    fn messages_arrive_whole_in_bites_of_any_size() {
        let attachment = vec![9; 1000];
        let sent = || {
            [
                (request(1), vec![]),
                (view(ME, 1000), attachment.clone()),
                (ControlMessage::Answer { reply: 2, bytes: 0 }, vec![]),
            ]
        };
        let bytes = bytes_of(sent().map(|(message, attachment)| QueuedMessage::new(None, &message, &attachment)));
        for bite in [1, 2, 7, 8, 9, 100, bytes.len()] {
            let (brought, stand) = arriving(&bytes, bite);
            assert_eq!(stand, Stand::Empty);
            let messages: Vec<_> = brought
                .into_iter()
                .map(|one| match one {
                    Brought::ControlMessage(message, attachment) => (message, attachment),
                    other => panic!("{other:?}"),
                })
                .collect();
            assert_eq!(messages, sent());
        }
    }

    #[test]
    fn invalid_or_foreign_messages_are_left_out() {
        let raw = |message: &ControlMessage, attachment: &[u8]| {
            let body = message.encode();
            let lengths = [body.len() as u32, attachment.len() as u32].map(u32::to_le_bytes).concat();
            [&lengths, &body[..], attachment].concat()
        };
        let other = MemberId(4);
        let bytes = [
            raw(
                &ControlMessage::RowDescriptors {
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
            raw(&ControlMessage::State { view: ViewId(1), from: ME }, &[]),
            raw(&view(ME, 3), b"four"),
            raw(&view(other, 4), b"four"),
            raw(&ControlMessage::Request { from: other, reply: 1, what: Request::Leave }, &[]),
            [0; 8].to_vec(),
            raw(&request(1), b"what nobody asked for"),
        ]
        .concat();
        let (brought, stand) = arriving(&bytes, bytes.len());
        assert_eq!(stand, Stand::Empty);
        let kinds: String = brought
            .iter()
            .map(|one| match one {
                Brought::ControlMessage(..) => 'L',
                Brought::Garbage => 'g',
                Brought::Forged => 'f',
            })
            .collect();
        assert_eq!(kinds, "gggffgL");
    }

    #[test]
    fn lengths_that_no_message_has_end_the_connection_and_take_no_memory() {
        for lengths in
            [[CONTROL_MESSAGE_BYTES_MAX as u32 + 1, 0], [1, ATTACHMENT_BYTES_MAX as u32 + 1], [u32::MAX, u32::MAX]]
        {
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
    fn bytes_that_a_stream_takes_leave_and_the_rest_stays() {
        let (mut near, mut far) = near();
        let messages: Vec<_> =
            (0..20).map(|reply| (ControlMessage::Answer { reply, bytes: 3000 }, vec![reply as u8; 3000])).collect();
        let parcel = |(message, attachment): &(ControlMessage, Vec<u8>)| QueuedMessage::new(None, message, attachment);
        let expected = bytes_of(messages.iter().map(parcel));
        let (mut parcels, mut sent) = (messages.iter().map(parcel).collect(), 0);
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
    fn sending_descriptors_off_the_host_panics() {
        let refused = |message: ControlMessage, attachment: &[u8]| {
            assert!(
                std::panic::catch_unwind(|| QueuedMessage::new(None, &message, attachment)).is_err(),
                "{message:?}"
            );
        };
        refused(
            ControlMessage::RowDescriptors {
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
        refused(ControlMessage::State { view: ViewId(1), from: ME }, &[]);
        refused(view(ME, 3), b"four");
        refused(request(1), &vec![0; ATTACHMENT_BYTES_MAX + 1]);
    }
}
