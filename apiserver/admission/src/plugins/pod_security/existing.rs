//! Pods that are there already when their namespace enforces more: its writer is warned of those that would not be admitted.
//!
//! Pods of one controller are alike, so that the first of each controller is looked at before all others; a count and a time
//! bound the work. One pod is in memory at a time. Exempt pods beyond the bounds are counted as existing ones, where
//! upstream reads all pods to leave them out.

use super::{Clock, Configuration};
use crate::Request;
use crate::plugins::objects::find;
use k8s_openapi::api::core::v1::Pod as ApiPod;
use machinery_meta::reader::{ObjectReader, ReadObject};
use machinery_meta::{GroupResource, ObjectKey, Predicate, Uid};
use machinery_pod_security::{LevelVersion, Pod, evaluate};
use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

/// Upstream's bounds.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bounds {
    pub(super) pods: usize,
    pub(super) time: Duration,
}

pub(super) const BOUNDS: Bounds = Bounds {
    pods: 3_000,
    time: Duration::from_secs(1),
};

/// Bytes of a usual pod, for the weight of the work.
const POD_BYTES: usize = 4 << 10;

/// See the module.
pub(super) struct ExistingPods<'a> {
    pub(super) reader: &'a dyn ObjectReader,
    pub(super) configuration: &'a Configuration,
    pub(super) clock: &'a Clock,
    pub(super) bounds: Bounds,
    pub(super) namespace: &'a str,
    pub(super) enforce: LevelVersion,
}

/// Pods with the same reasons.
#[derive(Debug)]
struct Alike {
    /// The first by name.
    first: String,
    count: usize,
}

/// The outcome of a look, and how far it came.
#[derive(Debug, Default)]
struct Found {
    total: usize,
    checked: usize,
    by_reasons: BTreeMap<String, Alike>,
}

/// A pod that was read.
enum Seen {
    Checked,
    /// Another of a controller.
    Later,
    /// It is exempt, or gone.
    Uncounted,
}

impl ExistingPods<'_> {
    /// The warnings, in upstream's order.
    pub(super) async fn warnings(&self, request: &Request<'_>) -> Vec<String> {
        match self.look(request).await {
            Some(found) => self.warnings_of(found),
            None => vec!["failed to list pods while checking new PodSecurity enforce level".to_owned()],
        }
    }

    /// No more than half of the time that the request has left.
    fn deadline(&self, request: &Request<'_>) -> Duration {
        let half = request.remarks.time_left().map(|left| left / 2);
        (self.clock)() + half.map_or(self.bounds.time, |half| half.min(self.bounds.time))
    }

    /// Returns nothing where the pods could not be listed in time.
    async fn look(&self, request: &Request<'_>) -> Option<Found> {
        let deadline = self.deadline(request);
        let pods = GroupResource::new("", "pods");
        let listed = self
            .reader
            .versions(&pods, self.namespace, &Predicate::default())
            .await;
        let keys: Vec<ObjectKey> = listed.ok()?.into_iter().map(|(key, _)| key).collect();
        request.remarks.heavy_from(keys.len() * POD_BYTES).await.ok()?;
        if (self.clock)() > deadline {
            return None;
        }
        let mut found = Found {
            total: keys.len(),
            ..Found::default()
        };
        let mut controllers = HashSet::new();
        let later = self
            .pass(&keys, deadline, &mut found, Some(&mut controllers))
            .await?;
        self.pass(&later, deadline, &mut found, None).await?;
        Some(found)
    }

    /// Looks at pods until a bound is reached; with a set of controllers at the first of each, and returns the others.
    async fn pass(
        &self,
        keys: &[ObjectKey],
        deadline: Duration,
        found: &mut Found,
        mut controllers: Option<&mut HashSet<Uid>>,
    ) -> Option<Vec<ObjectKey>> {
        let mut later = Vec::new();
        for key in keys {
            if found.checked >= self.bounds.pods || (found.checked > 0 && (self.clock)() > deadline) {
                break;
            }
            let pod = find(self.reader, "", "pods", &key.namespace, &key.name)
                .await
                .ok()?;
            match self.see(pod.as_ref(), found, controllers.as_deref_mut()) {
                Seen::Checked => found.checked += 1,
                Seen::Later => later.push(key.clone()),
                Seen::Uncounted => found.total -= 1,
            }
        }
        Some(later)
    }

    fn see(
        &self,
        pod: Option<&ReadObject>,
        found: &mut Found,
        controllers: Option<&mut HashSet<Uid>>,
    ) -> Seen {
        let Some(read) = pod else { return Seen::Uncounted };
        // A stored pod can be read; one that cannot has nothing to be warned of.
        let Ok(pod) = serde_json::from_slice::<ApiPod>(&read.json) else {
            return Seen::Uncounted;
        };
        let spec = pod.spec.unwrap_or_default();
        if self.configuration.exempts_runtime_class(&spec) {
            return Seen::Uncounted;
        }
        if let (Some(controllers), Some(owner)) = (controllers, read.header.controller())
            && !controllers.insert(owner.uid.clone())
        {
            return Seen::Later;
        }
        let annotations = pod.metadata.annotations.as_ref();
        let violations = evaluate(
            self.enforce,
            &Pod {
                annotations,
                spec: &spec,
            },
        );
        if !violations.is_empty() {
            found.add(violations.reasons(), &read.header.key.name);
        }
        Seen::Checked
    }

    fn warnings_of(&self, found: Found) -> Vec<String> {
        let Found {
            total,
            checked,
            by_reasons,
        } = found;
        let cut = format!(
            "new PodSecurity enforce level only checked against the first {checked} of {total} existing pods"
        );
        let (namespace, enforce) = (self.namespace, self.enforce);
        let head = format!(
            "existing pods in namespace {namespace:?} violate the new PodSecurity enforce level \"{enforce}\""
        );
        let cut = (checked < total).then_some(cut);
        let head = (!by_reasons.is_empty()).then_some(head);
        let mut of_pods: Vec<String> = by_reasons
            .into_iter()
            .map(|(reasons, alike)| alike.warning(&reasons))
            .collect();
        of_pods.sort();
        cut.into_iter().chain(head).chain(of_pods).collect()
    }
}

impl Found {
    fn add(&mut self, reasons: String, name: &str) {
        let alike = self.by_reasons.entry(reasons).or_insert_with(|| Alike {
            first: name.to_owned(),
            count: 0,
        });
        alike.count += 1;
        if *name < *alike.first {
            alike.first = name.to_owned();
        }
    }
}

impl Alike {
    fn warning(&self, reasons: &str) -> String {
        let first = &self.first;
        match self.count {
            0 | 1 => format!("{first}: {reasons}"),
            2 => format!("{first} (and 1 other pod): {reasons}"),
            count => format!("{first} (and {} other pods): {reasons}", count - 1),
        }
    }
}
