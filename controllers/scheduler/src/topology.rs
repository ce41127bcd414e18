//! One topology key over all nodes: small numbers in place of label values.

use crate::node_id::NodeId;
use crate::sparse_column::SparseColumn;
use std::collections::HashMap;

/// Values of one label of nodes. It takes memory for the nodes that have the label.
#[derive(Debug, Default)]
pub struct Topology {
    /// Number of a value, and how many nodes have it.
    values: HashMap<Box<str>, (u32, u32)>,
    /// Value by number; those that no node has are used again.
    names: Vec<Box<str>>,
    free: Vec<u32>,
    /// One more than the value's number.
    of_node: SparseColumn,
    pub(crate) last_used: u64,
}

impl Topology {
    /// Numbers are below it.
    pub fn value_count(&self) -> usize {
        self.names.len()
    }

    /// The number of the node's value; `None` where the node lacks the label.
    pub fn value(&self, node: NodeId) -> Option<usize> {
        (self.of_node.get(node) as usize).checked_sub(1)
    }

    pub(crate) fn set(&mut self, node: NodeId, value: Option<&str>) {
        let before = self.value(node);
        if before.map(|number| &*self.names[number]) == value {
            return;
        }
        if let Some(number) = before {
            self.leave(number);
        }
        let number = value.map_or(0, |value| self.enter(value) + 1);
        self.of_node.set(node, number);
    }

    fn enter(&mut self, value: &str) -> u32 {
        if let Some((number, nodes)) = self.values.get_mut(value) {
            *nodes += 1;
            return *number;
        }
        let number = self.free.pop().unwrap_or_else(|| {
            self.names.push(Box::default());
            u32::try_from(self.names.len() - 1).unwrap_or(u32::MAX - 1)
        });
        self.names[number as usize] = value.into();
        self.values.insert(value.into(), (number, 1));
        number
    }

    fn leave(&mut self, number: usize) {
        let Some((own, nodes)) = self.values.get_mut(&self.names[number]) else {
            return;
        };
        *nodes -= 1;
        if *nodes == 0 {
            self.free.push(*own);
            let name = std::mem::take(&mut self.names[number]);
            self.values.remove(&name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topology_forgets_values_that_no_node_has() {
        let mut topology = Topology::default();
        topology.set(1, Some("kept"));
        for number in 0..100 {
            topology.set(0, Some(&format!("v{number}")));
        }
        assert_eq!(topology.value_count(), 2);
        assert_ne!(topology.value(0), topology.value(1));
        topology.set(0, Some("kept"));
        assert_eq!(topology.value(0), topology.value(1));
        topology.set(1, None);
        assert_eq!((topology.value(1), topology.values.len()), (None, 1));
    }
}
