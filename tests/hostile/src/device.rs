//! The device in front of a driver that writes nonsense to registers and rings.
//!
//! *Owns*: the steps of the hostile driver and the promises of the device. *Takes*: bytes, virtual
//! time. *Gives*: a panic when a promise is broken. *Must not*: use a thread or a clock.
//!
//! The device never panics; stores nothing outside segments, nor where it may only read, nor under
//! a token that was not shown; comes to rest when nothing is asked of it; and after a reset works
//! as on the first day.

use ubcore_sim::{DeviceCfg, ExpressLane};
use udma_abi::{
    Opcode, Sge, Sqe,
    cmd::CMD_WORDS,
    doorbell, regs,
    sqe::{SqeFlags, SqeTargetKind},
};

use crate::{
    Bytes,
    driver::{
        DATA_VA, Driver, GUARD_IOVA, GUARD_VA, MEM_IOVA, MEM_LEN, PAGE, READ_ONLY_IOVA, TOKEN,
        VAULT_IOVA, VAULT_TOKEN, VAULT_VA, eid,
    },
};

/// Rounds in which a device that is asked nothing more must come to rest.
const ROUNDS_MAX: usize = 100_000;
/// Steps between two looks at the guarded bytes.
const LOOK_EVERY: usize = 32;

/// Fuzz target: a driver that breaks the rules of the device, with the express lane and without; `data`
/// chooses how.
pub fn device(data: &[u8]) {
    device_with(data, |_| {});
    device_with(data, |cfg| cfg.lane = ExpressLane::Off);
}

/// As [`device`], with a changed configuration (to plant a fault).
pub fn device_with(data: &[u8], change: impl FnOnce(&mut DeviceCfg)) {
    let mut driver = Driver::new(change);
    let mut bytes = Bytes::new(data);
    for number in 0.. {
        if step(&mut driver, &mut bytes).is_none() {
            break;
        }
        if number % LOOK_EVERY == 0 {
            driver.check_guards();
        }
    }
    rest(&mut driver);
    driver.check_guards();
    driver.recover();
    rest(&mut driver);
    driver.check_guards();
}

/// One step; `None` when the bytes are used up.
fn step(driver: &mut Driver, bytes: &mut Bytes<'_>) -> Option<()> {
    match bytes.byte()? % 16 {
        0..6 => request(driver, bytes)?,
        6 => {
            let (offset, value) = (register(driver, bytes)?, tame(bytes.odd_word()?));
            driver.dev.write64(|| driver.now, &driver.function, (offset, value));
        }
        7 => {
            let (offset, value) = (register(driver, bytes)?, tame(bytes.odd_word()?));
            driver.dev.write32(|| driver.now, &driver.function, (offset, low(value)));
        }
        8 => {
            let offset = register(driver, bytes)?;
            let mut words = [0; 8];
            for word in &mut words {
                *word = tame(bytes.odd_word()?);
            }
            driver.dev.write_block(|| driver.now, &driver.function, (offset, &words));
        }
        9 => {
            let _ = driver.dev.read(&driver.function, register(driver, bytes)?);
        }
        10 => {
            // Rings and records lie in the front.
            let (at, value) = (bytes.below(0xd000 / 8)? * 8, tame(bytes.odd_word()?));
            driver.mem.store_u64(at, value).expect("inside");
        }
        11 => command(driver, bytes)?,
        12 => {
            driver.now += u64::from(bytes.short()?) << (bytes.byte()? % 20);
            let _ = driver.dev.step(driver.now);
        }
        13 => {
            let (from, len) = (eid(bytes.byte()?), bytes.below(300)?);
            driver.dev.on_datagram(driver.now, from, bytes.take(len));
        }
        14 => match bytes.byte()? % 3 {
            0 => driver.answer_host(),
            1 => driver.dev.on_packet_peer(driver.now, eid(bytes.byte()?)),
            _ => driver.dev.on_peer_gone(driver.now, eid(bytes.byte()?)),
        },
        _ => {
            for _ in 0..=bytes.byte()? % 8 {
                let _ = driver.dev.step(driver.now);
            }
            transmit(driver);
        }
    }
    Some(())
}

/// A request that is nearly right, most often at an edge of its segments.
fn request(driver: &mut Driver, bytes: &mut Bytes<'_>) -> Option<()> {
    let opcode = Opcode::ALL[bytes.below(Opcode::ALL.len())?];
    let kind = SqeTargetKind::from_code(bytes.byte()? % 3)?;
    let len = length(bytes)?;
    let (token_id, va, token_value) = match bytes.byte()? % 8 {
        0 => (driver.data, DATA_VA.wrapping_add(edge(bytes, len)?), TOKEN),
        1 => (driver.vaulted, VAULT_VA + u64::from(bytes.short()?) % 4096, TOKEN),
        _ => (driver.guarded, GUARD_VA.wrapping_add(edge(bytes, len)?), TOKEN),
    };
    let (local_id, local_va) = if bytes.byte()?.is_multiple_of(2) {
        (driver.data, DATA_VA + u64::from(bytes.short()?) % 4096)
    } else {
        (driver.guarded, GUARD_VA.wrapping_add(edge(bytes, len)?))
    };
    let sqe = Sqe {
        flags: SqeFlags::from_bits_truncate(bytes.byte()? & !SqeFlags::INLINE.bits()),
        token_en: true,
        target_kind: kind,
        target_id: driver.jetty,
        token_value,
        seg_token_id: token_id,
        seg_token_value: token_value,
        remote_va: va,
        notify_va: va & !7,
        notify_token_id: token_id,
        imm: u64::from(bytes.short()?),
        operand: u64::from(bytes.byte()?),
        ..Sqe::new(opcode)
    };
    driver.post(sqe, Sge { len, token_id: local_id, va: local_va });
    Some(())
}

