//! The key of a sequence: one initiator queue and one target.
//!
//! *Owns*: the key. *Takes*: headers. *Gives*: keys that order and compare. *Must not*: hold state.

use urma_packet::{
    Initiator, InitiatorKind, JettyId, RequestHeader, ResponseHeader, Target, TargetKind,
};

/// Requests without MTETAH: one sequence for all of a node's memory.
const MEMORY: u32 = u32::MAX;

/// Key of one sequence (docs/wire-spec.md, section 6).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Pair {
    initiator: u32,
    target: u32,
}

impl Pair {
    pub(crate) fn new(initiator: Initiator, target: Option<Target>) -> Self {
        let number = |kind: u8, id: JettyId| u32::from(kind) << 20 | id.value();
        Self {
            initiator: number(initiator.kind.code(), initiator.id),
            target: target.map_or(MEMORY, |target| number(target.kind.code(), target.id)),
        }
    }

    pub(crate) fn of_request(header: &RequestHeader) -> Self {
        Self::new(header.initiator, header.target)
    }

    pub(crate) fn of_response(header: &ResponseHeader) -> Self {
        Self::new(header.initiator, header.target)
    }

    /// The sequence in the other direction, if both ends are jetties.
    pub(crate) fn opposite(self) -> Option<Self> {
        let jetty = u32::from(TargetKind::Jetty.code());
        let ends = [self.initiator, self.target].map(|end| end >> JettyId::BITS);
        // A jetty has the same code as initiator and as target.
        (ends == [jetty; 2]).then_some(Self { initiator: self.target, target: self.initiator })
    }

    /// Number of the initiator's queue.
    pub(crate) fn queue(self) -> u32 {
        JettyId::from_low_bits(self.initiator).value()
    }
}

/// The initiator in the form that headers use.
pub(crate) fn initiator(id: u32, is_jetty: bool) -> Initiator {
    let kind = if is_jetty { InitiatorKind::Jetty } else { InitiatorKind::Jfs };
    Initiator { kind, id: JettyId::from_low_bits(id) }
}

/// The target in the form that headers use.
pub(crate) fn target(sqe: &udma_abi::Sqe) -> Target {
    use udma_abi::sqe::SqeTargetKind;
    let (kind, hint) = match sqe.target_kind {
        SqeTargetKind::Jfr => (TargetKind::Jfr, 0),
        SqeTargetKind::Jetty => (TargetKind::Jetty, 0),
        SqeTargetKind::Group => (TargetKind::JettyGroup, sqe.target_hint),
    };
    Target { kind, id: JettyId::from_low_bits(sqe.target_id), hint }
}

const _: () = assert!(InitiatorKind::Jetty as u8 == TargetKind::Jetty as u8);

impl Pair {
    /// Initiator and target, as response headers repeat them.
    pub(crate) fn ends(self) -> (Initiator, Option<Target>) {
        let jetty = self.initiator >> JettyId::BITS == u32::from(InitiatorKind::Jetty.code());
        let target = u8::try_from(self.target >> JettyId::BITS)
            .ok()
            .filter(|_| self.target != MEMORY)
            .and_then(|kind| TargetKind::from_code(kind).ok())
            .map(|kind| Target { kind, id: JettyId::from_low_bits(self.target), hint: 0 });
        (initiator(self.queue(), jetty), target)
    }
}
