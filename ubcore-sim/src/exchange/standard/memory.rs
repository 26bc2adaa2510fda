//! Memory of a node for the connection of a jetty: places of requests and receives, and segments by their remote
//! keys.
//!
//! Must not move a byte before bounds and rights were checked against the segment as it is, or take a time that
//! depends on how much of a key is right.

use std::{cell::RefCell, collections::BTreeMap};

use subtle::{ConditionallySelectable, ConstantTimeEq};
use udma_abi::{cmd::Access, counters::Counter};
use urma_mem::{HeldMemory, WordAtomic};
use urma_rc::{RcAccess, RcAtomic, RcMemory};

use super::Numbered;
use crate::{
    context::{
        function::FunctionId,
        segment::{LocalSegment, SegmentCache, SegmentTable},
        tables::Tables,
    },
    engine::{
        gather::{self, EntryWords, Local, MessageSpan, Segments},
        remote::{Want, check_own},
    },
    exchange::target::receive::TakenReceive,
};

/// A request of the jetty that is not completed.
#[derive(Debug)]
pub(super) struct Outstanding {
    /// Sequence number in its queue, for its completion.
    pub(super) seq: u32,
    pub(super) words: EntryWords,
    pub(super) local: Local,
}

/// Place of bytes: the kind in the two highest bits, a slot in the next 30, an offset in the rest.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Local memory of a request.
    Request(u32, u64),
    /// Memory of a receive.
    Receive(u32, u64),
    /// The memory of the last [`RcMemory::resolve`].
    Resolved,
}

const REQUEST: u64 = 0;
const RECEIVE: u64 = 1;
const RESOLVED: u64 = 2;

impl Place {
    const fn of(place: u64) -> Self {
        let slot = (place >> 32) as u32 & 0x3fff_ffff;
        let offset = place & 0xffff_ffff;
        match place >> 62 {
            REQUEST => Self::Request(slot, offset),
            RECEIVE => Self::Receive(slot, offset),
            _ => Self::Resolved,
        }
    }
}

/// Place of the first byte of a request's memory.
pub(super) const fn request_place(slot: u32) -> u64 {
    REQUEST << 62 | (slot as u64) << 32
}

/// Place of the first byte of a receive's memory.
pub(super) const fn receive_place(slot: u32) -> u64 {
    RECEIVE << 62 | (slot as u64) << 32
}

/// The memory argument for one call of a connection.
#[derive(Debug)]
pub(super) struct NodeMemory<'a> {
    pub(super) tables: &'a Tables,
    pub(super) requests: &'a Numbered<Outstanding>,
    pub(super) receives: &'a Numbered<TakenReceive>,
    pub(super) caches: RefCell<Caches<'a>>,
}

/// Caches that lookups change.
#[derive(Debug)]
pub(super) struct Caches<'a> {
    pub(super) segments: &'a mut SegmentCache,
    pub(super) keys: &'a mut RemoteKeys,
    /// Memory that was resolved last. It is used before the next one is resolved.
    pub(super) resolved: Option<(HeldMemory, usize)>,
}

impl NodeMemory<'_> {
    fn resolved(&self) -> Option<(HeldMemory, usize)> {
        self.caches.borrow().resolved.clone()
    }

    /// Calls `f` on the local memory of a request or receive.
    fn with_segments<T>(&self, f: impl FnOnce(&mut Segments<'_>) -> T) -> T {
        let mut caches = self.caches.borrow_mut();
        f(&mut Segments { cache: caches.segments, table: &self.tables.segments })
    }
}

