//! The suite over meshes on one machine, and on machines with two members each.
use super::harness::{ConnectedGroup, counter};
use super::*;
use crate::arena::Arena;
use crate::fabric::Fabric;
use crate::member_event_count::MemberEventCount;
use crate::mesh::{Mesh, Peer};
use crate::shm::{OwnRow, RowDescriptors};
use spindle_core::wire::layout::membership;
use spindle_core::{Layout, Rank, Table};
use spindle_transport::{SocketOptions, SocketStream};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// All members on one machine.
struct Here;

impl Harness for Here {
    type Fabric = Mesh;

    fn connect(layout: &Layout) -> Vec<Mesh> {
        connect(layout, |_| 0, MemberEventCount::create)
    }

    fn settle(_: &mut [Mesh]) {}
}

crate::conformance_suite!(Here);

#[test]
fn a_quiet_post_wakes_no_peer() {
    let mut group = ConnectedGroup::<Here>::new(2);
    let [loud, quiet] = [counter(&group.layout, Rank(0)), membership::HEARTBEAT];
    group.fabric(1).begin_sleep();
    group.fabric(0).store(quiet, 1);
    group.fabric(0).post_quietly(&[Rank(1)], quiet..quiet + 8);
    assert!(!group.fabric(1).sleep(Duration::from_millis(1)));
    group.put(Rank(0), loud, 1);
    assert!(group.fabric(1).sleep(PATIENCE));
}

/// Two members on each machine.
mod mixed {
    use super::*;

    struct Mixed;

    impl Harness for Mixed {
        type Fabric = Mesh;

        fn connect(layout: &Layout) -> Vec<Mesh> {
            connect(layout, |rank| rank.0 / 2, MemberEventCount::with_event)
        }

        fn settle(fabrics: &mut [Mesh]) {
            crate::tcp::settle(fabrics);
        }
    }

    crate::conformance_suite!(Mixed);
}

/// Connects the members of a view, on the given machines.
fn connect(
    layout: &Layout,
    machine: impl Fn(Rank) -> u32,
    event_count: impl Fn() -> Result<MemberEventCount, crate::RegionError>,
) -> Vec<Mesh> {
    let ranks = || (0..layout.rows().len() as u32).map(Rank);
    let (rows, parts): (Vec<OwnRow>, Vec<RowDescriptors>) =
        ranks().map(|rank| OwnRow::create(layout, rank, &mut Arena::new(event_count().unwrap())).unwrap()).unzip();
    let mut peers: Vec<Vec<(Rank, Option<Peer>)>> = ranks().map(|_| vec![]).collect();
    for near in ranks() {
        for far in ranks().filter(|far| near.0 < far.0) {
            let ends = if machine(near) == machine(far) {
                [far, near].map(|rank| Peer::Here(parts[rank.index()].try_clone().unwrap()))
            } else {
                let sockets: [UnixStream; 2] = UnixStream::pair().unwrap().into();
                let stream = |socket| SocketStream::new(socket, &SocketOptions::default()).unwrap();
                sockets.map(|socket| Peer::There(Box::new(stream(socket))))
            };
            let [of_near, of_far] = ends;
            peers[near.index()].push((far, Some(of_near)));
            peers[far.index()].push((near, Some(of_far)));
        }
    }
    let meshes = rows.into_iter().zip(peers).map(|(own, peers)| Mesh::new(layout, own, peers).unwrap());
    let mut meshes: Vec<Mesh> = meshes.collect();
    // Initial messages of the streams would end a sleep.
    crate::tcp::settle(&mut meshes);
    meshes
}

/// A case that is in no suite would never run.
#[test]
fn every_case_is_in_the_suite() {
    let source = include_str!("../conformance.rs");
    let cases = [
        include_str!("rows.rs"),
        include_str!("sleeps.rs"),
        include_str!("threaded.rs"),
        include_str!("publishing.rs"),
        include_str!("publishing/threaded.rs"),
    ];
    let names = cases
        .into_iter()
        .flat_map(str::lines)
        .filter_map(|line| line.trim().strip_prefix("pub fn ")?.split_once("<H:"));
    let missing: Vec<&str> =
        names.map(|(name, _)| name).filter(|name| !source.lines().any(|line| line.trim() == *name)).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
