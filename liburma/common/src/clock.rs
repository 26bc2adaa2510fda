//! The rate of the processor's cycle counter.
//!
//! *Owns*: the measurement. Programs read the counter themselves (`rdtsc`, `cntvct_el0`) and divide
//! by what stands here, so it must be the counter's rate, not the processor's clock of the moment.

use std::time::{Duration, Instant};

/// Looks at both clocks.
const LOOKS: usize = 3;
/// Time between two readings of the counter.
const SPAN: Duration = Duration::from_millis(3);

/// Cycles per microsecond of the counter that programs read; 0.0 where there is none.
/// `warn` asks UMDK's library for a warning about a varying clock; this counter's rate does not vary.
#[unsafe(no_mangle)]
pub extern "C" fn get_cpu_mhz(_warn: bool) -> f64 {
    let mut rates: Vec<f64> = (0..LOOKS).filter_map(|_| rate()).collect();
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

#[expect(clippy::disallowed_methods, reason = "this room compares two clocks")]
fn rate() -> Option<f64> {
    let (start, from) = (Instant::now(), cycles()?);
    while start.elapsed() < SPAN {
        core::hint::spin_loop();
    }
    let (elapsed, to) = (start.elapsed(), cycles()?);
    // A counter of less than 2^53 cycles between the looks: exact.
    Some(to.wrapping_sub(from) as f64 / (elapsed.as_secs_f64() * 1e6))
}

#[cfg(target_arch = "x86_64")]
fn cycles() -> Option<u64> {
    // SAFETY: reads a counter that every x86-64 processor has.
    Some(unsafe { core::arch::x86_64::_rdtsc() })
}

#[cfg(target_arch = "aarch64")]
fn cycles() -> Option<u64> {
    let count: u64;
    // SAFETY: reads the virtual counter, which user programs may read under Linux.
    unsafe { core::arch::asm!("mrs {}, cntvct_el0", out(reg) count, options(nomem, nostack)) };
    Some(count)
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
fn cycles() -> Option<u64> {
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rate_is_that_of_a_machine_of_today() {
        let rate = get_cpu_mhz(false);
        // From the 1 MHz of a small counter to the 10 GHz that no processor has.
        assert!(cycles().is_none() || (1.0..10_000.0).contains(&rate), "{rate}");
    }
}
