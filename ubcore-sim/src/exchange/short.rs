//! The express lane of messages in the shared part: message forms that the long path has checked.
//!
//! *Owns*: tables of forms, by queue. *Takes*: short messages of send queues, whole ring entries. *Gives*: the same
//! entries, receives, completions and answers as the long path. *Must not*: take a message whose form the long path
//! has not taken since the objects of this node last changed.
//!
//! A form is a header without number, length and immediate. The long path checked all other bits when it took such a
//! message; what can change from one message to the next is checked here each time: number, length, the receive, its
//! segment, a completion slot.

use udma_abi::{
    MessageEntry, Nanos, Sqe,
    cqe::{RecvDone, RecvForm},
    sqe::{BLOCK_WORDS, SQE_WORDS_MAX, SqeFlags},
};
use urma_packet::{
    AckForm, FormWords, RequestFlags, RequestHeader, RequestOp, ResponseBody, ResponseHeader,
    ResponseStatus, SendForm, SendValues, place_of,
};

use crate::engine::gather::Local;
use crate::engine::send::ShortSend;
use crate::exchange::initiator::next_piece;
use crate::exchange::initiator::send_queues::SendQueueTable;
use crate::exchange::pair::{self, Pair};
use crate::exchange::target::receive::{FormReceiver, ReceivingSides};

/// Number of forms per peer that are cached in each direction.
const PLACES: usize = 16;

/// Form of the messages of one send queue to one target.
#[derive(Debug)]
pub(crate) struct SentForm {
    queue: u32,
    key: [u64; 3],
    pub(crate) form: SendForm,
    pub(crate) header: RequestHeader,
    pub(crate) pair: Pair,
    /// Whether these messages may carry the acknowledgements of the opposite sequence.
    opposite: Option<Pair>,
    pub(crate) timeout: Nanos,
    pub(crate) priority: u8,
}

/// Cache of the forms of messages that this node sends.
#[derive(Debug, Default)]
pub(crate) struct SentForms([Option<Box<SentForm>>; PLACES]);

impl SentForms {
    /// Returns the form of a message, and creates it if it is not cached. `None`: the message has none.
    #[inline]
    pub(crate) fn of(
        &mut self,
        senders: &SendQueueTable,
        short: &ShortSend<'_>,
    ) -> Option<&SentForm> {
        let key = key_of(short.block);
        let mixed = short.queue ^ short.entry.target_id;
        let place = &mut self.0[mixed as usize % PLACES];
        let is_same =
            place.as_ref().is_some_and(|sent| sent.queue == short.queue && sent.is_of(&key));
        if !is_same {
            *place = Some(Box::new(SentForm::new(senders, short, key)?));
        }
        place.as_deref()
    }

    /// Returns the cached form of a queue's message.
    pub(crate) fn known(&self, queue: u32, block: &[u64; BLOCK_WORDS]) -> Option<&SentForm> {
        let key = key_of(block);
        self.0
            .iter()
            .flatten()
            .map(|sent| &**sent)
            .find(|sent| sent.queue == queue && sent.is_of(&key))
    }

    /// Empties the cache: queues changed.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl SentForm {
    #[cold]
    fn new(senders: &SendQueueTable, short: &ShortSend<'_>, key: [u64; 3]) -> Option<Self> {
        let mut words = [0; SQE_WORDS_MAX];
        words[..BLOCK_WORDS].copy_from_slice(short.block);
        let sqe = Sqe::decode(&words).ok()?;
        let sender = senders.get(short.queue)?;
        let initiator = pair::initiator(short.queue, sender.side.is_jetty);
        let header = next_piece::header(&sqe, initiator, sender.side.mode, 0)?;
        let pair = Pair::of_request(&header);
        Some(Self {
            queue: short.queue,
            key,
            form: SendForm::of(&header)?,
            header,
            pair,
            opposite: pair.opposite(),
            timeout: sender.timeout_ns(),
            priority: sender.side.priority,
        })
    }
}

impl SentForm {
    /// Whether messages with this key are of the form.
    #[inline]
    const fn is_of(&self, key: &[u64; 3]) -> bool {
        // Word by word: an array comparison would store both to memory first.
        (self.key[0] ^ key[0]) | (self.key[1] ^ key[1]) | (self.key[2] ^ key[2]) == 0
    }

    /// The sequence whose requests its messages may acknowledge.
    pub(crate) const fn opposite(&self) -> Option<Pair> {
        self.opposite
    }

    /// Number of the request that `answer` acknowledges, if a message of this form can carry that.
    #[inline]
    pub(crate) fn acked_by(&self, answer: &ResponseHeader) -> Option<u16> {
        let is_plain = answer.status == ResponseStatus::Ack && answer.body == ResponseBody::None;
        let opposite = self.opposite.filter(|_| is_plain)?;
        (Pair::of_response(answer) == opposite).then_some(answer.tassn)
    }
}

/// The words of a block that determine its header, without immediate and length.
#[inline]
const fn key_of(block: &[u64; BLOCK_WORDS]) -> [u64; 3] {
    const HERE: u64 = (SqeFlags::COMPLETE.bits() | SqeFlags::INLINE.bits()) as u64;
    // Index, owner bit, length; number of pieces.
    const WORD_0: u64 = !(0xffff | HERE << 16 | 1 << 31 | 0x3ff << 54);
    const WORD_1: u64 = !(0xff << 24);
    [block[0] & WORD_0, block[1] & WORD_1, block[4]]
}

