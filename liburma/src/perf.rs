//! Perf: how long calls take, by kind of call.
//!
//! *Owns*: counts and histograms of the process; whether they are kept. *Takes*: durations. *Gives*:
//! a table as text. *Must not*: wait: the data path writes here, with relaxed additions.
//!
//! Durations are nanoseconds of the monotonic clock. A call costs one load while no program measures.
#![expect(unsafe_code, reason = "the clock of the C library")]

use core::fmt::Write;

use urma_mem::sync::{AtomicU32, AtomicU64, Ordering};

use crate::{
    abi::URMA_PERF_RECORD_TYPE_MAX,
    call::{Answer, refuse},
    slab,
};

/// Upper ends of the histogram's classes, nanoseconds; longer calls are in one class more.
const ENDS: [u64; 32] = [
    20, 30, 40, 50, 60, 70, 80, 90, 100, 150, 200, 250, 300, 350, 400, 450, 500, 600, 650, 700,
    750, 800, 850, 900, 950, 1000, 2000, 3000, 4000, 8000, 16_000, 32_000,
];

const TYPES: usize = URMA_PERF_RECORD_TYPE_MAX as usize;

const NAMES: [&str; TYPES] = [
    "UB_JETTY_POST_SEND",
    "BOND_JETTY_POST_SEND",
    "UB_JFS_POST_SEND",
    "BOND_JFS_POST_SEND",
    "UB_JETTY_POST_RECV",
    "BOND_JETTY_POST_RECV",
    "UB_POST_JFR_RECV",
    "BOND_POST_JFR_RECV",
    "UB_POLL_JFC",
    "BOND_POLL_JFC",
    "UB_WAIT_JFC",
    "BOND_WAIT_JFC",
    "UB_ACK_JFC",
    "UB_REARM_JFC",
    "BOND_REARM_JFC",
];

struct Record {
    count: AtomicU64,
    sum: AtomicU64,
    min: AtomicU64,
    max: AtomicU64,
    classes: [AtomicU64; ENDS.len() + 1],
}

static IS_ON: AtomicU32 = AtomicU32::new(0);
/// How often a bonding provider moved to another path.
static SWITCHES: AtomicU64 = AtomicU64::new(0);
static RECORDS: [Record; TYPES] = [const { Record::new() }; TYPES];

impl Record {
    const fn new() -> Self {
        Self {
            count: AtomicU64::new(0),
            sum: AtomicU64::new(0),
            min: AtomicU64::new(u64::MAX),
            max: AtomicU64::new(0),
            classes: [const { AtomicU64::new(0) }; ENDS.len() + 1],
        }
    }

    fn clear(&self) {
        let zero = [&self.count, &self.sum, &self.max];
        zero.into_iter().chain(&self.classes).for_each(|of| of.store(0, Ordering::Relaxed));
        self.min.store(u64::MAX, Ordering::Relaxed);
    }

