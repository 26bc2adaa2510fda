//! The lines of the benchmark: what is measured, with which options, and what it is compared with.
//!
//! The slow corners of requests between nodes of one host are runs of the bench `corners` of the crate `urma`; a
//! number needs the counter that proves its path.

use std::process::Command;

use serde_json::Value;

use super::{
    built,
    cface::{CLoop, Of},
    hosts::{HostsProgram, HostsRun, PortsPause},
    ucx::Pick,
};
use crate::{pair, say::Failure};

/// Whether higher or lower is better.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Better {
    /// Lower is better: latencies.
    Lower,
    /// Higher is better: rates and bandwidths.
    Higher,
}

/// Where a value comes from.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum ValueSource {
    /// Two processes of `urma_perftest`, with these arguments.
    Perftest {
        /// Options of both sides.
        args: &'static str,
        /// Key of the result.
        key: &'static str,
        /// Factor from the key's unit to the line's.
        factor: f64,
        /// Counter that must have carried the requests.
        carrier: &'static str,
    },
    /// The named loop of the bench `corners`.
    Corner(&'static str),
    /// The C face beside the Rust path.
    CFace(Of),
    /// Two processes on two hosts.
    Hosts(HostsRun),
    /// The named measurement of `xtask probe`.
    Probe(&'static str),
    /// Two processes of `ucx_perftest`, with this test.
    Ucx {
        /// Name of the test.
        test: &'static str,
        /// Message size in bytes.
        size: u32,
        /// Transports that UCX may use.
        tls: &'static str,
        /// Which number of its answer.
        pick: Pick,
    },
}

/// Line of the bench: what is measured, in which unit, from where.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct BenchLine {
    /// What it is; unique.
    pub(super) name: &'static str,
    /// Lines of a group stand together.
    pub(super) group: &'static str,
    /// Unit of its values.
    pub(super) unit: &'static str,
    /// Whether higher or lower is better.
    pub(super) better: Better,
    /// Names of the lines that it is compared with.
    pub(super) references: &'static [&'static str],
    /// Where its values come from.
    pub(super) source: ValueSource,
}

impl BenchLine {
    /// Whether it is measured between two hosts.
    pub(super) const fn is_between_hosts(&self) -> bool {
        matches!(self.source, ValueSource::Hosts(_))
    }
}

/// Transports of UCX between two processes of one host, without hardware.
pub(super) const UCX_TLS: &str = "posix,cma,self";

/// 2^20 bytes in GB (10^9 bytes).
const GB: f64 = 1.048_576e-3;

const HOST: &str = "same host";
const UDP: &str = "UDP loopback";
const BETWEEN: &str = "between hosts";
/// Group of lines of other programs.
pub(super) const OTHERS: &str = "others";
const C: &str = "C face";
/// Group of lines of what the machine does at best.
pub(super) const LIMITS: &str = "the machine";

const fn on(mut line: BenchLine, references: &'static [&'static str]) -> BenchLine {
    line.references = references;
    line
}

const fn line(
    (group, name): (&'static str, &'static str),
    unit: &'static str,
    better: Better,
    source: ValueSource,
) -> BenchLine {
    BenchLine { name, group, unit, better, references: &[], source }
}

const fn carrier(group: &str, args: &str) -> &'static str {
    // SEND needs the target's device: on one host that is the ring.
    match (group.as_bytes()[0], args.as_bytes()[0], args.as_bytes()[1]) {
        (b'U', _, _) => "packet_requests",
        (_, b's', b'e') => "ring_requests",
        _ => "direct_requests",
    }
}

const fn lat(group: &'static str, name: &'static str, args: &'static str) -> BenchLine {
    let (key, carrier) = ("t_median[us]", carrier(group, args));
    let source = ValueSource::Perftest { args, key, factor: 1.0, carrier };
    line((group, name), "us", Better::Lower, source)
}

/// Mean of a run by duration: the clock is not looked at in between.
const fn mean(group: &'static str, name: &'static str, args: &'static str) -> BenchLine {
    let (key, carrier) = ("t_avg[us]", carrier(group, args));
    let source = ValueSource::Perftest { args, key, factor: 1.0, carrier };
    line((group, name), "us", Better::Lower, source)
}

