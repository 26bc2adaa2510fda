//! A driver in a few lines: rings in plain memory, commands, one jetty that talks to itself.
//!
//! *Owns*: the memory that the device may use, and its layout. *Takes*: what to ask. *Gives*:
//! answers. *Must not*: be clever: what is wrong with the device shall show.

use std::sync::Arc;

use ubcore_sim::{
    DeviceCfg, Ports, SoftwareDevice,
    device::DeviceFunction,
    ports::{HostRequest, Interrupt, MemoryHost, SharedMemory},
    share::NODE_LEN,
};
use udma_abi::{
    CmdStatus, DmaAccess, Nanos, RawEid, Sge, Sqe,
    cmd::{
        Access, CMD_WORDS, CmdQueueKind, Command, CreateQueue, Mode, NONE, QueueFlags, RSP_WORDS,
        RegisterSeg, Response, RqArgs, SqArgs, response_owner,
    },
    doorbell, regs,
    sqe::{BLOCK_LEN, BLOCK_WORDS, SQE_WORDS_MAX, control_len},
};
use urma_mem::Region;

/// Device address of the driver's own memory.
pub(crate) const MEM_IOVA: u64 = 0x10_0000;
pub(crate) const MEM_LEN: usize = 1 << 20;
/// Device address of memory that the device may only read.
pub(crate) const READ_ONLY_IOVA: u64 = 0x1000_0000;
/// Device address of three pages of which the middle one is registered.
pub(crate) const GUARD_IOVA: u64 = 0x2000_0000;
/// Device address of a page that is registered under a token that no request shows.
pub(crate) const VAULT_IOVA: u64 = 0x3000_0000;
/// The token of that page.
pub(crate) const VAULT_TOKEN: u32 = 0x5ec2_e7ed;
/// The token of the others.
pub(crate) const TOKEN: u32 = 0x7f7f_0001;
/// Bytes of a page.
pub(crate) const PAGE: usize = 4096;
/// Address by which requests name the middle page of the guard.
pub(crate) const GUARD_VA: u64 = 0x7000_0000_0000;
/// Address by which requests name the vault.
pub(crate) const VAULT_VA: u64 = 0x7100_0000_0000;
/// Address by which requests name the driver's data.
pub(crate) const DATA_VA: u64 = 0x6000_0000_0000;
/// Bytes of the driver's data.
pub(crate) const DATA_LEN: usize = 64 << 10;
/// Entries of the command rings.
pub(crate) const COMMANDS: u32 = 64;

const CMD_AT: usize = 0;
const RSP_AT: usize = 0x2000;
const JFC_AT: usize = 0x4000;
const SQ_AT: usize = 0x8000;
const RQ_AT: usize = 0xa000;
const RECORD_AT: usize = 0xc000;
const DATA_AT: usize = 0x1_0000;
const SQ_LOG2: u8 = 6;
const JFC_LOG2: u8 = 8;
/// What guarded bytes hold.
const PATTERN: u8 = 0xa5;
/// Steps within which a command is answered.
const PATIENCE: usize = 10_000;

#[derive(Debug)]
struct Quiet;

impl Interrupt for Quiet {
    fn raise(&self, _vector: u16) {}
}

impl MemoryHost for Quiet {
    fn share(&self, _key: u32, _region: &Region) -> SharedMemory {
        SharedMemory::default()
    }

    fn unshare(&self, _key: u32) {}
}

/// A device with its driver.
#[derive(Debug)]
pub(crate) struct Driver {
    pub(crate) dev: Arc<SoftwareDevice>,
    /// The device's only one.
    pub(crate) function: Arc<DeviceFunction>,
    pub(crate) now: Nanos,
    pub(crate) mem: Region,
    read_only: Region,
    guard: Region,
    vault: Region,
    posted: u32,
    answered: u32,
    pi: u32,
    pub(crate) tpn: u32,
    pub(crate) jetty: u32,
    pub(crate) data: u32,
    pub(crate) guarded: u32,
    pub(crate) vaulted: u32,
}

