//! What the chip of a NIC would keep of this device's contexts: the model of `urma-contexts`, asked once a request.
//!
//! *Owns*: the model, its numbers of TPs and pages, its clock. *Takes*: what each request looks up, ends of objects.
//! *Gives*: counters. *Must not*: decide a right or the order of anything: the tables do.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use urma_contexts::{
    CacheCfg, ContextCache, ContextHandle, ContextKind, SmallOp, TokenBody, policy,
};

/// One thing that a request looks up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum LookedUp {
    /// A queue, by its number.
    Queue(u32),
    /// A JFC, by its number.
    Jfc(u32),
    /// A path, by its TPN.
    Tp(u32),
    /// A segment and the page of an address in it.
    Segment {
        /// Token id of the segment.
        token_id: u32,
        /// First address that the request names.
        va: u64,
    },
}

/// The model, shared by all engines of the device.
#[derive(Debug)]
pub(crate) struct ContextModel(Mutex<Model>);

#[derive(Debug)]
struct Model {
    cache: ContextCache,
    tps: SmallNumbers<u32>,
    /// By token id and number of the page.
    pages: SmallNumbers<(u32, u64)>,
    /// Model time in ns: a request begins when the one before had its contexts.
    now: u64,
    /// Lookups of what had no number left.
    untracked: u64,
}

/// Small numbers for what has large ones.
#[derive(Debug)]
struct SmallNumbers<K> {
    of: BTreeMap<K, u32>,
    free: Vec<u32>,
}

impl<K: Ord + Copy> SmallNumbers<K> {
    const fn new() -> Self {
        Self { of: BTreeMap::new(), free: Vec::new() }
    }

    /// The number of a key. `None`: it is new, and there is none left.
    fn number(&mut self, key: K) -> Option<u32> {
        if let Some(number) = self.of.get(&key) {
            return Some(*number);
        }
        let used = u32::try_from(self.of.len()).ok()?;
        let number = self.free.pop().or_else(|| (used < INDICES).then_some(used))?;
        self.of.insert(key, number);
        Some(number)
    }

    fn end(&mut self, key: K) -> Option<u32> {
        let number = self.of.remove(&key)?;
        self.free.push(number);
        Some(number)
    }
}

impl ContextModel {
    /// An empty chip with the defaults of [`CacheCfg`] and the policy of this project. `None`: its parameters are not possible.
    pub(crate) fn new() -> Option<Self> {
        let cache = ContextCache::new(CacheCfg::default(), &mut policy::ours).ok()?;
        let (tps, pages) = (SmallNumbers::new(), SmallNumbers::new());
        Some(Self(Mutex::new(Model { cache, tps, pages, now: 0, untracked: 0 })))
    }

    /// A request looks all these up at once.
    pub(crate) fn look_up(&self, request: impl Iterator<Item = LookedUp>) {
        let mut model = self.model();
        let mut ready_at = model.now;
        for looked_up in request {
            ready_at = ready_at.max(model.look_up(looked_up));
        }
        model.now = ready_at;
    }

    /// An object ended: its number may name another one from now on.
    pub(crate) fn end(&self, ended: LookedUp) {
        let mut model = self.model();
        match ended {
            LookedUp::Queue(number) => model.end(ContextKind::Queue, number),
            LookedUp::Jfc(number) => model.end(ContextKind::Jfc, number),
            LookedUp::Tp(tpn) => {
                if let Some(number) = model.tps.end(tpn) {
                    model.end(ContextKind::Tp, number);
                }
            }
            LookedUp::Segment { token_id, .. } => {
                let all = (token_id, 0)..=(token_id, u64::MAX);
                let pages: Vec<_> = model.pages.of.range(all).map(|(key, _)| *key).collect();
                for key in pages {
                    if let Some(number) = model.pages.end(key) {
                        model.end(ContextKind::Page, number);
                    }
                }
                model.end(ContextKind::Segment, token_id >> TOKEN_ID_SHIFT);
            }
        }
    }

