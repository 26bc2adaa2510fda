//! The thread that works for all clients: it looks at their doorbells and polls their nodes.
//!
//! - owns: which functions there are, of which nodes, and when the thread sleeps. takes: doorbells of clients, wake-ups of nodes. gives:
//!   register writes, and polls in the place of the clients. must not: sleep on a doorbell; wait for one client.
//!
//! One thread for all: threads that spin take each other's processor, and what one client sends often goes to
//! another one.

use std::{
    io,
    os::fd::OwnedFd,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use ubcore_sim::{
    Node,
    host::slots::{ServedSlots, SlotLook},
    node::ClientFunction,
};
use udma_abi::DeviceBacking;
use urma_mem::{
    Region,
    idle::{IdleLook, IdleSnapshot},
    sleep::SleepResult,
    sync::{AtomicU64, Ordering},
};

/// A function with the doorbell memory of its client.
#[derive(Debug)]
pub(crate) struct Attended {
    node: Arc<Node>,
    client: ClientFunction,
    memory: Region,
    slots: Mutex<ServedSlots>,
}

impl Attended {
    /// Returns the doorbell memory.
    pub(crate) const fn memory(&self) -> &Region {
        &self.memory
    }

    /// Returns the function that its client drives.
    pub(crate) const fn client(&self) -> &ClientFunction {
        &self.client
    }

    /// Passes on doorbells that rang. Called before a message is answered, so that what the client did before it comes before it.
    pub(crate) fn pass_on(&self) {
        let look = lock(&self.slots).pass_all(|rung| self.client.ring_slot(rung));
        if look == SlotLook::Posted {
            // The thread may be about to sleep, and does not see what rang.
            self.node.progress_to_idle(&mut IdleSnapshot::never());
        }
    }

    fn look(&self) -> SlotLook {
        lock(&self.slots).look(|rung| self.client.ring_slot(rung))
    }

    /// Whether the thread may sleep, as far as this function goes.
    fn announce_sleep(&self) -> bool {
        lock(&self.slots).announce_sleep() == SleepResult::Sleep
    }

    fn show_status(&self) {
        lock(&self.slots).show_status(&self.client);
    }

    fn announce_awake(&self) {
        lock(&self.slots).announce_awake();
    }
}

/// A node, and those of its functions that are attended to.
struct AttendedNode {
    node: Arc<Node>,
    idle: IdleSnapshot,
    functions: Vec<Arc<Attended>>,
}

impl AttendedNode {
    /// All functions, by their nodes.
    fn group(all: &[Arc<Attended>]) -> Vec<Self> {
        let mut nodes: Vec<Self> = Vec::new();
        for one in all {
            let function = Arc::clone(one);
            match nodes.iter_mut().find(|known| Arc::ptr_eq(&known.node, &one.node)) {
                Some(known) => known.functions.push(function),
                None => nodes.push(Self {
                    node: Arc::clone(&one.node),
                    idle: IdleSnapshot::default(),
                    functions: vec![function],
                }),
            }
        }
        nodes
    }

    /// One look at all that can wait; whether there was anything.
    fn look(&mut self) -> bool {
        let (mut is_rung, mut is_posted) = (false, false);
        for one in &self.functions {
            let look = one.look();
            is_rung |= look != SlotLook::Quiet;
            is_posted |= look == SlotLook::Posted;
        }
        let look = self.idle.look();
        if is_posted || look != IdleLook::Holds {
            self.node.progress_to_idle(&mut self.idle);
        }
        // A step is bounded: queues may want another one.
        let is_left = look != IdleLook::Holds && self.node.device().poll_deadline() == Some(0);
        is_rung || is_left || look == IdleLook::PeerWrote
    }

    /// Some looks at each node; whether one of them found something.
    fn look_at_all(nodes: &mut [Self]) -> bool {
        let mut is_busy = false;
        for _ in 0..LOOKS {
            for node in &mut *nodes {
                is_busy |= node.look();
            }
        }
        is_busy
    }

    /// Whether the thread may sleep, as far as this node goes.
    fn announce_sleep(&mut self) -> bool {
        self.idle.end();
        self.node.rest();
        self.functions.iter().fold(true, |may, one| one.announce_sleep() & may)
    }

    fn announce_awake(&self) {
        self.functions.iter().for_each(|one| one.announce_awake());
        self.node.answer_wakeup();
    }
}

/// The functions, and how their thread is woken.
#[derive(Debug)]
pub struct Attendants {
    all: Mutex<Vec<Arc<Attended>>>,
    /// Counts changes of the list.
    version: AtomicU64,
    wake: OwnedFd,
}

impl Attendants {
    /// Starts the thread.
    ///
    /// # Errors
    /// No descriptors or no thread.
    pub fn start() -> io::Result<Arc<Self>> {
        let attendants = Arc::new(Self::asleep()?);
        let shared = Arc::clone(&attendants);
        std::thread::Builder::new()
            .name("ubcored-device".to_owned())
            .spawn(move || shared.run())?;
        Ok(attendants)
    }

    /// The same without the thread.
    fn asleep() -> io::Result<Self> {
        let wake = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        Ok(Self { all: Mutex::default(), version: AtomicU64::new(0), wake })
    }

    /// Attends to a function of `node` until [`Attendants::leave`].
    ///
    /// # Errors
    /// No memory or no descriptors.
    pub(crate) fn attend(
        &self,
        node: Arc<Node>,
        client: ClientFunction,
    ) -> io::Result<Arc<Attended>> {
        let slots = client.serve_slots()?;
        let memory = slots.memory().clone();
        let slots = Mutex::new(slots);
        let attended = Arc::new(Attended { node, client, memory, slots });
        lock(&self.all).push(Arc::clone(&attended));
        self.change();
        Ok(attended)
    }

    /// Attends to it no more when it returns, so that it is not ended by the thread that others need.
    pub(crate) fn leave(&self, attended: &Arc<Attended>) {
        lock(&self.all).retain(|other| !Arc::ptr_eq(other, attended));
        self.change();
        let begun = Instant::now();
        while Arc::strong_count(attended) > 1 && begun.elapsed() < SLEEP_BOUND {
            std::thread::sleep(LEAVE_LOOK);
        }
    }

    fn change(&self) {
        self.version.fetch_add(1, Ordering::Release);
        self.wake();
    }

    /// A client wrote a register. It polls nothing here: what the write began goes on in the thread, which may sleep.
    pub(crate) fn wake_for_register(&self) {
        self.wake();
    }

    /// Wakes the thread: something is to be looked at.
    pub(crate) fn wake(&self) {
        let _ = rustix::io::write(&self.wake, &1_u64.to_le_bytes());
    }

    fn run(&self) {
        let mut version = u64::MAX;
        let mut nodes: Vec<AttendedNode> = Vec::new();
        let mut idle_since = Instant::now();
        loop {
            let newest = self.version.load(Ordering::Acquire);
            if newest != version {
                version = newest;
                nodes = AttendedNode::group(&lock(&self.all));
            }
            if AttendedNode::look_at_all(&mut nodes) {
                idle_since = Instant::now();
                continue;
            }
            nodes.iter().flat_map(|node| &node.functions).for_each(|one| one.show_status());
            std::thread::yield_now();
            if idle_since.elapsed() >= SPIN_BOUND {
                self.sleep(&mut nodes);
                idle_since = Instant::now();
            }
        }
    }

    /// Sleeps until a client rings or comes or goes, or a peer or timer wakes a node.
    fn sleep(&self, nodes: &mut [AttendedNode]) {
        let is_quiet =
            nodes.iter_mut().fold(true, |is_quiet, node| node.announce_sleep() & is_quiet);
        if is_quiet {
            let wakeups = nodes.iter().filter_map(|one| one.node.wakeup());
            let mut fds = vec![PollFd::new(&self.wake, PollFlags::IN)];
            fds.extend(wakeups.map(|wakeup| PollFd::from_borrowed_fd(wakeup, PollFlags::IN)));
            let bound = Timespec::try_from(SLEEP_BOUND).ok();
            let _ = poll(&mut fds, bound.as_ref());
            let mut count = [0; 8];
            let _ = rustix::io::read(&self.wake, &mut count);
        }
        nodes.iter().for_each(AttendedNode::announce_awake);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Looks between two system calls, of an idle thread.
const LOOKS: u32 = 16;
/// How long the thread looks in vain before it sleeps: some times what a wake-up costs.
const SPIN_BOUND: Duration = Duration::from_micros(200);
/// Between two looks whether the thread has let a function go.
const LEAVE_LOOK: Duration = Duration::from_micros(100);
/// Longest sleep of the thread, and longest wait for it.
const SLEEP_BOUND: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use ubcore_sim::{
        NodeCfg,
        device::{FunctionCfg, FunctionQuota},
        ports::Interrupt,
    };
    use udma_abi::slots::SlotDoorbell;
    use urma_mem::doorbells::{DoorbellSlots, SlotGeometry};

    use super::*;

    #[derive(Debug)]
    struct Silent;
    impl Interrupt for Silent {
        fn raise(&self, _: u16) {}
    }

    /// A node of its own with one function, that no thread attends to.
    fn one_function() -> (Arc<Attendants>, Arc<Attended>) {
        let node = Node::open(NodeCfg::from_env().unwrap()).unwrap();
        let attendants = Arc::new(Attendants::asleep().unwrap());
        let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
        let client = node.add_function(cfg, Arc::new(Silent)).unwrap();
        let attended = attendants.attend(node, client).unwrap();
        (attendants, attended)
    }

    #[test]
    fn a_function_without_work_lets_the_thread_sleep() {
        let (_attendants, one) = one_function();
        let [mut node] = AttendedNode::group(&[one]).try_into().map_err(drop).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        // Two hundred looks on end find nothing.
        let mut quiet = 0;
        while quiet < 200 {
            quiet = if node.look() { 0 } else { quiet + 1 };
            assert!(Instant::now() < until, "there is nothing to do");
        }
        assert!(node.announce_sleep());
    }

    /// Two nodes, and a doorbell of the first or the second one: the thread stays awake for either.
    #[test]
    fn a_doorbell_of_any_node_keeps_the_thread_awake() {
        let (_first, one) = one_function();
        let (_second, other) = one_function();
        let all = [one, other];
        let slots = all.each_ref().map(|one| {
            let slots = DoorbellSlots::new(one.memory().clone(), SlotGeometry::DEVICE).unwrap();
            Arc::new(slots).take().unwrap()
        });
        let mut nodes = AttendedNode::group(&all);
        nodes.iter().for_each(AttendedNode::announce_awake);
        let until = Instant::now() + Duration::from_secs(20);
        let quiet = |nodes: &mut [AttendedNode]| {
            while AttendedNode::look_at_all(nodes) {
                assert!(Instant::now() < until, "there is nothing to do");
            }
        };
        for (pi, at) in (1..).zip([0, 1, 1, 0]) {
            // Each look of a quiet node finds nothing, so it is the doorbell.
            (0..20).for_each(|_| quiet(&mut nodes));
            slots[at].ring(SlotDoorbell::Queue { id: 5, pi }.encode(), || ());
            assert!(AttendedNode::look_at_all(&mut nodes), "function {at} rang");
        }
    }

    #[test]
    fn the_doorbell_memory_shows_what_the_status_register_says() {
        use udma_abi::{RegisterRegion as _, regs};

        let (_attendants, one) = one_function();
        let slots = DoorbellSlots::new(one.memory().clone(), SlotGeometry::DEVICE).unwrap();
        let status = || one.client().read(regs::STATUS);
        one.client().write32(regs::CONTROL, regs::control::ENABLE);
        let until = Instant::now() + Duration::from_secs(20);
        while status() == 0 {
            assert!(Instant::now() < until, "it is enabled");
            one.node.progress_to_idle(&mut IdleSnapshot::never());
        }
        assert_eq!(slots.status(), 0, "it is not shown yet");
        one.show_status();
        assert_eq!(slots.status(), status());
    }

    /// After the end of an idle snapshot a look takes a step; where that leaves nothing, there was nothing.
    #[test]
    fn a_step_that_finds_nothing_is_no_work() {
        let (_attendants, one) = one_function();
        let [mut node] = AttendedNode::group(&[one]).try_into().map_err(drop).unwrap();
        let until = Instant::now() + Duration::from_secs(20);
        while AttendedNode::look_at_all(std::slice::from_mut(&mut node)) {
            assert!(Instant::now() < until, "there is nothing to do");
        }
        for _ in 0..20 {
            node.idle.end();
            assert!(!node.look(), "the step left nothing");
        }
    }

    /// The count of the descriptor on which the thread sleeps, which starts anew with each look.
    #[test]
    fn what_is_to_be_looked_at_wakes_the_thread_once() {
        let (attendants, one) = one_function();
        let wakes = || {
            let mut count = [0; 8];
            let len = rustix::io::read(&attendants.wake, &mut count);
            len.map_or(0, |_| u64::from_le_bytes(count))
        };
        assert_eq!([wakes(), wakes()], [1, 0], "a function came");
        attendants.wake_for_register();
        assert_eq!([wakes(), wakes()], [1, 0], "a register was written");
        attendants.wake();
        attendants.wake();
        assert_eq!([wakes(), wakes()], [2, 0], "two messages");
        let version = attendants.version.load(Ordering::Acquire);
        attendants.leave(&one);
        assert_eq!([wakes(), wakes()], [1, 0], "a function went");
        assert_eq!(attendants.version.load(Ordering::Acquire), version + 1);
        assert!(lock(&attendants.all).is_empty());
    }

    /// Functions of two nodes, of which one has two.
    #[test]
    fn functions_are_grouped_by_their_nodes() {
        let (_first, one) = one_function();
        let (_second, other) = one_function();
        let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
        let client = one.node.add_function(cfg, Arc::new(Silent)).unwrap();
        let attendants = Attendants::asleep().unwrap();
        let again = attendants.attend(Arc::clone(&one.node), client).unwrap();
        let nodes = AttendedNode::group(&[one, other, again]);
        let counts: Vec<_> = nodes.iter().map(|node| node.functions.len()).collect();
        assert_eq!(counts, [2, 1]);
    }

    /// What a thread about to sleep does with doorbells that come before and after it says so, of either of two functions.
    #[test]
    fn a_doorbell_of_any_function_ends_the_sleep() {
        let node = Node::open(NodeCfg::from_env().unwrap()).unwrap();
        let attendants = Attendants::asleep().unwrap();
        let cfg = FunctionCfg { uasid: 1, quota: FunctionQuota::NONE };
        let all: Vec<_> = (0..2)
            .map(|_| {
                let client = node.add_function(cfg, Arc::new(Silent)).unwrap();
                attendants.attend(Arc::clone(&node), client).unwrap()
            })
            .collect();
        let slots: Vec<_> = all
            .iter()
            .map(|one| {
                let slots = DoorbellSlots::new(one.memory().clone(), SlotGeometry::DEVICE).unwrap();
                Arc::new(slots).take().unwrap()
            })
            .collect();
        let [mut attended] = AttendedNode::group(&all).try_into().map_err(drop).unwrap();
        let ring = |at: usize, pi| {
            let mut wakes = 0;
            slots[at].ring(SlotDoorbell::Queue { id: 5, pi }.encode(), || wakes += 1);
            wakes
        };
        let look_until_quiet = |attended: &mut AttendedNode| {
            attended.announce_awake();
            while attended.functions.iter().any(|one| one.look() != SlotLook::Quiet) {}
        };
        for (pi, at) in (1..).zip([0, 1, 0, 1]) {
            assert!(attended.announce_sleep(), "nothing rang");
            assert_eq!(ring(at, 2 * pi), 1, "function {at} writes the register that wakes");
            look_until_quiet(&mut attended);
            assert_eq!(ring(at, 2 * pi + 1), 0, "function {at} is seen");
            assert!(!attended.announce_sleep(), "function {at} rang before");
            look_until_quiet(&mut attended);
        }
    }
}
