//! Volumes of drivers on this node: which pods have them, and whether they are staged. Pure.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use super::places::VolumeKey;

/// First and longest pause after a volume that could not be taken away, as upstream's `exponentialbackoff`.
const RETRY_AFTER: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(122));

/// A pod's volume: the pod's uid, and the name of the PersistentVolume.
pub(super) type User = (String, String);

/// Progress of showing a volume once for all pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Staging {
    #[default]
    No,
    /// The driver was called, and what has become of it is not known.
    Begun,
    Done,
}

#[derive(Debug, Default)]
struct Volume {
    users: BTreeSet<User>,
    /// It is attached by a controller, which must not detach it while it is in use.
    attaches: bool,
    staging: Staging,
    /// Its removal goes on.
    leaves: bool,
    failures: u32,
    /// Time of the next try, of the monotonic clock.
    retry_at: Duration,
}

impl Volume {
    fn is_unused(&self) -> bool {
        self.users.is_empty() && self.staging == Staging::No
    }
}

/// All volumes.
#[derive(Debug, Default)]
pub(super) struct State {
    volumes: BTreeMap<VolumeKey, Volume>,
    /// Pods that wait for a driver, by its name.
    waiting: BTreeMap<String, BTreeSet<String>>,
}

impl State {
    /// Adopts a pod's volume that an earlier agent has written down.
    pub(super) fn found_user(&mut self, key: VolumeKey, user: User) {
        self.add_user(key, user, true);
    }

    /// Adopts a staged volume that an earlier agent has written down.
    pub(super) fn found_staged(&mut self, key: VolumeKey) {
        let volume = self.volumes.entry(key).or_default();
        volume.staging = Staging::Begun;
        volume.attaches = true;
    }

    /// A pod is to have a volume.
    pub(super) fn add_user(&mut self, key: VolumeKey, user: User, attaches: bool) {
        let volume = self.volumes.entry(key).or_default();
        volume.users.insert(user);
        volume.attaches = attaches;
    }

    /// A pod has its volumes no more, but for those of these names.
    pub(super) fn remove_users(&mut self, pod: &str, but: &BTreeSet<String>) {
        self.volumes.retain(|_, volume| {
            volume
                .users
                .retain(|(own, name)| own != pod || but.contains(name));
            !volume.is_unused()
        });
        self.waiting.retain(|_, pods| {
            pods.remove(pod);
            !pods.is_empty()
        });
    }

    /// Reports whether a volume is staged.
    pub(super) fn is_staged(&self, key: &VolumeKey) -> bool {
        self.volumes
            .get(key)
            .is_some_and(|own| own.staging == Staging::Done)
    }

    /// Reports whether a driver was called to stage a volume, whatever has become of it.
    pub(super) fn is_begun(&self, key: &VolumeKey) -> bool {
        self.volumes
            .get(key)
            .is_some_and(|own| own.staging != Staging::No)
    }

    /// The driver is about to be called to stage a volume, or to take it away.
    pub(super) fn staging_begins(&mut self, key: &VolumeKey) {
        self.at(key).staging = Staging::Begun;
    }

    /// A volume; one whose last pod has gone meanwhile must not be detached either.
    fn at(&mut self, key: &VolumeKey) -> &mut Volume {
        let unknown = Volume {
            attaches: true,
            ..Volume::default()
        };
        self.volumes.entry(key.clone()).or_insert(unknown)
    }

    /// Reports whether a pod has a volume, beside this one.
    pub(super) fn has_other_user(&self, key: &VolumeKey, pod: &str) -> bool {
        let users = self.volumes.get(key).into_iter().flat_map(|own| &own.users);
        users.into_iter().any(|(user, _)| user != pod)
    }

    /// A volume is staged.
    pub(super) fn staged(&mut self, key: &VolumeKey) {
        self.at(key).staging = Staging::Done;
    }

    /// A volume is not staged, or not any more.
    pub(super) fn not_staged(&mut self, key: &VolumeKey) {
        if let Some(volume) = self.volumes.get_mut(key) {
            (volume.staging, volume.failures) = (Staging::No, 0);
        }
        self.volumes.retain(|_, volume| !volume.is_unused());
    }

    /// Reports whether a volume that is staged has no user.
    pub(super) fn is_abandoned(&self, key: &VolumeKey) -> bool {
        let volume = self.volumes.get(key);
        volume.is_some_and(|own| own.users.is_empty() && own.staging != Staging::No)
    }

    /// Volumes to take away now, which are being taken away from then on.
    pub(super) fn take_abandoned(
        &mut self,
        now: Duration,
        has_driver: impl Fn(&str) -> bool,
    ) -> Vec<VolumeKey> {
        let due = self.volumes.iter_mut().filter(|(key, own)| {
            own.users.is_empty()
                && own.staging != Staging::No
                && !own.leaves
                && own.retry_at <= now
                && has_driver(&key.driver)
        });
        due.map(|(key, own)| {
            own.leaves = true;
            key.clone()
        })
        .collect()
    }

    /// A volume was tried to be taken away.
    pub(super) fn tried(&mut self, key: &VolumeKey, is_away: bool, now: Duration) {
        if let Some(volume) = self.volumes.get_mut(key) {
            volume.leaves = false;
            if !is_away {
                let pause = RETRY_AFTER.0.saturating_mul(1 << volume.failures.min(8));
                volume.failures = volume.failures.saturating_add(1);
                volume.retry_at = now + pause.min(RETRY_AFTER.1);
            }
        }
    }

