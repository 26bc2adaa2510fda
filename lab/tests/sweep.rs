//! Sweeps that do not reach their end, and sweeps in parts: their results are those of a whole one.

use std::fs::Permissions;
use std::io::{BufRead, BufReader};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use serde_json::Value;

/// Small grids of each experiment.
const GRIDS: [&str; 4] = [
    "wan --rtt 1ms --size 2MB --seeds 3 --loss iid:0.01,iid:0.03 --strategy ours,irn",
    "cache --trace drift --policy lru,ours --capacity 5%,10% --tiers l2",
    "splice --scheme fifo,pingpong --mix rpc,3000 --ram 8K --messages 100",
    "node --nodes 2,3 --requests 30 --loss 0,2% --seeds 2 --restarts 1",
];

fn urma_lab(args: &str) -> Output {
    let args = args.split_whitespace();
    Command::new(env!("CARGO_BIN_EXE_urma-lab")).args(args).output().expect("the command runs")
}

/// Folder of a test; it is removed with the value.
struct TestFolder(PathBuf);

impl TestFolder {
    fn new(name: &str) -> Self {
        let name = format!("urma-lab-sweep-{name}-{}", std::process::id());
        Self(std::env::temp_dir().join(name))
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().expect("text").to_owned()
    }
}

impl Drop for TestFolder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn json_lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("a line of JSON")).collect()
}

/// Hashes of all cells, which are of every result but the machine's speed.
fn hashes(folder: &str) -> Vec<Value> {
    let text = std::fs::read_to_string(Path::new(folder).join("cells.jsonl")).expect("results");
    let hashes = json_lines(&text).into_iter().map(|cell| cell["hash"].clone());
    hashes.inspect(|hash| assert!(hash.is_string())).collect()
}

fn runs(folder: &str) -> Vec<String> {
    let text = std::fs::read_to_string(Path::new(folder).join("runs.jsonl")).expect("runs");
    assert_eq!(json_lines(&text).len(), text.lines().count(), "whole lines");
    text.lines().map(str::to_owned).collect()
}

#[test]
fn a_sweep_that_was_ended_goes_on_with_the_runs_that_it_lacks() {
    for (at, grid) in GRIDS.iter().enumerate() {
        let folder = TestFolder::new(&format!("resume{at}"));
        let (whole, cut) = (folder.path("whole"), folder.path("cut"));
        assert!(urma_lab(&format!("{grid} --out {whole}")).status.success());
        assert!(urma_lab(&format!("{grid} --out {cut}")).status.success());
        let all = runs(&cut);
        // Two runs ended, the third was being written.
        let left = format!("{}\n{}\n{}", all[0], all[1], &all[2][..all[2].len() / 2]);
        std::fs::write(Path::new(&cut).join("runs.jsonl"), left).expect("a file");
        let refused = urma_lab(&format!("{grid} --json --out {cut}"));
        assert_eq!(refused.status.code(), Some(2), "{refused:?}");
        let text = String::from_utf8_lossy(&refused.stderr).into_owned();
        assert!(text.contains("2 runs") && text.contains("--resume"), "{text}");
        let resumed = urma_lab(&format!("{grid} --json --out {cut} --resume"));
        assert!(resumed.status.success(), "{resumed:?}");
        assert_eq!(hashes(&cut), hashes(&whole), "{grid}");
        let again = runs(&cut);
        assert_eq!((again.len(), &again[..2]), (all.len(), &all[..2]), "{grid}: the rest is new");
        // A run that is known is not made again: a result that is wrong stays.
        if at == 0 {
            let wrong = again.join("\n").replacen("\"timeouts\":0", "\"timeouts\":77", 1) + "\n";
            std::fs::write(Path::new(&cut).join("runs.jsonl"), wrong).expect("a file");
            assert!(urma_lab(&format!("{grid} --out {cut} --resume")).status.success());
            assert_ne!(hashes(&cut), hashes(&whole));
        }
    }
}

