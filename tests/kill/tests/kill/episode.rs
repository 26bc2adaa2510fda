//! One kill: two processes work, one dies, the other is judged, a third takes the dead one's place.
//!
//! *Owns*: the plan of a kill by seed and index. *Gives*: how it died, or what was wrong. *Must
//! not*: leave a process.

use std::{
    collections::BTreeSet,
    fmt, fs,
    os::unix::process::ExitStatusExt,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::process::Signal;
use urma_kill::{
    channel::{Endpoint, Word},
    pause::rest,
    plan::{Mix, Mode, mix},
};

use crate::worker::Worker;

/// How and where one of the two shall die.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum How {
    /// SIGKILL so many microseconds after the word to run.
    Killed(u64),
    /// SIGKILL so many microseconds after the word to make objects.
    KilledEarly(u64),
    /// SIGSTOP, a rest, SIGKILL: microseconds, milliseconds.
    Stopped(u64, u64),
    /// SIGSTOP, a rest, SIGCONT, as long again, SIGKILL.
    Resumed(u64, u64),
    /// SIGSTOP, a rest, SIGCONT, the round goes to its end, SIGKILL.
    Outlived(u64, u64),
    /// At the n-th pass of a hook.
    Hook(&'static str, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Death {
    /// At a random time.
    Random(How),
    Hook(&'static str),
    /// The hook was not reached: killed later.
    Missed(&'static str),
}

impl fmt::Display for Death {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Random(How::Killed(_)) => f.write_str("killed"),
            Self::Random(How::KilledEarly(_)) => f.write_str("killed while setting up"),
            Self::Random(How::Stopped(..)) => f.write_str("stopped, then killed"),
            Self::Random(How::Resumed(..)) => f.write_str("stopped, resumed, then killed"),
            Self::Random(How::Outlived(..)) => {
                f.write_str("stopped, resumed, killed after the end")
            }
            Self::Random(How::Hook(name, _)) | Self::Hook(name) => write!(f, "at {name}"),
            Self::Missed(name) => write!(f, "killed, {name} not reached"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    seed: u64,
    pub(crate) path: &'static str,
    pub(crate) how: How,
    pub(crate) mode: Mode,
    /// The victim is started (and given everything) first.
    victim_first: bool,
}

/// Hooks with the most passes to wait for, by how often a run passes them.
const HOOKS_SAME_HOST: [(&str, u64); 8] = [
    ("SlotAnnounced", 500),
    ("MidCopy", 10),
    ("RingEntryHalf", 100),
    ("PublishedNotRung", 100),
    ("CqeBodyNoOwner", 500),
    ("DuringImport", 1),
    ("DuringRegister", 8),
    ("DuringUnregister", 8),
];
const HOOKS_PACKETS: [(&str, u64); 4] =
    [("CqeBodyNoOwner", 300), ("DuringImport", 1), ("DuringRegister", 6), ("DuringUnregister", 6)];
/// Requests of each side after the kill.
const COUNT_AFTER: u64 = 150;
/// Receives that are posted before, so that no message of a clean round waits for one.
const RECEIVES_AFTER: u32 = 200;
/// Receives in the round of the kill.
const RECEIVES: u32 = 64;
/// Error timeout: 537 ms.
const ERR_TIMEOUT: u8 = 17;
/// Error timeout of a round whose victim is stopped for longer: 67 ms.
const ERR_TIMEOUT_SHORT: u8 = 14;
/// How long such a victim is stopped, in milliseconds.
const LONG_MS: u64 = 250;
/// How long a hook is waited for.
const HOOK_LIMIT: Duration = Duration::from_secs(20);

impl Plan {
    pub(crate) fn new(seed: u64, index: u64) -> Self {
        let seed = mix(seed ^ mix(index));
        let draw = |salt: u64| mix(seed ^ salt << 32);
        let path = if (index / 2).is_multiple_of(2) { "same-host" } else { "packets" };
        let how = if index.is_multiple_of(2) {
            let hooks: &[_] = if path == "packets" { &HOOKS_PACKETS } else { &HOOKS_SAME_HOST };
            // Round-robin, so that each hook gets its share whatever the seed.
            let turn = usize::try_from(index / 4).unwrap_or(0) % hooks.len();
            let (name, most) = hooks[turn];
            How::Hook(name, 1 + draw(1) % most)
        } else {
            let (after_us, pause_ms) = (draw(2) % 120_000, 5 + draw(3) % 60);
            match draw(4) % 8 {
                0 => How::KilledEarly(after_us / 40),
                1 => How::Stopped(after_us, pause_ms),
                2 => How::Resumed(after_us, pause_ms),
                3 => match draw(6) % 3 {
                    0 => How::Stopped(after_us, LONG_MS + pause_ms),
                    1 => How::Resumed(after_us, LONG_MS + pause_ms),
                    _ => How::Outlived(after_us, LONG_MS + pause_ms),
                },
                _ => How::Killed(after_us),
            }
        };
        let mode = match (how, draw(7) % 8) {
            // UM passes few of the hooks.
            (_, 0..4) => Mode::Rm,
            (How::Hook(..), _) | (_, 4 | 5) => Mode::Rc,
            _ => Mode::Um,
        };
        Self { seed, path, how, mode, victim_first: draw(5).is_multiple_of(2) }
    }

    /// The requests of one side of one round.
    fn mix(&self, salt: u64) -> Mix {
        Mix { seed: mix(self.seed ^ salt), mode: self.mode }
    }

    /// Error timeout of the round of the kill.
    fn err_timeout(&self) -> u8 {
        match self.how {
            How::Stopped(_, pause_ms) | How::Resumed(_, pause_ms) | How::Outlived(_, pause_ms)
                if pause_ms >= LONG_MS =>
            {
                ERR_TIMEOUT_SHORT
            }
            _ => ERR_TIMEOUT,
        }
    }
}

/// Runs it.
///
/// # Errors
/// What was wrong, with where the journals are.
pub(crate) fn run(plan: &Plan) -> Result<Death, String> {
    let mut journals = Vec::new();
    let result = run_keeping(plan, &mut journals);
    result.map_err(|what| format!("{plan:?}: {what}{}", journals.join("")))
}

fn run_keeping(plan: &Plan, kept: &mut Vec<String>) -> Result<Death, String> {
    let hook = match plan.how {
        How::Hook(name, n) => format!("{name}:{n}"),
        _ => "none".to_owned(),
    };
    // The two sides of an episode place their short requests by different code.
    let lanes = if plan.victim_first { ["on", "off"] } else { ["off", "on"] };
    let calm = [("URMA_PATH", plan.path), ("URMA_LANE", lanes[1])];
    let doomed = [("URMA_PATH", plan.path), ("URMA_LANE", lanes[0]), ("URMA_KILL_AT", &*hook)];
    let (mut victim, mut survivor);
    if plan.victim_first {
        victim = Worker::start("victim", &doomed)?;
        survivor = Worker::start("survivor", &calm)?;
    } else {
        survivor = Worker::start("survivor", &calm)?;
        victim = Worker::start("victim", &doomed)?;
    }
    let result = (|| {
        let death = first_round(plan, &mut survivor, &mut victim)?;
        let stayed = sockets_of(&victim.eid);
        if !stayed.is_empty() {
            return Err(format!("sockets of the dead stayed: {stayed:?}"));
        }
        survivor.say(&Word::Stop)?;
        survivor.expect(&Word::Closed)?;
        let place = [("URMA_PATH", plan.path), ("URMA_EID", &*victim.eid)];
        let mut third = Worker::start("third", &place)?;
        let after = second_round(plan, &mut survivor, &mut third);
        let judged = judged(kept, &third, &["--clean-from", "2"]);
        after.and(judged)?;
        third.quit()?;
        survivor.say(&Word::Rest)?;
        survivor.expect(&Word::Closed)?;
        survivor.quit()?;
        Ok(death)
    })();
    let other = victim.journal().display().to_string();
    let first = judged(kept, &survivor, &["--clean-from", "2", "--peer", &other]);
    let outlived = matches!(plan.how, How::Outlived(..));
    let dead = judged(kept, &victim, &[if outlived { "--peer-lives" } else { "--dead" }]);
    let complaints: Vec<String> =
        [result.as_ref().err().cloned(), first.err(), dead.err()].into_iter().flatten().collect();
    if !complaints.is_empty() {
        return Err(complaints.join("; "));
    }
    let stayed = sockets_of(&survivor.eid);
    if !stayed.is_empty() {
        return Err(format!("sockets of the survivor stayed: {stayed:?}"));
    }
    result
}

/// The round in which one dies. The survivor has the word to run, or waits for a word.
fn first_round(plan: &Plan, survivor: &mut Worker, victim: &mut Worker) -> Result<Death, String> {
    let [here, there] = [plan.mix(1), plan.mix(2)];
    let (receives, err_timeout) = (RECEIVES, plan.err_timeout());
    let prepare = |own, peer| Word::Prepare { round: 1, own, peer, receives, err_timeout };
    let order: [(&mut Worker, _); 2] = if plan.victim_first {
        [(&mut *victim, prepare(there, here)), (&mut *survivor, prepare(here, there))]
    } else {
        [(&mut *survivor, prepare(here, there)), (&mut *victim, prepare(there, here))]
    };
    for (worker, word) in order {
        worker.say(&word)?;
    }
    if let How::KilledEarly(after) = plan.how {
        rest(Duration::from_micros(after));
        victim.kill()?;
    }
    let here = survivor.receive_endpoint()?;
    // It may be dead by now: then the survivor waits, and gets the word to stop.
    if let Ok(there) = victim.receive_endpoint() {
        let to = |peer: &Endpoint| Word::Run { peer: peer.clone(), count: None };
        if plan.victim_first {
            let _ = victim.say(&to(&here));
            survivor.say(&to(&there))?;
        } else {
            survivor.say(&to(&there))?;
            let _ = victim.say(&to(&here));
        }
        survivor.expect(&Word::Met)?;
        // A victim that died meanwhile sends nothing.
        let _ = victim.receive();
        survivor.say(&Word::Go)?;
        let _ = victim.say(&Word::Go);
    }
    die(plan, victim)
}

fn die(plan: &Plan, victim: &mut Worker) -> Result<Death, String> {
    let pause = |micros| rest(Duration::from_micros(micros));
    match plan.how {
        How::Killed(after) => pause(after),
        How::KilledEarly(_) => {}
        How::Stopped(after, milliseconds) => {
            pause(after);
            victim.signal(Signal::STOP);
            pause(milliseconds * 1000);
        }
        How::Resumed(after, milliseconds) => {
            pause(after);
            victim.signal(Signal::STOP);
            pause(milliseconds * 1000);
            victim.signal(Signal::CONT);
            pause(milliseconds * 1000);
        }
        How::Outlived(after, milliseconds) => {
            pause(after);
            victim.signal(Signal::STOP);
            pause(milliseconds * 1000);
            victim.signal(Signal::CONT);
            victim.say(&Word::Stop)?;
            victim.expect(&Word::Closed)?;
        }
        How::Hook(name, _) => {
            return match victim.wait(HOOK_LIMIT) {
                None => victim.kill().map(|()| Death::Missed(name)),
                Some(status) if status.signal() == Some(Signal::KILL.as_raw()) => {
                    Ok(Death::Hook(name))
                }
                Some(status) => Err(format!("the victim ended by itself: {status}")),
            };
        }
    }
    victim.kill().map(|()| Death::Random(plan.how))
}

/// A newcomer with the dead one's EID and the survivor: everything works.
fn second_round(plan: &Plan, survivor: &mut Worker, third: &mut Worker) -> Result<(), String> {
    let [here, there] = [plan.mix(3), plan.mix(4)];
    let (receives, err_timeout) = (RECEIVES_AFTER, ERR_TIMEOUT);
    let prepare = |own, peer| Word::Prepare { round: 2, own, peer, receives, err_timeout };
    survivor.say(&prepare(here, there))?;
    third.say(&prepare(there, here))?;
    let (here, there) = (survivor.receive_endpoint()?, third.receive_endpoint()?);
    let to = |peer| Word::Run { peer, count: Some(COUNT_AFTER) };
    survivor.say(&to(there))?;
    third.say(&to(here))?;
    survivor.expect(&Word::Met)?;
    third.expect(&Word::Met)?;
    survivor.say(&Word::Go)?;
    third.say(&Word::Go)?;
    // What went wrong in between stands in the journals, which are judged in any case.
    let (first, second) = (survivor.expect(&Word::Done), third.expect(&Word::Done));
    for worker in [&mut *survivor, &mut *third] {
        worker.say(&Word::Stop)?;
    }
    for worker in [&mut *survivor, &mut *third] {
        worker.expect(&Word::Closed)?;
    }
    first.and(second)
}

/// The separate judge's word on a worker's journal; a bad journal is kept.
fn judged(kept: &mut Vec<String>, worker: &Worker, demand: &[&str]) -> Result<(), String> {
    let result = worker.judged(demand);
    if result.is_err() {
        kept.push(format!(" [{}]", keep(&worker.journal(), worker).display()));
    }
    result
}

fn keep(path: &Path, worker: &Worker) -> PathBuf {
    let place = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!(
        "journal-{}-{}",
        worker.name,
        worker.eid.replace([':', '.'], "-")
    ));
    let _ = fs::copy(path, &place);
    place
}

/// Sockets whose name carries an EID.
fn sockets_of(eid: &str) -> Vec<String> {
    let text = fs::read_to_string("/proc/net/unix").unwrap_or_default();
    let name = format!("urma/{eid}");
    let is_its = |line: &&str| line.split_whitespace().any(|word| word.trim_matches('@') == name);
    text.lines().filter(is_its).map(str::to_owned).collect()
}

/// Files that a dead process may leave in shared memory and in the folder for temporary files.
pub(crate) fn files_of_urma() -> BTreeSet<PathBuf> {
    let places = [PathBuf::from("/dev/shm"), PathBuf::from("/dev/hugepages"), std::env::temp_dir()];
    let entries = places.iter().filter_map(|place| fs::read_dir(place).ok()).flatten().flatten();
    let is_ours = |path: &PathBuf| {
        let name = path.file_name().map(|name| name.to_string_lossy().to_lowercase());
        name.is_some_and(|name| name.contains("urma") || name.contains("udma"))
    };
    entries.map(|entry| entry.path()).filter(is_ours).collect()
}
