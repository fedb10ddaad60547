//! Means of tests, also of tests of other crates: directories, forked children, and certificates
//! that are made for one test.
use crate::net::Identity;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustix::process::{Pid, WaitOptions, waitpid};
use rustls::pki_types::UnixTime;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

/// The time that a test waits for an event that must happen.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// The status of a forked child that has returned.
pub const DONE: i32 = 7;

/// A directory for one test.
pub struct TempDir(PathBuf);

impl TempDir {
    /// Creates the directory, which only its user can enter.
    ///
    /// # Panics
    /// If the system refuses.
    #[expect(clippy::new_without_default, reason = "each one is another directory")]
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("rendezvous-{}-{n}", std::process::id()));
        std::os::unix::fs::DirBuilderExt::mode(&mut std::fs::DirBuilder::new(), 0o700).create(&path).unwrap();
        Self(path)
    }

    /// Returns its path.
    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// An authority, and a directory for what it signs.
pub struct Authority {
    temp: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    /// Creates an authority with a new key.
    ///
    /// # Panics
    /// If the system refuses.
    #[expect(clippy::new_without_default, reason = "each one is another authority")]
    pub fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Authority { temp: TempDir::new(), issuer: Issuer::new(params, key) };
        fs::write(authority.path("ca.pem"), pem).unwrap();
        authority
    }

    /// Returns the path of a file in its directory.
    pub fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Signs a certificate, and stores it and its key in files of this name.
    pub fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["a-name-that-nobody-has".into()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let files = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&files.0, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    /// Loads the identity of a certificate that it has signed.
    ///
    /// # Panics
    /// If a file can't be used.
    pub fn load(&self, (certificate, key): &(PathBuf, PathBuf)) -> Identity {
        Identity::load(&self.path("ca.pem"), certificate, key).unwrap()
    }

    /// Loads the identity as a process whose clock says that it is this year.
    pub fn load_in(&self, year: u64, (certificate, key): &(PathBuf, PathBuf)) -> Identity {
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
        Identity::load_at(&self.path("ca.pem"), certificate, key, now).unwrap()
    }

    /// Creates the identity of a new process.
    pub fn identity(&self) -> Identity {
        self.load(&self.sign("member", |_| {}))
    }
}

/// Runs `child` in a forked process, which does nothing else. Returns its process id.
pub fn fork(child: impl FnOnce()) -> Pid {
    // SAFETY: the child only runs its caller's closure, which takes no lock that another thread
    // may hold, and then ends.
    match unsafe { libc::fork() } {
        0 => {
            child();
            // SAFETY: ends the child at once.
            unsafe { libc::_exit(DONE) }
        }
        pid => Pid::from_raw(pid).expect("a child"),
    }
}

/// As [`fork`], and waits for its end. Returns the status that it exits with, or `None` if a
/// signal has ended it.
pub fn forked(child: impl FnOnce()) -> Option<i32> {
    let ended = waitpid(Some(fork(child)), WaitOptions::empty()).unwrap();
    ended.and_then(|(_, status)| status.exit_status())
}
