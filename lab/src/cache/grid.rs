//! The grid of `cache`: every trace with every capacity and policy, checked before anything runs.
//!
//! - owns: rules of the options. takes: their text. gives: cells, or field, value and rule.
//! - must not: read a file.

use std::sync::Arc;

use urma_contexts::ContextKind;
use urma_contexts::policy::kind::{PolicyError, PolicyKind};
use urma_contexts::policy::seed::SeedRule;
use urma_contexts::trace::families::TraceFamily;
use urma_contexts::trace::read::TraceFormat;
use urma_contexts::trace::synthetic::SyntheticTrace;
use urma_contexts::trace::{HandleTrace, TraceError};

use super::options::{self, GivenOptions, TierSetting};
use crate::units::{self, GridError};

/// Bytes of a slot of L1 that may be chosen.
const SLOT_BYTES: [u32; 3] = [16, 32, 64];
/// Slots of a chip with tiers behind it.
const CHIP_SLOTS: std::ops::RangeInclusive<u32> = 64..=1 << 20;

/// A trace with its name, ready to run.
#[derive(Clone, Debug)]
pub struct NamedTrace {
    /// Name of a synthetic trace, or path of a file.
    pub name: String,
    /// The accesses of the trace.
    pub trace: HandleTrace,
    /// Next uses, which the bounds need.
    pub next: Arc<[u64]>,
    /// What bits 28 to 31 of its handles say.
    pub kinds: HandleKinds,
}

/// How a trace numbers the kinds of its handles.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandleKinds {
    /// As the generated traces of the specification do.
    Generated,
    /// As the model's tokens do, and so `urma_admin capture --contexts`.
    Tokens,
}

impl HandleKinds {
    /// Kind of a handle; what has none is a queue.
    #[must_use]
    pub fn kind(self, handle: u32) -> ContextKind {
        let number = (handle >> 28).to_le_bytes()[0];
        let kind = match (self, number) {
            (_, 0) => None,
            (Self::Tokens, number) => ContextKind::of(number),
            (Self::Generated, 1) => Some(ContextKind::Jfc),
            (Self::Generated, 2) => Some(ContextKind::Segment),
            (Self::Generated, 3) => Some(ContextKind::Page),
            (Self::Generated, _) => None,
        };
        kind.unwrap_or(ContextKind::Queue)
    }
}

impl NamedTrace {
    /// A trace with its name and next uses.
    #[must_use]
    pub fn new(name: &str, trace: HandleTrace, kinds: HandleKinds) -> Self {
        let next = trace.next_uses();
        Self { name: name.to_owned(), trace, next, kinds }
    }
}

/// One trace, one capacity, one policy.
#[derive(Clone, Debug)]
pub struct CacheCell {
    /// The trace that the policy runs on.
    pub trace: Arc<NamedTrace>,
    /// Capacity as it was given.
    pub given: String,
    /// Capacity in slots of unit size.
    pub capacity: u32,
    /// The policy that chooses victims.
    pub policy: PolicyKind,
    /// Parameters of the seed's rule.
    pub rule: SeedRule,
    /// Tiers behind the chip, if they are modelled.
    pub tiers: Option<TierSetting>,
}

impl CacheCell {
    /// Whether its policy has the seed's rule, so that the rule's parameters act.
    #[must_use]
    pub fn has_rule(&self) -> bool {
        self.policy == PolicyKind::Seed
    }

    /// Whether the other cell replays the same trace in the same way, so that they differ in the tiers alone.
    #[must_use]
    pub fn is_replay_of(&self, other: &Self) -> bool {
        self.is_beside(other) && self.policy == other.policy && self.rule == other.rule
    }

    /// Whether the other cell has the same trace and capacity.
    #[must_use]
    pub fn is_beside(&self, other: &Self) -> bool {
        self.trace.name == other.trace.name && self.given == other.given
    }
}

/// A parameter of the seed's rule.
#[derive(Debug)]
pub struct RuleOption {
    /// Name on the command line.
    pub name: &'static str,
    /// The parameter of a rule.
    pub get: fn(SeedRule) -> u32,
    set: fn(&mut SeedRule, u32),
}

/// Parameters of the seed's rule, in the order of their lists.
pub static RULE_OPTIONS: [RuleOption; 3] = [
    RuleOption { name: "aging", get: |rule| rule.aging, set: |rule, value| rule.aging = value },
    RuleOption { name: "alpha", get: |rule| rule.alpha, set: |rule, value| rule.alpha = value },
    RuleOption { name: "admit", get: |rule| rule.admit, set: |rule, value| rule.admit = value },
];

