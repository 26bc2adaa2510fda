//! A device of two hundred lines: rings, owner bits and commands, nothing behind them.
//!
//! Send requests succeed (or wait, when held); receives are filled on the test's demand. What it
//! answers can be bent by [`Script`].

use std::{
    collections::{BTreeMap, VecDeque},
    os::fd::{AsFd, BorrowedFd, OwnedFd},
    sync::{Arc, Mutex, MutexGuard},
};

use nix::sys::eventfd::{EfdFlags, EventFd};
use udma_abi::{
    BackingError, CmdStatus, CompletionBy, Cqe, CqeStatus, DeviceBacking, DeviceInfo, DirectEntry,
    DmaAccess, DmaSpace, Eqe, GiveWay, Nanos, NextEntry, PollOfOne, QueueDoorbell, RawEid,
    ReceivedMessage, RegisterRegion, RepeatForm, SendDoorbell, Sqe,
    caps::{Caps, Features},
    cmd::{CMD_WORDS, Command, CreateQueue, RSP_WORDS, Response},
    counters::Counter,
    doorbell::{self, JfcDoorbell},
    eqe::EQE_LEN,
    regs,
    rqe::record,
    sqe::{BLOCK_LEN, SQE_WORDS_MAX, SqeFlags},
};
use urma_mem::{
    Region,
    idle::{IdleSnapshot, WorkSign},
};

/// How the device behaves.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Script {
    /// Commands are not looked at.
    pub(super) mute: bool,
    /// Send requests are not looked at.
    pub(super) hold: bool,
    /// Answers carry this instead of their sequence number, plus it.
    pub(super) sequence_off: u32,
    /// Every command is refused so.
    pub(super) refuse: Option<CmdStatus>,
    /// Results are all ones.
    pub(super) wild_results: bool,
    /// Entries of the counters of its model.
    pub(super) model_counters: &'static [[u64; 8]],
    /// Answers come in reverse order of the commands that are there.
    pub(super) reversed: bool,
    /// The send engines stop after so many further stores of a completion or a record.
    pub(super) stores: Option<u32>,
    /// A request's record is moved before its completion is written, against the contract.
    pub(super) record_first: bool,
    /// An interrupt of a vector whose last one is not taken yet is that one.
    pub(super) merges: bool,
    /// Wake-ups are answered and come again.
    pub(super) keeps_ringing: bool,
    /// Requests with the solicited flag fail.
    pub(super) solicited_fails: bool,
    /// The device takes no direct entries.
    pub(super) has_no_direct: bool,
    /// Queues have doorbells of their own, which execute what they are given.
    pub(super) carries: bool,
    /// A step for a poll takes an idle snapshot.
    pub(super) has_idle: bool,
    /// It takes the entry of a peer that a poll while idle saw.
    pub(super) takes: bool,
    /// It gives this to such a poll, whether it takes the entry or not.
    pub(super) gives: Option<ReceivedMessage>,
    /// The device does not reach its rings, and says so when it is enabled.
    pub(super) is_unreachable: bool,
    /// They refuse what differs from the newest one.
    pub(super) refuses_moved: bool,
    /// They refuse it, except what differs from the newest one.
    pub(super) carries_moved_only: bool,
    /// They leave completions of what differs to the driver.
    pub(super) reports_nothing: bool,
    /// They leave completions of whole entries to the driver, but for the first.
    pub(super) reports_no_blocks: bool,
}

#[derive(Debug, Default)]
struct Ring {
    base: u64,
    depth: u32,
    index: u32,
}

#[derive(Debug)]
struct Queue {
    args: CreateQueue,
    pi: u32,
    ci: u32,
    rq_ci: u32,
    /// Completions and record values that the requests before `ci` still have to store.
    due: VecDeque<Store>,
}

/// What a send engine stores for a request.
#[derive(Clone, Copy, Debug)]
enum Store {
    Completion(Cqe),
    Record(u32),
}

