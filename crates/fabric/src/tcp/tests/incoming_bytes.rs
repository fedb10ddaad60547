//! Tests of bytes that arrive from a peer: garbage, parts of frames, and frames of any size.
use super::*;

/// A stream that was handed over has read ahead, and its socket has nothing more.
#[test]
fn bytes_that_a_stream_read_before_it_had_an_owner_arrive() {
    let layout = layout(4);
    let mut far_ends = vec![];
    let streams = [1, 2, 3].map(|rank| {
        let [near, far] = unix_pair();
        let mut near = Copying::new(near);
        near.incoming.extend_from_slice(&hello(&[0]));
        near.incoming.extend_from_slice(&head(COUNT, 8));
        near.incoming.extend_from_slice(&u64::from(rank).to_le_bytes());
        far_ends.push(far);
        (Rank(rank), Box::new(near) as Connection)
    });
    let mut fabric = mesh(&layout, Rank(0), streams);
    let start = Instant::now();
    while (1..4).any(|rank| fabric.load(Rank(rank), COUNT) != u64::from(rank)) {
        fabric.progress();
        assert!(start.elapsed() < PATIENCE, "it waits for the descriptor, which has nothing to tell");
    }
}

/// Garbage costs its sender only the connection.
#[test]
fn garbage_ends_the_connection_of_its_sender() {
    let sizes = layout(2);
    let (control, size) = (sizes.row(Rank(1)).control, sizes.row(Rank(1)).size);
    let far = (1 << 35) - 8;
    let cases =
        [(0, 0), (size, 8), (size - 8, 16), (control - 8, 16), (0, control + 8), (far, 8), (64, far), (far, far)];
    for (at, len) in cases {
        let (_, mut fabric, mut stranger) = with_stranger();
        stranger.write_all(&head(COUNT, 8)).unwrap();
        stranger.write_all(&5u64.to_le_bytes()).unwrap();
        stranger.write_all(&head(at, len)).unwrap();
        // It may be cut off by now.
        let _ = stranger.write_all(&[0xff; 20_000]);
        let (rank, why) = down(&mut fabric);
        assert!(matches!(why, Down::Garbage { at: a, len: l, .. } if (a, l) == (at, len)), "{why}");
        assert_eq!(rank, Rank(1));
        assert!(!fabric.is_connected(Rank(1)) && fabric.next_down().is_none());
        // Only the bytes that came before it count.
        let seen = (0..size).step_by(8).filter(|at| fabric.load(Rank(1), *at) != 0);
        assert_eq!(seen.collect::<Vec<_>>(), [COUNT]);
        fabric.post(&[Rank(1)], COUNT..COUNT + 8);
        assert!(fabric.is_flushed());
    }
}

/// Random bytes: whatever they mean, they stay inside the row, and the end of a connection is
/// reported.
#[test]
fn noise_leads_nowhere() {
    for seed in 0..200u64 {
        let mut random = TestRandom(seed);
        let (_, mut fabric, mut stranger) = with_stranger();
        stranger.set_nonblocking(true).unwrap();
        for _ in 0..200 {
            let bytes: Vec<u8> =
                (0..random.below(60)).map(|_| (random.below(256) >> (random.below(2) * 8)) as u8).collect();
            let _ = stranger.write(&bytes);
            fabric.progress();
        }
        drop(stranger);
        let (rank, why) = down(&mut fabric);
        assert_eq!(rank, Rank(1), "seed {seed}: {why}");
    }
}

/// A small frame, and one of control words, is seen only when it is complete.
#[test]
fn half_a_frame_is_not_seen() {
    let (layout, mut fabric, mut stranger) = with_stranger();
    let ring = ring(&layout);
    for (at, words) in [(COUNT, 3), (ring.start, 2), (ring.start + 64, 512)] {
        let mut bytes = head(at, words * 8).to_vec();
        (1..=words).for_each(|word| bytes.extend_from_slice(&word.to_le_bytes()));
        let (last, most) = bytes.split_last().unwrap();
        for part in most.chunks(if words > 100 { 1000 } else { 1 }) {
            stranger.write_all(part).unwrap();
            fabric.progress();
            assert!((0..words).all(|word| fabric.load(Rank(1), at + word * 8) == 0));
        }
        stranger.write_all(&[*last]).unwrap();
        progress_until(&mut fabric, "the last byte", |fabric| fabric.load(Rank(1), at) == 1);
        assert!((0..words).all(|word| fabric.load(Rank(1), at + word * 8) == word + 1));
    }
}

/// A large frame arrives in its place, in pieces of any size, and later data arrives after it.
#[test]
fn large_frames_arrive_in_pieces_of_any_size() {
    let (layout, mut fabric, mut stranger) = with_stranger();
    let ring = ring(&layout);
    for seed in 0..50u64 {
        let mut random = TestRandom(seed);
        let mut bytes = vec![];
        for i in 1..=3 {
            let len = 8 * (1 + random.below((ring.end - ring.start) / 8));
            bytes.extend_from_slice(&head(ring.start, len));
            bytes.extend((0..len).map(|at| (at * 31 + seed + i) as u8));
            bytes.extend_from_slice(&head(COUNT, 8));
            let count = seed * 3 + i;
            bytes.extend_from_slice(&count.to_le_bytes());
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(1 + random.below(9000) as usize));
                stranger.write_all(piece).unwrap();
                rest = behind;
                fabric.progress();
                if fabric.load(Rank(1), COUNT) == count {
                    assert!(rest.is_empty(), "seed {seed}: announced before it was there");
                }
            }
            progress_until(&mut fabric, "the announcement", |fabric| fabric.load(Rank(1), COUNT) == count);
            let arrived = fabric.bytes(Rank(1), ring.start, len);
            assert!(arrived.iter().zip(0..).all(|(byte, at)| *byte == (at * 31 + seed + i) as u8), "seed {seed}");
            bytes.clear();
        }
    }
}

/// Wherever a peer's bytes end, the number of missing bytes is reported, and complete frames count.
#[test]
fn a_peer_that_ends_inside_a_frame_is_told() {
    let (layout, ..) = with_stranger();
    let ring = ring(&layout);
    let len = 8192;
    let mut bytes = head(COUNT, 8).to_vec();
    bytes.extend_from_slice(&9u64.to_le_bytes());
    bytes.extend_from_slice(&head(OTHER, 16));
    bytes.extend_from_slice(&[1; 16]);
    bytes.extend_from_slice(&head(ring.start, len));
    bytes.extend_from_slice(&vec![2; len as usize]);
    let whole = [0, 16, 40, bytes.len()];
    for cut in [0, 1, 7, 8, 9, 15, 16, 20, 24, 25, 39, 40, 41, 48, 49, 4000, bytes.len() - 1, bytes.len()] {
        let (_, mut fabric, mut stranger) = with_stranger();
        stranger.write_all(&bytes[..cut]).unwrap();
        drop(stranger);
        let (_, why) = down(&mut fabric);
        match why {
            Down::Closed => assert!(whole.contains(&cut), "{cut}"),
            Down::Broken { missing } => {
                let next = *whole.iter().find(|end| **end > cut).unwrap();
                let started = whole.iter().rfind(|end| **end < cut).unwrap();
                let known = if cut - started < 8 { started + 8 } else { next };
                assert_eq!(missing, (known - cut) as u64, "{cut}");
            }
            other => panic!("{other}"),
        }
        assert_eq!(fabric.load(Rank(1), COUNT), if cut >= 16 { 9 } else { 0 });
        assert_eq!(fabric.load(Rank(1), OTHER) != 0, cut >= 40);
    }
}
