//! Jetty groups: one name for many jetties.
//!
//! *Owns*: nothing; the device keeps groups. *Takes / gives*: ids.

use udma_abi::cmd::Command;
use urma_core::{Status, Token, ops::HintPolicy};

use crate::device::Driver;

/// Creates a group; returns its id.
///
/// # Errors
/// `Exists`: the requested id is in use. `NoMemory`.
pub(crate) fn create(
    driver: &Driver,
    id: u32,
    policy: HintPolicy,
    token: Option<Token>,
) -> Result<u32, Status> {
    let by_hint = policy == HintPolicy::HashHint;
    let token_value = token.map(Token::value);
    let results = driver.execute(&Command::CreateGroup { id, by_hint, token_value })?;
    u32::try_from(results[0]).map_err(|_| Status::Fail)
}

/// Deletes a group that has no members.
///
/// # Errors
/// `Again`: it has members. `Invalid`: there is none.
pub(crate) fn delete(driver: &Driver, id: u32) -> Result<(), Status> {
    driver.execute(&Command::DestroyGroup { id }).map(|_| ())
}
