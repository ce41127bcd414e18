//! Room in this process for answers of API extensions to its own clients: another server writes them, as many, as long
//! and as fast as it likes.
//!
//! The server marks each answer that it passes on with the [`AnswerRoom`] of the extension, among the extensions of the HTTP
//! response. A client of this process takes room for what it keeps of such an answer, and gives it back by dropping it. An
//! extension has no more than is left, so that `n` greedy ones get less and less and the next one still finds some.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// Bytes that are kept of all extensions together; the first has half of them at most.
const ALL_BYTES: usize = 64 << 20;
/// Watches of one extension at a time, which has no more of them than it leaves to others.
const MAX_WATCHES: usize = 128;
/// Watches of all extensions together.
const ALL_WATCHES: usize = 512;
/// Bytes of one extension that are read in a second, and the time for which it may be ahead of that.
const BYTES_PER_SECOND: u64 = 8 << 20;
const AHEAD: Duration = Duration::from_secs(2);
/// Time between two warnings of one extension.
const WARNING_PAUSE: Duration = Duration::from_secs(60);

/// Rooms of all extensions of a server.
#[derive(Debug, Default)]
pub struct AnswerRooms(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    bytes: usize,
    /// By extension; only those of which something is kept or was read lately.
    of: BTreeMap<Arc<str>, Share>,
}

#[derive(Debug, Default)]
struct Share {
    bytes: usize,
    watches: usize,
    /// Time at which all that was read would have been read at the usual pace.
    paid_until: Duration,
    /// Time from which on it may be warned of again.
    quiet_until: Duration,
}

/// Room of one extension. Cheap to clone.
#[derive(Clone)]
pub struct AnswerRoom {
    all: Arc<AnswerRooms>,
    name: Arc<str>,
}

impl fmt::Debug for AnswerRoom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("AnswerRoom").field(&self.name).finish()
    }
}

/// Bytes that are kept; dropping it gives them back.
#[derive(Debug)]
pub struct HeldRoom {
    of: AnswerRoom,
    bytes: usize,
}

/// A watch that may be open; dropping it lets another begin.
#[derive(Debug)]
pub struct WatchPlace(AnswerRoom);

