//! Lists of requests in the memory of a C program, read and posted in batches with one doorbell each.
//!
//! Whoever makes the first [`WorkRequest`] of a list promises that everything it leads to may be read: the requests,
//! the lists of pieces, the member of the union that the opcode selects. Members are read one by one, when asked
//! for, at any address. Must not know what a request means, or allocate.

use core::{marker::PhantomData, mem::MaybeUninit};

use urma_core::{LocalSge, PostError};

use super::{BATCH, LIST_MAX, PIECES, Rest, Stop, stopped, too_many_pieces, written};
use crate::{
    abi::*,
    call::{Answer, UserPtr, refuse},
    slab::Look,
};

/// A struct of the caller's in place, at any address: members are read one by one, and no more than are needed.
#[repr(C, packed)]
struct Unaligned<T>(T);

impl<T> Unaligned<T> {
    /// The struct at `ptr`; `None` for NULL.
    ///
    /// # Safety
    /// `ptr`, unless NULL, is a pointer of a list whose [`WorkRequest::first`] promised what it leads to.
    #[inline(always)]
    unsafe fn at<'a>(ptr: *const T) -> Option<&'a Self> {
        // SAFETY: the struct is there, and a packed one may lie anywhere.
        unsafe { ptr.cast::<Self>().as_ref() }
    }
}

/// A request of a list.
pub(super) struct WorkRequest<'a, W>(&'a Unaligned<W>);

/// A request of a send queue.
pub(super) type SendRequest<'a> = WorkRequest<'a, urma_jfs_wr_t>;
/// A request of a receive queue.
pub(super) type RecvRequest<'a> = WorkRequest<'a, urma_jfr_wr_t>;

impl<W> Clone for WorkRequest<'_, W> {
    #[inline(always)]
    fn clone(&self) -> Self {
        *self
    }
}

impl<W> Copy for WorkRequest<'_, W> {}

impl<W> WorkRequest<'_, W> {
    /// The first request of a list.
    ///
    /// # Safety
    /// What the header says of a list of requests: each names the next one or NULL, has the member of the
    /// union that its opcode names, and lists of pieces as long as they say. No thread changes any of it while
    /// the value lives.
    #[inline(always)]
    pub(super) unsafe fn first(wr: UserPtr<W>) -> Self {
        // SAFETY: a request lies there, as this function's contract says; a packed struct may lie anywhere.
        Self(unsafe { &*wr.as_ptr().cast::<Unaligned<W>>() })
    }

    /// The pointer that the caller passed.
    #[inline(always)]
    pub(super) fn as_ptr(self) -> *mut W {
        (&raw const self.0.0).cast_mut()
    }

    /// The request at `next`, which a request of the list names; `None` at the end of the list.
    #[inline(always)]
    fn after(next: *mut W) -> Option<Self> {
        // SAFETY: `first` promised that each request names the next one or NULL; `next` is such a name.
        unsafe { Unaligned::at(next) }.map(Self)
    }
}

/// Operation of a send request, by the member of the union that holds its operands.
#[derive(Clone, Copy)]
pub(super) enum PostOp {
    Write(WriteOp),
    Read,
    Send(MessageOp),
    Compare(CompareOp),
    Fetch(FetchOp),
    Nop,
    FlushDma,
}

/// What a write carries besides its bytes.
#[derive(Clone, Copy)]
pub(super) enum WriteOp {
    Plain,
    Imm,
    Notify,
    Atomic,
}

/// What a message carries besides its bytes.
#[derive(Clone, Copy)]
pub(super) enum MessageOp {
    Plain,
    Imm,
    Invalidate,
}

/// An atomic that stores a new value.
#[derive(Clone, Copy)]
pub(super) enum CompareOp {
    Cas,
    Swap,
}

/// An atomic with one operand.
#[derive(Clone, Copy)]
pub(super) enum FetchOp {
    Add,
    Sub,
    And,
    Or,
    Xor,
}

