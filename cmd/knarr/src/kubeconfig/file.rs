//! Kubeconfig files with entries of ours among whatever else their owner keeps in them.
//!
//! A file changes only where its credentials, the authority or the address have to, and then in our cluster and user alone,
//! as `kubectl config set-cluster` and `set-credentials` change it: contexts keep their namespaces, other entries stay.
//!
//! Our entries trust the cluster's own authority, and so request the server's own certificate by a name that it has
//! whatever else the operator serves (`tls-server-name`).

use apiserver_server::pki::{Authority, Identity, LOOPBACK_CLIENT_NAME, write_private};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use serde_json::{Map, Value, json};
use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::{Path, PathBuf};

/// Name of our cluster's entry.
pub(crate) const CLUSTER: &str = "knarr";
/// A file that is longer is not read.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// The file cannot be kept.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KubeconfigError {
    #[error("reading {}", path.display())]
    Reading {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error("{} is not a kubeconfig ({why}): move it away, or give another file", path.display())]
    Unreadable { path: PathBuf, why: String },
    #[error(
        "the cluster {CLUSTER} in {path} has another certificate authority, so it is another cluster: give another file, or \
         remove the entry with `kubectl config delete-cluster {CLUSTER} --kubeconfig {path}`",
        path = path.display()
    )]
    AnotherCluster { path: PathBuf },
}

/// The values of our entries.
#[derive(Clone, Copy)]
pub(crate) struct Entries<'a> {
    /// `https://host:port`.
    pub(crate) server: &'a str,
    pub(crate) authority: &'a Authority,
    pub(crate) user: &'a str,
    /// The only group of the user.
    pub(crate) group: Option<&'a str>,
}

/// One file, as it was read.
#[derive(Debug)]
pub(crate) struct KubeconfigFile {
    path: PathBuf,
    root: Map<String, Value>,
}

impl KubeconfigFile {
    /// A file without entries.
    pub(crate) fn empty(path: &Path) -> Self {
        let empty = json!({"apiVersion": "v1", "kind": "Config", "preferences": {}});
        let Value::Object(root) = empty else {
            unreachable!("a map is written above")
        };
        Self {
            path: path.to_owned(),
            root,
        }
    }

