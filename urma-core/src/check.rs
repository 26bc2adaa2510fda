//! The rules for work requests, checked at every post.
//!
//! *Owns*: what a queue remembers for it (`SendRules`, `RecvRules`). *Takes*: one request.
//! *Gives*: success, or the reason of the refusal. *Must not*: allocate, call, or check what only
//! the target has (its tokens and bounds at that moment): a completion reports that.

use crate::{
    AtomicFeatures, DeviceCaps, Eid, ImportedSegment, JettyId, LocalSge, OneTransfer, PostError,
    PostReason, RecvWr, RemoteAddr, SegmentAccess, SendOp, SendWr, TransportMode, WrFlags,
    wr::{OneAtomic, OneMessage},
};

use PostReason::Invalid;

const TARGET_OF_ANOTHER: PostReason = Invalid("the target was imported into another context");
const REMOTE_OF_ANOTHER: PostReason =
    Invalid("the remote segment was imported into another context");
const LOCAL_OF_ANOTHER: PostReason = Invalid("a local segment belongs to another context");

/// What a send queue checks against.
#[derive(Debug)]
pub(crate) struct SendRules {
    /// Key of the context that the queue and everything in a request must belong to.
    home: usize,
    mode: TransportMode,
    max_sge: u8,
    max_inline: u32,
    /// Bytes of a message; of UM the smaller limit.
    max_send: u64,
    max_write: u64,
    max_read: u64,
    max_atomic: u32,
    atomics: AtomicFeatures,
    /// RC: the one target.
    bound: Option<JettyId>,
}

impl SendRules {
    pub(crate) fn new(home: usize, caps: &DeviceCaps, queue: &crate::JfsCfg) -> Self {
        let max_send = match queue.mode {
            TransportMode::Um => u64::from(caps.max_um_size).min(caps.max_msg_size),
            TransportMode::Rm | TransportMode::Rc => caps.max_msg_size,
        };
        Self {
            home,
            mode: queue.mode,
            max_sge: queue.max_sge,
            max_inline: queue.max_inline,
            max_send,
            max_write: u64::from(caps.max_write_size),
            max_read: u64::from(caps.max_read_size),
            max_atomic: caps.max_atomic_size,
            atomics: caps.atomics,
            bound: None,
        }
    }

    pub(crate) fn set_bound(&mut self, target: Option<JettyId>) {
        self.bound = target;
    }

    /// Whether a request breaks no rule.
    #[expect(clippy::wildcard_enum_match_arm, reason = "`check_rare` names every operation")]
    #[inline(always)]
    pub(crate) fn check(&self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        if wr.flags.contains(WrFlags::RELAX_ORDER.union(WrFlags::STRONG_ORDER)) {
            return Err(Invalid("place order is relaxed or strong, not both"));
        }
        let peer = match self.peer(wr)? {
            Some(peer) => peer,
            None if matches!(wr.op, SendOp::Nop) => return Ok(()),
            None => return Err(Invalid("the request names no target")),
        };
        match wr.op {
            SendOp::Write { src, dst } => self.write(wr, peer, src, dst),
            SendOp::Send { src }
            | SendOp::SendImm { src, .. }
            | SendOp::SendInvalidate { src, .. } => self.send(wr, src),
            SendOp::Nop => Ok(()),
            _ => self.check_rare(wr, peer),
        }
    }

    /// Whether a request passes that differs from a checked one by addresses and length only.
    #[inline(always)]
    pub(crate) fn fits(&self, wr: &OneTransfer<'_>) -> bool {
        let len = u64::from(wr.piece.len);
        self.carries_len(wr.is_write, wr.piece.len)
            && wr.piece.segment.span().holds(wr.piece.addr, len)
            && wr.at.segment.span().holds(wr.at.addr, len)
    }

    /// Whether a WRITE, or a READ, may have `len` bytes.
    #[inline(always)]
    pub(crate) fn carries_len(&self, is_write: bool, len: u32) -> bool {
        let most = if is_write { self.max_write } else { self.max_read };
        // 0 bytes are more than any number.
        u64::from(len).wrapping_sub(1) < most
    }

    /// Whether a message passes that differs from a checked one by address and length only.
    #[inline(always)]
    pub(crate) fn carries(&self, message: &OneMessage<'_>) -> bool {
        let len = u64::from(message.piece.len);
        len.wrapping_sub(1) < self.max_send
            && message.piece.segment.span().holds(message.piece.addr, len)
    }

