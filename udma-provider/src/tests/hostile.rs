//! A device that lies or keeps silent: errors and counts, never a panic or a wrong context.

use proptest::prelude::*;
use udma_abi::{CmdStatus, Cqe, cmd::Command};
use urma_core::{Completion, Status, ops::DeviceOps};

use super::{Bench, contexts, jfc_cfg, jfs_cfg, poll_all, signalled};
use crate::{DriverCfg, UdmaDevice};

#[test]
fn a_silent_device_times_out_and_its_slot_waits_for_the_late_answer() {
    let cfg =
        DriverCfg { command_timeout_ns: 50_000_000, command_depth: 1, ..DriverCfg::default() };
    let bench = Bench::with(cfg);
    bench.toy.script(|s| s.mute = true);
    assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice));
    let sent = bench.toy.state().commands.len();
    assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice), "no slot is free");
    bench.toy.script(|s| s.mute = false);
    // The late answer frees the slot; the next command gets its own answer.
    let token_id = bench.context.alloc_token_id().unwrap();
    let state = bench.toy.state();
    assert_eq!(state.commands.len(), sent + 2, "the refused command never reached the ring");
    assert_ne!(token_id.value(), 0);
}

#[test]
fn answers_to_no_command_are_dropped() {
    let cfg = DriverCfg { command_timeout_ns: 20_000_000, ..DriverCfg::default() };
    let bench = Bench::with(cfg);
    bench.toy.script(|s| s.sequence_off = 3);
    assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice));
    bench.toy.script(|s| s.sequence_off = 0);
    assert!(bench.context.alloc_token_id().is_ok());
}

#[test]
fn an_answer_of_another_pass_over_the_ring_is_dropped() {
    let cfg = |command_depth| DriverCfg {
        command_timeout_ns: 20_000_000,
        command_depth,
        ..DriverCfg::default()
    };
    for off in [4, 4u32.wrapping_neg()] {
        let bench = Bench::with(cfg(4));
        bench.toy.script(|s| s.sequence_off = off);
        assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice), "{off}");
        bench.toy.script(|s| s.sequence_off = 0);
        assert!(bench.context.alloc_token_id().is_ok(), "{off}");
    }
    // Nor does it free the slot of a command that nothing waits for any more.
    let bench = Bench::with(cfg(1));
    bench.toy.script(|s| (s.mute, s.sequence_off) = (true, 1));
    assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice));
    bench.toy.script(|s| s.mute = false);
    assert_eq!(bench.context.alloc_token_id(), Err(Status::NoDevice), "no slot is free");
    assert_eq!(bench.toy.state().commands.len(), 1 + bring_up_commands());
}

/// Commands that bring a device and a context up.
fn bring_up_commands() -> usize {
    Bench::new().toy.state().commands.len()
}

#[test]
fn refusals_become_named_statuses_and_leave_nothing_behind() {
    let bench = Bench::new();
    let table = [
        (CmdStatus::Invalid, Status::Invalid),
        (CmdStatus::NoRoom, Status::NoMemory),
        (CmdStatus::Quota, Status::Quota),
        (CmdStatus::PeerFull, Status::PeerFull),
        (CmdStatus::Exists, Status::Exists),
        (CmdStatus::InUse, Status::Again),
        (CmdStatus::Denied, Status::NoPermission),
        (CmdStatus::Unreachable, Status::Unreachable),
        (CmdStatus::Timeout, Status::TimedOut),
    ];
    let jfc = bench.jfc(4);
    for (answer, status) in table {
        bench.toy.script(|s| s.refuse = Some(answer));
        assert_eq!(bench.context.create_queue(&jfs_cfg(jfc.id, 4)).unwrap_err(), status);
        assert_eq!(bench.context.create_jfc(&jfc_cfg(4), None).unwrap_err(), status);
        assert_eq!(bench.context.create_jfce().unwrap_err(), status);
        bench.toy.script(|s| s.refuse = None);
    }
    // Vectors came back: the next channels have those that the device has besides the first and the last.
    let channels: Vec<_> = (0..2).map(|_| bench.context.create_jfce().unwrap()).collect();
    let vectors = |bench: &Bench| {
        let state = bench.toy.state();
        let made = state.commands.iter().filter_map(|command| match command {
            Command::CreateEq { vector, .. } => Some(*vector),
            _ => None,
        });
        made.collect::<Vec<_>>()
    };
    assert_eq!(vectors(&bench)[vectors(&bench).len() - 2..], [1, 2]);
    // All further ones share the last.
    let more: Vec<_> = (0..9).map(|_| bench.context.create_jfce().unwrap()).collect();
    assert!(vectors(&bench).ends_with(&[3; 9]));
    drop((channels, more));
    assert!(bench.context.create_jfce().is_ok());
}

#[test]
fn wild_results_are_refused() {
    let bench = Bench::new();
    let jfc = bench.jfc(4);
    bench.toy.script(|s| s.wild_results = true);
    assert_eq!(bench.context.create_queue(&jfs_cfg(jfc.id, 4)).unwrap_err(), Status::Fail);
    assert_eq!(bench.context.create_jfce().unwrap_err(), Status::Fail);
    assert!(
        bench.context.connect(urma_core::Eid::default(), urma_core::TransportMode::Rm).is_err()
    );
    assert!(bench.context.counters().is_ok_and(|c| c.len() == super::toy::counter_names().len()));
}

