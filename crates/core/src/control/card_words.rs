//! Cards as words, in messages of processes that create or restart a group.
use crate::limits::{ADDRESS_BYTES_MAX, BOOTSTRAP_WORDS_MAX, MEMBERS_MAX};
use crate::membership::proposal::encode_bytes;
use crate::wire::Card;
use crate::wire::bytes::{Reader, Writer};
use alloc::vec::Vec;

/// The most bytes of a card: an address, and the fields of fixed size with a rack.
const CARD_BYTES_MAX: usize = 2 * ADDRESS_BYTES_MAX;
// A message has room for several cards of any length.
const _: () = assert!(4 * (CARD_BYTES_MAX / 8 + 2) <= BOOTSTRAP_WORDS_MAX);

/// Appends the number of cards, and the cards.
pub(super) fn put_cards(out: &mut Vec<u64>, cards: &[Card]) {
    out.push(cards.len() as u64);
    cards.iter().for_each(|card| put_card(out, card));
}

fn put_card(out: &mut Vec<u64>, card: &Card) {
    let mut bytes = Writer::default();
    card.put(&mut bytes);
    encode_bytes(&bytes.0, out);
}

/// Returns the number of words of a card.
pub(super) fn words_of(card: &Card) -> usize {
    let mut words = Vec::new();
    put_card(&mut words, card);
    words.len()
}

/// Reads what [`put_cards`] wrote; `None` if the words are no cards.
pub(super) fn cards(from: &mut &[u64]) -> Option<Vec<Card>> {
    let card = |from: &mut &[u64]| {
        let bytes = bytes(from, CARD_BYTES_MAX)?;
        let mut reader = Reader(&bytes);
        let card = Card::read(&mut reader).ok()?;
        reader.end().ok().map(|()| card)
    };
    let count = usize::try_from(*from.split_off_first()?).ok().filter(|count| *count <= MEMBERS_MAX)?;
    (0..count).map(|_| card(from)).collect()
}

/// Reads at most so many bytes, with their length before them; `None` if the words are no bytes.
pub(super) fn bytes(from: &mut &[u64], most: usize) -> Option<Vec<u8>> {
    let length = usize::try_from(*from.split_off_first()?).ok().filter(|length| *length <= most)?;
    let mut bytes: Vec<u8> = from.split_off(..length.div_ceil(8))?.iter().flat_map(|word| word.to_le_bytes()).collect();
    let padding = bytes.split_off(length);
    padding.iter().all(|byte| *byte == 0).then_some(bytes)
}
