//! A controller's state in etcd, and which of several controllers is in charge of it.
//!
//! - takes: endpoints of etcd, the name of a controller. gives: a store, once this controller is in charge.
//! - must not: store anything of a controller that is not in charge any more.
//!
//! In charge is who made the key `PREFIX/leader`; etcd deletes it five seconds after the last sign of life of its maker. Each
//! write of state is a transaction that looks whether the key is still the one that was made, so a controller that stood
//! still overwrites nothing of its successor. The state lies in pieces, as etcd takes no request above 1.5 MiB:
//! `PREFIX/state/GENERATION/NUMBER`; the key `PREFIX/head` says which generation counts, and of how many pieces it is.

use std::io;
use std::sync::mpsc as blocking;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::Instant;
use tonic::Status;
use tonic::transport::{Certificate, Channel, ClientTlsConfig, Endpoint, Identity};

use super::TlsIdentity;
use super::etcdserverpb::compare::CompareTarget;
use super::etcdserverpb::kv_client::KvClient;
use super::etcdserverpb::lease_client::LeaseClient;
use super::etcdserverpb::request_op::Request;
use super::etcdserverpb::{
    Compare, DeleteRangeRequest, LeaseGrantRequest, LeaseKeepAliveRequest, LeaseRevokeRequest,
    PutRequest, RangeRequest, RequestOp, TxnRequest, TxnResponse,
};
use super::{RuntimeError, runtime};
use crate::store::ControllerStore;

/// Seconds after the last sign of life of who is in charge until another one may be.
const LEASE: i64 = 5;
/// Between two signs of life.
const BEAT: Duration = Duration::from_secs(1);
/// A request that takes longer has failed.
const REQUEST: Duration = Duration::from_secs(2);
/// Between two looks at who is in charge, and two attempts to reach etcd.
const LOOK: Duration = Duration::from_millis(250);
/// A store waits so long for its thread: several requests.
const STORE: Duration = Duration::from_secs(10);
/// Bytes of a piece of state.
const PIECE: usize = 1 << 20;

/// Where the state lies, and who wants to be in charge of it.
#[derive(Debug, Clone)]
pub struct EtcdCfg {
    /// Where etcd waits for clients: `http://HOST:PORT`, or `https` with certificates.
    pub endpoints: Vec<String>,
    /// Keys begin with it: one for each set of controllers that replace each other.
    pub prefix: String,
    /// What others are shown of this controller: where hosts find it.
    pub name: String,
    /// By which both sides prove who they are; `None`: without TLS.
    pub tls: Option<TlsIdentity>,
}

