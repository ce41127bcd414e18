//! Users of tokens that were good a moment ago, by the digest of each token.
//!
//! Their number and their bytes are bounded, since a user's groups and extra values, and the audiences of a review, are as large as
//! others make them. Equal users of several tokens are in memory once. Where there is no room left, the user with most gives way
//! with its oldest token, and of several the one that came last: many tokens of one user push out those of no other.

use super::{Authenticated, AuthenticationNotes};
use machinery_meta::UserInfo;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

pub(super) type Digest = [u8; 32];

/// Parts of the room that a single token may take: one that takes more is not remembered.
const PARTS_OF_ROOM: usize = 16;
/// The user's latest tokens that are compared with a new one.
const COMPARED_TOKENS: usize = 16;
/// Bytes that a token takes in memory beside its texts.
const BYTES_OF_TOKEN: usize = 512;

/// Room for what is remembered.
#[derive(Debug, Clone, Copy)]
pub(super) struct Room {
    pub(super) tokens: usize,
    pub(super) tokens_of_user: usize,
    pub(super) bytes: usize,
}

/// See the module; `T` is the time by which tokens end.
#[derive(Debug)]
pub(super) struct RememberedUsers<T> {
    room: Room,
    tokens: HashMap<Digest, Remembered<T>>,
    /// By name.
    users: HashMap<Arc<str>, Share>,
    bytes: usize,
    /// Users that have come.
    come: u64,
}

#[derive(Debug)]
struct Remembered<T> {
    until: T,
    user: Arc<UserInfo>,
    audiences: Option<Vec<String>>,
    remarks: AuthenticationNotes,
    /// Without the user's.
    bytes: usize,
}

/// The tokens of a user.
#[derive(Debug)]
struct Share {
    /// The user's place among all that have come.
    came: u64,
    /// The oldest first.
    tokens: VecDeque<Digest>,
    bytes: usize,
}

impl<T: Copy + Ord> RememberedUsers<T> {
    pub(super) fn new(room: Room) -> Self {
        Self {
            room,
            tokens: HashMap::new(),
            users: HashMap::new(),
            bytes: 0,
            come: 0,
        }
    }

    pub(super) fn get(&self, token: &Digest, now: T) -> Option<Authenticated> {
        let found = self.tokens.get(token).filter(|found| found.until > now)?;
        Some(Authenticated {
            user: UserInfo::clone(&found.user),
            audiences: found.audiences.clone(),
            remarks: found.remarks.clone(),
        })
    }

    /// The token is this user's until then.
    pub(super) fn put(&mut self, token: Digest, found: &Authenticated, until: T, now: T) {
        self.forget(&token);
        // Removed first, so that its bytes do not count twice and its place in the order is the newest.
        let bytes = bytes_of_token(found) + bytes_of_user(&found.user);
        if bytes > self.room.bytes / PARTS_OF_ROOM {
            return;
        }
        self.make_room(&found.user.name, bytes, now);
        let (user, bytes) = match self.equal(&found.user) {
            Some(user) => (user, bytes_of_token(found)),
            None => (Arc::new(found.user.clone()), bytes),
        };
        let own = Remembered {
            until,
            user,
            audiences: found.audiences.clone(),
            remarks: found.remarks.clone(),
            bytes: bytes_of_token(found),
        };
        let name: Arc<str> = found.user.name.as_str().into();
        let share = self.users.entry(name).or_insert_with(|| {
            // The order of users breaks ties: without it the map's random order would decide.
            self.come += 1;
            Share::new(self.come)
        });
        share.tokens.push_back(token);
        share.bytes += bytes;
        self.bytes += bytes;
        self.tokens.insert(token, own);
    }

    /// An equal user of one of the latest tokens.
    fn equal(&self, user: &UserInfo) -> Option<Arc<UserInfo>> {
        let latest = self.users.get(user.name.as_str())?.tokens.iter().rev();
        let mut latest = latest
            .take(COMPARED_TOKENS)
            .filter_map(|token| self.tokens.get(token));
        let found = latest.find(|own| *own.user == *user)?;
        Some(Arc::clone(&found.user))
    }

