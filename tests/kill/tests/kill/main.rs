//! Kills one of two processes at a random time or at a named place of the device, again and again,
//! and judges what the other one wrote down.
//!
//! *Owns*: the number of kills and their mix. *Takes*: `URMA_KILLS` (208), `URMA_KILL_SEED` (1),
//! `URMA_KILL_PARALLEL` (6), `URMA_KILL_ONLY` (one episode); `URMA_STOP_PAIRS` (12), `URMA_STOP_MS`
//! (3000). *Gives*: a summary, and the journals of what failed. *Must not*: assert times, except hang limits.
#![forbid(unsafe_code)]

#[cfg(test)]
mod episode;
#[cfg(test)]
mod living;
#[cfg(test)]
mod worker;

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use urma_mem::sync::{AtomicU64, Ordering};

    use crate::{
        episode::{Death, Plan, files_of_urma, run},
        living,
    };

    fn number(name: &str, default: u64) -> u64 {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
    }

    /// Calls `work` with each index below `count`, in as many threads as are asked for.
    fn in_crews<T: Send>(count: u64, work: impl Fn(u64) -> T + Sync) -> Vec<T> {
        let next = AtomicU64::new(0);
        let indices = || {
            std::iter::from_fn(|| Some(next.fetch_add(1, Ordering::Relaxed)))
                .take_while(|index| *index < count)
        };
        let crew = || indices().map(&work).collect::<Vec<_>>();
        std::thread::scope(|scope| {
            let crews: Vec<_> =
                (0..number("URMA_KILL_PARALLEL", 6)).map(|_| scope.spawn(crew)).collect();
            crews.into_iter().flat_map(|crew| crew.join().expect("no panic")).collect()
        })
    }

    /// Every kill leaves one completion per request, nothing of the dead, and its EID free.
    #[test]
    fn kills_leave_one_completion_per_request_and_nothing_of_the_dead() {
        let (kills, seed) = (number("URMA_KILLS", 208), number("URMA_KILL_SEED", 1));
        let only = std::env::var("URMA_KILL_ONLY").ok().and_then(|text| text.parse().ok());
        let before = files_of_urma();
        let results = in_crews(kills, |index| {
            only.is_none_or(|only: u64| only == index)
                .then(|| (index, run(&Plan::new(seed, index))))
        });
        let results: Vec<_> = results.into_iter().flatten().collect();
        let mut counts = BTreeMap::new();
        let mut failures = Vec::new();
        let (mut hooks, mut missed) = (0_u64, 0_u64);
        for (index, result) in &results {
            match result {
                Ok(death) => {
                    let plan = Plan::new(seed, *index);
                    let what = format!("{:9} {:?} {death}", plan.path, plan.mode);
                    *counts.entry(what).or_insert(0_u64) += 1;
                    hooks += u64::from(matches!(death, Death::Hook(_)));
                    missed += u64::from(matches!(death, Death::Missed(_)));
                }
                Err(failure) => failures.push(format!("episode {index}: {failure}")),
            }
        }
        println!(
            "{} kills, seed {seed}: {hooks} at hooks, {missed} hooks not reached",
            results.len()
        );
        for (what, count) in counts {
            println!("{count:4} {what}");
        }
        let after = files_of_urma();
        let stayed: Vec<_> = after.difference(&before).collect();
        assert!(stayed.is_empty(), "files stayed: {stayed:?}");
        assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
        assert!(only.is_some() || missed * 20 <= kills, "too many hooks were not reached");
    }

    /// A living peer that is stopped for a while, and strangers that send whatever they like, make
    /// no request fail.
    #[test]
    fn living_peers_outlive_stops_and_strangers() {
        let (pairs, seed) = (number("URMA_STOP_PAIRS", 12), number("URMA_KILL_SEED", 1));
        let stop_ms = number("URMA_STOP_MS", 3000);
        let results = in_crews(pairs, |index| {
            let plan = living::Plan::new(seed, index, stop_ms);
            living::run(&plan).map_err(|what| format!("pair {index}: {what}"))
        });
        let sent: u64 = results.iter().flatten().sum();
        println!("{} pairs, stops of {stop_ms} ms, {sent} datagrams of strangers", results.len());
        let failures: Vec<_> = results.into_iter().filter_map(Result::err).collect();
        assert!(failures.is_empty(), "{} failed:\n{}", failures.len(), failures.join("\n"));
        assert!(sent > 0 || pairs < 2, "strangers could send");
    }
}
