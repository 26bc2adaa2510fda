//! Who may be a client.
//!
//! - owns: users that are let in. takes: the credentials that the kernel keeps of a peer. gives: yes, or no. must not: ask
//!   the peer.

use std::str::FromStr;

use rustix::process::getuid;

/// Users whose processes may be clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ClientUsers {
    /// The user of the daemon.
    Own,
    /// These, whether or not the daemon's own is one of them.
    Listed(Vec<u32>),
    /// All who can connect to the socket.
    Any,
}

impl ClientUsers {
    /// Whether a process of user `uid` may be a client. The overflow user, by which the kernel names users that it cannot
    /// name here, is no user: several would be one.
    pub(crate) fn allows(&self, uid: u32) -> bool {
        let is_listed = match self {
            Self::Own => uid == getuid().as_raw(),
            Self::Listed(users) => users.contains(&uid),
            Self::Any => true,
        };
        is_listed && uid != OVERFLOW_UID
    }

    /// Whether there may be clients of more than one user.
    pub(crate) const fn are_several(&self) -> bool {
        match self {
            Self::Own => false,
            Self::Listed(users) => users.len() > 1,
            Self::Any => true,
        }
    }
}

impl FromStr for ClientUsers {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "own" => return Ok(Self::Own),
            "any" => return Ok(Self::Any),
            _ => {}
        }
        let users = text.split(',').map(|uid| uid.trim().parse().map_err(|_| uid));
        let users: Result<Vec<u32>, &str> = users.collect();
        let wrong = |uid| format!("{uid:?} is no user id: own, any, or numbers with commas");
        users.map(Self::Listed).map_err(wrong)
    }
}

/// Linux: default of /proc/sys/kernel/overflowuid.
const OVERFLOW_UID: u32 = 65_534;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_own_listed_or_any_and_never_the_overflow_user() {
        let own = getuid().as_raw();
        let other = own.wrapping_add(1);
        assert!(ClientUsers::Own.allows(own) && !ClientUsers::Own.allows(other));
        let listed: ClientUsers = format!("7, {other}").parse().unwrap();
        assert!(listed.allows(7) && listed.allows(other) && !listed.allows(own));
        assert!(ClientUsers::Any.allows(other) && !ClientUsers::Any.allows(OVERFLOW_UID));
        assert_eq!("own".parse(), Ok(ClientUsers::Own));
        for (users, are_several) in [("own", false), ("7", false), ("7,8", true), ("any", true)] {
            let parsed: ClientUsers = users.parse().unwrap();
            assert_eq!(parsed.are_several(), are_several, "{users}");
        }
        for wrong in ["", "root", "1,", "-1"] {
            assert!(wrong.parse::<ClientUsers>().unwrap_err().contains("is no user id"), "{wrong}");
        }
    }
}
