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
pub(crate) type Spare = [u64; 8];

/// The requested version of the interface: the oldest with everything that is used.
pub(crate) const API_VERSION: u32 = 1 << 16 | 9;

pub(crate) const FI_MSG: u64 = 1 << 1;
pub(crate) const FI_RMA: u64 = 1 << 2;
pub(crate) const FI_WRITE: u64 = 1 << 9;
pub(crate) const FI_RECV: u64 = 1 << 10;
pub(crate) const FI_SEND: u64 = 1 << 11;
pub(crate) const FI_REMOTE_WRITE: u64 = 1 << 13;
pub(crate) const FI_COMPLETION: u64 = 1 << 24;
pub(crate) const FI_INJECT: u64 = 1 << 25;
pub(crate) const FI_SOURCE: u64 = 1 << 57;

pub(crate) const FI_ORDER_SAW: u64 = 1 << 7;
pub(crate) const FI_ORDER_SAS: u64 = 1 << 8;
pub(crate) const FI_ORDER_RMA_WAW: u64 = 1 << 35;

pub(crate) const FI_MR_LOCAL: c_int = 1 << 2;
pub(crate) const FI_MR_VIRT_ADDR: c_int = 1 << 4;
pub(crate) const FI_MR_ALLOCATED: c_int = 1 << 5;
pub(crate) const FI_MR_PROV_KEY: c_int = 1 << 6;
pub(crate) const FI_MR_ENDPOINT: c_int = 1 << 9;

pub(crate) const FI_EP_MSG: c_int = 1;
pub(crate) const FI_THREAD_SAFE: c_int = 1;
pub(crate) const FI_WAIT_FD: c_int = 3;
pub(crate) const FI_CQ_FORMAT_MSG: c_int = 2;

pub(crate) const FI_CONNREQ: u32 = 1;
pub(crate) const FI_CONNECTED: u32 = 2;
pub(crate) const FI_SHUTDOWN: u32 = 3;

pub(crate) const FI_GETWAIT: c_int = 5;
pub(crate) const FI_ENABLE: c_int = 6;
pub(crate) const FI_OPT_ENDPOINT: c_int = 0;
pub(crate) const FI_OPT_CM_DATA_SIZE: c_int = 1;

pub(crate) const FI_EAVAIL: c_int = 259;
pub(crate) const FI_EOVERRUN: c_int = 268;
pub(crate) const FI_ENOSYS: c_int = 38;
pub(crate) const FI_ENODATA: c_int = 61;
pub(crate) const FI_EAGAIN: c_int = 11;

pub(crate) const FI_SOCKADDR_IN: u32 = 2;
pub(crate) const FI_SOCKADDR_IN6: u32 = 3;

/// The capabilities of one connection to a network, or a request for them. The library makes and
/// frees it.
#[repr(C)]
pub(crate) struct FiInfo {
    pub(crate) next: *mut FiInfo,
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) addr_format: u32,
    pub(crate) src_addrlen: size_t,
    pub(crate) dest_addrlen: size_t,
    pub(crate) src_addr: *mut c_void,
    pub(crate) dest_addr: *mut c_void,
    pub(crate) handle: *mut Fid,
    pub(crate) tx_attr: *mut TxAttr,
    pub(crate) rx_attr: *mut RxAttr,
    pub(crate) ep_attr: *mut EpAttr,
    pub(crate) domain_attr: *mut DomainAttr,
    pub(crate) fabric_attr: *mut FabricAttr,
}

#[repr(C)]
pub(crate) struct TxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) inject_size: size_t,
    pub(crate) size: size_t,
}

#[repr(C)]
pub(crate) struct RxAttr {
    pub(crate) caps: u64,
    pub(crate) mode: u64,
    pub(crate) op_flags: u64,
    pub(crate) msg_order: u64,
    pub(crate) comp_order: u64,
    pub(crate) total_buffered_recv: size_t,
    pub(crate) size: size_t,
}

#[repr(C)]
pub(crate) struct EpAttr {
    pub(crate) kind: c_int,
    pub(crate) protocol: u32,
    pub(crate) protocol_version: u32,
    pub(crate) max_msg_size: size_t,
}

#[repr(C)]
pub(crate) struct DomainAttr {
    pub(crate) domain: *mut FidDomain,
    pub(crate) name: *mut c_char,
    pub(crate) threading: c_int,
    pub(crate) control_progress: c_int,
    pub(crate) data_progress: c_int,
    pub(crate) resource_mgmt: c_int,
    pub(crate) av_type: c_int,
    pub(crate) mr_mode: c_int,
}