#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) script: Script,
    maps: BTreeMap<u64, Region>,
    pub(super) clock: Nanos,
    control: u32,
    cmd: Ring,
    cmd_pi: u32,
    rsp: Ring,
    aeq: Ring,
    eqs: Vec<(Ring, u16)>,
    jfcs: Vec<(Ring, u32)>,
    armed: BTreeMap<u32, u8>,
    last_arm: BTreeMap<u32, u8>,
    queues: BTreeMap<u32, Queue>,
    next_id: u32,
    pub(super) sq_doorbells: u32,
    pub(super) direct: u32,
    pub(super) jfc_doorbells: u32,
    pub(super) seen: Vec<Sqe>,
    pub(super) faults: u32,
    pub(super) commands: Vec<Command>,
    pub(super) handed: Vec<Handed>,
    pub(super) steps: u32,
    /// How pollers gave their processor away.
    pub(super) ways: Vec<GiveWay>,
    /// Entries of a peer that it took for polls while idle.
    pub(super) taken: u32,
    pub(super) sign: Arc<WorkSign>,
}

/// What was handed over to the doorbell of a queue.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Handed {
    /// An entry that is in no ring.
    Whole,
    /// What differs from the newest one, with its position.
    Moved(u32),
    /// What differs from the newest one, with its position; the driver makes the completion.
    Unreported(u32),
    /// An entry that is in no ring; the driver makes the completion.
    BlockUnreported,
    /// What differs from the newest atomic, with its position; the driver makes the completion.
    Word(u32),
    /// An entry in the ring.
    Rung,
}

/// The doorbell of a queue that does nothing with what it is given.
#[derive(Debug)]
struct Carrier {
    toy: Arc<Toy>,
    /// Number of the queue.
    id: u32,
}

impl Carrier {
    fn note(&self, handed: Handed) -> bool {
        let mut state = self.toy.state();
        state.handed.push(handed);
        !state.script.carries_moved_only
    }

    /// The index of the next entry, if the device leaves completions to the driver.
    fn leave_unreported(&self, handed: Handed) -> Option<u32> {
        let mut state = self.toy.state();
        if !state.script.reports_nothing {
            return None;
        }
        state.handed.push(handed);
        let jfcn = state.queues[&self.id].args.sq.unwrap().jfcn;
        Some(state.jfcs[jfcn as usize].0.index)
    }
}

impl QueueDoorbell for Carrier {
    fn ring(&self, _: SendDoorbell<'_>) {
        self.note(Handed::Rung);
    }

    fn execute(&self, entry: DirectEntry<'_>) -> Option<NextEntry> {
        match entry {
            DirectEntry::Reported(_) | DirectEntry::Atomic(_) => {
                self.note(Handed::Whole).then_some(NextEntry::new(0))
            }
            DirectEntry::Known(_) => {
                let leaves = self.toy.state().script.reports_no_blocks;
                leaves.then(|| self.leave_unreported(Handed::BlockUnreported))?.map(NextEntry::new)
            }
            DirectEntry::RepeatedAtomic(moved) => {
                self.leave_unreported(Handed::Word(moved.pi)).map(NextEntry::new)
            }
        }
    }

    fn repeat(&self, pi: u32, _: u64, _: u64, form: RepeatForm) -> Option<NextEntry> {
        if form.by() == CompletionBy::Driver {
            return self.leave_unreported(Handed::Unreported(pi)).map(NextEntry::new);
        }
        self.note(Handed::Moved(pi));
        (!self.toy.state().script.refuses_moved).then_some(NextEntry::new(0))
    }
}

#[derive(Debug)]
pub(super) struct Toy {
    state: Mutex<State>,
    vectors: Vec<EventFd>,
    wakeup: EventFd,
    /// Where a peer writes.
    pub(super) peer: Region,
}

#[derive(Debug)]
struct Handle(Arc<Toy>);

