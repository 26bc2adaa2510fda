//! A driver on a bench: raw registers, rings and memory, for unit tests of the device.
//!
//! *Owns*: memory of one node, its rings, what a driver would do with them. *Takes*: requests.
//! *Gives*: completions. *Must not*: look inside the device.

mod carry;
mod commands;
mod completions;
mod contexts;
mod fences;
mod functions;
mod hostile;
mod lane;
mod paths;
mod polls;
mod priority;
mod queues;
mod requests;
mod scene;
mod shares;
mod slots;
mod withdrawals;

use std::sync::{Arc, Mutex};

use udma_abi::{
    CmdStatus, Cqe, DmaAccess, Eqe, Nanos, RawEid, Sge, Sqe,
    cmd::{
        Access, CMD_WORDS, CmdQueueKind, Command, CreateQueue, Mode, NONE, QueueFlags, RSP_WORDS,
        RegisterSeg, Response, RqArgs, SqArgs, response_owner,
    },
    cqe, doorbell,
    doorbell::{CqArm, JfcDoorbell},
    eqe, regs, rqe,
    sqe::{BLOCK_LEN, BLOCK_WORDS, SQE_WORDS_MAX, SqeFlags, control_len},
};
use urma_mem::Region;
use urma_mem::idle::IdleSnapshot;
use urma_mem::procvm::ProcessMemory;
use urma_mem::sync::{AtomicU64, Ordering};

use crate::device::DeviceFunction;
use crate::host::peer::KernelReads;
use crate::nic::NicModel;
use crate::ports::{Interrupt, MemoryHost, SameHostParts, SharedExtent, SharedMemory, Wake};
use crate::share;
use crate::{DeviceCfg, Ports, SoftwareDevice};

/// Bytes of a node's arena; test memory is taken from it.
const ARENA: usize = 64 << 20;
/// Entries of the command rings.
const COMMANDS: u32 = 16;

/// Counts raises of all vectors.
#[derive(Debug, Default)]
pub(crate) struct Raises(AtomicU64);

impl Raises {
    pub(crate) fn count(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }
}

impl Interrupt for Raises {
    fn raise(&self, _vector: u16) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

/// Which part of a registration in the arena is shared.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Sharing {
    /// The whole memory of the node.
    Whole,
    /// These pieces: offset in the registration and length, in bytes.
    Pieces(&'static [(u64, u64)]),
}

/// Shares what lies in the arena.
#[derive(Debug)]
struct BenchMemory {
    arena: Region,
    sharing: Sharing,
}

impl MemoryHost for BenchMemory {
    fn share(&self, _key: u32, region: &Region) -> SharedMemory {
        if !self.arena.contains(region.addr(), region.len()) {
            return SharedMemory::default();
        }
        let (va, len) = (region.addr() as u64, region.len() as u64);
        let offset = va - self.arena.addr() as u64;
        let extents = match self.sharing {
            Sharing::Whole => vec![SharedExtent { va, len, offset }],
            Sharing::Pieces(pieces) => {
                let piece = |&(at, len)| SharedExtent { va: va + at, len, offset: offset + at };
                pieces.iter().map(piece).collect()
            }
        };
        SharedMemory { extents, file: None }
    }

    fn unshare(&self, _key: u32) {}
}

#[derive(Debug)]
struct NoWake;

impl Wake for NoWake {
    fn wake(&self) {}

    fn is_gone(&self) -> bool {
        false
    }
}

/// A node with its driver.
#[derive(Debug)]
pub(crate) struct Bench {
    pub(crate) dev: Arc<SoftwareDevice>,
    pub(crate) function: Arc<DeviceFunction>,
    pub(crate) raises: Arc<Raises>,
    pub(crate) now: Nanos,
    /// Direct entries go to the doorbell that was found.
    pub(crate) carries: bool,
    /// Queue and block of the newest entry that was handed over and carried.
    carried: Mutex<Option<(u32, [u64; BLOCK_WORDS])>>,
    arena: Region,
    used: usize,
    iova: u64,
    commands: Region,
    responses: Region,
    posted: u32,
    answered: u32,
    /// Of the polls of [`polls`].
    idle: Mutex<IdleSnapshot>,
}

/// A completion queue as its driver sees it.
#[derive(Debug)]
pub(crate) struct BenchJfc {
    pub(crate) id: u32,
    ring: Region,
    depth: u32,
    ci: u32,
    arm_sn: u8,
}

/// A queue as its driver sees it.
#[derive(Debug)]
pub(crate) struct BenchQueue {
    pub(crate) id: u32,
    pub(crate) record: Region,
    ring: Region,
    log2: u32,
    pub(crate) pi: u32,
    rq: Region,
    rq_stride: usize,
    rq_mask: u32,
    rq_pi: u32,
}

/// Memory of the bench, registered as a segment of the device.
#[derive(Clone, Debug)]
pub(crate) struct BenchSeg {
    pub(crate) token_id: u32,
    pub(crate) token: u32,
    pub(crate) va: u64,
    pub(crate) iova: u64,
    pub(crate) mem: Region,
}

impl BenchSeg {
    /// The piece of `len` bytes at `offset`.
    pub(crate) fn sge(&self, offset: u64, len: u32) -> Sge {
        Sge { len, token_id: self.token_id, va: self.va + offset }
    }

