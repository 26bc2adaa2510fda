//! Nodes on hosts of their own: the same requests as on one host, over real interfaces.
//!
//! *Must not*: assert a time below a hang limit.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

mod eid;
mod ends;
mod lab;
mod mtu;
mod peers;
mod ports;
mod stream;
mod traffic;
