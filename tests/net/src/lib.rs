//! Hosts of a test: network namespaces, joined by a cable, a bridge or a router.
//!
//! *Owns*: the namespaces, which last as long as their descriptors, so the kernel takes them down however
//! the test ends; processes that were started in them. *Takes*: `ip` of iproute2, the right to make
//! network namespaces. *Must not*: change the namespace that the test runs in; end a process of others.
#![forbid(unsafe_code)]

mod lab;
mod namespace;
mod process;
pub use lab::refuse_version;
pub use lab::{Family, Host, Lab, LabPlan, Shape};
pub use namespace::{Namespace, Refused};
pub use process::{Ended, HANG, Process};
