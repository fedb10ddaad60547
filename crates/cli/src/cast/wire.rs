//! The messages between a cast and its receivers, as bytes.
//!
//! Every message begins with [`MAGIC`], [`VERSION`], a kind, and the number of its cast. All
//! numbers are little-endian. This module checks peers' messages as far as it can without knowing
//! the offer.
use super::digest::Digest;
use super::pieces::{PIECES_MAX, Pieces};
use anyhow::{bail, ensure};

/// The first bytes of every message.
const MAGIC: [u8; 4] = *b"cast";
/// The version of this format.
const VERSION: u8 = 1;
/// Bytes before the data of a piece.
pub(super) const PIECE_HEADER_BYTES: usize = 4 + 1 + 1 + 8 + 4;
/// Most bytes of a piece.
pub(super) const PIECE_BYTES_MAX: u64 = 256 << 20;
/// Most bytes of a name. With the characters added while the file is received it has to fit into
/// 255 bytes.
pub(super) const NAME_BYTES_MAX: usize = 240;
/// Most bytes of an error message that is sent.
const ERROR_BYTES_MAX: usize = 1000;

/// A file that is offered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Offer {
    /// Number of the offer within its cast, from 1. The cast offers its file again when a member
    /// joins.
    pub(super) number: u32,
    pub(super) name: String,
    pub(super) bytes: u64,
    /// Bytes of every piece but the last.
    pub(super) piece_bytes: u64,
    /// Digest of the whole file.
    pub(super) digest: Digest,
    /// Digest of each piece.
    pub(super) pieces: Vec<Digest>,
}

#[derive(Debug, PartialEq, Eq)]
pub(super) enum CastMessage<'a> {
    Offer(Offer),
    /// The pieces that a receiver has, in answer to the offer with this number.
    Have {
        offer: u32,
        pieces: Pieces,
    },
    Piece {
        index: u32,
        data: &'a [u8],
    },
    /// The outcome for the file at a receiver.
    Kept(Result<(), String>),
    /// The sender takes no files.
    Aside,
}

impl Offer {
    pub(super) fn count(&self) -> u32 {
        self.pieces.len() as u32
    }

    /// Returns the offset of a piece in the file.
    pub(super) fn start(&self, index: u32) -> u64 {
        u64::from(index) * self.piece_bytes
    }

    /// Returns the number of bytes of a piece.
    pub(super) fn len(&self, index: u32) -> u64 {
        self.piece_bytes.min(self.bytes - self.start(index))
    }

    /// Returns the bytes of all pieces except the missing ones.
    pub(super) fn bytes_but(&self, missing: &Pieces) -> u64 {
        self.bytes - missing.iter().map(|index| self.len(index)).sum::<u64>()
    }
}

/// Returns an error if a file can't have this name. The name has to be a single component, so that
/// the file stays in the receivers' directory.
pub(super) fn check_name(name: &str) -> anyhow::Result<()> {
    ensure!(!name.is_empty(), "it is empty");
    ensure!(!name.starts_with('.'), "it begins with a dot");
    ensure!(!name.contains('/'), "it has a slash");
    ensure!(!name.chars().any(char::is_control), "it has a control character");
    ensure!(name.len() <= NAME_BYTES_MAX, "it has {} bytes, and the limit is {NAME_BYTES_MAX}", name.len());
    Ok(())
}