    fn make_room(&mut self, name: &str, bytes: usize, now: T) {
        let Room {
            tokens,
            tokens_of_user,
            bytes: room,
        } = self.room;
        let own = |all: &Self| all.users.get(name).map_or(0, |own| own.tokens.len());
        let is_full = own(self) >= tokens_of_user || self.tokens.len() >= tokens || self.bytes + bytes > room;
        if !is_full {
            return;
        }
        self.forget_ended(now);
        // Expired ones went first; then the user's own oldest: a user with many tokens pushes out none of
        // others.
        if own(self) >= tokens_of_user {
            let oldest = self.users.get(name).and_then(|own| own.tokens.front().copied());
            self.forget_all(oldest);
        }
        if self.tokens.len() >= tokens {
            // The user with most loses one, whichever user comes: a flood of tokens of one user ends at its
            // own.
            self.forget_all(self.in_the_way(|own| own.tokens.len()));
        }
        while self.bytes + bytes > room && !self.tokens.is_empty() {
            self.forget_all(self.in_the_way(|own| own.bytes));
        }
    }

    /// The oldest token of the user with most.
    fn in_the_way(&self, size: impl Fn(&Share) -> usize) -> Option<Digest> {
        let most = self.users.values().max_by_key(|own| (size(own), own.came))?;
        most.tokens.front().copied()
    }

    fn forget_ended(&mut self, now: T) {
        let ended = self.tokens.iter().filter(|(_, own)| own.until <= now);
        let ended: Vec<Digest> = ended.map(|(token, _)| *token).collect();
        self.forget_all(ended);
    }

    fn forget_all(&mut self, tokens: impl IntoIterator<Item = Digest>) {
        for token in tokens {
            self.forget(&token);
        }
    }

    fn forget(&mut self, token: &Digest) {
        let Some(gone) = self.tokens.remove(token) else {
            return;
        };
        // Users leave this module as copies: each other holder is another token.
        let bytes = match Arc::strong_count(&gone.user) {
            1 => gone.bytes + bytes_of_user(&gone.user),
            _ => gone.bytes,
        };
        self.bytes -= bytes;
        let name = gone.user.name.as_str();
        let Some(share) = self.users.get_mut(name) else {
            return;
        };
        share.bytes -= bytes;
        if let Some(at) = share.tokens.iter().position(|own| own == token) {
            share.tokens.remove(at);
        }
        if share.tokens.is_empty() {
            self.users.remove(name);
        }
    }
}

impl Share {
    fn new(came: u64) -> Self {
        Self {
            came,
            tokens: VecDeque::new(),
            bytes: 0,
        }
    }
}

fn bytes_of_token(found: &Authenticated) -> usize {
    let audiences = found.audiences.iter().flatten();
    let notes = found.remarks.annotations.iter().map(|(_, text)| text);
    BYTES_OF_TOKEN + bytes_of(audiences.chain(notes))
}

fn bytes_of_user(user: &UserInfo) -> usize {
    let extra = user.extra.iter();
    let extra = extra.flat_map(|(key, values)| std::iter::once(key).chain(values));
    // The name is also that of the user's share.
    let own = [&user.name, &user.name, &user.uid];
    bytes_of(user.groups.iter().chain(extra).chain(own))
}