/// What a parameter of the rule wants.
const RULE_WANT: &str = "--policy seed with it: no other policy reads it";

/// Options of `cache` that name no trace.
#[derive(Clone, Debug)]
pub struct CacheText {
    /// Names of the policies to run.
    pub policies: Vec<String>,
    /// Capacities: entries, bytes with a unit, or percent of the different handles.
    pub capacities: Vec<String>,
    /// Bytes of a slot, for capacities in bytes.
    pub slot_bytes: u32,
    /// Values of each of [`RULE_OPTIONS`]; none: its default.
    pub rule: [Vec<u32>; RULE_OPTIONS.len()],
    /// Tiers behind the chip: off, l3, l2.
    pub tiers: String,
    /// Options that act on the tiers alone, each a list.
    pub tier_options: GivenOptions,
}

/// A capacity that no trace has given a number of slots yet.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Capacity {
    Entries(u32),
    Bytes(f64),
    Percent(f64),
}

/// What is read before any trace: policies and capacities that exist.
#[derive(Clone, Debug)]
pub struct CacheGrid {
    policies: Vec<PolicyKind>,
    capacities: Vec<(String, Capacity)>,
    slot_bytes: u32,
    /// Every combination of the parameters of the seed's rule; other policies ignore them.
    rules: Vec<SeedRule>,
    /// Settings of the tiers; none: they are off.
    tiers: Vec<TierSetting>,
}

impl CacheText {
    /// Checks all that can be checked without a trace.
    pub fn check(&self) -> Result<CacheGrid, GridError> {
        if !SLOT_BYTES.contains(&self.slot_bytes) {
            return Err(refused("slot-bytes", &self.slot_bytes, "16, 32 or 64"));
        }
        let policies: Result<Vec<PolicyKind>, PolicyError> =
            self.policies.iter().map(|name| PolicyKind::named(name)).collect();
        let policies = policies.map_err(policy_error)?;
        let rules = self.rules(&policies)?;
        let capacities: Result<Vec<_>, _> = self.capacities.iter().map(|text| read(text)).collect();
        let slot_bytes = self.slot_bytes;
        let tiers = options::settings(&self.tiers, &self.tier_options)?;
        Ok(CacheGrid { policies, capacities: capacities?, slot_bytes, rules, tiers })
    }

    /// Every combination of the parameters of the seed's rule, the first list slowest.
    fn rules(&self, policies: &[PolicyKind]) -> Result<Vec<SeedRule>, GridError> {
        let mut rules = vec![SeedRule::AGED];
        for (option, values) in RULE_OPTIONS.iter().zip(&self.rule) {
            if values.is_empty() {
                continue;
            }
            let with = |rule: &SeedRule, value: u32| {
                let mut rule = *rule;
                (option.set)(&mut rule, value);
                rule
            };
            let all =
                rules.iter().flat_map(|rule| values.iter().map(move |value| with(rule, *value)));
            rules = all.collect();
            // The rule is checked by a cache of one slot.
            for rule in &rules {
                PolicyKind::Seed.build(1, *rule, &Vec::new().into()).map_err(policy_error)?;
            }
            if !policies.contains(&PolicyKind::Seed) {
                let values: Vec<String> = values.iter().map(u32::to_string).collect();
                return Err(refused(option.name, &values.join(","), RULE_WANT));
            }
        }
        Ok(rules)
    }
}

