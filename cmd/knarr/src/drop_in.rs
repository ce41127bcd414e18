//! This binary under the name `kube-apiserver`: the API server alone, with the flags by which test rigs start upstream's
//! (controller-runtime's envtest). A link of that name to the binary is enough.
//!
//! Flags go to `knarr server` as they are. Those that say what this server does anyway are left out; a `--cert-dir` holds what
//! `--data-dir` does otherwise, and the certificate that is served from it, as upstream's `apiserver.crt`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const NAME: &str = "kube-apiserver";
/// Upstream's.
const DEFAULT_CERT_DIR: &str = "/var/run/kubernetes";
/// Folder of the server's own files in it.
const OWN_FOLDER: &str = "knarr";
/// No scheduler, no controllers, no node.
const ALONE: [&str; 4] = [
    "server",
    "--disable-agent",
    "--disable-scheduler",
    "--controllers=-*",
];
/// Flags with one value that this server needs no word for: it always allows privileged containers, its service accounts are always
/// looked up, and bootstrap tokens are always known.
const LEFT_OUT: [&str; 3] = [
    "allow-privileged",
    "service-account-lookup",
    "enable-bootstrap-token-auth",
];

/// The command line of a process, translated where the process has upstream's name.
pub(crate) fn command_line(words: Vec<OsString>) -> Vec<OsString> {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    match name == Some(OsStr::new(NAME)) {
        true => translated(words),
        false => words,
    }
}

fn translated(words: Vec<OsString>) -> Vec<OsString> {
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.by_ref().take(1).collect();
    all.extend(ALONE.map(OsString::from));
    let (mut folder, mut has_certificate) = (PathBuf::from(DEFAULT_CERT_DIR), false);
    while let Some(word) = words.next() {
        let (flag, value) = split(&word);
        match flag.as_deref() {
            Some("cert-dir") => folder = value.or_else(|| words.next()).unwrap_or_default().into(),
            // Upstream's boolean flags take their value with `=` alone.
            Some(flag) if LEFT_OUT.contains(&flag) => {}
            flag => {
                has_certificate |= flag == Some("tls-cert-file");
                all.push(word);
            }
        }
    }
    let (certificate, key) = (folder.join("apiserver.crt"), folder.join("apiserver.key"));
    if !has_certificate && certificate.is_file() && key.is_file() {
        all.extend([
            flag_of("tls-cert-file", &certificate),
            flag_of("tls-private-key-file", &key),
        ]);
    }
    all.push(flag_of("data-dir", &folder.join(OWN_FOLDER)));
    all
}

/// The name of a flag, and its value where the word has it.
fn split(word: &OsStr) -> (Option<String>, Option<OsString>) {
    let Some(flag) = word.to_str().and_then(|word| word.strip_prefix("--")) else {
        return (None, None);
    };
    match flag.split_once('=') {
        Some((flag, value)) => (Some(flag.to_owned()), Some(value.into())),
        None => (Some(flag.to_owned()), None),
    }
}

fn flag_of(name: &str, path: &Path) -> OsString {
    let mut word = OsString::from(format!("--{name}="));
    word.push(path);
    word
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = line.split(' ').map(OsString::from).collect();
        let found: Vec<String> = command_line(words)
            .into_iter()
            .map(|word| word.into_string().unwrap())
            .collect();
        assert_eq!(found.join(" "), expected);
    }

    #[test]
    fn drop_in_starts_the_server_alone() {
        check("/bin/knarr server --cert-dir=x", "/bin/knarr server --cert-dir=x");
        let alone = "server --disable-agent --disable-scheduler --controllers=-*";
        check(
            "kube-apiserver",
            &format!("kube-apiserver {alone} --data-dir=/var/run/kubernetes/knarr"),
        );
        check(
            "/assets/kube-apiserver --allow-privileged=true --cert-dir=/tmp/c --secure-port=1 --etcd-servers http://127.0.0.1:2379",
            &format!(
                "/assets/kube-apiserver {alone} --secure-port=1 --etcd-servers http://127.0.0.1:2379 --data-dir=/tmp/c/knarr"
            ),
        );
    }

    #[test]
    fn drop_in_serves_the_certificate_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        for name in ["apiserver.crt", "apiserver.key"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let words = ["kube-apiserver".into(), "--cert-dir".into(), folder.path().into()];
        let found = command_line(words.to_vec());
        for expected in [
            format!("--tls-cert-file={path}/apiserver.crt"),
            format!("--tls-private-key-file={path}/apiserver.key"),
            format!("--data-dir={path}/knarr"),
        ] {
            assert!(found.contains(&OsString::from(&expected)), "{expected}");
        }
    }
}
