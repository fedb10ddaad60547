//! Why files are no identity, and why TLS rejects a connection.
use rustls::CertificateError::{self, ExpiredContext, NotValidYetContext};
use rustls::pki_types::UnixTime;
use std::io;
use std::path::PathBuf;

/// A problem with a process's own certificate that an operator should solve.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsWarning {
    /// The files have changed, and their new contents can't be used.
    #[error("the certificate that was loaded before stays in use: {0}")]
    Unusable(TlsError),
    /// The certificate expires soon.
    #[error("the certificate in {} expires at {at}; put a new one in its place, signed by the same authority", path.display())]
    Expires {
        /// The file.
        path: PathBuf,
        /// The time of expiry.
        at: String,
    },
}

/// The reason why files are no valid [`Identity`](super::Identity).
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TlsError {
    /// A file can't be read.
    #[error("can't read the {what} in {}: {source}", path.display())]
    Read {
        /// The expected contents.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
    /// A file does not contain what it should.
    #[error("{} holds no {what} in PEM form: {why}", path.display())]
    NotPem {
        /// The expected contents.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The authority's certificate can't be used.
    #[error("the authority's certificate in {} can't be used: {why}", path.display())]
    Authority {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The key can't be used.
    #[error("the key in {} can't be used: {why}; take one for ECDSA, Ed25519 or RSA", path.display())]
    Key {
        /// The file.
        path: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate can't be used, or not for both sides of a connection.
    #[error(
        "the certificate in {} can't be used with the authority in {}: {why}; it must be signed by that authority, and serve for \
         clients and servers",
        path.display(), authority.display()
    )]
    Certificate {
        /// The file.
        path: PathBuf,
        /// The authority's file.
        authority: PathBuf,
        /// The reason.
        why: String,
    },
    /// The certificate, or one between it and the authority's, has expired.
    #[error("the certificate in {} expired at {at}; make a new one, signed by the same authority", path.display())]
    Expired {
        /// The file.
        path: PathBuf,
        /// The time of expiry.
        at: String,
    },
    /// The certificate, or one between it and the authority's, is not valid yet.
    #[error("the certificate in {} is valid from {from} on, and by this host's clock it is {now}; set the clock, or wait", path.display())]
    NotValidYet {
        /// The file.
        path: PathBuf,
        /// The start of its validity.
        from: String,
        /// The current time.
        now: String,
    },
    /// The certificate is for another key.
    #[error("the key in {} is not that of the certificate in {}; name the two that were made together", key.display(), certificate.display())]
    Mismatch {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
}

/// The reason why TLS rejects a connection, inside an [`io::Error`].
#[derive(Debug, thiserror::Error)]
#[error("{}", in_words(.0))]
pub(super) struct TlsFault(pub(super) rustls::Error);

/// Returns rustls's text, except for dates: rustls counts the seconds up to now, so its text would
/// differ each time.
pub(super) fn in_words(error: &rustls::Error) -> String {
    match error {
        // The type that reports this is not rustls's own.
        rustls::Error::InvalidCertificate(CertificateError::Other(other))
            if format!("{other:?}").contains("UnsupportedCertVersion") =>
        {
            "it is an X.509 v1 certificate, which can't say what it is for; make one of version 3 (openssl x509 -req with -extfile)"
                .into()
        }
        rustls::Error::InvalidCertificate(ExpiredContext { not_after, .. }) => {
            format!("invalid peer certificate: it expired at {}", date(*not_after))
        }
        rustls::Error::InvalidCertificate(NotValidYetContext { not_before, .. }) => {
            format!("invalid peer certificate: it is valid from {} on", date(*not_before))
        }
        other => other.to_string(),
    }
}

/// Returns whether TLS, and not the system, rejects the connection.
pub(in crate::net) fn is_fault(error: &io::Error) -> bool {
    error.get_ref().is_some_and(|inner| inner.is::<TlsFault>())
}

/// Returns a time in a readable form.
pub(super) fn date(time: UnixTime) -> String {
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let (mut day, second) = (time.as_secs() / 86_400, time.as_secs() % 86_400);
    let mut year = 1970;
    // A certificate's date has four digits for its year.
    while day >= 365 + u64::from(is_leap(year)) {
        day -= 365 + u64::from(is_leap(year));
        year += 1;
    }
    let mut month = 1;
    for days in [31, 28 + u64::from(is_leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31] {
        if day < days {
            break;
        }
        day -= days;
        month += 1;
    }
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year}-{month:02}-{:02} {hour:02}:{minute:02}:{second:02} UTC", day + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_told_as_people_read_them() {
        let told = |seconds| date(UnixTime::since_unix_epoch(std::time::Duration::from_secs(seconds)));
        assert_eq!(told(0), "1970-01-01 00:00:00 UTC");
        assert_eq!(told(951_868_799), "2000-02-29 23:59:59 UTC");
        assert_eq!(told(951_868_800), "2000-03-01 00:00:00 UTC");
        assert_eq!(told(4_107_542_400), "2100-03-01 00:00:00 UTC");
        assert_eq!(told(253_402_300_799), "9999-12-31 23:59:59 UTC");
    }
}
