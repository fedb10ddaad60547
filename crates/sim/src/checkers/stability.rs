//! Invariant 9, stability truth: when any member delivers a message of a totally ordered subgroup,
//! every member has the message.
use super::{Checked, Invariant};
use crate::ledger::ClaimedFrame;
use spindle_core::wire::ring::{HEADER_BYTES, Header};
use spindle_core::{Rank, Ring, Rows, SubgroupId};

const INVARIANT: Invariant = Invariant(9, "stability truth");

/// Checks the first delivery of `frame` of `sender`: `holder`'s copy in `rows` must have these
/// `bytes` of payload.
///
/// # Errors
/// If it has other bytes.
pub fn held<R: Rows>(
    rows: &R,
    holder: Rank,
    subgroup: SubgroupId,
    sender: Rank,
    ring: &Ring,
    frame: &ClaimedFrame,
    bytes: &[u8],
) -> Checked {
    let header = Header::decode(rows.load(sender, frame.at), ring);
    let expected = Header { kind: frame.kind, span: frame.span, len: bytes.len() as u64 };
    let round = rows.load(sender, frame.at + 8);
    if header != Some(expected) || Some(round) != frame.round {
        return INVARIANT.broken(format!(
            "round {:?} of m{sender} in s{subgroup} is delivered, but m{holder} holds {header:?} of round {round} there",
            frame.round
        ));
    }
    if rows.bytes(sender, frame.at + HEADER_BYTES, bytes.len() as u64) != bytes {
        return INVARIANT.broken(format!(
            "round {round} of m{sender} in s{subgroup} is delivered, but m{holder} holds other bytes of it"
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ClaimState;
    use spindle_core::wire::ring::Kind;

    struct Copy(Vec<u8>);

    impl Rows for Copy {
        fn load(&self, _: Rank, at: u64) -> u64 {
            u64::from_le_bytes(self.0[at as usize..at as usize + 8].try_into().unwrap())
        }

        fn bytes(&self, _: Rank, at: u64, len: u64) -> &[u8] {
            &self.0[at as usize..(at + len) as usize]
        }

        type Frames<'a>
            = spindle_core::Lookup<'a, Self>
        where
            Self: 'a;

        fn frames(&self, member: Rank, ring: &spindle_core::Ring) -> spindle_core::Lookup<'_, Self> {
            spindle_core::Lookup::new(self, member, ring)
        }
    }

    #[test]
    fn a_member_that_lacks_header_round_or_bytes_is_found() {
        let ring = Ring::new(64, 2, 16);
        let frame = ClaimedFrame {
            at: 64,
            span: 32,
            fate: ClaimState::Message { len: 16, digest: 0 },
            round: Some(3),
            number: 0,
            kind: Kind::Message,
            held: false,
        };
        let mut copy = Copy(vec![0; 256]);
        let held = |copy: &Copy| held(copy, Rank(1), SubgroupId(0), Rank(0), &ring, &frame, &[7; 16]);
        assert_eq!(held(&copy).unwrap_err().number, 9);
        let header = Header { kind: Kind::Message, span: 32, len: 16 };
        copy.0[64..72].copy_from_slice(&header.encode().to_le_bytes());
        assert!(held(&copy).is_err(), "no round");
        copy.0[72] = 3;
        assert!(held(&copy).is_err(), "no payload");
        copy.0[80..96].fill(7);
        assert_eq!(held(&copy), Ok(()));
        copy.0[95] = 8;
        assert!(held(&copy).is_err(), "one byte off");
    }
}
