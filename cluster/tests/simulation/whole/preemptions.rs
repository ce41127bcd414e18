//! Preemptions for the one urgent pod that there is at a time: it has others go once, and then waits for them.

use super::LAG;
use super::user::is_urgent;
use crate::model::{Change, ObjectVersion, ReferenceModel};
use machinery_meta::Uid;
use std::collections::BTreeMap;
use std::time::Duration;

/// Pods that go for the urgent pod, and when nodes were last closed to it.
#[derive(Default)]
pub(super) struct Preemptions {
    preemptor: Option<Uid>,
    victims: BTreeMap<Uid, String>,
    closed: BTreeMap<String, Duration>,
}

fn is_preempted(pod: &ObjectVersion) -> bool {
    let conditions = pod.list("/status/conditions");
    conditions
        .iter()
        .any(|own| own["reason"] == "PreemptionByScheduler" && own["status"] == "True")
}

/// Reports whether the node takes the urgent pod, as far as the node itself goes.
fn is_open(node: &ObjectVersion) -> bool {
    let taints = node.list("/spec/taints");
    let closed = taints.iter().any(|taint| taint["effect"] != "PreferNoSchedule");
    !closed && node.at("/spec/unschedulable") != Some(&true.into())
}

impl Preemptions {
    pub(super) fn check(
        &mut self,
        model: &ReferenceModel,
        change: &Change,
        now: Duration,
    ) -> Result<(), String> {
        let latest = change.latest();
        let is_gone = change.after.is_none();
        match latest.kind.as_str() {
            "Node" if is_gone || !is_open(latest) => {
                self.closed.insert(latest.name().to_owned(), now);
            }
            "Pod" if is_gone || latest.is_ended_pod() => {
                self.victims.remove(&latest.uid);
            }
            "Pod" if is_preempted(latest) => {
                let was_preempted = change.before.as_ref().is_some_and(|own| is_preempted(own));
                if !was_preempted {
                    return self.note(model, latest, now);
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// A pod goes. It goes for the urgent pod where that is nominated to its node, which is written before.
    fn note(&mut self, model: &ReferenceModel, victim: &ObjectVersion, now: Duration) -> Result<(), String> {
        if is_urgent(victim) {
            return Err("the most important pod goes".to_owned());
        }
        let node = victim.text("/spec/nodeName");
        let is_preemptor = |pod: &&ObjectVersion| pod.text("/status/nominatedNodeName") == node;
        let urgent = model.all("Pod").map(|pod| &**pod).find(|pod| is_urgent(pod));
        let Some(urgent) = urgent.filter(is_preemptor) else {
            return Ok(());
        };
        if self.preemptor.as_ref() != Some(&urgent.uid) {
            self.preemptor = Some(urgent.uid.clone());
            self.victims.clear();
        }
        let mut others = self.victims.values().filter(|other| *other != node);
        // Where a node does not take the pod any more, room is made on another one, as upstream has it.
        if let Some(other) = others.find(|other| self.stays_open(model, other, now)) {
            let key = &urgent.key;
            return Err(format!(
                "goes for {key}, whose victims on {other} are still going"
            ));
        }
        self.victims.retain(|_, other| other == node);
        self.victims.insert(victim.uid.clone(), node.to_owned());
        Ok(())
    }

    /// Reports whether the node has been open for as long as the scheduler may be behind.
    fn stays_open(&self, model: &ReferenceModel, node: &str, now: Duration) -> bool {
        let last_closed = self.closed.get(node).map(|at| *at + LAG);
        model.get("Node", "", node).is_some_and(|node| is_open(node))
            && last_closed.is_none_or(|end| end < now)
    }
}
