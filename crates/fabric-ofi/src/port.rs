//! A process's own address in the network: an [`OfiPort`] listens, and an [`OfiMeeting`] connects a
//! member with its peers in one view.
use crate::address::OfiAddress;
use crate::error::OfiError;
use crate::hello::LinkPurpose;
use crate::info::Info;
use crate::limits::RECEIVES;
use crate::links::OfiLinks;
use crate::meeting::OfiMeeting;
use crate::network::OfiNetwork;
use crate::objects::Adapter;
use crate::provider::{self, OfiOptions, of as failed_at};
use spindle_core::Layout;
use spindle_fabric::OwnRow;
use std::sync::Arc;

/// A process's own address in the network, for all views that it takes part in. It lives as long as
/// the process or a meeting of it does. Peers find the process by this address.
#[derive(Debug)]
pub struct OfiPort(Arc<OfiNetwork>);

impl OfiPort {
    /// Opens the network that `options` ask for, with room for `links` connections at first, and
    /// listens.
    ///
    /// # Errors
    /// There is no libfabric, it has no such provider, or the provider lacks a capability or fails.
    pub fn open(options: &OfiOptions, links: u32) -> Result<OfiPort, OfiError> {
        OfiPort::of(provider::choose(options)?, links)
    }

    /// As [`open`](Self::open), for the chosen provider.
    pub(crate) fn of(info: Info, links: u32) -> Result<OfiPort, OfiError> {
        let (name, format) = (info.provider(), info.address_format());
        let each = provider::queue(&info) + RECEIVES;
        let adapter = Adapter::open(info).map_err(failed_at(&name))?;
        let listener = adapter.listen().map_err(failed_at(&name))?;
        provider::check_data(&name, listener.data_bytes_max())?;
        let bytes = listener.address().map_err(failed_at(&name))?;
        let Some(address) = OfiAddress::from_bytes(&[&format.to_le_bytes(), &bytes[..]].concat()) else {
            return Err(OfiError::Address { address: format!("{bytes:02x?} (format {format})"), provider: name });
        };
        if address.socket_address().is_some_and(|address| address.ip().is_unspecified()) || !address.is_of(format) {
            return Err(OfiError::Address { address: address.to_string(), provider: name });
        }
        Ok(OfiPort(OfiNetwork::new(adapter, listener, address, (links, each))?))
    }

    /// Returns the address at which it listens, for its peers.
    pub fn address(&self) -> &OfiAddress {
        self.0.address()
    }

    /// Returns the provider's name, and the domain's.
    pub fn provider(&self) -> (String, String) {
        (self.0.adapter().info().provider(), self.0.adapter().info().domain())
    }

    /// Begins to connect the member that owns `own` in one view. Peers do the same for a view of
    /// the same `purpose`.
    ///
    /// # Errors
    /// Memory can't be registered, or there are no descriptors left.
    ///
    /// # Panics
    /// If `own` was made for another layout.
    pub fn meet(&self, layout: &Layout, own: &OwnRow, purpose: LinkPurpose) -> Result<OfiMeeting, OfiError> {
        let (me, row) = (own.me(), Arc::clone(own.region()));
        assert!(
            row.size() == layout.row(me).size && row.control() == layout.row(me).control,
            "the row is of this view"
        );
        let links = OfiLinks::begin(self.0.desk(purpose), layout, me, row)?;
        Ok(OfiMeeting::new(links, layout.clone(), me, purpose, own.mirror().clone()))
    }
}
