//! Two nodes whose programs answer each other, and what both see.

use udma_abi::cmd::QueueFlags;
use udma_abi::counters::Counter;
use udma_abi::sqe::{SqeFlags, SqeTargetKind};
use udma_abi::{Cqe, CqeStatus, Opcode, PollOfOne, ReceivedMessage, Sge, Sqe};

use super::super::{Bench, BenchJfc, BenchQueue, BenchSeg, pair_with};
use super::GOOD;
use crate::cfg::PingPongs;
use crate::exchange::PlainStep;

/// One of two nodes that talk: a jetty, its JFC, its memory.
pub(super) struct TalkSide {
    pub(super) b: Bench,
    pub(super) jetty: BenchQueue,
    pub(super) jfc: BenchJfc,
    pub(super) seg: BenchSeg,
    pub(super) tpn: u32,
    pub(super) sent: Vec<SeenEnd>,
    pub(super) received: Vec<SeenEnd>,
    /// Receives posted so far: each has a place of its own.
    pub(super) receives: u64,
    /// Messages sent so far: each has its own bytes.
    pub(super) sends: u64,
    /// Completions that the device gave to a poll.
    pub(super) given: usize,
}

/// What a completion says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct SeenEnd {
    pub(super) status: CqeStatus,
    pub(super) entry_idx: u16,
    pub(super) len: u32,
    pub(super) opcode: u8,
    pub(super) imm: u64,
    pub(super) from: (u32, u32),
}

/// Everything that both programs see.
#[derive(PartialEq, Eq, Debug)]
pub(super) struct SeenTalk {
    pub(super) ends: [[Vec<SeenEnd>; 2]; 2],
    pub(super) bytes: [Vec<u8>; 2],
    pub(super) counts: [[u64; 3]; 2],
}

/// Two sides that reach each other.
pub(super) struct TalkWorld(pub(super) [TalkSide; 2]);

/// Receives are behind what is sent from.
pub(super) const PLACES: u64 = 1 << 17;
pub(super) const PLACE: u64 = 1024;
pub(super) const TOKEN: u32 = 0x77;
pub(super) const AREA: usize = 1 << 18;

impl From<Cqe> for SeenEnd {
    fn from(cqe: Cqe) -> Self {
        let Cqe { status, entry_idx, byte_cnt: len, opcode, imm, .. } = cqe;
        Self { status, entry_idx, len, opcode, imm, from: (cqe.remote_id, cqe.local_id) }
    }
}

impl From<ReceivedMessage> for SeenEnd {
    fn from(message: ReceivedMessage) -> Self {
        let ReceivedMessage { entry_idx, byte_cnt: len, opcode, imm, .. } = message;
        let from = (message.remote_id, message.local_id);
        Self { status: GOOD, entry_idx, len, opcode, imm, from }
    }
}

impl TalkSide {
    pub(super) fn new(mut b: Bench) -> Self {
        let jfc = b.jfc(9);
        let jetty = b.jetty(8, &jfc, |args| args.flags |= QueueFlags::TOKEN);
        let seg = b.seg(AREA);
        let bytes: Vec<u8> = (0..=250).cycle().take(AREA / 2).collect();
        seg.mem.write(0, &bytes).unwrap();
        let (sent, received) = (Vec::new(), Vec::new());
        Self { b, jetty, jfc, seg, tpn: 0, sent, received, receives: 0, sends: 0, given: 0 }
    }

    pub(super) fn receive(&mut self, len: u32) {
        let at = PLACES + self.receives % 100 * PLACE;
        self.receives += 1;
        let piece = self.seg.sge(at, len);
        self.b.post_recv(&mut self.jetty, &[piece]);
    }

