//! Jetty groups: creation and deletion.

use crate::{
    abi::*,
    call::{self, Code, made, object, refuse},
    face::{
        dispatch::{caps, home, op, release, retain, run},
        members,
    },
    udma::kind,
};

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
        if let Err(code) = members::open(group, caps(ctx)?.max_jetty_in_jetty_grp) {
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
        members::close(list);
        release(ctx);
        Ok(())
    })
}
