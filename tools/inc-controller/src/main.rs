//! `inc-controller`: groups, communicators and trees of in-network computing, for the switches and hosts of a topology.
//!
//! - owns: the process: arguments, files of the topology, secret and certificates. takes: signals. gives: a line when it is
//!   ready.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{CommandFactory, Parser};
use inc::controller::{ControllerCfg, GroupSecret};
use inc::tree_document::read_topology;
use inc_control::{
    ControllerServer, ControllerServerCfg, ControllerStore, EtcdCfg, EtcdElection, FileStore,
    FollowerServer, HOSTS_PORT, HTTP_PORT, MemoryStore, SWITCHES_PORT, ServerExposure, TlsIdentity,
};
use urma_tools::{LogLevel, LogSetup, say};

/// Makes groups of ranks and trees of switches, and replaces those that fail.
#[derive(Debug, Parser)]
#[command(name = "inc-controller", version, max_term_width = 100)]
struct ControllerCli {
    /// The topology, as YAML: a physical map (nodes, links) or trees (switches)
    #[arg(long, value_name = "FILE", default_value = "topology.yaml")]
    topology: PathBuf,
    /// Address to listen on; others than loopback addresses need certificates
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    listen: IpAddr,
    /// TCP port for hosts and tools
    #[arg(long, value_name = "PORT", default_value_t = HOSTS_PORT)]
    hosts_port: u16,
    /// TCP port for switches
    #[arg(long, value_name = "PORT", default_value_t = SWITCHES_PORT)]
    switches_port: u16,
    /// TCP port for /metrics and /healthz
    #[arg(long, value_name = "PORT", default_value_t = HTTP_PORT)]
    http_port: u16,
    /// Where it keeps what it has to know after a restart: `memory`, `file:PATH`, or `etcd:URL,URL,...`, by which several
    /// controllers replace each other
    #[arg(long, value_name = "STORE", default_value = "memory")]
    store: String,
    /// What keys in etcd begin with: the same for controllers that replace each other
    #[arg(long, value_name = "TEXT", default_value = "inc")]
    etcd_prefix: String,
    /// What other controllers say of this one while it is in charge [default: address and port for hosts]
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    /// File with the secret that those prove to know who join a group or put a topology
    #[arg(long, value_name = "FILE")]
    secret_file: Option<PathBuf>,
    /// The same for one group alone, which takes no other; may be given more than once
    #[arg(long, value_name = "GROUP=FILE", value_parser = group_secret)]
    group_secret: Vec<(String, PathBuf)>,
    /// The same for those who put a topology alone
    #[arg(long, value_name = "FILE")]
    topology_secret: Option<PathBuf>,
    /// Bytes of slots that a tenant may have in each switch
    #[arg(long, value_name = "BYTES")]
    quota: Option<u64>,
    /// The same for one tenant; may be given more than once
    #[arg(long, value_name = "TENANT=BYTES", value_parser = tenant_quota)]
    tenant_quota: Vec<(u32, u64)>,
    /// Milliseconds without a sign of life after which a session is over
    #[arg(long, value_name = "MS", default_value_t = 300)]
    silence: u64,
    /// Listens on other addresses than loopback without certificates: the network must be trusted
    #[arg(long)]
    insecure: bool,
    #[command(flatten)]
    tls: TlsArgs,
    /// Says more
    #[arg(short, long)]
    verbose: bool,
}

