//! Posts: urma-core's requests as lists of C requests.
//!
//! *Owns*: the lists, for the length of a call. *Takes*: requests of one queue. *Gives*: the index
//! of the request that C refused.
#![expect(unsafe_code, reason = "calls of C functions, and unions")]

use std::sync::Arc;

use liburma::{
    abi::{
        URMA_OPC_CAS, URMA_OPC_FADD, URMA_OPC_FAND, URMA_OPC_FLUSH_DMA, URMA_OPC_FOR,
        URMA_OPC_FSUB, URMA_OPC_FXOR, URMA_OPC_NOP, URMA_OPC_READ, URMA_OPC_SEND,
        URMA_OPC_SEND_IMM, URMA_OPC_SEND_INVALIDATE, URMA_OPC_SWAP, URMA_OPC_WRITE,
        URMA_OPC_WRITE_ATOMIC, URMA_OPC_WRITE_IMM, URMA_OPC_WRITE_NOTIFY, urma_cas_wr_t,
        urma_faa_wr_t, urma_jetty_t, urma_jfr_t, urma_jfr_wr_t, urma_jfs_t, urma_jfs_wr_t,
        urma_jfs_wr_u, urma_rw_wr_t, urma_send_wr_t, urma_sg_t, urma_sge_t, urma_target_seg_t,
    },
    face::data::{urma_post_jetty_send_wr, urma_post_jfr_wr, urma_post_jfs_wr},
    zeroed,
};
use urma_core::{
    LocalSge, PostError, PostReason, RecvWr, RemoteAddr, SendOp, SendWr, Status,
    ops::{RecvQueue, SendQueue},
};

use crate::{
    shared::Shared,
    value::{Ptr, refusal},
};

/// Where sends are posted.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sender {
    Jfs(Ptr<urma_jfs_t>),
    Jetty(Ptr<urma_jetty_t>),
}

/// Send half of a queue.
#[derive(Debug)]
pub(crate) struct Send {
    pub(crate) to: Sender,
    pub(crate) shared: Arc<Shared>,
}

/// Receive half of a queue.
#[derive(Debug)]
pub(crate) struct Recv {
    pub(crate) to: Ptr<urma_jfr_t>,
    pub(crate) shared: Arc<Shared>,
}

/// Pieces that a list of requests points to; a box does not move when the list of boxes grows.
type Pieces = Vec<Box<[urma_sge_t]>>;

/// `pieces` as a list; the store keeps them until the call returned.
fn keep(store: &mut Pieces, pieces: Vec<urma_sge_t>) -> urma_sg_t {
    let num_sge = u32::try_from(pieces.len()).unwrap_or(u32::MAX);
    let mut pieces = pieces.into_boxed_slice();
    let sge = pieces.as_mut_ptr();
    store.push(pieces);
    urma_sg_t { sge, num_sge }
}

impl SendQueue for Send {
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        let mut store = Pieces::new();
        let mut list = Vec::with_capacity(wrs.len());
        let mut stop = None;
        for (index, wr) in wrs.iter().enumerate() {
            match self.convert(wr, &mut store) {
                Ok(wr) => list.push(wr),
                Err(status) => {
                    stop = Some(PostError { index, reason: refusal(status.errno()) });
                    break;
                }
            }
        }
        self.give(&mut list)?;
        stop.map_or(Ok(()), Err)
    }
}

impl Send {
    fn give(&self, list: &mut [urma_jfs_wr_t]) -> Result<(), PostError> {
        let first = list.as_mut_ptr();
        for index in 1..list.len() {
            // One base for all pointers into the list.
            list[index - 1].next = first.wrapping_add(index);
        }
        if list.is_empty() {
            return Ok(());
        }
        let mut bad = core::ptr::null_mut();
        let code = match self.to {
            // SAFETY: a queue that the library checks, a list and a place.
            Sender::Jfs(jfs) => unsafe { urma_post_jfs_wr(jfs.0, first, &raw mut bad) },
            // SAFETY: the library checks the jetty; list and place live until the call returns.
            Sender::Jetty(jetty) => unsafe {
                urma_post_jetty_send_wr(jetty.0, first, &raw mut bad)
            },
        };
        ended(code, first, bad)
    }

