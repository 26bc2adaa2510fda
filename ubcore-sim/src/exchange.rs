//! Requests that need the peer: from a send queue's mail to the completion, and the other node's side.
//!
//! Each peer has a requester for the requests of this node's queues, a responder for those of its own queues, and a
//! carrier below both. Everything here runs under the device's one `Serial`, and touches a send queue only through
//! its mail; the caller then wakes the queues that [`Exchange::drain_ended`] gives.

mod ack_delay;
mod initiator;
mod owners;
mod pair;
pub(crate) mod paths;
mod peers;
mod ping_pong_mode;
mod short;
mod standard;
mod target;

use std::{collections::BTreeMap, sync::Arc};

use ack_delay::{AckDelay, Answers, PROMPT_NS, RETURNS_MIN};
use initiator::send_queues::SendQueueTable;
use owners::LoopbackOwners;
use peers::{
    KnownPeers,
    peer::{FormTaken, Peer, UsedPath},
};
use ping_pong_mode::Turns;
use standard::{BoundPair, StandardJetties};
use target::{
    RequestFragment, RequestSource,
    guesses::{Guesser, TargetGuesses},
    message::{self, MessageProgress},
    receive::{ReceivingSides, Unsequenced},
};
use udma_abi::{
    CmdStatus, CqeStatus, Nanos, RawEid, Sqe,
    cmd::{Mode, QueueState, TpPath},
};
use urma_mem::{
    Region,
    idle::{IdleSnapshot, WorkSign},
};
use urma_packet::PacketHeader;

use crate::{
    carrier::piece::Payload,
    cfg::DeviceCfg,
    context::{function::FunctionId, jfc::JfcPort, segment::SegmentCache},
    endpoint::{EndpointEvent, Reception, TpEndpoint},
    engine::{
        core::DeviceCore,
        gather::{Local, Segments},
        mail::{HANDED_OVER_MAX, Handed, Mail},
        send::ShortSend,
    },
    ports::{Deadline, LinkVisitor, Transmit},
};

pub(crate) use ping_pong_mode::{AnswerEntry, PingPongMode};

/// Send queues whose mail is taken in one round.
const QUEUES_PER_ROUND: usize = 256;

/// All state of the exchange: peers, paths, queues and outstanding requests of one node.
#[derive(Debug)]
pub(crate) struct Exchange {
    /// Source and destination of packets.
    pub(crate) endpoint: TpEndpoint,
    pub(crate) peers: KnownPeers,
    /// Users of the loopback addresses of this host, for the places of peers.
    pub(crate) owners: LoopbackOwners,
    /// Token guesses of all peers.
    pub(crate) targets: TargetGuesses,
    /// Halves of the peers on this host.
    pub(crate) peer_halves: BTreeMap<RawEid, Region>,
    pub(crate) paths: BTreeMap<u32, UsedPath>,
    /// Paths without users, and when to check them at the latest.
    pub(crate) closing: Vec<u32>,
    pub(crate) look_at: Nanos,
    pub(crate) senders: SendQueueTable,
    /// RC jetties that speak the standard opcodes.
    pub(crate) standard: StandardJetties,
    /// Whether the last packet sent was of a standard jetty.
    pub(crate) sent_standard: bool,
    pub(crate) receives: ReceivingSides,
    pub(crate) ack_delay: AckDelay,
    /// Decides when ping-pong mode begins.
    pub(crate) turns: Turns,
    /// Whether acknowledgements of messages from packets may wait: a poll of the program took the latest.
    pub(crate) packet_answers: Answers,
    /// Cache of segments that peers accessed.
    pub(crate) cache: SegmentCache,
    /// Cache of segments that receives named, of one function.
    pub(crate) receive_cache: SegmentCache,
    /// Buffer for the payload of the piece that is sent.
    pub(crate) bytes: Vec<u8>,
    /// Buffer for the payload of the piece that was received.
    pub(crate) inbox: Vec<u8>,
}