#[repr(C)]
pub(crate) struct FabricAttr {
    pub(crate) fabric: *mut FidFabric,
    pub(crate) name: *mut c_char,
    pub(crate) prov_name: *mut c_char,
    pub(crate) prov_version: u32,
}

/// The beginning of every object.
#[repr(C)]
pub(crate) struct Fid {
    pub(crate) fclass: size_t,
    pub(crate) context: *mut c_void,
    pub(crate) ops: *const FiOps,
}

#[repr(C)]
pub(crate) struct FiOps {
    pub(crate) size: size_t,
    pub(crate) close: Option<unsafe extern "C" fn(*mut Fid) -> c_int>,
    pub(crate) bind: Option<unsafe extern "C" fn(*mut Fid, *mut Fid, u64) -> c_int>,
    pub(crate) control: Option<unsafe extern "C" fn(*mut Fid, c_int, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(crate) struct FidFabric {
    pub(crate) fid: Fid,
    pub(crate) ops: *const FabricOps,
}

#[repr(C)]
pub(crate) struct FabricOps {
    pub(crate) size: size_t,
    pub(crate) domain:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidDomain, *mut c_void) -> c_int>,
    pub(crate) passive_ep:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut FiInfo, *mut *mut FidPep, *mut c_void) -> c_int>,
    pub(crate) eq_open:
        Option<unsafe extern "C" fn(*mut FidFabric, *mut EqAttr, *mut *mut FidEq, *mut c_void) -> c_int>,
    pub(crate) wait_open: Unused,
    pub(crate) trywait: Option<unsafe extern "C" fn(*mut FidFabric, *mut *mut Fid, c_int) -> c_int>,
}

#[repr(C)]
pub(crate) struct FidDomain {
    pub(crate) fid: Fid,
    pub(crate) ops: *const DomainOps,
    pub(crate) mr: *const MrOps,
}

#[repr(C)]
pub(crate) struct DomainOps {
    pub(crate) size: size_t,
    pub(crate) av_open: Unused,
    pub(crate) cq_open:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut CqAttr, *mut *mut FidCq, *mut c_void) -> c_int>,
    pub(crate) endpoint:
        Option<unsafe extern "C" fn(*mut FidDomain, *mut FiInfo, *mut *mut FidEp, *mut c_void) -> c_int>,
}

#[repr(C)]
pub(crate) struct MrOps {
    pub(crate) size: size_t,
    #[allow(clippy::type_complexity, reason = "it is what the header says")]
    pub(crate) reg: Option<
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
pub(crate) struct FidMr {
    pub(crate) fid: Fid,
    pub(crate) mem_desc: *mut c_void,
    pub(crate) key: u64,
}

#[repr(C)]
pub(crate) struct EqAttr {
    pub(crate) size: size_t,
    pub(crate) flags: u64,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidEq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const EqOps,
}

#[repr(C)]
pub(crate) struct EqOps {
    pub(crate) size: size_t,
    pub(crate) read: Option<unsafe extern "C" fn(*mut FidEq, *mut u32, *mut c_void, size_t, u64) -> ssize_t>,
    pub(crate) readerr: Option<unsafe extern "C" fn(*mut FidEq, *mut EqErrEntry, u64) -> ssize_t>,
}

/// An event of a connection. It is followed by the bytes that the other side sent along.
#[repr(C)]
pub(crate) struct EqCmEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) info: *mut FiInfo,
}

#[repr(C)]
pub(crate) struct EqErrEntry {
    pub(crate) fid: *mut Fid,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: size_t,
    pub(crate) spare: Spare,
}

#[repr(C)]
pub(crate) struct CqAttr {
    pub(crate) size: size_t,
    pub(crate) flags: u64,
    pub(crate) format: c_int,
    pub(crate) wait_obj: c_int,
    pub(crate) signaling_vector: c_int,
    pub(crate) wait_cond: c_int,
    pub(crate) wait_set: *mut c_void,
}

#[repr(C)]
pub(crate) struct FidCq {
    pub(crate) fid: Fid,
    pub(crate) ops: *const CqOps,
}

#[repr(C)]
pub(crate) struct CqOps {
    pub(crate) size: size_t,
    pub(crate) read: Option<unsafe extern "C" fn(*mut FidCq, *mut c_void, size_t) -> ssize_t>,
    pub(crate) readfrom: Unused,
    pub(crate) readerr: Option<unsafe extern "C" fn(*mut FidCq, *mut CqErrEntry, u64) -> ssize_t>,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub(crate) struct CqMsgEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: size_t,
}

