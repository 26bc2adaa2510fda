//! Starting and stopping of providers.
//!
//! *Owns*: the order: register, load, `init`; then `uninit`, unload. *Takes*: the configuration of
//! `urma_init`. *Gives*: the shared objects that are in use. *Must not*: let one provider's failure be
//! another's.

use std::path::Path;

use super::{
    load::{self, SharedObject},
    registry::{self, Provider},
};
use crate::{
    abi::*,
    call::{Answer, Code, refuse},
};

/// Starts the built-in provider, those that the program registered itself, and those in the
/// provider folders. `kept` is what an earlier [`unload`] gave back.
///
/// # Errors
/// What the built-in provider's `init` says. Others that fail are left out, with a log line.
pub(crate) fn start(
    built_in: *mut urma_provider_ops_t,
    conf: *mut urma_init_attr_t,
    mut kept: Vec<SharedObject>,
) -> Answer<Vec<SharedObject>> {
    match registry::register(built_in) {
        Ok(()) => {}
        Err(code) if code.is(Code::EEXIST) => {}
        Err(code) => return Err(code),
    }
    kept.extend(load::open_all(&kept));
    for provider in registry::all().filter(|provider| !provider.is_running()) {
        match init(provider, conf) {
            Ok(()) => provider.set_running(true),
            Err(InitError(_, code)) if provider.ops().as_ptr() == built_in => return Err(code),
            Err(error) => report(provider, &error, &kept),
        }
    }
    Ok(unload(kept))
}

/// Logs that a provider is left out, why, and which file it is of.
fn report(provider: Provider, error: &InitError, objects: &[SharedObject]) {
    let InitError(why, code) = error;
    let (name, status) = (provider.name(), code.status());
    let object = objects.iter().find(|object| object.handle() == provider.object());
    let path = object.map_or_else(|| Path::new("the program"), SharedObject::path).display();
    tracing::warn!(target: "urma", %path, %name, status, %why, "provider skipped");
}

struct InitError(&'static str, Code);

fn init(provider: Provider, conf: *mut urma_init_attr_t) -> Result<(), InitError> {
    // SAFETY: a registered table; the functions are read once.
    let ops = unsafe { provider.ops().read() };
    if ops.create_context.is_none() || ops.delete_context.is_none() {
        let why = "it lacks create_context or delete_context";
        return Err(InitError(why, refuse!(EINVAL, "a provider: {why}")));
    }
    let init = ops
        .init
        .ok_or_else(|| InitError("it lacks init", refuse!(EINVAL, "a provider lacks init")))?;
    // SAFETY: the caller's configuration, or NULL.
    let status = unsafe { init(conf) };
    Code::from_c(status).map_err(|code| InitError("its init fails", code))
}

/// Stops all providers without open contexts.
///
/// # Errors
/// FAIL: an `uninit` said so; every other one was called all the same.
pub(crate) fn stop() -> Answer {
    let mut answer = Ok(());
    for provider in registry::all().filter(|provider| provider.is_running()) {
        if !provider.is_idle() {
            let name = provider.name();
            tracing::warn!(target: "urma", %name, "the library stops while contexts live");
            continue;
        }
        provider.set_running(false);
        if uninit(provider).is_err() {
            let name = provider.name();
            tracing::warn!(target: "urma", %name, "uninit of the provider fails");
            answer = Err(refuse!(FAIL, "uninit of the provider {name} fails"));
        }
    }
    answer
}

fn uninit(provider: Provider) -> Answer {
    // SAFETY: a registered table; the function is read once.
    let uninit = unsafe { (*provider.ops().as_ptr()).uninit }
        .ok_or_else(|| refuse!(FAIL, "a provider lacks uninit"))?;
    // SAFETY: it was started, and no context of it is open.
    Code::from_c(unsafe { uninit() })
}

/// Unloads objects of which no provider runs; gives back the others.
pub(crate) fn unload(objects: Vec<SharedObject>) -> Vec<SharedObject> {
    let is_used = |object: &SharedObject| {
        registry::all()
            .any(|provider| provider.is_running() && provider.object() == object.handle())
    };
    let (used, unused): (Vec<_>, Vec<_>) = objects.into_iter().partition(is_used);
    for object in unused {
        tracing::debug!(target: "urma", path = %object.path().display(), "provider unloaded");
        object.close();
    }
    used
}