#[test]
fn completions_that_fit_nothing_are_counted_and_hide_no_good_one() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(16);
    let mut jfs = bench.jfs(jfc.id, 8);
    bench.toy.script(|s| s.hold = true);
    jfs.send.as_mut().unwrap().post_send(&[signalled(1), signalled(2)]).unwrap();
    let (user_data, local_id) = (bench.toy.cookie(jfs.id), jfs.id);
    let good = Cqe { user_data, local_id, ..Cqe::default() };
    let lies = [
        Cqe { entry_idx: 7, ..good },
        Cqe { entry_idx: 0x8000, ..good },
        Cqe { local_id: local_id + 1, ..good },
        Cqe { user_data: u64::MAX, ..good },
        Cqe { user_data: user_data + 1, ..good },
        Cqe { user_data: user_data ^ 1 << 32, ..good },
        Cqe { recv: true, ..good },
    ];
    for lie in lies {
        bench.toy.complete(jfc.id, lie);
    }
    let mut out = [Completion::default(); 4];
    assert_eq!(jfc.queue.poll(&mut out).map_err(|e| e == Status::Fail), Ok(0), "counted, no panic");
    bench.toy.complete(jfc.id, good);
    bench.toy.complete(jfc.id, good);
    bench.toy.complete(jfc.id, Cqe { entry_idx: 1, ..good });
    assert_eq!(contexts(&poll_all(&mut jfc)), [1, 2], "a doubled completion is dropped");
}

#[test]
fn an_entry_without_its_owner_bit_is_not_there() {
    let bench = Bench::new();
    let mut jfc = bench.jfc(4);
    let mut jfs = bench.jfs(jfc.id, 4);
    bench.toy.script(|s| s.hold = true);
    jfs.send.as_mut().unwrap().post_send(&[signalled(1)]).unwrap();
    let cqe = Cqe { user_data: bench.toy.cookie(jfs.id), local_id: jfs.id, ..Cqe::default() };
    bench.toy.scribble(jfc.id, cqe.encode(false));
    assert_eq!(jfc.queue.poll(&mut [Completion::default(); 2]), Ok(0));
    bench.toy.scribble(jfc.id, cqe.encode(true));
    assert_eq!(contexts(&poll_all_once(&mut jfc)), [1]);
}

#[test]
fn another_device_is_not_brought_up() {
    #[derive(Debug)]
    struct Other(std::sync::Arc<dyn udma_abi::DeviceBacking>);
    impl udma_abi::DeviceBacking for Other {
        fn info(&self) -> udma_abi::DeviceInfo {
            self.0.info()
        }
        fn registers(&self) -> std::sync::Arc<dyn udma_abi::RegisterRegion> {
            std::sync::Arc::new(AllOnes)
        }
        fn dma(&self) -> std::sync::Arc<dyn udma_abi::DmaSpace> {
            self.0.dma()
        }
        fn interrupt(&self, v: u16) -> Result<std::os::fd::OwnedFd, udma_abi::BackingError> {
            self.0.interrupt(v)
        }
        fn reset(&self) -> Result<(), udma_abi::BackingError> {
            self.0.reset()
        }
        fn now(&self) -> u64 {
            self.0.now()
        }
        fn progress(&self) {
            self.0.progress();
        }
    }
    #[derive(Debug)]
    struct AllOnes;
    impl udma_abi::RegisterRegion for AllOnes {
        fn len(&self) -> u64 {
            4096
        }
        fn read(&self, _: u64) -> u64 {
            u64::MAX
        }
        fn write32(&self, _: u64, _: u32) {}
        fn write64(&self, _: u64, _: u64) {}
        fn write_block(&self, _: u64, _: &[u64; 8]) {}
    }
    let toy = super::toy::Toy::new();
    let other = std::sync::Arc::new(Other(toy.backing()));
    let device = UdmaDevice::new(other, DriverCfg::default());
    assert_eq!(device.open(0).unwrap_err(), Status::NoDevice);
}

#[test]
fn a_device_that_does_not_reach_its_rings_is_given_up_at_once() {
    let toy = super::toy::Toy::new();
    toy.script(|script| script.is_unreachable = true);
    let device = UdmaDevice::new(toy.backing(), DriverCfg::default());
    assert_eq!(device.open(0).unwrap_err(), Status::NoDevice);
    // In the toy's time, a millisecond for each look.
    let now = toy.backing().now();
    assert!(now < 1_000_000_000, "after {now} ns");
}

fn poll_all_once(jfc: &mut urma_core::ops::JfcParts) -> Vec<Completion> {
    let mut out = [Completion::default(); 8];
    let found = jfc.queue.poll(&mut out).unwrap();
    out[..found].to_vec()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    /// Whatever words lie in the completion ring: no panic, and at most one completion for each
    /// request, with its own context.
    #[test]
    fn any_words_in_the_completion_ring(entries in prop::collection::vec(any::<[u64; 8]>(), 1..24), near in any::<bool>()) {
        let bench = Bench::new();
        let mut jfc = bench.jfc(8);
        let mut jfs = bench.jfs(jfc.id, 4);
        bench.toy.script(|s| s.hold = true);
        jfs.send.as_mut().unwrap().post_send(&[signalled(11), signalled(12)]).unwrap();
        let mut got = Vec::new();
        for words in entries {
            let mut cqe = Cqe::decode(&words);
            if near {
                cqe = Cqe { user_data: bench.toy.cookie(jfs.id), local_id: jfs.id, entry_idx: cqe.entry_idx & 3, ..cqe };
            }
            bench.toy.complete(jfc.id, cqe);
            let mut out = [Completion::default(); 4];
            if let Ok(found) = jfc.queue.poll(&mut out) {
                got.extend(out[..found].iter().map(|c| c.user_ctx).filter(|ctx| *ctx != 0));
            }
        }
        got.sort_unstable();
        prop_assert!([&[][..], &[11], &[12], &[11, 12]].contains(&&got[..]), "{got:?}");
    }
}
