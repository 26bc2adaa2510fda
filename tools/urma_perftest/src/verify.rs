//! `--verify`: every byte is checked by the side that receives it.
//!
//! *Owns*: which side fills, poisons and checks what, and when. *Takes*: message numbers.
//! *Gives*: the first wrong byte. *Must not*: take part in a measurement.
//!
//! | operation | who fills | who checks | when |
//! |---|---|---|---|
//! | WRITE (`rounds.rs`) | sender | target | in rounds: all of a round are placed, then all are checked |
//! | READ | target, once | reader | at the completion |
//! | SEND | sender | receiver (`receive.rs`) | at the completion |
//! | atomics | - | requester | at the completion: the answers count up by one |

use urma::Region;
use urma::{SendOp, SendWr};

use crate::{
    error::RunError,
    layout::Layout,
    pass::Pass,
    pattern::{self, Pattern},
    plan::{TestMode, Verb},
    receive::{guard_len, message_number},
};

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
            is_numbered: test.mode == TestMode::Um,
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
                    // Unreliable messages get lost: each contains its number.
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

pub(crate) fn offset(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Verified atomics count up by one, so that each answer is known.
pub(crate) fn chain(op: &mut SendOp<'_>, done: u64) {
    if let SendOp::Cas { compare, swap, .. } = op {
        (*compare, *swap) = (done, done + 1);
    }
}

/// The answer of verified atomic number `done` is `done`, in 4 or 8 bytes.
pub(crate) fn atomic_answer(
    region: &Region,
    at: usize,
    len: usize,
    done: u64,
) -> Result<(), RunError> {
    let (found, expected) = match len {
        4 => (u64::from(region.load_u32(at)?), done & 0xffff_ffff),
        _ => (region.load_u64(at)?, done),
    };
    if found == expected {
        return Ok(());
    }
    Err(RunError::Request(format!("atomic {done} answered {found}, expected {expected}")))
}

#[cfg(test)]
mod tests;
