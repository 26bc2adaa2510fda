//! Devices: lists, lookups, attributes; addresses of nodes: EIDs from numbers and text, network addresses, MACs.

use core::{
    ffi::{c_char, c_int, c_void},
    ptr::NonNull,
};

use urma_core::Eid;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserPtr, object, refuse},
    convert::{eid, eid_out},
    face::{
        dispatch::{ATTR, forwards, member_of, provider as table, run, sysfs},
        library,
    },
    provider,
    slab::InSlot,
    udma::{address::net_addr, device, kind},
};

/// Returns all devices in a NULL-terminated array that `urma_free_device_list` frees.
pub unsafe extern "C" fn urma_get_device_list(num_devices: *mut c_int) -> *mut *mut urma_device_t {
    call::pointer(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(num_devices) }?;
        let found = library::devices();
        let count = found.as_ref().map_or(0, Vec::len);
        to.write(c_int::try_from(count).map_err(|_| refuse!(FAIL, "there are {count} devices"))?);
        let mut list: Vec<_> = found?.into_iter().map(Object::as_ptr).collect();
        list.push(core::ptr::null_mut());
        give(&list)
    })
}

/// Frees a list; NULL is ignored.
pub unsafe extern "C" fn urma_free_device_list(device_list: *mut *mut urma_device_t) {
    // SAFETY: the caller got it from this library, where `give` made it, or it is NULL.
    unsafe { take_back(device_list.cast()) };
}

/// Returns the claimed EIDs of a device in an array that `urma_free_eid_list` frees.
pub unsafe extern "C" fn urma_get_eid_list(
    dev: *mut urma_device_t,
    cnt: *mut u32,
) -> *mut urma_eid_info_t {
    call::pointer(|| {
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(cnt) }?;
        to.write(0);
        let list: Vec<_> = eids(object::<kind::Device>(dev)?)?
            .into_iter()
            .map(|(eid_index, eid)| urma_eid_info_t { eid: eid_out(eid), eid_index })
            .collect();
        to.write(
            u32::try_from(list.len())
                .map_err(|_| refuse!(FAIL, "there are {} EIDs", list.len()))?,
        );
        give(&list)
    })
}

/// Frees a list; NULL is ignored.
pub unsafe extern "C" fn urma_free_eid_list(eid_list: *mut urma_eid_info_t) {
    // SAFETY: the caller got it from this library, where `give` made it, or it is NULL.
    unsafe { take_back(eid_list.cast()) };
}

/// Bytes of a device's name with the zero byte at its end, `URMA_MAX_NAME`.
const NAME_ROOM: usize = 64;

/// Looks up a device by name. EINVAL: the name has 64 bytes or more, which no device has.
pub unsafe extern "C" fn urma_get_device_by_name(dev_name: *mut c_char) -> *mut urma_device_t {
    call::pointer(|| {
        // SAFETY: a C string of the caller's (room card of `face`).
        let wanted = unsafe { call::text(dev_name) }?;
        if wanted.to_bytes().len() >= NAME_ROOM {
            let len = wanted.to_bytes().len();
            return Err(refuse!(EINVAL, "dev_name has {len} characters; a name has at most 63"));
        }
        Ok(library::device_named(wanted)?.as_ptr())
    })
}

/// Looks up the device that has this EID; devices that cannot be opened are skipped.
pub unsafe extern "C" fn urma_get_device_by_eid(
    eid: urma_eid_t,
    r#type: urma_transport_type_t,
) -> *mut urma_device_t {
    call::pointer(|| {
        let wanted = self::eid(eid);
        let is_it =
            |device: &Object<urma_device_t>| device.r#type == r#type && has(*device, wanted);
        library::devices()?.into_iter().find(is_it).map(Object::as_ptr).ok_or_else(|| {
            refuse!(ENODEV, "no device of transport type {} has EID {wanted}", r#type)
        })
    })
}

fn has(device: Object<urma_device_t>, wanted: Eid) -> bool {
    eids(device).is_ok_and(|eids| eids.iter().any(|(_, eid)| *eid == wanted))
}

/// EIDs by index: the software device is asked, for others their files are read.
fn eids(device: Object<urma_device_t>) -> Answer<Vec<(u32, Eid)>> {
    if device::is_software(device.non_null()) {
        Ok((0..).zip(device::eids(device.as_ptr())?).collect())
    } else {
        provider::eids(device)
    }
}

/// Attributes and limits of a device.
pub unsafe extern "C" fn urma_query_device(
    dev: *mut urma_device_t,
    dev_attr: *mut urma_device_attr_t,
) -> urma_status_t {
    call::status(|| {
        let dev = object::<kind::Device>(dev)?;
        // SAFETY: a place of the caller's (room card of `face`).
        let to = unsafe { UserPtr::new(dev_attr) }?;
        let known = sysfs(dev)?;
        // The values of the device's files, which a provider may leave as they are.
        to.write(known.get(ATTR));
        if let Some(query) = member_of!(table(dev)?, query_device) {
            Code::from_c(run!(query(dev.as_ptr(), to.as_ptr())))?;
        }
        known.set(ATTR, to.read());
        Ok(())
    })
}

/// Copies `list` to memory of the C library, which the caller returns with [`take_back`].
///
/// # Errors
/// ENOMEM.
pub(super) fn give<T: Copy>(list: &[T]) -> Answer<*mut T> {
    let bytes = size_of_val(list).max(1);
    // SAFETY: the size is above 0, and the call touches no memory of ours.
    let to: *mut T = unsafe { libc::malloc(bytes) }.cast();
    let to = NonNull::new(to).ok_or_else(|| refuse!(ENOMEM, "no memory for a list"))?;
    // SAFETY: `malloc` gave room for the list just now, aligned for any type of C.
    unsafe { to.as_ptr().copy_from_nonoverlapping(list.as_ptr(), list.len()) };
    Ok(to.as_ptr())
}

/// Frees memory of [`give`]; ignores a pointer that is not aligned like it.
///
/// # Safety
/// `memory`, if it is aligned so, came from [`give`], or is NULL.
pub(super) unsafe fn take_back(memory: *mut c_void) {
    if !memory.cast::<libc::max_align_t>().is_aligned() {
        call::nothing(|| Err(refuse!(EINVAL, "{memory:p} is no list of this library")));
        return;
    }
    // SAFETY: the contract of this function: `give` made it with `malloc`.
    unsafe { libc::free(memory) };
}

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
