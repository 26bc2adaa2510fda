//! A function of the device: the part of it that one driver has, except for objects.
//!
//! Set-up registers, DMA space, asynchronous events, quota and its use. A function must not reach what another one
//! mapped. Tokens are compared here too, in a time that does not depend on where two of them differ.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
};

use arc_swap::ArcSwapOption;
use subtle::{Choice, ConstantTimeEq};
use udma_abi::{BackingError, CmdStatus, DmaAccess, Eqe};
use urma_mem::{
    Region,
    sync::{AtomicU32, AtomicU64, Ordering},
};

use super::event::EventQueue;
use crate::{
    dma::{Dma, FoundRange, JoinedWindows},
    ports::Interrupt,
};

pub use super::FunctionId;

/// What a quota limits.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum QuotaKind {
    /// JFSs, JFRs, jetties and groups together.
    Jetties,
    /// JFCs and event queues together.
    Jfcs,
    /// Token ids, and so segments.
    Segments,
    /// Paths to nodes that it uses, or waits for.
    Paths,
    /// Requests that may be outstanding: blocks of send rings and entries of receive rings.
    Work,
    /// Bytes of mapped memory.
    PinnedBytes,
    /// Mappings in the device's process: one for each map, and those of windows that span several. A process has some
    /// 65,000 for all functions (`vm.max_map_count`).
    Mappings,
}

impl QuotaKind {
    /// All kinds, in the order of reports.
    pub const ALL: [Self; 7] = [
        Self::Jetties,
        Self::Jfcs,
        Self::Segments,
        Self::Paths,
        Self::Work,
        Self::PinnedBytes,
        Self::Mappings,
    ];

    /// Name of the kind in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Jetties => "jetties",
            Self::Jfcs => "jfcs",
            Self::Segments => "segments",
            Self::Paths => "paths",
            Self::Work => "work",
            Self::PinnedBytes => "pinned_bytes",
            Self::Mappings => "mappings",
        }
    }

    const fn index(self) -> usize {
        self as usize
    }
}

/// Limits of a function, per kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FunctionQuota([u64; QuotaKind::ALL.len()]);

impl FunctionQuota {
    /// No limits but those of the device.
    pub const NONE: Self = Self([u64::MAX; QuotaKind::ALL.len()]);

    /// This quota, with limit `most` for a kind.
    #[must_use]
    pub const fn with(mut self, kind: QuotaKind, most: u64) -> Self {
        self.0[kind.index()] = most;
        self
    }

    /// Most of a kind.
    #[must_use]
    pub const fn most(&self, kind: QuotaKind) -> u64 {
        self.0[kind.index()]
    }
}

/// Arguments of a new function.
#[derive(Clone, Copy, Debug)]
pub struct FunctionCfg {
    /// UASID of its driver, 24 bits.
    pub uasid: u32,
    /// Its limits, per kind.
    pub quota: FunctionQuota,
}

/// Use of a quota.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct QuotaUse {
    /// Kind that is counted.
    pub kind: QuotaKind,
    /// Number in use at present.
    pub used: u64,
    /// Limit of the function.
    pub most: u64,
    /// Number of refused requests for more.
    pub refused: u64,
}

/// Registers that a driver writes before it starts its function.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Setup {
    pub(crate) cmd_base: u64,
    pub(crate) rsp_base: u64,
    pub(crate) cmd_depth: u32,
    pub(crate) aeq_base: u64,
    pub(crate) aeq_depth: u32,
    pub(crate) control: u32,
}

/// A function of the device.
#[derive(Debug)]
pub struct DeviceFunction {
    pub(crate) id: FunctionId,
    cfg: FunctionCfg,
    /// Raises the vectors of the function.
    pub(crate) interrupt: Arc<dyn Interrupt>,
    dma: Dma,
    joined: Mutex<JoinedWindows>,
    /// Doorbell memory of its driver, for a function that is served to another process.
    doorbells: OnceLock<Arc<Region>>,
    setup: Mutex<Setup>,
    pub(crate) aeq: ArcSwapOption<EventQueue>,
    /// Asynchronous events that wait for room.
    async_pending: Mutex<VecDeque<Eqe>>,
    /// Value of the register STATUS.
    pub(crate) status: AtomicU32,
    /// Producer index of the command ring, as rung.
    pub(crate) command_pi: AtomicU32,
    used: [AtomicU64; QuotaKind::ALL.len()],
    refused: [AtomicU64; QuotaKind::ALL.len()],
    /// Accesses to objects that it does not own.
    foreign: AtomicU64,
    /// Budget of refused accesses to segments of others.
    pub(crate) guesses: Arc<GuessBudget>,
}