/// Why a controller does not look who is in charge.
#[derive(Debug, thiserror::Error)]
pub enum EtcdError {
    /// An address of etcd that cannot be one, or certificates.
    #[error("{endpoint:?} is no address of etcd, such as http://127.0.0.1:2379: {why}")]
    Endpoint {
        /// The address that was given.
        endpoint: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no thread.
    #[error(transparent)]
    Runtime(#[from] RuntimeError),
}

/// One of several controllers that would be in charge.
#[derive(Debug)]
pub struct EtcdElection {
    view: Arc<ElectionView>,
    jobs: mpsc::UnboundedSender<EtcdJob>,
    elected: blocking::Receiver<()>,
    thread: JoinHandle<()>,
}

/// The state of the controller that is in charge. Dropped, the next one may be.
#[derive(Debug)]
pub struct EtcdStore {
    view: Arc<ElectionView>,
    jobs: Option<mpsc::UnboundedSender<EtcdJob>>,
    thread: Option<JoinHandle<()>>,
}

/// What other threads may know.
#[derive(Debug, Default)]
struct ElectionView {
    leader: Mutex<Option<String>>,
    lost: Mutex<Option<String>>,
}

#[derive(Debug)]
enum EtcdJob {
    Save(Vec<u8>, blocking::Sender<io::Result<()>>),
    Load(blocking::Sender<io::Result<Option<Vec<u8>>>>),
}

/// The services of etcd that are needed.
struct Etcd {
    keys: KvClient<Channel>,
    leases: LeaseClient<Channel>,
}

/// What being in charge consists of.
struct Leadership {
    etcd: Etcd,
    prefix: String,
    lease: i64,
    /// When the key was made: another one's has another.
    revision: i64,
    generation: u64,
    last_beat: Instant,
}

impl EtcdCfg {
    fn endpoints(&self) -> Result<Vec<Endpoint>, EtcdError> {
        let endpoint = |at: &String| {
            let found = Endpoint::from_shared(at.clone()).and_then(|endpoint| {
                let endpoint = endpoint.connect_timeout(REQUEST).timeout(REQUEST);
                let Some(tls) = &self.tls else { return Ok(endpoint) };
                endpoint.tls_config(
                    ClientTlsConfig::new()
                        .ca_certificate(Certificate::from_pem(&tls.authorities))
                        .identity(Identity::from_pem(&tls.certificate, &tls.key)),
                )
            });
            let why = match found {
                Ok(endpoint) if endpoint.uri().scheme().is_some() => return Ok(endpoint),
                Ok(_) => "it has no http:// or https://".to_owned(),
                Err(error) => error.to_string(),
            };
            Err(EtcdError::Endpoint { endpoint: at.clone(), why })
        };
        self.endpoints.iter().map(endpoint).collect()
    }
}

impl ElectionView {
    fn leader(&self) -> MutexGuard<'_, Option<String>> {
        self.leader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lost(&self) -> MutexGuard<'_, Option<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EtcdElection {
    /// Begins to look who is in charge, in a thread of its own, until this one is. An etcd that does not answer is waited
    /// for.
    ///
    /// # Errors
    /// [`EtcdError`].
    pub fn start(cfg: EtcdCfg) -> Result<Self, EtcdError> {
        cfg.endpoints()?;
        let (jobs, receiver) = mpsc::unbounded_channel();
        let (sender, elected) = blocking::channel();
        let view = Arc::<ElectionView>::default();
        let (of_thread, runtime) = (Arc::clone(&view), runtime()?);
        let run = move || runtime.block_on(run(cfg, &of_thread, receiver, &sender));
        let thread = std::thread::Builder::new().name("inc-etcd".to_owned()).spawn(run);
        let thread = thread.map_err(RuntimeError::from)?;
        Ok(Self { view, jobs, elected, thread })
    }

    /// Who is in charge, as far as it is known: a function that other threads may call.
    pub fn leader(&self) -> impl Fn() -> Option<String> + Send + Sync + 'static {
        let view = Arc::clone(&self.view);
        move || view.leader().clone()
    }

    /// Waits until this controller is in charge.
    ///
    /// # Errors
    /// The thread ended.
    pub fn wait(self) -> io::Result<EtcdStore> {
        self.elected.recv().map_err(|_| io::Error::other("the thread for etcd ended"))?;
        Ok(EtcdStore { view: self.view, jobs: Some(self.jobs), thread: Some(self.thread) })
    }
}

impl EtcdStore {
    fn ask<T>(&self, job: EtcdJob, answer: &blocking::Receiver<io::Result<T>>) -> io::Result<T> {
        let ended = || io::Error::other("etcd did not answer");
        self.jobs.as_ref().ok_or_else(ended)?.send(job).map_err(|_| ended())?;
        answer.recv_timeout(STORE).map_err(|_| ended())?
    }
}

impl ControllerStore for EtcdStore {
    fn save(&mut self, state: &[u8]) -> io::Result<()> {
        let (reply, answer) = blocking::channel();
        self.ask(EtcdJob::Save(state.to_vec(), reply), &answer)
    }

    fn load(&mut self) -> io::Result<Option<Vec<u8>>> {
        let (reply, answer) = blocking::channel();
        self.ask(EtcdJob::Load(reply), &answer)
    }

