//! The bytes of a sample, shared by all readers of a process.
use std::sync::Arc;

/// A serialised sample. Clones share the bytes.
pub(crate) type Payload = Arc<[u8]>;