    fn convert(&self, wr: &SendWr<'_>, store: &mut Pieces) -> Result<urma_jfs_wr_t, Status> {
        let mut to: urma_jfs_wr_t = zeroed();
        (to.user_ctx, to.flag.value) = (wr.user_ctx, wr.flags.bits());
        if let Some(target) = wr.target {
            to.tjetty = self.shared.paths().target(self.shared.ctx, target.target())?.0;
        }
        (to.opcode, to.u) = self.operation(wr, store)?;
        Ok(to)
    }

    fn operation(
        &self,
        wr: &SendWr<'_>,
        store: &mut Pieces,
    ) -> Result<(u32, urma_jfs_wr_u), Status> {
        let empty = || zeroed::<urma_jfs_wr_t>().u;
        match wr.op {
            SendOp::Nop => Ok((URMA_OPC_NOP, empty())),
            SendOp::FlushDma => Ok((URMA_OPC_FLUSH_DMA, empty())),
            SendOp::Send { .. } | SendOp::SendImm { .. } | SendOp::SendInvalidate { .. } => {
                self.message(wr, store)
            }
            SendOp::Write { .. }
            | SendOp::WriteImm { .. }
            | SendOp::WriteNotify { .. }
            | SendOp::WriteAtomic { .. }
            | SendOp::Read { .. } => self.transfer(wr, store),
            _ => self.atomic(&wr.op, store),
        }
    }

    fn message(&self, wr: &SendWr<'_>, store: &mut Pieces) -> Result<(u32, urma_jfs_wr_u), Status> {
        let mut tseg = core::ptr::null_mut();
        let (opcode, src, imm_data) = match wr.op {
            SendOp::SendImm { src, imm } => (URMA_OPC_SEND_IMM, src, imm),
            SendOp::SendInvalidate { src, token_id, token } => {
                let path = wr.target.ok_or(Status::Invalid)?.target().path;
                let mut paths = self.shared.paths();
                tseg = paths.invalidated(self.shared.ctx, &path, (token_id, token))?.0;
                (URMA_OPC_SEND_INVALIDATE, src, 0)
            }
            SendOp::Send { src } => (URMA_OPC_SEND, src, 0),
            _ => return Err(Status::Fail),
        };
        let src = keep(store, local(&self.shared, src)?);
        let target_hint = wr.target_hint;
        let send = urma_send_wr_t { src, target_hint, imm_data, tseg };
        Ok((opcode, urma_jfs_wr_u { send }))
    }

    fn transfer(
        &self,
        wr: &SendWr<'_>,
        store: &mut Pieces,
    ) -> Result<(u32, urma_jfs_wr_u), Status> {
        let (opcode, here, there, more) = match wr.op {
            SendOp::Write { src, dst } => (URMA_OPC_WRITE, src, dst, None),
            SendOp::WriteImm { src, dst, imm } => (URMA_OPC_WRITE_IMM, src, dst, Some((None, imm))),
            SendOp::WriteNotify { src, dst, notify, data } => {
                (URMA_OPC_WRITE_NOTIFY, src, dst, Some((Some(notify), data)))
            }
            SendOp::WriteAtomic { src, dst, notify, add } => {
                (URMA_OPC_WRITE_ATOMIC, src, dst, Some((Some(notify), add)))
            }
            SendOp::Read { dst, src } => (URMA_OPC_READ, dst, src, None),
            _ => return Err(Status::Fail),
        };
        let len = here.iter().map(|piece| piece.len).fold(0, u32::saturating_add);
        let mut remote = vec![self.remote(&there, len)?];
        let (notify, notify_data) = more.unwrap_or((None, 0));
        if let Some(notify) = notify {
            remote.push(self.remote(&notify, 8)?);
        }
        let (here, there) = (keep(store, local(&self.shared, here)?), keep(store, remote));
        let is_read = opcode == URMA_OPC_READ;
        let (src, dst) = if is_read { (there, here) } else { (here, there) };
        let rw = urma_rw_wr_t { src, dst, target_hint: wr.target_hint, notify_data };
        Ok((opcode, urma_jfs_wr_u { rw }))
    }

