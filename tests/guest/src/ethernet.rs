//! The driver for e1000e against QEMU's card; the other end of its cable is at the host.
//!
//! *Owns*: this host's address. *Takes*: frames. *Gives*: answers, until the other end says that it is content.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use udma_vfio::{
    PciDevice,
    kernel::{KernelDevice, PciSysfs},
};
use urma_e1000e::{
    CardError, E1000e, FRAME_MAX, IDS,
    answer::{AnswerKind, answer},
};

use crate::{
    CheckResult, Suite, during, expect,
    planted::{DeviceFault, FaultyDevice, found},
};

/// Addresses that the host gives this machine.
const MAC: [u8; 6] = [2, 0, 0, 0, 0, 2];
const IP: [u8; 4] = [10, 0, 0, 2];
/// Type of the frame that ends the exchange.
const DONE: [u8; 2] = [0x88, 0xB5];
/// Longest time of the exchange.
const PATIENCE: Duration = Duration::from_secs(40);
/// Longest time of an exchange that cannot end.
const PATIENCE_PLANTED: Duration = Duration::from_secs(1);

/// Binds, opens and runs the card.
pub(crate) fn run(suite: &mut Suite) {
    let device = match open() {
        Ok(device) => device,
        Err(why) => return suite.check("e1000e: bound and opened", Err(why)),
    };
    suite.check("e1000e: bound and opened", Ok(()));
    let mut card = match E1000e::new(Arc::clone(&device)) {
        Ok(card) => card,
        Err(error) => return suite.check("e1000e: reset, rings, link", Err(error.to_string())),
    };
    suite.check("e1000e: reset, rings, link", Ok(()));
    suite.check("e1000e: Ethernet address", expect("address", card.mac(), MAC));
    suite.check("e1000e: frames that cannot be sent", refusals(&mut card));
    suite.check("e1000e: ARP and ping answered, by interrupts", serve(&mut card, PATIENCE));
    drop(card);
    let again = E1000e::new(Arc::clone(&device)).map(drop).map_err(|error| error.to_string());
    suite.check("e1000e: taken over again after its end", again);
    // The other end goes on sending that it is content.
    for (fault, name) in [
        (DeviceFault::InterruptsLost, "planted in e1000e: no interrupts"),
        (DeviceFault::MapForgotten, "planted in e1000e: memory is not mapped"),
    ] {
        let faulty = Arc::new(FaultyDevice { inner: Arc::clone(&device), fault });
        let result = E1000e::new(faulty).map_err(|error| error.to_string());
        let result = result.and_then(|mut card| serve(&mut card, PATIENCE_PLANTED));
        suite.check(name, found(result));
    }
}

fn open() -> Result<Arc<dyn PciDevice>, String> {
    let sysfs = PciSysfs::default();
    let all = sysfs.functions().map_err(during("sysfs"))?;
    let found = all.iter().find(|function| (function.vendor, function.device) == IDS);
    let address = found.ok_or("no function has its ids")?.address;
    sysfs.bind(address).map_err(during("bind"))?;
    Ok(Arc::new(KernelDevice::open(address).map_err(during("open"))?))
}

fn refusals(card: &mut E1000e) -> CheckResult {
    for len in [0, 13, FRAME_MAX + 1] {
        match card.send(&vec![0; len]) {
            Err(CardError::FrameLength(found)) if found == len => {}
            other => return Err(format!("{len} bytes: {other:?}")),
        }
    }
    Ok(())
}

/// Answers until the other end is content.
fn serve(card: &mut E1000e, patience: Duration) -> CheckResult {
    let end = now() + patience;
    let (mut arps, mut pings, mut interrupts) = (0_u32, 0_u32, 0_u64);
    let mut is_done = false;
    while !is_done {
        if now() > end {
            return Err(format!(
                "after {patience:?}: {arps} ARP and {pings} ping requests, {interrupts} interrupts"
            ));
        }
        // What came without an interrupt stays: frames are taken because of one, or never.
        let count = card.wait(Duration::from_millis(500)).map_err(during("waiting"))?;
        interrupts += count;
        if count == 0 {
            continue;
        }
        while let Some(frame) = card.receive().map_err(during("receiving"))? {
            is_done |= frame.get(12..14) == Some(&DONE);
            let Some((kind, reply)) = answer(card.mac(), IP, &frame) else { continue };
            match kind {
                AnswerKind::Arp => arps += 1,
                AnswerKind::Ping => pings += 1,
            }
            reply_with(card, &reply, end)?;
        }
    }
    expect("ARP and ping requests came", (arps > 0, pings > 0), (true, true))
}

/// Sends, and waits for room in the ring.
fn reply_with(card: &mut E1000e, reply: &[u8], end: Instant) -> CheckResult {
    loop {
        match card.send(reply) {
            Ok(()) => return Ok(()),
            Err(CardError::Full) if now() < end => std::thread::yield_now(),
            Err(error) => return Err(format!("sending: {error}")),
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a card and its cable take real time")]
fn now() -> Instant {
    Instant::now()
}
