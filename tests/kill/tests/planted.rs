//! The judge refuses the journal of a device with a planted fault, and accepts that of one without.
//!
//! *Owns*: a pair without a kill. *Takes*: the feature `planted-faults`. *Gives*: the judge's word.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "kill/living.rs"]
mod living;
#[cfg(test)]
#[path = "kill/worker.rs"]
#[expect(dead_code, reason = "no process is killed here")]
mod worker;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use urma_kill::{
        channel::Word,
        plan::{Mix, Mode},
    };

    use crate::{living, worker::Worker};

    const COUNT: u64 = 240;
    const ERR_TIMEOUT: u8 = 17;
    /// More than the messages of a side, so that none waits for a receive.
    const RECEIVES: u32 = 200;
    const MIXES: [Mix; 2] = [Mix { seed: 11, mode: Mode::Rm }, Mix { seed: 12, mode: Mode::Rm }];
    const PATHS: [&str; 2] = ["same-host", "packets"];

    /// Findings of the judge about a worker with `fault`, in JSON.
    fn judgement(path: &str, fault: Option<&str>) -> String {
        verdicts(path, fault, MIXES).swap_remove(0)
    }

    /// Findings of the judge about a worker with `fault` and about its peer without one.
    fn verdicts(path: &str, fault: Option<&str>, mixes: [Mix; 2]) -> Vec<String> {
        let variables = [("URMA_PATH", path)];
        let planted: Vec<&str> = fault.iter().flat_map(|fault| ["--fault", fault]).collect();
        let arguments = [&["--bound-ms", "1500"], &planted[..]].concat();
        let mut one = Worker::start_with("faulty", &variables, &arguments).unwrap();
        let mut two = Worker::start_with("right", &variables, &["--bound-ms", "1500"]).unwrap();
        let (receives, err_timeout) = (RECEIVES, ERR_TIMEOUT);
        let prepare = |own, peer| Word::Prepare { round: 1, own, peer, receives, err_timeout };
        one.say(&prepare(mixes[0], mixes[1])).unwrap();
        two.say(&prepare(mixes[1], mixes[0])).unwrap();
        let (here, there) = (one.receive_endpoint().unwrap(), two.receive_endpoint().unwrap());
        let to = |peer| Word::Run { peer, count: Some(COUNT) };
        one.say(&to(there)).unwrap();
        two.say(&to(here)).unwrap();
        for worker in [&mut one, &mut two] {
            worker.expect(&Word::Met).unwrap();
        }
        for worker in [&mut one, &mut two] {
            worker.say(&Word::Go).unwrap();
        }
        // With a completion lost, one waits forever for a free slot: a second is enough.
        for worker in [&mut one, &mut two] {
            let _ = worker.channel.wait(std::time::Duration::from_secs(3));
        }
        for worker in [&mut one, &mut two] {
            worker.say(&Word::Stop).unwrap();
        }
        for worker in [&mut one, &mut two] {
            while worker.receive().unwrap() != Word::Closed {}
        }
        [one, two].iter().map(judged).collect()
    }

    fn judged(worker: &Worker) -> String {
        judged_with(worker, &["--clean-from", "1"])
    }

    fn judged_with(worker: &Worker, demand: &[&str]) -> String {
        let judge = Command::new(env!("CARGO_BIN_EXE_kill_judge"))
            .args(demand)
            .arg("--json")
            .arg(worker.journal())
            .output()
            .unwrap();
        let text = String::from_utf8(judge.stdout).unwrap();
        assert_eq!(judge.status.code(), Some(i32::from(!is_right(&text))));
        text
    }

    fn is_right(text: &str) -> bool {
        text.contains("\"violations\":[]")
    }

    #[test]
    fn a_right_device_is_judged_right() {
        for path in PATHS {
            let text = judgement(path, None);
            assert!(is_right(&text), "{path}: {text}");
            let least = COUNT + u64::from(RECEIVES);
            let posted = text.split([':', ',']).nth(1).and_then(|text| text.parse::<u64>().ok());
            assert!(posted.is_some_and(|posted| posted > least), "{text}");
        }
    }

    #[test]
    fn a_dropped_completion_is_named() {
        for path in PATHS {
            let text = judgement(path, Some("CompletionDropped"));
            assert!(text.contains("no_completion"), "{path}: {text}");
        }
    }

    #[test]
    fn a_doubled_completion_is_named() {
        for path in PATHS {
            let text = judgement(path, Some("CompletionDoubled"));
            // The driver drops what answers no request; the device's own count shows it.
            let named =
                text.contains("\"rule\":\"completed\"") || text.contains("\"rule\":\"counted\"");
            assert!(named, "{path}: {text}");
        }
    }

    #[test]
    fn right_devices_are_judged_right_in_every_mode() {
        for (path, mode) in PATHS.into_iter().flat_map(|path| [(path, Mode::Rc), (path, Mode::Um)])
        {
            let mixes = [11, 12].map(|seed| Mix { seed, mode });
            for text in verdicts(path, None, mixes) {
                assert!(is_right(&text), "{path}, {mode:?}: {text}");
            }
        }
    }

    #[test]
    fn a_token_that_is_not_checked_is_named() {
        for path in PATHS {
            let named = finds(path, "TokenNotChecked", "not_refused");
            assert!(named.is_ok(), "{path}: {named:?}");
        }
    }

    #[test]
    fn a_bound_that_is_off_by_one_is_named() {
        // Over packets the device holds nothing but the segment's own bytes: what its check lets
        // pass, the memory still refuses. On one host there is more behind them.
        let named = finds("same-host", "BoundOffByOne", "not_refused");
        assert!(named.is_ok(), "{named:?}");
    }

    #[test]
    fn swapped_requests_are_named() {
        // Planted in the direct path, which packets do not take.
        let named = finds("same-host", "OrderSwapped", "wrong_bytes");
        assert!(named.is_ok(), "{named:?}");
    }

    #[test]
    fn an_acknowledgement_before_the_placement_is_named() {
        for path in PATHS {
            // On one host it is acknowledged even before it is checked.
            let rule = if path == "packets" { "wrong_bytes" } else { "not_refused" };
            let named = finds(path, "AckBeforePlacement", rule);
            assert!(named.is_ok(), "{path}: {named:?}");
        }
    }

    /// Pairs 0, 12, 24, ... (RM) have stops, each longer than a connected peer is waited for (4 s);
    /// pair 5 (RC) strangers.
    fn living_pair(index: u64, fault: Option<&'static str>) -> Result<u64, String> {
        let mut plan = living::Plan::new(1, index, 4500);
        (plan.long_stops, plan.fault) = (2, fault);
        living::run(&plan)
    }

    #[test]
    fn timers_that_run_while_a_process_is_stopped_are_named() {
        assert_eq!(living_pair(0, None), Ok(0));
        // A request fails unless its answer is already in the socket when the process continues.
        let mut seen =
            (0..72).step_by(12).map(|index| living_pair(index, Some("StoppedTimeCounts")));
        let named = |text: &String| text.contains("Failed {");
        assert!(seen.any(|seen| seen.as_ref().is_err_and(named)), "nothing was named");
    }

    #[test]
    fn a_stranger_that_is_taken_for_the_peer_is_named() {
        assert!(living_pair(5, None).is_ok());
        let named = living_pair(5, Some("SenderUnproven"));
        assert!(named.as_ref().is_err_and(|text| text.contains("Failed {")), "{named:?}");
    }

    #[cfg(feature = "fault-hooks")]
    #[test]
    fn an_early_end_of_a_write_that_was_broken_off_is_named() {
        let text = broken_off(Some("LastByteEarly"));
        assert!(text.contains("\"rule\":\"wrong_memory\""), "{text}");
        let text = broken_off(None);
        assert!(is_right(&text), "{text}");
    }

    /// Findings of the judge about the peer of a worker that died while it wrote.
    #[cfg(feature = "fault-hooks")]
    fn broken_off(fault: Option<&str>) -> String {
        let planted: Vec<&str> = fault.iter().flat_map(|fault| ["--fault", fault]).collect();
        let doomed = [("URMA_PATH", "same-host"), ("URMA_KILL_AT", "MidCopy:1")];
        let mut one = Worker::start_with("faulty", &doomed, &planted).unwrap();
        let right = [("URMA_PATH", "same-host")];
        let mut two = Worker::start_with("right", &right, &["--bound-ms", "1500"]).unwrap();
        let (receives, err_timeout) = (RECEIVES, ERR_TIMEOUT);
        let prepare = |own, peer| Word::Prepare { round: 1, own, peer, receives, err_timeout };
        one.say(&prepare(MIXES[0], MIXES[1])).unwrap();
        two.say(&prepare(MIXES[1], MIXES[0])).unwrap();
        let (here, there) = (one.receive_endpoint().unwrap(), two.receive_endpoint().unwrap());
        one.say(&Word::Run { peer: there, count: None }).unwrap();
        two.say(&Word::Run { peer: here, count: None }).unwrap();
        for worker in [&mut one, &mut two] {
            worker.expect(&Word::Met).unwrap();
        }
        for worker in [&mut one, &mut two] {
            worker.say(&Word::Go).unwrap();
        }
        assert!(one.wait(crate::worker::HANG).is_some(), "the hook was not reached");
        two.say(&Word::Stop).unwrap();
        two.expect(&Word::Closed).unwrap();
        judged_with(&two, &[])
    }

    /// Whether the judge names `rule` for either of the two; else all findings. Which of the two
    /// devices errs over packets and which over shared memory differs with the fault.
    fn finds(path: &str, fault: &str, rule: &str) -> Result<(), Vec<String>> {
        let all = verdicts(path, Some(fault), MIXES);
        let rule = format!("\"rule\":\"{rule}\"");
        if all.iter().any(|text| text.contains(&rule)) { Ok(()) } else { Err(all) }
    }
}
