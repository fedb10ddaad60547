//! The used part of the binary interface of `libfabric.so.1`: structures, tables of functions,
//! numbers.
//!
//! Most of libfabric's calls are inline functions over tables of pointers that its objects carry.
//! So there is little to look up by name and much to lay out. A structure that the library makes
//! ends with the last field that is used; it may have more behind that, and later versions do. The
//! few structures that this side makes are whole, with [`Spare`] room where later versions have
//! grown. The test at the foot compares all of it with the installed headers.
//!
//! This file has no behaviour; `objects.rs` defines how it may be used.
use libc::{c_char, c_int, c_void, iovec, size_t, ssize_t};

/// An entry of a table that is not called.
type Unused = *const c_void;
/// Room behind a structure that later versions write into.
pub(super) type Spare = [u64; 8];

/// The requested version of the interface: the oldest with everything that is used.
pub(super) const API_VERSION: u32 = 1 << 16 | 9;

pub(super) const FI_MSG: u64 = 1 << 1;
pub(super) const FI_RMA: u64 = 1 << 2;
pub(super) const FI_WRITE: u64 = 1 << 9;
pub(super) const FI_RECV: u64 = 1 << 10;
pub(super) const FI_SEND: u64 = 1 << 11;
pub(super) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(super) const FI_COMPLETION: u64 = 1 << 24;
pub(super) const FI_INJECT: u64 = 1 << 25;
pub(super) const FI_SOURCE: u64 = 1 << 57;

pub(super) const FI_ORDER_SAW: u64 = 1 << 7;
pub(super) const FI_ORDER_SAS: u64 = 1 << 8;
pub(super) const FI_ORDER_RMA_WAW: u64 = 1 << 35;

pub(super) const FI_MR_LOCAL: c_int = 1 << 2;
pub(super) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(super) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(super) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(super) const FI_MR_ENDPOINT: c_int = 1 << 9;

pub(super) const FI_EP_MSG: c_int = 1;
pub(super) const FI_THREAD_SAFE: c_int = 1;
pub(super) const FI_WAIT_FD: c_int = 3;
pub(super) const FI_CQ_FORMAT_MSG: c_int = 2;

pub(super) const FI_CONNREQ: u32 = 1;
pub(super) const FI_CONNECTED: u32 = 2;
pub(super) const FI_SHUTDOWN: u32 = 3;

pub(super) const FI_GETWAIT: c_int = 5;
pub(super) const FI_ENABLE: c_int = 6;
pub(super) const FI_OPT_ENDPOINT: c_int = 0;
pub(super) const FI_OPT_CM_DATA_SIZE: c_int = 1;

pub(super) const FI_EAVAIL: c_int = 259;
pub(super) const FI_EOVERRUN: c_int = 268;
pub(super) const FI_ENOSYS: c_int = 38;
pub(super) const FI_ENODATA: c_int = 61;
pub(super) const FI_EAGAIN: c_int = 11;

pub(super) const FI_SOCKADDR_IN: u32 = 2;
pub(super) const FI_SOCKADDR_IN6: u32 = 3;

/// The capabilities of one connection to a network, or a request for them. The library makes and
/// frees it.
#[repr(C)]
pub(super) struct FiInfo {
    pub(super) next: *mut FiInfo,
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) addr_format: u32,
    pub(super) src_addrlen: size_t,
    pub(super) dest_addrlen: size_t,
    pub(super) src_addr: *mut c_void,
    pub(super) dest_addr: *mut c_void,
    pub(super) handle: *mut Fid,
    pub(super) tx_attr: *mut TxAttr,
    pub(super) rx_attr: *mut RxAttr,
    pub(super) ep_attr: *mut EpAttr,
    pub(super) domain_attr: *mut DomainAttr,
    pub(super) fabric_attr: *mut FabricAttr,
}

#[repr(C)]
pub(super) struct TxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) inject_size: size_t,
    pub(super) size: size_t,
}

