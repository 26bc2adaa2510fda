//! Send requests.

use core::mem::MaybeUninit;

use urma_core::{
    ImportedSegment, LocalSge, PostError, PostReason, RemoteAddr, SendOp, SendWr, TargetJetty,
    Token, TokenId,
};

use super::{
    BATCH, LIST_MAX, PIECES, Room, Sends, Stop, Unaligned, only, piece, pieces, rare, refused,
    stopped,
};
use crate::{
    abi::{
        URMA_OPC_CAS, URMA_OPC_FADD, URMA_OPC_FAND, URMA_OPC_FLUSH_DMA, URMA_OPC_FOR,
        URMA_OPC_FSUB, URMA_OPC_FXOR, URMA_OPC_NOP, URMA_OPC_READ, URMA_OPC_SEND,
        URMA_OPC_SEND_IMM, URMA_OPC_SEND_INVALIDATE, URMA_OPC_SWAP, URMA_OPC_WRITE,
        URMA_OPC_WRITE_ATOMIC, URMA_OPC_WRITE_IMM, URMA_OPC_WRITE_NOTIFY, urma_cas_wr_t,
        urma_faa_wr_t, urma_jfs_wr_t, urma_rw_wr_t, urma_send_wr_t, urma_sg_t, urma_sge_t,
    },
    call::{Answer, Code, UserPtr},
    convert::request::flags,
    slab::Look,
    udma::kind,
};

/// Room that the requests of a batch take their pieces from.
type Rest<'r, 'g> = &'r mut [MaybeUninit<LocalSge<'g>>];

/// Posts a list: a plain request at once, another single one as it is, several in batches.
///
/// # Safety
/// `wr` starts a list of requests, each with what its opcode needs; `bad_wr` is a place.
#[inline(always)]
pub(super) unsafe fn post(
    look: Look<'_>,
    own: &mut impl Sends,
    wr: UserPtr<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    // SAFETY: the caller's request.
    let from = unsafe { Unaligned::at(wr.as_ptr()) };
    // SAFETY: as above.
    match unsafe { post_plain(look, own, from, bad_wr) } {
        Some(answer) => answer,
        // SAFETY: the caller's list.
        None => unsafe { post_other(look, own, wr, bad_wr) },
    }
}

