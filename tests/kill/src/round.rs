//! A round: post the mix, poll, write everything down, end clean.
//!
//! *Owns*: the outstanding requests, and the order of journal, post and poll. *Takes*: commands
//! over the channel. *Gives*: journal records. *Must not*: forget a request, or wait without a
//! bound.

use std::{collections::BTreeSet, fs, io, time::Duration};

use urma_core::{
    Completion, CompletionFlags, CrOpcode, CrStatus, JettyState, Jfc, LocalSge, RecvWr, Status,
};

use crate::{
    channel::{Channel, Endpoint, Word},
    journal::{Journal, Kind, RECV_BIT, Record},
    memory::{Memory, RECEIVES_MAX},
    pause::{Bound, rest},
    plan::{Mix, Mode, Op, Planned, RECEIVE_LEN, SLOT_COUNT, SLOTS, ids, messages, planned, post},
    side::{Objects, Outcome, Peer, Side},
};

/// Messages of the worker's starter about a round.
#[derive(Clone, Copy, Debug)]
pub struct Orders {
    /// Its number, from 1.
    pub round: u32,
    /// Operations that this worker posts.
    pub own: Mix,
    /// Operations that the peer posts.
    pub peer: Mix,
    /// Number of receives that are kept posted.
    pub receives: u32,
    /// Error timeout of the send queue: 4096 ns << this.
    pub err_timeout: u8,
    /// How long open requests are waited for at the end.
    pub bound: Duration,
}

/// First request of a round: rounds share no id.
#[must_use]
pub fn first_id(round: u32) -> u64 {
    u64::from(round & 0x7f) << 24
}

/// Journal records that are left for the end of a round.
const ROOM_KEPT: usize = 4096;
/// Requests between two changes of the churning segment.
const CHURN_EVERY: u64 = 64;
/// Requests that are posted to a queue after its first failure.
const POSTS_AFTER_FAILURE: u32 = 16;
/// How long flushed receives and closing descriptors are waited for.
const WAIT_MAX: Duration = Duration::from_secs(5);
/// How long a peer is looked for.
const IMPORT: Duration = Duration::from_secs(1);
/// How long the starter may take for its next word.
const SILENCE: Duration = Duration::from_secs(60);

/// Runs one round, from its objects to its end.
///
/// # Errors
/// The starter is gone, or the own device refuses what it must not.
pub fn run(
    side: &Side,
    journal: &mut Journal,
    channel: &mut Channel,
    orders: Orders,
) -> Outcome<()> {
    let round = orders.round;
    let (op, a, b) = (orders.own.mode as u8, open_count(), mapped_count());
    journal.write(Record { op, a, b, ..Record::new(Kind::Began, round, 0) });
    let baseline = open_count();
    let open = {
        let mut work = Work::new(side, journal, orders)?;
        channel.say(&Word::Endpoint(work.objects.endpoint()))?;
        work.until_stopped(channel)?;
        work.end()?
    };
    if orders.round == 1 {
        // The peer of the first round is dead; that of a later one may keep its connection.
        await_descriptors(baseline);
    }
    journal.write(Record { a: open_count(), b: open, ..Record::new(Kind::Ended, round, 0) });
    channel.say(&Word::Closed)?;
    Ok(())
}

/// Writes down how many descriptors and mappings are left when every peer is gone.
///
/// # Errors
/// The starter is gone.
pub fn rested(journal: &mut Journal, channel: &mut Channel, baseline: u64) -> io::Result<()> {
    await_descriptors(baseline);
    let (a, b) = (open_count(), mapped_count());
    journal.write(Record { a, b, ..Record::new(Kind::Rested, 0, 0) });
    channel.say(&Word::Closed)
}

/// A hang-up is noticed by the node's own thread: its descriptors close a moment later.
fn await_descriptors(baseline: u64) {
    let bound = Bound::after(WAIT_MAX);
    while open_count() > baseline && !bound.is_over() {
        rest(Duration::from_millis(1));
    }
}

