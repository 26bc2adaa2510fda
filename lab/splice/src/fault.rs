//! Mistakes that tests plant to show that a check can fail.
//!
//! - owns: the names, and the question whether one is planted. takes: `Engine::plant`.
//! - gives: `false`, always, in every other build. must not: cost an instruction in production.

/// A mistake that an engine makes on purpose.
#[cfg(test)]
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SpliceFault {
    /// The bytes behind a seam are taken one byte too far on.
    SeamOffByOne,
    /// The sideband of a packet is pushed one beat before its last one.
    SidebandEarly,
    /// A flush beat that finds no space is dropped.
    FlushLost,
    /// The newest beat says the MTU, also of an older message.
    MtuOfNewestBeat,
    /// A full sideband FIFO does not stop the input.
    SidebandFullIgnored,
    /// An empty message makes no packet.
    EmptyMakesNone,
    /// A message of exactly n MTU ends with an empty packet.
    ExactMakesEmpty,
    /// The bank is switched before the flush beat is written.
    BankSwitchedEarly,
    /// A write address wraps one beat too early.
    WrapTooEarly,
    /// A bank is free when its first packet is out.
    BankFreedEarly,
    /// The last beat has the byte count of the packet before.
    LastCountOld,
}

/// Which fault is planted, if any.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct SpliceFaults {
    #[cfg(test)]
    pub(crate) planted: Option<SpliceFault>,
}

macro_rules! planted {
    ($($name:ident = $fault:ident),+ $(,)?) => {
        impl SpliceFaults {$(
            #[cfg(test)]
            pub(crate) fn $name(self) -> bool {
                self.planted == Some(SpliceFault::$fault)
            }

            #[cfg(not(test))]
            pub(crate) const fn $name(self) -> bool {
                false
            }
        )+}
    };
}

planted!(
    seam = SeamOffByOne,
    sideband_early = SidebandEarly,
    flush_lost = FlushLost,
    newest_mtu = MtuOfNewestBeat,
    sideband_full = SidebandFullIgnored,
    empty_none = EmptyMakesNone,
    exact_empty = ExactMakesEmpty,
    switch_early = BankSwitchedEarly,
    wrap_early = WrapTooEarly,
    freed_early = BankFreedEarly,
    count_old = LastCountOld,
);
