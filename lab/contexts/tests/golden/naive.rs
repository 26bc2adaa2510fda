//! Policies as linear scans over vectors, newest first: slow, and plainly what they say.

/// A policy without slots: `access` says whether it was a hit.
pub(crate) trait Naive {
    fn access(&mut self, handle: u32) -> bool;
    fn destroy(&mut self, handle: u32);
}

/// Takes the first entry out that `is` describes.
fn take<T>(from: &mut Vec<T>, is: impl Fn(&T) -> bool) -> Option<T> {
    let at = from.iter().position(is)?;
    Some(from.remove(at))
}

/// FIFO, LRU, CLOCK, SIEVE: handle and whether it was used.
pub(crate) struct NaiveList {
    pub(crate) rule: &'static str,
    pub(crate) capacity: usize,
    pub(crate) list: Vec<(u32, bool)>,
    /// SIEVE: entries between the hand and the oldest end, so many are passed over.
    pub(crate) hand: Option<u32>,
}

impl NaiveList {
    fn at(&self, handle: u32) -> Option<usize> {
        self.list.iter().position(|entry| entry.0 == handle)
    }

    /// The handle on the newer side of an entry.
    fn newer(&self, at: usize) -> Option<u32> {
        at.checked_sub(1).map(|newer| self.list[newer].0)
    }

    fn evict(&mut self) {
        let mut at = self.list.len() - 1;
        if self.rule == "sieve" {
            at = self.hand.and_then(|hand| self.at(hand)).unwrap_or(at);
        }
        while self.list[at].1 {
            self.list[at].1 = false;
            if self.rule == "clock" {
                let entry = self.list.remove(at);
                self.list.insert(0, entry);
            } else {
                at = at.checked_sub(1).unwrap_or(self.list.len() - 1);
            }
        }
        self.hand = self.newer(at);
        self.list.remove(at);
    }
}

impl Naive for NaiveList {
    fn access(&mut self, handle: u32) -> bool {
        if let Some(at) = self.at(handle) {
            match self.rule {
                "fifo" => {}
                "lru" => {
                    let entry = self.list.remove(at);
                    self.list.insert(0, entry);
                }
                _ => self.list[at].1 = true,
            }
            return true;
        }
        if self.list.len() == self.capacity {
            self.evict();
        }
        self.list.insert(0, (handle, false));
        false
    }

    fn destroy(&mut self, handle: u32) {
        if let Some(at) = self.at(handle) {
            if self.hand == Some(handle) {
                self.hand = self.newer(at);
            }
            self.list.remove(at);
        }
    }
}

/// The seed's rule: handle, count, last access.
pub(crate) struct NaiveSeed {
    pub(crate) capacity: usize,
    pub(crate) aging: u64,
    pub(crate) alpha: u64,
    pub(crate) admit: u64,
    pub(crate) held: Vec<(u32, u64, u64)>,
    pub(crate) outside: Vec<(u32, u64)>,
    pub(crate) now: u64,
}

impl NaiveSeed {
    /// Position of the least score.
    fn victim(&self) -> usize {
        let score = |entry: &(u32, u64, u64)| {
            let rank = self.held.iter().filter(|other| other.2 < entry.2).count() as u64;
            (entry.1 * self.held.len() as u64 + self.alpha * rank, entry.2)
        };
        (0..self.held.len()).min_by_key(|at| score(&self.held[*at])).expect("a full cache")
    }
}

impl Naive for NaiveSeed {
    fn access(&mut self, handle: u32) -> bool {
        self.now += 1;
        if self.aging > 0 && self.now.is_multiple_of(self.aging * self.capacity as u64) {
            self.held.iter_mut().for_each(|entry| entry.1 /= 2);
            self.outside.iter_mut().for_each(|entry| entry.1 /= 2);
        }
        if let Some(entry) = self.held.iter_mut().find(|entry| entry.0 == handle) {
            *entry = (handle, entry.1 + 1, self.now);
            return true;
        }
        let mut count = 1;
        if self.admit > 0 {
            count += take(&mut self.outside, |entry| entry.0 == handle).map_or(0, |entry| entry.1);
            self.outside.push((handle, count));
        }
        if self.held.len() == self.capacity {
            if count < self.admit {
                return false;
            }
            self.held.remove(self.victim());
        }
        self.held.push((handle, count, self.now));
        false
    }

