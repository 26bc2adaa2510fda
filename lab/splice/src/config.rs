//! What an engine is made with: ranges and rules between fields, without guessed values; and faults that tests
//! plant.
//!
//! Only test builds have faults; in others they cost no instruction.

/// Which design is modelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EngineScheme {
    /// Two banks; a message is read when it is complete.
    PingPong,
    /// One ring for two messages; a message is read when it is complete.
    Single,
    /// A data FIFO and a sideband FIFO with an entry for each packet.
    Fifo,
}

impl EngineScheme {
    /// Every scheme with its name.
    pub const ALL: [(Self, &'static str); 3] =
        [(Self::PingPong, "pingpong"), (Self::Single, "single"), (Self::Fifo, "fifo")];

    /// Name in options and results.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::PingPong => "pingpong",
            Self::Single => "single",
            Self::Fifo => "fifo",
        }
    }

    /// The scheme of a name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find_map(|(scheme, known)| (*known == name).then_some(*scheme))
    }
}

/// What happens to a message that cannot fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TooLong {
    /// It is found, counted and dropped.
    Drop,
    /// The engine stops for ever, as the plain design does.
    Stop,
}

/// Configuration of an engine.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct EngineConfig {
    /// The design that is modelled.
    pub scheme: EngineScheme,
    /// Bytes of a beat: a power of two, 4 to 256. Hardware has 32 to 256; fewer are for exhaustive search.
    pub beat_bytes: u32,
    /// Beats of data memory, of both banks together: 1 to 65536.
    pub data_beats: u32,
    /// Entries of the sideband FIFO: 1 to 65536.
    pub sideband_entries: u32,
    /// Cycles between two messages in a bank's control: 0 to 1024.
    pub handover: u32,
    /// Largest MTU as a power of two.
    pub mtu_log2_max: u8,
    /// What happens to a message that cannot fit.
    pub too_long: TooLong,
    /// Bytes are carried, not only counted.
    pub payload: bool,
}

/// A field with a value outside its rule.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{field} {value}: want {rule}")]
pub struct EngineConfigError {
    /// Name of the field.
    pub field: &'static str,
    /// The value that was given.
    pub value: u64,
    /// The rule that it breaks.
    pub rule: String,
}

/// Most beats and entries.
const SIZE_MAX: u32 = 65_536;
/// Largest MTU as a power of two.
pub(crate) const MTU_LOG2_MAX: u8 = 13;
/// Most cycles of a hand-over.
const HANDOVER_MAX: u32 = 1024;

impl EngineConfig {
    /// Scheme 3 with 8 KiB, 64-byte beats and an MTU of up to 4096: the default of the device.
    #[must_use]
    pub const fn new(scheme: EngineScheme) -> Self {
        Self {
            scheme,
            beat_bytes: 64,
            data_beats: 128,
            sideband_entries: 8,
            handover: 3,
            mtu_log2_max: 12,
            too_long: TooLong::Drop,
            payload: false,
        }
    }

    /// Smallest MTU as a power of two.
    #[must_use]
    pub const fn mtu_log2_min(&self) -> u8 {
        // Small beats are for exhaustive search, with an MTU as small as they allow.
        if self.beat_bytes < 32 { 3 } else { 8 }
    }

    /// Checks ranges and rules.
    ///
    /// # Errors
    ///
    /// The field, its value and the rule that it breaks.
    pub fn check(&self) -> Result<(), EngineConfigError> {
        let error = |field, value: u32, rule: String| {
            Err(EngineConfigError { field, value: u64::from(value), rule })
        };
        if !self.beat_bytes.is_power_of_two() || !(4..=256).contains(&self.beat_bytes) {
            return error("beat_bytes", self.beat_bytes, "a power of two, 4 to 256".to_owned());
        }
        let size = format!("1 to {SIZE_MAX}");
        if !(1..=SIZE_MAX).contains(&self.data_beats) {
            return error("data_beats", self.data_beats, size);
        }
        if !(1..=SIZE_MAX).contains(&self.sideband_entries) {
            return error("sideband_entries", self.sideband_entries, size);
        }
        if self.handover > HANDOVER_MAX {
            return error("handover", self.handover, format!("at most {HANDOVER_MAX} cycles"));
        }
        let least = self.mtu_log2_min();
        if !(least..=MTU_LOG2_MAX).contains(&self.mtu_log2_max) {
            let rule = format!("{least} to {MTU_LOG2_MAX}");
            return error("mtu_log2_max", u32::from(self.mtu_log2_max), rule);
        }
        if self.scheme == EngineScheme::PingPong && self.data_beats < 2 {
            return error("data_beats", self.data_beats, "at least 2 for two banks".to_owned());
        }
        let mtu = 1_u32 << self.mtu_log2_max;
        let stops = self.scheme == EngineScheme::Fifo && self.data_beats * self.beat_bytes < mtu;
        if stops && self.too_long == TooLong::Drop {
            let rule = format!(
                "data_beats * beat_bytes >= {mtu} bytes, the MTU: a packet is read when it is complete, \
                 so a smaller memory stops for ever"
            );
            return error("data_beats", self.data_beats, rule);
        }
        Ok(())
    }
}

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
