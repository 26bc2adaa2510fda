//! Notifiers: imports and bindings that end later.
//!
//! *Owns*: the threads of pending imports. *Takes*:
//! imports and bindings. *Gives*: notices. A target of a pending import is a slot that no look-up finds: every
//! call refuses it until its import succeeded, and an import that failed gives the slot back.
//! *Must not*: hold a lock over an import or a wait.

use core::{ffi::c_int, ptr::NonNull, time::Duration};
use std::sync::Arc;

use urma_core::RemoteJetty;

use crate::{
    abi::*,
    call::{self, Code, UserArray, ours, refuse},
    convert::{Remote, remote, zeroed},
    perf,
    slab::Fresh,
    udma::{
        context::{ctx_of, delete, no_place, publish, shared, token_of},
        kind::{self, NotifierOwn, TargetOwn},
        notices::{Name, Notice, NoticeSubject, Notices},
        target::{self, bind_jetty, unimport},
    },
};

/// Pending imports at most; each has a thread.
const IMPORTS_MAX: usize = 64;

pub(crate) unsafe extern "C" fn create_notifier(ctx: *mut urma_context_t) -> *mut urma_notifier_t {
    call::pointer(|| {
        let own = ctx_of(ctx)?;
        let notices = Notices::new()?;
        let mut public: urma_notifier_t = zeroed();
        public.urma_ctx = ctx;
        public.fd = notices.fd();
        let notifier = NotifierOwn { notices, ctx: Arc::clone(&own) };
        Ok(publish::<kind::Notifier>(&own, public, Arc::new(notifier))?.public())
    })
}

/// Threads that wait return. Targets whose import no notice reported are forgotten.
pub(crate) unsafe extern "C" fn delete_notifier(notifier: *mut urma_notifier_t) -> urma_status_t {
    call::status(|| {
        delete::<kind::Notifier>(notifier, |own| {
            for notice in own.notices.close() {
                if let (NoticeSubject::Import(Name(target)), 0) = (notice.about, notice.status) {
                    // SAFETY: the callee looks the target up; the program may have deleted it.
                    unsafe { unimport(target) };
                }
            }
            Ok(())
        })
    })
}

/// An import that is carried out by a thread of its own.
struct Import {
    to: Arc<NotifierOwn>,
    fresh: Fresh<kind::Target>,
    ctx: Name<urma_context_t>,
    from: Remote,
    remote: RemoteJetty,
    policy: u32,
    user_ctx: u64,
    /// When it is too late, nanoseconds of the monotonic clock.
    limit_ns: Option<u64>,
}

impl Import {
    fn run(self) {
        let made = self.to.ctx.core.import_jetty(&self.remote).map_err(Code::from);
        let is_late = self.limit_ns.is_some_and(|limit_ns| perf::now_ns() > limit_ns);
        let made = if is_late {
            Err(refuse!(ETIMEDOUT, "the import was not done within the timeout of the call"))
        } else {
            made
        };
        let Self { to, fresh, ctx, from, policy, user_ctx, .. } = self;
        let name = Name(fresh.public());
        let mut state = to.notices.state();
        if state.is_closed {
            drop(state);
            drop((made, fresh));
            to.notices.end_import();
            return;
        }
        state.imports -= 1;
        let status = match made {
            Ok(core) => {
                let public = target::public(ctx.0, &from, policy, &core);
                fresh.publish(to.ctx.owner, public, TargetOwn::new(core, &to.ctx));
                0
            }
            Err(code) => {
                drop(fresh);
                code.status()
            }
        };
        to.notices
            .report(&mut state, Notice { about: NoticeSubject::Import(name), status, user_ctx });
    }
}

