//! `inc-admin`: shows what a controller of in-network computing does, and changes its topology.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use inc::controller::GroupSecret;
use inc::port::EdgeTotals;
use inc_control::proto::{CommunicatorInfo, Snapshot};
use inc_control::{ControllerTool, HOSTS_PORT, TlsIdentity};
use serde_json::{Value, json};
use urma_tools::{clear, say};

/// Shows groups, trees, slots and counters of in-network computing.
#[derive(Debug, Parser)]
#[command(name = "inc-admin", version, max_term_width = 100)]
struct IncAdminCli {
    /// Address of the controller
    #[arg(long, value_name = "IP", default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST), global = true)]
    controller: IpAddr,
    /// Its TCP port for hosts and tools
    #[arg(long, value_name = "PORT", default_value_t = HOSTS_PORT, global = true)]
    port: u16,
    /// Shows what belongs to one tenant
    #[arg(long, value_name = "TENANT", global = true)]
    tenant: Option<u32>,
    /// As JSON
    #[arg(long, global = true)]
    json: bool,
    /// Shows it again after each change
    #[arg(long, global = true)]
    watch: bool,
    /// Certificates of those who may sign the controller's certificate
    #[arg(long, value_name = "FILE", global = true)]
    tls_ca: Option<PathBuf>,
    /// Certificate of this tool
    #[arg(long, value_name = "FILE", global = true)]
    tls_cert: Option<PathBuf>,
    /// Private key of the certificate
    #[arg(long, value_name = "FILE", global = true)]
    tls_key: Option<PathBuf>,
    #[command(subcommand)]
    verb: IncAdminVerb,
}

#[derive(Clone, Debug, Subcommand)]
enum IncAdminVerb {
    /// Groups, their ranks, and who is there
    Groups,
    /// Communicators and their trees, or why they have none
    Trees,
    /// Switches: memory, what is reserved, slots in use
    Slots,
    /// What communicators did at each switch
    Counters,
    /// The topology; with --trees the trees of running communicators, as YAML
    Topology {
        /// Shows trees instead of the map
        #[arg(long)]
        trees: bool,
    },
    /// Puts another topology in force
    Put {
        /// The topology, as YAML
        file: PathBuf,
        /// File with the secret, if the controller wants a proof
        #[arg(long, value_name = "FILE")]
        secret_file: Option<PathBuf>,
    },
}

fn main() -> ExitCode {
    match urma_tools::generate_if_asked(vec![IncAdminCli::command()]) {
        Ok(false) => {}
        Ok(true) => return ExitCode::SUCCESS,
        Err(error) => return fail(&format!("--generate: {error}")),
    }
    match run(&IncAdminCli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => fail(&why),
    }
}

fn fail(why: &str) -> ExitCode {
    urma_tools::say_error(&format!("inc-admin: {why}"));
    ExitCode::FAILURE
}

fn run(cli: &IncAdminCli) -> Result<(), String> {
    let controller = SocketAddr::new(cli.controller, cli.port);
    let tls = identity(cli)?;
    let tool = ControllerTool::connect(controller, tls.as_ref());
    let mut tool = tool.map_err(|error| error.to_string())?;
    let shown = |text: &str| say(text).map_err(|error| format!("standard output: {error}"));
    match &cli.verb {
        IncAdminVerb::Topology { trees } => {
            let topology = tool.topology().map_err(|error| error.to_string())?;
            let text = if *trees { topology.trees } else { topology.map };
            shown(&if cli.json { format!("{}\n", json!({ "yaml": text })) } else { text })
        }
        IncAdminVerb::Put { file, secret_file } => {
            let read = |file: &PathBuf| {
                let text = std::fs::read_to_string(file);
                text.map_err(|error| format!("{}: {error}", file.display()))
            };
            let secret = secret_file.as_ref().map(read).transpose()?;
            let secret = secret.map(|text| GroupSecret::new(text.trim_ascii().as_bytes()));
            let put = tool.put_topology(read(file)?, secret.as_ref());
            put.map_err(|error| format!("{}: {error}", file.display()))
        }
        IncAdminVerb::Groups
        | IncAdminVerb::Trees
        | IncAdminVerb::Slots
        | IncAdminVerb::Counters => {
            if !cli.watch {
                let snapshot = tool.list(cli.tenant).map_err(|error| error.to_string())?;
                return shown(&list(cli, &snapshot));
            }
            let mut result = Ok(());
            let watched = tool.watch(cli.tenant, |snapshot| {
                if !cli.json {
                    clear();
                }
                result = shown(&list(cli, snapshot));
                result.is_ok()
            });
            watched.map_err(|error| error.to_string())?;
            result
        }
    }
}

