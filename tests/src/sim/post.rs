//! Posting: a random request, or one by whose completion the model learns its position.
//!
//! *Owns*: which jetty asks which node, flags. *Takes*: the run. *Gives*: posted requests, and the
//! entries of the model. *Must not*: judge.

use urma_core::{LocalSge, PostReason, SendWr, WrFlags};

use super::area::Effect;
use super::book::{Fate, Pending};
use super::draw::{Ask, Draw, Kind};
use super::node::{Lane, SLOT_LEN, View, partner};
use super::run::{Run, has_messages};
use super::side::{Gait, Phase};

/// Sending jetty and target of a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Route {
    pub(super) me: usize,
    pub(super) lane: Lane,
    pub(super) to: usize,
}

/// Whether success makes a completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Signal {
    Yes,
    Maybe,
}

impl Run<'_> {
    /// Posts one request of node `me`, if it has any left; false when it should not go on.
    pub(super) fn post_random(&mut self, me: usize) -> Result<bool, String> {
        if self.nodes[me].left == 0 || self.nodes[me].free.is_empty() {
            return Ok(false);
        }
        let Some(route) = self.route(me) else { return Ok(true) };
        let side = &self.nodes[me].sides[route.lane as usize];
        let traffic = &side.traffic[route.to];
        if !matches!(side.gait, Gait::Ready | Gait::Suspended) || side.is_lost {
            return Ok(true);
        }
        match traffic.phase {
            Phase::Marked(_) => return Ok(true),
            Phase::Broken if side.requests.is_empty() && side.gait == Gait::Ready => {
                let draw = Draw::mark(&mut self.rng);
                let number = self.next_number;
                if self.post(route, &draw, Signal::Yes)? {
                    let traffic = &mut self.nodes[me].sides[route.lane as usize].traffic[route.to];
                    traffic.phase = Phase::Marked(number);
                }
                return Ok(true);
            }
            Phase::Broken => return Ok(true),
            // A node that has not noticed the end of its target goes on for a while.
            Phase::Gone if !goes_on(route.lane) || self.rng.chance_ppm(800_000) => {
                return Ok(true);
            }
            Phase::Gone | Phase::Open => {}
        }
        let word = |word| traffic.area.word(word);
        let mut draw = Draw::new(&mut self.rng, self.plan, route.lane, word);
        if draw.kind == Kind::Invalidate
            && (traffic.victim != Fate::Success || traffic.phase != Phase::Open)
        {
            draw.kind = Kind::Nop;
        }
        let posted = self.post(route, &draw, Signal::Maybe)?;
        if posted {
            self.nodes[me].left -= 1;
            if draw.kind == Kind::Invalidate {
                self.nodes[me].sides[route.lane as usize].traffic[route.to].victim = Fate::Refused;
            }
        }
        Ok(posted)
    }

    /// Draws the sending jetty and its target.
    fn route(&mut self, me: usize) -> Option<Route> {
        let count = self.nodes.len();
        let lanes = if has_messages(self.plan) { 4 } else { Lane::WITH_AREA };
        let lane = Lane::ALL[self.rng.index(lanes)];
        let other = (me + 1 + self.rng.index(count - 1)) % count;
        let to = if lane == Lane::Paired { partner(me, count)? } else { other };
        Some(Route { me, lane, to })
    }

    /// Unsignalled outstanding requests need a signalled one behind them.
    pub(super) fn close_sides(&mut self, me: usize) -> Result<(), String> {
        for lane in Lane::ALL {
            let side = &self.nodes[me].sides[lane as usize];
            let is_open = side.gait == Gait::Ready && !side.is_lost && side.requests.is_silent();
            let has_slot = !self.nodes[me].free.is_empty();
            let now = self.nodes[me].left == 0 || self.rng.chance_ppm(100_000);
            if is_open && has_slot && now {
                let count = self.nodes.len();
                let to = partner(me, count).unwrap_or((me + 1) % count);
                let mut draw = Draw::mark(&mut self.rng);
                draw.kind = if lane == Lane::Datagrams { Kind::Send } else { Kind::Nop };
                self.post(Route { me, lane, to }, &draw, Signal::Yes)?;
            }
        }
        Ok(())
    }

    /// Posts `draw` and records it in the model; false when the queue is full.
    fn post(&mut self, route: Route, draw: &Draw, signal: Signal) -> Result<bool, String> {
        let Route { me, lane, to } = route;
        let number = self.next_number;
        let signalled = signal == Signal::Yes || !self.rng.chance_ppm(300_000);
        let any_fence = self.rng.chance_ppm(50_000);
        let Some(&slot) = self.nodes[me].free.last() else { return Ok(false) };
        let lent = self.nodes[to].program.as_ref().map(|program| program.view.lent.fate());
        let node = &mut self.nodes[me];
        let side = &mut node.sides[lane as usize];
        let effects = draw.effects();
        let late = |range| side.requests.is_read(to, &range);
        let changes = || effects.iter().filter(|effect| !effect.is_read());
        // Answers to reads may be gathered late; see the room of areas.
        let withdraws = draw.kind == Kind::Invalidate;
        let fence = withdraws || changes().any(|effect| late(effect.range())) || any_fence;
        let mut flags = WrFlags::empty();
        flags.set(WrFlags::COMPLETE, signalled);
        flags.set(WrFlags::FENCE, fence && lane != Lane::Datagrams);

        let Some(program) = node.program.as_mut() else { return Ok(false) };
        let Some(peer) = program.view.peers[to].as_ref() else { return Ok(false) };
        program.view.local.write(slot * SLOT_LEN, &draw.bytes).map_err(|e| e.to_string())?;
        let is_lent = draw.kind == Kind::Probe(Ask::Lent);
        if is_lent && peer.lent.is_none() {
            return Ok(false);
        }
        let pieces = pieces(&program.view, slot, draw.bytes.len());
        let op = draw.op(peer, (me, lane), &pieces, program.view.sge(slot, 0, 8));
        let target = &peer.targets[lane.receiver() as usize];
        let wr = SendWr { flags, ..SendWr::new(op, target, number) };
        match program.jetties[lane as usize].post_send(&[wr]).map_err(|error| error.reason) {
            Ok(()) => {}
            Err(PostReason::Full) => return Ok(false),
            Err(reason) => return Err(format!("request {number} was refused: {reason}")),
        }
        self.fabric.note(format_args!("post {number} {route:?} {:?} {flags:?}", draw.kind));
        let traffic = &mut side.traffic[to];
        let reads = effects.iter().find(|effect| effect.is_read()).map(Effect::range);
        let fate = draw.fate(traffic.victim, lent.unwrap_or(Fate::Refused));
        let doomed = traffic.phase == Phase::Gone;
        // A datagram to a dead node may be late enough for its next life.
        if !doomed || lane == Lane::Datagrams {
            traffic.line.extend(draw.message(number, peer));
        }
        if !doomed {
            effects.into_iter().for_each(|effect| traffic.area.push(number, effect));
        }
        let brings = draw.brings();
        let request = Pending { number, to, signalled, slot, fate, doomed, brings, is_lent, reads };
        side.requests.push(request);
        node.free.pop();
        self.next_number += 1;
        self.check_area(route)?;
        Ok(true)
    }
}

