//! Tokens: the compressed descriptor of a context, 16 or 24 bytes; small fields: 64 bits of it that change by one exchange.
//!
//! *Owns*: the layout, its version, which fields are strong. *Takes*: fields or bytes. *Gives*: bytes or fields.
//! *Must not*: hold the secret that a peer shows; a cached copy of it could outlive its revocation.

use crate::handle::{ContextHandle, ContextKind, ContextValueError, INDEX_MAX};

/// Version of the layout.
pub const TOKEN_VERSION: u8 = 1;
/// Bytes of the header: kind 8, version 8, generation 16, index 32.
const TOKEN_HEADER_LEN: usize = 8;
/// Bytes of the longest token.
pub(crate) const TOKEN_LEN_MAX: usize = 24;

/// The compressed descriptor of one context. Not the secret of a segment or queue.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ContextToken {
    handle: ContextHandle,
    generation: u16,
    words: [u64; 2],
}

impl ContextToken {
    /// Packs a body. `generation` counts the lives of this handle.
    ///
    /// # Errors
    /// A field of the body is wider than its place, or the index wider than 28 bits.
    pub fn new(index: u32, generation: u16, body: &TokenBody) -> Result<Self, ContextValueError> {
        let rule = || ContextValueError::new("index", index.into(), "at most 28 bits");
        let handle = ContextHandle::new(body.kind(), index).ok_or_else(rule)?;
        Ok(Self { handle, generation, words: body.pack()? })
    }

    /// Joins the parts of a page's record; unused words of short kinds are dropped.
    pub(crate) fn of_parts(handle: ContextHandle, generation: u16, words: [u64; 2]) -> Self {
        let second = if handle.kind().token_len() == TOKEN_LEN_MAX { words[1] } else { 0 };
        Self { handle, generation, words: [words[0], second] }
    }

    /// Reads a token.
    ///
    /// # Errors
    /// Another kind, version or length, or an index of more than 28 bits.
    pub fn decode(bytes: &[u8]) -> Result<Self, ContextValueError> {
        let len = ContextValueError::new("token length", bytes.len() as u64, "16 or 24 bytes");
        let (head, body) = bytes.split_first_chunk::<TOKEN_HEADER_LEN>().ok_or(len)?;
        let kind = ContextKind::of(head[0])
            .ok_or_else(|| ContextValueError::new("token kind", head[0].into(), "0 to 5"))?;
        if head[1] != TOKEN_VERSION {
            let rule = format!("version {TOKEN_VERSION}");
            return Err(ContextValueError::new("token version", head[1].into(), rule));
        }
        if bytes.len() != kind.token_len() {
            let rule = format!("{} bytes for a token of a {}", kind.token_len(), kind.name());
            return Err(ContextValueError::new("token length", bytes.len() as u64, rule));
        }
        let index = u32::from_le_bytes([head[4], head[5], head[6], head[7]]);
        let rule =
            || ContextValueError::new("token index", index.into(), format!("at most {INDEX_MAX}"));
        let handle = ContextHandle::new(kind, index).ok_or_else(rule)?;
        let mut words = [0; 2];
        for (word, chunk) in words.iter_mut().zip(body.as_chunks().0) {
            *word = u64::from_le_bytes(*chunk);
        }
        Ok(Self { handle, generation: u16::from_le_bytes([head[2], head[3]]), words })
    }

    /// Writes the token; the first [`ContextKind::token_len`] bytes are its own.
    #[must_use]
    pub fn encode(&self) -> [u8; TOKEN_LEN_MAX] {
        let mut bytes = [0; TOKEN_LEN_MAX];
        bytes[0] = self.handle.kind() as u8;
        bytes[1] = TOKEN_VERSION;
        bytes[2..4].copy_from_slice(&self.generation.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.handle.index().to_le_bytes());
        bytes[8..16].copy_from_slice(&self.words[0].to_le_bytes());
        bytes[16..].copy_from_slice(&self.words[1].to_le_bytes());
        bytes
    }

    /// Returns the handle of the context.
    #[must_use]
    pub const fn handle(&self) -> ContextHandle {
        self.handle
    }