/// Operation of the request for a message.
#[inline]
pub(crate) fn op_of(entry: &MessageEntry) -> RequestOp {
    entry.imm.map_or(RequestOp::Send, RequestOp::SendImm)
}

/// The local bytes of a message; the counterpart of [`Local::of`] for SQEs.
#[inline]
pub(crate) fn local_of(entry: &MessageEntry) -> Local {
    const TAIL: usize = udma_abi::sqe::control_len(udma_abi::Opcode::Send);
    match entry.body {
        udma_abi::MessageBody::Piece(_) => Local::Sges { first: TAIL / 8, num: 1 },
        udma_abi::MessageBody::Inline(len, _) => Local::Inline { offset: TAIL, len },
    }
}

/// Form of the messages of one sequence that the long path received.
#[derive(Debug)]
pub(crate) struct TakenForm {
    form: SendForm,
    pub(crate) pair: Pair,
    pub(crate) opposite: Option<Pair>,
    /// Number of changes to this node's receiving sides when it was learned.
    changes: u64,
    pub(crate) receiver: FormReceiver,
    pub(crate) completion: RecvForm,
    pub(crate) is_solicited: bool,
    /// The answer, without its number; `None`: none is wanted.
    pub(crate) answer: Option<ResponseHeader>,
}

/// Cache of the forms of messages that this node receives.
#[derive(Debug, Default)]
pub(crate) struct TakenForms([Option<Box<TakenForm>>; PLACES]);

impl TakenForms {
    /// Returns the form of a received message, and the values that differ.
    #[inline]
    pub(crate) fn find(
        &self,
        receives: &ReceivingSides,
        front: &FormWords,
    ) -> Option<(&TakenForm, SendValues)> {
        let taken = self.0[place_of(front, PLACES)].as_deref()?;
        let values = taken.form.read(front)?;
        (taken.changes == receives.changes()).then_some((taken, values))
    }

    /// Returns the form of a sequence's messages.
    pub(crate) fn known(&self, receives: &ReceivingSides, pair: Pair) -> Option<&TakenForm> {
        let of_pair = self.0.iter().flatten().find(|taken| taken.pair == pair);
        of_pair.map(|taken| &**taken).filter(|taken| taken.changes == receives.changes())
    }

    /// Learns the form of a message that the long path took.
    pub(crate) fn learn(
        &mut self,
        receives: &ReceivingSides,
        (eid, header): (udma_abi::RawEid, &RequestHeader),
    ) {
        let Some(form) = SendForm::of(header) else { return };
        let words = form.fill(&SendValues { tassn: 0, length: 0, imm: 0 });
        let place = &mut self.0[place_of(&words, PLACES)];
        let changes = receives.changes();
        if place.as_ref().is_some_and(|taken| taken.form == form && taken.changes == changes) {
            return;
        }
        let Some((receiver, cqe)) = receives.receiver_of(header) else { return };
        let opcode = u8::from(matches!(header.op, RequestOp::SendImm(_)));
        let remote_id = header.initiator.id.value();
        let cqe = udma_abi::Cqe { opcode, remote_id, rmt_eid: eid, ..cqe };
        let wants_answer = !header.flags.contains(RequestFlags::NO_TAACK);
        let ack = ResponseHeader::ack(header, ResponseStatus::Ack);
        let pair = Pair::of_request(header);
        *place = Some(Box::new(TakenForm {
            form,
            pair,
            opposite: pair.opposite(),
            changes,
            receiver,
            completion: RecvForm::of(&cqe),
            is_solicited: header.flags.contains(RequestFlags::SOLICITED),
            answer: wants_answer.then_some(ack),
        }));
    }

    /// Empties the cache: sequences start anew, or queues are gone.
    pub(crate) fn forget(&mut self) {
        *self = Self::default();
    }
}

impl TakenForm {
    pub(crate) const fn form(&self) -> &SendForm {
        &self.form
    }

    /// Length in bytes of the header before the payload.
    #[inline]
    pub(crate) const fn header_len(&self) -> usize {
        self.form.header_len()
    }

    /// What differs in the completion of one message.
    #[inline]
    pub(crate) const fn done(values: &SendValues, entry_idx: u16, tpn: u32) -> RecvDone {
        RecvDone { entry_idx, tpn, byte_cnt: values.length, imm: values.imm }
    }
}

/// Cache of the forms of plain acknowledgements that the long path took.
#[derive(Debug, Default)]
pub(crate) struct AckForms([Option<(AckForm, Pair)>; PLACES]);

impl AckForms {
    /// Sequence and number of an acknowledgement whose form is cached.
    #[inline]
    pub(crate) fn find(&self, front: &FormWords) -> Option<(Pair, u16)> {
        let (form, pair) = self.0[place_of(front, PLACES)].as_ref()?;
        Some((*pair, form.read(front)?))
    }

    /// Learns the form of an answer that the long path took.
    pub(crate) fn learn(&mut self, header: &ResponseHeader) {
        let Some(form) = AckForm::of(header) else { return };
        self.0[place_of(&form.fill(0), PLACES)] = Some((form, Pair::of_response(header)));
    }
}