/// Whether jetties of `lane` post to a node that died before they notice. A connection ends with
/// it, and datagrams to it are lost.
const fn goes_on(lane: Lane) -> bool {
    matches!(lane, Lane::Main | Lane::Restless)
}

/// Two pieces of the slot, in order.
fn pieces(view: &View, slot: usize, len: usize) -> Vec<LocalSge<'_>> {
    let cut = len / 3;
    let pieces = [(0, cut), (cut, len - cut)].into_iter().filter(|&(_, len)| len > 0);
    pieces.map(|(at, len)| view.sge(slot, at, len)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::idle::{accepts, refuses, spoil};
    use super::*;

    const ROUTE: Route = Route { me: 0, lane: Lane::Main, to: 1 };

    /// A message in transit from node 0 to node 1.
    fn send(run: &mut Run<'_>) -> Result<(), String> {
        let draw = Draw::mark(&mut run.rng);
        run.post(ROUTE, &draw, Signal::Yes).map(|posted| assert!(posted, "there is room"))
    }

    #[test]
    fn a_post_that_the_queue_refuses_is_refused() {
        refuses(&[
            ("a request", "request 1 was refused: ", |run| {
                // An RM jetty names an RC target.
                let peer = run.program(0).and_then(|program| program.view.peers[1].as_mut());
                peer.expect("imported").targets.swap(Lane::Main as usize, Lane::Paired as usize);
                send(run)
            }),
            ("a receive", "a receive was refused: ", |run| {
                // A jetty of one node names memory of the other.
                let [first, second, ..] = &mut run.nodes[..] else { return Ok(()) };
                let programs = (first.program.as_mut(), second.program.as_mut());
                let (Some(first), Some(second)) = programs else { return Ok(()) };
                std::mem::swap(&mut first.jetties, &mut second.jetties);
                first.post_receive(Lane::Main, 0, 0).map(|_| ())
            }),
            ("memory that changed meanwhile", "area of Main of 0 at 1: byte 300", |run| {
                spoil(run, 300, &[7]);
                send(run)
            }),
        ]);
        accepts(&[("as it should be", send)]);
    }

    /// What was posted must end: the model waits for it.
    #[test]
    fn what_was_posted_is_due() {
        accepts(&[("a message", |run| {
            send(run)?;
            let side = &run.nodes[0].sides[Lane::Main as usize];
            assert_eq!((side.requests.len(), side.traffic[1].line.len()), (1, 1));
            assert!(!run.nodes[0].is_done());
            Ok(())
        })]);
    }
}
