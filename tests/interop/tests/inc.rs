//! Verbs programs on Linux rxe, each in a machine of its own, as hosts of in-network computing: a real controller, a real
//! switch, and `inc-attach` for each queue pair.
#![forbid(unsafe_code)]

use std::{
    error::Error,
    fs,
    io::{BufRead, BufReader, Write},
    net::Ipv4Addr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use urma_interop::{Image, ShellGuest, now};
use urma_net::Namespace;

type Outcome<T = ()> = Result<T, Box<dyn Error>>;

const RANKS: usize = 2;
/// This side: the controller, the switch and what attaches the queue pairs.
const HERE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
const GUESTS: [Ipv4Addr; RANKS] = [Ipv4Addr::new(10, 0, 0, 2), Ipv4Addr::new(10, 0, 0, 3)];
const TAPS: [&str; RANKS] = ["tap0", "tap1"];
/// Messages of four packets of 1024 bytes, in a small window, so that it is passed many times.
const ELEMENTS: &str = "1024";
const WINDOW: &str = "16";
/// Of a million packets that arrive or leave, those that the link of a switch loses.
const LOSS: &str = "20000";
/// Where Linux rxe counts packets whose number is not the next one.
const GAPS: &str = "/sys/class/infiniband/rxe0/ports/1/hw_counters/out_of_seq_request";
/// Nothing in a guest takes longer, without hardware support and beside builds.
const HANG: Duration = Duration::from_secs(300);
/// A process of this side, which ends with the value.
struct Station {
    child: Child,
    output: BufReader<std::process::ChildStdout>,
}

impl Station {
    fn start(bin: &Path, name: &str, arguments: &[&str]) -> Outcome<Self> {
        let mut command = Command::new(bin.join(name));
        let mut child = command
            .args(arguments)
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|error| format!("{}: {error}", bin.join(name).display()))?;
        let output = BufReader::new(child.stdout.take().ok_or("no output")?);
        Ok(Self { child, output })
    }

    fn line(&mut self) -> Outcome<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        if line.is_empty() { Err("it ended without a line".into()) } else { Ok(line) }
    }
}

impl Drop for Station {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The guests, and where this side's programs are.
struct World {
    bin: PathBuf,
    guests: Vec<ShellGuest>,
    groups: u32,
    start: Instant,
}

/// A line of the test's output.
fn say(line: &str) {
    // A line that is lost changes no result.
    let _ = writeln!(std::io::stdout(), "{line}");
}

fn ip(words: &str) -> Outcome {
    let output = Command::new("ip").args(words.split(' ')).output()?;
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    if output.status.success() { Ok(()) } else { Err(format!("ip {words}: {said}").into()) }
}

impl World {
    fn say(&self, what: &str) {
        say(&format!("{:6.2} s  {what}", self.start.elapsed().as_secs_f64()));
    }

    /// Arguments of `inc-attach` for a rank of the group that was begun last.
    fn attach(&self, rank: usize, more: &[&str]) -> Outcome<Station> {
        let (ranks, here, number) = (RANKS.to_string(), HERE.to_string(), rank.to_string());
        let group = format!("group{}", self.groups);
        let own = [&ranks, &here, &number, "--group", &group, "--window", WINDOW];
        Station::start(&self.bin, "inc-attach", &[&own[..], more].concat())
    }

    /// Both guests reduce with a verbs program, which checks each sum.
    fn allreduce(&mut self, mode: &str, messages: u32) -> Outcome {
        self.groups += 1;
        let (mut attached, psns) = (Vec::new(), ["16777200", "5"]);
        for rank in 0..RANKS {
            let guest = &mut self.guests[rank];
            // The first PSN is soon past the end.
            let psn = psns[rank];
            guest.write(&format!(
                "allreduce {mode} {rank} {RANKS} {ELEMENTS} {messages} {WINDOW} {psn}"
            ))?;
            let line = guest.line("qp ", HANG)?;
            let [qpn, psn, base, key] = words(&line)?;
            let address = GUESTS[rank].to_string();
            let numbers = ["--address", &address, "--qpn", qpn, "--psn", psn, "--mode", mode];
            let memory = ["--base", base, "--key", key];
            attached.push(self.attach(rank, &[&numbers[..], &memory].concat())?);
        }
        for (guest, rank) in self.guests.iter_mut().zip(&mut attached) {
            let line = rank.line()?;
            let [_, ip, _, qpn, _, psn, _, base, _, key] = words(&line)?;
            guest.write(&format!("{ip} {qpn} {psn} {base} {key}"))?;
        }
        self.ends("are right")
    }

