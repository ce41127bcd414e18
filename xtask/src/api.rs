//! A few requests to a running cluster, by curl: `up` must not need kubectl.

use crate::host::Host;
use crate::process;
use anyhow::{Context, Result, bail};
use base64::Engine;
use serde_json::Value;
use std::fs;
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Flags of curl, and the fields of a kubeconfig that they take.
const CREDENTIALS: [(&str, &str); 3] = [
    ("--cacert", "certificate-authority-data"),
    ("--cert", "client-certificate-data"),
    ("--key", "client-key-data"),
];

/// The API of the cluster that keeps its things in `data_dir`.
#[derive(Debug, Clone)]
pub(crate) struct Api {
    host: Host,
    data_dir: PathBuf,
    base: String,
}

impl Api {
    pub(crate) fn new(host: Host, data_dir: PathBuf, port: u16) -> Self {
        Self {
            host,
            data_dir,
            base: format!("https://127.0.0.1:{port}"),
        }
    }

    /// Reports whether the server answers that it is ready.
    pub(crate) fn is_ready(&self) -> bool {
        self.request("GET", "/readyz", None)
            .is_ok_and(|(code, _)| code == 200)
    }

    pub(crate) fn node_is_ready(&self) -> Result<bool> {
        let nodes = self.json("/api/v1/nodes")?;
        let conditions = nodes["items"][0]["status"]["conditions"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        Ok(conditions
            .iter()
            .any(|condition| condition["type"] == "Ready" && condition["status"] == "True"))
    }

    pub(crate) fn json(&self, path: &str) -> Result<Value> {
        Ok(serde_json::from_str(&self.text(path)?)?)
    }

    pub(crate) fn text(&self, path: &str) -> Result<String> {
        match self.request("GET", path, None)? {
            (200, body) => Ok(body),
            (code, body) => bail!("GET {path}: {code}: {body}"),
        }
    }

    pub(crate) fn is_gone(&self, path: &str) -> Result<bool> {
        Ok(self.request("GET", path, None)?.0 == 404)
    }

    pub(crate) fn delete(&self, path: &str) -> Result<()> {
        match self.request("DELETE", path, None)? {
            (200 | 202 | 404, _) => Ok(()),
            (code, body) => bail!("DELETE {path}: {code}: {body}"),
        }
    }

    /// Creates the object of a YAML document in `default`, or leaves the one that is there.
    pub(crate) fn apply(&self, document: &str) -> Result<()> {
        let line = |key: &str| {
            document
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim)
        };
        let version = line("apiVersion:").context("no apiVersion")?;
        let kind = line("kind:").context("no kind")?.to_lowercase();
        let root = if version.contains('/') { "apis" } else { "api" };
        let path = format!("/{root}/{version}/namespaces/default/{kind}s");
        match self.request("POST", &path, Some(document))? {
            (200 | 201 | 409, _) => Ok(()),
            (code, body) => bail!("POST {path}: {code}: {body}"),
        }
    }

    /// A page, from the node.
    pub(crate) fn fetch(&self, url: &str) -> Result<String> {
        process::output(
            self.host
                .command("curl")
                .args(["-sS", "--fail", "--max-time", "5", url]),
        )
    }

    fn request(&self, method: &str, path: &str, body: Option<&str>) -> Result<(u16, String)> {
        let mut curl = self.curl(method, path)?;
        if body.is_some() {
            curl.args([
                "--header",
                "Content-Type: application/yaml",
                "--data-binary",
                "@-",
            ]);
        }
        curl.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = curl.spawn().context("starting curl")?;
        let mut input = child.stdin.take().context("curl has no stdin")?;
        input.write_all(body.unwrap_or_default().as_bytes())?;
        drop(input);
        let output = child.wait_with_output()?;
        if !output.status.success() {
            bail!(
                "{method} {path}: {}",
                String::from_utf8_lossy(&output.stderr).trim()
            );
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, code) = text.rsplit_once('\n').context("curl said nothing")?;
        Ok((code.parse()?, body.to_owned()))
    }

    pub(crate) fn remove_credentials(&self) -> Result<()> {
        let files = CREDENTIALS.map(|(_, field)| self.data_dir.join(format!("up.{field}")));
        files.iter().try_for_each(|file| Ok(fs::remove_file(file)?))
    }

    fn curl(&self, method: &str, path: &str) -> Result<Command> {
        let mut curl = self.host.command("curl");
        curl.args([
            "--silent",
            "--show-error",
            "--max-time",
            "10",
            "--write-out",
            "\n%{http_code}",
        ]);
        let kubeconfig = fs::read_to_string(crate::up::kubeconfig(&self.data_dir))?;
        for (flag, field) in CREDENTIALS {
            curl.arg(flag).arg(self.credential(&kubeconfig, field)?);
        }
        curl.args(["--request", method, &format!("{}{path}", self.base)]);
        Ok(curl)
    }

    /// A field of the administrator's kubeconfig as a file of its own, which is how curl takes it.
    fn credential(&self, kubeconfig: &str, field: &str) -> Result<PathBuf> {
        let line = kubeconfig
            .lines()
            .find_map(|line| line.trim().trim_start_matches("- ").strip_prefix(field));
        let text = line
            .and_then(|rest| rest.strip_prefix(':'))
            .context("the kubeconfig lacks a credential")?;
        let bytes = base64::engine::general_purpose::STANDARD.decode(text.trim().trim_matches('"'))?;
        let file = self.data_dir.join(format!("up.{field}"));
        let mut options = fs::OpenOptions::new();
        options
            .write(true)
            .create(true)
            .truncate(true)
            .mode(0o600)
            .open(&file)?
            .write_all(&bytes)?;
        Ok(file)
    }
}
