//! Who is let in, what each may have, and what the daemon reports of it.

use urma::{JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, Region, Status, TransportMode};

use super::world::{Daemon, End, segment_cfg, until};

#[test]
fn a_user_that_is_not_let_in_reads_why() {
    let daemon = Daemon::with("users", &["--users", "4294967294"], &[]);
    let refused = urma::open_device(daemon.cfg()).unwrap_err().to_string();
    assert!(refused.contains("Permission denied"), "{refused}");
    assert_eq!(daemon.status()["refused"]["user"], 1);
    assert!(daemon.clients().is_empty());
}

#[test]
fn one_client_too_many_reads_why_and_the_next_one_has_its_place() {
    let daemon = Daemon::with("many", &["--clients", "1"], &[]);
    let first = urma::open_device(daemon.cfg()).unwrap();
    let refused = urma::open_device(daemon.cfg()).unwrap_err().to_string();
    assert!(refused.contains("Too many users"), "{refused}");
    assert_eq!(daemon.status()["refused"]["too_many"], 1);
    drop(first);
    until("the place is free", || urma::open_device(daemon.cfg()).is_ok());
}

#[test]
fn quotas_are_named_by_the_api_and_reported_by_kind() {
    let args = ["--jetties", "2", "--jfcs", "3", "--segments", "2", "--work", "400"];
    let pinned = (6 << 20).to_string();
    let daemon = Daemon::with("quota", &[&args[..], &["--pinned-bytes", &pinned]].concat(), &[]);
    let end = End::open(&daemon);
    let context = &end.context;
    // Segments: one is that of `end`.
    let small = Region::private(4096).unwrap();
    let segment = context.register(&small, &segment_cfg(), None).unwrap();
    assert_eq!(context.register(&small, &segment_cfg(), None).err(), Some(Status::Quota));
    drop(segment);
    // Pinned bytes: rings, the memory of `end`, and this.
    let large = Region::private(8 << 20).unwrap();
    assert_eq!(context.register(&large, &segment_cfg(), None).err(), Some(Status::Quota));
    // JFCs: the one of `end`, its event queue, and this.
    let jfc = context.create_jfc(&JfcCfg::new(16), None).unwrap();
    assert_eq!(context.create_jfc(&JfcCfg::new(16), None).err(), Some(Status::Quota));
    // Outstanding work: more than the rings of the first jetty leave.
    let jetty = |depth| {
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, depth), jfc: &jfc };
        context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, depth), &jfc, recv))
    };
    assert_eq!(jetty(128).err(), Some(Status::Quota));
    // Jetties.
    let second = jetty(4).unwrap();
    assert_eq!(jetty(4).err(), Some(Status::Quota));
    let clients = daemon.clients();
    let [client] = &clients[..] else { panic!("{clients:?}") };
    assert_eq!(client["uid"], rustix::process::getuid().as_raw());
    assert_eq!(client["pid"], std::process::id());
    assert_eq!(client["uasid"], rustix::process::getuid().as_raw() & 0xff_ffff);
    for kind in ["jetties", "jfcs", "segments", "work", "pinned_bytes"] {
        let quota = &client["quotas"][kind];
        assert_eq!(quota["refused"], 1, "{kind}: {client}");
        assert!(quota["used"].as_u64() <= quota["most"].as_u64(), "{kind}: {client}");
    }
    assert_eq!(client["quotas"]["jetties"]["used"], 2);
    // Another client has quotas of its own.
    drop(End::open(&daemon));
    drop((second, segment_cfg()));
}

#[test]
fn metrics_are_text_that_prometheus_reads() {
    let daemon = Daemon::start("metrics");
    let _end = End::open(&daemon);
    let text = daemon.get("/metrics").unwrap();
    let mut typed = Vec::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').unwrap();
            assert!(["gauge", "counter"].contains(&kind), "{line}");
            typed.push(name.to_owned());
        } else if !line.starts_with("# HELP ") {
            let (sample, value) = line.rsplit_once(' ').unwrap();
            let name = sample.split('{').next().unwrap();
            assert!(typed.iter().any(|typed| typed == name), "{line} has no type");
            value.parse::<u64>().unwrap();
        }
    }
    let uid = rustix::process::getuid().as_raw();
    let used = format!("ubcored_quota_used{{client=\"0\",uid=\"{uid}\",kind=\"jetties\"}} 1\n");
    assert!(text.contains(&used), "{text}");
    assert!(text.contains("ubcored_clients 1\n"), "{text}");
    assert!(daemon.get("/else").is_none());
}

#[test]
fn mappings_of_a_client_have_a_quota_and_those_of_others_are_left() {
    let daemon = Daemon::with("mappings", &["--mappings", "16"], &[]);
    let (end, other) = (End::open(&daemon), End::open(&daemon));
    let register = |end: &End| {
        let small = Region::private(4096).unwrap();
        end.context.register(&small, &segment_cfg(), None)
    };
    let segments: Vec<_> = (0..16).map_while(|_| register(&end).ok()).collect();
    assert!((4..16).contains(&segments.len()), "{} segments of a page", segments.len());
    assert_eq!(register(&end).err(), Some(Status::Quota));
    assert!(register(&other).is_ok(), "another client has its own");
    drop(segments);
    assert!(register(&end).is_ok(), "they were given back");
}