impl PostOp {
    /// The operation with this number of `urma_opcode_t`; `None`: there is none.
    #[inline(always)]
    fn of(opcode: u32) -> Option<Self> {
        Some(match opcode {
            URMA_OPC_WRITE => Self::Write(WriteOp::Plain),
            URMA_OPC_WRITE_IMM => Self::Write(WriteOp::Imm),
            URMA_OPC_WRITE_NOTIFY => Self::Write(WriteOp::Notify),
            URMA_OPC_WRITE_ATOMIC => Self::Write(WriteOp::Atomic),
            URMA_OPC_READ => Self::Read,
            URMA_OPC_SEND => Self::Send(MessageOp::Plain),
            URMA_OPC_SEND_IMM => Self::Send(MessageOp::Imm),
            URMA_OPC_SEND_INVALIDATE => Self::Send(MessageOp::Invalidate),
            URMA_OPC_CAS => Self::Compare(CompareOp::Cas),
            URMA_OPC_SWAP => Self::Compare(CompareOp::Swap),
            URMA_OPC_FADD => Self::Fetch(FetchOp::Add),
            URMA_OPC_FSUB => Self::Fetch(FetchOp::Sub),
            URMA_OPC_FAND => Self::Fetch(FetchOp::And),
            URMA_OPC_FOR => Self::Fetch(FetchOp::Or),
            URMA_OPC_FXOR => Self::Fetch(FetchOp::Xor),
            URMA_OPC_NOP => Self::Nop,
            URMA_OPC_FLUSH_DMA => Self::FlushDma,
            _ => return None,
        })
    }
}

/// Copies of members, each read at its call.
macro_rules! members {
    ($($(#[$doc:meta])* $name:ident: $ty:ty = $member:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name(self) -> $ty {
            self.0.0.$member
        }
    )*};
}

/// Lists of pieces, each read at its call.
macro_rules! pieces {
    ($($(#[$doc:meta])* $name:ident = $member:ident;)*) => {$(
        $(#[$doc])*
        #[inline(always)]
        pub(super) fn $name(self) -> Pieces<'a> {
            Pieces::of(self.0.0.$member)
        }
    )*};
}

impl<'a> WorkRequest<'a, urma_jfr_wr_t> {
    members! {
        /// The program's context of the request.
        user_ctx: u64 = user_ctx;
    }
    pieces! {
        /// Where a message is stored.
        dst = src;
    }

    /// The request after it.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Self> {
        Self::after(self.0.0.next)
    }
}

impl<'a> WorkRequest<'a, urma_jfs_wr_t> {
    members! {
        /// A number of `urma_opcode_t`, or any other.
        opcode: u32 = opcode;
        /// How it is posted, ordered and completed.
        flag: urma_jfs_wr_flag_t = flag;
        /// The target that it names, if any.
        target: *mut urma_target_jetty_t = tjetty;
        /// The program's context of the request.
        user_ctx: u64 = user_ctx;
    }

    /// Opcode and flags in one word: a single load where they are adjacent.
    #[inline(always)]
    pub(super) fn head(self) -> u64 {
        u64::from(self.opcode()) | u64::from(self.flag().value) << 32
    }