impl DeviceFunction {
    pub(crate) fn new(id: FunctionId, cfg: FunctionCfg, interrupt: Arc<dyn Interrupt>) -> Self {
        Self {
            id,
            cfg,
            interrupt,
            dma: Dma::default(),
            joined: Mutex::default(),
            doorbells: OnceLock::new(),
            setup: Mutex::default(),
            aeq: ArcSwapOption::empty(),
            async_pending: Mutex::default(),
            status: AtomicU32::new(0),
            command_pi: AtomicU32::new(0),
            used: Default::default(),
            refused: Default::default(),
            foreign: AtomicU64::new(0),
            guesses: Arc::default(),
        }
    }

    /// Returns the number of the function.
    #[must_use]
    pub fn id(&self) -> FunctionId {
        self.id
    }

    /// Returns the UASID of its driver.
    #[must_use]
    pub fn uasid(&self) -> u32 {
        self.cfg.uasid
    }

    /// Returns the use of its quotas.
    #[must_use]
    pub fn quotas(&self) -> [QuotaUse; QuotaKind::ALL.len()] {
        QuotaKind::ALL.map(|kind| QuotaUse {
            kind,
            used: self.used[kind.index()].load(Ordering::Relaxed),
            most: self.cfg.quota.most(kind),
            refused: self.refused[kind.index()].load(Ordering::Relaxed),
        })
    }

    /// Returns the number of its accesses to objects that it does not own.
    #[must_use]
    pub fn foreign_accesses(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Counts an access to an object that the function does not own.
    #[cold]
    pub(crate) fn count_foreign(&self) {
        self.foreign.fetch_add(1, Ordering::Relaxed);
    }

    /// Adds `count` to the use of a kind.
    ///
    /// # Errors
    /// `Quota`: the limit would be exceeded; only the refusal is counted.
    pub(crate) fn charge(&self, kind: QuotaKind, count: u64) -> Result<(), CmdStatus> {
        let (used, most) = (&self.used[kind.index()], self.cfg.quota.most(kind));
        let fits = |now: u64| now.checked_add(count).filter(|sum| *sum <= most);
        let charged = used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits);
        charged.map(|_| ()).map_err(|_| {
            self.refused[kind.index()].fetch_add(1, Ordering::Relaxed);
            CmdStatus::Quota
        })
    }

    /// Subtracts `count` from the use of a kind.
    pub(crate) fn release(&self, kind: QuotaKind, count: u64) {
        self.used[kind.index()].fetch_sub(count, Ordering::Relaxed);
    }

    /// Sets the doorbell memory of its driver; JFCs created from now on read their arms there.
    pub(crate) fn ring_by(&self, memory: &Region) {
        let _ = self.doorbells.set(Arc::new(memory.clone()));
    }

    /// Returns the doorbell memory of its driver, if there is any.
    pub(crate) fn doorbells(&self) -> Option<Arc<Region>> {
        self.doorbells.get().cloned()
    }

    /// Usable device addresses, as `(first, last)`.
    #[must_use]
    pub fn dma_ranges(&self) -> Vec<(u64, u64)> {
        Dma::ranges()
    }

    /// Makes `region` reachable for this function at device address `iova`.
    ///
    /// # Errors
    /// The range is taken or outside [`DeviceFunction::dma_ranges`], or more than the quota.
    pub fn dma_map(
        &self,
        iova: u64,
        region: &Region,
        access: DmaAccess,
    ) -> Result<(), BackingError> {
        let len = region.len() as u64;
        self.charge(QuotaKind::PinnedBytes, len).map_err(|_| over_quota())?;
        let mapped = match self.charge(QuotaKind::Mappings, 1) {
            Ok(()) => self
                .dma
                .map(iova, region, access)
                .inspect_err(|_| self.release(QuotaKind::Mappings, 1)),
            Err(_) => Err(over_quota()),
        };
        mapped.inspect_err(|_| self.release(QuotaKind::PinnedBytes, len))
    }

