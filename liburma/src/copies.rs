//! Copies of values whose type parameters need none: addresses and numbers.
//!
//! *Owns*: one macro. *Must not*: name a type. `derive` would ask for `Clone` of the parameters too.

/// Makes a type that consists of addresses and numbers `Copy`: `copies!(Name<T: Bound>)`.
macro_rules! copies {
    ($name:ident<$($param:ident $(: $bound:path)?),*>) => {
        impl<$($param $(: $bound)?),*> Clone for $name<$($param),*> {
            #[inline(always)]
            fn clone(&self) -> Self {
                *self
            }
        }

        impl<$($param $(: $bound)?),*> Copy for $name<$($param),*> {}
    };
}
pub(crate) use copies;
