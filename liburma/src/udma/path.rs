//! Transport paths as C programs name them: handles, their attributes, their numbers.
//!
//! *Owns*: the handles that a context gave out. *Takes*: a pair of EIDs and the kinds of path that
//! are wanted. *Gives*: a handle for each kind that serves the mode, once the peer was reached.
//! *Must not*: carry anything: requests take the path that the import found, whatever its kind. A
//! handle's attributes are kept and given back; no packet header of a software device has them.

use core::ffi::c_int;

use urma_core::{Eid, JettyId, OrderType, RemoteJetty, TargetKind, TokenPolicy, TpType};

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, gone, ours, refuse},
    convert::{eid, mode},
    latch::lock,
    udma::{
        context::ctx_of,
        kind::{self, AttrBytes, Ctx, TpHandle},
    },
};

/// Kinds of path that the flag names and the mode can use; a flag that names none stands for all.
fn kinds(cfg: &urma_get_tp_cfg_t) -> Vec<u32> {
    let flag = cfg.flag;
    let wants = [(flag.rtp(), URMA_RTP), (flag.ctp(), URMA_CTP), (flag.utp(), URMA_UTP)];
    let wants_all = wants.iter().all(|(wish, _)| *wish == 0);
    let serves = |kind: u32| (kind == URMA_UTP) == (cfg.trans_mode == URMA_TM_UM);
    let chosen =
        wants.into_iter().filter(|(wish, kind)| (wants_all || *wish != 0) && serves(*kind));
    chosen.map(|(_, kind)| kind).collect()
}

/// Whether the node answers: the path to it is made, and released.
fn reach(own: &Ctx, peer: Eid, cfg: &urma_get_tp_cfg_t) -> Answer {
    let mode = mode(cfg.trans_mode)?;
    let id = JettyId { eid: peer, uasid: 0, id: 1 };
    let (kind, order, policy) = (TargetKind::Jetty, OrderType::Default, TokenPolicy::None);
    let any = RemoteJetty { id, kind, mode, order, policy, tp: TpType::of(mode) };
    own.core.import_jetty(&any)?.unimport();
    Ok(())
}

/// Handles of the paths to `peer_eid`: at most `*tp_cnt`, which becomes their number.
pub(crate) unsafe extern "C" fn get_tp_list(
    ctx: *mut urma_context_t,
    cfg: *mut urma_get_tp_cfg_t,
    tp_cnt: *mut u32,
    tp_list: *mut urma_tp_info_t,
) -> urma_status_t {
    call::status(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: a number, an array of so many handles and a wish of the caller's (room card of `face`).
        let (count, list, cfg) = unsafe { call::args((tp_cnt, tp_list, cfg)) }?;
        let (cfg, room) = (cfg.read(), count.read() as usize);
        let (local, peer) = (eid(cfg.local_eid), eid(cfg.peer_eid));
        let kinds = kinds(&cfg);
        if room == 0 || local != own.core.eid() || peer.is_unspecified() || kinds.is_empty() {
            return Err(refuse!(
                EINVAL,
                "*tp_cnt is {room}, cfg.local_eid {local}, peer_eid {peer}, flag {:#x} with trans_mode {}; there must be \
                 room, the local EID is {}, and RM and RC have RTP and CTP, UM has UTP",
                cfg.flag.value,
                cfg.trans_mode,
                own.core.eid()
            ));
        }
        reach(&own, peer, &cfg)?;
        // SAFETY: the caller says that the array has room for so many.
        let list = unsafe { UserArray::at(list, room) };
        let info = |kind| Ok(urma_tp_info_t { tp_handle: lock(&own.handles).of(peer, kind)? });
        let given: Vec<_> = kinds.into_iter().take(room).map(info).collect::<Answer<_>>()?;
        list.copy_from(&given)?;
        count.write(
            u32::try_from(given.len())
                .map_err(|_| refuse!(FAIL, "there are {} handles", given.len()))?,
        );
        Ok(())
    })
}

/// Attributes that a bitmap can name, by bit: where they lie, first bit and width.
const ATTRS: [(usize, usize); 19] = [
    (0, 3),     // retry_times_init
    (3, 5),     // at
    (8, 128),   // sip
    (136, 128), // dip
    (264, 48),  // sma
    (312, 48),  // dma
    (360, 12),  // vlan_id
    (372, 1),   // vlan_en
    (373, 6),   // dscp
    (379, 5),   // at_times
    (384, 4),   // sl
    (392, 8),   // ttl
    (400, 16),  // ack_udp_srcport
    (416, 16),  // data_udp_srcport
    (432, 4),   // udp_srcport_range
    (436, 1),   // spray_en
    (437, 1),   // udp_global_en
    (440, 16),  // sl_bitmap
    (456, 1),   // dscp_config_mode
];

