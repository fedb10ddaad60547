//! How links continue in the next view.
use super::OfiLinks;
use crate::channel::Channel;
use crate::error::OfiError;
use crate::hello::OfiHello;
use crate::link::OfiLink;
use spindle_core::{Rank, RowLayout, ViewId};
use spindle_fabric::CopyRegion;
use spindle_fabric::tcp::Down;
use std::sync::Arc;

impl OfiLinks {
    /// Ends the posts to `rank` in this view: later data belongs to `next`. Has no effect if it was
    /// called before, or if there is no connection that sends.
    pub(crate) fn turn(&mut self, rank: Rank, next: ViewId) {
        if let Some(link) = &mut self.links[rank.index()] {
            link.turn(next);
            self.send(rank);
        }
    }

    /// Takes the connections out that both sides have [turned](Self::turn) to `next`: all data of
    /// this view has arrived at both. A connection whose peer has turned to another view ends.
    pub(crate) fn take_turned(&mut self, next: ViewId) -> Vec<(Rank, Channel)> {
        let mut turned = vec![];
        for rank in (0..self.links.len() as u32).map(Rank) {
            let Some(link) = &mut self.links[rank.index()] else { continue };
            match link.their_turn() {
                Some(theirs) if theirs != next => {
                    self.ending += u32::from(link.end(Down::Astray { turned: theirs, next }, true));
                }
                Some(_) if link.has_turned(next) => {
                    let Some(link) = self.links[rank.index()].take() else { continue };
                    self.open -= 1;
                    turned.push((rank, link.into_channel()));
                }
                _ => {}
            }
        }
        turned
    }

    /// Lets a connection of the view before continue in this one, with `rank`. `greeting` is the
    /// first message sent over it, and the first message received has to be `expected`.
    ///
    /// # Errors
    /// Memory can't be registered. The connection is closed.
    pub(crate) fn adopt(
        &mut self,
        rank: Rank,
        mut channel: Channel,
        copy: Arc<CopyRegion>,
        theirs: &RowLayout,
        greet: impl FnOnce(&OfiLink) -> (OfiHello, OfiHello),
    ) -> Result<(), OfiError> {
        let held = channel.serve(&self.desk, rank);
        let mut link = self.over(rank, channel, copy, theirs)?;
        let (greeting, expected) = greet(&link);
        link.greet(greeting, expected);
        self.links[rank.index()] = Some(link);
        (self.open, self.untried) = (self.open + 1, true);
        for (slot, bytes) in held {
            self.heard(rank, slot, bytes);
        }
        Ok(())
    }

    /// Returns true if the owner of `theirs` and this member can use `channel` in this view.
    pub(crate) fn fits(&self, channel: &Channel, theirs: &RowLayout) -> bool {
        channel.fits(&self.mine, theirs)
    }

    /// Closes the connections of peers that have turned: they need nothing more of this view.
    /// Returns their ranks.
    pub(crate) fn drop_turned(&mut self) -> Vec<Rank> {
        let has_turned = |link: &Option<OfiLink>| link.as_ref().is_some_and(|link| link.their_turn().is_some());
        let ranks: Vec<Rank> =
            (0..).map(Rank).zip(&self.links).filter(|(_, link)| has_turned(link)).map(|of| of.0).collect();
        ranks.iter().for_each(|rank| self.forget(*rank));
        ranks
    }
}