    /// Sends `len` bytes to the jetty `target`.
    pub(super) fn send(&mut self, target: u32, len: u32, change: impl FnOnce(&mut Sqe, &mut Sge)) {
        let mut sqe = Sqe {
            flags: SqeFlags::COMPLETE,
            tpn: self.tpn,
            token_en: true,
            token_value: TOKEN,
            target_kind: SqeTargetKind::Jetty,
            target_id: target,
            ..Sqe::new(Opcode::Send)
        };
        let mut piece = self.seg.sge(self.sends % 300 * 7, len);
        self.sends += 1;
        change(&mut sqe, &mut piece);
        self.b.post_direct(&mut self.jetty, sqe, &[piece]);
    }

    /// A poll after an entry of the peer ended its idle snapshot; it takes what the device passes to it.
    pub(super) fn poll(&mut self) -> usize {
        self.take();
        let mut poll = PollOfOne { of: Some((self.jfc.id, self.jfc.ci)), given: None };
        if !self.b.dev.take_entry(|| self.b.now, &mut poll) {
            self.b.dev.step_found(|| self.b.now, PlainStep::Poll);
        }
        if let Some(message) = poll.given {
            self.given += 1;
            self.received.push(message.into());
        }
        self.take() + usize::from(poll.given.is_some())
    }

    /// A poll by the ring alone.
    pub(super) fn poll_ring(&mut self) -> usize {
        self.b.dev.step_found(|| self.b.now, PlainStep::Poll);
        self.take()
    }

    pub(super) fn take(&mut self) -> usize {
        let mut count = 0;
        while let Some(cqe) = self.b.poll(&mut self.jfc) {
            if cqe.recv {
                self.received.push(cqe.into())
            } else {
                self.sent.push(cqe.into())
            }
            count += 1;
        }
        count
    }

    pub(super) fn counter(&self, counter: Counter) -> u64 {
        self.b.dev.counter(counter)
    }
}

impl TalkWorld {
    pub(super) fn new(ping_pongs: PingPongs) -> Self {
        let (a, b) = pair_with(|cfg| cfg.ping_pongs = ping_pongs);
        let mut sides = [a, b].map(TalkSide::new);
        let eids = [0, 1].map(|n: usize| sides[n].b.eid());
        sides[0].tpn = sides[0].b.connect(eids[1]);
        sides[1].tpn = sides[1].b.connect(eids[0]);
        let mut world = Self(sides);
        (0..4).for_each(|_| world.step_both());
        world
    }

    pub(super) fn step_both(&mut self) {
        for side in &mut self.0 {
            side.b.now += 100_000;
            side.b.dev.step(side.b.now);
        }
    }

    pub(super) fn say(&mut self, from: usize, len: u32, change: impl FnOnce(&mut Sqe, &mut Sge)) {
        let target = self.0[1 - from].jetty.id;
        self.0[from].send(target, len, change);
    }

    /// A message of `from` and its answer, both of `len` bytes.
    pub(super) fn turn(&mut self, from: usize, len: u32) {
        for side in [from, 1 - from] {
            self.0[1 - side].receive(len);
            self.say(side, len, |_, _| {});
            self.0[1 - side].poll();
        }
    }

    pub(super) fn turns(&mut self, count: usize) {
        (0..count).for_each(|_| self.turn(0, 8));
    }

    /// Ends all that is under way, and says what was seen.
    pub(super) fn seen(mut self) -> SeenTalk {
        for _ in 0..400 {
            self.step_both();
            self.0.iter_mut().for_each(|side| {
                side.take();
            });
        }
        let counts = self.0.each_ref().map(|side| {
            [Counter::RingRequests, Counter::RingBytes, Counter::Completions]
                .map(|counter| side.counter(counter))
        });
        let bytes = self.0.each_ref().map(|side| side.seg.bytes(0, AREA));
        SeenTalk { ends: self.0.map(|side| [side.sent, side.received]), bytes, counts }
    }

    pub(super) fn ping_pongs(&self) -> [u64; 2] {
        self.0.each_ref().map(|side| side.counter(Counter::PingPongs))
    }
}
