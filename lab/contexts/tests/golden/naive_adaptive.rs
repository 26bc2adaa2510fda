//! ARC, LIRS and W-TinyLFU as linear scans. Lists are newest first.

use crate::naive::Naive;

/// Takes a handle out of a list; whether it was there.
fn take(list: &mut Vec<u32>, handle: u32) -> bool {
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
        if take(&mut self.t1, handle) || take(&mut self.t2, handle) {
            self.t2.insert(0, handle);
            return true;
        }
        let (b1, b2) = (self.b1.len() as f64, self.b2.len() as f64);
        let (in_b1, in_b2) = (take(&mut self.b1, handle), take(&mut self.b2, handle));
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
        let _ = take(&mut self.t1, handle) || take(&mut self.t2, handle);
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
        take(&mut self.stack, handle);
        self.stack.insert(0, handle);
    }

    /// Takes from the bottom of the stack what is not kept.
    fn prune(&mut self) {
        while let Some(bottom) = self.stack.last().copied()
            && !self.kept.contains(&bottom)
        {
            self.stack.pop();
            take(&mut self.left, bottom);
        }
    }

    fn keep(&mut self, handle: u32) {
        self.kept.push(handle);
        if self.kept.len() > self.capacity - (self.capacity / 100).max(1) {
            let bottom = self.stack.pop().expect("an entry");
            take(&mut self.kept, bottom);
            self.queue.insert(0, bottom);
        }
        self.prune();
    }

    fn limit(&mut self) {
        while self.stack.len() > 2 * self.capacity
            && let Some(oldest) = self.left.pop()
        {
            take(&mut self.stack, oldest);
        }
    }

    fn evict(&mut self, handle: u32) {
        if take(&mut self.kept, handle) {
            take(&mut self.stack, handle);
            self.prune();
        } else {
            take(&mut self.queue, handle);
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
        if take(&mut self.queue, handle) {
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
        let returned = take(&mut self.left, handle);
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
                let _ = take(&mut self.probation, main) || take(&mut self.protected, main);
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
        if take(&mut self.window, handle) {
            self.window.insert(0, handle);
            return true;
        }
        if take(&mut self.left, handle) {
            self.window.insert(0, handle);
            self.add(handle);
            return true;
        }
        if take(&mut self.probation, handle) || take(&mut self.protected, handle) {
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
            take(part, handle);
        }
    }
}
