//! Upstream's kubectl, pointed at a server under test.

use super::Host;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

/// Nothing in these tests takes longer; a wait that does has failed.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Upstream's kubectl of the pinned version, or `None` after printing what is skipped.
pub(crate) fn kubectl_or_skip(test: &str) -> Option<PathBuf> {
    tool_or_skip(test, "kubectl")
}

/// A program of upstream's, as [`kubectl_or_skip`]. `KNARR_TOOLS`, where it is set (`cargo xtask test` does),
/// means that they are there: nothing is skipped then.
///
/// # Panics
/// It is not there.
pub(crate) fn tool_or_skip(test: &str, name: &str) -> Option<PathBuf> {
    let told = std::env::var("KNARR_TOOLS").map(PathBuf::from).ok();
    let usual = || PathBuf::from(std::env::var("HOME").unwrap_or_default()).join(".cache/knarr/tools");
    let tool = told.clone().unwrap_or_else(usual).join(name);
    if tool.is_file() {
        return Some(tool);
    }
    let why = format!("{name} is not built (cargo xtask tools {name})");
    assert!(told.is_none(), "{why}");
    skipped(test, &why);
    None
}

/// Says which test did not run, and why; past the harness, which keeps what a test prints to itself.
pub(crate) fn skipped(test: &str, why: &str) {
    writeln!(std::io::stderr(), "SKIPPED, not passed: {test}: {why}").expect("stderr");
}

/// Waits for something that others bring about; says what they logged when it does not come.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool, log: impl Fn() -> String) {
    let begun = Instant::now();
    while begun.elapsed() < PATIENCE {
        if holds() {
            return;
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    panic!("waited {PATIENCE:?} for {what}\n{}", log());
}

/// kubectl with a server's kubeconfig, in the place that reaches that server, and in a namespace of the cluster.
#[derive(Clone)]
pub(crate) struct Kubectl {
    pub(crate) program: PathBuf,
    /// Holds the kubeconfig, kubectl's cache and the server's log.
    pub(crate) folder: PathBuf,
    pub(crate) host: Host,
    pub(crate) namespace: Option<String>,
}

impl Kubectl {
    pub(crate) fn kubeconfig(&self) -> PathBuf {
        self.folder.join("kubeconfig")
    }

    /// The same in another namespace, which must be there.
    pub(crate) fn within(&self, namespace: &str) -> Self {
        Self {
            namespace: Some(namespace.to_owned()),
            ..self.clone()
        }
    }

    /// A command, not yet run.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.host.command(&self.program);
        command.arg("--kubeconfig").arg(self.kubeconfig());
        if let Some(namespace) = &self.namespace {
            command.args(["--namespace", namespace]);
        }
        command.args(arguments).stdin(Stdio::null());
        command.env("HOME", &self.folder);
        command
    }

    pub(crate) fn try_kubectl(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("kubectl starts")
    }

    /// Runs a command that must succeed, and returns what it printed.
    #[track_caller]
    pub(crate) fn kubectl(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        let (out, err) = (text(&output.stdout), text(&output.stderr));
        assert!(
            output.status.success(),
            "kubectl {}: {err}{out}\n{}",
            arguments.join(" "),
            self.log()
        );
        out
    }

    /// Runs a command that must be refused, and returns what it complained about.
    #[track_caller]
    pub(crate) fn refused(&self, arguments: &[&str]) -> String {
        let output = self.try_kubectl(arguments);
        assert!(
            !output.status.success(),
            "kubectl {} was accepted",
            arguments.join(" ")
        );
        text(&output.stderr)
    }

    /// Feeds a document to a command that must succeed.
    #[track_caller]
    pub(crate) fn feed(&self, arguments: &[&str], document: &str) -> String {
        let mut file = tempfile::NamedTempFile::new_in(&self.folder).expect("a file");
        std::io::Write::write_all(&mut file, document.as_bytes()).expect("the file is written");
        let mut arguments = arguments.to_vec();
        let name = file.path().display().to_string();
        arguments.extend(["-f", &name]);
        self.kubectl(&arguments)
    }

    /// One field of an object.
    #[track_caller]
    pub(crate) fn field(&self, object: &str, path: &str) -> String {
        self.kubectl(&["get", object, "-o", &format!("jsonpath={path}")])
    }

    /// Waits, following the object, until `--for` holds of it. The panic has its description when it does not.
    #[track_caller]
    pub(crate) fn wait(&self, object: &str, condition: &str) {
        let timeout = format!("--timeout={}s", PATIENCE.as_secs());
        let output = self.try_kubectl(&["wait", object, &format!("--for={condition}"), &timeout]);
        if !output.status.success() {
            let described = self.try_kubectl(&["describe", object]);
            panic!(
                "{object} was not {condition}: {}{}\n{}",
                text(&output.stderr),
                text(&described.stdout),
                self.log()
            );
        }
    }

    /// Waits until an object is gone.
    #[track_caller]
    pub(crate) fn wait_gone(&self, object: &str) {
        // One that has gone already is no complaint.
        self.kubectl(&[
            "wait",
            object,
            "--for=delete",
            &format!("--timeout={}s", PATIENCE.as_secs()),
        ]);
    }

    /// Waits for a value at a JSON path.
    #[track_caller]
    pub(crate) fn wait_value(&self, object: &str, path: &str, value: &str) {
        self.wait(object, &format!("jsonpath={path}={value}"));
    }

    /// Waits for something that other parts of the system bring about.
    #[track_caller]
    pub(crate) fn until(&self, what: &str, holds: impl FnMut() -> bool) {
        until(what, holds, || self.log());
    }

    /// The end of the logs of server and agent.
    pub(crate) fn log(&self) -> String {
        let end = |path: &Path| {
            let log = std::fs::read_to_string(path).unwrap_or_default();
            let lines: Vec<&str> = log.lines().collect();
            lines[lines.len().saturating_sub(30)..].join("\n")
        };
        [self.folder.join("log"), self.folder.join("data/agent/agent.log")]
            .iter()
            .map(|path| end(path))
            .collect::<Vec<_>>()
            .join("\n")
    }
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}
