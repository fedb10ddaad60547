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