impl RcMemory for NodeMemory<'_> {
    fn resolve(&self, rkey: u32, va: u64, len: u32, access: RcAccess) -> Option<u64> {
        let mut caches = self.caches.borrow_mut();
        let Caches { segments, keys, resolved } = &mut *caches;
        let right = match access {
            RcAccess::Read => Access::READ,
            RcAccess::Write => Access::WRITE,
            RcAccess::Atomic => Access::ATOMIC,
        };
        let found = keys.find(&self.tables.segments, rkey).and_then(|token_id| {
            let segment = segments.find(&self.tables.segments, token_id)?;
            let token = segment.token;
            let want = Want { token_id, token, va, len: len.into(), right, life: 0 };
            let offset = check_own(segment, self.tables.faults, &want).ok()?;
            // No time is known here: the mappings are checked each time.
            let is_there = segment.memory.is_there((offset, len as usize), 0);
            is_there.then(|| (segment.memory.clone(), offset))
        });
        if found.is_none() {
            self.tables.count(Counter::AccessDenied);
        }
        *resolved = found;
        resolved.is_some().then_some(RESOLVED << 62)
    }

    fn load(&self, place: u64, into: &mut [u8]) -> bool {
        match Place::of(place) {
            Place::Request(slot, at) => self.requests.get(slot).is_some_and(|request| {
                let Outstanding { words, local, .. } = request;
                self.with_segments(|segments| {
                    gather::read_out(local, words, segments, at, into).is_ok()
                })
            }),
            Place::Resolved => {
                self.resolved().is_some_and(|(memory, offset)| memory.read(offset, into).is_ok())
            }
            Place::Receive(..) => false,
        }
    }

    fn store(&mut self, place: u64, bytes: &[u8]) -> bool {
        let scatter = |pieces: &[u64], at| {
            let span = MessageSpan { at, len: bytes.len(), last: true };
            self.with_segments(|segments| {
                let checked = gather::check(pieces, segments, gather::Store::Yes);
                checked.is_ok() && gather::write_in(pieces, segments, span, bytes).is_ok()
            })
        };
        match Place::of(place) {
            Place::Request(slot, at) => self
                .requests
                .get(slot)
                .is_some_and(|request| scatter(request.local.pieces(&request.words), at)),
            Place::Receive(slot, at) => {
                self.receives.get(slot).is_some_and(|receive| scatter(receive.pieces(), at))
            }
            Place::Resolved => self
                .resolved()
                .is_some_and(|(memory, offset)| memory.write_ordered(offset, bytes).is_ok()),
        }
    }

    fn update(&mut self, place: u64, atomic: RcAtomic) -> Option<u64> {
        let Place::Resolved = Place::of(place) else { return None };
        let (memory, offset) = self.resolved()?;
        let operation = match atomic {
            RcAtomic::CompareSwap { compare, swap } => WordAtomic::Cas { cmp: compare, swap },
            RcAtomic::FetchAdd { add } => WordAtomic::Add(add),
        };
        memory.atomic_u64(offset, operation).ok()
    }

    fn invalidate(&mut self, rkey: u32) -> bool {
        let keys = &mut self.caches.get_mut().keys;
        let table = &self.tables.segments;
        let segment = keys.find(table, rkey).and_then(|token_id| table.find(token_id));
        segment.is_some_and(|segment| {
            segment
                .token
                .is_some_and(|token| table.invalidate(FunctionId::FIRST, segment.token_id, token))
        })
    }
}

/// Number of keys that are remembered.
const KNOWN_MAX: usize = 1024;

/// The key of a segment.
///
/// The sum of its token id and its token value modulo 2^32; without a token, its token id. So a node that imported a
/// segment can compute it, and segments with the same token have different keys.
pub(super) const fn key_of(token_id: u32, token: Option<u32>) -> u32 {
    let token = match token {
        Some(token) => token,
        None => 0,
    };
    token_id.wrapping_add(token)
}

/// Whether a segment has this key.
fn has_key(segment: &LocalSegment, key: u32) -> bool {
    key_of(segment.token_id, segment.token).ct_eq(&key).into()
}

/// Token ids of keys that peers used.
#[derive(Debug, Default)]
pub(super) struct RemoteKeys {
    known: BTreeMap<u32, u32>,
}

impl RemoteKeys {
    /// Returns the token id of a segment that has this key now. Only commands change segments, and none runs before a
    /// packet is done.
    pub(super) fn find(&mut self, table: &SegmentTable, key: u32) -> Option<u32> {
        if let Some(token_id) = self.known.get(&key)
            && table.find(*token_id).is_some_and(|segment| has_key(&segment, key))
        {
            return Some(*token_id);
        }
        // Always all of them. A key that no segment has ends its connection, so this does not repeat.
        let found = table.fold(0, |found, segment| {
            let fits = key_of(segment.token_id, segment.token).ct_eq(&key);
            u32::conditional_select(&found, &segment.token_id, fits)
        });
        if found == 0 {
            return None;
        }
        if self.known.len() >= KNOWN_MAX {
            self.known.clear();
        }
        self.known.insert(key, found);
        Some(found)
    }
}
