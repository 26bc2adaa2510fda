//! From a checked request to the words of a send queue entry.
//!
//! *Owns*: which request field goes into which entry field. *Takes*: a request, the path to its target. *Gives*:
//! control part and tail in the caller's scratch words. *Must not*: write past four blocks, whatever the request
//! contains (counts are checked again here, since the ring after the scratch words belongs to other requests).

use udma_abi::{
    Addressed, Atomic, FetchKind, MessageBody, MessageEntry, OneSided, Opcode, RawEid, Sge, Sqe,
    sqe::{
        SGE_LEN, SQE_WORDS_MAX, SqeFlags, SqeTargetKind, blocks_for, control_len, inline_max,
        sge_max,
    },
};
use urma_core::{
    LocalSge, PostReason, RemoteAddr, SendOp, SendWr, TargetId, TargetKind, Token, WrFlags,
};

/// An entry ready to be stored: its control part; its tail is already in the scratch words.
#[derive(Debug)]
pub(crate) struct Encoded {
    pub(crate) sqe: Sqe,
    /// Number of 64-byte blocks, 1 to 4.
    pub(crate) blocks: u32,
}

/// Fills the tail of `words` and returns the control part, without ring position and owner bit.
///
/// # Errors
/// More pieces or inline bytes than an entry holds; an RC queue without a target.
#[expect(clippy::wildcard_enum_match_arm, reason = "`build_rare` names every operation")]
#[inline]
pub(crate) fn build(
    words: &mut [u64; SQE_WORDS_MAX],
    wr: &SendWr<'_>,
    bound: Option<&TargetId>,
) -> Result<Encoded, PostReason> {
    let target = wr.target.map(urma_core::TargetJetty::target).or(bound);
    match wr.op {
        SendOp::Write { src, dst } => {
            let sqe = one_sided(Opcode::Write, wr, target, &dst);
            finish(words, wr, sqe, src)
        }
        SendOp::Read { dst, src } => {
            let sqe = one_sided(Opcode::Read, wr, target, &src);
            finish(words, wr, sqe, dst)
        }
        SendOp::Send { src } => finish(words, wr, message(Opcode::Send, wr, target)?, src),
        _ => build_rare(words, wr, target),
    }
}

/// Encodes a WRITE or READ of one local piece, without ring position and owner bit; `None`: another request, for
/// [`build`].
#[expect(clippy::wildcard_enum_match_arm, reason = "`build_rare` names every operation")]
#[inline(always)]
pub(crate) fn one_sided_of(
    wr: &SendWr<'_>,
    bound: Option<&TargetId>,
) -> Option<(OneSided, Addressed)> {
    let (is_write, piece, at) = match &wr.op {
        SendOp::Write { src: [piece], dst } if !wr.flags.contains(WrFlags::INLINE) => {
            (true, piece, dst)
        }
        SendOp::Read { dst: [piece], src } => (false, piece, src),
        _ => return None,
    };
    Some(one_piece(wr, is_write, (piece, at), bound))
}

/// Encodes a SEND or SEND_IMM of one local piece, without ring position and owner bit; also returns the node of its
/// target. `None`: another request, or one without a target, for [`build`].
#[expect(clippy::wildcard_enum_match_arm, reason = "`build_rare` names every operation")]
#[inline(always)]
pub(crate) fn message_of(
    wr: &SendWr<'_>,
    bound: Option<&TargetId>,
) -> Option<(MessageEntry, RawEid)> {
    let (piece, imm) = match &wr.op {
        SendOp::Send { src: [piece] } => (piece, None),
        SendOp::SendImm { src: [piece], imm } => (piece, Some(*imm)),
        _ => return None,
    };
    let to = wr.target.map(urma_core::TargetJetty::target).or(bound)?;
    if wr.flags.contains(WrFlags::INLINE) {
        return None;
    }
    let flags = u8::try_from(wr.flags.bits() & FLAG_BITS).unwrap_or(0);
    let piece = Sge { len: piece.len, token_id: piece.segment.token_id().value(), va: piece.addr };
    let message = MessageEntry {
        entry_idx: 0,
        owner: false,
        flags: SqeFlags::from_bits_truncate(flags),
        imm,
        tpn: to.path.tpn,
        target_kind: kind_of(to.kind),
        target_id: to.id.id,
        target_hint: wr.target_hint,
        token: to.token.map(Token::value),
        body: MessageBody::Piece(piece),
    };
    Some((message, RawEid(to.id.eid.bytes())))
}

