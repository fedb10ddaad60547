//! Ways for long data: to members of bulk groups, and to processes that get a state or objects.
use super::ways::{Rendezvous, Ways};
use super::{BulkLink, BulkWay, ControlPlane};
use crate::shared::lock;
use spindle_core::control::{ControlMessage, Purpose};
use spindle_core::{MemberId, ViewId};
use spindle_transport::Connection;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, channel};

impl ControlPlane {
    /// Takes the ways in bulk groups of `view` that other members have handed over.
    pub(crate) fn take_bulk_links(&mut self, view: ViewId) -> Vec<BulkLink> {
        let incarnation = self.incarnation();
        if let Ways::Local(board) = &self.ways
            && let Some(links) = lock(&board.bulk_links).get_mut(&self.me)
        {
            for (view, link) in links.drain(..) {
                self.bulk_links.keep(incarnation, incarnation, view, link);
            }
        }
        self.bulk_links.take(incarnation, view)
    }

    /// Hands a process of this machine the socket through which this member shares memory in a bulk
    /// group.
    pub(crate) fn send_bulk_link(&mut self, to: MemberId, view: ViewId, number: u64, socket: OwnedFd) {
        let (incarnation, from) = (self.incarnation(), self.me);
        match &mut self.ways {
            Ways::Local(board) => {
                let link = (view, BulkLink { number, from, way: BulkWay::Lend(socket) });
                board.leave(to, || lock(&board.bulk_links).entry(to).or_default().push(link));
            }
            Ways::Rendezvous(rendezvous) => {
                let message = ControlMessage::Bulk { incarnation, view, from, number };
                // If the outbox is full: a process that takes no control messages is suspected
                // soon.
                let _ = rendezvous.outbox.push(to, message, &[Arc::new(socket)]);
            }
        }
    }

    /// Dials the stream to a process on another host in a bulk group. The stream comes as those
    /// that others make. It has to be called until the stream is there.
    pub(crate) fn make_bulk_stream(&mut self, to: MemberId, view: ViewId, number: u64) {
        let incarnation = self.incarnation();
        let Some(address) = self.roster.book().and_then(|book| book.far(to)).cloned() else { return };
        if let Ways::Rendezvous(Rendezvous { net: Some(net), .. }) = &mut self.ways {
            net.dial_bulk(address, to, incarnation, view, number);
        }
    }

    /// Dials a stream to `to` for data of this process. The receiver yields the stream when it is
    /// connected.
    pub(crate) fn dial_for(&mut self, to: MemberId, purpose: Purpose) -> Receiver<Connection> {
        let (tell, told) = channel();
        if let Some(net) = self.net()
            && let Some(address) = self.roster.book().and_then(|book| book.far(to))
        {
            net.endpoint().dial(address, Some(to), purpose);
            self.senders.insert((to, purpose), tell);
        }
        told
    }
}

/// Returns whether a stream of this kind is dialled by the process that sends over it.
pub(super) fn is_sent(purpose: &Purpose) -> bool {
    matches!(purpose, Purpose::State { .. } | Purpose::Objects { .. } | Purpose::Records { .. })
}
