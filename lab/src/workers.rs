//! Runs independent jobs on all cores, and hands their results out in the order of the jobs, not of their ends.
//!
//! - owns: worker threads. takes: jobs by number. gives: their results, each as soon as all before it are there.
//! - must not: order jobs by time.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;

/// Runs that are under way.
struct InOrder<T, D> {
    /// Number of the job that a worker takes next.
    next: usize,
    /// Number of the result that is handed out next.
    due: usize,
    /// Results that came before their turn.
    early: BTreeMap<usize, T>,
    each: D,
}

/// Calls `each` with the results of `run(0)` to `run(jobs - 1)` in this order; `workers` threads make them.
pub fn run_all<T: Send>(
    jobs: usize,
    workers: usize,
    run: impl Fn(usize) -> T + Sync,
    each: impl FnMut(usize, T) + Send,
) {
    let state = Mutex::new(InOrder { next: 0, due: 0, early: BTreeMap::new(), each });
    let lock = || state.lock().unwrap_or_else(PoisonError::into_inner);
    let work = || {
        loop {
            let job = lock().take();
            if job >= jobs {
                return;
            }
            let result = run(job);
            InOrder::put(lock(), job, result);
        }
    };
    thread::scope(|scope| {
        for _ in 0..workers.clamp(1, jobs.max(1)) {
            scope.spawn(work);
        }
    });
}

impl<T, D: FnMut(usize, T)> InOrder<T, D> {
    const fn take(&mut self) -> usize {
        self.next += 1;
        self.next - 1
    }

    fn put(mut state: MutexGuard<'_, Self>, job: usize, result: T) {
        let state = &mut *state;
        state.early.insert(job, result);
        while let Some(result) = state.early.remove(&state.due) {
            (state.each)(state.due, result);
            state.due += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_come_in_the_order_of_jobs_as_soon_as_they_can() {
        for workers in [1, 2, 7] {
            let mut results = Vec::new();
            // With several workers the first job waits until others have ended.
            let (ended, others) = std::sync::mpsc::channel();
            let others = Mutex::new(others);
            let run = |job| {
                if workers > 1 && job == 0 {
                    let others = others.lock().expect("no worker panics");
                    assert_eq!(others.iter().take(5).count(), 5);
                } else if job < 6 {
                    ended.send(()).expect("it is heard");
                }
                job * job
            };
            run_all(20, workers, run, |job, result| results.push((job, result)));
            assert_eq!(results, (0..20).map(|job| (job, job * job)).collect::<Vec<_>>());
        }
    }
}
