//! Digests of files and of their pieces: XXH3-128, which other tools call `xxh128sum`. They detect
//! accidental changes, not deliberate collisions. Every process that may send in the group is
//! trusted.
use std::fmt;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use twox_hash::xxhash3_128::Hasher;

/// Number of bytes per read.
const BLOCK_BYTES: u64 = 1 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Digest(pub(super) u128);

impl Digest {
    pub(super) fn of(bytes: &[u8]) -> Digest {
        Digest(Hasher::oneshot(bytes))
    }

    /// Returns the digest of `len` bytes of a file from `start` on. Passes every block that is read
    /// to `see`.
    ///
    /// # Errors
    /// The error of a read; `UnexpectedEof` if the file has fewer bytes.
    pub(super) fn of_file(file: &File, start: u64, len: u64, mut see: impl FnMut(&[u8])) -> io::Result<Digest> {
        let mut hasher = Hasher::new();
        let mut block = vec![0; BLOCK_BYTES.min(len) as usize];
        let mut done = 0;
        while done < len {
            let part = &mut block[..BLOCK_BYTES.min(len - done) as usize];
            file.read_exact_at(part, start + done)?;
            hasher.write(part);
            see(part);
            done += part.len() as u64;
        }
        Ok(Digest(hasher.finish_128()))
    }

    /// Returns the digest of the first `bytes` of a file, and of each of its pieces.
    ///
    /// # Errors
    /// As [`of_file`](Self::of_file).
    pub(super) fn of_pieces(file: &File, bytes: u64, piece_bytes: u64) -> io::Result<(Digest, Vec<Digest>)> {
        let mut whole = Hasher::new();
        let pieces = (0..bytes.div_ceil(piece_bytes)).map(|index| {
            let start = index * piece_bytes;
            Digest::of_file(file, start, piece_bytes.min(bytes - start), |block| whole.write(block))
        });
        let pieces = pieces.collect::<io::Result<Vec<_>>>()?;
        Ok((Digest(whole.finish_128()), pieces))
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}
