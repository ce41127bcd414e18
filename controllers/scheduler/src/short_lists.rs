//! Comparisons of a pod with a node outside of attempts: of short lists alone, since nothing is charged for them.

use crate::node_state::NodeState;
use crate::object::Taint;
use crate::pod::Shape;
use crate::selector::node_selector_matches;

/// Items of a list that are compared.
pub(crate) const FEW: usize = 16;
/// A number that a list kept as JSON has at most where few items are in it; see `LongList::most_items`.
const FEW_BY_LENGTH: usize = 64;

impl Shape {
    /// Reports whether the pod's node selector and required node affinity admit the node; `None` where they are long.
    pub(crate) fn admits_if_short(&self, node: &NodeState) -> Option<bool> {
        if self.node_affinity.json_bytes().is_some() || self.node_selector.len() > FEW {
            return None;
        }
        let mut selector = self.node_selector.iter();
        let affinity = self.node_affinity.get();
        let required = affinity.required.as_ref();
        let admits = selector.all(|(key, value)| node.labels.get(key) == Some(value))
            && required.is_none_or(|own| node_selector_matches(own, &node.name, &node.labels));
        Some(admits)
    }

    /// Reports whether the pod tolerates all of these taints; `None` where its tolerations are many.
    pub(crate) fn tolerates_if_short<'a>(&self, mut taints: impl Iterator<Item = &'a Taint>) -> Option<bool> {
        if self.tolerations.most_items() > FEW_BY_LENGTH {
            return None;
        }
        let tolerations = self.tolerations.items();
        Some(taints.all(|taint| tolerations.iter().any(|own| own.tolerates(taint))))
    }

    /// Reports whether the pod tolerates the taints of the node that keep pods away; `None` where its tolerations are many.
    pub(crate) fn may_enter_if_short(&self, node: &NodeState) -> Option<bool> {
        self.tolerates_if_short(node.taints.iter().filter(|taint| taint.forbids_scheduling()))
    }
}
