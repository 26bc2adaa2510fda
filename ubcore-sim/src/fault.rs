//! Faults that tests plant to show that a check can fail.
//!
//! *Owns*: the names. *Takes*: `DeviceCfg::fault` under the feature `planted-faults`. *Gives*: a
//! question with a constant `false` answer in every other build. *Must not*: exist in production.

/// A mistake that the device makes on purpose.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PlantedFault {
    /// Tokens of segments are not compared.
    TokenNotChecked,
    /// Ranges may end one byte beyond a segment.
    BoundOffByOne,
    /// Every seventh completion is written twice.
    CompletionDoubled,
    /// Every seventh completion is not written.
    CompletionDropped,
    /// Two neighbouring requests of a send queue are executed in the wrong order.
    OrderSwapped,
    /// The last bytes of a message are stored first.
    LastByteEarly,
    /// A request is acknowledged before its bytes are placed.
    AckBeforePlacement,
    /// Time in which the node's process was stopped counts for its timers.
    StoppedTimeCounts,
    /// A sender need not show that it is the peer: packets from any port of its address count, and
    /// CONNECT needs no cookie.
    SenderUnproven,
}
