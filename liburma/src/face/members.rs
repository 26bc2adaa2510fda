//! The members of jetty groups, as public memory lists them.
//!
//! *Owns*: `jetty_list` and `jetty_cnt` of every group, of any provider. *Takes*: jetties that
//! came and went. *Must not*: wait: one latch for all groups is held for a few moves of pointers.

use crate::{
    abi::*,
    call::{Answer, Object, UserArray, object, refuse},
    latch::Latch,
    slab::{InSlot, Member, member},
    udma::kind,
};

/// The jetties of a group.
const LIST: Member<urma_jetty_grp_t, *mut *mut urma_jetty_t> =
    member!(urma_jetty_grp_t, jetty_list);
/// How many jetties a group has.
const COUNT: Member<urma_jetty_grp_t, u32> = member!(urma_jetty_grp_t, jetty_cnt);

/// Lists change under it.
static CHANGING: Latch<()> = Latch::new(());

/// For a forked child: no thread changes a list.
pub(super) fn abandon() {
    CHANGING.abandon(());
}

/// Makes the list of a new group, with room for `room` jetties.
///
/// # Errors
/// ENOMEM.
pub(super) fn open(group: Object<urma_jetty_grp_t>, room: u32) -> Answer {
    let room =
        usize::try_from(room).map_err(|_| refuse!(FAIL, "the group is for {room} jetties"))?.max(1);
    // SAFETY: the call touches no memory of ours; the C library checks the product.
    let list = unsafe { libc::calloc(room, size_of::<*mut urma_jetty_t>()) };
    if list.is_null() {
        return Err(refuse!(ENOMEM, "no memory for the list of {room} members of the group"));
    }
    group.set(LIST, list.cast());
    Ok(())
}

/// Frees the list of a group that was deleted.
pub(super) fn close(list: *mut *mut urma_jetty_t) {
    // SAFETY: `open` made the list with `calloc`, or it is NULL; the group that named it is deleted.
    unsafe { libc::free(list.cast()) };
}

/// Lists a jetty that joined the group; nothing happens when there is no list.
pub(super) fn add(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
    let Ok(group) = object::<kind::Group>(group) else { return };
    CHANGING.with(|()| {
        let (list, count) = (group.get(LIST), group.get(COUNT));
        // SAFETY: `open` made the list with room for as many jetties as the provider takes, and only the
        // holder of the latch changes it.
        if let Ok(list) = unsafe { UserArray::new(list, count as usize + 1) } {
            list.rest(count as usize).fill([jetty]);
            group.set(COUNT, count + 1);
        }
    });
}

/// Takes a jetty that left off the group's list.
pub(super) fn remove(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
    let Ok(group) = object::<kind::Group>(group) else { return };
    CHANGING.with(|()| {
        let (list, count) = (group.get(LIST), group.get(COUNT));
        // SAFETY: the list has that many members, and only the holder of the latch changes it.
        let Ok(list) = (unsafe { UserArray::new(list, count as usize) }) else { return };
        if let Some(at) = list.iter().position(|member| member == jetty) {
            list.rest(at).fill(list.rest(at + 1).iter());
            group.set(COUNT, count - 1);
        }
    });
}