fn length(bytes: &mut Bytes<'_>) -> Option<u32> {
    Some(match bytes.byte()? % 4 {
        0 => 8,
        1 => 4096,
        2 => u32::from(bytes.byte()?),
        _ => u32::from(bytes.short()?),
    })
}

/// An offset at which `len` bytes begin or end near an edge of a page.
fn edge(bytes: &mut Bytes<'_>, len: u32) -> Option<u64> {
    let slack = u64::from(bytes.byte()? % 20);
    let end = (PAGE as u64).saturating_sub(u64::from(len));
    Some(match bytes.byte()? % 4 {
        0 => 0_u64.wrapping_sub(slack),
        1 => slack,
        2 => end.wrapping_add(slack),
        _ => end.wrapping_sub(slack),
    })
}

/// A register: most often one that means something.
fn register(driver: &Driver, bytes: &mut Bytes<'_>) -> Option<u64> {
    let known = [
        regs::STATUS,
        regs::CONTROL,
        regs::CMD_BASE,
        regs::RSP_BASE,
        regs::CMD_DEPTH,
        regs::CMD_PI,
        regs::AEQ_BASE,
        regs::AEQ_DEPTH,
        regs::AEQ_CI,
        regs::JFC_DB,
        regs::EQ_CI,
    ];
    let page = |id: u64| regs::JETTY_PAGES + id * doorbell::PAGE_LEN;
    Some(match bytes.byte()? % 4 {
        0 => known[bytes.below(known.len())?],
        1 => page(u64::from(driver.jetty)) + u64::from(bytes.byte()? % 2) * doorbell::SQ_PI,
        2 => page(u64::from(bytes.short()?)) + u64::from(bytes.byte()?),
        _ => bytes.odd_word()?,
    })
}

/// A command of any opcode whose words are most often something that exists.
fn command(driver: &mut Driver, bytes: &mut Bytes<'_>) -> Option<()> {
    let mut words = [0; CMD_WORDS];
    words[0] = u64::from(bytes.byte()? % 30) | u64::from(bytes.byte()?) << 32;
    for word in words.iter_mut().skip(1).take(usize::from(bytes.byte()? % 16)) {
        *word = tame(match bytes.byte()? % 8 {
            0 => MEM_IOVA + u64::from(bytes.short()?) * 8,
            1 => u64::from(driver.jetty),
            2 => u64::from(driver.data),
            3 => u64::from(driver.tpn) | u64::from(driver.data) << 32,
            4 => u64::from(bytes.byte()? % 4) | u64::from(bytes.byte()?) << 32,
            5 => u64::from(bytes.byte()?),
            _ => bytes.odd_word()?,
        });
    }
    driver.submit(&words);
    let _ = driver.dev.step(driver.now);
    Some(())
}

/// Words that would give guarded memory away become 0: the driver owns that memory, so it could
/// register it otherwise, and nothing would be wrong.
fn tame(word: u64) -> u64 {
    let guarded = [READ_ONLY_IOVA, GUARD_IOVA, VAULT_IOVA];
    let names = guarded.iter().any(|base| (*base..base + 4 * PAGE as u64).contains(&word));
    let shows = low(word) == VAULT_TOKEN || low(word >> 32) == VAULT_TOKEN;
    if names || shows { 0 } else { word }
}

fn transmit(driver: &Driver) {
    let mut buffer = [0; 9216];
    for _ in 0..64 {
        if driver.dev.poll_transmit(driver.now, &mut buffer).is_none() {
            return;
        }
    }
}

/// Lets time pass until the device has no deadline left.
fn rest(driver: &mut Driver) {
    for _ in 0..ROUNDS_MAX {
        driver.answer_host();
        transmit(driver);
        if driver.dev.step(driver.now) {
            continue;
        }
        match driver.dev.poll_deadline() {
            None => return,
            Some(at) => driver.now = at.max(driver.now + 1000),
        }
    }
    panic!("the device does not come to rest: {:?}", driver.dev.poll_deadline());
}

const fn low(word: u64) -> u32 {
    let [a, b, c, d, ..] = word.to_le_bytes();
    u32::from_le_bytes([a, b, c, d])
}

const _: () = assert!(MEM_LEN > 0xd000);