impl Toy {
    pub(super) fn new() -> Arc<Self> {
        let flags = EfdFlags::EFD_SEMAPHORE | EfdFlags::EFD_CLOEXEC;
        let vectors = (0..4).map(|_| EventFd::from_value_and_flags(0, flags).unwrap()).collect();
        let wakeup = EventFd::from_flags(EfdFlags::EFD_NONBLOCK | EfdFlags::EFD_CLOEXEC).unwrap();
        let peer = Region::private(4096).unwrap();
        Arc::new(Self { state: Mutex::default(), vectors, wakeup, peer })
    }

    /// A peer asks for progress: send requests that are held go on when a thread answers.
    pub(super) fn wake(&self) {
        self.wakeup.write(1).unwrap();
    }

    pub(super) fn backing(self: &Arc<Self>) -> Arc<dyn DeviceBacking> {
        Arc::new(Handle(Arc::clone(self)))
    }

    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Doorbells and direct entries so far.
    pub(super) fn doorbells(&self) -> (u32, u32) {
        let state = self.state();
        (state.sq_doorbells, state.direct)
    }

    pub(super) fn script(&self, change: impl FnOnce(&mut Script)) {
        change(&mut self.state().script);
    }

    /// Writes any CQE into JFC `jfcn`.
    pub(super) fn complete(&self, jfcn: u32, cqe: Cqe) {
        self.write_cqe(&mut self.state(), jfcn, cqe);
    }

    /// Writes raw words, owner bit included, without moving the ring.
    pub(super) fn scribble(&self, jfcn: u32, words: [u64; 8]) {
        let mut state = self.state();
        let ring = &state.jfcs[jfcn as usize].0;
        let at = ring.base + u64::from(ring.index & (ring.depth - 1)) * 64;
        let (region, offset) = state.dma(at).unwrap();
        region.store_block(offset, &words).unwrap();
    }

    /// A message of `len` bytes arrives at queue `id`; whether a receive was there.
    pub(super) fn deliver(&self, id: u32, cqe: Cqe) -> bool {
        let mut state = self.state();
        let queue = &state.queues[&id];
        let (args, ci) = (queue.args, queue.rq_ci);
        let (region, offset) = state.dma(args.record).unwrap();
        if region.load_u32_acquire(offset + record::RQ_PI).unwrap() == ci {
            return false;
        }
        state.queues.get_mut(&id).unwrap().rq_ci = ci.wrapping_add(1);
        let cqe =
            Cqe { recv: true, entry_idx: ci as u16, local_id: id, user_data: args.cookie, ..cqe };
        self.write_cqe(&mut state, args.rq.unwrap().jfcn, cqe);
        true
    }

    /// The cookie of queue `id`.
    /// Stores `ci` into the record of queue `id`.
    pub(super) fn show_retired(&self, id: u32, ci: u32) {
        let mut state = self.state();
        let at = state.queues[&id].args.record;
        let (region, offset) = state.dma(at).unwrap();
        region.store_u32_release(offset + record::SQ_CI, ci).unwrap();
    }

    pub(super) fn cookie(&self, id: u32) -> u64 {
        self.state().queues[&id].args.cookie
    }

    pub(super) fn raise_async(&self, code: u8, object: u32) {
        let mut state = self.state();
        let mut ring = std::mem::take(&mut state.aeq);
        state.write_eqe(&mut ring, Eqe::Async { code, object });
        state.aeq = ring;
        if state.script.merges {
            while self.vectors[0].read().is_ok() {}
        }
        self.vectors[0].write(1).unwrap();
    }

    pub(super) fn raise_nothing(&self, vector: usize) {
        self.vectors[vector].write(1).unwrap();
    }

    fn write_cqe(&self, state: &mut State, jfcn: u32, cqe: Cqe) {
        let ring = &mut state.jfcs[jfcn as usize].0;
        let index = ring.index;
        ring.index = index.wrapping_add(1);
        let at = ring.base + u64::from(index & (ring.depth - 1)) * 64;
        let words = cqe.encode((index / ring.depth) & 1 == 0);
        let (region, offset) = state.dma(at).unwrap();
        region.store_block_last(offset, &words, 0).unwrap();
        if state.armed.remove(&jfcn).is_some() {
            self.fire(state, jfcn);
        }
    }

