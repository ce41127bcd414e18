//! Who waits: a queue for each user, and the users take turns. Every step costs the logarithm of how many wait, whoever
//! floods the line.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How many of one user wait at once; two bursts of the busiest controller.
pub(super) const MAX_WAITING_OF_USER: usize = 1_024;
/// How many wait at once in one line, of all its users. There are four lines: who reads and who changes, ordinary users and
/// the system's own.
pub(super) const MAX_WAITING: usize = 4_096;

/// See the module.
pub(super) struct Line<T> {
    /// No queue is empty.
    queues: BTreeMap<Arc<str>, Queue<T>>,
    /// The users who wait, whose turn is next first.
    turns: BTreeMap<u64, Arc<str>>,
    /// The users by how many of theirs wait.
    lengths: BTreeSet<(usize, Arc<str>)>,
    count: usize,
    /// The last number that was given to a turn or to one who waits.
    last_number: u64,
}

struct Queue<T> {
    turn: u64,
    /// Who came first, first.
    waiting: BTreeMap<u64, T>,
}

impl<T> Default for Line<T> {
    fn default() -> Self {
        Self {
            queues: BTreeMap::new(),
            turns: BTreeMap::new(),
            lengths: BTreeSet::new(),
            count: 0,
            last_number: 0,
        }
    }
}

impl<T> Line<T> {
    /// Waits as the last of its user; the answer is its number, or `None` where there is no room.
    pub(super) fn enter(&mut self, user: &Arc<str>, waiting: T) -> Option<u64> {
        let own = self.of(user);
        if own >= MAX_WAITING_OF_USER || (self.count >= MAX_WAITING && !self.make_room_for(own)) {
            return None;
        }
        let number = self.number();
        if own == 0 {
            self.turns.insert(number, Arc::clone(user));
        }
        let queue = self.queues.entry(Arc::clone(user)).or_insert_with(|| Queue {
            turn: number,
            waiting: BTreeMap::new(),
        });
        queue.waiting.insert(number, waiting);
        self.lengths.remove(&(own, Arc::clone(user)));
        self.lengths.insert((own + 1, Arc::clone(user)));
        self.count += 1;
        Some(number)
    }

    /// Waits no longer.
    pub(super) fn leave(&mut self, user: &Arc<str>, number: u64) -> Option<T> {
        self.take(user, |waiting| waiting.remove(&number))
    }

    /// The first of the user whose turn it is, of those who may; the user's next turn is after everybody else's.
    pub(super) fn next(&mut self, may: impl Fn(&str) -> bool) -> Option<(Arc<str>, T)> {
        let (turn, user) = self.turns.iter().find(|(_, user)| may(user))?;
        let (turn, user) = (*turn, Arc::clone(user));
        let next_turn = self.number();
        self.turns.remove(&turn);
        self.turns.insert(next_turn, Arc::clone(&user));
        self.queues.get_mut(&user)?.turn = next_turn;
        let first = self.take(&user, |waiting| waiting.pop_first().map(|(_, first)| first))?;
        Some((user, first))
    }

    /// Who has most in a full line gives up the youngest for one who has less: some users' floods keep no other out.
    fn make_room_for(&mut self, own: usize) -> bool {
        let Some((_, longest)) = self.lengths.last().filter(|(longest, _)| *longest > own + 1) else {
            return false;
        };
        let longest = Arc::clone(longest);
        self.take(&longest, |waiting| waiting.pop_last()).is_some()
    }

    fn of(&self, user: &str) -> usize {
        self.queues.get(user).map_or(0, |queue| queue.waiting.len())
    }

    /// Takes one out of a user's queue; a queue that is empty then goes.
    fn take<R>(
        &mut self,
        user: &Arc<str>,
        one: impl FnOnce(&mut BTreeMap<u64, T>) -> Option<R>,
    ) -> Option<R> {
        let queue = self.queues.get_mut(user)?;
        let taken = one(&mut queue.waiting)?;
        let (left, turn) = (queue.waiting.len(), queue.turn);
        self.count -= 1;
        self.lengths.remove(&(left + 1, Arc::clone(user)));
        if left == 0 {
            self.turns.remove(&turn);
            self.queues.remove(user);
        } else {
            self.lengths.insert((left, Arc::clone(user)));
        }
        Some(taken)
    }

    fn number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(line: &mut Line<usize>, user: &str, what: usize) -> Option<u64> {
        line.enter(&user.into(), what)
    }

    /// Takes all out in order.
    fn order(line: &mut Line<usize>) -> Vec<usize> {
        std::iter::from_fn(|| line.next(|_| true).map(|(_, what)| what)).collect()
    }

    #[test]
    fn users_take_turns_and_each_is_served_in_order() {
        let mut line = Line::default();
        for (user, what) in [("a", 1), ("a", 2), ("a", 3), ("b", 4), ("c", 5), ("b", 6)] {
            enter(&mut line, user, what).unwrap();
        }
        assert_eq!(order(&mut line), [1, 4, 5, 2, 6, 3]);
        enter(&mut line, "b", 7).unwrap();
        assert_eq!(order(&mut line), [7]);
    }

    #[test]
    fn who_leaves_is_not_served_and_who_may_not_keeps_the_turn() {
        let mut line = Line::default();
        let gone = enter(&mut line, "a", 1).unwrap();
        let stays = enter(&mut line, "a", 2).unwrap();
        enter(&mut line, "b", 3).unwrap();
        assert_eq!(line.leave(&"a".into(), gone), Some(1));
        assert_eq!(line.leave(&"a".into(), gone), None);
        assert_eq!(line.next(|user| user != "a"), Some(("b".into(), 3)));
        assert_eq!(line.next(|user| user != "a"), None);
        assert_eq!(line.leave(&"a".into(), stays), Some(2));
        assert_eq!(order(&mut line), [0; 0]);
    }

    #[test]
    fn nobody_waits_without_bound_and_a_flood_leaves_room_for_others() {
        let mut line = Line::default();
        let flood: Vec<_> = (0..MAX_WAITING_OF_USER)
            .map(|what| enter(&mut line, "a", what).unwrap())
            .collect();
        assert_eq!(enter(&mut line, "a", 0), None);
        enter(&mut line, "b", 1).unwrap();
        line.leave(&"a".into(), flood[0]).unwrap();
        enter(&mut line, "a", 2).unwrap();
        assert_eq!(enter(&mut line, "a", 3), None);
    }

    #[test]
    fn in_a_full_line_who_has_most_gives_way() {
        const LATE: usize = MAX_WAITING;
        let mut line = Line::default();
        for what in 0..MAX_WAITING {
            let user = (what / MAX_WAITING_OF_USER).to_string();
            enter(&mut line, &user, what).unwrap();
        }
        for what in 0..3 {
            enter(&mut line, "late", LATE + what).unwrap();
        }
        let served = order(&mut line);
        assert_eq!(served.len(), MAX_WAITING);
        assert!((0..3).all(|what| served.contains(&(LATE + what))));
        // All as long as each other: nobody gives way to one who would have most.
        for what in 0..MAX_WAITING {
            enter(&mut line, &what.to_string(), what).unwrap();
        }
        assert_eq!(enter(&mut line, "1", 1), None);
        assert_eq!(enter(&mut line, "late", LATE), None);
    }
}
