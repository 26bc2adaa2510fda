//! What the daemon reports of itself, over a socket of its own: the clients that it serves, what was refused,
//! counts.
//!
//! JSON for `urma_admin`, text for Prometheus (HTTP/1.0, GET /status or /metrics), for its own user or root. Must
//! not change anything, show a token, wait for one who asks for longer than a second, or be looked at on the data
//! path.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    os::unix::net::{UnixListener, UnixStream},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use nix::sys::socket::{getsockopt, sockopt::PeerCredentials};
use rustix::process::getuid;
use serde_json::{Map, Value, json};
use ubcore_sim::{
    Node,
    device::{DeviceFunction, QuotaUse},
};
use ubcored::DescriptorBudget;
use urma_mem::sync::{AtomicU64, Ordering};

/// Sources of the reports.
#[derive(Clone, Debug)]
pub(crate) struct DaemonReport {
    pub(crate) node: Arc<Node>,
    pub(crate) roster: Arc<ClientRoster>,
    /// Clients at a time.
    pub(crate) clients_max: usize,
    pub(crate) descriptors: Arc<DescriptorBudget>,
}

impl DaemonReport {
    /// Answers requests at `listener` in a thread of its own.
    ///
    /// # Errors
    /// No thread.
    pub(crate) fn serve(self, listener: UnixListener) -> io::Result<()> {
        let thread = std::thread::Builder::new().name("ubcored-status".to_owned());
        thread.spawn(move || {
            for socket in listener.incoming() {
                match socket.and_then(|socket| self.answer(&socket)) {
                    Ok(()) => {}
                    Err(error) => {
                        tracing::debug!(%error, "a status request was not answered");
                        // Out of descriptors, say.
                        std::thread::sleep(RETRY);
                    }
                }
            }
        })?;
        Ok(())
    }

    fn answer(&self, mut socket: &UnixStream) -> io::Result<()> {
        let uid = getsockopt(&socket, PeerCredentials)?.uid();
        let is_own = may_ask(uid, getuid().as_raw());
        let bound = if is_own { BOUND } else { STRANGER_BOUND };
        socket.set_read_timeout(Some(bound))?;
        socket.set_write_timeout(Some(bound))?;
        let mut request = [0; REQUEST_MAX];
        // A stranger is not waited for: who may ask would wait behind it.
        let len =
            socket.read(&mut request).or_else(|error| if is_own { Err(error) } else { Ok(0) })?;
        let line = request.get(..len).unwrap_or_default();
        let (status, kind, body) = if !is_own {
            ("403 Forbidden", TEXT, "the daemon's own user and root may ask\n".to_owned())
        } else if line.starts_with(b"GET /status ") {
            ("200 OK", "application/json", format!("{:#}\n", self.document()))
        } else if line.starts_with(b"GET /metrics ") {
            ("200 OK", "text/plain; version=0.0.4", self.metrics())
        } else {
            ("404 Not Found", TEXT, "GET /status or GET /metrics\n".to_owned())
        };
        let len = body.len();
        let head =
            format!("HTTP/1.0 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len}\r\n\r\n");
        socket.write_all(head.as_bytes())?;
        socket.write_all(body.as_bytes())
    }

