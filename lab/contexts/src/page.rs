//! Pages of CXL memory: tokens of one kind as differences from the page's first.
//!
//! *Owns*: the format and its worst case. *Takes*: records or bytes. *Gives*: bytes or records.
//! *Must not*: believe a bitmap, a count or a difference.

use crate::{
    handle::{ContextHandle, ContextKind, ContextValueError},
    token::{ContextToken, SmallOp, TOKEN_LEN_MAX},
};

/// A context as lower tiers keep it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct ContextRecord {
    pub(crate) token: ContextToken,
    /// Small fields, as they were written back last.
    pub(crate) small: u64,
}

impl ContextRecord {
    /// Does an operation: the small fields after it.
    pub(crate) fn apply(&mut self, op: SmallOp) -> u64 {
        self.small = op.apply(self.small);
        self.small
    }
}

/// Bytes of the header: page id 32, used slots 16, slots 16.
const HEADER_LEN: usize = 8;
/// Bytes of the longest record: its form, a whole token, small fields.
const RECORD_LEN_MAX: usize = 1 + TOKEN_LEN_MAX + 8;

/// Slots of a page: the largest power of two whose worst case fits.
pub(crate) fn slots_of(page_bytes: u32) -> u32 {
    page_bytes / 64
}

/// Bytes of a page in which no token packs.
const fn worst_len(slots: usize) -> usize {
    HEADER_LEN + slots / 8 + slots * RECORD_LEN_MAX
}
const _: () = assert!(worst_len((4 << 10) / 64) <= 4 << 10, "the smallest page");
const _: () = assert!(worst_len((1 << 20) / 64) <= 1 << 20, "the largest page");

/// Writes a page; `records[slot]` is what lies there, all of one kind.
pub(crate) fn encode(page_id: u32, records: &[Option<ContextRecord>]) -> Vec<u8> {
    let used = records.iter().flatten().count();
    let mut bytes = Vec::with_capacity(HEADER_LEN + records.len() / 8 + used * RECORD_LEN_MAX);
    bytes.extend(page_id.to_le_bytes());
    bytes.extend(low_16(used).to_le_bytes());
    bytes.extend(low_16(records.len()).to_le_bytes());
    for eight in records.chunks(8) {
        let bits = eight.iter().enumerate();
        bytes.push(bits.fold(0, |byte, (at, record)| byte | u8::from(record.is_some()) << at));
    }
    let mut first: Option<ContextRecord> = None;
    for record in records.iter().flatten() {
        let whole_len = 1 + record.token.handle().kind().token_len() + 8;
        let packed = first.map(|first| differences(&first, record));
        match packed.filter(|packed| packed.len() < whole_len) {
            Some(packed) => bytes.extend(packed),
            None => whole(record, &mut bytes),
        }
        first.get_or_insert(*record);
    }
    bytes
}

/// Reads a page.
///
/// # Errors
/// A count that is not that of the bitmap, more slots than `slots_max`, a record that is cut, of another kind, or whose
/// difference leaves 28 bits; bytes behind the last record.
pub(crate) fn decode(
    bytes: &[u8],
    slots_max: u32,
) -> Result<(u32, Vec<Option<ContextRecord>>), ContextValueError> {
    let mut rest = bytes;
    let page_id = u32::from_le_bytes(take(&mut rest)?);
    let used = u16::from_le_bytes(take(&mut rest)?);
    let slots = u16::from_le_bytes(take(&mut rest)?);
    if u32::from(slots) > slots_max {
        return Err(ContextValueError::new(
            "page slots",
            slots.into(),
            format!("at most {slots_max}"),
        ));
    }
    let bitmap_len = usize::from(slots).div_ceil(8);
    let Some((bitmap, mut rest)) = rest.split_at_checked(bitmap_len) else {
        return Err(cut(bytes.len()));
    };
    let is_used = |slot: usize| bitmap[slot / 8] >> (slot % 8) & 1 != 0;
    let ones: u32 = bitmap.iter().map(|byte| byte.count_ones()).sum();
    let beyond = (usize::from(slots)..8 * bitmap_len).any(is_used);
    if ones != u32::from(used) || beyond {
        let rule = format!("{ones}, as the bitmap says, within {slots} slots");
        return Err(ContextValueError::new("page count", used.into(), rule));
    }
    let mut first = None;
    let mut records = vec![None; usize::from(slots)];
    for slot in (0..usize::from(slots)).filter(|slot| is_used(*slot)) {
        let record = read_record(&mut rest, first)?;
        first.get_or_insert(record);
        records[slot] = Some(record);
    }
    if !rest.is_empty() {
        return Err(ContextValueError::new(
            "page tail",
            rest.len() as u64,
            "no bytes behind the last record",
        ));
    }
    Ok((page_id, records))
}