#[repr(C)]
pub(super) struct RxAttr {
    pub(super) caps: u64,
    pub(super) mode: u64,
    pub(super) op_flags: u64,
    pub(super) msg_order: u64,
    pub(super) comp_order: u64,
    pub(super) total_buffered_recv: size_t,
    pub(super) size: size_t,
}

#[repr(C)]
pub(super) struct EpAttr {
    pub(super) kind: c_int,
    pub(super) protocol: u32,
    pub(super) protocol_version: u32,
    pub(super) max_msg_size: size_t,
}

#[repr(C)]
pub(super) struct DomainAttr {
    pub(super) domain: *mut FidDomain,
    pub(super) name: *mut c_char,
    pub(super) threading: c_int,
    pub(super) control_progress: c_int,
    pub(super) data_progress: c_int,
    pub(super) resource_mgmt: c_int,
    pub(super) av_type: c_int,
    pub(super) mr_mode: c_int,
}

#[repr(C)]
pub(super) struct FabricAttr {
    pub(super) fabric: *mut FidFabric,
    pub(super) name: *mut c_char,
    pub(super) prov_name: *mut c_char,
    pub(super) prov_version: u32,
}

/// The beginning of every object.
#[repr(C)]
pub(super) struct Fid {
    pub(super) fclass: size_t,
    pub(super) context: *mut c_void,
    pub(super) ops: *const FiOps,
}

#[repr(C)]
pub(super) struct FiOps {
    pub(super) size: size_t,
    pub(super) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(super) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub(super) control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(super) struct FidFabric {
    pub(super) fid: Fid,
    pub(super) ops: *const FabricOps,
}

#[repr(C)]
pub(super) struct FabricOps {
    pub(super) size: size_t,
    pub(super) domain:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int>,
    pub(super) passive_ep:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidPep, *mut c_void) -> c_int>,
    pub(super) eq_open:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> c_int>,
    pub(super) wait_open: Unused,
    pub(super) trywait: Option<unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int>,
}

#[repr(C)]
pub(super) struct FidDomain {
    pub(super) fid: Fid,
    pub(super) ops: *const DomainOps,
    pub(super) mr: *const MrOps,
}

#[repr(C)]
pub(super) struct DomainOps {
    pub(super) size: size_t,
    pub(super) av_open: Unused,
    pub(super) cq_open:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int>,
    pub(super) endpoint:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(super) struct MrOps {
    pub(super) size: size_t,
    #[allow(clippy::type_complexity, reason = "it is what the header says")]
    pub(super) reg: Option<
        unsafe extern "C" fn(
            *mut Fid,
            *const c_void,
            size_t,
            u64,
            u64,
            u64,
            u64,
            *mut *mut FidMr,
            *mut c_void,
        ) -> c_int,
    >,
}

#[repr(C)]
pub(super) struct FidMr {
    pub(super) fid: Fid,
    pub(super) mem_desc: *mut c_void,
    pub(super) key: u64,
}

#[repr(C)]
pub(super) struct EqAttr {
    pub(super) size: size_t,
    pub(super) flags: u64,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_set: *mut c_void,
}

#[repr(C)]
pub(super) struct FidEq {
    pub(super) fid: Fid,
    pub(super) ops: *const EqOps,
}

#[repr(C)]
pub(super) struct EqOps {
    pub(super) size: size_t,
    pub(super) read: Option<unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, size_t, u64) -> ssize_t>,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut FidEq, *mut EqErrEntry, u64) -> ssize_t>,
}

/// An event of a connection. It is followed by the bytes that the other side sent along.
#[repr(C)]
pub(super) struct EqCmEntry {
    pub(super) fid: *mut Fid,
    pub(super) info: *mut FiInfo,
}

#[repr(C)]
pub(super) struct EqErrEntry {
    pub(super) fid: *mut Fid,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: size_t,
    pub(super) spare: Spare,
}

#[repr(C)]
pub(super) struct CqAttr {
    pub(super) size: size_t,
    pub(super) flags: u64,
    pub(super) format: c_int,
    pub(super) wait_obj: c_int,
    pub(super) signaling_vector: c_int,
    pub(super) wait_cond: c_int,
    pub(super) wait_set: *mut c_void,
}

