//! The rows of a view for an observer: read-only, without a row of its own.
use super::Peer;
use crate::error::MeshError;
use crate::mirror::Mirror;
use crate::reader::{Reader, RowMemory};
use crate::region::{OwnRegion, VacantRegion};
use crate::tcp::{Down, TcpLinks};
use spindle_core::{Layout, Rank};
use std::sync::Arc;

/// The rows of a view for a process that is not a member of it. Rows of members on other machines
/// fill by [`progress`](Self::progress).
#[derive(Debug)]
pub struct Watched {
    rows: Reader,
    links: Option<TcpLinks>,
    /// An own row, to which nothing is posted.
    row: Arc<OwnRegion>,
}

impl Watched {
    /// Opens the rows of all members, in the order of the ranks, with zeros for those that never
    /// came. Copies are made in `mirror`.
    ///
    /// # Errors
    /// [`MeshError`].
    ///
    /// # Panics
    /// If there is not one entry for each member.
    pub fn new(layout: &Layout, peers: Vec<Option<Peer>>, mirror: &Mirror) -> Result<Watched, MeshError> {
        assert_eq!(peers.len(), layout.rows().len(), "one entry for each member");
        let (mut rows, mut streams) = (Vec::with_capacity(peers.len()), Vec::with_capacity(peers.len()));
        for (rank, peer) in (0..).map(Rank).zip(peers) {
            let size = layout.row(rank).size;
            let of = |source| MeshError::Region { rank, part: "row", source };
            let mut stream = None;
            rows.push(match peer {
                Some(Peer::Here(parts)) => RowMemory::Peer(Arc::new(parts.open_row(layout, rank)?)),
                Some(Peer::Shown(shown)) => RowMemory::Peer(Arc::new(shown.row)),
                Some(Peer::There(connection)) => {
                    let copy = mirror.copy(&format!("the copy of the row of member {rank}"), size).map_err(of)?;
                    stream = Some((connection, copy.clone()));
                    RowMemory::Copy(copy)
                }
                None => RowMemory::Vacant(VacantRegion::new("an absent member's row", size).map_err(of)?),
            });
            streams.push(stream);
        }
        mirror.trim();
        let of = |source| MeshError::Region { rank: Rank(0), part: "row", source };
        let row = Arc::new(OwnRegion::on_heap("nobody's row", 8, 8).map_err(of)?);
        let links = match streams.iter().any(Option::is_some) {
            true => {
                let os = |(call, source)| MeshError::Os { call, source };
                Some(TcpLinks::new(layout, None, None, streams).map_err(os)?)
            }
            false => None,
        };
        Ok(Watched { rows: Reader::of(rows), links, row })
    }

    /// Returns the rows.
    pub fn rows(&self) -> &Reader {
        &self.rows
    }

    /// Returns true if the rows show what the members had posted when they admitted this process as
    /// an observer, or later. Before that they are zeros.
    pub fn is_complete(&self) -> bool {
        self.links.as_ref().is_none_or(TcpLinks::has_all)
    }

    /// Takes in arrived data. Returns true if there was any.
    pub fn progress(&mut self) -> bool {
        self.links.as_mut().is_some_and(|links| links.progress(&self.row).1)
    }

    /// Returns a member from whose stream nothing more will arrive, and the reason. Each is
    /// reported once.
    pub fn next_down(&mut self) -> Option<(Rank, Down)> {
        self.links.as_mut()?.next_down()
    }
}