    fn fire(&self, state: &mut State, jfcn: u32) {
        let eqn = state.jfcs[jfcn as usize].1 as usize;
        let mut eqs = std::mem::take(&mut state.eqs);
        let (ring, vector) = &mut eqs[eqn];
        state.write_eqe(ring, Eqe::Completion { jfcn });
        self.vectors[usize::from(*vector)].write(1).unwrap();
        state.eqs = eqs;
    }

    fn step(&self, state: &mut State) {
        if state.control & regs::control::ENABLE == 0 {
            return;
        }
        if !state.script.mute {
            self.run_commands(state);
        }
        if !state.script.hold {
            let ids: Vec<u32> = state.queues.keys().copied().collect();
            ids.into_iter().for_each(|id| self.run_queue(state, id));
        }
    }

    fn run_commands(&self, state: &mut State) {
        let mut pending = Vec::new();
        while state.cmd.index != state.cmd_pi {
            let slot = u64::from(state.cmd.index & (state.cmd.depth - 1));
            let (region, at) = state.dma(state.cmd.base + slot * 128).unwrap();
            pending.push(region.load_block::<CMD_WORDS>(at).unwrap());
            state.cmd.index = state.cmd.index.wrapping_add(1);
        }
        if state.script.reversed {
            pending.reverse();
        }
        for words in pending {
            let (command, sequence) = Command::decode(&words).unwrap();
            let script = state.script;
            let (status, mut results) = match script.refuse {
                Some(status) => (status, [0; 7]),
                None => self.execute(state, command),
            };
            if script.wild_results {
                results = [u64::MAX; 7];
            }
            let sequence = sequence.wrapping_add(script.sequence_off);
            state.respond(Response { sequence, status, results });
        }
    }

    fn execute(&self, state: &mut State, command: Command) -> (CmdStatus, [u64; 7]) {
        state.commands.push(command);
        state.next_id += 1;
        let mut first = u64::from(state.next_id);
        let mut rest = [0; 7];
        match command {
            Command::CreateEq { base, depth_log2, vector } => {
                first = state.eqs.len() as u64;
                state.eqs.push((Ring { base, depth: 1 << depth_log2, index: 0 }, vector));
            }
            Command::CreateJfc { base, depth_log2, eqn, .. } => {
                first = state.jfcs.len() as u64;
                state.jfcs.push((Ring { base, depth: 1 << depth_log2, index: 0 }, eqn));
            }
            Command::CreateQueue(args) => {
                let queue = Queue { args, pi: 0, ci: 0, rq_ci: 0, due: VecDeque::new() };
                state.queues.insert(state.next_id, queue);
            }
            Command::DestroyQueue { id } => {
                state.queues.remove(&id);
            }
            Command::AllocTid => first <<= 8,
            Command::QueryEid { .. } => {
                let words = RawEid([7; 16]).to_words();
                (first, rest[1], rest[2]) = (1, words[0], words[1]);
            }
            Command::QueryQueue { .. } => first = 1,
            Command::QueryCounters { base, room } => {
                let (region, at) = state.dma(base).unwrap();
                for n in 0..room as usize {
                    region.store_u64(at + n * 8, n as u64 + 1).unwrap();
                }
                first = u64::from(room);
            }
            Command::QueryModelCounters { base, room } => {
                first = state.script.model_counters.len() as u64;
                if room != 0 {
                    let (region, at) = state.dma(base).unwrap();
                    let words = state.script.model_counters.iter().take(room as usize).flatten();
                    for (word, offset) in words.zip((at..).step_by(8)) {
                        region.store_u64(offset, *word).unwrap();
                    }
                }
            }
            _ => {}
        }
        rest[0] = first;
        (CmdStatus::Ok, rest)
    }

