//! A client that follows its kubeconfig: credentials in it are replaced before they expire, and the process goes on.
//!
//! Another content of the file is another client with its own connections, for the requests from then on; what is under way
//! ends on the connections that it has. A file that cannot be used leaves the client before.

use crate::client::Client;
use crate::error::ClientError;
use http::{Request, Response};
use kube::client::Body;
use machinery_runtime::Runtime;
use parking_lot::RwLock;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Interval of reads of the file.
const LOOK_INTERVAL: Duration = Duration::from_secs(5);
/// Largest kubeconfig in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// A file, and the client that its content makes.
struct Followed {
    path: PathBuf,
    runtime: Runtime,
    current: RwLock<kube::Client>,
    /// The content that was looked at last, used or not.
    seen: RwLock<String>,
}

impl Client {
    /// A client of a kubeconfig file's current context, whose changes are followed.
    ///
    /// # Errors
    /// The file cannot be used now.
    pub async fn following_kubeconfig(path: &Path, runtime: Runtime) -> Result<Self, ClientError> {
        let (client, followed) = followed(path, runtime.clone()).await?;
        runtime
            .keep("kubeconfig", move || Arc::clone(&followed).follow())
            .detach();
        Ok(client)
    }
}

async fn followed(path: &Path, runtime: Runtime) -> Result<(Client, Arc<Followed>), ClientError> {
    let text = read(path)?;
    let first = Client::from_kubeconfig_text(&text, runtime.clone()).await?;
    let followed = Arc::new(Followed {
        path: path.to_owned(),
        runtime: runtime.clone(),
        current: RwLock::new(first.kube().clone()),
        seen: RwLock::new(text),
    });
    let own = Arc::clone(&followed);
    let service = tower::service_fn(move |request: Request<Body>| {
        let current = own.current.read().clone();
        async move { Ok::<Response<Body>, tower::BoxError>(current.send(request).await?) }
    });
    Ok((
        Client::new(kube::Client::new(service, "default"), runtime),
        followed,
    ))
}

impl Followed {
    async fn follow(self: Arc<Self>) {
        loop {
            self.runtime.sleep(LOOK_INTERVAL).await;
            match self.look().await {
                Ok(false) => {}
                Ok(true) => tracing::info!(path = %self.path.display(), "a changed kubeconfig is in use"),
                Err(error) => tracing::error!(
                    %error,
                    path = %self.path.display(),
                    "a changed kubeconfig cannot be used; the one before stays"
                ),
            }
        }
    }

    /// Reports whether another content is in use from now on.
    async fn look(&self) -> Result<bool, ClientError> {
        let path = self.path.clone();
        // It may be away for a moment while it is replaced.
        let Ok(Ok(text)) = self.runtime.blocking(move || read(&path)).await else {
            return Ok(false);
        };
        if text == *self.seen.read() {
            return Ok(false);
        }
        let made = Client::from_kubeconfig_text(&text, self.runtime.clone()).await;
        // Also where it cannot be used: a broken file is logged once, and not every five seconds.
        *self.seen.write() = text;
        *self.current.write() = made?.kube().clone();
        Ok(true)
    }
}

fn read(path: &Path) -> Result<String, ClientError> {
    let failed = |error: &dyn std::fmt::Display| ClientError::Config(format!("{}: {error}", path.display()));
    let mut text = String::new();
    let file = std::fs::File::open(path).map_err(|error| failed(&error))?;
    let length = file.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    let length = length.map_err(|error| failed(&error))?;
    match length as u64 > MAX_FILE_BYTES {
        true => Err(failed(&"the file is larger than 1 MiB")),
        false => Ok(text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio::net::TcpListener;

    /// Answers one request, and returns its credentials.
    async fn credentials(listener: &TcpListener) -> String {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = Vec::new();
        while !head.ends_with(b"\r\n\r\n") {
            head.push(stream.read_u8().await.unwrap());
        }
        let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
        stream.write_all(answer).await.unwrap();
        let head = String::from_utf8(head).unwrap();
        let line = head.lines().find_map(|line| line.strip_prefix("authorization: "));
        line.unwrap_or_default().to_owned()
    }

    #[tokio::test]
    async fn kubeconfig_that_changes_is_followed() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = format!("http://{}", listener.local_addr().unwrap());
        let config = |token: &str| {
            json!({"apiVersion": "v1", "kind": "Config", "current-context": "c",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": token}}],
                "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}]})
            .to_string()
        };
        let path = std::env::temp_dir().join(format!("knarr-following-{}", std::process::id()));
        let write = |text: &str| std::fs::write(&path, text).unwrap();
        write(&config("one"));
        let (client, followed) = followed(&path, Runtime::real()).await.unwrap();
        let used = || async {
            let get = client.get_path("/version", &[]);
            let (answered, used) = tokio::join!(get, credentials(&listener));
            answered.unwrap();
            used
        };
        assert_eq!(used().await, "Bearer one");
        assert!(!followed.look().await.unwrap());
        write(&config("two"));
        assert!(followed.look().await.unwrap());
        assert_eq!(used().await, "Bearer two");
        write("nonsense");
        assert!(followed.look().await.is_err());
        assert!(!followed.look().await.unwrap(), "one problem is told once");
        std::fs::remove_file(&path).unwrap();
        assert!(!followed.look().await.unwrap());
        assert_eq!(used().await, "Bearer two", "the one before stays");
    }
}
