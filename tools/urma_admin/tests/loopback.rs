//! The built program looks at nodes that live in this test's process.
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::{
    net::UdpSocket,
    process::{Command, Output, Stdio},
    time::Duration,
};

use serde_json::Value;
use urma::{Answerer, Context, EidSource, NodeCfg, PathChoice};
use urma_contexts::trace::read::TraceFormat;
use urma_net::{Host, Lab, LabPlan};
use urma_packet::{Body, Packet, frame::UdpDatagram};

const PROGRAM: &str = env!("CARGO_BIN_EXE_urma_admin");

/// A node that answers pings.
struct Pinged {
    _answerer: Answerer,
    context: Context,
}

fn node(path: PathChoice) -> Pinged {
    pinged(NodeCfg { path, ..NodeCfg::default() })
}

fn pinged(cfg: NodeCfg) -> Pinged {
    let opened = urma::open_node(cfg).unwrap();
    let answerer = Answerer::start(&opened.device, 0).unwrap();
    Pinged { _answerer: answerer, context: opened.context }
}

fn admin(words: &[&str]) -> Output {
    Command::new(PROGRAM).args(words).output().unwrap()
}

fn text(words: &[&str]) -> String {
    let output = admin(words);
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

fn document(words: &[&str]) -> Value {
    serde_json::from_str(&text(words)).unwrap()
}

/// A context of another node that knows `target`, by importing its well-known jetty.
fn reach(from: &Pinged, target: &Pinged) -> urma::TargetJetty {
    let mode = urma::TransportMode::Rm;
    let remote = urma::RemoteJetty {
        id: urma::JettyId { eid: target.context.eid(), uasid: 0, id: 5 },
        kind: urma::TargetKind::Jetty,
        mode,
        order: urma::OrderType::Default,
        policy: urma::TokenPolicy::None,
        tp: urma::TpType::of(mode),
    };
    from.context.import_jetty(&remote).unwrap()
}

/// A jetty that sends, and its JFC.
fn sender(node: &Pinged) -> (urma::Jetty, urma::Jfc) {
    let jfc = node.context.create_jfc(&urma::JfcCfg::new(64), None).unwrap();
    let mode = urma::TransportMode::Rm;
    let recv = urma::JettyRecv::Own { cfg: urma::JfrCfg::new(mode, 1), jfc: &jfc };
    let cfg = urma::JettyCfg::new(urma::JfsCfg::new(mode, 16), &jfc, recv);
    (node.context.create_jetty(&cfg).unwrap(), jfc)
}

#[test]
fn nodes_and_their_objects_are_shown() {
    let node = node(PathChoice::Auto);
    let eid = node.context.eid().to_string();
    let all = text(&["show"]);
    let header =
        "num  ubep_dev            tp_type     eid                                             link";
    assert!(all.starts_with(header) && all.contains(&eid), "{all}");
    let jetty = document(&["show", "dev", &eid, "jetty", "5", "--json"]);
    assert_eq!(jetty["objects"][0]["mode"], "rm", "{jetty:#}");
    assert_eq!(jetty["objects"][0]["send_state"], "ready");
    let jfr = text(&["show", "dev", &eid, "jfr"]);
    assert!(jfr.starts_with("id ") && jfr.contains("ready"), "{jfr}");
    let segments = document(&["show", "dev", &eid, "seg", "--json"]);
    assert_eq!(segments["objects"][0]["access"][0], "local_only", "{segments:#}");
    let whole = text(&["show", "dev", &eid, "--whole"]);
    assert!(whole.contains("capability max_jetty") && whole.contains("process"), "{whole}");
    assert!(text(&["eid"]).contains(&eid));
    let listed = document(&["eid", "list", "--json"]).to_string();
    assert!(listed.contains(&eid), "{listed}");
}

#[test]
fn paths_are_shown_with_the_reason() {
    let (here, there) = (node(PathChoice::Packets), node(PathChoice::Auto));
    let other = node(PathChoice::Auto);
    let _ways = (reach(&here, &there), reach(&other, &there));
    let tps =
        |node: &Pinged| document(&["show", "dev", &node.context.eid().to_string(), "tp", "--json"]);
    let slow = tps(&here);
    let path = &slow["objects"][0];
    assert_eq!(
        (&path["path"], &path["why_not_faster"]),
        (&Value::from("packets"), &Value::from("this node is configured for packets only"))
    );
    let fast = tps(&other);
    let path = &fast["objects"][0];
    assert_eq!(path["path"], "same-host", "{fast:#}");
    assert_eq!(path["owner_pid"], std::process::id());
    let topo = text(&["show", "topo", &here.context.eid().to_string()]);
    assert!(topo.contains("configured for packets only"), "{topo}");
    // Only one side knows; both rows say it.
    let topo = text(&["show", "topo"]);
    let row = topo.lines().find(|row| {
        let mut words = row.split_whitespace();
        let is_from = words.next() == Some(there.context.eid().to_string().as_str());
        is_from && row.contains(&here.context.eid().to_string())
    });
    assert!(
        row.is_some_and(|row| row.contains("the peer says: this node is configured")),
        "{topo}"
    );
}

/// Every view as text and, with `--json`, as one document, of which each names the node.
#[test]
fn each_view_is_text_or_a_document() {
    let (here, there) = (node(PathChoice::Auto), node(PathChoice::Auto));
    let _way = reach(&here, &there);
    let eid = here.context.eid().to_string();
    let owner = format!("process             : {} (", std::process::id());
    for (words, shown) in [
        (&["show", "dev", &eid][..], &*owner),
        (&["show", "dev", &eid, "--brief"], "udma0"),
        (&["show", "-d", &eid], "udma0"),
        (&["show_res", "-d", &eid, "-a"], "capability max_jetty"),
        (&["list_res", "dev", &eid, "tp"], "same-host"),
        (&["show", "topo", &eid], "same-host"),
        (&["eid", "list"], &eid),
        (&["show_stats", &eid], "per second"),
        (&["monitor", &eid, "-c", "1"], "per second"),
    ] {
        let plain = text(words);
        assert!(
            plain.contains(shown) && plain.contains(&*eid) || words.contains(&"tp"),
            "{words:?}: {plain}"
        );
        assert!(serde_json::from_str::<Value>(&plain).is_err(), "{words:?} is text");
        let json = document(&[words, &["--json"]].concat());
        assert!(json.to_string().contains(&eid), "{words:?}: {json}");
    }
    for words in [&["show", "-d", &eid][..], &["show", "dev", &eid, "--brief"]] {
        assert_eq!(text(words).lines().count(), 2, "{words:?}: a head, and this node alone");
    }
    let brief = text(&["show", "dev", &eid, "--brief"]);
    assert!(!brief.contains("capability"), "{brief}");
    let all = document(&["show", "--json"]);
    let pids = all.as_array().unwrap().iter().filter(|one| one["pid"] == std::process::id());
    assert!(pids.count() >= 2, "{all:#}");
    // A process id is a name, too, where one node has it only.
    let several = admin(&["show", "dev", &std::process::id().to_string(), "jetty"]);
    let why = String::from_utf8(several.stderr).unwrap();
    assert!(!several.status.success() && why.contains("nodes fit: name one by its EID"), "{why}");
    for interval in ["0", "0.009", "86401", "nan"] {
        let refused = admin(&["monitor", &eid, "-c", "1", "-i", interval]);
        let why = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success() && why.contains("0.01 to 86400"), "{interval}: {why}");
    }
}

