//! Faults of a link as text: `loss=1%,delay=5ms,seed=7`.
//!
//! - owns: names and units of the fields. takes: text. gives: checked values. must not: guess.

use std::str::FromStr;

use udma_abi::Nanos;

use super::FaultCfg;

/// Faults of a link and the seed of their choices.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct LinkFaults {
    /// Kinds of faults, with their rates.
    pub cfg: FaultCfg,
    /// Seed of random choices: the same seed loses the same datagrams.
    pub seed: u64,
}

/// The invalid part of a text.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error("{part:?} must be {wanted}")]
pub struct LinkFaultsError {
    /// The field as written, such as `loss=2`.
    pub part: String,
    /// What it may say.
    pub wanted: &'static str,
}

const FIELDS: &str = "field=value, with the fields loss, burst, burst-length, duplicate, corrupt, truncate, \
                      reorder, reorder-by, delay, jitter, tail, tail-by, rate, queue and seed";
const CHANCE: &str = "a chance, from 0 to 1 or from 0% to 100%";
const TIME: &str = "a time such as 250us, 5ms or 1s, at most 60s";
const BURST: &str = "a number of datagrams from 1 to 1000000";
const NUMBER: &str = "a whole number";
const RATE: &str = "bits per second, such as 500M or 10G";
/// Default time by which reordered datagrams are held back.
const REORDER_NS: Nanos = 1_000_000;
/// Default average length of a burst of losses, in datagrams.
const BURST_LEN: u32 = 10;
/// Default longest delay of the tail.
const TAIL_NS: Nanos = 10_000_000;
/// Queue in front of a rate limit, as the time to drain it: usual for a router.
const QUEUE_MS: u64 = 50;

impl FromStr for LinkFaults {
    type Err = LinkFaultsError;

    fn from_str(text: &str) -> Result<Self, LinkFaultsError> {
        let cfg = FaultCfg {
            reorder_ns: REORDER_NS,
            burst_len: BURST_LEN,
            tail_ns: TAIL_NS,
            ..FaultCfg::default()
        };
        let (mut faults, mut queue) = (Self { cfg, seed: 0 }, None);
        for part in text.split(',').map(str::trim) {
            let wrong = |wanted| LinkFaultsError { part: part.to_owned(), wanted };
            let (field, value) = part.split_once('=').ok_or_else(|| wrong(FIELDS))?;
            let cfg = &mut faults.cfg;
            let chance =
                || scaled(value, &[("%", 1e4), ("", 1e6)], 1e6).ok_or_else(|| wrong(CHANCE));
            let time = || scaled(value, TIME_UNITS, 60e9).ok_or_else(|| wrong(TIME));
            let number = || value.parse().map_err(|_| wrong(NUMBER));
            match field {
                "loss" => cfg.loss_ppm = ppm(chance()?),
                "burst" => cfg.burst_ppm = ppm(chance()?),
                "burst-length" => {
                    let len = value.parse().ok().filter(|len| (1..=1_000_000).contains(len));
                    cfg.burst_len = len.ok_or_else(|| wrong(BURST))?;
                }
                "truncate" => cfg.truncate_ppm = ppm(chance()?),
                "tail" => cfg.tail_ppm = ppm(chance()?),
                "tail-by" => cfg.tail_ns = time()?,
                "duplicate" => cfg.duplicate_ppm = ppm(chance()?),
                "corrupt" => cfg.corrupt_ppm = ppm(chance()?),
                "reorder" => cfg.reorder_ppm = ppm(chance()?),
                "reorder-by" => cfg.reorder_ns = time()?,
                "delay" => cfg.delay_ns = time()?,
                "jitter" => cfg.jitter_ns = time()?,
                "rate" => {
                    let bits = scaled(value, RATE_UNITS, 1e15).filter(|bits| *bits >= 8);
                    cfg.bytes_per_second = bits.ok_or_else(|| wrong(RATE))? / 8;
                }
                "queue" => queue = Some(number()?),
                "seed" => faults.seed = number()?,
                _ => return Err(wrong(FIELDS)),
            }
        }
        let usual = faults.cfg.bytes_per_second.saturating_mul(QUEUE_MS) / 1000;
        faults.cfg.queue_bytes = queue.unwrap_or(usual);
        Ok(faults)
    }
}

const TIME_UNITS: &[(&str, f64)] = &[("ns", 1.0), ("us", 1e3), ("ms", 1e6), ("s", 1e9)];
const RATE_UNITS: &[(&str, f64)] = &[("K", 1e3), ("M", 1e6), ("G", 1e9), ("T", 1e12), ("", 1.0)];

/// Parses a number from 0 to `most` with one of `units`.
fn scaled(value: &str, units: &[(&str, f64)], most: f64) -> Option<u64> {
    let read = |(unit, factor): &(&str, f64)| {
        let number: f64 = value.strip_suffix(unit)?.parse().ok()?;
        Some(number * factor).filter(|number| (0.0..=most).contains(number))
    };
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "0 to 1e15")]
    units.iter().find_map(read).map(|number| number.round() as u64)
}

/// A number that is at most a million.
fn ppm(number: u64) -> u32 {
    u32::try_from(number).unwrap_or(1_000_000)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_field_has_its_unit() {
        let text = "loss=1%, duplicate=0.001, corrupt=10%, reorder=0.5%, reorder-by=2ms, delay=250us, \
                    jitter=100ns, rate=10G, queue=1000, burst=0.1%, burst-length=20, truncate=2%, tail=3%, \
                    tail-by=9ms, seed=7";
        let LinkFaults { cfg, seed } = text.parse().unwrap();
        let wanted = FaultCfg {
            delay_ns: 250_000,
            jitter_ns: 100,
            loss_ppm: 10_000,
            duplicate_ppm: 1000,
            reorder_ppm: 5000,
            reorder_ns: 2_000_000,
            corrupt_ppm: 100_000,
            bytes_per_second: 1_250_000_000,
            queue_bytes: 1000,
            burst_ppm: 1000,
            burst_len: 20,
            truncate_ppm: 20_000,
            tail_ppm: 30_000,
            tail_ns: 9_000_000,
            ..FaultCfg::default()
        };
        assert_eq!((cfg, seed), (wanted, 7));
    }

    #[test]
    fn a_rate_has_a_queue_of_50_ms() {
        let LinkFaults { cfg, .. } = "rate=8M".parse().unwrap();
        assert_eq!((cfg.bytes_per_second, cfg.queue_bytes), (1_000_000, 50_000));
    }

    #[test]
    fn nonsense_is_refused_by_field() {
        for (text, field) in [
            ("loss=1.5", "loss"),
            ("loss=-1%", "loss"),
            ("loss=NaN", "loss"),
            ("duplicate=", "duplicate"),
            ("delay=5", "delay"),
            ("delay=5m", "delay"),
            ("delay=2000s", "delay"),
            ("rate=0", "rate"),
            ("rate=inf", "rate"),
            ("queue=1.5", "queue"),
            ("burst-length=0", "burst-length"),
            ("tail-by=3", "tail-by"),
            ("seed=-1", "seed"),
            ("losses=1", "losses"),
            ("loss", "\"loss\""),
            ("", "\"\""),
        ] {
            let error = text.parse::<LinkFaults>().unwrap_err().to_string();
            assert!(error.contains(field), "{text}: {error}");
        }
    }
}