    /// Both guests run a program of Debian's, which takes the switch for its peer.
    fn pingpong(&mut self, program: &str, edge: &str, iterations: u32) -> Outcome {
        self.groups += 1;
        let attached: Vec<_> = (0..RANKS)
            .map(|rank| {
                let port = (18_515 + rank).to_string();
                self.attach(rank, &["--pingpong", &port, "--edge", edge])
            })
            .collect::<Outcome<_>>()?;
        for (rank, guest) in self.guests.iter_mut().enumerate() {
            let port = 18_515 + rank;
            // It is a GID of an IPv4 address; the first one is that of the hardware address.
            guest.write(&format!(
                "until {program} -d rxe0 -g 1 -m 1024 -s 4096 -n {iterations} -c -p {port} {HERE} 2>/tmp/why; \
                 do grep -q connect /tmp/why || {{ cat /tmp/why; break; }}; sleep 0.2; done"
            ))?;
        }
        let result = self.ends("iters in");
        drop(attached);
        result
    }

    /// The guests' own counters of packets that came behind a gap, which the first runs may have left at nothing.
    fn gaps_were_seen(&mut self) -> Outcome {
        for guest in &mut self.guests {
            let said = guest.run(&format!("cat {GAPS}"), HANG)?;
            let gaps: u64 = said.trim().parse().map_err(|_| format!("{GAPS}: {said:?}"))?;
            say(&format!("{gaps} packets came to a guest behind a gap"));
            if gaps == 0 {
                return Err("no packet was lost on the way to a guest".into());
            }
        }
        Ok(())
    }

    /// What all guests run ends, and prints a line with `part`.
    fn ends(&mut self, part: &str) -> Outcome {
        let mut lines = Vec::new();
        for guest in &mut self.guests {
            let said = guest.end(HANG)?;
            let line = said.lines().find(|line| line.contains(part));
            lines.push(line.ok_or_else(|| format!("no line with {part:?}:\n{said}"))?.to_owned());
        }
        lines.iter().for_each(|line| self.say(line.trim()));
        Ok(())
    }
}

fn words<const N: usize>(line: &str) -> Outcome<[&str; N]> {
    let words: Vec<_> = line.split_whitespace().collect();
    words.try_into().map_err(|_| format!("{line:?} has not {N} words").into())
}

/// In a network namespace, whose bridge leads to the guests.
fn run(image: &Image, bin: &Path, folder: &Path) -> Outcome {
    let start = now();
    ip("link set lo up")?;
    ip("link add br0 type bridge")?;
    ip(&format!("address add {HERE}/24 dev br0"))?;
    ip("link set br0 up")?;
    let mut guests = Vec::new();
    for (tap, address) in TAPS.iter().zip(GUESTS) {
        ip(&format!("tuntap add {tap} mode tap"))?;
        ip(&format!("link set {tap} master br0 up"))?;
        guests.push(ShellGuest::start(image, tap, address)?);
    }
    let map = folder.join("map.yaml");
    fs::write(
        &map,
        format!(
            "nodes:\n  - {{name: s, kind: switch, address: {HERE}}}\n  \
             - {{name: h0, kind: host, address: {}}}\n  - {{name: h1, kind: host, address: {}}}\n\
             links:\n  - ends: [s, h0]\n  - ends: [s, h1]\n",
            GUESTS[0], GUESTS[1]
        ),
    )?;
    let (here, map) = (HERE.to_string(), map.to_string_lossy().into_owned());
    // Machines without hardware support let other processes wait.
    let arguments = ["--listen", &here, "--insecure", "--silence", "20000", "--topology", &map];
    let mut controller = Station::start(bin, "inc-controller", &arguments)?;
    controller.line()?;
    let mut switch = Station::start(bin, "inc-switch", &[&here, "--address", &here])?;
    switch.line()?;
    for guest in &mut guests {
        guest.ready()?;
    }
    let mut world = World { bin: bin.to_path_buf(), guests, groups: 0, start };
    world.say("two guests booted");
    world.allreduce("send", 200)?;
    world.allreduce("write", 200)?;
    world.pingpong("ibv_rc_pingpong", "rc", 200)?;
    world.pingpong("ibv_uc_pingpong", "uc", 200)?;
    drop(switch);
    let lossy = [&here, "--address", &here, "--loss", LOSS];
    let mut switch = Station::start(bin, "inc-switch", &lossy)?;
    switch.line()?;
    world.say("another switch, behind a link that loses every fiftieth packet, in both directions");
    world.allreduce("send", 1000)?;
    world.allreduce("write", 1000)?;
    world.pingpong("ibv_rc_pingpong", "rc", 200)?;
    world.gaps_were_seen()?;
    Ok(())
}

#[test]
#[ignore = "two machines without hardware support: cargo xtask vm inc"]
fn verbs_programs_on_linux_rxe_reduce_with_a_switch() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("rxe-inc");
    let image = match Image::make_with_shell(&folder) {
        Ok(image) => image,
        Err(missing) => return urma_skip::skip(missing),
    };
    let Some(namespace) = Namespace::with_taps_or_skip() else { return };
    // Programs of other packages, which `cargo xtask vm inc` builds, are beside this one's folder.
    let own = std::env::current_exe().expect("this program has a file");
    let bin = own.ancestors().nth(2).expect("it is in target/debug/deps").to_path_buf();
    let run = || run(&image, &bin, &folder).map_err(|error| error.to_string());
    namespace.run(run).unwrap_or_else(|error| panic!("{error}"));
}
