//! A provider that writes down what reaches it and answers what the test asked for.

use std::{
    borrow::Cow,
    collections::BTreeSet,
    fs::File,
    os::fd::{AsFd, BorrowedFd},
    sync::{Arc, Mutex, MutexGuard},
    time::Duration,
};

use urma_core::{
    Arm, AsyncEvent, AsyncKind, AtomicFeatures, Completion, Context, Device, DeviceAttr,
    DeviceCaps, DeviceFeatures, DeviceId, Eid, HintPolicy, JettyState, JfcCfg, ModeSet, Path,
    PathKind, PostError, PostReason, QueueCfg, QueueStatus, RecvWr, SegmentCfg, SendOp, SendWr,
    StartPsns, Status, TargetId, Token, TokenId, TransportMode,
    ops::{
        self, AtomicDelta, CompletionQueue, ContextOps, EventOps, JfcControl, JfcParts,
        JfceControl, LikeLast, PathOps, QueueControl, QueueFactory, QueueParts, RecvQueue,
        RemoteSegmentId, SegmentOps, SendQueue, TransferDelta,
    },
};
use urma_mem::Region;

/// What reached the provider, and what it shall answer.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// One line per control call, in order.
    pub(crate) calls: Vec<String>,
    /// Contexts of the requests posted.
    pub(crate) posted: Vec<u64>,
    /// What differed in requests like the newest one.
    pub(crate) again: Vec<TransferDelta>,
    /// It carries out what is like the newest one.
    pub(crate) carries: bool,
    pub(crate) carried: Vec<TransferDelta>,
    pub(crate) atomics: Vec<AtomicDelta>,
    /// How many batches were posted.
    pub(crate) batches: usize,
    /// Requests that fit before the queue is full.
    pub(crate) room: usize,
    /// Calls that shall fail, by name.
    pub(crate) failing: Vec<(&'static str, Status)>,
    /// What the next polls give.
    pub(crate) completions: Vec<Completion>,
    /// Polls that find none of these, before one does.
    pub(crate) hidden_for: usize,
    /// What the next wait gives.
    pub(crate) events: Vec<u32>,
    /// Configuration of the last queue.
    pub(crate) last_queue: Option<QueueCfg>,
    /// The number before the next one.
    pub(crate) next_id: u32,
    live_tokens: BTreeSet<u32>,
}

#[derive(Debug, Clone)]
pub(crate) struct Recorder {
    book: Arc<Mutex<Book>>,
    eid: Eid,
    attr: DeviceAttr,
    null: Arc<File>,
}

pub(crate) const NODE: Eid = Eid::loopback(0x00_01_02_03);
pub(crate) const PEER: Eid = Eid::loopback(0x00_0a_0b_0c);

pub(crate) fn caps() -> DeviceCaps {
    DeviceCaps {
        features: DeviceFeatures::all() - DeviceFeatures::CTP,
        atomics: AtomicFeatures::all() - AtomicFeatures::FETCH_XOR,
        modes: ModeSet::all(),
        max_jfc_depth: 100,
        max_jfs_depth: 64,
        max_jfr_depth: 32,
        max_jfs_inline: 128,
        max_jfs_sge: 4,
        max_jfs_rsge: 2,
        max_jfr_sge: 3,
        max_jetty_in_grp: 2,
        max_msg_size: 8192,
        max_read_size: 2048,
        max_write_size: 3072,
        max_atomic_size: 8,
        max_um_size: 1024,
        ceq_cnt: 2,
        ..DeviceCaps::default()
    }
}

impl Recorder {
    pub(crate) fn new() -> Self {
        let book = Book { next_id: 1024, room: usize::MAX, ..Book::default() };
        let attr = DeviceAttr { caps: caps(), ..DeviceAttr::default() };
        let null = Arc::new(File::open("/dev/null").unwrap());
        Self { book: Arc::new(Mutex::new(book)), eid: NODE, attr, null }
    }

    pub(crate) fn with_caps(change: impl FnOnce(&mut DeviceCaps)) -> Self {
        let mut recorder = Self::new();
        change(&mut recorder.attr.caps);
        recorder
    }

    pub(crate) fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap()
    }

    pub(crate) fn open(&self) -> Context {
        Device::new(Arc::new(self.clone())).open(0).unwrap()
    }

    /// The next call of this name answers `status`, once.
    pub(crate) fn fail(&self, call: &'static str, status: Status) {
        self.book().failing.push((call, status));
    }

    pub(crate) fn calls(&self, name: &str) -> usize {
        self.book().calls.iter().filter(|call| call.as_str() == name).count()
    }

    fn call(&self, name: &'static str) -> Result<(), Status> {
        let mut book = self.book();
        book.calls.push(name.to_owned());
        let Some(at) = book.failing.iter().position(|(call, _)| *call == name) else {
            return Ok(());
        };
        Err(book.failing.remove(at).1)
    }

    fn post(&self, user_ctxs: impl Iterator<Item = u64>) -> Result<(), PostError> {
        let mut book = self.book();
        book.batches += 1;
        for (index, user_ctx) in user_ctxs.enumerate() {
            if book.room == 0 {
                return Err(PostError { index, reason: PostReason::Full });
            }
            book.room -= 1;
            book.posted.push(user_ctx);
        }
        Ok(())
    }
}

