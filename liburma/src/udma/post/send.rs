//! Send requests.

use core::mem::MaybeUninit;

use urma_core::{
    ImportedSegment, LocalSge, PostError, PostReason, RemoteAddr, SendOp, SendWr, TargetJetty,
    Token, TokenId,
};

use super::{
    BATCH, LIST_MAX, PIECES, Room, Sends, Stop,
    list::{Message, Pieces, SendRequest, Transfer, UserSge},
    piece, pieces, rare, refused, stopped, written,
};
use crate::{
    abi::{
        URMA_OPC_CAS, URMA_OPC_FADD, URMA_OPC_FAND, URMA_OPC_FLUSH_DMA, URMA_OPC_FOR,
        URMA_OPC_FSUB, URMA_OPC_FXOR, URMA_OPC_NOP, URMA_OPC_READ, URMA_OPC_SEND,
        URMA_OPC_SEND_IMM, URMA_OPC_SEND_INVALIDATE, URMA_OPC_SWAP, URMA_OPC_WRITE,
        URMA_OPC_WRITE_ATOMIC, URMA_OPC_WRITE_IMM, URMA_OPC_WRITE_NOTIFY, urma_jfs_wr_t,
    },
    call::{Answer, Code, UserPtr},
    convert::request::flags,
    slab::Look,
    udma::kind,
};

/// Room that the requests of a batch take their pieces from.
type Rest<'r, 'g> = &'r mut [MaybeUninit<LocalSge<'g>>];

/// Posts a list: a plain request at once, another single one as it is, several in batches.
#[inline(always)]
pub(super) fn post(
    look: Look<'_>,
    own: &mut impl Sends,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    match post_plain(look, own, first, bad_wr) {
        Some(answer) => answer,
        None => post_other(look, own, first, bad_wr),
    }
}