    pub(crate) fn bytes(&self, offset: usize, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.mem.read(offset, &mut bytes).unwrap();
        bytes
    }
}

/// Two nodes that know each other's memory.
pub(crate) fn pair() -> (Bench, Bench) {
    pair_with(|_| {})
}

/// Two nodes that know each other's memory, both with a changed configuration.
pub(crate) fn pair_with(change: impl Fn(&mut DeviceCfg)) -> (Bench, Bench) {
    pair_sharing(Sharing::Whole, KernelReads::Off, change)
}

/// Two nodes that know each other's memory, which is shared in the given way.
pub(crate) fn pair_sharing(
    sharing: Sharing,
    kernel_reads: KernelReads,
    change: impl Fn(&mut DeviceCfg),
) -> (Bench, Bench) {
    join([1, 2].map(|number| Bench::new(number, sharing, &change)), kernel_reads)
}

/// Two nodes that know each other's memory, with a model of a NIC in each.
pub(crate) fn pair_plugged(nics: [Arc<dyn NicModel>; 2]) -> (Bench, Bench) {
    let [a, b] = nics;
    let with = |number, nic| Bench::plugged(number, Sharing::Whole, &|_| {}, Some(nic));
    join([with(1, a), with(2, b)], KernelReads::Off)
}

/// Lets two nodes know each other's memory.
fn join([a, b]: [Bench; 2], kernel_reads: KernelReads) -> (Bench, Bench) {
    let ring_len = a.dev.cfg().ring_len;
    let half = || Region::private(share::half_len(ring_len)).unwrap();
    let halves = [half(), half()];
    for (me, peer, mine, theirs) in [(&a, &b, 0, 1), (&b, &a, 1, 0)] {
        let parts = SameHostParts {
            peer_node: peer.dev.node_region().clone(),
            peer_arena: peer.arena.clone(),
            my_half: halves[mine].clone(),
            peer_half: halves[theirs].clone(),
            wake: Arc::new(NoWake),
            process: match kernel_reads {
                KernelReads::Probe => Some(own_process(peer.dev.node_region())),
                KernelReads::Off => None,
            },
            files: None,
        };
        me.dev.on_same_host_peer(0, peer.eid(), parts);
    }
    (a, b)
}

/// This process, read through the kernel.
fn own_process(node: &Region) -> ProcessMemory {
    let witness = node.sub(0, 40).unwrap();
    ProcessMemory::open(std::process::id(), node.addr() as u64, witness).unwrap()
}

pub(crate) fn eid(number: u8) -> RawEid {
    let mut eid = [0; 16];
    eid[15] = number;
    RawEid(eid)
}

impl Bench {
    pub(crate) fn new(number: u8, sharing: Sharing, change: &impl Fn(&mut DeviceCfg)) -> Self {
        Self::plugged(number, sharing, change, None)
    }

    /// A device with a model of a NIC.
    fn plugged(
        number: u8,
        sharing: Sharing,
        change: &impl Fn(&mut DeviceCfg),
        nic: Option<Arc<dyn NicModel>>,
    ) -> Self {
        let raises = Arc::new(Raises::default());
        let arena = Region::private(ARENA).unwrap();
        let ports = Ports {
            interrupt: Arc::<Raises>::clone(&raises),
            memory: Arc::new(BenchMemory { arena: arena.clone(), sharing }),
            node_region: Region::private(share::NODE_LEN).unwrap(),
            routes: None,
            nic,
        };
        let mut cfg = DeviceCfg::new(eid(number), 7, 1);
        change(&mut cfg);
        let dev = SoftwareDevice::new(cfg, ports);
        let function = Arc::clone(dev.first_function());
        Self::over(dev, function, (raises, arena))
    }

