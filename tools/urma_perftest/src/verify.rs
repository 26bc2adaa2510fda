//! `--verify`: every byte is checked by who receives it.
//!
//! *Owns*: which side fills, poisons and checks what, and when. *Takes*: message numbers.
//! *Gives*: the first wrong byte. *Must not*: take part in a measurement.
//!
//! | operation | who fills | who checks | when |
//! |---|---|---|---|
//! | WRITE | sender | target | in rounds: all of a round are placed, then all are checked |
//! | READ | target, once | reader | at the completion |
//! | SEND | sender | receiver (`receive.rs`) | at the completion |
//! | atomics | - | requester | at the completion: the answers count up by one |

use urma_core::{SendOp, SendWr};
use urma_mem::Region;

use crate::{
    bw::Stream,
    error::RunError,
    lat::{atomic_answer, chain},
    layout::Layout,
    oob::Oob,
    pass::{Pass, Taken},
    pattern::{self, Pattern},
    plan::{Mode, Verb},
    receive::{guard_len, message_number},
};

/// First number of the meeting points between rounds.
const ROUNDS: u64 = 1 << 40;

/// Checks of the side that posts.
#[derive(Debug)]
pub(crate) struct Verify {
    region: Region,
    layout: Layout,
    verb: Verb,
    seed: u64,
    is_numbered: bool,
}

impl Verify {
    /// For the lanes of `pass`.
    pub(crate) fn new(pass: &Pass<'_, '_>) -> Self {
        let test = pass.test();
        Self {
            region: pass.region().clone(),
            layout: pass.layout,
            verb: test.command.verb(),
            seed: test.seed,
            is_numbered: test.mode == Mode::Um,
        }
    }

    /// Before message `number` of `lane` is posted.
    pub(crate) fn before(
        &self,
        wr: &mut SendWr<'_>,
        lane: usize,
        number: u64,
    ) -> Result<(), RunError> {
        match self.verb {
            Verb::Write | Verb::Send => {
                let iteration = message_number(lane, number);
                let (at, len) = (offset(self.layout.source(lane, number)), self.len());
                Pattern { seed: self.seed, iteration }.fill(&self.region, at, len)?;
                if let (SendOp::Send { src }, true) = (wr.op, self.is_numbered) {
                    // Unreliable messages get lost: each says which one it is.
                    wr.op = SendOp::SendImm { src, imm: iteration };
                }
            }
            Verb::Read | Verb::Atomic => {
                chain(&mut wr.op, number);
                let at = offset(self.layout.sink(lane, number));
                pattern::poison(&self.region, at, self.len() + guard_len())?;
            }
        }
        Ok(())
    }

    /// After message `number` of `lane` completed.
    pub(crate) fn after(&self, lane: usize, number: u64) -> Result<(), RunError> {
        let (at, len) = (offset(self.layout.sink(lane, number)), self.len());
        match self.verb {
            Verb::Write | Verb::Send => return Ok(()),
            Verb::Atomic => atomic_answer(&self.region, at, len, number)?,
            Verb::Read => self.read_pattern(lane, number).check(&self.region, at, len)?,
        }
        let pattern = self.read_pattern(lane, number);
        Ok(pattern.check_beyond(&self.region, at + len, guard_len())?)
    }

    fn read_pattern(&self, lane: usize, number: u64) -> Pattern {
        let iteration = message_number(lane, number % self.layout.places);
        Pattern { seed: self.seed, iteration }
    }

    fn len(&self) -> usize {
        offset(self.layout.size)
    }
}

/// Fills what peers read, zeroes what they do atomics on: before a size starts.
pub(crate) fn prepare(pass: &Pass<'_, '_>) -> Result<(), RunError> {
    let (layout, region, test) = (pass.layout, pass.region(), pass.test());
    for lane in 0..pass.ends.lanes.len() {
        for place in 0..layout.places {
            let (at, len) = (offset(layout.source(lane, place)), offset(layout.size));
            match test.command.verb() {
                Verb::Atomic => region.zero(at, len)?,
                Verb::Read if test.verify => {
                    let iteration = message_number(lane, place);
                    Pattern { seed: test.seed, iteration }.fill(region, at, len)?;
                }
                Verb::Read | Verb::Write | Verb::Send => {}
            }
        }
    }
    Ok(())
}

/// What one side does in the rounds of a verified WRITE.
struct Rounds {
    region: Region,
    layout: Layout,
    lanes: usize,
    seed: u64,
    meeting: u64,
}

impl Rounds {
    fn of(pass: &Pass<'_, '_>) -> Self {
        Self {
            region: pass.region().clone(),
            layout: pass.layout,
            lanes: pass.ends.lanes.len(),
            seed: pass.test().seed,
            meeting: ROUNDS,
        }
    }

    /// Both sides are ready.
    fn meet(&mut self, oob: &mut Oob) -> Result<(), RunError> {
        self.meeting += 1;
        Ok(oob.meet(self.meeting)?)
    }

    /// This side is done; serves the peer until it is done too.
    fn finish(&mut self, pass: &mut Pass<'_, '_>) -> Result<(), RunError> {
        self.meeting += 1;
        pass.finish(self.meeting)
    }

    fn poison(&self) -> Result<(), RunError> {
        let len = offset(self.layout.size) + guard_len();
        for lane in 0..self.lanes {
            for place in 0..self.layout.places {
                pattern::poison(&self.region, offset(self.layout.sink(lane, place)), len)?;
            }
        }
        Ok(())
    }

    fn check(&self, (from, until): (u64, u64)) -> Result<(), RunError> {
        let len = offset(self.layout.size);
        for lane in 0..self.lanes {
            for number in from..until {
                let at = offset(self.layout.sink(lane, number));
                let iteration = message_number(lane, number);
                let pattern = Pattern { seed: self.seed, iteration };
                pattern.check(&self.region, at, len)?;
                pattern.check_beyond(&self.region, at + len, guard_len())?;
            }
        }
        Ok(())
    }
}

/// The rounds: every place is written once in each.
fn spans(pass: &Pass<'_, '_>) -> impl Iterator<Item = (u64, u64)> + use<> {
    let (total, places) = (pass.iterations(), pass.layout.places.max(1));
    (0..total.div_ceil(places)).map(move |round| {
        let from = round * places;
        (from, (from + places).min(total))
    })
}

/// Verified WRITE, the side that writes; with `-B` it is written to as well.
pub(crate) fn rounds(pass: &mut Pass<'_, '_>, wrs: &[SendWr<'_>]) -> Result<Taken, RunError> {
    let is_target = pass.test().bidirection;
    let mut rounds = Rounds::of(pass);
    let mut sum = Taken::default();
    for span in spans(pass) {
        if is_target {
            rounds.poison()?;
        }
        rounds.meet(pass.oob)?;
        let taken = Stream::new(pass, wrs, span).run(pass)?;
        rounds.finish(pass)?;
        if is_target {
            rounds.check(span)?;
        }
        add(&mut sum.messages, &taken.messages);
        add(&mut sum.nanos, &taken.nanos);
    }
    Ok(sum)
}

/// Verified WRITE, the side that is written to.
pub(crate) fn passive_rounds(pass: &mut Pass<'_, '_>) -> Result<Taken, RunError> {
    let mut rounds = Rounds::of(pass);
    for span in spans(pass) {
        rounds.poison()?;
        rounds.meet(pass.oob)?;
        rounds.finish(pass)?;
        rounds.check(span)?;
    }
    Ok(Taken::default())
}

fn add(sums: &mut Vec<u64>, values: &[u64]) {
    sums.resize(values.len().max(sums.len()), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}

fn offset(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests;
