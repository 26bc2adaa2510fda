//! Options that act on the tiers alone: names, units, ranges, and which parameter of the model each one sets.
//!
//! - owns: the table of them, rules between them. takes: their text. gives: settings, every combination of the lists.
//! - must not: know a trace or a policy.

use serde_json::{Value, json};
use urma_contexts::{CacheCfg, FillRule, MeetMigration};

use crate::units::{self, GridError};

/// How a write of a context reaches host memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum WritePolicy {
    /// It changes small fields on the chip; what differs is written when the context leaves.
    Back,
    /// It changes strong fields, and ends when host memory has them.
    Through,
}

/// Tiers behind the chip, and which accesses come.
#[derive(Clone, PartialEq, Debug)]
pub struct TierSetting {
    /// Parameters of the model; slots of the chip are the cell's.
    pub cfg: CacheCfg,
    /// Accesses that begin in a second at most.
    pub accesses_per_s: f64,
    /// Accesses that may be under way.
    pub window: usize,
    /// Part of the accesses that write.
    pub writes: f64,
    /// How these accesses write.
    pub write_policy: WritePolicy,
}

impl TierSetting {
    /// The default of every option, with CXL memory or without.
    #[must_use]
    pub fn new(has_l2: bool) -> Self {
        let mut cfg = CacheCfg { index_limit: 1 << 28, ..CacheCfg::default() };
        cfg.l2_bytes *= u64::from(has_l2);
        Self {
            cfg,
            accesses_per_s: 120e6,
            window: 64,
            writes: 1.0,
            write_policy: WritePolicy::Back,
        }
    }

    /// Whether there is CXL memory between chip and host memory.
    #[must_use]
    pub const fn has_l2(&self) -> bool {
        self.cfg.l2_bytes > 0
    }

    /// Checks the rules between options.
    fn check(&self) -> Result<(), GridError> {
        self.cfg.check().map_err(|error| {
            let option = TIER_OPTIONS.iter().find(|option| option.field == error.field);
            let value = option.map_or_else(|| error.value.to_string(), |option| option.text(self));
            GridError { field: option.map_or(error.field, |o| o.name), value, want: error.rule }
        })?;
        let refused = |field, value: &str, want: &str| {
            Err(GridError { field, value: value.to_owned(), want: want.to_owned() })
        };
        let is_through = self.write_policy == WritePolicy::Through;
        if self.cfg.in_flight == MeetMigration::Optimistic && self.writes >= 1.0 && !is_through {
            let want = "--writes below 1 with it: an access that changes small fields always waits";
            return refused("in-flight", "optimistic", want);
        }
        if is_through && self.writes <= 0.0 {
            return refused("write-policy", "through", "--writes above 0 with it");
        }
        Ok(())
    }
}

/// What an option is given in.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OptionUnit {
    Count,
    /// A number of ns without a unit.
    Ns,
    /// A time with its unit, kept in ns.
    Time,
    /// Bytes with K, M or G of 1024.
    Bytes,
    /// Bits a second, kept in Gb/s.
    Rate,
    PerSecond,
    Part,
    /// One of these words, kept as its place among them.
    Word(&'static [&'static str]),
}

/// Suffixes with which a number is shown.
const TIMES: [(&str, f64); 4] = [("s", 1e9), ("ms", 1e6), ("us", 1e3), ("ns", 1.0)];
const BYTES: [(&str, f64); 4] =
    [("G", 1_073_741_824.0), ("M", 1_048_576.0), ("K", 1024.0), ("", 1.0)];
