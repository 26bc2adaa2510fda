//! Ranges of single options, combinations of several, and the device's limits: the rules, and the reason of each.

use urma::{DeviceCaps, DeviceFeatures};

use super::{PerftestCli, PlanRefusal, RunLength, Test, Verb, ensure};
use crate::{
    cli::{BondMode, HugePage, Management, RateUnit, TestCommand},
    plan::Credit,
};

/// Fewest iterations: two samples are dropped, three is the least to speak of a median.
const ITERS_MIN: u64 = 5;
/// Most iterations of a latency test: 4 bytes are kept for each.
const LAT_ITERS_MAX: u64 = 1 << 26;
/// Most iterations of a verified run: every one of them is filled and checked.
const VERIFY_ITERS_MAX: u64 = 1 << 20;
/// Most bytes that `--span` walks through.
const SPAN_MAX: u64 = 1 << 32;
/// Most jetties of one run.
const JETTYS_MAX: u32 = 1024;
/// Longest run of one size, in seconds.
const SECONDS_MAX: u32 = 3600;
/// Seconds that a run by duration lasts at least.
const SECONDS_MIN: u32 = 1;

/// Each option by itself.
pub(super) fn ranges(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let in_range = [
        ("-p", "MODE", u64::from(cli.trans_mode), 0, 2),
        ("-K", "POLICY", u64::from(cli.token_policy), 0, 3),
        ("-E", "CODE", u64::from(cli.err_timeout), 0, 31),
        ("-O", "PRIORITY", u64::from(cli.priority), 0, 15),
        ("-J", "COUNT", u64::from(cli.jettys), 1, u64::from(JETTYS_MAX)),
        ("-Q", "COUNT", u64::from(cli.cq_mod), 1, 1 << 16),
        ("-l", "COUNT", u64::from(cli.jfs_post_list), 1, 1 << 12),
        ("-r", "COUNT", u64::from(cli.jfr_post_list), 1, 1 << 12),
        ("-R", "DEPTH", u64::from(cli.jfr_depth.unwrap_or(1)), 1, 1 << 16),
        ("-T", "DEPTH", u64::from(cli.jfs_depth.unwrap_or(1)), 1, 1 << 16),
        ("-C", "DEPTH", u64::from(cli.jfc_depth.unwrap_or(1)), 1, 1 << 20),
        ("-s", "BYTES", u64::from(cli.size.unwrap_or(1)), 1, 1 << 31),
        ("-n", "COUNT", cli.iters.unwrap_or(ITERS_MIN), ITERS_MIN, u64::MAX),
        (
            "-D",
            "SECONDS",
            u64::from(cli.duration.unwrap_or(SECONDS_MIN)),
            u64::from(SECONDS_MIN),
            u64::from(SECONDS_MAX),
        ),
        ("-y", "SECONDS", u64::from(cli.infinite.unwrap_or(1)), 1, u64::from(SECONDS_MAX)),
        ("--order_type", "ORDER", u64::from(cli.extra.order_type), 0, 4),
        ("--sge_num", "COUNT", u64::from(cli.extra.sge_num), 1, 64),
        ("--jettys_pre_jfr", "COUNT", u64::from(cli.extra.jettys_pre_jfr.unwrap_or(1)), 1, 1024),
        ("--jetty_id", "ID", u64::from(cli.extra.jetty_id), 0, (1 << 20) - 1),
        ("--burst_size", "COUNT", u64::from(cli.extra.burst_size.unwrap_or(1)), 1, 1 << 16),
        (
            "--enable_write_dirty",
            "MS",
            u64::from(cli.extra.enable_write_dirty.unwrap_or(50)),
            50,
            1 << 20,
        ),
        ("--span", "BYTES", cli.span, 0, SPAN_MAX),
        ("--wait-timeout", "SECONDS", u64::from(cli.wait_timeout), 1, 86_400),
    ];
    for (option, what, value, min, max) in in_range {
        ensure!(
            (min..=max).contains(&value),
            "{option} {value}: {what} must be between {min} and {max}"
        );
    }
    Ok(())
}

/// Options against each other.
pub(super) fn combinations(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    ensure!(
        cli.token_policy <= 1,
        "-K {}: not supported on a software device: there are no keys to sign or encrypt with",
        cli.token_policy
    );
    by_verb(cli)?;
    by_kind(cli)?;
    depths(cli)?;
    long_combinations(cli)?;
    verification(cli)
}

