//! Calls of providers, and the book-keeping in public memory around them.
//!
//! *Owns*: how tables are read, references counted, limits found. *Must not*: check arguments of
//! single functions.

use core::{ffi::c_int, ptr::NonNull};

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{Answer, Code, Object, refuse},
    slab::{Member, member},
};

/// Reads a member of a table; `None` if the provider left it out.
macro_rules! member_of {
    ($table:expr, $member:ident) => {{
        let table = $table;
        // SAFETY: `ops` and `provider` give tables of live contexts and devices, whose providers keep them.
        unsafe { (*table.as_ptr()).$member }
    }};
}
pub(crate) use member_of;

/// Reads a member of a context's table; EINVAL if the provider left it out.
macro_rules! op {
    ($ctx:expr, $member:ident) => {
        $crate::call::present($crate::face::dispatch::member_of!(
            $crate::face::dispatch::ops($ctx)?,
            $member
        ))?
    };
}
pub(crate) use op;

/// Calls an operation of a table, which [`op`] read.
macro_rules! run {
    ($op:ident($($arg:expr),* $(,)?)) => {{
        let (op, args) = ($op, ($($arg,)*));
        $crate::call::begin_op();
        // SAFETY: the operation is of the table of a live context or device, whose provider stays loaded.
        // `call::object` found the objects among the arguments; what others point to is the C caller's, as
        // the room card of `face` says, or a value of the function around.
        unsafe { $crate::call::TableOp::with(op, args) }
    }};
}
pub(crate) use run;

/// Calls an operation of the provider that drives a context; EINVAL if the provider left it out.
macro_rules! ask {
    ($ctx:expr, $member:ident($($arg:expr),* $(,)?)) => {{
        let op = $crate::face::dispatch::op!($ctx, $member);
        $crate::face::dispatch::run!(op($($arg),*))
    }};
}
pub(crate) use ask;

/// The table of a context. A context that an object names is live: it cannot be deleted before.
#[inline]
pub(crate) fn ops(ctx: *mut urma_context_t) -> Answer<NonNull<urma_ops_t>> {
    // SAFETY: the caller found the context, or a live object names it, which keeps it alive.
    let ctx = unsafe { Object::at(ctx) }.ok_or_else(|| none("context"))?;
    NonNull::new(ctx.ops).ok_or_else(|| none("ctx->ops"))
}

/// The error for an object that lacks a member because a provider or the program cleared it.
#[cold]
#[inline(never)]
fn none(member: &str) -> Code {
    refuse!(EINVAL, "{member} is NULL")
}

/// An object with a pointer to its context.
pub(crate) trait Homed: Sized {
    /// Returns the context that `of` was made from.
    fn home(of: Object<Self>) -> *mut urma_context_t;
}

/// A context is its own home.
impl Homed for urma_context_t {
    #[inline]
    fn home(of: Object<Self>) -> *mut urma_context_t {
        of.as_ptr()
    }
}

macro_rules! homed {
    ($($name:ident),* $(,)?) => {$(
        impl Homed for crate::abi::$name {
            #[inline]
            fn home(of: Object<Self>) -> *mut urma_context_t {
                of.urma_ctx
            }
        }
    )*};
}

homed! {
    urma_jetty_grp_t, urma_jetty_t, urma_jfc_t, urma_jfce_t, urma_jfr_t, urma_jfs_t,
    urma_notifier_t, urma_target_jetty_t, urma_target_seg_t, urma_token_id_t,
}

/// Returns the context of a live object.
#[inline]
pub(crate) fn home<T: Homed>(of: Object<T>) -> *mut urma_context_t {
    T::home(of)
}

