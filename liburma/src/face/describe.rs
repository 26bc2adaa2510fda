//! What a peer needs to import an object: bytes that mean the same in any process.
//!
//! *Owns*: the memory of a description, and the length of what follows the struct: a byte count and the bytes, which
//! providers of bonding devices add for their own kind. *Takes*: a live object. *Gives*: memory of the C library.
//! *Must not*: know what the bytes mean.

use core::ptr::NonNull;

use crate::{
    abi::*,
    call::{self, Answer, Code, Object, UserPtr, c_text, refuse},
    face::dispatch::{device, op, run},
};

/// Prefix of the names of bonding devices.
const BONDING: &[u8] = b"bonding_dev";

/// A struct that describes an object to a peer.
pub(super) trait Described {
    /// Public part of the object that it describes.
    type Object;
    /// Asks a bonding device for the description, with the bytes behind it.
    const OPCODE: u32;

    fn has_user_info(&self) -> bool;
}

impl Described for urma_rjetty_t {
    type Object = urma_jetty_t;
    const OPCODE: u32 = BONDP_USER_CTL_OPCODE_GET_RJETTY;

    fn has_user_info(&self) -> bool {
        self.flag.has_user_info() != 0
    }
}

impl Described for urma_seg_t {
    type Object = urma_target_seg_t;
    const OPCODE: u32 = BONDP_USER_CTL_OPCODE_GET_SEG_CTX;

    fn has_user_info(&self) -> bool {
        self.attr.has_user_info() != 0
    }
}

/// Allocates the description of `object`. For a bonding device its provider does, and fills in what follows the struct;
/// otherwise it is a zeroed struct.
///
/// # Errors
/// ENOMEM. FAIL: the provider of a bonding device refuses.
pub(super) fn blank<D: Described>(
    ctx: *mut urma_context_t,
    object: Object<D::Object>,
) -> Answer<NonNull<D>> {
    // SAFETY: a live object names the context, which cannot be deleted before it.
    let ctx =
        unsafe { Object::at(ctx) }.ok_or_else(|| refuse!(EINVAL, "the object names no context"))?;
    if is_bonding(ctx)? {
        return ask(ctx, object);
    }
    // SAFETY: the call touches no memory of ours; the C library checks the product.
    NonNull::new(unsafe { libc::calloc(1, size_of::<D>()) }.cast())
        .ok_or_else(|| refuse!(ENOMEM, "no memory for {} bytes", size_of::<D>()))
}

fn is_bonding(ctx: Object<urma_context_t>) -> Answer<bool> {
    Ok(c_text(&device(ctx)?.name).to_bytes().starts_with(BONDING))
}

fn ask<D: Described>(ctx: Object<urma_context_t>, object: Object<D::Object>) -> Answer<NonNull<D>> {
    let user_ctl = op!(ctx.as_ptr(), user_ctl);
    let mut made: *mut D = core::ptr::null_mut();
    let len = |bytes: usize| {
        u32::try_from(bytes).map_err(|_| refuse!(FAIL, "the object has {bytes} bytes"))
    };
    let mut from = urma_user_ctl_in_t {
        addr: object.as_ptr().expose_provenance() as u64,
        len: len(size_of::<D::Object>())?,
        opcode: D::OPCODE,
    };
    let mut to = urma_user_ctl_out_t {
        addr: (&raw mut made).expose_provenance() as u64,
        len: len(size_of::<*mut D>())?,
        reserved: 0,
    };
    let answer = Code::from_c(run!(user_ctl(ctx.as_ptr(), &raw mut from, &raw mut to)));
    match answer {
        Ok(()) => call::aligned(made)
            .map_err(|_| refuse!(FAIL, "the provider of the bonding device made no description")),
        Err(code) => Err(refuse!(
            FAIL,
            "the provider of the bonding device refuses the description ({})",
            code.status()
        )),
    }
}

/// Hands the description to the caller, with the length of the struct and of what follows it.
///
/// # Safety
/// [`blank`] made `memory`, whose flag says whether something follows.
pub(super) unsafe fn give<D: Described>(
    memory: NonNull<D>,
    (to, len): (UserPtr<*mut D>, UserPtr<u32>),
) {
    to.write(memory.as_ptr());
    // SAFETY: `blank` made it with a value, and no other thread has it yet.
    let has_user_info = unsafe { memory.as_ref() }.has_user_info();
    let mut bytes = size_of::<D>();
    if has_user_info {
        // SAFETY: where the flag says so, the head of what follows lies behind the struct.
        let head = unsafe { memory.as_ptr().add(1) }.cast::<urma_user_info_ext_hdr_t>();
        // SAFETY: the head is inside of the memory that the provider made.
        let more = unsafe { head.read_unaligned() }.len as usize;
        bytes = bytes.saturating_add(size_of::<urma_user_info_ext_hdr_t>() + more);
    }
    len.write(u32::try_from(bytes).unwrap_or(u32::MAX));
}
