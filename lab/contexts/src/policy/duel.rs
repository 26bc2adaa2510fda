//! Two rules of choosing a victim, compared by how often their victims return.
//!
//! - owns: evictions and returns by rule. takes: evictions, returns. gives: the rule of the next victim.
//! - must not: give either rule up: one of [`PROBE`] victims is the other rule's.

/// One of so many victims is chosen by the rule that is worse now.
const PROBE: u32 = 16;
/// Counts are halved after so many evictions times the capacity.
const MEMORY: u32 = 2;

/// How a victim is chosen from the oldest slots of the main FIFO.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) enum VictimRule {
    /// The least used one of several.
    #[default]
    LeastUsed,
    /// The oldest one of the queue.
    Oldest,
}

/// Evictions and returns of both rules, halved from time to time.
#[derive(Clone, Debug)]
pub(super) struct RuleDuel {
    evicted: [u32; 2],
    returned: [u32; 2],
    period: u32,
    turn: u32,
}

impl RuleDuel {
    pub(super) const fn new(capacity: u32) -> Self {
        Self { evicted: [0; 2], returned: [0; 2], period: MEMORY * capacity, turn: 0 }
    }

    /// The rule of the next victim: that whose victims return less, or in its turn the other one.
    #[inline]
    pub(super) fn next(&mut self) -> VictimRule {
        self.turn = self.turn.wrapping_add(1);
        let cost = |own: usize, other: usize| {
            u64::from(self.returned[own]) * u64::from(self.evicted[other] + 1)
        };
        let is_least_used = (cost(0, 1) <= cost(1, 0)) ^ self.turn.is_multiple_of(PROBE);
        if is_least_used { VictimRule::LeastUsed } else { VictimRule::Oldest }
    }

    /// A victim of a rule left.
    #[inline]
    pub(super) fn evicted(&mut self, rule: VictimRule) {
        self.evicted[rule as usize] += 1;
        if self.evicted[0] + self.evicted[1] > self.period {
            self.evicted = self.evicted.map(|count| count / 2);
            self.returned = self.returned.map(|count| count / 2);
        }
    }

    /// A victim of a rule returned while its fingerprint was there.
    #[inline]
    pub(super) const fn returned(&mut self, rule: VictimRule) {
        self.returned[rule as usize] += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_rule_whose_victims_return_less_chooses_most_victims() {
        let mut duel = RuleDuel::new(1000);
        let mut chosen = [0; 2];
        for at in 0..40_000_u32 {
            let rule = duel.next();
            duel.evicted(rule);
            chosen[rule as usize] += 1;
            // One of two victims returns under one rule, one of four under the other; they change places once.
            let worse = if at < 20_000 { VictimRule::LeastUsed } else { VictimRule::Oldest };
            if at.is_multiple_of(if rule == worse { 2 } else { 4 }) {
                duel.returned(rule);
            }
            if at == 19_999 {
                assert!(chosen[0] < 2_000 && chosen[1] > 18_000, "{chosen:?}");
            }
        }
        assert!(chosen[0] > 18_000, "{chosen:?}");
        assert!(chosen[1] > 18_000, "{chosen:?}");
    }
}
