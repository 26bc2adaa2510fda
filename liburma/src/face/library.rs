//! State of the library between `urma_init` and `urma_uninit`, and the end of a process that did not delete its contexts.
//!
//! *Owns*: the list of devices, the shared objects of providers; how long the end of the process may take. *Takes*:
//! devices of providers. *Gives*: lookups. *Must not*: wait or call a provider under its latch; end an object when the
//! process ends, because threads of the program may use it until then.

use core::{ffi::CStr, ptr::NonNull};
use std::{
    sync::{Arc, Condvar, Mutex},
    thread,
    time::Duration,
};

use crate::{
    abi::*,
    call::{self, Answer, c_text, refuse},
    latch::{Latch, lock},
    provider::{self, SharedObject},
    slab::{self, Slot},
    udma::{
        device,
        hardware::{DEVICE_NAME, Hardware, aliases},
        kind, table,
    },
};

/// A device of the list.
pub(crate) type ListedDevice = call::Object<urma_device_t>;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Down,
    Starting,
    Up,
    Stopping,
}

/// A device of a third-party provider.
#[derive(Clone, Copy)]
enum Foreign {
    /// The system lists the device.
    Listed(Slot<kind::Device>),
    /// The provider created the device.
    Given(NonNull<urma_device_t>),
}

// SAFETY: an address; the provider keeps its device while it is registered, whatever thread reads it.
unsafe impl Send for Foreign {}

impl Foreign {
    fn public(self) -> *mut urma_device_t {
        match self {
            Self::Listed(slot) => slot.public(),
            Self::Given(device) => device.as_ptr(),
        }
    }

    fn provider(self) -> *mut urma_provider_ops_t {
        // SAFETY: as for `Library::all`: a listed device lives.
        unsafe { (*self.public()).ops }
    }

    fn end(self) {
        if let Self::Listed(slot) = self {
            slot.end();
        }
    }
}

struct Library {
    phase: Phase,
    /// The software device, once for each of its names.
    own: Vec<Slot<kind::Device>>,
    hardware: Option<Arc<Hardware>>,
    foreign: Vec<Foreign>,
    objects: Vec<SharedObject>,
}

impl Library {
    fn all(&self) -> impl Iterator<Item = ListedDevice> {
        let own = self.own.iter().map(|device| device.public());
        let all = own.chain(self.foreign.iter().map(|device| device.public()));
        // SAFETY: a device that is listed lives: its slot stays mapped, or its provider keeps it until it
        // unregisters, which takes it off the list.
        all.filter_map(|device| unsafe { ListedDevice::at(device) })
    }

    fn has(&self, name: &CStr) -> bool {
        self.all().any(|device| c_text(&device.name) == name)
    }
}

const NOTHING: Library = Library {
    phase: Phase::Down,
    own: Vec::new(),
    hardware: None,
    foreign: Vec::new(),
    objects: Vec::new(),
};

static LIBRARY: Latch<Library> = Latch::new(NOTHING);

/// Forgets everything in a forked child: all objects, devices and providers are its parent's.
pub(crate) fn abandon() {
    slab::abandon_all();
    LIBRARY.abandon(NOTHING);
    provider::abandon();
}

/// Starts the library and the providers.
///
/// # Errors
/// EEXIST: the library runs already. ENOMEM.
pub(crate) fn start(conf: *mut urma_init_attr_t) -> Answer {
    call::note_generation()?;
    let objects = LIBRARY.with(|library| {
        if library.phase != Phase::Down {
            return Err(refuse!(EEXIST, "the library runs already; call urma_uninit first"));
        }
        library.phase = Phase::Starting;
        Ok(core::mem::take(&mut library.objects))
    })?;
    let started = call::part(|| begin(conf, objects));
    if started.is_ok() {
        LIBRARY.with(|library| library.phase = Phase::Up);
    } else if call::part(wind_down).is_err() {
        tracing::warn!(target: "urma", "the library did not start, and a provider did not stop");
    }
    started
}

/// Creates the software device under each of its names, starts the providers and lists their devices. A name that is
/// listed already is not listed again.
fn begin(conf: *mut urma_init_attr_t, objects: Vec<SharedObject>) -> Answer {
    call::at("start");
    let driver = provider::driver(table::provider())?;
    let hardware = Arc::new(Hardware::default());
    LIBRARY.with(|library| library.hardware = Some(Arc::clone(&hardware)));
    // Programs that look for a device by EID take the first match; some take bonding devices only.
    let (bonding, others): (Vec<_>, Vec<_>) =
        aliases().into_iter().partition(|name| name.starts_with("bonding_dev"));
    for name in bonding.into_iter().chain([DEVICE_NAME.to_owned()]).chain(others) {
        let device = device::make(&name, &hardware, driver)?;
        LIBRARY.with(|library| library.own.push(device));
    }
    let objects = provider::start(table::provider(), conf, objects)?;
    LIBRARY.with(|library| library.objects = objects);
    let is_listed = |name: &CStr| LIBRARY.with(|library| library.has(name));
    let foreign = provider::discover(table::provider(), is_listed)?;
    LIBRARY.with(|library| library.foreign.extend(foreign.into_iter().map(Foreign::Listed)));
    Ok(())
}

