//! Performance counters of calls.

use core::ffi::c_char;

use crate::{
    abi::*,
    call::{self, Code, UserArray, refuse},
    perf,
};

/// Starts to count, from zero.
pub unsafe extern "C" fn urma_start_perf() -> urma_status_t {
    call::status(|| {
        perf::start();
        Ok(())
    })
}

/// Stops to count; without a start it does nothing, and succeeds.
pub unsafe extern "C" fn urma_stop_perf() -> urma_status_t {
    call::status(|| {
        perf::stop();
        Ok(())
    })
}

/// The table as text with a zero at its end. `length` says how many bytes there are room for, and
/// how many were written. `URMA_EINVAL`: less room than that.
pub unsafe extern "C" fn urma_get_perf_info(
    perf_buf: *mut c_char,
    length: *mut u32,
) -> urma_status_t {
    call::status(|| {
        // SAFETY: a buffer of the caller's and its length in bytes (room card of `face`).
        let (to, length) = unsafe { call::args((perf_buf.cast::<u8>(), length)) }?;
        // SAFETY: the caller says that the buffer has this length.
        let to = unsafe { UserArray::at(to, length.read() as usize) };
        let mut text = perf::table().into_bytes();
        text.push(0);
        to.copy_from(&text)?;
        length
            .write(u32::try_from(text.len()).map_err(|_| refuse!(FAIL, "the table is too long"))?);
        Ok(())
    })
}

/// Whether calls are counted.
pub unsafe extern "C" fn urma_perf_is_enabled() -> bool {
    perf::is_on()
}

/// Now, for [`urma_step_perf`]: nanoseconds. `URMA_ENOPERM` while nothing is counted.
pub unsafe extern "C" fn urma_get_perf_timestamp() -> u64 {
    if perf::is_on() { perf::now_ns() } else { u64::from(Code::ENOPERM.get().unsigned_abs()) }
}

/// Counts a call of `type` that took `delta`, a difference of two timestamps. `URMA_ENOPERM`: not
/// started. `URMA_EINVAL`: no such type, or less than 20 ns.
pub unsafe extern "C" fn urma_step_perf(
    r#type: urma_perf_record_type_t,
    delta: u64,
) -> urma_status_t {
    call::status(|| perf::step(r#type, delta))
}

/// A bonding provider says that it moved to another path: the `retry_count` of the table.
pub unsafe extern "C" fn urma_ubagg_switch_inc() {
    perf::switched();
}
