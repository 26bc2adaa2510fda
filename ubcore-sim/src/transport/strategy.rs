//! Strategies that two nodes can agree on.
//!
//! - owns: their names in settings and handshakes. takes: nothing. gives: the recovery of a TP.
//! - must not: decide what is lost (that is `urma-recovery`'s).

use urma_recovery::Recovery;

/// Which strategy a TP uses.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Hash, Default)]
pub enum Strategy {
    /// A gap makes the sender start over from it; receivers keep nothing beyond a gap.
    GoBackN,
    /// Receivers keep what comes beyond a gap and say so; only what is missing is sent again.
    #[default]
    SelectiveRepeat,
}

impl Strategy {
    /// Both halves of it.
    pub(super) const fn recovery(self) -> Recovery {
        match self {
            Self::GoBackN => Recovery::GoBackN,
            Self::SelectiveRepeat => Recovery::SelectiveRepeat,
        }
    }
}
