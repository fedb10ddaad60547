//! Tests of the files of an identity: each mistake is reported with the file that has it.
use super::super::error::TlsError;
use super::*;
use crate::testing::Authority;
use rcgen::ExtendedKeyUsagePurpose;
use std::fs;
use std::path::PathBuf;

#[test]
fn files_that_will_not_do_are_named() {
    let authority = Authority::new();
    let ca = authority.path("ca.pem");
    let (cert, key) = authority.sign("good", |_| {});
    Identity::load(&ca, &cert, &key).unwrap();
    let load = |ca: &Path, cert: &Path, key: &Path| Identity::load(ca, cert, key).unwrap_err();
    let none = authority.path("none");
    for (why, wanted) in [
        (load(&none, &cert, &key), "authority's certificate"),
        (load(&ca, &none, &key), "certificate"),
        (load(&ca, &cert, &none), "key"),
    ] {
        assert!(matches!(&why, TlsError::Read { what, path, .. } if *what == wanted && *path == none), "{why}");
    }
    let (text, binary, broken) = (authority.path("text"), authority.path("binary"), authority.path("broken"));
    fs::write(&text, "not a certificate").unwrap();
    let noise: Vec<u8> = (0..1000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8).collect();
    fs::write(&binary, noise).unwrap();
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\n!!!!\n-----END CERTIFICATE-----\n").unwrap();
    for wrong in [&text, &binary, &broken] {
        for why in [load(wrong, &cert, &key), load(&ca, wrong, &key), load(&ca, &cert, wrong)] {
            assert!(matches!(&why, TlsError::NotPem { path, .. } if path == wrong), "{why}");
        }
    }
    // Each file in the place of another.
    assert!(matches!(load(&ca, &key, &key), TlsError::NotPem { what: "certificate", .. }));
    assert!(matches!(load(&ca, &cert, &cert), TlsError::NotPem { what: "key", .. }));
    fs::write(&broken, "-----BEGIN CERTIFICATE-----\naGVsbG8=\n-----END CERTIFICATE-----\n").unwrap();
    assert!(matches!(load(&broken, &cert, &key), TlsError::Authority { .. }));
    assert!(matches!(load(&ca, &broken, &key), TlsError::Certificate { .. }));
    fs::write(&broken, "-----BEGIN PRIVATE KEY-----\naGVsbG8=\n-----END PRIVATE KEY-----\n").unwrap();
    assert!(matches!(load(&ca, &cert, &broken), TlsError::Key { .. }));
    let (other, other_key) = authority.sign("other", |_| {});
    assert!(matches!(load(&ca, &cert, &other_key), TlsError::Mismatch { .. }));
    let elsewhere = Authority::new().path("ca.pem");
    assert!(matches!(load(&elsewhere, &other, &other_key), TlsError::Read { .. }));
    let foreign = Authority::new();
    let why = load(&foreign.path("ca.pem"), &cert, &key);
    assert!(matches!(&why, TlsError::Certificate { .. }), "{why}");
    for usage in [ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth] {
        let (cert, key) = authority.sign("half", |params| params.extended_key_usages = vec![usage]);
        assert!(matches!(load(&ca, &cert, &key), TlsError::Certificate { .. }));
    }
}

#[test]
fn an_expired_or_early_certificate_is_reported_with_its_dates() {
    let authority = Authority::new();
    let refused = |(cert, key): (PathBuf, PathBuf)| {
        let why = Identity::load(&authority.path("ca.pem"), &cert, &key).unwrap_err().to_string();
        assert!(why.contains(cert.to_str().unwrap()), "{why}");
        why
    };
    let old = authority.sign("old", |params| params.not_after = rcgen::date_time_ymd(2000, 2, 29));
    let why = refused(old);
    assert!(why.contains("expired at 2000-02-29 00:00:00 UTC"), "{why}");
    let early = authority.sign("early", |params| params.not_before = rcgen::date_time_ymd(4000, 12, 31));
    let why = refused(early);
    assert!(why.contains("valid from 4000-12-31 00:00:00 UTC on, and by this host's clock it is 2"), "{why}");
}

#[test]
fn a_certificate_of_version_1_is_called_so() {
    let authority = Authority::new();
    let (cert, key) = authority.sign("first", |_| {});
    // The 13th byte of the certificate, after two lengths of two bytes: a one-digit number, 2
    // for version 3.
    let mut lines: Vec<String> = fs::read_to_string(&cert).unwrap().lines().map(str::to_string).collect();
    assert!(lines[1][16..].starts_with("Ag"), "{}", lines[1]);
    lines[1].replace_range(16..18, "AA");
    fs::write(&cert, lines.join("\n")).unwrap();
    let why = Identity::load(&authority.path("ca.pem"), &cert, &key).unwrap_err();
    assert!(matches!(&why, TlsError::Certificate { why, .. } if why.contains("X.509 v1 certificate")), "{why}");
}
