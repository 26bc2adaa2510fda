//! Faults that tests plant to show that a check can fail.
//!
//! *Owns*: the names, and which one is planted. *Gives*: `false`, always, in every other build.
//! *Must not*: cost an instruction in production.

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