/// A daemon that answers as this says, once each time.
#[test]
fn what_a_daemon_answers_is_printed() {
    use std::io::{Read as _, Write as _};

    let name = format!("urma-admin-daemon-{}", std::process::id());
    let socket = std::env::temp_dir().join(name);
    let listener = std::os::unix::net::UnixListener::bind(&socket).unwrap();
    let served = std::thread::spawn(move || {
        for _ in 0..3 {
            let (mut stream, _) = listener.accept().unwrap();
            let mut request = [0; 64];
            let len = stream.read(&mut request).unwrap();
            let body = match request[..len].starts_with(b"GET /metrics ") {
                true => "urma_clients 3\n",
                false => "{ \"pid\": 7 }\n",
            };
            stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{body}").as_bytes()).unwrap();
        }
    });
    let path = socket.to_str().unwrap();
    assert!(text(&["daemon", "--status", path]).starts_with("ubcored ? pid 7 uid ?"));
    assert_eq!(document(&["daemon", "status", "--status", path, "--json"])["pid"], 7);
    assert_eq!(text(&["daemon", "metrics", "--status", path]), "urma_clients 3\n");
    served.join().unwrap();
    std::fs::remove_file(&socket).unwrap();
    let gone = admin(&["daemon", "--status", path]);
    let why = String::from_utf8(gone.stderr).unwrap();
    assert!(gone.status.code() == Some(1) && why.contains(path), "{why}");
}