impl CacheGrid {
    /// The cells of these traces; OPT with bypass is in each group, since all are compared with it.
    pub fn cells(&self, traces: &[Arc<NamedTrace>]) -> Result<Vec<CacheCell>, GridError> {
        let mut policies = self.policies.clone();
        if !policies.contains(&PolicyKind::OptBypass) {
            policies.push(PolicyKind::OptBypass);
        }
        let mut cells = Vec::new();
        for trace in traces {
            for (given, capacity) in &self.capacities {
                let capacity = self.slots(given, *capacity, trace)?;
                let with_rule = policies.iter().flat_map(|policy| {
                    let count = if *policy == PolicyKind::Seed { self.rules.len() } else { 1 };
                    self.rules[..count].iter().map(move |rule| (policy, rule))
                });
                for (policy, rule) in with_rule {
                    let tiers = if policy.is_bound() { &[][..] } else { &self.tiers[..] };
                    let cell = CacheCell {
                        trace: Arc::clone(trace),
                        given: given.clone(),
                        capacity,
                        policy: *policy,
                        rule: *rule,
                        tiers: None,
                    };
                    let with = |setting: &TierSetting| CacheCell {
                        tiers: Some(setting.clone()),
                        ..cell.clone()
                    };
                    cells.extend(tiers.iter().map(with));
                    cells.extend(tiers.is_empty().then_some(cell));
                }
            }
        }
        Ok(cells)
    }

    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a share of a u32, or checked against the different handles"
    )]
    fn slots(&self, given: &str, capacity: Capacity, trace: &NamedTrace) -> Result<u32, GridError> {
        let distinct = trace.trace.distinct();
        let slots = match capacity {
            Capacity::Entries(entries) => entries,
            Capacity::Bytes(bytes) => (bytes / f64::from(self.slot_bytes)) as u32,
            // A share such as 0.1 is a little above or below itself in binary. A short capture has few handles.
            Capacity::Percent(percent) => {
                let slots = (f64::from(distinct) * percent / 100.0 + 1e-9) as u32;
                slots.max(1)
            }
        };
        if !self.tiers.is_empty() && !CHIP_SLOTS.contains(&slots) {
            let value = format!("{given} ({slots} slots)");
            return Err(refused("capacity", &value, "64 to 1048576 slots with --tiers"));
        }
        if (1..=distinct).contains(&slots) {
            return Ok(slots);
        }
        let value = format!("{given} ({slots} slots)");
        let want = format!("1 to {distinct} slots, the different handles of {}", trace.name);
        Err(refused("capacity", &value, &want))
    }
}

fn read(text: &str) -> Result<(String, Capacity), GridError> {
    let want = "entries such as 2048, bytes such as 256K, or percent such as 10%, above 0";
    let error = || refused("capacity", &text, want);
    let capacity = if let Some(percent) = text.strip_suffix('%') {
        let above_0 = |percent: &f64| percent.is_finite() && *percent > 0.0;
        Capacity::Percent(percent.parse().ok().filter(above_0).ok_or_else(error)?)
    } else if text.ends_with(|last: char| last.is_ascii_digit()) {
        Capacity::Entries(text.parse().map_err(|_| error())?)
    } else {
        Capacity::Bytes(units::binary(text).filter(|bytes| *bytes > 0.0).ok_or_else(error)?)
    };
    if capacity == Capacity::Entries(0) {
        return Err(error());
    }
    if matches!(capacity, Capacity::Percent(percent) if percent > 100.0) {
        return Err(refused("capacity", &text, "at most 100%"));
    }
    Ok((text.to_owned(), capacity))
}

fn refused(field: &'static str, value: &dyn std::fmt::Display, want: &str) -> GridError {
    GridError { field, value: value.to_string(), want: want.to_owned() }
}

/// A parameter that a policy refused.
pub(super) fn policy_error(error: PolicyError) -> GridError {
    GridError { field: error.field, value: error.value, want: error.want }
}

/// A name of a trace or format that does not exist, or what is wrong with a file.
#[must_use]
pub fn trace_error(field: &'static str, error: &TraceError) -> GridError {
    let value = format!("{} {}", error.field, error.value);
    GridError { field, value, want: error.want.clone() }
}

/// Generates the traces of these names with `seed`, or else with each one's own; all names are checked first.
pub fn generated(names: &[String], seed: Option<u64>) -> Result<Vec<Arc<NamedTrace>>, GridError> {
    let sources: Result<Vec<_>, _> = names.iter().map(|name| TraceSource::named(name)).collect();
    let generate = |source: TraceSource| match source.generate(seed) {
        Ok(trace) => Ok(Arc::new(NamedTrace::new(source.name(), trace, HandleKinds::Generated))),
        Err(error) => Err(trace_error("trace", &error)),
    };
    sources?.into_iter().map(generate).collect()
}

/// A trace that is generated.
#[derive(Clone, Copy, Debug)]
enum TraceSource {
    Synthetic(SyntheticTrace),
    Family(&'static TraceFamily),
}

impl TraceSource {
    fn named(name: &str) -> Result<Self, GridError> {
        if let Some(family) = TraceFamily::named(name) {
            return Ok(Self::Family(family));
        }
        SyntheticTrace::named(name).map(Self::Synthetic).map_err(|error| {
            let families: Vec<&str> = TraceFamily::all().iter().map(TraceFamily::name).collect();
            let want = format!("{}, {}", error.want, families.join(", "));
            GridError { field: "trace", value: error.value, want }
        })
    }

    const fn name(self) -> &'static str {
        match self {
            Self::Synthetic(trace) => trace.name(),
            Self::Family(family) => family.name(),
        }
    }

