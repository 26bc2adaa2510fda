//! Operations as futures, with a real controller and real switches on loopback, and an executor that polls who was woken.
#![forbid(unsafe_code)]
#![expect(clippy::unwrap_used, reason = "a test fails by it")]

use std::future::{Future, poll_fn};
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use inc::control::{
    CommunicatorId, EdgeEnds, HostCommand, ResumePlan, SwitchCommand, SwitchReport, TreeLife,
    TreePart, TreeStart,
};
use inc::edge::EdgeAttributes;
use inc::element::Operator;
use inc::host::HostMemberCfg;
use inc::member::{OperationError, SubmitError};
use inc::slots::Child;
use inc::switch::SwitchLimits;
use inc::wire::{AbortReason, Collective, Rank, Seq, TreeEpoch};
use inc_net::drive::LinkAccess;
use inc_net::group::{CollectiveError, CommunicatorCfg};
use inc_net::host::LocalHost;
use inc_net::switch::LocalSwitch;
use inc_world::{Network, RANKS, each_rank, wait_until};

const SILENCE: Duration = Duration::from_secs(5);
const HANG: Duration = Duration::from_secs(20);

/// What an allreduce of `i32` gives.
type Sum = Result<Vec<i32>, CollectiveError>;

struct Woken(Mutex<mpsc::Sender<()>>);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        let _ = self.0.lock().unwrap().send(());
    }
}

/// Polls again when it was woken, and not before.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let (sender, woken) = mpsc::channel();
    let waker = Waker::from(Arc::new(Woken(Mutex::new(sender))));
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return value;
        }
        woken.recv_timeout(HANG).unwrap();
        // Wakes that came together are one.
        while woken.try_recv().is_ok() {}
    }
}

/// What all futures give, which are polled together.
async fn all<T: Unpin>(futures: Vec<Pin<Box<dyn Future<Output = T> + Send>>>) -> Vec<T> {
    let mut futures: Vec<_> = futures.into_iter().map(|future| (Some(future), None)).collect();
    poll_fn(|context| {
        for (future, value) in &mut futures {
            if let Some(of) = future
                && let Poll::Ready(found) = of.as_mut().poll(context)
            {
                (*future, *value) = (None, Some(found));
            }
        }
        if futures.iter().any(|(future, _)| future.is_some()) {
            return Poll::Pending;
        }
        Poll::Ready(futures.iter_mut().filter_map(|(_, value)| value.take()).collect())
    })
    .await
}

#[test]
fn operations_in_flight_end_in_any_order_of_awaiting() {
    let network = Network(44, 31);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        let sums: Vec<Pin<Box<dyn Future<Output = Sum> + Send>>> = (0..8_i32)
            .map(|at| {
                let mine = vec![at + i32::from(rank); 1000];
                Box::pin(communicator.allreduce_async(&mine, Operator::Sum)) as _
            })
            .collect();
        let reduced = communicator.reduce_async(&[rank], Operator::Max, Rank(2));
        let sent = communicator.broadcast_async(&[rank, 7], Rank(1));
        let gathered = communicator.allgather_async(&[rank; 2]);
        let blocks: Vec<u64> = (0..8).map(|at| at * 10 + u64::from(rank)).collect();
        let scattered = communicator.reduce_scatter_async(&blocks, Operator::Sum);
        let barrier = communicator.barrier_async();
        // The last ones first.
        block_on(barrier).unwrap();
        let first = u64::from(rank) * 2;
        assert_eq!(block_on(scattered).unwrap(), [first * 40 + 6, first * 40 + 46]);
        assert_eq!(block_on(gathered).unwrap(), [0, 0, 1, 1, 2, 2, 3, 3]);
        assert_eq!(block_on(sent).unwrap(), [1, 7]);
        assert_eq!(block_on(reduced).unwrap(), if rank == 2 { vec![3] } else { Vec::new() });
        for (at, sum) in (0..).zip(block_on(all(sums))) {
            assert_eq!(sum.unwrap(), vec![at * 4 + 6; 1000], "{at}");
        }
        assert_eq!(group.host().kept(), 0);
    });
}

#[test]
fn a_future_that_is_dropped_takes_no_result_from_others_and_leaves_nothing() {
    let network = Network(44, 32);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        let mut begun: Vec<_> = (0..6_i32)
            .map(|at| {
                let mine = vec![at + i32::from(rank); 5000];
                Box::pin(communicator.allreduce_async(&mine, Operator::Sum))
            })
            .collect();
        // One that no one looked at, and one whose waker is known, each rank others.
        let polled = usize::from(rank) + 1;
        let mut looked = Context::from_waker(Waker::noop());
        let _ = begun[polled].as_mut().poll(&mut looked);
        drop(begun.remove(polled));
        drop(begun.remove(0));
        let left = (1..6_usize).filter(|at| *at != polled);
        for (at, future) in left.zip(begun) {
            let sum = i32::try_from(at).unwrap() * 4 + 6;
            assert_eq!(block_on(future).unwrap(), vec![sum; 5000], "{at}");
        }
        assert_eq!(block_on(communicator.allreduce_async(&[1], Operator::Sum)).unwrap(), [4]);
        assert_eq!(communicator.allreduce(&[2], Operator::Sum).unwrap(), [8]);
        wait_until("nothing is kept", || group.host().kept() == 0);
        // One that is over before it is dropped.
        let over = communicator.barrier_async();
        communicator.barrier().unwrap();
        drop(over);
        assert_eq!(group.host().kept(), 0);
    });
}

