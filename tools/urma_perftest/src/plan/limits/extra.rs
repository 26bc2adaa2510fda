//! Combinations of options that have no letter.
//!
//! *Owns*: the rules and their reasons. *Takes*: [`PerftestCli`]. *Gives*: yes, or why not.

use super::{PerftestCli, PlanRefusal, Verb, ensure};
use crate::{
    cli::{BondMode, HugePage, Management, RateUnit, TestCommand},
    plan::Credit,
};

/// Fastest rate in any unit: beyond what a clock in nanoseconds tells apart.
const RATE_MAX: f64 = 1e6;
/// The periods of an endless run are multiples of this, milliseconds.
const PERIOD_MS: u32 = 50;

/// Options against each other.
pub(super) fn combinations(cli: &PerftestCli) -> Result<(), PlanRefusal> {
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
