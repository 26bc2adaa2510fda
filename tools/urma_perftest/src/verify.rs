//! `--verify`: every byte is checked by the side that receives it.
//!
//! *Owns*: which side fills, poisons and checks what, and when. *Takes*: message numbers.
//! *Gives*: the first wrong byte. *Must not*: take part in a measurement.
//!
//! | operation | who fills | who checks | when |
//! |---|---|---|---|
//! | WRITE (`rounds.rs`) | sender | target | in rounds: all of a round are placed, then all are checked |
//! | READ | target, once | reader | at the completion |
//! | SEND | sender | receiver (`receive.rs`) | at the completion |
//! | atomics | - | requester | at the completion: the answers count up by one |

use urma::Region;
use urma::{SendOp, SendWr};

use crate::{
    error::RunError,
    layout::Layout,
    pass::Pass,
    pattern::{self, Pattern},
    plan::{TestMode, Verb},
    receive::{guard_len, message_number},
};

/// Checks of the side that posts.
#[derive(Debug)]
pub(crate) struct Verify {
    region: Region,
    layout: Layout,
    verb: Verb,
    seed: u64,
    is_numbered: bool,
}

impl Verify {
    /// For the lanes of `pass`.
    pub(crate) fn new(pass: &Pass<'_, '_>) -> Self {
        let test = pass.test();
        Self {
            region: pass.region().clone(),
            layout: pass.layout,
            verb: test.command.verb(),
            seed: test.seed,
            is_numbered: test.mode == TestMode::Um,
        }
    }

    /// Before message `number` of `lane` is posted.
    pub(crate) fn before(
        &self,
        wr: &mut SendWr<'_>,
        lane: usize,
        number: u64,
    ) -> Result<(), RunError> {
        match self.verb {
            Verb::Write | Verb::Send => {
                let iteration = message_number(lane, number);
                let (at, len) = (offset(self.layout.source(lane, number)), self.len());
                Pattern { seed: self.seed, iteration }.fill(&self.region, at, len)?;
                if let (SendOp::Send { src }, true) = (wr.op, self.is_numbered) {
                    // Unreliable messages get lost: each contains its number.
                    wr.op = SendOp::SendImm { src, imm: iteration };
                }
            }
            Verb::Read | Verb::Atomic => {
                chain(&mut wr.op, number);
                let at = offset(self.layout.sink(lane, number));
                pattern::poison(&self.region, at, self.len() + guard_len())?;
            }
        }
        Ok(())
    }

    /// After message `number` of `lane` completed.
    pub(crate) fn after(&self, lane: usize, number: u64) -> Result<(), RunError> {
        let (at, len) = (offset(self.layout.sink(lane, number)), self.len());
        match self.verb {
            Verb::Write | Verb::Send => return Ok(()),
            Verb::Atomic => atomic_answer(&self.region, at, len, number)?,
            Verb::Read => self.read_pattern(lane, number).check(&self.region, at, len)?,
        }
        let pattern = self.read_pattern(lane, number);
        Ok(pattern.check_beyond(&self.region, at + len, guard_len())?)
    }

    fn read_pattern(&self, lane: usize, number: u64) -> Pattern {
        let iteration = message_number(lane, number % self.layout.places);
        Pattern { seed: self.seed, iteration }
    }

    fn len(&self) -> usize {
        offset(self.layout.size)
    }
}

/// Fills what peers read, zeroes what they do atomics on: before a size starts.
pub(crate) fn prepare(pass: &Pass<'_, '_>) -> Result<(), RunError> {
    let (layout, region, test) = (pass.layout, pass.region(), pass.test());
    for lane in 0..pass.ends.lanes.len() {
        for place in 0..layout.places {
            let (at, len) = (offset(layout.source(lane, place)), offset(layout.size));
            match test.command.verb() {
                Verb::Atomic => region.zero(at, len)?,
                Verb::Read if test.verify => {
                    let iteration = message_number(lane, place);
                    Pattern { seed: test.seed, iteration }.fill(region, at, len)?;
                }
                Verb::Read | Verb::Write | Verb::Send => {}
            }
        }
    }
    Ok(())
}

pub(crate) fn offset(value: u64) -> usize {
    usize::try_from(value).unwrap_or(usize::MAX)
}

/// Verified atomics count up by one, so that each answer is known.
pub(crate) fn chain(op: &mut SendOp<'_>, done: u64) {
    if let SendOp::Cas { compare, swap, .. } = op {
        (*compare, *swap) = (done, done + 1);
    }
}

/// The answer of verified atomic number `done` is `done`, in 4 or 8 bytes.
pub(crate) fn atomic_answer(
    region: &Region,
    at: usize,
    len: usize,
    done: u64,
) -> Result<(), RunError> {
    let (found, expected) = match len {
        4 => (u64::from(region.load_u32(at)?), done & 0xffff_ffff),
        _ => (region.load_u64(at)?, done),
    };
    if found == expected {
        return Ok(());
    }
    Err(RunError::Request(format!("atomic {done} answered {found}, expected {expected}")))
}

#[cfg(test)]
mod tests {
    use std::{net::TcpListener, thread};

    use clap::Parser;
    use urma::{LocalSge, PathKind, WrFlags};

    use super::*;
    use crate::{
        cli::{PerftestCli, TestCommand},
        lat::{PREPARED, PingPong},
        oob::{OobError, OobMessage},
        pass::Periods,
        plan::Plan,
        requests,
        rounds::ROUNDS,
        run::{self, Audience, SizeResult},
        session::Session,
    };

