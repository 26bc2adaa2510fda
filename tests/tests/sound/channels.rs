//! Event channels by the thousand, and what a process without descriptors gets.
//!
//! *Owns*: the limit of descriptors of this process. *Takes*: one node. *Must not*: judge times.

use std::{process::Command, time::Duration};

use nix::sys::resource::{Resource, getrlimit, setrlimit};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use urma_core::{Arm, JfcCfg, Jfce, JfsCfg, SendOp, SendWr, Status, TransportMode};
use urma_tests::world::{Host, Link, Moving, Outcome, Setup, World, check, limit, same};

/// Many times as many as the device has interrupt vectors.
const CHANNELS: usize = 2500;
/// Set in a process of its own that may have few descriptors.
const FEW: &str = "URMA_TEST_FEW_DESCRIPTORS";

const SETUP: Setup = Setup::new(Link::Own, Moving::On, TransportMode::Rm);

fn is_readable(jfce: &Jfce, left: Timespec) -> Outcome<bool> {
    let ready = poll(&mut [PollFd::new(&jfce.fd(), PollFlags::IN)], Some(&left));
    Ok(ready.map_err(std::io::Error::from)? == 1)
}

#[test]
fn thousands_of_channels_get_their_own_events() -> Outcome {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, most, most).map_err(std::io::Error::from)?;
    let w = World::new(SETUP)?;
    let ctx = &w.a.half.ctx;
    let all = (0..CHANNELS).map(|_| ctx.create_jfce()).collect::<Result<Vec<_>, _>>()?;
    for at in [0, 1, 50, 61, 62, 63, 64, 255, 1000, CHANNELS - 1] {
        let mut jfc = ctx.create_jfc(&JfcCfg::new(8), Some(&all[at]))?;
        let mut jfs = ctx.create_jfs(&JfsCfg::new(TransportMode::Rm, 4), &jfc)?;
        for _ in 0..3 {
            jfc.arm(Arm::Any)?;
            jfs.post_send(&[SendWr::new(SendOp::Nop, &w.a.target, 7)])?;
            let left = Timespec::try_from(limit()).unwrap();
            check(is_readable(&all[at], left)?, format!("no event of channel {at}"))?;
            let mut out = [0; 4];
            same("events", all[at].wait(&mut out, Some(Duration::ZERO))?, 1)?;
            same("JFC", out[0], jfc.id())?;
            jfc.ack_events(1)?;
            let done = jfc.poll_one()?.map(|done| (done.user_ctx, done.status.is_success()));
            same("completion", done, Some((7, true)))?;
            for (other, jfce) in all.iter().enumerate() {
                let is_due = is_readable(jfce, Timespec::default())?;
                check(!is_due, format!("channel {other} has an event of channel {at}"))?;
            }
        }
    }
    Ok(())
}

/// Runs in a process of its own: others of this one need descriptors.
#[test]
fn a_process_without_descriptors_is_refused_channels_until_it_has_some() -> Outcome {
    if std::env::var_os(FEW).is_none() {
        let me = std::env::current_exe()?;
        let name = "channels::a_process_without_descriptors_is_refused_channels_until_it_has_some";
        let done = Command::new(me).args(["--exact", name]).env(FEW, "1").output()?;
        return check(done.status.success(), String::from_utf8_lossy(&done.stdout));
    }
    let host = Host::open(SETUP)?;
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).map_err(std::io::Error::from)?;
    setrlimit(Resource::RLIMIT_NOFILE, 200, most).map_err(std::io::Error::from)?;
    let mut all = Vec::new();
    let refused = loop {
        match host.ctx.create_jfce() {
            Ok(jfce) => all.push(jfce),
            Err(status) => break status,
        }
        check(all.len() < 200, "more channels than descriptors")?;
    };
    same("status", refused, Status::NoMemory)?;
    all.truncate(all.len() / 2);
    let again = host.ctx.create_jfce()?;
    drop((again, all));
    Ok(())
}