    /// Executes every posted request: its completion, then its record, as far as stores are allowed.
    fn run_queue(&self, state: &mut State, id: u32) {
        while self.store_due(state, id) {
            let queue = &state.queues[&id];
            let (args, ci, pi) = (queue.args, queue.ci, queue.pi);
            let Some(sq) = args.sq else { return };
            if ci == pi {
                return;
            }
            let sqe = state.fetch(&args, ci);
            assert_eq!(sqe.owner, (ci >> sq.blocks_log2) & 1 == 0, "owner bit of a posted entry");
            assert_eq!(sqe.entry_idx, ci as u16);
            state.seen.push(sqe);
            let fails = state.script.solicited_fails && sqe.flags.contains(SqeFlags::SOLICITED);
            let status = if fails { CqeStatus::RnrRetryExceeded } else { CqeStatus::Success };
            let completion = Store::Completion(Cqe {
                status,
                entry_idx: sqe.entry_idx,
                local_id: id,
                user_data: args.cookie,
                byte_cnt: 8,
                ..Cqe::default()
            });
            let ci = ci.wrapping_add(sqe.blocks() as u32);
            let record_first = state.script.record_first;
            let queue = state.queues.get_mut(&id).unwrap();
            queue.ci = ci;
            queue.due.push_back(Store::Record(ci));
            if fails || sqe.flags.contains(SqeFlags::COMPLETE) {
                queue.due.insert(usize::from(record_first), completion);
            }
        }
    }

    /// Stores what is due of queue `id`; whether nothing is left.
    fn store_due(&self, state: &mut State, id: u32) -> bool {
        while let Some(queue) = state.queues.get_mut(&id) {
            let (args, Some(store)) = (queue.args, queue.due.front().copied()) else { return true };
            match &mut state.script.stores {
                Some(0) => return false,
                Some(left) => *left -= 1,
                None => {}
            }
            queue.due.pop_front();
            match store {
                Store::Completion(cqe) => self.write_cqe(state, args.sq.unwrap().jfcn, cqe),
                Store::Record(ci) => {
                    let (region, at) = state.dma(args.record).unwrap();
                    region.store_u32_release(at + record::SQ_CI, ci).unwrap();
                }
            }
        }
        false
    }

    fn on_jfc_doorbell(&self, state: &mut State, value: u64) {
        let doorbell = JfcDoorbell::decode(value);
        state.jfc_doorbells += 1;
        let (ring, _) = &state.jfcs[doorbell.jfcn as usize];
        let waiting = ring.index.wrapping_sub(doorbell.ci) & 0xff_ffff != 0;
        if doorbell.arm.is_none() {
            return;
        }
        let last = state.last_arm.insert(doorbell.jfcn, doorbell.arm_sn);
        if last != Some(doorbell.arm_sn) {
            if waiting {
                self.fire(state, doorbell.jfcn);
            } else {
                state.armed.insert(doorbell.jfcn, doorbell.arm_sn);
            }
        }
    }
}

impl State {
    fn dma(&mut self, iova: u64) -> Option<(Region, usize)> {
        let (base, region) = self.maps.range(..=iova).next_back()?;
        let offset = usize::try_from(iova - base).unwrap();
        if offset >= region.len() {
            self.faults += 1;
            return None;
        }
        Some((region.clone(), offset))
    }

    fn fetch(&mut self, args: &CreateQueue, ci: u32) -> Sqe {
        let sq = args.sq.unwrap();
        let mut words = [0; SQE_WORDS_MAX];
        for (n, chunk) in words.chunks_exact_mut(8).enumerate() {
            let block = (ci.wrapping_add(n as u32)) & ((1 << sq.blocks_log2) - 1);
            let (region, at) = self.dma(sq.base + u64::from(block) * BLOCK_LEN as u64).unwrap();
            chunk.copy_from_slice(&region.load_block::<8>(at).unwrap());
        }
        Sqe::decode(&words).unwrap()
    }