const fn bw(group: &'static str, name: &'static str, args: &'static str) -> BenchLine {
    let (key, carrier) = ("BW average[MB/sec]", carrier(group, args));
    let source = ValueSource::Perftest { args, key, factor: GB, carrier };
    line((group, name), "GB/s", Better::Higher, source)
}

const fn rate(group: &'static str, name: &'static str, args: &'static str) -> BenchLine {
    let (key, carrier) = ("MsgRate[Mpps]", carrier(group, args));
    let source = ValueSource::Perftest { args, key, factor: 1.0, carrier };
    line((group, name), "M/s", Better::Higher, source)
}

const fn probe(
    (group, name): (&'static str, &'static str),
    unit: &'static str,
    better: Better,
    args: &'static str,
) -> BenchLine {
    line((group, name), unit, better, ValueSource::Probe(args))
}

const fn corner(
    name: &'static str,
    unit: &'static str,
    better: Better,
    of: &'static str,
) -> BenchLine {
    line((HOST, name), unit, better, ValueSource::Corner(of))
}

const fn c_face(name: &'static str, unit: &'static str, of: Of) -> BenchLine {
    line((C, name), unit, Better::Lower, ValueSource::CFace(of))
}

const fn ucx(name: &'static str, test: &'static str, size: u32, pick: Pick) -> BenchLine {
    let (unit, better) = match pick {
        Pick::Median | Pick::Latency => ("us", Better::Lower),
        Pick::Bandwidth => ("GB/s", Better::Higher),
        Pick::Rate => ("M/s", Better::Higher),
    };
    line((OTHERS, name), unit, better, ValueSource::Ucx { test, size, tls: UCX_TLS, pick })
}

const fn hosts(
    (name, unit): (&'static str, &'static str),
    program: HostsProgram,
    (mtu, busy): (u32, bool),
) -> BenchLine {
    let better = if unit.as_bytes()[0] == b'u' { Better::Lower } else { Better::Higher };
    line((BETWEEN, name), unit, better, ValueSource::Hosts(HostsRun { program, mtu, busy }))
}

const fn ucx_tcp(test: &'static str, size: u32, pick: Pick) -> HostsProgram {
    HostsProgram::Ucx { test, size, pick }
}

/// MTU, link faults, two busy loops.
type HostsHow = (u32, &'static str, bool);

const fn urma_lat(name: &'static str, args: &'static str, how: HostsHow) -> BenchLine {
    let (mtu, faults, busy) = how;
    let program = HostsProgram::Urma { args, key: "t_median[us]", factor: 1.0, faults };
    hosts((name, "us"), program, (mtu, busy))
}

const fn urma_rate(name: &'static str, args: &'static str, how: HostsHow) -> BenchLine {
    let (mtu, faults, busy) = how;
    let program = HostsProgram::Urma { args, key: "MsgRate[Mpps]", factor: 1.0, faults };
    hosts((name, "M/s"), program, (mtu, busy))
}

const fn urma_bw(name: &'static str, args: &'static str, how: HostsHow) -> BenchLine {
    let (mtu, faults, busy) = how;
    let program = HostsProgram::Urma { args, key: "BW average[MB/sec]", factor: GB, faults };
    hosts((name, "GB/s"), program, (mtu, busy))
}

const fn pause(name: &'static str, of: PortsPause, mtu: u32) -> BenchLine {
    let program = HostsProgram::Ports(of);
    let source = ValueSource::Hosts(HostsRun { program, mtu, busy: false });
    line((BETWEEN, name), "ms", Better::Lower, source)
}

/// All lines, in the order of the table.
pub(super) fn all() -> impl Iterator<Item = &'static BenchLine> {
    LINES.iter().chain(HOSTS_1500).chain(HOSTS_9000)
}

