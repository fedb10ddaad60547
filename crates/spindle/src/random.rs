//! Random ids and words of a process, from the kernel.
use crate::error::JoinError;
use rustix::rand::{GetRandomFlags, getrandom};
use spindle_core::MemberId;
use spindle_core::ids::CLIENT_IDS_FROM;

/// Returns a random id. In all likelihood no other process takes it; no process exists that could
/// assign one.
pub(crate) fn random_id() -> Result<MemberId, JoinError> {
    Ok(MemberId((random_word()? % CLIENT_IDS_FROM).max(1)))
}

/// Returns a random word.
pub(crate) fn random_word() -> Result<u64, JoinError> {
    let mut bytes = [0; 8];
    getrandom(&mut bytes, GetRandomFlags::empty()).map_err(|errno| JoinError::Host(errno.into()))?;
    Ok(u64::from_le_bytes(bytes))
}