    fn destroy(&mut self, handle: u32) {
        take(&mut self.held, |entry| entry.0 == handle);
    }
}

/// 2Q and S3-FIFO: newcomers, main part, ghosts; handle and hits.
pub(crate) struct NaiveTwo {
    pub(crate) s3: bool,
    pub(crate) capacity: usize,
    pub(crate) small: Vec<(u32, u32)>,
    pub(crate) main: Vec<(u32, u32)>,
    pub(crate) ghosts: Vec<u32>,
    pub(crate) evicted: bool,
}

impl NaiveTwo {
    fn bury(&mut self, handle: u32) {
        self.ghosts.insert(0, handle);
        let most = if self.s3 { self.capacity - self.capacity / 10 } else { self.capacity / 2 };
        self.ghosts.truncate(most);
    }

    fn evict(&mut self) {
        self.evicted = true;
        if !self.s3 {
            if self.small.len() > self.capacity / 4 || self.main.is_empty() {
                let (handle, _) = self.small.pop().expect("an entry");
                self.bury(handle);
            } else {
                self.main.pop();
            }
            return;
        }
        loop {
            let most = self.capacity - self.capacity / 10;
            if self.main.len() > most || self.small.is_empty() {
                let (handle, hits) = self.main.pop().expect("an entry");
                if hits == 0 {
                    return;
                }
                self.main.insert(0, (handle, hits.min(3) - 1));
            } else {
                let (handle, hits) = self.small.pop().expect("an entry");
                if hits < 2 {
                    return self.bury(handle);
                }
                self.main.insert(0, (handle, 0));
            }
        }
    }
}

impl Naive for NaiveTwo {
    fn access(&mut self, handle: u32) -> bool {
        if let Some(entry) = self.small.iter_mut().find(|entry| entry.0 == handle) {
            entry.1 += 1;
            return true;
        }
        if let Some(at) = self.main.iter().position(|entry| entry.0 == handle) {
            self.main[at].1 += 1;
            if !self.s3 {
                let entry = self.main.remove(at);
                self.main.insert(0, entry);
            }
            return true;
        }
        let mut main = take(&mut self.ghosts, |ghost| *ghost == handle).is_some();
        if self.small.len() + self.main.len() == self.capacity {
            self.evict();
        }
        main |= self.s3 && !self.evicted && self.small.len() >= self.capacity / 10;
        if main { &mut self.main } else { &mut self.small }.insert(0, (handle, 0));
        false
    }

    fn destroy(&mut self, handle: u32) {
        take(&mut self.small, |entry| entry.0 == handle);
        take(&mut self.main, |entry| entry.0 == handle);
    }
}

/// Belady's OPT over the trace: next uses by a scan of the rest.
pub(crate) struct NaiveOpt {
    pub(crate) bypass: bool,
    pub(crate) capacity: usize,
    pub(crate) trace: Vec<u32>,
    pub(crate) now: usize,
    pub(crate) held: Vec<u32>,
}

impl NaiveOpt {
    fn next(&self, handle: u32) -> usize {
        let rest = self.trace[self.now..].iter().position(|other| *other == handle);
        rest.unwrap_or(usize::MAX)
    }
}

impl Naive for NaiveOpt {
    fn access(&mut self, handle: u32) -> bool {
        self.now += 1;
        if self.held.contains(&handle) {
            return true;
        }
        if self.held.len() == self.capacity {
            let last = (0..self.held.len()).max_by_key(|at| self.next(self.held[*at]));
            let last = last.expect("a full cache");
            if self.bypass && self.next(handle) >= self.next(self.held[last]) {
                return false;
            }
            self.held.remove(last);
        }
        self.held.push(handle);
        false
    }

    fn destroy(&mut self, handle: u32) {
        take(&mut self.held, |held| *held == handle);
    }
}
