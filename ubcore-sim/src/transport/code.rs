//! A code over bytes: any word of a group makes up for any one packet of it (Cauchy matrix over GF(2^8)).
//!
//! - owns: the matrix. takes: words and numbers. gives: words.
//! - must not: depend on packet formats.
//!
//! Word `number` of a group is the sum of `1 / ((255 - number) + member)` times the word of each member. Any square part of
//! such a matrix has an inverse, as long as the two kinds of numbers have nothing in common.

use urma_mem::gf256::{add_scaled, inverse};

/// Factor of a member of a group in its word of that number.
pub(super) fn factor(number: u8, member: u8) -> u8 {
    inverse((u8::MAX - number) ^ member)
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

/// Multiplies all of `values`: adding them once more, times the factor and 1, leaves the product.
fn scale_all(values: &mut [u8], factor: u8) {
    let before = values.to_vec();
    add_scaled(values, &before, factor ^ 1);
}

#[cfg(test)]
mod tests {
    use urma_mem::gf256::times;

    use super::*;
    use crate::link::Rng;

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
