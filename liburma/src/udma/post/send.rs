//! Send requests of C: one directly, several in batches.

use core::mem::MaybeUninit;

use urma_core::{
    ImportedSegment, LocalSge, OneTransfer, RemoteAddr, SendOp, SendWr, TargetJetty, Token,
};

use super::{
    PIECES, Rest, Sends, Stop, alike,
    list::{
        self, Batched, CompareOp, FetchOp, Message, MessageOp, Pieces, PostOp, SendRequest,
        Transfer, UserSge, WriteOp,
    },
    no_list, piece, pieces, refused, stopped, too_many_pieces,
};
use crate::{
    abi::*,
    call::{Answer, Code, UserPtr, refuse},
    convert::flags,
    slab::Look,
    udma::kind::{self, LastForm, SegmentOwn, TargetOwn},
};

/// Posts a list: a plain request directly, another single one as it is, several in batches.
#[inline(always)]
pub(super) fn post(
    look: Look<'_>,
    own: &mut impl Sends,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    if alike::post((look, own), first).is_some() {
        return Ok(());
    }
    match post_plain(look, own, first, bad_wr) {
        Some(answer) => answer,
        None => post_other(look, own, first, bad_wr),
    }
}

/// Posts one plain request: of a common kind, with one piece. `None`: it is another request, or it is invalid;
/// nothing is posted.
///
/// Each kind has a call of its own, so that its checks are known at compile time.
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
    match from.opcode() {
        URMA_OPC_WRITE => transfer((look, own), from, true, bad_wr),
        URMA_OPC_READ => transfer((look, own), from, false, bad_wr),
        URMA_OPC_SEND => {
            let send = from.message();
            let sge = send.src().only()?;
            let (op, target_hint) = (SendOp::Send { src: &[piece(look, sge).ok()?] }, send.hint());
            let target = target(look, own, from)?;
            let (flags, user_ctx) = (flags(from.flag()), from.user_ctx());
            let wr = SendWr { op, flags, target, target_hint, user_ctx };
            Some(give(own, from, &wr, bad_wr))
        }
        _ => None,
    }
}

/// The pieces of a local and a remote list that have just one each; the local one is not empty.
#[inline(always)]
fn both<'a>(local: Pieces<'a>, remote: Pieces<'a>) -> Option<(UserSge<'a>, UserSge<'a>)> {
    if remote.count() != 1 {
        return None;
    }
    Some((local.only()?, remote.get(0)?))
}

/// The hint of a write or read, and its pieces on either side.
#[inline(always)]
fn ends(from: SendRequest<'_>, is_write: bool) -> Option<(u8, (UserSge<'_>, UserSge<'_>))> {
    let rw = from.transfer();
    let pieces = if is_write { both(rw.src(), rw.dst()) } else { both(rw.dst(), rw.src()) };
    pieces.map(|pieces| (rw.hint(), pieces))
}

/// Makes a write or read from `from` and the objects that it names. `None`: one of them is named on the wrong side.
#[inline(always)]
fn made<'r>(
    from: SendRequest<'_>,
    is_write: bool,
    (target_hint, (here, there)): (u8, (UserSge<'_>, UserSge<'_>)),
    (local, remote, target): (&'r SegmentOwn, &'r SegmentOwn, Option<&'r TargetOwn>),
) -> Option<OneTransfer<'r>> {
    Some(OneTransfer {
        is_write,
        piece: LocalSge { segment: local.local.as_ref()?, addr: here.addr(), len: here.len() },
        at: RemoteAddr { segment: remote.remote.as_ref()?, addr: there.addr() },
        flags: flags(from.flag()),
        target: target.map(|target| &target.core),
        target_hint,
        user_ctx: from.user_ctx(),
    })
}

