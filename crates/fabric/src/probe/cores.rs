//! The cores that the two processes of a probe run on.
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

use super::error::{ProbeError, system};

/// The cores that the two processes of a probe were pinned to.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Cores {
    /// The process may use two cores or more: the parent ran on the first of these, the child on
    /// the second.
    Two {
        /// The parent's core.
        parent: u32,
        /// The child's core.
        child: u32,
    },
    /// The process may use one core only: both ran there in turns, so every figure is one of the
    /// scheduler.
    One {
        /// The core.
        core: u32,
    },
}

impl Cores {
    /// Returns the first core of `allowed`, and the first that is not the same physical core if
    /// there is one.
    fn among(allowed: &CpuSet) -> Option<Cores> {
        let mut usable = (0..CpuSet::MAX_CPU).filter(|&core| allowed.is_set(core));
        let parent = usable.next()?;
        let rest: Vec<usize> = usable.collect();
        let other = rest.iter().find(|&&core| !siblings(parent, core)).or(rest.first());
        Some(match other {
            Some(&child) => Cores::Two { parent: parent as u32, child: child as u32 },
            None => Cores::One { core: parent as u32 },
        })
    }

    fn parent(self) -> u32 {
        match self {
            Cores::Two { parent, .. } => parent,
            Cores::One { core } => core,
        }
    }

    fn child(self) -> u32 {
        match self {
            Cores::Two { child, .. } => child,
            Cores::One { core } => core,
        }
    }

    /// Pins the calling thread to the child's core. Makes one system call and nothing else.
    pub(super) fn pin_child(self) -> rustix::io::Result<()> {
        sched_setaffinity(None, &only(self.child()))
    }
}

/// Returns true if two cores are hardware threads of one physical core; unknown counts as no.
fn siblings(a: usize, b: usize) -> bool {
    let id = |core: usize, what: &str| {
        std::fs::read_to_string(format!("/sys/devices/system/cpu/cpu{core}/topology/{what}")).ok()
    };
    let same = |what| id(a, what).is_some_and(|found| id(b, what) == Some(found));
    same("core_id") && same("physical_package_id")
}

fn only(core: u32) -> CpuSet {
    let mut set = CpuSet::new();
    set.set(core as usize);
    set
}

/// Keeps the calling thread on the parent's core until dropped, then restores the thread's mask.
#[derive(Debug)]
pub(super) struct Pin {
    pub(super) cores: Cores,
    before: CpuSet,
    /// An affinity mask is its thread's own: dropping this in another thread would restore the
    /// wrong one.
    _here: std::marker::PhantomData<*const ()>,
}

impl Pin {
    pub(super) fn parent() -> Result<Pin, ProbeError> {
        let before = sched_getaffinity(None).map_err(system("sched_getaffinity"))?;
        let cores = Cores::among(&before).ok_or(ProbeError::Argument {
            what: "the number of cores that this thread may use",
            got: 0,
            need: "at least 1",
        })?;
        sched_setaffinity(None, &only(cores.parent())).map_err(system("sched_setaffinity"))?;
        Ok(Pin { cores, before, _here: std::marker::PhantomData })
    }
}

impl Drop for Pin {
    fn drop(&mut self) {
        // The mask came from the kernel. If it is refused now (the cores went offline), the kernel
        // has chosen another.
        let _ = sched_setaffinity(None, &self.before);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_core_is_shared_and_two_differ() {
        assert_eq!(Cores::among(&only(3)), Some(Cores::One { core: 3 }));
        let mut two = only(1);
        two.set(1000);
        assert_eq!(Cores::among(&two), Some(Cores::Two { parent: 1, child: 1000 }));
        assert_eq!(Cores::among(&CpuSet::new()), None);
    }

    #[test]
    fn the_mask_is_restored() {
        let before = sched_getaffinity(None).expect("a mask");
        let pin = Pin::parent().expect("pinned");
        assert_eq!(sched_getaffinity(None).expect("a mask").count(), 1);
        drop(pin);
        assert_eq!(sched_getaffinity(None).expect("a mask"), before);
    }
}
