//! Send requests.

use core::{mem::MaybeUninit, ptr::NonNull};

use urma_core::{LocalSge, PostError, RemoteAddr, SendOp, SendWr, Token, TokenId};

use super::{BATCH, LIST_MAX, PIECES, Room, Stop, pieces, refused, stopped};
use crate::{
    abi::{
        URMA_OPC_CAS, URMA_OPC_FADD, URMA_OPC_FAND, URMA_OPC_FLUSH_DMA, URMA_OPC_FOR,
        URMA_OPC_FSUB, URMA_OPC_FXOR, URMA_OPC_NOP, URMA_OPC_READ, URMA_OPC_SEND,
        URMA_OPC_SEND_IMM, URMA_OPC_SEND_INVALIDATE, URMA_OPC_SWAP, URMA_OPC_WRITE,
        URMA_OPC_WRITE_ATOMIC, URMA_OPC_WRITE_IMM, URMA_OPC_WRITE_NOTIFY, urma_cas_wr_t,
        urma_faa_wr_t, urma_jfs_wr_t, urma_rw_wr_t, urma_send_wr_t, urma_sg_t, urma_sge_t,
    },
    call::{self, Answer, Code},
    convert::request::flags,
    slab::Look,
    udma::kind,
};

/// Room that the requests of a batch take their pieces from.
type Rest<'r, 'g> = &'r mut [MaybeUninit<LocalSge<'g>>];

