//! Trees of the tests.

use inc::element::Reduction;
use inc::reduce::fold;
use inc::wire::Rank;

/// What a tree is made of.
pub(crate) enum Tree {
    Host(u16),
    Switch(Vec<Self>),
}

impl Tree {
    pub(crate) fn ranks(&self) -> Vec<Rank> {
        match self {
            Self::Host(rank) => vec![Rank(*rank)],
            Self::Switch(children) => children.iter().flat_map(Self::ranks).collect(),
        }
    }

    /// The value of the expression that the tree is.
    pub(crate) fn value(&self, inputs: &[Vec<u8>], reduction: Reduction) -> Vec<u8> {
        match self {
            Self::Host(rank) => inputs[usize::from(*rank)].clone(),
            Self::Switch(children) => {
                let parts: Vec<_> = children.iter().map(|c| c.value(inputs, reduction)).collect();
                let mut out = vec![0; parts[0].len()];
                fold(reduction, parts.iter(), &mut out);
                out
            }
        }
    }
}
