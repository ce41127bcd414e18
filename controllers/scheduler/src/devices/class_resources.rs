//! Extended resources and the classes of devices that serve them.

use super::objects::DeviceClass;
use crate::extended_requests::CLASS_PREFIX;
use jiff::Timestamp;
use std::cmp::Reverse;
use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;

/// The newest class first, and of those made at the same time the one that sorts first.
type Rank = (Reverse<Option<Timestamp>>, Box<str>);

/// Classes by name, and by the resource that they say to serve.
#[derive(Debug, Default)]
pub(crate) struct Classes {
    by_name: HashMap<Box<str>, Arc<DeviceClass>>,
    by_resource: HashMap<Box<str>, BTreeSet<Rank>>,
}

impl Classes {
    pub(crate) fn get(&self, name: &str) -> Option<&Arc<DeviceClass>> {
        self.by_name.get(name)
    }

    /// The class that serves an extended resource. Several may say so while one takes over from another.
    pub(crate) fn of_resource(&self, resource: &str) -> Option<&str> {
        if let Some(name) = resource.strip_prefix(CLASS_PREFIX) {
            return self.by_name.get_key_value(name).map(|(name, _)| &**name);
        }
        let (_, name) = self.by_resource.get(resource)?.first()?;
        Some(name)
    }

    /// A class changed; `None` when it is gone. Returns the resources that another class serves now, or none any more.
    pub(crate) fn set(&mut self, name: &str, class: Option<Arc<DeviceClass>>) -> Vec<Box<str>> {
        let before = self.by_name.get(name).cloned();
        let said = |class: &Option<Arc<DeviceClass>>| class.as_ref()?.spec.extended_resource_name.clone();
        let implicit: Box<str> = format!("{CLASS_PREFIX}{name}").into();
        let mut resources = BTreeSet::from([implicit]);
        resources.extend(said(&before));
        resources.extend(said(&class));
        let served = |own: &Self| -> Vec<Option<Box<str>>> {
            let class = |resource: &str| own.of_resource(resource).map(Box::<str>::from);
            resources.iter().map(|resource| class(resource)).collect()
        };
        let served_before = served(self);
        if let Some(own) = &before {
            self.file(name, own, false);
        }
        match class {
            Some(own) => {
                self.file(name, &own, true);
                self.by_name.insert(name.into(), own);
            }
            None => drop(self.by_name.remove(name)),
        }
        let changed = served_before.into_iter().zip(served(self));
        let changed: Vec<bool> = changed.map(|(before, after)| before != after).collect();
        let mut changed = changed.into_iter();
        resources.retain(|_| changed.next().unwrap_or(false));
        resources.into_iter().collect()
    }

    fn file(&mut self, name: &str, class: &DeviceClass, comes: bool) {
        let Some(resource) = &class.spec.extended_resource_name else {
            return;
        };
        let rank = (Reverse(class.metadata.creation_timestamp), name.into());
        let classes = self.by_resource.entry(resource.clone()).or_default();
        match comes {
            true => drop(classes.insert(rank)),
            false => drop(classes.remove(&rank)),
        }
        if classes.is_empty() {
            self.by_resource.remove(resource);
        }
    }
}
