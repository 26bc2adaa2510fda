//! Requests that need the peer: from a send queue's mail to the completion, and the other node's side.
//!
//! *Owns*: peers, outstanding requests, receive queues. *Takes*: mail, pieces from carriers, time. *Gives*:
//! completions, pieces, receive completions. *Must not*: touch a send queue except through its mail.
//!
//! Each peer has a requester for the requests of this node's queues, a responder for those of its own queues, and a
//! carrier below both. Everything here runs under the device's one `Serial`. Completions are put into the mail of
//! their queues; the caller then wakes the queues that [`Exchange::drain_ended`] gives.

mod ack_delay;
mod arrivals;
mod context;
mod initiator;
mod owners;
mod pair;
pub(crate) mod paths;
mod peers;
mod ping_pong_mode;
mod short;
mod sides;
mod standard;
mod standard_side;
mod state;
mod target;
mod turns;

use udma_abi::{CqeStatus, Nanos, Sqe, cmd::QueueState};
use urma_mem::idle::{IdleSnapshot, WorkSign};

use crate::context::function::FunctionId;
use crate::context::segment::SegmentCache;
use crate::engine::core::DeviceCore;
use crate::engine::gather::Local;
use crate::engine::mail::Handed;
use crate::engine::send::ShortSend;
use crate::ports::{Deadline, LinkVisitor};
use ack_delay::Answers;
use initiator::send_queues::SendQueueTable;
pub(crate) use ping_pong_mode::{AnswerEntry, PingPongMode};
pub(crate) use sides::{BoundTo, Connecting, RecvSide, SendSide, SharedSide};
use standard::{BoundPair, StandardJetties};
pub(crate) use state::Exchange;
use target::receive::ReceivingSides;

/// Send queues whose mail is taken in one round.
const QUEUES_PER_ROUND: usize = 256;

/// Reason for a plain step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PlainStep {
    /// The program polls: it will poll or post again.
    Poll,
    /// The program posted a request.
    Post,
}

/// Outcome of a plain round.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PlainRound {
    /// A peer violated the protocol: a full round has to follow.
    pub(crate) has_cut_off: bool,
    /// When timers of outstanding requests have to be checked; `Nanos::MAX`: never.
    pub(crate) timer: Nanos,
}

impl Exchange {
    // Short messages.

    /// Puts a short message into its peer's ring, as the requester's next piece. Returns when the requester's timer
    /// is due (`Nanos::MAX`: never); `None`: nothing happened. The clock is read after the message was published.
    #[inline]
    pub(crate) fn send_short(
        &mut self,
        core: &DeviceCore,
        now: impl FnOnce() -> Nanos,
        short: &ShortSend<'_>,
    ) -> Option<Nanos> {
        let path = self.paths.get(&short.entry.tpn);
        let path = path.filter(|path| !path.dead && !path.standard)?;
        let peer = self.peers.for_message(&path.eid)?;
        let ack_delay = &mut self.ack_delay;
        let now = || {
            let now = now();
            ack_delay.on_return(now);
            now
        };
        let is_sent = peer.send_short(core, (now, &self.senders), short);
        let timer = is_sent.then(|| peer.requester.timer());
        self.peers.after_send();
        timer
    }

    // Queues.

    pub(crate) fn add_send(&mut self, side: SendSide) {
        self.senders.add(side);
    }

    /// Removes a send queue, and forgets its requests without completing them.
    pub(crate) fn remove_send(&mut self, core: &DeviceCore, id: u32) {
        self.unbind_standard(core, id);
        for peer in self.peers.values_mut() {
            peer.requester.purge(&peer.line, id);
            peer.requester.forget_forms();
        }
        self.senders.remove(id);
        self.forget_posted(id);
    }

    /// Binds RC jetty `id`: only `to` may send to it; `None`: no jetty may. `false`: there is no such path or RC
    /// receiving side, or the standard opcodes cannot name the jetties.
    pub(crate) fn bind(&mut self, core: &DeviceCore, id: u32, to: Option<BoundTo>) -> bool {
        let Some(BoundTo { tpn, remote_id, psns }) = to else {
            self.unbind_standard(core, id);
            return self.receives.bind(id, None);
        };
        let Some(path) = self.paths.get(&tpn) else { return false };
        let (peer, is_standard) = (path.eid, path.standard);
        if is_standard {
            return self.bind_standard(core, id, BoundPair { tpn, peer, remote_id, psns });
        }
        self.receives.bind(id, Some((peer, remote_id)))
    }

