//! The judge says no when the device makes a mistake on purpose, and yes when it makes none.
//!
//! *Owns*: a pair without a kill. *Takes*: the feature `planted-faults`. *Gives*: the judge's word.
#![forbid(unsafe_code)]

#[cfg(test)]
#[path = "kill/worker.rs"]
#[expect(dead_code, reason = "nobody is killed here")]
mod worker;

#[cfg(test)]
mod tests {
    use std::process::Command;

    use urma_kill::channel::Word;

    use crate::worker::Worker;

    const COUNT: u64 = 120;
    /// More than the messages of a side, so that none waits for a receive.
    const RECEIVES: u32 = 200;
    const SEEDS: [u64; 2] = [11, 12];

    /// What the judge says of a worker with `fault`, in JSON.
    fn verdict(path: &str, fault: Option<&str>) -> String {
        let variables = [("URMA_PATH", path)];
        let planted: Vec<&str> = fault.iter().flat_map(|fault| ["--fault", fault]).collect();
        let arguments = [&["--bound-ms", "1500"], &planted[..]].concat();
        let mut one = Worker::start_with("faulty", &variables, &arguments).unwrap();
        let mut two = Worker::start_with("right", &variables, &["--bound-ms", "1500"]).unwrap();
        let [seed, peer_seed] = SEEDS;
        let receives = RECEIVES;
        one.say(&Word::Prepare { round: 1, seed, peer_seed, receives }).unwrap();
        let (seed, peer_seed) = (peer_seed, seed);
        two.say(&Word::Prepare { round: 1, seed, peer_seed, receives }).unwrap();
        let (here, there) = (one.hear_endpoint().unwrap(), two.hear_endpoint().unwrap());
        let to = |peer| Word::Run { peer, count: Some(COUNT) };
        one.say(&to(there)).unwrap();
        two.say(&to(here)).unwrap();
        // With a completion lost, one waits forever for a free slot: a second is enough.
        for worker in [&mut one, &mut two] {
            let _ = worker.channel.wait(std::time::Duration::from_secs(3));
        }
        for worker in [&mut one, &mut two] {
            worker.say(&Word::Stop).unwrap();
        }
        for worker in [&mut one, &mut two] {
            while worker.hear().unwrap() != Word::Closed {}
        }
        let judge = Command::new(env!("CARGO_BIN_EXE_kill_judge"))
            .args(["--clean-from", "1", "--json"])
            .arg(one.journal())
            .output()
            .unwrap();
        let text = String::from_utf8(judge.stdout).unwrap();
        assert_eq!(judge.status.code(), Some(i32::from(!text.contains("\"violations\":[]"))));
        text
    }

    #[test]
    fn a_right_device_is_judged_right() {
        for path in ["same-host", "packets"] {
            let text = verdict(path, None);
            assert!(text.contains("\"violations\":[]"), "{path}: {text}");
            let least = COUNT + u64::from(RECEIVES);
            let posted = text.split([':', ',']).nth(1).and_then(|text| text.parse::<u64>().ok());
            assert!(posted.is_some_and(|posted| posted > least), "{text}");
        }
    }

    #[test]
    fn a_dropped_completion_is_named() {
        for path in ["same-host", "packets"] {
            let text = verdict(path, Some("CompletionDropped"));
            assert!(text.contains("no_completion"), "{path}: {text}");
        }
    }

    #[test]
    fn a_doubled_completion_is_named() {
        for path in ["same-host", "packets"] {
            let text = verdict(path, Some("CompletionDoubled"));
            // The driver drops what answers no request; the device's own count tells.
            let named =
                text.contains("\"rule\":\"completed\"") || text.contains("\"rule\":\"counted\"");
            assert!(named, "{path}: {text}");
        }
    }
}
