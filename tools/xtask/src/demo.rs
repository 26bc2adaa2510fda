//! `cargo xtask demo`: two processes exchange data through every layer, shown in one table; `cargo xtask demo inc`:
//! eight hosts reduce vectors below three switches and a controller, each a process.

use std::{
    fs,
    path::Path,
    process::{Child, Command},
    thread,
    time::Duration,
};

use comfy_table::{Cell, CellAlignment, ContentArrangement, Table, presets::UTF8_FULL_CONDENSED};
use serde_json::Value;

use crate::{
    bench::probe_value,
    cargo,
    child::{HANG, Places, Stations, result, start},
    pair,
    say::{Failure, TaskResult, say, say_part},
};

/// One line: arguments, the JSON key that is shown, a factor and its unit, and what it means.
struct Show {
    args: &'static str,
    key: &'static str,
    factor: f64,
    unit: &'static str,
    meaning: &'static str,
}

/// 2^20 bytes in GB (10^9 bytes).
const GB: f64 = 1.048_576e-3;

const SHOWS: &[Show] = &[
    lat("write_lat -s 8 -n 200000", "8 bytes appear in the peer's memory, one way"),
    lat("read_lat -s 8 -n 200000", "8 bytes fetched from the peer's memory, round trip"),
    lat("send_lat -s 8 -n 100000", "a message to a posted receive, one way"),
    lat("atomic_lat -A faa -n 200000", "fetch-and-add in the peer's memory, round trip"),
    bw("write_bw -s 65536 -n 50000", "64 KiB writes, one after another"),
    bw("read_bw -s 65536 -n 50000", "64 KiB reads"),
    bw("send_bw -s 65536 -n 20000", "64 KiB messages to posted receives"),
    rate("atomic_bw -A faa -n 500000", "fetch-and-adds"),
    rate("write_bw -s 8 -n 2000000 -N", "8-byte writes, posted one at a time"),
    lat("write_lat -s 8 -n 10000 --path packets", "the same write, in RoCEv2 packets over UDP"),
    lat("send_lat -s 8 -n 10000 --path packets", "the same message, in packets"),
    bw("write_bw -s 65536 -n 3000 -Q 16 --path packets", "64 KiB writes, in packets"),
    bw("read_bw -s 65536 -n 3000 -Q 16 --path packets", "64 KiB reads, in packets"),
];

const fn lat(args: &'static str, meaning: &'static str) -> Show {
    Show { args, key: "t_median[us]", factor: 1.0, unit: "us", meaning }
}

const fn bw(args: &'static str, meaning: &'static str) -> Show {
    Show { args, key: "BW average[MB/sec]", factor: GB, unit: "GB/s", meaning }
}

const fn rate(args: &'static str, meaning: &'static str) -> Show {
    Show { args, key: "MsgRate[Mpps]", factor: 1.0, unit: "M/s", meaning }
}

/// The machine's limits that stand beside.
const LIMITS: &[(&str, &str, &str, &str)] = &[
    (
        "cache line, core to core",
        "cache-line",
        "us",
        "one store of one core seen by the other, one way",
    ),
    ("memcpy of 64 KiB", "memcpy --size 65536", "GB/s", "one core copies within its caches"),
    ("TCP ping-pong of 8 bytes", "tcp-lat --size 8", "us", "what a socket does, one way"),
];

/// Builds the tools, runs the demonstration and prints its table.
pub(crate) fn run() -> TaskResult {
    say("Building for release...");
    let bin = cargo::build_release(&["urma_perftest", "xtask"])?;
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED).set_content_arrangement(ContentArrangement::Dynamic);
    table.set_header(["test", "path", "carried by", "result", "what it means"]);
    let mut failed = Vec::new();
    for (index, show) in SHOWS.iter().enumerate() {
        say_part(&format!("\r[{:>2}/{}] {:<50}", index + 1, SHOWS.len(), show.args));
        match row(&bin, show) {
            Ok(row) => table.add_row(row),
            Err(Failure(why)) => {
                failed.push(why.clone());
                table.add_row([show.args, "-", "-", "failed", &why].map(Cell::new))
            }
        };
    }
    for (name, probe, unit, meaning) in LIMITS {
        let value = probe_value(&bin, probe)?;
        let value = Cell::new(format!("{value:.3} {unit}")).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(name),
            Cell::new("-"),
            Cell::new("the machine"),
            value,
            Cell::new(meaning),
        ]);
    }
    say_part(&format!("\r{:60}\r", ""));
    say(&table.to_string());
    say("Two processes, pinned to two cores. Latency is the median; bandwidth counts 10^9 bytes.");
    say("\"carried by\" is the device's own counter: requests that took that path.");
    if failed.is_empty() { Ok(()) } else { Err(Failure(failed.join("\n"))) }
}

fn row(bin: &Path, show: &Show) -> Result<Vec<Cell>, Failure> {
    let args: Vec<&str> = show.args.split_whitespace().collect();
    let document = pair::run(bin, &args)?;
    let missing = || Failure(format!("{}: no {} in its answer", show.args, show.key));
    let result = document.pointer("/results/0").ok_or_else(missing)?;
    let value = result.get(show.key).and_then(Value::as_f64).ok_or_else(missing)?;
    let path = document.get("path").and_then(Value::as_str).unwrap_or("?");
    let (counter, count) = pair::proof(result).unwrap_or_else(|| ("nothing".to_owned(), 0));
    let value = format!("{:.3} {}", value * show.factor, show.unit);
    let name = show.args.replace(" --path packets", "");
    Ok(vec![
        Cell::new(name),
        Cell::new(path),
        Cell::new(format!("{counter} {count}")),
        Cell::new(value).set_alignment(CellAlignment::Right),
        Cell::new(show.meaning),
    ])
}