pub(crate) unsafe extern "C" fn import_jetty_async(
    notifier: *mut urma_notifier_t,
    rjetty: *const urma_rjetty_t,
    token: *const urma_token_t,
    user_ctx: u64,
    timeout: c_int,
) -> *mut urma_target_jetty_t {
    call::pointer(|| {
        let to = shared::<kind::Notifier, _>(notifier)?;
        // SAFETY: a description of the caller's (room card of `face`).
        let of = unsafe { call::value(rjetty) }?;
        // SAFETY: a token of the caller's, or NULL.
        let token = unsafe { token_of(token) }?;
        let (id, kind, mode) = (of.jetty_id, of.r#type, of.trans_mode);
        let from = Remote { id, kind, mode, flag: of.flag, tp: of.tp_type, token };
        let remote = remote(&from)?;
        let fresh = Fresh::<kind::Target>::take().ok_or_else(no_place::<kind::Target>)?;
        let public = NonNull::new(fresh.public()).ok_or_else(no_place::<kind::Target>)?;
        let limit_ns = limit(timeout);
        let ctx = Name(ours::<kind::Notifier>(notifier)?.shown().urma_ctx);
        let import = {
            let mut state = to.notices.state();
            if state.is_closed || state.imports >= IMPORTS_MAX {
                return Err(refuse!(
                    EAGAIN,
                    "too many imports and bindings of the notifier are under way; wait for notices"
                ));
            }
            state.imports += 1;
            let to = Arc::clone(&to);
            Import { to, fresh, ctx, from, remote, policy: of.policy, user_ctx, limit_ns }
        };
        let thread = std::thread::Builder::new().name("urma-import".to_owned());
        if thread.spawn(move || import.run()).is_err() {
            to.notices.end_import();
            return Err(refuse!(ENOMEM, "no thread for the import"));
        }
        Ok(public.as_ptr())
    })
}

/// The moment `timeout` milliseconds from now; none for 0 and less.
fn limit(timeout: c_int) -> Option<u64> {
    let timeout = u64::try_from(timeout).ok().filter(|ms| *ms > 0)?;
    Some(perf::now_ns().saturating_add(timeout.saturating_mul(1_000_000)))
}

/// The path exists since the import, so the binding is made at once; a notice reports the result.
pub(crate) unsafe extern "C" fn bind_jetty_async(
    notifier: *mut urma_notifier_t,
    jetty: *mut urma_jetty_t,
    target: *mut urma_target_jetty_t,
    user_ctx: u64,
    _timeout: c_int,
) -> urma_status_t {
    call::status(|| {
        let to = shared::<kind::Notifier, _>(notifier)?;
        let jetty = ours::<kind::Jetty>(jetty)?.public();
        ours::<kind::Target>(target)?;
        // SAFETY: the callee looks both up.
        let status = unsafe { bind_jetty(jetty, target) };
        let notice = Notice { about: NoticeSubject::Bind(Name(jetty)), status, user_ctx };
        to.notices.report(&mut to.notices.state(), notice);
        Ok(())
    })
}

pub(crate) unsafe extern "C" fn wait_notify(
    notifier: *mut urma_notifier_t,
    cnt: u32,
    notify: *mut urma_notify_t,
    timeout: c_int,
) -> c_int {
    call::count(|| {
        let own = shared::<kind::Notifier, _>(notifier)?;
        // SAFETY: an array of the caller's of `cnt` notices (room card of `face`).
        let to = unsafe { UserArray::new(notify, cnt as usize) }?;
        let timeout = u64::try_from(timeout).ok().map(Duration::from_millis);
        let notices = own.notices.wait(usize::try_from(cnt).unwrap_or(usize::MAX), timeout);
        to.fill(notices.iter().map(Notice::out));
        c_int::try_from(notices.len())
            .map_err(|_| refuse!(FAIL, "there are {} notices", notices.len()))
    })
}

/// What a notice held was given back when it was made: nothing is kept until it is acknowledged.
pub(crate) unsafe extern "C" fn ack_notify(_cnt: u32, _notify: *mut urma_notify_t) {}
