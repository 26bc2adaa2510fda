//! `daemon`: what `ubcored` reports of itself.
//!
//! *Takes*: the document of its status socket. *Gives*: a table of its clients, the document, or its metrics. *Must not*:
//! trust its shape; wait for it without a bound.

use std::{
    fmt::Write as _,
    io::{self, Read as _, Write as _},
    os::unix::net::UnixStream,
    path::{Path, PathBuf},
    time::Duration,
};

use serde_json::Value;
use ubcore_sim::NodeCfg;

use crate::{
    cli::{DaemonArgs, DaemonView},
    nodes,
};

/// What `daemon` prints.
///
/// # Errors
/// No daemon is named; it does not answer; its answer is none.
pub(crate) fn daemon(args: &DaemonArgs, json: bool) -> Result<String, String> {
    let socket = status_socket(args)?;
    let path = match args.what {
        DaemonView::Status => "/status",
        DaemonView::Metrics => "/metrics",
    };
    let at = socket.display();
    let body = get(&socket, path).map_err(|error| format!("the daemon at {at}: {error}"))?;
    if args.what == DaemonView::Metrics {
        return Ok(body);
    }
    let document: Value = serde_json::from_str(&body)
        .map_err(|error| format!("the daemon at {at}: its document is none: {error}"))?;
    if !document.is_object() {
        return Err(format!("the daemon at {at}: its document is none: no object"));
    }
    Ok(if json { body } else { table(&nodes::plain(document)) })
}

/// Where the daemon answers: as the command line says, else beside the socket of the settings.
fn status_socket(args: &DaemonArgs) -> Result<PathBuf, String> {
    if let Some(socket) = &args.status {
        return Ok(socket.clone());
    }
    let cfg = NodeCfg::from_env().map_err(|error| error.to_string())?;
    let socket =
        cfg.ubcored.ok_or("no daemon: set URMA_UBCORED, or name its socket with --status")?;
    Ok(socket.with_added_extension("status"))
}

fn get(socket: &Path, path: &str) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(BOUND))?;
    stream.set_write_timeout(Some(BOUND))?;
    stream.write_all(format!("GET {path} HTTP/1.0\r\n\r\n").as_bytes())?;
    let mut answer = String::new();
    stream.take(ANSWER_MAX).read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or(io::ErrorKind::InvalidData)?;
    let status = head.lines().next().unwrap_or_default();
    if status == "HTTP/1.0 200 OK" {
        return Ok(body.to_owned());
    }
    Err(io::Error::other(format!("{status}: {}", body.trim_end())))
}

fn table(document: &Value) -> String {
    let word = |value: &Value| match value {
        Value::String(text) => text.clone(),
        Value::Null => "?".to_owned(),
        value => value.to_string(),
    };
    let none = Vec::new();
    let clients = document["clients"].as_array().unwrap_or(&none);
    let mut text = format!(
        "ubcored {} pid {} uid {} eid {}: {} of {} clients, {} served, {} cut off\n",
        word(&document["version"]),
        word(&document["pid"]),
        word(&document["uid"]),
        word(&document["eid"]),
        clients.len(),
        word(&document["clients_max"]),
        word(&document["served"]),
        word(&document["cut_off"]),
    );
    if let Some(why) = document["packets_refused"].as_str() {
        let _ = writeln!(text, "no packets: {why}");
    }
    for (reason, count) in document["refused"].as_object().into_iter().flatten() {
        if count.as_u64() != Some(0) {
            let _ = writeln!(text, "refused connections, {reason}: {count}");
        }
    }
    let _ = writeln!(
        text,
        "{:<7} {:<7} {:<8} {:<8} {:<8} {:<13} {:<12} {:<14} {:<17} pinned MB",
        "client", "uid", "pid", "uasid", "seconds", "jetties", "jfcs", "segments", "work"
    );
    for client in clients {
        let quota = |kind: &str| {
            let quota = &client["quotas"][kind];
            format!("{}/{}", word(&quota["used"]), word(&quota["most"]))
        };
        let pinned =
            |what: &str| client["quotas"]["pinned_bytes"][what].as_u64().unwrap_or(0) >> 20;
        let _ = writeln!(
            text,
            "{:<7} {:<7} {:<8} {:<8} {:<8} {:<13} {:<12} {:<14} {:<17} {}/{}",
            word(&client["number"]),
            word(&client["uid"]),
            word(&client["pid"]),
            word(&client["uasid"]),
            word(&client["seconds"]),
            quota("jetties"),
            quota("jfcs"),
            quota("segments"),
            quota("work"),
            pinned("used"),
            pinned("most"),
        );
        for (kind, quota) in client["quotas"].as_object().into_iter().flatten() {
            if quota["refused"].as_u64().is_some_and(|count| count != 0) {
                let _ = writeln!(
                    text,
                    "        beyond its quota of {kind}: {}",
                    word(&quota["refused"])
                );
            }
        }
        if client["foreign_accesses"].as_u64().is_some_and(|count| count != 0) {
            let count = word(&client["foreign_accesses"]);
            let _ = writeln!(text, "        accesses to objects that it does not have: {count}");
        }
    }
    text
}

