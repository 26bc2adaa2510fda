//! Which packets a path loses.
//!
//! - owns: loss models. takes: identity of a transmission: TP, sequence, attempt. gives: whether it is lost.
//! - must not: depend on the order of the questions, so that every strategy meets the same losses; only bursts along the link do.
//!
//! Independent losses are a hash. Bursts run along the sequence, one field of bits per TP and attempt, made from
//! the seed as far as it is needed.

use std::collections::BTreeMap;

use crate::stats::{Dice, mix};

/// A loss model with its mean loss.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct LossCfg {
    /// How losses are distributed.
    pub kind: LossKind,
    /// Part of the packets that is lost in the mean, 0 to 0.5.
    pub mean: f64,
    /// What a loss follows from beside the seed.
    pub along: Along,
}

/// What bursts run along.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Along {
    /// TP, sequence and attempt, so that every strategy meets the same losses.
    Sequence,
    /// The place of a packet among all on the link, as in a switch: strategies meet different ones.
    Link,
}

/// How losses are distributed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LossKind {
    /// Each packet by itself.
    Iid,
    /// Events of one, of 5 to 10 within 20 packets, or of 7 to 13 in a row, as in paths of that provider.
    Provider([u32; 3]),
    /// Good and bad times; in bad times, of 100 packets in the mean, all are lost.
    GilbertElliott,
}

/// Names of the models, and thousandths of single, frequent and burst events.
pub const MODELS: [(&str, LossKind); 5] = [
    ("iid", LossKind::Iid),
    ("amazon", LossKind::Provider([530, 120, 350])),
    ("google", LossKind::Provider([370, 510, 120])),
    ("microsoft", LossKind::Provider([680, 190, 130])),
    ("ge", LossKind::GilbertElliott),
];

/// Marks a model whose bursts run along the link.
const LINK: &str = "@link";
/// Mean length of a bad time, in packets.
const BAD_PACKETS: f64 = 100.0;
/// Packets within which those of a frequent event lie.
const FREQUENT_PACKETS: u32 = 20;

impl LossCfg {
    /// `iid:0.01`, `amazon:0.01`, `ge:0.01`, `amazon@link:0.01`, `none`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        if text == "none" {
            return Some(Self { kind: LossKind::Iid, mean: 0.0, along: Along::Sequence });
        }
        let (name, mean) = text.split_once(':')?;
        let (name, along) = match name.strip_suffix(LINK) {
            Some(name) => (name, Along::Link),
            None => (name, Along::Sequence),
        };
        let kind = MODELS.iter().find(|(model, _)| *model == name)?.1;
        let mean = match mean.strip_suffix('%') {
            Some(percent) => percent.parse::<f64>().ok()? / 100.0,
            None => mean.parse().ok()?,
        };
        Some(Self { kind, mean, along })
    }

    /// The text that [`LossCfg::parse`] reads.
    #[must_use]
    pub fn name(&self) -> String {
        let name = MODELS.iter().find(|(_, kind)| *kind == self.kind).map_or("", |(name, _)| name);
        let along = if self.along == Along::Link { LINK } else { "" };
        format!("{name}{along}:{}", self.mean)
    }
}

/// The losses of one run.
#[derive(Debug)]
pub struct Losses {
    cfg: LossCfg,
    seed: u64,
    /// Loss below which a hash of 64 bits is one.
    threshold: u64,
    fields: BTreeMap<(u32, u16), Field>,
    /// Transmissions that were asked about.
    asked: u64,
}

impl Losses {
    /// Losses that follow from `seed`.
    #[must_use]
    pub fn new(cfg: LossCfg, seed: u64) -> Self {
        Self {
            cfg,
            seed: mix(seed),
            threshold: threshold(cfg.mean),
            fields: BTreeMap::new(),
            asked: 0,
        }
    }

    /// Whether transmission `attempt` of packet `seq` of a TP is lost.
    pub fn is_lost(&mut self, tp: u32, seq: u64, attempt: u16) -> bool {
        if self.threshold == 0 {
            return false;
        }
        let (tp, seq, attempt) = match self.cfg.along {
            Along::Sequence => (tp, seq, attempt),
            Along::Link => {
                self.asked += 1;
                (0, self.asked, 0)
            }
        };
        let of_tp = mix(self.seed ^ u64::from(tp) << 16 ^ u64::from(attempt));
        if self.cfg.kind == LossKind::Iid {
            return mix(of_tp.wrapping_add(seq.wrapping_mul(0x9e37_79b9_7f4a_7c15)))
                < self.threshold;
        }
        let field = self.fields.entry((tp, attempt)).or_insert_with(|| Field::new(of_tp));
        field.is_lost(self.cfg, seq)
    }

