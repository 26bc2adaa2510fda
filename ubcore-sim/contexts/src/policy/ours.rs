//! prototype
use super::ghost::Ghosts;
use super::list::{Lists, NONE};
use super::{Policy, Slot};
use crate::hash::spread;

const SMALL: u32 = 0;
const MAIN: u32 = 1;

fn env(name: &str, default: f64) -> f64 {
    std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
}

#[derive(Clone, Debug)]
struct Sketch {
    table: Vec<u8>,
    mask: u64,
    max: u8,
    adds: u64,
    period: u64,
}
impl Sketch {
    fn new(c: u32) -> Self {
        let n = (f64::from(c) * env("SK_W", 16.0)) as usize;
        let n = n.next_power_of_two().max(64);
        Self { table: vec![0; n], mask: n as u64 - 1, max: env("SK_MAX", 15.0) as u8, adds: 0, period: (f64::from(c) * env("SK_P", 10.0)) as u64 }
    }
    fn places(&self, h: u32) -> [usize; 4] {
        let m = spread(h);
        let (a, b) = (m & 0xffff_ffff, m >> 32 | 1);
        [0, 1, 2, 3].map(|i| (a.wrapping_add(b.wrapping_mul(i)) & self.mask) as usize)
    }
    fn get(&self, h: u32) -> u8 {
        self.places(h).iter().map(|p| self.table[*p]).min().unwrap()
    }
    fn add(&mut self, h: u32) {
        let p = self.places(h);
        let m = self.get(h);
        if m < self.max {
            for i in p {
                if self.table[i] == m {
                    self.table[i] += 1;
                }
            }
        }
            self.adds += 1;
            if self.adds >= self.period {
                self.adds = 0;
                self.table.iter_mut().for_each(|x| *x /= 2);
            }
    }
}

#[derive(Debug)]
pub(super) struct Ours {
    q: Lists,
    count: Vec<u8>,
    handles: Vec<u32>,
    ghosts: Ghosts,
    gs: u32,
    gm: u32,
    sketch: Sketch,
    small: f64,
    cap: u32,
    p: [f64; 12],
}

impl Ours {
    pub(super) fn new(c: u32) -> Self {
        let gs = (f64::from(c) * env("GS", 1.0)) as u32 + 1;
        let gm = (f64::from(c) * env("GM", 1.0)) as u32 + 1;
        Self {
            q: Lists::new(2, c),
            count: vec![0; c as usize],
            handles: vec![0; c as usize],
            ghosts: Ghosts::new(2, gs + gm),
            gs,
            gm,
            sketch: Sketch::new(c),
            small: f64::from(c) * env("S0", 0.1),
            cap: c,
            p: [
                env("TO_MAIN", 2.0),
                env("SMIN", 0.01),
                env("SMAX", 0.8),
                env("STEP", 0.0),
                env("GHOST_MAIN", 0.0),
                env("KEEP", 0.0),
                env("CMAX", 3.0),
                env("MSTEP", 1.0),
                env("HOT", 99.0),
                env("START", 0.0), 0.0, 0.0,
            ],
        }
    }
    fn freq(&self, s: Slot) -> u8 {
        self.sketch.get(self.handles[s as usize])
    }
    fn main_victim(&mut self) -> Slot {
        loop {
            let s = self.q.oldest(MAIN);
            if s == NONE {
                return s;
            }
            let c = &mut self.count[s as usize];
            if *c == 0 {
                return s;
            }
            *c = (*c).min(self.p[6] as u8) - 1;
            self.q.move_to(MAIN, s);
        }
    }
}

impl Policy for Ours {
    fn on_hit(&mut self, slot: Slot) {
        self.sketch.add(self.handles[slot as usize]);
        let c = &mut self.count[slot as usize];
        *c = c.saturating_add(1).min(3);
    }

    fn on_miss(&mut self, handle: u32) {
        self.sketch.add(handle);
        let c = f64::from(self.cap);
        match self.ghosts.list_of(handle) {
            Some(SMALL) => {
                let r = (f64::from(self.ghosts.len(MAIN)) / f64::from(self.ghosts.len(SMALL))).max(1.0).min(8.0);
                self.small = (self.small + self.p[3] * r).min(c * self.p[2]).max(1.0);
            }
            Some(_) => {
                let r = (f64::from(self.ghosts.len(SMALL)) / f64::from(self.ghosts.len(MAIN))).max(1.0).min(8.0);
                self.small = (self.small - self.p[3] * self.p[7] * r).max(c * self.p[1]).max(1.0);
            }
            None => {}
        }
    }

    fn victim(&mut self, _handle: u32) -> Slot {
        loop {
            let s = self.q.oldest(SMALL);
            let m = self.main_victim();
            if s == NONE {
                return m;
            }
            if f64::from(self.q.len(SMALL)) < self.small && m != NONE {
                return m;
            }
            if m == NONE || f64::from(self.q.len(MAIN)) < f64::from(self.cap) - self.small.max(1.0) {
                if f64::from(self.count[s as usize]) >= self.p[0] || (m!=NONE && self.p[5] > 0.0) {
                    self.count[s as usize] = 0;
                    self.q.move_to(MAIN, s);
                    continue;
                }
                return s;
            }
            let (fs, fm) = (self.freq(s), self.freq(m));
            if fs > fm || (f64::from(self.count[s as usize]) >= self.p[0] && f64::from(fs) + self.p[8] >= f64::from(fm)) {
                self.count[s as usize] = self.p[9] as u8;
                self.q.move_to(MAIN, s);
                return m;
            }
            return s;
        }
    }

    fn admit(&mut self, _handle: u32, _victim: Slot) -> bool {
        true
    }

    fn insert(&mut self, handle: u32, slot: Slot) {
        let g = self.ghosts.take(handle);
        if let Some(l) = self.q.list_of(slot) {
            if self.ghosts.len(l) >= if l == SMALL { self.gs } else { self.gm } {
                self.ghosts.pop(l);
            }
            self.ghosts.push(l, self.handles[slot as usize]);
        }
        self.handles[slot as usize] = handle;
        self.count[slot as usize] = 0;
        let main = g.is_some() && self.p[4] > 0.0 && (g == Some(MAIN) || self.p[4] > 1.0);
        self.q.move_to(if main { MAIN } else { SMALL }, slot);
    }

    fn remove(&mut self, slot: Slot) {
        self.q.remove(slot);
    }

    fn retain(&mut self, slot: Slot) {
        self.q.move_to(MAIN, slot);
    }
}
