//! The capabilities of a provider, or a request for them: the library's description, with accessors
//! for the used fields.
use crate::error::{CallFailure, outcome};
use crate::ffi::*;
use crate::library::Library;
use libc::c_int;
use std::ffi::CStr;
use std::fmt;
use std::ptr::{self, NonNull};

/// A single description of capabilities, or of a request.
pub(crate) struct Info {
    raw: NonNull<FiInfo>,
    library: &'static Library,
}

// SAFETY: plain memory of the library, not shared.
unsafe impl Send for Info {}
// SAFETY: as above; nothing is changed through `&Info`.
unsafe impl Sync for Info {}

impl Drop for Info {
    fn drop(&mut self) {
        // SAFETY: the library made it, and no other code frees it.
        unsafe { (self.library.free_info)(self.raw.as_ptr()) };
    }
}

impl fmt::Debug for Info {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Info").field("provider", &self.provider()).field("domain", &self.domain()).finish()
    }
}

/// An accessor for a field of a request or an answer.
macro_rules! attribute {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $of:ident.$field:ident;)*) => {
        $($(#[$doc])*
        pub(crate) fn $name(&self) -> $ty {
            // SAFETY: the library makes all parts of an info, and they live as long as it does.
            unsafe { self.get().$of.as_ref() }.map_or(Default::default(), |part| part.$field)
        })*
    };
}

impl Info {
    /// Creates an empty description for a request.
    pub(crate) fn empty(library: &'static Library) -> Result<Info, CallFailure> {
        // SAFETY: without an original, the library makes an empty one.
        let raw = unsafe { (library.dup_info)(ptr::null()) };
        Info::of(library, raw)
    }

    /// Takes over a description that the library made.
    pub(crate) fn of(library: &'static Library, raw: *mut FiInfo) -> Result<Info, CallFailure> {
        let raw = NonNull::new(raw).ok_or(CallFailure { call: "fi_dupinfo", code: libc::ENOMEM })?;
        Ok(Info { raw, library })
    }

    pub(crate) fn try_clone(&self) -> Result<Info, CallFailure> {
        // SAFETY: the original is whole.
        let raw = unsafe { (self.library.dup_info)(self.raw.as_ptr()) };
        Info::of(self.library, raw)
    }

    attribute! {
        endpoint_kind: c_int = ep_attr.kind;
        message_bytes_max: usize = ep_attr.max_msg_size;
        send_queue: usize = tx_attr.size;
        receive_queue: usize = rx_attr.size;
        inject_bytes: usize = tx_attr.inject_size;
        order: u64 = tx_attr.msg_order;
        memory_mode: c_int = domain_attr.mr_mode;
        provider_version: u32 = fabric_attr.prov_version;
    }

    pub(crate) fn caps(&self) -> u64 {
        self.get().caps
    }

    pub(crate) fn address_format(&self) -> u32 {
        self.get().addr_format
    }

    pub(crate) fn has_source(&self) -> bool {
        !self.get().src_addr.is_null()
    }

    pub(crate) fn provider(&self) -> String {
        // SAFETY: the library makes all parts of an info, and they live as long as it does.
        string(unsafe { self.get().fabric_attr.as_ref() }.map_or(ptr::null_mut(), |part| part.prov_name))
    }

    pub(crate) fn domain(&self) -> String {
        // SAFETY: as above.
        string(unsafe { self.get().domain_attr.as_ref() }.map_or(ptr::null_mut(), |part| part.name))
    }

