//! The C face of in-network computing: libinccl.
//!
//! - owns: the functions that `include/inccl.h` declares; handles, memory of C programs.
//! - takes: calls of C programs. gives: answers, results in their memory, words for what went wrong.
//! - must not: trust a handle, a pointer that is null, or a number.
#![cfg_attr(not(test), deny(clippy::wildcard_enum_match_arm))]
#![expect(unsafe_code, reason = "functions that C programs find by name")]

mod answer;
mod memory;
mod objects;

use core::ffi::{CStr, c_char, c_int, c_void};
use std::cell::RefCell;
use std::ffi::CString;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use inc::edge::{Framing, MessageMode};
use inc::element::{ElementType, Operator, Reduction};
use inc::host::Reducers;
use inc::wire::Collective;

use crate::answer::{IncclAnswer, IncclError};
use crate::memory::{CallerVector, Destination};
use crate::objects::{
    CCommunicator, CRequest, Wanted, add_request, communicator, put_request, take_request,
};

/// `struct inccl_attr` of the header.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C)]
pub struct CAttr {
    /// Bytes of the structure.
    pub size: u32,
    /// `INCCL_MODE_*`, how messages move.
    pub mode: u32,
    /// `INCCL_EDGE_*`, what repairs a loss.
    pub edge: u32,
    /// Payload of a packet in bytes.
    pub path_mtu: u32,
    /// Packets of a message at most.
    pub packets: u32,
    /// Messages in flight at most.
    pub window: u32,
    /// Milliseconds that an operation takes at most.
    pub bound_ms: u32,
    /// `INCCL_FALLBACK_*`, what happens where no switch can be had.
    pub fallback: u32,
    /// `INCCL_FRAMING_*`, what messages consist of.
    pub framing: u32,
    /// Type of the elements, where messages are data alone.
    pub plain_type: u32,
    /// Operator of the reduction, where messages are data alone.
    pub plain_op: u32,
    /// `INCCL_ORDERED_*`, whether floats are added in the order of the tree.
    pub ordered: u32,
}

/// Bytes of `why` in `struct inccl_stats`.
const WHY_LEN: usize = 256;

/// `struct inccl_stats` of the header.
#[derive(Debug, Clone, Copy)]
#[repr(C)]
pub struct CStats {
    /// Bytes of the structure.
    pub size: u32,
    /// What reduces for it: nothing yet (0), switches (1), or the members' own programs (2).
    pub reduced_by: u32,
    /// Number of the communicator at its controller.
    pub communicator: u64,
    /// Messages that were sent again.
    pub repeats: u64,
    /// Datagrams of this process.
    pub sent_packets: u64,
    /// Datagrams that this process received.
    pub received_packets: u64,
    /// UDP payload that this process sent, in bytes.
    pub sent_bytes: u64,
    /// UDP payload that this process received, in bytes.
    pub received_bytes: u64,
    /// Why no switch of the topology reduces, as a string that is cut to fit.
    pub why: [u8; WHY_LEN],
    /// `INCCL_FRAMING_*`, what messages consist of.
    pub framing: u32,
    /// `INCCL_ORDERED_*`, whether floats are added in the order of the tree.
    pub ordered: u32,
    /// `INCCL_LINK_*`, by which socket messages go.
    pub link: u32,
    /// Fills the structure up: 0.
    pub reserved: u32,
}

/// `struct inccl_group`: a number, never looked into.
#[derive(Debug)]
#[repr(C)]
pub struct CGroupHandle([u8; 0]);

/// `struct inccl_communicator`: a number, never looked into.
#[derive(Debug)]
#[repr(C)]
pub struct CCommunicatorHandle([u8; 0]);

/// `struct inccl_request`: a number, never looked into.
#[derive(Debug)]
#[repr(C)]
pub struct CRequestHandle([u8; 0]);

thread_local! {
    /// What went wrong last in this thread, and what `inccl_last_error` gave out.
    static REASON: RefCell<(String, CString)> = RefCell::default();
}

fn note(words: &str) {
    // A thread that ends has no use for them.
    let _ = REASON.try_with(|kept| words.clone_into(&mut kept.borrow_mut().0));
}

/// Runs a call: a panic does not leave the library, and what went wrong is kept in words.
fn call<T>(
    comm: Option<usize>,
    body: impl FnOnce() -> Result<T, IncclError>,
) -> Result<T, IncclAnswer> {
    let result = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        Err(IncclError { answer: IncclAnswer::System, words: "the library has a fault".into() })
    });
    result.map_err(|error| {
        note(&error.words);
        if let Some(Ok(communicator)) = comm.map(communicator) {
            communicator.note(&error.words);
        }
        error.answer
    })
}

