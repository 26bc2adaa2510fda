//! Opcodes of requests: which message a packet is part of, and where it stands in it.
//!
//! - owns: the relation between opcode and place in the message, both directions.

use urma_packet::roce::rc;

/// Kind of a message of several packets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MessageKind {
    /// Message for a receive.
    Send,
    /// Message for memory that the first packet names.
    Write,
}

/// What the last packet of a message carries besides payload.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RcTail {
    /// Payload and nothing else.
    Plain,
    /// Immediate data after the headers.
    Imm,
    /// A key to withdraw.
    Invalidate,
}

/// A packet's place in its message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RcSegment {
    pub(crate) kind: MessageKind,
    pub(crate) is_first: bool,
    /// Last packet, and what it carries.
    pub(crate) last: Option<RcTail>,
}

impl RcSegment {
    /// The place that an opcode stands for; `None`: it is not part of a SEND or WRITE.
    pub(crate) fn of(opcode: u8) -> Option<Self> {
        let (kind, is_first, last) = match opcode {
            rc::SEND_FIRST => (MessageKind::Send, true, None),
            rc::SEND_MIDDLE => (MessageKind::Send, false, None),
            rc::SEND_LAST => (MessageKind::Send, false, Some(RcTail::Plain)),
            rc::SEND_LAST_IMM => (MessageKind::Send, false, Some(RcTail::Imm)),
            rc::SEND_LAST_INV => (MessageKind::Send, false, Some(RcTail::Invalidate)),
            rc::SEND_ONLY => (MessageKind::Send, true, Some(RcTail::Plain)),
            rc::SEND_ONLY_IMM => (MessageKind::Send, true, Some(RcTail::Imm)),
            rc::SEND_ONLY_INV => (MessageKind::Send, true, Some(RcTail::Invalidate)),
            rc::WRITE_FIRST => (MessageKind::Write, true, None),
            rc::WRITE_MIDDLE => (MessageKind::Write, false, None),
            rc::WRITE_LAST => (MessageKind::Write, false, Some(RcTail::Plain)),
            rc::WRITE_LAST_IMM => (MessageKind::Write, false, Some(RcTail::Imm)),
            rc::WRITE_ONLY => (MessageKind::Write, true, Some(RcTail::Plain)),
            rc::WRITE_ONLY_IMM => (MessageKind::Write, true, Some(RcTail::Imm)),
            _ => return None,
        };
        Some(Self { kind, is_first, last })
    }

    /// The opcode of this place.
    pub(crate) const fn opcode(self) -> u8 {
        match (self.kind, self.is_first, self.last) {
            (MessageKind::Send, true, None) => rc::SEND_FIRST,
            (MessageKind::Send, false, None) => rc::SEND_MIDDLE,
            (MessageKind::Send, false, Some(RcTail::Plain)) => rc::SEND_LAST,
            (MessageKind::Send, false, Some(RcTail::Imm)) => rc::SEND_LAST_IMM,
            (MessageKind::Send, false, Some(RcTail::Invalidate)) => rc::SEND_LAST_INV,
            (MessageKind::Send, true, Some(RcTail::Plain)) => rc::SEND_ONLY,
            (MessageKind::Send, true, Some(RcTail::Imm)) => rc::SEND_ONLY_IMM,
            (MessageKind::Send, true, Some(RcTail::Invalidate)) => rc::SEND_ONLY_INV,
            (MessageKind::Write, true, None) => rc::WRITE_FIRST,
            (MessageKind::Write, false, None) => rc::WRITE_MIDDLE,
            // A WRITE withdraws no key: no request asks for that.
            (MessageKind::Write, false, Some(RcTail::Plain | RcTail::Invalidate)) => rc::WRITE_LAST,
            (MessageKind::Write, true, Some(RcTail::Plain | RcTail::Invalidate)) => rc::WRITE_ONLY,
            (MessageKind::Write, false, Some(RcTail::Imm)) => rc::WRITE_LAST_IMM,
            (MessageKind::Write, true, Some(RcTail::Imm)) => rc::WRITE_ONLY_IMM,
        }
    }
}

/// Whether an opcode is a response: an acknowledgement or data for a READ or atomic.
pub(crate) const fn is_response(opcode: u8) -> bool {
    matches!(opcode, rc::READ_RESPONSE_FIRST..=rc::ATOMIC_ACKNOWLEDGE)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_and_places_are_one_to_one() {
        let found: Vec<u8> = (0..=u8::MAX)
            .filter(|&opcode| RcSegment::of(opcode).is_some_and(|place| place.opcode() == opcode))
            .collect();
        assert_eq!(found, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 0x16, 0x17]);
        assert_eq!((0..=u8::MAX).filter(|&opcode| RcSegment::of(opcode).is_some()).count(), 14);
        assert_eq!((0..=u8::MAX).filter(|&opcode| is_response(opcode)).count(), 6);
    }
}
