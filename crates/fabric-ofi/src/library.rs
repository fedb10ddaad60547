//! The library itself, loaded at the first request and never unloaded: providers have threads of
//! their own.
use crate::error::OfiError;
use crate::ffi::{self, API_VERSION};
use std::sync::OnceLock;

/// Its name. Distributions' packages for running programs install it under this name.
const NAME: &str = "libfabric.so.1";

/// The functions that are looked up in it by name.
pub(crate) struct Library {
    pub(crate) get_info: ffi::GetInfo,
    pub(crate) free_info: ffi::FreeInfo,
    pub(crate) dup_info: ffi::DupInfo,
    pub(crate) fabric: ffi::OpenFabric,
    _library: libloading::Library,
}

impl std::fmt::Debug for Library {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Library").finish_non_exhaustive()
    }
}

/// The reason why there is no library, kept so that it can be reported more than once.
enum Lack {
    Library { reason: String },
    Symbol { version: u32, symbol: &'static str },
}

impl Library {
    /// Returns the library, which the first call loads.
    ///
    /// # Errors
    /// [`OfiError::NoLibrary`], [`OfiError::TooOld`].
    pub(crate) fn load() -> Result<&'static Library, OfiError> {
        static LOADED: OnceLock<Result<Library, Lack>> = OnceLock::new();
        match LOADED.get_or_init(|| Library::open(NAME)) {
            Ok(library) => Ok(library),
            Err(Lack::Library { reason }) => Err(OfiError::NoLibrary { reason: reason.clone() }),
            Err(Lack::Symbol { version, symbol }) => {
                Err(OfiError::TooOld { major: version >> 16, minor: version & 0xffff, symbol })
            }
        }
    }

    fn open(name: &str) -> Result<Library, Lack> {
        let signals = SavedSignals::note();
        // SAFETY: on loading, libfabric and the libraries that it loads only initialise their own
        // variables, and change the actions that `SavedSignals` restores.
        let library = unsafe { libloading::Library::new(name) };
        drop(signals);
        let library = library.map_err(|error| {
            // The loader's own message is in the source of the crate's error.
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            Lack::Library { reason: cause.unwrap_or(error.to_string()) }
        })?;
        // SAFETY: it has had this type since its first version.
        let version = unsafe { symbol::<ffi::FabricVersion>(&library, "fi_version", 0) }?;
        // SAFETY: it takes no arguments and may be called at any time.
        let version = unsafe { version() };
        if version < API_VERSION {
            return Err(Lack::Symbol { version, symbol: "its present interface" });
        }
        Ok(Library {
            // SAFETY: the type is that of the header, for all versions from 1.9 on.
            get_info: unsafe { symbol(&library, "fi_getinfo", version) }?,
            // SAFETY: as above.
            free_info: unsafe { symbol(&library, "fi_freeinfo", version) }?,
            // SAFETY: as above.
            dup_info: unsafe { symbol(&library, "fi_dupinfo", version) }?,
            // SAFETY: as above.
            fabric: unsafe { symbol(&library, "fi_fabric", version) }?,
            _library: library,
        })
    }
}

/// The signal actions of this process, restored when this is dropped. Debian's libfabric loads a
/// library for old InfiniPath cards. That library takes over the signals of crashes and those that
/// ask a process to end, and writes files when they come.
struct SavedSignals([(libc::c_int, libc::sigaction); 6]);

impl SavedSignals {
    const ALL: [libc::c_int; 6] =
        [libc::SIGSEGV, libc::SIGBUS, libc::SIGILL, libc::SIGABRT, libc::SIGINT, libc::SIGTERM];

    fn note() -> SavedSignals {
        SavedSignals(Self::ALL.map(|signal| {
            // SAFETY: all zeros are a valid action, the default one.
            let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
            // SAFETY: it only reads the present action.
            unsafe { libc::sigaction(signal, std::ptr::null(), &raw mut action) };
            (signal, action)
        }))
    }
}

impl Drop for SavedSignals {
    fn drop(&mut self) {
        for (signal, action) in &self.0 {
            // SAFETY: it was the action before, set by valid code.
            unsafe { libc::sigaction(*signal, action, std::ptr::null_mut()) };
        }
    }
}

/// Looks up a function of the library.
///
/// # Safety
/// `T` is the type of the function `name`, and it is not called after the library is unloaded.
unsafe fn symbol<T: Copy>(library: &libloading::Library, name: &'static str, version: u32) -> Result<T, Lack> {
    // SAFETY: by this function's contract.
    let symbol = unsafe { library.get::<T>(name) };
    symbol.map(|symbol| *symbol).map_err(|_| Lack::Symbol { version, symbol: name })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_library_that_is_not_there_is_told() {
        let Err(Lack::Library { reason }) = Library::open("libspindle-has-no-such.so.1") else { panic!("it is there") };
        assert!(reason.contains("libspindle-has-no-such"), "{reason}");
        let error = OfiError::NoLibrary { reason };
        assert!(error.to_string().contains("apt-get install libfabric1"), "{error}");
    }

    /// In a process of its own, which has not loaded it before.
    #[test]
    fn signals_are_taken_as_before() {
        const ALONE: &str = "SPINDLE_OFI_TEST_SIGNALS";
        if std::env::var_os(ALONE).is_none() {
            let alone = std::process::Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "library::tests::signals_are_taken_as_before"])
                .env(ALONE, "1")
                .output()
                .unwrap();
            return assert!(alone.status.success(), "{}", String::from_utf8_lossy(&alone.stdout));
        }
        let handlers = || SavedSignals::note().0.map(|(_, action)| action.sa_sigaction);
        let before = handlers();
        if let Err(error) = crate::available() {
            return println!("skipped: {error}");
        }
        assert_eq!(handlers(), before);
    }

    #[test]
    fn a_library_that_is_another_is_told() {
        let Err(Lack::Symbol { symbol: "fi_version", version: 0 }) = Library::open("libc.so.6") else {
            panic!("libc is no libfabric")
        };
    }
}
