//! Pods leave tainted nodes at their time: not before they tolerated the taint for as long as they do, and not much later.

use super::LAG;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use machinery_meta::Uid;
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

const UNREACHABLE: &str = "node.kubernetes.io/unreachable";
const MANAGER: &str = "kube-controller-manager";

#[derive(Default)]
pub(super) struct Evictions {
    /// First and last times at which nodes had a taint that evicts, in one spell: what comes back within [`LAG`] the controller
    /// may not have seen going.
    tainted: BTreeMap<String, (Duration, Duration)>,
    /// Times at which pods were bound.
    bound: BTreeMap<Uid, Duration>,
    /// The newest leader of the controllers counts from its own beginning.
    led_since: Duration,
}

fn evicts(node: &ObjectVersion) -> bool {
    node.list("/spec/taints")
        .iter()
        .any(|taint| taint["effect"] == "NoExecute")
}

fn is_marked(pod: &ObjectVersion) -> bool {
    let conditions = pod.list("/status/conditions");
    conditions
        .iter()
        .any(|own| own["reason"] == "DeletionByTaintManager" && own["status"] == "True")
}

/// Time for which a pod stays on a node that is lost; `None` is for ever.
fn tolerated(pod: &ObjectVersion) -> Option<Duration> {
    let lost = |own: &&Value| own["key"] == UNREACHABLE && own["effect"] != "NoSchedule";
    let granted = pod.list("/spec/tolerations").iter().filter(lost);
    let granted = granted.map(|own| own["tolerationSeconds"].as_u64());
    granted.min().unwrap_or(Some(0)).map(Duration::from_secs)
}

impl Evictions {
    pub(super) fn check(&mut self, change: &Change, now: Duration) -> Result<(), String> {
        let Some(own) = &change.after else { return Ok(()) };
        let before = change.before.as_ref();
        match own.kind.as_str() {
            "Node" => self.note_node(own, now),
            "Lease" if own.name() == MANAGER => {
                let acquired = |lease: &ObjectVersion| {
                    (
                        lease.text("/spec/holderIdentity").to_owned(),
                        lease.text("/spec/acquireTime").to_owned(),
                    )
                };
                if before.is_none_or(|before| acquired(before) != acquired(own)) {
                    self.led_since = now;
                }
            }
            "Pod" => {
                if !own.text("/spec/nodeName").is_empty() {
                    self.bound.entry(own.uid.clone()).or_insert(now);
                }
                if is_marked(own) && before.is_some_and(|before| !is_marked(before)) {
                    return self.check_time(own, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// Components began at this time, and know no earlier one.
    pub(super) fn begun(&mut self, at: Duration) {
        self.led_since = self.led_since.max(at);
    }

    fn note_node(&mut self, node: &ObjectVersion, now: Duration) {
        if !evicts(node) {
            return;
        }
        let spell = self.tainted.entry(node.name().to_owned()).or_insert((now, now));
        if now - spell.1 > LAG {
            spell.0 = now;
        }
        spell.1 = now;
    }

    fn check_time(&self, pod: &ObjectVersion, now: Duration) -> Result<(), String> {
        let Some(tolerated) = tolerated(pod) else {
            return Err("it was to stay for ever".to_owned());
        };
        let Some((since, _)) = self.tainted.get(pod.text("/spec/nodeName")) else {
            return Err("its node was never tainted".to_owned());
        };
        let since = self
            .bound
            .get(&pod.uid)
            .map_or(*since, |bound| (*bound).max(*since));
        match now.saturating_sub(since) + Duration::from_secs(1) < tolerated {
            true => Err(format!("evicted after {:?}", now - since)),
            false => Ok(()),
        }
    }

    /// No pod is late: each stays no longer than it tolerates, its leader may know, and one request may take.
    pub(super) fn check_late(&mut self, model: &ReferenceModel, now: Duration) -> Result<(), String> {
        for node in model.all("Node") {
            // A taint that goes on is of the same spell.
            self.note_node(node, now);
        }
        for pod in model.all("Pod").filter(|pod| pod.is_active_pod()) {
            let Some(tolerated) = tolerated(pod) else { continue };
            let node = pod.text("/spec/nodeName");
            let is_tainted = model.get("Node", "", node).is_some_and(|node| evicts(node));
            let Some((since, _)) = self.tainted.get(node).filter(|_| is_tainted) else {
                continue;
            };
            let bound = self.bound.get(&pod.uid).copied().unwrap_or(now);
            let since = (*since).max(bound).max(self.led_since);
            if now.saturating_sub(since) > tolerated + LAG {
                return Err(format!("{} is still on {node} after {:?}", pod.key, now - since));
            }
        }
        Ok(())
    }
}
