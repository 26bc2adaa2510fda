//! `cargo xtask demo inc`: eight hosts reduce vectors of each type below three switches and a controller, each a process.
//!
//! *Owns*: the order in which they start: the controller, then the switches, then the hosts.
//! *Gives*: the results that the hosts checked, the tree, the switches' counters.

use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;
use std::{fs, thread};

use comfy_table::presets::UTF8_FULL_CONDENSED;
use comfy_table::{Cell, CellAlignment, Table};
use serde_json::Value;

use crate::cargo;
use crate::say::{Failure, TaskResult, say};
use crate::stations::{HANG, Places, Stations, result, start};

const SWITCHES: u8 = 3;
const HOSTS: u8 = 8;
/// Elements of each vector, and allreduces of each type.
const ELEMENTS: &str = "50000";
const TIMES: &str = "40";

/// Runs the demonstration, and shows it.
pub(crate) fn run() -> TaskResult {
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