/// Encodes a FETCH_ADD or CAS, without ring position and owner bit; `None`: another request, for [`build`].
#[expect(clippy::wildcard_enum_match_arm, reason = "`build_rare` names every operation")]
#[inline]
pub(crate) fn atomic_of(wr: &SendWr<'_>, bound: Option<&TargetId>) -> Option<(Atomic, Addressed)> {
    let (kind, result, at, operand, compare) = match &wr.op {
        SendOp::FetchAdd { result, target, value } => {
            (FetchKind::FetchAdd, result, target, *value, 0)
        }
        SendOp::Cas { result, target, compare, swap } => {
            (FetchKind::Cas, result, target, *swap, *compare)
        }
        _ => return None,
    };
    let (request, to) = one_piece(wr, false, (result, at), bound);
    Some((Atomic { request, kind, operand, compare }, to))
}

/// The fields of a request with one local piece and one remote range.
#[inline(always)]
fn one_piece(
    wr: &SendWr<'_>,
    is_write: bool,
    (piece, at): (&LocalSge<'_>, &RemoteAddr<'_>),
    bound: Option<&TargetId>,
) -> (OneSided, Addressed) {
    let segment = at.segment;
    let target = wr.target.map(urma_core::TargetJetty::target).or(bound);
    let path = target.map_or_else(|| segment.path(), |target| &target.path);
    let flags = u8::try_from(wr.flags.bits() & FLAG_BITS).unwrap_or(0);
    let request = OneSided {
        entry_idx: 0,
        owner: false,
        flags: SqeFlags::from_bits_truncate(flags).difference(SqeFlags::INLINE),
        is_write,
        tpn: path.tpn,
        token: segment.token().map(Token::value),
        seg_token_id: segment.token_id().value(),
        remote_va: at.addr,
        piece: Sge { len: piece.len, token_id: piece.segment.token_id().value(), va: piece.addr },
    };
    let mut to = Addressed { target_hint: wr.target_hint, ..Addressed::default() };
    match target {
        Some(target) => {
            to.target_kind = kind_of(target.kind);
            to.target_id = target.id.id;
            to.rmt_eid = RawEid(target.id.eid.bytes());
        }
        None => to.rmt_eid = RawEid(segment.path().eid.bytes()),
    }
    (request, to)
}

