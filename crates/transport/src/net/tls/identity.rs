//! The identity of a process: its certificate, and the rule by which it admits peers.
use super::error::{TlsError, TlsWarning};
use super::files::Files;
use super::loaded::Loaded;
use crate::net::names::name_of;
use crate::stream::Certificate;
use rustls::pki_types::UnixTime;
use spindle_core::MemberId;
use std::fmt;
use std::path::Path;
use std::sync::Arc;

/// The certificate of a process, its key, and the authority by which it verifies peers. Clones
/// share the files, which are [read again](Self::take_warnings) when they change.
#[derive(Clone)]
pub struct Identity {
    files: Arc<Files>,
    rule: IdentityRule,
}

/// The meaning of a certificate for its holder.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub enum IdentityRule {
    /// The certificate shows that the holder belongs to the group. The holder can be any member,
    /// and give any order.
    #[default]
    Any,
    /// The certificate shows which members the holder can be, by its DNS names (SAN):
    /// `spindle-member-7` is member 7. A process that is no member, such as one that evicts or
    /// observes, needs `spindle-admin`.
    Names,
}

impl Identity {
    /// Loads an identity from PEM files: the certificates of the authority, that of this process
    /// with those between, and its key.
    ///
    /// Dates are checked here, and by the other side each time that a connection is made.
    ///
    /// # Errors
    /// The first file that can't be used.
    pub fn load(authority: &Path, certificate: &Path, key: &Path) -> Result<Identity, TlsError> {
        Identity::load_at(authority, certificate, key, UnixTime::now())
    }

    /// Loads an identity as a process whose clock says that it is `now`.
    pub(crate) fn load_at(
        authority: &Path,
        certificate: &Path,
        key: &Path,
        now: UnixTime,
    ) -> Result<Identity, TlsError> {
        let files = Arc::new(Files::load(authority, certificate, key, now)?);
        Ok(Identity { files, rule: IdentityRule::default() })
    }

    /// Sets the rule, which must be the same in all processes of a group.
    pub fn with_rule(self, rule: IdentityRule) -> Identity {
        Identity { rule, ..self }
    }

    /// Returns the rule for certificates.
    pub fn rule(&self) -> IdentityRule {
        self.rule
    }

    /// Looks at the files if the last look is at least a second old, and at the dates once a day.
    /// Returns the warnings for an operator since the last call: files that changed and can't be
    /// used, and an expiry within a week. The files are looked at for each connection, too.
    pub fn take_warnings(&self) -> Vec<TlsWarning> {
        self.files.take_warnings()
    }

    /// Returns whether its own certificate is valid for this id.
    pub(in crate::net) fn is_of(&self, id: MemberId) -> bool {
        self.admits(id, self.current().mine.cert.first().cloned().map(|first| Certificate(first[..].into())).as_ref())
    }

    /// Returns whether a peer that shows this certificate may have this id.
    pub(in crate::net) fn admits(&self, id: MemberId, peer: Option<&Certificate>) -> bool {
        match self.rule {
            IdentityRule::Any => true,
            IdentityRule::Names => peer.is_some_and(|peer| peer.has_name(&name_of(id))),
        }
    }

    /// Returns the contents of its files.
    pub(super) fn current(&self) -> Arc<Loaded> {
        self.files.current()
    }

    /// Returns its files.
    #[cfg(test)]
    pub(super) fn files(&self) -> &Files {
        &self.files
    }

    /// Returns an identity that dials without showing a certificate.
    #[cfg(test)]
    pub(in crate::net) fn without_certificate(self) -> Identity {
        self.files.replace(Loaded::without_certificate);
        self
    }
}

impl fmt::Debug for Identity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Identity").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
