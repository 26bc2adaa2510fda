//! EIDs from numbers and text.

use core::ffi::{c_char, c_int};

use urma_core::Eid;

use crate::{
    abi::urma_eid_t,
    call::{self, UserPtr, refuse},
    convert::name::eid_out,
};

/// The IPv4-mapped EID of an address: `0xc0a80164` is 192.168.1.100.
pub unsafe extern "C" fn urma_u32_to_eid(ipv4: u32, eid: *mut urma_eid_t) {
    // SAFETY: a place of the caller's (room card of `face`).
    if let Ok(to) = unsafe { UserPtr::new(eid) } {
        to.write(eid_out(Eid::from_u32(ipv4)));
    }
}

/// The EID that `buf` says: an IPv4 address, an IPv6 address, eight groups of four hex digits, or an
/// IPv4 address as one number in hex. `-EINVAL`: it says none.
pub unsafe extern "C" fn urma_str_to_eid(buf: *const c_char, eid: *mut urma_eid_t) -> c_int {
    call::as_negative(call::in_child(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(eid) }?;
        // SAFETY: a C string of the caller's.
        let text = unsafe { call::text(buf) }?;
        let eid = text.to_str().ok().and_then(|text| text.trim().parse().ok());
        let from: Eid = eid.ok_or_else(|| {
            refuse!(
                EINVAL,
                "buf is {text:?}; an EID is an IPv6 or IPv4 address, or a number of 32 bits"
            )
        })?;
        to.write(eid_out(from));
        Ok(0)
    }))
}