    /// Sets the state of a receiving side: ERROR flushes posted receives, also those posted later.
    pub(crate) fn set_recv_state(&mut self, core: &DeviceCore, id: u32, state: QueueState) {
        self.receives.set_state(id, state);
        let status = match state {
            QueueState::Error => CqeStatus::WrFlushErr,
            QueueState::Reset => CqeStatus::WrUnhandled,
            QueueState::Ready | QueueState::Suspended => return,
        };
        self.each_peer(core, 0, |peer, work, _| {
            peer.responder.abort_messages(work, id, status);
        });
        self.end_standard(core, id);
        self.receives.step_flushes(core);
    }

    /// Drops references to dead segments.
    pub(crate) fn forget_dead(&mut self) {
        self.cache.drop_dead();
        self.receive_cache.drop_dead();
        self.senders.forget_dead();
    }

    /// Removes all queues, groups and paths. Sequences with other nodes continue: those nodes do not know.
    pub(crate) fn reset(&mut self, core: &DeviceCore) {
        for peer in self.peers.values_mut() {
            peer.forget_queues();
        }
        for tpn in std::mem::take(&mut self.paths).into_keys() {
            core.tables.remove_link(tpn);
        }
        self.standard = StandardJetties::default();
        self.closing.clear();
        self.look_at = Nanos::MAX;
        self.senders = SendQueueTable::default();
        self.receives = ReceivingSides::default();
        self.cache = SegmentCache::of_any();
        self.receive_cache = SegmentCache::of(FunctionId::FIRST);
    }

    // Progress.

    /// Begins a step: flushes, closing paths. Returns whether anything was done.
    pub(crate) fn begin_step(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        let busy = self.receives.step_flushes(core);
        self.close_paths(core, now);
        busy
    }

    /// Does one bounded round of listed queues (`core.next_listed()`), rings, TPs and timers. Returns whether
    /// anything was done.
    pub(crate) fn full_round(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        self.endpoint.on_time(now);
        let busy = self.prompt_round(core, now);
        self.look_after_peers(core, now);
        busy
    }

    /// Does the part of a round that programs wait for: mail and pieces. Returns whether anything was done.
    pub(crate) fn prompt_round(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        let mut busy = self.take_mail(core, now);
        self.turns.on_other();
        self.ack_delay.on_return(now);
        let of_packets = self.packet_answers;
        self.each_peer(core, now, |peer, work, inbox| {
            if peer.is_due(work.core, work.now) {
                let answers = if peer.line.is_packets() { of_packets } else { Answers::Go };
                busy |= peer.exchange_pieces(work, inbox, answers);
            }
        });
        busy | self.step_standard(core, now)
    }

    /// Whether any node is reached by packets, or may be.
    pub(crate) fn has_packet_peers(&self) -> bool {
        !self.endpoint.is_unused() || !self.standard.is_empty()
    }

    /// Notes that packets brought something, in a pass of `by`. If the program polls and usually posts soon after it
    /// got a message, the acknowledgement waits for its post, for a few polls at most.
    pub(crate) fn on_packets(&mut self, by: LinkVisitor) {
        self.packet_answers = match by {
            LinkVisitor::Poll => Answers::MayWait,
            LinkVisitor::Thread => Answers::Go,
        };
    }

    /// Whether a round has only mail and pieces to handle: no path is closing, no receive is being flushed, no node
    /// is reached by packets.
    pub(crate) fn is_plain(&self) -> bool {
        self.closing.is_empty() && !self.receives.is_flushing() && !self.has_packet_peers()
    }

    /// Does a round of mail and pieces, when [`Exchange::is_plain`].
    pub(crate) fn plain_round(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        by: PlainStep,
    ) -> PlainRound {
        self.take_mail(core, now);
        self.turns.on_other();
        let answers = if by == PlainStep::Poll { self.ack_delay.answers() } else { Answers::Go };
        let mut is_taken = false;
        let mut round = PlainRound { has_cut_off: false, timer: Nanos::MAX };
        self.each_peer(core, now, |peer, work, inbox| {
            if peer.has_work() {
                is_taken |= peer.exchange_pieces(work, inbox, answers);
                round.has_cut_off |= peer.line.is_cut_off;
            }
            round.timer = round.timer.min(peer.requester.timer());
        });
        if is_taken && by == PlainStep::Poll {
            self.ack_delay.on_taken(now);
        }
        round
    }

