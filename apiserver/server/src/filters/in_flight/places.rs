//! So many places, and who waits for one.

use super::line::Line;
use apiserver_endpoints::UserClass;
use parking_lot::Mutex;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::sync::oneshot;

/// This part of the places is for the system alone, which may have others too while nobody waits for them.
const RESERVED_PART: usize = 4;
/// No user has more than this part of the places of ordinary users: one alone, however slow, leaves some to the others.
const PART_OF_USER: usize = 2;

/// See the module.
pub(super) struct Places(Mutex<State>);

struct State {
    free: usize,
    /// How many more of all places ordinary users may have.
    free_for_ordinary: usize,
    /// How many one ordinary user may have.
    bound_of_user: usize,
    /// How many each ordinary user has; nobody has none.
    held: BTreeMap<Arc<str>, usize>,
    ordinary: Line<Waiting>,
    system: Line<Waiting>,
}

type Waiting = oneshot::Sender<Permit>;

/// Whose a place is.
#[derive(Clone)]
pub(super) struct Holder {
    standing: UserClass,
    user: Arc<str>,
}

impl Holder {
    pub(super) fn new(standing: UserClass, user: &str) -> Self {
        Self {
            standing,
            user: user.into(),
        }
    }

    fn is_ordinary(&self) -> bool {
        self.standing == UserClass::Ordinary
    }
}

/// The answer to who asks for a place.
pub(super) enum Asked {
    Taken(Permit),
    Wait(Turn),
    Full,
}

impl Places {
    pub(super) fn new(count: usize) -> Arc<Self> {
        let for_ordinary = count - count / RESERVED_PART;
        Arc::new(Self(Mutex::new(State {
            free: count,
            free_for_ordinary: for_ordinary,
            bound_of_user: for_ordinary.div_ceil(PART_OF_USER),
            held: BTreeMap::new(),
            ordinary: Line::default(),
            system: Line::default(),
        })))
    }

    /// A place if there is one, for those who do not wait.
    pub(super) fn take(self: &Arc<Self>, holder: Holder) -> Option<Permit> {
        let taken = self.0.lock().take(&holder);
        taken.then(|| self.permit(holder))
    }

    pub(super) fn ask(self: &Arc<Self>, holder: Holder) -> Asked {
        let mut state = self.0.lock();
        if state.take(&holder) {
            return Asked::Taken(self.permit(holder));
        }
        let (sender, receiver) = oneshot::channel();
        match state.line(&holder).enter(&holder.user, sender) {
            None => Asked::Full,
            Some(number) => Asked::Wait(Turn {
                places: Arc::clone(self),
                holder,
                number,
                receiver,
            }),
        }
    }

    fn permit(self: &Arc<Self>, holder: Holder) -> Permit {
        Permit(Some((Arc::clone(self), holder)))
    }

    /// A place was left: it goes to the next who still waits, or is free.
    fn left(self: &Arc<Self>, holder: Holder) {
        let mut left = holder;
        loop {
            let next = {
                let mut state = self.0.lock();
                state.leave(&left);
                state.next()
            };
            let Some((holder, next)) = next else { return };
            match next.send(self.permit(holder.clone())) {
                Ok(()) => return,
                // This one gives up at this moment; its permit is not to come back here by being dropped.
                Err(mut permit) => {
                    permit.0 = None;
                    left = holder;
                }
            }
        }
    }
}

impl State {
    /// Invariant: while the system waits nothing is free, and while others wait nothing that they may have.
    fn take(&mut self, holder: &Holder) -> bool {
        let may = !holder.is_ordinary()
            || (self.free_for_ordinary > 0 && has_less_than(&self.held, self.bound_of_user, &holder.user));
        let taken = self.free > 0 && may;
        if taken {
            self.give(holder);
        }
        taken
    }

    fn give(&mut self, holder: &Holder) {
        self.free -= 1;
        if holder.is_ordinary() {
            self.free_for_ordinary -= 1;
            *self.held.entry(Arc::clone(&holder.user)).or_default() += 1;
        }
    }

    fn leave(&mut self, holder: &Holder) {
        self.free += 1;
        if !holder.is_ordinary() {
            return;
        }
        self.free_for_ordinary += 1;
        if let Some(held) = self.held.get_mut(&holder.user) {
            *held -= 1;
            if *held == 0 {
                self.held.remove(&holder.user);
            }
        }
    }

    fn line(&mut self, holder: &Holder) -> &mut Line<Waiting> {
        if holder.is_ordinary() {
            &mut self.ordinary
        } else {
            &mut self.system
        }
    }

    /// Gives a free place to the next who waits. Ordinary users come first as long as they have less than may be theirs:
    /// the system has its own part then.
    fn next(&mut self) -> Option<(Holder, Waiting)> {
        let (held, bound) = (&self.held, self.bound_of_user);
        let ordinary = (self.free > 0 && self.free_for_ordinary > 0)
            .then(|| self.ordinary.next(|user| has_less_than(held, bound, user)))
            .flatten()
            .map(|next| (UserClass::Ordinary, next));
        let system = || {
            let next = (self.free > 0).then(|| self.system.next(|_| true)).flatten();
            next.map(|next| (UserClass::System, next))
        };
        let (standing, (user, next)) = ordinary.or_else(system)?;
        let holder = Holder { standing, user };
        self.give(&holder);
        Some((holder, next))
    }
}

fn has_less_than(held: &BTreeMap<Arc<str>, usize>, bound: usize, user: &str) -> bool {
    held.get(user).is_none_or(|held| *held < bound)
}

/// A place that was taken; dropped, it is left.
pub(super) struct Permit(Option<(Arc<Places>, Holder)>);