    /// Whether an atomic passes that differs from a checked one of the same size by its addresses only.
    #[inline(always)]
    pub(crate) fn reaches(&self, atomic: &OneAtomic<'_>) -> bool {
        let OneAtomic { result, at, .. } = atomic;
        let len = u64::from(result.len);
        (result.addr | at.addr) & len.wrapping_sub(1) == 0
            && result.segment.span().holds(result.addr, len)
            && at.segment.span().holds(at.addr, len)
    }

    /// The operations that are not posted by the million.
    fn check_rare(&self, wr: &SendWr<'_>, peer: &Eid) -> Result<(), PostReason> {
        match wr.op {
            SendOp::Read { dst, src } => self.read(wr, peer, dst, src),
            SendOp::WriteImm { src, dst, .. } => self.write(wr, peer, src, dst),
            SendOp::WriteNotify { src, dst, notify, .. } => {
                self.write(wr, peer, src, dst)?;
                self.notify(peer, notify, SegmentAccess::WRITE)
            }
            SendOp::WriteAtomic { src, dst, notify, .. } => {
                self.write(wr, peer, src, dst)?;
                self.notify(peer, notify, SegmentAccess::ATOMIC)
            }
            SendOp::Cas { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::CAS)
            }
            SendOp::Swap { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::SWAP)
            }
            SendOp::FetchAdd { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::FETCH_ADD)
            }
            SendOp::FetchSub { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::FETCH_SUB)
            }
            SendOp::FetchAnd { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::FETCH_AND)
            }
            SendOp::FetchOr { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::FETCH_OR)
            }
            SendOp::FetchXor { result, target, .. } => {
                self.atomic(wr, peer, (result, target), AtomicFeatures::FETCH_XOR)
            }
            SendOp::FlushDma => self.one_sided(wr),
            SendOp::Write { .. }
            | SendOp::Send { .. }
            | SendOp::SendImm { .. }
            | SendOp::SendInvalidate { .. }
            | SendOp::Nop => Ok(()),
        }
    }

    /// The node that the request goes to; `None` when it names none.
    #[inline(always)]
    fn peer<'w>(&'w self, wr: &SendWr<'w>) -> Result<Option<&'w Eid>, PostReason> {
        let bound = self.bound.as_ref();
        let Some(target) = wr.target else {
            return Ok(bound.map(|id| &id.eid));
        };
        if target.home() != self.home {
            return Err(TARGET_OF_ANOTHER);
        }
        let target = target.target();
        if target.mode != self.mode {
            return Err(PostReason::Mode);
        }
        if self.mode == TransportMode::Rc && bound != Some(&target.id) {
            return Err(Invalid("the queue is not bound to this target"));
        }
        Ok(Some(&target.id.eid))
    }

    #[inline(always)]
    fn send(&self, wr: &SendWr<'_>, src: &[LocalSge<'_>]) -> Result<(), PostReason> {
        let len = self.gather(wr, src)?;
        if len > self.max_send {
            return Err(Invalid("the message is longer than the device or UM carries"));
        }
        Ok(())
    }

    #[inline(always)]
    fn write(
        &self,
        wr: &SendWr<'_>,
        peer: &Eid,
        src: &[LocalSge<'_>],
        dst: RemoteAddr<'_>,
    ) -> Result<(), PostReason> {
        self.one_sided_mode()?;
        let len = self.gather(wr, src)?;
        if len > self.max_write {
            return Err(Invalid("longer than max_write_size"));
        }
        self.remote(peer, dst, len, SegmentAccess::WRITE)
    }

    #[inline]
    fn read(
        &self,
        wr: &SendWr<'_>,
        peer: &Eid,
        dst: &[LocalSge<'_>],
        src: RemoteAddr<'_>,
    ) -> Result<(), PostReason> {
        self.one_sided(wr)?;
        let len = local(self.home, self.max_sge, dst)?;
        if len > self.max_read {
            return Err(Invalid("longer than max_read_size"));
        }
        self.remote(peer, src, len, SegmentAccess::READ)
    }

    fn atomic(
        &self,
        wr: &SendWr<'_>,
        peer: &Eid,
        (result, target): (LocalSge<'_>, RemoteAddr<'_>),
        op: AtomicFeatures,
    ) -> Result<(), PostReason> {
        self.one_sided(wr)?;
        if !self.atomics.contains(op) {
            return Err(Invalid("the device does not have this atomic operation"));
        }
        let len = result.len;
        if !matches!(len, 4 | 8) || len > self.max_atomic {
            return Err(Invalid("atomics have 4 or 8 bytes, and at most max_atomic_size"));
        }
        let mask = u64::from(len) - 1;
        if (result.addr | target.addr) & mask != 0 {
            return Err(Invalid("atomics are aligned to their size on both sides"));
        }
        local(self.home, 1, &[result])?;
        self.remote(peer, target, u64::from(len), SegmentAccess::ATOMIC)
    }

    /// The 8 bytes that a WRITE_NOTIFY stores or a WRITE_ATOMIC adds to.
    fn notify(
        &self,
        peer: &Eid,
        notify: RemoteAddr<'_>,
        access: SegmentAccess,
    ) -> Result<(), PostReason> {
        if notify.addr & 7 != 0 {
            return Err(Invalid("the notify address is not 8-byte aligned"));
        }
        self.remote(peer, notify, 8, access)
    }

    /// Bytes that the request sends from here, with the limits of inline data.
    #[inline(always)]
    fn gather(&self, wr: &SendWr<'_>, src: &[LocalSge<'_>]) -> Result<u64, PostReason> {
        let len = local(self.home, self.max_sge, src)?;
        if wr.flags.contains(WrFlags::INLINE) && len > u64::from(self.max_inline) {
            return Err(Invalid("more inline bytes than the queue was created for"));
        }
        Ok(len)
    }

    #[inline(always)]
    fn remote(
        &self,
        peer: &Eid,
        at: RemoteAddr<'_>,
        len: u64,
        access: SegmentAccess,
    ) -> Result<(), PostReason> {
        let segment: &ImportedSegment = at.segment;
        if segment.home() != self.home {
            return Err(REMOTE_OF_ANOTHER);
        }
        if segment.path().eid != *peer {
            return Err(Invalid("segment and target lie on different nodes"));
        }
        if !segment.span().holds(at.addr, len) {
            return Err(Invalid("the remote range is not inside its segment"));
        }
        if !segment.access().contains(access) {
            return Err(Invalid("the segment was not imported for this kind of access"));
        }
        Ok(())
    }

    #[inline]
    fn one_sided_mode(&self) -> Result<(), PostReason> {
        if self.mode == TransportMode::Um { Err(PostReason::Mode) } else { Ok(()) }
    }

    /// A one-sided operation that sends no payload.
    #[inline]
    fn one_sided(&self, wr: &SendWr<'_>) -> Result<(), PostReason> {
        self.one_sided_mode()?;
        if wr.flags.contains(WrFlags::INLINE) {
            return Err(Invalid("only writes and sends carry inline data"));
        }
        Ok(())
    }
}