/// Encodes the operations that are not posted by the million.
fn build_rare(
    words: &mut [u64; SQE_WORDS_MAX],
    wr: &SendWr<'_>,
    target: Option<&TargetId>,
) -> Result<Encoded, PostReason> {
    let mut fetch = |opcode, result, at, operand| {
        finish(words, wr, Sqe { operand, ..one_sided(opcode, wr, target, &at) }, &[result])
    };
    match wr.op {
        SendOp::SendImm { src, imm } => {
            finish(words, wr, Sqe { imm, ..message(Opcode::SendImm, wr, target)? }, src)
        }
        SendOp::SendInvalidate { src, token_id, token } => {
            let sqe = Sqe {
                seg_token_id: token_id.value(),
                seg_token_value: token.value(),
                ..message(Opcode::SendInvalidate, wr, target)?
            };
            finish(words, wr, sqe, src)
        }
        SendOp::WriteImm { src, dst, imm } => {
            let message = message(Opcode::WriteImm, wr, target)?;
            let (seg_token_en, seg_token_value) = shown(dst.segment.token());
            let sqe = Sqe {
                imm,
                remote_va: dst.addr,
                seg_token_id: dst.segment.token_id().value(),
                seg_token_value,
                token_en: message.token_en || seg_token_en,
                ..message
            };
            finish(words, wr, sqe, src)
        }
        SendOp::WriteNotify { src, dst, notify, data } => {
            let sqe = notifying(Opcode::WriteNotify, wr, target, (&dst, &notify), data);
            finish(words, wr, sqe, src)
        }
        SendOp::WriteAtomic { src, dst, notify, add } => {
            let sqe = notifying(Opcode::WriteAtomic, wr, target, (&dst, &notify), add);
            finish(words, wr, sqe, src)
        }
        SendOp::Nop => finish(words, wr, addressed(Opcode::Nop, wr, target), &[]),
        SendOp::FlushDma => finish(words, wr, addressed(Opcode::FlushDma, wr, target), &[]),
        SendOp::Cas { result, target: at, compare, swap } => {
            let sqe = Sqe { operand: swap, compare, ..one_sided(Opcode::Cas, wr, target, &at) };
            finish(words, wr, sqe, &[result])
        }
        SendOp::Swap { result, target, value } => fetch(Opcode::Swap, result, target, value),
        SendOp::FetchAdd { result, target, value } => {
            fetch(Opcode::FetchAdd, result, target, value)
        }
        SendOp::FetchSub { result, target, value } => {
            fetch(Opcode::FetchSub, result, target, value)
        }
        SendOp::FetchAnd { result, target, value } => {
            fetch(Opcode::FetchAnd, result, target, value)
        }
        SendOp::FetchOr { result, target, value } => fetch(Opcode::FetchOr, result, target, value),
        SendOp::FetchXor { result, target, value } => {
            fetch(Opcode::FetchXor, result, target, value)
        }
        SendOp::Write { .. } | SendOp::Read { .. } | SendOp::Send { .. } => {
            Err(PostReason::Invalid("the common operations are built by the caller"))
        }
    }
}

/// Flags, and the path to the target if one is named.
#[inline]
fn addressed(opcode: Opcode, wr: &SendWr<'_>, target: Option<&TargetId>) -> Sqe {
    let flags = u8::try_from(wr.flags.bits() & FLAG_BITS).unwrap_or(0);
    let mut sqe = Sqe {
        flags: SqeFlags::from_bits_truncate(flags),
        target_hint: wr.target_hint,
        ..Sqe::new(opcode)
    };
    if let Some(target) = target {
        sqe.target_kind = kind_of(target.kind);
        sqe.target_id = target.id.id;
        sqe.tpn = target.path.tpn;
        sqe.rmt_eid = RawEid(target.id.eid.bytes());
    }
    sqe
}

/// An entry that takes a receive at the target.
#[inline]
fn message(opcode: Opcode, wr: &SendWr<'_>, target: Option<&TargetId>) -> Result<Sqe, PostReason> {
    let to = target.ok_or(PostReason::Invalid("the request names no target"))?;
    let (token_en, token_value) = shown(to.token);
    Ok(Sqe { token_en, token_value, ..addressed(opcode, wr, target) })
}

/// An entry for remote memory; with the path of the segment if no target is named.
#[inline]
fn one_sided(
    opcode: Opcode,
    wr: &SendWr<'_>,
    target: Option<&TargetId>,
    at: &RemoteAddr<'_>,
) -> Sqe {
    let mut sqe = addressed(opcode, wr, target);
    if target.is_none() {
        sqe.tpn = at.segment.path().tpn;
        sqe.rmt_eid = RawEid(at.segment.path().eid.bytes());
    }
    (sqe.token_en, sqe.token_value) = shown(at.segment.token());
    sqe.seg_token_id = at.segment.token_id().value();
    sqe.remote_va = at.addr;
    sqe
}

