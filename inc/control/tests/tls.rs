//! A controller with certificates: only those with one of the same authority are served.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use inc::controller::ControllerCfg;
use inc::topology::PhysicalMap;
use inc_control::{
    ControllerServer, ControllerServerCfg, ControllerTool, HostSession, HostSessionCfg,
    MemoryStore, TlsIdentity,
};

fn openssl(folder: &Path, args: &str) {
    let mut command = Command::new("openssl");
    let output = command.args(args.split(' ')).current_dir(folder).output().unwrap();
    assert!(output.status.success(), "openssl {args}: {output:?}");
}

/// An authority, and a certificate of it for loopback.
fn identity(folder: &Path, name: &str) -> TlsIdentity {
    let folder = folder.join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let key = "-newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2";
    openssl(&folder, &format!("req -x509 {key} -keyout ca.key -out ca.pem -subj /CN={name}"));
    let name = "-subj /CN=127.0.0.1 -addext subjectAltName=IP:127.0.0.1";
    openssl(
        &folder,
        &format!(
            "req -x509 {key} -keyout key.pem -out cert.pem {name} -CA ca.pem -CAkey ca.key \
                  -addext basicConstraints=critical,CA:FALSE"
        ),
    );
    let read = |file: &str| std::fs::read_to_string(folder.join(file)).unwrap();
    TlsIdentity { authorities: read("ca.pem"), certificate: read("cert.pem"), key: read("key.pem") }
}

#[test]
fn callers_without_a_certificate_of_the_authority_are_refused() {
    let folder = std::env::temp_dir().join(format!("inc-tls-{}", std::process::id()));
    let [ours, foreign] = ["ours", "foreign"].map(|name| identity(&folder, name));
    let any = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let server = ControllerServer::start(ControllerServerCfg {
        controller: ControllerCfg::new(),
        map: PhysicalMap::default(),
        hosts: any,
        switches: any,
        store: Box::new(MemoryStore),
        tls: Some(ours.clone()),
    })
    .unwrap();
    let list = |tls: Option<&TlsIdentity>| {
        ControllerTool::connect(server.hosts(), tls).and_then(|mut tool| tool.list(None))
    };
    assert!(list(Some(&ours)).is_ok());
    assert!(list(None).is_err());
    // It knows the server's authority, but its own certificate is of another one.
    let mixed = TlsIdentity { authorities: ours.authorities.clone(), ..foreign.clone() };
    assert!(list(Some(&mixed)).is_err());
    // It does not believe this server.
    assert!(list(Some(&foreign)).is_err());
    let cfg = HostSessionCfg {
        controller: server.hosts(),
        others: Vec::new(),
        group: "job".to_owned(),
        world_size: 1,
        rank: 0,
        address: IpAddr::V4(Ipv4Addr::LOCALHOST),
        tenant: 0,
        secret: None,
        wait: Duration::from_secs(20),
        tls: Some(ours),
    };
    assert!(HostSession::join(cfg.clone()).is_ok());
    let short = HostSessionCfg { wait: Duration::from_millis(300), tls: Some(mixed), ..cfg };
    assert!(HostSession::join(short).is_err());
    std::fs::remove_dir_all(&folder).unwrap();
}
