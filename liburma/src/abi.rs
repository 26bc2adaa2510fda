//! The C API as Rust sees it: a mirror of the headers.
//!
//! *Owns*: layouts and numbers of the public structs, for the release that the crate is built for.
//! *Must not*: do anything; know anything of the project.
//!
//! `cargo xtask mirror` makes `shared`, `fabric`, `v26_06` and `v25_12_0_b081` from the golden layouts of
//! both releases and from `mirror.txt`, which says what is mirrored and of which type each member is;
//! `cargo xtask tidy` fails when they are out of date. Names are those of C, so that a fact is found by its
//! name on both sides. Every size and offset is asserted by the compiler where it is written; a test
//! compiles the same data against the headers (on x86-64, which the golden data is of). Numbers that a C
//! caller chooses are integers, never Rust enumerations; `bool` is `u8` for the same reason. Unions without
//! a name in C are members called `u` here, and of the type `parent_u`.
//!
//! The feature `abi-25-12-0-b081` chooses the release. Flags that only the newer one has read as 0 in the
//! older one.

#![expect(non_camel_case_types, reason = "the names of C")]
#![expect(missing_docs, reason = "the headers say what the members are")]
#![expect(
    missing_debug_implementations,
    reason = "pointers and unions that a C caller filled have no safe text"
)]

mod base;
mod fabric;
mod layout;
mod names;
mod providers;
mod shared;
#[cfg(feature = "abi-25-12-0-b081")]
mod v25_12_0_b081;
#[cfg(not(feature = "abi-25-12-0-b081"))]
mod v26_06;

pub use base::*;
pub use fabric::*;
pub use names::*;
pub use providers::*;
pub use shared::*;
#[cfg(feature = "abi-25-12-0-b081")]
pub use v25_12_0_b081::*;
#[cfg(not(feature = "abi-25-12-0-b081"))]
pub use v26_06::*;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_take_and_give_their_bits_only() {
        let mut flag = urma_jfs_flag_t { value: u32::MAX };
        flag.set_order_type(0);
        assert_eq!((flag.value, flag.order_type()), (!(0xff << 3), 0));
        flag.set_order_type(0x3a5);
        assert_eq!(flag.order_type(), 0xa5);
        assert_eq!((flag.lock_free(), flag.error_suspend(), flag.multi_path()), (1, 1, 1));
        assert_eq!(urma_jfs_flag_t::default(), urma_jfs_flag_t { value: 0 });
    }

    #[test]
    fn eids_keep_network_order_in_memory() {
        let raw: [u8; 16] = core::array::from_fn(|at| u8::try_from(at + 1).expect("below 17"));
        let eid = urma_eid_t::from_raw(raw);
        assert_eq!(eid.raw(), raw);
        assert_eq!(eid.words[0].to_be(), 0x0102_0304_0506_0708);
        assert_eq!(urma_eid_t::from_raw([0; 16]), urma_eid_t::default());
    }

    #[test]
    fn attributes_of_a_path_lie_where_the_golden_data_says() {
        let mut vlan = urma_tp_attr_vlan_word::from(urma_tp_attr_vlan::default());
        vlan.set_vlan_id(0xabc);
        vlan.set_dscp(0x2a);
        // 12 bits, one bit, then 6 that begin at bit 13.
        assert_eq!(urma_tp_attr_vlan::from(vlan).bytes, [0xbc, 0x4a, 0x05]);
        let back = urma_tp_attr_vlan_word::from(urma_tp_attr_vlan::from(vlan));
        assert_eq!((back.vlan_id(), back.vlan_en(), back.dscp()), (0xabc, 0, 0x2a));
    }

    #[cfg(feature = "abi-25-12-0-b081")]
    #[test]
    fn flags_of_the_newer_release_read_as_0() {
        let flag = urma_jfs_wr_flag_t { value: u32::MAX };
        assert_eq!((flag.udf(), flag.has_drv_ext(), flag.db_bypass()), (0, 1, 1));
        let flag = urma_import_jetty_flag_t { value: u32::MAX, stag: 0, dtag: 0 };
        assert_eq!((flag.has_user_info(), flag.token_policy()), (0, 7));
    }

    #[cfg(not(feature = "abi-25-12-0-b081"))]
    #[test]
    fn flags_of_the_newer_release_are_read() {
        let flag = urma_jfs_wr_flag_t { value: 1 << 8 };
        assert_eq!((flag.udf(), flag.has_drv_ext()), (1, 0));
    }
}
