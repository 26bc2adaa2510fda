//! Token ids and segments: register, withdraw with drain and revocation, map.
//!
//! *Owns*: the order of these steps. *Takes*: commands. *Gives*: published entries, memory shared and taken back.
//! *Must not*: answer a withdrawal while a byte can still be placed.

use std::sync::Arc;

use udma_abi::{
    CmdStatus, DmaAccess, Nanos,
    cmd::{Access, RegisterSeg},
    counters::Counter,
};
use urma_mem::Region;
use urma_mem::hazard::SLOT_LEN;

use super::answer::{CmdAnswer, CmdOutcome, PendingCommand};
use super::state::{Around, Commands};
use crate::context::function::QuotaKind;
use crate::context::link::Reach;
use crate::context::segment::{LocalSegment, NewSegment, tid_of};
use crate::context::tables::{LOADS_ONLY, Tables};
use crate::engine::remote::{Want, check_own, view_extent};
use crate::fault::Faults;
use crate::hooks::{self, Hook};
use crate::nic::LookedUp;
use crate::ports::{SharedExtent, SharedMemory};
use crate::share::{EXTENTS, HALF_SLOTS, HALF_SLOTS_USED, SLOTS};

/// How long announced copies may take before the memory is revoked, in nanoseconds.
const DRAIN_NS: Nanos = 10_000_000;
/// The same for memory in a file, which cannot be revoked, in nanoseconds: a peer that lost its processor gets to
/// finish.
const DRAIN_FILE_NS: Nanos = 1_000_000_000;

impl Commands {
    pub(super) fn alloc_tid(&mut self, at: &Around<'_>) -> CmdOutcome {
        at.function.charge(QuotaKind::Segments, 1)?;
        let tid = self.objects.tids.take(at.function.id).ok_or_else(|| {
            at.function.release(QuotaKind::Segments, 1);
            CmdStatus::NoRoom
        })?;
        Ok(CmdAnswer::ok(&[u64::from(tid) << 8]))
    }

    pub(super) fn free_tid(&mut self, at: &Around<'_>, token_id: u32) -> CmdOutcome {
        let tid = self.known_tid(at, token_id)?;
        if self.objects.segments.contains(&tid) {
            return Err(CmdStatus::InUse);
        }
        self.objects.tids.give_back(tid);
        at.function.release(QuotaKind::Segments, 1);
        Ok(CmdAnswer::ok(&[]))
    }

    pub(super) fn register(&mut self, at: &mut Around<'_>, args: &RegisterSeg) -> CmdOutcome {
        let tid = self.known_tid(at, args.token_id)?;
        if self.objects.segments.contains(&tid) {
            return Err(CmdStatus::InUse);
        }
        if args.va.checked_add(args.len).is_none() || args.len == 0 || !rights_fit(args.access) {
            return Err(CmdStatus::Invalid);
        }
        let region = at
            .core
            .tables
            .window(&at.function, (args.iova, args.len), DmaAccess::Both)
            .ok_or(CmdStatus::Invalid)?;
        hooks::pass(Hook::DuringRegister);
        let host = &at.core.tables.ports.memory;
        let shared = if args.access.contains(Access::LOCAL_ONLY) {
            SharedMemory::default()
        } else {
            host.share(tid, &region)
        };
        let memory = host.hold(&region, &shared.extents);
        let extents = longest_first(&shared.extents, &region, args.va);
        let direct = match shared.file {
            Some(_) => args.len,
            None => extents.iter().take(1 + EXTENTS).map(|e| e.len).sum(),
        };
        let shared = SharedMemory { extents, ..shared };
        let new = NewSegment {
            owner: at.function.id,
            token_id: args.token_id,
            va: args.va,
            region,
            memory,
            access: args.access,
            token: args.token_value,
            shared: !args.access.contains(Access::LOCAL_ONLY),
        };
        at.core.tables.segments.publish(new, &shared).ok_or(CmdStatus::NoRoom)?;
        self.objects.segments.insert(tid);
        Ok(CmdAnswer::ok(&[direct]))
    }

    pub(super) fn unregister(&mut self, at: &mut Around<'_>, token_id: u32) -> CmdOutcome {
        self.known_tid(at, token_id)?;
        if at.core.tables.faults.segment_stays() {
            return Ok(CmdAnswer::ok(&[]));
        }
        let segment = at.core.tables.segments.kill(token_id).ok_or(CmdStatus::NotFound)?;
        hooks::pass(Hook::DuringUnregister);
        let patience = if segment.has_file { DRAIN_FILE_NS } else { DRAIN_NS };
        let until = at.now.saturating_add(patience);
        let done = self.drained(at, &segment, until);
        Ok(done.unwrap_or(CmdAnswer::Later(PendingCommand::Drain { segment, until })))
    }

    /// Finishes a withdrawal when no copy is announced any more, or the time is up.
    pub(super) fn drained(
        &mut self,
        at: &mut Around<'_>,
        segment: &Arc<LocalSegment>,
        until: Nanos,
    ) -> Option<CmdAnswer> {
        let claim = u64::from(segment.token_id);
        let announced = at.exchange.peer_halves().any(|half| is_announced(half, claim));
        if announced && at.now < until {
            return None;
        }
        if announced {
            at.core.tables.count(Counter::HardRevoked);
        }
        self.quiesce(at);
        self.forget_segment(at, segment);
        Some(CmdAnswer::ok(&[]))
    }

