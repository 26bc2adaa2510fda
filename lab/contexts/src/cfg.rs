//! What a context cache is made with: every parameter, its default and its range; and faults that tests plant.
//!
//! Nothing changes while a cache lives. Only test builds have faults; in others they cost no instruction.

use crate::handle::ContextValueError;

/// How an access meets a migration of its context.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum MeetMigration {
    /// It waits for the end of the migration.
    #[default]
    Wait,
    /// A read reads the place that is left and looks at the version again; an update waits.
    Optimistic,
}

/// Which accesses bring a context to the chip.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum FillRule {
    /// Every miss, if the replacement policy admits it.
    #[default]
    Demand,
    /// The maintenance worker alone, by the counts of hits.
    Threshold,
}

/// Parameters of a context cache. Times in ns, sizes in bytes. Latencies of L1 and L3 are design values, that of L2 is
/// in the range that Melody (ASPLOS 2025) measured of four CXL devices; none was measured for this project.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CacheCfg {
    /// Slots of the chip, 64 to 2^20.
    pub l1_entries: u32,
    /// Latency of the chip, 2 to 10.
    pub l1_ns: u64,
    /// Size of the CXL memory, at most 1 GiB; 0: there is none.
    pub l2_bytes: u64,
    /// Size of its pages, a power of two from 4 KiB to 1 MiB.
    pub page_bytes: u32,
    /// Median latency of CXL memory, 140 to 410.
    pub l2_ns: u64,
    /// Median latency of host memory, 500 to 1200.
    pub l3_ns: u64,
    /// Reads that may be outstanding, 32 to 256.
    pub outstanding: u32,
    /// Rate of the link in Gb/s, 1 to 3200; PCIe 4.0 x16 has about 200.
    pub link_gbps: u64,
    /// Hits in the window that bring a context from L2 to L1, 1 to 65535.
    pub promote_l1: u32,
    /// Hits in the window that bring a context from L3 to L2, 1 to `promote_l1`.
    pub promote_l2: u32,
    /// Window of the hits, 10 us to 1 s; two half windows, of which the older one counts half.
    pub window_ns: u64,
    /// One of so many accesses is counted, with this weight; 1 to 256.
    pub sample: u32,
    /// Time without an access after which a context leaves L1, 10 us to 200 ms.
    pub idle_l1_ns: u64,
    /// Time without an access after which a context may leave L2, 10 us to 200 ms.
    pub idle_l2_ns: u64,
    /// Descriptors that one promotion to L2 reads, 4 KiB to 1 MiB.
    pub cluster_bytes: u32,
    /// How accesses meet migrations.
    pub in_flight: MeetMigration,
    /// Which accesses bring a context to the chip.
    pub fill: FillRule,
    /// Whether `promote_l1` follows the load.
    pub adapt: bool,
    /// Parts of L1 with a replacement policy each, a power of two from 1 to 16.
    pub banks: u32,
    /// Indices of each kind that the directory has room for at most, 1 to 2^28.
    pub index_limit: usize,
    /// Seed of the drawn latencies.
    pub seed: u64,
}

impl Default for CacheCfg {
    fn default() -> Self {
        Self {
            l1_entries: 8192,
            l1_ns: 4,
            l2_bytes: 64 << 20,
            page_bytes: 64 << 10,
            l2_ns: 250,
            l3_ns: 900,
            outstanding: 64,
            link_gbps: 200,
            promote_l1: 128,
            promote_l2: 16,
            window_ns: 1_000_000,
            sample: 1,
            idle_l1_ns: 1_000_000,
            idle_l2_ns: 10_000_000,
            cluster_bytes: 64 << 10,
            in_flight: MeetMigration::Wait,
            fill: FillRule::Demand,
            adapt: false,
            banks: 1,
            index_limit: 1 << 20,
            seed: 1,
        }
    }
}

impl CacheCfg {
    /// Checks every parameter.
    ///
    /// # Errors
    /// The first one that is outside its range, with the range.
    pub fn check(&self) -> Result<(), ContextValueError> {
        for (field, value, least, most) in self.ranged() {
            if value < least || value > most {
                return Err(ContextValueError::new(field, value, format!("{least} to {most}")));
            }
        }
        let powers = [("page_bytes", self.page_bytes), ("banks", self.banks)];
        for (field, value) in powers {
            if !value.is_power_of_two() {
                return Err(ContextValueError::new(field, value.into(), "a power of two"));
            }
        }
        if self.promote_l2 > self.promote_l1 {
            let rule = format!("at most promote_l1, which is {}", self.promote_l1);
            return Err(ContextValueError::new("promote_l2", self.promote_l2.into(), rule));
        }
        if self.l2_bytes != 0 && self.l2_bytes < u64::from(self.page_bytes) {
            let rule = format!("0, or at least a page of {} bytes", self.page_bytes);
            return Err(ContextValueError::new("l2_bytes", self.l2_bytes, rule));
        }
        Ok(())
    }

