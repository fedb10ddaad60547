//! The names that certificates give to members. They appear in errors, with or without TLS.
use spindle_core::MemberId;
use spindle_core::ids::CLIENT_IDS_FROM;

/// Returns the name that the certificate of a process with this id contains.
pub(super) fn name_of(id: MemberId) -> String {
    match id.0 {
        CLIENT_IDS_FROM.. => "spindle-admin".into(),
        id => format!("spindle-member-{id}"),
    }
}