/// A request that is outstanding.
#[derive(Clone, Copy, Debug)]
struct Open {
    id: u64,
    plan: Planned,
    /// Atomics: the value that must be there before.
    expected: u64,
}

struct Work<'a> {
    side: &'a Side,
    journal: &'a mut Journal,
    orders: Orders,
    objects: Objects,
    open: [Option<Open>; SLOT_COUNT],
    next: u64,
    receives_posted: u64,
    receives_done: u64,
    /// What the device had counted when the round began.
    counted: u64,
    messages_sent: u64,
    messages_came: u64,
    added: u64,
    swapped: u64,
    /// Posts left after the first failure.
    posts_left: Option<u32>,
}

impl<'a> Work<'a> {
    fn new(side: &'a Side, journal: &'a mut Journal, orders: Orders) -> Outcome<Self> {
        let counted = side.completions()?;
        let objects = side.objects(orders.own.mode, orders.err_timeout)?;
        let next = first_id(orders.round);
        let mut work = Self {
            side,
            journal,
            orders,
            objects,
            open: [None; SLOT_COUNT],
            next,
            receives_posted: 0,
            receives_done: 0,
            counted,
            messages_sent: 0,
            messages_came: 0,
            added: 0,
            swapped: 0,
            posts_left: None,
        };
        for _ in 0..orders.receives {
            work.post_receive();
        }
        Ok(work)
    }

    /// Waits for the word to run or to stop; runs until the word to stop.
    fn until_stopped(&mut self, channel: &mut Channel) -> Outcome<()> {
        let (peer, count) = match channel.wait(SILENCE)? {
            Word::Run { peer, count } => (peer, count),
            Word::Stop => return Ok(()),
            other => return Err(format!("{other:?} is not due").into()),
        };
        let peer = self.meet(&peer);
        channel.say(&Word::Met)?;
        match channel.wait(SILENCE)? {
            Word::Go => {}
            Word::Stop => return Ok(()),
            other => return Err(format!("{other:?} is not due").into()),
        }
        let Ok(peer) = peer else {
            self.note(Kind::NoPeer, 0);
            if count.is_some() {
                // The journal has the fault; there is nothing to wait for.
                channel.say(&Word::Done)?;
            }
            return self.poll_until_stop(channel);
        };
        self.post_until_stop(&peer, count, channel)?;
        // The peer goes only after the queue that has requests to it: `end` waits for those.
        self.await_all()?;
        drop(peer);
        Ok(())
    }

    /// Imports the peer, and binds the jetty to it where that is due.
    fn meet(&mut self, peer: &Endpoint) -> Outcome<Peer> {
        let mode = self.orders.own.mode;
        let peer = self.side.import(peer, mode, IMPORT)?;
        if mode == Mode::Rc {
            self.objects.jetty.bind(&peer.target)?;
        }
        Ok(peer)
    }

    fn poll_until_stop(&mut self, channel: &mut Channel) -> Outcome<()> {
        let bound = Bound::after(SILENCE);
        while !is_stop(channel.look()?)? {
            self.poll()?;
            rest(Duration::from_millis(1));
            if bound.is_over() {
                return Err("no message stops the round".into());
            }
        }
        Ok(())
    }