    /// The document of `urma_admin daemon status --json`.
    fn document(&self) -> Value {
        let clients: Vec<Value> = self.roster.all().iter().map(client).collect();
        let refused = RefusalReason::ALL
            .map(|reason| (reason.name().to_owned(), json!(self.roster.refusals(reason))));
        let counters = self.node.device().counters().into_iter();
        let counters: Map<_, _> = counters.map(|(name, n)| (name.to_owned(), json!(n))).collect();
        let left = self.roster.left();
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uid": getuid().as_raw(),
            "eid": ubcore_sim::host::eid_ip(self.node.eid()).to_string(),
            "packets_refused": self.node.packets_refused(),
            "clients_max": self.clients_max,
            "clients": clients,
            "served": left.served,
            "cut_off": left.cut_off,
            "end_ns_max": left.end_ns_max,
            "refused": Map::from_iter(refused),
            "descriptors": { "used": self.descriptors.used(), "most": self.descriptors.most() },
            "counters": counters,
        })
    }

    /// The same as text for Prometheus.
    fn metrics(&self) -> String {
        let mut text = String::new();
        let left = self.roster.left();
        let clients = self.roster.all();
        let one = [
            ("clients", "gauge", "Clients that are served", clients.len() as u64),
            (
                "clients_max",
                "gauge",
                "Clients that may be served at a time",
                self.clients_max as u64,
            ),
            ("served_total", "counter", "Clients since the start", left.served),
            ("cut_off_total", "counter", "Clients that broke the protocol", left.cut_off),
            ("end_ns_max", "gauge", "Longest end of a client in nanoseconds", left.end_ns_max),
            (
                "descriptors",
                "gauge",
                "Descriptors that memory and vectors of clients hold",
                self.descriptors.used(),
            ),
            (
                "descriptors_max",
                "gauge",
                "Descriptors that clients may hold",
                self.descriptors.most(),
            ),
        ];
        for (name, kind, help, value) in one {
            head(&mut text, (name, kind), help);
            let _ = writeln!(text, "ubcored_{name} {value}");
        }
        head(&mut text, ("refused_total", "counter"), "Connections that were refused, by reason");
        for reason in RefusalReason::ALL {
            let (name, count) = (reason.name(), self.roster.refusals(reason));
            let _ = writeln!(text, "ubcored_refused_total{{reason=\"{name}\"}} {count}");
        }
        quotas(&mut text, &clients);
        head(&mut text, ("device_total", "counter"), "Counters of the device");
        for (name, count) in self.node.device().counters() {
            let _ = writeln!(text, "ubcored_device_total{{counter=\"{name}\"}} {count}");
        }
        text
    }
}

fn client((number, entry): &(u64, ServedEntry)) -> Value {
    let quotas = entry.function.quotas().map(|QuotaUse { kind, used, most, refused }| {
        (kind.name().to_owned(), json!({ "used": used, "most": most, "refused": refused }))
    });
    json!({
        "number": number,
        "uid": entry.process.uid,
        "pid": entry.process.pid,
        "uasid": entry.function.uasid(),
        "function": entry.function.id().number(),
        "seconds": entry.since.elapsed().as_secs(),
        "quotas": Map::from_iter(quotas),
        "foreign_accesses": entry.function.foreign_accesses(),
    })
}

fn quotas(text: &mut String, clients: &[(u64, ServedEntry)]) {
    let values = [
        ("quota_used", "What each client has, by kind"),
        ("quota_most", "What each client may have, by kind"),
        ("quota_refused", "Requests beyond a quota that were refused"),
    ];
    for (at, (name, help)) in values.into_iter().enumerate() {
        head(text, (name, "gauge"), help);
        for (number, entry) in clients {
            let uid = entry.process.uid;
            for quota in entry.function.quotas() {
                let kind = quota.kind.name();
                let value = [quota.used, quota.most, quota.refused][at];
                let _ = writeln!(
                    text,
                    "ubcored_{name}{{client=\"{number}\",uid=\"{uid}\",kind=\"{kind}\"}} {value}"
                );
            }
        }
    }
    head(text, ("foreign_accesses", "gauge"), "Accesses to objects that a client does not have");
    for (number, entry) in clients {
        let (uid, count) = (entry.process.uid, entry.function.foreign_accesses());
        let _ =
            writeln!(text, "ubcored_foreign_accesses{{client=\"{number}\",uid=\"{uid}\"}} {count}");
    }
}

fn head(text: &mut String, (name, kind): (&str, &str), help: &str) {
    let _ = writeln!(text, "# HELP ubcored_{name} {help}\n# TYPE ubcored_{name} {kind}");
}

/// Longest wait for one who asks.
const BOUND: Duration = Duration::from_secs(1);
/// The same for one who gets no answer but a refusal.
const STRANGER_BOUND: Duration = Duration::from_millis(1);
/// Pause after a request that failed.
const RETRY: Duration = Duration::from_millis(10);
/// Bytes of a request that are read: its first line is shorter.
const REQUEST_MAX: usize = 1024;
const TEXT: &str = "text/plain";