fn answer(result: Result<IncclAnswer, IncclAnswer>) -> c_int {
    result.unwrap_or_else(|answer| answer) as c_int
}

/// A rank joins a group.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_group_create(
    world_size: c_int,
    controller_ip: *const c_char,
    rank: c_int,
) -> *mut CGroupHandle {
    let made = call(None, || {
        let controller = memory::text(controller_ip, "controller_ip")?;
        objects::create_group(world_size, controller, rank)
    });
    handle(made)
}

/// A rank leaves a group.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_group_destroy(group: *mut CGroupHandle) {
    let _ = call(None, || objects::destroy_group(group.addr()));
}

/// All ranks make a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_communicator_create(group: *mut CGroupHandle) -> *mut CCommunicatorHandle {
    create(group, || Ok(CAttr::default()))
}

/// All ranks make a communicator that works in a certain way.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_communicator_create_attr(
    group: *mut CGroupHandle,
    attr: *const CAttr,
) -> *mut CCommunicatorHandle {
    create(group, || memory::sized(attr, "attr"))
}

fn create(
    group: *mut CGroupHandle,
    attr: impl FnOnce() -> Result<CAttr, IncclError>,
) -> *mut CCommunicatorHandle {
    handle(call(None, || {
        let (attributes, bound) = objects::attributes(&attr()?)?;
        objects::create_communicator(group.addr(), attributes, bound)
    }))
}

/// All ranks destroy a communicator.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_communicator_destroy(comm: *mut CCommunicatorHandle) {
    let _ = call(None, || objects::destroy_communicator(comm.addr()));
}

/// The sum of 32-bit integers, by RDMA WRITE.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_allreduce_write(
    comm: *mut CCommunicatorHandle,
    src_data: *mut i32,
    len: u32,
    dst_data: *mut i32,
) {
    sum(comm, MessageMode::Write, src_data, len, dst_data);
}

/// The sum of 32-bit integers, by SEND.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_allreduce_sendrecv(
    comm: *mut CCommunicatorHandle,
    src_data: *mut i32,
    len: u32,
    dst_data: *mut i32,
) {
    sum(comm, MessageMode::Send, src_data, len, dst_data);
}

fn sum(comm: *mut CCommunicatorHandle, mode: MessageMode, src: *mut i32, len: u32, dst: *mut i32) {
    let _ = call(Some(comm.addr()), || {
        let len = usize::try_from(len).unwrap_or(usize::MAX).saturating_mul(4);
        let (input, to) = memory::vectors((src.cast_const().cast(), len), (dst.cast(), len), 0)?;
        let reduction = Reduction::new(Operator::Sum, ElementType::I32);
        let reduction = reduction.ok_or_else(|| IncclError::invalid("no sum".into()))?;
        let wanted = Wanted::One(Collective::Allreduce(reduction));
        finish(CRequest::begin(communicator(comm.addr())?, mode, wanted, input, to)?)
    });
}

/// The operation of a call, its input, and where its result goes.
type Begun = (Wanted, CallerVector, Destination);

/// Every rank gets the reduction.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_allreduce(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
) -> c_int {
    blocking(comm, |_| allreduce(src, dst, n, ty, op))
}

/// Begins [`inccl_allreduce`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_iallreduce(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |_| allreduce(src, dst, n, ty, op))
}

fn allreduce(
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
) -> Result<Begun, IncclError> {
    let element = objects::element(ty)?;
    let wanted = Wanted::One(Collective::Allreduce(objects::reduction(op, element)?));
    let len = n.saturating_mul(element.size());
    let (input, to) = memory::vectors((src, len), (dst, len), 0)?;
    Ok((wanted, input, to))
}

/// The root gets the reduction.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_reduce(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
    root: c_int,
) -> c_int {
    blocking(comm, |of| reduce(of, src, dst, n, (ty, op, root)))
}

/// Begins [`inccl_reduce`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_ireduce(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
    root: c_int,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |of| reduce(of, src, dst, n, (ty, op, root)))
}

fn reduce(
    of: &CCommunicator,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    (ty, op, root): (c_int, c_int, c_int),
) -> Result<Begun, IncclError> {
    let (element, root) = (objects::element(ty)?, objects::rank(root)?);
    let wanted = Wanted::One(Collective::Reduce(objects::reduction(op, element)?, root));
    let len = n.saturating_mul(element.size());
    // Others than the root need no destination.
    let is_root = of.of(of.default_mode())?.rank() == root;
    let (input, to) = memory::vectors((src, len), (dst, if is_root { len } else { 0 }), 0)?;
    Ok((wanted, input, to))
}

