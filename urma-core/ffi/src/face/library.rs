//! What the library knows between `urma_init` and `urma_uninit`.
//!
//! *Owns*: the list of devices. *Takes*: devices of providers. *Gives*: lookups. *Must not*: wait
//! under its latch.

use std::sync::Arc;

use crate::{
    call::{self, Answer, Code},
    face::members,
    latch::Latch,
    slab::{self, Slot},
    udma::{
        device,
        hardware::{DEVICE_NAME, Hardware, aliases},
        kind,
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Starting,
    Up,
}

struct Library {
    phase: Phase,
    devices: Vec<Slot<kind::Device>>,
    hardware: Option<Arc<Hardware>>,
}

const NOTHING: Library = Library { phase: Phase::Down, devices: Vec::new(), hardware: None };

static LIBRARY: Latch<Library> = Latch::new(NOTHING);

/// Starts the library; in a forked child afresh.
///
/// # Errors
/// EEXIST: it runs. ENOMEM.
pub(crate) fn start() -> Answer {
    if call::is_forked() {
        slab::abandon_all();
        LIBRARY.abandon(NOTHING);
        members::abandon();
    }
    call::note_generation();
    LIBRARY.with(|library| {
        if library.phase != Phase::Down {
            return Err(Code::EEXIST);
        }
        library.phase = Phase::Starting;
        Ok(())
    })?;
    let made = discover();
    LIBRARY.with(|library| match made {
        Ok((devices, hardware)) => {
            library.devices.extend(devices);
            library.hardware = Some(hardware);
            library.phase = Phase::Up;
            Ok(())
        }
        Err(code) => {
            library.phase = Phase::Down;
            Err(code)
        }
    })
}

type Discovered = (Vec<Slot<kind::Device>>, Arc<Hardware>);

/// The software device under each of its names.
fn discover() -> Answer<Discovered> {
    let hardware = Arc::new(Hardware::default());
    let names = std::iter::once(DEVICE_NAME.to_owned()).chain(aliases());
    let devices = names
        .map(|name| device::make(&name, &hardware, device::provider()))
        .collect::<Answer<Vec<_>>>()?;
    Ok((devices, hardware))
}

/// Stops the library. Devices with contexts stay until those are deleted, but are not found.
pub(crate) fn stop() {
    let (devices, hardware) = LIBRARY.with(|library| {
        if library.phase != Phase::Up {
            return (Vec::new(), None);
        }
        library.phase = Phase::Down;
        (core::mem::take(&mut library.devices), library.hardware.take())
    });
    // Its names and this list hold it; more holders are contexts, which read their device's memory.
    let holders = devices.len() + 1;
    let is_used = hardware.is_some_and(|hardware| Arc::strong_count(&hardware) > holders);
    if is_used {
        tracing::warn!(target: "urma", "the library stops while contexts live");
        return;
    }
    for device in devices {
        if let Some(dying) = device.retire() {
            drop(dying.take());
        }
    }
}

/// The devices.
///
/// # Errors
/// ENODEV: the library is not initialised.
pub(crate) fn devices() -> Answer<Vec<Slot<kind::Device>>> {
    LIBRARY.with(|library| {
        if library.phase == Phase::Up { Ok(library.devices.clone()) } else { Err(Code::ENODEV) }
    })
}
