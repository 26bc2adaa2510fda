//! One end of a connection.
//!
//! - owns: a requester, a responder, their completions, the end of both.
//! - takes: what a program posts, packets, time, memory. gives: packets, completions, a deadline.
//! - must not: read a clock, or keep anything of the memory's bytes.

use std::collections::VecDeque;

use urma_packet::IcrcFlow;
use urma_packet::roce::{RocePacket, Syndrome};

use crate::request::is_response;
use crate::requester::{RcPacket, RcProgress, RcRequester};
use crate::responder::RcResponder;
use crate::{
    RcCfg, RcCfgError, RcCompletion, RcCounts, RcMemory, RcPostError, RcReceive, RcRequest,
    RcStatus, RcTime,
};

/// One end of a reliable connection.
///
/// After [`RcEndpoint::on_packet`], [`RcEndpoint::post`], and at [`RcEndpoint::deadline`], call
/// [`RcEndpoint::poll_transmit`] until it gives nothing, and [`RcEndpoint::poll_completion`].
#[derive(Debug)]
pub struct RcEndpoint {
    cfg: RcCfg,
    requester: RcRequester,
    responder: RcResponder,
    completions: VecDeque<RcCompletion>,
    counts: RcCounts,
    /// Why the connection ended.
    failed: Option<RcStatus>,
}

/// Largest overhead of a packet in bytes: BTH, RETH, immediate data, pad, ICRC and a reserve.
const OVERHEAD_MAX: usize = 80;

impl RcEndpoint {
    /// Opens an endpoint. It sends nothing until a request is posted.
    ///
    /// # Errors
    /// [`RcCfgError`] for a value out of its range.
    pub fn open(cfg: RcCfg) -> Result<Self, RcCfgError> {
        cfg.check()?;
        Ok(Self {
            requester: RcRequester::new(&cfg),
            responder: RcResponder::new(&cfg),
            completions: VecDeque::new(),
            counts: RcCounts::default(),
            failed: None,
            cfg,
        })
    }

    /// Settings that it was opened with.
    #[must_use]
    pub fn cfg(&self) -> &RcCfg {
        &self.cfg
    }

    /// Bytes of the longest packet, from the BTH on: the least that a buffer must hold.
    #[must_use]
    pub fn packet_max(&self) -> usize {
        self.cfg.path_mtu + OVERHEAD_MAX
    }

    /// Why the connection ended; `None`: it is open.
    #[must_use]
    pub fn failed(&self) -> Option<RcStatus> {
        self.failed
    }

    /// Counts since it was opened.
    #[must_use]
    pub fn counts(&self) -> RcCounts {
        self.counts
    }

    /// Posts a request to the send queue.
    ///
    /// # Errors
    /// [`RcPostError`].
    pub fn post(&mut self, request: RcRequest) -> Result<(), RcPostError> {
        match self.failed {
            Some(_) => Err(RcPostError::Failed),
            None => self.requester.post(&self.cfg, request),
        }
    }

    /// Posts a receive for the next message.
    ///
    /// # Errors
    /// [`RcPostError::Full`], [`RcPostError::Failed`].
    pub fn post_receive(&mut self, receive: RcReceive) -> Result<(), RcPostError> {
        if self.failed.is_some() {
            return Err(RcPostError::Failed);
        }
        if self.responder.post(&self.cfg, receive) { Ok(()) } else { Err(RcPostError::Full) }
    }

    /// Takes back the receive that was posted last, if no message has begun to use it: for an owner whose
    /// receives are shared, which posts one when a packet wants it.
    pub fn withdraw_receive(&mut self) -> Option<RcReceive> {
        self.responder.withdraw_receive()
    }