impl ops::DeviceOps for Recorder {
    fn id(&self) -> DeviceId {
        DeviceId { name: "rec0".to_owned(), ..DeviceId::default() }
    }
    fn attr(&self) -> Result<DeviceAttr, Status> {
        Ok(self.attr.clone())
    }
    fn eids(&self) -> Result<Vec<Eid>, Status> {
        self.call("eids")?;
        Ok(vec![self.eid, PEER])
    }
    fn open(&self, _: u32) -> Result<Arc<dyn ContextOps>, Status> {
        Ok(Arc::new(self.clone()))
    }
}

impl ContextOps for Recorder {
    fn eid(&self) -> Eid {
        self.eid
    }
    fn uasid(&self) -> u32 {
        7
    }
}

impl QueueFactory for Recorder {
    fn create_jfce(&self) -> Result<Arc<dyn JfceControl>, Status> {
        Ok(Arc::new(self.clone()))
    }
    fn create_jfc(&self, _: &JfcCfg, _: Option<&Arc<dyn JfceControl>>) -> Result<JfcParts, Status> {
        self.call("create_jfc")?;
        let mut book = self.book();
        book.next_id += 1;
        let (control, queue) = (Arc::new(self.clone()), Box::new(self.clone()));
        Ok(JfcParts { id: book.next_id, control, queue })
    }
    fn create_queue(&self, cfg: &QueueCfg) -> Result<QueueParts, Status> {
        self.call("create_queue")?;
        let mut book = self.book();
        book.next_id += 1;
        book.last_queue = Some(*cfg);
        let id = if cfg.id == 0 { book.next_id } else { cfg.id };
        let send = cfg.send.map(|_| Box::new(self.clone()) as Box<dyn SendQueue>);
        let recv = cfg.recv.map(|_| Box::new(self.clone()) as Box<dyn RecvQueue>);
        Ok(QueueParts { id, control: Arc::new(self.clone()), send, recv })
    }
    fn create_group(&self, id: u32, _: HintPolicy, _: Option<Token>) -> Result<u32, Status> {
        self.call("create_group")?;
        Ok(if id == 0 { 4096 } else { id })
    }
    fn delete_group(&self, _: u32) -> Result<(), Status> {
        self.call("delete_group")
    }
}

