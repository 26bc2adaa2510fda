//! Judging: what completed, what was received, what memory holds, which events came.
//!
//! *Owns*: the comparison of the world with the model. *Takes*: the run. *Gives*: a complaint.
//! *Must not*: make anything happen but polls.

use std::time::Duration;

use udma_abi::counters::Counter;
use urma_core::{Arm, Completion, CrOpcode, CrStatus};

use super::book::{Ended, Fate, Message, Pending, Reliability};
use super::node::{Lane, SLOT_LEN, SLOTS};
use super::post::Route;
use super::run::{FILL, Run};
use super::side::{Events, Gait, Node, Phase};

/// Completions taken at a time.
const BATCH: usize = 8;
/// Virtual time after which nothing of a program is left, in ns.
const RETURN_NS: u64 = 20_000_000;
/// The same when all packets of a request are lost until its TP gives up.
const RETURN_LOST_NS: u64 = 5_000_000_000;
/// Virtual time after which the event of a polled completion must have come, in ns.
const EVENT_NS: u64 = 2_000_000;

impl Run<'_> {
    /// Takes what completed at `node`.
    pub(super) fn poll(&mut self, node: usize) -> Result<(), String> {
        while self.poll_jfc(node, 0)? == BATCH {}
        while self.poll_jfc(node, 1)? == BATCH {}
        Ok(())
    }

    fn poll_jfc(&mut self, node: usize, jfc: usize) -> Result<usize, String> {
        let mut completions = [Completion::default(); BATCH];
        let Some(program) = self.program(node) else { return Ok(0) };
        let count = program.jfcs[jfc].poll(&mut completions).map_err(|s| s.to_string())?;
        if count > 0 {
            let due = self.fabric.now() + EVENT_NS;
            let events = &mut self.nodes[node].events[jfc];
            if events.armed {
                events.due.get_or_insert(due);
            }
        }
        for completion in &completions[..count] {
            match jfc {
                0 => self.on_request(node, completion)?,
                _ => self.on_message(node, completion)?,
            }
        }
        Ok(count)
    }

    /// A request of `node` ended, or a flush or suspend of one of its jetties is done.
    pub(super) fn on_request(
        &mut self,
        node: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let (number, status) = (completion.user_ctx, completion.status);
        self.fabric.note(format_args!("done {node} {number} {status:?}"));
        let lane = Lane::of(completion.queue_ctx)
            .ok_or_else(|| format!("node {node}: a completion of no jetty: {completion:?}"))?;
        let side = &mut self.nodes[node].sides[lane as usize];
        match (status, side.gait) {
            (CrStatus::WrFlushDone, _) if side.is_lost => return Ok(()),
            (CrStatus::WrFlushDone, Gait::Error) => {
                side.gait = Gait::Flushed;
                return self.retire_silent(node, lane);
            }
            (CrStatus::WrSuspendDone, _) if lane == Lane::Restless => return Ok(()),
            _ => {}
        }
        let ended = if status.is_success() { Ended::Well } else { Ended::Badly };
        let mut done = side.requests.complete(number, ended)?;
        let last = done.pop();
        if ended == Ended::Well {
            side.traffic.iter_mut().for_each(|traffic| traffic.placed = traffic.placed.max(number));
        }
        for pending in done {
            self.judge(node, lane, &pending, CrStatus::Success)?;
        }
        last.map_or(Ok(()), |pending| self.judge(node, lane, &pending, status))
    }

    /// Unsignalled requests at the end of a flush ended silently, if they succeeded before it.
    pub(super) fn retire_silent(&mut self, node: usize, lane: Lane) -> Result<(), String> {
        let side = &mut self.nodes[node].sides[lane as usize];
        for pending in side.requests.take_all() {
            if pending.signalled {
                return Err(format!("request {} of node {node} was lost", pending.number));
            }
            self.nodes[node].free.push(pending.slot);
            self.report.requests += 1;
        }
        Ok(())
    }

    fn judge(
        &mut self,
        node: usize,
        lane: Lane,
        pending: &Pending,
        status: CrStatus,
    ) -> Result<(), String> {
        let &Pending { number, to, slot, doomed, .. } = pending;
        let wanted = match pending.fate {
            Fate::Success => CrStatus::Success,
            Fate::Either if status.is_success() => status,
            Fate::Refused | Fate::Either => CrStatus::RemAccessAbort,
        };
        if status != wanted && !doomed {
            return Err(format!("request {number} of node {node} ended: {status}, not: {wanted}"));
        }
        self.report.requests += 1;
        self.report.refused += u64::from(status == wanted && !status.is_success());
        self.report.broken += u64::from(status != wanted);
        let route = Route { me: node, lane, to };
        if status.is_success() {
            self.check_area(route)?;
            self.check_brought(route, pending)?;
        }
        self.nodes[node].free.push(slot);
        let traffic = &mut self.nodes[node].sides[lane as usize].traffic[to];
        if traffic.phase == Phase::Marked(number) {
            traffic.phase = Phase::Broken;
            if status.is_success() {
                self.fix(route)?;
            }
        }
        Ok(())
    }

    /// What a read or an atomic brought.
    fn check_brought(&mut self, route: Route, pending: &Pending) -> Result<(), String> {
        let Route { me, lane, to } = route;
        let traffic = &mut self.nodes[me].sides[lane as usize].traffic[to];
        let Some(expected) = traffic.area.take_brought(pending.number) else { return Ok(()) };
        let mut found = vec![0; expected.len()];
        let Some(program) = self.program(me) else { return Ok(()) };
        let at = pending.slot * SLOT_LEN;
        program.view.local.read(at, &mut found).map_err(|e| e.to_string())?;
        match found.iter().zip(&expected).position(|(a, b)| a != b) {
            Some(at) if pending.brings => {
                Err(format!("request {} brought wrong byte {at}", pending.number))
            }
            _ => Ok(()),
        }
    }

    /// Nothing of what broke down moves any more.
    fn fix(&mut self, route: Route) -> Result<(), String> {
        let Route { me, lane, to } = route;
        let Some(program) = self.nodes[to].program.as_ref() else { return Ok(()) };
        let found = program.view.area(me, lane)?;
        let traffic = &mut self.nodes[me].sides[lane as usize].traffic[to];
        traffic.area.fix(&found);
        traffic.phase = Phase::Open;
        Ok(())
    }

    fn on_message(&mut self, node: usize, completion: &Completion) -> Result<(), String> {
        let slot = usize::try_from(completion.user_ctx).map_err(|error| error.to_string())?;
        self.fabric.note(format_args!("message {node} {slot} {:?}", completion.status));
        let at = Lane::of(completion.queue_ctx).ok_or("a receive of no jetty")?;
        let lost = self.nodes[node].sides[at as usize].is_lost;
        if completion.status == CrStatus::WrFlushDone && lost {
            return Ok(());
        }
        if !at.receives().contains(&slot) || self.nodes[node].unposted[at as usize].contains(&slot)
        {
            return Err(format!("node {node}: receive {slot} of {at:?} was not posted"));
        }
        if completion.status == CrStatus::WrFlush && lost {
            self.nodes[node].unposted[at as usize].push(slot);
            return Ok(());
        }
        if !completion.status.is_success() || !completion.is_recv() {
            return Err(format!("receive at node {node}: {}", completion.status));
        }
        self.take_message(node, slot, completion)?;
        self.nodes[node].unposted[at as usize].push(slot);
        self.report.messages += 1;
        Ok(())
    }

    fn take_message(
        &mut self,
        node: usize,
        slot: usize,
        completion: &Completion,
    ) -> Result<(), String> {
        let mut found = vec![0; SLOT_LEN];
        let place = (SLOTS + slot) * SLOT_LEN;
        let program = self.program(node).ok_or("a message for the dead")?;
        program.view.local.read(place, &mut found).map_err(|error| error.to_string())?;
        let sender = (0..self.nodes.len())
            .find(|&sender| eid(sender) == completion.remote.eid.bytes())
            .ok_or("a message of a stranger")?;
        let lane = Lane::of(u64::from(completion.remote.id)).ok_or("a message of no jetty")?;
        let how = match lane {
            Lane::Datagrams => Reliability::Unreliable,
            _ => Reliability::Reliable,
        };
        let traffic = &mut self.nodes[sender].sides[lane as usize].traffic[node];
        // A message that broke off may have left bytes in a receive that the next one got.
        let is_calm = self.plan.trouble_ppm == 0 && self.plan.kills == 0;
        let is_clean = is_calm && self.fabric.device(node).counter(Counter::MessagesBroken) == 0;
        let is_it = |message: &Message| {
            let (payload, rest) = found.split_at(message.bytes.len());
            is_named(message, completion)
                && payload == message.bytes
                && (!is_clean || rest.iter().all(|&byte| byte == FILL))
        };
        let message = traffic.line.receive(how, is_it);
        let message = message.map_err(|why| {
            format!("node {node} received {completion:?} of {sender} {lane:?}: {why}")
        })?;
        // What was asked for before a message is there when it is.
        traffic.placed = traffic.placed.max(message.number);
        self.fabric.note(format_args!("message {node} is {}", message.number));
        self.check_area(Route { me: sender, lane, to: node })
    }

    /// Compares the memory of one direction with the model.
    pub(super) fn check_area(&mut self, route: Route) -> Result<(), String> {
        let Route { me, lane, to } = route;
        if lane == Lane::Datagrams
            || self.nodes[me].sides[lane as usize].traffic[to].phase == Phase::Gone
        {
            return Ok(());
        }
        let Some(program) = self.nodes[to].program.as_ref() else { return Ok(()) };
        let found = program.view.area(me, lane)?;
        let traffic = &mut self.nodes[me].sides[lane as usize].traffic[to];
        let done = if traffic.phase == Phase::Open { traffic.placed } else { 0 };
        traffic
            .area
            .observe(&found, done)
            .map_err(|why| format!("area of {lane:?} of {me} at {to}: {why}"))
    }

    /// Compares the memory of every direction with outstanding requests, and of one other,
    /// round-robin.
    pub(super) fn check_busy(&mut self, turn: usize) -> Result<(), String> {
        let directions = self.nodes.len() * self.nodes.len() * Lane::WITH_AREA;
        for index in 0..directions {
            let route = self.route_at(index);
            let is_busy =
                self.nodes[route.me].sides[route.lane as usize].traffic[route.to].area.is_busy();
            if route.me != route.to && (is_busy || turn % directions == index) {
                self.check_area(route)?;
            }
        }
        Ok(())
    }

    pub(super) fn check_all(&mut self) -> Result<(), String> {
        let count = self.nodes.len();
        (0..count * count * Lane::WITH_AREA)
            .try_for_each(|index| self.check_area(self.route_at(index)))?;
        for (number, node) in self.nodes.iter().enumerate() {
            let Some(program) = &node.program else { continue };
            let mut vault = vec![1; super::node::SMALL_LEN];
            program.view.vault.read(0, &mut vault).map_err(|error| error.to_string())?;
            if vault.iter().any(|&byte| byte != 0) {
                return Err(format!("node {number}: what may only be read changed"));
            }
        }
        Ok(())
    }

    /// Every receive that no message used is still posted, whatever broke off.
    pub(super) fn check_receives(&self) -> Result<(), String> {
        for (number, node) in
            self.nodes.iter().enumerate().filter(|(_, node)| node.program.is_some())
        {
            let queues = self.fabric.device(number).look().queues;
            for lane in Lane::ALL.into_iter().filter(|lane| !lane.receives().is_empty()) {
                let posted = lane.receives().len() - node.unposted[lane as usize].len();
                let queue = queues.iter().find(|queue| queue.id == lane.id());
                let found = queue.and_then(|queue| queue.receives).unwrap_or(0);
                if found as usize != posted {
                    return Err(format!(
                        "node {number} has {found} receives of {lane:?}, not {posted}"
                    ));
                }
            }
        }
        Ok(())
    }

    /// Programs end; what they had of their devices is returned.
    pub(super) fn check_returned(&mut self) -> Result<(), String> {
        for node in &mut self.nodes {
            node.program = None;
        }
        let ended = self.fabric.now();
        while self.fabric.now() < ended + RETURN_NS {
            self.fabric.step_nodes();
        }
        while let Some(what) = self.not_returned() {
            if self.fabric.now() >= ended + RETURN_LOST_NS {
                return Err(what);
            }
            self.fabric.step_nodes();
        }
        Ok(())
    }

    /// What a node still has of a program, though none is left.
    fn not_returned(&self) -> Option<String> {
        (0..self.nodes.len()).find_map(|number| {
            let left = self.fabric.device(number).look();
            let users: u32 = left.paths.iter().map(|path| path.users).sum();
            let busy: usize = left.paths.iter().map(|path| path.in_flight).sum();
            let objects =
                left.queues.len() + left.jfcs.len() + left.groups.len() + left.segments.len();
            let is_whole = left.pool_free == left.pool_blocks && objects + busy == 0 && users == 0;
            let what = || format!("node {number} did not get everything back: {left:?}");
            (!is_whole).then(what)
        })
    }

    fn route_at(&self, index: usize) -> Route {
        let count = self.nodes.len();
        let lane = Lane::ALL[index % Lane::WITH_AREA];
        Route { me: index / Lane::WITH_AREA / count, lane, to: index / Lane::WITH_AREA % count }
    }

    /// Asks for events, with a chance of `ppm` in a million for each JFC.
    pub(super) fn arm(&mut self, node: usize, ppm: u32) -> Result<(), String> {
        for jfc in 0..2 {
            let wanted = self.rng.chance_ppm(ppm);
            let Node { program: Some(program), events, .. } = &mut self.nodes[node] else { break };
            if wanted && !events[jfc].armed {
                program.jfcs[jfc].arm(Arm::Any).map_err(|status| status.to_string())?;
                events[jfc].armed = true;
                self.fabric.note(format_args!("arm {node} {jfc}"));
            }
        }
        Ok(())
    }

    /// Takes events: one per arm, and no later than soon after its completion.
    pub(super) fn take_events(&mut self, node: usize) -> Result<(), String> {
        let now = self.fabric.now();
        let Node { program: Some(program), events, .. } = &mut self.nodes[node] else {
            return Ok(());
        };
        let mut ids = [0; 4];
        let zero = Some(Duration::ZERO);
        let count = program.jfce.wait(&mut ids, zero).map_err(|status| status.to_string())?;
        for id in &ids[..count] {
            let jfc =
                program.jfcs.iter().position(|jfc| jfc.id() == *id).ok_or("a strange event")?;
            if !events[jfc].armed {
                return Err(format!("node {node}: an event of JFC {jfc}, which is not armed"));
            }
            events[jfc] = Events::default();
            self.fabric.note(format_args!("event {node} {jfc}"));
            program.jfcs[jfc].ack_events(1).map_err(|status| status.to_string())?;
            self.report.events += 1;
        }
        match events.iter().position(|events| events.due.is_some_and(|due| due < now)) {
            Some(jfc) => Err(format!("node {node}: the event of JFC {jfc} did not come")),
            None => Ok(()),
        }
    }
}

fn eid(node: usize) -> [u8; 16] {
    ubcore_sim::sim::eid(u8::try_from(node).unwrap_or(u8::MAX)).0
}

/// Whether `completion` has the fields that `message` requires.
fn is_named(message: &Message, completion: &Completion) -> bool {
    let imm = if completion.opcode == CrOpcode::Send { 0 } else { completion.imm };
    completion.opcode == message.opcode
        && completion.len as usize == message.len
        && imm == message.imm
}

#[cfg(test)]
mod tests;