#[test]
fn who_awaits_an_operation_that_is_aborted_learns_why() {
    let network = Network(44, 33);
    let controller = network.start_controller(SILENCE);
    let _switches = network.start_switches(controller.switches());
    let errors = each_rank(|rank| {
        let group = network.join(controller.hosts(), rank);
        let communicator = group.communicator(CommunicatorCfg::default()).unwrap();
        let count = if rank == 3 { 101 } else { 100 };
        let first = communicator.allreduce_async(&vec![1_i32; count], Operator::Sum);
        let second = communicator.barrier_async();
        let error = block_on(first).unwrap_err();
        assert!(block_on(second).is_err());
        // It is over at once for who comes later.
        assert!(block_on(communicator.barrier_async()).is_err());
        assert_eq!(group.host().kept(), 0);
        error
    });
    assert_eq!(errors.len(), usize::from(RANKS));
    for error in errors {
        let CollectiveError::Operation { error, why } = &error else { panic!("{error}") };
        assert_eq!(*error, OperationError::Aborted(AbortReason::Contradiction));
        assert!(["rank 3", "101", "100"].iter().all(|part| why.contains(part)), "{why}");
    }
}

/// A switch's packet ends a communicator before the controller has said why: an operation that begins between the two
/// ends with the controller's words, or without them a second later.
#[test]
fn who_begins_between_the_abort_and_its_reason_gets_both() {
    const LIFE: TreeLife = TreeLife { communicator: CommunicatorId(1), epoch: TreeEpoch(0) };
    let limits = SwitchLimits { memory: 1 << 22, communicators: 1 };
    let at = |last| SocketAddr::from(([127, 44, 34, last], 4791));
    let (give, reports) = mpsc::channel();
    let on_report = Box::new(move |report| give.send(report).unwrap());
    let switch = LocalSwitch::bind(at(1), LinkAccess::Udp, limits, on_report).unwrap();
    let host = &LocalHost::bind(at(2), LinkAccess::Udp).unwrap();
    let attributes = EdgeAttributes::DEFAULT;
    let bound_ns = 30_000_000_000;
    let member = HostMemberCfg { rank: Rank(0), attributes, address: host.address(), bound_ns };
    let (id, end) = host.join(member, Box::new(drop)).unwrap();
    // It never begins, so no operation ends before the abort.
    let (_, idle) = host.join(HostMemberCfg { rank: Rank(1), ..member }, Box::new(drop)).unwrap();
    let children = [0, 1].map(|rank| (Child::Host(Rank(rank)), switch.address())).to_vec();
    let part = TreePart { attributes, tenant: 0, children, parent: None };
    switch.on_command(SwitchCommand::Install(LIFE, part));
    let Ok(SwitchReport::Installed(_, ends)) = reports.recv_timeout(HANG) else { panic!() };
    let plan = ResumePlan { first: Seq(0), owners: Vec::new() };
    let start = TreeStart { parent: Some(ends.children[0]), without: None, plan };
    host.on_command(id, HostCommand::Start(LIFE, start));
    let ends = EdgeEnds { children: vec![end, idle], parent: None };
    switch.on_command(SwitchCommand::Start(LIFE, Seq(0), ends));
    let begin = || host.submit_for_task(id, Collective::Barrier, &[]).unwrap();
    let result = |of| poll_fn(move |context| host.poll_result(id, of, context));
    let (why, under_way) = (AbortReason::Contradiction, begin());
    switch.on_command(SwitchCommand::Abort(LIFE.communicator, why));

    let wanted = Err(OperationError::Aborted(why));
    assert_eq!(block_on(result(under_way)), wanted);
    let refused = SubmitError::Over(OperationError::Aborted(why));
    assert_eq!(host.submit(id, Collective::Barrier, &[]), Err(refused));
    assert_eq!(block_on(result(begin())), wanted, "a second has passed");
    assert_eq!(host.why(id), None);
    let (first, second) = (begin(), begin());
    let early = Context::from_waker(Waker::noop());
    assert!(host.poll_result(id, first, &early).is_pending());
    host.on_command(id, HostCommand::Abort(LIFE.communicator, why, "rank 7".to_owned()));
    assert_eq!(block_on(result(first)), wanted);
    assert_eq!(host.why(id).as_deref(), Some("rank 7"));
    host.forget(id, second);
    assert_eq!(block_on(result(begin())), wanted, "at once");
    assert_eq!(host.kept(), 0);
}