fn identity(cli: &IncAdminCli) -> Result<Option<TlsIdentity>, String> {
    let read = |path: &PathBuf| {
        std::fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))
    };
    match (&cli.tls_ca, &cli.tls_cert, &cli.tls_key) {
        (None, None, None) => Ok(None),
        (Some(authorities), Some(certificate), Some(key)) => Ok(Some(TlsIdentity {
            authorities: read(authorities)?,
            certificate: read(certificate)?,
            key: read(key)?,
        })),
        _ => Err("--tls-ca, --tls-cert and --tls-key go together".to_owned()),
    }
}

fn list(cli: &IncAdminCli, of: &Snapshot) -> String {
    if cli.json {
        let value = match cli.verb {
            IncAdminVerb::Groups => groups_json(of),
            IncAdminVerb::Trees => trees_json(of),
            IncAdminVerb::Slots => slots_json(of),
            IncAdminVerb::Counters | IncAdminVerb::Topology { .. } | IncAdminVerb::Put { .. } => {
                counters_json(of)
            }
        };
        return format!("{value}\n");
    }
    match cli.verb {
        IncAdminVerb::Groups => groups_text(of),
        IncAdminVerb::Trees => trees_text(of),
        IncAdminVerb::Slots => slots_text(of),
        IncAdminVerb::Counters | IncAdminVerb::Topology { .. } | IncAdminVerb::Put { .. } => {
            counters_text(of)
        }
    }
}

fn groups_json(of: &Snapshot) -> Value {
    let groups = of.groups.iter().map(|group| {
        let members = group.members.iter().map(|member| {
            json!({
                "rank": member.rank,
                "address": member.address,
                "session": member.has_session,
                "left": member.has_left,
            })
        });
        json!({
            "id": group.id,
            "name": group.name,
            "world_size": group.world_size,
            "tenant": group.tenant,
            "phase": group.phase,
            "members": members.collect::<Vec<_>>(),
        })
    });
    json!({ "groups": groups.collect::<Vec<_>>() })
}

fn groups_text(of: &Snapshot) -> String {
    let mut text = format!("groups: {}\n", of.groups.len());
    for group in &of.groups {
        let (id, name, size) = (group.id, &group.name, group.world_size);
        text += &format!(
            "group {id} {name}: tenant {}, {} of {size} ranks, {}\n",
            group.tenant,
            group.members.len(),
            group.phase
        );
        for member in &group.members {
            let state = match (member.has_left, member.has_session) {
                (true, _) => "left",
                (false, true) => "here",
                (false, false) => "no session",
            };
            text += &format!("  rank {} {} {state}\n", member.rank, member.address);
        }
    }
    text
}

fn trees_json(of: &Snapshot) -> Value {
    let communicators = of.communicators.iter().map(|communicator| {
        let tree = communicator.tree.iter().map(|switch| {
            let children = switch.children.iter();
            let children =
                children.map(|child| json!({ "name": child.name, "ranks": child.ranks }));
            json!({
                "switch": switch.name,
                "parent": switch.parent,
                "memory": switch.memory,
                "children": children.collect::<Vec<_>>(),
            })
        });
        json!({
            "id": communicator.id,
            "group": communicator.group,
            "tenant": communicator.tenant,
            "epoch": communicator.epoch,
            "phase": communicator.phase,
            "tree": tree.collect::<Vec<_>>(),
            "without": communicator.without,
        })
    });
    json!({ "communicators": communicators.collect::<Vec<_>>() })
}

fn trees_text(of: &Snapshot) -> String {
    let mut text = format!("communicators: {}\n", of.communicators.len());
    for communicator in &of.communicators {
        let CommunicatorInfo { id, group, epoch, phase, tenant, .. } = communicator;
        text += &format!(
            "communicator {id} of group {group}: tenant {tenant}, epoch {epoch}, {phase}\n"
        );
        if communicator.tree.is_empty() {
            text += &format!("  without a tree: {}\n", communicator.without);
        } else {
            if !communicator.without.is_empty() {
                text += &format!("  in the members' programs: {}\n", communicator.without);
            }
            branch(&mut text, communicator, 0, 1);
        }
    }
    text
}

