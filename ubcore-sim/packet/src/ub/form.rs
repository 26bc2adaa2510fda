//! Whole sends and their acknowledgements as words with two holes: what a same-host ring carries most.
//!
//! - owns: where number, length and immediate lie in the words of such a header.
//! - takes: a header of the sequence, then the values of one message. gives: the words, or the values.
//! - must not: accept words that differ from the header anywhere else.

use super::opcode::ResponseOp;
use super::request::RequestOp;
use super::request::{KIND_SHIFT, MT_EN, RequestFlags, RequestHeader};
use super::response::{ResponseBody, ResponseHeader, ResponseStatus};
use crate::codec::to_be24;

/// Words that hold the longest of these headers.
pub const FORM_WORDS: usize = 6;

/// A header in little-endian words, zero behind its end.
pub type FormWords = [u64; FORM_WORDS];

const TASSN: u64 = 0xffff << 16;
const LOW: u64 = u32::MAX as u64;

/// Header of messages of one piece that differ in number, length and immediate only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendForm {
    words: FormWords,
    len: usize,
    /// Bits of words 4 that are fixed: those of a token.
    fixed: u64,
    has_imm: bool,
}

/// What differs between two messages of a form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SendValues {
    /// INI_TASSN: number in the sequence.
    pub tassn: u16,
    /// Bytes of the message.
    pub length: u32,
    /// Immediate; 0 without one.
    pub imm: u64,
}

impl SendForm {
    /// The form of a header; `None`: it is no SEND or SEND_IMM in one piece to a named target.
    #[must_use]
    pub fn of(header: &RequestHeader) -> Option<Self> {
        let has_imm = match header.op {
            RequestOp::Send => false,
            RequestOp::SendImm(_) => true,
            RequestOp::SendInvalidate(_)
            | RequestOp::Write
            | RequestOp::WriteImm(_)
            | RequestOp::WriteNotify(_)
            | RequestOp::WriteAtomicAdd(_)
            | RequestOp::Read
            | RequestOp::Atomic(..)
            | RequestOp::FlushDma => return None,
        };
        let is_whole = header.flags.contains(RequestFlags::ONLY);
        if !is_whole || header.target.is_none() || header.flags.contains(RequestFlags::RETRY) {
            return None;
        }
        let mut plain = *header;
        (plain.tassn, plain.access.length) = (0, 0);
        if has_imm {
            plain.op = RequestOp::SendImm(0);
        }
        let (words, len) = words_of(|bytes| plain.emit(bytes).ok())?;
        let fixed = if header.token.is_some() { !LOW } else { 0 };
        Some(Self { words, len, fixed, has_imm })
    }

    /// Bytes from the BTAH to the payload.
    #[must_use]
    #[inline]
    pub const fn header_len(&self) -> usize {
        self.len
    }

    /// The header of one message.
    #[must_use]
    #[inline]
    pub const fn fill(&self, values: &SendValues) -> FormWords {
        let mut words = self.words;
        words[0] |= (values.tassn.swap_bytes() as u64) << 16;
        words[4] |= values.length.swap_bytes() as u64;
        if self.has_imm {
            let imm = values.imm.swap_bytes();
            if self.fixed == 0 {
                words[4] |= imm << 32;
                words[5] = imm >> 32;
            } else {
                words[5] = imm;
            }
        }
        words
    }

    /// What the header of another message of this form says; `None`: it has another form.
    #[must_use]
    #[inline]
    pub fn read(&self, words: &FormWords) -> Option<SendValues> {
        let differs = (words[0] ^ self.words[0]) & !TASSN
            | words[1] ^ self.words[1]
            | words[2] ^ self.words[2]
            | words[3] ^ self.words[3]
            | (words[4] ^ self.words[4]) & self.fixed;
        if differs != 0 {
            return None;
        }
        let imm = match (self.has_imm, self.fixed) {
            (false, _) => 0,
            (true, 0) => words[4] >> 32 | words[5] << 32,
            (true, _) => words[5],
        };
        Some(SendValues {
            tassn: tassn_of(words[0]),
            length: low32(words[4]).swap_bytes(),
            imm: imm.swap_bytes(),
        })
    }
}