fn by_verb(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let verb = cli.command.verb();
    ensure!(
        cli.trans_mode != 2 || verb == Verb::Send,
        "UM (-p 2) carries SEND only: a one-sided operation needs RM (-p 0) or RC (-p 1)"
    );
    ensure!(
        cli.atomic_type.is_none() || verb == Verb::Atomic,
        "-A chooses an atomic; this is not an atomic test"
    );
    ensure!(verb != Verb::Atomic || cli.all.is_none(), "-a: atomics have 4 or 8 bytes; give -s");
    ensure!(
        verb != Verb::Atomic || matches!(cli.size, None | Some(4 | 8)),
        "-s: atomics have 4 or 8 bytes"
    );
    ensure!(
        !cli.use_jfce || verb != Verb::Write,
        "-e: a WRITE makes no event at its target; use -e with SEND, READ or atomics"
    );
    ensure!(
        cli.inline_size == 0 || matches!(verb, Verb::Write | Verb::Send),
        "-I: only WRITE and SEND carry payload that could go inline"
    );
    ensure!(
        cli.jfr_post_list == 1 || verb == Verb::Send || cli.extra.enable_imm,
        "-r: only SEND and WRITE with --enable_imm consume receives"
    );
    ensure!(
        !cli.jfc_inline || verb == Verb::Send,
        "-c: only what SEND carries can come in a completion"
    );
    ensure!(
        !cli.use_flat_api || (cli.simplex && verb != Verb::Atomic && cli.jfs_post_list == 1),
        "-f: the flat calls are for JFS and JFR (-b), one READ, WRITE or SEND each (-l 1)"
    );
    ensure!(
        !cli.simplex || cli.trans_mode != 1,
        "-b with -p 1: RC binds two jetties; JFS and JFR are RM or UM"
    );
    ensure!(
        !cli.simplex || cli.share_jfr,
        "-b with -j false: a JFS has no JFR of its own to share or not"
    );
    Ok(())
}

fn by_kind(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let is_latency = cli.command.is_latency();
    ensure!(cli.all.is_none() || cli.size.is_none(), "-a and -s: choose all sizes or one");
    ensure!(
        cli.duration.is_none() || cli.iters.is_none(),
        "-D and -n: choose a duration or a number of iterations"
    );
    ensure!(
        cli.duration.is_none() || cli.all.is_none(),
        "-D with -a: a duration is for one size; give -s"
    );
    ensure!(!is_latency || !cli.bidirection, "-B: only bandwidth tests run in both directions");
    ensure!(!is_latency || cli.jettys == 1, "-J: only bandwidth tests take several jetties");
    ensure!(!is_latency || cli.jfs_post_list == 1, "-l: a latency test posts one at a time");
    ensure!(!is_latency || !cli.no_peak, "-N: latency tests have no peak");
    ensure!(!is_latency || cli.span == 0, "--span is for bandwidth tests");
    ensure!(
        !cli.warm_up || (!is_latency && cli.command.verb() != Verb::Send),
        "-w: only READ, WRITE and atomic bandwidth tests warm up"
    );
    ensure!(
        cli.spin.is_none() || matches!(cli.command, TestCommand::WriteLat),
        "--spin: only write_lat waits on memory"
    );
    ensure!(
        !is_latency || cli.iters.is_none_or(|count| count <= LAT_ITERS_MAX),
        "-n: a latency test keeps every sample, so at most {LAT_ITERS_MAX}; use -D"
    );
    Ok(())
}

fn depths(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let is_latency = cli.command.is_latency();
    let jfs = cli.jfs_depth.unwrap_or(if is_latency { 1 } else { 128 });
    ensure!(
        cli.jfs_post_list <= jfs,
        "-l {}: more than the send queue holds (-T {jfs})",
        cli.jfs_post_list
    );
    ensure!(
        cli.jfr_post_list <= cli.jfr_depth.unwrap_or(512),
        "-r {}: more than the receive queue holds (-R)",
        cli.jfr_post_list
    );
    Ok(())
}

