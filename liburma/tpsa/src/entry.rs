//! The functions of `uvs_api.h`.
//!
//! *Owns*: the checks of arguments, which are those of UMDK release 26.06. *Takes*: C pointers; one
//! that is not NULL is believed to point to what the header says, at any address.
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]

use core::{
    ffi::{CStr, c_char, c_int, c_void},
    ptr::NonNull,
};

use crate::{
    EINVAL, No,
    abi::{
        MAX_NODE_NUM, UVS_MAIN_UE_EID_BATCH_EID_MAX, UVS_UTP, char_of, urma_topo_map_t,
        urma_topo_node, uvs_eid_t, uvs_main_ue_eid_batch_entry_t, uvs_main_ue_eid_entry_t,
        uvs_path_set_t, uvs_tp_type_t,
    },
    service::{Level, NONE, Raw, between, service},
    status,
};

/// Bytes of a device's name with the zero at its end.
const NAME_LEN: usize = 64;

fn place<T>(ptr: *const T) -> Result<NonNull<T>, No> {
    NonNull::new(ptr.cast_mut()).ok_or(EINVAL)
}

/// An EID. Programs pass those of a topology too, which are characters and lie anywhere.
///
/// # Safety
/// An EID of the caller's, or NULL.
unsafe fn eid(ptr: *const uvs_eid_t) -> Result<Raw, No> {
    // SAFETY: the contract of this function: an EID lies there.
    Ok(unsafe { place(ptr)?.read_unaligned() }.raw())
}

/// Names an aggregated device. -1 with EEXIST: the EID or the name is taken.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_create_agg_dev(
    agg_eid: *mut uvs_eid_t,
    dev_name: *const c_char,
) -> c_int {
    status(|| {
        // SAFETY: an EID of the caller's (room card).
        let of = unsafe { eid(agg_eid) }?;
        let name = place(dev_name)?;
        // SAFETY: a C string of the caller's (room card), of which 64 bytes are looked at.
        let len = unsafe { libc::strnlen(name.as_ptr(), NAME_LEN) };
        if len == 0 || len >= NAME_LEN {
            return Err(EINVAL);
        }
        // SAFETY: a C string of the caller's: its end was found just now.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) };
        service().create_agg(of, name.to_bytes())
    })
}

/// Forgets an aggregated device. -1 with ENOENT: there is none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_delete_agg_dev(agg_eid: *mut uvs_eid_t) -> c_int {
    // SAFETY: an EID of the caller's (room card).
    status(|| service().delete_agg(unsafe { eid(agg_eid) }?))
}

/// Name of an aggregated device, cut to `len` bytes with the zero at its end. `len` is at most 64.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_get_device_name_by_eid(
    eid: *mut uvs_eid_t,
    buf: *mut c_char,
    len: usize,
) -> c_int {
    status(|| {
        let to = place(buf)?;
        if len == 0 || len > NAME_LEN {
            return Err(EINVAL);
        }
        // SAFETY: an EID of the caller's (room card).
        let of = unsafe { self::eid(eid) }?;
        let mut text = [0; NAME_LEN];
        for (place, byte) in text[..len - 1].iter_mut().zip(service().agg_name(of)?) {
            *place = char_of(*byte);
        }
        // SAFETY: the caller's buffer has `len` bytes (room card).
        unsafe { to.as_ptr().copy_from_nonoverlapping(text.as_ptr(), len) };
        Ok(())
    })
}

/// Nodes of the caller's, as this library keeps them.
///
/// # Safety
/// `topo`, unless NULL, points to `count` nodes.
unsafe fn nodes(topo: *const c_void, size: u32, count: u32) -> Result<Vec<urma_topo_node>, No> {
    let topo = place(topo.cast::<urma_topo_node>())?;
    if size as usize != size_of::<urma_topo_node>() || count == 0 || count > MAX_NODE_NUM {
        return Err(EINVAL);
    }
    let mut copy = Vec::new();
    copy.try_reserve_exact(count as usize).map_err(|_| No::Argument(libc::ENOMEM))?;
    for index in 0..count as usize {
        // SAFETY: the contract of this function: `count` nodes lie there.
        let node = unsafe { topo.add(index) };
        // SAFETY: the node is one of them, and any bytes are its numbers.
        copy.push(unsafe { node.read_unaligned() });
    }
    Ok(copy)
}

/// Sets the topology, and the main EIDs that follow from it. At most 1024 nodes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_set_topo_info(
    topo_buf: *mut c_void,
    node_size: u32,
    node_num: u32,
) -> c_int {
    status(|| {
        // SAFETY: as many nodes of the caller's as it says (room card).
        let nodes = unsafe { nodes(topo_buf, node_size, node_num) }?;
        let mut service = service();
        service.learn_main(&nodes)?;
        service.nodes = nodes;
        Ok(())
    })
}

