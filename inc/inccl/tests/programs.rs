//! C programs on libinccl, each rank a process, with a controller and switches on loopback.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::{env, fs};

use inc::controller::ControllerCfg;
use inc::document::read_map;
use inc::switch::SwitchLimits;
use inc_control::{ControllerServer, ControllerServerCfg, MemoryStore};
use inc_net::switch::{ControlledSwitch, ControlledSwitchCfg};

const LIMITS: SwitchLimits = SwitchLimits { memory: 1 << 28, communicators: 100 };
const RANKS: u8 = 4;

/// A folder with the library, as a linker and a loader look for it.
fn library(test: &str) -> PathBuf {
    let built = env::current_exe().unwrap().parent().unwrap().join("libinccl.so");
    assert!(built.is_file(), "{} is built with this test", built.display());
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("inccl-{test}"));
    fs::create_dir_all(&folder).unwrap();
    for name in ["libinccl.so", "libinccl.so.0"] {
        fs::copy(&built, folder.join(name)).unwrap();
    }
    folder
}

fn compiled(source: &str, library: &Path) -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let program = library.join(source.trim_end_matches(".c"));
    let output = Command::new("cc")
        .args(["-std=c11", "-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror", "-O1", "-I"])
        .arg(here.join("include"))
        .arg("-o")
        .arg(&program)
        .arg(here.join("tests/c").join(source))
        .arg("-L")
        .arg(library)
        .args(["-linccl"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    program
}

/// Runs a program in all ranks below a root and two leaves; what each printed.
fn run(net: u8, source: &str) -> Vec<String> {
    let at = |host: u8| SocketAddr::from(([127, 45, net, host], 4791));
    let mut map = String::from("nodes:\n");
    let mut links = String::from("links:\n  - ends: [s1, s2]\n  - ends: [s1, s3]\n");
    for index in 1..4 {
        map += &format!("  - {{name: s{index}, kind: switch, address: {}}}\n", at(index).ip());
    }
    for rank in 0..RANKS {
        map += &format!("  - {{name: h{rank}, kind: host, address: {}}}\n", at(100 + rank).ip());
        links += &format!("  - ends: [s{}, h{rank}]\n", 2 + rank / 2);
    }
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let controller = ControllerServer::start(ControllerServerCfg {
        controller: ControllerCfg { silence_ns: 5_000_000_000, ..ControllerCfg::default() },
        map: read_map(&(map + &links)).unwrap(),
        hosts: any,
        switches: any,
        store: Box::new(MemoryStore),
        tls: None,
    })
    .unwrap();
    let switch = |host| {
        ControlledSwitch::start(ControlledSwitchCfg {
            address: at(host),
            limits: LIMITS,
            controller: controller.switches(),
            others: Vec::new(),
            name: None,
            tls: None,
        })
        .unwrap()
    };
    let _switches: Vec<_> = (1..4).map(switch).collect();
    let library = library(source);
    let program = compiled(source, &library);
    let rank = |rank: u8| {
        Command::new(&program)
            .args([RANKS.to_string(), "127.0.0.1".into(), rank.to_string()])
            .env("LD_LIBRARY_PATH", &library)
            .env("INCCL_PORT", controller.hosts().port().to_string())
            .env("INCCL_ADDRESS", at(100 + rank).ip().to_string())
            .env("INCCL_GROUP", source)
            .env_remove("INCCL_MASTER")
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };
    let ranks: Vec<_> = (0..RANKS).map(rank).collect();
    let ended = ranks.into_iter().map(|rank| rank.wait_with_output().unwrap());
    ended
        .map(|output| {
            let errors = String::from_utf8_lossy(&output.stderr);
            assert!(output.status.success(), "{}: {errors}", output.status);
            assert_eq!(errors, "");
            String::from_utf8(output.stdout).unwrap()
        })
        .collect()
}

#[test]
fn the_example_of_the_design_notes_runs_unchanged() {
    assert_eq!(run(1, "example.c"), vec![""; usize::from(RANKS)]);
}

#[test]
fn every_call_gives_its_result_or_its_reason() {
    let wanted = |rank| format!("rank {rank}: all right\n");
    assert_eq!(run(2, "collectives.c"), (0..RANKS).map(wanted).collect::<Vec<_>>());
}