const LINES: &[BenchLine] = &[
    on(lat(HOST, "write 8 B, one way", "write_lat -s 8 -n 500000"), &["TCP 8 B, one way"]),
    on(mean(HOST, "write 8 B, one way, mean", "write_lat -s 8 -D 1"), &["cache line, one way"]),
    on(
        mean(HOST, "write 8 B, spinning on memory", "write_lat -s 8 -D 1 --spin memory"),
        &["UCX put 8 B, one way"],
    ),
    on(lat(HOST, "read 8 B, round trip", "read_lat -s 8 -n 500000"), &["UCX get 8 B, median"]),
    on(
        lat(HOST, "fetch-add, round trip", "atomic_lat -A faa -n 500000"),
        &["UCX fetch-add, median"],
    ),
    on(mean(HOST, "read 8 B, round trip, mean", "read_lat -s 8 -D 1"), &["UCX get 8 B"]),
    on(mean(HOST, "fetch-add, round trip, mean", "atomic_lat -A faa -D 1"), &["UCX fetch-add"]),
    on(
        lat(HOST, "send 8 B, one way", "send_lat -s 8 -n 300000"),
        &["UCX tag send 8 B, one way", "cache line, one way", "TCP 8 B, one way"],
    ),
    on(lat(HOST, "send 8 B, receiver asleep", "send_lat -s 8 -n 20000 -e"), &["eventfd, one way"]),
    on(rate(HOST, "write 8 B, one at a time", "write_bw -s 8 -n 5000000 -N"), &["UCX put rate"]),
    on(
        rate(HOST, "write 8 B, 1000 jetties in turn", "write_bw -s 8 -n 5000 -N -J 1000 -T 16"),
        &["write 8 B, one at a time"],
    ),
    on(
        rate(HOST, "write 8 B, lists of 32", "write_bw -s 8 -n 5000000 -N -l 32"),
        &["write 8 B, one at a time"],
    ),
    corner("write 8 B, one thread", "M/s", Better::Higher, "one-thread"),
    on(
        corner("write 8 B, two threads, a queue each", "M/s", Better::Higher, "two-threads"),
        &["write 8 B, one thread"],
    ),
    corner("write 8 B, one node", "M/s", Better::Higher, "one-target"),
    on(
        corner("write 8 B, 63 nodes in turn", "M/s", Better::Higher, "all-targets"),
        &["write 8 B, one node"],
    ),
    corner("memory of a pair of nodes, of 64", "KiB", Better::Lower, "pair-memory"),
    corner("descriptors of a pair of nodes, of 64", "", Better::Lower, "pair-descriptors"),
    rate(HOST, "send 8 B", "send_bw -s 8 -n 1000000 -N"),
    on(
        bw(HOST, "write 4 KiB, hot", "write_bw -s 4096 -n 1000000 -N"),
        &["UCX put 4 KiB", "memcpy 4 KiB, hot"],
    ),
    on(
        bw(HOST, "write 64 KiB, hot", "write_bw -s 65536 -n 100000 -N"),
        &["UCX put 64 KiB", "memcpy 64 KiB, hot"],
    ),
    on(
        bw(HOST, "write 1 MiB, hot", "write_bw -s 1048576 -n 10000 -N"),
        &["UCX put 1 MiB", "memcpy 1 MiB, hot"],
    ),
    corner("write 1 MiB, to a segment written before", "GB/s", Better::Higher, "warm-write"),
    on(
        corner("write 1 MiB, the first to a segment", "GB/s", Better::Higher, "first-write"),
        &["write 1 MiB, to a segment written before", "memcpy 1 MiB, cold"],
    ),
    on(bw(HOST, "write 4095 B, hot", "write_bw -s 4095 -n 1000000 -N"), &["write 4 KiB, hot"]),
    on(bw(HOST, "write 4097 B, hot", "write_bw -s 4097 -n 1000000 -N"), &["write 4 KiB, hot"]),
    on(
        bw(HOST, "write 4110 B of 10 pieces, hot", "write_bw -s 4110 -n 1000000 -N --sge_num 10"),
        &["write 4 KiB, hot"],
    ),
    on(
        bw(HOST, "write 4114 B of 11 pieces, hot", "write_bw -s 4114 -n 1000000 -N --sge_num 11"),
        &["write 4110 B of 10 pieces, hot", "write 4 KiB, hot"],
    ),
    rate(HOST, "write 64 B", "write_bw -s 64 -n 2000000 -N"),
    on(rate(HOST, "write 64 B, inline", "write_bw -s 64 -n 2000000 -N -I 64"), &["write 64 B"]),
    corner("write 4 KiB, on a page", "GB/s", Better::Higher, "aligned"),
    on(
        corner("write 4 KiB, off by 1 byte", "GB/s", Better::Higher, "unaligned"),
        &["write 4 KiB, on a page"],
    ),
    on(bw(HOST, "read 4 KiB, hot", "read_bw -s 4096 -n 1000000 -N"), &["memcpy 4 KiB, hot"]),
    on(bw(HOST, "read 64 KiB, hot", "read_bw -s 65536 -n 100000 -N"), &["memcpy 64 KiB, hot"]),
    on(bw(HOST, "read 1 MiB, hot", "read_bw -s 1048576 -n 10000 -N"), &["memcpy 1 MiB, hot"]),
    on(
        bw(HOST, "write 4 KiB, cold", "write_bw -s 4096 -n 200000 -N --span 134217728"),
        &["memcpy 4 KiB, cold"],
    ),
    on(
        bw(HOST, "write 64 KiB, cold", "write_bw -s 65536 -n 20000 -N --span 134217728"),
        &["memcpy 64 KiB, cold"],
    ),
    on(
        bw(HOST, "write 1 MiB, cold", "write_bw -s 1048576 -n 1500 -N --span 134217728"),
        &["memcpy 1 MiB, cold"],
    ),
    on(
        bw(HOST, "read 64 KiB, cold", "read_bw -s 65536 -n 20000 -N --span 134217728"),
        &["memcpy 64 KiB, cold"],
    ),
    on(
        bw(HOST, "read 1 MiB, cold", "read_bw -s 1048576 -n 1500 -N --span 134217728"),
        &["memcpy 1 MiB, cold"],
    ),
    on(
        bw(HOST, "send 64 KiB", "send_bw -s 65536 -n 30000 -N"),
        &["UCX tag send 64 KiB", "TCP 64 KiB, stream"],
    ),
    on(
        lat(UDP, "UDP write 8 B, one way", "write_lat -s 8 -n 20000 --path packets"),
        &["TCP 8 B, one way"],
    ),
    lat(UDP, "UDP read 8 B, round trip", "read_lat -s 8 -n 20000 --path packets"),
    on(
        lat(UDP, "UDP send 8 B, one way", "send_lat -s 8 -n 20000 --path packets"),
        &["TCP 8 B, one way"],
    ),
    rate(UDP, "UDP write 8 B, rate", "write_bw -s 8 -n 100000 -N -Q 16 --path packets"),
    on(
        bw(UDP, "UDP write 4 KiB", "write_bw -s 4096 -n 50000 -N -Q 16 --path packets"),
        &["TCP 4 KiB, stream"],
    ),
    on(
        bw(UDP, "UDP write 64 KiB", "write_bw -s 65536 -n 5000 -N -Q 16 --path packets"),
        &["TCP 64 KiB, stream"],
    ),
    on(
        bw(UDP, "UDP write 1 MiB", "write_bw -s 1048576 -n 300 -N -Q 16 --path packets"),
        &["TCP 1 MiB, stream"],
    ),
    on(
        bw(UDP, "UDP read 64 KiB", "read_bw -s 65536 -n 5000 -N -Q 16 --path packets"),
        &["TCP 64 KiB, stream"],
    ),
    c_face("C adds to a post", "ns", Of::Time(CLoop::Post)),
    c_face("C adds to a poll that takes one", "ns", Of::Time(CLoop::TakingPoll)),
    c_face("C adds to an empty poll", "ns", Of::Time(CLoop::EmptyPoll)),
    c_face("C adds to a write and its polls", "ns", Of::Time(CLoop::WriteAndPoll)),
    c_face("C adds to a post, instructions", "", Of::Instructions(CLoop::Post)),
    c_face(
        "C adds to a poll that takes one, instructions",
        "",
        Of::Instructions(CLoop::TakingPoll),
    ),
    c_face("C adds to an empty poll, instructions", "", Of::Instructions(CLoop::EmptyPoll)),
    c_face(
        "C adds to a write and its polls, instructions",
        "",
        Of::Instructions(CLoop::WriteAndPoll),
    ),
    c_face("C: liburma.so, stripped", "MB", Of::Size),
    c_face("C: urma_init to first context", "ms", Of::Start),
    probe((OTHERS, "TCP 8 B, one way"), "us", Better::Lower, "tcp-lat --size 8"),
    probe((OTHERS, "TCP 4 KiB, stream"), "GB/s", Better::Higher, "tcp-bw --size 4096"),
    probe((OTHERS, "TCP 64 KiB, stream"), "GB/s", Better::Higher, "tcp-bw --size 65536"),
    probe((OTHERS, "TCP 1 MiB, stream"), "GB/s", Better::Higher, "tcp-bw --size 1048576"),
    ucx("UCX put 8 B, one way", "ucp_put_lat", 8, Pick::Latency),
    ucx("UCX get 8 B, median", "ucp_get", 8, Pick::Median),
    ucx("UCX get 8 B", "ucp_get", 8, Pick::Latency),
    ucx("UCX fetch-add, median", "ucp_fadd", 8, Pick::Median),
    ucx("UCX fetch-add", "ucp_fadd", 8, Pick::Latency),
    ucx("UCX tag send 8 B, one way", "tag_lat", 8, Pick::Latency),
    ucx("UCX tag send 64 KiB", "tag_bw", 65536, Pick::Bandwidth),
    ucx("UCX put rate", "ucp_put_bw", 8, Pick::Rate),
    ucx("UCX put 4 KiB", "ucp_put_bw", 4096, Pick::Bandwidth),
    ucx("UCX put 64 KiB", "ucp_put_bw", 65536, Pick::Bandwidth),
    ucx("UCX put 1 MiB", "ucp_put_bw", 1_048_576, Pick::Bandwidth),
    probe((LIMITS, "cache line, one way"), "us", Better::Lower, "cache-line"),
    probe((LIMITS, "eventfd, one way"), "us", Better::Lower, "event-fd"),
    probe((LIMITS, "memcpy 4 KiB, hot"), "GB/s", Better::Higher, "memcpy --size 4096"),
    probe((LIMITS, "memcpy 64 KiB, hot"), "GB/s", Better::Higher, "memcpy --size 65536"),
    probe((LIMITS, "memcpy 1 MiB, hot"), "GB/s", Better::Higher, "memcpy --size 1048576"),
    probe(
        (LIMITS, "memcpy 4 KiB, cold"),
        "GB/s",
        Better::Higher,
        "memcpy --size 4096 --span 134217728",
    ),
    probe(
        (LIMITS, "memcpy 64 KiB, cold"),
        "GB/s",
        Better::Higher,
        "memcpy --size 65536 --span 134217728",
    ),
    probe(
        (LIMITS, "memcpy 1 MiB, cold"),
        "GB/s",
        Better::Higher,
        "memcpy --size 1048576 --span 134217728",
    ),
];