/// Learns the main EIDs of nodes that share the fabric; the topology stays as it is.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_set_share_topo_info(
    topo_buf: *mut c_void,
    node_size: u32,
    node_num: u32,
) -> c_int {
    status(|| {
        // SAFETY: as many nodes of the caller's as it says (room card).
        let nodes = unsafe { nodes(topo_buf, node_size, node_num) }?;
        service().learn_main(&nodes)
    })
}

/// Writes the topology to a `urma_topo_map_t`: its nodes and their number; what lies behind the last
/// node stays as it was. -1 with ENOENT: none is set.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_get_topo_info(topo: *mut c_void) -> c_int {
    status(|| {
        let to = place(topo.cast::<urma_topo_map_t>())?;
        let service = service();
        let count = service.nodes.len().min(MAX_NODE_NUM as usize);
        if count == 0 {
            return Err(No::Service(libc::ENOENT));
        }
        // SAFETY: a map of the caller's (room card); only an address is taken.
        let first = unsafe { &raw mut (*to.as_ptr()).topo_infos }.cast::<urma_topo_node>();
        let nodes: *const urma_topo_node = service.nodes.as_ptr();
        let len = count * size_of::<urma_topo_node>();
        // SAFETY: the caller's map has room for 1024 nodes, and `count` is at most that.
        unsafe { first.cast::<u8>().copy_from_nonoverlapping(nodes.cast(), len) };
        // SAFETY: a member of the caller's map; only an address is taken.
        let node_num = unsafe { &raw mut (*to.as_ptr()).node_num };
        // SAFETY: the member lies in the caller's map, at any address.
        unsafe { node_num.write_unaligned(u32::try_from(count).unwrap_or(0)) };
        Ok(())
    })
}

/// Says which EID is the main one of an EID's device. What was said before no longer holds.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_insert_main_ue_eid(entry: *const uvs_main_ue_eid_entry_t) -> c_int {
    status(|| {
        // SAFETY: an entry of the caller's (room card).
        let entry = unsafe { place(entry)?.read_unaligned() };
        service().insert_main(entry.main_ue_eid.raw(), &[entry.eid.raw()])
    })
}

/// [`uvs_insert_main_ue_eid`] for 1 to 128 EIDs: all or none.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_insert_main_ue_eid_batch(
    entry: *const uvs_main_ue_eid_batch_entry_t,
) -> c_int {
    status(|| {
        // SAFETY: an entry of the caller's (room card).
        let entry = unsafe { place(entry)?.read_unaligned() };
        if entry.eid_num == 0 || entry.eid_num > UVS_MAIN_UE_EID_BATCH_EID_MAX {
            return Err(EINVAL);
        }
        let eids: Vec<Raw> =
            entry.eids.iter().take(entry.eid_num as usize).map(|eid| eid.raw()).collect();
        service().insert_main(entry.main_ue_eid.raw(), &eids)
    })
}

/// Forgets the main EID of an EID. -1 with ENOENT: none is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_delete_main_ue_eid(eid: *const uvs_eid_t) -> c_int {
    // SAFETY: an EID of the caller's (room card).
    status(|| service().delete_main(unsafe { self::eid(eid) }?))
}

/// The main EID of an EID. -1 with ENOENT: none is known.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_lookup_main_ue_eid(
    eid: *const uvs_eid_t,
    main_ue_eid: *mut uvs_eid_t,
) -> c_int {
    status(|| {
        // SAFETY: an EID of the caller's (room card).
        let (of, to) = (unsafe { self::eid(eid) }?, NonNull::new(main_ue_eid).ok_or(EINVAL)?);
        let main = service().main_of(of)?;
        // SAFETY: a place of the caller's (room card).
        unsafe { to.write_unaligned(uvs_eid_t::from_raw(main)) };
        Ok(())
    })
}

/// Forgets all main EIDs.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_flush_main_ue_eid() -> c_int {
    status(|| {
        service().flush_main();
        Ok(())
    })
}

/// The paths from one EID to another: at least one. All kinds of transport path have the same ends.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn uvs_get_path_set(
    src_bondind_eid: *const uvs_eid_t,
    dst_bonding_eid: *const uvs_eid_t,
    tp_type: uvs_tp_type_t,
    iodie_level: u8,
    uvs_path_set: *mut uvs_path_set_t,
) -> c_int {
    status(|| {
        // SAFETY: two EIDs of the caller's (room card).
        let (src, dst) = (unsafe { eid(src_bondind_eid) }?, unsafe { eid(dst_bonding_eid) }?);
        let to = place(uvs_path_set)?;
        if tp_type > UVS_UTP || src == NONE || dst == NONE {
            return Err(EINVAL);
        }
        let level = if iodie_level == 0 { Level::Port } else { Level::Die };
        let set = between(&service().nodes, src, dst, level);
        // SAFETY: a place of the caller's (room card).
        unsafe { to.write_unaligned(set) };
        Ok(())
    })
}