impl SendQueue for Recorder {
    fn post_send(&mut self, wrs: &[SendWr<'_>]) -> Result<(), PostError> {
        self.post(wrs.iter().map(|wr| wr.user_ctx))
    }

    fn execute_repeat(
        &mut self,
        user_ctx: u64,
        remote: u64,
        local: u64,
        len: u32,
        is_signalled: bool,
    ) -> bool {
        let mut book = self.book();
        if book.carries {
            book.carried.push(TransferDelta { local, remote, len, user_ctx, is_signalled });
        }
        book.carries
    }

    fn try_repeat(&mut self, repeats: LikeLast<'_>) -> usize {
        let mut book = self.book();
        let deltas = match repeats {
            LikeLast::Transfers(list) => list,
            LikeLast::Message(delta) => std::slice::from_ref(delta),
            LikeLast::Atomic(delta) => {
                if book.room != 0 {
                    book.atomics.push(*delta);
                }
                std::slice::from_ref(&delta.transfer)
            }
        };
        let posted = deltas.len().min(book.room);
        book.room -= posted;
        book.again.extend_from_slice(&deltas[..posted]);
        posted
    }
}

impl RecvQueue for Recorder {
    fn post_recv(&mut self, wrs: &[RecvWr<'_>]) -> Result<(), PostError> {
        self.post(wrs.iter().map(|wr| wr.user_ctx))
    }
}

impl CompletionQueue for Recorder {
    fn poll(&mut self, out: &mut [Completion]) -> Result<usize, Status> {
        self.call("poll")?;
        let mut book = self.book();
        if book.hidden_for > 0 {
            book.hidden_for -= 1;
            return Ok(0);
        }
        let count = out.len().min(book.completions.len());
        for (slot, completion) in out.iter_mut().zip(book.completions.drain(..count)) {
            *slot = completion;
        }
        Ok(count)
    }
    fn arm(&mut self, _: Arm) -> Result<(), Status> {
        self.call("arm")
    }
}

impl QueueControl for Recorder {
    fn modify(&self, _: JettyState) -> Result<(), Status> {
        self.call("modify")
    }
    fn set_rx_threshold(&self, _: u32) -> Result<(), Status> {
        self.call("threshold")
    }
    fn query(&self) -> Result<QueueStatus, Status> {
        let state = JettyState::Ready;
        Ok(QueueStatus { state, rx_threshold: 3, send_pending: 2, recv_pending: 1 })
    }
    fn bind(&self, _: &TargetId, _: Option<StartPsns>) -> Result<(), Status> {
        self.call("bind")
    }
    fn unbind(&self) -> Result<(), Status> {
        self.call("unbind")
    }
    fn flush(&self, _: &mut [Completion]) -> Result<usize, Status> {
        self.call("flush").map(|()| 5)
    }
    fn delete(&self) -> Result<(), Status> {
        self.call("delete_queue")
    }
}

impl JfcControl for Recorder {
    fn moderate(&self, _: u16, _: u16) -> Result<(), Status> {
        self.call("moderate")
    }
    fn delete(&self) -> Result<(), Status> {
        self.call("delete_jfc")
    }
}

impl JfceControl for Recorder {
    fn fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
    fn wait(&self, out: &mut [u32], _: Option<Duration>) -> Result<usize, Status> {
        let mut book = self.book();
        let count = out.len().min(book.events.len());
        for (slot, event) in out.iter_mut().zip(book.events.drain(..count)) {
            *slot = event;
        }
        Ok(count)
    }
    fn delete(&self) -> Result<(), Status> {
        self.call("delete_jfce")
    }
}

impl SegmentOps for Recorder {
    fn alloc_token_id(&self) -> Result<TokenId, Status> {
        self.call("alloc_token_id")?;
        let mut book = self.book();
        book.next_id += 1;
        Ok(TokenId::new(book.next_id << 8))
    }
    fn free_token_id(&self, token_id: TokenId) -> Result<(), Status> {
        self.call("free_token_id")?;
        assert!(!self.book().live_tokens.contains(&token_id.value()), "freed under a segment");
        Ok(())
    }
    fn register(
        &self,
        _: &Region,
        token_id: TokenId,
        _: u64,
        _: &SegmentCfg,
    ) -> Result<(), Status> {
        self.call("register")?;
        assert!(self.book().live_tokens.insert(token_id.value()), "registered twice");
        Ok(())
    }
    fn unregister(&self, token_id: TokenId) -> Result<(), Status> {
        self.call("unregister")?;
        assert!(self.book().live_tokens.remove(&token_id.value()), "never registered");
        Ok(())
    }
    fn map(&self, _: &Path, segment: &RemoteSegmentId) -> Result<Region, Status> {
        self.call("map")?;
        Region::private(usize::try_from(segment.len).unwrap()).map_err(|_| Status::NoMemory)
    }
}

impl PathOps for Recorder {
    fn connect(&self, eid: Eid, _: TransportMode) -> Result<Path, Status> {
        self.call("connect")?;
        Ok(Path { tpn: 1, eid, kind: PathKind::SameHost })
    }
    fn disconnect(&self, _: &Path) {
        self.book().calls.push("disconnect".to_owned());
    }
}

impl EventOps for Recorder {
    fn async_fd(&self) -> BorrowedFd<'_> {
        self.null.as_fd()
    }
    fn next_async(&self, _: Option<Duration>) -> Result<Option<AsyncEvent>, Status> {
        Ok(Some(AsyncEvent { kind: AsyncKind::JfrLimit, id: 9 }))
    }
    fn counters(&self) -> Result<Vec<(Cow<'static, str>, u64)>, Status> {
        Ok(vec![("posted".into(), self.book().posted.len() as u64)])
    }
}

/// Operations by name, to see that none is left out.
pub(crate) fn op_name(op: &SendOp<'_>) -> &'static str {
    match op {
        SendOp::Write { .. } => "write",
        SendOp::WriteImm { .. } => "write_imm",
        SendOp::WriteNotify { .. } => "write_notify",
        SendOp::WriteAtomic { .. } => "write_atomic",
        SendOp::Read { .. } => "read",
        SendOp::Cas { .. } => "cas",
        SendOp::Swap { .. } => "swap",
        SendOp::FetchAdd { .. } => "fetch_add",
        SendOp::FetchSub { .. } => "fetch_sub",
        SendOp::FetchAnd { .. } => "fetch_and",
        SendOp::FetchOr { .. } => "fetch_or",
        SendOp::FetchXor { .. } => "fetch_xor",
        SendOp::Send { .. } => "send",
        SendOp::SendImm { .. } => "send_imm",
        SendOp::SendInvalidate { .. } => "send_invalidate",
        SendOp::Nop => "nop",
        SendOp::FlushDma => "flush_dma",
    }
}
