//! The kernel's commands, as a provider in C gives them: answered by the software device.
//!
//! *Owns*: nothing itself; `shadow` knows which object of the software device stands behind which of
//! a provider's. *Takes*: objects in the provider's own memory, which its structs of the public API
//! begin. *Gives*: 0 and filled members (`handle`, ids), or the negated status; the bytes between a
//! driver and its kernel module (`udata`) mean nothing here. *Must not*: call a table of operations:
//! that is the provider's, and would lead back here.

mod event;
mod make;
mod plain;
mod shadow;

pub use event::*;
pub use make::*;
pub use plain::*;

/// For a forked child: what the parent's providers made is not known.
pub(super) fn abandon() {
    shadow::abandon();
}