    /// Time of the next try to take a volume away, where one is to come.
    pub(super) fn next_retry(&self, has_driver: impl Fn(&str) -> bool) -> Option<Duration> {
        let due = self.volumes.iter().filter(|(key, own)| {
            own.users.is_empty() && own.staging != Staging::No && !own.leaves && has_driver(&key.driver)
        });
        due.map(|(_, own)| own.retry_at).min()
    }

    /// Names of the volumes that must not be detached, as the Node object shows them.
    pub(super) fn in_use(&self) -> Vec<String> {
        let held = self.volumes.iter().filter(|(_, own)| own.attaches);
        let mut names: Vec<String> = held.map(|(key, _)| key.unique_name()).collect();
        names.sort();
        names
    }

    /// A pod waits for a driver.
    pub(super) fn awaits(&mut self, driver: &str, pod: &str) {
        let pods = self.waiting.entry(driver.to_owned()).or_default();
        pods.insert(pod.to_owned());
    }

    /// A pod has its driver.
    pub(super) fn waits_no_more(&mut self, driver: &str, pod: &str) {
        if let Some(pods) = self.waiting.get_mut(driver) {
            pods.remove(pod);
        }
        self.waiting.retain(|_, pods| !pods.is_empty());
    }

    /// Pods that wait for a driver, which do so no more.
    pub(super) fn take_waiting(&mut self, driver: &str) -> BTreeSet<String> {
        self.waiting.remove(driver).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> VolumeKey {
        VolumeKey {
            driver: "d".to_owned(),
            handle: "v".to_owned(),
        }
    }

    fn user(pod: &str) -> User {
        (pod.to_owned(), "pv".to_owned())
    }

    fn abandoned(state: &mut State, now: u64) -> Vec<VolumeKey> {
        state.take_abandoned(Duration::from_secs(now), |_| true)
    }

    #[test]
    fn volume_that_is_staged_as_its_last_pod_goes_is_in_use() {
        let mut state = State::default();
        state.add_user(key(), user("a"), true);
        state.remove_users("a", &BTreeSet::new());
        state.staging_begins(&key());
        assert_eq!(state.in_use(), ["kubernetes.io/csi/d^v"]);
        assert_eq!(abandoned(&mut state, 0), [key()]);
    }

    #[test]
    fn volume_is_in_use_until_it_is_taken_away_after_its_last_pod() {
        let (mut state, none) = (State::default(), BTreeSet::new());
        state.add_user(key(), user("a"), true);
        assert_eq!(state.in_use(), ["kubernetes.io/csi/d^v"], "before it is attached");
        assert!(!state.has_other_user(&key(), "a") && state.has_other_user(&key(), "b"));
        state.add_user(key(), user("b"), true);
        state.staging_begins(&key());
        state.staged(&key());
        state.remove_users("a", &none);
        assert_eq!(abandoned(&mut state, 0), []);
        state.remove_users("b", &["pv".to_owned()].into());
        assert!(!state.is_abandoned(&key()), "it did not come off");
        state.remove_users("b", &none);
        assert!(
            state.take_abandoned(Duration::ZERO, |_| false).is_empty(),
            "without its driver"
        );
        assert_eq!(abandoned(&mut state, 0), [key()]);
        assert_eq!(abandoned(&mut state, 0), [], "it is being taken away");
        assert_eq!(state.in_use().len(), 1);
        state.not_staged(&key());
        state.tried(&key(), true, Duration::ZERO);
        assert!(state.in_use().is_empty() && state.volumes.is_empty());
    }

    #[test]
    fn volume_that_does_not_come_off_is_tried_less_and_less_often() {
        let mut state = State::default();
        state.found_staged(key());
        let mut now = Duration::ZERO;
        let mut pauses = Vec::new();
        for _ in 0..10 {
            assert_eq!(state.take_abandoned(now, |_| true), [key()]);
            state.tried(&key(), false, now);
            let next = state.next_retry(|_| true).unwrap();
            assert_eq!(
                state.take_abandoned(next - Duration::from_millis(1), |_| true),
                []
            );
            pauses.push((next - now).as_millis());
            now = next;
        }
        assert_eq!(pauses[..3], [500, 1_000, 2_000]);
        assert_eq!(pauses[8..], [122_000, 122_000]);
    }

    #[test]
    fn volume_that_was_perhaps_taken_away_is_staged_again_for_the_next_pod() {
        let mut state = State::default();
        state.add_user(key(), user("a"), true);
        state.staging_begins(&key());
        state.staged(&key());
        state.remove_users("a", &BTreeSet::new());
        assert_eq!(abandoned(&mut state, 0), [key()]);
        state.staging_begins(&key());
        state.tried(&key(), false, Duration::ZERO);
        assert!(!state.is_staged(&key()) && state.is_abandoned(&key()) && state.is_begun(&key()));
    }

    #[test]
    fn volume_without_attachment_is_not_the_controllers() {
        let mut state = State::default();
        state.add_user(key(), user("a"), false);
        assert!(state.in_use().is_empty());
        state.remove_users("a", &BTreeSet::new());
        assert!(state.volumes.is_empty());
    }
}
