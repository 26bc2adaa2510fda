//! Policies as linear scans over vectors, newest first: slow, and plainly what they say.
//!
//! ARC, LIRS and W-TinyLFU as linear scans. Lists are newest first.

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

/// Takes a handle out of a list; whether it was there.
fn take_first(list: &mut Vec<u32>, handle: u32) -> bool {
    let at = list.iter().position(|other| *other == handle);
    at.map(|at| list.remove(at)).is_some()
}

/// ARC as its paper says it: lists `t1` and `t2`, ghosts `b1` and `b2`, target size `p`.
#[derive(Default)]
pub(crate) struct NaiveArc {
    pub(crate) capacity: usize,
    t1: Vec<u32>,
    t2: Vec<u32>,
    b1: Vec<u32>,
    b2: Vec<u32>,
    p: f64,
}

impl NaiveArc {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    fn replace(&mut self, in_b2: bool) {
        let len = self.t1.len() as f64;
        if self.t2.is_empty() || (len >= 1.0 && (len > self.p || (in_b2 && len >= self.p))) {
            self.b1.insert(0, self.t1.pop().expect("an entry"));
        } else {
            self.b2.insert(0, self.t2.pop().expect("an entry"));
        }
    }

    fn evict(&mut self, in_ghosts: bool, in_b2: bool) {
        let c = self.capacity;
        if !in_ghosts && self.t1.len() + self.b1.len() >= c {
            if self.b1.is_empty() {
                self.t1.pop();
                return;
            }
            self.b1.pop();
            self.replace(in_b2);
            return;
        }
        let all = self.t1.len() + self.t2.len() + self.b1.len() + self.b2.len();
        if !in_ghosts && all >= 2 * c {
            self.b2.pop();
        }
        self.replace(in_b2);
    }
}

impl Naive for NaiveArc {
    fn access(&mut self, handle: u32) -> bool {
        if take_first(&mut self.t1, handle) || take_first(&mut self.t2, handle) {
            self.t2.insert(0, handle);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let (in_b1, in_b2) = (take_first(&mut self.b1, handle), take_first(&mut self.b2, handle));
        if in_b1 {
            self.p = (self.p + (b2 / b1).max(1.0)).min(self.capacity as f64);
        } else if in_b2 {
            self.p = (self.p - (b1 / b2).max(1.0)).max(0.0);
        }
        if self.t1.len() + self.t2.len() == self.capacity {
            self.evict(in_b1 || in_b2, in_b2);
        }
        if in_b1 || in_b2 { &mut self.t2 } else { &mut self.t1 }.insert(0, handle);
        false
    }

    fn destroy(&mut self, handle: u32) {
        let _ = take_first(&mut self.t1, handle) || take_first(&mut self.t2, handle);
    }
}

/// LIRS: the stack, which of its handles are kept, the queue of the other resident ones, and what left, in that order.
#[derive(Default)]
pub(crate) struct NaiveLirs {
    capacity: usize,
    stack: Vec<u32>,
    kept: Vec<u32>,
    queue: Vec<u32>,
    left: Vec<u32>,
}

impl NaiveLirs {
    pub(crate) fn new(capacity: usize) -> Self {
        Self { capacity, ..Self::default() }
    }

    fn move_up(&mut self, handle: u32) {
        take_first(&mut self.stack, handle);
        self.stack.insert(0, handle);
    }

    /// Takes from the bottom of the stack what is not kept.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.last().copied()
            && !self.kept.contains(&bottom)
        {
            self.stack.pop();
            take_first(&mut self.left, bottom);
        }
    }

    fn keep(&mut self, handle: u32) {
        self.kept.push(handle);
        if self.kept.len() > self.capacity - (self.capacity / 100).max(1) {
            let bottom = self.stack.pop().expect("an entry");
            take_first(&mut self.kept, bottom);
            self.queue.insert(0, bottom);
        }
        self.prune();
    }

    fn limit(&mut self) {
        while self.stack.len() > 2 * self.capacity
            && let Some(oldest) = self.left.pop()
        {
            take_first(&mut self.stack, oldest);
        }
    }

    fn evict(&mut self, handle: u32) {
        if take_first(&mut self.kept, handle) {
            take_first(&mut self.stack, handle);
            self.prune();
        } else {
            take_first(&mut self.queue, handle);
            if self.stack.contains(&handle) {
                self.left.insert(0, handle);
            }
        }
    }
}

