//! Addresses of nodes: EIDs from numbers and text, network addresses, MACs.

use core::ffi::{c_char, c_int};

use urma_core::Eid;

use crate::{
    abi::*,
    call::{self, UserPtr, object, refuse},
    convert::name::{eid, eid_out},
    face::{
        device::{give, take_back},
        dispatch::forwards,
    },
    udma::{address::net_addr, kind},
};

/// Writes the IPv4-mapped EID of an address: `0xc0a80164` is 192.168.1.100.
pub unsafe extern "C" fn urma_u32_to_eid(ipv4: u32, eid: *mut urma_eid_t) {
    // SAFETY: a place of the caller's (room card of `face`).
    if let Ok(to) = unsafe { UserPtr::new(eid) } {
        to.write(eid_out(Eid::from_u32(ipv4)));
    }
}

/// Parses an EID: an IPv4 address, an IPv6 address, eight groups of four hex digits, or an IPv4 address as one hex
/// number. `-EINVAL`: `buf` is none of these.
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

/// Returns the addresses of a device in an array that `urma_free_net_addr_list` frees. There is one: that of the
/// context's EID.
pub unsafe extern "C" fn urma_get_net_addr_list(
    ctx: *mut urma_context_t,
    cnt: *mut u32,
) -> *mut urma_net_addr_info_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        // SAFETY: a place of the caller's (room card of `face`).
        let count = unsafe { UserPtr::new(cnt) }?;
        let of = eid(ctx.eid);
        let list = give(&[urma_net_addr_info_t { netaddr: net_addr(of), index: 0 }])?;
        count.write(1);
        Ok(list)
    })
}

/// Frees an address list; NULL is ignored.
pub unsafe extern "C" fn urma_free_net_addr_list(net_addr_list: *mut urma_net_addr_info_t) {
    // SAFETY: the caller got it from this library, where `give` made it, or it is NULL.
    unsafe { take_back(net_addr_list.cast()) };
}

forwards! {
    /// Looks up the EID of the node with this IPv4 or IPv6 address.
    urma_get_eid_by_ip(ctx: *const urma_context_t as Context, net_addr: *const urma_net_addr_t, eid: *mut urma_eid_t)
        needs(net_addr, eid) = get_eid_by_ip;
    /// Looks up the address of the node with this EID.
    urma_get_ip_by_eid(ctx: *const urma_context_t as Context, eid: *const urma_eid_t, net_addr: *mut urma_net_addr_t)
        needs(eid, net_addr) = get_ip_by_eid;
    /// Writes the MAC of this node, six bytes.
    urma_get_smac(ctx: *const urma_context_t as Context, mac: *mut u8) needs(mac) = get_smac;
    /// Writes the MAC of the node with this address, six bytes.
    urma_get_dmac(ctx: *const urma_context_t as Context, net_addr: *const urma_net_addr_t, mac: *mut u8)
        needs(net_addr, mac) = get_dmac;
}