fn whole(record: &ContextRecord, bytes: &mut Vec<u8>) {
    bytes.push(WHOLE);
    bytes.extend(&record.token.encode()[..record.token.handle().kind().token_len()]);
    bytes.extend(record.small.to_le_bytes());
}

fn differences(first: &ContextRecord, record: &ContextRecord) -> Vec<u8> {
    let mut bytes = vec![DIFFERENCES];
    let (a, b) = (numbers(first), numbers(record));
    let words = if record.token.handle().kind().token_len() == TOKEN_LEN_MAX { 5 } else { 4 };
    for (from, to) in a.into_iter().zip(b).take(words) {
        let difference = to.wrapping_sub(from).cast_signed();
        // Small differences of both signs become small numbers.
        put_varint((difference << 1 ^ difference >> 63).cast_unsigned(), &mut bytes);
    }
    bytes
}

/// Index, generation, small fields and body of a record.
fn numbers(record: &ContextRecord) -> [u64; 5] {
    let [first, second] = record.token.words();
    let index = record.token.handle().index().into();
    [index, record.token.generation().into(), record.small, first, second]
}

fn read_record(
    rest: &mut &[u8],
    first: Option<ContextRecord>,
) -> Result<ContextRecord, ContextValueError> {
    let [form] = take(rest)?;
    match (form, first) {
        (WHOLE, _) => {
            let number = *rest.first().ok_or_else(|| cut(0))?;
            let rule = || ContextValueError::new("token kind", number.into(), "0 to 5");
            let len = ContextKind::of(number).ok_or_else(rule)?.token_len();
            let Some((token, after)) = rest.split_at_checked(len) else {
                return Err(cut(rest.len()));
            };
            *rest = after;
            let token = ContextToken::decode(token)?;
            let is_other =
                first.is_some_and(|first| first.token.handle().kind() != token.handle().kind());
            if is_other {
                let rule = "the kind of the page's first token";
                return Err(ContextValueError::new(
                    "token kind",
                    token.handle().kind() as u64,
                    rule,
                ));
            }
            Ok(ContextRecord { token, small: u64::from_le_bytes(take(rest)?) })
        }
        (DIFFERENCES, Some(first)) => read_differences(rest, &first),
        _ => {
            let rule = "0 (whole), or 1 (differences) behind a first token";
            Err(ContextValueError::new("record form", form.into(), rule))
        }
    }
}

fn read_differences(
    rest: &mut &[u8],
    first: &ContextRecord,
) -> Result<ContextRecord, ContextValueError> {
    let kind = first.token.handle().kind();
    let words = if kind.token_len() == TOKEN_LEN_MAX { 5 } else { 4 };
    let mut values = numbers(first);
    for value in values.iter_mut().take(words) {
        let packed = take_varint(rest)?;
        let difference = packed >> 1 ^ (packed & 1).wrapping_neg();
        *value = value.wrapping_add(difference);
    }
    let [index, generation, small, first_word, second] = values;
    let handle = u32::try_from(index).ok().and_then(|index| ContextHandle::new(kind, index));
    let rule = || ContextValueError::new("token index", index, "at most 28 bits");
    let handle = handle.ok_or_else(rule)?;
    let rule = |_| ContextValueError::new("token generation", generation, "at most 16 bits");
    let generation = u16::try_from(generation).map_err(rule)?;
    Ok(ContextRecord {
        token: ContextToken::of_parts(handle, generation, [first_word, second]),
        small,
    })
}