fn bytes_of<'a>(texts: impl Iterator<Item = &'a String>) -> usize {
    texts.map(|text| text.len() + 2 * size_of::<String>()).sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        tokens: 64,
        tokens_of_user: 16,
        bytes: 1 << 20,
    };

    fn token(number: usize) -> Digest {
        let mut out = [0; 32];
        out[..8].copy_from_slice(&number.to_be_bytes());
        out
    }

    fn user(name: &str, group: String) -> Authenticated {
        Authenticated::new(UserInfo::named(name, [group]))
    }

    /// Counts what is in memory anew.
    #[track_caller]
    fn check(all: &RememberedUsers<u32>) {
        let mut users: Vec<_> = all.tokens.values().map(|own| Arc::as_ptr(&own.user)).collect();
        users.sort();
        users.dedup();
        let texts: usize = all.tokens.values().map(|own| own.bytes).sum();
        let of_users: usize = users
            .iter()
            .filter_map(|at| all.tokens.values().find(|own| Arc::as_ptr(&own.user) == *at))
            .map(|own| bytes_of_user(&own.user))
            .sum();
        assert_eq!(all.bytes, texts + of_users);
        assert_eq!(all.bytes, all.users.values().map(|own| own.bytes).sum::<usize>());
        let tokens: usize = all.users.values().map(|own| own.tokens.len()).sum();
        assert_eq!(all.tokens.len(), tokens);
        assert!(all.tokens.len() <= ROOM.tokens && all.bytes <= ROOM.bytes);
    }

    #[test]
    fn remembered_users_are_bounded_in_bytes() {
        let mut all = RememberedUsers::new(ROOM);
        let anna = user("anna", "g".into());
        all.put(token(0), &anna, 9, 1);
        for number in 1..60 {
            let large = user(&format!("u{number}"), "g".repeat(60_000));
            all.put(token(number), &large, 9, 1);
            check(&all);
        }
        assert_eq!(all.get(&token(0), 1), Some(anna));
        assert!(all.get(&token(1), 1).is_some(), "it came before the others");
        assert!(all.get(&token(59), 1).is_some(), "the newest finds room");
        // One that would take much of the room is not remembered.
        all.put(token(70), &user("x", "g".repeat(100_000)), 9, 1);
        assert!(all.get(&token(70), 1).is_none());
        let audiences = Some(vec!["a".repeat(100_000)]);
        let wide = Authenticated {
            audiences,
            ..user("y", String::new())
        };
        all.put(token(71), &wide, 9, 1);
        assert!(all.get(&token(71), 1).is_none());
        check(&all);
    }

    #[test]
    fn remembered_users_that_are_equal_are_in_memory_once() {
        let mut all = RememberedUsers::new(ROOM);
        let large = user("anna", "g".repeat(60_000));
        for number in 0..16 {
            all.put(token(number), &large, 9, 1);
        }
        check(&all);
        assert!(all.bytes < 2 * 60_000, "{}", all.bytes);
        // The last of them frees the user's bytes.
        all.forget_ended(9);
        check(&all);
        assert_eq!((all.bytes, all.users.len()), (0, 0));
        // Others of the name are others.
        all.put(token(0), &user("anna", "a".into()), 9, 1);
        all.put(token(1), &user("anna", "b".into()), 9, 1);
        assert_eq!(all.get(&token(0), 1).unwrap().user.groups, ["a"]);
        assert_eq!(all.get(&token(1), 1).unwrap().user.groups, ["b"]);
        check(&all);
    }

    #[test]
    fn remembered_users_leave_room_to_others() {
        let mut all = RememberedUsers::new(ROOM);
        for number in 0..200 {
            all.put(token(number), &user("greedy", "g".into()), 9, 1);
            check(&all);
        }
        assert_eq!(all.tokens.len(), ROOM.tokens_of_user);
        assert!(all.get(&token(199), 1).is_some(), "the newest stay");
        let anna = user("anna", "g".into());
        all.put(token(1_000), &anna, 9, 1);
        // Many users with many tokens each.
        for number in 2_000..3_000 {
            let other = user(&format!("u{}", number % 10), "g".into());
            all.put(token(number), &other, 9, 1);
            check(&all);
        }
        assert_eq!(all.tokens.len(), ROOM.tokens);
        assert_eq!(all.get(&token(1_000), 1), Some(anna));
        // Ended ones go before any other.
        let bert = user("bert", "g".into());
        all.put(token(3_000), &bert, 20, 10);
        assert_eq!((all.tokens.len(), all.get(&token(3_000), 10)), (1, Some(bert)));
        assert_eq!(all.get(&token(3_000), 20), None);
        check(&all);
    }
}