fn verification(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    if !cli.verify {
        return Ok(());
    }
    ensure!(
        cli.duration.is_none(),
        "--verify with -D: what is verified is a number of messages; give -n"
    );
    ensure!(
        cli.iters.is_none_or(|count| count <= VERIFY_ITERS_MAX),
        "--verify: at most {VERIFY_ITERS_MAX} iterations"
    );
    ensure!(!cli.warm_up, "--verify with -w: a warm-up is not checked");
    let extra = &cli.extra;
    ensure!(
        cli.infinite.is_none(),
        "--verify with -y: what is verified is a number of messages; give -n"
    );
    ensure!(extra.rate_limit.is_none(), "--verify with --rate_limit: it is no measurement");
    ensure!(
        extra.enable_write_dirty.is_none(),
        "--verify with --enable_write_dirty: the bytes would change while they are sent"
    );
    ensure!(!extra.enable_err_continue, "--verify with --enable_err_continue: contradiction");
    ensure!(!extra.enable_imm, "--verify with --enable_imm: it numbers the messages itself");
    ensure!(cli.span == 0, "--verify with --span: every message has a place of its own already");
    ensure!(
        !cli.command.is_latency() || cli.command.verb() != Verb::Write || cli.size != Some(1),
        "--verify with -s 1: the only byte is the counter that write_lat waits for"
    );
    ensure!(
        cli.trans_mode != 2 || !cli.bidirection,
        "--verify with -B and UM: lost messages would be taken for wrong ones"
    );
    Ok(())
}

impl Test {
    /// Checks the test against what the device can do.
    ///
    /// # Errors
    /// The first limit that it exceeds.
    pub(crate) fn fits(&self, caps: &DeviceCaps) -> Result<(), PlanRefusal> {
        let largest = u64::from(self.sizes.last().copied().unwrap_or(0));
        let limit = match self.command.verb() {
            Verb::Read => u64::from(caps.max_read_size),
            Verb::Write => u64::from(caps.max_write_size),
            Verb::Atomic => u64::from(caps.max_atomic_size),
            Verb::Send if self.mode == super::TestMode::Um => u64::from(caps.max_um_size),
            Verb::Send => caps.max_msg_size,
        };
        ensure!(
            self.mode != super::TestMode::Um || largest <= limit,
            "-s {largest} with UM (-p 2): a UM message is one packet, at most {limit} bytes here; \
             give -s {limit} or less, or RM (-p 0)"
        );
        let counts = [
            ("message size", largest, limit),
            ("-T, JFS depth", u64::from(self.jfs_depth), u64::from(caps.max_jfs_depth)),
            ("-R, JFR depth", u64::from(self.jfr_depth), u64::from(caps.max_jfr_depth)),
            ("-C, JFC depth", u64::from(self.jfc_depth), u64::from(caps.max_jfc_depth)),
            ("-I, inline size", u64::from(self.inline), u64::from(caps.max_jfs_inline)),
            ("-J, jetties", u64::from(self.jettys), u64::from(caps.max_jetty)),
            ("--sge_num", u64::from(self.sges), u64::from(caps.max_jfs_sge)),
        ];
        for (what, value, max) in counts {
            ensure!(value <= max, "{what} {value}: the device's limit is {max}");
        }
        ensure!(
            caps.modes.has(self.mode.to_api()),
            "the device has no transport mode {}",
            self.mode.name()
        );
        ensure!(
            !self.ctp || caps.features.contains(DeviceFeatures::CTP),
            "--ctp: the device has no compact transport paths"
        );
        ensure!(
            !self.jfc_inline || caps.features.contains(DeviceFeatures::JFC_INLINE),
            "-c: the device puts no payload into completions"
        );
        Ok(())
    }

    /// Iterations of one size; `None` when it runs by duration.
    pub(crate) fn iterations(&self) -> Option<u64> {
        match self.extent {
            RunLength::Iterations(count) => Some(count),
            RunLength::Seconds(_) | RunLength::Endless => None,
        }
    }
}

/// Fastest rate in any unit: beyond what a clock in nanoseconds tells apart.
const RATE_MAX: f64 = 1e6;
/// The periods of an endless run are multiples of this, milliseconds.
const PERIOD_MS: u32 = 50;