impl Naive for NaiveLirs {
    fn access(&mut self, handle: u32) -> bool {
        if self.kept.contains(&handle) {
            self.move_up(handle);
            self.prune();
            return true;
        }
        if take_first(&mut self.queue, handle) {
            let in_stack = self.stack.contains(&handle);
            self.move_up(handle);
            if in_stack {
                self.keep(handle);
            } else {
                self.queue.insert(0, handle);
                self.limit();
            }
            return true;
        }
        if self.kept.len() + self.queue.len() == self.capacity {
            let victim = self.queue.last().or_else(|| self.stack.last()).copied();
            self.evict(victim.expect("a full cache"));
        }
        let returned = take_first(&mut self.left, handle);
        self.move_up(handle);
        if returned || self.kept.len() < self.capacity - (self.capacity / 100).max(1) {
            self.keep(handle);
        } else {
            self.queue.insert(0, handle);
        }
        self.limit();
        false
    }

    fn destroy(&mut self, handle: u32) {
        if self.kept.contains(&handle) || self.queue.contains(&handle) {
            self.evict(handle);
        }
    }
}

/// W-TinyLFU: window, probation, protected, what left the main part at a hit, counts of ten hashes.
pub(crate) struct NaiveTiny {
    capacity: usize,
    window: Vec<u32>,
    probation: Vec<u32>,
    protected: Vec<u32>,
    left: Vec<u32>,
    counts: Vec<u32>,
    hits: usize,
}

fn spread(handle: u32) -> u64 {
    let z = u64::from(handle).wrapping_add(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

impl NaiveTiny {
    pub(crate) fn new(capacity: usize) -> Self {
        let counters = ((capacity - capacity / 100) * 14_378).div_ceil(1000).max(20);
        Self {
            capacity,
            window: Vec::new(),
            probation: Vec::new(),
            protected: Vec::new(),
            left: Vec::new(),
            counts: vec![0; counters],
            hits: 0,
        }
    }

    fn main_size(&self) -> usize {
        self.capacity - self.capacity / 100
    }

    fn places(&self, handle: u32) -> Vec<usize> {
        let (low, high) = (spread(handle) % (1 << 32), spread(handle) >> 32);
        let place = |n| ((low + n * high) % (1 << 32)) % self.counts.len() as u64;
        (0..10).map(|n| usize::try_from(place(n)).expect("an index")).collect()
    }

    fn count(&self, handle: u32) -> u32 {
        self.places(handle).into_iter().map(|at| self.counts[at]).min().expect("ten")
    }

    /// A place that two hashes share is counted twice.
    fn add(&mut self, handle: u32) {
        self.places(handle).into_iter().for_each(|at| self.counts[at] += 1);
    }

    fn evict(&mut self) {
        if self.left.pop().is_some() {
            return;
        }
        while let Some(candidate) = self.window.last().copied() {
            let main = self.probation.last().or_else(|| self.protected.last()).copied();
            let room = self.probation.len() + self.protected.len() < self.main_size();
            let wins = main.is_some_and(|main| self.count(candidate) > self.count(main));
            self.add(candidate);
            if room {
                self.window.pop();
                let to_protected = self.probation.len() >= self.main_size() / 5
                    && self.protected.len() < self.main_size() * 4 / 5;
                let part = if to_protected { &mut self.protected } else { &mut self.probation };
                part.insert(0, candidate);
                continue;
            }
            if wins {
                let main = main.expect("it lost");
                let _ =
                    take_first(&mut self.probation, main) || take_first(&mut self.protected, main);
                self.window.pop();
                self.probation.insert(0, candidate);
            } else {
                self.window.pop();
            }
            return;
        }
        let _ = self.probation.pop().or_else(|| self.protected.pop());
    }

    fn main_hit(&mut self, handle: u32) {
        self.protected.insert(0, handle);
        if self.protected.len() > self.main_size() * 4 / 5 {
            self.probation.insert(0, self.protected.pop().expect("an entry"));
            if self.probation.len() > self.main_size() / 5 {
                self.left.insert(0, self.probation.pop().expect("an entry"));
            }
        }
        self.add(handle);
        self.hits += 1;
        if self.hits >= 32 * self.main_size() {
            self.hits = 0;
            self.counts.iter_mut().for_each(|count| *count /= 2);
        }
    }
}

impl Naive for NaiveTiny {
    fn access(&mut self, handle: u32) -> bool {
        if take_first(&mut self.window, handle) {
            self.window.insert(0, handle);
            return true;
        }
        if take_first(&mut self.left, handle) {
            self.window.insert(0, handle);
            self.add(handle);
            return true;
        }
        if take_first(&mut self.probation, handle) || take_first(&mut self.protected, handle) {
            self.main_hit(handle);
            return true;
        }
        let parts = [&self.window, &self.probation, &self.protected, &self.left];
        if parts.iter().map(|part| part.len()).sum::<usize>() == self.capacity {
            self.evict();
        }
        self.window.insert(0, handle);
        self.add(handle);
        false
    }

    fn destroy(&mut self, handle: u32) {
        for part in [&mut self.window, &mut self.probation, &mut self.protected, &mut self.left] {
            take_first(part, handle);
        }
    }
}