    fn lost(&self) -> Option<String> {
        self.view.lost().clone()
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

async fn run(
    cfg: EtcdCfg,
    view: &ElectionView,
    mut jobs: mpsc::UnboundedReceiver<EtcdJob>,
    elected: &blocking::Sender<()>,
) {
    let mut leadership = loop {
        // Who would be in charge is gone.
        if jobs.is_closed() {
            return;
        }
        match campaign(&cfg, view).await {
            Ok(Some(leadership)) => break leadership,
            Ok(None) => {}
            Err(error) => tracing::warn!(endpoints = ?cfg.endpoints, "etcd: {error}"),
        }
        tokio::time::sleep(LOOK).await;
    };
    *view.leader() = Some(cfg.name);
    if elected.send(()).is_err() {
        return leadership.end().await;
    }
    let mut beats = tokio::time::interval(BEAT);
    loop {
        tokio::select! {
            job = jobs.recv() => match job {
                None => break,
                Some(EtcdJob::Save(state, reply)) => {
                    let result = leadership.save(&state).await;
                    if let Err(SaveError::Lost) = &result {
                        *view.lost() = Some(LOST.to_owned());
                    }
                    let _ = reply.send(result.map_err(io::Error::other));
                }
                Some(EtcdJob::Load(reply)) => {
                    let _ = reply.send(leadership.load().await.map_err(io::Error::other));
                }
            },
            _ = beats.tick() => if let Err(why) = leadership.beat().await {
                tracing::warn!("etcd: {why}");
            },
        }
        if leadership.is_over() {
            view.lost().get_or_insert_with(|| LOST.to_owned());
        }
    }
    leadership.end().await;
}

const LOST: &str =
    "another controller may be in charge: etcd had no sign of life of this one in time";

/// Why state was not stored.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error("{LOST}")]
    Lost,
    #[error("{0}")]
    Failed(String),
}

/// One look: this one is in charge now, or another one is.
async fn campaign(cfg: &EtcdCfg, view: &ElectionView) -> Result<Option<Leadership>, String> {
    let mut etcd = Etcd::of(cfg).map_err(|error| error.to_string())?;
    let key = format!("{}/leader", cfg.prefix);
    if let Some(leader) = etcd.get(&key).await? {
        *view.leader() = Some(String::from_utf8_lossy(&leader).into_owned());
        return Ok(None);
    }
    let granted = Instant::now();
    let lease = etcd.leases.lease_grant(LeaseGrantRequest { ttl: LEASE }).await;
    let lease = lease.map_err(said)?.into_inner().id;
    let put = Request::RequestPut(PutRequest {
        key: key.clone().into(),
        value: cfg.name.clone().into(),
        lease,
    });
    let made = etcd.write(&key, 0, vec![put]).await?;
    if !made.succeeded {
        // Another one was faster; the lease ends by itself.
        return Ok(None);
    }
    let revision = made.header.map_or(0, |header| header.revision);
    let (prefix, last_beat) = (cfg.prefix.clone(), granted);
    let mut leadership = Leadership { etcd, prefix, lease, revision, generation: 0, last_beat };
    leadership.generation = leadership.head().await?.map_or(0, |(generation, _)| generation);
    Ok(Some(leadership))
}

fn said(status: Status) -> String {
    format!("{:?}: {}", status.code(), status.message())
}

impl Etcd {
    /// Connections are made when they are needed, to any endpoint that answers.
    fn of(cfg: &EtcdCfg) -> Result<Self, EtcdError> {
        let channel = Channel::balance_list(cfg.endpoints()?.into_iter());
        // A piece and what is around it.
        let keys = KvClient::new(channel.clone()).max_decoding_message_size(2 * PIECE);
        Ok(Self { keys, leases: LeaseClient::new(channel) })
    }

    async fn get(&mut self, key: &str) -> Result<Option<Vec<u8>>, String> {
        let found = self.keys.range(RangeRequest { key: key.into() }).await.map_err(said)?;
        Ok(found.into_inner().kvs.pop().map(|found| found.value))
    }

