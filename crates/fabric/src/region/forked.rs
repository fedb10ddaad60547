//! Rows and forked children: no child writes into the row of its parent.
use super::{OwnRegion, PeerRegion};
use spindle_transport::testing::{DONE, forked};

const BYTES: u64 = 8192;

#[test]
fn a_child_writes_into_no_row_and_lives() {
    let (own, fd) = OwnRegion::create("row", BYTES, 64).unwrap();
    let peer = PeerRegion::open("row", &fd, BYTES).unwrap();
    own.store(0, 5);
    assert_eq!(forked(|| own.store(0, 99)), Some(DONE));
    assert_eq!((own.load(0), peer.load(0)), (5, 5));
    own.store(0, 6);
    assert_eq!(peer.load(0), 6, "the parent writes on");
}

#[test]
fn a_row_that_is_gone_is_not_replaced() {
    let (own, _) = OwnRegion::create("row", BYTES, 64).unwrap();
    drop(own);
    let (other, fd) = OwnRegion::create("other", BYTES, 64).unwrap();
    let peer = PeerRegion::open("other", &fd, BYTES).unwrap();
    assert_eq!(forked(|| other.store(8, 99)), Some(DONE));
    assert_eq!(peer.load(8), 0);
}
