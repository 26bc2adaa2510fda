//! `inc-attach`: joins a group for a queue pair that a verbs program has, on a NIC or on Linux rxe.
//!
//! A verbs program knows nothing of groups and controllers. This one joins in its place, says what a switch has to know of the
//! queue pair, prints what the program has to know of the switch, and stays until it is ended: it is the rank's sign of life.
//! Messages have the plain framing, data alone. When the tree is replaced the queue pair cannot follow; that ends the rank.
#![forbid(unsafe_code)]

use std::io::{self, Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::ExitCode;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use clap::{CommandFactory, Parser, ValueEnum};
use inc::control::{ChunkReport, HostCommand, HostReport, TreeLife};
use inc::edge::{EdgeAttributes, EdgeEnd, Framing, MessageMode, Reliability, WriteWindow};
use inc::element::{ElementType, Operator, Reduction};
use inc::wire::Seq;
use inc_control::{HOSTS_PORT, HostSession, HostSessionCfg};
use inc_net::group::GROUP_DEFAULT;
use urma_packet::{Psn, ROCE_PORT, Tpn};
use urma_tools::{Ends, LogLevel, LogSetup, say};

/// QPNs and PSNs have 24 bits.
const NUMBER_MAX: u32 = 0x00ff_ffff;
/// Between two looks at signals.
const LOOK: Duration = Duration::from_millis(50);

/// Joins a group of hosts that reduce with the help of switches, for a queue pair of a verbs program.
#[derive(Debug, Parser)]
#[command(name = "inc-attach", version)]
struct AttachCli {
    /// Ranks of the group
    world_size: u16,
    /// Address of the controller; of several that replace each other all, with commas between
    #[arg(value_delimiter = ',', num_args = 1, required = true)]
    controller: Vec<IpAddr>,
    /// Number of this rank, from 0 on
    rank: u16,
    /// Address of the queue pair's NIC
    #[arg(long, value_name = "IP", required_unless_present = "pingpong")]
    address: Option<IpAddr>,
    /// Number of the queue pair
    #[arg(long, value_parser = number24, required_unless_present = "pingpong")]
    qpn: Option<u32>,
    /// First PSN that it sends
    #[arg(long, value_parser = number24, required_unless_present = "pingpong")]
    psn: Option<u32>,
    /// Takes address, QPN and PSN from a client of ibv_rc_pingpong or ibv_uc_pingpong, which connects to this TCP port
    #[arg(long, value_name = "PORT", conflicts_with_all = ["address", "qpn", "psn", "base", "key"])]
    pingpong: Option<u16>,
    /// With --mode write: address of the memory to which results are written, 2 windows of messages
    #[arg(long, value_parser = number64, default_value = "0")]
    base: u64,
    /// With --mode write: remote key of that memory
    #[arg(long, value_parser = number32, default_value = "0")]
    key: u32,
    /// How messages are moved
    #[arg(long, value_enum, default_value_t = AttachMode::Send)]
    mode: AttachMode,
    /// Kind of the queue pair
    #[arg(long, value_enum, default_value_t = AttachEdge::Rc)]
    edge: AttachEdge,
    /// Element type of the vectors
    #[arg(long = "type", default_value = "i32")]
    element: String,
    /// Operator of the reduction
    #[arg(long, default_value = "sum")]
    operator: String,
    /// Payload of a packet in bytes: the queue pair's path MTU
    #[arg(long, default_value_t = 1024)]
    path_mtu: u16,
    /// Packets of a message at most, 1 to 8
    #[arg(long, default_value_t = 4)]
    packets: u8,
    /// Messages that may wait for their results: a power of two, 2 to 1024
    #[arg(long, default_value_t = 64)]
    window: u32,
    /// Name of the group: ranks with one name meet
    #[arg(long, default_value = GROUP_DEFAULT)]
    group: String,
    /// TCP port of the controller for hosts
    #[arg(long, default_value_t = HOSTS_PORT)]
    controller_port: u16,
    /// Seconds to wait for the verbs program, the controller, the other ranks and a tree of switches, each
    #[arg(long, default_value_t = 30)]
    wait: u64,
    /// Says more about what happens
    #[arg(short, long, action = clap::ArgAction::Count)]
    verbose: u8,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum AttachMode {
    Send,
    Write,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum AttachEdge {
    Rc,
    Uc,
}

/// What the controller makes of the queue pair's edge.
enum EdgeChange {
    /// The switch's end of it.
    Tree(EdgeEnd),
    /// There is no tree yet; the text says why.
    Waits(String),
    /// The rank is over; the text says why.
    Over(String),
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![AttachCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(0, &format!("--generate: {error}")),
    }
    let cli = AttachCli::parse();
    // Before any thread starts, so that all of them inherit the mask.
    let ends = match Ends::watch() {
        Ok(ends) => ends,
        Err(error) => return fail(cli.rank, &format!("watching for a signal: {error}")),
    };
    let level = if cli.verbose > 0 { LogLevel::Everything } else { LogLevel::Warnings };
    urma_tools::log(LogSetup { stdout: false, level });
    match attach(&cli, &ends) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(cli.rank, &why),
    }
}

fn fail(rank: u16, why: &str) -> ExitCode {
    urma_tools::say_error(&format!("inc-attach {rank}: {why}"));
    ExitCode::from(2)
}

fn attach(cli: &AttachCli, ends: &Ends) -> Result<(), String> {
    let attributes = attributes(cli)?;
    let wait = Duration::from_secs(cli.wait);
    let pingpong = cli.pingpong.map(|port| PingpongClient::accept(port, wait, ends)).transpose()?;
    let end = match &pingpong {
        Some(client) => client.end,
        None => end_of(cli)?,
    };
    let session = join(cli, end)?;
    let (sender, changes) = channel();
    let (chunks, report) = channel();
    let mut is_started = false;
    let on_command = move |command: HostCommand| {
        let change = match command {
            HostCommand::Start(_, start) => match start.parent {
                // A controller that was started again may repeat it.
                Some(_) if std::mem::replace(&mut is_started, true) => return,
                Some(parent) => EdgeChange::Tree(parent),
                None => EdgeChange::Waits(start.without.unwrap_or_default()),
            },
            // Nothing was sent yet, so the next tree is as good.
            HostCommand::Prepare(life) if !is_started => {
                let _ = chunks.send(life);
                return;
            }
            HostCommand::Prepare(_) => {
                let why = "the tree of switches is replaced, which a queue pair cannot follow";
                EdgeChange::Over(why.to_owned())
            }
            HostCommand::Abort(_, reason, why) => EdgeChange::Over(format!("{reason:?}: {why}")),
            // This program has no switch: the communicator has no fallback.
            HostCommand::Switch(_) => return,
        };
        // A receiver that is gone needs no change.
        let _ = sender.send(change);
    };
    let id = session.create_communicator(attributes, end, Box::new(on_command));
    let id = id.map_err(|error| error.to_string())?;
    let rank = AttachedRank { session, report, window: attributes.window, end };
    let result = rank.wait_for_tree(&changes, wait, ends).and_then(|tree| {
        let Some(switch) = tree else { return Ok(()) };
        match pingpong {
            Some(client) => client.answer(switch)?,
            None => say(&shown(switch)).map_err(|error| error.to_string())?,
        }
        stay(&changes, ends)
    });
    if result.is_ok() {
        // In order, so that it is no lost member to the others, who may not be done. One that never ends is not waited for.
        let _ = rank.session.destroy(id);
    }
    result
}

/// A member of a group in place of a queue pair.
struct AttachedRank {
    session: HostSession,
    /// Lives for which chunks are to be reported.
    report: Receiver<TreeLife>,
    window: u32,
    end: EdgeEnd,
}

impl AttachedRank {
    /// The switch's end of the edge; `None`: a signal came first.
    fn wait_for_tree(
        &self,
        changes: &Receiver<EdgeChange>,
        wait: Duration,
        ends: &Ends,
    ) -> Result<Option<EdgeEnd>, String> {
        let (start, mut why) = (now(), "the controller has started none".to_owned());
        while start.elapsed() < wait {
            while let Ok(life) = self.report.try_recv() {
                let has_result = vec![false; 2 * self.window as usize];
                let chunks = ChunkReport { oldest: Seq(0), has_result };
                self.session.report(HostReport::Chunks(life, chunks, self.end));
            }
            match changes.recv_timeout(LOOK) {
                Ok(EdgeChange::Tree(switch)) => return Ok(Some(switch)),
                Ok(EdgeChange::Waits(reason)) => why = reason,
                Ok(EdgeChange::Over(why)) => return Err(why),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err("the session ended".to_owned()),
            }
            if ends.within(Duration::ZERO) {
                return Ok(None);
            }
        }
        Err(format!("no tree of switches within {} s: {why}", wait.as_secs()))
    }
}

/// Until a signal comes, or the rank is over.
fn stay(changes: &Receiver<EdgeChange>, ends: &Ends) -> Result<(), String> {
    while !ends.within(LOOK) {
        match changes.try_recv() {
            Ok(EdgeChange::Over(why)) => return Err(why),
            Ok(EdgeChange::Tree(_) | EdgeChange::Waits(_)) | Err(_) => {}
        }
    }
    Ok(())
}

fn join(cli: &AttachCli, end: EdgeEnd) -> Result<HostSession, String> {
    let at = |&ip: &IpAddr| SocketAddr::new(ip, cli.controller_port);
    let controllers: Vec<_> = cli.controller.iter().map(at).collect();
    let [controller, ref others @ ..] = controllers[..] else {
        return Err("no controller is named".to_owned());
    };
    let session = HostSession::join(HostSessionCfg {
        controller,
        others: others.to_vec(),
        group: cli.group.clone(),
        world_size: cli.world_size.into(),
        rank: cli.rank.into(),
        address: end.address.ip(),
        tenant: 0,
        secret: None,
        wait: Duration::from_secs(cli.wait),
        tls: None,
    });
    session.map_err(|error| error.to_string())
}

fn attributes(cli: &AttachCli) -> Result<EdgeAttributes, String> {
    let named = |name: String, asked: &str| name.eq_ignore_ascii_case(asked);
    let element = ElementType::ALL.into_iter().find(|e| named(format!("{e:?}"), &cli.element));
    let element = element.ok_or_else(|| format!("--type {}: no such type", cli.element))?;
    let operator = Operator::ALL.into_iter().find(|o| named(format!("{o:?}"), &cli.operator));
    let operator =
        operator.ok_or_else(|| format!("--operator {}: no such operator", cli.operator))?;
    let reduction = Reduction::new(operator, element);
    let reduction =
        reduction.ok_or_else(|| format!("there is no {} of {}", cli.operator, cli.element))?;
    let attributes = EdgeAttributes {
        mode: match cli.mode {
            AttachMode::Send => MessageMode::Send,
            AttachMode::Write => MessageMode::Write,
        },
        reliability: match cli.edge {
            AttachEdge::Rc => Reliability::Reliable,
            AttachEdge::Uc => Reliability::Unreliable,
        },
        framing: Framing::Plain(reduction),
        path_mtu: cli.path_mtu,
        packets: cli.packets,
        window: cli.window,
        fallback: false,
        ..EdgeAttributes::DEFAULT
    };
    attributes.check().map_err(|error| error.to_string())?;
    Ok(attributes)
}

/// The queue pair's end of the edge, as the arguments say it.
fn end_of(cli: &AttachCli) -> Result<EdgeEnd, String> {
    if cli.mode == AttachMode::Write && cli.key == 0 {
        return Err("--mode write needs the memory for results: --base and --key".to_owned());
    }
    let (Some(address), Some(qpn), Some(psn)) = (cli.address, cli.qpn, cli.psn) else {
        return Err("--address, --qpn and --psn are needed".to_owned());
    };
    Ok(EdgeEnd {
        address: SocketAddr::new(address, ROCE_PORT),
        qpn: Tpn::from_low_bits(qpn),
        first_psn: Psn::new(psn),
        window: WriteWindow { base: cli.base, key: cli.key },
    })
}

/// The switch's end of the edge in one line.
fn shown(end: EdgeEnd) -> String {
    let EdgeEnd { address, qpn, first_psn, window } = end;
    let (ip, qpn, psn) = (address.ip(), qpn.value(), first_psn.value());
    let WriteWindow { base, key } = window;
    format!("switch {ip} qpn {qpn} psn {psn} base {base} key {key}\n")
}

/// A client of `ibv_rc_pingpong`, which waits for its peer's numbers.
struct PingpongClient {
    stream: TcpStream,
    end: EdgeEnd,
}

/// Bytes of a message of theirs: LID, QPN, PSN and GID in hexadecimal with colons between, and a zero.
const PINGPONG_LEN: usize = 52;

impl PingpongClient {
    fn accept(port: u16, wait: Duration, ends: &Ends) -> Result<Self, String> {
        let failed = |error: io::Error| format!("--pingpong {port}: {error}");
        let any = SocketAddr::from((Ipv6Addr::UNSPECIFIED, port));
        let listener = TcpListener::bind(any).map_err(failed)?;
        listener.set_nonblocking(true).map_err(failed)?;
        let start = now();
        loop {
            match listener.accept() {
                Ok((stream, _)) => {
                    stream.set_nonblocking(false).map_err(failed)?;
                    stream.set_read_timeout(Some(wait)).map_err(failed)?;
                    return Self::read(stream).map_err(failed);
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(error) => return Err(failed(error)),
            }
            if ends.within(LOOK) || start.elapsed() > wait {
                return Err(format!("--pingpong {port}: no client connected"));
            }
        }
    }

    fn read(mut stream: TcpStream) -> io::Result<Self> {
        let mut text = [0; PINGPONG_LEN];
        stream.read_exact(&mut text)?;
        let text = String::from_utf8_lossy(&text);
        let end = pingpong_end(text.trim_end_matches('\0'));
        let fault = || io::Error::other(format!("{text:?} is no LID:QPN:PSN:GID"));
        Ok(Self { stream, end: end.ok_or_else(fault)? })
    }

    /// Gives it the switch's numbers, and waits until it has made its queue pair ready.
    fn answer(mut self, switch: EdgeEnd) -> Result<(), String> {
        let IpAddr::V6(gid) = to_v6(switch.address.ip()) else { return Ok(()) };
        let (qpn, psn) = (switch.qpn.value(), switch.first_psn.value());
        let text = format!("0000:{qpn:06x}:{psn:06x}:{:032x}\0", gid.to_bits());
        let failed = |error: io::Error| format!("the pingpong client: {error}");
        self.stream.write_all(text.as_bytes()).map_err(failed)?;
        // It says "done", and closes the connection.
        self.stream.read_to_end(&mut Vec::new()).map_err(failed)?;
        Ok(())
    }
}

/// What a message of theirs says; `None`: it is none.
fn pingpong_end(text: &str) -> Option<EdgeEnd> {
    let parts: Vec<_> = text.split(':').collect();
    let [_, qpn, psn, gid] = parts[..] else { return None };
    let number = |text| u32::from_str_radix(text, 16).ok().filter(|number| *number <= NUMBER_MAX);
    let gid = u128::from_str_radix(gid, 16).ok()?;
    Some(EdgeEnd {
        address: SocketAddr::new(Ipv6Addr::from_bits(gid).to_canonical(), ROCE_PORT),
        qpn: Tpn::from_low_bits(number(qpn)?),
        first_psn: Psn::new(number(psn)?),
        window: WriteWindow { base: 0, key: 0 },
    })
}

fn to_v6(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().into(),
        v6 @ IpAddr::V6(_) => v6,
    }
}

/// A number in decimal, or in hexadecimal behind `0x`.
fn number64(text: &str) -> Result<u64, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|error| error.to_string())
}

fn number32(text: &str) -> Result<u32, String> {
    u32::try_from(number64(text)?).map_err(|_| "it has more than 32 bits".to_owned())
}

fn number24(text: &str) -> Result<u32, String> {
    let number = number32(text)?;
    if number > NUMBER_MAX { Err("it has more than 24 bits".to_owned()) } else { Ok(number) }
}

#[expect(clippy::disallowed_methods, reason = "it waits for a bounded time")]
fn now() -> Instant {
    Instant::now()
}