    /// Returns which life of the handle it describes.
    #[must_use]
    pub const fn generation(&self) -> u16 {
        self.generation
    }

    /// Returns the fields of the body.
    #[must_use]
    pub fn body(&self) -> TokenBody {
        TokenBody::unpack(self.handle.kind(), self.words)
    }

    /// Returns the packed fields of the body.
    pub(crate) const fn words(&self) -> [u64; 2] {
        self.words
    }
}

/// Fields from the lowest bit of a body on.
#[derive(Default)]
struct FieldWriter {
    words: [u64; 2],
    at: usize,
}

impl FieldWriter {
    fn put(&mut self, field: &'static str, value: u64, bits: u32) -> Result<(), ContextValueError> {
        if bits < 64 && value >> bits != 0 {
            return Err(ContextValueError::new(field, value, format!("at most {bits} bits")));
        }
        self.words[self.at / 64] |= value << (self.at % 64);
        self.at += bits as usize;
        Ok(())
    }
}

struct FieldReader {
    words: [u64; 2],
    at: usize,
}

impl FieldReader {
    fn take(&mut self, bits: u32) -> u64 {
        let word = self.words[self.at / 64] >> (self.at % 64);
        self.at += bits as usize;
        word & (u64::MAX >> (64 - bits))
    }
}

