//! The Python client, as people install it: it creates, reads, watches, patches and deletes.

#![allow(clippy::disallowed_methods, reason = "tests stand outside the product")]
#![allow(clippy::print_stdout, reason = "a skipped or retried step says so")]

mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use support::Server;
use support::kubectl::skipped;

/// The package and its version; the folder it is installed in carries both.
const PACKAGE: &str = "kubernetes==37.0.2";

fn succeeds(command: &mut Command) -> bool {
    command
        .stdin(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

/// A Python that has the package; made once beside the build's other outputs.
fn python_or_skip(test: &str) -> Option<PathBuf> {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(PACKAGE);
    let python = folder.join("bin/python");
    let has_it = |python: &Path| {
        succeeds(
            Command::new(python)
                .args(["-c", "import kubernetes"])
                .stderr(Stdio::null()),
        )
    };
    if has_it(&python) {
        return Some(python);
    }
    let made = succeeds(Command::new("python3").args(["-m", "venv"]).arg(&folder))
        && succeeds(Command::new(&python).args(["-m", "pip", "install", "--quiet", PACKAGE]));
    if made && has_it(&python) {
        return Some(python);
    }
    skipped(
        test,
        &format!("no python3 with venv and pip, or no way to {PACKAGE}"),
    );
    None
}

#[test]
fn the_python_client_does_its_work() {
    let test = "the_python_client_does_its_work";
    let Some((python, server)) = python_or_skip(test).zip(Server::start_or_skip(test)) else {
        return;
    };
    let story = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/python/story.py");
    let output = Command::new(python)
        .arg(story)
        .env("KUBECONFIG", server.kubeconfig())
        .stdin(Stdio::null())
        .output()
        .expect("it starts");
    let (out, err) = (
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr),
    );
    assert!(output.status.success(), "{out}{err}\n{}", server.log());
    assert_eq!(out.lines().last(), Some("all told"));
}