#[repr(C)]
pub(super) struct FidCq {
    pub(super) fid: Fid,
    pub(super) ops: *const CqOps,
}

#[repr(C)]
pub(super) struct CqOps {
    pub(super) size: size_t,
    pub(super) read: Option<unsafe extern "C" fn(*mut FidCq, *mut c_void, size_t) -> ssize_t>,
    pub(super) readfrom: Unused,
    pub(super) readerr: Option<unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> ssize_t>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(super) struct CqMsgEntry {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: size_t,
}

#[repr(C)]
pub(super) struct CqErrEntry {
    pub(super) op_context: *mut c_void,
    pub(super) flags: u64,
    pub(super) len: size_t,
    pub(super) buf: *mut c_void,
    pub(super) data: u64,
    pub(super) tag: u64,
    pub(super) olen: size_t,
    pub(super) err: c_int,
    pub(super) prov_errno: c_int,
    pub(super) err_data: *mut c_void,
    pub(super) err_data_size: size_t,
    pub(super) spare: Spare,
}

/// A listener.
#[repr(C)]
pub(super) struct FidPep {
    pub(super) fid: Fid,
    pub(super) ops: *const EpOps,
    pub(super) cm: *const CmOps,
}

/// One end of a connection.
#[repr(C)]
pub(super) struct FidEp {
    pub(super) fid: Fid,
    pub(super) ops: *const EpOps,
    pub(super) cm: *const CmOps,
    pub(super) msg: *const MsgOps,
    pub(super) rma: *const RmaOps,
}

#[repr(C)]
pub(super) struct EpOps {
    pub(super) size: size_t,
    pub(super) cancel: Unused,
    pub(super) getopt: Option<unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut size_t) -> c_int>,
}

#[repr(C)]
pub(super) struct CmOps {
    pub(super) size: size_t,
    pub(super) setname: Unused,
    pub(super) getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut size_t) -> c_int>,
    pub(super) getpeer: Unused,
    pub(super) connect: Option<unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, size_t) -> c_int>,
    pub(super) listen: Option<unsafe extern "C" fn(*mut FidPep) -> c_int>,
    pub(super) accept: Option<unsafe extern "C" fn(*mut FidEp, *const c_void, size_t) -> c_int>,
    pub(super) reject: Option<unsafe extern "C" fn(*mut FidPep, *mut Fid, *const c_void, size_t) -> c_int>,
    pub(super) shutdown: Option<unsafe extern "C" fn(*mut FidEp, u64) -> c_int>,
}

#[repr(C)]
pub(super) struct MsgOps {
    pub(super) size: size_t,
    pub(super) recv:
        Option<unsafe extern "C" fn(*mut FidEp, *mut c_void, size_t, *mut c_void, u64, *mut c_void) -> ssize_t>,
    pub(super) recvv: Unused,
    pub(super) recvmsg: Unused,
    pub(super) send: Unused,
    pub(super) sendv: Unused,
    pub(super) sendmsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> ssize_t>,
}

#[repr(C)]
pub(super) struct RmaOps {
    pub(super) size: size_t,
    pub(super) read: Unused,
    pub(super) readv: Unused,
    pub(super) readmsg: Unused,
    pub(super) write: Unused,
    pub(super) writev: Unused,
    pub(super) writemsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> ssize_t>,
}

#[repr(C)]
pub(super) struct FiMsg {
    pub(super) msg_iov: *const iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: size_t,
    pub(super) addr: u64,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

#[repr(C)]
pub(super) struct FiMsgRma {
    pub(super) msg_iov: *const iovec,
    pub(super) desc: *mut *mut c_void,
    pub(super) iov_count: size_t,
    pub(super) addr: u64,
    pub(super) rma_iov: *const RmaIov,
    pub(super) rma_iov_count: size_t,
    pub(super) context: *mut c_void,
    pub(super) data: u64,
}

#[repr(C)]
pub(super) struct RmaIov {
    pub(super) addr: u64,
    pub(super) len: size_t,
    pub(super) key: u64,
}

pub(super) type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int;
pub(super) type FreeInfo = unsafe extern "C" fn(*mut FiInfo);
pub(super) type DupInfo = unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo;
pub(super) type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
pub(super) type Version = unsafe extern "C" fn() -> u32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::fmt::Write as _;
    use std::mem::{offset_of, size_of};
    use std::process::Command;

