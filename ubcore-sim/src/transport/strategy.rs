//! Strategies that two nodes can agree on.
//!
//! - owns: their names in settings and handshakes. takes: nothing. gives: the recovery of a TP.
//! - must not: decide what is lost (that is `urma-recovery`'s).

use urma_packet::StrategyCaps;
use urma_recovery::{AdamapCfg, AdamapSizes, Recovery};

/// Timeout of IRN, in thousandths of the round-trip time: processes that share a processor answer late.
const IRN_TIMEOUT_PERMILLE: u32 = 3000;
/// Time that what was reported may take on top of two round trips, in ns: processes that share a processor answer late.
const SEED_TIMEOUT_NS: u64 = 2_000_000;
/// Copies of what is repeated at the end, as the laboratory's `ours` has them.
const TAIL_COPIES: u8 = 3;

/// Recovery strategy of a TP.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Strategy {
    /// A gap makes the sender start over from it; receivers keep nothing beyond a gap.
    GoBackN,
    /// Receivers keep what comes beyond a gap and say so; only what is missing is sent again.
    SelectiveRepeat,
    /// Selective repeat with an acknowledgement for each packet; what is lost again waits for a timeout.
    Irn,
    /// The Adamap design: receivers report losses by node, keep the newest node and the first ones of a list in the NIC
    /// and the others in the pool; a silence makes the sender start over.
    Seed,
    /// Receivers report each loss, and what was lost again at once; repair packets behind what is sent last.
    #[default]
    Knitting,
}

impl Strategy {
    /// All of them, in order of preference.
    pub const ALL: [Self; 5] =
        [Self::Knitting, Self::Seed, Self::Irn, Self::SelectiveRepeat, Self::GoBackN];

    /// Its name in settings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::GoBackN => "go-back-n",
            Self::SelectiveRepeat => "selective-repeat",
            Self::Irn => "irn",
            Self::Seed => "seed",
            Self::Knitting => "knitting",
        }
    }

    /// What a node with this setting offers: this strategy, and those that every node supports.
    pub(crate) fn offered(self) -> StrategyCaps {
        match self {
            Self::GoBackN => StrategyCaps::GO_BACK_N,
            Self::SelectiveRepeat | Self::Irn | Self::Seed | Self::Knitting => {
                self.caps() | StrategyCaps::SELECTIVE_REPEAT | StrategyCaps::GO_BACK_N
            }
        }
    }

    /// Its bit in handshakes.
    pub(super) const fn caps(self) -> StrategyCaps {
        match self {
            Self::GoBackN => StrategyCaps::GO_BACK_N,
            Self::SelectiveRepeat => StrategyCaps::SELECTIVE_REPEAT,
            Self::Irn => StrategyCaps::IRN,
            Self::Seed => StrategyCaps::SEED,
            Self::Knitting => StrategyCaps::KNITTING,
        }
    }

    /// Whether receivers report what was lost, and repeated packets say which report they answer.
    pub(super) const fn reports_losses(self) -> bool {
        matches!(self, Self::Seed | Self::Knitting)
    }

    /// The preferred one among `common`.
    pub(super) fn best_of(common: StrategyCaps) -> Option<Self> {
        Self::ALL.into_iter().find(|strategy| common.contains(strategy.caps()))
    }

    /// Both halves of the recovery; `sizes` are those of Adamaps.
    pub(super) const fn recovery(self, sizes: AdamapSizes) -> Recovery {
        match self {
            Self::GoBackN => Recovery::GoBackN,
            Self::SelectiveRepeat => Recovery::SelectiveRepeat,
            Self::Irn => Recovery::Irn { timeout_permille: IRN_TIMEOUT_PERMILLE },
            Self::Seed => Recovery::Adamap(AdamapCfg {
                sizes,
                entry_timeout_ns: SEED_TIMEOUT_NS,
                entry_timeout_permille: 2000,
                sender_timeout_ns: 0,
            }),
            Self::Knitting => Recovery::Knitting { tail_copies: TAIL_COPIES },
        }
    }
}