/// Files of certificates, in PEM.
#[derive(Debug, clap::Args)]
struct TlsArgs {
    /// Certificates of those who may sign certificates of callers
    #[arg(long, value_name = "FILE", requires_all = ["tls_cert", "tls_key"])]
    tls_ca: Option<PathBuf>,
    /// Certificate of the controller
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", requires = "tls_ca")]
    tls_key: Option<PathBuf>,
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![ControllerCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    let cli = ControllerCli::parse();
    let level = if cli.verbose { LogLevel::Everything } else { LogLevel::Warnings };
    urma_tools::log(LogSetup { stdout: false, level });
    match run(&cli) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    urma_tools::say_error(&format!("inc-controller: {why}"));
    ExitCode::FAILURE
}

fn run(cli: &ControllerCli) -> Result<(), String> {
    let text = read(&cli.topology)?;
    let map =
        read_topology(&text).map_err(|error| format!("{}: {error}", cli.topology.display()))?;
    let of_groups = cli.group_secret.iter();
    let of_groups = of_groups.map(|(group, file)| Ok((group.clone(), secret(file)?)));
    let controller = ControllerCfg {
        secret: cli.secret_file.as_deref().map(secret).transpose()?,
        group_secrets: of_groups.collect::<Result<_, String>>()?,
        topology_secret: cli.topology_secret.as_deref().map(secret).transpose()?,
        quota: cli.quota,
        quotas: cli.tenant_quota.iter().copied().collect::<BTreeMap<_, _>>(),
        silence_ns: cli.silence.saturating_mul(1_000_000),
        ..ControllerCfg::new()
    };
    let at = |port| SocketAddr::new(cli.listen, port);
    let mut cfg = ControllerServerCfg {
        controller,
        map,
        hosts: at(cli.hosts_port),
        switches: at(cli.switches_port),
        store: Box::new(MemoryStore),
        tls: identity(&cli.tls)?,
    };
    let exposure = ServerExposure { http: Some(at(cli.http_port)), is_insecure: cli.insecure };
    cfg.store = store(cli, &cfg, exposure)?;
    let server = ControllerServer::start_exposed(cfg, exposure);
    let server = server.map_err(|error| error.to_string())?;
    say(&format!("ready: hosts {}, switches {}\n", server.hosts(), server.switches()))
        .map_err(|error| format!("standard output: {error}"))?;
    server.wait().map_err(|error| error.to_string())
}

fn read(path: &Path) -> Result<String, String> {
    std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
}

fn secret(path: &Path) -> Result<GroupSecret, String> {
    let text = read(path)?;
    match text.trim_ascii() {
        "" => Err(format!("{}: a secret is not empty", path.display())),
        text => Ok(GroupSecret::new(text.as_bytes())),
    }
}

/// The store; that in etcd when this controller is in charge.
fn store(
    cli: &ControllerCli,
    cfg: &ControllerServerCfg,
    exposure: ServerExposure,
) -> Result<Box<dyn ControllerStore>, String> {
    let text = &cli.store;
    match text.split_once(':') {
        None if text == "memory" => Ok(Box::new(MemoryStore)),
        Some(("file", path)) if !path.is_empty() => Ok(Box::new(FileStore::new(path))),
        Some(("etcd", urls)) if !urls.is_empty() => {
            let election = EtcdElection::start(EtcdCfg {
                endpoints: urls.split(',').map(str::to_owned).collect(),
                prefix: cli.etcd_prefix.clone(),
                name: cli.name.clone().unwrap_or_else(|| cfg.hosts.to_string()),
                tls: cfg.tls.clone(),
            });
            let election = election.map_err(|error| format!("--store {text}: {error}"))?;
            let follower = FollowerServer::start(cfg, exposure, election.leader());
            let follower = follower.map_err(|error| error.to_string())?;
            say(&format!("waiting to be in charge: hosts {}\n", cfg.hosts))
                .map_err(|error| format!("standard output: {error}"))?;
            let store = election.wait().map_err(|error| format!("--store {text}: {error}"))?;
            drop(follower);
            Ok(Box::new(store))
        }
        _ => Err(format!("--store {text}: it is memory, file:PATH or etcd:URL,URL,...")),
    }
}

fn identity(args: &TlsArgs) -> Result<Option<TlsIdentity>, String> {
    let (Some(authorities), Some(certificate), Some(key)) =
        (&args.tls_ca, &args.tls_cert, &args.tls_key)
    else {
        return Ok(None);
    };
    Ok(Some(TlsIdentity {
        authorities: read(authorities)?,
        certificate: read(certificate)?,
        key: read(key)?,
    }))
}

fn group_secret(text: &str) -> Result<(String, PathBuf), String> {
    let parsed =
        text.rsplit_once('=').filter(|(group, file)| !group.is_empty() && !file.is_empty());
    let parsed = parsed.map(|(group, file)| (group.to_owned(), PathBuf::from(file)));
    parsed.ok_or_else(|| format!("{text:?} is not GROUP=FILE"))
}

fn tenant_quota(text: &str) -> Result<(u32, u64), String> {
    let parsed = text
        .split_once('=')
        .and_then(|(tenant, bytes)| Some((tenant.parse().ok()?, bytes.parse().ok()?)));
    parsed.ok_or_else(|| format!("{text:?} is not TENANT=BYTES"))
}
