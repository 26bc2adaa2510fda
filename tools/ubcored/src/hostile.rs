//! A client that writes anything, beside one that works on the same node: what the second one has stays as it is.

use rustix::io::Errno;
use ubcore_sim::{
    EidSource, Node, NodeCfg,
    device::{DeviceFunction, FunctionCfg, FunctionQuota},
    host::peer::PathChoice,
};
use udma_abi::{
    DmaAccess,
    counters::Counter,
    doorbell, regs,
    slots::{SlotArm, SlotDoorbell},
};
use udma_provider::device_on;
use udma_vfio::{
    PciNic,
    user::{MapQuota, ServedFunction, UserDevice, serve},
};
use urma::{
    Context, Jetty, JettyCfg, JettyRecv, Jfc, JfcCfg, JfrCfg, JfsCfg, Mapping, Segment,
    SegmentAccess, SegmentCfg, SendOp, SendWr, Token, TransportMode,
};
use urma_mem::{Pages, Region, doorbells::SlotGeometry};

use std::{
    hash::{DefaultHasher, Hash, Hasher},
    os::unix::net::UnixStream,
    sync::Arc,
    time::{Duration, Instant},
};

use crate::{Attendants, DescriptorBudget, NodeFunction};

/// Steps of the hostile client in a usual run; `URMA_HOSTILE_STEPS` sets another number.
const STEPS: u64 = 1_000_000;
const LEN: usize = 1 << 16;
const RINGS: u64 = 0x1_0000;

fn node() -> Arc<Node> {
    let cfg =
        NodeCfg { eid_source: EidSource::Random, path: PathChoice::SameHost, ..NodeCfg::default() };
    Node::open(cfg).unwrap()
}

fn function_of(node: &Arc<Node>, attendants: &Arc<Attendants>) -> NodeFunction {
    let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
    let budget = DescriptorBudget::new(1 << 16, 64);
    NodeFunction::new(node, cfg, (Arc::clone(attendants), budget)).unwrap()
}

/// Numbers that look random.
struct Draw(u64);

impl Draw {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }

    /// Small numbers, indices that wrap, and any others.
    fn value(&mut self) -> u64 {
        match self.below(4) {
            0 => self.below(4),
            1 => self.below(1 << 16),
            2 => u64::MAX - self.below(4),
            _ => self.next(),
        }
    }
}

/// A client that works, over a socket.
struct Victim {
    function: Arc<DeviceFunction>,
    jetty: Jetty,
    jfc: Jfc,
    segment: Segment,
    memory: Region,
    context: Context,
}

impl Victim {
    fn new(node: &Arc<Node>, attendants: &Arc<Attendants>) -> Self {
        let (client, server) = UnixStream::pair().unwrap();
        let mut served = function_of(node, attendants);
        let function = Arc::clone(served.function());
        std::thread::spawn(move || serve(&server, &mut served, MapQuota::default()));
        let nic = PciNic::new(Arc::new(UserDevice::on(client, "victim").unwrap())).unwrap();
        let context = device_on(Arc::new(nic)).open(0).unwrap();
        let jfc = context.create_jfc(&JfcCfg::new(64), None).unwrap();
        let mode = TransportMode::Rm;
        let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc: &jfc };
        let cfg = JettyCfg::new(JfsCfg::new(mode, 16), &jfc, recv);
        let jetty = context.create_jetty(&cfg).unwrap();
        let memory = Region::private(LEN).unwrap();
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0xd1ce_5eed));
        let segment = context.register(&memory, &cfg, None).unwrap();
        Self { function, jetty, jfc, segment, memory, context }
    }

    /// Of its memory, of what it has, and of its accesses that were refused.
    fn hash(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let mut bytes = vec![0; LEN];
        self.memory.read(0, &mut bytes).unwrap();
        bytes.hash(&mut hasher);
        self.function.quotas().map(|quota| (quota.used, quota.refused)).hash(&mut hasher);
        self.function.foreign_accesses().hash(&mut hasher);
        hasher.finish()
    }

    /// Writes the first half of its memory to the second one.
    fn write(&mut self, byte: u8) {
        let target = self.context.import_jetty(&self.jetty.remote()).unwrap();
        let remote = self.segment.remote();
        let remote =
            self.context.import_segment(&remote, SegmentAccess::REMOTE_ALL, Mapping::None).unwrap();
        self.memory.write(0, &[byte; LEN / 2]).unwrap();
        let half = u32::try_from(LEN / 2).unwrap();
        let src = [self.segment.sge(0, half)];
        let op = SendOp::Write { src: &src, dst: remote.at(u64::from(half)) };
        self.jetty.post_send(&[SendWr::new(op, &target, 1)]).unwrap();
        let begun = Instant::now();
        let done = loop {
            let mut done = [urma::Completion::default()];
            if self.jfc.poll(&mut done).unwrap() == 1 {
                break done[0];
            }
            assert!(begun.elapsed() < Duration::from_secs(10), "no completion");
        };
        done.success().unwrap();
        let mut seen = vec![0; LEN / 2];
        self.memory.read(LEN / 2, &mut seen).unwrap();
        assert!(seen.iter().all(|seen| *seen == byte));
    }
}

/// A client that writes anything to its function.
struct HostileClient {
    function: NodeFunction,
    rings: Region,
    slots: Region,
    draw: Draw,
    /// Number of accesses that were refused.
    refused: u64,
}

impl HostileClient {
    fn new(node: &Arc<Node>, attendants: &Arc<Attendants>, seed: u64) -> Self {
        let mut function = function_of(node, attendants);
        let rings = Region::shared(LEN, Pages::Base).unwrap();
        let slots = function.memory(2).unwrap();
        function.map(RINGS, Some((rings.clone(), DmaAccess::Both))).unwrap();
        Self { function, rings, slots, draw: Draw(seed), refused: 0 }
    }