const EVENTS: [(&str, f64); 4] = [("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0)];

impl OptionUnit {
    fn read(self, text: &str) -> Option<f64> {
        match self {
            Self::Count | Self::Ns => text.parse::<u32>().ok().map(f64::from),
            Self::Time => units::time(text).ok().map(|ps| ps / 1e3),
            Self::Bytes => units::binary(text),
            Self::Rate => units::rate(text).ok().map(|rate| rate / 1e9),
            Self::PerSecond => units::events(text).ok(),
            Self::Part => text.parse::<f64>().ok(),
            Self::Word(words) => {
                let at = words.iter().position(|word| *word == text)?;
                Some(f64::from(u8::try_from(at).ok()?))
            }
        }
    }

    fn text(self, value: f64) -> String {
        let units = match self {
            Self::Time => TIMES,
            Self::Bytes => BYTES,
            Self::PerSecond => EVENTS,
            Self::Rate => return format!("{value}G"),
            Self::Word(words) => return words[index(value)].to_owned(),
            Self::Count | Self::Ns | Self::Part => return value.to_string(),
        };
        let fits = |(_, scale): &&(&str, f64)| value >= *scale && value % scale == 0.0;
        units
            .iter()
            .find(fits)
            .map_or_else(|| value.to_string(), |(unit, scale)| format!("{}{unit}", value / scale))
    }

    /// Whether only whole numbers make sense.
    const fn is_whole(self) -> bool {
        !matches!(self, Self::PerSecond | Self::Part)
    }

    /// What follows a range.
    const fn words(self) -> &'static str {
        match self {
            Self::Ns => " ns",
            Self::Bytes => " bytes",
            Self::Rate => " bits a second",
            Self::PerSecond => " accesses a second",
            Self::Count | Self::Time | Self::Part | Self::Word(_) => "",
        }
    }
}

/// An option that acts on the tiers: a list, of which every value is combined with those of the other lists.
#[derive(Debug)]
pub struct TierOption {
    /// Name on the command line.
    pub name: &'static str,
    /// What it sets, for the help.
    pub help: &'static str,
    /// Name of the parameter in JSON and CSV, which is the model's where it is one of the model.
    pub field: &'static str,
    /// Whether nothing reads it where there is no CXL memory.
    pub needs_l2: bool,
    unit: OptionUnit,
    /// Range of what is no parameter of the model.
    range: (f64, f64),
    set: OptionSetter,
    get: OptionGetter,
}

type OptionSetter = fn(&mut TierSetting, f64);
type OptionGetter = fn(&TierSetting) -> f64;

impl TierOption {
    /// The option of a name.
    #[must_use]
    pub fn named(name: &str) -> Option<&'static Self> {
        TIER_OPTIONS.iter().find(|option| option.name == name)
    }

    /// Whether its values are numbers, which can be an axis.
    #[must_use]
    pub const fn is_number(&self) -> bool {
        !matches!(self.unit, OptionUnit::Word(_))
    }

    /// Whether 0 is one of its values.
    #[must_use]
    pub fn has_zero(&self) -> bool {
        self.range().0 <= 0.0
    }

    /// Unit of its value as a number, with a word before it.
    #[must_use]
    pub const fn unit_words(&self) -> &'static str {
        match self.unit {
            OptionUnit::Ns | OptionUnit::Time => " in ns",
            OptionUnit::Bytes => " in bytes",
            OptionUnit::Rate => " in Gb/s",
            OptionUnit::PerSecond => " in accesses a second",
            OptionUnit::Count | OptionUnit::Part | OptionUnit::Word(_) => "",
        }
    }

    /// Its value as a number.
    #[must_use]
    pub fn value(&self, setting: &TierSetting) -> f64 {
        (self.get)(setting)
    }

    /// Its value as it is given.
    #[must_use]
    pub fn text(&self, setting: &TierSetting) -> String {
        self.unit.text((self.get)(setting))
    }

    /// Its value for JSON and CSV, in the unit that the name of the field has.
    #[must_use]
    pub fn json(&self, setting: &TierSetting) -> Value {
        let value = (self.get)(setting);
        match self.unit {
            OptionUnit::Word(words) => json!(words[index(value)]),
            unit if unit.is_whole() => json!(whole(value)),
            _ => json!(value),
        }
    }

    /// Text of the help: what it sets, its range and default.
    #[must_use]
    pub fn help(&self) -> String {
        let default = self.text(&TierSetting::new(true));
        format!("{}: {} [default: {default}]", self.help, self.want())
    }

    fn want(&self) -> String {
        if let OptionUnit::Word(words) = self.unit {
            return words.join(" or ");
        }
        let (least, most) = self.range();
        let (least, most) = (self.unit.text(least), self.unit.text(most));
        format!("{least} to {most}{}", self.unit.words())
    }

    fn range(&self) -> (f64, f64) {
        let of_model = CacheCfg::range(self.field);
        of_model.map_or(self.range, |(least, most)| (least as f64, most as f64))
    }

    fn read(&self, text: &str) -> Result<f64, GridError> {
        let (least, most) = match self.unit {
            OptionUnit::Word(words) => (0.0, words.len() as f64),
            _ => self.range(),
        };
        let is_right = |value: &f64| {
            (least..=most).contains(value) && (!self.unit.is_whole() || value.fract() == 0.0)
        };
        self.unit.read(text).filter(is_right).ok_or_else(|| self.refused(text, self.want()))
    }

    fn refused(&self, value: &str, want: String) -> GridError {
        GridError { field: self.name, value: value.to_owned(), want }
    }
}

