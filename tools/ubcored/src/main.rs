//! `ubcored`: the device of this host, for other processes.
//!
//! - owns: the process: arguments, the node, the sockets. takes: connections. gives: each client a function of the node. must
//!   not: believe what a client says of itself.
#![forbid(unsafe_code)]
#![expect(clippy::disallowed_methods, reason = "a daemon lives in real time")]

mod client;
mod door;
mod policy;
mod status;

use std::{
    io,
    net::IpAddr,
    os::unix::{
        fs::PermissionsExt,
        net::{UnixListener, UnixStream},
    },
    path::{Path, PathBuf},
    process::ExitCode,
    sync::Arc,
};

use clap::{CommandFactory, Parser};
use ubcore_sim::{
    NodeCfg,
    device::{FunctionQuota, QuotaKind},
    host::{eid_ip, ip_eid, memory::FileSharing},
};
use ubcored::{Attendants, DescriptorBudget};
use urma::Opened;
use urma_tools::{LogLevel, LogSetup};

use crate::{client::ClientService, door::Door, policy::ClientUsers, status::DaemonReport};
use policy::ClientPlaces;
use status::ClientRoster;

/// Serves the software UDMA device of this host to other processes.
///
/// Programs with URMA_UBCORED=PATH use a function of this daemon's device instead of a device of their own. All have its
/// EID, and reach other hosts by its UDP port 4791; what one has, no other can touch.
#[derive(Clone, Debug, Parser)]
#[command(name = "ubcored", version, max_term_width = 100)]
struct DaemonCli {
    /// Unix socket to listen on
    #[arg(long, value_name = "PATH")]
    socket: PathBuf,

    /// Unix socket that answers `urma_admin daemon status` and Prometheus [default: PATH of --socket with .status]
    #[arg(long, value_name = "PATH")]
    status: Option<PathBuf>,

    /// EID of the device [default: as URMA_EID or the settings file say, else the address of this host]
    #[arg(long, value_name = "ADDR")]
    eid: Option<IpAddr>,

    /// Users whose processes may be clients: `own`, `any`, or user ids with commas
    #[arg(long, value_name = "USERS", default_value = "own")]
    users: ClientUsers,

    /// Clients at a time
    #[arg(long, value_name = "COUNT", default_value_t = 64)]
    clients: usize,

    #[command(flatten)]
    quotas: QuotaArgs,
}

/// What each client may have.
#[derive(Clone, Copy, Debug, clap::Args)]
struct QuotaArgs {
    /// JFSs, JFRs, jetties and groups of a client
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    jetties: u64,

    /// JFCs and event queues of a client
    #[arg(long, value_name = "COUNT", default_value_t = 1024)]
    jfcs: u64,

    /// Token ids, and so segments, of a client
    #[arg(long, value_name = "COUNT", default_value_t = 8192)]
    segments: u64,

    /// Nodes that a client has a path to
    #[arg(long, value_name = "COUNT", default_value_t = 256)]
    paths: u64,

    /// Requests of a client that can be outstanding: blocks of send rings and entries of receive rings
    #[arg(long, value_name = "COUNT", default_value_t = 1 << 22)]
    work: u64,

    /// Memory of a client that the device reaches, in bytes
    #[arg(long, value_name = "BYTES", default_value_t = 64 << 30)]
    pinned_bytes: u64,

    /// Mappings that the memory of a client takes, of some 65,000 that a process has (vm.max_map_count)
    #[arg(long, value_name = "COUNT", default_value_t = 16384)]
    mappings: u64,
}

impl QuotaArgs {
    const fn quota(self) -> FunctionQuota {
        FunctionQuota::NONE
            .with(QuotaKind::Jetties, self.jetties)
            .with(QuotaKind::Jfcs, self.jfcs)
            .with(QuotaKind::Segments, self.segments)
            .with(QuotaKind::Paths, self.paths)
            .with(QuotaKind::Work, self.work)
            .with(QuotaKind::PinnedBytes, self.pinned_bytes)
            .with(QuotaKind::Mappings, self.mappings)
    }
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![DaemonCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    let cli = DaemonCli::parse();
    urma_tools::log(LogSetup { stdout: false, level: LogLevel::Nothing });
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    urma_tools::say_error(&format!("ubcored: {why}"));
    ExitCode::FAILURE
}

fn run(cli: &DaemonCli) -> Result<(), String> {
    let listener = listen(&cli.socket)?;
    if cli.users != ClientUsers::Own {
        // Credentials decide, not the permissions of the socket.
        let all = std::fs::Permissions::from_mode(0o666);
        let opened = std::fs::set_permissions(&cli.socket, all);
        opened.map_err(|error| format!("the permissions of {}: {error}", cli.socket.display()))?;
    }
    let status = cli.status.clone().unwrap_or_else(|| cli.socket.with_added_extension("status"));
    let status_listener = listen(&status)?;
    let cfg = NodeCfg::from_env().map_err(|error| error.to_string())?;
    let eid = cli.eid.map(ip_eid).or(cfg.eid);
    // What clients register is theirs: it does not lie in files that others of this user may open.
    let cfg = NodeCfg { eid, ubcored: None, file_sharing: FileSharing::Off, ..cfg };
    // The driver of the first function gives the device its knitting pool; it has no queues.
    let opened = urma::open_node(cfg).map_err(|error| error.to_string())?;
    let Opened { node, device: _device, context: _context } = opened;
    let roster = Arc::<ClientRoster>::default();
    let descriptors = DescriptorBudget::of_process(cli.clients);
    let report = DaemonReport {
        node: Arc::clone(&node),
        roster: Arc::clone(&roster),
        clients_max: cli.clients,
        descriptors: Arc::clone(&descriptors),
    };
    report.serve(status_listener).map_err(|error| format!("the status socket: {error}"))?;
    let (eid, socket) = (eid_ip(node.eid()), cli.socket.display());
    tracing::info!(%eid, %socket, status = %status.display(), "ubcored listens");
    if let Some(why) = node.packets_refused() {
        tracing::warn!(%eid, why, "clients cannot reach other hosts");
    }
    let attendants =
        Attendants::start().map_err(|error| format!("the device's thread: {error}"))?;
    let service = Arc::new(ClientService {
        node,
        attendants,
        roster,
        users: cli.users.clone(),
        quota: cli.quotas.quota(),
        places: ClientPlaces::new(cli.clients, cli.users.are_several()),
        descriptors,
    });
    let door = Door::new(listener).map_err(|error| format!("the socket: {error}"))?;
    door.run(&service)
}

/// Listens at `path`; a socket there that no process serves is replaced.
fn listen(path: &Path) -> Result<UnixListener, String> {
    let listened = bind(path);
    listened.map_err(|error| format!("listening on {}: {error}", path.display()))
}

fn bind(path: &Path) -> io::Result<UnixListener> {
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