    fn count(&mut self, result: Result<(), Errno>) {
        self.refused += u64::from(result.is_err());
    }

    fn offset(&mut self) -> u64 {
        let page = regs::JETTY_PAGES + self.draw.below(2048) * doorbell::PAGE_LEN;
        match self.draw.below(8) {
            0 => self.draw.below(0x80) & !3,
            1 => regs::CMD_PI,
            2 => regs::JFC_DB,
            3 => regs::EQ_CI,
            4 => page + doorbell::SQ_PI,
            5 => page,
            6 => regs::SLOT_WAKE,
            _ => self.draw.value(),
        }
    }

    fn enable(&mut self) {
        for (offset, value) in [
            (regs::CMD_BASE, RINGS),
            (regs::RSP_BASE, RINGS + 0x4000),
            (regs::AEQ_BASE, RINGS + 0x8000),
        ] {
            let written = self.function.write(0, offset, &value.to_le_bytes());
            self.count(written);
        }
        for (offset, value) in
            [(regs::CMD_DEPTH, 64_u32), (regs::AEQ_DEPTH, 64), (regs::CONTROL, 1)]
        {
            let written = self.function.write(0, offset, &value.to_le_bytes());
            self.count(written);
        }
    }

    fn step(&mut self) {
        match self.draw.below(64) {
            0..16 => {
                let (offset, value) = (self.offset(), self.draw.value());
                let len = [4, 8, 64, 3][usize::try_from(self.draw.below(4)).unwrap()];
                let bytes: Vec<u8> =
                    value.to_le_bytes().iter().copied().cycle().take(len).collect();
                let is_reset = offset == regs::CONTROL && value & 2 != 0;
                let written =
                    if is_reset { Ok(()) } else { self.function.write(0, offset, &bytes) };
                self.count(written);
            }
            16..20 => {
                let (offset, mut bytes) = (self.offset(), [0; 8]);
                let read = self.function.read(0, offset, &mut bytes);
                self.count(read);
            }
            20..22 => {
                let (offset, value) = (self.draw.below(300), self.draw.value());
                let written = self.function.write(7, offset & !0x57, &value.to_le_bytes());
                self.count(written);
            }
            22..44 => self.ring(),
            44..46 => {
                let (at, value) = (self.draw.below(1 << 17) & !7, self.draw.value());
                self.slots.store_u64(usize::try_from(at).unwrap(), value).unwrap();
            }
            46..62 => {
                // A command or entry, with small numbers where those are indices.
                let (at, value) = (self.draw.below(LEN as u64 / 8) * 8, self.draw.value());
                let value = if at.is_multiple_of(64) { value & 0x0f3f } else { value };
                self.rings.store_u64(usize::try_from(at).unwrap(), value).unwrap();
            }
            62 => {
                let address = self.draw.below(64) << 16;
                let is_map = self.draw.below(2) == 0;
                let map =
                    (is_map && address != RINGS).then(|| (self.rings.clone(), DmaAccess::Both));
                let mapped = self.function.map(address, map);
                self.count(mapped);
            }
            _ => self.enable(),
        }
    }

    /// Doorbells of queues that may not exist.
    fn ring(&mut self) {
        let slot = usize::try_from(self.draw.below(1024)).unwrap();
        let at = SlotGeometry::DEVICE.first + slot * SlotGeometry::DEVICE.stride;
        let (object, index) = (self.draw.below(2048), self.draw.value());
        let [object, index] =
            [object, index & 0xffff_ffff].map(|word| u32::try_from(word).unwrap());
        let value = match self.draw.below(3) {
            0 => SlotDoorbell::Queue { id: object, pi: index }.encode(),
            1 => SlotDoorbell::Jfc { jfcn: object, ci: index }.encode(),
            _ => self.draw.next(),
        };
        let arm = SlotArm { arm: doorbell::CqArm::Any, arm_sn: 1 }.encode();
        self.slots.store_u64(at, value).unwrap();
        self.slots.store_u64(at + 8, self.draw.next() << 32 | u64::from(arm)).unwrap();
        let bits = SlotGeometry::DEVICE.rung + slot / 64 * 8;
        self.slots.store_u64(bits, 1 << (slot % 64)).unwrap();
    }
}

#[test]
fn a_client_that_writes_anything_changes_nothing_of_another_one() {
    let steps = urma_tools::variable("URMA_HOSTILE_STEPS");
    let steps = steps.and_then(|text| text.to_str()?.parse().ok());
    let attendants = Attendants::start().unwrap();
    let node = node();
    let mut victim = Victim::new(&node, &attendants);
    victim.write(1);
    let before = victim.hash();
    let mut attacker = HostileClient::new(&node, &attendants, 0x5eed_cafe);
    attacker.enable();
    for _ in 0..steps.unwrap_or(STEPS) {
        attacker.step();
    }
    assert_eq!(victim.hash(), before, "another client's state changed");
    assert_eq!(victim.jfc.poll(&mut [urma::Completion::default()]).unwrap(), 0);
    victim.write(2);
    // Each kind of refusal is counted where it was made.
    let device = node.device();
    for counter in [Counter::BadRegisterAccess, Counter::BadDoorbell] {
        assert!(device.counter(counter) > 0, "{}", counter.name());
    }
    assert!(attacker.refused > 0 && attacker.function.function().foreign_accesses() > 0);
    // The function of the attacker works again after a reset.
    attacker.function.reset().unwrap();
    let mut id = [0; 8];
    attacker.function.read(0, regs::ID, &mut id).unwrap();
    assert_eq!(u64::from_le_bytes(id), regs::MAGIC);
}