/// Stops the library. Devices with contexts remain until those are deleted, but can no longer be found.
///
/// # Errors
/// FAIL: a provider did not stop; the library did all the same.
pub(crate) fn stop() -> Answer {
    let is_up = LIBRARY.with(|library| {
        let is_up = library.phase == Phase::Up;
        if is_up {
            library.phase = Phase::Stopping;
        }
        is_up
    });
    let stopped = if is_up { call::part(wind_down) } else { Ok(()) };
    if is_up {
        // After a panic, the remains are forgotten, so that the library can start again.
        LIBRARY.with(|library| {
            if library.phase == Phase::Stopping {
                *library = NOTHING;
            }
        });
    }
    stopped
}

/// Undoes what `begin` did, as far as it got.
fn wind_down() -> Answer {
    call::at("stop");
    let answer = provider::stop();
    let ended = LIBRARY.with(|library| {
        let phase = library.phase;
        core::mem::replace(library, Library { phase, ..NOTHING })
    });
    end_own(ended.own, ended.hardware);
    let is_used = |device: &Foreign| provider::is_running(device.provider());
    let (kept, unused): (Vec<_>, Vec<_>) = ended.foreign.into_iter().partition(is_used);
    unused.into_iter().for_each(Foreign::end);
    let objects = provider::unload(ended.objects);
    LIBRARY.with(|library| {
        library.foreign.extend(kept);
        library.objects = objects;
        library.phase = Phase::Down;
    });
    answer
}

fn end_own(devices: Vec<Slot<kind::Device>>, hardware: Option<Arc<Hardware>>) {
    // The names and this list hold the device; any further holder is a context, which reads its memory.
    let holders = devices.len() + 1;
    let is_used = hardware.is_some_and(|hardware| Arc::strong_count(&hardware) > holders);
    if is_used {
        tracing::warn!(target: "urma", "the library stops while contexts live");
        return;
    }
    devices.into_iter().for_each(Slot::end);
}

/// Returns the listed devices.
///
/// # Errors
/// ENODEV: the library is not initialised.
pub(crate) fn devices() -> Answer<Vec<ListedDevice>> {
    LIBRARY.with(|library| {
        if library.phase != Phase::Up {
            return Err(refuse!(ENODEV, "the library is not initialised; call urma_init first"));
        }
        Ok(library.all().collect())
    })
}

/// Returns the software device, while the library runs.
pub(crate) fn hardware() -> Option<Arc<Hardware>> {
    LIBRARY.with(|library| library.hardware.clone().filter(|_| library.phase == Phase::Up))
}

/// Finds a device by name.
///
/// # Errors
/// ENODEV: no device has this name, or the library is not initialised.
pub(crate) fn device_named(name: &CStr) -> Answer<ListedDevice> {
    let devices = devices()?;
    devices.iter().find(|of| c_text(&of.name) == name).copied().ok_or_else(|| {
        let known: Vec<_> = devices.iter().map(|of| c_text(&of.name).to_string_lossy()).collect();
        refuse!(
            ENODEV,
            "no device is named {name:?}; there are {known:?}, and URMA_DEVICE_ALIAS adds names"
        )
    })
}

/// Lists a device that a provider created.
///
/// # Errors
/// EEXIST: a device of this name is listed. ENODEV: the library neither runs nor starts.
pub(crate) fn add(device: NonNull<urma_device_t>) -> Answer {
    LIBRARY.with(|library| {
        if library.phase != Phase::Up && library.phase != Phase::Starting {
            return Err(refuse!(
                ENODEV,
                "the library neither runs nor starts; call urma_init first"
            ));
        }
        // SAFETY: the provider that lists the device keeps it until it unregisters.
        let listed = unsafe { ListedDevice::at(device.as_ptr()) }
            .ok_or_else(|| refuse!(EINVAL, "the device is NULL"))?;
        if library.has(c_text(&listed.name)) {
            return Err(refuse!(EEXIST, "a device of this name is listed"));
        }
        library.foreign.push(Foreign::Given(device));
        Ok(())
    })
}

/// Removes a device that [`add`] listed.
pub(crate) fn remove(device: *const urma_device_t) {
    LIBRARY.with(|library| library.foreign.retain(|of| of.public().cast_const() != device));
}

/// Removes all devices of a provider.
pub(crate) fn forget(provider: *mut urma_provider_ops_t) {
    let gone: Vec<_> = LIBRARY
        .with(|library| library.foreign.extract_if(.., |of| of.provider() == provider).collect());
    gone.into_iter().for_each(Foreign::end);
}

/// How long peers may take to fetch their last responses.
const LINGER: Duration = Duration::from_millis(80);
/// Longest delay of the end of the process, for when a thread holds the node forever or gets no processor. Peers that are
/// not notified wait for the timeouts of their jetties, which may be far longer.
const MOST: Duration = Duration::from_secs(1);

/// Tells peers on other hosts that the node of this process closes. A forked child has none of its own, and after
/// `urma_uninit` there is none.
pub(crate) fn leave() {
    let Some(node) = hardware().and_then(|hardware| hardware.node()) else { return };
    let done = Arc::new((Mutex::new(false), Condvar::new()));
    let ended = Arc::clone(&done);
    // A thread of its own, so that the process ends in time even if another thread holds the node. Also, the
    // thread-local values of this thread are gone by now.
    let leaving = thread::Builder::new().name("urma-exit".to_owned()).spawn(move || {
        node.leave(LINGER);
        // Never dropped: its device may be in use until the process ends.
        core::mem::forget(node);
        *lock(&ended.0) = true;
        ended.1.notify_one();
    });
    if leaving.is_ok() {
        // The process ends even if the timeout expired.
        drop(done.1.wait_timeout_while(lock(&done.0), MOST, |is_done| !*is_done));
    }
}
