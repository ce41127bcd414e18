//! Turns of connects to ports of pods: each takes a socket, and a thread for the moment in which it is made, and may last as
//! long as a port does not answer.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Connects at once of one client's connection.
const OF_CONNECTION_MAX: usize = 16;
/// Connects at once to one pod.
const OF_POD_MAX: usize = 64;
/// Connects at once to all of them.
const MAX: usize = 1024;

/// Turns of all pods.
#[derive(Debug)]
pub(super) struct AllConnects(Arc<Semaphore>);

/// Turns of one pod.
#[derive(Debug, Clone)]
pub(super) struct PodConnects {
    pod: Arc<Semaphore>,
    all: Arc<Semaphore>,
}

/// Turns of one client's connection.
#[derive(Debug, Clone)]
pub(super) struct Connects {
    own: Arc<Semaphore>,
    pod: PodConnects,
}

/// A connect under way.
#[derive(Debug)]
pub(super) struct Turn {
    _held: [Option<OwnedSemaphorePermit>; 3],
}

impl Default for AllConnects {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(MAX)))
    }
}

impl AllConnects {
    /// The turns of one more pod.
    pub(super) fn of_pod(&self) -> PodConnects {
        PodConnects {
            pod: Arc::new(Semaphore::new(OF_POD_MAX)),
            all: Arc::clone(&self.0),
        }
    }
}

impl PodConnects {
    /// The turns of one more connection.
    pub(super) fn of_connection(self) -> Connects {
        let own = Arc::new(Semaphore::new(OF_CONNECTION_MAX));
        Connects { own, pod: self }
    }
}

impl Connects {
    /// Waits for a turn: that of the connection first, so that a client with many waits among its own.
    pub(super) async fn turn(&self) -> Turn {
        let own = Arc::clone(&self.own).acquire_owned().await;
        let pod = Arc::clone(&self.pod.pod).acquire_owned().await;
        let all = Arc::clone(&self.pod.all).acquire_owned().await;
        // None of them is ever closed.
        Turn {
            _held: [own.ok(), pod.ok(), all.ok()],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;

    fn turns(of: &Connects) -> Vec<Turn> {
        std::iter::from_fn(|| of.turn().now_or_never()).collect()
    }

    #[test]
    fn connects_at_once_are_bounded_by_connection_pod_and_in_all() {
        let all = AllConnects::default();
        let pod = all.of_pod();
        let first = turns(&pod.clone().of_connection());
        assert_eq!(first.len(), OF_CONNECTION_MAX);
        let mut held = vec![first];
        held.extend((0..9).map(|_| turns(&pod.clone().of_connection())));
        assert_eq!(held.iter().map(Vec::len).sum::<usize>(), OF_POD_MAX);
        let other = turns(&all.of_pod().of_connection());
        assert_eq!(other.len(), OF_CONNECTION_MAX);
        let others: Vec<_> = (0..200).map(|_| turns(&all.of_pod().of_connection())).collect();
        let in_all = OF_POD_MAX + OF_CONNECTION_MAX + others.iter().map(Vec::len).sum::<usize>();
        assert_eq!(in_all, MAX);
        drop(held);
        assert_eq!(turns(&pod.of_connection()).len(), OF_CONNECTION_MAX);
    }
}