#[test]
fn programs_and_settings_are_shown_as_text_and_as_documents() {
    let known = document(&["abi", "/bin/true", "--json"]);
    assert_eq!((&known["program"], &known["release"]), (&"/bin/true".into(), &Value::Null));
    let plain = text(&["abi", "/bin/true"]);
    assert!(plain.starts_with("/bin/true: release unknown: it has neither"), "{plain}");
    assert_eq!(plain.lines().count(), 1, "nothing helps: {plain}");
    let absent = admin(&["abi", "/nowhere/program"]);
    let why = String::from_utf8(absent.stderr).unwrap();
    assert!(absent.status.code() == Some(1) && why.contains("/nowhere/program: "), "{why}");
    let settings = text(&["config"]);
    let head: Vec<&str> = settings.lines().next().unwrap().split_whitespace().collect();
    assert_eq!(head, ["key", "variable", "value", "origin"]);
    let mtu = settings.lines().find(|line| line.starts_with("mtu ")).unwrap();
    assert!(mtu.contains("URMA_MTU") && mtu.ends_with("default"), "{mtu}");
    assert_eq!(
        settings.lines().count() - 1,
        document(&["config", "--json"]).as_object().unwrap().len()
    );
}

/// Names of devices that are no file names, of the option and of the environment.
#[test]
fn an_alias_that_is_no_file_name_is_refused_before_anything_starts() {
    let run = |variable: &str, option: &[&str]| {
        let mut command = Command::new(PROGRAM);
        command.args(["run"]).args(option).args(["--", "/bin/echo", "started"]);
        let output = command.env("URMA_DEVICE_ALIAS", variable).output().unwrap();
        (output.status.code(), output.stdout, String::from_utf8(output.stderr).unwrap())
    };
    for wrong in [".", "..", "a/b", "/", "a,b"] {
        let (code, started, why) = run("fine", &["--alias", wrong]);
        assert!(code == Some(125) && started.is_empty(), "{wrong}: {why}");
        assert!(why.contains(&format!("{wrong:?} is no name of a device")), "{wrong}: {why}");
    }
    for wrong in [".", "..", "a/b"] {
        let (code, started, why) = run(&format!("fine, {wrong} ,other"), &[]);
        assert!(code == Some(125) && started.is_empty(), "{wrong}: {why}");
        assert!(why.contains(&format!("{wrong:?} is no name of a device")), "{wrong}: {why}");
    }
    for (variable, option) in
        [("...", &[][..]), ("", &["--alias", ".a"]), (" , ", &["--alias", "b"])]
    {
        let (_, _, why) = run(variable, option);
        assert!(!why.contains("is no name of a device"), "{variable}: {why}");
    }
}

#[test]
fn what_stands_between_two_hosts_is_shown() {
    let Some(lab) = Lab::or_skip(LabPlan::cable(1500)) else { return };
    let unset = || NodeCfg { eid_source: EidSource::HostIfFree, ..NodeCfg::default() };
    let open = |host: &Host| host.run(|| pinged(unset()));
    let topo = |host: &Host| host.start(host.command(PROGRAM).args(["show", "topo"])).end().stdout;
    let near = open(lab.host(0));
    let far = open(lab.host(1));
    let _way = reach(&near, &far);
    let text = topo(lab.host(0));
    assert!(text.contains("10.80.0.2") && !text.contains("not reached"), "{text}");
    drop(far);
    let second = lab.host(1);
    let _taken = second.run(|| UdpSocket::bind((second.address(), 4791))).unwrap();
    let _far = open(second);
    let (text, owner) = (topo(second), format!("belongs to process {}", std::process::id()));
    assert!(text.contains("port: UDP 10.80.0.2:4791") && text.contains(&owner), "{text}");
}

#[test]
fn settings_are_shown_with_their_origin_and_wrong_ones_refused() {
    let file = std::env::temp_dir().join(format!("urma-config-{}.toml", std::process::id()));
    let config = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let mut command = Command::new(PROGRAM);
        command.args(["config", "--json"]).env("URMA_CONFIG", &file).env("URMA_LANE", "off");
        command.output().unwrap()
    };
    let shown = config("# of this host\nmtu = 1024\nlane = true\n");
    let shown: Value = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown["mtu"]["value"], "1024");
    assert_eq!(shown["mtu"]["origin"], format!("{}:2", file.display()));
    assert_eq!(
        (&shown["lane"]["value"], &shown["lane"]["origin"]),
        (&"off".into(), &"environment".into())
    );
    assert_eq!(shown["path"]["origin"], "default");
    for (text, line, word) in [("\nmtu = 1500\n", 2, "a power of two"), ("mut = 1\n", 1, "\"mut\"")]
    {
        let refused = config(text);
        let error = String::from_utf8(refused.stderr).unwrap();
        assert!(!refused.status.success());
        assert!(
            error.contains(&format!("{}:{line}: ", file.display())) && error.contains(word),
            "{error}"
        );
    }
    std::fs::remove_file(&file).unwrap();
}