/// Posts a request as most are: one, of the kinds that are posted by the million, with one piece.
/// `None`: it is not such a one, or something is wrong with it, and it is not posted.
///
/// Each kind has a call of its own, so that its checks are known when this is compiled.
#[inline(always)]
fn post_plain(
    look: Look<'_>,
    own: &mut impl Sends,
    from: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Option<Answer> {
    if from.next().is_some() {
        return None;
    }
    let (flags, user_ctx) = (flags(from.flag()), from.user_ctx());
    match from.opcode() {
        URMA_OPC_WRITE => {
            let rw = from.transfer();
            let (sge, dst) = both(rw.src(), rw.dst())?;
            let dst = RemoteAddr { segment: remote_of(look, dst).ok()?, addr: dst.addr() };
            let (op, target_hint) =
                (SendOp::Write { src: &[piece(look, sge).ok()?], dst }, rw.hint());
            let (target, _) = target(look, own, from)?;
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        URMA_OPC_READ => {
            let rw = from.transfer();
            let (sge, src) = both(rw.dst(), rw.src())?;
            let src = RemoteAddr { segment: remote_of(look, src).ok()?, addr: src.addr() };
            let (op, target_hint) =
                (SendOp::Read { dst: &[piece(look, sge).ok()?], src }, rw.hint());
            let (target, _) = target(look, own, from)?;
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        URMA_OPC_SEND => {
            let send = from.message();
            let sge = send.src().only()?;
            let (op, target_hint) = (SendOp::Send { src: &[piece(look, sge).ok()?] }, send.hint());
            let (target, send_max) = target(look, own, from)?;
            if sge.len() > send_max {
                return None;
            }
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        _ => None,
    }
}

/// The pieces of a local and of a remote list that are just one each, the local one with bytes.
#[inline(always)]
fn both<'a>(local: Pieces<'a>, remote: Pieces<'a>) -> Option<(UserSge<'a>, UserSge<'a>)> {
    if remote.count() != 1 {
        return None;
    }
    Some((local.only()?, remote.get(0)?))
}

/// Posts one request, which was made of `from`.
#[inline(always)]
fn give(
    own: &mut impl Sends,
    from: SendRequest<'_>,
    wr: &SendWr<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    match own.post(core::slice::from_ref(wr)) {
        Ok(()) => Ok(()),
        Err(error) => refused_send(bad_wr, &[Some(from)], error),
    }
}

/// Where a request goes, and the bytes of a message at most. `None`: what it names is not there.
#[inline(always)]
fn target<'g>(
    look: Look<'g>,
    own: &impl Sends,
    from: SendRequest<'_>,
) -> Option<(Option<&'g TargetJetty>, u32)> {
    match own.bound() {
        Some(send_max) => Some((None, send_max)),
        None => named(look, from),
    }
}

/// The target that a request names.
#[inline(always)]
fn named<'g>(look: Look<'g>, from: SendRequest<'_>) -> Option<(Option<&'g TargetJetty>, u32)> {
    let named = look.named::<kind::Target>(from.target())?;
    Some((Some(&named.core), named.send_max))
}

/// Posts what [`post_plain`] left.
#[inline(never)]
fn post_other<'g>(
    look: Look<'g>,
    own: &mut impl Sends,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    let bound = own.bound();
    let mut give = |wrs: &[SendWr<'_>]| own.post(wrs);
    if first.next().is_some() {
        return post_several(look, first, bad_wr, bound, &mut give);
    }
    let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
    let mut rest: Rest<'_, 'g> = &mut room;
    match convert(look, first, bound, &mut rest) {
        Ok(request) => match give(core::slice::from_ref(&request)) {
            Ok(()) => Ok(()),
            Err(error) => refused_send(bad_wr, &[Some(first)], error),
        },
        Err(Stop::NoRoom) => stopped(bad_wr, first.as_ptr(), Code::EINVAL),
        Err(Stop::Bad(code)) => stopped(bad_wr, first.as_ptr(), code),
    }
}

/// As [`refused`], without a line in the log for a request of a rare shape, which goes again.
#[cold]
fn refused_send(
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
    batch: &[Option<SendRequest<'_>>],
    error: PostError,
) -> Answer {
    if let (Some(Some(at)), PostReason::Invalid(_)) = (batch.get(error.index), error.reason)
        && rare::is_rare(*at)
    {
        return stopped(bad_wr, at.as_ptr(), Code::EINVAL);
    }
    refused(bad_wr, batch, error)
}

/// Posts a list of several requests, in batches with one doorbell each.
#[inline(never)]
fn post_several<'g>(
    look: Look<'g>,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
    bound: Option<u32>,
    give: &mut dyn FnMut(&[SendWr<'_>]) -> Result<(), PostError>,
) -> Answer {
    let (mut next, mut posted) = (Some(first), 0);
    while next.is_some() {
        let mut room: Room<'g> = [const { MaybeUninit::uninit() }; PIECES];
        let mut rest: Rest<'_, 'g> = &mut room;
        let mut batch = [const { MaybeUninit::<SendWr<'_>>::uninit() }; BATCH];
        let mut from = [None; BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH
            && stop.is_none()
            && let Some(request) = next
        {
            match convert(look, request, bound, &mut rest) {
                Ok(wr) => {
                    batch[count].write(wr);
                    (from[count], next, count) = (next, request.next(), count + 1);
                }
                Err(Stop::NoRoom) if count > 0 => break,
                Err(Stop::NoRoom) => stop = Some(Code::EINVAL),
                Err(Stop::Bad(code)) => stop = Some(code),
            }
        }
        // SAFETY: the loop wrote the first `count` elements.
        let wrs = unsafe { written(&batch[..count]) };
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
            return stopped(bad_wr, next.map_or(core::ptr::null_mut(), SendRequest::as_ptr), code);
        }
    }
    Ok(())
}

/// The request `from`, as urma-core takes it.
#[inline(always)]
fn convert<'r, 'g>(
    look: Look<'g>,
    from: SendRequest<'_>,
    bound: Option<u32>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendWr<'r>, Stop>
where
    'g: 'r,
{
    let (target, send_max) = match (bound, from.opcode()) {
        (Some(send_max), _) => (None, send_max),
        (None, URMA_OPC_NOP) => (None, u32::MAX),
        (None, _) => named(look, from).ok_or(Code::EINVAL)?,
    };
    let (op, target_hint) = operation(look, from, rest)?;
    if message_len(&op) > u64::from(send_max) {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let (flags, user_ctx) = (flags(from.flag()), from.user_ctx());
    Ok(SendWr { op, flags, target, target_hint, user_ctx })
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

/// The operation of a request, and its hint for a group of targets.
#[inline(always)]
fn operation<'r, 'g>(
    look: Look<'g>,
    from: SendRequest<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<(SendOp<'r>, u8), Stop>
where
    'g: 'r,
{
    let opcode = from.opcode();
    match opcode {
        URMA_OPC_WRITE
        | URMA_OPC_WRITE_IMM
        | URMA_OPC_WRITE_NOTIFY
        | URMA_OPC_WRITE_ATOMIC
        | URMA_OPC_READ => {
            let rw = from.transfer();
            Ok((read_write(look, opcode, rw, rest)?, rw.hint()))
        }
        URMA_OPC_SEND | URMA_OPC_SEND_IMM | URMA_OPC_SEND_INVALIDATE => {
            let send = from.message();
            Ok((message(look, opcode, send, rest)?, send.hint()))
        }
        URMA_OPC_CAS | URMA_OPC_SWAP => Ok((compare(look, from, rest)?, 0)),
        URMA_OPC_FADD | URMA_OPC_FSUB | URMA_OPC_FAND | URMA_OPC_FOR | URMA_OPC_FXOR => {
            Ok((fetch(look, from, rest)?, 0))
        }
        URMA_OPC_NOP => Ok((SendOp::Nop, 0)),
        URMA_OPC_FLUSH_DMA => Ok((SendOp::FlushDma, 0)),
        _ => Err(Stop::Bad(Code::EINVAL)),
    }
}

#[inline(always)]
fn read_write<'r, 'g>(
    look: Look<'g>,
    opcode: u32,
    rw: Transfer<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    if opcode == URMA_OPC_READ {
        let src = run(look, rw.src(), rw.src().count())?;
        return Ok(SendOp::Read { dst: pieces(look, rw.dst(), rest)?, src });
    }
    let has_second = matches!(opcode, URMA_OPC_WRITE_NOTIFY | URMA_OPC_WRITE_ATOMIC);
    // The place to notify or to add to is the last piece.
    let last = rw.dst().count().saturating_sub(1);
    let dst = run(look, rw.dst(), if has_second { last } else { last + 1 })?;
    let src = pieces(look, rw.src(), rest)?;
    let data = rw.data();
    Ok(match opcode {
        URMA_OPC_WRITE => SendOp::Write { src, dst },
        URMA_OPC_WRITE_IMM => SendOp::WriteImm { src, dst, imm: data },
        _ => {
            let notify = remote(look, rw.dst(), last)?;
            if opcode == URMA_OPC_WRITE_NOTIFY {
                SendOp::WriteNotify { src, dst, notify, data }
            } else {
                SendOp::WriteAtomic { src, dst, notify, add: data }
            }
        }
    })
}

#[inline(always)]
fn message<'r, 'g>(
    look: Look<'g>,
    opcode: u32,
    send: Message<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    let src = pieces(look, send.src(), rest)?;
    Ok(match opcode {
        URMA_OPC_SEND => SendOp::Send { src },
        URMA_OPC_SEND_IMM => SendOp::SendImm { src, imm: send.data() },
        _ => {
            let own = look.named::<kind::Segment>(send.segment()).ok_or(Code::EINVAL)?;
            let segment = own.remote.as_ref().ok_or(Code::EINVAL)?;
            let token = segment.token().unwrap_or(Token::new(0));
            let token_id: TokenId = segment.token_id();
            SendOp::SendInvalidate { src, token_id, token }
        }
    })
}

#[inline(never)]
fn compare<'r, 'g>(
    look: Look<'g>,
    from: SendRequest<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    let (here, there, compare, value) = from.compare();
    let (result, target) = operands(look, here, there, rest)?;
    Ok(if from.opcode() == URMA_OPC_CAS {
        SendOp::Cas { result, target, compare, swap: value }
    } else {
        SendOp::Swap { result, target, value }
    })
}

#[inline(never)]
fn fetch<'r, 'g>(
    look: Look<'g>,
    from: SendRequest<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop>
where
    'g: 'r,
{
    let (here, there, value) = from.fetch();
    let (result, target) = operands(look, here, there, rest)?;
    Ok(match from.opcode() {
        URMA_OPC_FADD => SendOp::FetchAdd { result, target, value },
        URMA_OPC_FSUB => SendOp::FetchSub { result, target, value },
        URMA_OPC_FAND => SendOp::FetchAnd { result, target, value },
        URMA_OPC_FOR => SendOp::FetchOr { result, target, value },
        _ => SendOp::FetchXor { result, target, value },
    })
}

/// Where the old value of an atomic lands, and what it works on.
fn operands<'r, 'g>(
    look: Look<'g>,
    here: Pieces<'_>,
    there: Pieces<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<(LocalSge<'r>, RemoteAddr<'r>), Stop>
where
    'g: 'r,
{
    let result = pieces(look, here, rest)?;
    let target = remote(look, there, 0)?;
    Ok((*result.first().ok_or(Code::EINVAL)?, target))
}

/// Where the first `count` pieces of a remote list begin. A request has one remote address, so each
/// further piece must go on where the one before it ends.
#[inline(always)]
fn run<'g>(look: Look<'g>, list: Pieces<'_>, count: u32) -> Result<RemoteAddr<'g>, Stop> {
    if count == 0 {
        return Err(Stop::Bad(Code::EINVAL));
    }
    let first = remote(look, list, 0)?;
    if count > 1 {
        adjoining(list, count)?;
    }
    Ok(first)
}

#[inline(never)]
fn adjoining(list: Pieces<'_>, count: u32) -> Result<(), Stop> {
    if count as usize > PIECES {
        return Err(Stop::Bad(Code::EINVAL));
    }
    for index in 1..count {
        let before = list.get(index - 1).ok_or(Code::EINVAL)?;
        let piece = list.get(index).ok_or(Code::EINVAL)?;
        let follows = before.addr().checked_add(u64::from(before.len())) == Some(piece.addr());
        if !follows || piece.segment() != before.segment() {
            return Err(Stop::Bad(Code::EINVAL));
        }
    }
    Ok(())
}

/// The remote piece `index` of a list. Its length is that of the local side.
#[inline(always)]
fn remote<'g>(look: Look<'g>, list: Pieces<'_>, index: u32) -> Result<RemoteAddr<'g>, Stop> {
    let sge = list.get(index).ok_or(Code::EINVAL)?;
    Ok(RemoteAddr { segment: remote_of(look, sge)?, addr: sge.addr() })
}

/// The segment of a remote piece.
#[inline(always)]
fn remote_of<'g>(look: Look<'g>, sge: UserSge<'_>) -> Answer<&'g ImportedSegment> {
    let own = look.named::<kind::Segment>(sge.segment()).ok_or(Code::EINVAL)?;
    own.remote.as_ref().ok_or(Code::EINVAL)
}
