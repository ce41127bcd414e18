//! A profile: the name under which pods request it, its plugins by extension point, and their arguments.

use super::args::PluginArgs;
use super::document::Document;
use super::percentage_of_nodes;
use super::plugin_args;
use super::plugin_sets::{PluginSets, Settled};
use machinery_meta::FieldPath;
use serde_json::Value;

/// The name that pods have where they name no scheduler.
const DEFAULT_NAME: &str = "default-scheduler";

#[derive(Debug, Clone, PartialEq)]
pub struct ProfileConfig {
    pub scheduler_name: Box<str>,
    pub plugins: Settled,
    pub args: PluginArgs,
    /// Share of the nodes that is looked at for its pods, where it differs from that of the configuration.
    pub percentage_of_nodes_to_score: Option<usize>,
}

impl Default for ProfileConfig {
    fn default() -> Self {
        Self {
            scheduler_name: DEFAULT_NAME.into(),
            plugins: Settled::default(),
            args: PluginArgs::default(),
            percentage_of_nodes_to_score: None,
        }
    }
}

impl ProfileConfig {
    /// Reads a profile; one that is `alone` need not say its name.
    pub(super) fn read(document: &mut Document, path: &FieldPath, value: &Value, alone: bool) -> Self {
        let mut object = document.object(path, value);
        let mut scheduler_name = object.string(document, "schedulerName");
        if object.take("schedulerName").is_none() && alone {
            scheduler_name = DEFAULT_NAME.into();
        } else if scheduler_name.is_empty() {
            document.required(&path.child("schedulerName"), "");
        }
        let percentage_of_nodes_to_score = percentage_of_nodes(document, &mut object, path);
        let plugins = object.object(document, "plugins");
        let plugins = PluginSets::read(document, plugins);
        let items = object.list(document, "pluginConfig");
        let args = plugin_args::read(document, &path.child("pluginConfig"), items);
        object.end(document);
        let plugins = plugins.settle(document, path);
        Self {
            scheduler_name,
            plugins,
            args,
            percentage_of_nodes_to_score,
        }
    }
}
