//! How a member leaves a view: its streams turn to the next view, or end.
use super::TcpLinks;
use crate::region::OwnRegion;
use crate::tcp::error::Down;
use crate::tcp::wire;
use spindle_core::{Rank, ViewId};
use spindle_transport::Connection;
use spindle_transport::stream::again;

impl TcpLinks {
    /// Ends the posts to `rank` in this view: later bytes on its stream belong to `next`. Does
    /// nothing if it was called before, or if no stream can send.
    pub(crate) fn turn(&mut self, rank: Rank, next: ViewId, row: &OwnRegion) {
        if let Some(link) = &mut self.links[rank.index()]
            && link.turn.is_none()
            && link.deaf.is_none()
        {
            link.turn = Some((wire::turn(next), 0));
            if !link.blocked {
                self.send(rank, row);
            }
        }
    }

    /// Takes the streams out that both sides have [turned](Self::turn) to `next`: all of this view
    /// has arrived at both. Streams whose peers have turned to another view are closed.
    pub(crate) fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Connection)> {
        let mut turned = vec![];
        for rank in (0..self.links.len() as u32).map(Rank) {
            let Some(link) = &self.links[rank.index()] else { continue };
            match link.inbox.turn() {
                Some(theirs) if theirs != next => self.close(rank, Down::Astray { turned: theirs, next }),
                Some(_) if link.has_turned(next) => {
                    let Some(link) = self.remove(rank) else { continue };
                    turned.push((rank, again(link.stream, link.inbox.ahead())));
                }
                _ => {}
            }
        }
        turned
    }

    /// Drops the streams whose peers have turned to the next view: these peers need nothing more of
    /// this one.
    pub(crate) fn drop_turned(&mut self) {
        for rank in (0..self.links.len() as u32).map(Rank) {
            if self.links[rank.index()].as_ref().is_some_and(|link| link.inbox.turn().is_some()) {
                drop(self.remove(rank));
            }
        }
    }

    /// Reports to all peers that nothing more comes.
    pub(crate) fn finish(&mut self) {
        for mut observer in std::mem::take(&mut self.observers).into_values() {
            observer.stream.finish();
        }
        for link in self.links.iter_mut().flatten() {
            link.stream.finish();
        }
        // A stream may have to send bytes for that.
        self.untried = true;
    }
}
