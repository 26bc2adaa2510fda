//! Secrets that guard segments and queues, and the ids under which segments are known.
//!
//! *Owns*: `Token`, which never prints its value; `TokenId`; the policies.

use std::fmt;

use crate::Status;

/// The secret that a peer must show. Neither `Debug` nor an error prints it.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Token(u32);

impl Token {
    /// The token with this value.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Its value, for encoding.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token(..)")
    }
}

/// Names a segment on its node: table index << 8, as UDMA hardware counts.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct TokenId(u32);

impl TokenId {
    /// The token id with this value.
    #[must_use]
    pub const fn new(value: u32) -> Self {
        Self(value)
    }

    /// Returns the 32 bits of the token.
    #[must_use]
    pub const fn value(self) -> u32 {
        self.0
    }
}

/// How a segment or queue is guarded; numbers of `URMA_TOKEN_*` (UMDK release 26.06).
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum TokenPolicy {
    /// 0: not at all.
    #[default]
    None,
    /// 1: the peer shows the token as it is.
    PlainText(Token),
    /// 2: the peer signs with it. Refused with `Unsupported`.
    Signed(Token),
    /// 3: everything is encrypted. Refused with `Unsupported`.
    AllEncrypted(Token),
}

impl TokenPolicy {
    /// Returns the number of the policy in UMDK release 26.06.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::None => 0,
            Self::PlainText(_) => 1,
            Self::Signed(_) => 2,
            Self::AllEncrypted(_) => 3,
        }
    }

    /// The token to show, `None` under the policy NONE.
    ///
    /// # Errors
    /// `Unsupported`: SIGNED and ALL_ENCRYPTED.
    pub fn token(self) -> Result<Option<Token>, Status> {
        match self {
            Self::None => Ok(None),
            Self::PlainText(token) => Ok(Some(token)),
            Self::Signed(_) | Self::AllEncrypted(_) => Err(Status::Unsupported.why(format_args!(
                "token policy {} is not supported; NONE (0) and PLAIN_TEXT (1) are",
                self.code()
            ))),
        }
    }
}
