//! Proofs of those who join a group or put a topology: each is made by a secret, for one challenge of the controller.

use std::collections::VecDeque;
use std::net::IpAddr;

use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

use super::{CallError, Controller, JoinRequest};
use crate::topology::PhysicalMap;

/// Challenges that may wait for their proof.
const CHALLENGES_MAX: usize = 4096;

/// What proves that a rank may join, or that a topology may be put. Never printed.
#[derive(Clone)]
pub struct GroupSecret(Vec<u8>);

/// Another topology, from one who says that it may put it.
#[derive(Debug, Clone)]
pub struct TopologyRequest {
    /// The topology that is to be in force.
    pub map: PhysicalMap,
    /// The text that it was read from, which the proof is about.
    pub text: String,
    /// The challenge that the proof was made for.
    pub nonce: [u8; 16],
    /// [`GroupSecret::topology_proof`], if the controller has a secret.
    pub proof: Vec<u8>,
}

/// Challenges that were given out and not used yet.
#[derive(Debug, Default)]
pub(super) struct Challenges(VecDeque<[u8; 16]>);

impl Challenges {
    pub(super) fn add(&mut self, nonce: [u8; 16]) {
        if self.0.len() == CHALLENGES_MAX {
            self.0.pop_front();
        }
        self.0.push_back(nonce);
    }

    /// Whether a proof is right, and for a challenge that was given out; the challenge is used up by it.
    fn answer(&mut self, nonce: [u8; 16], is_right: bool) -> bool {
        let place = self.0.iter().position(|of| *of == nonce);
        let is_known = place.and_then(|place| self.0.remove(place)).is_some();
        is_known && is_right
    }
}

impl GroupSecret {
    /// A secret of any length.
    #[must_use]
    pub fn new(secret: impl Into<Vec<u8>>) -> Self {
        Self(secret.into())
    }

    /// HMAC-SHA-256 over challenge, length and name of the group, rank and address.
    #[must_use]
    pub fn proof(&self, nonce: [u8; 16], group: &str, rank: u32, address: IpAddr) -> Vec<u8> {
        self.mac(nonce, group, rank, address).finalize().into_bytes().to_vec()
    }

    /// HMAC-SHA-256 over challenge, eight bytes 0xff, which are no length of a name, and the text of a topology.
    #[must_use]
    pub fn topology_proof(&self, nonce: [u8; 16], text: &str) -> Vec<u8> {
        self.topology_mac(nonce, text).finalize().into_bytes().to_vec()
    }

    fn mac(&self, nonce: [u8; 16], group: &str, rank: u32, address: IpAddr) -> Hmac<Sha256> {
        let address = match address {
            IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            IpAddr::V6(v6) => v6,
        };
        self.mac_of(&[
            &nonce,
            &(group.len() as u64).to_be_bytes(),
            group.as_bytes(),
            &rank.to_be_bytes(),
            &address.octets(),
        ])
    }

    fn topology_mac(&self, nonce: [u8; 16], text: &str) -> Hmac<Sha256> {
        self.mac_of(&[&nonce, &[0xff; 8], text.as_bytes()])
    }

    fn mac_of(&self, parts: &[&[u8]]) -> Hmac<Sha256> {
        // A key of any length is taken, so this cannot fail; an empty key would be the one to fall back to.
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.0)
            .unwrap_or_else(|_| Hmac::<Sha256>::new(&hmac::digest::Key::<Hmac<Sha256>>::default()));
        for part in parts {
            mac.update(part);
        }
        mac
    }
}

impl std::fmt::Debug for GroupSecret {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("GroupSecret(..)")
    }
}

impl Controller {
    /// A proof is good for one join, for the challenge that it was made for.
    pub(super) fn check_proof(&mut self, request: &JoinRequest) -> Result<(), CallError> {
        let secret = self.cfg.group_secrets.get(&request.name).or(self.cfg.secret.as_ref());
        let Some(secret) = secret else { return Ok(()) };
        let mac = secret.mac(request.nonce, &request.name, request.rank, request.address);
        let is_right = mac.verify_slice(&request.proof).is_ok();
        if self.challenges.answer(request.nonce, is_right) {
            return Ok(());
        }
        Err(CallError::Proof { group: request.name.clone(), rank: request.rank })
    }

    /// The same for a topology.
    pub(super) fn check_topology_proof(
        &mut self,
        request: &TopologyRequest,
    ) -> Result<(), CallError> {
        let secret = self.cfg.topology_secret.as_ref().or(self.cfg.secret.as_ref());
        let Some(secret) = secret else { return Ok(()) };
        let mac = secret.topology_mac(request.nonce, &request.text);
        let is_right = mac.verify_slice(&request.proof).is_ok();
        if self.challenges.answer(request.nonce, is_right) {
            return Ok(());
        }
        Err(CallError::TopologyProof)
    }
}