fn notifying(
    opcode: Opcode,
    wr: &SendWr<'_>,
    target: Option<&TargetId>,
    (dst, notify): (&RemoteAddr<'_>, &RemoteAddr<'_>),
    imm: u64,
) -> Sqe {
    let sqe = one_sided(opcode, wr, target, dst);
    let (notify_en, seg_token_value) = shown(notify.segment.token());
    Sqe {
        imm,
        notify_va: notify.addr,
        notify_token_id: notify.segment.token_id().value(),
        seg_token_value,
        token_en: sqe.token_en || notify_en,
        ..sqe
    }
}

#[inline]
fn kind_of(kind: TargetKind) -> SqeTargetKind {
    match kind {
        TargetKind::Jfr => SqeTargetKind::Jfr,
        TargetKind::Jetty => SqeTargetKind::Jetty,
        TargetKind::Group => SqeTargetKind::Group,
    }
}

/// Appends the pieces, or their bytes.
// With several callers `inline` alone leaves a call on the path of an 8-byte WRITE.
#[inline(always)]
fn finish(
    words: &mut [u64; SQE_WORDS_MAX],
    wr: &SendWr<'_>,
    mut sqe: Sqe,
    pieces: &[LocalSge<'_>],
) -> Result<Encoded, PostReason> {
    let opcode = sqe.opcode;
    let tail = control_len(opcode) / 8;
    if wr.flags.contains(WrFlags::INLINE) && (opcode.is_write() || opcode.is_send()) {
        let len = copy_inline(&mut words[tail..], inline_max(opcode), pieces)?;
        sqe.inline_len = len;
        return Ok(Encoded { blocks: blocks(opcode, usize::from(len)), sqe });
    }
    sqe.flags.remove(SqeFlags::INLINE);
    if pieces.len() > sge_max(opcode) {
        return Err(PostReason::Invalid(
            "more SGEs than an entry holds: 13, of WRITE_IMM 12, of WRITE_NOTIFY and WRITE_ATOMIC 11",
        ));
    }
    for (pair, piece) in words[tail..].chunks_exact_mut(2).zip(pieces) {
        let token_id = piece.segment.token_id().value();
        pair.copy_from_slice(&Sge { len: piece.len, token_id, va: piece.addr }.to_words());
    }
    sqe.sge_num = u8::try_from(pieces.len()).unwrap_or(u8::MAX);
    Ok(Encoded { blocks: blocks(opcode, pieces.len() * SGE_LEN), sqe })
}

/// Copies the bytes of `pieces` into `words`; returns their number.
fn copy_inline(words: &mut [u64], room: usize, pieces: &[LocalSge<'_>]) -> Result<u16, PostReason> {
    const OUTSIDE: PostReason = PostReason::Invalid("a piece lies outside its segment");
    let mut bytes = [0u8; SQE_WORDS_MAX * 8];
    let mut len = 0usize;
    for piece in pieces {
        let end = len.saturating_add(piece.len as usize);
        if end > room {
            return Err(PostReason::Invalid("more inline bytes than an entry holds"));
        }
        let offset = piece.addr.checked_sub(piece.segment.va()).ok_or(OUTSIDE)?;
        let offset = usize::try_from(offset).map_err(|_| OUTSIDE)?;
        piece.segment.region().read(offset, &mut bytes[len..end]).map_err(|_| OUTSIDE)?;
        len = end;
    }
    for (word, chunk) in words.iter_mut().zip(bytes[..len].chunks(8)) {
        let mut le = [0; 8];
        le[..chunk.len()].copy_from_slice(chunk);
        *word = u64::from_le_bytes(le);
    }
    u16::try_from(len).map_err(|_| OUTSIDE)
}

#[inline]
fn blocks(opcode: Opcode, tail_len: usize) -> u32 {
    u32::try_from(blocks_for(opcode, tail_len)).unwrap_or(u32::MAX)
}

#[inline]
fn shown(token: Option<Token>) -> (bool, u32) {
    token.map_or((false, 0), |token| (true, token.value()))
}

/// The request flags that an entry carries.
const FLAG_BITS: u32 = 0x7f;
