//! Descriptions with what peers of a bonding device read behind them.
//!
//! *Owns*: the bytes behind the struct: a head with their number, then the public structs of
//! `urma_ubagg.h` for a device of one path, number 0. *Takes*: a jetty or segment of the context.
//! *Gives*: zeroed memory of the C library with these bytes and the flag in place; the caller fills in
//! the struct itself. *Must not*: hold a pointer: peers in other processes read the bytes.

use core::{mem::offset_of, ptr::NonNull};

use super::{CtlContext, In, Out, output};
use crate::{
    abi::*,
    call::{Answer, UserArray, ours, refuse},
    convert::name::eid,
    slab::{Kind, Slot},
    udma::kind,
};

/// The object that is asked about: the argument is the object itself.
fn object<K: Kind>(ctx: CtlContext, from: In) -> Answer<Slot<K>> {
    if (from.len as usize) < size_of::<K::Public>() {
        return Err(refuse!(
            EINVAL,
            "in->len is {}; it is that of the object, {}",
            from.len,
            size_of::<K::Public>()
        ));
    }
    let addr =
        usize::try_from(from.addr).map_err(|_| refuse!(EINVAL, "in->addr is {:#x}", from.addr))?;
    let slot = ours::<K>(core::ptr::with_exposed_provenance(addr))?;
    if slot.owner() == ctx.owner() {
        Ok(slot)
    } else {
        Err(refuse!(EINVAL, "the object belongs to another context"))
    }
}

/// Memory for a `T`, then the head, then `more`.
fn memory<T>(more: &[u8]) -> Answer<NonNull<T>> {
    let head = u32::try_from(more.len())
        .map_err(|_| refuse!(FAIL, "the description is too long"))?
        .to_le_bytes();
    let len = size_of::<T>() + head.len() + more.len();
    // SAFETY: the size is above 0, and the call touches no memory of ours.
    let first: *mut T = unsafe { libc::calloc(1, len) }.cast();
    let first = NonNull::new(first).ok_or_else(|| refuse!(ENOMEM, "no memory for {len} bytes"))?;
    // SAFETY: the struct is the front of the memory that `calloc` gave just now.
    let behind: *mut u8 = unsafe { first.as_ptr().add(1) }.cast();
    // SAFETY: the rest of that memory, which no other thread has yet.
    let behind = unsafe { UserArray::new(behind, head.len() + more.len()) }?;
    behind.fill(head.iter().chain(more).copied());
    Ok(first)
}

fn hand_over<T>(to: Out, made: NonNull<T>) -> Answer {
    output::<*mut T>(to)?.write(made.as_ptr());
    Ok(())
}

/// Answers `BONDP_USER_CTL_OPCODE_GET_RJETTY`: the description of a jetty.
pub(super) fn jetty(ctx: CtlContext, from: In, to: Out) -> Answer {
    let jetty = object::<kind::Jetty>(ctx, from)?;
    output::<*mut urma_rjetty_t>(to)?;
    let more = of_jetty(jetty.shown().jetty_id);
    let made = memory::<urma_rjetty_t>(&more)?;
    // SAFETY: `memory` made it with a value of zeros just now, and no other thread has it.
    unsafe { &mut *made.as_ptr() }.flag.set_has_user_info(1);
    hand_over(to, made)
}

/// Answers `BONDP_USER_CTL_OPCODE_GET_SEG_CTX`: the description of a segment.
pub(super) fn segment(ctx: CtlContext, from: In, to: Out) -> Answer {
    let segment = object::<kind::Segment>(ctx, from)?;
    output::<*mut urma_seg_t>(to)?;
    let more = of_segment(&segment.shown().seg);
    let made = memory::<urma_seg_t>(&more)?;
    // SAFETY: `memory` made it with a value of zeros just now, and no other thread has it.
    unsafe { &mut *made.as_ptr() }.attr.set_has_user_info(1);
    hand_over(to, made)
}

/// One path here and one there, no health checks.
fn of_jetty(id: urma_jetty_id_t) -> Vec<u8> {
    const PEER: usize = offset_of!(urma_bond_jetty_ext_v0_t, data) + 1;
    let mask = BONDP_RJETTY_EXT_MASK_MULTI_PATH
        | BONDP_RJETTY_EXT_MASK_LOCAL_CTX
        | BONDP_RJETTY_EXT_MASK_TARGET_CTX;
    let one = 1u32.to_le_bytes();
    let len = size_of::<urma_bond_jetty_ext_v0_t>() + 1 + size_of::<bondp_rjetty_target_ctx_t>();
    let mut bytes = vec![0; len];
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, mask), &u64::from(mask).to_le_bytes());
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, local_ctx_cnt), &one);
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, target_ctx_cnt), &one);
    let slave = PEER + offset_of!(bondp_rjetty_target_ctx_t, slave_id);
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, eid), &eid(id.eid).bytes());
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, uasid), &id.uasid.to_le_bytes());
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, id), &id.id.to_le_bytes());
    bytes
}

/// The segment itself is that of path 0.
fn of_segment(seg: &urma_seg_t) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<urma_bond_seg_ext_t>()];
    let base = offset_of!(urma_bond_seg_ext_t, peer_p_seg);
    let ubva = base + offset_of!(urma_seg_base_t, ubva);
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, eid), &eid(seg.ubva.eid).bytes());
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, uasid), &seg.ubva.uasid.to_le_bytes());
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, va), &seg.ubva.va.to_le_bytes());
    put(&mut bytes, base + offset_of!(urma_seg_base_t, len), &seg.len.to_le_bytes());
    put(&mut bytes, base + offset_of!(urma_seg_base_t, attr), &seg.attr.value.to_le_bytes());
    let token_id = base + offset_of!(urma_seg_base_t, token_id);
    put(&mut bytes, token_id, &seg.token_id.to_le_bytes());
    bytes
}

fn put(to: &mut [u8], at: usize, from: &[u8]) {
    to[at..at + from.len()].copy_from_slice(from);
}
