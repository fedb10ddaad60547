//! Certificates that are made for one test.
use super::Identity;
use crate::mail::tests::TempDir;
use rcgen::{BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, Issuer, KeyPair};
use rustls::pki_types::UnixTime;
use std::fs;
use std::path::PathBuf;
use std::time::Duration;

/// An authority, and a directory for what it signs.
pub(crate) struct Authority {
    temp: TempDir,
    issuer: Issuer<'static, KeyPair>,
}

impl Authority {
    pub(crate) fn new() -> Authority {
        let mut params = CertificateParams::new(vec![]).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let pem = params.self_signed(&key).unwrap().pem();
        let authority = Authority { temp: TempDir::new(), issuer: Issuer::new(params, key) };
        fs::write(authority.path("ca.pem"), pem).unwrap();
        authority
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.temp.path().join(name)
    }

    /// Signs a certificate, and stores it and its key in files of this name.
    pub(crate) fn sign(&self, name: &str, change: impl FnOnce(&mut CertificateParams)) -> (PathBuf, PathBuf) {
        let mut params = CertificateParams::new(vec!["a-name-that-nobody-has".into()]).unwrap();
        params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ClientAuth, ExtendedKeyUsagePurpose::ServerAuth];
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        let files = (self.path(&format!("{name}.pem")), self.path(&format!("{name}.key")));
        fs::write(&files.0, params.signed_by(&key, &self.issuer).unwrap().pem()).unwrap();
        fs::write(&files.1, key.serialize_pem()).unwrap();
        files
    }

    pub(crate) fn load(&self, (certificate, key): &(PathBuf, PathBuf)) -> Identity {
        Identity::load(&self.path("ca.pem"), certificate, key).unwrap()
    }

    /// Loads the identity as a process whose clock says that it is this year.
    pub(crate) fn load_in(&self, year: u64, (certificate, key): &(PathBuf, PathBuf)) -> Identity {
        let now = UnixTime::since_unix_epoch(Duration::from_secs((year - 1970) * 31_557_600));
        Identity::load_at(&self.path("ca.pem"), certificate, key, now).unwrap()
    }

    /// Creates the identity of a new process.
    pub(crate) fn identity(&self) -> Identity {
        self.load(&self.sign("member", |_| {}))
    }
}