/// Posts a list: one request as it is, several in batches. `bound`: the queue has one target,
/// whatever a request names, and messages to it have so many bytes at most.
///
/// # Safety
/// `wr` starts a list of requests, each with what its opcode needs; `bad_wr` is a place.
#[inline]
pub(super) unsafe fn post<'g>(
    look: Look<'g>,
    wr: *mut urma_jfs_wr_t,
    bad_wr: *mut *mut urma_jfs_wr_t,
    bound: Option<u32>,
    mut give: impl FnMut(&[SendWr<'_>]) -> Result<(), PostError>,
) -> Answer {
    let (wr, bad_wr) = (call::place(wr)?, call::place(bad_wr)?);
    // SAFETY: the caller's request.
    if !unsafe { (*wr.as_ptr()).next }.is_null() {
        // SAFETY: the caller's list.
        return unsafe { post_several(look, wr.as_ptr(), bad_wr, bound, &mut give) };
    }
    let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
    let mut rest: Rest<'_, 'g> = &mut room;
    // SAFETY: as above.
    match unsafe { convert(look, wr.as_ptr(), bound, &mut rest) } {
        Ok((request, _)) => match give(core::slice::from_ref(&request)) {
            Ok(()) => Ok(()),
            Err(error) => refused(bad_wr, &[wr.as_ptr()], error),
        },
        Err(Stop::NoRoom) => stopped(bad_wr, wr.as_ptr(), Code::EINVAL),
        Err(Stop::Bad(code)) => stopped(bad_wr, wr.as_ptr(), code),
    }
}

/// # Safety
/// As [`post`].
#[inline(never)]
unsafe fn post_several<'g>(
    look: Look<'g>,
    wr: *mut urma_jfs_wr_t,
    bad_wr: NonNull<*mut urma_jfs_wr_t>,
    bound: Option<u32>,
    give: &mut dyn FnMut(&[SendWr<'_>]) -> Result<(), PostError>,
) -> Answer {
    let (mut next, mut posted) = (wr, 0);
    while !next.is_null() {
        let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
        let mut rest: Rest<'_, 'g> = &mut room;
        let mut batch = [const { MaybeUninit::<SendWr<'_>>::uninit() }; BATCH];
        let mut from = [core::ptr::null_mut(); BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH && !next.is_null() {
            // SAFETY: the caller's list.
            match unsafe { convert(look, next, bound, &mut rest) } {
                Ok((wr, after)) => {
                    batch[count].write(wr);
                    (from[count], next, count) = (next, after, count + 1);
                }
                Err(Stop::NoRoom) if count > 0 => break,
                Err(Stop::NoRoom) => stop = Some(Code::EINVAL),
                Err(Stop::Bad(code)) => stop = Some(code),
            }
            if stop.is_some() {
                break;
            }
        }
        let wrs: *const [MaybeUninit<SendWr<'_>>] = &batch[..count];
        // SAFETY: the first `count` elements were written, and MaybeUninit has the layout of its
        // content.
        let wrs = unsafe { &*(wrs as *const [SendWr<'_>]) };
        if count > 0
            && let Err(error) = give(wrs)
        {
            return refused(bad_wr, &from[..count], error);
        }
        posted += count;
        if stop.is_none() && posted >= LIST_MAX {
            stop = Some(Code::EINVAL);
        }
        if let Some(code) = stop {
            return stopped(bad_wr, next, code);
        }
    }
    Ok(())
}

/// The request at `wr`, and the one after it.
///
/// # Safety
/// As [`post`].
#[inline(always)]
unsafe fn convert<'r, 'g>(
    look: Look<'g>,
    wr: *mut urma_jfs_wr_t,
    bound: Option<u32>,
    rest: &mut Rest<'r, 'g>,
) -> Result<(SendWr<'r>, *mut urma_jfs_wr_t), Stop>
where
    'g: 'r,
{
    if !wr.is_aligned() {
        return Err(Stop::Bad(Code::EINVAL));
    }
    // SAFETY: the caller's list.
    let from = unsafe { &*wr };
    let (target, send_max) = if bound.is_some() || from.opcode == URMA_OPC_NOP {
        (None, bound.unwrap_or(u32::MAX))
    } else {
        let named = look.named::<kind::Target>(from.tjetty).ok_or(Code::EINVAL)?;
        (Some(&named.core), named.send_max)
    };
    // SAFETY: the caller filled the member that the opcode names.
    let (op, target_hint) = unsafe { operation(look, from, rest) }?;
    if message_len(&op) > u64::from(send_max) {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let (flags, user_ctx) = (flags(from.flag), from.user_ctx);
    Ok((SendWr { op, flags, target, target_hint, user_ctx }, from.next))
}

/// Bytes of a message; 0 of another request, which the kind of path does not limit.
#[inline(always)]
fn message_len(op: &SendOp<'_>) -> u64 {
    match op {
        SendOp::Send { src } | SendOp::SendImm { src, .. } | SendOp::SendInvalidate { src, .. } => {
            src.iter().map(|piece| u64::from(piece.len)).sum()
        }
        _ => 0,
    }
}

/// # Safety
/// The caller filled the member of the union that the opcode names.
#[inline(always)]
unsafe fn operation<'r, 'g>(
    look: Look<'g>,
    from: &urma_jfs_wr_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<(SendOp<'r>, u8), Stop>
where
    'g: 'r,
{
    match from.opcode {
        URMA_OPC_WRITE
        | URMA_OPC_WRITE_IMM
        | URMA_OPC_WRITE_NOTIFY
        | URMA_OPC_WRITE_ATOMIC
        | URMA_OPC_READ => {
            // SAFETY: the member of these opcodes.
            let rw = unsafe { &from.u.rw };
            // SAFETY: as above.
            Ok((unsafe { read_write(look, from.opcode, rw, rest) }?, rw.target_hint))
        }
        URMA_OPC_SEND | URMA_OPC_SEND_IMM | URMA_OPC_SEND_INVALIDATE => {
            // SAFETY: the member of these opcodes.
            let send = unsafe { &from.u.send };
            // SAFETY: as above.
            Ok((unsafe { message(look, from.opcode, send, rest) }?, send.target_hint))
        }
        URMA_OPC_CAS => {
            // SAFETY: the member of this opcode.
            let cas = unsafe { &from.u.cas };
            // SAFETY: as above.
            Ok((unsafe { compare(look, cas, rest) }?, 0))
        }
        URMA_OPC_SWAP | URMA_OPC_FADD | URMA_OPC_FSUB | URMA_OPC_FAND | URMA_OPC_FOR
        | URMA_OPC_FXOR => {
            // SAFETY: the member of these opcodes; SWAP uses that of CAS.
            Ok((unsafe { fetch(look, from, rest) }?, 0))
        }
        URMA_OPC_NOP => Ok((SendOp::Nop, 0)),
        URMA_OPC_FLUSH_DMA => Ok((SendOp::FlushDma, 0)),
        _ => Err(Stop::Bad(Code::EINVAL)),
    }
}

#[inline(always)]
unsafe fn read_write<'r, 'g>(
    look: Look<'g>,
    opcode: u32,
    rw: &urma_rw_wr_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    if opcode == URMA_OPC_READ {
        // SAFETY: the caller's lists.
        let src = unsafe { remote(look, &rw.src, 0) }?;
        // SAFETY: as above.
        let dst = unsafe { pieces(look, rw.dst.sge, rw.dst.num_sge, rest) }?;
        return Ok(SendOp::Read { dst, src });
    }
    // SAFETY: the caller's lists.
    let dst = unsafe { remote(look, &rw.dst, 0) }?;
    // SAFETY: as above.
    let src = unsafe { pieces(look, rw.src.sge, rw.src.num_sge, rest) }?;
    let data = rw.notify_data;
    Ok(match opcode {
        URMA_OPC_WRITE => SendOp::Write { src, dst },
        URMA_OPC_WRITE_IMM => SendOp::WriteImm { src, dst, imm: data },
        _ => {
            // SAFETY: as above.
            let notify = unsafe { remote(look, &rw.dst, 1) }?;
            if opcode == URMA_OPC_WRITE_NOTIFY {
                SendOp::WriteNotify { src, dst, notify, data }
            } else {
                SendOp::WriteAtomic { src, dst, notify, add: data }
            }
        }
    })
}

#[inline(always)]
unsafe fn message<'r, 'g>(
    look: Look<'g>,
    opcode: u32,
    send: &urma_send_wr_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    // SAFETY: the caller's list.
    let src = unsafe { pieces(look, send.src.sge, send.src.num_sge, rest) }?;
    Ok(match opcode {
        URMA_OPC_SEND => SendOp::Send { src },
        URMA_OPC_SEND_IMM => SendOp::SendImm { src, imm: send.imm_data },
        _ => {
            let own = look.named::<kind::Segment>(send.tseg).ok_or(Code::EINVAL)?;
            let segment = own.remote.as_ref().ok_or(Code::EINVAL)?;
            let token = segment.token().unwrap_or(Token::new(0));
            let token_id: TokenId = segment.token_id();
            SendOp::SendInvalidate { src, token_id, token }
        }
    })
}

#[inline(never)]
unsafe fn compare<'r, 'g>(
    look: Look<'g>,
    cas: &urma_cas_wr_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    // SAFETY: the caller's two places.
    let (result, target) = unsafe { operands(look, cas.src, cas.dst, rest) }?;
    Ok(SendOp::Cas { result, target, compare: cas.cmp_data, swap: cas.swap_data })
}

#[inline(never)]
unsafe fn fetch<'r, 'g>(
    look: Look<'g>,
    from: &urma_jfs_wr_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    if from.opcode == URMA_OPC_SWAP {
        // SAFETY: SWAP uses the member of CAS.
        let cas: &urma_cas_wr_t = unsafe { &from.u.cas };
        // SAFETY: the caller's two places.
        let (result, target) = unsafe { operands(look, cas.src, cas.dst, rest) }?;
        return Ok(SendOp::Swap { result, target, value: cas.swap_data });
    }
    // SAFETY: the member of these opcodes.
    let faa: &urma_faa_wr_t = unsafe { &from.u.faa };
    // SAFETY: the caller's two places.
    let (result, target) = unsafe { operands(look, faa.src, faa.dst, rest) }?;
    let value = faa.operand;
    Ok(match from.opcode {
        URMA_OPC_FADD => SendOp::FetchAdd { result, target, value },
        URMA_OPC_FSUB => SendOp::FetchSub { result, target, value },
        URMA_OPC_FAND => SendOp::FetchAnd { result, target, value },
        URMA_OPC_FOR => SendOp::FetchOr { result, target, value },
        _ => SendOp::FetchXor { result, target, value },
    })
}

/// Where the old value of an atomic lands, and what it works on.
unsafe fn operands<'r, 'g>(
    look: Look<'g>,
    here: *const urma_sge_t,
    there: *mut urma_sge_t,
    rest: &mut Rest<'r, 'g>,
) -> Result<(LocalSge<'r>, RemoteAddr<'r>), Stop>
where
    'g: 'r,
{
    // SAFETY: one piece each.
    let result = unsafe { pieces(look, here, 1, rest) }?;
    let sg = urma_sg_t { sge: there, num_sge: 1 };
    // SAFETY: as above.
    let target = unsafe { remote(look, &sg, 0) }?;
    Ok((*result.first().ok_or(Code::EINVAL)?, target))
}

/// The remote piece `index` of a list. Its length is that of the local side.
#[inline(always)]
unsafe fn remote<'g>(look: Look<'g>, sg: &urma_sg_t, index: u32) -> Result<RemoteAddr<'g>, Stop> {
    if index >= sg.num_sge || sg.sge.is_null() || !sg.sge.is_aligned() {
        return Err(Stop::Bad(Code::EINVAL));
    }
    // SAFETY: inside the caller's list.
    let sge = unsafe { sg.sge.add(index as usize) };
    // SAFETY: as above; nobody changes it during the call.
    let sge = unsafe { &*sge };
    let own = look.named::<kind::Segment>(sge.tseg).ok_or(Code::EINVAL)?;
    let segment = own.remote.as_ref().ok_or(Code::EINVAL)?;
    Ok(RemoteAddr { segment, addr: sge.addr })
}