/// Between two hosts, over a cable of MTU 1500.
const HOSTS_1500: &[BenchLine] = &[
    on(
        urma_lat("1500: write 8 B, one way", "write_lat -s 8 -n 20000", (1500, "", false)),
        &["1500: TCP 8 B, one way", "1500: UCX 8 B, one way", "1500: fi_pingpong 8 B, one way"],
    ),
    on(
        urma_rate(
            "1500: write 8 B, lists of 32",
            "write_bw -s 8 -n 1000000 -N -l 32",
            (1500, "", false),
        ),
        &["1500: UCX 8 B, rate"],
    ),
    on(
        urma_bw("1500: write 64 KiB", "write_bw -s 65536 -n 20000 -N -Q 16", (1500, "", false)),
        &["1500: TCP 64 KiB", "1500: UCX 64 KiB", "1500: fi_pingpong 64 KiB"],
    ),
    on(
        urma_bw("1500: write 1 MiB", "write_bw -s 1048576 -n 1500 -N -Q 16", (1500, "", false)),
        &["1500: TCP 1 MiB", "1500: UCX 1 MiB", "1500: fi_pingpong 1 MiB"],
    ),
    on(
        urma_bw(
            "1500: write 64 KiB, two busy loops",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (1500, "", true),
        ),
        &["1500: TCP 64 KiB, two busy loops"],
    ),
    on(
        urma_bw(
            "1500: write 64 KiB, links that lose nothing",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (1500, "seed=1", false),
        ),
        &["1500: write 64 KiB", "1500: TCP 64 KiB"],
    ),
    on(
        urma_bw(
            "1500: write 64 KiB, 1 % loss",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (1500, "loss=1%,seed=1", false),
        ),
        &["1500: write 64 KiB, links that lose nothing", "1500: write 64 KiB", "1500: TCP 64 KiB"],
    ),
    hosts(("1500: TCP 64 KiB", "GB/s"), HostsProgram::Iperf(65536), (1500, false)),
    hosts(("1500: UCX 64 KiB", "GB/s"), ucx_tcp("tag_bw", 65536, Pick::Bandwidth), (1500, false)),
    hosts(("1500: fi_pingpong 64 KiB", "GB/s"), HostsProgram::Fabric(65536), (1500, false)),
    hosts(("1500: TCP 1 MiB", "GB/s"), HostsProgram::Iperf(1_048_576), (1500, false)),
    hosts(
        ("1500: UCX 1 MiB", "GB/s"),
        ucx_tcp("tag_bw", 1_048_576, Pick::Bandwidth),
        (1500, false),
    ),
    hosts(("1500: fi_pingpong 1 MiB", "GB/s"), HostsProgram::Fabric(1_048_576), (1500, false)),
    hosts(("1500: TCP 64 KiB, two busy loops", "GB/s"), HostsProgram::Iperf(65536), (1500, true)),
    hosts(("1500: TCP 8 B, one way", "us"), HostsProgram::PingPong(8), (1500, false)),
    hosts(("1500: UCX 8 B, one way", "us"), ucx_tcp("tag_lat", 8, Pick::Latency), (1500, false)),
    hosts(("1500: UCX 8 B, rate", "M/s"), ucx_tcp("ucp_put_bw", 8, Pick::Rate), (1500, false)),
    hosts(("1500: fi_pingpong 8 B, one way", "us"), HostsProgram::Fabric(8), (1500, false)),
    pause("1500: a port is pulled, longest pause", PortsPause::Failover, 1500),
    on(
        pause("1500: it is taken back, longest pause", PortsPause::Failback, 1500),
        &["1500: no port changes, longest pause"],
    ),
    pause("1500: no port changes, longest pause", PortsPause::Control, 1500),
];