/// Longest wait for the daemon.
const BOUND: Duration = Duration::from_secs(5);
/// Most bytes of an answer that are taken.
const ANSWER_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    /// What `daemon` gives of a daemon that answers so, and what it was asked.
    fn asked(
        what: DaemonView,
        json: bool,
        answer: &'static str,
    ) -> (Result<String, String>, String) {
        let name = format!("urma-admin-daemon-{}", std::process::id());
        let socket = std::env::temp_dir().join(name);
        let listener = std::os::unix::net::UnixListener::bind(&socket).expect("a socket");
        let served = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("it asks");
            stream.set_read_timeout(Some(BOUND)).expect("a bound");
            let (mut request, mut byte) = (Vec::new(), [0]);
            while !request.ends_with(b"\r\n\r\n") && stream.read(&mut byte).expect("a request") == 1
            {
                request.push(byte[0]);
            }
            stream.write_all(answer.as_bytes()).expect("it reads");
            String::from_utf8(request).expect("text")
        });
        let said = daemon(&DaemonArgs { what, status: Some(socket.clone()) }, json);
        let request = served.join().expect("it was asked");
        std::fs::remove_file(&socket).expect("it is there");
        (said, request)
    }

    #[test]
    fn only_a_document_is_taken_for_one() {
        let ok = "HTTP/1.0 200 OK\r\nContent-Type: application/json\r\n\r\n{ \"pid\": 7 }";
        let (table, request) = asked(DaemonView::Status, false, ok);
        assert!(table.is_ok_and(|text| text.starts_with("ubcored ? pid 7 ")));
        assert_eq!(request, "GET /status HTTP/1.0\r\n\r\n");
        assert_eq!(asked(DaemonView::Status, true, ok).0.as_deref(), Ok("{ \"pid\": 7 }"));
        let metrics = "HTTP/1.0 200 OK\r\n\r\nurma_clients 3\n";
        let (text, request) = asked(DaemonView::Metrics, false, metrics);
        assert_eq!(
            (text.as_deref(), &*request),
            (Ok("urma_clients 3\n"), "GET /metrics HTTP/1.0\r\n\r\n")
        );
        for (answer, why) in [
            ("HTTP/1.0 403 Forbidden\r\n\r\n{ \"pid\": 7 }\n", "403 Forbidden: { \"pid\": 7 }"),
            ("HTTP/1.0 503 Busy\r\n\r\nlater", "503 Busy: later"),
            ("HTTP/1.0 200 OKAY\r\n\r\n{}", "200 OKAY"),
            ("{ \"pid\": 7 }", "invalid data"),
            ("", "invalid data"),
            ("HTTP/1.0 200 OK\r\n{ \"pid\": 7 }", "invalid data"),
            ("HTTP/1.0 200 OK\r\n\r\nurma_clients 3\n", "its document is none"),
            ("HTTP/1.0 200 OK\r\n\r\n", "its document is none"),
            ("HTTP/1.0 200 OK\r\n\r\n[7]", "its document is none"),
        ] {
            for json in [false, true] {
                let error = asked(DaemonView::Status, json, answer).0.expect_err(answer);
                assert!(
                    error.starts_with("the daemon at ") && error.contains(why),
                    "{answer}: {error}"
                );
            }
        }
    }

    #[test]
    fn a_table_shows_use_and_refusals_and_takes_any_document() {
        let document = serde_json::json!({
            "pid": 7, "eid": "127.1.2.3", "clients_max": 64, "refused": { "user": 2, "too_many": 0 },
            "clients": [{ "number": 0, "uid": 1000, "pid": 8, "foreign_accesses": 5, "quotas": {
                "jetties": { "used": 3, "most": 10, "refused": 1 },
                "pinned_bytes": { "used": 5 << 20, "most": 64 << 20, "refused": 0 },
            } }],
        });
        let text = table(&document);
        for part in [
            "eid 127.1.2.3: 1 of 64 clients",
            "refused connections, user: 2",
            "3/10",
            "5/64",
            "beyond its quota of jetties: 1",
            "it does not have: 5",
        ] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert!(!text.contains("too_many") && !text.contains("of pinned_bytes"), "{text}");
        for odd in [Value::Null, serde_json::json!({ "clients": 3, "refused": [] })] {
            assert!(table(&odd).contains("pinned MB"));
        }
    }
}