#[repr(C)]
pub(crate) struct CqErrEntry {
    pub(crate) op_context: *mut c_void,
    pub(crate) flags: u64,
    pub(crate) len: size_t,
    pub(crate) buf: *mut c_void,
    pub(crate) data: u64,
    pub(crate) tag: u64,
    pub(crate) olen: size_t,
    pub(crate) err: c_int,
    pub(crate) prov_errno: c_int,
    pub(crate) err_data: *mut c_void,
    pub(crate) err_data_size: size_t,
    pub(crate) spare: Spare,
}

/// A listener.
#[repr(C)]
pub(crate) struct FidPep {
    pub(crate) fid: Fid,
    pub(crate) ops: *const EpOps,
    pub(crate) cm: *const CmOps,
}

/// One end of a connection.
#[repr(C)]
pub(crate) struct FidEp {
    pub(crate) fid: Fid,
    pub(crate) ops: *const EpOps,
    pub(crate) cm: *const CmOps,
    pub(crate) msg: *const MsgOps,
    pub(crate) rma: *const RmaOps,
}

#[repr(C)]
pub(crate) struct EpOps {
    pub(crate) size: size_t,
    pub(crate) cancel: Unused,
    pub(crate) getopt: Option<unsafe extern "C" fn(*mut Fid, c_int, c_int, *mut c_void, *mut size_t) -> c_int>,
}

#[repr(C)]
pub(crate) struct CmOps {
    pub(crate) size: size_t,
    pub(crate) setname: Unused,
    pub(crate) getname: Option<unsafe extern "C" fn(*mut Fid, *mut c_void, *mut size_t) -> c_int>,
    pub(crate) getpeer: Unused,
    pub(crate) connect: Option<unsafe extern "C" fn(*mut FidEp, *const c_void, *const c_void, size_t) -> c_int>,
    pub(crate) listen: Option<unsafe extern "C" fn(*mut FidPep) -> c_int>,
    pub(crate) accept: Option<unsafe extern "C" fn(*mut FidEp, *const c_void, size_t) -> c_int>,
    pub(crate) reject: Option<unsafe extern "C" fn(*mut FidPep, *mut Fid, *const c_void, size_t) -> c_int>,
    pub(crate) shutdown: Option<unsafe extern "C" fn(*mut FidEp, u64) -> c_int>,
}

#[repr(C)]
pub(crate) struct MsgOps {
    pub(crate) size: size_t,
    pub(crate) recv:
        Option<unsafe extern "C" fn(*mut FidEp, *mut c_void, size_t, *mut c_void, u64, *mut c_void) -> ssize_t>,
    pub(crate) recvv: Unused,
    pub(crate) recvmsg: Unused,
    pub(crate) send: Unused,
    pub(crate) sendv: Unused,
    pub(crate) sendmsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsg, u64) -> ssize_t>,
}

#[repr(C)]
pub(crate) struct RmaOps {
    pub(crate) size: size_t,
    pub(crate) read: Unused,
    pub(crate) readv: Unused,
    pub(crate) readmsg: Unused,
    pub(crate) write: Unused,
    pub(crate) writev: Unused,
    pub(crate) writemsg: Option<unsafe extern "C" fn(*mut FidEp, *const FiMsgRma, u64) -> ssize_t>,
}

#[repr(C)]
pub(crate) struct FiMsg {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: size_t,
    pub(crate) addr: u64,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct FiMsgRma {
    pub(crate) msg_iov: *const iovec,
    pub(crate) desc: *mut *mut c_void,
    pub(crate) iov_count: size_t,
    pub(crate) addr: u64,
    pub(crate) rma_iov: *const RmaIov,
    pub(crate) rma_iov_count: size_t,
    pub(crate) context: *mut c_void,
    pub(crate) data: u64,
}

#[repr(C)]
pub(crate) struct RmaIov {
    pub(crate) addr: u64,
    pub(crate) len: size_t,
    pub(crate) key: u64,
}

pub(crate) type GetInfo = unsafe extern "C" fn(
    version: u32,
    node: *const c_char,
    service: *const c_char,
    flags: u64,
    hints: *const FiInfo,
    info: *mut *mut FiInfo,
) -> c_int;
pub(crate) type FreeInfo = unsafe extern "C" fn(*mut FiInfo);
pub(crate) type DupInfo = unsafe extern "C" fn(*const FiInfo) -> *mut FiInfo;
pub(crate) type OpenFabric = unsafe extern "C" fn(*mut FabricAttr, *mut *mut FidFabric, *mut c_void) -> c_int;
pub(crate) type FabricVersion = unsafe extern "C" fn() -> u32;

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
