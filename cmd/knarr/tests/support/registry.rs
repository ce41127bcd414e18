//! A small image registry on the loopback of a cluster's network: what pulling asks of one, and nothing else.

use super::Host;
use super::network::inside;
use std::collections::{BTreeMap, BTreeSet};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

const MANIFEST: &str = "application/vnd.oci.image.manifest.v1+json";

/// Serves one image under whatever names it is given. Names that begin with `private/` want a password.
pub(crate) struct Registry {
    pub(crate) address: SocketAddr,
    served: Arc<Served>,
    host: Host,
    thread: Option<JoinHandle<()>>,
}

struct Served {
    /// By digest.
    blobs: BTreeMap<String, Vec<u8>>,
    manifest: String,
    /// Value of `Authorization` for private names.
    authorization: String,
    names: Mutex<BTreeSet<String>>,
    /// Number of requests for each name.
    asked: Mutex<BTreeMap<String, usize>>,
    end: AtomicBool,
}

impl Registry {
    /// One that serves the image of an archive in OCI layout; `authorization` is as the header says it.
    pub(crate) fn start(host: &Host, archive: &Path, authorization: &str) -> Self {
        let (blobs, manifest) = read_archive(archive);
        let served = Arc::new(Served {
            blobs,
            manifest,
            authorization: authorization.to_owned(),
            names: Mutex::default(),
            asked: Mutex::default(),
            end: AtomicBool::new(false),
        });
        let bound = inside(host, || TcpListener::bind("127.0.0.1:0").expect("a free port"));
        let listener = bound.join().expect("binding does not panic");
        let address = listener.local_addr().expect("it has an address");
        let serving = Arc::clone(&served);
        let thread = std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                if serving.end.load(Ordering::Relaxed) {
                    return;
                }
                let serving = Arc::clone(&serving);
                // A client that leaves in the middle is its own affair.
                std::thread::spawn(move || serving.answer(&stream));
            }
        });
        Self {
            address,
            served,
            host: host.clone(),
            thread: Some(thread),
        }
    }

    /// The image is there under this name, and how pods call it.
    pub(crate) fn publish(&self, name: &str) -> String {
        self.served
            .names
            .lock()
            .expect("not poisoned")
            .insert(name.to_owned());
        self.image(name)
    }

    /// Image reference of this name in pods, whether it is there or not.
    pub(crate) fn image(&self, name: &str) -> String {
        format!("{}/{name}:v1", self.address)
    }

    /// Number of requests for a name.
    pub(crate) fn asked(&self, name: &str) -> usize {
        let asked = self.served.asked.lock().expect("not poisoned");
        asked.get(name).copied().unwrap_or_default()
    }
}

impl Drop for Registry {
    fn drop(&mut self) {
        self.served.end.store(true, Ordering::Relaxed);
        let address = self.address;
        // It reads the flag at the next connection.
        let woken = inside(&self.host, move || drop(TcpStream::connect(address)));
        let _ = woken.join();
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

/// The blobs by digest, and the digest of the manifest.
fn read_archive(archive: &Path) -> (BTreeMap<String, Vec<u8>>, String) {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(folder.path());
    assert!(tar.status().is_ok_and(|status| status.success()), "tar reads it");
    let index = std::fs::read(folder.path().join("index.json")).expect("an index");
    let index: serde_json::Value = serde_json::from_slice(&index).expect("JSON");
    let manifest = index["manifests"][0]["digest"].as_str().expect("a digest");
    let files = std::fs::read_dir(folder.path().join("blobs/sha256")).expect("blobs");
    let blobs = files.flatten().map(|file| {
        let digest = format!("sha256:{}", file.file_name().to_string_lossy());
        (digest, std::fs::read(file.path()).expect("a blob"))
    });
    (blobs.collect(), manifest.to_owned())
}

impl Served {
    fn answer(&self, mut stream: &TcpStream) {
        let mut lines = BufReader::new(stream.take(16 << 10))
            .lines()
            .map_while(Result::ok);
        let first = lines.next().unwrap_or_default();
        let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
        let header = |name: &str| {
            let values = head.iter().filter_map(|line| line.split_once(": "));
            let mut found = values.filter(|(key, _)| key.eq_ignore_ascii_case(name));
            found.next().map(|(_, value)| value.to_owned())
        };
        let (method, path) = first.split_once(' ').unwrap_or_default();
        let path = path.split([' ', '?']).next().unwrap_or_default();
        let (status, headers, body) = self.route(method, path, header("authorization").as_deref());
        let mut text = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\nconnection: close\r\n",
            body.len()
        );
        headers
            .iter()
            .for_each(|header| text.push_str(&format!("{header}\r\n")));
        text.push_str("\r\n");
        let body = if method == "HEAD" { &[][..] } else { body };
        let _ = stream
            .write_all(text.as_bytes())
            .and_then(|()| stream.write_all(body));
    }

    fn route(&self, method: &str, path: &str, authorization: Option<&str>) -> (&str, Vec<String>, &[u8]) {
        let missing = ("404 Not Found", Vec::new(), &b"{}"[..]);
        let (name, kind, reference) = match parts(path) {
            Some(parts) => parts,
            None if path == "/v2/" => return ("200 OK", Vec::new(), b"{}"),
            None => return missing,
        };
        if kind == "manifests" && method == "HEAD" {
            *self
                .asked
                .lock()
                .expect("not poisoned")
                .entry(name.to_owned())
                .or_default() += 1;
        }
        if name.starts_with("private/") && authorization != Some(&self.authorization) {
            let challenge = "www-authenticate: Basic realm=\"stories\"".to_owned();
            return ("401 Unauthorized", vec![challenge], b"{}");
        }
        if !self.names.lock().expect("not poisoned").contains(name) {
            return missing;
        }
        let digest = if reference == "v1" {
            &self.manifest
        } else {
            reference
        };
        let Some(blob) = self.blobs.get(digest) else {
            return missing;
        };
        let content_type = if kind == "manifests" {
            MANIFEST
        } else {
            "application/octet-stream"
        };
        let headers = vec![
            format!("content-type: {content_type}"),
            format!("docker-content-digest: {digest}"),
        ];
        ("200 OK", headers, blob)
    }
}

/// `/v2/NAME/manifests/REFERENCE` and `/v2/NAME/blobs/DIGEST`.
fn parts(path: &str) -> Option<(&str, &str, &str)> {
    let (rest, reference) = path.strip_prefix("/v2/")?.rsplit_once('/')?;
    let (name, kind) = rest.rsplit_once('/')?;
    Some((name, kind, reference))
}
