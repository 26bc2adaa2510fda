//! Verified WRITE, in rounds: all writes of a round are placed, then all are checked.
//!
//! *Owns*: the meeting points between rounds. *Gives*: the first wrong byte. *Must not*: be measured.

use urma::Region;

use crate::{
    bw::Stream,
    error::RunError,
    layout::Layout,
    oob::Oob,
    pass::{Pass, SizeSamples},
    pattern::{self, Pattern},
    receive::{guard_len, message_number},
    requests,
    verify::offset,
};

/// First number of the meeting points between rounds.
pub(crate) const ROUNDS: u64 = 1 << 40;

/// Runs the verified rounds of one message size and returns what they took.
pub(crate) fn run(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    if pass.plan.is_active() { active(pass) } else { passive(pass) }
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

/// The side that writes; with `-B` it is written to as well.
fn active(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let (objects, layout, test) = (pass.objects, pass.layout, pass.test().clone());
    let pieces = requests::pieces(objects, &test, &layout);
    let wrs = requests::requests(objects, &test, &layout, &pieces);
    let is_target = pass.test().bidirection;
    let mut rounds = Rounds::of(pass);
    let mut sum = SizeSamples::default();
    for span in spans(pass) {
        if is_target {
            rounds.poison()?;
        }
        rounds.meet(pass.oob)?;
        let taken = Stream::new(pass, &wrs, span).run(pass)?;
        rounds.finish(pass)?;
        if is_target {
            rounds.check(span)?;
        }
        add(&mut sum.messages, &taken.messages);
        add(&mut sum.nanos, &taken.nanos);
    }
    Ok(sum)
}

/// The side that is written to.
fn passive(pass: &mut Pass<'_, '_>) -> Result<SizeSamples, RunError> {
    let mut rounds = Rounds::of(pass);
    for span in spans(pass) {
        rounds.poison()?;
        rounds.meet(pass.oob)?;
        rounds.finish(pass)?;
        rounds.check(span)?;
    }
    Ok(SizeSamples::default())
}

fn add(sums: &mut Vec<u64>, values: &[u64]) {
    sums.resize(values.len().max(sums.len()), 0);
    for (sum, value) in sums.iter_mut().zip(values) {
        *sum += value;
    }
}
