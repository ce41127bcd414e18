//! Profiles at work: a pod is placed by the one that it names.

use crate::algorithm::Algorithm;
use crate::config::args::DefaultPreemptionArgs;
use crate::config::{Configuration, ProfileConfig};
use crate::devices::DYNAMIC_RESOURCES;
use crate::extender::Interests;
use crate::meter::ExtensionPoint;
use crate::plugins::plugin_set;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

/// Plugins and settings for the pods of one `schedulerName`.
#[derive(Debug)]
pub struct Profile {
    pub name: Arc<str>,
    pub(crate) algorithm: Algorithm,
    /// `None` where no pod has to go for another.
    pub(crate) preemption: Option<DefaultPreemptionArgs>,
    /// Unused devices are taken from claims of pods that fit nowhere.
    pub(crate) deallocates: bool,
    /// Time that the claims of a pod have to be bound.
    pub(crate) bind_timeout: Duration,
    /// Time that a pod waits for conditions of its devices.
    pub(crate) binding_timeout: Duration,
}

impl Profile {
    fn new(config: &ProfileConfig, configuration: &Configuration) -> Self {
        let percentage = config.percentage_of_nodes_to_score;
        let percentage = percentage.unwrap_or(configuration.percentage_of_nodes_to_score);
        let extenders = Interests::new(&configuration.extenders);
        let has = |name: &str| config.plugins.has(ExtensionPoint::PostFilter, name);
        Self {
            name: (*config.scheduler_name).into(),
            algorithm: Algorithm::new(plugin_set(config)).searching(percentage, extenders.compare_nodes()),
            preemption: has("DefaultPreemption").then_some(config.args.default_preemption),
            deallocates: has(DYNAMIC_RESOURCES),
            bind_timeout: config.args.volume_binding.bind_timeout,
            binding_timeout: config.args.dynamic_resources.binding_timeout,
        }
    }
}

/// Profiles by name.
#[derive(Debug)]
pub struct Profiles {
    by_name: BTreeMap<Arc<str>, Profile>,
}

impl Profiles {
    pub fn new(configuration: &Configuration) -> Self {
        let all = configuration.profiles.iter();
        let profiles = all.map(|own| Profile::new(own, configuration));
        Self {
            by_name: profiles.map(|own| (Arc::clone(&own.name), own)).collect(),
        }
    }

    pub fn get(&self, name: &str) -> Option<&Profile> {
        self.by_name.get(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Profile> {
        self.by_name.get_mut(name)
    }

    pub fn iter(&self) -> impl Iterator<Item = &Profile> {
        self.by_name.values()
    }
}