    /// Whether message number `number` of the way back is lost, of which `mean` are.
    #[must_use]
    pub fn is_feedback_lost(&self, mean: f64, tp: u32, number: u64) -> bool {
        mean > 0.0
            && mix(mix(self.seed ^ !u64::from(tp)).wrapping_add(mix(number))) < threshold(mean)
    }

    /// By how many packets transmission `attempt` of `seq` is late: a `part` of them is, by up to `most`.
    #[must_use]
    pub fn late_by(&self, (part, most): (f64, u64), tp: u32, seq: u64, attempt: u16) -> u64 {
        if part <= 0.0 {
            return 0;
        }
        let hash =
            mix(mix(self.seed ^ 0x6c61_7465 ^ u64::from(tp) << 16 ^ u64::from(attempt)) ^ mix(seq));
        if hash < threshold(part) { 1 + mix(hash) % most.max(1) } else { 0 }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a part of 1 becomes a part of 2^64"
)]
fn threshold(part: f64) -> u64 {
    (part.clamp(0.0, 1.0) * 18_446_744_073_709_551_615.0) as u64
}

/// Losses along the sequence.
#[derive(Debug)]
struct Field {
    dice: Dice,
    bits: Vec<u64>,
    len: u64,
    /// Losses of the next packets by the event that lasts, and how many packets it lasts.
    next: (u32, u32),
    /// Whether all packets are lost at present.
    is_bad: bool,
}

impl Field {
    const fn new(seed: u64) -> Self {
        Self { dice: Dice::new(seed), bits: Vec::new(), len: 0, next: (0, 0), is_bad: false }
    }

    fn is_lost(&mut self, cfg: LossCfg, seq: u64) -> bool {
        while self.len <= seq {
            self.extend(cfg);
        }
        let word = usize::try_from(seq / 64).unwrap_or(usize::MAX);
        self.bits.get(word).is_some_and(|word| word >> (seq % 64) & 1 != 0)
    }

    fn extend(&mut self, cfg: LossCfg) {
        let mut word = 0;
        for bit in 0..64 {
            let lost = match cfg.kind {
                LossKind::Provider(parts) => self.provider(cfg.mean, parts, cfg.along),
                LossKind::GilbertElliott | LossKind::Iid => self.good_or_bad(cfg.mean),
            };
            word |= u64::from(lost) << bit;
        }
        self.bits.push(word);
        self.len += 64;
    }

    fn good_or_bad(&mut self, mean: f64) -> bool {
        let change =
            if self.is_bad { 1.0 / BAD_PACKETS } else { mean / (1.0 - mean) / BAD_PACKETS };
        self.is_bad ^= self.dice.roll() < threshold(change);
        self.is_bad
    }

    fn provider(&mut self, mean: f64, parts: [u32; 3], along: Along) -> bool {
        let (mut lost, mut left) = self.next;
        if left == 0 && self.dice.roll() < threshold(event_chance(mean, parts, along)) {
            (lost, left) = self.event(parts);
        }
        self.next = (lost >> 1, left.saturating_sub(1));
        lost & 1 != 0
    }

    /// Losses of the packets from this one on, and how many packets the event lasts.
    fn event(&mut self, [single, frequent, _]: [u32; 3]) -> (u32, u32) {
        let kind = u32::try_from(self.dice.below(1000)).unwrap_or(0);
        if kind < single {
            (1, 1)
        } else if kind < single + frequent {
            let count = 5 + self.dice.below(6);
            let mut drops = 0_u32;
            while (drops.count_ones() as usize) < count {
                drops |= 1 << self.dice.below(FREQUENT_PACKETS as usize);
            }
            (drops, FREQUENT_PACKETS)
        } else {
            let packets = 7 + u32::try_from(self.dice.below(7)).unwrap_or(0);
            ((1 << packets) - 1, packets)
        }
    }
}