    fn post_until_stop(
        &mut self,
        peer: &Peer,
        count: Option<u64>,
        channel: &mut Channel,
    ) -> Outcome<()> {
        let first = first_id(self.orders.round);
        let mut last = first + count.unwrap_or(1 << 23);
        // Those of UM may be lost: no round waits for them.
        let is_sure = self.orders.own.mode != Mode::Um;
        let mut due = count.map(|count| match is_sure {
            true => messages(self.orders.peer, first, count),
            false => 0,
        });
        let mut is_reported = false;
        for turn in 0_u64.. {
            let came = self.poll()?;
            let posted = self.next < last && self.try_post(peer);
            if turn.is_multiple_of(16) {
                match channel.look()? {
                    // Those of the peer may still be outstanding.
                    Some(Word::Enough) => (last, due) = (self.next, Some(0)),
                    word if is_stop(word.clone())? => return Ok(()),
                    _ => {}
                }
            }
            let failed = self.posts_left == Some(0);
            let complete = self.next == last && due.is_some_and(|due| self.messages_came >= due);
            if !is_reported && due.is_some() && self.sends_open() == 0 && (complete || failed) {
                channel.say(&Word::Done)?;
                is_reported = true;
            }
            if came == 0 && !posted {
                self.idle(is_reported);
            }
        }
        Ok(())
    }

    /// Nothing to do: lets others run, longer when nothing will change soon.
    fn idle(&self, is_reported: bool) {
        if is_reported || self.posts_left == Some(0) {
            rest(Duration::from_millis(1));
        } else {
            std::thread::yield_now();
        }
    }

    /// Posts the next request if its slot is free. Whether it did.
    fn try_post(&mut self, peer: &Peer) -> bool {
        let id = self.next;
        if self.open[slot(id)].is_some()
            || self.posts_left == Some(0)
            || self.journal.room() < ROOM_KEPT
        {
            return false;
        }
        if id.is_multiple_of(CHURN_EVERY) && !self.step_churn() {
            return false;
        }
        let plan = planned(self.orders.own, id);
        let expected = match plan.op {
            Op::FetchAdd => self.added,
            Op::Cas => self.swapped,
            op if op.is_message() => self.messages_sent + 1,
            _ => 0,
        };
        self.next += 1;
        if self.posts_left.is_some() && plan.op.is_message() {
            // Whether the failed ones before it were carried out is not known: no number is right.
            return true;
        }
        self.fill(id, &plan, expected);
        if let Some(left) = &mut self.posts_left {
            *left -= 1;
        }
        if self.post(peer, Open { id, plan, expected }) {
            match plan.op {
                Op::FetchAdd => self.added += 1,
                Op::Cas => self.swapped += 1,
                op => self.messages_sent += u64::from(op.is_message()),
            }
        }
        true
    }

    /// Writes down what is about to be posted, posts it, and writes down what was refused.
    fn post(&mut self, peer: &Peer, open: Open) -> bool {
        let Open { id, plan, expected } = open;
        let (op, a, b) = (plan.op as u8, plan.len as u64, expected);
        let round = self.orders.round;
        let all = ids(id, plan.op);
        for id in all.clone() {
            self.journal.write(Record { op, a, b, ..Record::new(Kind::Posting, round, id) });
        }
        let taken = post(&mut self.objects, peer, (id, &plan, expected));
        for refused in all.clone().skip(taken) {
            self.note(Kind::Refused, refused);
            self.posts_left.get_or_insert(POSTS_AFTER_FAILURE);
        }
        if taken < all.count() {
            return false;
        }
        self.open[slot(id)] = Some(open);
        true
    }

    /// Registers or unregisters the segment that comes and goes; `false`: that was refused.
    fn step_churn(&mut self) -> bool {
        let round = self.orders.round;
        match self.objects.churn.step(self.side) {
            Ok(0) => {}
            Ok(b) => self.journal.write(Record { b, ..Record::new(Kind::Memory, round, 0) }),
            Err(_) => {
                self.posts_left = Some(0);
                return false;
            }
        }
        true
    }

    fn fill(&mut self, id: u64, plan: &Planned, number: u64) {
        let memory = &mut self.objects.memory;
        match plan.op {
            Op::Write | Op::WriteImm | Op::Notify | Op::Churn | Op::Barred => {
                memory.fill_write(id, plan.len);
            }
            Op::Ordered => memory.fill_steps(id),
            Op::Send | Op::SendImm => memory.fill_message(id, plan.len, number),
            Op::Read | Op::FetchAdd | Op::Cas | Op::Recv => {}
        }
    }