/// Posts a request as most are: one, of the kinds that are posted by the million, with one piece.
/// `None`: it is not such a one, or something is wrong with it, and it is not posted.
///
/// Each kind has a call of its own, so that its checks are known when this is compiled.
///
/// # Safety
/// As [`post`].
#[inline(always)]
unsafe fn post_plain(
    look: Look<'_>,
    own: &mut impl Sends,
    from: &Unaligned<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Option<Answer> {
    if !{ from.0.next }.is_null() {
        return None;
    }
    let (flags, user_ctx) = (flags(from.0.flag), from.0.user_ctx);
    // SAFETY: the member of the opcodes below; of others any bytes are numbers and pointers.
    let rw = unsafe { Unaligned::at(&raw const from.0.u.rw) };
    match from.0.opcode {
        URMA_OPC_WRITE => {
            // SAFETY: the caller's lists.
            let (sge, dst) = unsafe { both(rw.0.src, rw.0.dst) }?;
            let dst = RemoteAddr { segment: remote_of(look, dst).ok()?, addr: dst.0.addr };
            let (op, target_hint) =
                (SendOp::Write { src: &[piece(look, sge).ok()?], dst }, rw.0.target_hint);
            let (target, _) = target(look, own, from)?;
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        URMA_OPC_READ => {
            // SAFETY: the caller's lists.
            let (sge, src) = unsafe { both(rw.0.dst, rw.0.src) }?;
            let src = RemoteAddr { segment: remote_of(look, src).ok()?, addr: src.0.addr };
            let (op, target_hint) =
                (SendOp::Read { dst: &[piece(look, sge).ok()?], src }, rw.0.target_hint);
            let (target, _) = target(look, own, from)?;
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        URMA_OPC_SEND => {
            // SAFETY: the member of this opcode.
            let send = unsafe { from.0.u.send };
            // SAFETY: the caller's list.
            let sge = unsafe { only(send.src) }?;
            let (op, target_hint) =
                (SendOp::Send { src: &[piece(look, sge).ok()?] }, send.target_hint);
            let (target, send_max) = target(look, own, from)?;
            if sge.0.len > send_max {
                return None;
            }
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        _ => None,
    }
}

/// The pieces of a local and of a remote list that are just one each.
///
/// # Safety
/// As [`only`], for both.
#[inline(always)]
unsafe fn both<'a>(
    local: urma_sg_t,
    remote: urma_sg_t,
) -> Option<(&'a Unaligned<urma_sge_t>, &'a Unaligned<urma_sge_t>)> {
    let is_there = !local.sge.is_null() && !remote.sge.is_null();
    if !is_there || local.num_sge != 1 || remote.num_sge != 1 {
        return None;
    }
    // SAFETY: the caller's promise.
    let local = unsafe { Unaligned::at(local.sge) };
    // SAFETY: as above.
    let remote = unsafe { Unaligned::at(remote.sge) };
    (local.0.len != 0).then_some((local, remote))
}

/// Posts one request, which was made of `from`.
#[inline(always)]
fn give(
    own: &mut impl Sends,
    from: &Unaligned<urma_jfs_wr_t>,
    wr: &SendWr<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    match own.post(core::slice::from_ref(wr)) {
        Ok(()) => Ok(()),
        Err(error) => refused_send(bad_wr, &[(&raw const from.0).cast_mut()], error),
    }
}

/// Where a request goes, and the bytes of a message at most. `None`: what it names is not there.
#[inline(always)]
fn target<'g>(
    look: Look<'g>,
    own: &impl Sends,
    from: &Unaligned<urma_jfs_wr_t>,
) -> Option<(Option<&'g TargetJetty>, u32)> {
    match own.bound() {
        Some(send_max) => Some((None, send_max)),
        None => named(look, from),
    }
}

/// The target that a request names.
#[inline(always)]
fn named<'g>(
    look: Look<'g>,
    from: &Unaligned<urma_jfs_wr_t>,
) -> Option<(Option<&'g TargetJetty>, u32)> {
    let named = look.named::<kind::Target>(from.0.tjetty)?;
    Some((Some(&named.core), named.send_max))
}

/// # Safety
/// As [`post`].
#[inline(never)]
unsafe fn post_other<'g>(
    look: Look<'g>,
    own: &mut impl Sends,
    wr: UserPtr<urma_jfs_wr_t>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    let bound = own.bound();
    let mut give = |wrs: &[SendWr<'_>]| own.post(wrs);
    // SAFETY: the caller's request.
    let first = unsafe { Unaligned::at(wr.as_ptr()) };
    if !{ first.0.next }.is_null() {
        // SAFETY: the caller's list.
        return unsafe { post_several(look, wr.as_ptr(), bad_wr, bound, &mut give) };
    }
    let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
    let mut rest: Rest<'_, 'g> = &mut room;
    // SAFETY: as above.
    match unsafe { convert(look, wr.as_ptr(), bound, &mut rest) } {
        Ok((request, _)) => match give(core::slice::from_ref(&request)) {
            Ok(()) => Ok(()),
            Err(error) => refused_send(bad_wr, &[wr.as_ptr()], error),
        },
        Err(Stop::NoRoom) => stopped(bad_wr, wr.as_ptr(), Code::EINVAL),
        Err(Stop::Bad(code)) => stopped(bad_wr, wr.as_ptr(), code),
    }
}

/// As [`refused`], without a line in the log for a request of a rare shape, which goes again.
#[cold]
fn refused_send(
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
    batch: &[*mut urma_jfs_wr_t],
    error: PostError,
) -> Answer {
    if let (Some(at), PostReason::Invalid(_)) = (batch.get(error.index), error.reason)
        // SAFETY: a request of the caller's list, which was read just now.
        && unsafe { rare::is_rare(*at) }
    {
        return stopped(bad_wr, *at, Code::EINVAL);
    }
    refused(bad_wr, batch, error)
}

/// # Safety
/// As [`post`].
#[inline(never)]
unsafe fn post_several<'g>(
    look: Look<'g>,
    wr: *mut urma_jfs_wr_t,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
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
            return refused_send(bad_wr, &from[..count], error);
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
    // SAFETY: the caller's list.
    let from = unsafe { Unaligned::at(wr) };
    let (target, send_max) = match (bound, from.0.opcode) {
        (Some(send_max), _) => (None, send_max),
        (None, URMA_OPC_NOP) => (None, u32::MAX),
        (None, _) => named(look, from).ok_or(Code::EINVAL)?,
    };
    // SAFETY: the caller filled the member that the opcode names.
    let (op, target_hint) = unsafe { operation(look, from, rest) }?;
    if message_len(&op) > u64::from(send_max) {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let (flags, user_ctx) = (flags(from.0.flag), from.0.user_ctx);
    Ok((SendWr { op, flags, target, target_hint, user_ctx }, from.0.next))
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
    from: &Unaligned<urma_jfs_wr_t>,
    rest: &mut Rest<'r, 'g>,
) -> Result<(SendOp<'r>, u8), Stop>
where
    'g: 'r,
{
    match from.0.opcode {
        URMA_OPC_WRITE
        | URMA_OPC_WRITE_IMM
        | URMA_OPC_WRITE_NOTIFY
        | URMA_OPC_WRITE_ATOMIC
        | URMA_OPC_READ => {
            // SAFETY: the member of these opcodes.
            let rw = unsafe { from.0.u.rw };
            // SAFETY: as above.
            Ok((unsafe { read_write(look, from.0.opcode, &rw, rest) }?, rw.target_hint))
        }
        URMA_OPC_SEND | URMA_OPC_SEND_IMM | URMA_OPC_SEND_INVALIDATE => {
            // SAFETY: the member of these opcodes.
            let send = unsafe { from.0.u.send };
            // SAFETY: as above.
            Ok((unsafe { message(look, from.0.opcode, &send, rest) }?, send.target_hint))
        }
        URMA_OPC_CAS => {
            // SAFETY: the member of this opcode.
            let cas = unsafe { from.0.u.cas };
            // SAFETY: as above.
            Ok((unsafe { compare(look, &cas, rest) }?, 0))
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
        let src = unsafe { run(look, &rw.src, rw.src.num_sge) }?;
        // SAFETY: as above.
        let dst = unsafe { pieces(look, rw.dst.sge, rw.dst.num_sge, rest) }?;
        return Ok(SendOp::Read { dst, src });
    }
    let has_second = matches!(opcode, URMA_OPC_WRITE_NOTIFY | URMA_OPC_WRITE_ATOMIC);
    // What is told or added to is the last piece.
    let last = rw.dst.num_sge.saturating_sub(1);
    // SAFETY: the caller's lists.
    let dst = unsafe { run(look, &rw.dst, if has_second { last } else { last + 1 }) }?;
    // SAFETY: as above.
    let src = unsafe { pieces(look, rw.src.sge, rw.src.num_sge, rest) }?;
    let data = rw.notify_data;
    Ok(match opcode {
        URMA_OPC_WRITE => SendOp::Write { src, dst },
        URMA_OPC_WRITE_IMM => SendOp::WriteImm { src, dst, imm: data },
        _ => {
            // SAFETY: as above.
            let notify = unsafe { remote(look, &rw.dst, last) }?;
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
    from: &Unaligned<urma_jfs_wr_t>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    if from.0.opcode == URMA_OPC_SWAP {
        // SAFETY: SWAP uses the member of CAS.
        let cas: urma_cas_wr_t = unsafe { from.0.u.cas };
        // SAFETY: the caller's two places.
        let (result, target) = unsafe { operands(look, cas.src, cas.dst, rest) }?;
        return Ok(SendOp::Swap { result, target, value: cas.swap_data });
    }
    // SAFETY: the member of these opcodes.
    let faa: urma_faa_wr_t = unsafe { from.0.u.faa };
    // SAFETY: the caller's two places.
    let (result, target) = unsafe { operands(look, faa.src, faa.dst, rest) }?;
    let value = faa.operand;
    Ok(match from.0.opcode {
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

/// Where the first `count` pieces of a remote list begin. A request has one remote address, so each
/// further piece must go on where the one before it ends.
#[inline(always)]
unsafe fn run<'g>(look: Look<'g>, sg: &urma_sg_t, count: u32) -> Result<RemoteAddr<'g>, Stop> {
    if count == 0 {
        return Err(Stop::Bad(Code::EINVAL));
    }
    // SAFETY: the caller's list.
    let first = unsafe { remote(look, sg, 0) }?;
    if count > 1 {
        // SAFETY: as above; `remote` found the list where it should be.
        unsafe { adjoining(sg, count) }?;
    }
    Ok(first)
}

#[inline(never)]
unsafe fn adjoining(sg: &urma_sg_t, count: u32) -> Result<(), Stop> {
    if count as usize > PIECES {
        return Err(Stop::Bad(Code::EINVAL));
    }
    // SAFETY: the caller's list of as many; nobody changes it during the call.
    let list =
        unsafe { core::slice::from_raw_parts(sg.sge.cast::<Unaligned<_>>(), count as usize) };
    for pair in list.windows(2) {
        let (before, piece): (urma_sge_t, urma_sge_t) = (pair[0].0, pair[1].0);
        let follows = before.addr.checked_add(u64::from(before.len)) == Some(piece.addr);
        if !follows || piece.tseg != before.tseg {
            return Err(Stop::Bad(Code::EINVAL));
        }
    }
    Ok(())
}

/// The remote piece `index` of a list. Its length is that of the local side.
#[inline(always)]
unsafe fn remote<'g>(look: Look<'g>, sg: &urma_sg_t, index: u32) -> Result<RemoteAddr<'g>, Stop> {
    if index >= sg.num_sge || sg.sge.is_null() {
        return Err(Stop::Bad(Code::EINVAL));
    }
    // SAFETY: inside the caller's list.
    let sge = unsafe { sg.sge.add(index as usize) };
    // SAFETY: as above; nobody changes it during the call.
    let sge = unsafe { Unaligned::at(sge) };
    Ok(RemoteAddr { segment: remote_of(look, sge)?, addr: sge.0.addr })
}

/// The segment of a remote piece.
#[inline(always)]
fn remote_of<'g>(look: Look<'g>, sge: &Unaligned<urma_sge_t>) -> Answer<&'g ImportedSegment> {
    let own = look.named::<kind::Segment>(sge.0.tseg).ok_or(Code::EINVAL)?;
    own.remote.as_ref().ok_or(Code::EINVAL)
}