    /// The request after it.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Self> {
        Self::after(self.0.0.next)
    }

    /// Copies the whole struct.
    pub(super) fn read(self) -> urma_jfs_wr_t {
        self.0.0
    }

    /// Its operation; `None`: its opcode is no number of `urma_opcode_t`.
    #[inline(always)]
    pub(super) fn op(self) -> Option<PostOp> {
        PostOp::of(self.opcode())
    }

    /// The member of writes and reads.
    #[inline(always)]
    pub(super) fn transfer(self) -> Transfer<'a> {
        // SAFETY: any bytes are numbers and pointers; what they lead to is read where the opcode names this
        // member.
        Transfer(unsafe { &*(&raw const self.0.0.u.rw).cast() })
    }

    /// The member of messages.
    #[inline(always)]
    pub(super) fn message(self) -> Message<'a> {
        // SAFETY: any bytes are numbers and pointers; only the opcodes of this member follow them.
        Message(unsafe { &*(&raw const self.0.0.u.send).cast() })
    }

    /// The member of CAS and SWAP: result, target, value to compare with, value to put there.
    #[inline(always)]
    pub(super) fn compare(self) -> (Pieces<'a>, Pieces<'a>, u64, u64) {
        // SAFETY: any bytes are numbers and pointers; only the opcodes of this member follow them.
        let urma_cas_wr_t { dst, src, cmp_data, swap_data } = unsafe { self.0.0.u.cas };
        (Pieces::one(src), Pieces::one(dst), cmp_data, swap_data)
    }

    /// The member of fetching atomics: result, target, operand.
    #[inline(always)]
    pub(super) fn fetch(self) -> (Pieces<'a>, Pieces<'a>, u64) {
        // SAFETY: any bytes are numbers and pointers; only the opcodes of this member follow them.
        let urma_faa_wr_t { dst, src, operand } = unsafe { self.0.0.u.faa };
        (Pieces::one(src), Pieces::one(dst), operand)
    }
}

/// The operands of a write or read.
#[derive(Clone, Copy)]
pub(super) struct Transfer<'a>(&'a Unaligned<urma_rw_wr_t>);

impl<'a> Transfer<'a> {
    pieces! {
        /// The pieces that are read.
        src = src;
        /// The pieces that are written.
        dst = dst;
    }
    members! {
        /// The hint for a group of targets.
        hint: u8 = target_hint;
        /// Immediate data, data to notify with, or a number to add.
        data: u64 = notify_data;
    }
}

/// The operands of a message.
#[derive(Clone, Copy)]
pub(super) struct Message<'a>(&'a Unaligned<urma_send_wr_t>);

impl<'a> Message<'a> {
    pieces! {
        /// The pieces whose bytes are sent.
        src = src;
    }
    members! {
        /// The hint for a group of targets.
        hint: u8 = target_hint;
        /// Immediate data, 64 bits.
        data: u64 = imm_data;
        /// The segment whose token is invalidated.
        segment: *mut urma_target_seg_t = tseg;
    }
}

/// A piece of memory that a request names, in place.
#[derive(Clone, Copy)]
pub(super) struct UserSge<'a>(&'a Unaligned<urma_sge_t>);

impl UserSge<'_> {
    members! {
        /// Address of the first byte.
        addr: u64 = addr;
        /// Number of bytes, of any value.
        len: u32 = len;
        /// The segment that it lies in.
        segment: *mut urma_target_seg_t = tseg;
    }

    /// Copies the whole struct.
    pub(super) fn read(self) -> urma_sge_t {
        self.0.0
    }
}

/// A list of pieces.
#[derive(Clone, Copy)]
pub(super) struct Pieces<'a> {
    first: *const urma_sge_t,
    count: u32,
    _of: PhantomData<&'a urma_sge_t>,
}

impl<'a> Pieces<'a> {
    #[inline(always)]
    fn of(list: urma_sg_t) -> Self {
        Self { first: list.sge, count: list.num_sge, _of: PhantomData }
    }

    #[inline(always)]
    fn one(first: *const urma_sge_t) -> Self {
        Self { first, count: 1, _of: PhantomData }
    }