#[test]
fn counters_are_monitored() {
    let node = node(PathChoice::Auto);
    let eid = node.context.eid().to_string();
    let lines = text(&["monitor", &eid, "-c", "2", "-i", "0.05", "--json"]);
    assert_eq!(lines.lines().count(), 2, "{lines}");
    let last: Value = serde_json::from_str(lines.lines().last().unwrap()).unwrap();
    assert_eq!(last["eid"], eid.as_str());
    assert!(last["counters"].as_object().is_some());
}

/// What a model counts is shown and read beside the counters of the device, and only where there is a model.
#[test]
fn counters_of_models_are_shown_by_name() {
    let models = ["URMA_CONTEXT_CACHE", "URMA_PACKET_ENGINE"];
    let counted = |name: &str| models.contains(&name).then(|| "count".into());
    let here = pinged(NodeCfg::default().with_overrides(counted).unwrap());
    let there = node(PathChoice::Auto);
    for (from, to) in [(&here, &there), (&there, &here)] {
        let target = reach(from, to);
        let (mut jetty, mut jfc) = sender(from);
        let mut done = [urma::Completion::default(); 16];
        jetty.post_send(&[urma::SendWr::new(urma::SendOp::Nop, &target, 1)]).unwrap();
        while jfc.poll(&mut done).unwrap() == 0 {}
    }
    let is_of_model = |name: &str| name.starts_with("context_") || name.starts_with("engine_");
    for (node, wanted) in [(&here, 57), (&there, 0)] {
        let read = node.context.counters().unwrap();
        assert_eq!(read.iter().filter(|(name, _)| is_of_model(name)).count(), wanted, "{read:?}");
        let whole = text(&["show", "dev", &node.context.eid().to_string(), "--whole"]);
        assert_eq!(whole.contains("context_accesses"), wanted != 0, "{whole}");
    }
}

#[test]
fn packets_are_captured_without_privileges() {
    let (here, there) = (node(PathChoice::Packets), node(PathChoice::Packets));
    let eid = here.context.eid().to_string();
    let began = wall_ns();
    let file = std::env::temp_dir().join(format!("urma-admin-{}.pcapng", std::process::id()));
    let name = file.to_str().unwrap();
    let mut capture = Command::new(PROGRAM)
        .args(["capture", &eid, "-w", name, "-c", "2", "-D", "30", "--json"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // The handshakes of new paths are packets, however often they are needed.
    while capture.try_wait().unwrap().is_none() {
        drop(reach(&here, &there));
        #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
        std::thread::sleep(Duration::from_millis(20));
    }
    let output = capture.wait_with_output().unwrap();
    let said: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&said["packets"], &said["file"]), (&2.into(), &name.into()), "{said:#}");
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
    assert_eq!(said["eid"], eid.as_str());
    let bytes = std::fs::read(&file).unwrap();
    opens_in_tshark(name, 2);
    std::fs::remove_file(&file).unwrap();
    assert_eq!(bytes[..4], 0x0a0d_0d0a_u32.to_le_bytes());
    let mut ends = [&here, &there].map(|node| node.context.eid().to_string());
    ends.sort();
    let packets = packets_of(&bytes);
    assert_eq!(packets.len(), 2);
    for (time_ns, frame) in packets {
        assert!((began..=wall_ns()).contains(&time_ns), "{time_ns}");
        let datagram = UdpDatagram::parse(frame).unwrap();
        // The check sum covers both addresses in their order.
        let packet = Packet::open(datagram.payload, &datagram.flow).unwrap();
        let mut found = [datagram.source, datagram.dest].map(|end| end.ip().to_string());
        let is_offer = matches!(packet.header.body, Body::Connect(_));
        assert!(!is_offer || found[0] == eid, "only this node connects: {datagram:?}");
        found.sort();
        assert_eq!(found, ends);
    }
}

/// A node whose packets no one sends: a capture says where they are.
#[test]
fn a_capture_without_packets_says_why() {
    let node = node(PathChoice::Auto);
    let eid = node.context.eid().to_string();
    let file = std::env::temp_dir().join(format!("urma-admin-none-{}", std::process::id()));
    let name = file.to_str().unwrap();
    let output = admin(&["capture", &eid, "-w", name, "-D", "0.2"]);
    assert!(output.status.success(), "{output:?}");
    assert_eq!(String::from_utf8(output.stdout).unwrap(), "0 packets captured, 0 dropped\n");
    let hint = "urma_admin: only packets can be captured; nodes of one host share memory unless \
                URMA_PATH=packets\n";
    assert_eq!(String::from_utf8(output.stderr).unwrap(), hint);
    std::fs::remove_file(&file).unwrap();
}

