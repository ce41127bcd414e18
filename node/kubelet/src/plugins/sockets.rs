//! The seam to programs beside the agent: their sockets, or a model of them.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_trait::async_trait;
use machinery_runtime::{ConnectionSlots, Runtime};
use node_plugin_api::calls::{self, Connection, Transport};
use node_sys::folder_events::{FolderChanges, FolderEvents, FolderWatch};
use parking_lot::Mutex;
use tokio::net::UnixListener;
use tonic::Status;

use crate::plugins::folder::sockets;
pub use crate::plugins::folder::{FoundSockets, SocketStamp};

/// Places for connections to one socket. All of them come from this machine, which has an eighth: the oldest gives way.
const CONNECTIONS_MAX: usize = 512;
/// Stands for this machine among the connecting clients.
const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

/// Interval of reads of a folder without a watch.
const LOOK_AFTER: Duration = Duration::from_secs(2);
/// With one, too, for what lies in folders below it.
const LOOK_INTO_AFTER: Duration = Duration::from_secs(10);

/// Pause after a connection that could not be accepted.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Sockets of the agent and of plugins.
#[async_trait]
pub trait PluginSockets: Send + Sync + std::fmt::Debug {
    /// Makes a folder and removes the sockets of other programs in it: stock plugins take that for a sign that the agent has
    /// started, and register again.
    ///
    /// # Errors
    /// Some are left.
    async fn clean(&self, folder: &Path) -> std::io::Result<()>;

    /// Answers calls at a socket, in the place of what is there.
    ///
    /// # Errors
    /// Nothing is answered there any more. It does not end otherwise.
    async fn serve(&self, socket: &Path, service: Transport) -> std::io::Result<()>;

    /// Connects to a plugin.
    ///
    /// # Errors
    /// It does not listen.
    async fn connect(&self, socket: &Path) -> Result<Transport, Status>;

    /// Connects to a plugin whose end is of interest.
    ///
    /// # Errors
    /// It does not listen.
    async fn connect_once(&self, socket: &Path) -> Result<Connection, Status>;

    /// Returns the sockets at and below a folder.
    ///
    /// # Errors
    /// The folder cannot be read.
    async fn list(&self, folder: &Path) -> std::io::Result<FoundSockets>;

    /// Waits until sockets of a folder may have come or gone since the last wait.
    async fn changed(&self, folder: &Path);
}

/// Unix sockets.
#[derive(Debug)]
pub struct UnixSockets {
    runtime: Runtime,
    events: OnceLock<Arc<FolderEvents>>,
    watched: Mutex<BTreeMap<PathBuf, (FolderWatch, FolderChanges)>>,
}

impl UnixSockets {
    /// Sockets whose connections are this runtime's tasks.
    pub fn new(runtime: Runtime) -> Self {
        Self {
            runtime,
            events: OnceLock::new(),
            watched: Mutex::default(),
        }
    }

    /// Watches a folder; `None` where the kernel cannot.
    fn watch(&self, folder: &Path) -> Option<(FolderWatch, FolderChanges)> {
        let events = match self.events.get() {
            Some(events) => Arc::clone(events),
            None => self.open_events()?,
        };
        let watch = events.watch(folder).ok()?;
        let changes = watch.changes();
        Some((watch, changes))
    }

    fn open_events(&self) -> Option<Arc<FolderEvents>> {
        let events = FolderEvents::open().ok()?;
        let (own, runtime) = (Arc::clone(&events), self.runtime.clone());
        let reading = async move { own.run(&runtime).await };
        self.runtime.spawn("folders of plugins", reading).detach();
        Some(Arc::clone(self.events.get_or_init(|| events)))
    }
}

#[async_trait]
impl PluginSockets for UnixSockets {
    async fn clean(&self, folder: &Path) -> std::io::Result<()> {
        let folder = folder.to_owned();
        let cleaned = self.runtime.blocking(move || remove_sockets(&folder)).await;
        cleaned.map_err(std::io::Error::other)?
    }

    async fn serve(&self, socket: &Path, service: Transport) -> std::io::Result<()> {
        let own = socket.to_owned();
        let prepared = self.runtime.blocking(move || make_way(&own)).await;
        prepared.map_err(std::io::Error::other)??;
        let listener = UnixListener::bind(socket)?;
        let places = ConnectionSlots::new(CONNECTIONS_MAX);
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) => {
                    // Of one connection, or of too many open files: neither is the listener's end.
                    tracing::debug!(%error, "connection of a plugin not accepted");
                    self.runtime.sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            let (place, service) = (places.enter(HERE), service.clone());
            self.runtime.spawn("plugin connection", async move {
                let serving = calls::serve(stream, service);
                if let Some(Err(error)) = place.closing.run_until_cancelled(serving).await {
                    tracing::debug!(%error, "connection of a plugin ended");
                }
            });
        }
    }

    async fn connect(&self, socket: &Path) -> Result<Transport, Status> {
        calls::connect(socket).await
    }

    async fn connect_once(&self, socket: &Path) -> Result<Connection, Status> {
        calls::connect_once(socket).await
    }

    async fn list(&self, folder: &Path) -> std::io::Result<FoundSockets> {
        let folder = folder.to_owned();
        let listed = self.runtime.blocking(move || sockets(&folder)).await;
        listed.map_err(std::io::Error::other)?
    }

    async fn changed(&self, folder: &Path) {
        let known = self.watched.lock().remove(folder);
        let Some((watch, mut changes)) = known else {
            let pause = match self.watch(folder) {
                // What has changed before it was watched is not known.
                Some(watched) => {
                    self.watched.lock().insert(folder.to_owned(), watched);
                    Duration::ZERO
                }
                None => LOOK_AFTER,
            };
            return self.runtime.sleep(pause).await;
        };
        // Folders below it are not watched, only looked at.
        let changed = self.runtime.timeout(LOOK_INTO_AFTER, changes.next()).await;
        if changed.unwrap_or(true) {
            self.watched.lock().insert(folder.to_owned(), (watch, changes));
        }
    }
}