/// Whether a process of user `uid` gets an answer of a daemon of user `own`.
const fn may_ask(uid: u32, own: u32) -> bool {
    uid == 0 || uid == own
}

/// Why a connection is not served.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum RefusalReason {
    /// Its user is not let in.
    User,
    /// As many clients as there may be are served.
    TooMany,
    /// The daemon has no thread, descriptor or memory for it.
    Resources,
}

impl RefusalReason {
    pub(crate) const ALL: [Self; 3] = [Self::User, Self::TooMany, Self::Resources];

    /// Name of the reason in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::User => "user",
            Self::TooMany => "too_many",
            Self::Resources => "resources",
        }
    }
}

/// A process as the kernel names it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ClientProcess {
    pub(crate) uid: u32,
    /// 0: of another PID namespace.
    pub(crate) pid: i32,
}

/// A client that is served.
#[derive(Clone, Debug)]
pub(crate) struct ServedEntry {
    pub(crate) process: ClientProcess,
    pub(crate) since: Instant,
    pub(crate) function: Arc<DeviceFunction>,
}

/// How clients left, and how long it took to end what they had.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct LeftCounts {
    /// Served since the start.
    pub(crate) served: u64,
    /// Cut off for breaking the protocol.
    pub(crate) cut_off: u64,
    /// Longest end of a client, nanoseconds.
    pub(crate) end_ns_max: u64,
}

/// All clients that are served now.
#[derive(Debug, Default)]
pub(crate) struct ClientRoster {
    clients: Mutex<BTreeMap<u64, ServedEntry>>,
    served: AtomicU64,
    cut_off: AtomicU64,
    end_ns_max: AtomicU64,
    refused: [AtomicU64; RefusalReason::ALL.len()],
}

impl ClientRoster {
    /// A client is served from now on, under the number that is returned.
    pub(crate) fn add(&self, entry: ServedEntry) -> u64 {
        let number = self.served.fetch_add(1, Ordering::Relaxed);
        self.clients().insert(number, entry);
        number
    }

