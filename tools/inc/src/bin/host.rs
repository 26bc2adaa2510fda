//! `inc-host`: a rank that joins a group, reduces, checks the result and says how long it took.
#![forbid(unsafe_code)]

use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, ValueEnum};
use inc::controller::GroupSecret;
use inc::edge::{EdgeAttributes, MessageMode, Reliability};
use inc::element::{ElementType, Operator, Reduction};
use inc::host::Reducers;
use inc::reduce::fold;
use inc::wire::Collective;
use inc_control::HOSTS_PORT;
use inc_net::bootstrap::BOOTSTRAP_PORT;
use inc_net::drive::{LinkAccess, LinkLoss};
use inc_net::group::{Communicator, CommunicatorCfg, GROUP_DEFAULT, IncGroup, IncGroupCfg};
use inc_net::udp::source_of;
use inc_tools::LinkArgs;
use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike;
use serde_json::json;
use ubcore_sim::host::ip_eid;
use urma::{Answerer, NodeCfg, Opened};
use urma_tools::{LogLevel, LogSetup, say};

/// One rank of a group of hosts that reduce with the help of switches.
#[derive(Debug, Parser)]
#[command(name = "inc-host", version)]
struct HostCli {
    /// Ranks of the group
    world_size: u16,
    /// Address of the controller; of several that replace each other all, with commas between. Without --group, the
    /// address of rank 0 will do for the other ranks
    #[arg(value_delimiter = ',', num_args = 1, required = true)]
    controller: Vec<IpAddr>,
    /// Number of this rank, from 0 on
    rank: u16,
    /// Elements of each vector
    #[arg(long, default_value_t = 1024)]
    count: usize,
    /// Element type of the vectors, or all of them in turn
    #[arg(long = "type", default_value = "i32")]
    element: String,
    /// Operator of the reduction; with all types, each has its own first one
    #[arg(long, default_value = "sum")]
    operator: String,
    /// Allreduces of each type
    #[arg(long, default_value_t = 1)]
    times: u32,
    /// How messages are moved
    #[arg(long, value_enum, default_value_t = ModeArg::Send)]
    mode: ModeArg,
    /// What repairs a loss
    #[arg(long, value_enum, default_value_t = EdgeArg::Rc)]
    edge: EdgeArg,
    /// Payload of a packet in bytes: 256 to 4096; with its headers it has to fit the links
    #[arg(long, default_value_t = 1024)]
    path_mtu: u16,
    /// Packets of a message, 1 to 8
    #[arg(long, default_value_t = 1)]
    packets: u8,
    /// Chunks in flight: a power of two, 2 to 1024
    #[arg(long, default_value_t = 64)]
    window: u32,
    /// Name of the group: ranks with one name meet, and each needs the controller's address [default: inccl, and rank 0
    /// listens at TCP port 52223 for ranks that have its address]
    #[arg(long)]
    group: Option<String>,
    /// File with the group's secret, if the controller wants a proof
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// Address of this machine that switches send to [default: the one from which the controller is reached]
    #[arg(long, value_name = "IP")]
    address: Option<IpAddr>,
    /// TCP port of the controller for hosts
    #[arg(long, default_value_t = HOSTS_PORT)]
    controller_port: u16,
    /// Seconds to wait for the controller and the other ranks
    #[arg(long, default_value_t = 30)]
    wait: u64,
    /// One JSON document instead of text
    #[arg(long)]
    json: bool,
    /// Waits for switches where none can be had: the ranks' own programs do not reduce
    #[arg(long)]
    no_fallback: bool,
    #[command(flatten)]
    link: LinkArgs,
    /// Opens a URMA node at the address of this machine, as the environment says (URMA_...), and reduces by its UDP port; the
    /// node answers pings
    #[arg(long, conflicts_with = "raw")]
    node: bool,
    /// Throws away so many of a million datagrams that arrive or leave, as a bad link does
    #[arg(long, value_name = "PPM", default_value_t = 0)]
    loss: u32,
    /// What the choice of those begins with
    #[arg(long, default_value_t = 0)]
    loss_seed: u64,
    /// Says more about what happens
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ModeArg {
    Send,
    Write,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum EdgeArg {
    Rc,
    Uc,
}

/// What became of the allreduces of one type.
struct HostResult {
    reduction: Reduction,
    times: Vec<Duration>,
    /// Processor time of this process for them.
    cpu: Duration,
    /// What reduced when the last one was over, and why not switches.
    reducers: Reducers,
    why: Option<String>,
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![HostCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(0, &format!("--generate: {error}")),
    }
    let cli = HostCli::parse();
    let level = if cli.verbose > 0 { LogLevel::Everything } else { LogLevel::Warnings };
    urma_tools::log(LogSetup { stdout: false, level });
    match run(&cli).and_then(|results| show(&cli, &results)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(cli.rank, &why),
    }
}

fn fail(rank: u16, why: &str) -> ExitCode {
    urma_tools::say_error(&format!("inc-host {rank}: {why}"));
    ExitCode::from(2)
}

fn run(cli: &HostCli) -> Result<Vec<HostResult>, String> {
    let reductions = reductions(&cli.element, &cli.operator)?;
    let at = |&ip: &IpAddr| SocketAddr::new(ip, cli.controller_port);
    let controllers: Vec<_> = cli.controller.iter().map(at).collect();
    let [controller, ref others @ ..] = controllers[..] else {
        return Err("no controller is named".to_owned());
    };
    let secret = match &cli.secret_file {
        Some(file) => {
            let text = std::fs::read(file);
            let text = text.map_err(|error| format!("{}: {error}", file.display()))?;
            Some(GroupSecret::new(text.trim_ascii()))
        }
        None => None,
    };
    let device = cli.node.then(|| open_node(cli, controller)).transpose()?;
    let group = IncGroup::join(IncGroupCfg {
        controller,
        secret,
        others: others.to_vec(),
        name: cli.group.clone().unwrap_or_else(|| GROUP_DEFAULT.into()),
        bootstrap: cli.group.is_none().then_some(BOOTSTRAP_PORT),
        address: cli.address,
        access: match &device {
            Some((_, opened)) => LinkAccess::Shared(inc_node::at(&opened.node)),
            None => cli.link.access(),
        },
        wait: Duration::from_secs(cli.wait),
        ..IncGroupCfg::new(controller.ip(), cli.world_size, cli.rank)
    });
    let group = group.map_err(|error| error.to_string())?;
    group.host().set_loss(LinkLoss { ppm: cli.loss, seed: cli.loss_seed });
    let attributes = EdgeAttributes {
        mode: match cli.mode {
            ModeArg::Send => MessageMode::Send,
            ModeArg::Write => MessageMode::Write,
        },
        reliability: match cli.edge {
            EdgeArg::Rc => Reliability::Reliable,
            EdgeArg::Uc => Reliability::Unreliable,
        },
        path_mtu: cli.path_mtu,
        packets: cli.packets,
        window: cli.window,
        fallback: !cli.no_fallback,
        ..EdgeAttributes::DEFAULT
    };
    let cfg = CommunicatorCfg { attributes, ..CommunicatorCfg::default() };
    let communicator = group.communicator(cfg).map_err(|error| error.to_string())?;
    reductions.into_iter().map(|reduction| allreduce(cli, &communicator, reduction)).collect()
}

/// A node at the address of this machine, and what answers pings at it; that goes first.
fn open_node(cli: &HostCli, controller: SocketAddr) -> Result<(Answerer, Opened), String> {
    let address = match cli.address {
        Some(address) => address,
        None => source_of(controller).map_err(|error| format!("{controller}: {error}"))?,
    };
    let mut cfg = NodeCfg::from_env().map_err(|error| error.to_string())?;
    cfg.eid = Some(ip_eid(address));
    let opened = urma::open_node(cfg).map_err(|error| error.to_string())?;
    let answerer = Answerer::start(&opened.device, 0);
    let answerer = answerer.map_err(|status| format!("answering pings: {status}"))?;
    Ok((answerer, opened))
}

/// Reduces so many times, and checks each result.
fn allreduce(
    cli: &HostCli,
    communicator: &Communicator,
    reduction: Reduction,
) -> Result<HostResult, String> {
    let inputs: Vec<_> =
        (0..cli.world_size).map(|rank| input(reduction.element(), rank, cli.count)).collect();
    let mine = &inputs[usize::from(cli.rank)];
    // Values are small and whole, so that no order of the sum rounds.
    let mut wanted = vec![0; mine.len()];
    fold(reduction, inputs.iter(), &mut wanted);
    let mut times = Vec::new();
    let before = processor_time()?;
    for _ in 0..cli.times {
        let start = now();
        let request = communicator.begin(Collective::Allreduce(reduction), mine);
        let result = request.and_then(|request| request.wait());
        let result = result.map_err(|error| format!("{}: {error}", name(reduction)))?;
        times.push(start.elapsed());
        if *result != wanted {
            let at = result.iter().zip(&wanted).position(|(found, wanted)| found != wanted);
            return Err(format!("{}: wrong from byte {} on", name(reduction), at.unwrap_or(0)));
        }
    }
    let cpu = processor_time()?.saturating_sub(before);
    let (reducers, why) = (communicator.reducers(), communicator.why());
    Ok(HostResult { reduction, times, cpu, reducers, why })
}

#[expect(clippy::disallowed_methods, reason = "it says how long an operation takes")]
fn now() -> Instant {
    Instant::now()
}

fn processor_time() -> Result<Duration, String> {
    let usage = getrusage(UsageWho::RUSAGE_SELF).map_err(|error| format!("getrusage: {error}"))?;
    let all = usage.user_time() + usage.system_time();
    Ok(Duration::from_micros(u64::try_from(all.num_microseconds()).unwrap_or(0)))
}

/// Elements of one rank: whole numbers from 1 to 4, of pairs with the rank as index.
fn input(element: ElementType, rank: u16, count: usize) -> Vec<u8> {
    let value = |at: usize| u8::try_from((at * 7 + usize::from(rank) * 3) % 4 + 1).unwrap_or(1);
    (0..count).flat_map(|at| element_of(element, value(at), rank)).collect()
}

fn element_of(element: ElementType, value: u8, rank: u16) -> Vec<u8> {
    let whole = |size: usize| {
        let mut bytes = vec![0; size];
        bytes[0] = value;
        bytes
    };
    let index = i32::from(rank).to_le_bytes();
    // The upper half of an F32 is a BF16.
    let single = f32::from(value).to_le_bytes();
    match element {
        ElementType::F16 => {
            // 1, 2, 3 and 4.
            let bits = [0x3c00_u16, 0x4000, 0x4200, 0x4400][usize::from(value - 1)];
            bits.to_le_bytes().to_vec()
        }
        ElementType::Bf16 => single[2..].to_vec(),
        ElementType::F32 => single.to_vec(),
        ElementType::F64 => f64::from(value).to_le_bytes().to_vec(),
        ElementType::I32I32 => [whole(4), index.to_vec()].concat(),
        ElementType::I64I32 => [whole(8), index.to_vec()].concat(),
        ElementType::F32I32 => [single, index].concat(),
        ElementType::F64I32 => [&f64::from(value).to_le_bytes()[..], &index].concat(),
        ElementType::I8
        | ElementType::I16
        | ElementType::I32
        | ElementType::I64
        | ElementType::U8
        | ElementType::U16
        | ElementType::U32
        | ElementType::U64 => whole(element.size()),
    }
}

/// The reductions that the arguments name.
fn reductions(element: &str, operator: &str) -> Result<Vec<Reduction>, String> {
    if element == "all" {
        let first = |element: ElementType| {
            Operator::ALL.into_iter().find_map(|operator| Reduction::new(operator, element))
        };
        return Ok(ElementType::ALL.into_iter().filter_map(first).collect());
    }
    let is = |name: String, asked: &str| name.eq_ignore_ascii_case(asked);
    let types = || ElementType::ALL.into_iter();
    let operators = || Operator::ALL.into_iter();
    let found = types().find(|e| is(format!("{e:?}"), element)).ok_or_else(|| {
        let all: Vec<_> = types().map(|e| format!("{e:?}").to_lowercase()).collect();
        format!("--type {element}: it is one of {}, all", all.join(", "))
    })?;
    let operator_found = operators().find(|o| is(format!("{o:?}"), operator)).ok_or_else(|| {
        let all: Vec<_> = operators().map(|o| format!("{o:?}").to_lowercase()).collect();
        format!("--operator {operator}: it is one of {}", all.join(", "))
    })?;
    let reduction = Reduction::new(operator_found, found);
    Ok(vec![reduction.ok_or_else(|| format!("there is no {operator} of {element}"))?])
}

fn name(reduction: Reduction) -> String {
    format!("{:?} of {:?}", reduction.operator(), reduction.element())
}

fn show(cli: &HostCli, results: &[HostResult]) -> Result<(), String> {
    let micros = |time: Duration| time.as_secs_f64() * 1e6;
    let median = |times: &[Duration]| {
        let mut sorted = times.to_vec();
        sorted.sort_unstable();
        sorted.get(sorted.len() / 2).copied().unwrap_or_default()
    };
    let text = if cli.json {
        let one = |result: &HostResult| {
            json!({
                "operator": format!("{:?}", result.reduction.operator()),
                "type": format!("{:?}", result.reduction.element()),
                "elements": cli.count,
                "times": result.times.len(),
                "median_us": micros(median(&result.times)),
                "cpu_us": micros(result.cpu),
                "is_right": true,
                "reduced_by": format!("{:?}", result.reducers).to_lowercase(),
                "why": result.why,
            })
        };
        let results: Vec<_> = results.iter().map(one).collect();
        format!(
            "{:#}\n",
            json!({ "rank": cli.rank, "world_size": cli.world_size, "results": results })
        )
    } else {
        let one = |result: &HostResult| {
            let (name, median) = (name(result.reduction), micros(median(&result.times)));
            let (rank, count, times) = (cli.rank, cli.count, result.times.len());
            let by = match (result.reducers, &result.why) {
                (Reducers::Members, Some(why)) => format!(", by the ranks' own programs: {why}"),
                (Reducers::Members | Reducers::Switches | Reducers::None, _) => String::new(),
            };
            format!(
                "rank {rank}: {name}, {count} elements, {times} times: right, \
                 median {median:.1} us{by}\n"
            )
        };
        results.iter().map(one).collect()
    };
    say(&text).map_err(|error| error.to_string())
}