    fn respond(&mut self, response: Response) {
        let index = self.rsp.index;
        self.rsp.index = index.wrapping_add(1);
        let owner = (index / self.cmd.depth) & 1 == 0;
        let at = self.rsp.base + u64::from(index & (self.cmd.depth - 1)) * RSP_WORDS as u64 * 8;
        let (region, offset) = self.dma(at).unwrap();
        region.store_block_last(offset, &response.encode(owner), 0).unwrap();
    }

    fn write_eqe(&mut self, ring: &mut Ring, event: Eqe) {
        let owner = (ring.index / ring.depth) & 1 == 0;
        let at = ring.base + u64::from(ring.index & (ring.depth - 1)) * EQE_LEN as u64;
        ring.index = ring.index.wrapping_add(1);
        let (region, offset) = self.dma(at).unwrap();
        region.store_block_last(offset, &event.encode(owner), 0).unwrap();
    }

    fn reset(&mut self) {
        let (maps, script, clock) = (std::mem::take(&mut self.maps), self.script, self.clock);
        *self = Self { maps, script, clock, ..Self::default() };
    }
}

fn caps(script: Script) -> Caps {
    Caps {
        max_jfc_depth: 65536,
        max_jfs_depth: 8192,
        max_jfr_depth: 32768,
        max_eid: 1,
        vectors: 4,
        mtu_max: 4096,
        features: if script.has_no_direct { 0 } else { Features::DWQE.bits() },
        ..Caps::default()
    }
}

impl DeviceBacking for Handle {
    fn info(&self) -> DeviceInfo {
        DeviceInfo {
            name: "toy".to_owned(),
            driver_name: "udma".to_owned(),
            vendor_id: 1,
            device_id: 2,
        }
    }

    fn registers(&self) -> Arc<dyn RegisterRegion> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn dma(&self) -> Arc<dyn DmaSpace> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn interrupt(&self, vector: u16) -> Result<OwnedFd, BackingError> {
        let fd = self.0.vectors.get(usize::from(vector)).ok_or(BackingError::Vector(vector))?;
        Ok(fd.as_fd().try_clone_to_owned()?)
    }

    fn reset(&self) -> Result<(), BackingError> {
        self.0.state().reset();
        Ok(())
    }

    fn merges_interrupts(&self) -> bool {
        self.0.state().script.merges
    }

    fn now(&self) -> Nanos {
        self.0.state().clock
    }

    fn give_way(&self, how: GiveWay) {
        let mut state = self.0.state();
        state.ways.push(how);
        // Another thread ran.
        state.clock += 10_000;
    }

    fn progress(&self) {
        let mut state = self.0.state();
        state.clock += 1_000_000;
        state.steps += 1;
        self.0.step(&mut state);
    }

    fn progress_to_idle(&self, idle: &mut IdleSnapshot) {
        let (sign, has_idle) = {
            let state = self.0.state();
            (Arc::clone(&state.sign), state.script.has_idle)
        };
        let raised = sign.raised();
        self.progress();
        let peer = &self.0.peer;
        if has_idle && idle.note(&sign, std::iter::once((peer, 0))) {
            idle.begin(&sign, raised);
        }
    }

    fn take_entry(&self, poll: &mut PollOfOne) -> bool {
        let mut state = self.0.state();
        poll.given = state.script.gives.take();
        if state.script.takes {
            self.0.peer.store_u64(0, 0).unwrap();
            state.taken += 1;
            self.0.step(&mut state);
        }
        state.script.takes
    }

    fn wakeup(&self) -> Option<BorrowedFd<'_>> {
        Some(self.0.wakeup.as_fd())
    }

    fn answer_wakeup(&self) {
        if !self.0.state().script.keeps_ringing {
            self.0.wakeup.read().unwrap();
        }
        self.0.script(|script| script.hold = false);
        self.progress();
    }
}

impl RegisterRegion for Handle {
    fn len(&self) -> u64 {
        regs::BAR_LEN
    }