    fn generate(self, seed: Option<u64>) -> Result<HandleTrace, TraceError> {
        match self {
            Self::Synthetic(trace) => trace.generate(seed.unwrap_or_else(|| trace.seed())),
            Self::Family(family) => family.generate(seed.unwrap_or(1)),
        }
    }
}

/// Checks the name of a format.
pub fn format(name: &str) -> Result<TraceFormat, GridError> {
    TraceFormat::named(name).map_err(|error| GridError {
        field: "format",
        value: error.value,
        want: error.want,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Slots of these capacities for a trace of so many handles, or the field that is refused.
    fn slots(capacity: &str, slot_bytes: u32, distinct: u32) -> Result<u32, &'static str> {
        let text = CacheText {
            policies: vec!["lru".to_owned()],
            capacities: vec![capacity.to_owned()],
            slot_bytes,
            rule: Default::default(),
            tiers: "off".to_owned(),
            tier_options: Vec::new(),
        };
        let trace = HandleTrace::new((0..distinct).collect()).expect("short");
        let trace = Arc::new(NamedTrace::new("once", trace, HandleKinds::Generated));
        let cells = text.check().and_then(|grid| grid.cells(&[trace]));
        cells.map(|cells| cells[0].capacity).map_err(|error| error.field)
    }

    #[test]
    fn a_capacity_is_entries_bytes_or_a_share_of_the_handles_and_one_slot_at_least() {
        for (capacity, wanted) in [
            ("7", Ok(7)),
            ("1000", Ok(1000)),
            ("1001", Err("capacity")),
            ("0", Err("capacity")),
            ("1K", Ok(32)),
            ("1.99KiB", Ok(63)),
            ("1M", Err("capacity")),
            ("0.1%", Ok(1)),
            ("0.7%", Ok(7)),
            // 1000 x 32.3 / 100 and 1000 x 64.6 / 100 are a little below 323 and 646 in binary.
            ("32.3%", Ok(323)),
            ("64.6%", Ok(646)),
            ("29%", Ok(290)),
            ("33.39%", Ok(333)),
            ("99.99%", Ok(999)),
            ("100%", Ok(1000)),
            ("0.09%", Ok(1)),
            ("100.1%", Err("capacity")),
            ("-1%", Err("capacity")),
            ("NaN%", Err("capacity")),
        ] {
            assert_eq!(slots(capacity, 32, 1000), wanted, "{capacity}");
        }
        assert_eq!((slots("1K", 16, 1000), slots("1K", 64, 1000)), (Ok(64), Ok(16)));
        assert_eq!(slots("1K", 24, 1000), Err("slot-bytes"));
        // Of three handles a third is less than one.
        assert_eq!((slots("33%", 32, 3), slots("67%", 32, 3)), (Ok(1), Ok(2)));
    }

    #[test]
    fn parameters_of_the_rule_are_combined_for_the_seeds_policy_alone() {
        let text = |policies: &str, admit: &[u32]| CacheText {
            policies: policies.split(',').map(str::to_owned).collect(),
            capacities: vec!["2".to_owned()],
            slot_bytes: 32,
            rule: [vec![3, 7], Vec::new(), admit.to_vec()],
            tiers: "off".to_owned(),
            tier_options: Vec::new(),
        };
        let trace = HandleTrace::new(vec![1, 2, 3, 1]).expect("short");
        let trace = [Arc::new(NamedTrace::new("short", trace, HandleKinds::Generated))];
        let cells = text("lru,seed", &[0, 2]).check().and_then(|grid| grid.cells(&trace));
        let cells = cells.expect("a grid");
        let rules: Vec<_> = cells.iter().map(|cell| (cell.policy.name(), cell.rule)).collect();
        let rule = |aging, admit| SeedRule { aging, alpha: 0, admit };
        let wanted = [
            ("lru", rule(3, 0)),
            ("seed", rule(3, 0)),
            ("seed", rule(3, 2)),
            ("seed", rule(7, 0)),
            ("seed", rule(7, 2)),
            ("opt-bypass", rule(3, 0)),
        ];
        assert_eq!(rules, wanted);
        let error = |policies, admit: &[u32]| {
            text(policies, admit).check().map(|_| ()).expect_err("refused").to_string()
        };
        assert_eq!(error("lru,seed", &[65_536]), "admit \"65536\": want 0 to 65535");
        assert_eq!(
            error("lru", &[]),
            "aging \"3,7\": want --policy seed with it: no other policy reads it"
        );
    }
}
