//! The files of an identity: they are looked at for each connection, and read again when they have
//! changed. Files that can't be used leave the contents that were loaded before in use.
use super::error::{TlsError, TlsWarning, date};
use super::loaded::Loaded;
use crate::net::TARGET;
use rustls::CertificateError::ExpiredContext;
use rustls::pki_types::UnixTime;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tracing::{info, warn};

/// The files, and their contents.
pub(super) struct Files {
    authority: PathBuf,
    certificate: PathBuf,
    key: PathBuf,
    state: Mutex<FilesState>,
}

struct FilesState {
    loaded: Arc<Loaded>,
    /// The state of the files that were loaded.
    stamps: Stamps,
    looked_at: Instant,
    /// The time since which the files have been different and unusable, and whether a warning of
    /// that was given.
    useless_since: Option<(Instant, bool)>,
    expiry_looked_at: Option<Instant>,
    warnings: Vec<TlsWarning>,
}

/// The stamp of each file: device, inode, length, and the time of the last change in seconds and
/// nanoseconds. `None`: it does not exist.
type Stamps = [Option<(u64, u64, u64, i64, i64)>; 3];

/// The shortest time between two looks at the files.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long files may be unusable before a warning. Files that are replaced one by one do not match
/// for a moment.
const USELESS_FOR: Duration = Duration::from_secs(5);
/// The time between two looks at the date of expiry.
const EXPIRY_LOOK_EVERY: Duration = Duration::from_secs(24 * 3600);
/// The time before its expiry from which on a certificate causes a warning.
const EXPIRES_WITHIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Warnings that are kept until they are taken.
const WARNINGS_MAX: usize = 16;

fn stamp(path: &PathBuf) -> Option<(u64, u64, u64, i64, i64)> {
    let found = std::fs::metadata(path).ok()?;
    Some((found.dev(), found.ino(), found.len(), found.mtime(), found.mtime_nsec()))
}

impl Files {
    /// Loads the files at the time `now`.
    pub(super) fn load(authority: &Path, certificate: &Path, key: &Path, now: UnixTime) -> Result<Files, TlsError> {
        // So that the files are found if the process changes its directory.
        let absolute = |path: &Path| std::path::absolute(path).unwrap_or_else(|_| path.into());
        let paths = [absolute(authority), absolute(certificate), absolute(key)];
        let stamps = paths.each_ref().map(stamp);
        let loaded = Arc::new(Loaded::read(authority, certificate, key, now)?);
        let state = FilesState {
            loaded,
            stamps,
            looked_at: Instant::now(),
            useless_since: None,
            expiry_looked_at: None,
            warnings: vec![],
        };
        let [authority, certificate, key] = paths;
        Ok(Files { authority, certificate, key, state: Mutex::new(state) })
    }

    /// Looks at the files, and returns the warnings since the last call.
    pub(super) fn take_warnings(&self) -> Vec<TlsWarning> {
        let mut state = self.lock();
        self.look(&mut state, Instant::now(), UnixTime::now());
        std::mem::take(&mut state.warnings)
    }

    /// Looks at the files, and returns their contents.
    pub(super) fn current(&self) -> Arc<Loaded> {
        let mut state = self.lock();
        self.look(&mut state, Instant::now(), UnixTime::now());
        Arc::clone(&state.loaded)
    }

    /// Replaces the loaded contents until the files change.
    #[cfg(test)]
    pub(super) fn replace(&self, other: impl FnOnce(&Loaded) -> Loaded) {
        let mut state = self.lock();
        state.loaded = Arc::new(other(&state.loaded));
    }

    fn lock(&self) -> MutexGuard<'_, FilesState> {
        // No code here panics halfway.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, state: &mut FilesState, now: Instant, time: UnixTime) {
        if now.saturating_duration_since(state.looked_at) >= LOOK_EVERY {
            state.looked_at = now;
            self.reload(state, now, time);
        }
        let is_due = |at: Instant| now.saturating_duration_since(at) >= EXPIRY_LOOK_EVERY;
        if state.expiry_looked_at.is_none_or(is_due) {
            state.expiry_looked_at = Some(now);
            let later = UnixTime::since_unix_epoch(Duration::from_secs(time.as_secs()) + EXPIRES_WITHIN);
            if let Err(rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. })) = state.loaded.check(later)
            {
                state.warn(TlsWarning::Expires { path: self.certificate.clone(), at: date(not_after) });
            }
        }
    }

    fn reload(&self, state: &mut FilesState, now: Instant, time: UnixTime) {
        let stamps = [&self.authority, &self.certificate, &self.key].map(stamp);
        if stamps == state.stamps {
            state.useless_since = None;
            return;
        }
        match Loaded::read(&self.authority, &self.certificate, &self.key, time) {
            Ok(loaded) => {
                (state.loaded, state.stamps) = (Arc::new(loaded), stamps);
                info!(target: TARGET, certificate = %self.certificate.display(), "certificate read again");
                (state.useless_since, state.expiry_looked_at) = (None, None);
            }
            Err(error) => {
                let (since, is_told) = state.useless_since.get_or_insert((now, false));
                if !*is_told && now.saturating_duration_since(*since) >= USELESS_FOR {
                    *is_told = true;
                    state.warn(TlsWarning::Unusable(error));
                }
            }
        }
    }
}

impl FilesState {
    fn warn(&mut self, warning: TlsWarning) {
        warn!(target: TARGET, reason = %warning, "certificate");
        if self.warnings.len() == WARNINGS_MAX {
            self.warnings.remove(0);
        }
        self.warnings.push(warning);
    }
}

#[cfg(test)]
mod tests;
