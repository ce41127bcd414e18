//! Number of watches that a change concerns: each of them is sent an event.

use apiserver_endpoints::RequestInfo;
use machinery_meta::FieldSelector;
use parking_lot::Mutex;
use std::collections::HashMap;
use std::sync::Arc;

/// Watches of pods of one node receive few changes.
const INDEXED: (&str, &str) = ("pods", "spec.nodeName");

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Watched {
    group: String,
    resource: String,
    namespace: String,
    name: String,
}

/// See the module.
#[derive(Debug, Default)]
pub(crate) struct WatchTracker(Mutex<HashMap<Watched, usize>>);

/// A watch that goes on.
#[derive(Debug)]
pub(crate) struct TrackedWatch(Option<(Arc<WatchTracker>, Watched)>);

impl WatchTracker {
    pub(crate) fn track(self: &Arc<Self>, info: &RequestInfo) -> TrackedWatch {
        if is_of_one_index(info) {
            return TrackedWatch(None);
        }
        let watched = Watched {
            group: info.api_group.clone(),
            resource: info.resource.clone(),
            namespace: info.namespace.clone(),
            name: info.name.clone(),
        };
        *self.0.lock().entry(watched.clone()).or_default() += 1;
        TrackedWatch(Some((Arc::clone(self), watched)))
    }

    /// Watches that receive this change.
    pub(crate) fn interested_in(&self, info: &RequestInfo) -> usize {
        let counts = self.0.lock();
        if counts.is_empty() {
            return 0;
        }
        let mut watched = Watched {
            group: info.api_group.clone(),
            resource: info.resource.clone(),
            namespace: String::new(),
            name: String::new(),
        };
        let count = |watched: &Watched| counts.get(watched).copied().unwrap_or(0);
        let mut found = count(&watched);
        if !info.namespace.is_empty() {
            watched.namespace.clone_from(&info.namespace);
            found += count(&watched);
        }
        if !info.name.is_empty() {
            watched.name.clone_from(&info.name);
            found += count(&watched);
        }
        found
    }
}

fn is_of_one_index(info: &RequestInfo) -> bool {
    let (resource, field) = INDEXED;
    if info.resource != resource || !info.field_selector.contains(field) {
        return false;
    }
    let selector = FieldSelector::parse(&info.field_selector);
    selector.is_ok_and(|selector| selector.required(field).is_some_and(|value| !value.is_empty()))
}

impl Drop for TrackedWatch {
    fn drop(&mut self) {
        let Some((tracker, watched)) = self.0.take() else {
            return;
        };
        let mut counts = tracker.0.lock();
        if let Some(count) = counts.get_mut(&watched) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&watched);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{Method, Uri};

    fn info(method: Method, path: &'static str) -> RequestInfo {
        RequestInfo::parse(&method, &Uri::from_static(path)).unwrap()
    }

    /// Cases of upstream's `watch_tracker_test.go`.
    #[test]
    fn watch_tracker_counts_those_that_are_interested() {
        let tracker = Arc::new(WatchTracker::default());
        let watches: Vec<_> = [
            "/api/v1/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true",
            "/api/v1/namespaces/foo/pods?watch=true&fieldSelector=metadata.name%3Dmypod",
            "/api/v1/namespaces/bar/pods?watch=true",
            "/apis/group/v1/namespaces/foo/pods?watch=true",
            "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3Dn",
            "/api/v1/pods?watch=true&fieldSelector=spec.nodeName%3D",
        ]
        .into_iter()
        .map(|path| tracker.track(&info(Method::GET, path)))
        .collect();
        let count = |path| tracker.interested_in(&info(Method::PUT, path));
        assert_eq!(count("/api/v1/namespaces/foo/pods/mypod"), 4);
        assert_eq!(count("/api/v1/namespaces/foo/pods/other"), 3);
        assert_eq!(count("/api/v1/namespaces/bar/pods/x"), 3);
        assert_eq!(count("/apis/group/v1/namespaces/foo/pods/x"), 1);
        assert_eq!(count("/api/v1/namespaces/foo/configmaps/x"), 0);
        drop(watches);
        assert!(tracker.0.lock().is_empty());
    }
}