    /// Audience that ignores all progress.
    struct Blind;

    impl Periods for Blind {
        fn on_period(&mut self, _: u64, _: u64, _: u64) {}
    }

    impl Audience for Blind {
        fn on_waiting(&mut self) {}
        fn on_connected(&mut self, _: PathKind) {}
        fn on_result(&mut self, _: SizeResult) {}
    }

    /// What is wrong with the first message.
    #[derive(Clone, Copy, Debug)]
    enum Fault {
        /// A bit of this byte.
        Bit(usize),
        /// It is one byte longer than it should be.
        Longer,
    }

    fn plan(line: &str) -> Plan {
        let words = ["urma_perftest"].into_iter().chain(line.split_whitespace());
        Plan::of(&PerftestCli::try_parse_from(words).unwrap()).unwrap()
    }

    /// Runs `test` against a faulty peer; what either side reports.
    fn run_against(fault: Fault, test: &str) -> [String; 2] {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let server = format!("{test} --verify --wait-timeout 30 -P {port}");
        let client = format!("{server} -S 127.0.0.1");
        // What is read is checked by the client, what is written or sent by the server.
        let is_read = plan(&server).test.command.verb() == Verb::Read;
        let (honest, faulty) = if is_read { (client, server) } else { (server, client) };
        let honest = thread::spawn(move || run::run(&plan(&honest), &mut Blind));
        let error_there = be_faulty(&plan(&faulty), fault).unwrap_err();
        let error = honest.join().unwrap().expect_err("the message was wrong");
        assert!(matches!(error, RunError::Mismatch(_)), "{test}: {fault:?}: {error}");
        assert!(
            matches!(&error_there, RunError::Oob(OobError::Refused(_))),
            "{test}: {fault:?}: {error_there}"
        );
        [error.to_string(), error_there.to_string()]
    }

    /// One side up to the first message, and the message. The end is an error: the other side's.
    fn be_faulty(plan: &Plan, fault: Fault) -> Result<(), RunError> {
        let mut oob = run::connect(plan, &mut Blind)?;
        let mut session = run::join(plan, &mut oob)?;
        let test = &plan.test;
        let layout = Layout::of(test, test.sizes[0])?;
        for place in 0..layout.places {
            let message = Pattern { seed: test.seed, iteration: message_number(0, place) };
            let at = offset(layout.source(0, place));
            message.fill(session.objects.region(), at, offset(layout.size))?;
        }
        if test.command == TestCommand::WriteLat {
            let last = offset(layout.source(0, 0) + layout.size) - 1;
            session.objects.region().store_u8(last, PingPong::counter(0))?;
        }
        if let Fault::Bit(byte) = fault {
            let (region, at) = (session.objects.region(), offset(layout.source(0, 0)) + byte);
            region.store_u8(at, region.load_u8(at)? ^ 0x10)?;
        }
        oob.meet(0)?;
        match test.command {
            TestCommand::WriteBw => oob.meet(ROUNDS + 1)?,
            TestCommand::WriteLat | TestCommand::SendLat => oob.meet(PREPARED)?,
            _ => {}
        }
        if test.command.verb() != Verb::Read {
            transfer(&mut session, plan, &layout, fault)?;
        }
        if test.command == TestCommand::WriteBw {
            oob.say(&OobMessage::Meet(ROUNDS + 2))?;
        }
        loop {
            oob.receive("what is wrong")?;
        }
    }

    /// Posts the first message, and waits for it.
    fn transfer(
        session: &mut Session,
        plan: &Plan,
        layout: &Layout,
        fault: Fault,
    ) -> Result<(), RunError> {
        let Session { ends, objects, .. } = session;
        let mut pieces: Vec<LocalSge<'_>> = requests::pieces(objects, &plan.test, layout);
        if matches!(fault, Fault::Longer) {
            pieces[0].len += 1;
        }
        let mut wr = requests::request(objects, &plan.test, layout, (0, 0), &pieces[..1]);
        wr.flags |= WrFlags::COMPLETE;
        ends.lanes[0].post(&[wr])?;
        let mut patience = crate::channel::Patience::new(
            crate::clock::RunningClock::start(),
            std::time::Duration::from_secs(30),
        );
        while ends.sends.poll()?.is_empty() {
            patience.wait("waiting for the completion of the message")?;
        }
        Ok(())
    }

    #[test]
    fn one_wrong_bit_is_found_by_every_operation_and_both_sides_say_which() {
        for test in ["read_bw", "write_bw", "send_bw", "read_lat", "write_lat", "send_lat"] {
            // The last byte of write_lat is a counter: it cannot be wrong.
            let last = if test == "write_lat" { 4094 } else { 4095 };
            for byte in [0, last] {
                let [here, there] = run_against(Fault::Bit(byte), &format!("{test} -s 4096 -T 2"));
                let why = format!("verification failed: message 0: byte {byte} is ");
                assert!(here.starts_with(&why), "{test}: {here}");
                assert_eq!(there, format!("the peer gave up: {here}"), "{test}");
            }
        }
    }

    #[test]
    fn a_write_beyond_its_end_is_found() {
        for test in ["write_bw", "write_lat"] {
            let [here, _] = run_against(Fault::Longer, &format!("{test} -s 4096 -T 2"));
            let why = "verification failed: message 0: byte 0 after its end was overwritten";
            assert!(here.starts_with(why), "{test}: {here}");
        }
    }
}