    /// Writes, if a key was made in this revision.
    async fn write(
        &mut self,
        key: &str,
        create_revision: i64,
        writes: Vec<Request>,
    ) -> Result<TxnResponse, String> {
        let target = CompareTarget::Create.into();
        let compare = vec![Compare { target, key: key.into(), create_revision }];
        let success = writes.into_iter().map(|of| RequestOp { request: Some(of) }).collect();
        let written = self.keys.txn(TxnRequest { compare, success }).await;
        Ok(written.map_err(said)?.into_inner())
    }
}

impl Leadership {
    fn key(&self, of: &str) -> String {
        format!("{}/{of}", self.prefix)
    }

    /// Whether another one may be in charge.
    fn is_over(&self) -> bool {
        self.last_beat.elapsed() >= Duration::from_secs(LEASE.unsigned_abs())
    }

    async fn beat(&mut self) -> Result<(), String> {
        let sent = Instant::now();
        let beat = tokio_stream::once(LeaseKeepAliveRequest { id: self.lease });
        let answers = self.etcd.leases.lease_keep_alive(beat).await.map_err(said)?;
        let mut answers = answers.into_inner();
        let answer = tokio::time::timeout(REQUEST, answers.message()).await;
        let answer = answer.map_err(|_| "no answer to a sign of life")?.map_err(said)?;
        if answer.is_some_and(|answer| answer.ttl > 0) {
            self.last_beat = sent;
        }
        Ok(())
    }

    /// Generation and pieces of the state that counts.
    async fn head(&mut self) -> Result<Option<(u64, usize)>, String> {
        let Some(head) = self.etcd.get(&self.key("head")).await? else { return Ok(None) };
        let text = String::from_utf8_lossy(&head).into_owned();
        let parts =
            text.split_once(' ').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        parts.map(Some).ok_or_else(|| format!("{} is {text:?}", self.key("head")))
    }

    async fn load(&mut self) -> Result<Option<Vec<u8>>, String> {
        let Some((generation, pieces)) = self.head().await? else { return Ok(None) };
        let mut state = Vec::new();
        for piece in 0..pieces {
            let key = self.key(&format!("state/{generation}/{piece}"));
            let found = self.etcd.get(&key).await?;
            state.extend(found.ok_or_else(|| format!("{key} is missing"))?);
        }
        Ok(Some(state))
    }

    async fn save(&mut self, state: &[u8]) -> Result<(), SaveError> {
        let (old, new) = (self.generation, self.generation + 1);
        let pieces: Vec<_> = state.chunks(PIECE).collect();
        let count = pieces.len();
        for (number, piece) in pieces.into_iter().enumerate() {
            let key = self.key(&format!("state/{new}/{number}")).into();
            let put = PutRequest { key, value: piece.to_vec(), lease: 0 };
            self.write(vec![Request::RequestPut(put)]).await?;
        }
        // All pieces are there: from now on they count. Those before go: "0" is what follows "/".
        let [from, to] = ["/", "0"].map(|end| self.key(&format!("state/{old}{end}")).into());
        let head = format!("{new} {count}").into();
        let head = PutRequest { key: self.key("head").into(), value: head, lease: 0 };
        let delete = DeleteRangeRequest { key: from, range_end: to };
        let writes = vec![Request::RequestPut(head), Request::RequestDeleteRange(delete)];
        self.write(writes).await?;
        self.generation = new;
        Ok(())
    }

    /// Writes, if this one is in charge.
    async fn write(&mut self, writes: Vec<Request>) -> Result<(), SaveError> {
        let key = self.key("leader");
        let written = self.etcd.write(&key, self.revision, writes).await;
        match written.map_err(SaveError::Failed)?.succeeded {
            true => Ok(()),
            false => Err(SaveError::Lost),
        }
    }