    fn add(&self, ns: u64) {
        let class = ENDS.iter().position(|end| ns <= *end).unwrap_or(ENDS.len());
        self.classes[class].fetch_add(1, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
        self.sum.fetch_add(ns, Ordering::Relaxed);
        self.min.fetch_min(ns, Ordering::Relaxed);
        self.max.fetch_max(ns, Ordering::Relaxed);
    }

    /// The duration that `thousandths` of the calls did not exceed, within its class.
    fn quantile(&self, thousandths: u64) -> u64 {
        let count = self.count.load(Ordering::Relaxed);
        let mut wanted = count.saturating_mul(thousandths) / 1000;
        let max = self.max.load(Ordering::Relaxed);
        let mut start = 0;
        for (end, of) in ENDS.iter().zip(&self.classes) {
            let inside = of.load(Ordering::Relaxed);
            if inside >= wanted {
                let share = (end - start).saturating_mul(wanted).checked_div(inside).unwrap_or(0);
                return (start + share).min(max);
            }
            wanted -= inside;
            start = *end;
        }
        max
    }
}

/// Clears all counts and starts to count.
pub(crate) fn start() {
    RECORDS.iter().for_each(Record::clear);
    IS_ON.store(1, Ordering::SeqCst);
    // From here on calls look whether they are measured.
    slab::forget_usual();
}

/// What was counted stays readable.
pub(crate) fn stop() {
    IS_ON.store(0, Ordering::Release);
}

#[inline]
pub(crate) fn is_on() -> bool {
    IS_ON.load(Ordering::SeqCst) != 0
}

/// Now, nanoseconds of the monotonic clock.
pub(crate) fn now_ns() -> u64 {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: a place for one; this clock exists on every Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    let part = |number: i64| u64::try_from(number).unwrap_or(0);
    part(now.tv_sec).saturating_mul(1_000_000_000).saturating_add(part(now.tv_nsec))
}

/// One more call of `kind`, of so many nanoseconds.
///
/// # Errors
/// `URMA_ENOPERM`: not started. EINVAL: no such kind, or less than 20 ns, which is no call.
pub(crate) fn step(kind: u32, ns: u64) -> Answer {
    if !is_on() {
        return Err(refuse!(ENOPERM, "no calls are measured; call urma_start_perf first"));
    }
    let record = RECORDS
        .get(kind as usize)
        .ok_or_else(|| refuse!(EINVAL, "type is {kind}; allowed are 0 to {}", TYPES - 1))?;
    if ns < ENDS[0] {
        return Err(refuse!(
            EINVAL,
            "the duration is {ns} ns; those from {} ns on are counted",
            ENDS[0]
        ));
    }
    record.add(ns);
    Ok(())
}

/// Calls `f`, and measures how long it takes while a program measures.
pub(crate) fn timed<T>(kind: u32, f: impl FnOnce() -> T) -> T {
    if !is_on() {
        return f();
    }
    let from_ns = now_ns();
    let answer = f();
    // Stopped meanwhile, or quicker than anything that is counted: both are left out.
    let _ = step(kind, now_ns().saturating_sub(from_ns));
    answer
}

/// A bonding provider moved to another path.
pub(crate) fn switched() {
    SWITCHES.fetch_add(1, Ordering::Relaxed);
}

/// The table: one line for each kind of call that was made, nanoseconds.
pub(crate) fn table() -> String {
    let rule = format!("+{:-<22}+{}\n", "", "----------+".repeat(7));
    let mut text = rule.clone();
    // Writing to a string does not fail.
    let _ = writeln!(text, "  retry_count: {:<20}", SWITCHES.load(Ordering::Relaxed));
    text += &rule;
    let heads = ["samples", "avg", "min", "max", "p50", "p90", "p99"];
    let _ = write!(text, "  {:<20} ", "Type");
    heads.iter().for_each(|head| {
        let _ = write!(text, "| {head:<8} ");
    });
    text += "\n";
    text += &rule;
    for (name, record) in NAMES.iter().zip(&RECORDS) {
        let count = record.count.load(Ordering::Relaxed);
        if count == 0 {
            continue;
        }
        let read = |of: &AtomicU64| of.load(Ordering::Relaxed);
        let average = read(&record.sum) / count;
        let _ = write!(text, "  {name:<20} ");
        let quantiles = [500, 900, 990].map(|thousandths| record.quantile(thousandths));
        let numbers = [count, average, read(&record.min), read(&record.max)];
        for number in numbers.into_iter().chain(quantiles) {
            let _ = write!(text, "| {number:<8} ");
        }
        text += "\n";
    }
    text + &rule
}

#[cfg(test)]
mod tests {
    use super::Record;

    #[test]
    fn quantiles_lie_in_their_class_and_below_the_maximum() {
        let record = Record::new();
        (0..90).for_each(|_| record.add(25));
        (0..10).for_each(|_| record.add(700));
        assert!((20..=30).contains(&record.quantile(500)), "{}", record.quantile(500));
        assert!((650..=700).contains(&record.quantile(990)), "{}", record.quantile(990));
        record.add(1_000_000);
        assert_eq!(record.quantile(1000), 1_000_000);
    }
}