    /// The driver of a function.
    fn over(
        dev: Arc<SoftwareDevice>,
        function: Arc<DeviceFunction>,
        (raises, arena): (Arc<Raises>, Region),
    ) -> Self {
        let zero = Region::private(64).unwrap();
        let mut bench = Self {
            dev,
            function,
            raises,
            carries: false,
            carried: Mutex::default(),
            now: 0,
            arena,
            used: 0,
            iova: 1 << 20,
            commands: zero.clone(),
            responses: zero,
            posted: 0,
            answered: 0,
            idle: Mutex::default(),
        };
        bench.start();
        bench
    }

    pub(crate) fn eid(&self) -> RawEid {
        self.dev.cfg().eid
    }

    /// Sets the command rings up and enables the device.
    pub(crate) fn start(&mut self) {
        let (commands, base) = self.map(COMMANDS as usize * CMD_WORDS * 8);
        let (responses, rsp_base) = self.map(COMMANDS as usize * RSP_WORDS * 8);
        (self.commands, self.responses) = (commands, responses);
        (self.posted, self.answered) = (0, 0);
        self.dev.write64(|| 0, &self.function, (regs::CMD_BASE, base));
        self.dev.write64(|| 0, &self.function, (regs::RSP_BASE, rsp_base));
        self.dev.write32(|| 0, &self.function, (regs::CMD_DEPTH, COMMANDS));
        self.dev.write32(|| 0, &self.function, (regs::CONTROL, regs::control::ENABLE));
        let ready = u64::from(regs::status::READY);
        assert_eq!(self.dev.read(&self.function, regs::STATUS), ready);
    }

    /// Zeroed memory of the arena.
    pub(crate) fn alloc(&mut self, len: usize) -> Region {
        let len = len.next_multiple_of(4096);
        let region = self.arena.sub(self.used, len).unwrap();
        self.used += len;
        region
    }

    /// Memory that the device can reach, and its device address.
    pub(crate) fn map(&mut self, len: usize) -> (Region, u64) {
        let region = self.alloc(len);
        let base = self.map_region(&region);
        (region, base)
    }

    pub(crate) fn map_region(&mut self, region: &Region) -> u64 {
        let base = self.iova;
        self.iova += (region.len() as u64).next_multiple_of(4096) + 4096;
        self.function.dma_map(base, region, DmaAccess::Both).unwrap();
        base
    }

    /// Posts a command without waiting.
    pub(crate) fn submit(&mut self, command: Command) -> u32 {
        let sequence = self.posted;
        let at = (self.posted % COMMANDS) as usize * CMD_WORDS * 8;
        self.commands.store_block(at, &command.encode(sequence)).unwrap();
        self.posted += 1;
        self.dev.write32(|| self.now, &self.function, (regs::CMD_PI, self.posted));
        sequence
    }

    /// The next response, if there is one.
    pub(crate) fn response(&mut self) -> Option<Response> {
        let at = (self.answered % COMMANDS) as usize * RSP_WORDS * 8;
        let owner = (self.answered / COMMANDS).is_multiple_of(2);
        let word = self.responses.load_u64_acquire(at).unwrap();
        if response_owner(word) != owner || (word == 0 && owner) {
            return None;
        }
        self.answered += 1;
        Some(Response::decode(&self.responses.load_block(at).unwrap()))
    }

    /// A command and its answer, which must come within some steps.
    pub(crate) fn command(&mut self, command: Command) -> Response {
        let sequence = self.submit(command);
        for _ in 0..1000 {
            if let Some(response) = self.response() {
                assert_eq!(response.sequence, sequence);
                return response;
            }
            self.now += 1000;
            self.dev.step(self.now);
        }
        panic!("no answer to {command:?}");
    }

    pub(crate) fn ok(&mut self, command: Command) -> u64 {
        let response = self.command(command);
        assert_eq!(response.status, CmdStatus::Ok, "{command:?}");
        response.results[0]
    }

    pub(crate) fn ok32(&mut self, command: Command) -> u32 {
        u32::try_from(self.ok(command)).unwrap()
    }

    pub(crate) fn connect(&mut self, eid: RawEid) -> u32 {
        self.ok32(Command::Connect { eid, mode: Mode::Rm })
    }

    pub(crate) fn jfc(&mut self, depth_log2: u8) -> BenchJfc {
        self.jfc_on(depth_log2, NONE)
    }

    pub(crate) fn jfc_on(&mut self, depth_log2: u8, eqn: u32) -> BenchJfc {
        let depth = 1u32 << depth_log2;
        let (ring, base) = self.map(depth as usize * cqe::CQE_LEN);
        let id = self.ok32(Command::CreateJfc { base, depth_log2, eqn, inline: false });
        BenchJfc { id, ring, depth, ci: 0, arm_sn: 0 }
    }