/// Options with the texts that were given for them.
pub type GivenOptions = Vec<(&'static TierOption, Vec<String>)>;

/// Every combination of what is given, the first list slowest. Without tiers nothing may be given; without CXL memory, nothing
/// that acts on it.
pub fn settings(tiers: &str, given: &GivenOptions) -> Result<Vec<TierSetting>, GridError> {
    let has_l2 = match tiers {
        "l2" => true,
        "off" | "l3" => false,
        other => {
            let (value, want) = (other.to_owned(), "off, l3 or l2".to_owned());
            return Err(GridError { field: "tiers", value, want });
        }
    };
    let mut settings = vec![TierSetting::new(has_l2)];
    for (option, texts) in given {
        let needed = if option.needs_l2 { "--tiers l2" } else { "--tiers l2 or l3" };
        if tiers == "off" || option.needs_l2 && !has_l2 {
            let want = format!("{needed} with it: nothing reads it with --tiers {tiers}");
            return Err(option.refused(&texts.join(","), want));
        }
        let values: Result<Vec<f64>, _> = texts.iter().map(|text| option.read(text)).collect();
        let values = values?;
        let combined = settings.iter().flat_map(|setting| {
            values.iter().map(move |value| {
                let mut setting = setting.clone();
                (option.set)(&mut setting, *value);
                setting
            })
        });
        settings = combined.collect();
    }
    settings.iter().try_for_each(TierSetting::check)?;
    Ok(if tiers == "off" { Vec::new() } else { settings })
}

/// A value of an option that only takes whole numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "whole, and checked against a range above 0"
)]
const fn whole(value: f64) -> u64 {
    value as u64
}

fn narrow(value: f64) -> u32 {
    u32::try_from(whole(value)).unwrap_or(u32::MAX)
}

fn index(value: f64) -> usize {
    usize::try_from(whole(value)).unwrap_or(usize::MAX)
}

/// An option of the model, whose range is the model's.
const fn of_model(
    (name, field): (&'static str, &'static str),
    unit: OptionUnit,
    help: &'static str,
    (set, get): (OptionSetter, OptionGetter),
) -> TierOption {
    TierOption { name, help, field, needs_l2: false, unit, range: (0.0, 0.0), set, get }
}

/// The same, of one that acts on CXL memory.
const fn of_l2(
    names: (&'static str, &'static str),
    unit: OptionUnit,
    help: &'static str,
    access: (OptionSetter, OptionGetter),
) -> TierOption {
    TierOption { needs_l2: true, ..of_model(names, unit, help, access) }
}

