//! This binary under the name `kube-apiserver`: the API server alone, with the flags by which test rigs start upstream's
//! (controller-runtime's envtest). A link of that name to the binary is enough.
//!
//! Flags go to `knarr server` as they are. Those of upstream's that it does not have are in `drop_in_flags.tsv`: left out where
//! their value says what this server does anyway or makes no difference here, else refused with the reason. A `--cert-dir` holds
//! what `--data-dir` does otherwise, and the certificate that is served from it, as upstream's `apiserver.crt`.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

const NAME: &str = "kube-apiserver";
/// Upstream's.
const DEFAULT_CERT_DIR: &str = "/var/run/kubernetes";
/// Folder of the server's own files in it.
const OWN_FOLDER: &str = "knarr";
/// Characters of a value that a refusal shows.
const SHOWN_CHARACTERS: usize = 64;
/// No scheduler, no controllers, no node.
const ALONE: [&str; 4] = [
    "server",
    "--disable-agent",
    "--disable-scheduler",
    "--controllers=-*",
];
const FLAGS: &str = include_str!("drop_in_flags.tsv");

/// A flag of upstream's that this server does not have.
#[derive(Debug, Clone, Copy)]
struct Absent {
    name: &'static str,
    /// It takes its value with `=` alone.
    is_bool: bool,
    /// Values that say nothing new; `*` for all.
    taken: &'static str,
    reason: &'static str,
}

impl Absent {
    fn takes(self, value: &str) -> bool {
        self.taken == "*" || self.taken.split('|').any(|own| own == value)
    }
}

fn absent() -> impl Iterator<Item = Absent> {
    let lines = FLAGS.lines().filter(|line| !line.starts_with('#'));
    lines.map(|line| {
        let mut parts = line.split('\t');
        let mut next = || parts.next().unwrap_or_default();
        Absent {
            name: next(),
            is_bool: next() == "bool",
            taken: next(),
            reason: next(),
        }
    })
}

/// The command line of a process, translated where the process has upstream's name.
///
/// # Errors
/// A flag of upstream's that this server cannot honour, with the reason.
pub(crate) fn command_line(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let name = words.first().map(Path::new).and_then(Path::file_name);
    match name == Some(OsStr::new(NAME)) {
        true => translated(words),
        false => Ok(words),
    }
}

fn translated(words: Vec<OsString>) -> Result<Vec<OsString>, String> {
    let mut words = words.into_iter();
    let mut all: Vec<OsString> = words.by_ref().take(1).collect();
    all.extend(ALONE.map(OsString::from));
    let (mut folder, mut has_certificate) = (PathBuf::from(DEFAULT_CERT_DIR), false);
    while let Some(word) = words.next() {
        let (flag, value) = split(&word);
        match flag.as_deref() {
            Some("cert-dir") => folder = value.or_else(|| words.next()).unwrap_or_default().into(),
            Some(flag) if is_absent(flag) => leave_out(flag, value, &mut words)?,
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
    Ok(all)
}

fn is_absent(flag: &str) -> bool {
    absent().any(|own| own.name == flag)
}

/// Leaves a flag out, with its value.
fn leave_out(
    flag: &str,
    value: Option<OsString>,
    words: &mut impl Iterator<Item = OsString>,
) -> Result<(), String> {
    let Some(own) = absent().find(|own| own.name == flag) else {
        return Ok(());
    };
    let value = match value {
        None if own.is_bool => "true".into(),
        None => words.next().unwrap_or_default(),
        Some(value) => value,
    };
    let value = value.to_string_lossy();
    match own.takes(&value) {
        true => Ok(()),
        false => {
            let shown: String = value.chars().take(SHOWN_CHARACTERS).collect();
            Err(format!("--{flag}={shown} cannot be honoured: {}", own.reason))
        }
    }
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

    const UPSTREAM: &str = include_str!("../testdata/kube_apiserver_flags.txt");

    #[track_caller]
    fn check(line: &str, expected: &str) {
        let words = line.split(' ').map(OsString::from).collect();
        let found: Vec<String> = command_line(words)
            .unwrap()
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

    fn refused(line: &str) -> Option<String> {
        command_line(line.split(' ').map(OsString::from).collect()).err()
    }

    #[test]
    fn drop_in_leaves_out_what_says_nothing_new() {
        let alone = "server --disable-agent --disable-scheduler --controllers=-*";
        check(
            "kube-apiserver --profiling --watch-cache=false --storage-backend etcd3 --max-connection-bytes-per-sec 0 --v 2 --event-ttl 2h",
            &format!("kube-apiserver {alone} --v 2 --event-ttl 2h --data-dir=/var/run/kubernetes/knarr"),
        );
        assert_eq!(
            refused("kube-apiserver --enable-priority-and-fairness=false").as_deref(),
            Some(
                "--enable-priority-and-fairness=false cannot be honoured: requests are always queued by priority and fairness"
            )
        );
        let cors = refused("kube-apiserver --cors-allowed-origins .* --v 2").unwrap();
        assert!(cors.starts_with("--cors-allowed-origins=.* cannot"), "{cors}");
        assert_eq!(refused("kube-apiserver --encryption --no-such-flag"), None);
    }

    /// Upstream's flags of this release, as its help has them: each is a flag of `knarr server`, or in the table.
    #[test]
    fn drop_in_knows_every_flag_of_upstreams() {
        let command = <crate::Arguments as clap::CommandFactory>::command();
        let server = command.find_subcommand("server").unwrap();
        let own: Vec<&str> = server.get_arguments().filter_map(clap::Arg::get_long).collect();
        let of_all = command.get_arguments().filter_map(clap::Arg::get_long);
        let own: Vec<&str> = own
            .into_iter()
            .chain(of_all)
            .chain(["cert-dir", "help"])
            .collect();
        let unknown = UPSTREAM
            .lines()
            .filter(|name| !own.contains(name) && !is_absent(name));
        assert_eq!(unknown.collect::<Vec<_>>(), Vec::<&str>::new());
        let names: Vec<&str> = absent().map(|own| own.name).collect();
        assert!(names.is_sorted());
        for absent in absent() {
            assert!(
                UPSTREAM.lines().any(|name| name == absent.name),
                "{}",
                absent.name
            );
            assert!(!own.contains(&absent.name), "{} is a flag", absent.name);
            assert!(!absent.reason.is_empty(), "{}", absent.name);
        }
    }

    #[test]
    fn drop_in_serves_the_certificate_of_its_folder() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().display();
        for name in ["apiserver.crt", "apiserver.key"] {
            std::fs::write(folder.path().join(name), "").unwrap();
        }
        let words = ["kube-apiserver".into(), "--cert-dir".into(), folder.path().into()];
        let found = command_line(words.to_vec()).unwrap();
        for expected in [
            format!("--tls-cert-file={path}/apiserver.crt"),
            format!("--tls-private-key-file={path}/apiserver.key"),
            format!("--data-dir={path}/knarr"),
        ] {
            assert!(found.contains(&OsString::from(&expected)), "{expected}");
        }
    }
}