    fn atomic(&self, op: &SendOp<'_>, store: &mut Pieces) -> Result<(u32, urma_jfs_wr_u), Status> {
        let (opcode, result, target, first, second) = match *op {
            SendOp::Cas { result, target, compare, swap } => {
                (URMA_OPC_CAS, result, target, compare, swap)
            }
            SendOp::Swap { result, target, value } => (URMA_OPC_SWAP, result, target, 0, value),
            SendOp::FetchAdd { result, target, value } => (URMA_OPC_FADD, result, target, value, 0),
            SendOp::FetchSub { result, target, value } => (URMA_OPC_FSUB, result, target, value, 0),
            SendOp::FetchAnd { result, target, value } => (URMA_OPC_FAND, result, target, value, 0),
            SendOp::FetchOr { result, target, value } => (URMA_OPC_FOR, result, target, value, 0),
            SendOp::FetchXor { result, target, value } => (URMA_OPC_FXOR, result, target, value, 0),
            _ => return Err(Status::Fail),
        };
        let src = keep(store, local(&self.shared, &[result])?).sge;
        let dst = keep(store, vec![self.remote(&target, result.len)?]).sge;
        let operands = if matches!(opcode, URMA_OPC_CAS | URMA_OPC_SWAP) {
            let cas = urma_cas_wr_t { dst, src, cmp_data: first, swap_data: second };
            urma_jfs_wr_u { cas }
        } else {
            urma_jfs_wr_u { faa: urma_faa_wr_t { dst, src, operand: first } }
        };
        Ok((opcode, operands))
    }

    fn remote(&self, at: &RemoteAddr<'_>, len: u32) -> Result<urma_sge_t, Status> {
        let segment = self.shared.paths().segment(self.shared.ctx, at.segment)?;
        Ok(piece(at.addr, len, segment))
    }
}

impl RecvQueue for Recv {
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        let mut store = Pieces::new();
        let mut list: Vec<urma_jfr_wr_t> = Vec::with_capacity(wrs.len());
        for (index, wr) in wrs.iter().enumerate() {
            let pieces = local(&self.shared, wr.dst);
            let reason = PostReason::Invalid("a segment is not known");
            let src = keep(&mut store, pieces.map_err(|_| PostError { index, reason })?);
            let next = core::ptr::null_mut();
            list.push(urma_jfr_wr_t { src, user_ctx: wr.user_ctx, next });
        }
        let first = list.as_mut_ptr();
        for index in 1..list.len() {
            list[index - 1].next = first.wrapping_add(index);
        }
        if list.is_empty() {
            return Ok(());
        }
        let mut bad = core::ptr::null_mut();
        // SAFETY: a queue that the library checks, a list and a place.
        let code = unsafe { urma_post_jfr_wr(self.to.0, first, &raw mut bad) };
        ended(code, first, bad)
    }
}

fn piece(addr: u64, len: u32, tseg: Ptr<urma_target_seg_t>) -> urma_sge_t {
    urma_sge_t { addr, len, tseg: tseg.0, user_tseg: core::ptr::null_mut() }
}

fn local(shared: &Shared, from: &[LocalSge<'_>]) -> Result<Vec<urma_sge_t>, Status> {
    let names = shared.names();
    let pieces = from.iter().map(|sge| {
        let segment = names.segments.get(&sge.segment.token_id().value());
        Ok(piece(sge.addr, sge.len, *segment.ok_or(Status::Invalid)?))
    });
    pieces.collect()
}

/// How a post ended: `bad` names the request of the list at `first` that was refused.
fn ended<W>(code: i32, first: *mut W, bad: *mut W) -> Result<(), PostError> {
    if code == 0 {
        return Ok(());
    }
    let index = bad.addr().wrapping_sub(first.addr()) / size_of::<W>();
    Err(PostError { index, reason: refusal(code) })
}