    pub(crate) fn library(&self) -> &'static Library {
        self.library
    }

    pub(crate) fn as_ptr(&self) -> *mut FiInfo {
        self.raw.as_ptr()
    }

    pub(crate) fn fabric_attributes(&self) -> *mut FabricAttr {
        self.get().fabric_attr
    }

    /// Returns the handle by which a request is refused.
    pub(crate) fn handle(&self) -> *mut Fid {
        self.get().handle
    }

    fn get(&self) -> &FiInfo {
        // SAFETY: the library made it, it lives as long as `self`, and is changed through
        // `&mut self` only.
        unsafe { self.raw.as_ref() }
    }

    /// Fills in the request for an endpoint.
    pub(crate) fn want(&mut self, wanted: &InfoQuery<'_>) -> Result<(), CallFailure> {
        // SAFETY: the info is whole, and only this code has it.
        let info = unsafe { self.raw.as_mut() };
        info.caps = wanted.caps;
        info.mode = wanted.mode;
        let none = CallFailure { call: "fi_allocinfo", code: libc::ENOMEM };
        // SAFETY: the library makes all parts of an info; likewise below.
        let endpoint = unsafe { info.ep_attr.as_mut() }.ok_or(none)?;
        // SAFETY: as above.
        let send = unsafe { info.tx_attr.as_mut() }.ok_or(none)?;
        // SAFETY: as above.
        let receive = unsafe { info.rx_attr.as_mut() }.ok_or(none)?;
        // SAFETY: as above.
        let domain = unsafe { info.domain_attr.as_mut() }.ok_or(none)?;
        // SAFETY: as above.
        let fabric = unsafe { info.fabric_attr.as_mut() }.ok_or(none)?;
        endpoint.kind = wanted.endpoint_kind;
        (send.msg_order, receive.msg_order) = (wanted.order, wanted.order);
        (send.size, receive.size) = (wanted.send_queue, wanted.receive_queue);
        domain.mr_mode = wanted.memory_mode;
        domain.threading = wanted.threading;
        if let Some(name) = wanted.provider {
            replace(&mut fabric.prov_name, name);
        }
        if let Some(name) = wanted.domain {
            replace(&mut domain.name, name);
        }
        Ok(())
    }

    /// Makes memory need more than the provider asks for, as hardware does.
    #[cfg(test)]
    pub(crate) fn need(&mut self, memory_mode: c_int) {
        // SAFETY: the library makes all parts of an info, and only this code has it.
        if let Some(domain) = unsafe { self.get().domain_attr.as_mut() } {
            domain.mr_mode |= memory_mode;
        }
    }

    /// Sets `address` as the destination, from any source.
    pub(crate) fn lead_to(&mut self, address: &[u8]) -> Result<(), CallFailure> {
        // SAFETY: a copy on the heap of the C library, on which the library frees it.
        let copy = unsafe { libc::malloc(address.len().max(1)) };
        let copy = NonNull::new(copy.cast::<u8>()).ok_or(CallFailure { call: "malloc", code: libc::ENOMEM })?;
        // SAFETY: it has that length, and is new.
        unsafe { ptr::copy_nonoverlapping(address.as_ptr(), copy.as_ptr(), address.len()) };
        // SAFETY: the info is whole, and only this code has it.
        let info = unsafe { self.raw.as_mut() };
        let old = std::mem::replace(&mut info.dest_addr, copy.as_ptr().cast());
        info.dest_addrlen = address.len();
        // SAFETY: if not null, it was on the same heap.
        unsafe { libc::free(old) };
        Ok(())
    }

    /// Returns all descriptions of the library that match these hints, from `source`, if that is
    /// given.
    pub(crate) fn list(&self, source: Option<&CStr>) -> Result<Vec<Info>, CallFailure> {
        let (node, flags) = source.map_or((ptr::null(), 0), |node| (node.as_ptr(), FI_SOURCE));
        let mut first = ptr::null_mut();
        // SAFETY: strings and hints are whole, and the call returns a list.
        let code = unsafe {
            (self.library.get_info)(API_VERSION, node, ptr::null(), flags, self.raw.as_ptr(), &raw mut first)
        };
        if code == -FI_ENODATA {
            return Ok(vec![]);
        }
        outcome("fi_getinfo", code)?;
        let Ok(list) = Info::of(self.library, first) else { return Ok(vec![]) };
        let (mut next, mut all) = (list.raw.as_ptr(), vec![]);
        // SAFETY: an entry of the list, which lives; the last entry has no next one.
        while let Some(entry) = unsafe { next.as_ref() } {
            // SAFETY: as above; a copy contains this entry alone.
            let copy = unsafe { (self.library.dup_info)(entry) };
            all.push(Info::of(self.library, copy)?);
            next = entry.next;
        }
        Ok(all)
    }
}

/// A request for an endpoint. 0 requests nothing in particular.
#[derive(Default)]
pub(crate) struct InfoQuery<'a> {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) endpoint_kind: c_int,
    pub(crate) order: u64,
    pub(crate) send_queue: usize,
    pub(crate) receive_queue: usize,
    pub(crate) memory_mode: c_int,
    pub(crate) threading: c_int,
    pub(crate) provider: Option<&'a CStr>,
    pub(crate) domain: Option<&'a CStr>,
}

fn string(start: *mut libc::c_char) -> String {
    if start.is_null() {
        return String::new();
    }
    // SAFETY: the library's strings end with 0, and live as long as the info that is borrowed by
    // the caller.
    unsafe { CStr::from_ptr(start) }.to_string_lossy().into_owned()
}

/// Replaces a string that the library frees by a copy of `name`.
fn replace(place: &mut *mut libc::c_char, name: &CStr) {
    // SAFETY: a string.
    let copy = unsafe { libc::strdup(name.as_ptr()) };
    let old = std::mem::replace(place, copy);
    // SAFETY: if not null, it was on the C library's heap.
    unsafe { libc::free(old.cast()) };
}
