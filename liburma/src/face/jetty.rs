//! Jetties: description for peers; jetty groups: creation and deletion, members as public memory lists them.
//!
//! *Owns*: `jetty_list` and `jetty_cnt` of every group, of any provider. *Takes*: jetties that
//! came and went. *Must not*: wait: one latch for all groups is held for a few moves of pointers.

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserArray, made, object, refuse},
    face::{
        describe, device,
        dispatch::{caps, home, op, release, retain, run},
    },
    latch::Latch,
    slab::{InSlot, Member, member},
    udma::kind,
};

/// Describes the jetty for peers, which import it by the description: bytes that mean the same in any process, without
/// the token. `urma_put_rjetty` frees them.
pub unsafe extern "C" fn urma_get_rjetty(
    jetty: *mut urma_jetty_t,
    rjetty: *mut *mut urma_rjetty_t,
    length: *mut u32,
) -> urma_status_t {
    call::status(|| {
        let jetty = object::<kind::Jetty>(jetty)?;
        // SAFETY: two places of the caller's (room card of `face`).
        let (to, length) = unsafe { call::args((rjetty, length)) }?;
        let ctx = home(jetty);
        let policy = token_policy(jetty)?;
        let memory = describe::blank::<urma_rjetty_t>(ctx, jetty)?;
        // SAFETY: `blank` made the memory with a value just now, and no other thread has it.
        let described = unsafe { &mut *memory.as_ptr() };
        fill(described, &jetty);
        described.flag.set_token_policy(policy);
        // SAFETY: `blank` made the memory; the flag in it is as it was then.
        unsafe { describe::give(memory, (to, length)) };
        Ok(())
    })
}

/// Returns the token policy of the JFR that a jetty receives through.
fn token_policy(jetty: Object<urma_jetty_t>) -> Answer<u32> {
    let Receive::Shared(shared) = jetty.jetty_cfg.receive() else {
        return Err(refuse!(
            EINVAL,
            "the jetty has share_jfr 0; only one that shares a JFR is described"
        ));
    };
    Ok(object::<kind::Jfr>(shared.jfr)?.jfr_cfg.flag.token_policy())
}

fn fill(to: &mut urma_rjetty_t, jetty: &urma_jetty_t) {
    let cfg = &jetty.jetty_cfg;
    let mode = cfg.jfs_cfg.trans_mode;
    to.jetty_id = jetty.jetty_id;
    to.trans_mode = mode;
    to.r#type = URMA_JETTY;
    to.flag.set_order_type(cfg.jfs_cfg.flag.order_type());
    if mode == URMA_TM_UM {
        to.tp_type = URMA_UTP;
    }
    to.policy = object::<kind::Group>(cfg.jetty_grp).map_or(0, |group| group.cfg.policy);
}

/// Frees a description of `urma_get_rjetty`; NULL is ignored.
pub unsafe extern "C" fn urma_put_rjetty(rjetty: *mut urma_rjetty_t) {
    // SAFETY: the caller got it from `urma_get_rjetty`, which made it with the C library, or it is NULL.
    unsafe { device::take_back(rjetty.cast()) };
}

/// A group: one name for several RM jetties of its token, which join it when they are created.
pub unsafe extern "C" fn urma_create_jetty_grp(
    ctx: *mut urma_context_t,
    cfg: *mut urma_jetty_grp_cfg_t,
) -> *mut urma_jetty_grp_t {
    call::pointer(|| {
        let ctx = object::<kind::Context>(ctx)?;
        let create = op!(ctx.as_ptr(), create_jetty_grp);
        // SAFETY: a configuration of the caller's (room card of `face`).
        let of = unsafe { call::value(cfg) }?;
        if !of.name.contains(&0) {
            return Err(refuse!(
                EINVAL,
                "cfg.name has no zero byte; a name has at most 63 characters"
            ));
        }
        let group = made(run!(create(ctx.as_ptr(), cfg)))?;
        retain(ctx);
        if let Err(code) = make_list(group, caps(ctx)?.max_jetty_in_jetty_grp) {
            // SAFETY: the callee looks the group up.
            unsafe { urma_delete_jetty_grp(group.as_ptr()) };
            return Err(code);
        }
        Ok(group.as_ptr())
    })
}

/// Deletes a group. `URMA_ENOPERM`: it has members.
pub unsafe extern "C" fn urma_delete_jetty_grp(jetty_grp: *mut urma_jetty_grp_t) -> urma_status_t {
    call::status(|| {
        let group = object::<kind::Group>(jetty_grp)?;
        let ctx = home(group);
        let delete = op!(ctx, delete_jetty_grp);
        if group.jetty_cnt != 0 {
            return Err(refuse!(
                ENOPERM,
                "jetty_cnt is {}; delete the members of the group first",
                group.jetty_cnt
            ));
        }
        let list = group.jetty_list;
        Code::from_c(run!(delete(group.as_ptr())))?;
        free_list(list);
        release(ctx);
        Ok(())
    })
}

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
fn make_list(group: Object<urma_jetty_grp_t>, room: u32) -> Answer {
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
fn free_list(list: *mut *mut urma_jetty_t) {
    // SAFETY: `make_list` made the list with `calloc`, or it is NULL; the group that named it is deleted.
    unsafe { libc::free(list.cast()) };
}

/// Lists a jetty that joined the group; nothing happens when there is no list.
pub(super) fn add_member(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
    let Ok(group) = object::<kind::Group>(group) else { return };
    CHANGING.with(|()| {
        let (list, count) = (group.get(LIST), group.get(COUNT));
        // SAFETY: `make_list` made the list with room for as many jetties as the provider takes, and only the
        // holder of the latch changes it.
        if let Ok(list) = unsafe { UserArray::new(list, count as usize + 1) } {
            list.rest(count as usize).fill([jetty]);
            group.set(COUNT, count + 1);
        }
    });
}

/// Takes a jetty that left off the group's list.
pub(super) fn remove_member(group: *mut urma_jetty_grp_t, jetty: *mut urma_jetty_t) {
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
