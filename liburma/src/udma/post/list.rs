//! Lists of requests in the memory of a C program.
//!
//! *Owns*: the one promise for that memory, which the maker of the first [`WorkRequest`] of a list gives for all
//! that the list leads to: the requests, the lists of pieces, the member of the union that the opcode names.
//! *Gives*: members, each read when it is asked for, at any address. *Must not*: know what a request means.

use core::marker::PhantomData;

use crate::{
    abi::{
        urma_cas_wr_t, urma_faa_wr_t, urma_jfr_wr_t, urma_jfs_wr_flag_t, urma_jfs_wr_t,
        urma_rw_wr_t, urma_send_wr_t, urma_sg_t, urma_sge_t, urma_target_jetty_t,
        urma_target_seg_t,
    },
    call::UserPtr,
};

/// A struct of the caller's where it lies, at any address: members are read one by one, and no more of
/// them than are needed.
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
    /// union that its opcode names, and lists of pieces as long as they say. Nobody changes any of it while
    /// the value lives.
    #[inline(always)]
    pub(super) unsafe fn first(wr: UserPtr<W>) -> Self {
        // SAFETY: a request lies there, as this function's contract says; a packed struct may lie anywhere.
        Self(unsafe { &*wr.as_ptr().cast::<Unaligned<W>>() })
    }

    /// The pointer as the caller gave it.
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

impl<'a> WorkRequest<'a, urma_jfr_wr_t> {
    /// The request after it.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Self> {
        Self::after(self.0.0.next)
    }

    /// The program's number of the request.
    #[inline(always)]
    pub(super) fn user_ctx(self) -> u64 {
        self.0.0.user_ctx
    }

    /// Where a message goes.
    #[inline(always)]
    pub(super) fn dst(self) -> Pieces<'a> {
        Pieces::of(self.0.0.src)
    }
}

impl<'a> WorkRequest<'a, urma_jfs_wr_t> {
    /// The request after it.
    #[inline(always)]
    pub(super) fn next(self) -> Option<Self> {
        Self::after(self.0.0.next)
    }

    /// A copy of the struct.
    pub(super) fn read(self) -> urma_jfs_wr_t {
        self.0.0
    }

    /// What it does: a number of `urma_opcode_t`, or any other.
    #[inline(always)]
    pub(super) fn opcode(self) -> u32 {
        self.0.0.opcode
    }

    /// How it is posted, ordered and completed.
    #[inline(always)]
    pub(super) fn flag(self) -> urma_jfs_wr_flag_t {
        self.0.0.flag
    }

    /// The target that it names, if it does.
    #[inline(always)]
    pub(super) fn target(self) -> *mut urma_target_jetty_t {
        self.0.0.tjetty
    }

    /// The program's number of the request.
    #[inline(always)]
    pub(super) fn user_ctx(self) -> u64 {
        self.0.0.user_ctx
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
        Message(unsafe { self.0.0.u.send }, PhantomData)
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

/// What a write or read moves.
#[derive(Clone, Copy)]
pub(super) struct Transfer<'a>(&'a Unaligned<urma_rw_wr_t>);

impl<'a> Transfer<'a> {
    /// Where the bytes come from.
    #[inline(always)]
    pub(super) fn src(self) -> Pieces<'a> {
        Pieces::of(self.0.0.src)
    }

    /// Where the bytes go.
    #[inline(always)]
    pub(super) fn dst(self) -> Pieces<'a> {
        Pieces::of(self.0.0.dst)
    }

    /// The hint for a group of targets.
    #[inline(always)]
    pub(super) fn hint(self) -> u8 {
        self.0.0.target_hint
    }

    /// Immediate data, data to notify with, or a number to add.
    #[inline(always)]
    pub(super) fn data(self) -> u64 {
        self.0.0.notify_data
    }
}

/// What a message carries.
#[derive(Clone, Copy)]
pub(super) struct Message<'a>(urma_send_wr_t, PhantomData<&'a ()>);

impl<'a> Message<'a> {
    /// The pieces whose bytes are sent.
    #[inline(always)]
    pub(super) fn src(self) -> Pieces<'a> {
        Pieces::of(self.0.src)
    }

    /// The hint for a group of targets.
    #[inline(always)]
    pub(super) fn hint(self) -> u8 {
        self.0.target_hint
    }

    /// Immediate data, 64 bits.
    #[inline(always)]
    pub(super) fn data(self) -> u64 {
        self.0.imm_data
    }

    /// The segment whose token is taken away.
    #[inline(always)]
    pub(super) fn segment(self) -> *mut urma_target_seg_t {
        self.0.tseg
    }
}

/// A piece of memory that a request names, where its struct lies.
#[derive(Clone, Copy)]
pub(super) struct UserSge<'a>(&'a Unaligned<urma_sge_t>);

impl UserSge<'_> {
    /// Address of the first byte.
    #[inline(always)]
    pub(super) fn addr(self) -> u64 {
        self.0.0.addr
    }

    /// Number of bytes, of any value.
    #[inline(always)]
    pub(super) fn len(self) -> u32 {
        self.0.0.len
    }

    /// The segment that it lies in.
    #[inline(always)]
    pub(super) fn segment(self) -> *mut urma_target_seg_t {
        self.0.0.tseg
    }

    /// A copy of the struct.
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

    /// Number of pieces, as the program says.
    #[inline(always)]
    pub(super) fn count(self) -> u32 {
        self.count
    }

    /// UserSge `index`; `None`: there are fewer, or there is no list.
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

    /// The piece of a list that is just one, with bytes; `None` for any other list.
    #[inline(always)]
    pub(super) fn only(self) -> Option<UserSge<'a>> {
        if self.count != 1 {
            return None;
        }
        self.get(0).filter(|piece| piece.len() != 0)
    }

    /// Copies of all pieces; `None`: more than `max`, or there is no list.
    pub(super) fn copied(self, max: usize) -> Option<Vec<urma_sge_t>> {
        if self.count as usize > max {
            return None;
        }
        (0..self.count).map(|index| self.get(index).map(UserSge::read)).collect()
    }
}