/// Of some grids there are more shards than runs.
#[test]
fn shards_are_a_sweep_when_they_are_merged_and_not_before() {
    for (at, grid) in GRIDS.iter().enumerate() {
        let folder = TestFolder::new(&format!("shards{at}"));
        let whole = folder.path("whole");
        assert!(urma_lab(&format!("{grid} --out {whole}")).status.success());
        let parts: Vec<String> = (0..5).map(|shard| folder.path(&format!("part{shard}"))).collect();
        for (shard, part) in parts.iter().enumerate() {
            let output = urma_lab(&format!("{grid} --shard {shard}/5 --out {part}"));
            assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
            assert!(String::from_utf8_lossy(&output.stderr).contains("urma-lab merge"));
        }
        assert_eq!(parts.iter().map(|part| runs(part).len()).sum::<usize>(), runs(&whole).len());
        let merged = folder.path("merged");
        let lacking = urma_lab(&format!("merge --out {merged} {} {}", parts[0], parts[2]));
        assert_eq!(lacking.status.code(), Some(2), "{lacking:?}");
        assert!(String::from_utf8_lossy(&lacking.stderr).contains("are missing"), "{lacking:?}");
        let output = urma_lab(&format!("merge --json --out {merged} {}", parts.join(" ")));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(hashes(&merged), hashes(&whole), "{grid}");
        let cells = json_lines(std::str::from_utf8(&output.stdout).expect("text"));
        assert!(cells.iter().all(|line| line["commit"].is_string()), "{cells:?}");
    }
    let none = urma_lab("merge --out /proc/nowhere /proc/nothing");
    assert_eq!(none.status.code(), Some(2), "{none:?}");
}

/// Each line is there when its cell ended, long before the sweep's end; what ended when the program is killed stays.
#[test]
fn results_appear_while_they_are_made_and_outlive_the_program() {
    let folder = TestFolder::new("killed");
    let out = folder.path("out");
    // The second cell takes hours.
    let args = "wan --rtt 1ms --size 1MB,500GB --budget 100000000000 --seeds 1 --workers 1 --json";
    let args = format!("{args} --out {out}");
    let mut lab = Command::new(env!("CARGO_BIN_EXE_urma-lab"))
        .args(args.split_whitespace())
        .stdout(Stdio::piped())
        .spawn()
        .expect("the command runs");
    let mut stdout = BufReader::new(lab.stdout.take().expect("a pipe"));
    let (sender, came) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        let mut line = String::new();
        stdout.read_line(&mut line).expect("a line");
        let _ = sender.send(line);
    });
    let line = came.recv_timeout(Duration::from_secs(60));
    let is_running = lab.try_wait().expect("a state").is_none();
    lab.kill().expect("it runs");
    lab.wait().expect("it ended");
    reader.join().expect("the pipe has ended");
    let line = line.expect("a line while the second cell runs");
    assert!(is_running, "the line came at the end");
    assert_eq!(json_lines(&line)[0]["size_bytes"].as_f64(), Some(1e6));
    assert_eq!(runs(&out).len(), 1);
}

/// Writes a sweep file; gives its path and the same sweep as arguments.
fn sweep_file(folder: &TestFolder) -> (String, String) {
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let text = "experiment = \"wan\"\nrtt = \"1ms\"\nsize = [\"1MB\", \"2MB\"]\nseeds = 3\n\
                feedback-loss = 0.01\nstrategy = [\"ours\", \"irn\"]\n";
    let path = folder.path("sweep.toml");
    std::fs::write(&path, text).expect("a file");
    let args = "wan --rtt 1ms --size 1MB,2MB --seeds 3 --feedback-loss 0.01 --strategy ours,irn";
    (path, args.to_owned())
}

