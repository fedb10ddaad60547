//! Control messages to others: a queue for each address, and the connection on which it leaves.
use super::Switch;
use crate::net::TARGET;
use crate::net::error::NetError;
use crate::net::event::NetEvent;
use crate::net::post::{Post, PostState};
use spindle_core::control::{Address, Purpose};
use tracing::info;

impl Switch {
    pub(super) fn add_post(&mut self, address: Address) -> u64 {
        let id = self.id();
        self.posts_by_address.insert(address.clone(), id);
        self.posts.insert(id, Post::new(address));
        self.connect(id);
        id
    }

    /// Starts a connection attempt for control messages.
    pub(super) fn connect(&mut self, post: u64) {
        let Some(found) = self.posts.get_mut(&post) else { return };
        found.state = PostState::Trying;
        let address = found.address.clone();
        self.attempt(address, None, Purpose::Control, Some(post));
    }

    pub(super) fn give_up(&mut self, post: u64, why: NetError) {
        let Some(Post { address, .. }) = self.posts.remove(&post) else { return };
        info!(target: TARGET, me = self.me.card.id.0, %address, reason = %why, "control messages given up");
        self.posts_by_address.remove(&address);
        let dials: Vec<u64> =
            self.connecting.iter().filter(|(_, attempt)| attempt.post == Some(post)).map(|(id, _)| *id).collect();
        for id in dials {
            self.connecting.remove(&id);
            self.resolver.forget(id);
        }
        self.exchange.tell(NetEvent::Failed { address, purpose: Purpose::Control, why });
    }

    /// Continues to send control messages.
    pub(super) fn deliver(&mut self, id: u64) {
        let Some(post) = self.posts.get_mut(&id) else { return };
        if post.progress(&self.poller) {
            return;
        }
        let PostState::Up(_, with) = &post.state else { return };
        let (member, address, waiting) = (with.id.0, &post.address, post.has_messages());
        info!(target: TARGET, me = self.me.card.id.0, member, %address, waiting, "connection for control messages lost");
        self.exchange.tell(NetEvent::Lost { with: with.clone() });
        if waiting {
            post.disconnected(None);
        } else {
            let address = post.address.clone();
            self.posts.remove(&id);
            self.posts_by_address.remove(&address);
        }
    }

    pub(super) fn has_said_everything(&self) -> bool {
        self.posts.values().all(|post| post.is_flushed() || matches!(post.state, PostState::Pausing(_)))
    }
}
