//! DDS 1.4 (DCPS) on ordered multicast.
#![forbid(unsafe_code)]
