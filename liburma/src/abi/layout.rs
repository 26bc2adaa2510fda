//! How a file of the mirror says what it holds: numbers first, proved by the compiler.
//!
//! *Owns*: the macros. *Takes*: sizes, offsets, bits and values as the golden data states them.
//! *Gives*: types and constants, and a compile-time assertion for each number.

/// Constants of one type: `u32 { NAME = 1, }`.
macro_rules! c_consts {
    ($($ty:ident { $($name:ident = $value:literal,)* })*) => {
        $($(pub const $name: $ty = $value;)*)*
    };
}

/// Enumerations. C callers may pass any number, so they are integers: `name: u32 { A = 0, }`.
macro_rules! c_enums {
    ($($name:ident: $ty:ident { $($value_name:ident = $value:literal,)* })*) => {
        $(
            pub type $name = $ty;
            $(pub const $value_name: $name = $value;)*
        )*
    };
}

/// Words of flags, with a member `value`: `name: u32 { FIRST, WIDTH => member, set_member; }`.
macro_rules! c_flags {
    ($($(#[$meta:meta])* $name:ident: $ty:ident { $($bits:tt)* })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            #[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
            pub struct $name {
                pub value: $ty,
            }
            $crate::abi::layout::c_bits! { $name: $ty { $($bits)* } }
        )*
    };
}

/// Accessors of the bits of a member `value`.
macro_rules! c_bits {
    ($($name:ident: $ty:ident {
        $($first:literal, $width:literal => $member:ident, $set:ident;)*
    })*) => {
        $(impl $name {$(
            /// The member of this name.
            #[must_use]
            pub const fn $member(self) -> $ty {
                self.value >> $first & ($ty::MAX >> ($ty::BITS - $width))
            }

            /// Sets the member of this name; bits that it has no room for are dropped, as in C.
            pub const fn $set(&mut self, to: $ty) {
                let mask = $ty::MAX >> ($ty::BITS - $width);
                self.value = self.value & !(mask << $first) | (to & mask) << $first;
            }
        )*}
        $(const _: () = assert!($crate::abi::layout::fits($first, $width, $ty::BITS));)*)*
    };
}

/// Members of flags that a release does not have, for code that reads and writes those of another.
#[cfg(feature = "abi-25-12-0-b081")]
macro_rules! c_absent {
    ($($name:ident { $($member:ident = $set:ident,)* })*) => {
        $(impl $name {$(
            /// Not in this release: 0.
            #[must_use]
            pub const fn $member(self) -> u32 {
                0
            }

            /// Not in this release: stays 0.
            pub const fn $set(&mut self, _to: u32) {}
        )*})*
    };
}

/// Structs and unions that are copied as C copies them, as [`c_unique`].
macro_rules! c_structs {
    ($($(#[$meta:meta])* $kind:ident $name:ident[$size:literal] { $($members:tt)* })*) => {
        $crate::abi::layout::c_unique! {
            $($(#[$meta])* #[derive(Clone, Copy)] $kind $name[$size] { $($members)* })*
        }
    };
}

/// Structs and unions: `struct name[SIZE] { OFFSET => member: Type, }`.
macro_rules! c_unique {
    ($($(#[$meta:meta])* $kind:ident $name:ident[$size:literal] {
        $($offset:literal => $member:ident: $ty:ty,)*
    })*) => {
        $(
            $(#[$meta])*
            #[repr(C)]
            pub $kind $name {
                $(pub $member: $ty,)*
            }

            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            const _: () = {
                let shift = 0;
                $(
                    assert!(core::mem::offset_of!($name, $member) == $offset + shift);
                    let shift = shift + $crate::abi::layout::grown(stringify!($ty));
                )*
                assert!(size_of::<$name>() == $size + shift);
            };
        )*
    };
}

/// Bytes that a member of this type has more than on x86-64, which the written numbers are of.
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(super) const fn grown(of: &str) -> usize {
    let (of, mutex) = (of.as_bytes(), b"pthread_mutex_t");
    if cfg!(target_arch = "x86_64") || of.len() != mutex.len() {
        return 0;
    }
    let mut at = 0;
    while at < of.len() {
        if of[at] != mutex[at] {
            return 0;
        }
        at += 1;
    }
    8
}

/// Whether bits lie inside of their word.
pub(super) const fn fits(first: u32, width: u32, bits: u32) -> bool {
    width > 0 && first + width <= bits
}

#[cfg(feature = "abi-25-12-0-b081")]
pub(super) use c_absent;
pub(super) use {c_bits, c_consts, c_enums, c_flags, c_structs, c_unique};