/// The exchange taken apart, while one of its peers or connections works.
pub(crate) struct ExchangeParts<'a> {
    pub(crate) peers: &'a mut BTreeMap<RawEid, Peer>,
    pub(crate) standard: &'a mut StandardJetties,
    /// Everything that the work for one of them needs.
    pub(crate) work: ExchangeContext<'a>,
    pub(crate) inbox: &'a mut Vec<u8>,
}

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
    pub(crate) fn new(cfg: &DeviceCfg) -> Self {
        Self {
            endpoint: TpEndpoint::new(cfg),
            peers: KnownPeers::default(),
            owners: LoopbackOwners::default(),
            targets: TargetGuesses::default(),
            peer_halves: BTreeMap::new(),
            paths: BTreeMap::new(),
            closing: Vec::new(),
            look_at: Nanos::MAX,
            senders: SendQueueTable::default(),
            standard: StandardJetties::default(),
            sent_standard: false,
            receives: ReceivingSides::default(),
            ack_delay: AckDelay::new(PROMPT_NS, cfg.ping_pongs.least(RETURNS_MIN)),
            turns: Turns::new(cfg.ping_pongs),
            packet_answers: Answers::Go,
            cache: SegmentCache::of_any(),
            receive_cache: SegmentCache::of(FunctionId::FIRST),
            bytes: Vec::new(),
            inbox: Vec::new(),
        }
    }

    /// Takes the exchange apart, to work on several peers.
    pub(crate) fn split<'a>(&'a mut self, core: &'a DeviceCore, now: Nanos) -> ExchangeParts<'a> {
        let Self {
            peers,
            standard,
            senders,
            receives,
            endpoint,
            targets,
            owners,
            bytes,
            inbox,
            ..
        } = self;
        let (cache, receive_cache) = (&mut self.cache, &mut self.receive_cache);
        let work = ExchangeContext {
            core,
            now,
            senders,
            receives,
            endpoint,
            targets,
            owners,
            cache,
            receive_cache,
            bytes,
        };
        ExchangeParts { peers, standard, work, inbox }
    }

    /// Calls `f` for each peer.
    pub(crate) fn each_peer(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        mut f: impl FnMut(&mut Peer, &mut ExchangeContext<'_>, &mut Vec<u8>),
    ) {
        let ExchangeParts { peers, mut work, inbox, .. } = self.split(core, now);
        for peer in peers.values_mut() {
            f(peer, &mut work, inbox);
        }
    }

    // Arrivals.

    /// Takes an arrival from a node. Returns whether a step is due.
    pub(crate) fn on_arrival(
        &mut self,
        core: &DeviceCore,
        by: Reception<'_>,
        event: EndpointEvent<'_>,
    ) -> bool {
        let ExchangeParts { peers, mut work, inbox, .. } = self.split(core, by.now);
        match event {
            EndpointEvent::Nothing => return false,
            EndpointEvent::Packet(eid) => {
                if let Some(peer) = peers.get_mut(&eid) {
                    peer.has_arrival = true;
                }
            }
            EndpointEvent::Message { number, header, payload } => {
                let tpn = peers.get(&by.from).map_or(0, |peer| peer.tpn_of(Unsequenced::Yes));
                let part =
                    RequestFragment { header: &header, payload: Payload::Here, bytes: payload };
                if work.core.tables.contexts().is_some() {
                    // Counted at once: nothing answers it that could be delayed.
                    target::look_up(&mut work, RequestSource { eid: by.from, tpn }, &header);
                }
                let progress = message::on_datagram(&mut work, by.from, tpn, &part);
                if progress == MessageProgress::Receive {
                    self.endpoint.note_datagram(by.from, number);
                }
            }
            EndpointEvent::Connect(header) => return self.on_connect(core, by, &header),
            EndpointEvent::Opened(new) => {
                let was_shut = peers.get_mut(&by.from).is_some_and(|peer| {
                    let was_shut = peer.is_shut;
                    peer.on_new_tp(&mut work, &new);
                    was_shut
                });
                // A node that did not announce its close may be the old or a new life: an import may be of either.
                if was_shut {
                    self.end_former_paths(core, by.from);
                }
            }
            EndpointEvent::Closed(reason) => {
                if let Some(peer) = peers.get_mut(&by.from) {
                    // Responses before the CLOSE complete their requests as usual.
                    peer.take_last_messages(&mut work, inbox);
                    peer.on_closed(&mut work, reason);
                }
                self.endpoint.drop_closed(by.from, reason);
            }
        }
        true
    }

    /// Accepts a node that has proven its address and asks for a TP as a peer, if there is a place for it.
    fn on_connect(&mut self, core: &DeviceCore, by: Reception<'_>, connect: &PacketHeader) -> bool {
        if !self.peers.contains_key(&by.from) && !self.has_place(core, by.now, Some(by.from)) {
            self.endpoint.refuse(by, connect);
            return false;
        }
        self.peers.entry(by.from).or_insert_with(|| Peer::since(by.now, by.from, None));
        self.on_packet_peer(by.from);
        let event = self.endpoint.on_handshake(by, connect);
        self.on_arrival(core, by, event)
    }

    // Short messages.

    /// Takes the message that a poll found, if nothing else had to be done before it and the program usually comes
    /// back soon. Returns whether it did.
    #[inline]
    pub(crate) fn take_alone(&mut self, core: &DeviceCore, now: Nanos) -> bool {
        if self.ack_delay.answers() != Answers::MayWait || !core.tables.has_message_lane() {
            return false;
        }
        let Some(from) = self.peers.awaited() else { return false };
        let ExchangeParts { peers, mut work, .. } = self.split(core, now);
        let taken = peers.get_mut(&from).and_then(|peer| peer.take_alone(&mut work));
        match taken {
            None => return false,
            Some(FormTaken::Answer) => self.turns.on_turn(),
            Some(FormTaken::Other) => self.turns.on_other(),
        }
        self.ack_delay.on_taken(now);
        true
    }

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

    /// Writes the next packet to send to the front of `buf`.
    pub(crate) fn poll_transmit(
        &mut self,
        core: &DeviceCore,
        now: Nanos,
        buf: &mut [u8],
    ) -> Option<Transmit> {
        let own_first = !self.standard.has_work() || std::mem::take(&mut self.sent_standard);
        if own_first && let Some(sent) = self.endpoint.poll_transmit(now, buf) {
            return Some(sent);
        }
        let ExchangeParts { standard, mut work, .. } = self.split(core, now);
        let sent = standard.poll_transmit(&mut work, buf);
        self.sent_standard = sent.is_some();
        if sent.is_none() && !own_first {
            return self.endpoint.poll_transmit(now, buf);
        }
        sent
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
        let mut taken = 0;
        while let Some(handed) = self.senders.next_handed(id) {
            taken += 1;
            if let Err(status) = self.take_handed(core, now, id, &handed) {
                self.senders.end(id, handed.seq, status, 0);
            }
        }
        if taken >= HANDED_OVER_MAX {
            // It may have found the mailbox full.
            self.senders.wake(id);
        }
        taken > 0
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
        let ExchangeParts { peers, work, .. } = self.split(core, now);
        let peer = peers.get_mut(&eid).filter(|_| !dead).ok_or(CqeStatus::AckTimeout)?;
        let sender = work.senders.get(id).ok_or(CqeStatus::UnsupportedOpcode)?;
        let initiator = pair::initiator(id, sender.side.is_jetty);
        let header = initiator::next_piece::header(&sqe, initiator, sender.side.mode, handed.len);
        let header = header.ok_or(CqeStatus::UnsupportedOpcode)?;
        peer.requester.take_request(&work, &peer.line, handed, (header, Local::of(&sqe)));
        Ok(())
    }
}

