//! Fork under open nodes: the child has no device until it opens its own, the parent notices
//! nothing.
//!
//! *Owns*: forked children of this process. *Must not*: share a process with other tests: a child
//! has only the thread that forked.
#![forbid(unsafe_code)]

#[cfg(test)]
mod tests {
    use std::{io, time::Duration};

    use rustix::process::{Pid, Signal, WaitOptions, kill_process, waitpid};
    use ubcore_sim::node::NodeCfg;
    use urma_core::{
        Arm, Completion, CrStatus, JfcCfg, PostError, PostReason, SegmentAccess, SegmentCfg,
        Status, TransportMode, WrFlags,
    };
    use urma_mem::fork::in_child;
    use urma_tests::world::{
        self, Failure, Host, Link, Moving, Outcome, Setup, World, refused, same, until,
    };

    const SETUP: Setup = Setup::new(Link::Host, Moving::On, TransportMode::Rm);

    /// Waits for a child; whether it ended with 0.
    fn succeeded(child: u32) -> Outcome<bool> {
        let pid = i32::try_from(child)
            .ok()
            .and_then(Pid::from_raw)
            .ok_or_else(|| Failure::new("no child's id"))?;
        let ended = until("the end of the child", || {
            let looked = waitpid(Some(pid), WaitOptions::NOHANG).map_err(io::Error::from)?;
            Ok(looked.map(|(_, status)| status))
        });
        if ended.is_err() {
            kill_process(pid, Signal::KILL).map_err(io::Error::from)?;
            waitpid(Some(pid), WaitOptions::empty()).map_err(io::Error::from)?;
        }
        Ok(ended?.exit_status() == Some(0))
    }

    /// Prints in the child what failed there.
    fn is_reported(outcome: Outcome) -> bool {
        if let Err(failure) = &outcome {
            eprintln!("in the child: {failure}");
        }
        outcome.is_ok()
    }

    /// What each call of the child answers: there is no device.
    fn every_call_says_so(w: &mut World) -> Outcome {
        let gone = Status::NoDevice;
        let reason = |error: PostError| error.reason;
        let posted = w.a.try_write(WrFlags::COMPLETE, (0, 0, 8)).map_err(reason);
        same("a posted write", posted, Err(PostReason::Device))?;
        let posted = w.a.try_recv(0, 8).map_err(reason);
        same("a posted receive", posted, Err(PostReason::Device))?;
        refused("poll", w.a.half.jfc.poll(&mut [Completion::default(); 4]), gone)?;
        refused("arm", w.a.half.jfc.arm(Arm::Any), gone)?;
        refused("wait", w.a.half.jfce.wait(&mut [0; 4], Some(Duration::ZERO)), gone)?;
        let ctx = &w.a.half.ctx;
        refused("create_jfc", ctx.create_jfc(&JfcCfg::new(8), None), gone)?;
        refused("create_jfce", ctx.create_jfce(), gone)?;
        refused("next_async", ctx.next_async(Some(Duration::ZERO)), gone)?;
        let mem = urma_mem::Region::private(4096)?;
        let cfg = SegmentCfg::new(SegmentAccess::REMOTE_ALL);
        refused("register", ctx.register(&mem, &cfg, None), gone)
    }

    /// A write and a read between two nodes.
    fn works(w: &mut World) -> Outcome {
        w.a.mem().put(0, b"there and back")?;
        let ctx = w.a.write(0, 4096, 14)?;
        w.a.sent_ok(ctx)?;
        same("bytes at the peer", w.b.mem().take(4096, 14)?, b"there and back".to_vec())?;
        let ctx = w.a.read(4096, 8192, 14)?;
        w.a.sent_ok(ctx)?;
        same("bytes that came back", w.a.mem().take(8192, 14)?, b"there and back".to_vec())?;
        w.b.recv(0, 64)?;
        let ctx = w.a.send(0, 14)?;
        w.a.sent_ok(ctx)?;
        w.b.received_as(CrStatus::Success).map(drop)
    }

    #[test]
    fn a_child_has_no_device_until_it_opens_one_and_the_parent_notices_nothing() -> Outcome {
        let mut w = World::new(SETUP)?;
        works(&mut w)?;
        w.a.mem().put(100, b"the parent's")?;
        let mut inherited = Some(w);
        let child = in_child(|| {
            is_reported((|| {
                let w = inherited.as_mut().ok_or_else(|| Failure::new("no world"))?;
                same("content of moved pages", w.a.mem().take(100, 12)?, b"the parent's".to_vec())?;
                w.a.mem().put(100, b"the child's!")?;
                w.b.mem().put(4096, b"the child's!")?;
                every_call_says_so(w)?;
                // Destructors have nothing to wait for, and nothing of the parent's to take away.
                drop(inherited.take());
                let mut own = World::new(SETUP)?;
                works(&mut own)
            })())
        })?;
        assert!(succeeded(child)?);
        let mut w = inherited.take().ok_or_else(|| Failure::new("no world"))?;
        assert_eq!(w.a.mem().take(100, 12)?, b"the parent's");
        assert_eq!(w.b.mem().take(4096, 14)?, b"there and back");
        works(&mut w)?;
        drop(w);
        Ok(())
    }

    #[test]
    fn a_child_takes_no_event_and_keeps_no_name() -> Outcome {
        let mut w = World::new(SETUP)?;
        w.b.recv(0, 64)?;
        w.b.half.recv_jfc.arm(Arm::Any)?;
        let ctx = w.a.send(0, 8)?;
        w.a.sent_ok(ctx)?;
        let eid = w.a.half.node().eid();
        let cfg = NodeCfg { eid: Some(eid), ..world::cfg(SETUP) };
        let (to_child, go) = io::pipe()?;
        let child = in_child(|| {
            is_reported((|| {
                let wait = w.b.half.jfce.wait(&mut [0; 4], Some(Duration::ZERO));
                refused("wait", wait, Status::NoDevice)?;
                // Lives on while the parent closes its nodes, until the word to end.
                let mut byte = [0];
                io::Read::read_exact(&mut &to_child, &mut byte)?;
                Ok(())
            })())
        })?;
        let events = w.b.half.jfce.wait(&mut [0; 4], Some(Duration::from_secs(10)))?;
        assert_eq!(events, 1, "the event is the parent's");
        w.b.received_as(CrStatus::Success)?;
        drop(w);
        let again = until("the name to be free", || Ok(Host::open_as(SETUP, cfg.clone()).ok()))?;
        drop(again);
        io::Write::write_all(&mut &go, &[1])?;
        assert!(succeeded(child)?);
        Ok(())
    }
}