impl Driver {
    /// A device that was enabled, with a jetty, three segments and a path to itself.
    pub(crate) fn new(change: impl FnOnce(&mut DeviceCfg)) -> Self {
        let region = |len| Region::private(len).expect("memory for a test");
        let ports = Ports {
            interrupt: Arc::new(Quiet),
            memory: Arc::new(Quiet),
            node_region: region(NODE_LEN),
            routes: None,
            nic: None,
        };
        let mut cfg = DeviceCfg::new(eid(1), 1, 1);
        cfg.ring_len = 1 << 14;
        change(&mut cfg);
        let dev = SoftwareDevice::new(cfg, ports);
        let function = Arc::clone(dev.first_function());
        let mut driver = Self {
            dev,
            function,
            now: 0,
            mem: region(MEM_LEN),
            read_only: region(PAGE),
            guard: region(3 * PAGE),
            vault: region(PAGE),
            posted: 0,
            answered: 0,
            pi: 0,
            tpn: 0,
            jetty: 0,
            data: 0,
            guarded: 0,
            vaulted: 0,
        };
        for guarded in [&driver.read_only, &driver.guard, &driver.vault] {
            guarded.write(0, &vec![PATTERN; guarded.len()]).expect("inside");
        }
        driver.map(MEM_IOVA, &driver.mem, DmaAccess::Both);
        driver.map(READ_ONLY_IOVA, &driver.read_only, DmaAccess::ToDevice);
        driver.map(GUARD_IOVA, &driver.guard, DmaAccess::Both);
        driver.map(VAULT_IOVA, &driver.vault, DmaAccess::Both);
        driver.enable();
        driver.make_objects();
        driver
    }

    fn map(&self, iova: u64, region: &Region, access: DmaAccess) {
        self.function.dma_map(iova, region, access).expect("the range is free");
    }

    /// Sets the command rings up and enables the device.
    fn enable(&mut self) {
        (self.posted, self.answered) = (0, 0);
        self.dev.write64(|| self.now, &self.function, (regs::CMD_BASE, MEM_IOVA + CMD_AT as u64));
        self.dev.write64(|| self.now, &self.function, (regs::RSP_BASE, MEM_IOVA + RSP_AT as u64));
        self.dev.write32(|| self.now, &self.function, (regs::CMD_DEPTH, COMMANDS));
        self.dev.write64(|| self.now, &self.function, (regs::AEQ_BASE, 0));
        self.dev.write32(|| self.now, &self.function, (regs::CONTROL, regs::control::ENABLE));
        let status = self.dev.read(&self.function, regs::STATUS);
        assert_eq!(status, u64::from(regs::status::READY), "an enabled device is ready");
    }

    fn make_objects(&mut self) {
        let base = |at: usize| MEM_IOVA + at as u64;
        let create = Command::CreateJfc {
            base: base(JFC_AT),
            depth_log2: JFC_LOG2,
            eqn: NONE,
            inline: false,
        };
        let jfcn = self.ok(create);
        let sq = SqArgs {
            base: base(SQ_AT),
            blocks_log2: SQ_LOG2,
            jfcn,
            rnr_retry: 1,
            err_timeout: 10,
            priority: 0,
        };
        let rq = RqArgs {
            base: base(RQ_AT),
            depth_log2: 4,
            max_sge: 2,
            jfcn,
            min_rnr_timer: 1,
            token_value: 0,
        };
        self.jetty = self.ok(Command::CreateQueue(CreateQueue {
            kind: CmdQueueKind::Jetty,
            id: 0,
            mode: Mode::Rm,
            flags: QueueFlags::empty(),
            cookie: 7,
            record: base(RECORD_AT),
            sq: Some(sq),
            rq: Some(rq),
            shared_jfr: NONE,
            recv_jfcn: NONE,
            group: NONE,
        }));
        self.data = self.register((base(DATA_AT), DATA_VA, DATA_LEN), TOKEN);
        self.guarded = self.register((GUARD_IOVA + PAGE as u64, GUARD_VA, PAGE), TOKEN);
        self.vaulted = self.register((VAULT_IOVA, VAULT_VA, PAGE), VAULT_TOKEN);
        self.tpn = self.ok(Command::Connect { eid: eid(1), mode: Mode::Rm });
    }

    fn register(&mut self, (iova, va, len): (u64, u64, usize), token: u32) -> u32 {
        let token_id = self.ok(Command::AllocTid);
        let access = Access::READ | Access::WRITE | Access::ATOMIC;
        let (len, token_value) = (len as u64, Some(token));
        let register = RegisterSeg { token_id, iova, va, len, access, token_value };
        self.ok(Command::RegisterSeg(register));
        token_id
    }

