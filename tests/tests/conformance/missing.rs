//! What a setup needs of the machine and may not have.
//!
//! *Owns*: the looks at the machine itself. *Gives*: the reason why a setup cannot be tried.
//! *Must not*: ask the product: what it fails to use would be taken for missing.

use std::io::IoSliceMut;
use std::sync::OnceLock;

use nix::sys::uio::{RemoteIoVec, process_vm_readv};
use nix::unistd::getpid;
use urma_net::{Lab, LabPlan};
use urma_tests::world::{Moving, Setup};

/// Why `setup` cannot be tried here, if it cannot.
pub(crate) fn for_setup(setup: Setup) -> Option<&'static str> {
    if setup.has_hosts && !has_hosts() {
        return Some("the kernel refuses hosts in network namespaces");
    }
    (setup.moving == Moving::Kernel && !kernel_reads())
        .then_some("the kernel refuses process_vm_readv")
}

/// Whether hosts can be made and joined.
fn has_hosts() -> bool {
    static MADE: OnceLock<bool> = OnceLock::new();
    *MADE.get_or_init(|| Lab::new(LabPlan::bridge(2, 1500)).is_ok())
}

/// Whether the kernel reads memory of a process, of this one, on request.
fn kernel_reads() -> bool {
    static READS: OnceLock<bool> = OnceLock::new();
    *READS.get_or_init(|| {
        let (from, mut to) = ([7_u8; 8], [0_u8; 8]);
        let remote = [RemoteIoVec { base: from.as_ptr().addr(), len: from.len() }];
        let read = process_vm_readv(getpid(), &mut [IoSliceMut::new(&mut to)], &remote);
        read == Ok(8) && to == from
    })
}
