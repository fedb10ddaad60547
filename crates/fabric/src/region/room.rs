//! The memory that this process may still use, and reserving it.
use super::error::RegionError;
use rustix::fs::FallocateFlags;
use std::fs::read_to_string;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Alignment of memory on the heap: that of a page.
pub(super) const HEAP_ALIGN: usize = 4096;
/// Bytes reserved by one call: a signal interrupts and undoes only that much.
const RESERVE_STEP_BYTES: u64 = 64 << 20;

/// Allocates every page of the file. A memfd without its pages takes them at first touch, and the
/// kernel kills the process that touches them if none are left.
pub(super) fn reserve(fd: &OwnedFd, range: Range<u64>) -> rustix::io::Result<()> {
    let mut at = range.start;
    while at < range.end {
        let step = RESERVE_STEP_BYTES.min(range.end - at);
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(fd, FallocateFlags::empty(), at, step))?;
        at += step;
    }
    Ok(())
}

/// Refuses memory that is not available, before trying.
///
/// Beyond a file size limit the kernel answers with a fatal signal, and beyond the available memory
/// with the out-of-memory killer (a memfd is not bounded by the size of /dev/shm).
///
/// # Errors
/// [`RegionError::TooLong`] and [`RegionError::NoMemory`], for `name`.
pub fn check_room(name: &str, len: u64) -> Result<(), RegionError> {
    check_limit(name, len)?;
    match available_bytes() {
        Some(available) if len > available => {
            Err(RegionError::NoMemory { name: name.to_string(), bytes: len, available })
        }
        _ => Ok(()),
    }
}

/// Refuses files that exceed this process's file size limit.
pub(super) fn check_limit(name: &str, len: u64) -> Result<(), RegionError> {
    let limit = match cfg!(miri) {
        // Miri has neither limits nor a kernel to ask.
        true => isize::MAX as u64,
        false => rustix::process::getrlimit(rustix::process::Resource::Fsize).current.unwrap_or(u64::MAX),
    };
    let limit = limit.min(isize::MAX as u64);
    if len == 0 || len > limit {
        return Err(RegionError::TooLong { name: name.to_string(), bytes: len, limit });
    }
    Ok(())
}

/// Returns the bytes of a page, at which mappings begin.
pub(crate) fn page_bytes() -> u64 {
    if cfg!(miri) { HEAP_ALIGN as u64 } else { rustix::param::page_size() as u64 }
}

/// Returns the bytes of memory that this process could still get; `None` if the kernel does not
/// report it.
pub fn available_bytes() -> Option<u64> {
    if cfg!(miri) {
        return None;
    }
    let machine = field(&read_to_string("/proc/meminfo").ok()?, "MemAvailable:")? * 1024;
    Some(machine.min(cgroup_bytes().unwrap_or(u64::MAX)))
}

/// Returns the bytes that the memory limits of this process's control groups (version 2) leave:
/// page cache of files counts as free.
fn cgroup_bytes() -> Option<u64> {
    let groups = read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let left = |group: &Path| {
        let dir = Path::new("/sys/fs/cgroup").join(group);
        let number = |file: &str| read_to_string(dir.join(file)).ok()?.trim().parse::<u64>().ok();
        let (max, current) = (number("memory.max")?, number("memory.current")?);
        let stat = read_to_string(dir.join("memory.stat")).ok()?;
        let cache = field(&stat, "active_file")? + field(&stat, "inactive_file")?;
        Some(max.saturating_sub(current.saturating_sub(cache)))
    };
    Path::new(path).ancestors().filter_map(left).min()
}

/// Returns the number behind `key` in lines of `key number …`.
fn field(text: &str, key: &str) -> Option<u64> {
    let mut words =
        text.lines().map(str::split_whitespace).find_map(|mut words| (words.next()? == key).then_some(words))?;
    words.next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_found_in_the_kernels_tables() {
        assert_eq!(field("a 1\nbb: 22 kB\n", "bb:"), Some(22));
        assert_eq!(field("a 1\n", "bb:"), None);
        assert_eq!(field("bb: x\n", "bb:"), None);
    }
}