    /// Returns the least and the greatest value of a parameter that is a number; `None`: there is none of this name.
    #[must_use]
    pub fn range(field: &str) -> Option<(u64, u64)> {
        let all = Self::default().ranged();
        all.iter().find(|(name, ..)| *name == field).map(|(_, _, least, most)| (*least, *most))
    }

    /// Names, values, least and greatest values of the parameters that are numbers.
    fn ranged(&self) -> [(&'static str, u64, u64, u64); 17] {
        [
            ("l1_entries", u64::from(self.l1_entries), 64, 1 << 20),
            ("l1_ns", self.l1_ns, 2, 10),
            ("l2_bytes", self.l2_bytes, 0, 1 << 30),
            ("page_bytes", self.page_bytes.into(), 4 << 10, 1 << 20),
            ("l2_ns", self.l2_ns, 140, 410),
            ("l3_ns", self.l3_ns, 500, 1200),
            ("outstanding", self.outstanding.into(), 32, 256),
            ("link_gbps", self.link_gbps, 1, 3200),
            ("promote_l1", self.promote_l1.into(), 1, 65_535),
            ("promote_l2", self.promote_l2.into(), 1, 65_535),
            ("window_ns", self.window_ns, 10_000, 1_000_000_000),
            ("sample", self.sample.into(), 1, 256),
            ("idle_l1_ns", self.idle_l1_ns, 10_000, 200_000_000),
            ("idle_l2_ns", self.idle_l2_ns, 10_000, 200_000_000),
            ("cluster_bytes", self.cluster_bytes.into(), 4 << 10, 1 << 20),
            ("banks", self.banks.into(), 1, 16),
            ("index_limit", self.index_limit as u64, 1, 1 << 28),
        ]
    }
}

/// A mistake that the cache makes on purpose.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ContextFault {
    /// A migration leaves the version as it was.
    VersionNotCounted,
    /// Destroying a context leaves its slot.
    StaleSlot,
    /// A strong field of a context in L1 is not written through.
    StrongWrittenLate,
    /// A pinned context may be a victim.
    PinnedEvicted,
    /// A demotion drops what changed.
    DifferenceLost,
    /// The last context of a page in a batch is not read.
    BatchDropsLast,
    /// A refused context counts as a hit as well.
    BypassAsHit,
    /// A reader during a migration does not look at the version again.
    NoSecondLook,
    /// The last waiter of a migration is not woken.
    WaiterNotWoken,
    /// The host answers each request twice.
    HostAnswersTwice,
    /// The host never answers.
    HostSilent,
    /// The host answers with the context of another handle.
    HostOtherHandle,
}

/// Which fault is planted, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct ContextFaults {
    #[cfg(test)]
    pub(crate) planted: Option<ContextFault>,
}

macro_rules! questions {
    ($($name:ident = $fault:ident;)*) => {
        impl ContextFaults {
            $(
                #[cfg(test)]
                pub(crate) fn $name(self) -> bool { self.planted == Some(ContextFault::$fault) }

                #[cfg(not(test))]
                #[inline(always)]
                pub(crate) const fn $name(self) -> bool { false }
            )*
        }
    };
}

questions! {
    version_not_counted = VersionNotCounted;
    stale_slot = StaleSlot;
    strong_written_late = StrongWrittenLate;
    pinned_evicted = PinnedEvicted;
    difference_lost = DifferenceLost;
    batch_drops_last = BatchDropsLast;
    bypass_as_hit = BypassAsHit;
    no_second_look = NoSecondLook;
    waiter_not_woken = WaiterNotWoken;
    host_answers_twice = HostAnswersTwice;
    host_silent = HostSilent;
    host_other_handle = HostOtherHandle;
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn each_parameter_has_a_range_that_is_named() {
        assert_eq!(CacheCfg::default().check(), Ok(()));
        let text = |change: fn(&mut CacheCfg)| {
            let mut cfg = CacheCfg::default();
            change(&mut cfg);
            cfg.check().unwrap_err().to_string()
        };
        assert_eq!(text(|c| c.l1_entries = 63), "l1_entries is 63: 64 to 1048576");
        assert_eq!(text(|c| c.l1_ns = 11), "l1_ns is 11: 2 to 10");
        assert_eq!(text(|c| c.l2_bytes = 2 << 30), "l2_bytes is 2147483648: 0 to 1073741824");
        assert_eq!(text(|c| c.l2_bytes = 1), "l2_bytes is 1: 0, or at least a page of 65536 bytes");
        assert_eq!(text(|c| c.page_bytes = 12 << 10), "page_bytes is 12288: a power of two");
        assert_eq!(text(|c| c.outstanding = 0), "outstanding is 0: 32 to 256");
        assert_eq!(text(|c| c.promote_l1 = 0), "promote_l1 is 0: 1 to 65535");
        assert_eq!(
            text(|c| c.promote_l2 = 129),
            "promote_l2 is 129: at most promote_l1, which is 128"
        );
        assert_eq!(text(|c| c.window_ns = 1), "window_ns is 1: 10000 to 1000000000");
        assert_eq!(text(|c| c.sample = 257), "sample is 257: 1 to 256");
        assert_eq!(text(|c| c.banks = 3), "banks is 3: a power of two");
    }
}