pub(crate) unsafe extern "C" fn set_tp_attr(
    ctx: *const urma_context_t,
    tp_handle: u64,
    tp_attr_cnt: u8,
    tp_attr_bitmap: u32,
    tp_attr: *const urma_tp_attr_value_t,
) -> urma_status_t {
    call::status(|| {
        let own = ctx_of(ctx)?;
        // SAFETY: attributes of the caller's (room card of `face`).
        let from = unsafe { call::value(tp_attr.cast::<AttrBytes>()) }?;
        if u32::from(tp_attr_cnt) < tp_attr_bitmap.count_ones()
            || tp_attr_bitmap >> ATTRS.len() != 0
        {
            return Err(refuse!(
                EINVAL,
                "tp_attr_cnt is {tp_attr_cnt} and tp_attr_bitmap {tp_attr_bitmap:#x}; the count is not below the bits, \
                 and there are {} attributes",
                ATTRS.len()
            ));
        }
        let mut handles = lock(&own.handles);
        let tp = handles.known.get_mut(&tp_handle).ok_or_else(|| unknown(tp_handle))?;
        merge(&mut tp.attr, &from, tp_attr_bitmap);
        tp.bitmap |= tp_attr_bitmap;
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn get_tp_attr(
    ctx: *const urma_context_t,
    tp_handle: u64,
    tp_attr_cnt: *mut u8,
    tp_attr_bitmap: *mut u32,
    tp_attr: *mut urma_tp_attr_value_t,
) -> urma_status_t {
    call::status(|| {
        let own = ctx_of(ctx)?;
        let places = (tp_attr_cnt, tp_attr_bitmap, tp_attr.cast::<AttrBytes>());
        // SAFETY: three places of the caller's (room card of `face`).
        let (count, bitmap, to) = unsafe { call::args(places) }?;
        let handles = lock(&own.handles);
        let tp = handles.known.get(&tp_handle).ok_or_else(|| unknown(tp_handle))?;
        let number = u8::try_from(tp.bitmap.count_ones()).unwrap_or(u8::MAX);
        to.write(tp.attr);
        bitmap.write(tp.bitmap);
        count.write(number);
        Ok(())
    })
}

/// The path that an `_ex` call names: none (handle 0), or one of `kind` to `peer`.
///
/// # Errors
/// EINVAL: no such handle in this context, or of another peer or kind.
pub(crate) fn check(own: &Ctx, active: &urma_active_tp_cfg_t, peer: Eid, kind: u32) -> Answer {
    if active.tp_handle == 0 {
        return Ok(());
    }
    let handles = lock(&own.handles);
    let fits = |tp: &TpHandle| tp.peer == peer && tp.kind == kind;
    if handles.known.get(&active.tp_handle).is_some_and(fits) {
        return Ok(());
    }
    let handle = active.tp_handle;
    Err(refuse!(
        EINVAL,
        "tp_handle {handle:#x} is no path of kind {kind} to {peer} of this context (urma_get_tp_list)"
    ))
}

fn unknown(handle: u64) -> Code {
    refuse!(EINVAL, "tp_handle {handle:#x} is none that urma_get_tp_list gave in this context")
}

/// The number of the path of a bound jetty; -EINVAL: not bound.
pub(crate) unsafe extern "C" fn get_tpn(jetty: *mut urma_jetty_t) -> c_int {
    call::negative(|| {
        let own = ours::<kind::Jetty>(jetty)?.lock().ok_or_else(gone::<kind::Jetty>)?;
        let target = own.core.bound().ok_or_else(|| refuse!(EINVAL, "the jetty is not bound"))?;
        c_int::try_from(target.path.tpn).map_err(|_| refuse!(FAIL, "the number is no int"))
    })
}

/// Not supported: packet numbers, states and timers of a path are the device's own.
pub(crate) unsafe extern "C" fn modify_tp(
    ctx: *mut urma_context_t,
    _tpn: u32,
    cfg: *mut urma_tp_cfg_t,
    attr: *mut urma_tp_attr_t,
    _mask: urma_tp_attr_mask_t,
) -> c_int {
    call::status(|| {
        ctx_of(ctx)?;
        call::some(cfg)?;
        call::some(attr)?;
        Err(refuse!(ENOTSUP, "numbers, states and timers of a path are the software device's own"))
    })
}

/// Copies the members that the bitmap names.
fn merge(to: &mut AttrBytes, from: &AttrBytes, bitmap: u32) {
    for (_, (first, width)) in ATTRS.iter().enumerate().filter(|(bit, _)| bitmap >> bit & 1 != 0) {
        for bit in *first..first + width {
            let mask = 1 << (bit % 8);
            to[bit / 8] = to[bit / 8] & !mask | from[bit / 8] & mask;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{AttrBytes, merge};

    #[test]
    fn only_named_members_are_copied() {
        let (mut to, from): (AttrBytes, AttrBytes) = ([0; 128], [0xff; 128]);
        merge(&mut to, &from, 1 << 8 | 1 << 2);
        // SIP is bytes 1 to 16, DSCP the bits 5 of byte 46 to 2 of byte 47.
        assert!(to[1..17].iter().all(|byte| *byte == 0xff));
        assert_eq!((to[0], to[17], to[45], to[46], to[47], to[48]), (0, 0, 0, 0xe0, 0x07, 0));
    }
}
