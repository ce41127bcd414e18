//! Doing one thing inside another namespace.

use std::fs::File;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns};
use tokio::net::TcpSocket;

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

/// A TCP socket of IPv4 or IPv6 made inside a network namespace. It belongs there wherever it connects, which blocks no thread.
///
/// # Errors
/// When the namespace cannot be entered; the inner one when there can be no socket.
pub fn tcp_socket_in(namespace: &Path, ipv6: bool) -> Result<std::io::Result<TcpSocket>, NamespaceError> {
    match ipv6 {
        true => in_network_namespace(namespace, TcpSocket::new_v6),
        false => in_network_namespace(namespace, TcpSocket::new_v4),
    }
}