    /// A client left, and everything of it ended in `ns` nanoseconds.
    pub(crate) fn remove(&self, number: u64, ns: u64, is_cut_off: bool) {
        self.clients().remove(&number);
        self.end_ns_max.fetch_max(ns, Ordering::Relaxed);
        if is_cut_off {
            self.cut_off.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub(crate) fn count_refusal(&self, reason: RefusalReason) {
        self.refused[reason as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn refusals(&self, reason: RefusalReason) -> u64 {
        self.refused[reason as usize].load(Ordering::Relaxed)
    }

    pub(crate) fn left(&self) -> LeftCounts {
        LeftCounts {
            served: self.served.load(Ordering::Relaxed),
            cut_off: self.cut_off.load(Ordering::Relaxed),
            end_ns_max: self.end_ns_max.load(Ordering::Relaxed),
        }
    }

    /// Those that are served now, in the order in which they came.
    pub(crate) fn all(&self) -> Vec<(u64, ServedEntry)> {
        self.clients().iter().map(|(number, entry)| (*number, entry.clone())).collect()
    }

    fn clients(&self) -> MutexGuard<'_, BTreeMap<u64, ServedEntry>> {
        self.clients.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {

    use std::time::Instant;

    use ubcore_sim::{
        NodeCfg,
        device::{DeviceFunction, FunctionCfg, FunctionQuota, QuotaKind},
        ports::Interrupt,
    };

    use super::*;
    use crate::status::ClientProcess;

    #[derive(Debug)]
    struct Silent;
    impl Interrupt for Silent {
        fn raise(&self, _: u16) {}
    }

    fn asked(report: &DaemonReport, request: &str) -> String {
        let (mut asks, answers) = UnixStream::pair().unwrap();
        asks.write_all(request.as_bytes()).unwrap();
        report.answer(&answers).unwrap();
        drop(answers);
        let mut text = String::new();
        asks.read_to_string(&mut text).unwrap();
        text
    }

    /// The document of one client, whose function and seconds these are.
    fn whole(report: &DaemonReport, function: &DeviceFunction, seconds: &Value) -> Value {
        let quotas = function.quotas();
        let quota = |quota: QuotaUse| {
            let QuotaUse { kind, used, most, refused } = quota;
            (kind.name().to_owned(), json!({ "used": used, "most": most, "refused": refused }))
        };
        let counters = report.node.device().counters().into_iter();
        let counters: Map<_, _> = counters.map(|(name, n)| (name.to_owned(), json!(n))).collect();
        assert!(!counters.is_empty());
        json!({
            "version": env!("CARGO_PKG_VERSION"),
            "pid": std::process::id(),
            "uid": getuid().as_raw(),
            "eid": ubcore_sim::host::eid_ip(report.node.eid()).to_string(),
            "packets_refused": report.node.packets_refused(),
            "clients_max": 9,
            "clients": [{
                "number": 0,
                "uid": 70,
                "pid": 71,
                "uasid": 7,
                "function": function.id().number(),
                "seconds": seconds,
                "quotas": quotas.into_iter().map(quota).collect::<Map<_, _>>(),
                "foreign_accesses": 0,
            }],
            "served": 2,
            "cut_off": 1,
            "end_ns_max": 5000,
            "refused": { "user": 0, "too_many": 4, "resources": 0 },
            "descriptors": { "used": 0, "most": 64 },
            "counters": counters,
        })
    }

    /// Every kind of count has a line for its help and one for its type.
    fn has_every_kind(report: &DaemonReport, metrics: &str) {
        let (head, body) = metrics.split_once("\r\n\r\n").unwrap();
        let wanted = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: text/plain; version=0.0.4\r\nContent-Length: {}",
            body.len()
        );
        assert_eq!(head, wanted);
        let kinds: Vec<&str> =
            body.lines().filter_map(|line| line.strip_prefix("# TYPE ubcored_")).collect();
        let wanted = [
            "clients gauge",
            "clients_max gauge",
            "served_total counter",
            "cut_off_total counter",
            "end_ns_max gauge",
            "descriptors gauge",
            "descriptors_max gauge",
            "refused_total counter",
            "quota_used gauge",
            "quota_most gauge",
            "quota_refused gauge",
            "foreign_accesses gauge",
            "device_total counter",
        ];
        assert_eq!(kinds, wanted);
        let helped = body.lines().filter(|line| line.starts_with("# HELP ubcored_")).count();
        assert_eq!(helped, wanted.len());
        for (name, n) in report.node.device().counters() {
            let line = format!("ubcored_device_total{{counter=\"{name}\"}} {n}");
            assert!(body.lines().any(|found| found == line), "{line}");
        }
    }

    /// One client of three jetties at most, one that was cut off, and refusals.
    #[test]
    fn both_documents_have_every_count_under_its_name() {
        let node = Node::open(NodeCfg::from_env().unwrap()).unwrap();
        let quota = FunctionQuota::NONE.with(QuotaKind::Jetties, 3);
        let served = node.add_function(FunctionCfg { uasid: 7, quota }, Arc::new(Silent)).unwrap();
        let roster = Arc::<ClientRoster>::default();
        let process = ClientProcess { uid: 70, pid: 71 };
        let function = Arc::clone(served.function());
        let entry = ServedEntry { process, since: Instant::now(), function };
        roster.add(entry.clone());
        roster.remove(roster.add(entry), 5000, true);
        (0..4).for_each(|_| roster.count_refusal(RefusalReason::TooMany));
        let descriptors = DescriptorBudget::new(64, 4);
        let report = DaemonReport { node, roster, clients_max: 9, descriptors };

        let answer = asked(&report, "GET /status HTTP/1.0\r\n\r\n");
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.0 200 OK\r\nContent-Type: application/json"), "{head}");
        assert!(head.ends_with(&format!("Content-Length: {}", body.len())), "{head}");
        let document: Value = serde_json::from_str(body).unwrap();
        for (name, value) in
            [("clients_max", 9), ("served", 2), ("cut_off", 1), ("end_ns_max", 5000)]
        {
            assert_eq!(document[name], value, "{name}");
        }
        let clients = document["clients"].as_array().unwrap();
        assert_eq!(clients.len(), 1, "who left is none");
        let one = &clients[0];
        assert_eq!([&one["number"], &one["uid"], &one["pid"], &one["uasid"]], [0, 70, 71, 7]);
        let jetties = &one["quotas"][QuotaKind::Jetties.name()];
        assert_eq!([&jetties["used"], &jetties["most"], &jetties["refused"]], [0, 3, 0]);
        assert_eq!(document["refused"], json!({ "user": 0, "too_many": 4, "resources": 0 }));
        assert_eq!(document["descriptors"], json!({ "used": 0, "most": 64 }));

        let seconds = &one["seconds"];
        assert!(seconds.as_u64().unwrap() < 60);
        // The background thread may count a run between both readings, so some pair of them must agree.
        let mut pairs = (0..50).map(|_| {
            let answer = asked(&report, "GET /status HTTP/1.0\r\n\r\n");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            let document: Value = serde_json::from_str(body).unwrap();
            let expected = whole(&report, served.function(), &document["clients"][0]["seconds"]);
            (document, expected)
        });
        let first = pairs.next().unwrap();
        let agreed = pairs.find(|(document, expected)| document == expected);
        assert!(first.0 == first.1 || agreed.is_some(), "{} is not {}", first.0, first.1);

        let metrics = asked(&report, "GET /metrics HTTP/1.0\r\n\r\n");
        has_every_kind(&report, &metrics);
        let kind = QuotaKind::Jetties.name();
        for line in [
            "ubcored_clients 1",
            "ubcored_clients_max 9",
            "ubcored_served_total 2",
            "ubcored_cut_off_total 1",
            "ubcored_end_ns_max 5000",
            "ubcored_descriptors 0",
            "ubcored_descriptors_max 64",
            "ubcored_refused_total{reason=\"too_many\"} 4",
            &format!("ubcored_quota_used{{client=\"0\",uid=\"70\",kind=\"{kind}\"}} 0"),
            &format!("ubcored_quota_most{{client=\"0\",uid=\"70\",kind=\"{kind}\"}} 3"),
            "ubcored_foreign_accesses{client=\"0\",uid=\"70\"} 0",
        ] {
            assert_eq!(metrics.lines().filter(|found| found == &line).count(), 1, "{line}");
        }
        for request in ["GET / HTTP/1.0\r\n", "GET /statuses HTTP/1.0\r\n", "POST /status \r\n"] {
            let wanted = "HTTP/1.0 404 Not Found\r\nContent-Type: text/plain\r\nContent-Length: 28\r\n\r\nGET /status or GET /metrics\n";
            assert_eq!(asked(&report, request), wanted, "{request}");
        }
        drop(served);
    }

    #[test]
    fn root_and_the_user_of_the_daemon_may_ask() {
        for (uid, own, may) in [
            (0, 0, true),
            (0, 1000, true),
            (1000, 1000, true),
            (1000, 0, false),
            (1001, 1000, false),
        ] {
            assert_eq!(may_ask(uid, own), may, "{uid} of {own}");
        }
    }

    #[test]
    fn who_left_and_who_was_refused_is_counted_by_how_and_why() {
        let roster = ClientRoster::default();
        for (number, ns, is_cut_off) in [(0, 5, false), (1, 9, true), (2, 3, false)] {
            roster.remove(number, ns, is_cut_off);
        }
        assert_eq!(roster.left(), LeftCounts { served: 0, cut_off: 1, end_ns_max: 9 });
        roster.count_refusal(RefusalReason::TooMany);
        roster.count_refusal(RefusalReason::TooMany);
        roster.count_refusal(RefusalReason::User);
        let counts = RefusalReason::ALL.map(|reason| (reason.name(), roster.refusals(reason)));
        assert_eq!(counts, [("user", 1), ("too_many", 2), ("resources", 0)]);
    }
}
