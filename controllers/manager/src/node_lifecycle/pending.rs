//! Evictions that wait for the time that tolerations grant. Pure.
//!
//! The clock of a pod starts when it is first seen on a tainted node: taints need not say when they were added, and a
//! pod may come after them. It runs on, whatever taints come and go, until the pod may stay.

use machinery_meta::Uid;
use machinery_semantics::taints::TolerationWindow;
use std::time::Duration;

/// An eviction whose time has not come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) uid: Uid,
    /// Time at which the pod was first seen on a tainted node, by the controller's own clock.
    since: Duration,
    /// Time at which it goes.
    at: Duration,
}

/// The next step with a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It may stay.
    Stay,
    /// It may stay after all.
    Cancelled,
    /// It goes in so long.
    Wait(Duration),
    /// It goes.
    Evict,
}

impl Pending {
    /// Time for which it has been due.
    pub(super) fn late(&self, now: Duration) -> Duration {
        now.saturating_sub(self.at)
    }

    /// The next step with a pod whose tolerations grant this much, and its eviction where one is pending now. Of the
    /// time that was pending and the one that is granted the earlier counts.
    pub(super) fn look(
        known: Option<Self>,
        uid: &Uid,
        window: TolerationWindow,
        now: Duration,
    ) -> (Next, Option<Self>) {
        let granted = match window {
            TolerationWindow::Unlimited if known.is_some() => return (Next::Cancelled, None),
            TolerationWindow::Unlimited => return (Next::Stay, None),
            TolerationWindow::None => return (Next::Evict, known),
            TolerationWindow::Seconds(seconds) => {
                Duration::from_secs(u64::try_from(seconds).unwrap_or_default())
            }
        };
        let since = known.as_ref().map_or(now, |own| own.since);
        let at = since.saturating_add(granted);
        let at = known.as_ref().map_or(at, |own| own.at.min(at));
        let pending = Self {
            uid: uid.clone(),
            since,
            at,
        };
        let next = match at.checked_sub(now) {
            Some(left) if !left.is_zero() => Next::Wait(left),
            _ => Next::Evict,
        };
        (next, Some(pending))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::core::v1::{Taint, Toleration};
    use machinery_semantics::taints::{NO_EXECUTE, toleration_window};
    use serde::Deserialize;

    /// Looks at one pod in turn: the time, its tolerations and its node's taints then, and the next step.
    #[derive(Deserialize)]
    struct Row {
        name: String,
        looks: Vec<Look>,
    }

    #[derive(Deserialize)]
    struct Look {
        at: u64,
        taints: Vec<String>,
        /// A key and the seconds for it, where they are limited.
        tolerated: Vec<(String, Option<i64>)>,
        next: String,
    }

    fn window(look: &Look) -> TolerationWindow {
        let taints = look.taints.iter().map(|key| Taint {
            key: key.clone(),
            effect: NO_EXECUTE.to_owned(),
            value: None,
            time_added: None,
        });
        let tolerated = look.tolerated.iter().map(|(key, seconds)| Toleration {
            key: Some(key.clone()),
            operator: Some("Exists".to_owned()),
            toleration_seconds: *seconds,
            ..Toleration::default()
        });
        let (taints, tolerated) = (taints.collect::<Vec<_>>(), tolerated.collect::<Vec<_>>());
        toleration_window(&taints, &tolerated)
    }

    #[test]
    fn evictions_wait_from_the_first_sight() {
        let rows: Vec<Row> =
            serde_json::from_str(include_str!("../../testdata/taint_eviction.json")).unwrap();
        for row in rows {
            let mut pending = None;
            for look in &row.looks {
                let now = Duration::from_secs(look.at);
                let uid = Uid("u".to_owned());
                let (next, left) = Pending::look(pending.take(), &uid, window(look), now);
                let next = match next {
                    Next::Wait(left) => format!("wait {}", left.as_secs()),
                    other => format!("{other:?}").to_lowercase(),
                };
                assert_eq!(next, look.next, "{} at {}", row.name, look.at);
                pending = left;
            }
        }
    }
}
