//! Who may be a client, and how many are served at a time, of all users and of one.
//!
//! A peer is not asked who it is: the kernel has its credentials. A user who has clients must not take the last
//! places from those who have none.

use std::{
    collections::BTreeMap,
    str::FromStr,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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

/// Places of clients, by user.
#[derive(Debug)]
pub(crate) struct ClientPlaces {
    most: usize,
    /// Of these, the last ones, which are for users without a client.
    first: usize,
    taken: Mutex<BTreeMap<u32, usize>>,
}

impl ClientPlaces {
    /// `most` places. An eighth of them is for users without a client, where there are `several` users.
    pub(crate) fn new(most: usize, several: bool) -> Arc<Self> {
        let first = if several { most / FIRST_PARTS } else { 0 };
        Arc::new(Self { most, first, taken: Mutex::default() })
    }

    /// A place for a client of user `uid`; `None`: all that it may have are taken.
    pub(crate) fn take(self: &Arc<Self>, uid: u32) -> Option<ClientPlace> {
        let mut taken = self.taken();
        let all: usize = taken.values().sum();
        let most = if taken.contains_key(&uid) { self.most - self.first } else { self.most };
        if all >= most {
            return None;
        }
        *taken.entry(uid).or_default() += 1;
        Some(ClientPlace { places: Arc::clone(self), uid })
    }

    fn taken(&self) -> MutexGuard<'_, BTreeMap<u32, usize>> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The place of one client; dropped, it is free.
#[derive(Debug)]
pub(crate) struct ClientPlace {
    places: Arc<ClientPlaces>,
    uid: u32,
}

impl Drop for ClientPlace {
    fn drop(&mut self) {
        let mut taken = self.places.taken();
        if let Some(count) = taken.get_mut(&self.uid) {
            *count -= 1;
            if *count == 0 {
                taken.remove(&self.uid);
            }
        }
    }
}

/// One of so many parts of the places is for users who have no client yet.
const FIRST_PARTS: usize = 8;

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

    #[test]
    fn the_last_places_are_for_users_who_have_none() {
        let places = ClientPlaces::new(16, true);
        let one: Vec<_> = std::iter::from_fn(|| places.take(1)).collect();
        assert_eq!(one.len(), 14);
        let (two, three) = (places.take(2).unwrap(), places.take(3).unwrap());
        assert!(places.take(2).is_none() && places.take(4).is_none());
        drop(one);
        assert!(places.take(2).is_some());
        drop((two, three));
        assert!(places.taken().is_empty(), "users that left are forgotten");
        let alone = ClientPlaces::new(16, false);
        assert_eq!(std::iter::from_fn(|| alone.take(1)).collect::<Vec<_>>().len(), 16);
    }
}