/// The sending side of a queue.
#[derive(Clone, Debug)]
pub(crate) struct SendSide {
    pub(crate) id: u32,
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) mail: Arc<Mail>,
    pub(crate) rnr_retry: u8,
    /// Error timeout as a code: 4.096 us << n.
    pub(crate) err_timeout: u8,
    /// 0 to 15; 15 is the most urgent.
    pub(crate) priority: u8,
}

/// The receiving side of a queue with a ring of its own (JFR, or jetty).
#[derive(Clone, Debug)]
pub(crate) struct RecvSide {
    pub(crate) id: u32,
    /// Function that owns the queue.
    pub(crate) owner: FunctionId,
    pub(crate) is_jetty: bool,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) ring: Region,
    pub(crate) depth_log2: u8,
    pub(crate) max_sge: u8,
    pub(crate) record: Region,
    pub(crate) port: JfcPort,
    /// RNR timer as a code of the IB table.
    pub(crate) min_rnr_timer: u8,
    pub(crate) token: Option<u32>,
}

/// The receiving side of a jetty that uses a shared JFR.
#[derive(Clone, Debug)]
pub(crate) struct SharedSide {
    pub(crate) id: u32,
    pub(crate) mode: Mode,
    pub(crate) cookie: u64,
    pub(crate) jfr: u32,
    /// The jetty's own JFC; `None`: that of the JFR.
    pub(crate) port: Option<JfcPort>,
    pub(crate) token: Option<u32>,
}

