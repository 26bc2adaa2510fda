//! Trouble: jetties that are stopped under traffic, nodes that die and come back, or stop for a
//! while.
//!
//! *Owns*: when it happens. *Takes*: the run. *Gives*: its entry in the model. *Must not*: judge.

use urma_core::{Completion, JettyState, Status};

use super::book::Fate;
use super::node::{Lane, Program, partner};
use super::run::Run;
use super::side::{Gait, Phase, Traffic};

/// Longest time that a node is dead, in ns.
const DEAD_NS: u64 = 40_000_000;
/// Longest time that a node is stopped, in ns: a TP gives up after 1 s to 2.1 s, and a silent peer is
/// waited for at least 4 s.
const STOP_NS: u64 = 8_000_000_000;
/// Times that a program asks for an import while ports are pulled.
const MEETINGS: usize = 5;
const DATAGRAMS: usize = Lane::Datagrams as usize;
const RESTLESS: usize = Lane::Restless as usize;
const PAIRED: usize = Lane::Paired as usize;

impl Run<'_> {
    /// Suspends, resets or deletes the restless jetty of `node`, or brings it back.
    pub(super) fn trouble(&mut self, node: usize) -> Result<(), String> {
        let is_over = self.nodes[node].left == 0;
        let side = &self.nodes[node].sides[RESTLESS];
        match side.gait {
            Gait::Ready if is_over || !self.rng.chance_ppm(self.plan.trouble_ppm) => Ok(()),
            Gait::Ready => match self.rng.below(5) {
                0 => self.change(node, JettyState::Suspended, Gait::Suspended),
                1 => self.stop(node, JettyState::Error, Gait::Error),
                2 => self.flush(node),
                3 => self.stop(node, JettyState::Reset, Gait::Reset),
                _ => self.renew(node, Lane::Restless),
            },
            // Requests to a dead node wait in it until that node is back.
            Gait::Suspended if is_over || self.rng.chance_ppm(self.resume_ppm()) => {
                self.change(node, JettyState::Ready, Gait::Ready)
            }
            Gait::Suspended if self.rng.chance_ppm(20_000) => {
                self.stop(node, JettyState::Error, Gait::Error)
            }
            Gait::Flushed => {
                self.change(node, JettyState::Reset, Gait::Reset)?;
                self.change(node, JettyState::Ready, Gait::Ready)
            }
            Gait::Reset => self.leave_reset(node),
            Gait::Suspended | Gait::Error => Ok(()),
        }
    }

    /// Chance that a suspended jetty goes on in a turn, in a million.
    fn resume_ppm(&self) -> u32 {
        let all_live = self.nodes.iter().all(|node| node.program.is_some());
        if all_live { 300_000 } else { 5_000 }
    }

    fn change(&mut self, node: usize, state: JettyState, gait: Gait) -> Result<(), String> {
        self.fabric.note(format_args!("{node} restless: {state:?}"));
        let Some(program) = self.program(node) else { return Ok(()) };
        let changed = program.jetties[RESTLESS].modify(state);
        self.nodes[node].sides[RESTLESS].gait = gait;
        changed.map_err(|status| format!("node {node}, to {state:?}: {status}"))
    }

    /// To a state in which what is outstanding breaks down.
    fn stop(&mut self, node: usize, state: JettyState, gait: Gait) -> Result<(), String> {
        self.nodes[node].sides[RESTLESS].break_down();
        self.change(node, state, gait)
    }

    fn flush(&mut self, node: usize) -> Result<(), String> {
        self.fabric.note(format_args!("{node} restless: flush"));
        self.nodes[node].sides[RESTLESS].break_down();
        self.nodes[node].sides[RESTLESS].gait = Gait::Error;
        let mut flushed = [Completion::default(); 8];
        let Some(program) = self.program(node) else { return Ok(()) };
        let count = program.jetties[RESTLESS].flush(&mut flushed);
        let count = count.map_err(|status| format!("flush of node {node}: {status}"))?;
        self.arm(node, self.plan.arm_aside_ppm)?;
        flushed[..count].iter().try_for_each(|completion| self.on_request(node, completion))
    }

    /// Once everything of before the reset ended.
    fn leave_reset(&mut self, node: usize) -> Result<(), String> {
        let Some(program) = self.program(node) else { return Ok(()) };
        let status = program.jetties[RESTLESS].query().map_err(|status| status.to_string())?;
        if status.send_pending > 0 {
            return Ok(());
        }
        self.poll(node)?;
        self.retire_silent(node, Lane::Restless)?;
        self.change(node, JettyState::Ready, Gait::Ready)
    }

    /// Deletes the jetty of `lane` under traffic and makes it again.
    fn renew(&mut self, node: usize, lane: Lane) -> Result<(), String> {
        self.fabric.note(format_args!("{node} {lane:?}: renewed"));
        self.nodes[node].sides[lane as usize].break_down();
        let Some(program) = self.program(node) else { return Ok(()) };
        let renewed = program.renew(lane);
        renewed.map_err(|status| format!("node {node}, renewing {lane:?}: {status}"))?;
        self.arm(node, self.plan.arm_aside_ppm)?;
        self.poll(node)?;
        self.retire_silent(node, lane)
    }

    /// `me` imports what `other` offers. While ports are pulled, and those of the EIDs nearly all the time, a
    /// handshake may find none of its moments: as programs do, this one asks again.
    pub(super) fn meet(&mut self, me: usize, other: usize) -> Result<(), Status> {
        let face = self.nodes[other].program.as_ref().map(Program::face);
        let tries = if self.plan.fabric.faults.outages.is_empty() { 1 } else { MEETINGS };
        let (Some(program), Some(face)) = (self.program(me), face) else { return Ok(()) };
        let mut met = program.meet(me, other, &face);
        for _ in 1..tries {
            if met != Err(Status::TimedOut) {
                break;
            }
            met = program.meet(me, other, &face);
        }
        met
    }

    /// Kills `node` or starts it again, when it is time.
    pub(super) fn life(&mut self, node: usize) -> Result<(), String> {
        let is_dead = self.nodes[node].program.is_none();
        if is_dead && self.fabric.now() >= self.nodes[node].back_at {
            return self.revive(node);
        }
        if self.stops > 0
            && self.plan.stopped() == Some(node)
            && self.all_run()
            && self.rng.chance_ppm(20_000)
        {
            self.stops -= 1;
            self.pause(node);
        }
        let all_live = self.nodes.iter().all(|node| node.program.is_some());
        if self.kills > 0 && all_live && self.rng.chance_ppm(20_000) {
            self.kills -= 1;
            self.suspend_survivors(node)?;
            self.kill(node);
        }
        Ok(())
    }

    /// Suspends some jetties of others, with requests to `node` in them, before it dies: what is
    /// posted and not started when a target dies has to end as what was started.
    fn suspend_survivors(&mut self, node: usize) -> Result<(), String> {
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            if self.nodes[other].sides[RESTLESS].gait == Gait::Ready && self.rng.chance_ppm(500_000)
            {
                self.change(other, JettyState::Suspended, Gait::Suspended)?;
            }
        }
        Ok(())
    }

    /// Whether no node is stopped.
    pub(super) fn all_run(&self) -> bool {
        (0..self.nodes.len()).all(|node| self.fabric.runs(node))
    }

    /// Stops program and device of `node` for a while, which may fail no request of any node.
    fn pause(&mut self, node: usize) {
        let ns = self.rng.below(STOP_NS);
        self.fabric.stop(node, ns);
        for due in self.nodes[node].events.iter_mut().filter_map(|events| events.due.as_mut()) {
            *due += ns;
        }
    }

    fn kill(&mut self, node: usize) {
        match self.plan.are_kills_closes {
            true => self.fabric.close(node),
            false => self.fabric.kill(node),
        }
        self.graves.extend(self.nodes[node].program.take());
        self.nodes[node].back_at = self.fabric.now() + self.rng.below(DEAD_NS);
        // Datagrams are never missed: nothing has to follow them.
        for side in &mut self.nodes[node].sides[..DATAGRAMS] {
            side.break_down();
        }
        for other in (0..self.nodes.len()).filter(|&other| other != node) {
            let datagrams = self.nodes[other].take_datagrams(node);
            for side in &mut self.nodes[other].sides {
                side.requests.doom(Some(node));
                side.traffic[node] = Traffic { phase: Phase::Gone, ..Traffic::default() };
            }
            self.nodes[other].sides[DATAGRAMS].traffic[node].line = datagrams;
        }
        if let Some(other) = partner(node, self.nodes.len()) {
            let side = &mut self.nodes[other].sides[PAIRED];
            side.requests.doom(None);
            side.is_lost = true;
        }
    }

    fn revive(&mut self, node: usize) -> Result<(), String> {
        let count = self.nodes.len();
        let say = |what: &str, status: Status| format!("next life of {node}, {what}: {status}");
        // Imports and the pair of the life before go first: what they still hold open would reach
        // the next one.
        if let Some(survivor) = partner(node, count) {
            self.end_pair(survivor)?;
        }
        for other in (0..count).filter(|&other| other != node) {
            if let Some(program) = self.program(other) {
                program.view.peers[node] = None;
            }
        }
        self.fabric.restart(node).map_err(|error| error.to_string())?;
        let program = Program::open(&self.fabric, node, count, self.plan.err_timeout(node));
        self.nodes[node].begin(program.map_err(|status| say("opening", status))?);
        let others: Vec<_> = (0..count).filter(|&other| other != node).collect();
        for &other in &others {
            self.meet(node, other).map_err(|status| say("importing", status))?;
            self.meet(other, node).map_err(|status| say("being imported", status))?;
            let mut datagrams = self.nodes[other].take_datagrams(node);
            datagrams.begin_again();
            for side in &mut self.nodes[other].sides {
                side.traffic[node] = Traffic::default();
            }
            self.nodes[other].sides[DATAGRAMS].traffic[node].line = datagrams;
            for side in &mut self.nodes[node].sides {
                let victim = &mut side.traffic[other].victim;
                *victim = if *victim == Fate::Success { Fate::Success } else { Fate::Either };
            }
        }
        let Some(survivor) = partner(node, count) else { return Ok(()) };
        for (me, other) in [(node, survivor), (survivor, node)] {
            let Some(program) = self.program(me) else { continue };
            program.pair(other).map_err(|status| say("pairing", status))?;
        }
        Ok(())
    }

    /// The survivor's paired jetty belonged to the life before.
    fn end_pair(&mut self, survivor: usize) -> Result<(), String> {
        self.renew(survivor, Lane::Paired)?;
        // Packets of the life before are on their way, and find no receiver.
        if let Some(dead) = partner(survivor, self.nodes.len()) {
            let traffic = &mut self.nodes[dead].sides[PAIRED].traffic[survivor];
            traffic.area.may_refuse(traffic.line.numbers());
        }
        let unposted = self.nodes[survivor].unposted[PAIRED].len();
        if unposted != Lane::Paired.receives().len() {
            return Err(format!("node {survivor}: {unposted} receives of its pair came back"));
        }
        self.nodes[survivor].sides[PAIRED].is_lost = false;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::idle::{self, refuses};
    use super::*;

    #[test]
    fn a_change_that_the_device_refuses_is_refused() {
        refuses(&[
            ("a state", "node 0, to Ready: ", |run| {
                run.change(0, JettyState::Error, Gait::Error)?;
                run.change(0, JettyState::Ready, Gait::Ready)
            }),
            ("the end of a reset that loses a request", "request 1 of node 0 was lost", |run| {
                run.change(0, JettyState::Reset, Gait::Reset)?;
                idle::side(run, Lane::Restless).requests.push(idle::pending(1));
                run.leave_reset(0)
            }),
            ("a deletion that loses a request", "request 1 of node 0 was lost", |run| {
                idle::side(run, Lane::Restless).requests.push(idle::pending(1));
                run.renew(0, Lane::Restless)
            }),
            ("a next life whose partner is gone", "node 1, renewing Paired: ", |run| {
                run.kill(0);
                run.fabric.kill(1);
                run.revive(0)
            }),
            ("a jetty made again", "node 0, renewing Restless: ", |run| {
                // Another one is deleted: the number stays in use.
                run.program(0).expect("it lives").jetties.swap(RESTLESS, PAIRED);
                run.renew(0, Lane::Restless)
            }),
            ("receives of a pair", "7 receives of its pair came back", |run| {
                let _lost = run.nodes[0].unposted[PAIRED].pop();
                run.end_pair(0)
            }),
        ]);
    }
}
