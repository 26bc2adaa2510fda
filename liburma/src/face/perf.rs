//! Performance counters of calls.

use core::ffi::c_char;

use crate::{
    abi::*,
    call::{self, Code, UserArray, refuse},
    perf,
};

/// Resets and starts the counters.
pub unsafe extern "C" fn urma_start_perf() -> urma_status_t {
    call::status(|| {
        perf::start();
        Ok(())
    })
}

/// Stops the counters; succeeds without effect if they were not started.
pub unsafe extern "C" fn urma_stop_perf() -> urma_status_t {
    call::status(|| {
        perf::stop();
        Ok(())
    })
}

/// Writes the counters as zero-terminated text. `length` is the room in bytes, and becomes the number of bytes written.
/// `URMA_EINVAL`: there is not enough room.
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

/// Returns the current time in nanoseconds, for [`urma_step_perf`]. `URMA_ENOPERM`: the counters are stopped.
pub unsafe extern "C" fn urma_get_perf_timestamp() -> u64 {
    if perf::is_on() { perf::now_ns() } else { u64::from(Code::ENOPERM.get().unsigned_abs()) }
}

/// Counts a call of `type` that took `delta`, a difference of two timestamps. `URMA_ENOPERM`: the counters are stopped.
/// `URMA_EINVAL`: there is no such type, or `delta` is below 20 ns.
pub unsafe extern "C" fn urma_step_perf(
    r#type: urma_perf_record_type_t,
    delta: u64,
) -> urma_status_t {
    call::status(|| perf::step(r#type, delta))
}

/// Counts a move of a bonding provider to another path: the `retry_count` of the table.
pub unsafe extern "C" fn urma_ubagg_switch_inc() {
    perf::switched();
}