macro_rules! bodies {
    ($($(#[doc = $of_kind:literal])* $kind:ident { $($(#[doc = $doc:literal])* $field:ident: $bits:literal),* $(,)? })*) => {
        /// The fields of a token, each at most as wide as its line says.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        #[expect(missing_docs, reason = "the fields are those of the table in docs/nic-internals.md")]
        pub enum TokenBody {
            $($(#[doc = $of_kind])* $kind { $($field: u64),* },)*
        }

        impl TokenBody {
            /// Returns the kind of these fields.
            #[must_use]
            pub const fn kind(&self) -> ContextKind {
                match self { $(Self::$kind { .. } => ContextKind::$kind,)* }
            }

            /// Returns fields of this kind that are all 0, where only the kind matters, as to a model of what is kept.
            #[must_use]
            pub const fn zero(kind: ContextKind) -> Self {
                match kind {
                    $(ContextKind::$kind => Self::$kind { $($field: 0),* },)*
                }
            }

            fn pack(&self) -> Result<[u64; 2], ContextValueError> {
                let mut writer = FieldWriter::default();
                match *self {
                    $(Self::$kind { $($field),* } => {
                        $(writer.put(stringify!($field), $field, $bits)?;)*
                    })*
                }
                Ok(writer.words)
            }

            fn unpack(kind: ContextKind, words: [u64; 2]) -> Self {
                let mut reader = FieldReader { words, at: 0 };
                match kind {
                    $(ContextKind::$kind => Self::$kind { $($field: reader.take($bits)),* },)*
                }
            }
        }

        $(const _: () = assert!(
            TOKEN_HEADER_LEN * 8 $(+ $bits)* == ContextKind::$kind.token_len() * 8,
            "the fields fill the token"
        );)*
    };
}

bodies! {
    /// UASID, flags, index of the EID.
    Context { uasid: 24, flags: 8, eid_index: 32 }
    /// Token id, access rights, page shift, flags, pages, low half of the table entry's generation.
    Segment { token_id: 32, access: 8, page_shift: 8, flags: 16, pages: 32, generation_low: 32 }
    /// Number, interrupt vector, logarithm of the depth, arm bits and flags, consumer index when it was stored.
    Jfc { number: 20, vector: 12, depth_log2: 8, arm_flags: 8, consumer: 16 }
    /// Number, transport mode, state, flags, JFR, context, JFC of sends with priority and rights, JFC of receives.
    Queue {
        number: 20, mode: 4, state: 4, flags: 4, jfr: 20, context: 12,
        send_jfc: 20, priority: 4, access: 8, receive_jfc: 20, rest: 12,
    }
    /// TPN, strategy, next PSN, state, acknowledged PSN, path.
    Tp { tpn: 24, strategy: 8, next_psn: 24, state: 8, acknowledged_psn: 24, rest: 8, path: 32 }
    /// Address of the page.
    Page { address: 64 }
}

/// A change of the 64 bits of small fields of a context.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SmallOp {
    /// Reads the small fields.
    Read,
    /// Adds to the small fields, modulo 2^64.
    Add(u64),
    /// Replaces the bits of a mask.
    Store {
        /// Bits that are replaced.
        mask: u64,
        /// New values of these bits.
        value: u64,
    },
}

impl SmallOp {
    /// Returns the fields after the change.
    #[must_use]
    pub const fn apply(self, small: u64) -> u64 {
        match self {
            Self::Read => small,
            Self::Add(by) => small.wrapping_add(by),
            Self::Store { mask, value } => small & !mask | value & mask,
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_was_encoded_is_decoded(kind in 0u8..6, index in 0..=INDEX_MAX, generation: u16, words: [u64; 2]) {
            let handle = ContextHandle::new(ContextKind::of(kind).unwrap(), index).unwrap();
            let token = ContextToken::of_parts(handle, generation, words);
            let bytes = &token.encode()[..handle.kind().token_len()];
            prop_assert_eq!(ContextToken::decode(bytes).unwrap(), token);
            prop_assert_eq!(ContextToken::new(index, generation, &token.body()).unwrap(), token);
        }

        #[test]
        fn any_bytes_are_a_token_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            if let Ok(token) = ContextToken::decode(&bytes) {
                prop_assert_eq!(&token.encode()[..bytes.len()], &bytes[..]);
            }
        }
    }

    #[test]
    fn the_layout_is_that_of_the_page_in_the_book() {
        let body = TokenBody::Tp {
            tpn: 0x12_3456,
            strategy: 2,
            next_psn: 0xab_cdef,
            state: 3,
            acknowledged_psn: 0x65_4321,
            rest: 0,
            path: 7,
        };
        let token = ContextToken::new(5, 0x0102, &body).unwrap();
        let wanted = [
            4, 1, 2, 1, 5, 0, 0, 0, 0x56, 0x34, 0x12, 2, 0xef, 0xcd, 0xab, 3, 0x21, 0x43, 0x65, 0,
            7, 0, 0, 0,
        ];
        assert_eq!(token.encode(), wanted);
    }

    #[test]
    fn bad_tokens_name_field_value_and_rule() {
        let good = ContextToken::new(5, 1, &TokenBody::Page { address: 9 }).unwrap().encode();
        let error = |change: fn(&mut Vec<u8>)| {
            let mut bytes = good[..16].to_vec();
            change(&mut bytes);
            ContextToken::decode(&bytes).unwrap_err().to_string()
        };
        assert_eq!(error(|b| b[0] = 6), "token kind is 6: 0 to 5");
        assert_eq!(error(|b| b[1] = 2), "token version is 2: version 1");
        assert_eq!(error(|b| b.push(0)), "token length is 17: 16 bytes for a token of a page");
        assert_eq!(error(|b| b.truncate(7)), "token length is 7: 16 or 24 bytes");
        assert_eq!(error(|b| b[7] = 0x10), "token index is 268435461: at most 268435455");
        let wide =
            TokenBody::Jfc { number: 1 << 20, vector: 0, depth_log2: 0, arm_flags: 0, consumer: 0 };
        let error = ContextToken::new(0, 0, &wide).unwrap_err().to_string();
        assert_eq!(error, "number is 1048576: at most 20 bits");
    }

    #[test]
    fn a_store_replaces_the_bits_of_its_mask_alone() {
        let small = 0xffff_0000_1234_5678;
        let store = |mask, value| SmallOp::Store { mask, value }.apply(small);
        assert_eq!(store(0xffff, 0xabcd_9abc), 0xffff_0000_1234_9abc);
        assert_eq!((store(0, u64::MAX), store(u64::MAX, 7)), (small, 7));
        assert_eq!(store(0xff << 56, 0), 0x00ff_0000_1234_5678);
        assert_eq!(SmallOp::Read.apply(small), small);
        assert_eq!(SmallOp::Add(1 << 63 | 8).apply(small), 0x7fff_0000_1234_5680);
    }
}
