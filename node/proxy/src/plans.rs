//! Elements and flows of all services, each within the share of its namespace.

use crate::elements::{Delta, Elements};
use crate::flows::Flows;
use crate::rules::{NodeFacts, planned};
use crate::shares::RuleShares;
use machinery_semantics::shares::Part;
use machinery_views::{Service, Slice};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Work for changed services.
#[derive(Debug, Default)]
pub(crate) struct Work {
    pub(crate) delta: Delta,
    pub(crate) flows: Flows,
}

/// Planned state of the kernel.
#[derive(Debug)]
pub(crate) struct Plans {
    elements: Elements,
    /// Allowed targets of UDP flows, by service.
    flows: BTreeMap<Arc<str>, Flows>,
    shares: RuleShares,
}

impl Plans {
    pub(crate) fn new(shares: RuleShares) -> Self {
        Self {
            elements: Elements::default(),
            flows: BTreeMap::new(),
            shares,
        }
    }

    /// A service is this one now, with these slices; adds to `work` what that changes, and returns the number of its elements.
    pub(crate) fn set<'a>(
        &mut self,
        service: &Arc<str>,
        object: &Service,
        slices: impl Iterator<Item = &'a Slice> + Clone,
        here: NodeFacts<'_>,
        work: &mut Work,
    ) -> usize {
        let before = self.elements.of(service);
        let room = self.shares.room(service, before.len());
        let plan = planned(object, slices.clone(), here, &before, room);
        let part = Part {
            has: plan.elements.len(),
            needs: plan.needs,
        };
        self.elements.set(service, &plan.elements, &mut work.delta);
        self.shares.set(service, before.len(), part);
        let flows = Flows::of(object, slices, part.has);
        let before = self.flows.remove(service).unwrap_or_default();
        work.flows.append(Flows::changed(&before, &flows));
        if !flows.is_empty() {
            self.flows.insert(Arc::clone(service), flows);
        }
        part.has
    }

    /// Services that may have more than they have, as others have less now.
    pub(crate) fn due(&self) -> Vec<Box<str>> {
        self.shares.due()
    }

    pub(crate) fn is_due(&self, service: &str) -> bool {
        self.shares.is_due(service)
    }

    pub(crate) fn elements(&self) -> &Elements {
        &self.elements
    }

    pub(crate) fn flows(&self) -> impl Iterator<Item = &Flows> {
        self.flows.values()
    }
}