/// Posts a write or read of one piece on either side; results as in [`post_plain`].
#[inline(always)]
fn transfer(
    (look, own): (Look<'_>, &mut impl Sends),
    from: SendRequest<'_>,
    is_write: bool,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Option<Answer> {
    match transfer_again((look, own), from, is_write) {
        Some(()) => Some(Ok(())),
        None => transfer_new((look, own), from, is_write, bad_wr),
    }
}

/// Posts a write or read that names the same objects as the last one. `None`: it names others, and nothing happened.
#[inline(always)]
fn transfer_again(
    (look, own): (Look<'_>, &mut impl Sends),
    from: SendRequest<'_>,
    is_write: bool,
) -> Option<()> {
    let (hint, pieces) = ends(from, is_write)?;
    let is_bound = own.is_bound();
    // Before the names are compared.
    let seen = look.seen_ends();
    let last = own.last();
    let local = look.named_again(pieces.0.segment(), &last.local)?;
    let remote = look.named_again(pieces.1.segment(), &last.remote)?;
    let target = match is_bound {
        true => None,
        false => Some(look.named_again(from.target(), &last.target)?),
    };
    let wr = made(from, is_write, (hint, pieces), (local, remote, target))?;
    if !own.half().post_like_last(&wr) {
        return None;
    }
    // The objects that ended since were others: the next request can be posted by its addresses alone.
    own.last().form = alike::form_of(own, from, seen).unwrap_or(LastForm::NONE);
    Some(())
}

/// Posts a write or read after looking up all that it names.
#[inline(never)]
fn transfer_new(
    (look, own): (Look<'_>, &mut impl Sends),
    from: SendRequest<'_>,
    is_write: bool,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Option<Answer> {
    let (hint, pieces) = ends(from, is_write)?;
    let is_bound = own.is_bound();
    // Before the names are looked up.
    let seen = look.seen_ends();
    let last = own.last();
    last.form = LastForm::NONE;
    let local = look.named_new(pieces.0.segment(), &mut last.local)?;
    let remote = look.named_new(pieces.1.segment(), &mut last.remote)?;
    let target = match is_bound {
        true => None,
        false => Some(look.named_new(from.target(), &mut last.target)?),
    };
    let wr = made(from, is_write, (hint, pieces), (local, remote, target))?;
    let posted = own.half().post_transfer(&wr);
    if posted.is_ok() && own.half().transfer_ticket() != 0 {
        own.last().form = alike::form_of(own, from, seen).unwrap_or(LastForm::NONE);
    }
    Some(posted.or_else(|error| refused(bad_wr, &[Some(from)], error)))
}

/// Posts one request, which was made from `from`.
#[inline(always)]
fn give(
    own: &mut impl Sends,
    from: SendRequest<'_>,
    wr: &SendWr<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    match own.half().post_send(core::slice::from_ref(wr)) {
        Ok(()) => Ok(()),
        Err(error) => refused(bad_wr, &[Some(from)], error),
    }
}

/// The target of a request. `None`: what it names does not exist.
#[inline(always)]
fn target<'g>(
    look: Look<'g>,
    own: &impl Sends,
    from: SendRequest<'_>,
) -> Option<Option<&'g TargetJetty>> {
    if own.is_bound() { Some(None) } else { named(look, from).map(Some) }
}

/// The target that a request names.
#[inline(always)]
fn named<'g>(look: Look<'g>, from: SendRequest<'_>) -> Option<&'g TargetJetty> {
    look.named::<kind::Target>(from.target()).map(|named| &named.core)
}

/// Posts a request that [`post_plain`] does not take.
#[inline(never)]
fn post_other<'g>(
    look: Look<'g>,
    own: &mut impl Sends,
    first: SendRequest<'_>,
    bad_wr: UserPtr<*mut urma_jfs_wr_t>,
) -> Answer {
    let is_bound = own.is_bound();
    if first.next().is_some() {
        let mut give = |wrs: &[SendWr<'_>]| own.half().post_send(wrs);
        return list::post(look, first, bad_wr, is_bound, &mut give);
    }
    // Before the names are looked up.
    let seen = look.seen_ends();
    let mut room = [const { MaybeUninit::<LocalSge<'g>>::uninit() }; PIECES];
    let mut rest: Rest<'_, 'g> = &mut room;
    match Batched::check(look, first, is_bound, &mut rest) {
        Ok(request) => match own.half().post_send(core::slice::from_ref(&request)) {
            Ok(()) => {
                alike::note_atomic(own, first, seen);
                Ok(())
            }
            Err(error) => refused(bad_wr, &[Some(first)], error),
        },
        Err(Stop::NoRoom) => stopped(bad_wr, first.as_ptr(), too_many_pieces()),
        Err(Stop::Bad(code)) => stopped(bad_wr, first.as_ptr(), code),
    }
}

impl Batched for urma_jfs_wr_t {
    type Checked<'r> = SendWr<'r>;

    fn next(of: SendRequest<'_>) -> Option<SendRequest<'_>> {
        of.next()
    }

    #[inline(always)]
    fn check<'r, 'g: 'r>(
        look: Look<'g>,
        from: SendRequest<'_>,
        is_bound: bool,
        rest: &mut Rest<'r, 'g>,
    ) -> Result<SendWr<'r>, Stop> {
        let op = from.op();
        let target = match op {
            _ if is_bound => None,
            Some(PostOp::Nop) => None,
            _ => Some(named(look, from).ok_or_else(|| no_target(from))?),
        };
        let (op, target_hint) = operation(look, from, op.ok_or_else(|| no_opcode(from))?, rest)?;
        let (flags, user_ctx) = (flags(from.flag()), from.user_ctx());
        Ok(SendWr { op, flags, target, target_hint, user_ctx })
    }
}

#[cold]
fn no_target(from: SendRequest<'_>) -> Code {
    refuse!(
        EINVAL,
        "tjetty is {:p}, which is no live target of the context of the queue",
        from.target()
    )
}

#[cold]
fn no_opcode(from: SendRequest<'_>) -> Code {
    refuse!(EINVAL, "opcode is {:#x}, which no operation has", from.opcode())
}

#[cold]
fn not_remote(tseg: *const urma_target_seg_t) -> Code {
    refuse!(
        EINVAL,
        "tseg of a remote piece is {tseg:p}: no live segment that was imported into the context of the queue"
    )
}

/// The operation of a request, and its hint for a group of targets.
#[inline(always)]
fn operation<'r, 'g: 'r>(
    look: Look<'g>,
    from: SendRequest<'_>,
    op: PostOp,
    rest: &mut Rest<'r, 'g>,
) -> Result<(SendOp<'r>, u8), Stop> {
    Ok(match op {
        PostOp::Write(op) => (write(look, op, from.transfer(), rest)?, from.transfer().hint()),
        PostOp::Read => (read(look, from.transfer(), rest)?, from.transfer().hint()),
        PostOp::Send(op) => (message(look, op, from.message(), rest)?, from.message().hint()),
        PostOp::Compare(op) => (compare(look, op, from, rest)?, 0),
        PostOp::Fetch(op) => (fetch(look, op, from, rest)?, 0),
        PostOp::Nop => (SendOp::Nop, 0),
        PostOp::FlushDma => (SendOp::FlushDma, 0),
    })
}

#[inline(always)]
fn read<'r, 'g: 'r>(
    look: Look<'g>,
    rw: Transfer<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop> {
    let src = run(look, rw.src(), rw.src().count())?;
    Ok(SendOp::Read { dst: pieces(look, rw.dst(), rest)?, src })
}

#[inline(always)]
fn write<'r, 'g: 'r>(
    look: Look<'g>,
    op: WriteOp,
    rw: Transfer<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop> {
    // The piece to notify or to add to is the last one.
    let last = rw.dst().count().saturating_sub(1);
    let has_second = matches!(op, WriteOp::Notify | WriteOp::Atomic);
    let dst = run(look, rw.dst(), if has_second { last } else { last + 1 })?;
    let src = pieces(look, rw.src(), rest)?;
    let (data, second) = (rw.data(), || remote(look, rw.dst(), last));
    Ok(match op {
        WriteOp::Plain => SendOp::Write { src, dst },
        WriteOp::Imm => SendOp::WriteImm { src, dst, imm: data },
        WriteOp::Notify => SendOp::WriteNotify { src, dst, notify: second()?, data },
        WriteOp::Atomic => SendOp::WriteAtomic { src, dst, notify: second()?, add: data },
    })
}

#[inline(always)]
fn message<'r, 'g: 'r>(
    look: Look<'g>,
    op: MessageOp,
    send: Message<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop> {
    let src = pieces(look, send.src(), rest)?;
    Ok(match op {
        MessageOp::Plain => SendOp::Send { src },
        MessageOp::Imm => SendOp::SendImm { src, imm: send.data() },
        MessageOp::Invalidate => {
            let segment = imported(look, send.segment())?;
            let token = segment.token().unwrap_or(Token::new(0));
            SendOp::SendInvalidate { src, token_id: segment.token_id(), token }
        }
    })
}

#[inline(never)]
fn compare<'r, 'g: 'r>(
    look: Look<'g>,
    op: CompareOp,
    from: SendRequest<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop> {
    let (here, there, compare, value) = from.compare();
    let (result, target) = operands(look, here, there, rest)?;
    Ok(match op {
        CompareOp::Cas => SendOp::Cas { result, target, compare, swap: value },
        CompareOp::Swap => SendOp::Swap { result, target, value },
    })
}

#[inline(never)]
fn fetch<'r, 'g: 'r>(
    look: Look<'g>,
    op: FetchOp,
    from: SendRequest<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<SendOp<'r>, Stop> {
    let (here, there, value) = from.fetch();
    let (result, target) = operands(look, here, there, rest)?;
    Ok(match op {
        FetchOp::Add => SendOp::FetchAdd { result, target, value },
        FetchOp::Sub => SendOp::FetchSub { result, target, value },
        FetchOp::And => SendOp::FetchAnd { result, target, value },
        FetchOp::Or => SendOp::FetchOr { result, target, value },
        FetchOp::Xor => SendOp::FetchXor { result, target, value },
    })
}

/// Where the old value of an atomic is stored, and what it works on.
fn operands<'r, 'g: 'r>(
    look: Look<'g>,
    here: Pieces<'_>,
    there: Pieces<'_>,
    rest: &mut Rest<'r, 'g>,
) -> Result<(LocalSge<'r>, RemoteAddr<'r>), Stop> {
    let result = pieces(look, here, rest)?;
    let target = remote(look, there, 0)?;
    Ok((
        *result
            .first()
            .ok_or_else(|| refuse!(EINVAL, "an atomic has a local piece of 4 or 8 bytes"))?,
        target,
    ))
}

/// Remote address of the first `count` pieces of a list. A request has one remote address, so each further piece must
/// start where the one before it ends.
#[inline(always)]
fn run<'g>(look: Look<'g>, list: Pieces<'_>, count: u32) -> Result<RemoteAddr<'g>, Stop> {
    if count == 0 {
        return Err(Stop::Bad(refuse!(
            EINVAL,
            "the request has no remote piece, which says where it goes"
        )));
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
        return Err(Stop::Bad(too_many_pieces()));
    }
    for index in 1..count {
        let before = list.get(index - 1).ok_or_else(no_list)?;
        let piece = list.get(index).ok_or_else(no_list)?;
        let follows = before.addr().checked_add(u64::from(before.len())) == Some(piece.addr());
        if !follows || piece.segment() != before.segment() {
            return Err(Stop::Bad(refuse!(
                EINVAL,
                "remote piece {index} does not go on where the one before it ends; a request has one remote range"
            )));
        }
    }
    Ok(())
}

/// The remote piece `index` of a list. Its length is that of the local side.
#[inline(always)]
fn remote<'g>(look: Look<'g>, list: Pieces<'_>, index: u32) -> Result<RemoteAddr<'g>, Stop> {
    let sge = list.get(index).ok_or_else(no_list)?;
    Ok(RemoteAddr { segment: imported(look, sge.segment())?, addr: sge.addr() })
}

/// The imported segment at `of`.
#[inline(always)]
fn imported<'g>(look: Look<'g>, of: *const urma_target_seg_t) -> Answer<&'g ImportedSegment> {
    look.named::<kind::Segment>(of)
        .and_then(|own| own.remote.as_ref())
        .ok_or_else(|| not_remote(of))
}