/// A switch and what is below it. Each is behind its parent, so this ends.
fn branch(text: &mut String, of: &CommunicatorInfo, at: usize, depth: usize) {
    let Some(switch) = of.tree.get(at) else { return };
    *text += &format!("{}{}: {} bytes\n", "  ".repeat(depth), switch.name, switch.memory);
    for child in &switch.children {
        let below = of.tree.iter().enumerate().skip(at + 1);
        let mut below = below.filter(|(_, other)| {
            other.name == child.name && other.parent.is_some_and(|above| above as usize == at)
        });
        match below.next().filter(|_| child.is_switch) {
            Some((below, _)) => branch(text, of, below, depth + 1),
            None => {
                let indent = "  ".repeat(depth + 1);
                *text += &format!("{indent}{} (rank {:?})\n", child.name, child.ranks);
            }
        }
    }
}

fn slots_json(of: &Snapshot) -> Value {
    let switches = of.switches.iter().map(|switch| {
        json!({
            "switch": switch.name,
            "session": switch.has_session,
            "incarnation": switch.incarnation,
            "memory": switch.memory,
            "reserved": switch.reserved,
            "communicators": switch.parts,
            "slots_in_use": switch.counts.iter().map(|of| of.slots_in_use).sum::<u64>(),
        })
    });
    json!({ "switches": switches.collect::<Vec<_>>() })
}

fn slots_text(of: &Snapshot) -> String {
    let mut text = format!("switches: {}\n", of.switches.len());
    for switch in &of.switches {
        let in_use: u64 = switch.counts.iter().map(|of| of.slots_in_use).sum();
        text += &format!(
            "{}: {}, {} of {} bytes reserved by {} communicators, {in_use} slots in use\n",
            switch.name,
            if switch.has_session { "here" } else { "lost" },
            switch.reserved,
            switch.memory,
            switch.parts,
        );
    }
    text
}

fn counters_json(of: &Snapshot) -> Value {
    let all = of.switches.iter().flat_map(|switch| {
        switch.counts.iter().map(|of| {
            let counts = of.counts.clone().unwrap_or_default();
            let chunks = counts.chunks.clone().unwrap_or_default();
            json!({
                "switch": switch.name,
                "communicator": of.communicator,
                "contributions": counts.contributions,
                "duplicates": counts.duplicates,
                "stale": counts.stale,
                "violations": counts.violations,
                "other_epochs": counts.other_epochs,
                "repeats": counts.repeats,
                "aborts": counts.aborts,
                "bytes": counts.bytes,
                "naks": counts.naks,
                "drops": drops(&counts.drops).collect::<BTreeMap<_, _>>(),
                "chunks": chunks.counts.iter().sum::<u64>(),
                "chunk_ns": chunks.sum_ns,
                "slots_in_use": of.slots_in_use,
            })
        })
    });
    let strays = of.switches.iter().map(|switch| {
        let strays = switch.strays.clone().unwrap_or_default();
        json!({
            "switch": switch.name,
            "drops": drops(&strays.refused).collect::<BTreeMap<_, _>>(),
            "unknown_qpns": strays.unknown_qpns,
        })
    });
    json!({ "counters": all.collect::<Vec<_>>(), "strays": strays.collect::<Vec<_>>() })
}

/// Counts by their reasons, those that are not zero.
fn drops(counts: &[u64]) -> impl Iterator<Item = (&'static str, u64)> {
    EdgeTotals::REASONS.into_iter().zip(counts.iter().copied()).filter(|(_, count)| *count != 0)
}

fn counters_text(of: &Snapshot) -> String {
    let mut text = String::new();
    for switch in &of.switches {
        for of in &switch.counts {
            let counts = of.counts.clone().unwrap_or_default();
            let chunks = counts.chunks.unwrap_or_default();
            let all: u64 = chunks.counts.iter().sum();
            text += &format!(
                "{} communicator {}: {} contributions of {} bytes, {} duplicates, {} stale, \
                 {} violations, {} of other epochs, {} repeats, {} aborts, {} naks, \
                 {} slots in use, {all} chunks of {} us",
                switch.name,
                of.communicator,
                counts.contributions,
                counts.bytes,
                counts.duplicates,
                counts.stale,
                counts.violations,
                counts.other_epochs,
                counts.repeats,
                counts.aborts,
                counts.naks,
                of.slots_in_use,
                chunks.sum_ns.checked_div(all).unwrap_or(0) / 1000,
            );
            for (reason, count) in drops(&counts.drops) {
                text += &format!(", {count} dropped: {reason}");
            }
            text.push('\n');
        }
        let strays = switch.strays.clone().unwrap_or_default();
        let unknown = (strays.unknown_qpns != 0).then_some(("qpn", strays.unknown_qpns));
        for (reason, count) in drops(&strays.refused).chain(unknown) {
            text += &format!("{} of no communicator: {count} dropped: {reason}\n", switch.name);
        }
    }
    if text.is_empty() { "no counters yet\n".to_owned() } else { text }
}
