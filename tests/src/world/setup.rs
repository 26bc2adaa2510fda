//! In which surroundings a behaviour is tried.
//!
//! *Owns*: the list of setups and their names.

use std::fmt;

use urma_core::TransportMode;

/// How the two ends reach each other.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Link {
    /// They are one node.
    Own,
    /// Two nodes on one host that share memory.
    Host,
    /// Two nodes that only exchange packets.
    Packets,
}

/// Whether registered pages move to memory that peers reach directly.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Moving {
    /// They do.
    On,
    /// They stay.
    Off,
    /// They stay, and READs go through the kernel where it lets them.
    Kernel,
}

/// One combination.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Setup {
    /// The way between the ends.
    pub link: Link,
    /// Page moving.
    pub moving: Moving,
    /// Transport mode of the jetties.
    pub mode: TransportMode,
    /// A mistake that the devices make.
    #[cfg(feature = "planted-faults")]
    pub fault: Option<ubcore_sim::fault::PlantedFault>,
}

impl Setup {
    /// A combination without faults.
    #[must_use]
    pub const fn new(link: Link, moving: Moving, mode: TransportMode) -> Self {
        Self {
            link,
            moving,
            mode,
            #[cfg(feature = "planted-faults")]
            fault: None,
        }
    }

    /// All combinations.
    #[must_use]
    pub fn all() -> Vec<Self> {
        let mut all = vec![Self::new(Link::Host, Moving::Kernel, TransportMode::Rm)];
        for link in [Link::Own, Link::Host, Link::Packets] {
            for moving in [Moving::On, Moving::Off] {
                for mode in [TransportMode::Rm, TransportMode::Rc, TransportMode::Um] {
                    all.push(Self::new(link, moving, mode));
                }
            }
        }
        all
    }
}

impl fmt::Display for Setup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = match self.link {
            Link::Own => "own",
            Link::Host => "host",
            Link::Packets => "packets",
        };
        let moving = match self.moving {
            Moving::On => "moved",
            Moving::Off => "still",
            Moving::Kernel => "kernel",
        };
        let mode = match self.mode {
            TransportMode::Rm => "rm",
            TransportMode::Rc => "rc",
            TransportMode::Um => "um",
        };
        write!(f, "{link}.{moving}.{mode}")
    }
}