impl CastMessage<'_> {
    /// Encodes the offer as bytes, for the cast with this number.
    pub(super) fn encode(&self, cast: u64) -> Vec<u8> {
        let mut bytes = header(self.kind(), cast);
        match self {
            CastMessage::Offer(offer) => {
                bytes.extend(offer.number.to_le_bytes());
                bytes.extend(offer.bytes.to_le_bytes());
                bytes.extend(offer.piece_bytes.to_le_bytes());
                bytes.extend(offer.digest.0.to_le_bytes());
                bytes.extend((offer.name.len() as u32).to_le_bytes());
                bytes.extend(offer.name.as_bytes());
                bytes.extend(offer.pieces.iter().flat_map(|digest| digest.0.to_le_bytes()));
            }
            CastMessage::Have { offer, pieces } => {
                bytes.extend(offer.to_le_bytes());
                bytes.extend(pieces.to_bytes());
            }
            CastMessage::Piece { index, data } => {
                bytes.extend(index.to_le_bytes());
                bytes.extend(*data);
            }
            CastMessage::Kept(Ok(())) | CastMessage::Aside => {}
            CastMessage::Kept(Err(error)) => {
                let end = error.floor_char_boundary(ERROR_BYTES_MAX);
                bytes.extend(if end == 0 { "it did not say why" } else { &error[..end] }.as_bytes());
            }
        }
        bytes
    }

    fn kind(&self) -> u8 {
        match self {
            CastMessage::Offer(_) => 1,
            CastMessage::Have { .. } => 2,
            CastMessage::Piece { .. } => 3,
            CastMessage::Kept(_) => 4,
            CastMessage::Aside => 5,
        }
    }
}

/// Turns `bytes` into a piece without its data. After the header there is room for `len` bytes.
pub(super) fn prepare_piece(bytes: &mut Vec<u8>, cast: u64, index: u32, len: u64) {
    let header = [header(CastMessage::Piece { index, data: &[] }.kind(), cast), index.to_le_bytes().to_vec()].concat();
    // Existing bytes are kept and overwritten later, because clearing them would cost as much
    // again.
    bytes.resize(PIECE_HEADER_BYTES + len as usize, 0);
    bytes[..PIECE_HEADER_BYTES].copy_from_slice(&header);
}

fn header(kind: u8, cast: u64) -> Vec<u8> {
    [MAGIC.as_slice(), &[VERSION, kind], &cast.to_le_bytes()].concat()
}

/// Returns the cast's number, and the message.
pub(super) fn decode(bytes: &[u8]) -> anyhow::Result<(u64, CastMessage<'_>)> {
    let mut rest = UnreadBytes(bytes);
    ensure!(rest.take::<4>().is_ok_and(|magic| magic == MAGIC), "it is no message of a cast");
    let [version, kind] = rest.take()?;
    ensure!(version == VERSION, "it speaks version {version} of casts, and this is {VERSION}: update the older");
    let cast = rest.number()?;
    let message = match kind {
        1 => CastMessage::Offer(offer(&mut rest)?),
        2 => {
            let offer = u32::from_le_bytes(rest.take()?);
            CastMessage::Have { offer, pieces: Pieces::from_bytes(rest.all())? }
        }
        3 => CastMessage::Piece { index: u32::from_le_bytes(rest.take()?), data: rest.all() },
        4 => match rest.all() {
            [] => CastMessage::Kept(Ok(())),
            error => {
                let error = String::from_utf8_lossy(&error[..error.len().min(ERROR_BYTES_MAX)]);
                // The error is printed, so control characters are replaced.
                CastMessage::Kept(Err(error.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()))
            }
        },
        5 => CastMessage::Aside,
        kind => bail!("it has the kind {kind}, which there is not"),
    };
    ensure!(rest.0.is_empty(), "it is longer than it says");
    Ok((cast, message))
}

fn offer(rest: &mut UnreadBytes<'_>) -> anyhow::Result<Offer> {
    let number = u32::from_le_bytes(rest.take()?);
    let (bytes, piece_bytes) = (rest.number()?, rest.number()?);
    let digest = Digest(u128::from_le_bytes(rest.take()?));
    let name_bytes = u32::from_le_bytes(rest.take()?) as usize;
    let name = std::str::from_utf8(rest.bytes(name_bytes)?)?.to_string();
    if let Err(error) = check_name(&name) {
        bail!("it offers {name:?}, which is no name for a file: {error}");
    }
    ensure!((1..=PIECE_BYTES_MAX).contains(&piece_bytes), "it offers pieces of {piece_bytes} bytes");
    let count = bytes.div_ceil(piece_bytes);
    ensure!(count <= PIECES_MAX, "it offers {count} pieces");
    let mut pieces = Vec::with_capacity(count as usize);
    for _ in 0..count {
        pieces.push(Digest(u128::from_le_bytes(rest.take()?)));
    }
    Ok(Offer { number, name, bytes, piece_bytes, digest, pieces })
}

