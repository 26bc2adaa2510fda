//! `ubcored`: software UDMA devices for other processes.
//!
//! - owns: the process: arguments, the socket, a thread for each client. takes: connections. gives: each client a node
//!   with an EID of its own, which ends with the connection. must not: believe what a client says of itself.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a daemon lives in real time")]

use std::{
    io,
    net::IpAddr,
    os::unix::net::{UnixListener, UnixStream},
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use clap::{CommandFactory, Parser};
use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use ubcore_sim::{
    EidSource, Node, NodeCfg, NodeError,
    host::{claim::ClaimError, ip_eid},
};
use ubcored::{Attendants, NodeFunction};
use udma_vfio::user::{MapQuota, serve};
use urma_mem::sync::{AtomicUsize, Ordering};
use urma_tools::LogSetup;

/// Serves software UDMA devices to other processes of this host.
///
/// Programs with URMA_UBCORED=PATH use a device of this daemon instead of one of their own. Each has a node with an EID
/// of its own.
#[derive(Clone, Debug, Parser)]
#[command(name = "ubcored", version, max_term_width = 100)]
struct DaemonCli {
    /// Unix socket to listen on; who may connect is decided by its permissions
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// EID of the first client; further ones have the next free addresses [default: random ones of 127.0.0.0/8]
    #[arg(long, value_name = "ADDR")]
    eid: Option<IpAddr>,

    /// Clients at a time
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    clients: usize,
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![DaemonCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    let cli = DaemonCli::parse();
    urma_tools::log(LogSetup { stdout: false, verbose: false });
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

#[expect(clippy::print_stderr, reason = "the message of the program that ends")]
fn fail(why: &str) -> ExitCode {
    eprintln!("ubcored: {why}");
    ExitCode::FAILURE
}

fn run(cli: &DaemonCli) -> Result<(), String> {
    // Settings that no node could be opened with are found now, not by the first client.
    NodeCfg::from_env().map_err(|error| error.to_string())?;
    let at = cli.socket.display();
    let listener = listen(&cli.socket).map_err(|error| format!("listening on {at}: {error}"))?;
    tracing::info!(socket = %at, "ubcored listens");
    let clients = Arc::new(AtomicUsize::new(0));
    let attendants =
        Attendants::start().map_err(|error| format!("the device's thread: {error}"))?;
    loop {
        let socket = match listener.accept() {
            Ok((socket, _)) => socket,
            Err(error) => {
                // Out of descriptors, say: those who are served go on.
                tracing::warn!(%error, "a connection was not accepted");
                std::thread::sleep(RETRY);
                continue;
            }
        };
        if clients.fetch_add(1, Ordering::Relaxed) >= cli.clients {
            clients.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(limit = cli.clients, "a client is refused: too many are served");
            continue;
        }
        let (counted, first) = (Arc::clone(&clients), cli.eid);
        let count = cli.clients;
        let attendants = Arc::clone(&attendants);
        let thread = std::thread::Builder::new().name("ubcored-client".to_owned());
        let spawned = thread.spawn(move || {
            serve_client(&socket, (first, count), attendants);
            counted.fetch_sub(1, Ordering::Relaxed);
        });
        if let Err(error) = spawned {
            clients.fetch_sub(1, Ordering::Relaxed);
            tracing::warn!(%error, "a client is refused: no thread");
        }
    }
}

/// Listens at `path`; a socket there that no process serves is replaced.
fn listen(path: &Path) -> io::Result<UnixListener> {
    match UnixListener::bind(path) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            let found = UnixStream::connect(path);
            if found.is_err_and(|error| error.kind() == io::ErrorKind::ConnectionRefused) {
                std::fs::remove_file(path)?;
                return UnixListener::bind(path);
            }
            Err(error)
        }
        bound => bound,
    }
}

fn serve_client(socket: &UnixStream, eids: (Option<IpAddr>, usize), attendants: Arc<Attendants>) {
    let credentials = match getsockopt(socket, PeerCredentials) {
        Ok(credentials) => credentials,
        Err(error) => {
            tracing::warn!(%error, "a client is refused: no credentials");
            return;
        }
    };
    let (uid, pid) = (credentials.uid(), credentials.pid());
    let node = match open(uid, eids) {
        Ok(node) => node,
        Err(error) => {
            tracing::warn!(uid, pid, %error, "a client is refused: no node");
            return;
        }
    };
    let eid = ubcore_sim::host::eid_ip(node.eid());
    tracing::info!(uid, pid, %eid, "a client is served");
    let mut function = match NodeFunction::new(node, attendants) {
        Ok(function) => function,
        Err(error) => {
            tracing::warn!(uid, pid, %error, "a client is refused: no doorbell memory");
            return;
        }
    };
    let result = serve(socket, &mut function, MapQuota::default());
    match result {
        Ok(()) => tracing::info!(uid, pid, %eid, "a client left"),
        Err(error) => tracing::warn!(uid, pid, %eid, %error, "a client is cut off"),
    }
}

/// A node for a client of `uid`.
fn open(uid: u32, (first, count): (Option<IpAddr>, usize)) -> Result<Arc<Node>, NodeError> {
    let cfg = NodeCfg::from_env()?;
    let cfg = NodeCfg { uasid: uid & UASID_MASK, ubcored: None, ..cfg };
    let Some(first) = first else {
        return Node::open(NodeCfg { eid: None, eid_source: EidSource::Random, ..cfg });
    };
    let mut next = first;
    for _ in 1..count {
        match Node::open(NodeCfg { eid: Some(ip_eid(next)), ..cfg.clone() }) {
            Err(NodeError::Claim(ClaimError::Taken { .. })) => next = after(next),
            opened => return opened,
        }
    }
    Node::open(NodeCfg { eid: Some(ip_eid(next)), ..cfg })
}

fn after(address: IpAddr) -> IpAddr {
    match address {
        IpAddr::V4(v4) => IpAddr::V4(v4.to_bits().wrapping_add(1).into()),
        IpAddr::V6(v6) => IpAddr::V6(v6.to_bits().wrapping_add(1).into()),
    }
}

/// A UASID has 24 bits.
const UASID_MASK: u32 = (1 << 24) - 1;
/// Pause after a connection that could not be accepted.
const RETRY: Duration = Duration::from_millis(100);