#[test]
fn a_file_describes_a_sweep() {
    let folder = TestFolder::new("file");
    let (file, args) = sweep_file(&folder);
    let (whole, out) = (folder.path("whole"), folder.path("out"));
    assert!(urma_lab(&format!("{args} --out {whole}")).status.success());
    for _ in 0..2 {
        let output = urma_lab(&format!("sweep {file} --out {out}"));
        assert!(output.status.success(), "{output:?}");
        assert_eq!(hashes(&out), hashes(&whole));
    }
    for (text, named) in [
        ("rtt = \"1ms\"", "no experiment"),
        ("experiment = \"lan\"", "lan"),
        ("experiment = \"wan\"\nout = \"x\"", "out"),
        ("experiment = \"wan\"\nrtt = { ms = 1 }", "rtt"),
        ("experiment = \"wan\"\nrtt = [[1]]", "rtt"),
        ("experiment = \"wan\"\nrtd = \"1ms\"", "--rtd"),
        ("experiment = \"wan\"\nrtt = 1", "rtt"),
        ("experiment =", "TOML"),
    ] {
        std::fs::write(&file, text).expect("a file");
        let output = urma_lab(&format!("sweep {file} --out {}", folder.path("none")));
        assert_eq!(output.status.code(), Some(2), "{text}: {output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains(named), "{text}: {output:?}");
    }
}

/// A stand-in for sbatch runs each script when it is submitted, its tasks one after the other.
#[test]
fn an_array_of_jobs_is_a_sweep() {
    let folder = TestFolder::new("array");
    let (file, args) = sweep_file(&folder);
    let (whole, out) = (folder.path("whole"), folder.path("an array's"));
    assert!(urma_lab(&format!("{args} --out {whole}")).status.success());
    let bin = folder.0.join("bin");
    std::fs::create_dir_all(&bin).expect("a folder");
    let sbatch = "#!/bin/bash\nscript=${@: -1}\n\
                  tasks=$(sed -n 's/^#SBATCH --array=0-//p' \"$script\")\n\
                  for task in $(seq 0 ${tasks:-0}); do\n\
                  SLURM_ARRAY_TASK_ID=$task bash \"$script\" >\"$script.$task.log\" || exit 1\ndone\n\
                  echo \"$*\" >>\"${0%/*}/calls\"\necho '17;cluster'\n";
    let program = bin.join("sbatch");
    std::fs::write(&program, sbatch).expect("a file");
    std::fs::set_permissions(&program, Permissions::from_mode(0o755)).expect("a mode");
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").expect("a path"));
    let submit = |more: &[&str]| {
        let mut lab = Command::new(env!("CARGO_BIN_EXE_urma-lab"));
        lab.args(["sweep", &file, "--executor", "slurm", "--shards", "5", "--out", &out]);
        lab.args(more).env("PATH", &path).output().expect("the command runs")
    };
    let written = submit(&["--no-submit"]);
    assert!(written.status.success() && !bin.join("calls").exists(), "{written:?}");
    let output = submit(&[]);
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.contains("job 17 runs 5 shards"), "{text}");
    assert_eq!(hashes(&out), hashes(&whole));
    let calls = std::fs::read_to_string(bin.join("calls")).expect("calls");
    assert!(calls.contains("--dependency=afterok:17 "), "{calls}");
    std::fs::write(&program, "#!/bin/sh\necho 'no partition' >&2\nexit 1\n").expect("a file");
    let refused = submit(&["--json"]);
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    assert!(String::from_utf8_lossy(&refused.stderr).contains("no partition"), "{refused:?}");
}

/// What cannot be printed is a failure, whichever line it was.
#[test]
fn an_output_without_room_is_a_failure() {
    for grid in ["splice --messages 10 --json", "splice --messages 10", "wan --size 1MB --seeds 1"]
    {
        let full = std::fs::File::options().write(true).open("/dev/full").expect("a device");
        let mut lab = Command::new(env!("CARGO_BIN_EXE_urma-lab"));
        let status = lab.args(grid.split(' ')).stdout(full).status().expect("the command runs");
        assert_eq!(status.code(), Some(1), "{grid}");
    }
}

#[test]
fn folders_and_shards_that_make_no_sense_are_refused_before_anything_runs() {
    for (args, field) in [
        ("wan --out /proc/nowhere", "out"),
        ("cache --out /dev/null/x", "out"),
        ("splice --out /proc/nowhere", "out"),
        ("wan --out FOLDER --shard 3/3", "shard"),
        ("wan --out FOLDER --shard 1", "shard"),
        ("wan --out FOLDER --shard 0/2 --seeds 1 --trace /dev/null", "trace"),
        ("wan --rate -5G", "rate"),
        ("wan --rtt -1ms", "rtt"),
        ("cache --file /dev/zero", "file"),
        ("cache --file /proc/self/exe,/nowhere", "file"),
        ("splice --ram 2K --mtu 4096", "ram"),
    ] {
        let folder = TestFolder::new("refused");
        let args = args.replace("FOLDER", &folder.path("out"));
        let output = urma_lab(&format!("{args} --json"));
        assert_eq!(output.status.code(), Some(2), "{args}: {output:?}");
        let error = &json_lines(std::str::from_utf8(&output.stdout).expect("text"))[0];
        assert_eq!((error["kind"].as_str(), error["field"].as_str()), (Some("error"), Some(field)));
    }
    // A file of holes takes no room. Its length is refused, not what reading it would have taken.
    let folder = TestFolder::new("holes");
    std::fs::create_dir_all(&folder.0).expect("a folder");
    let path = folder.path("holes");
    let holes = std::fs::File::create(&path).and_then(|file| file.set_len(1 << 40));
    holes.expect("a file");
    let output = urma_lab(&format!("cache --file {path}"));
    assert!(String::from_utf8_lossy(&output.stderr).contains("268435456 accesses"), "{output:?}");
    let text = urma_lab("splice --ram 2K --mtu 4096").stderr;
    let text = String::from_utf8_lossy(&text);
    assert!(text.contains("2048 bytes") && text.contains("at least 4096 bytes"), "{text}");
}