    /// Reads a file; one that is absent, or has nothing in it, is empty.
    pub(crate) fn read(path: &Path) -> Result<Self, KubeconfigError> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(MAX_FILE_BYTES + 1).read_to_end(&mut bytes));
        match read {
            Ok(length) if length as u64 > MAX_FILE_BYTES => Err(unreadable(path, "it is too long")),
            Ok(_) if bytes.trim_ascii().is_empty() => Ok(Self::empty(path)),
            Ok(_) => Self::parse(path, &bytes),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(Self::empty(path)),
            Err(source) => Err(KubeconfigError::Reading {
                path: path.to_owned(),
                source,
            }),
        }
    }

    fn parse(path: &Path, bytes: &[u8]) -> Result<Self, KubeconfigError> {
        let json = machinery_schema::yaml::yaml_to_json(bytes);
        let json = json.map_err(|error| unreadable(path, &error.to_string()))?;
        let root = match serde_json::from_str(&json) {
            Ok(Value::Object(root)) => root,
            Ok(_) => return Err(unreadable(path, "it is not a map")),
            Err(error) => return Err(unreadable(path, &error.to_string())),
        };
        if root.get("kind").is_some_and(|kind| kind != "Config") {
            return Err(unreadable(path, "its kind is not Config"));
        }
        let is_list = |list: &&str| matches!(root.get(*list), None | Some(Value::Null | Value::Array(_)));
        match ["clusters", "users", "contexts"]
            .iter()
            .find(|list| !is_list(list))
        {
            Some(list) => Err(unreadable(path, &format!("its {list} are not a list"))),
            None => Ok(Self {
                path: path.to_owned(),
                root,
            }),
        }
    }

    /// Reads a file whose cluster of our name has this authority, if it has such a cluster.
    pub(crate) fn read_of(path: &Path, authority: &Authority) -> Result<Self, KubeconfigError> {
        let file = Self::read(path)?;
        let cluster = file.member("clusters", CLUSTER, "cluster");
        let is_ours = cluster.is_none_or(|cluster| {
            decoded(cluster, "certificate-authority-data").as_deref() == Some(authority.certificate_pem())
        });
        match is_ours {
            true => Ok(file),
            false => Err(KubeconfigError::AnotherCluster { path: file.path }),
        }
    }

    /// The address of our cluster.
    pub(crate) fn server(&self) -> Option<&str> {
        self.server_of(CLUSTER)
    }

    /// The address of the current context's cluster.
    pub(crate) fn current_server(&self) -> Option<&str> {
        let current = self.root.get("current-context")?.as_str()?;
        let context = self.member("contexts", current, "context")?;
        self.server_of(context.get("cluster")?.as_str()?)
    }

    /// The name of the current context's user.
    pub(crate) fn current_user(&self) -> Option<&str> {
        let current = self.root.get("current-context")?.as_str()?;
        self.member("contexts", current, "context")?.get("user")?.as_str()
    }

    fn server_of(&self, cluster: &str) -> Option<&str> {
        let cluster = self.member("clusters", cluster, "cluster")?;
        cluster.get("server")?.as_str()
    }

    /// The user's certificate and key in the file, whatever signed them.
    pub(crate) fn user_identity(&self, user: &str) -> Option<Identity> {
        let user = self.member("users", user, "user")?;
        let certificate = decoded(user, "client-certificate-data")?;
        Identity::from_pem(certificate, decoded(user, "client-key-data")?)
    }

    /// The authority of the current context's cluster, encoded.
    pub(crate) fn authority(&self) -> Option<CertificateDer<'static>> {
        let current = self.root.get("current-context")?.as_str()?;
        let context = self.member("contexts", current, "context")?;
        let cluster = self.member("clusters", context.get("cluster")?.as_str()?, "cluster")?;
        let pem = decoded(cluster, "certificate-authority-data")?;
        CertificateDer::from_pem_slice(pem.as_bytes()).ok()
    }

    /// The user's credentials in the file, if the authority has signed them.
    pub(crate) fn identity(&self, entries: &Entries<'_>, now: Timestamp) -> Option<Identity> {
        let found = self.user_identity(entries.user)?;
        let is_good = entries
            .authority
            .vouches_for(&found, entries.user, entries.group, now);
        is_good.then_some(found)
    }

    /// Sets our entries, and writes the file if they were others.
    pub(crate) fn put(mut self, entries: &Entries<'_>, identity: &Identity) -> anyhow::Result<()> {
        let before = self.root.clone();
        self.set(entries, identity);
        if self.root != before || !self.path.try_exists()? {
            write_private(&self.path, &self.render())?;
        }
        Ok(())
    }

    /// Sets our cluster and user; a context of them, and the current one, where there is none.
    pub(crate) fn set(&mut self, entries: &Entries<'_>, identity: &Identity) {
        let cluster = self.member_mut("clusters", CLUSTER, "cluster");
        let authority = STANDARD.encode(entries.authority.certificate_pem());
        set(cluster, "server", entries.server);
        set(cluster, "tls-server-name", LOOPBACK_CLIENT_NAME);
        set(cluster, "certificate-authority-data", &authority);
        // Readers take a file before data, or refuse both.
        cluster.remove("certificate-authority");
        cluster.remove("insecure-skip-tls-verify");
        let user = self.member_mut("users", entries.user, "user");
        set(
            user,
            "client-certificate-data",
            &STANDARD.encode(identity.certificate_pem()),
        );
        set(user, "client-key-data", &STANDARD.encode(identity.key_pem()));
        user.remove("client-certificate");
        user.remove("client-key");
        self.set_context(entries.user);
    }

    fn set_context(&mut self, user: &str) {
        let ours = |context: &&Value| {
            let context = &context["context"];
            context["cluster"] == CLUSTER && context["user"] == user
        };
        let contexts = self.root.get("contexts").and_then(Value::as_array);
        let found = contexts.and_then(|all| all.iter().find(ours));
        let name = match found.and_then(|context| context["name"].as_str()) {
            Some(name) => name.to_owned(),
            None => {
                let name = format!("{user}@{CLUSTER}");
                let context = self.member_mut("contexts", &name, "context");
                set(context, "cluster", CLUSTER);
                set(context, "user", user);
                name
            }
        };
        let current = self.root.get("current-context").and_then(Value::as_str);
        if current.is_none_or(str::is_empty) {
            set(&mut self.root, "current-context", &name);
        }
    }

    /// The file's text, in kubectl's form: keys are sorted.
    pub(crate) fn render(&self) -> String {
        let json = Value::Object(self.root.clone()).to_string();
        String::from_utf8_lossy(&apiserver_endpoints::yaml::from_json(json.as_bytes())).into_owned()
    }

    fn member(&self, list: &str, name: &str, member: &str) -> Option<&Value> {
        let all = self.root.get(list)?.as_array()?;
        all.iter().find(|entry| entry["name"] == name)?.get(member)
    }

    fn member_mut(&mut self, list: &str, name: &str, member: &str) -> &mut Map<String, Value> {
        let all = array(self.root.entry(list).or_insert(Value::Null));
        let at = all.iter().position(|entry| entry["name"] == name);
        let at = at.unwrap_or_else(|| {
            all.push(json!({"name": name}));
            all.len() - 1
        });
        map(map(&mut all[at]).entry(member).or_insert(Value::Null))
    }
}

fn unreadable(path: &Path, why: &str) -> KubeconfigError {
    KubeconfigError::Unreadable {
        path: path.to_owned(),
        why: why.to_owned(),
    }
}

fn decoded(entry: &Value, name: &str) -> Option<String> {
    let bytes = STANDARD.decode(entry.get(name)?.as_str()?).ok()?;
    String::from_utf8(bytes).ok()
}

fn set(map: &mut Map<String, Value>, name: &str, value: &str) {
    map.insert(name.to_owned(), Value::from(value));
}

/// The value as a list; any other becomes an empty one.
fn array(value: &mut Value) -> &mut Vec<Value> {
    if !value.is_array() {
        *value = Value::Array(Vec::new());
    }
    value.as_array_mut().expect("it was made a list above")
}

/// The value as a map; any other becomes an empty one.
fn map(value: &mut Value) -> &mut Map<String, Value> {
    if !value.is_object() {
        *value = Value::Object(Map::new());
    }
    value.as_object_mut().expect("it was made a map above")
}

#[cfg(test)]
#[path = "file_tests.rs"]
mod tests;