    fn queue_doorbell(&self, id: u32) -> Option<Box<dyn QueueDoorbell>> {
        let has_one = self.0.state().script.carries;
        has_one.then(|| -> Box<dyn QueueDoorbell> {
            Box::new(Carrier { toy: Arc::clone(&self.0), id })
        })
    }

    fn read(&self, offset: u64) -> u64 {
        let state = self.0.state();
        match offset {
            regs::ID => regs::MAGIC,
            regs::VERSION_REG => u64::from(regs::VERSION),
            regs::STATUS if state.script.is_unreachable && state.control != 0 => {
                u64::from(regs::status::FATAL)
            }
            regs::STATUS => u64::from(state.control & regs::control::ENABLE),
            regs::CONTROL => u64::from(state.control),
            _ if offset >= regs::CAPS => caps(state.script)
                .to_words()
                .get((offset - regs::CAPS) as usize / 8)
                .copied()
                .unwrap_or(0),
            _ => u64::MAX,
        }
    }

    fn write32(&self, offset: u64, value: u32) {
        let mut state = self.0.state();
        match offset {
            regs::CONTROL if value & regs::control::RESET != 0 => state.reset(),
            regs::CONTROL => state.control = value,
            regs::CMD_DEPTH => state.cmd.depth = value,
            regs::CMD_PI => state.cmd_pi = value,
            regs::AEQ_DEPTH => state.aeq.depth = value,
            _ if offset >= regs::JETTY_PAGES => {
                let id = ((offset - regs::JETTY_PAGES) / doorbell::PAGE_LEN) as u32;
                state.sq_doorbells += 1;
                state.queues.get_mut(&id).unwrap().pi = value;
                self.0.step(&mut state);
            }
            _ => {}
        }
    }

    fn write64(&self, offset: u64, value: u64) {
        let mut state = self.0.state();
        match offset {
            regs::CMD_BASE => state.cmd.base = value,
            regs::RSP_BASE => state.rsp.base = value,
            regs::AEQ_BASE => state.aeq.base = value,
            regs::JFC_DB => self.0.on_jfc_doorbell(&mut state, value),
            _ => {}
        }
    }

    fn write_block(&self, offset: u64, words: &[u64; 8]) {
        let mut state = self.0.state();
        let id = ((offset - regs::JETTY_PAGES) / doorbell::PAGE_LEN) as u32;
        state.direct += 1;
        let queue = &state.queues[&id];
        let (args, pi) = (queue.args, queue.pi);
        // The ring holds the same block: a device may take either.
        let sqe = state.fetch(&args, pi);
        let mut direct = [0; SQE_WORDS_MAX];
        direct[..8].copy_from_slice(words);
        assert_eq!(Sqe::decode(&direct), Ok(sqe));
        state.queues.get_mut(&id).unwrap().pi = pi.wrapping_add(1);
        self.0.step(&mut state);
    }
}

impl DmaSpace for Handle {
    fn ranges(&self) -> Vec<(u64, u64)> {
        vec![(0, (1 << 40) - 1)]
    }

    fn map(&self, iova: u64, region: &Region, _access: DmaAccess) -> Result<(), BackingError> {
        let mut state = self.0.state();
        let len = region.len() as u64;
        let before = state.maps.range(..iova + len).next_back();
        if before.is_some_and(|(at, other)| at + other.len() as u64 > iova) {
            return Err(BackingError::IovaTaken { iova, len });
        }
        state.maps.insert(iova, region.clone());
        Ok(())
    }

    fn unmap(&self, iova: u64) -> Result<(), BackingError> {
        let gone = self.0.state().maps.remove(&iova);
        gone.map(|_| ()).ok_or(BackingError::NotMapped(iova))
    }
}

/// Names of the counters that the device fills with 1, 2, 3...
pub(super) fn counter_names() -> Vec<&'static str> {
    Counter::ALL.iter().map(|counter| counter.name()).collect()
}
