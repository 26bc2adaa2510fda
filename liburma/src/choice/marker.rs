//! Which marker symbols loaded objects refer to.
//!
//! *Owns*: reading the tables by which the loader binds symbols. *Takes*: a name. *Gives*: whether the program or one
//! of its libraries refers to it. *Must not*: write.
//!
//! The number of symbols of an object is not stored in it; those that it refers to are named by its relocations,
//! whose number is.

use core::{
    ffi::{CStr, c_int, c_void},
    slice,
};

/// An entry of the dynamic section (System V ABI, generic part, "Dynamic Section").
#[repr(C)]
#[derive(Clone, Copy)]
struct Dynamic {
    tag: u64,
    value: u64,
}

/// A relocation with addend.
#[repr(C)]
#[derive(Clone, Copy)]
struct Relocation {
    offset: u64,
    info: u64,
    addend: i64,
}

const TAG_END: u64 = 0;
const TAG_CALLS_LEN: u64 = 2;
const TAG_STRINGS: u64 = 5;
const TAG_SYMBOLS: u64 = 6;
const TAG_RELOCATIONS: u64 = 7;
const TAG_RELOCATIONS_LEN: u64 = 8;
const TAG_CALLS: u64 = 23;
/// `PT_DYNAMIC`: the program header of the dynamic section.
const DYNAMIC: u32 = 2;

/// Whether a loaded object refers to this symbol.
pub(super) fn is_asked_for(name: &CStr) -> bool {
    let mut search = Search { name, is_found: false };
    // SAFETY: the function below, with what it expects; the loader holds its lock meanwhile.
    unsafe { libc::dl_iterate_phdr(Some(look_at), (&raw mut search).cast()) };
    search.is_found
}

struct Search<'a> {
    name: &'a CStr,
    is_found: bool,
}

/// # Safety
/// A description by the loader, and a `Search`.
unsafe extern "C" fn look_at(
    object: *mut libc::dl_phdr_info,
    _len: usize,
    search: *mut c_void,
) -> c_int {
    // SAFETY: the loader describes a loaded object for the length of this call.
    let object = unsafe { &*object };
    // SAFETY: `is_asked_for` passes its own value, which no other code has meanwhile.
    let search = unsafe { &mut *search.cast::<Search<'_>>() };
    // SAFETY: the loader says how many headers the object has, which stays loaded meanwhile.
    let headers = unsafe { slice::from_raw_parts(object.dlpi_phdr, object.dlpi_phnum.into()) };
    let dynamic = headers.iter().find(|header| header.p_type == DYNAMIC);
    search.is_found = dynamic.is_some_and(|header| {
        let at = object.dlpi_addr.wrapping_add(header.p_vaddr);
        // SAFETY: the dynamic section of a loaded object.
        let tables = unsafe { SymbolTables::at(at, object.dlpi_addr) };
        // SAFETY: the tables are those of the object, which stays loaded while the loader describes it.
        unsafe { tables.refer_to(search.name) }
    });
    search.is_found.into()
}

/// Addresses and lengths of an object's tables; 0: none.
#[derive(Default)]
struct SymbolTables {
    symbols: u64,
    strings: u64,
    /// Two tables of relocations: address, bytes.
    relocations: [(u64, u64); 2],
}

impl SymbolTables {
    /// # Safety
    /// `at` is the dynamic section of an object that is loaded at `base`.
    unsafe fn at(at: u64, base: u64) -> Self {
        let mut tables = Self::default();
        let mut entry = pointer::<Dynamic>(at);
        // Some loaders put the sum here, others leave the offset.
        let absolute = |value: u64| if value < base { base.wrapping_add(value) } else { value };
        loop {
            // SAFETY: the section ends with an entry that says so.
            let Dynamic { tag, value } = unsafe { entry.read() };
            match tag {
                TAG_END => return tables,
                TAG_SYMBOLS => tables.symbols = absolute(value),
                TAG_STRINGS => tables.strings = absolute(value),
                TAG_RELOCATIONS => tables.relocations[0].0 = absolute(value),
                TAG_RELOCATIONS_LEN => tables.relocations[0].1 = value,
                TAG_CALLS => tables.relocations[1].0 = absolute(value),
                TAG_CALLS_LEN => tables.relocations[1].1 = value,
                _ => {}
            }
            // SAFETY: it was not the last.
            entry = unsafe { entry.add(1) };
        }
    }

    /// # Safety
    /// The tables of a loaded object.
    unsafe fn refer_to(&self, name: &CStr) -> bool {
        if self.symbols == 0 || self.strings == 0 {
            return false;
        }
        self.relocations.iter().filter(|(at, len)| *at != 0 && *len != 0).any(|(at, len)| {
            let count = usize::try_from(*len).unwrap_or(0) / size_of::<Relocation>();
            // SAFETY: a table of that length, which stays as it is.
            let list = unsafe { slice::from_raw_parts(pointer::<Relocation>(*at), count) };
            // SAFETY: the number of a symbol of this object.
            list.iter().any(|one| unsafe { self.name_of(one.info >> 32) } == name)
        })
    }

    /// # Safety
    /// `number` is that of a symbol of the object.
    unsafe fn name_of(&self, number: u64) -> &CStr {
        let index = usize::try_from(number).unwrap_or(0);
        // SAFETY: the contract of this function: the table has that symbol.
        let symbol = unsafe { pointer::<libc::Elf64_Sym>(self.symbols).add(index) };
        // SAFETY: the symbol is inside of the table of a loaded object.
        let offset = unsafe { (*symbol).st_name };
        // SAFETY: names of symbols are C strings in the object's table of strings.
        unsafe { CStr::from_ptr(pointer(self.strings.wrapping_add(offset.into()))) }
    }
}

/// An address in a loaded object.
fn pointer<T>(address: u64) -> *const T {
    core::ptr::with_exposed_provenance(usize::try_from(address).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_program_calls_is_asked_for() {
        // SAFETY: it reads a number of this process.
        assert!(unsafe { libc::getauxval(libc::AT_PAGESZ) } != 0);
        assert!(is_asked_for(c"getauxval") && is_asked_for(c"malloc"));
        assert!(!is_asked_for(c"urma_init_abi_of_no_release"));
    }
}
