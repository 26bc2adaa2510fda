//! The members of jetty groups, as public memory lists them.
//!
//! *Owns*: `jetty_list` and `jetty_cnt` of every group, of any provider. *Takes*: jetties that
//! came and went. *Must not*: wait: one latch for all groups is held for a few moves of pointers.
#![expect(unsafe_code, reason = "public memory")]

use crate::{
    abi::{urma_jetty_grp_t, urma_jetty_t},
    call::{Answer, Code, Object, object},
    latch::Latch,
    udma::kind,
};

/// Lists change under it.
static CHANGING: Latch<()> = Latch::new(());

/// For a forked child: nobody changes a list.
pub(super) fn abandon() {
    CHANGING.abandon(());
}

/// Makes the list of a new group, with room for `room` jetties.
///
/// # Errors
/// ENOMEM.
pub(super) fn open(group: Object<urma_jetty_grp_t>, room: u32) -> Answer {
    let room = usize::try_from(room).map_err(|_| Code::FAIL)?.max(1);
    // SAFETY: the C library checks the product.
    let list = unsafe { libc::calloc(room, size_of::<*mut urma_jetty_t>()) };
    if list.is_null() {
        return Err(Code::ENOMEM);
    }
    // SAFETY: a new group.
    unsafe { (*group.as_ptr()).jetty_list = list.cast() };
    Ok(())
}

/// Frees the list of a group that was deleted.
pub(super) fn close(list: *mut *mut urma_jetty_t) {
    // SAFETY: `open` made it, or it is NULL.
    unsafe { libc::free(list.cast()) };
}

/// A jetty joined.
pub(super) fn add(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
    let Ok(group) = object::<kind::Group>(group) else { return };
    CHANGING.with(|()| {
        // SAFETY: a live group: it has a member.
        let group = unsafe { &mut *group.as_ptr() };
        if group.jetty_list.is_null() {
            return;
        }
        // SAFETY: the list has room for as many as the provider takes.
        let place = unsafe { group.jetty_list.add(group.jetty_cnt as usize) };
        // SAFETY: as above.
        unsafe { place.write(jetty) };
        group.jetty_cnt += 1;
    });
}

/// A jetty left.
pub(super) fn remove(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
    let Ok(group) = object::<kind::Group>(group) else { return };
    CHANGING.with(|()| {
        // SAFETY: a live group.
        let group = unsafe { &mut *group.as_ptr() };
        if group.jetty_list.is_null() {
            return;
        }
        let count = group.jetty_cnt as usize;
        // SAFETY: the list has `jetty_cnt` members.
        let list = unsafe { core::slice::from_raw_parts_mut(group.jetty_list, count) };
        if let Some(at) = list.iter().position(|member| *member == jetty) {
            list.copy_within(at + 1.., at);
            group.jetty_cnt -= 1;
        }
    });
}