/// Every rank gets the data of the root.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_broadcast(
    comm: *mut CCommunicatorHandle,
    data: *mut c_void,
    n: usize,
    ty: c_int,
    root: c_int,
) -> c_int {
    blocking(comm, |_| broadcast(data, n, ty, root))
}

/// Begins [`inccl_broadcast`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_ibroadcast(
    comm: *mut CCommunicatorHandle,
    data: *mut c_void,
    n: usize,
    ty: c_int,
    root: c_int,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |_| broadcast(data, n, ty, root))
}

fn broadcast(data: *mut c_void, n: usize, ty: c_int, root: c_int) -> Result<Begun, IncclError> {
    let element = objects::element(ty)?;
    let wanted = Wanted::One(Collective::Broadcast(element, objects::rank(root)?));
    let len = n.saturating_mul(element.size());
    let (input, to) = memory::vectors((data.cast_const(), len), (data, len), 0)?;
    Ok((wanted, input, to))
}

/// Returns when all ranks have called it.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_barrier(comm: *mut CCommunicatorHandle) -> c_int {
    blocking(comm, |_| barrier())
}

/// Begins [`inccl_barrier`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_ibarrier(
    comm: *mut CCommunicatorHandle,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |_| barrier())
}

fn barrier() -> Result<Begun, IncclError> {
    let nothing = (core::ptr::null_mut(), 0);
    let (input, to) = memory::vectors((core::ptr::null(), 0), nothing, 0)?;
    Ok((Wanted::One(Collective::Barrier), input, to))
}

/// Every rank gets the blocks of all.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_allgather(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
) -> c_int {
    blocking(comm, |of| allgather(of, src, dst, n, ty))
}

/// Begins [`inccl_allgather`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_iallgather(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |of| allgather(of, src, dst, n, ty))
}

fn allgather(
    of: &CCommunicator,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
) -> Result<Begun, IncclError> {
    let element = objects::element(ty)?;
    let made = of.of(of.default_mode())?;
    let len = n.saturating_mul(element.size());
    let all = len.saturating_mul(made.world_size().into());
    let own = len.saturating_mul(made.rank().0.into());
    // The own block of a destination is where in place it lies; src == dst is not in place.
    if src.addr() == dst.addr() && all != 0 {
        let words = "src and dst are one: pass INCCL_IN_PLACE if the own block lies in dst";
        return Err(IncclError::invalid(words.into()));
    }
    let (input, to) = memory::vectors((src, len), (dst, all), own)?;
    Ok((Wanted::Allgather(element), input, to))
}

/// Each rank gets its block of the reduction.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_reduce_scatter(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
) -> c_int {
    blocking(comm, |of| reduce_scatter(of, src, dst, n, (ty, op)))
}

/// Begins [`inccl_reduce_scatter`] for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_ireduce_scatter(
    comm: *mut CCommunicatorHandle,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    ty: c_int,
    op: c_int,
    request: *mut *mut CRequestHandle,
) -> c_int {
    begun(comm, request, |of| reduce_scatter(of, src, dst, n, (ty, op)))
}

fn reduce_scatter(
    of: &CCommunicator,
    src: *const c_void,
    dst: *mut c_void,
    n: usize,
    (ty, op): (c_int, c_int),
) -> Result<Begun, IncclError> {
    let element = objects::element(ty)?;
    let reduction = objects::reduction(op, element)?;
    let len = n.saturating_mul(element.size());
    let all = len.saturating_mul(of.of(of.default_mode())?.world_size().into());
    // In place, the destination begins with all blocks.
    let (input, to) = memory::vectors((src, all), (dst, len), 0)?;
    Ok((Wanted::ReduceScatter(reduction), input, to))
}

fn blocking(
    comm: *mut CCommunicatorHandle,
    operation: impl FnOnce(&CCommunicator) -> Result<Begun, IncclError>,
) -> c_int {
    answer(call(Some(comm.addr()), || finish(begin(comm, operation)?)))
}

fn begun(
    comm: *mut CCommunicatorHandle,
    request: *mut *mut CRequestHandle,
    operation: impl FnOnce(&CCommunicator) -> Result<Begun, IncclError>,
) -> c_int {
    answer(call(Some(comm.addr()), || {
        memory::store(request, core::ptr::null_mut(), "request")?;
        let made = handle(Ok(add_request(begin(comm, operation)?)));
        memory::store(request, made, "request")?;
        Ok(IncclAnswer::Ok)
    }))
}

