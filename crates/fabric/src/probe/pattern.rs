//! The work per byte: every byte of a block is stored by one side and loaded by the other.
//!
//! Plain loops over 8-byte words, which the compiler turns into vector instructions. It is not a
//! hash: it detects a block that mixes two writes, or that is not the expected one, and costs no
//! more than reading the bytes.

/// Returns the pattern of block number `block`. It differs from the patterns of its neighbours, and
/// is not zero, as fresh memory is.
#[inline(always)]
pub fn seed(block: u64) -> u64 {
    (block << 1 | 1).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// Stores `seed` into every 8 bytes of `block`, and its low bytes into the rest.
#[inline(always)]
pub fn fill(block: &mut [u8], seed: u64) {
    let pattern = seed.to_le_bytes();
    let (words, rest) = block.as_chunks_mut::<8>();
    for word in words {
        *word = pattern;
    }
    for (byte, value) in rest.iter_mut().zip(pattern) {
        *byte = value;
    }
}

/// Reads every byte of `block`. Returns the wrapping sum of its 8-byte little-endian words and of
/// the rest, as a word.
#[inline(always)]
pub fn check(block: &[u8]) -> u64 {
    let (words, rest) = block.as_chunks::<8>();
    let sum = words.iter().fold(0u64, |sum, word| sum.wrapping_add(u64::from_le_bytes(*word)));
    let last = rest.iter().rev().fold(0u64, |last, byte| last << 8 | u64::from(*byte));
    sum.wrapping_add(last)
}

/// Returns the answer of [`check`] for a block of `bytes` bytes after [`fill`] with `seed`.
#[inline(always)]
pub fn expected(bytes: u64, seed: u64) -> u64 {
    let rest = seed & ((1 << (8 * (bytes % 8))) - 1);
    seed.wrapping_mul(bytes / 8).wrapping_add(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn check_answers_expected_after_fill_at_every_length() {
        for bytes in 0..200 {
            let mut block = vec![0xa5; bytes];
            fill(&mut block, seed(7));
            assert_eq!(check(&block), expected(bytes as u64, seed(7)), "{bytes} bytes");
        }
    }

    #[test]
    fn fill_leaves_no_byte_untouched() {
        for bytes in 0..100 {
            let mut block = vec![0; bytes];
            fill(&mut block, u64::MAX);
            assert!(block.iter().all(|&byte| byte == 0xff), "{bytes} bytes");
        }
    }

    #[test]
    fn a_block_torn_at_any_word_is_noticed() {
        for torn_at in 1..16 {
            let mut block = [0; 128];
            fill(&mut block, seed(3));
            fill(&mut block[..8 * torn_at], seed(4));
            assert_ne!(check(&block), expected(128, seed(3)));
            assert_ne!(check(&block), expected(128, seed(4)));
        }
    }
}