    /// Removes the mapping that starts at `iova`.
    ///
    /// # Errors
    /// There is none.
    pub fn dma_unmap(&self, iova: u64) -> Result<(), BackingError> {
        let len = self.dma.unmap(iova)?;
        self.release(QuotaKind::PinnedBytes, len);
        self.release(QuotaKind::Mappings, 1);
        Ok(())
    }

    /// The window of `len` bytes at a device address; `None`: not all of it is mapped for `access`, or a window over
    /// several mappings would exceed the quota.
    pub(crate) fn window(&self, iova: u64, len: u64, access: DmaAccess) -> Option<Region> {
        match self.dma.range(iova, len, access)? {
            FoundRange::Window(window) => Some(window),
            FoundRange::Parts(parts, offset) => {
                self.joined(&parts)?.sub(offset, usize::try_from(len).ok()?).ok()
            }
        }
    }

    fn joined(&self, parts: &[Region]) -> Option<Region> {
        let mut joined = self.joined.lock().unwrap_or_else(PoisonError::into_inner);
        self.release(QuotaKind::Mappings, joined.forget_unused() as u64);
        // At most one for each part: what is not needed is given back.
        self.charge(QuotaKind::Mappings, parts.len() as u64).ok()?;
        let made = joined.join(parts, parts.len());
        let taken = made.as_ref().map_or(0, |(_, mappings)| *mappings);
        self.release(QuotaKind::Mappings, (parts.len() - taken) as u64);
        let refused = |error: &std::io::Error| {
            tracing::warn!(%error, parts = parts.len(), "mappings side by side make no window");
        };
        made.inspect_err(refused).ok().map(|(region, _)| region)
    }

    /// Copies the set-up registers.
    pub(crate) fn setup(&self) -> Setup {
        *self.setup.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change_setup(&self, change: impl FnOnce(&mut Setup)) {
        change(&mut self.setup.lock().unwrap_or_else(PoisonError::into_inner));
    }

    pub(crate) fn pending_events(&self) -> MutexGuard<'_, VecDeque<Eqe>> {
        self.async_pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Closes the ring of asynchronous events, and drops waiting ones.
    pub(crate) fn reset_async(&self) {
        self.aeq.store(None);
        self.pending_events().clear();
    }

    /// Resets the registers to their values after power-on, with no object in use. Mappings stay.
    pub(crate) fn restart(&self) {
        self.reset_async();
        self.command_pi.store(0, Ordering::SeqCst);
        self.change_setup(|setup| *setup = Setup::default());
        let is_mapped = |kind| matches!(kind, QuotaKind::PinnedBytes | QuotaKind::Mappings);
        for kind in QuotaKind::ALL.into_iter().filter(|kind| !is_mapped(*kind)) {
            self.used[kind.index()].store(0, Ordering::Relaxed);
        }
        self.status.store(0, Ordering::SeqCst);
    }
}

fn over_quota() -> BackingError {
    std::io::Error::from_raw_os_error(EDQUOT).into()
}

/// Linux error number for an exceeded quota.
const EDQUOT: i32 = 122;

/// Whether a request that shows `shown` may use an object with token `guard`.
#[inline(always)]
pub(crate) fn fits(guard: Option<u32>, shown: Option<u32>) -> bool {
    let Some(guard) = guard else { return true };
    let given = Choice::from(u8::from(shown.is_some()));
    (given & guard.ct_eq(&shown.unwrap_or_default())).into()
}

/// Refusals that are left: [`GUESSES`] at once, then one more for each refill.
///
/// While none is left, every access is refused: no answer tells a right guess from a wrong one.
#[derive(Debug)]
pub(crate) struct GuessBudget(AtomicU32);

impl Default for GuessBudget {
    fn default() -> Self {
        Self(AtomicU32::new(GUESSES))
    }
}

impl GuessBudget {
    /// Whether an access to a segment of another function is looked at: else it is refused, whatever it shows.
    pub(crate) fn may_try(&self) -> bool {
        self.0.load(Ordering::Relaxed) != 0
    }

    /// An access was refused.
    #[cold]
    pub(crate) fn count_refusal(&self) {
        let take = |left: u32| left.checked_sub(1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take);
    }

