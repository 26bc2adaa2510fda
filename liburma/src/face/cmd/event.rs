//! Commands that wait and acknowledge, and that ask a device.
#![expect(unsafe_code, reason = "exported functions")]
#![expect(clippy::missing_safety_doc, reason = "the room card says what callers promise")]
#![expect(missing_docs, reason = "each is the command of its name; the room card says the rest")]

use core::ffi::c_int;

use super::{
    plain::done,
    shadow::{self, Fds},
};
use crate::{
    abi::{
        URMA_EVENT_JETTY_GRP_ERR, urma_async_event_element, urma_async_event_t, urma_context_t,
        urma_eid_info_t, urma_jfc_t, urma_net_addr_info_t, urma_notifier_t, urma_notify_t,
        urma_status_t, urma_sysfs_dev_t,
    },
    call::{self, Code},
    convert::name::{eid, eid_out},
    face::{cdev, jfc::as_set},
    udma::{address::net_addr, device, event, jfc, jfce, kind, notifier},
};

/// `jfce_fd` is what `urma_cmd_create_jfce` gave.
pub unsafe extern "C" fn urma_cmd_wait_jfc(
    jfce_fd: c_int,
    jfc_cnt: u32,
    time_out: c_int,
    jfc: *mut *mut urma_jfc_t,
) -> c_int {
    call::count(|| {
        let channel = shadow::by_fd(Fds::Channels, jfce_fd)?;
        let list = call::place(jfc)?;
        // SAFETY: the operation looks it up; the caller's array.
        let count = as_set(unsafe { jfce::wait_jfc(channel, jfc_cnt, time_out, jfc) })?;
        for index in 0..usize::try_from(count).unwrap_or(0) {
            // SAFETY: inside the caller's array.
            let place = unsafe { list.add(index) };
            // SAFETY: written just now.
            let owner = shadow::owner(unsafe { place.read() });
            // SAFETY: as above.
            unsafe { place.write(owner) };
        }
        Ok(count)
    })
}

pub unsafe extern "C" fn urma_cmd_ack_jfc(
    jfc: *mut *mut urma_jfc_t,
    nevents: *mut u32,
    jfc_cnt: u32,
) {
    call::nothing(|| {
        let (list, counts) = (call::place(jfc)?, call::place(nevents)?);
        for index in 0..usize::try_from(jfc_cnt).map_err(|_| Code::EINVAL)? {
            // SAFETY: inside the caller's array.
            let place = unsafe { list.add(index) };
            // SAFETY: as above.
            let mut queue = shadow::of::<kind::Jfc>(unsafe { place.read() })?;
            // SAFETY: inside the caller's array.
            let count = unsafe { counts.add(index) };
            // SAFETY: a list of one, and the caller's count.
            unsafe { jfc::ack_jfc(&raw mut queue, count.as_ptr(), 1) };
        }
        Err(Code::AS_SET)
    });
}

pub unsafe extern "C" fn urma_cmd_get_async_event(
    ctx: *mut urma_context_t,
    event: *mut urma_async_event_t,
) -> urma_status_t {
    call::status(|| {
        let to = call::place(event)?;
        // SAFETY: the operation looks it up; the caller's place.
        Code::from_c(unsafe { event::get_async_event(shadow::context(ctx)?, event) })?;
        // SAFETY: written just now.
        let mut public = unsafe { to.read() };
        public.urma_ctx = ctx;
        if public.event_type <= URMA_EVENT_JETTY_GRP_ERR {
            // SAFETY: events of these types name an object.
            let jfc = shadow::owner(unsafe { public.element.jfc });
            public.element = urma_async_event_element { jfc };
        }
        // SAFETY: the caller's place.
        unsafe { to.write(public) };
        Ok(())
    })
}

pub unsafe extern "C" fn urma_cmd_ack_async_event(event: *mut urma_async_event_t) {
    call::nothing(|| {
        // SAFETY: the caller's event.
        let mut of = unsafe { call::value(event) }?;
        of.urma_ctx = shadow::context(of.urma_ctx)?;
        if of.event_type <= URMA_EVENT_JETTY_GRP_ERR {
            of.element = behind(&of)?;
        }
        // SAFETY: an event of this function.
        unsafe { event::ack_async_event(&raw mut of) };
        Err(Code::AS_SET)
    });
}