    /// The next one may be in charge at once.
    async fn end(mut self) {
        let revoke = LeaseRevokeRequest { id: self.lease };
        if let Err(status) = self.etcd.leases.lease_revoke(revoke).await {
            tracing::debug!("etcd: the lease ends by itself: {}", said(status));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};
    use std::process::{Child, Command, Stdio};

    use super::*;

    /// etcd, until this value goes.
    struct EtcdProcess(Child, std::path::PathBuf, String);

    impl EtcdProcess {
        fn start() -> Self {
            let folder = std::env::temp_dir().join(format!("inc-etcd-{}", std::process::id()));
            std::fs::create_dir_all(&folder).unwrap();
            let port = || {
                let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
                format!("http://127.0.0.1:{}", listener.local_addr().unwrap().port())
            };
            let (clients, peers) = (port(), port());
            let child = Command::new("etcd")
                .arg("--data-dir")
                .arg(&folder)
                .args(["--listen-client-urls", &clients, "--advertise-client-urls", &clients])
                .args(["--listen-peer-urls", &peers, "--initial-advertise-peer-urls", &peers])
                .args(["--initial-cluster", &format!("default={peers}")])
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("etcd (Debian: etcd-server) is missing");
            Self(child, folder, clients)
        }
    }

    impl Drop for EtcdProcess {
        fn drop(&mut self) {
            let _ = self.0.kill();
            let _ = self.0.wait();
            let _ = std::fs::remove_dir_all(&self.1);
        }
    }

    async fn in_charge(cfg: &EtcdCfg) -> Leadership {
        let view = ElectionView::default();
        for _ in 0..240 {
            match campaign(cfg, &view).await {
                Ok(Some(leadership)) => return leadership,
                Ok(None) => panic!("{:?} is in charge", view.leader()),
                // It starts.
                Err(_) => tokio::time::sleep(LOOK).await,
            }
        }
        panic!("no etcd at {:?}", cfg.endpoints);
    }

    #[test]
    fn an_address_that_cannot_be_one_is_named_at_once() {
        for at in ["nonsense", "127.0.0.1:2379", "http://a b", ""] {
            let cfg = EtcdCfg {
                endpoints: vec!["http://127.0.0.1:2379".to_owned(), at.to_owned()],
                prefix: "test".to_owned(),
                name: "first".to_owned(),
                tls: None,
            };
            let error = EtcdElection::start(cfg).unwrap_err().to_string();
            assert!(error.starts_with(&format!("{at:?} is no address of etcd")), "{error}");
        }
    }

    #[test]
    fn who_is_not_in_charge_any_more_writes_nothing() {
        let etcd = EtcdProcess::start();
        let cfg = EtcdCfg {
            endpoints: vec![etcd.2.clone()],
            prefix: "test".to_owned(),
            name: "first".to_owned(),
            tls: None,
        };
        runtime().unwrap().block_on(async {
            let mut first = in_charge(&cfg).await;
            assert_eq!(first.load().await.unwrap(), None);
            // Several pieces, then fewer, then none: what was before does not count.
            let large: Vec<u8> = (0..=250).cycle().take(5 * PIECE / 2).collect();
            for state in [&large[..], b"small", b""] {
                first.save(state).await.unwrap();
                assert_eq!(first.load().await.unwrap().as_deref(), Some(state));
            }
            first.save(&large).await.unwrap();
            first.beat().await.unwrap();
            assert!(!first.is_over());
            // While it is in charge, no other one is.
            let second = EtcdCfg { name: "second".to_owned(), ..cfg.clone() };
            let view = ElectionView::default();
            assert!(campaign(&second, &view).await.unwrap().is_none());
            assert_eq!(view.leader().as_deref(), Some("first"));
            // Its lease ends without its knowledge.
            let lease = LeaseRevokeRequest { id: first.lease };
            first.etcd.leases.lease_revoke(lease).await.unwrap();
            let mut second = in_charge(&second).await;
            assert_eq!(second.load().await.unwrap().as_deref(), Some(&large[..]));
            assert!(matches!(first.save(b"old").await, Err(SaveError::Lost)));
            assert!(matches!(first.save(&large).await, Err(SaveError::Lost)));
            let seen = first.last_beat;
            first.beat().await.unwrap();
            assert_eq!(first.last_beat, seen, "a lease that ended shows no life");
            assert_eq!(second.load().await.unwrap().as_deref(), Some(&large[..]));
            second.save(b"new").await.unwrap();
            assert_eq!(second.load().await.unwrap().as_deref(), Some(&b"new"[..]));
            // One that ends in order leaves its place at once.
            second.end().await;
            in_charge(&cfg).await.end().await;
        });
    }
}