    /// A field of a structure here, and its name in the headers.
    macro_rules! fields {
        ($($ours:ident = $theirs:literal { $($field:ident $(as $name:literal)?),* $(,)? })*) => {
            vec![$($({
                let name = [$($name,)? stringify!($field)][0];
                (format!("offsetof({}, {name})", $theirs), offset_of!($ours, $field) as u64)
            }),*),*]
        };
    }

    macro_rules! numbers {
        ($($name:ident)*) => { vec![$((stringify!($name).to_string(), $name as u64)),*] };
    }

    fn expected() -> Vec<(String, u64)> {
        let mut all = fields! {
            FiInfo = "struct fi_info" {
                next, caps, mode, addr_format, src_addrlen, dest_addrlen, src_addr, dest_addr, handle, tx_attr, rx_attr, ep_attr,
                domain_attr, fabric_attr,
            }
            TxAttr = "struct fi_tx_attr" { caps, mode, op_flags, msg_order, comp_order, inject_size, size }
            RxAttr = "struct fi_rx_attr" { caps, mode, op_flags, msg_order, comp_order, total_buffered_recv, size }
            EpAttr = "struct fi_ep_attr" { kind as "type", protocol, protocol_version, max_msg_size }
            DomainAttr = "struct fi_domain_attr" {
                domain, name, threading, control_progress, data_progress, resource_mgmt, av_type, mr_mode,
            }
            FabricAttr = "struct fi_fabric_attr" { fabric, name, prov_name, prov_version }
            Fid = "struct fid" { fclass, context, ops }
            FiOps = "struct fi_ops" { size, close, bind, control }
            FidFabric = "struct fid_fabric" { fid, ops }
            FabricOps = "struct fi_ops_fabric" { size, domain, passive_ep, eq_open, wait_open, trywait }
            FidDomain = "struct fid_domain" { fid, ops, mr }
            DomainOps = "struct fi_ops_domain" { size, av_open, cq_open, endpoint }
            MrOps = "struct fi_ops_mr" { size, reg }
            FidMr = "struct fid_mr" { fid, mem_desc, key }
            EqAttr = "struct fi_eq_attr" { size, flags, wait_obj, signaling_vector, wait_set }
            FidEq = "struct fid_eq" { fid, ops }
            EqOps = "struct fi_ops_eq" { size, read, readerr }
            EqCmEntry = "struct fi_eq_cm_entry" { fid, info }
            EqErrEntry = "struct fi_eq_err_entry" { fid, context, data, err, prov_errno, err_data, err_data_size }
            CqAttr = "struct fi_cq_attr" { size, flags, format, wait_obj, signaling_vector, wait_cond, wait_set }
            FidCq = "struct fid_cq" { fid, ops }
            CqOps = "struct fi_ops_cq" { size, read, readfrom, readerr }
            CqMsgEntry = "struct fi_cq_msg_entry" { op_context, flags, len }
            CqErrEntry = "struct fi_cq_err_entry" {
                op_context, flags, len, buf, data, tag, olen, err, prov_errno, err_data, err_data_size,
            }
            FidPep = "struct fid_pep" { fid, ops, cm }
            FidEp = "struct fid_ep" { fid, ops, cm, msg, rma }
            EpOps = "struct fi_ops_ep" { size, cancel, getopt }
            CmOps = "struct fi_ops_cm" { size, setname, getname, getpeer, connect, listen, accept, reject, shutdown }
            MsgOps = "struct fi_ops_msg" { size, recv, recvv, recvmsg, send, sendv, sendmsg }
            RmaOps = "struct fi_ops_rma" { size, read, readv, readmsg, write, writev, writemsg }
            FiMsg = "struct fi_msg" { msg_iov, desc, iov_count, addr, context, data }
            FiMsgRma = "struct fi_msg_rma" { msg_iov, desc, iov_count, addr, rma_iov, rma_iov_count, context, data }
            RmaIov = "struct fi_rma_iov" { addr, len, key }
        };
        // Structures that this side makes have to be whole.
        for (name, bytes) in [
            ("struct fi_eq_attr", size_of::<EqAttr>()),
            ("struct fi_cq_attr", size_of::<CqAttr>()),
            ("struct fi_cq_msg_entry", size_of::<CqMsgEntry>()),
            ("struct fi_eq_cm_entry", size_of::<EqCmEntry>()),
            ("struct fi_msg", size_of::<FiMsg>()),
            ("struct fi_msg_rma", size_of::<FiMsgRma>()),
            ("struct fi_rma_iov", size_of::<RmaIov>()),
        ] {
            all.push((format!("sizeof({name})"), bytes as u64));
        }
        all.extend(numbers! {
            FI_MSG FI_RMA FI_WRITE FI_RECV FI_SEND FI_REMOTE_WRITE FI_COMPLETION FI_INJECT FI_SOURCE
            FI_ORDER_SAW FI_ORDER_SAS FI_ORDER_RMA_WAW
            FI_MR_LOCAL FI_MR_VIRT_ADDR FI_MR_ALLOCATED FI_MR_PROV_KEY FI_MR_ENDPOINT
            FI_EP_MSG FI_THREAD_SAFE FI_WAIT_FD FI_CQ_FORMAT_MSG
            FI_CONNREQ FI_CONNECTED FI_SHUTDOWN FI_GETWAIT FI_ENABLE FI_OPT_ENDPOINT FI_OPT_CM_DATA_SIZE
            FI_EAVAIL FI_EOVERRUN FI_ENOSYS FI_ENODATA FI_EAGAIN FI_SOCKADDR_IN FI_SOCKADDR_IN6
        });
        all
    }