/// Between two hosts, over a cable of MTU 9000.
const HOSTS_9000: &[BenchLine] = &[
    on(
        urma_lat("9000: write 8 B, one way", "write_lat -s 8 -n 20000", (9000, "", false)),
        &["9000: TCP 8 B, one way", "9000: UCX 8 B, one way", "9000: fi_pingpong 8 B, one way"],
    ),
    on(
        urma_rate(
            "9000: write 8 B, lists of 32",
            "write_bw -s 8 -n 1000000 -N -l 32",
            (9000, "", false),
        ),
        &["9000: UCX 8 B, rate"],
    ),
    on(
        urma_bw("9000: write 64 KiB", "write_bw -s 65536 -n 20000 -N -Q 16", (9000, "", false)),
        &["9000: TCP 64 KiB", "9000: UCX 64 KiB", "9000: fi_pingpong 64 KiB"],
    ),
    on(
        urma_bw("9000: write 1 MiB", "write_bw -s 1048576 -n 1500 -N -Q 16", (9000, "", false)),
        &["9000: TCP 1 MiB", "9000: UCX 1 MiB", "9000: fi_pingpong 1 MiB"],
    ),
    on(
        urma_bw(
            "9000: write 64 KiB, two busy loops",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (9000, "", true),
        ),
        &["9000: TCP 64 KiB, two busy loops"],
    ),
    on(
        urma_bw(
            "9000: write 64 KiB, links that lose nothing",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (9000, "seed=1", false),
        ),
        &["9000: write 64 KiB", "9000: TCP 64 KiB"],
    ),
    on(
        urma_bw(
            "9000: write 64 KiB, 1 % loss",
            "write_bw -s 65536 -n 20000 -N -Q 16",
            (9000, "loss=1%,seed=1", false),
        ),
        &["9000: write 64 KiB, links that lose nothing", "9000: write 64 KiB", "9000: TCP 64 KiB"],
    ),
    hosts(("9000: TCP 64 KiB", "GB/s"), HostsProgram::Iperf(65536), (9000, false)),
    hosts(("9000: UCX 64 KiB", "GB/s"), ucx_tcp("tag_bw", 65536, Pick::Bandwidth), (9000, false)),
    hosts(("9000: fi_pingpong 64 KiB", "GB/s"), HostsProgram::Fabric(65536), (9000, false)),
    hosts(("9000: TCP 1 MiB", "GB/s"), HostsProgram::Iperf(1_048_576), (9000, false)),
    hosts(
        ("9000: UCX 1 MiB", "GB/s"),
        ucx_tcp("tag_bw", 1_048_576, Pick::Bandwidth),
        (9000, false),
    ),
    hosts(("9000: fi_pingpong 1 MiB", "GB/s"), HostsProgram::Fabric(1_048_576), (9000, false)),
    hosts(("9000: TCP 64 KiB, two busy loops", "GB/s"), HostsProgram::Iperf(65536), (9000, true)),
    hosts(("9000: TCP 8 B, one way", "us"), HostsProgram::PingPong(8), (9000, false)),
    hosts(("9000: UCX 8 B, one way", "us"), ucx_tcp("tag_lat", 8, Pick::Latency), (9000, false)),
    hosts(("9000: UCX 8 B, rate", "M/s"), ucx_tcp("ucp_put_bw", 8, Pick::Rate), (9000, false)),
    hosts(("9000: fi_pingpong 8 B, one way", "us"), HostsProgram::Fabric(8), (9000, false)),
    pause("9000: a port is pulled, longest pause", PortsPause::Failover, 9000),
    on(
        pause("9000: it is taken back, longest pause", PortsPause::Failback, 9000),
        &["9000: no port changes, longest pause"],
    ),
    pause("9000: no port changes, longest pause", PortsPause::Control, 9000),
];

