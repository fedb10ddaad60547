//! Connections between hosts that no outside process can read, forge or open: TLS 1.3, both sides
//! with a certificate.
//!
//! A group has its own certificate authority, which must sign no other certificates: each makes its
//! holder a process of the group. Host names are not compared, because members are reached at
//! addresses that were unknown when the certificate was made. [`IdentityRule`] says whether the names bind
//! the holder to an id. [`IdentityRule::Any`] does not protect members from each other. A certificate can't
//! be revoked. It can be valid for only a short time, because the files are read again when they
//! change.
//!
//! [`Identity`] is what a process shows and verifies; it reads its files again when they change
//! (`files.rs`). [`TlsStream`] is a connection with it.
mod authority;
mod error;
mod files;
mod identity;
mod loaded;
mod stream;

pub(super) use error::is_fault;
pub use error::{TlsError, TlsWarning};
pub use identity::{Identity, IdentityRule};
pub use stream::TlsStream;
