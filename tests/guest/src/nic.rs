//! The device of this project, which `ubcored` serves to the machine by vfio-user: the same driver as everywhere, over the
//! kernel's VFIO.
//!
//! *Owns*: the checks of that device. *Takes*: the function. *Must not*: know what is below the traits.

use std::{sync::Arc, time::Duration};

use udma_abi::backing::{DEVICE_ID, VENDOR_ID};
use udma_provider::{DriverCfg, RingPages, UdmaDevice};
use udma_vfio::{
    PciDevice, PciNic, WindowId,
    kernel::{KernelDevice, PciFunction, PciSysfs},
};
use urma_core::{
    Completions, Context, Device, Jetty, JettyCfg, JettyRecv, JfcCfg, JfrCfg, JfsCfg, Mapping,
    RecvWr, Segment, SegmentAccess, SegmentCfg, SendOp, SendWr, Status, Token, TokenPolicy,
    TransportMode,
};
use urma_mem::{Pages, Region};

use crate::{CheckResult, Suite, during, expect};

/// Longest time for one request, in an emulated machine under load.
const PATIENCE: Duration = Duration::from_secs(20);
/// Bytes of the memory that requests move, in pages that need one mapping.
const LEN: usize = 2 << 20;
/// Bytes of one transfer.
const BULK: u32 = 100_000;

/// Binds, opens and checks the device.
pub(crate) fn run(suite: &mut Suite) {
    let sysfs = PciSysfs::default();
    let Some(found) = functions(&sysfs).into_iter().next() else {
        return suite.check("nic: found in sysfs", Err("no function has its ids".to_owned()));
    };
    suite.check("nic: bound to vfio-pci", sysfs.bind(found.address).map_err(|e| e.to_string()));
    let device = match KernelDevice::open(found.address) {
        Ok(device) => Arc::new(device),
        Err(error) => return suite.check("nic: opened", Err(error.to_string())),
    };
    suite.check("nic: windows", windows(&*device));
    let end = match PciNic::new(device).map_err(during("PciNic")).and_then(NicEnd::new) {
        Ok(end) => end,
        Err(why) => return suite.check("nic: driver started", Err(why)),
    };
    let mut end = end;
    suite.check("nic: WRITE and READ of its own memory", write_and_read(&mut end));
    suite.check("nic: SEND with an event for each end", send(&mut end));
    suite.check("nic: a wrong token is refused", wrong_token(&mut end));
    suite.check("nic: memory that is not registered any more is refused", withdrawn(&mut end));
}

/// All functions with its ids.
pub(crate) fn functions(sysfs: &PciSysfs) -> Vec<PciFunction> {
    let is_it = |found: &PciFunction| (found.vendor, found.device) == (VENDOR_ID, DEVICE_ID);
    sysfs.functions().unwrap_or_default().into_iter().filter(is_it).collect()
}

fn windows(device: &dyn PciDevice) -> CheckResult {
    for (index, len) in [(0, udma_abi::regs::BAR_LEN), (2, udma_abi::slots::SLOT_LEN as u64)] {
        let window = device.window(WindowId::Bar(index)).map_err(|error| error.to_string())?;
        expect("length of a window", window.len(), len)?;
    }
    Ok(())
}

/// A jetty of the device that sends to itself.
struct NicEnd {
    jetty: Jetty,
    completions: Completions,
    segment: Segment,
    memory: Region,
    context: Context,
}

impl NicEnd {
    fn new(nic: PciNic) -> Result<Self, String> {
        // Base pages of a guest are mapped one by one, and a ring of the device lies in one mapping.
        let cfg = DriverCfg { ring_pages: RingPages::Huge, ..DriverCfg::default() };
        let device = Device::new(Arc::new(UdmaDevice::new(Arc::new(nic), cfg)));
        let made = || -> Result<Self, Status> {
            let context = device.open(0)?;
            let completions = context.create_completions(&JfcCfg::new(64))?;
            let (jfc, mode) = (completions.jfc(), TransportMode::Rm);
            let recv = JettyRecv::Own { cfg: JfrCfg::new(mode, 16), jfc };
            let jetty = context.create_jetty(&JettyCfg::new(JfsCfg::new(mode, 16), jfc, recv))?;
            let memory = Region::shared(LEN, Pages::Huge2M).map_err(|_| Status::NoMemory)?;
            let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(0x5eed));
            let segment = context.register(&memory, &cfg, None)?;
            Ok(Self { jetty, completions, segment, memory, context })
        };
        made().map_err(|status| format!("{status:?}"))
    }

    /// Waits for a completion, by an event.
    fn done(&mut self) -> CheckResult {
        let found = self.completions.wait(Some(PATIENCE)).map_err(during("wait"))?;
        let completion = found.ok_or("no completion")?;
        completion.success().map(|_| ()).map_err(|status| format!("{status:?}"))
    }
}