fn put_varint(mut value: u64, bytes: &mut Vec<u8>) {
    while value >= 0x80 {
        bytes.push(value.to_le_bytes()[0] | 0x80);
        value >>= 7;
    }
    bytes.push(value.to_le_bytes()[0]);
}

fn take_varint(rest: &mut &[u8]) -> Result<u64, ContextValueError> {
    let mut value = 0;
    for shift in (0..64).step_by(7) {
        let [byte] = take(rest)?;
        if shift == 63 && byte > 1 {
            return Err(ContextValueError::new("varint", byte.into(), "at most 64 bits"));
        }
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return Ok(value);
        }
    }
    Err(ContextValueError::new("varint", value, "at most 10 bytes"))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], ContextValueError> {
    let (bytes, after) = rest.split_first_chunk().ok_or_else(|| cut(rest.len()))?;
    *rest = after;
    Ok(*bytes)
}

fn cut(left: usize) -> ContextValueError {
    ContextValueError::new("page bytes left", left as u64, "enough for header, bitmap and records")
}

fn low_16(count: usize) -> u16 {
    u16::try_from(count).unwrap_or(u16::MAX)
}

/// Form of a record: token and small fields as they are.
const WHOLE: u8 = 0;
/// Form of a record: differences from the page's first.
const DIFFERENCES: u8 = 1;

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Index, generation, body and small fields.
    type Parts = (u32, u16, [u64; 2], u64);

    fn records(kind: u8, of: Vec<Option<Parts>>) -> Vec<Option<ContextRecord>> {
        let record = |(index, generation, words, small)| {
            let handle =
                ContextHandle::new(ContextKind::of(kind).expect("0 to 5"), index).expect("28 bits");
            ContextRecord { token: ContextToken::of_parts(handle, generation, words), small }
        };
        of.into_iter().map(|one| one.map(record)).collect()
    }

    proptest! {
        #[test]
        fn a_page_is_read_as_it_was_written(
            kind in 0u8..6,
            of in proptest::collection::vec(
                proptest::option::of((0u32..1 << 28, any::<u16>(), any::<[u64; 2]>(), any::<u64>())), 0..64),
        ) {
            let written = records(kind, of);
            let bytes = encode(77, &written);
            prop_assert!(bytes.len() <= worst_len(64));
            prop_assert_eq!(decode(&bytes, 64).unwrap(), (77, written));
        }

        #[test]
        fn a_page_that_was_damaged_is_a_page_or_an_error(at in 0usize..200, by in 1u8..255, cut in 0usize..200) {
            let near = (0..16).map(|at| (at % 3 != 0).then_some((at, 1, [5, 6], 7))).collect();
            let mut bytes = encode(1, &records(3, near));
            let at = at % bytes.len();
            bytes[at] ^= by;
            bytes.truncate(bytes.len().max(cut) - cut.min(bytes.len()));
            let _ = decode(&bytes, 64);
        }
    }

    #[test]
    fn neighbours_take_few_bytes() {
        let near = (0..64).map(|at| Some((at, 1, [5, 6], 7))).collect();
        // Header 8, bitmap 8, one whole token of 33 bytes, 63 of 6 to 7 bytes.
        assert!(encode(1, &records(3, near)).len() < 8 + 8 + 33 + 63 * 7);
    }

    #[test]
    fn bitmap_count_and_differences_that_lie_are_refused() {
        let near = (0..8).map(|at| Some((at, 1, [5, 6], 7))).collect();
        let good = encode(1, &records(3, near));
        let error = |change: fn(&mut Vec<u8>)| {
            let mut bytes = good.clone();
            change(&mut bytes);
            decode(&bytes, 64).unwrap_err().to_string()
        };
        assert_eq!(error(|b| b[4] = 9), "page count is 9: 8, as the bitmap says, within 8 slots");
        assert_eq!(
            error(|b| b[8] = 0x7f),
            "page count is 8: 7, as the bitmap says, within 8 slots"
        );
        assert_eq!(error(|b| b[6] = 65), "page slots is 65: at most 64");
        // Seven slots, of which the bitmap uses eight: the count is right.
        assert_eq!(error(|b| b[6] = 7), "page count is 8: 8, as the bitmap says, within 7 slots");
        assert!(error(|b| b[9] = 1).contains("record form is 1"));
        assert_eq!(error(|b| b[43] = 1), "token index is 18446744073709551615: at most 28 bits");
        assert_eq!(error(|b| b.push(0)), "page tail is 1: no bytes behind the last record");
        assert!(error(|b| b.truncate(40)).contains("page bytes left"));
    }

    #[test]
    fn a_whole_record_is_of_the_kind_of_the_first_one() {
        // Two pages of a record each, whose second one is put behind the first.
        let two = |first: u8, second: u8| {
            let one = |kind| encode(1, &records(kind, vec![Some((kind.into(), 2, [3, 4], 5))]));
            let mut bytes = one(first);
            bytes[4..9].copy_from_slice(&[2, 0, 2, 0, 3]);
            bytes.extend(&one(second)[9..]);
            bytes
        };
        let kept = records(3, vec![Some((3, 2, [3, 4], 5)); 2]);
        assert_eq!(decode(&two(3, 3), 64), Ok((1, kept)));
        for (first, second) in [(3, 1), (1, 3), (0, 2), (5, 0), (4, 3)] {
            let error = decode(&two(first, second), 64).unwrap_err().to_string();
            assert_eq!(
                error,
                format!("token kind is {second}: the kind of the page's first token")
            );
        }
        let mut unknown = two(3, 3);
        unknown[43] = 6;
        let error = decode(&unknown, 64).unwrap_err().to_string();
        assert_eq!(error, "token kind is 6: 0 to 5");
    }

    #[test]
    fn a_page_has_the_bytes_of_its_layout() {
        let page = records(0, vec![None, Some((7, 2, [3, 9], 5)), Some((8, 2, [3, 9], 4))]);
        // Page 77, two of three slots, bits 1 and 2; a token of 16 bytes and 1 + 4 bytes of differences: index + 1,
        // generation and body the same, small - 1.
        let whole = [0, 0, 1, 2, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0];
        let bytes = [&[77, 0, 0, 0, 2, 0, 3, 0, 6][..], &whole, &[1, 2, 0, 1, 0]].concat();
        assert_eq!(encode(77, &page), bytes);
        assert_eq!(decode(&bytes, 3), Ok((77, page)));
        let error = decode(&bytes, 2).unwrap_err().to_string();
        assert_eq!(error, "page slots is 3: at most 2");
        for len in 0..bytes.len() {
            let error = decode(&bytes[..len], 3).unwrap_err().to_string();
            assert!(error.starts_with("page bytes left is "), "{len}: {error}");
        }
    }

    #[test]
    fn what_differs_by_much_is_written_whole() {
        // Differences of 1 + 3 + 2 + 10 + 10 bytes are more than the 25 of a whole record; of 1 + 3 + 2 + 1 + 10 they are less.
        let of = |small| vec![Some((1 << 20, 9, [0, 0], 0)), Some((0, 900, [1 << 63, 0], small))];
        let len = |small| encode(1, &records(0, of(small))).len() - 9 - 25;
        assert_eq!((len(0), len(1 << 63)), (1 + 3 + 2 + 1 + 10, 25));
    }

    #[test]
    fn a_number_has_at_most_64_bits() {
        let read = |last: &[u8]| {
            let bytes = [&[0xff; 9], last].concat();
            let mut rest = bytes.as_slice();
            take_varint(&mut rest).map(|value| (value, rest.len())).map_err(|e| e.to_string())
        };
        assert_eq!(read(&[1, 7]), Ok((u64::MAX, 1)));
        assert_eq!(read(&[0]), Ok((u64::MAX >> 1, 0)));
        assert_eq!(read(&[2]), Err("varint is 2: at most 64 bits".to_owned()));
        assert_eq!(read(&[0x81]), Err("varint is 129: at most 64 bits".to_owned()));
        for value in [0, 1, 0x7f, 0x80, 1 << 63, u64::MAX] {
            let mut bytes = Vec::new();
            put_varint(value, &mut bytes);
            assert_eq!(take_varint(&mut bytes.as_slice()), Ok(value));
        }
    }
}
