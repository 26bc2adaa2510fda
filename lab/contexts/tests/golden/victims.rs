//! Victims that may not leave: what each policy does when one is kept.

use std::fmt::Write as _;

use urma_contexts::policy::Policy;
use urma_contexts::policy::kind::PolicyKind;
use urma_contexts::policy::seed::SeedRule;

use crate::oracle::Dice;

/// Random calls of a policy in the order that the trait allows. Each list has what was done: the slots that left.
struct Calls {
    policy: Box<dyn Policy>,
    held: Vec<Option<u32>>,
    victims: Vec<u32>,
    kept: u32,
    /// How often the next victim was the one that had just been kept.
    again: u32,
}

impl Calls {
    fn new(kind: PolicyKind, rule: SeedRule, capacity: u32) -> Self {
        let policy = kind.build(capacity, rule, &Vec::new().into()).expect("a policy");
        Self { policy, held: vec![None; capacity as usize], victims: Vec::new(), kept: 0, again: 0 }
    }

    fn access(&mut self, handle: u32, keep: u32) {
        if let Some(slot) = self.held.iter().position(|held| *held == Some(handle)) {
            self.policy.on_hit(u32::try_from(slot).expect("small"));
            return;
        }
        self.policy.on_miss(handle);
        let empty = self.held.iter().position(Option::is_none);
        let slot = match empty {
            Some(slot) => u32::try_from(slot).expect("small"),
            None => {
                let mut slot = self.policy.victim(handle);
                for _ in 0..keep {
                    self.policy.retain(slot);
                    let next = self.policy.victim(handle);
                    self.again += u32::from(next == slot);
                    self.kept += 1;
                    slot = next;
                }
                if !self.policy.admit(handle, slot) {
                    self.victims.push(u32::MAX);
                    return;
                }
                self.victims.push(slot);
                slot
            }
        };
        self.policy.insert(handle, slot);
        self.held[slot as usize] = Some(handle);
    }

    fn destroy(&mut self, slot: u32) {
        if self.held[slot as usize].take().is_some() {
            self.policy.remove(slot);
        }
    }
}

/// A change of a policy that means to change its victims replaces the file by what the failure prints.
#[test]
fn victims_of_random_calls_are_known() {
    let mut table = String::new();
    let rules = [
        ("", SeedRule::AGED),
        (" 3 0 2", SeedRule { aging: 3, alpha: 0, admit: 2 }),
        (" 10 4 0", SeedRule { aging: 10, alpha: 4, admit: 0 }),
    ];
    for kind in PolicyKind::ALL.into_iter().filter(|kind| !kind.is_bound()) {
        for (name, rule) in rules {
            if !name.is_empty() && kind != PolicyKind::Seed {
                continue;
            }
            for capacity in [2, 3, 7, 24, 110] {
                let mut dice = Dice(u64::from(capacity));
                let mut calls = Calls::new(kind, rule, capacity);
                let most = 3 * capacity + 2;
                for at in 0..1500 {
                    let handle = match at / 300 % 3 {
                        2 => at % most,
                        _ => dice.below(most).min(dice.below(most)),
                    };
                    let keep = if dice.below(6) == 0 { 1 + dice.below(2) } else { 0 };
                    calls.access(handle, if capacity > 2 { keep } else { keep.min(1) });
                    if dice.below(25) == 0 {
                        calls.destroy(dice.below(capacity));
                    }
                }
                let digest = calls.victims.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, slot| {
                    (hash ^ u64::from(*slot)).wrapping_mul(0x100_0000_01b3)
                });
                let (count, kept, again) = (calls.victims.len(), calls.kept, calls.again);
                let name = format!("{}{name} {capacity}", kind.name());
                writeln!(table, "{name}: {count} {kept} {again} {digest:016x}").expect("a String");
            }
        }
    }
    let known = include_str!("known_victims.txt");
    let changed: Vec<_> =
        table.lines().filter(|line| known.lines().all(|old| old != *line)).collect();
    assert!(changed.is_empty() && table == known, "changed: {changed:#?}\nall of it:\n{table}");
}

/// LFU: a victim that is kept counts as used once more.
#[test]
fn a_kept_victim_counts_as_used() {
    let mut calls = Calls::new(PolicyKind::Lfu, SeedRule::LFU, 2);
    calls.access(10, 0);
    calls.access(11, 0);
    // 10 in slot 0 is the victim and kept, so 11 leaves; 12 was used less often than 10.
    calls.access(12, 1);
    assert_eq!(calls.victims, [1]);
    calls.access(13, 0);
    assert_eq!(calls.victims, [1, 1]);
}
