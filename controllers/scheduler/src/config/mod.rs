//! Upstream's `KubeSchedulerConfiguration` (`kubescheduler.config.k8s.io/v1`): profiles, their plugins and arguments.
//!
//! A document is read field by field ([`document`]), checked and completed with upstream's defaults ([`profile`],
//! [`plugin_args`]), with every problem listed. Fields without effect here are accepted and named
//! ([`Configuration::without_effect`]): nodes are rated by one thread.

mod affinity;
pub mod args;
mod connections;
mod default_plugins;
mod document;
mod extenders;
mod plugin_args;
mod plugin_sets;
mod profile;
#[cfg(test)]
mod tests;

pub use args::PluginArgs;
pub use extenders::{ExtenderConfig, ExtenderTls};
pub use profile::ProfileConfig;

use document::{Document, Object};
use machinery_meta::{FieldError, FieldPath};
use serde_json::Value;
use std::collections::BTreeMap;
use std::time::Duration;

/// Version of the configuration that is read.
pub const API_VERSION: &str = "kubescheduler.config.k8s.io/v1";
const KIND: &str = "KubeSchedulerConfiguration";
/// Profiles at most: each keeps what its plugins answered.
const MAX_PROFILES: usize = 16;
/// Seconds of backing off at most: a day.
const MAX_BACKOFF_SECONDS: i64 = 86_400;

/// A configuration, complete.
#[derive(Debug, Clone, PartialEq)]
pub struct Configuration {
    pub profiles: Vec<ProfileConfig>,
    pub pod_initial_backoff: Duration,
    pub pod_max_backoff: Duration,
    /// Share of the nodes that is looked at where a profile says none; 0 is one that follows their number.
    pub percentage_of_nodes_to_score: usize,
    /// Servers that are asked about nodes, in this order.
    pub extenders: Vec<ExtenderConfig>,
    /// Paths of fields that are set and have no effect here.
    pub without_effect: Vec<String>,
}

impl Default for Configuration {
    /// The configuration of an empty document.
    fn default() -> Self {
        Self {
            profiles: vec![ProfileConfig::default()],
            pod_initial_backoff: Duration::from_secs(1),
            pod_max_backoff: Duration::from_secs(10),
            percentage_of_nodes_to_score: 0,
            extenders: Vec::new(),
            without_effect: Vec::new(),
        }
    }
}

/// The configuration cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", listed(.0))]
pub struct ConfigurationError(pub Vec<FieldError>);

fn listed(problems: &[FieldError]) -> String {
    let all: Vec<String> = problems.iter().map(ToString::to_string).collect();
    match &all[..] {
        [one] => one.clone(),
        _ => format!("[{}]", all.join(", ")),
    }
}

impl Configuration {
    /// Reads a document.
    pub fn read(value: &Value) -> Result<Self, ConfigurationError> {
        let mut document = Document::default();
        let configuration = read(&mut document, value);
        if document.problems.is_empty() {
            Ok(Self {
                without_effect: document.without_effect,
                ..configuration
            })
        } else {
            Err(ConfigurationError(document.problems))
        }
    }
}

fn read(document: &mut Document, value: &Value) -> Configuration {
    let path = FieldPath::root();
    let mut object = document.object(&path, value);
    object.is_a(document, KIND);
    let parallelism = object.integer(document, "parallelism", 16);
    if parallelism <= 0 {
        let detail = "should be an integer value greater than zero";
        document.invalid(&path.child("parallelism"), parallelism, detail);
    }
    let percentage = percentage_of_nodes(document, &mut object, &path).unwrap_or(0);
    let (initial, most) = backoff(document, &mut object, &path);
    object.has_no_effect(document, "parallelism");
    connections::leader_election(document, &mut object);
    connections::client_connection(document, &mut object);
    for name in [
        "enableProfiling",
        "enableContentionProfiling",
        "delayCacheUntilActive",
    ] {
        object.take(name);
        object.has_no_effect(document, name);
    }
    let extenders = extenders::read(document, &mut object, &path);
    let mut profiles = profiles(document, &mut object, &path);
    // Resources that extenders take over are theirs, whatever the arguments of a profile say.
    for profile in profiles
        .iter_mut()
        .filter(|_| !extenders.ignored_resources.is_empty())
    {
        let args = &mut profile.args.node_resources_fit;
        args.ignored_resources.clone_from(&extenders.ignored_resources);
    }
    object.end(document);
    Configuration {
        profiles,
        pod_initial_backoff: initial,
        pod_max_backoff: most,
        percentage_of_nodes_to_score: percentage,
        extenders: extenders.all,
        without_effect: Vec::new(),
    }
}

/// The share of the nodes to look at, where it is given.
fn percentage_of_nodes(document: &mut Document, object: &mut Object<'_>, path: &FieldPath) -> Option<usize> {
    let name = "percentageOfNodesToScore";
    object.take(name)?;
    let percentage = object.integer(document, name, 0);
    if !(0..=100).contains(&percentage) {
        document.invalid(&path.child(name), percentage, "not in valid range [0-100]");
    }
    usize::try_from(percentage).ok()
}

fn backoff(document: &mut Document, object: &mut Object<'_>, path: &FieldPath) -> (Duration, Duration) {
    let (first, last) = ("podInitialBackoffSeconds", "podMaxBackoffSeconds");
    let initial = object.integer(document, first, 1);
    let most = object.integer(document, last, 10);
    if initial <= 0 {
        document.invalid(&path.child(first), initial, "must be greater than 0");
    }
    if most < initial {
        let detail = "must be greater than or equal to PodInitialBackoffSeconds";
        document.invalid(&path.child(last), most, detail);
    }
    if most > MAX_BACKOFF_SECONDS {
        let detail = format!("must be less than or equal to {MAX_BACKOFF_SECONDS}");
        document.invalid(&path.child(last), most, &detail);
    }
    let seconds = |number: i64| Duration::from_secs(u64::try_from(number).unwrap_or(0));
    (seconds(initial), seconds(most))
}

fn profiles(document: &mut Document, object: &mut Object<'_>, path: &FieldPath) -> Vec<ProfileConfig> {
    let path = path.child("profiles");
    let items = object.list(document, "profiles");
    if items.is_empty() {
        return vec![ProfileConfig::default()];
    }
    if items.len() > MAX_PROFILES {
        document
            .problems
            .push(FieldError::too_many(&path, items.len(), MAX_PROFILES));
        return Vec::new();
    }
    let alone = items.len() == 1;
    let mut known: BTreeMap<Box<str>, FieldPath> = BTreeMap::new();
    let mut profiles = Vec::new();
    for (at, item) in items.iter().enumerate() {
        let path = path.index(at);
        let profile = ProfileConfig::read(document, &path, item, alone);
        let name_path = path.child("schedulerName");
        match known.get(&profile.scheduler_name) {
            Some(first) => {
                let first = first.as_str().to_owned();
                document.problems.push(FieldError::duplicate(&name_path, first));
            }
            None => drop(known.insert(profile.scheduler_name.clone(), name_path)),
        }
        profiles.push(profile);
    }
    profiles
}
