//! Places of clients: how many are served at a time, and how many of one user.
//!
//! - owns: the count of each user. takes: users that come and go. gives: a place, which its drop gives back. must not: let a user
//!   who has clients take the last places from those who have none.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

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
