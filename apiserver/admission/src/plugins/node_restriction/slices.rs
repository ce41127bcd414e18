//! ResourceSlices: with the node's name, in pools that no one else has.

use super::{NodeRequest, NodeRestriction, Verdict, refuse};
use crate::{AdmissionError, Operation};
use machinery_meta::field_selector::{FieldSelector, Term};
use machinery_meta::{GroupResource, Predicate};
use machinery_schema::Tree;

impl NodeRestriction {
    /// Updates are the authorizer's: it knows the stored slice, whose node, driver and pool no update changes.
    pub(super) async fn resource_slice(&self, asked: NodeRequest<'_>) -> Verdict {
        let (slice, verb) = match asked.request.operation {
            Operation::Create => (asked.object, "create"),
            Operation::Delete => (asked.old, "delete"),
            _ => return Ok(()),
        };
        let own = slice.filter(|slice| slice.str_at(&["spec", "nodeName"]) == asked.node);
        let Some(own) = own else {
            return refuse(format!(
                "can only {verb} ResourceSlice with the same NodeName as the requesting node"
            ));
        };
        match asked.request.operation {
            Operation::Create => self.own_pool(asked.node, own).await,
            _ => Ok(()),
        }
    }

    /// Slices of one driver and pool are read together: by a generation or a device of its own a node would decide on the
    /// devices of others. Upstream's plugin looks at `nodeName` alone (decision 0126).
    async fn own_pool(&self, node: &str, slice: &Tree) -> Verdict {
        let (driver, pool) = (
            slice.str_at(&["spec", "driver"]),
            slice.str_at(&["spec", "pool", "name"]),
        );
        let refused = |why: &str| {
            refuse(format!(
                "can only create ResourceSlice in a pool of the requesting node: {why}"
            ))
        };
        if pool != node && self.stored("", "nodes", "Node", "", pool).await?.is_some() {
            return refused(&format!("{pool:?} is the name of another node"));
        }
        if self.is_pool_of_others(node, driver, pool).await? {
            return refused(&format!(
                "pool {pool:?} of driver {driver:?} has slices that are not of node {node:?}"
            ));
        }
        Ok(())
    }

    /// Compares the headers of all slices; none is copied.
    async fn is_pool_of_others(&self, node: &str, driver: &str, pool: &str) -> Result<bool, AdmissionError> {
        let term = |field: &str, value: &str, equal| Term {
            field: field.to_owned(),
            value: value.to_owned(),
            equal,
        };
        let fields = FieldSelector::from_terms(vec![
            term("spec.driver", driver, true),
            term("spec.pool.name", pool, true),
            term("spec.nodeName", node, false),
        ]);
        let fields = fields.expect("three terms are fewer than the bound");
        let slices = GroupResource::new("resource.k8s.io", "resourceslices");
        let others = self
            .reader
            .versions(&slices, "", &Predicate::from(fields))
            .await?;
        Ok(!others.is_empty())
    }
}