    /// One more; called each [`REFILL_NS`].
    pub(crate) fn refill(&self) {
        let more = |left: u32| (left < GUESSES).then_some(left + 1);
        let _ = self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
    }
}

/// Refusals at once, as of a node (`exchange/target/guesses.rs`).
const GUESSES: u32 = 32;
/// Time until one more, in nanoseconds.
pub(crate) const REFILL_NS: u64 = 250_000_000;

#[cfg(test)]
mod tests {

    use super::{fits, *};
    use crate::ports::Interrupt;

    #[derive(Debug)]
    struct Silent;
    impl Interrupt for Silent {
        fn raise(&self, _: u16) {}
    }

    fn with(kind: QuotaKind, most: u64) -> DeviceFunction {
        let quota = FunctionQuota::NONE.with(kind, most);
        let cfg = FunctionCfg { uasid: 1, quota };
        DeviceFunction::new(FunctionId::new(1), cfg, Arc::new(Silent))
    }

    #[test]
    fn a_quota_of_each_kind_is_kept_and_its_refusals_counted() {
        for kind in QuotaKind::ALL {
            let function = with(kind, 10);
            assert_eq!(function.charge(kind, 8), Ok(()));
            assert_eq!(function.charge(kind, 3), Err(CmdStatus::Quota));
            assert_eq!(function.charge(kind, u64::MAX), Err(CmdStatus::Quota));
            assert_eq!(function.charge(kind, 2), Ok(()));
            function.release(kind, 10);
            let found = function.quotas().into_iter().find(|quota| quota.kind == kind);
            assert_eq!(found, Some(QuotaUse { kind, used: 0, most: 10, refused: 2 }));
        }
    }

    #[test]
    fn mapped_bytes_are_charged_and_returned() {
        let function = with(QuotaKind::PinnedBytes, 8192);
        let region = Region::private(8192).unwrap();
        function.dma_map(0x1_0000, &region, DmaAccess::Both).unwrap();
        let refused = function.dma_map(0x2_0000, &region, DmaAccess::Both).unwrap_err();
        assert!(matches!(refused, BackingError::Os(error) if error.raw_os_error() == Some(EDQUOT)));
        function.dma_unmap(0x1_0000).unwrap();
        // A refusal for another reason charges nothing.
        assert!(function.dma_map(0, &region, DmaAccess::Both).is_err());
        function.dma_map(0x2_0000, &region, DmaAccess::Both).unwrap();
    }

    #[test]
    fn windows_over_several_mappings_are_charged_and_returned() {
        let function = with(QuotaKind::Mappings, 8);
        let file = Region::shared(3 * 4096, urma_mem::Pages::Base).unwrap();
        for (iova, page) in [(0x1_0000, 2), (0x1_1000, 0), (0x1_2000, 1)] {
            let page = file.sub(page * 4096, 4096).unwrap();
            function.dma_map(iova, &page, DmaAccess::Both).unwrap();
        }
        let window = || function.window(0x1_0000, 0x3000, DmaAccess::Both);
        let used = || function.quotas().map(|quota| quota.used)[QuotaKind::Mappings.index()];
        // The last two pages lie side by side in the file.
        let (first, second) = (window().unwrap(), window().unwrap());
        assert_eq!(used(), 3 + 2 + 2);
        assert!(window().is_none(), "the quota");
        drop((first, second));
        assert!(window().is_some());
        assert_eq!(used(), 3 + 2, "unused ones were given back");
        let refused = |iova| function.dma_map(iova, &file, DmaAccess::Both).is_err();
        assert!([0x2_0000, 0x3_0000, 0x4_0000].map(refused) == [false, false, false]);
        assert!(refused(0x5_0000), "each map is charged");
        function.dma_unmap(0x2_0000).unwrap();
        assert!(!refused(0x5_0000));
        function.restart();
        assert_eq!(used(), 3 + 2 + 3, "what is mapped stays");
    }

    #[test]
    fn every_bit_counts_and_nothing_shown_is_not_zero() {
        for guard in [0, 1, 0x8000_0000, u32::MAX] {
            assert!(fits(Some(guard), Some(guard)));
            assert!(!fits(Some(guard), None));
            assert!((0..32).all(|bit| !fits(Some(guard), Some(guard ^ 1 << bit))));
        }
        assert!(fits(None, None) && fits(None, Some(7)));
    }
}