/// Options against each other.
fn long_combinations(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    endless(cli)?;
    rate(cli)?;
    credit(cli)?;
    operation(cli)?;
    queues(cli)?;
    sizes(cli)?;
    machine(cli)
}

fn endless(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let period = cli.extra.inf_period_ms;
    ensure!(period.is_none() || cli.infinite.is_some(), "--inf_period_ms is for -y");
    ensure!(
        period.is_none_or(|ms| ms >= PERIOD_MS && ms.is_multiple_of(PERIOD_MS)),
        "--inf_period_ms: a multiple of {PERIOD_MS}"
    );
    let Some(seconds) = cli.infinite else { return Ok(()) };
    let verb = cli.command.verb();
    ensure!(!cli.command.is_latency(), "-y: only bandwidth tests run without end");
    ensure!(cli.iters.is_none(), "-y and -n: choose a number of iterations or no end");
    ensure!(cli.all.is_none(), "-y with -a: a run without end is for one size; give -s");
    ensure!(
        cli.duration.is_none_or(|duration| {
            duration.saturating_mul(1000) > period.unwrap_or_else(|| seconds.saturating_mul(1000))
        }),
        "-D must be longer than the period of -y"
    );
    ensure!(
        !cli.bidirection || !(verb == Verb::Send || cli.extra.enable_imm),
        "-y with -B: not with SEND or immediate data: neither side knows how much will come"
    );
    Ok(())
}

fn rate(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let Some(limit) = cli.extra.rate_limit else {
        ensure!(
            !cli.histogram || cli.command.is_latency(),
            "--histogram: a bandwidth test has latencies under --rate_limit only"
        );
        return Ok(());
    };
    let least = if cli.extra.rate_units == Some(RateUnit::Messages) { 0.001 } else { 1e-6 };
    ensure!(
        (least..=RATE_MAX).contains(&limit),
        "--rate_limit {limit}: from {least} to {RATE_MAX}"
    );
    ensure!(
        !matches!(cli.command, TestCommand::WriteLat | TestCommand::SendLat),
        "--rate_limit: a ping-pong has no intended start of its second half; use the bandwidth \
         test with --rate_limit and --histogram"
    );
    ensure!(
        !cli.bidirection || cli.command.verb() != Verb::Send,
        "--rate_limit with -B: not with SEND: a sender that waits would not receive"
    );
    ensure!(!cli.use_jfce, "--rate_limit with -e: a sender that sleeps would start late");
    ensure!(
        !cli.command.is_latency() || cli.extra.burst_size.is_none_or(|burst| burst == 1),
        "--burst_size: a latency test posts one at a time"
    );
    Ok(())
}

fn credit(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    if !cli.extra.enable_credit {
        return Ok(());
    }
    ensure!(
        cli.command == TestCommand::SendBw,
        "--enable_credit: only send_bw has receivers to follow"
    );
    ensure!(
        cli.trans_mode != 2,
        "--enable_credit with UM: its messages may be lost, and so credit"
    );
    let depth = cli.jfr_depth.unwrap_or(512);
    let Credit { threshold, notify } = Credit::of(&cli.extra, depth);
    ensure!(
        threshold >= cli.jfs_post_list.max(1) && threshold <= depth,
        "--credit_threshold {threshold}: from -l to the JFR depth ({depth})"
    );
    ensure!(
        notify >= 1 && notify <= threshold - (cli.jfs_post_list - 1),
        "--credit_notify_cnt {notify}: from 1 to the threshold ({threshold}) less what one post may \
         lack, or the sender would wait for ever"
    );
    Ok(())
}