/// The software device's object that an event is about.
fn behind(event: &urma_async_event_t) -> call::Answer<urma_async_event_element> {
    // SAFETY: every object's member is a pointer.
    let object = unsafe { event.element.jfc };
    let jfc = match event.event_type {
        0 => shadow::of::<kind::Jfc>(object)?,
        1 => shadow::of::<kind::Jfs>(object.cast())?.cast(),
        2 | 3 => shadow::of::<kind::Jfr>(object.cast())?.cast(),
        4 | 5 => shadow::of::<kind::Jetty>(object.cast())?.cast(),
        _ => shadow::of::<kind::Group>(object.cast())?.cast(),
    };
    Ok(urma_async_event_element { jfc })
}

pub unsafe extern "C" fn urma_cmd_wait_notify(
    notifier: *mut urma_notifier_t,
    cnt: u32,
    notify: *mut urma_notify_t,
    timeout: c_int,
) -> c_int {
    call::count(|| {
        let from = call::aligned(notifier)?;
        // SAFETY: a notifier of the provider's.
        let behind = shadow::by_fd(Fds::Notifiers, unsafe { (*from.as_ptr()).fd })?;
        // SAFETY: the operation looks it up; the caller's array.
        as_set(unsafe { notifier::wait_notify(behind, cnt, notify, timeout) })
    })
}

/// The EIDs of the device that `dev_fd` was opened on: at most `max_eid_cnt`.
pub unsafe extern "C" fn urma_cmd_get_eid_list(
    dev_fd: c_int,
    max_eid_cnt: u32,
    eid_list: *mut urma_eid_info_t,
    eid_cnt: *mut u32,
) -> c_int {
    done(|| {
        let (to, count) = (call::place(eid_list)?, call::place(eid_cnt)?);
        let of = cdev::device(dev_fd)?;
        let mut given = 0;
        for eid in device::eids(of.as_ptr())?.into_iter().take(max_eid_cnt as usize) {
            // SAFETY: inside the caller's array.
            let place = unsafe { to.add(given as usize) };
            // SAFETY: as above.
            unsafe { place.write(urma_eid_info_t { eid: eid_out(eid), eid_index: given }) };
            given += 1;
        }
        // SAFETY: the caller's number.
        unsafe { count.write(given) };
        Ok(())
    })
}

/// The attributes of the device that `dev_fd` was opened on, to `sysfs_dev->dev_attr`.
pub unsafe extern "C" fn urma_cmd_query_device_attr(
    dev_fd: c_int,
    sysfs_dev: *mut urma_sysfs_dev_t,
) -> c_int {
    done(|| {
        let to = call::place(sysfs_dev)?;
        let attr = device::attributes(cdev::device(dev_fd)?.as_ptr())?;
        // SAFETY: the caller's struct.
        let place = call::place(unsafe { &raw mut (*to.as_ptr()).dev_attr })?;
        // SAFETY: a member of it.
        unsafe { place.write(attr) };
        Ok(())
    })
}

/// The address of the context's EID, if there is room for one.
pub unsafe extern "C" fn urma_cmd_get_net_addr_list(
    ctx: *mut urma_context_t,
    max_netaddr_cnt: u32,
    net_addr_info: *mut urma_net_addr_info_t,
    cnt: *mut u32,
) -> c_int {
    done(|| {
        let (to, count) = (call::place(net_addr_info)?, call::place(cnt)?);
        if max_netaddr_cnt == 0 {
            return Err(Code::EINVAL);
        }
        // SAFETY: a live context.
        let of = eid(unsafe { (*shadow::context(ctx)?).eid });
        // SAFETY: the caller's array has an element.
        unsafe { to.write(urma_net_addr_info_t { netaddr: net_addr(of), index: 0 }) };
        // SAFETY: the caller's number.
        unsafe { count.write(1) };
        Ok(())
    })
}