    /// A C program prints the values of the headers.
    #[test]
    fn the_layout_is_that_of_the_headers() {
        let expected = expected();
        let mut source = "#include <stdio.h>\n#include <stddef.h>\n#include <rdma/fabric.h>\n".to_string();
        for header in ["domain", "endpoint", "eq", "cm", "rma", "errno"] {
            writeln!(source, "#include <rdma/fi_{header}.h>").unwrap();
        }
        source.push_str("int main(void) {\n");
        for (what, _) in &expected {
            writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({what}));").unwrap();
        }
        for (what, at_most) in
            [("fi_cq_err_entry", size_of::<CqErrEntry>()), ("fi_eq_err_entry", size_of::<EqErrEntry>())]
        {
            writeln!(source, "if (sizeof(struct {what}) > {at_most}) return 1;").unwrap();
        }
        source.push_str("return 0; }\n");
        let dir = std::env::temp_dir().join(format!("spindle-ofi-layout-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let (c, program) = (dir.join("layout.c"), dir.join("layout"));
        std::fs::write(&c, "#include <rdma/fabric.h>\nint main(void) { return 0; }\n").unwrap();
        let compile = || Command::new("cc").arg("-o").arg(&program).arg(&c).output();
        if !compile().is_ok_and(|output| output.status.success()) {
            println!("skipped: this needs cc and libfabric's headers (apt-get install gcc libfabric-dev)");
            return std::fs::remove_dir_all(&dir).unwrap();
        }
        std::fs::write(&c, source).unwrap();
        let compiled = compile().unwrap();
        assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
        let output = Command::new(&program).output().unwrap();
        std::fs::remove_dir_all(&dir).unwrap();
        assert!(output.status.success(), "an error entry has outgrown its spare room");
        let printed = String::from_utf8(output.stdout).unwrap();
        let printed: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
        assert_eq!(printed.len(), expected.len());
        for ((what, ours), theirs) in expected.iter().zip(printed) {
            assert_eq!(*ours, theirs, "{what}");
        }
    }
}