/// Makes the folder of a socket and removes what is in the socket's place. Blocks.
fn make_way(socket: &Path) -> std::io::Result<()> {
    if let Some(folder) = socket.parent() {
        node_sys::fs::make_own_folder(folder)?;
    }
    remove(socket)
}

/// Makes a folder and removes all sockets in it, and links to sockets, as upstream. A socket that cannot be removed keeps no other.
/// Blocks.
fn remove_sockets(folder: &Path) -> std::io::Result<()> {
    node_sys::fs::make_own_folder(folder)?;
    let mut outcome = Ok(());
    for entry in std::fs::read_dir(folder)? {
        let removed = entry.and_then(|entry| remove_socket(&entry.path()));
        outcome = outcome.and(removed);
    }
    outcome
}

fn remove_socket(path: &Path) -> std::io::Result<()> {
    let is_socket = std::fs::metadata(path).is_ok_and(|found| found.file_type().is_socket());
    match is_socket {
        true => remove(path),
        false => Ok(()),
    }
}

/// Removes a file that may have gone: plugins remove their own sockets at the same moment.
fn remove(path: &Path) -> std::io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt as _;
    use node_plugin_api::device_plugin::client::register;
    use node_plugin_api::device_plugin::messages::RegisterRequest;
    use node_plugin_api::device_plugin::server::registration;

    #[tokio::test]
    async fn calls_arrive_at_a_socket_that_takes_the_place_of_all_before_it() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("plugins/kubelet.sock");
        std::fs::create_dir(folder.path().join("plugins")).unwrap();
        let left = folder.path().join("plugins/old.sock");
        drop(std::os::unix::net::UnixListener::bind(&left).unwrap());
        drop(std::os::unix::net::UnixListener::bind(&socket).unwrap());
        std::fs::write(folder.path().join("plugins/kept"), "").unwrap();
        let linked = folder.path().join("plugins/linked.sock");
        let elsewhere = folder.path().join("elsewhere.sock");
        let _listens = std::os::unix::net::UnixListener::bind(&elsewhere).unwrap();
        std::os::unix::fs::symlink(&elsewhere, &linked).unwrap();
        let sockets = UnixSockets::new(Runtime::real());
        sockets.clean(socket.parent().unwrap()).await.unwrap();
        assert!(!left.try_exists().unwrap() && std::fs::symlink_metadata(&linked).is_err());
        assert!(elsewhere.try_exists().unwrap() && !socket.try_exists().unwrap());
        // Another program's socket that has come since stays, and what is in the way goes.
        let late = folder.path().join("plugins/late.sock");
        let _late = std::os::unix::net::UnixListener::bind(&late).unwrap();
        std::os::unix::fs::symlink("nowhere", &socket).unwrap();
        let service = registration(|request: RegisterRequest| {
            async move { Err(Status::unknown(format!("not {}", request.resource_name))) }.boxed()
        });
        let asking = async {
            // The listener is bound, or the call fails.
            let agent = loop {
                match sockets.connect(&socket).await {
                    Ok(agent) => break agent,
                    Err(_) => tokio::task::yield_now().await,
                }
            };
            let request = RegisterRequest {
                resource_name: "a/b".to_owned(),
                ..RegisterRequest::default()
            };
            register(&agent, request).await.unwrap_err()
        };
        let refused = tokio::select! {
            ended = sockets.serve(&socket, service) => panic!("{ended:?}"),
            refused = asking => refused,
        };
        assert_eq!(refused.message(), "not a/b");
        assert!(late.try_exists().unwrap() && folder.path().join("plugins/kept").try_exists().unwrap());
    }

    #[tokio::test]
    async fn connection_ends_with_the_plugin_and_without_a_call() {
        let folder = tempfile::tempdir().unwrap();
        let socket = folder.path().join("plugin.sock");
        let sockets = UnixSockets::new(Runtime::real());
        let listener = UnixListener::bind(&socket).unwrap();
        let (connection, accepted) = tokio::join!(sockets.connect_once(&socket), listener.accept());
        let (mut connection, (stream, _)) = (connection.unwrap(), accepted.unwrap());
        assert!(connection.ended.wait().now_or_never().is_none());
        drop(stream);
        connection.ended.wait().await;
    }

    #[tokio::test]
    async fn folder_of_plugins_is_looked_at_again_when_a_socket_comes_or_goes() {
        let folder = tempfile::tempdir().unwrap();
        let sockets = UnixSockets::new(Runtime::real());
        // The first wait begins to watch.
        sockets.changed(folder.path()).await;
        assert!(sockets.list(folder.path()).await.unwrap().is_empty());
        let path = folder.path().join("plugin.sock");
        let listens = std::os::unix::net::UnixListener::bind(&path).unwrap();
        sockets.changed(folder.path()).await;
        assert!(sockets.list(folder.path()).await.unwrap().contains_key(&path));
        drop(listens);
        std::fs::remove_file(&path).unwrap();
        while !sockets.list(folder.path()).await.unwrap().is_empty() {
            sockets.changed(folder.path()).await;
        }
    }
}
