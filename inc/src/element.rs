//! Element types and operators, and which of them go together.

/// Type of the elements of a vector. Little-endian on the wire.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ElementType {
    /// Signed integer of 8 bits.
    I8 = 1,
    /// Signed integer of 16 bits.
    I16,
    /// Signed integer of 32 bits.
    I32,
    /// Signed integer of 64 bits.
    I64,
    /// Unsigned integer of 8 bits.
    U8,
    /// Unsigned integer of 16 bits.
    U16,
    /// Unsigned integer of 32 bits.
    U32,
    /// Unsigned integer of 64 bits.
    U64,
    /// Float of 16 bits, IEEE 754 binary16.
    F16,
    /// bfloat16: the upper half of a binary32.
    Bf16,
    /// Float of 32 bits, IEEE 754 binary32.
    F32,
    /// Float of 64 bits, IEEE 754 binary64.
    F64,
    /// A 32-bit value and a 32-bit index, packed.
    I32I32 = 16,
    /// A 64-bit value and a 32-bit index, packed: 12 bytes.
    I64I32,
    /// A binary32 and a 32-bit index, packed.
    F32I32,
    /// A binary64 and a 32-bit index, packed: 12 bytes.
    F64I32,
}

/// Operator of a reduction.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Operator {
    /// Sum of the operands; integers wrap.
    Sum = 1,
    /// Product of the operands; integers wrap.
    Prod,
    /// Minimum; -0 is below +0, a NaN wins.
    Min,
    /// Maximum; -0 is below +0, a NaN wins.
    Max,
    /// Logical and, 0 or 1.
    Land,
    /// Logical or, 0 or 1.
    Lor,
    /// Logical exclusive or, 0 or 1.
    Lxor,
    /// Bitwise and of the operands.
    Band,
    /// Bitwise or of the operands.
    Bor,
    /// Bitwise exclusive or of the operands.
    Bxor,
    /// Least value with its index; of equal values the lower index.
    MinLoc,
    /// Greatest value with its index; of equal values the lower index.
    MaxLoc,
}

/// What decides which operators a type has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementClass {
    /// Exact, in any order: all operators but the ones with an index.
    Integer,
    /// Sums and products depend on the order: SUM, PROD, MIN, MAX.
    Float,
    /// A value and an index: MINLOC, MAXLOC.
    Pair,
}

impl ElementType {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 16] = [
        Self::I8,
        Self::I16,
        Self::I32,
        Self::I64,
        Self::U8,
        Self::U16,
        Self::U32,
        Self::U64,
        Self::F16,
        Self::Bf16,
        Self::F32,
        Self::F64,
        Self::I32I32,
        Self::I64I32,
        Self::F32I32,
        Self::F64I32,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The type of a number; `None`: there is no such type.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|element| element.code() == code)
    }

    /// Bytes of an element.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::I8 | Self::U8 => 1,
            Self::I16 | Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::U32 | Self::F32 => 4,
            Self::I64 | Self::U64 | Self::F64 | Self::I32I32 | Self::F32I32 => 8,
            Self::I64I32 | Self::F64I32 => 12,
        }
    }

    /// Class of the type, which decides its operators.
    #[must_use]
    pub const fn class(self) -> ElementClass {
        match self {
            Self::I8
            | Self::I16
            | Self::I32
            | Self::I64
            | Self::U8
            | Self::U16
            | Self::U32
            | Self::U64 => ElementClass::Integer,
            Self::F16 | Self::Bf16 | Self::F32 | Self::F64 => ElementClass::Float,
            Self::I32I32 | Self::I64I32 | Self::F32I32 | Self::F64I32 => ElementClass::Pair,
        }
    }
}

impl Operator {
    /// All of them, in the order of their codes.
    pub const ALL: [Self; 12] = [
        Self::Sum,
        Self::Prod,
        Self::Min,
        Self::Max,
        Self::Land,
        Self::Lor,
        Self::Lxor,
        Self::Band,
        Self::Bor,
        Self::Bxor,
        Self::MinLoc,
        Self::MaxLoc,
    ];

    /// The number on the wire.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The operator of a number; `None`: there is no such operator.
    #[must_use]
    pub fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|operator| operator.code() == code)
    }
}

/// An operator on elements that it is defined for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Reduction {
    operator: Operator,
    element: ElementType,
}

impl Reduction {
    /// The operator on this type; `None`: it is not defined for it.
    #[must_use]
    pub const fn new(operator: Operator, element: ElementType) -> Option<Self> {
        let has_index = matches!(operator, Operator::MinLoc | Operator::MaxLoc);
        let is_defined = match element.class() {
            ElementClass::Integer => !has_index,
            ElementClass::Float => {
                matches!(operator, Operator::Sum | Operator::Prod | Operator::Min | Operator::Max)
            }
            ElementClass::Pair => has_index,
        };
        if is_defined { Some(Self { operator, element }) } else { None }
    }

    /// Returns the operator of the reduction.
    #[must_use]
    pub const fn operator(self) -> Operator {
        self.operator
    }

    /// Returns the type of the elements.
    #[must_use]
    pub const fn element(self) -> ElementType {
        self.element
    }

    /// Whether the bits of the result depend on the order of the operands: sums and products of floats round, and a NaN or
    /// a zero of a pair has bits of its own.
    #[must_use]
    pub const fn is_ordered(self) -> bool {
        match self.element.class() {
            ElementClass::Integer => false,
            ElementClass::Float => true,
            ElementClass::Pair => {
                matches!(self.element, ElementType::F32I32 | ElementType::F64I32)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_code_is_that_of_one_type_and_operator() {
        for code in 0..=u8::MAX {
            assert!(ElementType::from_code(code).is_none_or(|element| element.code() == code));
            assert!(Operator::from_code(code).is_none_or(|operator| operator.code() == code));
        }
        assert_eq!(ElementType::from_code(0), None);
        assert_eq!(ElementType::from_code(13), None);
        assert_eq!(ElementType::from_code(20), None);
        assert_eq!(Operator::from_code(0), None);
        assert_eq!(Operator::from_code(13), None);
        assert_eq!((Operator::MaxLoc.code(), ElementType::F64I32.code()), (12, 19));
    }

    #[test]
    fn as_many_pairs_are_defined_as_the_table_has() {
        let all = Operator::ALL.into_iter().flat_map(|operator| {
            ElementType::ALL
                .into_iter()
                .filter_map(move |element| Reduction::new(operator, element))
        });
        // Eight integers with ten operators, four floats with four, four pairs with two.
        assert_eq!(all.count(), 8 * 10 + 4 * 4 + 4 * 2);
    }
}