    fn post_receive(&mut self) {
        let number = self.receives_posted;
        let id = RECV_BIT | first_id(self.orders.round) << 16 | number;
        let (op, a) = (Op::Recv as u8, u64::from(RECEIVE_LEN));
        let round = self.orders.round;
        self.journal.write(Record { op, a, ..Record::new(Kind::Posting, round, id) });
        let segment = &self.objects.segment;
        let offset = Memory::receive_of(buffer(number)) as u64;
        let len = RECEIVE_LEN;
        let dst = [LocalSge { segment, addr: segment.va() + offset, len }];
        let wr = RecvWr { dst: &dst, user_ctx: id };
        if self.objects.jetty.post_recv(&[wr]).is_ok() {
            self.receives_posted += 1;
        } else {
            self.note(Kind::Refused, id);
            // The number is used up, its buffer is not: stop asking.
            self.receives_posted += 1;
            self.receives_done += 1;
        }
    }

    /// Takes what completed. How many.
    fn poll(&mut self) -> Outcome<usize> {
        let mut done = [Completion::default(); 16];
        let sends = take(&mut self.objects.send_jfc, &mut done)?;
        for completion in &done[..sends] {
            self.sent(completion);
        }
        let receives = take(&mut self.objects.recv_jfc, &mut done)?;
        for completion in &done[..receives] {
            self.received(completion);
        }
        Ok(sends + receives)
    }

    fn sent(&mut self, done: &Completion) {
        let round = self.orders.round;
        let status = done.status.code();
        if is_marker(done) {
            self.journal.write(Record { status, ..Record::new(Kind::Marker, round, 0) });
            return;
        }
        let id = done.user_ctx;
        let known = self.open[slot(id)].filter(|open| open.id == id);
        let mut record = Record { status, ..Record::new(Kind::Completed, round, id) };
        if let Some(open) = known {
            self.open[slot(id)] = None;
            record.op = open.plan.op as u8;
            if done.status.is_success() && !self.is_right(&open) {
                record.flags |= Record::WRONG_BYTES;
            }
        }
        if !done.status.is_success() && !is_expected(record.op, done.status) {
            self.posts_left.get_or_insert(POSTS_AFTER_FAILURE);
        }
        self.journal.write(record);
    }

    fn is_right(&mut self, open: &Open) -> bool {
        let memory = &mut self.objects.memory;
        match open.plan.op {
            Op::Read => memory.is_read_right(open.id, &open.plan),
            Op::Ordered => memory.is_step_right(open.id),
            // After a failure it is not known what earlier ones did.
            Op::FetchAdd | Op::Cas => {
                self.posts_left.is_some()
                    || memory.word(Memory::result_of(open.id)) == open.expected
            }
            _ => true,
        }
    }

    fn received(&mut self, done: &Completion) {
        let round = self.orders.round;
        let status = done.status.code();
        if is_marker(done) {
            self.journal.write(Record { status, ..Record::new(Kind::Marker, round, 0) });
            return;
        }
        let id = done.user_ctx;
        let op = Op::Recv as u8;
        let mut record = Record { op, status, ..Record::new(Kind::Completed, round, id) };
        self.receives_done += 1;
        if done.status.is_success() {
            self.messages_came += 1;
            match self.message_of(done, id & 0xffff_ffff) {
                Some(number) => record.a = number,
                None => record.flags |= Record::WRONG_BYTES,
            }
        }
        self.journal.write(record);
        if done.status.is_success() && self.journal.room() >= ROOM_KEPT / 2 {
            self.post_receive();
        }
    }

    /// Number of the message that came in, if all of it is right.
    fn message_of(&mut self, done: &Completion, receive: u64) -> Option<u64> {
        if done.opcode == CrOpcode::WriteImm {
            return done.immediate();
        }
        let len = usize::try_from(done.len).ok()?;
        let number = self.objects.memory.message(buffer(receive), len)?;
        let carried = done.immediate();
        carried.is_none_or(|carried| carried == number).then_some(number)
    }