impl Drop for Permit {
    fn drop(&mut self) {
        if let Some((places, holder)) = self.0.take() {
            places.left(holder);
        }
    }
}

/// The wait for a place; dropped, it is over.
pub(super) struct Turn {
    places: Arc<Places>,
    holder: Holder,
    number: u64,
    receiver: oneshot::Receiver<Permit>,
}

impl Turn {
    /// The place, once it is there; `None` where the wait was given up for somebody who has less.
    pub(super) async fn come(mut self) -> Option<Permit> {
        (&mut self.receiver).await.ok()
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.places
            .0
            .lock()
            .line(&self.holder)
            .leave(&self.holder.user, self.number);
    }
}

#[cfg(test)]
mod tests {
    use super::super::line::{MAX_WAITING, MAX_WAITING_OF_USER};
    use super::*;

    fn ask(places: &Arc<Places>, user: &str) -> Asked {
        places.ask(Holder::new(UserClass::Ordinary, user))
    }

    fn taken(asked: Asked) -> Permit {
        match asked {
            Asked::Taken(permit) => permit,
            _ => panic!("no place"),
        }
    }

    fn waits(asked: Asked) -> Turn {
        match asked {
            Asked::Wait(turn) => turn,
            _ => panic!("one who need not wait, or may not"),
        }
    }

    fn came(turn: &mut Turn) -> Option<Permit> {
        turn.receiver.try_recv().ok()
    }

    #[test]
    fn users_take_turns_and_who_gave_up_is_passed_over() {
        let places = Places::new(1);
        let first = taken(ask(&places, "a"));
        let mut of_a = [waits(ask(&places, "a")), waits(ask(&places, "a"))];
        let gone = waits(ask(&places, "b"));
        let mut of_b = waits(ask(&places, "b"));
        drop(gone);
        drop(first);
        let permit = came(&mut of_a[0]).unwrap();
        assert!(came(&mut of_a[1]).is_none() && came(&mut of_b).is_none());
        drop(permit);
        let permit = came(&mut of_b).unwrap();
        drop(permit);
        drop(came(&mut of_a[1]).unwrap());
        drop(taken(ask(&places, "c")));
    }

    #[test]
    fn a_place_given_to_one_who_leaves_at_that_moment_is_not_lost() {
        let places = Places::new(1);
        let first = taken(ask(&places, "a"));
        let turn = waits(ask(&places, "a"));
        drop(first);
        drop(turn);
        let first = taken(ask(&places, "a"));
        let mut turn = waits(ask(&places, "a"));
        turn.receiver.close();
        drop(first);
        drop(taken(ask(&places, "a")));
    }

    #[test]
    fn who_waits_too_many_is_told_and_who_gives_way_too() {
        let places = Places::new(1);
        let _first = taken(ask(&places, "a"));
        let mut floods: Vec<_> = (0..MAX_WAITING)
            .map(|at| waits(ask(&places, &(at / MAX_WAITING_OF_USER).to_string())))
            .collect();
        assert!(matches!(ask(&places, "0"), Asked::Full));
        let mut late = waits(ask(&places, "late"));
        let gave_way = |turn: &mut Turn| {
            let said = turn.receiver.try_recv().err();
            said == Some(oneshot::error::TryRecvError::Closed)
        };
        assert!(!gave_way(&mut late));
        let gone = floods.iter_mut().map(gave_way).filter(|gone| *gone).count();
        assert_eq!(gone, 1);
    }

    #[test]
    fn one_user_leaves_places_to_others() {
        let places = Places::new(8);
        let mut of_a: Vec<_> = (0..3).map(|_| taken(ask(&places, "a"))).collect();
        let mut waiting = waits(ask(&places, "a"));
        let mut of_b: Vec<_> = (0..3).map(|_| taken(ask(&places, "b"))).collect();
        let mut of_c = waits(ask(&places, "c"));
        // What another leaves is not for one who has as many as may be.
        drop(of_b.pop());
        let of_c = came(&mut of_c).unwrap();
        drop((of_b, of_c));
        assert!(came(&mut waiting).is_none());
        drop(of_a.pop());
        let _again = came(&mut waiting).unwrap();
        let _fourth = waits(ask(&places, "a"));
        // The bound is that of ordinary users.
        let node = || places.ask(Holder::new(UserClass::System, "system:node:n"));
        let _of_node: Vec<_> = (0..5).map(|_| taken(node())).collect();
    }

    #[test]
    fn a_part_of_the_places_is_the_systems() {
        let places = Places::new(4);
        let node = || places.ask(Holder::new(UserClass::System, "system:node:n"));
        let mut crowd: Vec<_> = ["a", "b", "c"].map(|user| taken(ask(&places, user))).into();
        let mut of_a = waits(ask(&places, "a"));
        let own = taken(node());
        let mut of_node = waits(node());
        // The crowd has all it may have: what the system leaves is the system's.
        drop(own);
        let _own = came(&mut of_node).unwrap();
        assert!(came(&mut of_a).is_none());
        // What the crowd leaves is the crowd's, as long as one of it waits.
        let mut of_node = waits(node());
        crowd.pop();
        let _of_a = came(&mut of_a).unwrap();
        assert!(came(&mut of_node).is_none());
        crowd.pop();
        let more = came(&mut of_node).unwrap();
        // The system has two now. Ordinary users get their part back before the system gets more.
        let (mut of_b, mut of_node) = (waits(ask(&places, "b")), waits(node()));
        drop(more);
        let _of_b = came(&mut of_b).unwrap();
        assert!(came(&mut of_node).is_none());
    }
}
