//! The suite against a real etcd, when one has been built (`cargo xtask tools`).

use super::{EtcdOptions, EtcdStorage};
use crate::suite::{self, Subject};
use crate::{Key, Record, RecordCodec, Storage};
use machinery_runtime::Runtime;
use std::io::Write;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

/// The three parts with a mark between them; the header is made from the text again.
#[derive(Debug)]
struct TextCodec;

impl RecordCodec for TextCodec {
    fn encode(&self, _: &Key, record: &Record) -> Result<Vec<u8>, String> {
        Ok(record.parts.join(&0x1f))
    }

    fn decode(&self, _: &Key, value: &[u8]) -> Result<Record, String> {
        let text = std::str::from_utf8(value).map_err(|error| error.to_string())?;
        let mut parts = text.splitn(3, '\u{1f}').skip(1);
        let (head, value) = (parts.next().ok_or("no head")?, parts.next().ok_or("no value")?);
        let field = |name: &str| {
            head.split(';')
                .find_map(|pair| pair.strip_prefix(name))
                .ok_or("no field")
        };
        Ok(suite::record(field("name=")?, field("node=")?, value))
    }
}

struct Etcd {
    process: Child,
    endpoint: String,
    _dir: tempfile::TempDir,
}

impl Drop for Etcd {
    fn drop(&mut self) {
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "where the tools are is this test's one setting"
)]
fn binary() -> Option<PathBuf> {
    let tools = std::env::var("KNARR_TOOLS").map(PathBuf::from);
    let tools =
        tools.or_else(|_| std::env::var("HOME").map(|home| PathBuf::from(home).join(".cache/knarr/tools")));
    let path = tools.ok()?.join("etcd");
    let is_there = path.try_exists().unwrap_or(false);
    // Who says where they are means that they are there.
    assert!(is_there || std::env::var("KNARR_TOOLS").is_err(), "no {path:?}");
    is_there.then_some(path)
}

fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port()
}

impl Etcd {
    fn start() -> Option<Self> {
        let Some(binary) = binary() else {
            // Past the harness, which keeps what a test prints to itself.
            let why =
                "SKIPPED, not passed: etcd's part of the suite: it is not built (cargo xtask tools etcd)";
            writeln!(std::io::stderr(), "{why}").unwrap();
            return None;
        };
        let dir = tempfile::tempdir().unwrap();
        let (client, peer) = (
            format!("http://127.0.0.1:{}", free_port()),
            format!("http://127.0.0.1:{}", free_port()),
        );
        #[expect(
            clippy::disallowed_methods,
            reason = "the node's way of running commands is not for tests of storage"
        )]
        let process = Command::new(binary)
            .arg("--data-dir")
            .arg(dir.path())
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args([
                "--initial-cluster",
                &format!("default={peer}"),
                "--unsafe-no-fsync",
            ])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Some(Self {
            process,
            endpoint: client,
            _dir: dir,
        })
    }

    async fn storage(&self, runtime: &Runtime) -> EtcdStorage {
        let options = EtcdOptions {
            endpoints: vec![self.endpoint.clone()],
            ..EtcdOptions::default()
        };
        loop {
            let storage = EtcdStorage::connect(runtime, &options).await;
            if let Ok(storage) = storage
                && storage.remote.current().await.is_ok()
            {
                storage.interpret_with(Arc::new(TextCodec));
                return storage;
            }
            runtime.sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_suite_on_a_real_etcd() {
    let Some(etcd) = Etcd::start() else { return };
    let runtime = Runtime::real();
    let storage = Arc::new(etcd.storage(&runtime).await);
    suite::all(&Subject {
        storage,
        runtime,
        one_revision_per_group: true,
    })
    .await;
}