/// All options of the tiers.
pub static TIER_OPTIONS: [TierOption; 21] = [
    TierOption {
        range: (1e3, 1e10),
        ..of_model(
            ("rate", "accesses_per_s_most"),
            OptionUnit::PerSecond,
            "Accesses that begin in a second at most",
            (|s, v| s.accesses_per_s = v, |s| s.accesses_per_s),
        )
    },
    TierOption {
        range: (1.0, 65_536.0),
        ..of_model(
            ("window", "window"),
            OptionUnit::Count,
            "Accesses that may be under way",
            (|s, v| s.window = index(v), |s| s.window as f64),
        )
    },
    of_l2(
        ("promote-l1", "promote_l1"),
        OptionUnit::Count,
        "Hits in the counting window that bring a context from CXL memory to the chip",
        (|s, v| s.cfg.promote_l1 = narrow(v), |s| s.cfg.promote_l1.into()),
    ),
    of_l2(
        ("promote-l2", "promote_l2"),
        OptionUnit::Count,
        "Hits in the counting window that bring a context from host to CXL memory, at most those of --promote-l1",
        (|s, v| s.cfg.promote_l2 = narrow(v), |s| s.cfg.promote_l2.into()),
    ),
    of_l2(
        ("count-window", "window_ns"),
        OptionUnit::Time,
        "Window in which hits are counted",
        (|s, v| s.cfg.window_ns = whole(v), |s| s.cfg.window_ns as f64),
    ),
    of_l2(
        ("sample", "sample"),
        OptionUnit::Count,
        "One of so many accesses is counted, with this weight",
        (|s, v| s.cfg.sample = narrow(v), |s| s.cfg.sample.into()),
    ),
    of_l2(
        ("adapt", "adapt"),
        OptionUnit::Word(&["off", "on"]),
        "Whether --promote-l1 follows the load",
        (|s, v| s.cfg.adapt = v > 0.0, |s| f64::from(u8::from(s.cfg.adapt))),
    ),
    of_model(
        ("fill", "fill"),
        OptionUnit::Word(&["demand", "threshold"]),
        "What brings a context to the chip, each miss that the policy admits or the counts of hits alone",
        (
            |s, v| s.cfg.fill = [FillRule::Demand, FillRule::Threshold][index(v)],
            |s| f64::from(u8::from(s.cfg.fill == FillRule::Threshold)),
        ),
    ),
    of_model(
        ("in-flight", "in_flight"),
        OptionUnit::Word(&["wait", "optimistic"]),
        "Whether a read that meets a migration of its context waits or reads the place that is left",
        (
            |s, v| s.cfg.in_flight = [MeetMigration::Wait, MeetMigration::Optimistic][index(v)],
            |s| f64::from(u8::from(s.cfg.in_flight == MeetMigration::Optimistic)),
        ),
    ),
    of_model(
        ("idle-l1", "idle_l1_ns"),
        OptionUnit::Time,
        "Time without an access after which a context leaves the chip",
        (|s, v| s.cfg.idle_l1_ns = whole(v), |s| s.cfg.idle_l1_ns as f64),
    ),
    of_l2(
        ("idle-l2", "idle_l2_ns"),
        OptionUnit::Time,
        "Time without an access after which a context leaves CXL memory, if more than 90 % of it are in use",
        (|s, v| s.cfg.idle_l2_ns = whole(v), |s| s.cfg.idle_l2_ns as f64),
    ),
    of_l2(
        ("l2", "l2_bytes"),
        OptionUnit::Bytes,
        "Size of CXL memory, where 0 is none",
        (|s, v| s.cfg.l2_bytes = whole(v), |s| s.cfg.l2_bytes as f64),
    ),
    of_l2(
        ("page", "page_bytes"),
        OptionUnit::Bytes,
        "Size of its pages, a power of two",
        (|s, v| s.cfg.page_bytes = narrow(v), |s| s.cfg.page_bytes.into()),
    ),
    of_l2(
        ("cluster", "cluster_bytes"),
        OptionUnit::Bytes,
        "Descriptors that one promotion to CXL memory reads",
        (|s, v| s.cfg.cluster_bytes = narrow(v), |s| s.cfg.cluster_bytes.into()),
    ),
    of_model(
        ("l1-ns", "l1_ns"),
        OptionUnit::Ns,
        "Latency of the chip",
        (|s, v| s.cfg.l1_ns = whole(v), |s| s.cfg.l1_ns as f64),
    ),
    of_l2(
        ("l2-ns", "l2_ns"),
        OptionUnit::Ns,
        "Median latency of CXL memory",
        (|s, v| s.cfg.l2_ns = whole(v), |s| s.cfg.l2_ns as f64),
    ),
    of_model(
        ("l3-ns", "l3_ns"),
        OptionUnit::Ns,
        "Median latency of host memory",
        (|s, v| s.cfg.l3_ns = whole(v), |s| s.cfg.l3_ns as f64),
    ),
    of_model(
        ("dma-slots", "outstanding"),
        OptionUnit::Count,
        "Reads that may be outstanding",
        (|s, v| s.cfg.outstanding = narrow(v), |s| s.cfg.outstanding.into()),
    ),
    of_model(
        ("link", "link_gbps"),
        OptionUnit::Rate,
        "Rate of the link to both memories",
        (|s, v| s.cfg.link_gbps = whole(v), |s| s.cfg.link_gbps as f64),
    ),
    TierOption {
        range: (0.0, 1.0),
        ..of_model(
            ("writes", "writes"),
            OptionUnit::Part,
            "Part of the accesses that write; the others read",
            (|s, v| s.writes = v, |s| s.writes),
        )
    },
    of_model(
        ("write-policy", "write_policy"),
        OptionUnit::Word(&["back", "through"]),
        "What is written, small fields on the chip that are written back when they leave or strong fields of all tiers",
        (
            |s, v| s.write_policy = [WritePolicy::Back, WritePolicy::Through][index(v)],
            |s| f64::from(u8::from(s.write_policy == WritePolicy::Through)),
        ),
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// Settings of options that are given as on the command line: `sample 1,2 window 5`.
    fn given(tiers: &str, line: &str) -> Result<Vec<TierSetting>, String> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let given = words.chunks(2).map(|pair| {
            let texts = pair[1].split(',').map(str::to_owned).collect();
            (TierOption::named(pair[0]).expect(pair[0]), texts)
        });
        settings(tiers, &given.collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn an_option_sets_its_own_parameter_alone_to_each_end_of_its_range() {
        let plain = TierSetting::new(true);
        for option in &TIER_OPTIONS {
            let (least, most) = match option.unit {
                OptionUnit::Word(words) => (0.0, words.len() as f64 - 1.0),
                _ => option.range(),
            };
            assert!(least < most, "{}", option.name);
            for value in [least, most] {
                let text = option.unit.text(value);
                assert_eq!(option.read(&text), Ok(value), "{} {text}", option.name);
                let mut setting = plain.clone();
                (option.set)(&mut setting, value);
                assert_eq!((option.value(&setting), option.text(&setting)), (value, text));
                for other in TIER_OPTIONS.iter().filter(|other| other.name != option.name) {
                    assert_eq!(other.value(&setting), other.value(&plain), "{}", other.name);
                }
                (option.set)(&mut setting, option.value(&plain));
                assert_eq!(setting, plain, "{}", option.name);
            }
            let (help, want) = (option.help(), option.want());
            let default = format!(": {want} [default: {}]", option.text(&plain));
            assert!(help.ends_with(&default), "{help}");
            let step = if option.unit == OptionUnit::Part { 0.001 } else { 1.0 };
            for value in [least - step, most + step] {
                let text = match option.unit {
                    OptionUnit::Time => format!("{value}ns"),
                    OptionUnit::PerSecond => format!("{}k", value / 1e3),
                    OptionUnit::Rate => format!("{value}G"),
                    _ => value.to_string(),
                };
                let error = option.read(&text).expect_err(option.name).to_string();
                let wanted = format!("{} {text:?}: want {}", option.name, option.want());
                assert_eq!(error, wanted);
            }
        }
    }

    #[test]
    fn an_error_names_the_range_in_the_unit_of_the_option() {
        let error = |line| given("l2", line).expect_err(line);
        for (line, wanted) in [
            ("promote-l1 0", "promote-l1 \"0\": want 1 to 65535"),
            ("promote-l1 x", "promote-l1 \"x\": want 1 to 65535"),
            ("idle-l1 1us", "idle-l1 \"1us\": want 10us to 200ms"),
            ("idle-l2 1", "idle-l2 \"1\": want 10us to 200ms"),
            ("count-window 2s", "count-window \"2s\": want 10us to 1s"),
            ("l2 2G", "l2 \"2G\": want 0 to 1G bytes"),
            ("cluster 1K", "cluster \"1K\": want 4K to 1M bytes"),
            ("l2-ns 100", "l2-ns \"100\": want 140 to 410 ns"),
            ("link 0.5G", "link \"0.5G\": want 1G to 3200G bits a second"),
            ("link 2.5G", "link \"2.5G\": want 1G to 3200G bits a second"),
            ("rate 100G", "rate \"100G\": want 1k to 10G accesses a second"),
            ("writes 1.5", "writes \"1.5\": want 0 to 1"),
            ("writes NaN", "writes \"NaN\": want 0 to 1"),
            ("adapt yes", "adapt \"yes\": want off or on"),
            (
                "promote-l2 17 promote-l1 16",
                "promote-l2 \"17\": want at most promote_l1, which is 16",
            ),
            ("promote-l1 2,128", "promote-l2 \"16\": want at most promote_l1, which is 2"),
            ("page 12K", "page \"12K\": want a power of two"),
            ("l2 4K", "l2 \"4K\": want 0, or at least a page of 65536 bytes"),
            (
                "in-flight optimistic",
                "in-flight \"optimistic\": want --writes below 1 with it: an access that changes small fields always waits",
            ),
            (
                "write-policy through writes 0,0.5",
                "write-policy \"through\": want --writes above 0 with it",
            ),
        ] {
            assert_eq!(error(line), wanted);
        }
    }

    #[test]
    fn what_nothing_reads_is_refused() {
        let error = |tiers: &str, line: &str| given(tiers, line).expect_err(line);
        for option in &TIER_OPTIONS {
            let value = option.text(&TierSetting::new(true));
            let line = format!("{} {value}", option.name);
            let wanted = format!("{} {value:?}: want --tiers l2", option.name);
            assert!(error("off", &line).starts_with(&wanted), "{}", option.name);
            assert_eq!(given("l3", &line).is_err(), option.needs_l2, "{}", option.name);
        }
        assert_eq!(
            error("l3", "sample 1,2"),
            "sample \"1,2\": want --tiers l2 with it: nothing reads it with --tiers l3"
        );
        assert_eq!(error("l1", ""), "tiers \"l1\": want off, l3 or l2");
    }

    #[test]
    fn lists_are_combined_and_the_first_is_the_slowest() {
        assert_eq!(given("off", ""), Ok(Vec::new()));
        let one = given("l3", "").expect("defaults");
        assert_eq!((one.len(), one[0].has_l2()), (1, false));
        let all = given("l2", "sample 1,2 adapt on,off window 5").expect("they make sense");
        let all: Vec<_> = all.iter().map(|s| (s.cfg.sample, s.cfg.adapt, s.window)).collect();
        assert_eq!(all, [(1, true, 5), (1, false, 5), (2, true, 5), (2, false, 5)]);
    }
}