const SWITCHES: u8 = 3;
const HOSTS: u8 = 8;
/// Elements of each vector, and allreduces of each type.
const ELEMENTS: &str = "50000";
const TIMES: &str = "40";

/// Runs the demonstration, and shows it.
pub(crate) fn run_inc() -> TaskResult {
    say("Building for release...");
    let bin = cargo::build_release(&["inc-controller", "inc-tools"])?;
    let places = Places::new(1 + SWITCHES + HOSTS);
    let folder = cargo::target_dir()?.join("demo-inc");
    fs::create_dir_all(&folder).map_err(Failure::system("making a folder"))?;
    let map = folder.join("map.yaml");
    fs::write(&map, topology(&places)).map_err(Failure::system("writing the topology"))?;
    let mut stations = Stations::default();
    let controller = places.address(0).to_string();
    let mut command = Command::new(bin.join("inc-controller"));
    command.args(["--listen", &controller, "--insecure", "--topology"]).arg(&map);
    start(&places, &mut stations, 0, &mut command)?;
    for station in 1..=SWITCHES {
        let mut command = Command::new(bin.join("inc-switch"));
        command.args([&controller, "--address", &places.address(station).to_string()]);
        start(&places, &mut stations, station, &mut command)?;
    }
    say(&format!(
        "A controller and {SWITCHES} switches run; {HOSTS} hosts reduce {ELEMENTS} elements of each type, {TIMES} times."
    ));
    let hosts: Vec<Child> = (0..HOSTS)
        .map(|rank| places.start(1 + SWITCHES + rank, &mut host(&places, &bin, rank)))
        .collect::<Result<_, _>>()?;
    let admin = |verb: &str| {
        let mut command = Command::new(bin.join("inc-admin"));
        places.output(0, command.args(["--controller", &controller, verb]))
    };
    // While they run: at the end the communicator is gone.
    let mut hosts = Stations(hosts);
    let mut seen = ["trees", "slots", "counters"].map(|verb| (verb, String::new()));
    for _ in 0..HANG.as_secs() * 5 {
        if !hosts.are_running()? {
            break;
        }
        for (verb, text) in &mut seen {
            let now = admin(verb)?;
            if now.contains("communicator 1") || now.contains("by 1 communicators") {
                *text = now;
            }
        }
        thread::park_timeout(Duration::from_millis(200));
    }
    let results: Vec<Value> = hosts.0.drain(..).map(result).collect::<Result<_, _>>()?;
    say(&table(&results)?);
    for (verb, text) in seen {
        say(&format!("inc-admin {verb}, while they ran:\n{text}"));
    }
    Ok(())
}

fn host(places: &Places, bin: &Path, rank: u8) -> Command {
    let mut command = Command::new(bin.join("inc-host"));
    let (controller, own) = (places.address(0), places.address(1 + SWITCHES + rank));
    command.args([HOSTS.to_string(), controller.to_string(), rank.to_string()]);
    command.args(["--address", &own.to_string(), "--type", "all", "--path-mtu", "4096", "--json"]);
    command.args(["--count", ELEMENTS, "--times", TIMES]);
    command
}

/// Two leaves with half of the hosts each below a root.
fn topology(places: &Places) -> String {
    let mut nodes = String::from("nodes:\n");
    let mut links = String::from("links:\n");
    let mut node = |name: &str, kind: &str, station: u8| {
        let address = places.address(station);
        nodes += &format!("  - {{name: {name}, kind: {kind}, address: \"{address}\"}}\n");
    };
    for (station, name) in (1..).zip(["root", "left", "right"]) {
        node(name, "switch", station);
    }
    for rank in 0..HOSTS {
        node(&format!("host{rank}"), "host", 1 + SWITCHES + rank);
        let leaf = if rank < HOSTS / 2 { "left" } else { "right" };
        links += &format!("  - ends: [{leaf}, host{rank}]\n");
    }
    links += "  - ends: [root, left]\n  - ends: [root, right]\n";
    nodes + &links
}

fn table(results: &[Value]) -> Result<String, Failure> {
    let mut table = Table::new();
    table.load_style(UTF8_FULL_CONDENSED);
    table.set_header(["type", "operator", "elements", "right on", "median"]);
    let of = |rank: &Value, at: usize, key: &str| {
        rank.pointer(&format!("/results/{at}/{key}")).cloned().unwrap_or(Value::Null)
    };
    let first = results.first().ok_or_else(|| Failure("no host".into()))?;
    let types = first.get("results").and_then(Value::as_array).map_or(0, Vec::len);
    for at in 0..types {
        let right = results.iter().filter(|rank| of(rank, at, "is_right") == true).count();
        let text = |key| of(first, at, key).as_str().unwrap_or("?").to_owned();
        let median = of(first, at, "median_us").as_f64().unwrap_or(f64::NAN);
        let number = |text: String| Cell::new(text).set_alignment(CellAlignment::Right);
        table.add_row([
            Cell::new(text("type")),
            Cell::new(text("operator")),
            number(of(first, at, "elements").to_string()),
            number(format!("{right} of {} ranks", results.len())),
            number(format!("{median:.0} us")),
        ]);
    }
    Ok(table.to_string())
}
