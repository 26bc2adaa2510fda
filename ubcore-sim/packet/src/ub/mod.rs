//! URMA traffic: manufacturer opcodes of the BTH and UB transaction headers.
//!
//! - owns: wire version 1 (docs/wire-spec.md).
//! - takes: UDP payloads or ring entries. gives: [`Packet`]s and [`Transaction`]s, and the bytes of
//!   a header.
//! - must not: depend on PSN windows, jetties or segments; it only defines what the bytes mean.

mod ack;
mod ext;
mod form;
mod handshake;
mod losses;
mod opcode;
mod pack;
mod packet;
mod probe;
mod request;
mod response;
pub use ack::{Ack, SACK_WORDS_MAX, SackBitmap};
pub use ext::{
    AtomicOperands, AtomicValue, Invalidate, MemoryAccess, Notify, OperandSize, WriteImm,
};
pub use form::{AckForm, FORM_WORDS, FormWords, SendForm, SendValues, ack_words, is_ack, place_of};
pub use handshake::{
    Challenge, Close, CloseReason, Cookie, FURTHER_PORTS_MAX, FurtherPorts, HandshakeBody, Purpose,
    RefuseBody, RefuseReason, StrategyCaps, WINDOW_MAX, WrongPorts,
};
pub use losses::{LOSS_RUNS_MAX, MissingRun, Repeat, ReportBody, TailBody, repeat_packet};
pub use losses::{
    REPAIR_GROUP_MAX, REPAIR_NUMBERS, RepairBody, WORD_HEAD, code_word, packet_of_word,
};
pub use opcode::{AtomicOp, ResponseOp, TaOpcode, TpOpcode, WIRE_VERSION};
pub use pack::{PackEntries, join_pack};
pub use pack::{Transaction, TransactionHeader};
pub use packet::{Body, Frame, HEADERS_MAX, Packet, PacketHeader, UmHeader};
pub use probe::{DATA_OVERHEAD, PathProbe};
pub use request::RequestOp;
pub use request::{
    BTAH_LEN, Initiator, InitiatorKind, OrderTag, RequestFlags, RequestHeader, Target, TargetKind,
};
pub use response::{ATAH_LEN, EARLIER_MAX, ResponseBody, ResponseHeader, ResponseStatus};

#[cfg(test)]
mod tests;
