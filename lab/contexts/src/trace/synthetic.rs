//! The four synthetic traces: messages of queues, each with queue, segment, page and JFC.
//!
//! - owns: generators, exact to the bit. takes: a name. gives: a trace. must not: draw from anything but its seed.

use super::{HandleTrace, TraceError};
use crate::handle::SplitMix64;

/// Messages of a trace; each looks four handles up.
const MESSAGES: usize = 100_000;
const QUEUES: u64 = 10_000;
const SEGMENTS: u64 = 2_500;
const FLOWS: usize = 256;

/// A synthetic trace by name.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SyntheticTrace {
    /// Each message of any of 10,000 queues.
    Uniform,
    /// Queue of rank r with weight 1 / r^0.99.
    Zipf,
    /// Runs of messages of one queue, 16 in the mean.
    Burst,
    /// 256 flows in turn, with lengths of a Pareto distribution.
    Pareto,
}

impl SyntheticTrace {
    /// All four synthetic traces.
    pub const ALL: [Self; 4] = [Self::Uniform, Self::Zipf, Self::Burst, Self::Pareto];

    /// Name in the golden data and on the command line.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Uniform => "uniform10k",
            Self::Zipf => "zipf0.99_10k",
            Self::Burst => "burst16_10k",
            Self::Pareto => "256active_pareto",
        }
    }

    /// Seed of the trace that the golden data holds.
    #[must_use]
    pub const fn seed(self) -> u64 {
        match self {
            Self::Uniform => 1,
            Self::Zipf => 2,
            Self::Burst => 3,
            Self::Pareto => 4,
        }
    }

    /// The trace of a name.
    pub fn named(name: &str) -> Result<Self, TraceError> {
        Self::ALL.into_iter().find(|trace| trace.name() == name).ok_or_else(|| TraceError {
            field: "trace".to_owned(),
            value: format!("{name:?}"),
            want: format!("one of {}", Self::ALL.map(Self::name).join(", ")),
        })
    }

    /// The trace of a seed: 400,000 accesses.
    pub fn generate(self, seed: u64) -> Result<HandleTrace, TraceError> {
        let mut random = SplitMix64(seed);
        let queues = match self {
            Self::Uniform => (0..MESSAGES).map(|_| random.below(QUEUES)).collect(),
            Self::Zipf => zipf(&mut random),
            Self::Burst => bursts(&mut random),
            Self::Pareto => flows(&mut random),
        };
        HandleTrace::new(messages(&queues, &mut random))
    }
}

/// Handles of a message of each queue.
fn messages(queues: &[u64], random: &mut SplitMix64) -> Vec<u32> {
    let mut handles = Vec::with_capacity(4 * queues.len());
    for &queue in queues {
        let m = random.below(SEGMENTS);
        let page = random.below(4);
        let segment = if m % 2 == 1 { 7 * queue % SEGMENTS } else { m };
        handles.push(handle(0, queue));
        handles.push(handle(2, segment));
        handles.push(handle(3, 4 * m + page));
        handles.push(handle(1, queue / 8));
    }
    handles
}

#[expect(clippy::cast_possible_truncation, reason = "indices are below 10,000")]
const fn handle(kind: u32, index: u64) -> u32 {
    kind << 28 | index as u32
}

/// Running sums of the weights of ranks 1 to 10,000.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a weight is between 1 and 2^32"
)]
fn zipf_sums() -> Vec<u64> {
    let ranks = (1..=QUEUES).map(|rank| rank as f64);
    let weights = ranks.map(|rank| (4_294_967_296.0 / rank.powf(0.99) + 0.5).floor() as u64);
    weights
        .scan(0, |sum, weight| {
            *sum += weight;
            Some(*sum)
        })
        .collect()
}

fn zipf(random: &mut SplitMix64) -> Vec<u64> {
    let sums = zipf_sums();
    let total = u128::from(sums[sums.len() - 1]);
    (0..MESSAGES)
        .map(|_| {
            let drawn = (u128::from(random.next() >> 16) * total) >> 48;
            sums.partition_point(|sum| u128::from(*sum) <= drawn) as u64
        })
        .collect()
}

fn bursts(random: &mut SplitMix64) -> Vec<u64> {
    let mut queues = Vec::with_capacity(MESSAGES);
    while queues.len() < MESSAGES {
        let queue = random.below(QUEUES);
        queues.push(queue);
        while random.next() >> 60 != 0 {
            queues.push(queue);
        }
    }
    queues.truncate(MESSAGES);
    queues
}

/// Length of a flow in messages.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "at most 2^20, at least 0"
)]
fn pareto(random: &mut SplitMix64) -> u64 {
    let u = (random.next() >> 11) as f64 / 9_007_199_254_740_992.0;
    let length = (4.0 * ((1.0 - u).powf(-1.0 / 1.1) - 1.0)).ceil();
    length.min(1_048_576.0) as u64 + 1
}

fn flows(random: &mut SplitMix64) -> Vec<u64> {
    let mut flow = || (random.below(QUEUES), pareto(random));
    let mut flows: Vec<(u64, u64)> = (0..FLOWS).map(|_| flow()).collect();
    let mut queues = Vec::with_capacity(MESSAGES + FLOWS);
    while queues.len() < MESSAGES {
        for (queue, left) in &mut flows {
            queues.push(*queue);
            *left -= 1;
            if *left == 0 {
                (*queue, *left) = flow();
            }
        }
    }
    queues.truncate(MESSAGES);
    queues
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn random_numbers_and_weights_are_those_of_the_golden_data() {
        let mut random = SplitMix64(1);
        assert_eq!([random.next(), random.next()], [0x910a_2dec_8902_5cc1, 0xbeeb_8da1_658e_ec67]);
        assert_eq!(zipf_sums().last(), Some(&43_913_298_070));
    }
}