    /// Puts 16 words into the command ring and rings.
    pub(crate) fn submit(&mut self, words: &[u64; CMD_WORDS]) {
        let slot = self.posted % COMMANDS;
        self.mem.store_block(CMD_AT + slot as usize * CMD_WORDS * 8, words).expect("inside");
        self.posted = self.posted.wrapping_add(1);
        self.dev.write32(|| self.now, &self.function, (regs::CMD_PI, self.posted));
    }

    fn ok(&mut self, command: Command) -> u32 {
        let sequence = self.posted;
        self.submit(&command.encode(sequence));
        for _ in 0..PATIENCE {
            if let Some(response) = self.response() {
                assert_eq!(response.sequence, sequence, "answers name their command");
                assert_eq!(response.status, CmdStatus::Ok, "{command:?}");
                return u32::try_from(response.results[0]).unwrap_or(u32::MAX);
            }
            self.now += 1000;
            self.dev.step(self.now);
        }
        panic!("no answer to {command:?}");
    }

    fn response(&mut self) -> Option<Response> {
        let at = RSP_AT + (self.answered % COMMANDS) as usize * RSP_WORDS * 8;
        let owner = (self.answered / COMMANDS).is_multiple_of(2);
        let word = self.mem.load_u64_acquire(at).expect("inside");
        if response_owner(word) != owner || word == 0 {
            return None;
        }
        self.answered += 1;
        Some(Response::decode(&self.mem.load_block(at).expect("inside")))
    }

    /// Posts a request of the jetty and rings.
    pub(crate) fn post(&mut self, sqe: Sqe, sge: Sge) {
        let entry_idx = u16::try_from(self.pi & 0xffff).unwrap_or(0);
        let owner = (self.pi >> SQ_LOG2) & 1 == 0;
        let sqe = Sqe { entry_idx, owner, tpn: self.tpn, sge_num: 1, rmt_eid: eid(1), ..sqe };
        let mut words = [0; SQE_WORDS_MAX];
        sqe.encode(&mut words);
        let at = control_len(sqe.opcode) / 8;
        words[at..at + 2].copy_from_slice(&sge.to_words());
        let (blocks, _) = words.as_chunks::<BLOCK_WORDS>();
        for block in blocks.iter().take(sqe.blocks()) {
            let slot = self.pi & ((1 << SQ_LOG2) - 1);
            self.mem.store_block(SQ_AT + slot as usize * BLOCK_LEN, block).expect("inside");
            self.pi = self.pi.wrapping_add(1);
        }
        let page = regs::JETTY_PAGES + u64::from(self.jetty) * doorbell::PAGE_LEN;
        self.dev.write32(|| self.now, &self.function, (page + doorbell::SQ_PI, self.pi));
    }

    /// The host has no peers.
    pub(crate) fn answer_host(&self) {
        while let Some(request) = self.dev.poll_host_request() {
            match request {
                HostRequest::FindPeer { eid } | HostRequest::Forget { eid } => {
                    self.dev.on_no_peer(self.now, eid, CmdStatus::Unreachable);
                }
                HostRequest::AskWhy { .. } => {}
            }
        }
    }

    /// Nothing was stored where no request may store.
    pub(crate) fn check_guards(&self) {
        let same = |region: &Region, at: usize, len: usize, name: &str| {
            let mut bytes = vec![0; len];
            region.read(at, &mut bytes).expect("inside");
            let changed = bytes.iter().position(|byte| *byte != PATTERN);
            assert_eq!(changed, None, "byte of {name} that changed");
        };
        same(&self.read_only, 0, PAGE, "memory that the device may only read");
        same(&self.guard, 0, PAGE, "the page before a segment");
        same(&self.guard, 2 * PAGE, PAGE, "the page behind a segment");
        same(&self.vault, 0, PAGE, "a segment whose token was never shown");
    }

    /// After whatever was done: a reset, and everything works again.
    pub(crate) fn recover(&mut self) {
        self.dev.write32(|| self.now, &self.function, (regs::CONTROL, regs::control::RESET));
        for _ in 0..PATIENCE {
            if self.dev.read(&self.function, regs::CONTROL) & u64::from(regs::control::RESET) == 0 {
                self.mem.zero(0, MEM_LEN).expect("inside");
                self.pi = 0;
                self.enable();
                self.make_objects();
                return;
            }
            self.now += 1_000_000;
            self.dev.step(self.now);
            self.answer_host();
        }
        panic!("the device does not come back from a reset");
    }
}

/// The EID with this number.
pub(crate) const fn eid(number: u8) -> RawEid {
    let mut eid = [0; 16];
    eid[15] = number;
    RawEid(eid)
}
