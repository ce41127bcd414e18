//! Doing one thing inside another namespace.

use std::fs::File;
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::time::Duration;

use nix::sched::{CloneFlags, setns};

/// Entering a namespace, or what was done there, failed.
#[derive(Debug, thiserror::Error)]
pub enum NamespaceError {
    /// The namespace could not be entered.
    #[error("entering the network namespace {}", path.display())]
    Enter {
        /// Its file.
        path: PathBuf,
        /// Cause.
        #[source]
        source: std::io::Error,
    },
    /// The thread for it could not be started or died.
    #[error("running a thread in a network namespace")]
    Thread,
}

/// Runs a closure on a thread of its own inside a network namespace and returns its result.
///
/// A thread, because a namespace belongs to a thread and a pooled one would carry it on to the next
/// task. It blocks the caller: call it from `Runtime::blocking`.
pub fn in_network_namespace<T: Send>(
    namespace: &Path,
    work: impl FnOnce() -> T + Send,
) -> Result<T, NamespaceError> {
    let enter = || -> std::io::Result<()> {
        let file = File::open(namespace)?;
        setns(file, CloneFlags::CLONE_NEWNET)?;
        Ok(())
    };
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("netns".into())
            .spawn_scoped(scope, || enter().map(|()| work()))
            .map_err(|_| NamespaceError::Thread)?;
        let outcome = thread.join().map_err(|_| NamespaceError::Thread)?;
        outcome.map_err(|source| NamespaceError::Enter {
            path: namespace.to_path_buf(),
            source,
        })
    })
}

/// A TCP connection made from inside a network namespace; it goes on working outside.
pub fn connect_in(
    namespace: &Path,
    address: SocketAddr,
    timeout: Duration,
) -> Result<std::io::Result<TcpStream>, NamespaceError> {
    in_network_namespace(namespace, || TcpStream::connect_timeout(&address, timeout))
}
