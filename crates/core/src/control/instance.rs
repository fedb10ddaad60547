//! The identity of a process, apart from its member id.

/// A process, which differs from every other process with the same member id, earlier or at the same time.
///
/// Two hosts may assign the same pid, and so may two containers of one host.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum Instance {
    /// A process of this host, by its pid.
    Near(u32),
    /// A process of another host, by a random number that it drew at its start.
    Far(u128),
}

impl Instance {
    /// Returns the process with `pid` of this host, or the one on another host, by its host and its
    /// number there (`far`).
    pub(super) fn of(pid: u32, far: Option<(u128, u128)>) -> Instance {
        far.map_or(Instance::Near(pid), |(_, process)| Instance::Far(process))
    }
}