    /// Number of pieces, as the program claims.
    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// Piece `index`; `None`: there are fewer, or there is no list.
    #[inline(always)]
    pub(super) fn get(self, index: u32) -> Option<UserSge<'a>> {
        if index >= self.count || self.first.is_null() {
            return None;
        }
        // SAFETY: `WorkRequest::first` promised a list that is as long as it says.
        let piece = unsafe { self.first.add(index as usize) };
        // SAFETY: as above: the piece is inside of the list.
        unsafe { Unaligned::at(piece) }.map(UserSge)
    }

    /// The piece of a one-piece list; `None` for any other list.
    #[inline(always)]
    pub(super) fn single(self) -> Option<UserSge<'a>> {
        if self.count == 1 { self.get(0) } else { None }
    }

    /// The piece of a one-piece list, if it is not empty; `None` for any other list.
    #[inline(always)]
    pub(super) fn only(self) -> Option<UserSge<'a>> {
        if self.count != 1 {
            return None;
        }
        self.get(0).filter(|piece| piece.len() != 0)
    }

    /// Copies all pieces; `None`: there are more than `max`, or there is no list.
    pub(super) fn copied(self, max: usize) -> Option<Vec<urma_sge_t>> {
        if self.count as usize > max {
            return None;
        }
        (0..self.count).map(|index| self.get(index).map(UserSge::read)).collect()
    }
}

/// A C request that is posted in batches.
pub(super) trait Batched: Sized + 'static {
    /// The request in urma-core's type.
    type Checked<'r>;

    /// The request after `of`.
    fn next(of: WorkRequest<'_, Self>) -> Option<WorkRequest<'_, Self>>;

    /// Looks up what the request names; pieces are put into `rest`. `is_bound` is that of `Sends`.
    fn check<'r, 'g: 'r>(
        look: Look<'g>,
        from: WorkRequest<'_, Self>,
        is_bound: bool,
        rest: &mut Rest<'r, 'g>,
    ) -> Result<Self::Checked<'r>, Stop>;

    /// The answer for a batch that urma-core refused.
    fn refused(
        bad_wr: UserPtr<*mut Self>,
        batch: &[Option<WorkRequest<'_, Self>>],
        error: PostError,
    ) -> Answer {
        super::refused(bad_wr, batch, error)
    }
}

/// Function that posts checked requests, or says which was refused.
type Give<'d, W> = dyn FnMut(&[<W as Batched>::Checked<'_>]) -> Result<(), PostError> + 'd;

/// Posts a list that starts with `first`.
#[inline(never)]
pub(super) fn post<'g, W: Batched>(
    look: Look<'g>,
    first: WorkRequest<'_, W>,
    bad_wr: UserPtr<*mut W>,
    is_bound: bool,
    give: &mut Give<'_, W>,
) -> Answer {
    let (mut next, mut posted) = (Some(first), 0);
    while next.is_some() {
        let mut room = [const { MaybeUninit::<LocalSge<'g>>::uninit() }; PIECES];
        let mut rest: Rest<'_, 'g> = &mut room;
        let mut batch = [const { MaybeUninit::uninit() }; BATCH];
        let mut from = [None; BATCH];
        let (mut count, mut stop) = (0, None);
        while count < BATCH
            && stop.is_none()
            && let Some(request) = next
        {
            match W::check(look, request, is_bound, &mut rest) {
                Ok(wr) => {
                    batch[count].write(wr);
                    (from[count], next, count) = (next, W::next(request), count + 1);
                }
                Err(Stop::NoRoom) if count > 0 => break,
                Err(Stop::NoRoom) => stop = Some(too_many_pieces()),
                Err(Stop::Bad(code)) => stop = Some(code),
            }
        }
        // SAFETY: the loop wrote the first `count` elements.
        let wrs = unsafe { written(&batch[..count]) };
        if count > 0
            && let Err(error) = give(wrs)
        {
            return W::refused(bad_wr, &from[..count], error);
        }
        posted += count;
        if stop.is_none() && posted >= LIST_MAX {
            stop = Some(refuse!(
                EINVAL,
                "the list has more than {LIST_MAX} requests, or goes in a circle"
            ));
        }
        if let Some(code) = stop {
            return stopped(bad_wr, next.map_or(core::ptr::null_mut(), WorkRequest::as_ptr), code);
        }
    }
    Ok(())
}