/// What the program records is a trace that `urma-lab cache` reads.
#[test]
fn lookups_of_contexts_are_captured_as_a_trace() {
    let counted = |name: &str| (name == "URMA_CONTEXT_CACHE").then(|| "count".into());
    let here = pinged(NodeCfg::default().with_overrides(counted).unwrap());
    let there = node(PathChoice::Auto);
    let target = reach(&here, &there);
    let (mut jetty, mut jfc) = sender(&here);
    let eid = here.context.eid().to_string();
    let file = std::env::temp_dir().join(format!("urma-admin-{}.u32", std::process::id()));
    let name = file.to_str().unwrap();
    let mut capture = Command::new(PROGRAM)
        .args(["capture", &eid, "--contexts", name, "-c", "32", "-D", "30", "--json"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut done = [urma::Completion::default(); 16];
    while capture.try_wait().unwrap().is_none() {
        jetty.post_send(&[urma::SendWr::new(urma::SendOp::Nop, &target, 1)]).unwrap();
        while jfc.poll(&mut done).unwrap() == 0 {}
        #[expect(clippy::disallowed_methods, reason = "a test waits for a process")]
        std::thread::sleep(Duration::from_millis(5));
    }
    let said: Value = serde_json::from_slice(&capture.wait_with_output().unwrap().stdout).unwrap();
    assert_eq!((&said["lookups"], &said["dropped"]), (&32.into(), &0.into()), "{said:#}");
    let trace = TraceFormat::U32.read(&std::fs::read(&file).unwrap()).unwrap();
    std::fs::remove_file(&file).unwrap();
    // Queue, its PD, TP and JFC, each time the same: their kinds are in the upper four bits.
    assert_eq!((trace.handles().len(), trace.distinct()), (32, 4));
    let kinds: Vec<u32> = trace.handles().iter().map(|handle| handle >> 28).take(4).collect();
    assert_eq!(kinds, [3, 0, 4, 2]);
    // A node without the model says so.
    let other = there.context.eid().to_string();
    let refused = admin(&["capture", &other, "--contexts", name, "-D", "30"]);
    let error = String::from_utf8(refused.stderr).unwrap();
    assert!(!refused.status.success() && error.contains("URMA_CONTEXT_CACHE=count"), "{error}");
    std::fs::remove_file(&file).unwrap();
}

/// tshark shows each packet of the file as one of URMA, and none as malformed.
fn opens_in_tshark(file: &str, packets: usize) {
    let script =
        concat!("lua_script:", env!("CARGO_MANIFEST_DIR"), "/../../tools/wireshark/urma.lua");
    let fields = ["-T", "fields", "-e", "frame.protocols", "-e", "_ws.malformed"];
    match Command::new("tshark").args(["-X", script, "-n", "-r", file]).args(fields).output() {
        Ok(output) => {
            let lines = String::from_utf8(output.stdout).unwrap();
            let is_whole = |line: &str| line.contains(":urma") && line.ends_with('\t');
            assert!(lines.lines().count() == packets && lines.lines().all(is_whole), "{lines}");
        }
        Err(error) => urma_skip::skip(format!("tshark: {error} (Debian: apt install tshark)")),
    }
}

fn wall_ns() -> u64 {
    let since = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap();
    u64::try_from(since.as_nanos()).unwrap()
}

/// Times and frames of a pcapng file.
fn packets_of(mut bytes: &[u8]) -> Vec<(u64, &[u8])> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let word = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
        let (kind, len, frame) = (word(0), word(4) as usize, word(20) as usize);
        if kind == 6 {
            let time_ns = u64::from(word(12)) << 32 | u64::from(word(16));
            packets.push((time_ns, &bytes[28..28 + frame]));
        }
        bytes = &bytes[len..];
    }
    packets
}

#[test]
fn what_needs_the_kernel_is_refused() {
    for words in [
        &["agg", "add", "x"][..],
        &["eid", "add", "1"],
        &["dev", "set", "udma0", "ns", "/x"],
        &["perf", "start"],
        &["system", "show"],
        &["main_ue_eid", "flush"],
        &["set_ns_mode", "-m", "1"],
    ] {
        let output = admin(words);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{words:?}: {said}");
        assert!(said.contains("not supported on a software device: "), "{words:?}: {said}");
    }
    assert_eq!(admin(&["show", "dev", "nonsense"]).status.code(), Some(1));
}