/// The unread rest of a message.
struct UnreadBytes<'a>(&'a [u8]);

impl<'a> UnreadBytes<'a> {
    fn bytes(&mut self, len: usize) -> anyhow::Result<&'a [u8]> {
        let Some((head, tail)) = self.0.split_at_checked(len) else { bail!("it is cut short") };
        self.0 = tail;
        Ok(head)
    }

    fn take<const LEN: usize>(&mut self) -> anyhow::Result<[u8; LEN]> {
        Ok(self.bytes(LEN)?.try_into()?)
    }

    fn number(&mut self) -> anyhow::Result<u64> {
        Ok(u64::from_le_bytes(self.take()?))
    }

    fn all(&mut self) -> &'a [u8] {
        std::mem::take(&mut self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn offer() -> Offer {
        let pieces = vec![Digest(1), Digest(2), Digest(3)];
        Offer { number: 7, name: "disk.img".to_string(), bytes: 2500, piece_bytes: 1000, digest: Digest(9), pieces }
    }

    #[test]
    fn messages_come_back_as_they_were_and_cut_ones_are_refused() {
        let mut pieces = Pieces::none(70);
        pieces.insert(69);
        let messages = [
            CastMessage::Offer(offer()),
            CastMessage::Have { offer: 7, pieces },
            CastMessage::Piece { index: 2, data: b"data" },
            CastMessage::Kept(Ok(())),
            CastMessage::Kept(Err("no space".to_string())),
            CastMessage::Aside,
        ];
        for message in messages {
            let bytes = message.encode(5);
            assert_eq!(decode(&bytes).unwrap(), (5, message));
            for len in 0..14 {
                decode(&bytes[..len]).unwrap_err();
            }
        }
        let bytes = CastMessage::Offer(offer()).encode(5);
        for len in 0..bytes.len() {
            decode(&bytes[..len]).unwrap_err();
        }
        let longer = [bytes.as_slice(), b"x"].concat();
        assert_eq!(decode(&longer).unwrap_err().to_string(), "it is longer than it says");
        for before in [0, 100] {
            let mut piece = vec![1; before];
            prepare_piece(&mut piece, 5, 2, 4);
            piece[PIECE_HEADER_BYTES..].copy_from_slice(b"data");
            assert_eq!(piece, CastMessage::Piece { index: 2, data: b"data" }.encode(5));
        }
    }

    #[test]
    fn offers_that_lead_out_of_the_directory_or_are_too_large_are_refused() {
        for name in ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "a\nb", &"x".repeat(241)] {
            let bytes = CastMessage::Offer(Offer { name: name.to_string(), ..offer() }).encode(1);
            let error = decode(&bytes).unwrap_err().to_string();
            assert!(error.contains("no name for a file"), "{error}");
        }
        for (bytes, piece_bytes) in [(1, 0), (u64::MAX, 1000), (1 << 40, PIECE_BYTES_MAX + 1)] {
            let offer = Offer { bytes, piece_bytes, pieces: vec![], ..offer() };
            decode(&CastMessage::Offer(offer).encode(1)).unwrap_err();
        }
        let old = CastMessage::Aside.encode(1);
        let newer = [&old[..4], &[VERSION + 1], &old[5..]].concat();
        assert!(decode(&newer).unwrap_err().to_string().contains("update the older"));
    }

    #[test]
    fn the_last_piece_is_what_is_left() {
        let offer = offer();
        assert_eq!(
            [0, 1, 2].map(|index| (offer.start(index), offer.len(index))),
            [(0, 1000), (1000, 1000), (2000, 500)]
        );
        assert_eq!(offer.bytes_but(&Pieces::none(3)), 2500);
        assert_eq!(offer.bytes_but(&Pieces::all(3)), 0);
    }
}