fn begin(
    comm: *mut CCommunicatorHandle,
    operation: impl FnOnce(&CCommunicator) -> Result<Begun, IncclError>,
) -> Result<CRequest, IncclError> {
    let communicator = communicator(comm.addr())?;
    let (wanted, input, to) = operation(&communicator)?;
    let mode = communicator.default_mode();
    CRequest::begin(Arc::clone(&communicator), mode, wanted, input, to)
}

/// Waits for an operation, whose own bound ends it.
fn finish(mut request: CRequest) -> Result<IncclAnswer, IncclError> {
    while !request.wait(Duration::from_secs(60))? {}
    Ok(IncclAnswer::Ok)
}

/// Whether a request is over.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_test(request: *mut CRequestHandle) -> c_int {
    wait_for(request, Some(Duration::ZERO))
}

/// Waits for a request.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_wait(request: *mut CRequestHandle, timeout_ms: c_int) -> c_int {
    let most = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
    wait_for(request, most)
}

/// Gives a request up.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_cancel(request: *mut CRequestHandle) -> c_int {
    answer(call(None, || take_request(request.addr()).map(|_| IncclAnswer::Canceled)))
}

fn wait_for(request: *mut CRequestHandle, most: Option<Duration>) -> c_int {
    let mut comm = None;
    let result = call(None, || {
        // While it is waited for, no other thread has it.
        let mut taken = take_request(request.addr())?;
        comm = Some(Arc::clone(&taken.communicator));
        let step = most.unwrap_or(Duration::from_secs(60));
        loop {
            match taken.wait(step)? {
                true => return Ok(IncclAnswer::Ok),
                false if most.is_some() => {
                    put_request(request.addr(), taken);
                    return Ok(IncclAnswer::Pending);
                }
                false => {}
            }
        }
    });
    if let (Some(comm), Err(_)) = (comm, &result) {
        REASON.with(|kept| comm.note(&kept.borrow().0));
    }
    answer(result)
}

/// What a communicator did so far.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_stats(comm: *mut CCommunicatorHandle, stats: *mut CStats) -> c_int {
    answer(call(Some(comm.addr()), || {
        let of = communicator(comm.addr())?;
        let made = of.of(of.default_mode())?;
        let (_, udp) = of.group().host().counts();
        let found = CStats {
            size: u32::try_from(size_of::<CStats>()).unwrap_or(0),
            reduced_by: match made.reducers() {
                Reducers::None => 0,
                Reducers::Switches => 1,
                Reducers::Members => 2,
            },
            communicator: made.id().0,
            repeats: made.repeated(),
            sent_packets: udp.sent,
            received_packets: udp.received,
            sent_bytes: udp.sent_bytes,
            received_bytes: udp.received_bytes,
            why: text_of(&made.why().unwrap_or_default()),
            framing: (of.attributes().framing != Framing::Inc).into(),
            ordered: (!of.attributes().is_ordered).into(),
            link: of.is_at_node().into(),
            reserved: 0,
        };
        memory::store_sized(stats, found, "stats")?;
        Ok(IncclAnswer::Ok)
    }))
}

/// A string with its end, cut between two characters to fit.
fn text_of(text: &str) -> [u8; WHY_LEN] {
    let mut bytes = [0; WHY_LEN];
    let len = text.floor_char_boundary(WHY_LEN - 1);
    bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
    bytes
}

/// An answer in words.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_strerror(answer: c_int) -> *const c_char {
    const WORDS: [&CStr; 8] = [
        c"success",
        c"an argument cannot be",
        c"the request is under way",
        c"the communicator is over",
        c"no result within the bound",
        c"no switches could be had within the bound",
        c"the controller or the system refused",
        c"the request was given up",
    ];
    let found = usize::try_from(answer).ok().and_then(|at| WORDS.get(at));
    found.unwrap_or(&c"no answer of this library").as_ptr()
}

/// What went wrong last, in words.
#[unsafe(no_mangle)]
pub extern "C" fn inccl_last_error(comm: *mut CCommunicatorHandle) -> *const c_char {
    let of = (!comm.is_null()).then(|| communicator(comm.addr()));
    REASON.with(|kept| {
        let (words, shown) = &mut *kept.borrow_mut();
        let text = match of {
            None => words.clone(),
            Some(Ok(communicator)) => communicator.last_error(),
            Some(Err(error)) => error.words,
        };
        *shown = CString::new(text.replace('\0', " ")).unwrap_or_default();
        shown.as_ptr()
    })
}

/// A handle for C; null: there is none.
fn handle<T>(made: Result<usize, IncclAnswer>) -> *mut T {
    core::ptr::without_provenance_mut(made.unwrap_or(0))
}