/// Peer jetty of an RC jetty.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct BoundTo {
    /// Path to the peer.
    pub(crate) tpn: u32,
    /// Number of the peer's jetty.
    pub(crate) remote_id: u32,
    /// PSNs of the first packets sent and expected, for the standard opcodes.
    pub(crate) psns: Option<[u32; 2]>,
}

/// State of a connect.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Connecting {
    /// Pending: ask again after the next step.
    Pending,
    /// Connected; the path counts one more user.
    Ready {
        /// Number of the TP, 24 bits.
        tpn: u32,
        /// What carries requests that are not executed directly.
        path: TpPath,
    },
    /// There is no path; the status says why.
    Failed(CmdStatus),
}

/// Everything that the work for one peer needs besides the peer.
#[derive(Debug)]
pub(crate) struct ExchangeContext<'a> {
    pub(crate) core: &'a DeviceCore,
    pub(crate) now: Nanos,
    pub(crate) senders: &'a mut SendQueueTable,
    pub(crate) receives: &'a mut ReceivingSides,
    pub(crate) endpoint: &'a mut TpEndpoint,
    /// Token guesses of peers, and whom they count for.
    pub(crate) targets: &'a mut TargetGuesses,
    pub(crate) owners: &'a mut LoopbackOwners,
    /// Segment cache for accesses of peers.
    pub(crate) cache: &'a mut SegmentCache,
    /// Segment cache for receives, of one function at a time.
    pub(crate) receive_cache: &'a mut SegmentCache,
    pub(crate) bytes: &'a mut Vec<u8>,
}

impl ExchangeContext<'_> {
    /// The source that a peer's token guesses count for.
    pub(crate) fn guesser(&mut self, eid: RawEid) -> Guesser {
        target::guesses::guesser(self.owners, self.now, eid, self.core.tables.cfg.loopback_owners)
    }

    /// All segments, for an access of a peer.
    pub(crate) fn segments(&mut self) -> Segments<'_> {
        Segments { cache: self.cache, table: &self.core.tables.segments }
    }

    /// Access to the segments that a receive of `owner` may name.
    pub(crate) fn segments_of(&mut self, owner: FunctionId) -> Segments<'_> {
        let cache = self.receive_cache.turn_to(owner);
        Segments { cache, table: &self.core.tables.segments }
    }
}

#[cfg(test)]
mod tests;