    /// Removes a segment that no engine uses any more from all tables.
    pub(super) fn forget_segment(&mut self, at: &Around<'_>, segment: &LocalSegment) {
        let tid = segment.token_id >> 8;
        if segment.shared {
            at.core.tables.ports.memory.unshare(tid);
        }
        self.objects.segments.remove(&tid);
        at.core.tables.forget(LookedUp::Segment { token_id: segment.token_id, va: 0 });
    }

    /// Visits every engine of this node: afterwards none uses what was withdrawn before, since each checks again
    /// before its next chunk.
    pub(super) fn quiesce(&mut self, at: &mut Around<'_>) {
        at.exchange.forget_dead();
        for queue in at.core.queues.iter().filter(|q| q.sends.is_on()) {
            let held = queue.send.with_blocking(|place| {
                if let Some(engine) = place.engine() {
                    engine.forget_dead();
                }
            });
            if held.marked {
                at.core.make_runnable(queue);
            }
        }
    }

    /// Index of a token id that the caller's function owns.
    fn known_tid(&self, at: &Around<'_>, token_id: u32) -> Result<u32, CmdStatus> {
        let known = tid_of(token_id).and_then(|tid| u32::try_from(tid).ok());
        let known = known.filter(|tid| self.objects.tids.is_of(*tid, at.function.id));
        known.ok_or_else(|| {
            at.function.count_foreign();
            CmdStatus::NotFound
        })
    }
}

/// LOCAL_ONLY stands alone, WRITE needs READ, ATOMIC needs both (UMDK release 26.06, urma_types.h).
fn rights_fit(access: Access) -> bool {
    let has = |right| access.contains(right);
    let local = !has(Access::LOCAL_ONLY) || access == Access::LOCAL_ONLY;
    let write = !has(Access::WRITE) || has(Access::READ);
    let atomic = !has(Access::ATOMIC) || has(Access::READ | Access::WRITE);
    local && write && atomic
}

/// The shared parts, clipped to the registration, in the segment's addresses, the longest first.
fn longest_first(extents: &[SharedExtent], region: &Region, va: u64) -> Vec<SharedExtent> {
    let start = region.addr() as u64;
    let end = start + region.len() as u64;
    let clip = |e: &SharedExtent| {
        let first = e.va.max(start);
        let last = e.va.saturating_add(e.len).min(end);
        let len = last.checked_sub(first).filter(|len| *len != 0)?;
        let offset = e.offset + (first - e.va);
        Some(SharedExtent { va: va + (first - start), len, offset })
    };
    let mut clipped: Vec<_> = extents.iter().filter_map(clip).collect();
    clipped.sort_by_key(|e| std::cmp::Reverse(e.len));
    clipped
}

/// Whether a slot of a peer's half announces `claim`. The peer may write anything there, but it can only make us wait
/// for our time limit.
fn is_announced(half: &Region, claim: u64) -> bool {
    let used = half.load_u64_acquire(HALF_SLOTS_USED).unwrap_or(0);
    let used = usize::try_from(used).unwrap_or(SLOTS).min(SLOTS);
    (0..used).any(|slot| half.load_u64_acquire(HALF_SLOTS + slot * SLOT_LEN) == Ok(claim))
}

/// The access that MAP_SEG asks for: load, and store if the segment grants it.
pub(super) fn mapping(token_id: u32, token: u32, va: u64, len: u64) -> Want {
    Want { token_id, token: Some(token), va, len, right: Access::READ, life: 0 }
}

/// The address at which this process reaches a peer's segment: with stores if the peer grants them, else marked as
/// loads only.
pub(super) fn map(tables: &Tables, tpn: u32, want: &Want) -> CmdOutcome {
    let link = tables.links.find(tpn).filter(|l| l.is_alive()).ok_or(CmdStatus::NotFound)?;
    let both = Want { right: Access::READ | Access::WRITE, ..*want };
    let place = match place(tables, &link.reach, &both) {
        Err(CmdStatus::Denied) => place(tables, &link.reach, want)? | LOADS_ONLY,
        place => place?,
    };
    Ok(CmdAnswer::ok(&[place]))
}

fn place(tables: &Tables, reach: &Reach, want: &Want) -> Result<u64, CmdStatus> {
    let addr = match reach {
        Reach::Own => {
            let segment = tables.segments.find(want.token_id).ok_or(CmdStatus::NotFound)?;
            let offset = check_own(&segment, Faults::default(), want);
            segment.region.addr() + offset.map_err(|_| CmdStatus::Denied)?
        }
        Reach::Direct(parts) => {
            let offset = view_extent(parts, want).map_err(|_| CmdStatus::Denied)?;
            let offset = offset.ok_or(CmdStatus::Unsupported)?;
            let window = parts.arena.sub(offset, usize::try_from(want.len).unwrap_or(usize::MAX));
            window.map_err(|_| CmdStatus::Denied)?.addr()
        }
        Reach::Messages | Reach::Standard => return Err(CmdStatus::Unsupported),
    };
    Ok(addr as u64)
}