    /// Notes that the program posts or polls.
    #[inline]
    pub(crate) fn on_return(&mut self, now: Nanos) {
        self.ack_delay.on_return(now);
    }

    /// Whether messages have answered each other for long enough to enter ping-pong mode.
    #[inline]
    pub(crate) fn may_converse(&self) -> bool {
        self.turns.are_enough()
    }

    /// Takes the send queues with completions in their mail, which the caller has to wake.
    pub(crate) fn drain_ended(&mut self) -> impl Iterator<Item = u32> + '_ {
        self.senders.wake.drain(..)
    }

    /// Whether another round would find work now; also the last check before sleep.
    pub(crate) fn has_work(&self) -> bool {
        self.endpoint.has_work() || self.standard.has_work() || self.peers.has_work()
    }

    /// Whether another round would find work now. Packets to be sent do not count: no round sends.
    pub(crate) fn has_pieces(&self) -> bool {
        self.endpoint.has_pieces() || self.standard.has_work() || self.peers.has_work()
    }

    /// Whether a packet waits to be sent.
    pub(crate) fn has_transmit(&self) -> bool {
        self.endpoint.has_work() || self.endpoint.has_replies() || self.standard.has_work()
    }

    /// Whether a step would find nothing but timers: no piece waits, and no receive is to be completed.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let has_packets = self.endpoint.has_work() || self.standard.has_work();
        !self.receives.is_flushing() && !has_packets && self.peers.is_idle()
    }

    /// Adds to a poll's idle snapshot the words that show when there is something to do. Returns whether words can
    /// show it.
    pub(crate) fn note_idle(&self, sign: &WorkSign, idle: &mut IdleSnapshot) -> bool {
        self.peers.note_idle(sign, idle)
    }

    pub(crate) fn poll_deadline(&self) -> Deadline {
        let look_at = (self.look_at != Nanos::MAX).then_some(self.look_at);
        let peers = self.peers.values().filter_map(|peer| peer.poll_deadline(&self.endpoint));
        let packets = [self.endpoint.poll_deadline(), self.standard.deadline()];
        peers.chain(look_at).chain(packets.into_iter().flatten()).min()
    }

    fn take_mail(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        let mut busy = false;
        for _ in 0..QUEUES_PER_ROUND {
            let Some(id) = core.next_listed() else { break };
            busy |= self.take_mail_of(core, now, id);
        }
        busy
    }

    fn take_mail_of(&mut self, core: &DeviceCore, now: Nanos, id: u32) -> bool {
        let Some(sender) = self.senders.get_mut(id) else { return false };
        if sender.side.mail.take_purge() {
            for peer in self.peers.values_mut() {
                peer.requester.purge(&peer.line, id);
            }
            self.purge_standard(core, id);
        }
        let mut busy = false;
        while let Some(handed) = self.senders.next_handed(id) {
            busy = true;
            if let Err(status) = self.take_handed(core, now, id, &handed) {
                self.senders.end(id, handed.seq, status, 0);
            }
        }
        busy
    }

    fn take_handed(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        id: u32,
        handed: &Handed,
    ) -> Result<(), CqeStatus> {
        if self.standard.has(id) {
            return self.post_standard(core, now, (id, handed));
        }
        let sqe = Sqe::decode(&handed.words).map_err(|_| CqeStatus::LocOperation)?;
        let path = self.paths.get(&sqe.tpn).ok_or(CqeStatus::LocOperation)?;
        let (eid, dead) = (path.eid, path.dead);
        let state::ExchangeParts { peers, work, .. } = self.split(core, now);
        let peer = peers.get_mut(&eid).filter(|_| !dead).ok_or(CqeStatus::AckTimeout)?;
        let header = work.senders.header(id, &sqe, handed.len);
        let header = header.ok_or(CqeStatus::UnsupportedOpcode)?;
        peer.requester.take_request(&work, &peer.line, handed, (header, Local::of(&sqe)));
        Ok(())
    }
}

#[cfg(test)]
mod tests;