/// Plain acknowledgements of one sequence, which differ in their number only.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AckForm {
    words: FormWords,
}

impl AckForm {
    /// Bytes of such an acknowledgement.
    pub const LEN: usize = super::response::ATAH_LEN + super::request::Target::LEN;

    /// The form of an answer; `None`: it says more than that a request to a named target was executed.
    #[must_use]
    pub fn of(header: &ResponseHeader) -> Option<Self> {
        let is_plain = header.status == ResponseStatus::Ack && header.body == ResponseBody::None;
        let plain = ResponseHeader { tassn: 0, ..*header };
        let (words, len) = words_of(|bytes| plain.emit(bytes).ok())?;
        (is_plain && len == Self::LEN).then_some(Self { words })
    }

    /// The acknowledgement of one request.
    #[must_use]
    #[inline]
    pub const fn fill(&self, tassn: u16) -> FormWords {
        let mut words = self.words;
        words[0] |= (tassn.swap_bytes() as u64) << 16;
        words
    }

    /// Number of the request that an acknowledgement of this form is for; `None`: it has another form.
    #[must_use]
    #[inline]
    pub fn read(&self, words: &FormWords) -> Option<u16> {
        let differs = (words[0] ^ self.words[0]) & !TASSN
            | words[1] ^ self.words[1]
            | (words[2] ^ self.words[2]) & LOW;
        (differs == 0).then(|| tassn_of(words[0]))
    }
}

/// A plain acknowledgement in words; `None`: the answer says more than that a request to a named target was
/// executed.
#[must_use]
#[inline]
pub fn ack_words(header: &ResponseHeader) -> Option<FormWords> {
    let is_plain = header.status == ResponseStatus::Ack && header.body == ResponseBody::None;
    let target = header.target.filter(|_| is_plain)?;
    let [a, b, c] = to_be24(header.initiator.id.value());
    let named = u32::from(target.kind.code()) << 22 | target.id.value();
    let [d, e, f] = to_be24(named);
    let kind = header.initiator.kind.code() << KIND_SHIFT;
    let first = [ResponseOp::TaAck.code(), 0, 0, 0, 0, kind, 0, 0];
    Some([
        u64::from_le_bytes(first) | u64::from(header.tassn.swap_bytes()) << 16,
        u64::from_le_bytes([a, b, c, MT_EN, 0, 0, 0, 0]),
        u64::from_le_bytes([target.hint, d, e, f, 0, 0, 0, 0]),
        0,
        0,
        0,
    ])
}

/// Whether words begin as an acknowledgement does.
#[must_use]
#[inline]
pub const fn is_ack(words: &FormWords) -> bool {
    words[0] & 0xff == ResponseOp::TaAck.code() as u64
}

/// Which of `places` places a header with these words has in a table: by its initiator.
#[must_use]
#[inline]
pub const fn place_of(words: &FormWords, places: usize) -> usize {
    (words[1] >> 16) as usize & 0xff & (places - 1)
}

fn words_of(emit: impl FnOnce(&mut [u8]) -> Option<usize>) -> Option<(FormWords, usize)> {
    let mut bytes = [0; FORM_WORDS * 8];
    let len = emit(&mut bytes)?;
    let mut words = [0; FORM_WORDS];
    for (word, bytes) in words.iter_mut().zip(bytes.as_chunks().0) {
        *word = u64::from_le_bytes(*bytes);
    }
    Some((words, len))
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "16 bits are meant")]
const fn tassn_of(word: u64) -> u16 {
    ((word >> 16) as u16).swap_bytes()
}