/// One value, and the counter that proves its path.
pub(super) fn measure(of: &str) -> Result<(f64, Option<String>), Failure> {
    let mut command = Command::new(built("urma", "corners")?);
    command.arg(of);
    let output = pair::finish(pair::spawn(command)?)?;
    let text = String::from_utf8_lossy(&output.stdout);
    value(&text).ok_or_else(|| {
        let why = String::from_utf8_lossy(&output.stderr).into_owned();
        Failure(format!("corners {of}: {}", why.trim()))
    })
}

/// Of a line of JSON, the value and its proof.
fn value(text: &str) -> Option<(f64, Option<String>)> {
    let document: Value = serde_json::from_str(text).ok()?;
    let count = document.get("direct_requests")?.as_u64().filter(|count| *count != 0)?;
    let value = document.get("value")?.as_f64()?;
    Some((value, Some(format!("direct_requests +{count}"))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_needs_the_counter_that_proves_it() {
        let proof = Some("direct_requests +9".to_owned());
        assert_eq!(value(r#"{"value": 1.5, "direct_requests": 9}"#), Some((1.5, proof)));
        assert_eq!(value(r#"{"value": 1.5, "direct_requests": 0}"#), None);
        assert_eq!(value(r#"{"value": 1.5}"#), None);
        assert_eq!(value(""), None);
    }
}
