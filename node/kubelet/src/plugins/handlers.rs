//! Handlers of plugins by their type. A new type is one row here.

use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use node_plugin_api::plugin_registration::{CSI_PLUGIN, DRA_PLUGIN};

use crate::managers::ManagerContext;

/// A plugin as it describes itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plugin {
    /// Name of the driver, or of the resource.
    pub(crate) name: String,
    /// Socket of its own API.
    pub(crate) endpoint: PathBuf,
    /// Versions of that API.
    pub(crate) versions: Vec<String>,
    /// Socket at which it registers: that of no other plugin.
    pub(crate) registered_at: PathBuf,
}

/// A part of the agent that uses plugins of one type.
#[async_trait]
pub(crate) trait PluginHandler: Send + Sync {
    /// Says whether a plugin can be used at all.
    ///
    /// # Errors
    /// It cannot; the plugin is sent the reason.
    fn validate(&self, plugin: &Plugin) -> Result<(), String>;

    /// Begins to use a plugin. Its calls to the plugin have deadlines.
    ///
    /// # Errors
    /// The plugin is not used; it is sent the reason, and tried again.
    async fn register(&self, plugin: &Plugin) -> Result<(), String>;

    /// Uses a plugin no more: its socket has gone, or is another's now. A registration that was dropped halfway or refused is
    /// taken back, too.
    async fn deregister(&self, plugin: &Plugin);
}

/// A type's name, and its handler.
pub(crate) type HandlerRow = (&'static str, Arc<dyn PluginHandler>);

/// The handlers of all types.
pub(crate) fn rows(context: &ManagerContext) -> Vec<HandlerRow> {
    vec![
        (CSI_PLUGIN, Arc::new(context.workers.csi.clone())),
        (DRA_PLUGIN, Arc::new(context.workers.dra.clone())),
    ]
}
