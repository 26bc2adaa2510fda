//! Hashes of bytes, and removal from the public hash map.
//!
//! *Owns*: the mixing, which is that of MurmurHash3 (32 bits) in words of four bytes, the last one
//! filled with zeros; the layout of `ub_hmap.h`. *Must not*: look at a node of another bucket.

use core::ffi::c_void;

/// `struct ub_hmap_node`. A head of a bucket begins like a node.
#[repr(C)]
#[derive(Debug)]
pub struct HmapNode {
    next: *mut Self,
    hash: u32,
}

/// `struct ub_hmap`: as many buckets as `mask` says, and one.
#[repr(C)]
#[derive(Debug)]
pub struct Hmap {
    count: u32,
    mask: u32,
    bucket: *mut *mut HmapNode,
}

/// Hash of `n_bytes` bytes, which begins with `basis`.
///
/// # Safety
/// `ptr` has as many bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_hash_bytes(ptr: *const c_void, n_bytes: u32, basis: u32) -> u32 {
    let mut hash = basis;
    let mut at: *const u8 = ptr.cast();
    let mut left = n_bytes as usize;
    while left > 0 {
        let mut word = [0; 4];
        let len = left.min(word.len());
        // SAFETY: `left` bytes of the caller's lie at `at`.
        unsafe { word.as_mut_ptr().copy_from_nonoverlapping(at, len) };
        hash = mixed(hash, u32::from_le_bytes(word));
        // SAFETY: `len` is at most `left`, so that the pointer stays inside of the bytes or at their end.
        at = unsafe { at.add(len) };
        left -= len;
    }
    finished(hash ^ n_bytes)
}

fn mixed(hash: u32, word: u32) -> u32 {
    let word = word.wrapping_mul(0xcc9e_2d51).rotate_left(15).wrapping_mul(0x1b87_3593);
    (hash ^ word).rotate_left(13).wrapping_mul(5).wrapping_add(0xe654_6b64)
}

fn finished(hash: u32) -> u32 {
    let hash = (hash ^ hash >> 16).wrapping_mul(0x85eb_ca6b);
    let hash = (hash ^ hash >> 13).wrapping_mul(0xc2b2_ae35);
    hash ^ hash >> 16
}

/// Takes `node` out of `hmap`; nothing happens when it is not there.
///
/// # Safety
/// A map that was initialised, and a node whose hash was set when it was inserted.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn ub_hmap_remove(hmap: *mut Hmap, node: *const HmapNode) {
    // SAFETY: the contract of this function: a map, which no other thread uses meanwhile.
    let map = unsafe { &mut *hmap };
    // SAFETY: the contract of this function: a node, which no thread changes meanwhile.
    let of = unsafe { &*node };
    let (hash, after) = (of.hash, of.next);
    // SAFETY: the mask leaves a bucket of the map.
    let mut link = unsafe { map.bucket.add((hash & map.mask) as usize) };
    loop {
        // SAFETY: a head, or the link of a node that is in the map.
        let next = unsafe { *link };
        if next.is_null() {
            return;
        }
        if core::ptr::eq(next, node) {
            // SAFETY: a head, or the link of a node that is in the map, as where it was read.
            unsafe { *link = after };
            map.count -= 1;
            return;
        }
        // SAFETY: a node that is in the map.
        link = unsafe { &raw mut (*next).next };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hashes_are_those_of_the_public_library() {
        let known = [
            ("", 0, 0),
            ("", 7, 0x18c9_aec4),
            ("test", 0, 0xba6b_d213),
            ("test", 7, 0x0516_3460),
            ("a", 0, 0x2b03_8801),
            ("abc", 7, 0x0b9c_e478),
            ("urma-hash", 0, 0xa524_87a2),
            ("0123456789abcdef", 7, 0x577e_9754),
        ];
        for (text, basis, wanted) in known {
            let len = u32::try_from(text.len()).unwrap();
            // SAFETY: the bytes are those of a string of this function.
            let hash = unsafe { ub_hash_bytes(text.as_ptr().cast(), len, basis) };
            assert_eq!(hash, wanted, "{text}");
        }
    }

    #[test]
    fn each_node_leaves_its_bucket_once() {
        let null = core::ptr::null_mut();
        // Three of bucket 1, one of bucket 0, one that was never inserted.
        let mut nodes = [1, 3, 5, 2, 1].map(|hash| HmapNode { next: null, hash });
        let first = nodes.as_mut_ptr();
        let at = |index: usize| first.wrapping_add(index);
        for index in 0..2 {
            // SAFETY: the index is inside of the array of this function.
            unsafe { (*at(index)).next = at(index + 1) };
        }
        let mut buckets = [at(3), at(0)];
        let mut map = Hmap { count: 4, mask: 1, bucket: buckets.as_mut_ptr() };
        for (index, count) in [(4, 4), (1, 3), (1, 3), (2, 2), (0, 1), (3, 0)] {
            // SAFETY: a map and nodes of this function.
            unsafe { ub_hmap_remove(&raw mut map, at(index)) };
            assert_eq!(map.count, count, "after node {index}");
        }
        assert!(buckets.iter().all(|head| head.is_null()));
    }
}
