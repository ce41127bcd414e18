//! Plugins that register by a socket in the folder `plugins_registry`: upstream's `pluginmanager`.
//!
//! [`run`] looks at the [`folder`] whenever it changes; each socket has a task of its own ([`registering`]) that asks what
//! stands behind it and hands it to the handler of its type ([`handlers`]), until the socket goes or another takes its place.
//! [`sockets`] is how the agent reaches plugins of all kinds, [`calls`] how long it waits for their answers.
//!
//! Never: a plugin that holds up another, a link or another file taken for a socket, more sockets than there is room for.

pub(crate) mod calls;
pub(crate) mod folder;
pub(crate) mod handlers;
mod registering;
pub mod sockets;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use machinery_runtime::{CancellationToken, Runtime, TaskHandle};
use parking_lot::Mutex;

use crate::managers::ManagerContext;
use crate::plugins::sockets::PluginSockets;
use folder::{FoundSockets, SocketStamp};
use handlers::HandlerRow;
use registering::Registering;

/// Longest interval of reads of a folder that cannot be read, or has more sockets than there is room for.
const AGAIN_AFTER: Duration = Duration::from_secs(10);

/// Keeps the plugins of the folder registered, for ever, once the node is: what registers is shown in its objects.
pub(crate) async fn run(context: ManagerContext) {
    context.registered().await;
    let handlers = Arc::new(handlers::rows(&context));
    let folder = context.config.plugins_registry_folder();
    follow(context.runtime, context.sockets, handlers, &folder).await;
}

async fn follow(
    runtime: Runtime,
    sockets: Arc<dyn PluginSockets>,
    handlers: Arc<Vec<HandlerRow>>,
    folder: &Path,
) {
    let mut registry = Registry {
        runtime,
        sockets,
        handlers,
        known: BTreeMap::new(),
    };
    loop {
        let is_settled = match registry.sockets.list(folder).await {
            Ok(found) => registry.settle(&found),
            Err(error) => {
                tracing::error!(%error, folder = %folder.display(), "sockets of plugins cannot be looked for");
                false
            }
        };
        let changed = registry.sockets.changed(folder);
        match is_settled {
            true => changed.await,
            // Room comes with time, too.
            false => drop(registry.runtime.timeout(AGAIN_AFTER, changed).await),
        }
    }
}

/// Sockets that were found last.
struct Registry {
    runtime: Runtime,
    sockets: Arc<dyn PluginSockets>,
    handlers: Arc<Vec<HandlerRow>>,
    known: BTreeMap<PathBuf, Known>,
}

struct Known {
    /// `None` once the socket has gone, until its registration is taken back.
    stamp: Option<SocketStamp>,
    gone: CancellationToken,
    task: TaskHandle<()>,
}

/// Also where the registry itself ends: the next one registers everything again.
impl Drop for Known {
    fn drop(&mut self) {
        self.gone.cancel();
    }
}

impl Registry {
    /// Ends the registrations of sockets that have gone, and begins those of new ones; false where there is no room for some.
    fn settle(&mut self, found: &FoundSockets) -> bool {
        let mut has_room = true;
        for (path, known) in &mut self.known {
            if known.stamp.is_some() && found.get(path) != known.stamp.as_ref() {
                known.stamp = None;
                known.gone.cancel();
            }
        }
        self.known.retain(|path, known| {
            known.stamp.is_some() || found.contains_key(path) || !known.task.is_finished()
        });
        for (path, stamp) in found {
            if self.known.get(path).is_some_and(|known| known.stamp.is_some()) {
                continue;
            }
            // What is still being taken back counts.
            let before = self.known.remove(path);
            if before.is_none() && self.known.len() >= folder::SOCKETS_MAX {
                has_room = false;
                continue;
            }
            let known = self.begin(path, *stamp, before);
            self.known.insert(path.clone(), known);
        }
        if !has_room {
            tracing::warn!(room = folder::SOCKETS_MAX, "too many sockets of plugins");
        }
        has_room
    }

    fn begin(&self, path: &Path, stamp: SocketStamp, before: Option<Known>) -> Known {
        let gone = CancellationToken::new();
        let registering = Registering {
            runtime: self.runtime.clone(),
            sockets: self.sockets.clone(),
            handlers: self.handlers.clone(),
            socket: path.to_owned(),
            begun: Mutex::default(),
        };
        let until = gone.clone();
        let task = self.runtime.spawn("plugin", async move {
            if let Some(mut before) = before {
                let _ = (&mut before.task).await;
            }
            registering.run(until).await;
        });
        let stamp = Some(stamp);
        Known { stamp, gone, task }
    }
}