    /// An event queue of 16 entries.
    pub(crate) fn eq(&mut self) -> (u32, Region) {
        let (ring, base) = self.map(16 * eqe::EQE_LEN);
        (self.ok32(Command::CreateEq { base, depth_log2: 4, vector: 1 }), ring)
    }

    /// A jetty with rings of `1 << log2` blocks and entries; `change` adapts its arguments.
    pub(crate) fn jetty(
        &mut self,
        log2: u8,
        jfc: &BenchJfc,
        change: impl FnOnce(&mut CreateQueue),
    ) -> BenchQueue {
        let (ring, base) = self.map(BLOCK_LEN << log2);
        let (record, record_base) = self.map(rqe::record::LEN);
        let max_sge = 4;
        let stride = rqe::stride(max_sge);
        let (rq, rq_base) = self.map(stride << log2);
        let sq = SqArgs {
            base,
            blocks_log2: log2,
            jfcn: jfc.id,
            rnr_retry: 3,
            err_timeout: 17,
            priority: 0,
        };
        let rq_args = RqArgs {
            base: rq_base,
            depth_log2: log2,
            max_sge: 4,
            jfcn: jfc.id,
            min_rnr_timer: 12,
            token_value: 0x77,
        };
        let mut args = CreateQueue {
            kind: CmdQueueKind::Jetty,
            id: 0,
            mode: Mode::Rm,
            flags: QueueFlags::empty(),
            cookie: 0xc00c_1e00,
            record: record_base,
            sq: Some(sq),
            rq: Some(rq_args),
            shared_jfr: NONE,
            recv_jfcn: NONE,
            group: NONE,
        };
        change(&mut args);
        let id = self.ok32(Command::CreateQueue(args));
        BenchQueue {
            id,
            record,
            ring,
            log2: u32::from(log2),
            pi: 0,
            rq,
            rq_stride: stride,
            rq_mask: (1 << log2) - 1,
            rq_pi: 0,
        }
    }

    /// Registers `len` bytes of the arena at their own address, all rights, with a token.
    pub(crate) fn seg(&mut self, len: usize) -> BenchSeg {
        let mem = self.alloc(len);
        self.seg_of(mem, Access::READ | Access::WRITE | Access::ATOMIC)
    }

    pub(crate) fn seg_of(&mut self, mem: Region, access: Access) -> BenchSeg {
        let iova = self.map_region(&mem);
        let token_id = self.ok32(Command::AllocTid);
        let (va, token) = (mem.addr() as u64, 0x5eed);
        let len = mem.len() as u64;
        self.ok(Command::RegisterSeg(RegisterSeg {
            token_id,
            iova,
            va,
            len,
            access,
            token_value: Some(token),
        }));
        BenchSeg { token_id, token, va, iova, mem }
    }

    /// Writes an entry into the ring without ringing.
    pub(crate) fn put(&self, queue: &mut BenchQueue, sqe: Sqe, tail: &[u64]) -> [u64; BLOCK_WORDS] {
        let mut sqe = sqe;
        #[expect(clippy::cast_possible_truncation, reason = "indices are modulo 2^16")]
        let entry_idx = queue.pi as u16;
        sqe.entry_idx = entry_idx;
        sqe.owner = (queue.pi >> queue.log2) & 1 == 0;
        let mut words = [0; SQE_WORDS_MAX];
        sqe.encode(&mut words);
        let at = control_len(sqe.opcode) / 8;
        words[at..at + tail.len()].copy_from_slice(tail);
        for block in 0..sqe.blocks() {
            let slot = queue.pi as usize & ((1 << queue.log2) - 1);
            let from = &words[block * BLOCK_WORDS..(block + 1) * BLOCK_WORDS];
            let block: [u64; BLOCK_WORDS] = from.try_into().unwrap();
            queue.ring.store_block(slot * BLOCK_LEN, &block).unwrap();
            queue.pi += 1;
        }
        words[..BLOCK_WORDS].try_into().unwrap()
    }

    pub(crate) fn ring(&self, queue: &BenchQueue) {
        let page = regs::JETTY_PAGES + u64::from(queue.id) * doorbell::PAGE_LEN;
        self.dev.write32(|| self.now, &self.function, (page + doorbell::SQ_PI, queue.pi));
    }

