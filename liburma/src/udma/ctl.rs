//! `urma_user_ctl`: what only a program that knows its device asks.
//!
//! The opcodes of UDMA devices, and those of bonding devices for the names that such a device has. Takes the
//! caller's structs, of exactly the length of their opcode; answers EOPNOTSUPP to what a software device cannot mean
//! (docs/c-api.md lists each with its reason).

use core::{ffi::c_int, mem::offset_of, ptr::NonNull};

use urma_mem::sync::Ordering;

use crate::{
    abi::*,
    call::{self, Answer, Code, UserArray, UserPtr, c_text, ours, refuse},
    convert::eid,
    slab::{InSlot, Kind, Slot, member},
    udma::{context, family, kind, post},
};

/// Names that begin so are bonding devices in programs' eyes.
const BONDING: &[u8] = b"bonding_dev";

/// A context of this provider, as this file passes it on.
type CtlContext = Slot<kind::Context>;

pub(crate) unsafe extern "C" fn user_ctl(
    ctx: *mut urma_context_t,
    r#in: *mut urma_user_ctl_in_t,
    out: *mut urma_user_ctl_out_t,
) -> c_int {
    call::status(|| {
        let ctx = ours::<kind::Context>(ctx)?;
        // SAFETY: two structs of the caller's (room card of `face`).
        let (from, to) = unsafe { call::args((r#in, out)) }?;
        let (from, to) = (from.read(), to.read());
        if is_bonding(ctx) { bonding(ctx, from, to) } else { udma(ctx, from, to) }
    })
}

fn is_bonding(ctx: CtlContext) -> bool {
    let dev = ours::<kind::Device>(ctx.shown().dev);
    dev.is_ok_and(|dev| c_text(&dev.shown().name).to_bytes().starts_with(BONDING))
}

/// The caller's struct, which has exactly the length of its opcode.
fn input<T: Copy>(from: urma_user_ctl_in_t) -> Answer<T> {
    if from.len as usize != size_of::<T>() {
        return Err(refuse!(
            EINVAL,
            "in->len is {} for opcode {}; its argument has {} bytes",
            from.len,
            from.opcode,
            size_of::<T>()
        ));
    }
    let addr =
        usize::try_from(from.addr).map_err(|_| refuse!(EINVAL, "in->addr is {:#x}", from.addr))?;
    // SAFETY: the caller says that a struct of this length is there; NULL is refused.
    unsafe { call::value(core::ptr::with_exposed_provenance::<T>(addr)) }
}

/// The caller's place, which has at least the length of its opcode.
fn output<T>(to: urma_user_ctl_out_t) -> Answer<UserPtr<T>> {
    if (to.len as usize) < size_of::<T>() {
        return Err(refuse!(
            EINVAL,
            "out->len is {}; the answer has {} bytes",
            to.len,
            size_of::<T>()
        ));
    }
    let addr =
        usize::try_from(to.addr).map_err(|_| refuse!(EINVAL, "out->addr is {:#x}", to.addr))?;
    // SAFETY: the caller says that there is room of this length; NULL is refused.
    unsafe { UserPtr::new(core::ptr::with_exposed_provenance::<T>(addr)) }
}

/// One object more or less that the context counts.
fn count(ctx: CtlContext, step: Step) {
    let users = &ctx.shown().r#ref.atomic_cnt;
    match step {
        Step::More => users.fetch_add(1, Ordering::AcqRel),
        Step::Less => users.fetch_sub(1, Ordering::AcqRel),
    };
}

#[derive(Clone, Copy)]
enum Step {
    More,
    Less,
}

type In = urma_user_ctl_in_t;
type Out = urma_user_ctl_out_t;

fn udma(ctx: CtlContext, from: In, to: Out) -> Answer {
    match from.opcode {
        UDMA_U_USER_CTL_CREATE_JFR_EX => create_jfr(ctx, from, to),
        UDMA_U_USER_CTL_DELETE_JFR_EX => remove(ctx, from, family::delete::<kind::Jfr>),
        UDMA_U_USER_CTL_CREATE_JFC_EX => create_jfc(ctx, from, to),
        UDMA_U_USER_CTL_DELETE_JFC_EX => remove(ctx, from, family::delete::<kind::Jfc>),
        UDMA_U_USER_CTL_DELETE_JFS_EX => remove(ctx, from, family::delete::<kind::Jfs>),
        UDMA_U_USER_CTL_DELETE_JETTY_EX => remove(ctx, from, family::delete::<kind::Jetty>),
        UDMA_U_USER_CTL_POST_WR => post_wr(from, to),
        UDMA_U_USER_CTL_QUERY_UE_INFO => {
            // One entity, on the only die of the only chip.
            let info = udma_u_ue_info { ue_id: 0, chip_id: 0, die_id: 0 };
            output::<udma_u_ue_info>(to)?.write(info);
            Ok(())
        }
        opcode if opcode < UDMA_U_USER_CTL_MAX => Err(refuse!(
            ENOTSUP,
            "opcode {opcode} of UDMA's user_ctl asks for what only hardware has"
        )),
        opcode => Err(refuse!(
            ENOPERM,
            "opcode is {opcode}; UDMA's user_ctl has 0 to {}",
            UDMA_U_USER_CTL_MAX - 1
        )),
    }
}

/// A JFR whose rings are the device's. Rings in the caller's memory are not supported.
fn create_jfr(ctx: CtlContext, from: In, to: Out) -> Answer {
    let mut cfg = input::<udma_u_jfr_cfg_ex>(from)?;
    let to = output(to)?;
    if cfg.cstm_cfg.flag.value != 0 {
        return Err(refuse!(
            ENOTSUP,
            "cstm_cfg.flag is {:#x}; rings of the program's are for hardware",
            cfg.cstm_cfg.flag.value
        ));
    }
    // SAFETY: the callee looks the context up; the configuration is of this function.
    give(ctx, to, unsafe { family::create::<kind::Jfr>(ctx.public(), &raw mut cfg.base_cfg) })
}

/// A JFC that programs poll. Those for other engines on the chip are not supported.
fn create_jfc(ctx: CtlContext, from: In, to: Out) -> Answer {
    let mut cfg = input::<udma_u_jfc_cfg_ex>(from)?;
    let to = output(to)?;
    if cfg.jfc_mode != UDMA_U_NORMAL_JFC_TYPE {
        return Err(refuse!(
            ENOTSUP,
            "jfc_mode is {}; the software device has the normal one only",
            cfg.jfc_mode
        ));
    }
    // SAFETY: the callee looks the context up; the configuration is of this function.
    give(ctx, to, unsafe { family::create::<kind::Jfc>(ctx.public(), &raw mut cfg.base_cfg) })
}

fn give<T>(ctx: CtlContext, to: UserPtr<*mut T>, made: *mut T) -> Answer {
    if made.is_null() {
        return Err(Code::EFAULT.expected());
    }
    to.write(made);
    count(ctx, Step::More);
    Ok(())
}

/// What `user_ctl` answers with where an operation that it called was refused, which said why.
fn as_fault(_refused: Code) -> Code {
    Code::EFAULT.expected()
}

fn remove<T>(
    ctx: CtlContext,
    from: In,
    delete: unsafe extern "C" fn(*mut T) -> urma_status_t,
) -> Answer {
    let object = input::<*mut T>(from)?;
    if object.is_null() {
        return Err(refuse!(EINVAL, "the object to delete is NULL"));
    }
    // SAFETY: the callee looks the object up.
    Code::from_c(unsafe { delete(object) }).map_err(as_fault)?;
    count(ctx, Step::Less);
    Ok(())
}

/// Posts and rings. Ringing later, and reducing at the target, are not supported.
fn post_wr(from: In, to: Out) -> Answer {
    let wr = input::<udma_u_wr_ex>(from)?;
    let to = output::<udma_u_post_info>(to)?;
    call::some(wr.wr)?;
    call::some(wr.bad_wr)?;
    let (mut next, mut is_plain) = (wr.wr, wr.db_en != 0);
    // SAFETY: a list of the caller's; each request of it is the first member of a longer one.
    while is_plain && let Ok(one) = unsafe { call::value(next) } {
        is_plain = one.reduce_en == 0;
        next = one.wr.next.cast::<udma_u_jfs_wr_ex>();
    }
    if !is_plain {
        return Err(refuse!(
            ENOTSUP,
            "db_en is 0 or a request has reduce_en; doorbells by hand and reductions are for hardware"
        ));
    }
    let (first, bad) = (wr.wr.cast(), wr.bad_wr.cast());
    // SAFETY: both members of the union are pointers, and any bytes are a pointer.
    let jfs = unsafe { wr.u.jfs };
    let status = if wr.is_jetty == 0 {
        // SAFETY: the callee looks the queue up, and the list is the caller's.
        unsafe { post::post_jfs_wr(jfs, first, bad) }
    } else {
        // SAFETY: the callee looks the queue up, and the list is the caller's.
        unsafe { post::post_jetty_send_wr(jfs.cast(), first, bad) }
    };
    Code::from_c(status).map_err(as_fault)?;
    let null = core::ptr::null_mut();
    let info = udma_u_post_info { dwqe_addr: null, db_addr: null.cast(), ctrl: null, pi: 0 };
    to.write(info);
    Ok(())
}

fn bonding(ctx: CtlContext, from: In, to: Out) -> Answer {
    match from.opcode {
        BONDP_USER_CTL_SET_BONDING_MODE_LEGACY => {
            let mode = input::<u32>(from)?;
            if mode > URMA_AGGR_MODE_BALANCE {
                return Err(refuse!(
                    EINVAL,
                    "the mode is {mode}; allowed are 0 to {URMA_AGGR_MODE_BALANCE}"
                ));
            }
            set_mode(ctx, mode)
        }
        BONDP_USER_CTL_SET_BONDING_MODE => {
            let wish = input::<bondp_set_bonding_mode_in_t>(from)?;
            let fits = wish.bonding_mode < BONDP_BONDING_MODE_MAX
                && wish.bonding_level < BONDP_BONDING_LEVEL_MAX;
            if !fits {
                return Err(refuse!(
                    EINVAL,
                    "bonding_mode is {} and bonding_level {}; allowed are 0 to {} and 0 to {}",
                    wish.bonding_mode,
                    wish.bonding_level,
                    BONDP_BONDING_MODE_MAX - 1,
                    BONDP_BONDING_LEVEL_MAX - 1
                ));
            }
            set_mode(ctx, wish.bonding_mode)
        }
        BONDP_USER_CTL_QUERY_PORT => query_port(ctx, from, to),
        BONDP_USER_CTL_GET_JFCE_FD_LIST => fd_list(ctx, from, to),
        // One path keeps its order without numbers to sort by, and finds segments without a cache.
        BONDP_USER_CTL_DISABLE_MSN | BONDP_USER_CTL_ENABLE_SEG_CACHE => unused(ctx),
        BONDP_USER_CTL_OPCODE_GET_RJETTY => jetty(ctx, from, to),
        BONDP_USER_CTL_OPCODE_GET_SEG_CTX => segment(ctx, from, to),
        opcode => Err(refuse!(ENOPERM, "opcode is {opcode}, which a bonding device does not have")),
    }
}

/// Modes are set before anything is made from the context.
fn unused(ctx: CtlContext) -> Answer {
    let users = &ctx.shown().r#ref.atomic_cnt;
    match users.load(Ordering::Acquire) {
        0 | 1 => Ok(()),
        more => Err(refuse!(
            EAGAIN,
            "{} objects of the context live; the call comes before the first",
            more - 1
        )),
    }
}

fn set_mode(ctx: CtlContext, mode: u32) -> Answer {
    unused(ctx)?;
    ctx.set(member!(urma_context_t, aggr_mode), mode);
    context::set_aggr_mode(ctx.public(), mode);
    Ok(())
}

/// The one port serves every queue.
fn query_port(ctx: CtlContext, from: In, to: Out) -> Answer {
    let wish = input::<bondp_query_port_in_t>(from)?;
    let to = output::<bondp_query_port_out_t>(to)?;
    // SAFETY: both members of the union are pointers, and any bytes are a pointer.
    let jfr = unsafe { wish.u.jfr };
    let home = match (ours::<kind::Jfr>(jfr), ours::<kind::Jetty>(jfr.cast())) {
        (Ok(jfr), _) => jfr.shown().urma_ctx,
        (_, Ok(jetty)) => jetty.shown().urma_ctx,
        _ => return Err(refuse!(EINVAL, "{jfr:p} is no live JFR or jetty")),
    };
    if home != ctx.public() {
        return Err(refuse!(EINVAL, "the queue belongs to another context"));
    }
    let indices = [0; 20];
    let out = bondp_query_port_out_t {
        enabled_indices: indices,
        enabled_count: 1,
        active_indices: indices,
        active_count: 1,
    };
    to.write(out);
    Ok(())
}

fn fd_list(ctx: CtlContext, from: In, to: Out) -> Answer {
    let wish = input::<bondp_get_jfce_fd_list_in_t>(from)?;
    let to = output::<bondp_get_jfce_fd_list_out_t>(to)?;
    let jfce = ours::<kind::Jfce>(wish.jfce)?;
    if jfce.shown().urma_ctx != ctx.public() {
        return Err(refuse!(EINVAL, "the JFCE belongs to another context"));
    }
    let mut out = bondp_get_jfce_fd_list_out_t { fd_list: [-1; 20], count: 1 };
    out.fd_list[0] = jfce.shown().fd;
    to.write(out);
    Ok(())
}

/// The object that is asked about: the argument is the object itself.
fn object<K: Kind>(ctx: CtlContext, from: In) -> Answer<Slot<K>> {
    if (from.len as usize) < size_of::<K::Public>() {
        return Err(refuse!(
            EINVAL,
            "in->len is {}; it is that of the object, {}",
            from.len,
            size_of::<K::Public>()
        ));
    }
    let addr =
        usize::try_from(from.addr).map_err(|_| refuse!(EINVAL, "in->addr is {:#x}", from.addr))?;
    let slot = ours::<K>(core::ptr::with_exposed_provenance(addr))?;
    if slot.owner() == ctx.owner() {
        Ok(slot)
    } else {
        Err(refuse!(EINVAL, "the object belongs to another context"))
    }
}

/// Memory for a `T`, then the head, then `more`.
///
/// The memory is zeroed and allocated by the C library. `more`, whose length is in the head, has public structs of
/// `urma_ubagg.h` for a device of one path, number 0, without pointers: peers in other processes read them.
fn memory<T>(more: &[u8]) -> Answer<NonNull<T>> {
    let head = u32::try_from(more.len())
        .map_err(|_| refuse!(FAIL, "the description is too long"))?
        .to_le_bytes();
    let len = size_of::<T>() + head.len() + more.len();
    // SAFETY: the size is above 0, and the call touches no memory of ours.
    let first: *mut T = unsafe { libc::calloc(1, len) }.cast();
    let first = NonNull::new(first).ok_or_else(|| refuse!(ENOMEM, "no memory for {len} bytes"))?;
    // SAFETY: the struct is the front of the memory that `calloc` gave just now.
    let behind: *mut u8 = unsafe { first.as_ptr().add(1) }.cast();
    // SAFETY: the rest of that memory, which no other thread has yet.
    let behind = unsafe { UserArray::new(behind, head.len() + more.len()) }?;
    behind.fill(head.iter().chain(more).copied());
    Ok(first)
}

fn hand_over<T>(to: Out, made: NonNull<T>) -> Answer {
    output::<*mut T>(to)?.write(made.as_ptr());
    Ok(())
}

/// Answers `BONDP_USER_CTL_OPCODE_GET_RJETTY`: the description of a jetty.
fn jetty(ctx: CtlContext, from: In, to: Out) -> Answer {
    let jetty = object::<kind::Jetty>(ctx, from)?;
    output::<*mut urma_rjetty_t>(to)?;
    let more = of_jetty(jetty.shown().jetty_id);
    let made = memory::<urma_rjetty_t>(&more)?;
    // SAFETY: `memory` made it with a value of zeros just now, and no other thread has it.
    unsafe { &mut *made.as_ptr() }.flag.set_has_user_info(1);
    hand_over(to, made)
}

/// Answers `BONDP_USER_CTL_OPCODE_GET_SEG_CTX`: the description of a segment.
fn segment(ctx: CtlContext, from: In, to: Out) -> Answer {
    let segment = object::<kind::Segment>(ctx, from)?;
    output::<*mut urma_seg_t>(to)?;
    let more = of_segment(&segment.shown().seg);
    let made = memory::<urma_seg_t>(&more)?;
    // SAFETY: `memory` made it with a value of zeros just now, and no other thread has it.
    unsafe { &mut *made.as_ptr() }.attr.set_has_user_info(1);
    hand_over(to, made)
}

/// One path here and one there, no health checks.
fn of_jetty(id: urma_jetty_id_t) -> Vec<u8> {
    const PEER: usize = offset_of!(urma_bond_jetty_ext_v0_t, data) + 1;
    let mask = BONDP_RJETTY_EXT_MASK_MULTI_PATH
        | BONDP_RJETTY_EXT_MASK_LOCAL_CTX
        | BONDP_RJETTY_EXT_MASK_TARGET_CTX;
    let one = 1u32.to_le_bytes();
    let len = size_of::<urma_bond_jetty_ext_v0_t>() + 1 + size_of::<bondp_rjetty_target_ctx_t>();
    let mut bytes = vec![0; len];
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, mask), &u64::from(mask).to_le_bytes());
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, local_ctx_cnt), &one);
    put(&mut bytes, offset_of!(urma_bond_jetty_ext_v0_t, target_ctx_cnt), &one);
    let slave = PEER + offset_of!(bondp_rjetty_target_ctx_t, slave_id);
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, eid), &eid(id.eid).bytes());
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, uasid), &id.uasid.to_le_bytes());
    put(&mut bytes, slave + offset_of!(urma_jetty_id_t, id), &id.id.to_le_bytes());
    bytes
}

/// The segment itself is that of path 0.
fn of_segment(seg: &urma_seg_t) -> Vec<u8> {
    let mut bytes = vec![0; size_of::<urma_bond_seg_ext_t>()];
    let base = offset_of!(urma_bond_seg_ext_t, peer_p_seg);
    let ubva = base + offset_of!(urma_seg_base_t, ubva);
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, eid), &eid(seg.ubva.eid).bytes());
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, uasid), &seg.ubva.uasid.to_le_bytes());
    put(&mut bytes, ubva + offset_of!(urma_ubva_t, va), &seg.ubva.va.to_le_bytes());
    put(&mut bytes, base + offset_of!(urma_seg_base_t, len), &seg.len.to_le_bytes());
    put(&mut bytes, base + offset_of!(urma_seg_base_t, attr), &seg.attr.value.to_le_bytes());
    let token_id = base + offset_of!(urma_seg_base_t, token_id);
    put(&mut bytes, token_id, &seg.token_id.to_le_bytes());
    bytes
}

fn put(to: &mut [u8], at: usize, from: &[u8]) {
    to[at..at + from.len()].copy_from_slice(from);
}