/// What a receive queue checks against.
#[derive(Debug)]
pub(crate) struct RecvRules {
    home: usize,
    max_sge: u8,
}

impl RecvRules {
    pub(crate) fn new(home: usize, max_sge: u8) -> Self {
        Self { home, max_sge }
    }

    /// The first request that breaks a rule.
    #[inline]
    pub(crate) fn first_bad(&self, wrs: &[RecvWr<'_>]) -> Option<PostError> {
        wrs.iter().enumerate().find_map(|(index, wr)| {
            let reason = local(self.home, self.max_sge, wr.dst).err()?;
            Some(PostError { index, reason })
        })
    }
}

/// Bytes of a list of local pieces, each of which lies inside its segment.
#[inline(always)]
fn local(home: usize, max_sge: u8, sges: &[LocalSge<'_>]) -> Result<u64, PostReason> {
    if sges.len() > usize::from(max_sge) {
        return Err(Invalid("more SGEs than the queue was created for"));
    }
    let mut sum = 0;
    for sge in sges {
        let len = u64::from(sge.len);
        if sge.segment.home() != home {
            return Err(LOCAL_OF_ANOTHER);
        }
        if !sge.segment.span().holds(sge.addr, len) {
            return Err(Invalid("an SGE is not inside its segment"));
        }
        sum += len;
    }
    Ok(sum)
}