/// Programs of a cluster of one node, in the order of their start; they end with the value.
struct Cluster(Vec<std::process::Child>);

impl Cluster {
    /// Starts munged, slurmctld and slurmd with all of their files in `folder`.
    fn start(folder: &Path) -> Self {
        let host = Command::new("hostname").arg("-s").output().expect("a name").stdout;
        let host = String::from_utf8(host).expect("text").trim().to_owned();
        let place = folder.display();
        let config = format!(
            "ClusterName=urma\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmdUser=root\n\
             AuthType=auth/munge\nAuthInfo=socket={place}/munge.socket\nCryptoType=crypto/munge\n\
             StateSaveLocation={place}/state\nSlurmdSpoolDir={place}/spool\n\
             SlurmctldPidFile={place}/ctld.pid\nSlurmdPidFile={place}/d.pid\n\
             ProctrackType=proctrack/pgid\nTaskPlugin=task/none\nJobAcctGatherType=jobacct_gather/none\n\
             SelectType=select/cons_tres\nSelectTypeParameters=CR_CPU\nMpiDefault=none\n\
             SchedulerParameters=batch_sched_delay=0,sched_interval=1\nReturnToService=2\n\
             SlurmctldPort=16817\nSlurmdPort=16818\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN\n\
             PartitionName=all Nodes={host} Default=YES State=UP\n"
        );
        std::fs::create_dir_all(folder.join("state")).expect("a folder");
        std::fs::create_dir_all(folder.join("spool")).expect("a folder");
        std::fs::write(folder.join("slurm.conf"), config).expect("a file");
        let key = folder.join("key");
        std::fs::write(&key, [7; 1024]).expect("a file");
        std::fs::set_permissions(&key, Permissions::from_mode(0o400)).expect("a mode");
        let path = |name: &str| format!("{place}/{name}");
        let munged = [
            "--force".to_owned(),
            "--foreground".to_owned(),
            format!("--key-file={}", path("key")),
            format!("--socket={}", path("munge.socket")),
            format!("--pid-file={}", path("munge.pid")),
            format!("--log-file={}", path("munge.log")),
            format!("--seed-file={}", path("munge.seed")),
        ];
        let daemon = "-D".to_owned();
        let mut programs = Self(Vec::new());
        for (name, args) in [
            ("munged", &munged[..]),
            ("slurmctld", std::slice::from_ref(&daemon)),
            ("slurmd", std::slice::from_ref(&daemon)),
        ] {
            let log = std::fs::File::create(path(&format!("{name}.out"))).expect("a file");
            let child = Command::new(name)
                .args(args)
                .env("SLURM_CONF", path("slurm.conf"))
                .stdout(log.try_clone().expect("a descriptor"))
                .stderr(log)
                .spawn()
                .unwrap_or_else(|error| {
                    panic!("{name}: {error}: apt-get install slurmctld slurmd slurm-client munge")
                });
            programs.0.push(child);
            std::thread::park_timeout(Duration::from_secs(2));
        }
        programs
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for program in self.0.iter_mut().rev() {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}

/// Needs root, and Debian's slurmctld, slurmd, slurm-client and munge.
#[test]
#[ignore = "a cluster of one node: cargo test -p lab --test sweep -- --ignored"]
fn slurm_runs_a_sweep() {
    let folder = TestFolder::new("slurm");
    let (file, args) = sweep_file(&folder);
    let (whole, out) = (folder.path("whole"), folder.path("out"));
    assert!(urma_lab(&format!("{args} --out {whole}")).status.success());
    let cluster = Cluster::start(&folder.0);
    let output = Command::new(env!("CARGO_BIN_EXE_urma-lab"))
        .args(["sweep", &file, "--executor", "slurm", "--shards", "4", "--out", &out])
        .env("SLURM_CONF", folder.path("slurm.conf"))
        .output()
        .expect("the command runs");
    assert!(output.status.success(), "{output:?}");
    let results = Path::new(&out).join("cells.csv");
    let is_there = || {
        std::thread::park_timeout(Duration::from_secs(1));
        results.exists()
    };
    assert!((0..120).any(|_| is_there()), "no results: {}", folder.path("slurmctld.out"));
    std::thread::park_timeout(Duration::from_secs(2));
    assert_eq!(hashes(&out), hashes(&whole));
    drop(cluster);
}