    fn sends_open(&self) -> u64 {
        self.open.iter().flatten().count() as u64
    }

    fn receives_open(&self) -> u64 {
        self.receives_posted.saturating_sub(self.receives_done)
    }

    /// Waits for every send, then flushes the receives and waits for those.
    fn await_all(&mut self) -> Outcome<()> {
        let bound = Bound::after(self.orders.bound);
        while self.sends_open() > 0 && !bound.is_over() {
            if self.poll()? == 0 {
                rest(Duration::from_micros(200));
            }
        }
        Ok(())
    }

    /// Ends the round: requests without completion.
    fn end(mut self) -> Outcome<u64> {
        self.await_all()?;
        self.objects.jetty.modify(JettyState::Error)?;
        let bound = Bound::after(WAIT_MAX);
        while self.receives_open() + self.sends_open() > 0 && !bound.is_over() {
            if self.poll()? == 0 {
                rest(Duration::from_micros(200));
            }
        }
        // One more look: nothing may come behind the last one.
        rest(Duration::from_millis(2));
        self.poll()?;
        let (a, b) = self.objects.memory.check_inbox(self.orders.peer);
        let round = self.orders.round;
        self.journal.write(Record { a, b, ..Record::new(Kind::Memory, round, 0) });
        // The driver drops entries that answer nothing; the device's own count shows them.
        let a = self.side.completions()?.saturating_sub(self.counted);
        self.journal.write(Record { a, ..Record::new(Kind::Counted, round, 0) });
        Ok(self.receives_open() + self.sends_open())
    }

    fn note(&mut self, kind: Kind, id: u64) {
        self.journal.write(Record::new(kind, self.orders.round, id));
    }
}

fn take(jfc: &mut Jfc, done: &mut [Completion]) -> Result<usize, Status> {
    jfc.poll(done)
}

fn is_marker(done: &Completion) -> bool {
    done.flags.intersects(CompletionFlags::FLUSH_ERR_DONE | CompletionFlags::SUSPEND_DONE)
}

/// Memory that comes and goes is refused while it is gone; what is barred always is.
fn is_expected(op: u8, status: CrStatus) -> bool {
    let may_be_refused = op == Op::Churn as u8 || op == Op::Barred as u8;
    may_be_refused && status == CrStatus::RemAccessAbort
}

fn is_stop(word: Option<Word>) -> io::Result<bool> {
    match word {
        None => Ok(false),
        Some(Word::Stop) => Ok(true),
        Some(other) => Err(io::Error::other(format!("{other:?} is not due"))),
    }
}

/// The slot of a request.
pub(crate) fn slot(id: u64) -> usize {
    usize::try_from(id % SLOTS).unwrap_or(0)
}

/// Receives are consumed in the order in which they were posted.
fn buffer(number: u64) -> usize {
    usize::try_from(number % RECEIVES_MAX as u64).unwrap_or(0)
}

/// Returns the number of open descriptors of this process.
#[must_use]
pub fn open_count() -> u64 {
    // The directory itself is open while it is read.
    let entries = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    u64::try_from(entries.saturating_sub(1)).unwrap_or(u64::MAX)
}

/// Shared files without a name that are mapped, each counted once however many pieces it is in.
#[must_use]
pub fn mapped_count() -> u64 {
    let maps = fs::read_to_string("/proc/self/maps").unwrap_or_default();
    let files: BTreeSet<&str> = maps
        .lines()
        .filter(|line| line.contains("/memfd:"))
        // Address, permissions, offset, device, inode.
        .filter_map(|line| line.split_whitespace().nth(4))
        .collect();
    u64::try_from(files.len()).unwrap_or(u64::MAX)
}