/// Posts a request of the jetty to itself.
fn post(jetty: &mut Jetty, context: &Context, op: SendOp<'_>) -> CheckResult {
    let target = context.import_jetty(&jetty.remote()).map_err(during("import"))?;
    let posted = jetty.post_send(&[SendWr::new(op, &target, 1)]);
    posted.map_err(|refused| format!("post: {refused:?}"))
}

fn write_and_read(end: &mut NicEnd) -> CheckResult {
    let remote = end.segment.remote();
    let remote = end.context.import_segment(&remote, SegmentAccess::REMOTE_ALL, Mapping::None);
    let remote = remote.map_err(during("import"))?;
    let bytes: Vec<u8> = (0..BULK).map(|at| at.to_le_bytes()[0] ^ at.to_le_bytes()[1]).collect();
    end.memory.write(0, &bytes).map_err(during("memory"))?;
    let (src, half) = ([end.segment.sge(0, BULK)], LEN as u64 / 2);
    post(&mut end.jetty, &end.context, SendOp::Write { src: &src, dst: remote.at(half) })?;
    end.done()?;
    let dst = [end.segment.sge(half + half / 2, BULK)];
    post(&mut end.jetty, &end.context, SendOp::Read { dst: &dst, src: remote.at(half) })?;
    end.done()?;
    let mut seen = vec![0; bytes.len()];
    end.memory.read(LEN / 2 + LEN / 4, &mut seen).map_err(during("memory"))?;
    expect("what was written and read back is equal", seen == bytes, true)
}

fn send(end: &mut NicEnd) -> CheckResult {
    let dst = [end.segment.sge(4096, 64)];
    let posted = end.jetty.post_recv(&[RecvWr { dst: &dst, user_ctx: 9 }]);
    posted.map_err(|refused| format!("post: {refused:?}"))?;
    end.memory.write(0, b"hello").map_err(during("memory"))?;
    let src = [end.segment.sge(0, 5)];
    post(&mut end.jetty, &end.context, SendOp::Send { src: &src })?;
    end.done()?;
    end.done()?;
    let mut hello = [0; 5];
    end.memory.read(4096, &mut hello).map_err(during("memory"))?;
    expect("the message", &hello, b"hello")
}

fn wrong_token(end: &mut NicEnd) -> CheckResult {
    let mut remote = end.segment.remote();
    remote.policy = TokenPolicy::PlainText(Token::new(0xbad));
    refused(end, &remote)
}

fn withdrawn(end: &mut NicEnd) -> CheckResult {
    let remote = end.segment.remote();
    let memory = Region::shared(LEN, Pages::Huge2M).map_err(during("memory"))?;
    let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL).with_token(Token::new(1));
    let next = end.context.register(&memory, &cfg, None).map_err(during("register"))?;
    drop(std::mem::replace(&mut end.segment, next));
    refused(end, &remote)
}

/// A READ from `remote` ends with an error.
fn refused(end: &mut NicEnd, remote: &urma_core::RemoteSegment) -> CheckResult {
    let remote = end.context.import_segment(remote, SegmentAccess::REMOTE_ALL, Mapping::None);
    let remote = remote.map_err(during("import"))?;
    let dst = [end.segment.sge(0, 8)];
    post(&mut end.jetty, &end.context, SendOp::Read { dst: &dst, src: remote.at(0) })?;
    match end.done() {
        Err(why) if why.contains("RemAccessAbort") => Ok(()),
        other => Err(format!("the request ended as {other:?}")),
    }
}