    /// Takes a packet whose ICRC is right.
    pub fn on_packet(&mut self, now: RcTime, packet: &RocePacket<'_>, memory: &mut dyn RcMemory) {
        let bth = &packet.header.bth;
        // The top bit of the key says whether its holder is a full member of the partition.
        let is_same_partition = (bth.pkey ^ self.cfg.pkey) & 0x7fff == 0;
        if bth.dest != self.cfg.local_qpn || !is_same_partition || bth.opcode >= OTHER_TRANSPORTS {
            self.counts.malformed += 1;
            return;
        }
        if self.failed.is_some() {
            self.counts.dropped += 1;
            return;
        }
        let Self { cfg, requester, responder, completions, counts, .. } = self;
        if is_response(bth.opcode) {
            let to = RcProgress { completions, counts };
            let taken = requester.on_response(now, cfg, packet, memory, to);
            self.end_request(taken);
        } else {
            let taken = responder.on_request(cfg, packet, memory, completions, counts);
            self.end_receive(taken);
        }
    }

    /// The next packet, sealed for `flow`, at the front of `buf`; its length in bytes. `None`: there
    /// is nothing to send now, or `buf` is shorter than [`RcEndpoint::packet_max`].
    pub fn poll_transmit(
        &mut self,
        now: RcTime,
        memory: &mut dyn RcMemory,
        flow: &IcrcFlow,
        buf: &mut [u8],
    ) -> Option<usize> {
        if buf.len() < self.packet_max() {
            return None;
        }
        if self.failed.is_none() {
            let expired = self.requester.expire(now);
            self.end_request(expired);
        }
        while let Some((outgoing, ended)) = self.responder.poll(&self.cfg, memory, &mut self.counts)
        {
            self.counts.answers_sent += 1;
            self.end_receive(ended);
            if let Some(len) = write(&outgoing, memory, flow, buf) {
                return Some(len);
            }
            let psn = outgoing.header.bth.psn;
            self.responder.withdraw(psn, Syndrome::RemoteOperation, &mut self.counts);
            self.end_receive(Err(RcStatus::LocalProtection));
        }
        if self.failed.is_some() {
            return None;
        }
        let outgoing = self.requester.poll(now, &self.cfg, &mut self.counts)?;
        let written = write(&outgoing, memory, flow, buf);
        if written.is_none() {
            self.failed = Some(RcStatus::LocalProtection);
            self.requester.fail_at_cursor(&mut self.completions);
            self.responder.fail(RcStatus::Flushed, &mut self.completions);
        }
        written
    }

    /// Whether an answer to the peer waits to be sent.
    #[must_use]
    pub fn has_answers(&self) -> bool {
        self.responder.has_answers()
    }

    /// The oldest completion that was not polled yet.
    pub fn poll_completion(&mut self) -> Option<RcCompletion> {
        self.completions.pop_front()
    }

    /// When [`RcEndpoint::poll_transmit`] is to be called although nothing happened.
    #[must_use]
    pub fn deadline(&self) -> Option<RcTime> {
        self.requester.deadline()
    }

    /// Ends the connection: everything outstanding is completed as flushed. The peer is sent nothing.
    pub fn close(&mut self) {
        if self.failed.is_none() {
            self.end_request(Err(RcStatus::Flushed));
        }
    }

    fn end_request(&mut self, result: Result<(), RcStatus>) {
        if let Err(status) = result {
            self.failed = Some(status);
            self.requester.fail(status, &mut self.completions);
            self.responder.fail(RcStatus::Flushed, &mut self.completions);
        }
    }

    fn end_receive(&mut self, result: Result<(), RcStatus>) {
        if let Err(status) = result
            && self.failed.is_none()
        {
            self.failed = Some(status);
            self.responder.fail(status, &mut self.completions);
            self.requester.fail(RcStatus::Flushed, &mut self.completions);
        }
    }
}

/// Opcodes from here on are those of other transports.
const OTHER_TRANSPORTS: u8 = 0x20;

/// Writes a packet; `None`: its payload cannot be read.
fn write(
    outgoing: &RcPacket,
    memory: &dyn RcMemory,
    flow: &IcrcFlow,
    buf: &mut [u8],
) -> Option<usize> {
    let frame = outgoing.header.emit_headers(outgoing.len, buf).ok()?;
    if outgoing.len > 0 && !memory.load(outgoing.place, buf.get_mut(frame.payload)?) {
        return None;
    }
    flow.seal(buf.get_mut(..frame.total)?).ok()?;
    Some(frame.total)
}
