//! A code over bytes: any word of a group makes up for any one packet of it (Cauchy matrix over GF(2^8)).
//!
//! - owns: arithmetic of the field, the matrix. takes: words and numbers. gives: words.
//! - must not: depend on packet formats.
//!
//! Word `number` of a group is the sum of `1 / ((255 - number) + member)` times the word of each member. Any square part of
//! such a matrix has an inverse, as long as the two kinds of numbers have nothing in common.

/// The field's polynomial without its highest term: x^8 + x^4 + x^3 + x^2 + 1.
const POLYNOMIAL: u8 = 0x1d;
/// Bytes that a step of a loop takes, so that the compiler uses vectors.
const LANES: usize = 64;

/// Twice a value, in the field.
const fn doubled(value: u8) -> u8 {
    let carry = if value & 0x80 == 0 { 0 } else { POLYNOMIAL };
    value.wrapping_add(value) ^ carry
}

/// Product in the field.
const fn times(a: u8, b: u8) -> u8 {
    let (mut sum, mut a, mut bit) = (0, a, 0);
    while bit < 8 {
        if b >> bit & 1 == 1 {
            sum ^= a;
        }
        a = doubled(a);
        bit += 1;
    }
    sum
}

/// The value whose product with this one is 1: its 254th power. Of 0: 0.
const fn inverse(value: u8) -> u8 {
    let (mut power, mut product, mut bit) = (value, 1, 0);
    while bit < 8 {
        if 254_u8 >> bit & 1 == 1 {
            product = times(product, power);
        }
        power = times(power, power);
        bit += 1;
    }
    product
}

/// Factor of a member of a group in its word of that number.
pub(super) const fn factor(number: u8, member: u8) -> u8 {
    inverse((u8::MAX - number) ^ member)
}

/// Adds `from`, which is no longer, times `factor` to `into`.
pub(super) fn add_scaled(into: &mut [u8], from: &[u8], factor: u8) {
    let masks: [u8; 8] = std::array::from_fn(|bit| 0_u8.wrapping_sub(factor >> bit & 1));
    let (to_blocks, to_rest) = into.as_chunks_mut::<LANES>();
    let (blocks, rest) = from.as_chunks::<LANES>();
    for (to, block) in to_blocks.iter_mut().zip(blocks) {
        add_block(to, block, &masks);
    }
    // The rest of `from` may begin within a block of `into`.
    let at = blocks.len() * LANES;
    let mut last = [0; LANES];
    last[..rest.len()].copy_from_slice(rest);
    let mut sum = [0; LANES];
    add_block(&mut sum, &last, &masks);
    let room = to_blocks.as_flattened_mut().iter_mut().chain(to_rest).skip(at);
    for (to, byte) in room.zip(&sum[..rest.len()]) {
        *to ^= byte;
    }
}

fn add_block(to: &mut [u8; LANES], from: &[u8; LANES], masks: &[u8; 8]) {
    let mut power = *from;
    for mask in masks {
        for (to, value) in to.iter_mut().zip(&mut power) {
            *to ^= *value & mask;
            *value = doubled(*value);
        }
    }
}

/// The words of `members`, in their order, from as many words of the group with their numbers, each without the parts of
/// all other members. `None`: the numbers do not fit.
pub(super) fn solve(mut words: Vec<(u8, Vec<u8>)>, members: &[u8]) -> Option<Vec<Vec<u8>>> {
    if words.len() != members.len() {
        return None;
    }
    let row = |number: u8| members.iter().map(|member| factor(number, *member)).collect();
    let mut matrix: Vec<Vec<u8>> = words.iter().map(|(number, _)| row(*number)).collect();
    for at in 0..members.len() {
        // No row has to be exchanged: each square part at the top left has an inverse.
        let scale = inverse(matrix[at][at]);
        if scale == 0 {
            return None;
        }
        scale_all(&mut matrix[at], scale);
        scale_all(&mut words[at].1, scale);
        let (pivot, word) = (matrix[at].clone(), std::mem::take(&mut words[at].1));
        for other in (0..members.len()).filter(|other| *other != at) {
            let part = matrix[other][at];
            add_scaled(&mut matrix[other], &pivot, part);
            let len = word.len().min(words[other].1.len());
            add_scaled(&mut words[other].1, &word[..len], part);
        }
        words[at].1 = word;
    }
    Some(words.into_iter().map(|(_, word)| word).collect())
}

fn scale_all(values: &mut [u8], factor: u8) {
    values.iter_mut().for_each(|value| *value = times(*value, factor));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::link::Rng;

    #[test]
    fn every_value_has_an_inverse_and_products_are_those_of_powers_of_two() {
        for a in 1..=u8::MAX {
            assert_eq!(times(a, inverse(a)), 1);
            assert_eq!(times(a, 2), doubled(a));
            assert_eq!(times(a, 0x53), times(0x53, a));
        }
        // The powers of 2 run through all values but 0.
        let mut value = 1;
        for _ in 0..254 {
            value = doubled(value);
            assert_ne!(value, 1);
        }
        assert_eq!(doubled(value), 1);
    }

    /// As docs/wire-spec.md, 5.3, has it: 1 / ((255 - Number) XOR member).
    #[test]
    fn the_factor_is_that_of_the_document() {
        for (number, member) in [(0, 0), (0, 199), (55, 0), (55, 199), (7, 100)] {
            assert_eq!(times(factor(number, member), (255 - number) ^ member), 1);
        }
        // The worked example's.
        assert_eq!(factor(0, 0), 0xfd);
    }

    #[test]
    fn parts_are_added_whatever_the_lengths() {
        let mut rng = Rng::new(5);
        for len in [0, 1, 63, 64, 65, 200] {
            for more in [0, 1, 100] {
                let (mut from, mut into) = (vec![0; len], vec![0; len + more]);
                rng.fill(&mut from);
                rng.fill(&mut into);
                let factor = rng.next_u64().to_le_bytes()[0];
                let mut right = into.clone();
                right.iter_mut().zip(&from).for_each(|(to, byte)| *to ^= times(*byte, factor));
                add_scaled(&mut into, &from, factor);
                assert_eq!(into, right, "{len} {more}");
            }
        }
    }

    #[test]
    fn any_words_bring_back_any_members() {
        let mut rng = Rng::new(1);
        for lost in [1, 2, 7, 56] {
            let members: Vec<Vec<u8>> = (0..200).map(|_| vec_of(&mut rng)).collect();
            let mut numbers: Vec<u8> = (0..56).collect();
            let mut missing: Vec<u8> = (0..200).collect();
            for at in 0..lost {
                let other = at + rng.index(56 - at);
                numbers.swap(at, other);
                let other = at + rng.index(200 - at);
                missing.swap(at, other);
            }
            let missing = &missing[..lost];
            let word = |number: &u8| {
                let mut sum = vec![0; 96];
                for member in missing {
                    let part = factor(*number, *member);
                    add_scaled(&mut sum, &members[usize::from(*member)], part);
                }
                (*number, sum)
            };
            let words = numbers[..lost].iter().map(word).collect();
            let found = solve(words, missing).expect("as many as are missing");
            for (member, word) in missing.iter().zip(found) {
                let right = &members[usize::from(*member)];
                assert_eq!(&word[..right.len()], right);
                assert!(word[right.len()..].iter().all(|byte| *byte == 0));
            }
        }
        assert_eq!(solve(vec![(0, vec![1])], &[1, 2]), None);
    }

    fn vec_of(rng: &mut Rng) -> Vec<u8> {
        let mut bytes = vec![0; rng.index(97)];
        rng.fill(&mut bytes);
        bytes
    }
}