/// Chance that an event begins with a packet that none lasts for. Events do not overlap; along the sequence the mean is met
/// nevertheless, along the link it is less, as in the simulator of the Adamap design.
fn event_chance(mean: f64, parts: [u32; 3], along: Along) -> f64 {
    let sum = |each: [f64; 3]| -> f64 {
        parts.iter().zip(each).map(|(part, n)| f64::from(*part) * n / 1000.0).sum()
    };
    let (drops, packets) = (sum([1.0, 7.5, 10.0]), sum([1.0, f64::from(FREQUENT_PACKETS), 10.0]));
    match along {
        Along::Sequence => mean / (drops - mean * (packets - 1.0)),
        Along::Link => mean / drops,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_lose_what_they_say() {
        for (name, kind) in MODELS {
            for mean in [0.001, 0.01, 0.05] {
                let mut losses = Losses::new(LossCfg { kind, mean, along: Along::Sequence }, 5);
                let packets = 2_000_000_u32;
                let lost = (0..packets).filter(|&seq| losses.is_lost(1, seq.into(), 1)).count();
                let lost = lost as f64 / f64::from(packets);
                let slack = if kind == LossKind::Iid { 0.05 } else { 0.15 };
                assert!((lost / mean - 1.0).abs() < slack, "{name}:{mean} lost {lost}");
            }
        }
    }

    #[test]
    fn feedback_and_lateness_are_those_parts_of_the_messages() {
        let losses = Losses::new(LossCfg::parse("none").expect("a model"), 3);
        let feedback = |mean, tp| -> Vec<bool> {
            (0..20_000).map(|number| losses.is_feedback_lost(mean, tp, number)).collect()
        };
        for mean in [0.0, 0.01, 0.3, 1.0] {
            let lost = feedback(mean, 1).iter().filter(|lost| **lost).count() as f64 / 20_000.0;
            assert!((lost - mean).abs() < 0.003 + mean * 0.03, "{mean}: {lost}");
        }
        assert_ne!(feedback(0.3, 1), feedback(0.3, 2), "each TP has losses of its own");
        // A fifth of the packets is late, each by 1 to 4 packets, all four as often.
        let mut by = [0_u32; 5];
        for late in (0..20_000).map(|seq| losses.late_by((0.2, 4), 1, seq, 1)) {
            by[usize::try_from(late).expect("small")] += 1;
        }
        assert!((15_700..16_300).contains(&by[0]), "{by:?}");
        assert!(by[1..].iter().all(|count| (900..1100).contains(count)), "{by:?}");
        assert!((0..1000).all(|seq| losses.late_by((0.0, 4), 1, seq, 1) == 0));
    }

    /// An event of the mix 530, 120, 350 loses 0.53 + 0.12 x 7.5 + 0.35 x 10 = 4.93 packets and lasts 6.43.
    #[test]
    fn events_begin_as_often_as_the_mean_asks_for() {
        let amazon = [530, 120, 350];
        let near =
            |found: f64, wanted: f64| assert!((found / wanted - 1.0).abs() < 1e-9, "{found}");
        near(event_chance(0.01, amazon, Along::Link), 0.01 / 4.93);
        near(event_chance(0.01, amazon, Along::Sequence), 0.01 / (4.93 - 0.01 * 5.43));
    }

    #[test]
    fn bursts_along_the_link_follow_the_place_and_not_the_packet() {
        let cfg = LossCfg::parse("google@link:0.05").expect("a model");
        let mut losses = [Losses::new(cfg, 8), Losses::new(cfg, 8)];
        let one: Vec<bool> = (0..5000).map(|seq| losses[0].is_lost(1, seq, 1)).collect();
        let other: Vec<bool> = (0..5000).map(|seq| losses[1].is_lost(2, 9000 - seq, 3)).collect();
        assert_eq!(one, other);
        assert!(one.contains(&true));
    }

    /// Each question is about the next place of the link, whichever packet it names.
    #[test]
    fn places_of_the_link_are_counted_by_one() {
        for kind in [LossKind::Iid, LossKind::GilbertElliott] {
            let cfg = |along| LossCfg { kind, mean: 0.2, along };
            let mut places = Losses::new(cfg(Along::Link), 4);
            let mut sequence = Losses::new(cfg(Along::Sequence), 4);
            for place in 1..3000 {
                let expected = sequence.is_lost(0, place, 0);
                assert_eq!(places.is_lost(7, 5, 2), expected, "{kind:?}: {place}");
            }
        }
    }

    #[test]
    fn losses_do_not_depend_on_the_order_of_questions() {
        for (_, kind) in MODELS {
            let cfg = LossCfg { kind, mean: 0.05, along: Along::Sequence };
            let (mut up, mut down) = (Losses::new(cfg, 9), Losses::new(cfg, 9));
            let asked = |losses: &mut Losses, seq: u64| {
                (1..4).map(|at| losses.is_lost(2, seq, at)).collect()
            };
            let forward: Vec<Vec<bool>> = (0..3000).map(|seq| asked(&mut up, seq)).collect();
            let mut back: Vec<Vec<bool>> =
                (0..3000).rev().map(|seq| asked(&mut down, seq)).collect();
            back.reverse();
            assert_eq!(forward, back);
        }
    }

    #[test]
    fn text_is_read_and_written() {
        for text in ["iid:0.01", "amazon:0.05", "ge:0.001", "google@link:0.02"] {
            assert_eq!(LossCfg::parse(text).expect("a model").name(), text);
        }
        assert_eq!(LossCfg::parse("iid:1%").expect("a model").mean, 0.01);
        assert_eq!(LossCfg::parse("iid"), None);
        assert_eq!(LossCfg::parse("other:0.1"), None);
    }
}
