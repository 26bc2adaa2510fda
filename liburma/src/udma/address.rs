//! Addresses of the network below: what an EID is there.
//!
//! *Owns*: the rule: an EID is its own address (IPv4 when it is an IPv4-mapped one, else IPv6), and
//! its MAC is a locally administered one that follows from it. *Gives*: the same answer in every
//! process, for any EID: software nodes are found by EID, and have no other address.

use libc::{AF_INET, AF_INET6, in_addr, in6_addr};

use urma_core::Eid;

use crate::{
    abi::*,
    call::{self, Answer, Code, UserPtr, refuse},
    convert::{eid, eid_out, zeroed},
    udma::context::ctx_of,
};

/// Bytes before the address in an IPv4-mapped EID.
const MAPPED: [u8; 12] = [0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff];

/// A MAC address, in the order of the wire.
pub(crate) type Mac = [u8; 6];

/// The MAC of an EID: unicast, locally administered, 40 bits of all of it.
pub(crate) fn mac(eid: Eid) -> Mac {
    let mut mac: Mac = [2, 0, 0, 0, 0, 0];
    for (index, byte) in eid.bytes().into_iter().rev().enumerate() {
        let place = &mut mac[5 - index % 5];
        *place = place.rotate_left(3) ^ byte;
    }
    mac
}

/// The address of an EID.
pub(crate) fn net_addr(eid: Eid) -> urma_net_addr_t {
    let mut to: urma_net_addr_t = zeroed();
    let bytes = eid.bytes();
    match bytes.strip_prefix(&MAPPED).and_then(|rest| <[u8; 4]>::try_from(rest).ok()) {
        Some(ipv4) => {
            to.sin_family = family(AF_INET);
            to.prefix_len = 32;
            to.u.in4 = in_addr { s_addr: u32::from_be_bytes(ipv4).to_be() };
        }
        None => {
            to.sin_family = family(AF_INET6);
            to.prefix_len = 128;
            to.u = urma_net_addr_u { in6: in6_addr { s6_addr: bytes } };
        }
    }
    to.mac = mac(eid);
    to
}

fn family(number: i32) -> libc::sa_family_t {
    libc::sa_family_t::try_from(number).unwrap_or(0)
}

/// The EID of an address.
///
/// # Errors
/// EINVAL: neither IPv4 nor IPv6, or the unspecified address.
fn zero() -> Code {
    refuse!(EINVAL, "the address is zero, which no node has")
}

fn eid_of(from: &urma_net_addr_t) -> Answer<Eid> {
    let mut bytes = [0; 16];
    match i32::from(from.sin_family) {
        AF_INET => {
            bytes[..12].copy_from_slice(&MAPPED);
            // SAFETY: the family names the member, and any bytes are an address.
            let number = unsafe { from.u.in4 }.s_addr;
            bytes[12..].copy_from_slice(&u32::from_be(number).to_be_bytes());
        }
        // SAFETY: the family names the member, and any bytes are an address.
        AF_INET6 => bytes = unsafe { from.u.in6 }.s6_addr,
        other => {
            return Err(refuse!(
                EINVAL,
                "sin_family is {other}; AF_INET ({AF_INET}) and AF_INET6 ({AF_INET6}) are known"
            ));
        }
    }
    let eid = Eid::from_bytes(bytes);
    if eid.is_unspecified() { Err(zero()) } else { Ok(eid) }
}

pub(crate) unsafe extern "C" fn get_eid_by_ip(
    ctx: *const urma_context_t,
    net_addr: *const urma_net_addr_t,
    eid: *mut urma_eid_t,
) -> urma_status_t {
    call::status(|| {
        ctx_of(ctx)?;
        // SAFETY: an address and a place of the caller's (room card of `face`).
        let (of, to) = unsafe { call::args((net_addr.cast_mut(), eid)) }?;
        to.write(eid_out(eid_of(&of.read())?));
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn get_ip_by_eid(
    ctx: *const urma_context_t,
    of: *const urma_eid_t,
    to: *mut urma_net_addr_t,
) -> urma_status_t {
    call::status(|| {
        ctx_of(ctx)?;
        // SAFETY: an EID and a place of the caller's (room card of `face`).
        let (of, to) = unsafe { call::args((of.cast_mut(), to)) }?;
        let of = eid(of.read());
        if of.is_unspecified() {
            return Err(zero());
        }
        to.write(net_addr(of));
        Ok(())
    })
}

/// The MAC of this node.
pub(crate) unsafe extern "C" fn get_smac(ctx: *const urma_context_t, to: *mut u8) -> urma_status_t {
    call::status(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: six bytes of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(to.cast::<Mac>()) }?;
        to.write(mac(own.core.eid()));
        Ok(())
    })
}

/// The MAC of the node with this address.
pub(crate) unsafe extern "C" fn get_dmac(
    ctx: *const urma_context_t,
    of: *const urma_net_addr_t,
    to: *mut u8,
) -> urma_status_t {
    call::status(|| {
        ctx_of(ctx)?;
        // SAFETY: an address and six bytes of the caller's (room card of `face`).
        let (of, to) = unsafe { call::args((of.cast_mut(), to.cast::<Mac>())) }?;
        to.write(mac(eid_of(&of.read())?));
        Ok(())
    })
}