    /// The value of a counter by its name in the device, which starts with `context_`.
    pub(crate) fn value(&self, name: &str) -> u64 {
        let Some(name) = name.strip_prefix("context_") else { return 0 };
        let mut model = self.model();
        match name {
            "untracked" => model.untracked,
            "model_ns" => model.now,
            _ => {
                let list = model.cache.counts().list();
                list.iter().find(|(other, _)| other == name).map_or(0, |(_, value)| *value)
            }
        }
    }

    fn model(&self) -> MutexGuard<'_, Model> {
        // A panic in the middle leaves a model whose counters may be off; requests do not depend on it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Model {
    /// When the context is on the chip.
    fn look_up(&mut self, looked_up: LookedUp) -> u64 {
        match looked_up {
            LookedUp::Queue(number) => self.access(ContextKind::Queue, Some(number)),
            LookedUp::Jfc(number) => self.access(ContextKind::Jfc, Some(number)),
            LookedUp::Tp(tpn) => {
                let number = self.tps.number(tpn);
                self.access(ContextKind::Tp, number)
            }
            LookedUp::Segment { token_id, va } => {
                let page = self.pages.number((token_id, va >> PAGE_SHIFT));
                let page = self.access(ContextKind::Page, page);
                page.max(self.access(ContextKind::Segment, Some(token_id >> TOKEN_ID_SHIFT)))
            }
        }
    }

    fn access(&mut self, kind: ContextKind, number: Option<u32>) -> u64 {
        let now = self.now;
        let handle =
            number.filter(|number| *number < INDICES).and_then(|n| ContextHandle::new(kind, n));
        let Some(handle) = handle else {
            self.untracked += 1;
            return now;
        };
        // SmallNumbers of the device are in range, and the body's fields are 0: creating cannot fail.
        if self.cache.directory().read(handle).is_none()
            && self.cache.create(handle.index(), &TokenBody::zero(kind)).is_err()
        {
            self.untracked += 1;
            return now;
        }
        let generation = self.cache.directory().generation(handle);
        let op = if kind == ContextKind::Page { SmallOp::Read } else { SmallOp::Add(1) };
        let access = self.cache.access(handle, generation, op, now);
        while self.cache.poll_wake().is_some() {}
        access.map_or(now, |access| access.ready_at)
    }

    fn end(&mut self, kind: ContextKind, number: u32) {
        if let Some(handle) = ContextHandle::new(kind, number) {
            self.cache.destroy(handle, self.now);
        }
    }
}

/// Indices of a kind: those of queues, JFCs and segments have 20 bits.
const INDICES: u32 = 1 << 20;
/// A token id is an index shifted by this.
const TOKEN_ID_SHIFT: u32 = 8;
/// Pages of 4 KiB.
const PAGE_SHIFT: u32 = 12;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_one_access_of_each_of_its_contexts() {
        let model = ContextModel::new().unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let request = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(0xab_cdef), segment];
        model.look_up(request.into_iter());
        let value = |name| model.value(name);
        assert_eq!((value("context_accesses"), value("context_l3_hits")), (5, 5));
        let first = value("context_model_ns");
        assert!(first > 500, "the host was asked: {first} ns");
        model.look_up(request.into_iter());
        assert_eq!((value("context_accesses"), value("context_l1_hits")), (10, 5));
        assert!(value("context_model_ns") - first <= 8, "the chip was enough");
        assert_eq!(value("context_page_accesses"), 2);
        assert_eq!(value("direct_requests"), 0);
    }

    #[test]
    fn what_ended_is_no_hit_for_the_next_object_of_its_number() {
        let model = ContextModel::new().unwrap();
        let segment = LookedUp::Segment { token_id: 3 << 8, va: 0x5000 };
        let all = [LookedUp::Queue(1), LookedUp::Jfc(1), LookedUp::Tp(7), segment];
        model.look_up(all.into_iter());
        all.into_iter().for_each(|ended| model.end(ended));
        model.look_up(all.into_iter());
        assert_eq!((model.value("context_l1_hits"), model.value("context_l3_hits")), (0, 10));
        model.look_up([LookedUp::Queue(INDICES)].into_iter());
        assert_eq!(model.value("context_untracked"), 1);
    }
}