#[inline]
#[expect(clippy::cast_possible_truncation, reason = "the low half is meant")]
const fn low32(word: u64) -> u32 {
    word as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Initiator, InitiatorKind, JettyId, MemoryAccess, OrderTag, Target, TargetKind, TokenId,
        TokenValue,
    };

    fn header(op: RequestOp, token: Option<u32>) -> RequestHeader {
        RequestHeader {
            flags: RequestFlags::ONLY | RequestFlags::SOLICITED,
            order: OrderTag::None,
            tassn: 0x1234,
            initiator: Initiator {
                kind: InitiatorKind::Jetty,
                id: JettyId::from_low_bits(0x2_3456),
            },
            target: Some(Target {
                kind: TargetKind::Jetty,
                id: JettyId::from_low_bits(0x7_8901),
                hint: 0,
            }),
            token: token.map(TokenValue),
            access: MemoryAccess { address: 0, token_id: TokenId::default(), length: 77 },
            op,
        }
    }

    fn emitted(header: &RequestHeader) -> (FormWords, usize) {
        words_of(|bytes| header.emit(bytes).ok()).unwrap()
    }

    const FORMS: [(RequestOp, Option<u32>); 4] = [
        (RequestOp::Send, None),
        (RequestOp::Send, Some(0xdead_beef)),
        (RequestOp::SendImm(0x0102_0304_0506_0708), None),
        (RequestOp::SendImm(9), Some(5)),
    ];

    #[test]
    fn a_form_fills_and_reads_as_the_header_itself() {
        for (op, token) in FORMS {
            let header = header(op, token);
            let form = SendForm::of(&header).unwrap();
            let (words, len) = emitted(&header);
            let imm = if let RequestOp::SendImm(imm) = op { imm } else { 0 };
            let values = SendValues { tassn: 0x1234, length: 77, imm };
            assert_eq!(form.fill(&values), words);
            assert_eq!((form.header_len(), form.read(&words)), (len, Some(values)));
        }
    }

    /// Each bit of the header is a value or fixed: no other header is read as one of the form.
    #[test]
    fn every_other_bit_of_a_header_makes_another_form() {
        for (op, token) in FORMS {
            let header = header(op, token);
            let form = SendForm::of(&header).unwrap();
            let (words, len) = emitted(&header);
            for bit in 0..len * 8 {
                let mut other = words;
                other[bit / 64] ^= 1 << (bit % 64);
                let is_value = matches!(bit / 8, 2..4 | 32..36)
                    || matches!(op, RequestOp::SendImm(_)) && bit / 8 >= len - 8;
                assert_eq!(form.read(&other).is_some(), is_value, "{op:?} bit {bit}");
            }
        }
    }

    #[test]
    fn what_is_no_whole_message_has_no_form() {
        let send = header(RequestOp::Send, None);
        assert!(SendForm::of(&RequestHeader { flags: RequestFlags::FIRST, ..send }).is_none());
        let again = RequestFlags::ONLY | RequestFlags::RETRY;
        assert!(SendForm::of(&RequestHeader { flags: again, ..send }).is_none());
        assert!(SendForm::of(&header(RequestOp::Write, None)).is_none());
    }

    #[test]
    fn acknowledgements_fill_and_read_as_the_header_itself() {
        let ack = ResponseHeader::ack(&header(RequestOp::Send, None), ResponseStatus::Ack);
        let form = AckForm::of(&ack).unwrap();
        let (words, len) = words_of(|bytes| ack.emit(bytes).ok()).unwrap();
        assert_eq!((form.fill(0x1234), len), (words, AckForm::LEN));
        assert!(is_ack(&words) && form.read(&words) == Some(0x1234));
        assert_eq!(ack_words(&ack), Some(words));
        let hinted = Target { kind: TargetKind::JettyGroup, hint: 9, ..ack.target.unwrap() };
        let hinted = ResponseHeader { target: Some(hinted), ..ack };
        assert_eq!(ack_words(&hinted), words_of(|bytes| hinted.emit(bytes).ok()).map(|of| of.0));
        for bit in 0..len * 8 {
            let mut other = words;
            other[bit / 64] ^= 1 << (bit % 64);
            assert_eq!(form.read(&other).is_some(), (16..32).contains(&bit), "bit {bit}");
        }
        let status = ResponseStatus::Length;
        assert!(AckForm::of(&ResponseHeader { status, ..ack }).is_none());
        assert!(AckForm::of(&ResponseHeader { target: None, ..ack }).is_none());
        assert!(ack_words(&ResponseHeader { status, ..ack }).is_none());
        assert!(ack_words(&ResponseHeader { target: None, ..ack }).is_none());
    }
}