fn operation(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let (verb, extra) = (cli.command.verb(), &cli.extra);
    ensure!(
        !extra.enable_imm || matches!(verb, Verb::Write | Verb::Send),
        "--enable_imm: only WRITE and SEND carry immediate data"
    );
    ensure!(
        !extra.enable_notify || (verb == Verb::Write && !extra.enable_imm),
        "--enable_notify: only a WRITE without --enable_imm notifies"
    );
    ensure!(
        !extra.enable_err_continue || !cli.command.is_latency(),
        "--enable_err_continue: only bandwidth tests go on after an error"
    );
    ensure!(
        extra.sge_num == 1 || verb != Verb::Atomic,
        "--sge_num: an atomic has one place for its answer"
    );
    ensure!(
        extra.wait_jfc_timeout.is_none() || cli.use_jfce,
        "--wait_jfc_timeout: without -e no thread waits for events"
    );
    ensure!(extra.wait_jfc_timeout.is_none_or(|ms| ms >= -1), "--wait_jfc_timeout: at least -1");
    ensure!(!extra.ctp || cli.trans_mode != 2, "--ctp with -p 2: UM goes by an unreliable path");
    let is_right_order = match (extra.order_type, cli.trans_mode) {
        (0, _) => true,
        (1 | 3, mode) => mode == 1,
        (2, mode) => mode == 0,
        (_, mode) => mode != 0,
    };
    ensure!(
        is_right_order,
        "--order_type {} with -p {}: OT and OL are of RC, OI is of RM, NO is not for RM",
        extra.order_type,
        cli.trans_mode
    );
    Ok(())
}

fn queues(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let extra = &cli.extra;
    if let Some(count) = extra.jettys_pre_jfr {
        ensure!(
            (cli.share_jfr || cli.simplex) && cli.trans_mode != 1,
            "--jettys_pre_jfr: without -j, and with RC, each jetty has receives of its own"
        );
        ensure!(
            count <= cli.jettys && cli.jettys.is_multiple_of(count),
            "--jettys_pre_jfr {count}: the number of jetties (-J {}) must be a multiple of it",
            cli.jettys
        );
    }
    let last = u64::from(extra.jetty_id) + u64::from(cli.jettys) - 1;
    ensure!(extra.jetty_id == 0 || last < 1 << 20, "--jetty_id: the last one is {last}, 20 bits");
    Ok(())
}

fn sizes(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let (least, most) = (cli.extra.min_size, cli.extra.max_size);
    if least.is_some() || most.is_some() {
        ensure!(cli.size.is_none(), "--min_size, --max_size and -s: choose a range or one size");
        ensure!(
            cli.duration.is_none(),
            "-D with --min_size or --max_size: a duration is for one size"
        );
        ensure!(cli.infinite.is_none(), "-y with --min_size or --max_size: give -s");
        ensure!(
            cli.command.verb() != Verb::Atomic,
            "--min_size, --max_size: atomics have 4 or 8 bytes"
        );
        let is_power = |size: Option<u32>| size.is_none_or(u32::is_power_of_two);
        ensure!(is_power(least) && is_power(most), "--min_size, --max_size: powers of two");
    }
    let (count, is_latency) = (cli.extra.sge_num, cli.command.is_latency());
    let default = if is_latency { 2 } else { 65536 };
    let smallest = if cli.all.is_some() || least.is_some() || most.is_some() {
        least.unwrap_or(2)
    } else {
        cli.size.unwrap_or(default)
    };
    ensure!(
        count == 1 || smallest.is_multiple_of(count),
        "--sge_num {count}: {smallest} bytes cannot be cut into so many equal pieces"
    );
    Ok(())
}

fn machine(cli: &PerftestCli) -> Result<(), PlanRefusal> {
    let extra = &cli.extra;
    ensure!(
        extra.mgmt == Management::Tcp,
        "--mgmt ub: not supported on a software device: the exchange tells each side the other's \
         EID and queues, which over URMA both would have to know before"
    );
    ensure!(
        matches!(extra.bond_mode, None | Some(BondMode::Standalone)),
        "--bond_mode: a software node is one device, standalone: there is nothing to bond"
    );
    ensure!(
        extra.page_size == 4096,
        "--page_size {}: buffers are made of pages of 4096 bytes; --hugepage_size 2MB for larger \
         ones",
        extra.page_size
    );
    ensure!(
        extra.hugepage_size != Some(HugePage::Giant),
        "--hugepage_size 1GB: not supported on a software device: shared memory has pages of 4 KiB \
         and of 2 MiB"
    );
    ensure!(extra.sip.is_none() || cli.eid.is_none(), "--sip and --eid: both name this node");
    ensure!(
        cli.peer_cpu.is_none() || cli.server.is_some(),
        "--peer-cpu is the client's to give: a server takes --cpu"
    );
    ensure!(
        cli.fail_if.is_empty() || cli.server.is_some(),
        "--fail-if is the client's to judge: a server has no results"
    );
    Ok(())
}
