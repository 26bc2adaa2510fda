//! A sweep: many runs, of which those that ended stay when the program does not reach its end.
//!
//! - owns: `runs.jsonl` of a folder, which runs a shard has. takes: runs with their keys. gives: what each gave, in their order.
//! - must not: know an experiment.
//!
//! A run is a line of `runs.jsonl` as soon as it ended: `{"key": ..., "run": ...}`. A key says all that the run follows from, so a
//! sweep that is resumed, or merged from shards, takes from there what it would compute.

use std::collections::HashMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use siphasher::sip128::SipHasher24;

use crate::units::GridError;
use crate::workers::run_all;

/// File of a folder with its runs.
const RUNS: &str = "runs.jsonl";

/// Key of a run: a hash of all that it follows from, as text.
#[must_use]
pub fn key(of: &str) -> String {
    format!("{:032x}", SipHasher24::new().hash(of.as_bytes()).as_u128())
}

/// One part of several that a sweep is divided into.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shard {
    /// Its number, from 0 on.
    pub number: usize,
    /// How many there are.
    pub of: usize,
}

impl Shard {
    /// All of a sweep.
    pub const WHOLE: Self = Self { number: 0, of: 1 };

    /// Reads `2/8`: the third of eight parts.
    pub fn parse(text: &str) -> Result<Self, GridError> {
        let parts = text.split_once('/');
        let shard = parts.and_then(|(number, of)| {
            Some(Self { number: number.parse().ok()?, of: of.parse().ok()? })
        });
        shard.filter(|shard| shard.number < shard.of).ok_or_else(|| GridError {
            field: "shard",
            value: text.to_owned(),
            want: "a number and how many shards there are, such as 0/8 to 7/8".to_owned(),
        })
    }

    const fn has(self, job: usize) -> bool {
        job % self.of == self.number
    }
}

/// Runs that ended, and where further ones are kept.
#[derive(Debug, Default)]
pub struct RunStore {
    known: HashMap<String, Value>,
    file: Option<(PathBuf, File)>,
}

impl RunStore {
    /// Opens the store in `folder`, which is made; one that has runs must be one that is resumed.
    pub fn open(folder: &Path, is_resumed: bool) -> Result<Self, GridError> {
        let wrong = |value: String, want: &str| {
            Err(GridError { field: "out", value, want: want.to_owned() })
        };
        let path = folder.join(RUNS);
        let cannot = |error: io::Error| format!("{}: {error}", path.display());
        let made = fs::create_dir_all(folder);
        let opened = made
            .and_then(|()| OpenOptions::new().read(true).append(true).create(true).open(&path))
            .and_then(|file| Ok((fs::read_to_string(&path)?, file)));
        let (text, file) = match opened {
            Ok(opened) => opened,
            Err(error) => return wrong(cannot(error), "a folder that can be written"),
        };
        let mut store = Self { known: HashMap::new(), file: Some((path.clone(), file)) };
        let whole = store.read(&text);
        if !store.known.is_empty() && !is_resumed {
            let value = format!("{}: {} runs", path.display(), store.known.len());
            return wrong(value, "--resume to go on there, or another folder");
        }
        // A line that was being written when the program was ended.
        if whole < text.len()
            && let Some((_, file)) = &store.file
            && let Err(error) = file.set_len(whole as u64)
        {
            return wrong(cannot(error), "a folder that can be written");
        }
        Ok(store)
    }

    /// Adds the runs of another folder: of a shard, which may have none if there are few runs.
    pub fn add(&mut self, folder: &Path) -> Result<(), GridError> {
        let path = folder.join(RUNS);
        let text = fs::read_to_string(&path).map_err(|error| GridError {
            field: "merge",
            value: format!("{}: {error}", path.display()),
            want: "a folder that --out wrote".to_owned(),
        })?;
        self.read(&text);
        Ok(())
    }

    /// Takes the runs of a file; gives the bytes of its whole lines.
    fn read(&mut self, text: &str) -> usize {
        let whole = text.rfind('\n').map_or(0, |at| at + 1);
        for line in text[..whole].lines() {
            let Ok(mut line) = serde_json::from_str::<Value>(line) else { continue };
            if let Some(key) = line["key"].as_str().map(str::to_owned) {
                self.known.insert(key, line["run"].take());
            }
        }
        whole
    }

    fn get<T: DeserializeOwned>(&self, key: &str) -> Option<T> {
        T::deserialize(self.known.get(key)?).ok()
    }

    /// Writes a line at once, so that it is there whatever ends the program.
    fn keep(&mut self, key: &str, run: &impl Serialize) -> Result<(), GridError> {
        let Some((path, file)) = &mut self.file else { return Ok(()) };
        let line = format!("{}\n", json!({ "key": key, "run": run }));
        file.write_all(line.as_bytes()).map_err(|error| GridError {
            field: "out",
            value: format!("{}: {error}", path.display()),
            want: "room for a line per run".to_owned(),
        })
    }
}

/// Which runs of a sweep are made, where, by how many threads.
#[derive(Debug)]
pub struct Sweep {
    /// Runs that are known, and where others are kept.
    pub store: RunStore,
    /// The part of the sweep that is run.
    pub shard: Shard,
    /// Threads that run it.
    pub workers: usize,
    /// Whether every run must be known.
    pub is_merged: bool,
}

impl Sweep {
    /// A whole sweep that keeps nothing, for tests.
    #[must_use]
    pub fn plain(workers: usize) -> Self {
        Self { store: RunStore::default(), shard: Shard::WHOLE, workers, is_merged: false }
    }

    /// Makes the runs of the shard that are not known; `each` gets the runs of the shard in their order, known ones too. The first
    /// failure ends the sweep; what was kept stays.
    pub fn run<T: Serialize + DeserializeOwned + Send>(
        &mut self,
        keys: &[String],
        run: impl Fn(usize) -> Result<T, GridError> + Sync,
        mut each: impl FnMut(usize, T) + Send,
    ) -> Result<(), GridError> {
        let jobs: Vec<usize> = (0..keys.len()).filter(|job| self.shard.has(*job)).collect();
        let known: Vec<Option<T>> = jobs.iter().map(|job| self.store.get(&keys[*job])).collect();
        let is_known: Vec<bool> = known.iter().map(Option::is_some).collect();
        let missing = is_known.iter().filter(|is_known| !**is_known).count();
        if self.is_merged && missing > 0 {
            return Err(GridError {
                field: "merge",
                value: format!("{missing} of {} runs are missing", jobs.len()),
                want: "all shards of one sweep".to_owned(),
            });
        }
        let mut known = known.into_iter();
        let store = Mutex::new((&mut self.store, Ok(())));
        let lock = || store.lock().unwrap_or_else(PoisonError::into_inner);
        let make = |at: usize| {
            // After a failure the rest is not run.
            if is_known[at] || lock().1.is_err() {
                return None;
            }
            let made = run(jobs[at]);
            let (store, result) = &mut *lock();
            let kept = made.and_then(|made| store.keep(&keys[jobs[at]], &made).map(|()| made));
            match kept {
                Ok(made) => Some(made),
                Err(error) => {
                    *result = Err(error);
                    None
                }
            }
        };
        run_all(jobs.len(), self.workers, make, |at, made| {
            let known = known.next().flatten();
            if let Some(run) = made.or(known) {
                each(jobs[at], run);
            }
        });
        store.into_inner().unwrap_or_else(PoisonError::into_inner).1
    }
}
