//! Targets of messages: checks of one queue, and the choice within a group.
//!
//! *Owns*: modes, tokens, bindings, members. *Takes*: what a message asks for. *Gives*: yes, or the reason why not.
//! *Must not*: touch a receive ring.

use std::sync::Arc;

use udma_abi::{
    RawEid,
    cmd::{Mode, QueueState},
};
use urma_packet::{Initiator, InitiatorKind, ResponseStatus, Target, TargetKind, TokenValue};

use crate::context::jfc::JfcPort;
use crate::context::token::fits;
use crate::exchange::sides::{RecvSide, SharedSide};

/// A message that asks for a receive: its target and its source.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ask {
    pub(crate) target: Target,
    pub(crate) from: RawEid,
    pub(crate) initiator: Initiator,
    /// Token shown for the queue.
    pub(crate) token: Option<TokenValue>,
    pub(crate) datagram: Unsequenced,
}

/// Whether a message is outside of any sequence.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unsequenced {
    Yes,
    No,
}

/// How completions name the source of a message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CqeSource {
    pub(crate) id: u32,
    pub(crate) is_jetty: bool,
    pub(crate) cookie: u64,
}

/// One receiving side, with its own or a shared ring.
#[derive(Debug)]
pub(crate) struct ReceivingSide {
    pub(crate) cqe_source: CqeSource,
    pub(crate) mode: Mode,
    pub(crate) state: QueueState,
    /// Queue whose ring it uses.
    pub(crate) ring: u32,
    /// Its own JFC; `None`: that of the ring.
    pub(crate) port: Option<Arc<JfcPort>>,
    token: Option<u32>,
    /// RC: node and jetty that may send to it.
    pub(crate) bound: Option<(RawEid, u32)>,
}

impl ReceivingSide {
    pub(crate) fn of_ring(side: &RecvSide) -> Self {
        Self {
            cqe_source: CqeSource { id: side.id, is_jetty: side.is_jetty, cookie: side.cookie },
            mode: side.mode,
            state: QueueState::Ready,
            ring: side.id,
            port: None,
            token: side.token,
            bound: None,
        }
    }

    pub(crate) fn of_shared(side: SharedSide) -> Self {
        Self {
            cqe_source: CqeSource { id: side.id, is_jetty: true, cookie: side.cookie },
            mode: side.mode,
            state: QueueState::Ready,
            ring: side.jfr,
            port: side.port.map(Arc::new),
            token: side.token,
            bound: None,
        }
    }

    /// Checks everything except that there is a receive.
    pub(crate) fn check(&self, ask: &Ask) -> Result<(), ResponseStatus> {
        let in_group = ask.target.kind == TargetKind::JettyGroup;
        let kind_fits =
            in_group || (ask.target.kind == TargetKind::Jetty) == self.cqe_source.is_jetty;
        if !kind_fits {
            return Err(ResponseStatus::NoTarget);
        }
        // First, before a stranger could learn anything else about the queue.
        if !in_group && !shows(self.token, ask) {
            return Err(ResponseStatus::AccessAbort);
        }
        if (self.mode == Mode::Um) != (ask.datagram == Unsequenced::Yes) {
            return Err(ResponseStatus::Unsupported);
        }
        let source = (ask.from, ask.initiator.id.value());
        let stranger = self.bound != Some(source) || ask.initiator.kind != InitiatorKind::Jetty;
        if self.mode == Mode::Rc && stranger {
            return Err(ResponseStatus::NoTarget);
        }
        match self.state {
            QueueState::Ready | QueueState::Suspended => Ok(()),
            QueueState::Error | QueueState::Reset => Err(ResponseStatus::TargetReset),
        }
    }
}

/// A group: one of several jetties takes each message.
#[derive(Debug)]
pub(crate) struct Group {
    members: Vec<u32>,
    choice: Choice,
    token: Option<u32>,
    /// Index of the member after the last one picked.
    next: usize,
}

/// How a group picks a member.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Choice {
    /// By the hint of the request; 0 is no hint.
    Hint,
    /// Round-robin, one after the other.
    RoundRobin,
}

impl Group {
    pub(crate) fn new(choice: Choice, token: Option<u32>) -> Self {
        Self { members: Vec::new(), choice, token, next: 0 }
    }

    pub(crate) fn join(&mut self, jetty: u32) {
        self.members.push(jetty);
    }

    pub(crate) fn leave(&mut self, jetty: u32) {
        self.members.retain(|&member| member != jetty);
    }

    /// Picks the member for a message: by hint, or the next one that has a receive (simply the next if none has).
    pub(crate) fn pick(
        &self,
        ask: &Ask,
        has_receive: impl Fn(u32) -> bool,
    ) -> Result<u32, ResponseStatus> {
        if !shows(self.token, ask) {
            return Err(ResponseStatus::AccessAbort);
        }
        let count = self.members.len();
        if count == 0 {
            return Err(ResponseStatus::NoTarget);
        }
        if self.choice == Choice::Hint && ask.target.hint != 0 {
            return Ok(self.members[usize::from(ask.target.hint) % count]);
        }
        let mut round = (0..count).map(|ahead| (self.next + ahead) % count);
        let at = round.find(|&at| has_receive(self.members[at])).unwrap_or(self.next % count);
        Ok(self.members[at])
    }

    /// Notes that the member was picked: the one after it is next.
    pub(crate) fn on_picked(&mut self, ask: &Ask, member: u32) {
        if self.choice == Choice::Hint && ask.target.hint != 0 {
            return;
        }
        if let Some(at) = self.members.iter().position(|other| *other == member) {
            self.next = (at + 1) % self.members.len();
        }
    }
}

/// Whether a request shows the token that guards a queue.
fn shows(wanted: Option<u32>, ask: &Ask) -> bool {
    fits(wanted, ask.token.map(|token| token.0))
}
