//! Runs independent jobs on all cores; results are in the order of the jobs, not of their ends.
//!
//! - owns: worker threads. takes: jobs by number. gives: their results. must not: order jobs by time.

use std::sync::Mutex;
use std::thread;

/// Results of `run(0)` to `run(jobs - 1)` on `workers` threads; `on_done` is called after each.
pub fn run_all<T: Send>(
    jobs: usize,
    workers: usize,
    run: impl Fn(usize) -> T + Sync,
    on_done: impl Fn() + Sync,
) -> Vec<T> {
    let state = Mutex::new((0, (0..jobs).map(|_| None).collect::<Vec<Option<T>>>()));
    let lock = || state.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
    let work = || {
        loop {
            let job = {
                let mut state = lock();
                state.0 += 1;
                state.0 - 1
            };
            if job >= jobs {
                return;
            }
            let result = run(job);
            lock().1[job] = Some(result);
            on_done();
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers.clamp(1, jobs.max(1)) {
            scope.spawn(work);
        }
    });
    let (_, results) = state.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    results.into_iter().flatten().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_stand_in_the_order_of_jobs() {
        for workers in [1, 2, 7] {
            let results = run_all(20, workers, |job| job * job, || {});
            assert_eq!(results, (0..20).map(|job| job * job).collect::<Vec<_>>());
        }
    }
}