    /// Posts a request with its local pieces and rings.
    pub(crate) fn post(&self, queue: &mut BenchQueue, sqe: Sqe, sges: &[Sge]) {
        let mut sqe = sqe;
        sqe.sge_num = u8::try_from(sges.len()).unwrap();
        let tail: Vec<u64> = sges.iter().flat_map(|s| s.to_words()).collect();
        let front = self.put(queue, sqe, &tail);
        if self.carries && sqe.opcode.is_atomic() {
            return self.carry_atomic(queue, front);
        }
        self.ring(queue);
    }

    /// Posts by direct entry.
    pub(crate) fn post_direct(&self, queue: &mut BenchQueue, sqe: Sqe, sges: &[Sge]) {
        let mut sqe = sqe;
        sqe.sge_num = u8::try_from(sges.len()).unwrap();
        let tail: Vec<u64> = sges.iter().flat_map(|s| s.to_words()).collect();
        let block = self.put(queue, sqe, &tail);
        self.write_direct(queue, &block);
    }

    /// Hands the block of the newest entry over directly.
    pub(crate) fn write_direct(&self, queue: &BenchQueue, block: &[u64; BLOCK_WORDS]) {
        if self.carries {
            return self.carry(queue, block);
        }
        let page = regs::JETTY_PAGES + u64::from(queue.id) * doorbell::PAGE_LEN;
        self.dev.write_block(|| self.now, &self.function, (page + doorbell::DWQE, block));
    }

    /// Posts a receive with the given pieces and rings the doorbell.
    pub(crate) fn post_recv(&self, queue: &mut BenchQueue, sges: &[Sge]) {
        let at = (queue.rq_pi & queue.rq_mask) as usize * queue.rq_stride;
        for index in 0..queue.rq_stride / 16 {
            let sge = sges.get(index).copied().unwrap_or_default();
            queue.rq.store_block(at + index * 16, &sge.to_words()).unwrap();
        }
        queue.rq_pi += 1;
        queue.record.store_u32_release(rqe::record::RQ_PI, queue.rq_pi).unwrap();
    }

    /// The next completion, if there is one; tells the device that it was taken.
    pub(crate) fn poll(&self, jfc: &mut BenchJfc) -> Option<Cqe> {
        let cqe = self.peek(jfc)?;
        jfc.ci += 1;
        self.ring_jfc(jfc, None);
        Some(cqe)
    }

    /// Looks at the next completion without taking it.
    pub(crate) fn peek(&self, jfc: &BenchJfc) -> Option<Cqe> {
        let at = (jfc.ci % jfc.depth) as usize * cqe::CQE_LEN;
        let owner = (jfc.ci / jfc.depth).is_multiple_of(2);
        let word = jfc.ring.load_u64_acquire(at).unwrap();
        if cqe::owner_of(word) != owner {
            return None;
        }
        Some(Cqe::decode(&jfc.ring.load_block(at).unwrap()))
    }

    pub(crate) fn ring_jfc(&self, jfc: &BenchJfc, arm: Option<CqArm>) {
        let db = JfcDoorbell { ci: jfc.ci, arm, arm_sn: jfc.arm_sn, jfcn: jfc.id };
        self.dev.write64(|| self.now, &self.function, (regs::JFC_DB, db.encode()));
    }

    pub(crate) fn arm(&self, jfc: &mut BenchJfc, arm: CqArm) {
        jfc.arm_sn = (jfc.arm_sn + 1) % 4;
        self.ring_jfc(jfc, Some(arm));
    }

    pub(crate) fn async_events(&mut self) -> Region {
        let (ring, base) = self.map(16 * eqe::EQE_LEN);
        self.dev.write64(|| 0, &self.function, (regs::AEQ_BASE, base));
        self.dev.write32(|| 0, &self.function, (regs::AEQ_DEPTH, 16));
        self.start();
        ring
    }
}

/// Lets time pass, then steps both devices.
pub(crate) fn step_both(a: &mut Bench, b: &Bench, by: Nanos) {
    a.now += by;
    a.dev.step(a.now);
    b.dev.step(a.now);
}

/// The event at an index of an event ring's first pass.
pub(crate) fn event_at(ring: &Region, index: usize) -> Option<Eqe> {
    let words = ring.load_block::<2>(index * eqe::EQE_LEN).unwrap();
    eqe::owner_of(words[0]).then(|| Eqe::decode(words))
}

/// A signalled request on a segment.
pub(crate) fn on_seg(opcode: udma_abi::Opcode, tpn: u32, seg: &BenchSeg, offset: u64) -> Sqe {
    Sqe {
        flags: SqeFlags::COMPLETE,
        tpn,
        token_en: true,
        token_value: seg.token,
        seg_token_id: seg.token_id,
        remote_va: seg.va + offset,
        ..Sqe::new(opcode)
    }
}