/// Exported functions that look an object up, refuse NULL for the arguments that `needs` lists, and call an
/// operation with the same arguments: `name(object: *mut Type as Kind, ...) needs(...) = operation;`.
macro_rules! forwards {
    ($($(#[$doc:meta])* $name:ident($object:ident: *$access:tt $public:ident as $kind:ident $(, $arg:ident: $ty:ty)*)
        needs($($needed:ident),*) = $op:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            $object: *$access $public,
            $($arg: $ty),*
        ) -> $crate::abi::urma_status_t {
            $crate::call::status(|| {
                let found = $crate::call::object::<$crate::udma::kind::$kind>($object)?;
                $($crate::call::some($needed)?;)*
                let $object: *$access _ = found.as_ptr();
                let home = $crate::face::dispatch::home(found);
                $crate::call::Code::from_c($crate::face::dispatch::ask!(home, $op($object $(, $arg)*)))
            })
        }
    )*};
}
pub(crate) use forwards;

/// Exported functions that end an object that its context counts.
macro_rules! ends {
    ($($(#[$doc:meta])* $name:ident($public:ident as $kind:ident) = $op:ident;)*) => {$(
        $(#[$doc])*
        pub unsafe extern "C" fn $name(
            object: *mut $public,
        ) -> $crate::abi::urma_status_t {
            $crate::call::status(|| {
                let object = $crate::call::object::<$crate::udma::kind::$kind>(object)?;
                let home = $crate::face::dispatch::home(object);
                let answer = $crate::face::dispatch::ask!(home, $op(object.as_ptr()));
                $crate::call::Code::from_c(answer)?;
                $crate::face::dispatch::release(home);
                Ok(())
            })
        }
    )*};
}
pub(crate) use ends;

/// The table of the provider that drives a device.
pub(crate) fn provider(dev: Object<urma_device_t>) -> Answer<NonNull<urma_provider_ops_t>> {
    NonNull::new(dev.ops).ok_or_else(|| none("dev->ops"))
}

/// The device of a context.
pub(crate) fn device(ctx: Object<urma_context_t>) -> Answer<Object<urma_device_t>> {
    // SAFETY: a device lives as long as its contexts, which name it.
    unsafe { Object::at(ctx.dev) }.ok_or_else(|| none("ctx->dev"))
}

/// Returns what the system says about a device.
pub(crate) fn sysfs(dev: Object<urma_device_t>) -> Answer<Object<urma_sysfs_dev_t>> {
    // SAFETY: the struct lives as long as its device, whose provider or registry keeps both.
    unsafe { Object::at(dev.sysfs_dev) }.ok_or_else(|| none("dev->sysfs_dev"))
}

/// Returns the attributes of a device, as the system lists them.
pub(crate) const ATTR: Member<urma_sysfs_dev_t, urma_device_attr_t> =
    member!(urma_sysfs_dev_t, dev_attr);

/// The limits of a context's device.
pub(crate) fn caps(ctx: Object<urma_context_t>) -> Answer<urma_device_cap_t> {
    // Written before the first context of the device is made, with the same values each time.
    Ok(sysfs(device(ctx)?)?.dev_attr.dev_cap)
}

/// Counts one more object of the context.
pub(crate) fn retain(ctx: Object<urma_context_t>) {
    let count = &ctx.r#ref;
    count.atomic_cnt.fetch_add(1, Ordering::AcqRel);
}

/// Counts one object of the context less.
pub(crate) fn release(ctx: *mut urma_context_t) {
    // SAFETY: the object that named the context counted until now, so it is live.
    if let Some(ctx) = unsafe { Object::at(ctx) } {
        drop_one(&ctx.r#ref);
    }
}

/// Never goes below the count of the object itself: a program may have written to it.
pub(crate) fn drop_one(count: &urma_ref_t) {
    let less = |count: u64| (count > 1).then(|| count - 1);
    // If the count says that there are no users, there is nothing to do.
    let _ = count.atomic_cnt.fetch_update(Ordering::AcqRel, Ordering::Acquire, less);
}

/// Returns the users of the object with this count, without the object itself.
pub(crate) fn users(count: &urma_ref_t) -> u64 {
    count.atomic_cnt.load(Ordering::Acquire).saturating_sub(1)
}

/// Checks a count from a provider, which has set `errno` if it is negative.
pub(crate) fn as_set(count: c_int) -> Answer<c_int> {
    if count < 0 { Err(Code::as_set()) } else { Ok(count) }
}