impl AnswerRooms {
    /// The room of the extension with this name.
    pub fn of(self: &Arc<Self>, name: &str) -> AnswerRoom {
        AnswerRoom {
            all: Arc::clone(self),
            name: name.into(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn share(&mut self, name: &Arc<str>) -> &mut Share {
        self.of.entry(Arc::clone(name)).or_default()
    }

    /// Takes or gives back bytes; `false` where there is no room.
    fn change(&mut self, name: &Arc<str>, from: usize, to: usize) -> bool {
        let own = self.of.get(name).map_or(0, |share| share.bytes);
        let all = (self.bytes - from).saturating_add(to);
        let own = (own - from).saturating_add(to);
        if to > from && own > ALL_BYTES.saturating_sub(all) {
            return false;
        }
        self.bytes = all;
        self.share(name).bytes = own;
        true
    }
}

impl AnswerRoom {
    /// Name of the extension.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Takes room; nothing where there is none.
    pub fn hold(&self, bytes: usize) -> Option<HeldRoom> {
        let has_room = self.all.lock().change(&self.name, 0, bytes);
        has_room.then(|| HeldRoom {
            of: self.clone(),
            bytes,
        })
    }

    /// Takes the place of a watch; nothing where the extension has as many as it may.
    pub fn watch(&self) -> Option<WatchPlace> {
        let mut state = self.all.lock();
        let open: usize = state.of.values().map(|share| share.watches).sum();
        let share = state.share(&self.name);
        if share.watches >= MAX_WATCHES.min(ALL_WATCHES.saturating_sub(open)) {
            return None;
        }
        share.watches += 1;
        Some(WatchPlace(self.clone()))
    }

    /// Reports whether to warn that there is no room, as is done once a minute whatever the number of resources.
    pub fn warns(&self, now: Duration) -> bool {
        let mut state = self.all.lock();
        let share = state.share(&self.name);
        let warns = now >= share.quiet_until;
        if warns {
            share.quiet_until = now + WARNING_PAUSE;
        }
        warns
    }

    /// Notes that so many bytes were read by now, and returns the time to wait before more are.
    pub fn pause_after(&self, bytes: usize, now: Duration) -> Duration {
        let mut state = self.all.lock();
        // Those that are idle and hold nothing are forgotten.
        state
            .of
            .retain(|_, own| own.bytes + own.watches > 0 || own.paid_until.max(own.quiet_until) > now);
        let share = state.share(&self.name);
        let nanos = (bytes as u64).saturating_mul(1_000_000_000) / BYTES_PER_SECOND;
        share.paid_until = share.paid_until.max(now) + Duration::from_nanos(nanos);
        share.paid_until.saturating_sub(now + AHEAD)
    }
}

impl HeldRoom {
    /// Holds so many bytes instead; `false` where there is no room, and then it holds what it did.
    #[must_use]
    pub fn resize(&mut self, bytes: usize) -> bool {
        let fits = self.of.all.lock().change(&self.of.name, self.bytes, bytes);
        if fits {
            self.bytes = bytes;
        }
        fits
    }
}

impl Drop for HeldRoom {
    fn drop(&mut self) {
        self.of.all.lock().change(&self.of.name, self.bytes, 0);
    }
}

impl Drop for WatchPlace {
    fn drop(&mut self) {
        self.0.all.lock().share(&self.0.name).watches -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: usize = 1 << 20;

    fn fill(room: &AnswerRoom) -> Vec<HeldRoom> {
        std::iter::from_fn(|| room.hold(MIB)).collect()
    }

    #[test]
    fn greedy_extensions_leave_room_to_the_next() {
        let rooms = Arc::new(AnswerRooms::default());
        let held = ["a", "b", "c", "d"].map(|name| fill(&rooms.of(name)));
        assert_eq!(held.each_ref().map(Vec::len), [32, 16, 8, 4]);
        assert!(rooms.of("a").hold(1).is_none());
        assert!(rooms.of("late").hold(MIB).is_some());
        drop(held);
        assert_eq!(rooms.lock().bytes, 0);
        assert_eq!(fill(&rooms.of("a")).len(), 32);
    }

    #[test]
    fn held_room_grows_and_shrinks_as_there_is_some() {
        let rooms = Arc::new(AnswerRooms::default());
        let mut held = rooms.of("a").hold(MIB).unwrap();
        assert!(held.resize(32 * MIB));
        assert!(!held.resize(32 * MIB + 1));
        assert!(!held.resize(usize::MAX), "it overflows nothing");
        assert!(held.resize(MIB));
        assert_eq!(rooms.lock().bytes, MIB);
    }

    #[test]
    fn extension_has_so_many_watches() {
        let rooms = Arc::new(AnswerRooms::default());
        let mut open: Vec<_> = std::iter::from_fn(|| rooms.of("a").watch()).collect();
        assert_eq!(open.len(), MAX_WATCHES);
        assert!(rooms.of("b").watch().is_some());
        open.pop();
        assert!(rooms.of("a").watch().is_some());
    }

    #[test]
    fn extensions_with_many_watches_leave_some_to_the_next() {
        let rooms = Arc::new(AnswerRooms::default());
        let open = ["a", "b", "c", "d", "e"].map(|name| {
            let own = std::iter::from_fn(|| rooms.of(name).watch());
            own.collect::<Vec<_>>()
        });
        assert_eq!(open.each_ref().map(Vec::len), [128, 128, 128, 64, 32]);
        assert!(rooms.of("late").watch().is_some());
    }

    #[test]
    fn extension_is_warned_of_once_a_minute() {
        let rooms = Arc::new(AnswerRooms::default());
        let warns = |name, seconds| rooms.of(name).warns(Duration::from_secs(seconds));
        assert!(warns("a", 100) && warns("b", 100));
        assert!(!warns("a", 159));
        assert!(warns("a", 160));
    }

    #[test]
    fn extension_is_read_no_faster_than_its_pace() {
        let rooms = Arc::new(AnswerRooms::default());
        let (room, now) = (rooms.of("a"), Duration::from_secs(100));
        assert_eq!(
            room.pause_after(16 * MIB, now),
            Duration::ZERO,
            "two seconds ahead"
        );
        assert_eq!(room.pause_after(8 * MIB, now), Duration::from_secs(1));
        assert_eq!(rooms.of("b").pause_after(8 * MIB, now), Duration::ZERO);
        assert_eq!(room.pause_after(0, now + Duration::from_secs(3)), Duration::ZERO);
        rooms.of("b").pause_after(0, now + Duration::from_secs(10));
        assert_eq!(rooms.lock().of.len(), 1, "idle ones are forgotten");
    }
}
